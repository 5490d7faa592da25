//! A. The process: how it fails, and that it is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{
    EntryArgs, Event, Events, Exit, ExitError, InitResult, Pid, Process, Runtime, SpawnOptions, Step, StepOutput,
    StepResult, Upgrade,
};

use crate::helpers::*;

/// How a process is to end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Done,
    Fail,
    Panic,
    FailInit,
    PanicInit,
    Upgrade,
    WaitForNothing,
    BlockingDone,
    BlockingPanic,
    Idle,
    Timer,
    Continue,
    PanicInClose,
}

/// Counts how often `init` and `close` were called.
#[derive(Clone, Default)]
struct Counts {
    inits: Arc<AtomicUsize>,
    closes: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
}

struct Mortal {
    way: Way,
    counts: Counts,
}

impl Process for Mortal {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.counts.inits.fetch_add(1, Ordering::Relaxed);
        match self.way {
            Way::FailInit => Err("init".into()),
            Way::PanicInit => panic!("init"),
            _ => Ok(()),
        }
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if events.any(|event| matches!(event, Event::Cancel(_))) {
            return Ok(Step::Done(()));
        }
        match self.way {
            Way::Done | Way::FailInit | Way::PanicInit | Way::PanicInClose => Ok(Step::Done(())),
            Way::Fail => Err("step".into()),
            Way::Panic => panic!("step"),
            Way::Upgrade => {
                let next = Mortal { way: Way::Done, counts: self.counts.clone() };
                Ok(Step::Upgrade(Upgrade::to(next)))
            }
            Way::WaitForNothing => Ok(Step::Wait),
            Way::BlockingDone => {
                self.way = Way::Done;
                Ok(Step::Blocking)
            }
            Way::BlockingPanic => {
                self.way = Way::Panic;
                Ok(Step::Blocking)
            }
            Way::Idle => Ok(Step::Idle),
            Way::Timer => {
                out.after(Duration::from_secs(3_600));
                Ok(Step::Wait)
            }
            Way::Continue => Ok(Step::Continue),
        }
    }

    fn close(&mut self) {
        self.counts.closes.fetch_add(1, Ordering::Relaxed);
        assert!(self.way != Way::PanicInClose, "in close");
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.counts.drops.fetch_add(1, Ordering::Relaxed);
    }
}

const ALL: [Way; 13] = [
    Way::Done,
    Way::Fail,
    Way::Panic,
    Way::FailInit,
    Way::PanicInit,
    Way::Upgrade,
    Way::WaitForNothing,
    Way::BlockingDone,
    Way::BlockingPanic,
    Way::Idle,
    Way::Timer,
    Way::Continue,
    Way::PanicInClose,
];

/// Spawns one of each, from outside and from a process. How many processes that makes, with those of upgrades.
fn spawn_all(runtime: &Runtime, counts: &Counts) -> usize {
    for way in ALL {
        let _ = runtime.spawn(Mortal { way, counts: counts.clone() });
    }
    let inner = counts.clone();
    let parent = runtime
        .spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            for way in ALL {
                out.spawn(Mortal { way, counts: inner.clone() })?;
            }
            Ok(Step::Done(()))
        }))
        .unwrap();
    output(&parent);
    2 * (ALL.len() + 1)
}

#[test]
fn close_is_called_once_for_each_init_however_a_process_ends() {
    for workers in [1, 2] {
        let (runtime, counts) = (runtime(workers), Counts::default());
        let expected = spawn_all(&runtime, &counts);
        until("all have begun", || counts.inits.load(Ordering::Relaxed) == expected);
        let rest = 3 * 2;
        until("all have ended but those who wait for something", || runtime.stats().processes == rest);
        // Of those, one is terminated and the others are asked to stop.
        for (n, info) in runtime.processes().into_iter().enumerate() {
            if n % 2 == 0 {
                runtime.terminate(info.pid).unwrap()
            } else {
                runtime.cancel(info.pid, "stop").unwrap()
            };
        }
        until("all have ended", || runtime.stats().processes == 0);
        runtime.shutdown(LIMIT).unwrap();
        assert_eq!(counts.inits.load(Ordering::Relaxed), expected);
        assert_eq!(counts.closes.load(Ordering::Relaxed), expected);
        assert_eq!(counts.drops.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn close_is_called_once_for_each_init_at_shutdown_and_drop() {
    for round in 0..20 {
        let (runtime, counts) = (runtime(1 + round % 2), Counts::default());
        spawn_all(&runtime, &counts);
        if round % 4 < 2 {
            runtime.shutdown(Duration::ZERO).unwrap();
        }
        drop(runtime);
        // With no time at all, a busy machine may leave some of it to be done behind the back of the shutdown.
        let [inits, closes, drops] = [&counts.inits, &counts.closes, &counts.drops];
        until("all are closed", || closes.load(Ordering::Relaxed) == inits.load(Ordering::Relaxed));
        until("all are dropped", || drops.load(Ordering::Relaxed) >= inits.load(Ordering::Relaxed));
    }
}

#[test]
fn yields_are_performed_in_order_also_those_of_the_last_step() {
    let (runtime, log) = (runtime(1), Log::new());
    let listener = runtime.spawn(recorder(&log)).unwrap();
    let to = listener.address();
    let process = runtime
        .spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            (0..100_u32).for_each(|n| out.send(to, n));
            Ok(Step::Done(()))
        }))
        .unwrap();
    output(&process);
    until("all is stepped", || log.len() == 100);
    assert_eq!(log.take(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_step_that_fails_or_panics_has_no_effects() {
    let watcher = Watcher::new();
    for panics in [false, true] {
        let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
        let log = Log::<u32>::new();
        let listener = runtime.spawn_with(recorder(&log), SpawnOptions::new().name("listener")).unwrap();
        let (to, go) = (listener.address(), Latch::new());
        let gate = go.clone();
        let ran = Arc::new(AtomicUsize::new(0));
        let run = ran.clone();
        let mut begun = false;
        let process = runtime
            .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| -> StepResult<()> {
                if !std::mem::replace(&mut begun, true) {
                    // The three messages come while it is held up here.
                    wait(&gate);
                    return Ok(Step::Idle);
                }
                let run = run.clone();
                out.send(to, 1);
                out.blocking(move || run.fetch_add(1, Ordering::Relaxed));
                out.after(Duration::ZERO);
                out.terminate(to.pid());
                out.cancel(to.pid(), "no");
                let child = out.spawn(sink::<u8>())?;
                out.send(child, 1_u8);
                // It takes two of three.
                events.next();
                events.next();
                if panics { std::panic::panic_any(Payload(7)) } else { Err("it failed".into()) }
            }))
            .unwrap();
        (0..3).for_each(|n| runtime.send(process.address(), n).unwrap());
        go.set(()).unwrap();
        match join(&process).into_result().unwrap_err() {
            ExitError::Failed(failure) => assert_eq!((panics, failure.to_string()), (false, "it failed".into())),
            ExitError::Panicked(panic) => {
                assert!(panics);
                assert_eq!(panic.take_payload().unwrap().downcast_ref::<Payload>().unwrap().0, 7);
            }
            ExitError::Terminated(_) => panic!("nobody terminated it"),
        }
        assert!(runtime.is_alive(to.pid()));
        let stats = runtime.stats();
        assert_eq!((stats.spawned, stats.timers, ran.load(Ordering::Relaxed), log.len()), (2, 0, 0, 0));
        let dead = |reason| stats.messages.dead_by_reason[&reason];
        assert_eq!((dead(DeadLetterReason::StepFailed), dead(DeadLetterReason::Ended)), (2, 1));
        assert_accounted(&runtime);
    }
}

struct Payload(u32);

#[test]
fn the_message_of_a_panic_is_text() {
    let runtime = runtime(1);
    let process = runtime
        .spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> { panic!("at {}", out.pid()) }))
        .unwrap();
    let Exit::Panicked(panic) = join(&process) else { panic!("it panicked") };
    assert_eq!(panic.message(), format!("at {}", process.pid()));
}

#[test]
fn every_second_of_a_thousand_panics_and_the_others_finish() {
    let runtime = runtime(2);
    let handles: Vec<_> = (0..1_000_u32)
        .map(|n| {
            let mut steps = 0;
            let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                steps += 1;
                assert!(steps < 3 || n % 2 == 0, "number {n}");
                Ok(if steps == 5 { Step::Done(n) } else { Step::Continue })
            });
            runtime.spawn(process).unwrap()
        })
        .collect();
    for (n, handle) in handles.iter().enumerate() {
        match join(handle) {
            Exit::Done(output) => assert_eq!((*output as usize, n % 2), (n, 0)),
            Exit::Panicked(panic) => assert_eq!((panic.message(), n % 2), (format!("number {n}").as_str(), 1)),
            other => panic!("{other}"),
        }
    }
    let ended = runtime.stats().ended;
    assert_eq!((ended.done, ended.panicked), (500, 500));
}

#[test]
fn a_worker_whose_process_panics_is_the_one_that_steps_the_next() {
    // One worker: if it did not go on, nobody would, or another thread in its place.
    let (runtime, threads) = (runtime(1), Log::new());
    const PROCESSES: usize = 100;
    for n in 0..PROCESSES {
        let seen = threads.clone();
        let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
            seen.push(std::thread::current().id());
            match n % 4 {
                0 => panic!("in a step"),
                1 => {
                    out.spawn(Mortal { way: Way::PanicInit, counts: Counts::default() })?;
                    out.spawn(Mortal { way: Way::PanicInClose, counts: Counts::default() })?;
                    Ok(Step::Done(()))
                }
                2 => Err("in a step".into()),
                _ => Ok(Step::Done(())),
            }
        }));
        join(&process.unwrap());
    }
    until("all have ended", || runtime.stats().processes == 0);
    let ended = runtime.stats().ended;
    assert_eq!((ended.panicked, ended.failed, ended.done), (50, 25, 75));
    let threads = threads.take();
    assert_eq!(threads.len(), PROCESSES);
    assert!(threads.iter().all(|thread| *thread == threads[0]), "{threads:?}");
    assert_eq!(runtime.stats().workers[0].steps, PROCESSES as u64 + 25, "and those who panicked in `close`");
}

/// A message whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "in a destructor");
    }
}

#[test]
fn destructors_that_panic_disturb_nobody() {
    struct Fragile {
        _bomb: Bomb,
        nobody: Pid,
    }
    impl Process for Fragile {
        type Message = Bomb;
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, Bomb>, out: &mut StepOutput) -> StepResult<()> {
            // Into its own mailbox, which is dropped with it; and to nobody.
            out.send(out.pid().typed(), Bomb);
            out.send(self.nobody, Bomb);
            Ok(Step::Done(()))
        }
    }
    let runtime = runtime(1);
    let fragile = runtime.spawn(Fragile { _bomb: Bomb, nobody: "<0.7.7>".parse().unwrap() }).unwrap();
    assert!(join(&fragile).is_done());
    let bounded = SpawnOptions::new().mailbox(1, Overflow::DropOldest);
    let go = Latch::new();
    let gate = go.clone();
    let holder = runtime
        .spawn_with(
            script(move |_: &mut Events<'_, Bomb>, _: &mut StepOutput| {
                wait(&gate);
                Ok(Step::Done(()))
            }),
            bounded,
        )
        .unwrap();
    for _ in 0..3 {
        runtime.send(holder.address(), Bomb).unwrap();
    }
    go.set(()).unwrap();
    assert!(join(&holder).is_done());
    output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    assert_accounted(&runtime);
}
