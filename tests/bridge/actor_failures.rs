//! Actors that fail: what is lost, and what goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::actor::{Actions, Actor, ActorProcess, actor};
use procession::supervisor::{ChildSpec, Supervisor, SupervisorMessage};
use procession::testing::{Driver, Status};
use procession::{Address, BoxError, CommandError, Exit, Handle, Reply, Runtime, SpawnOptions, Upgrade};

use crate::helpers::*;

enum Order {
    /// Is sent on, and answered.
    Note(u32, Reply<u32>),
    Fail,
    Panic,
    /// Is kept until the end.
    Keep(Reply<u32>),
}

/// Sends what it notes to a recorder, and zero when it starts.
struct Clerk {
    recorder: Address<u32>,
    kept: Vec<Reply<u32>>,
    recovers: bool,
}

fn clerk(recorder: Address<u32>) -> Clerk {
    Clerk { recorder, kept: Vec::new(), recovers: false }
}

impl Actor for Clerk {
    type Message = Order;
    type Output = ();

    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        out.send(self.recorder, 0);
        Ok(())
    }

    fn receive(&mut self, order: Order, out: &mut Actions<Self>) -> Result<(), BoxError> {
        match order {
            Order::Note(n, reply) => {
                out.send(self.recorder, n);
                out.reply(reply, n);
            }
            Order::Fail => {
                out.send(self.recorder, 1_000);
                return Err("it was told to".into());
            }
            Order::Panic => {
                out.send(self.recorder, 1_000);
                panic!("it was told to");
            }
            Order::Keep(reply) => self.kept.push(reply),
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }

    fn recover(&mut self, _: &Exit) -> Option<Clerk> {
        self.recovers.then(|| Clerk { recovers: true, ..clerk(self.recorder) })
    }
}

fn supervised(runtime: &Runtime, child: ChildSpec) -> Handle<Supervisor> {
    let supervisor = Supervisor::builder().intensity(1_000, LIMIT).child(child).build().unwrap();
    let supervisor = runtime.spawn(supervisor).unwrap();
    runtime.ask(&supervisor, SupervisorMessage::started, LIMIT).wait().unwrap();
    supervisor
}

fn named() -> SpawnOptions {
    SpawnOptions::new().name("clerk")
}

/// Sends 99 notes, and one order that fails among them. The actor is held up until all of them wait.
fn ninety_nine_of_a_hundred(runtime: &Runtime, seen: &Log<u32>, failing: fn() -> Order) {
    until("it has started", || seen.len() == 1);
    seen.take();
    let (holder, blocker) = hold_up(runtime);
    let kept = runtime.ask("clerk", Order::Keep, LIMIT);
    let mut asked = Vec::new();
    for n in 1..100 {
        if n == 50 {
            runtime.send("clerk", failing()).unwrap();
        }
        asked.push(runtime.ask("clerk", |reply| Order::Note(n, reply), LIMIT));
    }
    blocker.release();
    join(&holder);
    for (n, asked) in (1..100).zip(asked) {
        assert_eq!(asked.wait().unwrap(), n);
    }
    assert!(matches!(kept.wait(), Err(CommandError::Dropped)), "a reply that the failed one held");
    until("all is noted", || seen.len() == 100);
    let expected: Vec<u32> = (1..50).chain([0]).chain(50..100).collect();
    assert_eq!(seen.take(), expected, "the others have their effects, in order, and the new one has started");
    assert_accounted(runtime);
}

#[test]
fn one_message_of_a_hundred_fails_alone_in_place() {
    for failing in [|| Order::Fail, || Order::Panic] {
        let (runtime, seen) = (runtime(1), Log::new());
        let recorder = runtime.spawn(recorder(&seen)).unwrap().address();
        let supervisor =
            supervised(&runtime, ChildSpec::in_place("clerk", move || actor(clerk(recorder))).options(named));
        let pid = runtime.whereis("clerk");
        ninety_nine_of_a_hundred(&runtime, &seen, failing);
        assert_eq!(runtime.whereis("clerk"), pid);
        assert_eq!(runtime.stats().messages.dead(), 1, "the one that failed");
        runtime.cancel(&supervisor, "closing time").unwrap();
        output(&supervisor);
    }
}

#[test]
fn an_actor_can_recover_by_itself() {
    let (runtime, seen) = (runtime(1), Log::new());
    let recorder = runtime.spawn(recorder(&seen)).unwrap().address();
    let clerk = actor(Clerk { recovers: true, ..clerk(recorder) });
    let clerk = runtime.spawn_with(clerk, named()).unwrap();
    ninety_nine_of_a_hundred(&runtime, &seen, || Order::Panic);
    assert!(!clerk.is_finished());
}

#[test]
fn an_actor_recovers_with_the_function_of_its_options() {
    let (runtime, seen) = (runtime(1), Log::new());
    let recorder = runtime.spawn(recorder(&seen)).unwrap().address();
    let options = named().recover_with(move |_| Some(Upgrade::to(actor(clerk(recorder)))));
    let clerk = runtime.spawn_with(actor(clerk(recorder)), options).unwrap();
    ninety_nine_of_a_hundred(&runtime, &seen, || Order::Fail);
    assert!(!clerk.is_finished());
}

#[test]
fn a_supervisor_starts_a_failed_actor_anew() {
    let (runtime, seen) = (runtime(1), Log::new());
    let recorder = runtime.spawn(recorder(&seen)).unwrap().address();
    let supervisor = supervised(&runtime, ChildSpec::new("clerk", move || actor(clerk(recorder))).options(named));
    let first = runtime.whereis("clerk").unwrap();
    runtime.send("clerk", Order::Fail).unwrap();
    until("it has another PID", || runtime.whereis("clerk").is_some_and(|pid| pid != first));
    assert_eq!(runtime.ask("clerk", |reply| Order::Note(5, reply), LIMIT).wait().unwrap(), 5);
    until("all is noted", || seen.len() == 3);
    assert_eq!(seen.take(), [0, 0, 5]);
    runtime.cancel(&supervisor, "closing time").unwrap();
    output(&supervisor);
}

#[test]
fn a_failed_actor_ends_and_does_not_finish() {
    for (order, is_panic) in [(Order::Fail, false), (Order::Panic, true)] {
        let (runtime, seen) = (runtime(1), Log::new());
        let recorder = runtime.spawn(recorder(&seen)).unwrap().address();
        let clerk = runtime.spawn(actor(clerk(recorder))).unwrap();
        runtime.send(&clerk, order).unwrap();
        assert_eq!(matches!(join(&clerk), Exit::Panicked(_)), is_panic);
        until("the start is noted", || seen.len() == 1);
        assert_eq!(seen.take(), [0], "what a later step does not undo");
    }
}

/// Fails in the callback that it is told.
struct Weak {
    at: &'static str,
    finished: Arc<AtomicUsize>,
}

impl Actor for Weak {
    type Message = ();
    type Output = ();

    fn start(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        if self.at == "start" { Err("start".into()) } else { Ok(()) }
    }

    fn receive(&mut self, (): (), out: &mut Actions<Self>) -> Result<(), BoxError> {
        out.stop();
        if self.at == "receive" { Err("receive".into()) } else { Ok(()) }
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.finished.fetch_add(1, Ordering::SeqCst);
        if self.at == "finish" { Err("finish".into()) } else { Ok(()) }
    }
}

#[test]
fn an_error_of_any_callback_is_the_exit() {
    for (at, finished) in [("start", 0), ("receive", 0), ("finish", 1), ("never", 1)] {
        let counted = Arc::new(AtomicUsize::new(0));
        let mut weak: Driver<ActorProcess<Weak>> = Driver::new(actor(Weak { at, finished: counted.clone() }));
        assert_eq!(weak.message(()).run(), Status::Ended);
        let exit = weak.exit().unwrap();
        assert_eq!(exit.to_string().contains(at), at != "never", "{exit}");
        assert_eq!(counted.load(Ordering::SeqCst), finished, "{at}");
    }
}
