//! Look-ups of processes by their PIDs, among few and among very many.

use std::cell::Cell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use procession::{Events, Pid, Process, Runtime, Step, StepOutput, StepResult};

use super::measure::{Beside, Measured, Outcome, Setting, Workload, check, memory};
use super::messages;
use super::runtime::finish;

pub(crate) const LOOKUPS: [Workload; 5] = [
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
    Workload {
        name: "snapshot_of_1000000",
        counts: "snapshots of a runtime with 1,000,000 processes and figures by type",
        op: "snapshot",
        n: 20,
        smoke: 1,
        run: |setting| snapshots(setting, 1_000_000),
    },
    Workload {
        name: "pingpong_among_100000",
        counts: "messages between 2 of 100,002 processes, with figures by type",
        op: "message",
        n: 10_000_000,
        smoke: 20_000,
        run: |setting| pingpong(setting, 100_000, None),
    },
    Workload {
        name: "pingpong_beside_snapshots",
        counts: "messages between 2 of 100,002 processes, with figures by type, and 100 snapshots a second beside them",
        op: "message",
        n: 10_000_000,
        smoke: 20_000,
        run: |setting| pingpong(setting, 100_000, Some(Duration::from_millis(10))),
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

/// Spawns so many processes, and waits until each has had its first step, which would otherwise be counted.
fn spawn_resting(runtime: &Runtime, processes: u64) -> Outcome<Vec<Pid>> {
    let pids = (0..processes).map(|_| Ok(runtime.spawn(Rests)?.pid())).collect();
    while !runtime.is_idle() {
        std::thread::yield_now();
    }
    pids
}

fn snapshots(setting: &Setting, processes: u64) -> Outcome<Measured> {
    let runtime = Setting { beside: Beside::Metrics, ..*setting }.runtime()?;
    spawn_resting(&runtime, processes)?;
    let before = memory("VmRSS");
    let began = Instant::now();
    let seen: u64 = (0..setting.n).map(|_| runtime.snapshot().types.iter().map(|one| one.living).sum::<u64>()).sum();
    let measured = Measured::since(began, setting.n).with_actors(before, memory("VmRSS"), 1);
    check("living processes in all snapshots", seen, setting.n * processes)?;
    check("processes that end when asked to", finish(&runtime)?, processes)?;
    Ok(measured)
}

/// Messages between two processes among these. Another thread takes a snapshot each time that `pause` is over.
fn pingpong(setting: &Setting, processes: u64, pause: Option<Duration>) -> Outcome<Measured> {
    let runtime = Setting { beside: Beside::Metrics, ..*setting }.runtime()?;
    spawn_resting(&runtime, processes)?;
    std::thread::scope(|scope| {
        let (over, is_over) = mpsc::channel::<()>();
        let looks = pause.map(|pause| {
            let runtime = &runtime;
            scope.spawn(move || {
                let mut looks = 0;
                while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    looks += u64::from(runtime.snapshot().types.iter().any(|one| one.living >= processes));
                }
                looks
            })
        });
        let (began, lasted) = (Instant::now(), Cell::new(Duration::ZERO));
        let measured = messages::circle_in(&runtime, setting, 2, || {
            lasted.set(began.elapsed());
            drop(over);
        })?;
        let (Some(looks), Some(pause)) = (looks, pause) else { return Ok(measured) };
        let looks = looks.join().map_err(|_| "a snapshot panicked")?;
        // A snapshot takes some time itself.
        let expected = (lasted.get().as_secs_f64() / pause.as_secs_f64() / 4.0) as u64;
        if looks < expected { Err(format!("{looks} snapshots instead of {expected}").into()) } else { Ok(measured) }
    })
}

fn find(setting: &Setting, processes: u64) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let pids = spawn_resting(&runtime, processes)?;
    let began = Instant::now();
    // The stride is large, so that no look-up benefits from the cache lines of the one before.
    let place = |n: u64| ((n * 7_919) % processes) as usize;
    let found = (0..setting.n).filter(|n| runtime.process_state(pids[place(*n)]).is_some()).count() as u64;
    let measured = Measured::since(began, setting.n);
    check("processes that were found", found, setting.n)?;
    check("processes that end when asked to", finish(&runtime)?, processes)?;
    Ok(measured)
}
