//! Questions from outside to processes.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::dispatch::Core;
use super::system::Runtime;
use super::timed::{OutsideLimit, Timed};
use crate::clock::Deadline;
use crate::inside::is_step;
use crate::latch::{Latch, LatchFuture};
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::primitives::{Arc, thread};
use crate::process::{Accepts, Ask, CommandError, OneAnswer, Pid, Reply};
use crate::sched::body::Host;
use crate::timer::TimerId;

/// How often a waiting thread looks for the answer before it sleeps. Between two looks it yields the processor.
const LOOKS: u32 = 64;

impl Runtime {
    /// Asks a process. `question` receives a [`Reply`] and returns the message that contains it.
    ///
    /// This call sends the question, and the limit begins. To get the reply, await the [`AskFuture`], or call
    /// [`wait`](AskFuture::wait) on it. The result is the reply, or an error that says why there is none. The error
    /// comes at once in these cases:
    ///
    /// - There is no process at the target, or the process ends.
    /// - The process takes messages of another type.
    /// - The mailbox of the process is full.
    /// - The process drops the reply.
    ///
    /// Otherwise the error comes when `limit` is over.
    ///
    /// The runtime enforces the limit only from the first poll or wait on. If the reply has arrived by then, it is
    /// returned, however late it came.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> AskFuture<T> {
        let core = self.core();
        let deadline = core.road.clock.deadline(limit);
        let target = core.resolve(&to);
        let pid = target.as_ref().map_or_else(|_| core.nobody(), |pid| *pid);
        let answer = Latch::new();
        let ask = Arc::new(Ask::from_outside(self.owner.host.clone(), answer.clone(), pid));
        match target {
            Ok(pid) => put_question(core, &ask, pid, question(Reply::new(ask.clone()))),
            Err(why) => ask.give_up(why.into()),
        }
        let answer = LatchFuture::new(answer);
        AskFuture { ask, answer, core: core.clone(), deadline, timer: None, is_taken: false, takes: PhantomData }
    }
}

fn put_question<M: Send + 'static>(core: &Core, ask: &Ask, to: Pid, message: M) {
    let full = || ask.refuse(CommandError::Full(to));
    if let Err(refused) = core.road.offer(to, message, full) {
        let (message, why) = Rejected::into_parts(refused);
        ask.refuse(why.into());
        // The drop of the message drops the reply in it, and this answers the question. If the message contains no
        // reply, no answer would ever come.
        drop_contained(message);
        ask.abandon();
    }
}

/// A future of the reply to a question, made with [`Runtime::ask`]. A thread can also [`wait`](Self::wait) for the
/// reply.
///
/// If the future is dropped before the reply has arrived, the question is given up. A reply is then too late. If the
/// future is polled again after it was ready, the result is [`CommandError::Dropped`].
#[must_use = "dropping this gives the question up"]
pub struct AskFuture<T: Send + 'static> {
    ask: Arc<Ask>,
    answer: LatchFuture<OneAnswer>,
    core: Arc<Core>,
    deadline: Deadline,
    /// The timer of the question, set by the first poll or wait. It gives the question up when the limit is over, or
    /// when the runtime ends.
    timer: Option<TimerId>,
    /// Whether a poll or a wait has returned the result. Then the question is decided, and has no waker.
    is_taken: bool,
    takes: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> AskFuture<T> {
    /// Blocks the calling thread until the process has replied. It blocks no longer than the limit that was given to
    /// [`Runtime::ask`].
    ///
    /// # Errors
    /// The reason why there is no reply. In a step, which must not block, it is [`CommandError::InsideStep`], unless
    /// the reply has already arrived. The question was sent, and is given up then. In a step, ask with
    /// [`StepOutput::ask`](crate::StepOutput::ask).
    pub fn wait(mut self) -> Result<T, CommandError> {
        let answer = self.answer.latch().clone();
        if is_step() && !answer.is_set() {
            return Err(CommandError::InsideStep);
        }
        // If the asked process runs, its answer arrives before the thread could sleep and wake.
        for _ in 0..LOOKS {
            if answer.is_set() {
                break;
            }
            thread::yield_now();
        }
        if !answer.is_set() {
            if self.timer.is_none() {
                // When the runtime ends, there may be no thread that answers or that wakes this thread. If the runtime
                // has already ended, the timer is dropped here, and gives the question up.
                self.set_timer(Deadline::NEVER);
            }
            if !answer.wait_until(&self.core.road.clock, self.deadline) {
                // If the reply comes at this moment, this has no effect.
                self.ask.give_up(CommandError::TimedOut);
            }
        }
        // The question is decided. The thread that has decided it has set the answer or is about to.
        answer.wait_until(&self.core.road.clock, Deadline::NEVER);
        self.is_taken = true;
        answer.take().map_or(Err(CommandError::Dropped), OneAnswer::typed)
    }

    /// Starts the timer that gives the question up when the limit is over, or when the runtime ends.
    fn set_timer(&mut self, deadline: Deadline) {
        let limit = Timed::OutsideAsk(OutsideLimit::of(&self.ask));
        match self.core.timers.at_or_never(deadline, limit) {
            Ok(timer) => self.timer = Some(timer),
            Err(_) => self.ask.give_up(CommandError::Cancelled(self.core.why_no_timer())),
        }
    }
}

// The fields are shared references and numbers. No field is pinned.
impl<T: Send + 'static> Unpin for AskFuture<T> {}

impl<T: Send + 'static> Future for AskFuture<T> {
    type Output = Result<T, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.timer.is_none() && !self.answer.latch().is_set() {
            let deadline = self.deadline;
            self.set_timer(deadline);
        }
        if self.is_taken {
            return Poll::Ready(Err(CommandError::Dropped));
        }
        let polled = self.answer.poll_take(cx).map(OneAnswer::typed);
        self.is_taken = polled.is_ready();
        polled
    }
}

impl<T: Send + 'static> Drop for AskFuture<T> {
    fn drop(&mut self) {
        if !self.is_taken {
            // First, because an answer wakes the task.
            self.answer.forget();
            self.ask.give_up(CommandError::Cancelled(Reason::Cancelled));
        }
        if let Some(timer) = self.timer.take() {
            drop(self.core.timers.cancel(timer));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for AskFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskFuture").field("answered", &self.answer.latch().is_set()).finish()
    }
}
