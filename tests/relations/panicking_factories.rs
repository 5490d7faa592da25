//! Supervisors: factories, options and errors that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::supervisor::{
    Backoff, ChildError, ChildSpec, ChildState, Restart, SpecError, Supervisor, SupervisorError, SupervisorMessage,
};
use procession::{Event, Events, Exit, Handle, SpawnOptions, Step, StepOutput};

use crate::helpers::*;
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

/// Panics when it is dropped, and counts that. Two that are dropped as parts of one thing end the program.
#[derive(Debug, thiserror::Error)]
#[error("a bomb")]
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("the bomb");
    }
}

fn boss_of(runtime: &procession::Runtime, supervisor: Supervisor) -> Boss {
    let boss: Handle<Supervisor> = runtime.spawn(supervisor).unwrap();
    Boss { runtime: runtime.clone(), handle: boss }
}

#[test]
fn errors_whose_destructors_panic_harm_nobody_who_has_heard_of_them() {
    let (runtime, gone) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let count = gone.clone();
    let fails = move || {
        let count = count.clone();
        script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| match events.next() {
            Some(Event::Message(())) => Err(Box::new(Bomb(count.clone()))),
            Some(Event::Cancel(_)) => Ok(Step::Done(())),
            _ => Ok(Step::Idle),
        })
    };
    let supervisor = Supervisor::builder().intensity(3, 1_000 * SECOND).child(ChildSpec::new("fails", fails)).build();
    let boss = boss_of(&runtime, supervisor.unwrap());
    for restarts in 1..=3 {
        until("it is up", || boss.child("fails").unwrap().state == ChildState::Up);
        runtime.send(boss.pid("fails"), ()).unwrap();
        boss.restarted("fails", restarts);
    }
    runtime.send(boss.pid("fails"), ()).unwrap();
    let Exit::Failed(failure) = join(&boss.handle) else { panic!("it does not fail") };
    let Some(SupervisorError::TooManyRestarts { restarts }) = failure.error().downcast_ref() else {
        panic!("{failure}")
    };
    assert!(restarts.len() == 4 && restarts.iter().all(|(_, exit)| exit.to_string() == "failed: a bomb"));
    assert_eq!(gone.load(Ordering::SeqCst), 0);
    drop((failure, boss));
    until("all are dropped, one by one", || gone.load(Ordering::SeqCst) == 4);
}

#[test]
fn what_children_are_made_of_may_panic_when_it_is_dropped() {
    for by_force in [false, true] {
        let (runtime, gone) = (runtime(2), Arc::new(AtomicUsize::new(0)));
        let temporary = |spec: ChildSpec| spec.restart(Restart::Temporary);
        let supervisor = Supervisor::builder().dynamic("n", |_: &Bomb| sink::<()>(), temporary).build();
        let boss = boss_of(&runtime, supervisor.unwrap());
        let add = || boss.ask(SupervisorMessage::add_of_kind(Bomb(gone.clone()))).unwrap();
        let pids = [add(), add(), add(), add()];
        runtime.terminate(pids[0]).unwrap();
        until("it is forgotten", || boss.children().len() == 3 && gone.load(Ordering::SeqCst) == 1);
        assert!(pids[1..].iter().all(|pid| runtime.is_alive(*pid)), "the others live");
        if by_force {
            runtime.terminate(boss.handle.pid()).unwrap();
            join(&boss.handle);
        } else {
            boss.stop();
        }
        until("all are dropped, one by one", || gone.load(Ordering::SeqCst) == 4);
    }
}

#[test]
fn factories_and_options_may_panic_when_they_are_dropped() {
    let (runtime, gone) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let boss = boss_of(&runtime, Supervisor::builder().build().unwrap());
    let spec = |id: &'static str| {
        let [one, two] = [Bomb(gone.clone()), Bomb(gone.clone())];
        let make = move || {
            let _ = &one;
            sink::<()>()
        };
        let spec = if id == "b" { ChildSpec::in_place(id, make) } else { ChildSpec::new(id, make) };
        spec.options(move || {
            let _ = &two;
            SpawnOptions::new()
        })
    };
    ["a", "b", "c"].into_iter().for_each(|id| assert!(boss.add(spec(id)).is_ok()));
    assert!(boss.add(spec("c")).is_err());
    boss.ask(SupervisorMessage::delete("a")).unwrap();
    boss.ask(SupervisorMessage::delete("b")).unwrap();
    until("those of four are dropped", || gone.load(Ordering::SeqCst) == 6);
    assert_eq!(boss.children().len(), 1);
    boss.stop();
    until("all are dropped", || gone.load(Ordering::SeqCst) == 8);
}

#[test]
fn a_kind_of_children_that_cannot_be_made_is_an_error_and_no_end() {
    let (runtime, gone) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let (panics, same) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (panic, id) = (panics.clone(), same.clone());
    let adjust = move |spec: ChildSpec| {
        assert!(!panic.load(Ordering::SeqCst), "not today");
        if id.load(Ordering::SeqCst) { ChildSpec::new("same", sink::<()>) } else { spec }
    };
    let supervisor = Supervisor::builder().dynamic("n", |_: &u32| sink::<()>(), adjust).build();
    let boss = boss_of(&runtime, supervisor.unwrap());
    let add = || boss.ask(SupervisorMessage::add_of_kind(7_u32));
    let first = add().unwrap();
    panics.store(true, Ordering::SeqCst);
    assert!(matches!(add(), Err(ChildError::FactoryPanicked { message }) if message == "not today"));
    panics.store(false, Ordering::SeqCst);
    let wrong = boss.ask(SupervisorMessage::add_of_kind(Bomb(gone.clone())));
    assert!(matches!(wrong, Err(ChildError::WrongKind { .. })));
    assert_eq!(gone.load(Ordering::SeqCst), 1);
    same.store(true, Ordering::SeqCst);
    add().unwrap();
    assert!(matches!(add(), Err(ChildError::Spec(SpecError::TwoWithOneId { .. }))));
    assert!(runtime.is_alive(first) && boss.children().len() == 2);
    boss.stop();
}

#[test]
fn a_delay_for_ever_is_no_panic() {
    let runtime = runtime(2);
    let backoff = Backoff::exponential(Duration::MAX, Duration::MAX).jitter(0.5);
    let supervisor = Supervisor::builder().backoff(backoff).child(ChildSpec::new("a", sink::<()>)).build();
    let boss = supervise(&runtime, supervisor.unwrap());
    runtime.terminate(boss.pid("a")).unwrap();
    until("it waits", || boss.child("a").unwrap().state == ChildState::Delayed);
    boss.ask(SupervisorMessage::restart("a")).unwrap();
    boss.stop();
}
