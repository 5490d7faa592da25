//! Helpers that the tests share: processes from closures, an observer that writes down what it is told, and expected
//! panics.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use procession::config::RuntimeBuilder;
use procession::observe::{DeadLetter, DeadLetterReason, Observer, ProcessIdentity};
use procession::sync::Latch;
use procession::{Event, Events, Exit, Handle, Pid, Process, Runtime, Step, StepOutput, StepResult};

pub(crate) use crate::wait::*;

/// A runtime with this many workers, whose processes may panic without filling the screen.
pub fn runtime(workers: usize) -> Runtime {
    builder().workers(workers).start().unwrap()
}

pub fn builder() -> RuntimeBuilder {
    quiet_panics();
    Runtime::builder()
}

/// Panics of processes, jobs and handlers are expected here; those of the tests themselves are still told.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !std::thread::current().name().is_some_and(|name| name.starts_with("procession")) {
                loud(info);
            }
        }));
    });
}

/// A process whose step is a closure.
pub struct Script<M, O, F> {
    step: F,
    types: std::marker::PhantomData<fn(M) -> O>,
}

pub fn script<M, O, F>(step: F) -> Script<M, O, F>
where
    F: FnMut(&mut Events<'_, M>, &mut StepOutput) -> StepResult<O> + Send + 'static,
    M: Send + 'static,
    O: Send + Sync + 'static,
{
    Script { step, types: std::marker::PhantomData }
}

impl<M, O, F> Process for Script<M, O, F>
where
    F: FnMut(&mut Events<'_, M>, &mut StepOutput) -> StepResult<O> + Send + 'static,
    M: Send + 'static,
    O: Send + Sync + 'static,
{
    type Message = M;
    type Output = O;

    fn step(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) -> StepResult<O> {
        (self.step)(events, out)
    }
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

/// Keeps one worker busy, from when this returns until the latch is set.
pub fn hold_up(runtime: &Runtime) -> (Handle<impl Process<Output = ()>>, Latch<()>) {
    let (begun, go) = (Latch::new(), Latch::new());
    let (begin, gate) = (begun.clone(), go.clone());
    let holder = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        let _ = begin.set(());
        wait(&gate);
        Ok(Step::Done(()))
    });
    let holder = runtime.spawn(holder).unwrap();
    wait(&begun);
    (holder, go)
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

/// A list that several write.
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Log<T> {
    fn default() -> Log<T> {
        Log::new()
    }
}

impl<T> Log<T> {
    pub fn new() -> Log<T> {
        Log(Arc::default())
    }

    pub fn push(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl<T: Clone> Log<T> {
    pub fn to_vec(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Log<T> {
        Log(self.0.clone())
    }
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
