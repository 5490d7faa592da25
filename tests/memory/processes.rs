//! Statement 59: the memory of processes.

use procession::{Events, Runtime, Step, StepOutput};

use crate::helpers::*;
use crate::resident::*;

#[test]
fn a_million_processes_in_rounds_leave_no_memory_behind() {
    alone(|| {
        fn round(runtime: &Runtime) {
            let parent = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
                for n in 0..1_000_u32 {
                    let child = out.spawn(script(|events: &mut Events<'_, u32>, _: &mut StepOutput| {
                        Ok(if events.count() > 0 { Step::Done(()) } else { Step::Idle })
                    }))?;
                    out.send(child, n);
                }
                Ok(Step::Done(()))
            });
            output(&runtime.spawn(parent).unwrap());
            until("the round is over", || runtime.stats().processes == 0);
        }
        let runtime = runtime(2);
        (0..50).for_each(|_| round(&runtime));
        let before = resident_kib();
        (0..950).for_each(|_| round(&runtime));
        assert_grown_by_at_most(8 * 1024, before);
        assert_eq!(runtime.stats().spawned, 1_001_000);
    });
}
