//! Questions from outside to processes.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::access::{Access, WeakAccess};
use super::dispatch::Core;
use super::timed::{OutsideLimit, Timed};
use crate::clock::Deadline;
use crate::inside::is_step;
use crate::latch::{Latch, LatchFuture};
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::primitives::{Arc, thread};
use crate::process::command::why_dead;
use crate::process::{Accepts, Ask, CommandError, NoSuchProcessError, Pid, Reply};
use crate::sched::body::Host;
use crate::timer::TimerId;

/// How often a waiting thread looks for the answer before it sleeps. Between two looks it yields the processor.
const LOOKS: u32 = 64;

impl WeakAccess {
    pub(super) fn ask<M: Send + 'static, T: Send + 'static>(
        &self,
        to: &impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> AskFuture<T> {
        match self.get() {
            Ok(access) => access.ask(to, question, limit),
            Err(ended) => AskFuture { state: State::Refused(Some(ended.into())) },
        }
    }

    /// A question that `put` asks elsewhere. `target` stands for the one that is asked.
    #[cfg(feature = "cluster")]
    pub(crate) fn ask_elsewhere<T: Send + 'static>(
        &self,
        target: Option<Pid>,
        limit: Duration,
        put: impl FnOnce(&Arc<Ask>),
    ) -> AskFuture<T> {
        match self.get() {
            Ok(access) => {
                let target = target.unwrap_or_else(|| access.core.nobody());
                access.question(target, limit, put)
            }
            Err(ended) => AskFuture { state: State::Refused(Some(ended.into())) },
        }
    }
}

impl Access {
    /// Asks a process from outside.
    pub(super) fn ask<M: Send + 'static, T: Send + 'static>(
        &self,
        to: &impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> AskFuture<T> {
        let core = &self.core;
        self.question_to(core.resolve(to), limit, |ask, pid| {
            put_question(core, ask, (pid, to), question(Reply::new(ask.clone())));
        })
    }

    /// Makes a question to the process at a target, which `put` asks.
    pub(super) fn question_to<T: Send + 'static>(
        &self,
        target: Result<Pid, NoSuchProcessError>,
        limit: Duration,
        put: impl FnOnce(&Arc<Ask>, Pid),
    ) -> AskFuture<T> {
        let pid = target.as_ref().map_or_else(|_| self.core.nobody(), |pid| *pid);
        self.question(pid, limit, |ask| match target {
            Ok(pid) => put(ask, pid),
            Err(why) => ask.give_up(why.into()),
        })
    }

    /// Makes a question to this process, which `put` asks.
    fn question<T: Send + 'static>(&self, target: Pid, limit: Duration, put: impl FnOnce(&Arc<Ask>)) -> AskFuture<T> {
        let core = &self.core;
        let deadline = core.road.clock.deadline(limit);
        let decided = Latch::new();
        let ask = Arc::new(Ask::from_outside::<T>(self.host.clone(), decided.clone(), target));
        put(&ask);
        let (decided, core) = (LatchFuture::new(decided), core.clone());
        let asked = Asked { ask, decided, core, deadline, timer: None, is_taken: false, takes: PhantomData };
        AskFuture { state: State::Asked(asked) }
    }
}

fn put_question<M: Send + 'static>(core: &Core, ask: &Ask, (pid, to): (Pid, &impl Accepts<M>), message: M) {
    let put = match to.recipient() {
        None => core.road.offer(pid, message, || ask.refuse(CommandError::Full(pid))),
        Some(recipient) => core.road.send_converted(pid, message, &**recipient.route(), |letter| {
            why_dead(letter).into_iter().for_each(|why| ask.refuse(why));
        }),
    };
    if let Err(refused) = put {
        let (message, why) = Rejected::into_parts(refused);
        ask.refuse(why.into());
        // The drop of the message drops the reply in it, and this answers the question. If the message contains no
        // reply, no answer would ever come.
        drop_contained(message);
        ask.abandon();
    }
}

/// A future of the reply to a question, made with [`Runtime::ask`](crate::Runtime::ask). A thread can also
/// [`wait`](Self::wait) for the reply.
///
/// If the future is dropped before the reply has arrived, the question is given up. A reply is then too late. If the
/// future is polled again after it was ready, the result is [`CommandError::Dropped`].
#[must_use = "dropping this gives the question up"]
pub struct AskFuture<T: Send + 'static> {
    state: State<T>,
}

enum State<T: Send + 'static> {
    /// There is no runtime to ask. `None` if the reason was taken.
    Refused(Option<CommandError>),
    Asked(Asked<T>),
}

/// A question that was asked.
struct Asked<T: Send + 'static> {
    ask: Arc<Ask>,
    decided: LatchFuture<Result<(), CommandError>>,
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
    /// Replaces the limit. The new limit begins now. Call it before the first poll.
    ///
    /// It is for calls that choose a limit themselves, for example those of an [actor](crate::actor). After the first
    /// poll it has no effect on a future that is polled.
    pub fn timeout(mut self, limit: Duration) -> AskFuture<T> {
        if let State::Asked(asked) = &mut self.state {
            asked.deadline = asked.core.road.clock.deadline(limit);
        }
        self
    }

    /// Blocks the calling thread until the process has replied. It blocks no longer than the limit that was given to
    /// [`Runtime::ask`](crate::Runtime::ask).
    ///
    /// # Errors
    /// The reason why there is no reply. In a step, which must not block, it is [`CommandError::InsideStep`], unless
    /// the reply has already arrived. The question was sent, and is given up then. In a step, ask with
    /// [`StepOutput::ask`](crate::StepOutput::ask).
    pub fn wait(self) -> Result<T, CommandError> {
        match self.state {
            State::Refused(why) => Err(why.unwrap_or(CommandError::Dropped)),
            State::Asked(asked) => asked.wait(),
        }
    }
}

impl<T: Send + 'static> Asked<T> {
    fn wait(mut self) -> Result<T, CommandError> {
        let decided = self.decided.latch().clone();
        if is_step() && !decided.is_set() {
            return Err(CommandError::InsideStep);
        }
        // If the asked process runs, its answer arrives before the thread could sleep and wake.
        for _ in 0..LOOKS {
            if decided.is_set() {
                break;
            }
            thread::yield_now();
        }
        if !decided.is_set() {
            if self.timer.is_none() {
                // When the runtime ends, there may be no thread that answers or that wakes this thread. If the runtime
                // has already ended, the timer is dropped here, and gives the question up.
                self.set_timer(Deadline::NEVER);
            }
            if !decided.wait_until(&self.core.road.clock, self.deadline) {
                // If the reply comes at this moment, this has no effect.
                self.ask.give_up(CommandError::TimedOut);
            }
        }
        // The question is decided. The thread that has decided it has set the answer or is about to.
        decided.wait_until(&self.core.road.clock, Deadline::NEVER);
        self.is_taken = true;
        decided.take().map_or(Err(CommandError::Dropped), |decided| self.ask.answered(decided))
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
        match &mut self.state {
            State::Refused(why) => Poll::Ready(Err(why.take().unwrap_or(CommandError::Dropped))),
            State::Asked(asked) => asked.poll(cx),
        }
    }
}

impl<T: Send + 'static> Asked<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, CommandError>> {
        if self.timer.is_none() && !self.decided.latch().is_set() {
            let deadline = self.deadline;
            self.set_timer(deadline);
        }
        if self.is_taken {
            return Poll::Ready(Err(CommandError::Dropped));
        }
        let polled = self.decided.poll_take(cx).map(|decided| self.ask.answered(decided));
        self.is_taken = polled.is_ready();
        polled
    }
}

impl<T: Send + 'static> Drop for Asked<T> {
    fn drop(&mut self) {
        if !self.is_taken {
            // First, because an answer wakes the task.
            self.decided.forget();
            self.ask.give_up(CommandError::Cancelled(Reason::Cancelled));
        }
        if let Some(timer) = self.timer.take() {
            drop(self.core.timers.cancel(timer));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for AskFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_answered = match &self.state {
            State::Refused(_) => true,
            State::Asked(asked) => asked.decided.latch().is_set(),
        };
        f.debug_struct("AskFuture").field("answered", &is_answered).finish()
    }
}
