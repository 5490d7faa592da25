//! Restart in place with a part of the state: `ChildSpec::in_place_with`. And `Process::start` at such a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::supervisor::{Backoff, ChildSpec, ChildState, Supervisor, SupervisorError};
use procession::{
    Address, BoxError, Event, Events, Exit, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;
use crate::support::node::Way;
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

/// A worker whose total stays. Each exit that `replace` is given is noted.
fn keeping(diary: &Diary, exits: &Log<String>, panics: &Arc<AtomicUsize>) -> ChildSpec {
    let (makes, replaces, exits, panics) = (diary.clone(), diary.clone(), exits.clone(), panics.clone());
    let replace = move |failed: &mut Worker, exit: &Exit| {
        exits.push(exit.to_string());
        if panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            panic!("no replacement");
        }
        let mut next = replaces.worker("a");
        next.total = failed.total;
        next
    };
    ChildSpec::in_place_with("a", move || makes.worker("a"), replace)
}

fn total(boss: &Boss) -> u64 {
    let to: Address<Tell> = boss.pid("a").typed();
    boss.runtime.ask(to, Tell::Read, LIMIT).wait().unwrap()
}

fn boss_of(runtime: &Runtime, child: ChildSpec) -> Boss {
    supervise(runtime, Supervisor::builder().intensity(100, SECOND).child(child).build().unwrap())
}

#[test]
fn a_child_keeps_what_replace_takes_from_the_failed_one() {
    let (runtime, diary, exits) = (runtime(2), Diary::new(), Log::new());
    let boss = boss_of(&runtime, keeping(&diary, &exits, &Arc::default()));
    let pid = boss.pid("a");
    for (round, way) in (1..).zip([Way::Fail, Way::Panic, Way::Fail]) {
        boss.tell("a", Tell::Add(5));
        boss.tell("a", Tell::End(way));
        boss.tell("a", Tell::Add(1));
        boss.restarted("a", round);
        assert_eq!(total(&boss), 6 * round, "what failed is kept, and what waited is taken");
    }
    assert_eq!(boss.pid("a"), pid);
    assert_eq!(exits.take(), ["failed: a failed", "panicked: a panicked", "failed: a failed"]);
    let lives = ["start a", "end a"].repeat(4);
    assert_eq!(diary.take(), lives[..7], "each is closed before the next one begins");
    // A new PID is a new beginning.
    runtime.terminate(pid).unwrap();
    boss.restarted("a", 4);
    assert_eq!((total(&boss), exits.len()), (0, 0));
    // And can be replaced in place as well.
    boss.tell("a", Tell::Add(3));
    boss.tell("a", Tell::End(Way::Fail));
    boss.restarted("a", 5);
    assert_eq!((total(&boss), exits.take().len()), (3, 1));
    boss.stop();
    assert_eq!(diary.alive.load(Ordering::SeqCst), 0);
    until("a quiet moment", || runtime.is_idle());
    assert_accounted(&runtime);
}

#[test]
fn a_panic_of_replace_is_a_failure_like_that_of_a_factory() {
    let (runtime, diary, exits) = (runtime(2), Diary::new(), Log::new());
    let panics = Arc::new(AtomicUsize::new(1));
    let boss = boss_of(&runtime, keeping(&diary, &exits, &panics));
    let pid = boss.pid("a");
    boss.tell("a", Tell::Add(5));
    boss.tell("a", Tell::End(Way::Fail));
    boss.restarted("a", 2);
    assert_ne!(boss.pid("a"), pid, "it begins anew");
    assert_eq!((total(&boss), exits.take().len()), (0, 1));
    boss.stop();

    // If both count as too many, the supervisor says which failures there were.
    panics.store(1, Ordering::SeqCst);
    let supervisor = Supervisor::builder().intensity(1, 1_000 * SECOND).child(keeping(&diary, &exits, &panics)).build();
    let boss = supervise(&runtime, supervisor.unwrap());
    boss.tell("a", Tell::End(Way::Fail));
    let Exit::Failed(failure) = join(&boss.handle) else { panic!("it does not fail") };
    let Some(SupervisorError::TooManyRestarts { restarts }) = failure.error().downcast_ref() else {
        panic!("{failure}")
    };
    let exits: Vec<String> = restarts.iter().map(|(_, exit)| exit.to_string()).collect();
    assert!(exits[0] == "failed: a failed" && exits[1].contains("no replacement"), "{exits:?}");
}

/// Holds a value, whose end it shows. Fails at a message.
struct Holder {
    held: Arc<()>,
    began: Log<&'static str>,
}

impl Process for Holder {
    type Message = ();
    type Output = ();

    fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
        self.began.push("start");
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(())) => Err("on purpose".into()),
            Some(Event::Cancel(_)) => Ok(Step::Done(())),
            _ => Ok(Step::Idle),
        }
    }

    fn close(&mut self) {
        self.began.push("close");
    }
}

/// The replacement is made at once, and begins when the delay is over. If that is never, it is dropped.
#[test]
fn a_replacement_begins_when_the_supervisor_agrees_or_never() {
    for agrees in [false, true] {
        let (clock, held, began) = (ManualClock::new(), Arc::new(()), Log::new());
        let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
        let (value, log) = (held.clone(), began.clone());
        let make = move || Holder { held: value.clone(), began: log.clone() };
        let replace = |failed: &mut Holder, _: &Exit| Holder { held: failed.held.clone(), began: failed.began.clone() };
        let supervisor = Supervisor::builder()
            .intensity(100, SECOND)
            .backoff(Backoff::exponential(SECOND, SECOND))
            .child(ChildSpec::in_place_with("a", make, replace))
            .build();
        let boss = supervise(&runtime, supervisor.unwrap());
        until("it has begun", || began.len() == 1);
        let to: Address<()> = boss.pid("a").typed();
        runtime.send(to, ()).unwrap();
        until("it waits", || boss.child("a").unwrap().state == ChildState::Delayed);
        assert_eq!(began.take(), ["start", "close"]);
        // The test has one, the factory has one, and the replacement that waits has one.
        assert_eq!(Arc::strong_count(&held), 3);
        if agrees {
            clock.advance(SECOND);
            until("it begins", || began.len() == 1);
            boss.stop();
            assert_eq!(began.take(), ["start", "close"]);
        } else {
            runtime.terminate(to.pid()).unwrap();
            until("it has ended", || !runtime.is_alive(to.pid()));
            boss.stop();
            assert_eq!(began.take().len(), 0, "what has not begun is not closed");
        }
        until("all is dropped", || Arc::strong_count(&held) == 1);
    }
}

/// Recovers by itself the first time, and is replaced by another type the second time.
struct Own {
    log: Log<String>,
    name: &'static str,
    recovers: bool,
}

impl Process for Own {
    type Message = Way;
    type Output = ();

    fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
        self.log.push(String::from(self.name));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, Way>, _: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(_)) => Err("on purpose".into()),
            Some(Event::Cancel(_)) => Ok(Step::Done(())),
            _ => Ok(Step::Idle),
        }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recovers.then(|| Upgrade::to(Own { log: self.log.clone(), name: "recovered", recovers: false }))
    }
}

#[test]
fn replace_is_given_only_what_make_or_replace_has_made() {
    let (runtime, log) = (runtime(2), Log::new());
    let (makes, replaces) = (log.clone(), log.clone());
    let first = AtomicBool::new(true);
    let make = move || Own { log: makes.clone(), name: "made", recovers: first.swap(false, Ordering::SeqCst) };
    let replace = move |_: &mut Own, _: &Exit| Own { log: replaces.clone(), name: "replaced", recovers: false };
    let boss = boss_of(&runtime, ChildSpec::in_place_with("a", make, replace));
    let to: Address<Way> = boss.pid("a").typed();
    for restarts in 1..=4 {
        runtime.send(to, Way::Fail).unwrap();
        boss.restarted("a", restarts);
    }
    until("it has begun", || log.len() == 5);
    assert_eq!(log.take(), ["made", "recovered", "made", "replaced", "replaced"]);
    assert_eq!(boss.pid("a"), to.pid());
    boss.stop();
}

/// With and without `replace`: a failing start asks the supervisor, as a failing step does.
#[test]
fn a_child_in_place_is_started_anew_and_may_fail_in_that() {
    struct Starts(Arc<AtomicUsize>);
    impl Process for Starts {
        type Message = ();
        type Output = ();

        fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
            out.send("witness", self.0.fetch_add(1, Ordering::SeqCst));
            if self.0.load(Ordering::SeqCst) == 2 { Err("the second fails".into()) } else { Ok(()) }
        }

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            match events.next() {
                Some(Event::Message(())) => Err("on purpose".into()),
                Some(Event::Cancel(_)) => Ok(Step::Done(())),
                _ => Ok(Step::Idle),
            }
        }
    }
    for replaces in [false, true] {
        let (runtime, seen, starts) = (runtime(2), Log::new(), Arc::<AtomicUsize>::default());
        let witness = recorder::<usize>(&seen);
        runtime.spawn_with(witness, SpawnOptions::new().name("witness")).unwrap();
        let make = move || Starts(starts.clone());
        let spec = match replaces {
            false => ChildSpec::in_place("a", make),
            true => ChildSpec::in_place_with("a", make, |failed: &mut Starts, _| Starts(failed.0.clone())),
        };
        let boss = boss_of(&runtime, spec);
        let to: Address<()> = boss.pid("a").typed();
        runtime.send(to, ()).unwrap();
        boss.restarted("a", 2);
        until("it has started", || seen.len() == 2);
        assert_eq!((seen.take(), boss.pid("a")), (vec![0, 2], to.pid()), "a failing start yields nothing");
        boss.stop();
    }
}
