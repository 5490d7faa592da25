//! Questions from outside.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::dispatch::Core;
use super::system::Runtime;
use crate::clock::Deadline;
use crate::inside::is_step;
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::primitives::{Arc, Weak, thread};
use crate::process::{Accepts, CommandError, OutsideAsk, Pid, Reply};
use crate::sched::body::Host;
use crate::timer::Kept;

/// How often a waiting thread looks for the answer before it sleeps.
const LOOKS: u32 = 64;

impl Runtime {
    /// Asks a process. `question` makes the message around the [`Reply`] that it carries.
    ///
    /// The question is sent by this call, and the limit runs from it. The [`AskFuture`] is awaited, or
    /// [`wait`](AskFuture::wait)ed for by a thread. It gives the reply, or the error that says why there is none: at once if there is
    /// no process at the target, or if it takes other messages, is full, ends, or drops the reply; and when `limit` is over.
    ///
    /// The runtime looks at the limit from the first poll or wait on. A reply that is there by then is given, however late it
    /// came.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> AskFuture<T> {
        let core = self.core();
        let deadline = core.road.clock.deadline(limit);
        let target = to.resolve(&**core);
        let pid = target.as_ref().map_or_else(|_| core.nobody(), |pid| *pid);
        let ask = Arc::new(OutsideAsk::new(core.clone(), pid));
        match target {
            Ok(pid) => put_question(core, &ask, pid, question),
            Err(why) => ask.give_up(why.into()),
        }
        AskFuture { ask, core: core.clone(), deadline, kept: None, place: None, is_taken: false }
    }
}

fn put_question<M: Send + 'static, T: Send + 'static>(
    core: &Core,
    ask: &Arc<OutsideAsk<T>>,
    to: Pid,
    question: impl FnOnce(Reply<T>) -> M,
) {
    let message = question(Reply::new(ask.clone()));
    let full = || ask.refuse(CommandError::Full(to));
    if let Err(refused) = core.road.ask(to, message, full) {
        let (message, why) = Rejected::into_parts(refused);
        ask.refuse(why.into());
        // Dropping the message drops the reply in it, which answers; if it held none, nobody ever will.
        drop_contained(message);
        ask.give_up(CommandError::Dropped);
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

/// A question that was asked from outside, made with [`Runtime::ask`]: a future of the reply, which a thread can also
/// [`wait`](Self::wait) for.
///
/// Dropped before the reply has come, it gives the question up; a reply is then too late. Polled again after it was ready, it is
/// ready with [`CommandError::Dropped`].
#[must_use = "dropping this gives the question up"]
pub struct AskFuture<T: Send + 'static> {
    ask: Arc<OutsideAsk<T>>,
    core: Arc<Core>,
    deadline: Deadline,
    /// What ends the question when the limit is over, or when the runtime ends; from the first poll or wait on.
    kept: Option<Kept>,
    place: Option<u64>,
    /// Whether a poll or a wait has given the reply: the question is decided, and has no waker.
    is_taken: bool,
}

impl<T: Send + 'static> AskFuture<T> {
    /// Blocks the calling thread until the process has replied, but not longer than the limit that was given to
    /// [`Runtime::ask`].
    ///
    /// # Errors
    /// Why there is no reply. In a step, which must not block, [`CommandError::InsideStep`], unless the reply is there already. The
    /// question has been sent, and is given up then. A step asks with [`StepOutput::ask`](crate::StepOutput::ask).
    pub fn wait(mut self) -> Result<T, CommandError> {
        if is_step() && !self.ask.answer.is_set() {
            return Err(CommandError::InsideStep);
        }
        // A process that is awake answers sooner than a thread falls asleep and is woken again.
        for _ in 0..LOOKS {
            if self.ask.answer.is_set() {
                break;
            }
            thread::yield_now();
        }
        let clock = &self.core.road.clock;
        if !self.ask.answer.is_set() {
            if self.kept.is_none() {
                // At the end of the runtime nobody might answer any more, or wake this thread.
                let late = Late { ask: Arc::downgrade(&self.ask), why: CommandError::Cancelled(Reason::Shutdown) };
                match self.core.timers.never(Box::new(move || drop(late))) {
                    Ok(kept) => self.kept = Some(kept),
                    // The runtime has ended, and dropping this gives the question up.
                    Err(late) => drop(late),
                }
            }
            if !self.ask.answer.wait_until(clock, self.deadline) {
                // If the reply comes at this very moment, this changes nothing and the reply is there.
                self.ask.give_up(CommandError::TimedOut);
            }
        }
        // Decided, and the thread that has decided it has set the answer or is about to.
        self.ask.answer.wait_until(clock, Deadline::NEVER);
        self.is_taken = true;
        self.ask.take().unwrap_or(Err(CommandError::Dropped))
    }

    /// Has the question given up when the limit is over.
    fn set_timer(&mut self) {
        let mut late = Late { ask: Arc::downgrade(&self.ask), why: CommandError::Cancelled(Reason::Shutdown) };
        let time_out = Box::new(move || {
            late.why = CommandError::TimedOut;
            drop(late);
        });
        let timers = &self.core.timers;
        let kept = match self.deadline {
            Deadline(Some(at)) => timers.at(at, time_out).map(Kept::Timer),
            Deadline(None) => timers.never(time_out),
        };
        match kept {
            Ok(kept) => self.kept = Some(kept),
            Err(_) => self.ask.give_up(CommandError::Cancelled(self.core.why_no_timer())),
        }
    }
}

// Shared references and numbers; nothing is pinned.
impl<T: Send + 'static> Unpin for AskFuture<T> {}

impl<T: Send + 'static> Future for AskFuture<T> {
    type Output = Result<T, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.kept.is_none() && !self.ask.answer.is_set() {
            self.set_timer();
        }
        let AskFuture { ask, place, is_taken, .. } = &mut *self;
        if *is_taken {
            return Poll::Ready(Err(CommandError::Dropped));
        }
        let polled = ask.poll(cx, place);
        *is_taken = polled.is_ready();
        polled
    }
}

impl<T: Send + 'static> Drop for AskFuture<T> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.ask.answer.forget_waker(self.place.take());
            self.ask.give_up(CommandError::Cancelled(Reason::Cancelled));
        }
        if let Some(kept) = self.kept.take() {
            drop(self.core.timers.take_back(kept));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for AskFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskFuture").field("answered", &self.ask.answer.is_set()).finish()
    }
}
