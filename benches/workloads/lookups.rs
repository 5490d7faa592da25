//! Look-ups of processes by their PIDs, among few and among very many.

use std::time::Instant;

use procession::{Events, Pid, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Workload, check};
use super::runtime::finish;

pub(crate) const LOOKUPS: [Workload; 2] = [
    Workload {
        name: "find_of_10",
        counts: "look-ups of a PID among 10 processes",
        op: "look-up",
        n: 5_000_000,
        smoke: 50_000,
        run: |setting| find(setting, 10),
    },
    Workload {
        name: "find_of_1000000",
        counts: "look-ups of a PID among 1,000,000 processes",
        op: "look-up",
        n: 5_000_000,
        smoke: 50_000,
        run: |setting| find(setting, 1_000_000),
    },
];

/// Idles until it is asked to stop.
struct Rests;

impl Process for Rests {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    }
}

fn find(setting: &Setting, processes: u64) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let spawn = |_| Ok(runtime.spawn(Rests)?.pid());
    let pids: Vec<Pid> = (0..processes).map(spawn).collect::<Outcome<_>>()?;
    // Each process has had its first step, which would otherwise be counted.
    while !runtime.is_idle() {
        std::thread::yield_now();
    }
    let began = Instant::now();
    // The stride is large, so that no look-up benefits from the cache lines of the one before.
    let place = |n: u64| ((n * 7_919) % processes) as usize;
    let found = (0..setting.n).filter(|n| runtime.process_state(pids[place(*n)]).is_some()).count() as u64;
    let measured = Measured::since(began, setting.n);
    check("processes that were found", found, setting.n)?;
    check("processes that end when asked to", finish(&runtime)?, processes)?;
    Ok(measured)
}
