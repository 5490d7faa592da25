//! A future that the test moves by hand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use procession::{Completion, Event, Events, Process, Step, StepOutput, StepResult, Tag};

use crate::helpers::*;

/// The strings of a future. Clones move the same one.
#[derive(Clone, Default)]
pub struct Strings(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_ready: AtomicBool,
    polls: AtomicUsize,
    drops: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Strings {
    /// The future. There should be one.
    pub fn future(&self) -> Puppet {
        Puppet { strings: self.clone(), on_drop: None }
    }

    /// A future whose destructor does this.
    pub fn future_with(&self, on_drop: impl FnOnce() + Send + 'static) -> Puppet {
        Puppet { strings: self.clone(), on_drop: Some(Box::new(on_drop)) }
    }

    /// Wakes the future, if it was polled.
    pub fn wake(&self) {
        if let Some(waker) = self.waker() {
            waker.wake();
        }
    }

    /// Makes it ready, and wakes it.
    pub fn finish(&self) {
        self.0.is_ready.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub fn waker(&self) -> Option<Waker> {
        self.0.waker.lock().unwrap().clone()
    }

    pub fn polls(&self) -> usize {
        self.0.polls.load(Ordering::SeqCst)
    }

    pub fn drops(&self) -> usize {
        self.0.drops.load(Ordering::SeqCst)
    }
}

pub struct Puppet {
    strings: Strings,
    on_drop: Option<Box<dyn FnOnce() + Send>>,
}

impl Future for Puppet {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        let inner = &self.strings.0;
        *inner.waker.lock().unwrap() = Some(context.waker().clone());
        let is_ready = inner.is_ready.load(Ordering::SeqCst);
        // Last: a test that has seen the poll finds its waker.
        inner.polls.fetch_add(1, Ordering::SeqCst);
        if is_ready { Poll::Ready(7) } else { Poll::Pending }
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.strings.0.drops.fetch_add(1, Ordering::SeqCst);
        if let Some(on_drop) = self.on_drop.take() {
            on_drop();
        }
    }
}

/// Yields in its first step, and gives each answer to `take`. It ends with the number of its steps when `take` says
/// so, or when it is asked to stop.
pub struct Awaiting<Y, T> {
    pub yields: Option<Y>,
    pub take: T,
    pub tags: Vec<Tag<u32>>,
    pub waits: bool,
    pub steps: usize,
}

pub fn awaiting<Y, T>(yields: Y, take: T) -> Awaiting<Y, T>
where
    Y: FnOnce(&mut StepOutput) -> Vec<Tag<u32>> + Send + 'static,
    T: FnMut(&[Tag<u32>], Completion) -> bool + Send + 'static,
{
    Awaiting { yields: Some(yields), take, tags: Vec::new(), waits: false, steps: 0 }
}

impl<Y, T> Process for Awaiting<Y, T>
where
    Y: FnOnce(&mut StepOutput) -> Vec<Tag<u32>> + Send + 'static,
    T: FnMut(&[Tag<u32>], Completion) -> bool + Send + 'static,
{
    type Message = ();
    type Output = usize;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<usize> {
        self.steps += 1;
        if let Some(yields) = self.yields.take() {
            self.tags = yields(out);
        }
        for event in events {
            let is_over = match event {
                Event::Completed(done) => (self.take)(&self.tags, done),
                Event::Cancel(_) => true,
                _ => false,
            };
            if is_over {
                return Ok(Step::Done(self.steps));
            }
        }
        Ok(if self.waits { Step::Wait } else { Step::Idle })
    }
}

/// Awaits one future, and ends with its answer.
pub fn awaiting_one(
    yields: impl FnOnce(&mut StepOutput) -> Tag<u32> + Send + 'static,
) -> (impl Process<Message = (), Output = usize>, Log<Result<u32, String>>) {
    let answer = Log::new();
    let taken = answer.clone();
    let take = move |tags: &[Tag<u32>], done: Completion| {
        taken.push(done.take(tags[0]).expect("it is the only command").map_err(|error| error.to_string()));
        true
    };
    (awaiting(|out| vec![yields(out)], take), answer)
}
