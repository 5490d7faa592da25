//! The watchdog: a step that runs for too long is reported while it runs.

use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::config::{BuildError, Watchdog};
use procession::observe::{Observer, StepActivity, StuckStep};
use procession::sync::Latch;
use procession::{
    BoxError, EntryArgs, Event, Events, Handle, InitResult, Process, Runtime, SpawnOptions, Step, StepOutput,
    StepResult,
};

use crate::helpers::*;
use crate::support::stuck::*;

/// Where a [`Stopper`] is to be stuck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Init,
    Start,
    Before,
    Message,
    Completed,
    Cancel,
    Down,
    Exit,
    Group,
    Handler,
    Close,
}

/// Does all that a process can do, and is stuck at one thing.
struct Stopper {
    at: Where,
    blocked: Blocked,
}

impl Stopper {
    fn reaches(&self, place: Where) {
        if place == self.at && !self.blocked.has_begun() {
            self.blocked.wait();
        }
    }
}

/// A command whose handler is stuck.
struct Hold(Blocked);

impl Command for Hold {
    type Output = ();
}

impl Process for Stopper {
    type Message = u8;
    type Output = ();

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        self.reaches(Where::Init);
        entry.method("main", |(): ()| Ok(())).finish()
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.reaches(Where::Start);
        let ends = script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Err::<Step<()>, _>("it fails".into()));
        match self.at {
            Where::Completed => drop(out.after(Duration::ZERO)),
            Where::Down => drop(out.spawn_with(ends, SpawnOptions::new().monitor())?),
            Where::Exit => {
                out.trap_exits(true);
                out.spawn_with(ends, SpawnOptions::new().link())?;
            }
            Where::Group => drop(out.subscribe("everybody")),
            Where::Handler => drop(out.command(Hold(self.blocked.clone()))),
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, u8>, _: &mut StepOutput) -> StepResult<()> {
        self.reaches(Where::Before);
        for event in events {
            let place = match event {
                Event::Message(_) => Where::Message,
                Event::Completed(_) => Where::Completed,
                Event::Cancel(_) => Where::Cancel,
                Event::Down(_) => Where::Down,
                Event::Exit(_) => Where::Exit,
                Event::Group(_) => Where::Group,
                _ => continue,
            };
            self.reaches(place);
            if place == Where::Cancel {
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        self.reaches(Where::Close);
    }
}

fn with_handler() -> Watched {
    watched_with(1, 0, |builder| {
        builder.handler(|hold: Hold, completion: Responder<()>| {
            hold.0.wait();
            completion.complete(Ok::<_, procession::BoxError>(()));
            Ok(())
        })
    })
}

/// Spawns the process from inside, so that its `init` is called by a worker.
fn stopper(runtime: &Runtime, at: Where) -> (Blocker, procession::Pid) {
    let held = Blocker::new();
    let mut process = Some(Stopper { at, blocked: held.blocked() });
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let process = process.take().ok_or("stepped once")?;
        Ok(Step::Done(out.spawn_with(process, SpawnOptions::new().name("stopper"))?.pid()))
    });
    let pid = *output(&runtime.spawn(parent).unwrap());
    (held, pid)
}

#[test]
fn a_stuck_step_is_reported_once_and_again_at_its_end() {
    let watched = watched(1, 0);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let slow = script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
        for event in events {
            if let Event::Message(7) = event {
                blocked.wait();
            }
        }
        Ok(Step::<()>::Idle)
    });
    let slow = watched.runtime.spawn_with(slow, SpawnOptions::new().name("slow")).unwrap();
    let to = slow.address();
    let sender = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        [1, 7, 2].into_iter().for_each(|n| out.send(to, n));
        Ok(Step::Done(()))
    });
    let sender = watched.runtime.spawn(sender).unwrap();
    blocker.wait_begun();
    watched.pass();
    let stuck = watched.runtime.stuck_steps();
    assert_eq!((stuck.len(), watched.runtime.stats().stuck_steps), (1, 1));
    let (over, step) = &watched.tells(1)[0];
    assert!(!over);
    for step in [step, &stuck[0]] {
        assert_eq!((step.process.pid, step.process.name.as_deref()), (slow.pid(), Some("slow")));
        assert!(step.process.type_name.contains("Script"), "{step}");
        assert_eq!(step.message_type, type_name::<u64>());
        assert_eq!(step.doing, StepActivity::Message { from: Some(sender.pid()) });
        assert!(step.running_for >= LONG, "{step}");
    }
    watched.clock.advance(LONG * 50);
    assert!(watched.runtime.stuck_steps()[0].running_for >= LONG * 50);
    blocker.release();
    let (over, step) = watched.tells(2).pop().unwrap();
    assert!(over && step.running_for >= LONG * 50 && step.process.pid == slow.pid(), "{step}");
    assert!(watched.runtime.stuck_steps().is_empty());
    watched.clock.advance(LONG * 50);
    assert_eq!(watched.told.len(), 2);
    assert_eq!(watched.runtime.stats().stuck_steps, 1);
}

#[test]
fn what_a_step_is_stuck_in_is_told_whatever_it_is() {
    let all = [
        Where::Init,
        Where::Start,
        Where::Before,
        Where::Message,
        Where::Completed,
        Where::Cancel,
        Where::Down,
        Where::Exit,
        Where::Group,
        Where::Handler,
        Where::Close,
    ];
    for at in all {
        let watched = with_handler();
        let (held, pid) = stopper(&watched.runtime, at);
        match at {
            Where::Message => watched.runtime.send(pid, 1_u8).unwrap(),
            Where::Cancel => drop(watched.runtime.cancel(pid, "enough").unwrap()),
            Where::Close => {
                // One that has not begun is not closed.
                until("it has begun", || watched.runtime.is_idle());
                assert!(watched.runtime.terminate(pid).unwrap());
            }
            _ => {}
        }
        held.wait_begun();
        watched.pass();
        assert_eq!(watched.runtime.stuck_steps().len(), 1, "{at:?}");
        let (_, step) = watched.tells(1).pop().unwrap();
        assert_eq!((step.process.pid, step.process.type_name), (pid, type_name::<Stopper>()), "{at:?}");
        assert_eq!(step.message_type, "u8");
        let right = match (at, step.doing) {
            (Where::Init, StepActivity::Init) | (Where::Start, StepActivity::Start) => true,
            (Where::Before, StepActivity::Step) => true,
            (Where::Message, StepActivity::Message { from: None }) => true,
            (Where::Completed, StepActivity::Completed { .. }) | (Where::Cancel, StepActivity::Cancel) => true,
            (Where::Down, StepActivity::Down { pid: ended }) | (Where::Exit, StepActivity::Exit { pid: ended }) => {
                ended != pid
            }
            (Where::Group, StepActivity::Group) => true,
            (Where::Handler | Where::Close, StepActivity::AfterStep) => true,
            _ => false,
        };
        assert!(right, "{at:?}: {step}");
        held.release();
        assert!(watched.tells(2)[1].0);
        assert!(watched.runtime.terminate(pid).is_ok());
        until("it has ended", || !watched.runtime.is_alive(pid));
        assert_accounted(&watched.runtime);
    }
}

#[test]
fn many_short_steps_are_no_long_one_however_long_they_take_together() {
    let watched = watched(1, 1);
    let (mut steps, begun, go) = (0, Log::new(), Log::<Latch<()>>::new());
    let (begin, gates) = (begun.clone(), go.clone());
    // Each step waits, and is stepped again at once, in the same turn.
    let busy = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        let gate = Latch::new();
        gates.push(gate.clone());
        begin.push(());
        wait(&gate);
        steps += 1;
        Ok(if steps == 20 { Step::Done(()) } else { Step::Continue })
    });
    let busy = watched.runtime.spawn(busy).unwrap();
    for step in 0..20 {
        until("it is stepped", || begun.len() > step);
        watched.clock.advance(LONG - Duration::from_nanos(1));
        assert!(watched.runtime.stuck_steps().is_empty());
        go.to_vec()[step].set(()).unwrap();
    }
    output(&busy);
    assert_eq!((watched.told.len(), watched.runtime.stats().stuck_steps), (0, 0));
}

#[test]
fn exact_step_times_report_a_stuck_step_with_its_exact_time() {
    let watched = watched_with(1, 0, procession::config::RuntimeBuilder::exact_step_times);
    let held = hold_up(&watched.runtime).1;
    watched.clock.advance(LONG - Duration::from_nanos(1));
    assert!(watched.runtime.stuck_steps().is_empty());
    watched.clock.advance(LONG / 4 + Duration::from_nanos(1));
    let step = watched.runtime.stuck_steps().pop().unwrap();
    assert_eq!(step.running_for, LONG + LONG / 4);
    watched.clock.advance(LONG);
    held.release();
    assert_eq!(watched.tells(2)[1].1.running_for, LONG * 2 + LONG / 4);
}

#[test]
fn nobody_looks_while_nobody_works_and_work_is_looked_at_again() {
    let watched = watched(2, 1);
    for _ in 0..10 {
        until("all is at rest", || watched.runtime.is_idle());
        watched.pass();
        until("all is at rest", || watched.runtime.is_idle());
        watched.pass();
        assert_eq!((watched.clock.next_due(), watched.runtime.stats().timers), (None, 0));
        let held = watched.sticks(1);
        assert!(watched.clock.next_due().is_some());
        held[0].release();
        until("it is over", || watched.runtime.stuck_steps().is_empty());
    }
    assert_eq!(watched.tells(20).iter().filter(|(over, _)| *over).count(), 10);
}

#[test]
fn without_a_watchdog_or_with_a_limit_for_ever_nobody_looks() {
    for watchdog in [None, Some(Watchdog::after(Duration::MAX).spare_workers(3))] {
        let clock = ManualClock::new();
        let mut builder = builder().workers(1).clock(clock.clock());
        if let Some(watchdog) = watchdog {
            builder = builder.watchdog(watchdog);
        }
        let runtime = builder.start().unwrap();
        let held = hold_up(&runtime).1;
        assert_eq!(clock.next_due(), None);
        clock.advance(Duration::from_secs(1_000_000));
        let stats = runtime.stats();
        assert!(runtime.stuck_steps().is_empty() && stats.timers == 0 && stats.workers.len() == 1);
        assert_eq!((stats.stuck_steps, stats.spare_workers), (0, 0));
        held.release();
    }
}

#[test]
fn a_watchdog_that_cannot_be_is_an_error_of_the_builder() {
    let none = builder().watchdog(Watchdog::after(Duration::ZERO)).start();
    assert!(matches!(none, Err(BuildError::NoLimit)));
    let many = builder().watchdog(Watchdog::after(LONG).spare_workers(1025)).start();
    assert!(matches!(many, Err(BuildError::OutOfRange { option: "spare_workers", given: 1025, .. })));
    let least = Watchdog::after(Duration::from_nanos(1)).spare_workers(1024);
    let runtime = builder().workers(1).watchdog(least).start().unwrap();
    output(&game(&runtime, 1_000));
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

/// Is stuck itself at the first report, and panics at the second.
struct Hostile {
    blocked: Blocked,
    told: Log<bool>,
}

impl Observer for Hostile {
    fn stuck(&self, _: &StuckStep) {
        self.told.push(false);
        self.blocked.wait();
    }

    fn unstuck(&self, _: &StuckStep) {
        self.told.push(true);
        panic!("in a hook");
    }
}

#[test]
fn a_stuck_or_panicking_observer_blocks_no_worker_and_no_timer() {
    let (clock, told) = (ManualClock::new(), Log::new());
    let blocker = Blocker::new();
    let hook = Hostile { blocked: blocker.blocked(), told: told.clone() };
    let watchdog = Watchdog::after(LONG).spare_workers(1);
    let runtime = builder().workers(1).clock(clock.clock()).watchdog(watchdog).observer(hook).start().unwrap();
    let held = hold_up(&runtime).1;
    clock.advance(LONG * 2);
    blocker.wait_begun();
    assert_eq!(runtime.stuck_steps().len(), 1);
    held.release();
    until("the step is over", || runtime.stuck_steps().is_empty());
    // The worker works, and timers fire.
    output(&game(&runtime, 100));
    let timed = timed(&runtime, &clock);
    output(&timed);
    // The other reports wait, in their order.
    let again = hold_up(&runtime).1;
    clock.advance(LONG * 2);
    again.release();
    until("the step is over", || runtime.stuck_steps().is_empty());
    assert_eq!(told.to_vec(), [false]);
    blocker.release();
    until("all is told", || told.len() == 4);
    assert_eq!(told.to_vec(), [false, true, false, true]);
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

/// A process that is done when a timer has fired.
fn timed(runtime: &Runtime, clock: &ManualClock) -> Handle<impl Process<Output = ()>> {
    let set = Latch::new();
    let is_set = set.clone();
    let timed = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.any(|event| matches!(event, Event::Completed(_))) {
            return Ok(Step::Done(()));
        }
        out.after(Duration::from_secs(1));
        let _ = set.set(());
        Ok(Step::Wait)
    });
    let timed = runtime.spawn(timed).unwrap();
    wait(&is_set);
    until("the timer is set", || runtime.is_idle());
    clock.advance(Duration::from_secs(1));
    timed
}

#[test]
fn what_may_block_is_not_reported_wherever_it_blocks() {
    let watched = watched(1, 0);
    let blocker = Blocker::new();
    let (mut on_pool, blocked) = (false, blocker.blocked());
    let blocking = watched
        .runtime
        .spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            if !std::mem::replace(&mut on_pool, true) {
                return Ok(Step::Blocking);
            }
            blocked.wait();
            Ok(Step::Done(()))
        }))
        .unwrap();
    blocker.wait_begun();
    // The worker is through with it when it is in a step of another process.
    let held = watched.sticks(1);
    watched.clock.advance(LONG * 100);
    let stuck = watched.runtime.stuck_steps();
    assert!(stuck.len() == 1 && stuck[0].process.pid != blocking.pid());
    blocker.release();
    output(&blocking);
    assert_eq!(watched.runtime.stats().stuck_steps, 1);
    held[0].release();
}

#[test]
fn a_stuck_step_that_panics_or_is_terminated_is_reported_ended() {
    let watched = watched(1, 0);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let panics = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| -> StepResult<()> {
        blocked.wait();
        panic!("at last")
    });
    let panics = watched.runtime.spawn(panics).unwrap();
    blocker.wait_begun();
    watched.pass();
    blocker.release();
    join(&panics);
    assert_eq!(watched.tells(2)[1].1.process.pid, panics.pid());

    let held = watched.sticks(1);
    let pid = watched.runtime.stuck_steps()[0].process.pid;
    assert!(watched.runtime.terminate(pid).unwrap());
    held[0].release();
    let (over, step) = watched.tells(4).pop().unwrap();
    assert!(over && step.process.pid == pid);
}

#[test]
fn a_watched_process_gets_its_messages_in_the_same_order() {
    // The events of watched steps go another way; it must be the same to them.
    let run = |builder: procession::config::RuntimeBuilder| {
        let seen = Log::new();
        let log = seen.clone();
        let runtime = builder.workers(1).start().unwrap();
        let mut steps = 0;
        let process = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            steps += 1;
            if steps == 1 {
                out.blocking(|| ());
                return Ok(Step::Wait);
            }
            let mut last = false;
            // Every third message is passed over, and comes again.
            while let Some(event) = events.select(|n| n % 3 != 0 || *n > 90) {
                match event {
                    Event::Message(n) => {
                        log.push(n);
                        last |= n == 100;
                    }
                    Event::Completed(_) => log.push(1_000),
                    _ => {}
                }
            }
            if last {
                events.for_each(|event| {
                    if let Event::Message(n) = event {
                        log.push(n);
                    }
                });
                return Ok(Step::Done(()));
            }
            Ok(Step::Idle)
        });
        let process = runtime.spawn(process).unwrap();
        until("it waits for the answer, or has it", || runtime.stats().workers[0].steps >= 1);
        (1..=100).for_each(|n| runtime.send(process.address(), n).unwrap());
        output(&process);
        assert_accounted(&runtime);
        let mut messages: Vec<u32> = seen.to_vec();
        assert_eq!(messages.iter().filter(|n| **n == 1_000).count(), 1);
        messages.retain(|n| *n != 1_000);
        messages
    };
    let watched = run(builder().watchdog(Watchdog::after(LIMIT)));
    let expected: Vec<u32> = (1..=100).filter(|n| n % 3 != 0 || *n > 90).collect();
    assert_eq!(watched.iter().copied().filter(|n| n % 3 != 0 || *n > 90).collect::<Vec<_>>(), expected);
    assert_eq!(watched, run(builder()));
}

#[test]
fn a_shutdown_names_a_stuck_step_and_does_not_wait_for_it() {
    let watched = watched(1, 1);
    let held = watched.sticks(1);
    let pid = watched.runtime.stuck_steps()[0].process.pid;
    let report = watched.runtime.shutdown(Duration::ZERO).unwrap();
    assert_eq!(report.stuck.iter().map(|process| process.pid).collect::<Vec<_>>(), [pid]);
    held[0].release();
    let told = watched.tells(2);
    assert!(told[1].0);
    let rest: Arc<_> = watched.runtime.shutdown(Duration::ZERO).unwrap();
    assert_eq!(rest.stuck.len(), 1, "there is one report");
}
