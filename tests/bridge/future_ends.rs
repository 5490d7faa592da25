//! The end of a process with futures: each is dropped once, before the end is reported. Statement 5.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::{
    BoxError, CommandError, Event, Events, Exit, Handle, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag,
    Upgrade,
};

use crate::helpers::*;
use crate::puppet_future::*;

#[derive(Clone, Copy)]
enum End {
    Done,
    Fail,
    Panic,
}

/// Hosts many futures, of which every tenth has a destructor that panics.
struct Host {
    futures: Vec<Puppet>,
}

impl Process for Host {
    type Message = End;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, End>, out: &mut StepOutput) -> StepResult<()> {
        for future in self.futures.drain(..) {
            out.future_timeout(Duration::from_secs(3600), future);
        }
        match events.next() {
            Some(Event::Message(End::Done)) => Ok(Step::Done(())),
            Some(Event::Message(End::Fail)) => Err(BoxError::from("on purpose")),
            Some(Event::Message(End::Panic)) => panic!("on purpose"),
            Some(_) => Ok(Step::Wait),
            None => Ok(Step::Idle),
        }
    }
}

fn host(runtime: &Runtime, count: usize) -> (Handle<Host>, Strings) {
    let strings = Strings::default();
    let future = |n| {
        if n % 10 == 3 { strings.future_with(|| panic!("on purpose")) } else { strings.future() }
    };
    let handle = runtime.spawn(Host { futures: (0..count).map(future).collect() }).unwrap();
    until("all futures were polled", || strings.polls() == count);
    (handle, strings)
}

#[test]
fn every_future_is_dropped_once_before_join_returns() {
    const FUTURES: usize = 10_000;
    let runtime = runtime(2);
    for end in [Some(End::Done), Some(End::Fail), Some(End::Panic), None] {
        let (handle, strings) = host(&runtime, FUTURES);
        match end {
            Some(end) => runtime.send(handle.address(), end).unwrap(),
            None => assert!(runtime.terminate(handle.pid()).unwrap()),
        }
        join(&handle);
        assert_eq!((strings.polls(), strings.drops()), (FUTURES, FUTURES));
        assert_eq!(runtime.stats().timers, 0, "their limits are gone");
    }
    let (handle, strings) = host(&runtime, FUTURES);
    runtime.shutdown(Duration::ZERO).unwrap();
    join(&handle);
    assert_eq!((strings.polls(), strings.drops()), (FUTURES, FUTURES));
}

/// A state machine whose futures are those of its letter. It recovers as the next letter, or is upgraded to it.
struct Letter {
    name: char,
    yields: Option<Strings>,
    next: Option<Strings>,
    seen: Log<(char, u64)>,
}

impl Letter {
    fn successor(&mut self) -> Letter {
        Letter { name: 'b', yields: self.next.take(), next: None, seen: self.seen.clone() }
    }
}

enum Turn {
    Fail,
    Upgrade,
}

impl Process for Letter {
    type Message = Turn;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Turn>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(strings) = self.yields.take() {
            let tag: Tag<u32> = out.future(strings.future());
            self.seen.push((self.name, tag.id()));
        }
        match events.next() {
            Some(Event::Message(Turn::Fail)) => Err("on purpose".into()),
            Some(Event::Message(Turn::Upgrade)) => Ok(Step::Upgrade(Upgrade::to(self.successor()))),
            Some(Event::Completed(done)) => {
                self.seen.push((self.name, done.tag()));
                Ok(if self.name == 'b' { Step::Done(()) } else { Step::Idle })
            }
            _ => Ok(Step::Idle),
        }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(self.successor()))
    }
}

#[test]
fn a_recovery_drops_the_futures_of_the_failed_state_machine() {
    let (runtime, old, new, seen) = (runtime(1), Strings::default(), Strings::default(), Log::new());
    let letter = Letter { name: 'a', yields: Some(old.clone()), next: Some(new.clone()), seen: seen.clone() };
    let handle = runtime.spawn(letter).unwrap();
    until("the future was polled", || old.polls() == 1);
    runtime.send(handle.address(), Turn::Fail).unwrap();
    until("the future of the next one was polled", || new.polls() == 1);
    assert_eq!(old.drops(), 1);
    old.finish();
    new.finish();
    output(&handle);
    let seen = seen.take();
    assert_eq!(old.polls(), 1);
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!((seen[1].0, seen[2]), ('b', seen[1]), "the answer is that of the next one");
}

#[test]
fn an_upgrade_keeps_the_futures() {
    let (runtime, strings, seen) = (runtime(1), Strings::default(), Log::new());
    let letter = Letter { name: 'a', yields: Some(strings.clone()), next: None, seen: seen.clone() };
    let handle = runtime.spawn(letter).unwrap();
    until("the future was polled", || strings.polls() == 1);
    runtime.send(handle.address(), Turn::Upgrade).unwrap();
    strings.finish();
    output(&handle);
    let seen = seen.take();
    assert_eq!((seen.len(), seen[0].1), (2, seen[1].1));
    assert_eq!((seen[1].0, strings.drops()), ('b', 1));
}

#[test]
fn a_future_may_end_its_own_process() {
    let (runtime, steps) = (runtime(1), Arc::new(AtomicUsize::new(0)));
    let (inside, counted) = (runtime.clone(), steps.clone());
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        counted.fetch_add(1, Ordering::SeqCst);
        let (runtime, me) = (inside.clone(), out.pid());
        out.future(async move {
            runtime.terminate(me).unwrap();
        });
        Ok(Step::<()>::Idle)
    });
    let exit = join(&runtime.spawn(process).unwrap());
    assert!(matches!(exit, Exit::Terminated(_)));
    assert_eq!(steps.load(Ordering::SeqCst), 1, "its answer is not stepped any more");
}

#[test]
fn a_poll_must_not_block_its_worker() {
    let runtime = runtime(1);
    let inside = runtime.clone();
    let (process, answer) = awaiting_one(move |out| {
        out.future(async move {
            // Its step needs this worker.
            let other = inside.spawn(sink::<Reply<u32>>()).unwrap();
            let answer = inside.ask(other.address(), |reply| reply, Duration::from_secs(1)).wait();
            u32::from(matches!(answer, Err(CommandError::InsideStep)))
        })
    });
    output(&runtime.spawn(process).unwrap());
    assert_eq!(answer.take(), [Ok(1)]);
}
