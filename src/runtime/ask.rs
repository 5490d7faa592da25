//! Questions from outside.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::system::Runtime;
use crate::inside::is_step;
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::process::{Address, CommandError, OutsideAsk, Reply};
use crate::sync::{Arc, Weak, thread};
use crate::timer::{Kept, Timers};

/// Looks of one who asks, before it sleeps.
const LOOKS: u32 = 64;

impl Runtime {
    /// Asks a process, and blocks the calling thread until it has replied: `question` makes the message around the
    /// [`Reply`] that it carries.
    ///
    /// # Errors
    /// Why there is no reply: at once if the process is not there, takes other messages, is full, ends, or drops the
    /// reply; and when `limit` is over. Refused inside a step, which must not block: ask with
    /// [`StepOutput::ask`](crate::StepOutput::ask) there.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        &self,
        to: Address<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> Result<T, CommandError> {
        if is_step() {
            return Err(CommandError::InsideStep);
        }
        let ask = self.put_question(to, question);
        // A process that is awake answers sooner than a thread falls asleep and is woken again.
        for _ in 0..LOOKS {
            if ask.answer.is_set() {
                break;
            }
            thread::yield_now();
        }
        let clock = &self.core().road.clock;
        if !ask.answer.is_set() {
            self.sleep_until_answered(&ask, limit);
        }
        // Decided, and whoever decided has set the answer or is about to.
        ask.answer.wait_until(clock, crate::clock::Deadline::NEVER);
        ask.take().unwrap_or(Err(CommandError::Dropped))
    }

    fn sleep_until_answered<T: Send + 'static>(&self, ask: &Arc<OutsideAsk<T>>, limit: Duration) {
        let core = self.core();
        let clock = &core.road.clock;
        let deadline = clock.deadline(limit);
        // With the end of the runtime nobody might answer any more, or wake this thread.
        let late = Late { ask: Arc::downgrade(ask), why: CommandError::Cancelled(Reason::Shutdown) };
        match core.timers.never(Box::new(move || drop(late))) {
            Ok(kept) => {
                if !ask.answer.wait_until(clock, deadline) {
                    // If the reply comes at this very moment, this changes nothing and the reply is there.
                    ask.give_up(CommandError::TimedOut);
                }
                drop(core.timers.take_back(kept));
            }
            // The runtime has ended, and dropping this gives the question up.
            Err(late) => drop(late),
        }
    }

    /// Asks a process, for async code: a future of the reply, or of the error that says why there is none. The limit
    /// runs from this call. Dropping the future gives the question up; a reply is then too late.
    pub fn ask_async<M: Send + 'static, T: Send + 'static>(
        &self,
        to: Address<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> AskFuture<T> {
        let ask = self.put_question(to, question);
        let timers = self.core().timers.clone();
        let mut timer = None;
        if !ask.answer.is_set() {
            let mut late = Late { ask: Arc::downgrade(&ask), why: CommandError::Cancelled(Reason::Shutdown) };
            let time_out = move || {
                late.why = CommandError::TimedOut;
                drop(late);
            };
            match timers.after_or_never(limit, Box::new(time_out)) {
                Ok(kept) => timer = Some(kept),
                Err(_) => ask.give_up(CommandError::Cancelled(self.core().why_no_timer())),
            }
        }
        AskFuture { ask, timers, timer, place: None }
    }

    fn put_question<M: Send + 'static, T: Send + 'static>(
        &self,
        to: Address<M>,
        question: impl FnOnce(Reply<T>) -> M,
    ) -> Arc<OutsideAsk<T>> {
        let ask = Arc::new(OutsideAsk::new(self.core().clone(), to.pid()));
        let message = question(Reply::new(ask.clone()));
        let full = || ask.refuse(CommandError::Full(to.pid()));
        if let Err(refused) = self.core().road.ask(to.pid(), message, full) {
            let (message, why) = Rejected::into_parts(refused);
            ask.refuse(why.into());
            // Dropping the message drops the reply in it, which answers; if it held none, nobody ever will.
            drop_contained(message);
            ask.give_up(CommandError::Dropped);
        }
        ask
    }
}

/// Gives a question up when it is dropped: by its timer, or with its timer when the runtime ends.
struct Late<T: Send + 'static> {
    ask: Weak<OutsideAsk<T>>,
    why: CommandError,
}

impl<T: Send + 'static> Drop for Late<T> {
    fn drop(&mut self) {
        if let Some(ask) = self.ask.upgrade() {
            ask.give_up(self.why.clone());
            drop_contained(ask);
        }
    }
}

/// A question that was asked from outside, as a future of its answer. Not to be polled again when it was ready once.
pub struct AskFuture<T: Send + 'static> {
    ask: Arc<OutsideAsk<T>>,
    timers: Timers,
    timer: Option<Kept>,
    place: Option<u64>,
}

// Shared references and numbers; nothing is pinned.
impl<T: Send + 'static> Unpin for AskFuture<T> {}

impl<T: Send + 'static> Future for AskFuture<T> {
    type Output = Result<T, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AskFuture { ask, place, .. } = &mut *self;
        ask.poll(cx, place)
    }
}

impl<T: Send + 'static> Drop for AskFuture<T> {
    fn drop(&mut self) {
        self.ask.answer.forget_waker(self.place.take());
        self.ask.give_up(CommandError::Cancelled(Reason::Cancelled));
        if let Some(kept) = self.timer.take() {
            drop(self.timers.take_back(kept));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for AskFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskFuture").field("answered", &self.ask.answer.is_set()).finish()
    }
}
