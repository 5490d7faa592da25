//! Statement 59, in a program of its own: what other tests hold at the same time would count as well.

#![allow(unreachable_pub, dead_code)]

#[path = "process/helpers.rs"]
mod helpers;

use procession::{Events, Runtime, Step, StepOutput};

use crate::helpers::*;

#[cfg(target_os = "linux")]
#[test]
fn a_million_processes_in_rounds_of_a_thousand_leave_the_memory_where_it_was() {
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
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
    let after = resident_kib();
    assert!(after < before + 8 * 1024, "{before} KiB before, {after} KiB after");
    assert_eq!(runtime.stats().spawned, 1_001_000);
}
