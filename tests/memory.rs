//! Statement 59, in a program of its own: what other tests hold at the same time would count as well.

#![cfg(target_os = "linux")]
#![allow(unreachable_pub, dead_code)]

#[path = "process/helpers.rs"]
mod helpers;
#[path = "common/blocker.rs"]
mod blocker;
#[path = "common/panics.rs"]
mod panics;
#[path = "common/script.rs"]
mod script;
#[path = "common/wait.rs"]
mod wait;
#[path = "process/resident.rs"]
mod resident;

use procession::{Events, Runtime, Step, StepOutput};

use crate::helpers::*;
use crate::resident::*;

#[test]
fn a_million_processes_in_rounds_leave_no_memory_behind() {
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
}
