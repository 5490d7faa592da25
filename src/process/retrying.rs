//! The process that makes the attempts of a retry.
//!
//! An attempt is a yield of a step. So a retry has a process of its own, which steps until an attempt succeeds. It has
//! the duty to answer the command of its owner. It needs nothing but the public contract, and one thing more: the duty.
//!
//! | the owner's command | this process |
//! |---|---|
//! | is yielded: the duty is put into the slot, then this process is spawned | makes the first attempt |
//! | — | an attempt succeeds, or fails for good: it answers, and is done |
//! | — | an attempt fails: it makes the next one after a pause |
//! | its token is cancelled: the owner ends, fails or cancels | is done, which cancels the attempt |
//!
//! The duty decides between an answer and a cancellation. The callback of the token answers a tag of this process.

use std::time::{Duration, Instant};

use super::command::{CommandError, Tag, TimerFired};
use super::contract::{Process, Step, StepResult};
use super::duty::{Duty, Entrust};
use super::event::{Event, Events};
use super::propagation::{TraceContext, in_trace};
use super::reply::Completion;
use super::retry::Retry;
use crate::cancel::CancelCallback;
use crate::outcome::{Failure, contain, drop_contained};
use crate::primitives::{Arc, Mutex, lock};
use crate::sched::body::{StepOutput, Yield};

/// The place where this process finds its duty.
pub(crate) enum Slot {
    Empty,
    Full(Arc<Duty>),
    /// The process could not be spawned.
    Refused(CommandError),
}

struct Retrying<T, F> {
    retry: Retry,
    attempt: F,
    slot: Arc<Mutex<Slot>>,
    work: Option<Work<T>>,
    /// The trace in which the command was yielded.
    trace: Option<Arc<dyn TraceContext>>,
}

struct Work<T> {
    duty: Arc<Duty>,
    /// The number of the last attempt.
    attempts: u32,
    current: Option<Tag<T>>,
    pause: Option<Tag<TimerFired>>,
    total: Option<Tag<TimerFired>>,
    /// When the limit of all attempts is over.
    end: Option<Instant>,
    /// Answered when the command is cancelled.
    cancelled: Tag<()>,
    _callback: CancelCallback,
}

impl StepOutput {
    /// Attempts a command until it succeeds.
    ///
    /// `attempt` yields one attempt, and returns its tag. It is given the number of the attempt, beginning with 1. It
    /// may yield any command: a [`command`](Self::command), an [`ask`](Self::ask), a
    /// [blocking closure](Self::blocking). The answer of the returned tag is that of the first attempt that succeeds.
    /// If no attempt succeeds, it is the error of the last one. [`Retry`] says how often and when. Give each attempt a
    /// limit of its own, for example with [`command_timeout`](Self::command_timeout).
    ///
    /// An attempt fails if its answer is a [`CommandError`]. A value that is itself an `Err` is a success. So a
    /// [`future`](Self::future) or a [closure](Self::blocking) that returns an `Err` is not attempted again. An error
    /// of a handler is, and so is the failure of a child that an attempt [runs](Self::run). For a future that returns a
    /// `Result`, use [`try_future`](Self::try_future).
    ///
    /// If [`total_time`](Retry::total_time) is over during an attempt, the attempt is given up, and the answer is
    /// [`CommandError::TimedOut`]. If it would be over before the next attempt, the answer is the last error, at once.
    ///
    /// A process of its own makes the attempts. The first one is made soon after this step. So in `attempt`,
    /// [`pid`](Self::pid) is the PID of that process, asks come from it, and no order holds between it and this
    /// process. A panic in `attempt` is the answer. The attempts end with this process, with its state machine if it
    /// fails, or when a step [cancels](Self::cancel_command) the tag. The attempt at work is given up then.
    ///
    /// A shutdown of the runtime does not end the attempts, but it asks the processes that they use to stop. Then an
    /// ask fails, for example with [`CommandError::Dropped`]. This error is not final, so the next attempt follows. A
    /// new child is refused. End this process when it is asked to stop: this ends its attempts.
    ///
    /// ```
    /// use procession::command::{Command, Retry};
    /// use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
    /// use std::time::Duration;
    ///
    /// struct Fetch(u32);
    ///
    /// impl Command for Fetch {
    ///     type Output = String;
    /// }
    ///
    /// #[derive(Default)]
    /// struct Reader { page: Option<Tag<String>> }
    ///
    /// impl Process for Reader {
    ///     type Message = ();
    ///     type Output = String;
    ///
    ///     fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<String> {
    ///         for event in events {
    ///             if let Event::Completed(done) = event && let Some(page) = done.take(self.page) {
    ///                 return Ok(Step::Done(page?));
    ///             }
    ///         }
    ///         if self.page.is_none() {
    ///             let retry = Retry::new().first_pause(Duration::from_millis(1)).attempts(3);
    ///             self.page = Some(out.retry(retry, |out, attempt| {
    ///                 out.command_timeout(Fetch(attempt), Duration::from_secs(10))
    ///             }));
    ///         }
    ///         Ok(Step::Wait)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder()
    ///     .handler(|fetch: Fetch, done| {
    ///         done.complete(if fetch.0 < 3 { Err("busy") } else { Ok("page".to_string()) });
    ///         Ok(())
    ///     })
    ///     .start()?;
    /// assert_eq!(**runtime.spawn(Reader::default())?.join()?.output().unwrap(), "page");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry<T: Send + 'static>(
        &mut self,
        retry: Retry,
        attempt: impl FnMut(&mut StepOutput, u32) -> Tag<T> + Send + 'static,
    ) -> Tag<T> {
        let tag = self.tag();
        let slot = Arc::new(Mutex::new(Slot::Empty));
        let entrusted = slot.clone();
        let entrust: Entrust = Box::new(move |duty| {
            let mut slot = lock(&entrusted);
            match std::mem::replace(&mut *slot, Slot::Empty) {
                Slot::Refused(why) => {
                    drop(slot);
                    duty.answer(Err(why));
                }
                _ => *slot = Slot::Full(duty),
            }
        });
        // Performed before the spawn, so that the process finds its duty.
        self.push(Yield::Entrust { tag: tag.id(), entrust });
        let trace = self.current_trace();
        match self.spawn(Retrying { retry, attempt, slot: slot.clone(), work: None, trace }) {
            Ok(_) => {
                if let Some(Yield::Spawn(body)) = self.yields.last_mut() {
                    body.head.rare().is_helper = true;
                }
            }
            Err(refused) => {
                let (process, why) = refused.into_parts();
                *lock(&slot) = Slot::Refused(CommandError::Failed(Failure::new(why)));
                drop_contained(process);
            }
        }
        tag
    }
}

impl<T, F> Process for Retrying<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut StepOutput, u32) -> Tag<T> + Send + 'static,
{
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.work.is_none() && !self.begins(out) {
            return Ok(Step::Done(()));
        }
        for event in events {
            // A request to stop is ignored. The owner decides when it stops, and its end ends this.
            if let Event::Completed(done) = event
                && self.handles(&done, out)
            {
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Wait)
    }
}

impl<T, F> Retrying<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut StepOutput, u32) -> Tag<T> + Send + 'static,
{
    /// Makes the first attempt. Returns whether it was made.
    fn begins(&mut self, out: &mut StepOutput) -> bool {
        let Slot::Full(duty) = std::mem::replace(&mut *lock(&self.slot), Slot::Empty) else { return false };
        if !is_wanted(&duty) {
            // It was cancelled before this process had its first turn.
            return false;
        }
        let (cancelled, host, me) = (out.tag::<()>(), out.link.clone(), out.pid());
        let callback = move |_: &_| host.answer(me, cancelled.id(), Ok(Box::new(())));
        let _callback = duty.cancel().token().on_cancel(callback);
        let limit = self.retry.limit();
        let total = (limit < Duration::MAX).then(|| out.after(limit));
        let end = total.and_then(|_| out.now().checked_add(limit));
        self.work = Some(Work { duty, attempts: 0, current: None, pause: None, total, end, cancelled, _callback });
        self.attempts(out)
    }

    /// Makes the next attempt. Returns whether it was made.
    fn attempts(&mut self, out: &mut StepOutput) -> bool {
        // The command may have been cancelled when the pause was over already.
        let Some(work) = self.work.as_mut().filter(|work| is_wanted(&work.duty)) else { return false };
        work.attempts = work.attempts.saturating_add(1);
        match contain(|| in_trace(self.trace.as_deref(), || (self.attempt)(out, work.attempts))) {
            Ok(tag) => {
                work.current = Some(tag);
                true
            }
            Err(panic) => {
                // The yields of an attempt that panicked have no effect.
                out.clear();
                work.duty.answer(Err(CommandError::Panicked(panic)));
                false
            }
        }
    }

    /// Handles the answer to one of its commands. Returns whether it is done.
    fn handles(&mut self, done: &Completion, out: &mut StepOutput) -> bool {
        let Some(work) = &mut self.work else { return true };
        if done.is(work.cancelled) {
            return true;
        }
        if done.is(work.total) {
            work.duty.answer(Err(CommandError::TimedOut));
            return true;
        }
        if done.is(work.pause) {
            return match done.take(work.pause) {
                Some(Err(why)) => {
                    // There is no timer, so there is no further attempt.
                    work.duty.answer(Err(why));
                    true
                }
                _ => !self.attempts(out),
            };
        }
        let error = match done.take(work.current) {
            None => return false,
            Some(Ok(value)) => {
                work.duty.answer(Ok(Box::new(value)));
                return true;
            }
            Some(Err(error)) => error,
        };
        match self.retry.next_pause(work.attempts, &error, out.random()) {
            Some(pause) if work.has_time_for(pause, out.now()) => {
                work.pause = Some(out.after(pause));
                false
            }
            _ => {
                work.duty.answer(Err(error));
                true
            }
        }
    }
}

/// Whether the command still waits for its answer.
fn is_wanted(duty: &Duty) -> bool {
    duty.is_open() && duty.cancel().check().is_ok()
}

impl<T> Work<T> {
    /// Whether the next attempt would begin before the limit of all attempts is over.
    fn has_time_for(&self, pause: Duration, now: Instant) -> bool {
        self.end.is_none_or(|end| now.checked_add(pause).is_some_and(|next| next < end))
    }
}
