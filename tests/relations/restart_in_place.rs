//! Restart in place, and `Process::recover`, on which it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::spawn::Overflow;
use procession::supervisor::{Backoff, ChildSpec, ChildState, Restart, Strategy, Supervisor};
use procession::{
    Address, CommandError, Event, Events, Exit, Process, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;
use crate::support::node::{Do, Heard, Way, node};
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

fn in_place(diary: &Diary, id: &'static str) -> ChildSpec {
    let diary = diary.clone();
    ChildSpec::in_place(id, move || diary.worker(id))
}

#[test]
fn a_child_is_replaced_under_its_pid_with_its_mailbox_names_and_monitors() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let supervisor = Supervisor::builder()
        .intensity(100, SECOND)
        .backoff(Backoff::exponential(SECOND, SECOND))
        .child(in_place(&diary, "a").options(|| SpawnOptions::new().name("office")))
        .build();
    let boss = supervise(&runtime, supervisor.unwrap());
    let (pid, watcher) = (boss.pid("a"), node(&runtime));
    watcher.does(&runtime, [Do::Monitor(pid)]);
    runtime.register("second", pid).unwrap();
    boss.tell("a", Tell::Add(5));
    boss.tell("a", Tell::End(Way::Panic));
    until("it waits for its delay", || boss.child("a").unwrap().state == ChildState::Delayed);
    // Messages that are sent during the restart wait.
    (0..10).for_each(|_| runtime.send("office", Tell::Add(1)).unwrap());
    assert_eq!((runtime.whereis("office"), runtime.whereis("second")), (Some(pid), Some(pid)));
    clock.advance(SECOND);
    assert_eq!(runtime.ask("second", Tell::Read, LIMIT).wait().unwrap(), 10, "a new state, the same mailbox");
    assert_eq!((boss.pid("a"), boss.child("a").unwrap().restarts), (pid, 1));
    assert_eq!(diary.take(), ["start a", "end a", "start a"], "the failed one is closed");
    watcher.settles(&runtime);
    assert_eq!(watcher.heard.len(), 0, "nobody is told of an end");
    runtime.terminate(pid).unwrap();
    assert_eq!(watcher.hears(1), [Heard::Down(0, pid, "terminated (terminated)".into())]);
    until("it waits for its delay", || boss.child("a").unwrap().state == ChildState::Delayed);
    clock.advance(SECOND);
    until("it is up under another PID", || boss.child("a").is_some_and(|info| info.pid.is_some_and(|new| new != pid)));
    boss.stop();
    until("a quiet moment", || runtime.is_idle());
    assert_accounted(&runtime);
}

/// Fails at every so many messages; counts what it has stepped in steps that succeeded.
struct Fragile {
    stepped: Arc<AtomicU64>,
    fails_at: u64,
    seen: u64,
}

impl Process for Fragile {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        let mut taken = 0;
        for event in events {
            match event {
                Event::Message(_) => {
                    taken += 1;
                    self.seen += 1;
                    if self.seen == self.fails_at {
                        return Err("fragile".into());
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        self.stepped.fetch_add(taken, Ordering::SeqCst);
        Ok(Step::Idle)
    }
}

/// Senders run throughout; what was accepted was stepped, or taken by a step that failed.
#[test]
fn no_message_that_was_sent_during_restarts_in_place_is_lost() {
    const SENDERS: u64 = 4;
    const EACH: u64 = 5_000;
    for bounded in [false, true] {
        let (stepped, runtime) = (Arc::new(AtomicU64::new(0)), runtime(2));
        let count = stepped.clone();
        let spec = ChildSpec::in_place("fragile", move || Fragile { stepped: count.clone(), fails_at: 700, seen: 0 });
        let spec = spec.options(move || {
            let options = SpawnOptions::new();
            if bounded { options.mailbox(64, Overflow::Refuse) } else { options }
        });
        let supervisor = Supervisor::builder().intensity(usize::MAX, SECOND).child(spec).build();
        let boss = supervise(&runtime, supervisor.unwrap());
        let to: Address<u64> = boss.pid("fragile").typed();
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| (0..EACH).for_each(|n| runtime.send_timeout(to, n, LIMIT).wait().unwrap()));
            }
        });
        until("all is stepped", || runtime.is_idle());
        let messages = runtime.stats().messages;
        let lost = messages.dead_by_reason[&procession::observe::DeadLetterReason::StepFailed];
        assert_eq!(messages.dead(), lost, "only what a failed step had taken");
        assert_eq!(stepped.load(Ordering::SeqCst) + lost, SENDERS * EACH);
        let restarts = boss.child("fragile").unwrap().restarts;
        assert!(restarts > 10, "it has failed again and again: {restarts}");
        assert_eq!(boss.pid("fragile"), to.pid());
        until("a quiet moment", || runtime.is_idle());
        assert_accounted(&runtime);
        boss.stop();
    }
}

#[test]
fn one_that_may_not_go_on_ends_with_the_failure_that_it_had() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let supervisor = Supervisor::builder().intensity(1, 1_000 * SECOND).child(in_place(&diary, "a")).build().unwrap();
    let boss = supervise(&runtime, supervisor);
    let watch = runtime.watch(boss.pid("a"));
    boss.fail("a", 1);
    boss.tell("a", Tell::End(Way::Panic));
    let exit = join(&boss.handle).without_output().to_string();
    assert_eq!(exit, "failed: too many restarts: a (failed: a failed), a (panicked: a panicked)");
    let down = watch.wait_timeout(LIMIT).unwrap();
    assert!(down.exit.to_string().ends_with("panicked: a panicked"), "{}", down.exit);
    assert_eq!(diary.alive.load(Ordering::SeqCst), 0);

    // One that is never restarted is not restarted in place, either.
    let temporary = in_place(&diary, "t").restart(Restart::Temporary);
    let boss = supervise(&runtime, Supervisor::builder().child(temporary).build().unwrap());
    boss.tell("t", Tell::End(Way::Fail));
    until("it is forgotten", || boss.children().is_empty());
    boss.stop();
}

#[test]
fn a_child_that_waits_for_its_restart_in_place_can_be_stopped_at_once() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let supervisor =
        Supervisor::builder().backoff(Backoff::exponential(SECOND, SECOND)).child(in_place(&diary, "a")).build();
    let boss = supervise(&runtime, supervisor.unwrap());
    boss.tell("a", Tell::End(Way::Fail));
    until("it waits", || boss.child("a").unwrap().state == ChildState::Delayed);
    boss.stop();
    assert_eq!((diary.alive.load(Ordering::SeqCst), runtime.stats().processes), (0, 0));
}

#[test]
fn a_factory_or_an_init_that_fails_in_place_is_a_failure_like_any_other() {
    for factory in [false, true] {
        let (runtime, diary) = (runtime(2), Diary::new());
        let supervisor = Supervisor::builder().intensity(10, 1_000 * SECOND).child(in_place(&diary, "a")).build();
        let boss = supervise(&runtime, supervisor.unwrap());
        let pid = boss.pid("a");
        let fails = if factory { &diary.fail_makes } else { &diary.fail_inits };
        fails.store(1, Ordering::SeqCst);
        boss.fail("a", 2);
        assert_ne!(boss.pid("a"), pid, "its process could not go on, so there is another");
        boss.stop();
    }
}

/// Recovers by itself, so many times.
struct Recovers {
    left: usize,
    recovered: Arc<AtomicUsize>,
    panics_in_recover: bool,
}

impl Process for Recovers {
    type Message = u32;
    type Output = u32;

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<u32> {
        for event in events {
            match event {
                Event::Message(0) => {
                    // Both are dropped with the step.
                    out.after(SECOND);
                    out.send(out.pid(), 9_u32);
                    panic!("zero");
                }
                Event::Message(7) => {
                    // Nothing is outstanding, so it may not wait.
                    return Ok(Step::Wait);
                }
                Event::Message(n) => return Ok(Step::Done(n)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<u32>> {
        assert!(!self.panics_in_recover, "in recover");
        assert_eq!(exit.to_string(), "panicked: zero");
        self.recovered.fetch_add(1, Ordering::SeqCst);
        let left = self.left.checked_sub(1)?;
        Some(Upgrade::to(Recovers { left, recovered: self.recovered.clone(), panics_in_recover: false }))
    }
}

#[test]
fn any_process_can_recover_and_a_failed_step_has_no_effects() {
    let runtime = runtime(1);
    let recovered = Arc::new(AtomicUsize::new(0));
    let process = |left, panics_in_recover| Recovers { left, recovered: recovered.clone(), panics_in_recover };
    let spawned = runtime.spawn(process(2, false)).unwrap();
    for message in [0, 0, 3] {
        runtime.send(spawned.address(), message).unwrap();
    }
    assert_eq!(*output(&spawned), 3);
    assert_eq!(recovered.load(Ordering::SeqCst), 2);

    let spawned = runtime.spawn(process(1, false)).unwrap();
    [0, 0, 3].into_iter().for_each(|message| runtime.send(spawned.address(), message).unwrap());
    assert!(matches!(join(&spawned), Exit::Panicked(_)), "one that does not recover ends");

    let spawned = runtime.spawn(process(1, true)).unwrap();
    runtime.send(spawned.address(), 0).unwrap();
    assert_eq!(join(&spawned).without_output().to_string(), "panicked: zero");

    // The timer of the failed step is not outstanding.
    let spawned = runtime.spawn(process(1, false)).unwrap();
    [0, 7].into_iter().for_each(|message| runtime.send(spawned.address(), message).unwrap());
    let exit = join(&spawned).without_output().to_string();
    assert!(exit.contains("no command of the process is outstanding"), "{exit}");
    until("a quiet moment", || runtime.is_idle());
    assert_accounted(&runtime);
}

#[test]
fn a_driven_process_recovers_as_in_a_runtime() {
    use procession::testing::{Driver, Status};
    let recovered = Arc::new(AtomicUsize::new(0));
    let mut driver = Driver::new(Recovers { left: 1, recovered: recovered.clone(), panics_in_recover: false });
    driver.message(0).run();
    assert_eq!((driver.status(), driver.unread()), (Status::Idle, 0));
    driver.message(4).run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), 4);
    assert_eq!(recovered.load(Ordering::SeqCst), 1);
}

#[test]
fn who_asks_one_that_fails_is_answered_though_it_goes_on_in_place() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let supervisor = Supervisor::builder().child(in_place(&diary, "a")).build().unwrap();
    let boss = supervise(&runtime, supervisor);
    let to: Address<Tell> = boss.pid("a").typed();
    // The question is after what makes it fail, and is answered by its successor; its own taker drops it.
    runtime.send(to, Tell::End(Way::Fail)).unwrap();
    match runtime.ask(to, Tell::Read, LIMIT).wait() {
        Ok(total) => assert_eq!(total, 0),
        Err(error) => assert!(matches!(error, CommandError::Dropped), "{error}"),
    }
    boss.stop();
}

#[test]
fn a_child_in_place_keeps_its_pid_unless_a_sibling_fails() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let builder = Supervisor::builder().strategy(Strategy::OneForAll).intensity(100, SECOND);
    let boss = supervise(&runtime, builder.child(in_place(&diary, "a")).child(diary.spec("b")).build().unwrap());
    let (a, b) = (boss.pid("a"), boss.pid("b"));
    boss.fail("a", 1);
    assert_eq!((boss.pid("a"), boss.pid("b")), (a, b));
    diary.take();
    boss.tell("b", Tell::End(Way::Fail));
    until("both are up again", || {
        diary.log.len() == 4 && boss.children().iter().all(|info| info.state == ChildState::Up)
    });
    assert_eq!(diary.take(), ["end b", "end a", "start a", "start b"]);
    assert!(boss.pid("a") != a && boss.pid("b") != b && !runtime.is_alive(a));
    boss.stop();
}

/// A supervisor is a process like any other. It gives up when its children have ended, and the next one starts them
/// anew.
#[test]
fn a_supervisor_that_is_a_child_in_place_begins_anew_under_its_pid() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let boss = supervise(&runtime, Supervisor::builder().intensity(100, 1_000 * SECOND).build().unwrap());
    let make = diary.clone();
    let branch = move || {
        let leaf = make.spec("leaf").options(|| SpawnOptions::new().name("leaf"));
        Supervisor::builder().intensity(0, SECOND).child(leaf).build().unwrap()
    };
    let pid = boss.add(ChildSpec::in_place("branch", branch)).unwrap();
    for times in 1..=3 {
        until("its leaf is up", || runtime.ask("leaf", Tell::Read, LIMIT).wait().is_ok());
        runtime.send("leaf", Tell::End(Way::Fail)).unwrap();
        boss.restarted("branch", times);
        assert_eq!(boss.pid("branch"), pid);
    }
    boss.stop();
    assert_eq!((diary.alive.load(Ordering::SeqCst), runtime.stats().processes), (0, 0));
}

/// Fails in every step.
struct AlwaysFails {
    recovered: Arc<AtomicUsize>,
    /// Whether its `close` and its destructor panic as well.
    panics_at_the_end: bool,
}

impl Process for AlwaysFails {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Err("it always fails".into())
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recovered.fetch_add(1, Ordering::SeqCst);
        let (recovered, panics_at_the_end) = (self.recovered.clone(), self.panics_at_the_end);
        Some(Upgrade::to(AlwaysFails { recovered, panics_at_the_end }))
    }

    fn close(&mut self) {
        assert!(!self.panics_at_the_end, "in close");
    }
}

impl Drop for AlwaysFails {
    fn drop(&mut self) {
        assert!(!self.panics_at_the_end, "in drop");
    }
}

/// It has the only worker, and recovers without end.
#[test]
fn an_always_recovering_process_starves_none_and_can_be_stopped() {
    for panics_at_the_end in [false, true] {
        let (runtime, recovered) = (runtime(1), Arc::new(AtomicUsize::new(0)));
        let fails = AlwaysFails { recovered: recovered.clone(), panics_at_the_end };
        let fails = runtime.spawn(fails).unwrap();
        let other = node(&runtime);
        for _ in 0..10 {
            other.settles(&runtime);
        }
        until("it has recovered", || recovered.load(Ordering::SeqCst) >= 10);
        runtime.cancel(fails.pid(), "enough").unwrap();
        assert_eq!(join(&fails).without_output().to_string(), "failed: it always fails");
    }
}
