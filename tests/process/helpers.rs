//! Helpers that the tests share: processes, and an observer that writes down what it is told.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::config::RuntimeBuilder;
use procession::observe::{DeadLetter, DeadLetterReason, Observer, ProcessIdentity};
use procession::{Event, Events, Exit, Handle, Pid, Process, Runtime, Step, StepOutput, StepResult};

pub(crate) use crate::blocker::*;
pub(crate) use crate::panics::*;
pub(crate) use crate::script::*;
pub(crate) use crate::wait::*;

/// A runtime with this many workers, whose processes may panic without filling the screen.
pub fn runtime(workers: usize) -> Runtime {
    builder().workers(workers).start().unwrap()
}

pub fn builder() -> RuntimeBuilder {
    quiet_panics();
    Runtime::builder()
}

/// A process that is told messages and does nothing with them, until it is asked to stop.
pub fn sink<M: Send + 'static>() -> impl Process<Message = M, Output = usize> {
    let mut seen = 0;
    script(move |events: &mut Events<'_, M>, _: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(_) => seen += 1,
                Event::Cancel(_) => return Ok(Step::Done(seen)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// A process whose first step blocks, and which is done then.
pub fn holder(blocked: Blocked) -> impl Process<Message = (), Output = ()> {
    script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::Done(()))
    })
}

/// Spawns a holder, and does not wait for its step.
pub fn hold_up_later(runtime: &Runtime) -> (Handle<impl Process<Output = ()>>, Blocker) {
    let blocker = Blocker::new();
    (runtime.spawn(holder(blocker.blocked())).unwrap(), blocker)
}

/// Keeps one worker in a step, from when this returns until the blocker releases it.
pub fn hold_up(runtime: &Runtime) -> (Handle<impl Process<Output = ()>>, Blocker) {
    let (holder, blocker) = hold_up_later(runtime);
    blocker.wait_begun();
    (holder, blocker)
}

/// A process that spawns so many others. Each of those waits for all of them, so each needs a worker of its own.
pub fn meeting(processes: usize) -> impl Process<Message = (), Output = ()> {
    let barrier = Arc::new(Barrier::new(processes));
    script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        for _ in 0..processes {
            let barrier = barrier.clone();
            out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                wait(&barrier);
                Ok(Step::Done(()))
            }))?;
        }
        Ok(Step::Done(()))
    })
}

/// Does nothing, and counts that it is closed.
pub struct Closing(pub Arc<AtomicUsize>);

impl Process for Closing {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Does nothing, and blocks in `close`.
#[derive(Clone)]
pub struct BlocksInClose(pub Blocked);

impl Process for BlocksInClose {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        self.0.wait();
    }
}

/// A process that writes down what it is told.
pub fn recorder<M: Send + 'static>(seen: &Log<M>) -> impl Process<Message = M, Output = ()> {
    let seen = seen.clone();
    script(move |events: &mut Events<'_, M>, _: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(message) => seen.push(message),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// How a process ended; a process that does not end is an error.
#[track_caller]
pub fn join<P: Process>(handle: &Handle<P>) -> Exit<Arc<P::Output>> {
    wait(handle)
}

/// The output of a process that is done.
#[track_caller]
pub fn output<P: Process>(handle: &Handle<P>) -> Arc<P::Output>
where
    P::Output: Debug,
{
    join(handle).into_result().unwrap()
}

/// Writes down what it is told: `(pid, text)`.
#[derive(Clone)]
pub struct Watcher {
    pub spawned: Log<Pid>,
    pub exits: Log<(Pid, String)>,
    pub dead: Log<(Pid, Option<Pid>, DeadLetterReason)>,
}

impl Watcher {
    pub fn new() -> Watcher {
        Watcher { spawned: Log::new(), exits: Log::new(), dead: Log::new() }
    }
}

impl Observer for Watcher {
    fn spawned(&self, process: &ProcessIdentity) {
        self.spawned.push(process.pid);
    }

    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        self.exits.push((process.pid, exit.to_string()));
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.dead.push((letter.to, letter.from, letter.reason));
    }
}

/// Waits for a quiet moment, and asserts that every message is accounted for then. The moment comes when the last
/// step is over. A test that has seen the effects of that step may not have waited for its end.
pub fn assert_accounted(runtime: &Runtime) {
    until("every message is accounted for", || {
        let messages = runtime.stats().messages;
        messages.accepted == messages.stepped + messages.dead() + messages.queued
    });
}
