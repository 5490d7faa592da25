//! What the pool runs: a closure, or a closure with somebody who waits for its outcome.

use std::collections::VecDeque;

use crate::outcome::{Panic, contain, drop_contained};
use crate::sync::{Arc, Mutex};

/// A closure to be run once.
pub type Job = Box<dyn FnOnce() + Send>;

/// A job as the pool keeps it. A plain closure is one by itself, so that an empty one needs no memory.
pub(crate) trait Work: Send {
    /// Runs it. A panic of a plain closure comes through.
    fn run(self: Box<Self>) -> Ran;

    /// Drops it instead, because it was cancelled: the closure first, and then whoever waits is told.
    fn cancel(self: Box<Self>) {
        drop_contained(self);
    }

    /// Drops it instead, because no thread could be had for it.
    fn strand(self: Box<Self>) {
        drop_contained(self);
    }
}

/// What a job has left when it was run.
pub(crate) struct Ran {
    pub(super) panic: Option<Panic>,
    pub(super) after: Option<Box<dyn After>>,
}

impl Ran {
    /// Nothing.
    pub(crate) fn nothing() -> Ran {
        Ran { panic: None, after: None }
    }
}

/// What one thread has taken out of the line of a pool that was stopped, to drop it.
pub(super) type Left = Arc<Mutex<VecDeque<Box<dyn Work>>>>;

/// An outcome that is to be told when the worker is counted as free again, so that whoever hears of it finds it free.
pub(crate) trait After: Send {
    /// Tells threads that wait, which runs no code of the user's. What comes back is the rest, and is the user's: wakers,
    /// and values that nobody wants any more.
    fn tell(self: Box<Self>) -> Option<Job>;
}

impl<F: FnOnce() + Send> Work for F {
    fn run(self: Box<Self>) -> Ran {
        self();
        Ran::nothing()
    }
}

/// Runs a job. All panics are in what it returns.
pub(super) fn run_contained(work: Box<dyn Work>) -> Ran {
    contain(|| work.run()).unwrap_or_else(|panic| Ran { panic: Some(panic), after: None })
}

/// A job that is given back to the user. Called, it runs as it would have in the pool, and tells whoever waits.
pub(super) fn into_job(work: Box<dyn Work>) -> Job {
    Box::new(move || {
        let rest = work.run().after.and_then(After::tell);
        if let Some(rest) = rest {
            rest();
        }
    })
}
