//! Sending with backpressure: a message that waits for room in a bounded mailbox.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::access::{Access, WeakAccess};
use super::dispatch::Core;
use super::timed::{SendLimit, Timed};
use crate::clock::Deadline;
use crate::inside::is_step;
use crate::latch::LatchFuture;
use crate::outcome::{Rejected, drop_contained};
use crate::primitives::{Arc, Weak, thread};
#[cfg(feature = "cluster")]
use crate::process::NodeError;
use crate::process::propagation::in_trace;
use crate::process::recipient::Route;
use crate::process::{Accepts, NoSuchProcessError, Pid, SendError};
use crate::sched::bounded_mailbox::WaitingSender;
#[cfg(feature = "cluster")]
use crate::sched::non_local::{Waiter, WaitingOutside};
use crate::sched::waiting_send::{LimitedSend, Told, WaitingSend};
use crate::timer::TimerId;

/// A future of the acceptance of a message, made with [`Runtime::send_timeout`](crate::Runtime::send_timeout). A
/// thread can also [`wait`](Self::wait) for it.
///
/// The message is sent as soon as there is room, also while nobody polls the future. If the future is dropped before
/// that, the message is not sent. If the future is polled again after it was ready, it is never ready.
#[must_use = "dropping this takes the message back"]
pub struct SendFuture<M: Send + 'static> {
    state: State<M>,
}

enum State<M: Send + 'static> {
    /// The result. `None` if it was taken.
    Decided(Option<Result<(), Rejected<M, SendError>>>),
    Waiting(Waiting<M>),
}

/// A message that waits for room.
struct Waiting<M: Send + 'static> {
    core: Arc<Core>,
    to: Pid,
    send: Arc<WaitingSend<M>>,
    told: LatchFuture<Told>,
    /// The number of the registration in the mailbox.
    number: Option<u64>,
    /// The error if there is no room in time.
    full: SendError,
    deadline: Deadline,
    /// The timer of the limit, set by the first poll or wait.
    timer: Option<TimerId>,
}

impl WeakAccess {
    pub(super) fn send_timeout<M: Send + 'static>(
        &self,
        to: &impl Accepts<M>,
        message: M,
        limit: Duration,
    ) -> SendFuture<M> {
        match self.get() {
            Ok(access) => access.send_timeout(to, message, limit),
            Err(ended) => SendFuture::decided(Err(Rejected::new(message, ended.into()))),
        }
    }
}

impl Access {
    /// Sends a message, which waits for room if there is none.
    pub(super) fn send_timeout<M: Send + 'static>(
        &self,
        to: &impl Accepts<M>,
        message: M,
        limit: Duration,
    ) -> SendFuture<M> {
        match self.core.resolve(to) {
            Ok(_) if limit.is_zero() => SendFuture::decided(self.core.send(to, message)),
            Ok(pid) => {
                let route = to.recipient().map(|recipient| recipient.route().clone());
                SendFuture { state: begin(&self.core, pid, message, route, self.core.road.clock.deadline(limit)) }
            }
            Err(why) => SendFuture::decided(Err(Rejected::new(message, why.into()))),
        }
    }
}

/// Sends a message, or has it wait for room.
fn begin<M: Send + 'static>(
    core: &Arc<Core>,
    to: Pid,
    message: M,
    route: Option<Arc<dyn Route<M>>>,
    deadline: Deadline,
) -> State<M> {
    let (message, full) = match core.send_by(to, message, route.as_deref()) {
        Ok(()) => return State::Decided(Some(Ok(()))),
        Err(refused) => match refused.into_parts() {
            // There is no place to wait for room in a store.
            (message, full @ SendError::Full { .. }) if core.road.elsewhere(to).is_none() => (message, full),
            #[cfg(feature = "cluster")]
            (message, full @ SendError::Node { why: NodeError::Busy, .. }) => (message, full),
            (message, why) => return State::Decided(Some(Err(Rejected::new(message, why)))),
        },
    };
    let context = core.road.current_trace();
    let send = Arc::new(WaitingSend::new(to, message, route).in_trace(context));
    let number = wait_for_room(core, to, &send);
    let told = LatchFuture::new(send.told().clone());
    State::Waiting(Waiting { core: core.clone(), to, send, told, number, full, deadline, timer: None })
}

/// Has a message wait for room. Returns the number of its registration in the mailbox.
fn wait_for_room<M: Send + 'static>(core: &Core, to: Pid, send: &Arc<WaitingSend<M>>) -> Option<u64> {
    #[cfg(feature = "cluster")]
    if let Some(nodes) = core.road.node_of(to) {
        let sender: Arc<dyn WaitingOutside> = send.clone();
        nodes.wait_for_room(to, Waiter::Outside(Arc::downgrade(&sender)));
        return None;
    }
    let sender: Arc<dyn WaitingSender> = send.clone();
    core.road.wait_for_room(to, &sender)
}

impl<M: Send + 'static> SendFuture<M> {
    fn decided(result: Result<(), Rejected<M, SendError>>) -> SendFuture<M> {
        SendFuture { state: State::Decided(Some(result)) }
    }

    /// Blocks the calling thread until the message is accepted or refused. It blocks no longer than the limit that was
    /// given to [`Runtime::send_timeout`](crate::Runtime::send_timeout).
    ///
    /// # Errors
    /// The message, with the reason why it was not sent. In a step, which must not block, the reason is
    /// [`SendError::InsideStep`], unless the message was already accepted or refused.
    pub fn wait(mut self) -> Result<(), Rejected<M, SendError>> {
        loop {
            let waiting = match &mut self.state {
                State::Decided(result) => return result.take().unwrap_or(Ok(())),
                State::Waiting(waiting) => waiting,
            };
            let told = if is_step() { waiting.told_in_a_step() } else { waiting.wait() };
            match told {
                Some(told) => self.is_told(told),
                None => match waiting.send.take_back() {
                    Some(message) => return Err(Rejected::new(message, SendError::InsideStep { pid: waiting.to })),
                    // Another thread has decided it, and is about to say so.
                    None => thread::yield_now(),
                },
            }
        }
    }

    /// Handles the news of a message that has waited: the result, or another try.
    fn is_told(&mut self, told: Told) {
        let State::Waiting(waiting) = &mut self.state else { return };
        if let Some(panic) = waiting.send.panic() {
            let payload = panic.take_payload().unwrap_or_else(|| Box::new(panic.message().to_owned()));
            self.state = State::Decided(None);
            std::panic::resume_unwind(payload);
        }
        self.state = match (told, waiting.send.take_back()) {
            // A message that is not here was sent.
            (Told::Sent, _) | (_, None) => State::Decided(Some(Ok(()))),
            (Told::TryAgain, Some(message)) => {
                let trace = waiting.send.take_trace();
                let again = in_trace(trace.as_deref(), || {
                    begin(&waiting.core, waiting.to, message, waiting.send.route().cloned(), waiting.deadline)
                });
                drop_contained(trace);
                again
            }
            (Told::TimedOut | Told::Panicked, Some(message)) => {
                State::Decided(Some(Err(Rejected::new(message, waiting.full.clone()))))
            }
            #[cfg(feature = "cluster")]
            (Told::NodeDown, Some(message)) => {
                let why = SendError::Node { pid: waiting.to, why: NodeError::NodeDown };
                State::Decided(Some(Err(Rejected::new(message, why))))
            }
            (Told::RuntimeEnded, Some(message)) => {
                State::Decided(Some(Err(Rejected::new(message, NoSuchProcessError::RuntimeEnded.into()))))
            }
        };
    }
}

impl<M: Send + 'static> Waiting<M> {
    /// Blocks the calling thread until there is news.
    fn wait(&mut self) -> Option<Told> {
        let told = self.told.latch().clone();
        if !told.is_set() {
            if self.timer.is_none() {
                // When the runtime ends, there may be no thread that wakes this thread.
                self.set_timer(Deadline::NEVER);
            }
            if !told.wait_until(&self.core.road.clock, self.deadline) {
                self.send.give_up(Told::TimedOut);
            }
        }
        // The message is decided. The thread that has decided it has set the latch or is about to.
        told.wait_until(&self.core.road.clock, Deadline::NEVER);
        told.get()
    }

    /// The news, if there is some.
    fn told_in_a_step(&self) -> Option<Told> {
        self.told.latch().get()
    }

    /// Starts the timer that gives the message back when the limit is over, or when the runtime ends.
    fn set_timer(&mut self, deadline: Deadline) {
        let sender: Arc<dyn LimitedSend> = self.send.clone();
        let weak: Weak<dyn LimitedSend> = Arc::downgrade(&sender);
        match self.core.timers.at_or_never(deadline, Timed::OutsideSend(SendLimit::of(weak))) {
            Ok(timer) => self.timer = Some(timer),
            Err(refused) => {
                if !self.core.timers.are_stopped() {
                    // There is no thread for timers, so nothing would end the wait.
                    self.send.give_up(Told::TimedOut);
                }
                // Otherwise this drop gives the message back.
                drop(refused);
            }
        }
    }
}

impl<M: Send + 'static> Drop for Waiting<M> {
    fn drop(&mut self) {
        // First, because the news wakes the task.
        self.told.forget();
        // A message that is offered to another node at this moment does not wait again.
        self.send.give_up(Told::TimedOut);
        if let Some(message) = self.send.take_back() {
            drop_contained(message);
            drop_contained(self.send.take_trace());
        }
        if let Some(number) = self.number
            && let Some(cell) = self.core.road.table.cell(self.to)
        {
            let sender: Arc<dyn WaitingSender> = self.send.clone();
            drop(cell.unregister(self.to, number, &sender));
        }
        if let Some(timer) = self.timer.take() {
            drop(self.core.timers.cancel(timer));
        }
        #[cfg(feature = "cluster")]
        self.core.road.has_given_up(self.to);
    }
}

// The fields are shared references, numbers and a message that is moved. No field is pinned.
impl<M: Send + 'static> Unpin for SendFuture<M> {}

impl<M: Send + 'static> Future for SendFuture<M> {
    type Output = Result<(), Rejected<M, SendError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let waiting = match &mut self.state {
                State::Decided(result) => return result.take().map_or(Poll::Pending, Poll::Ready),
                State::Waiting(waiting) => waiting,
            };
            if waiting.timer.is_none() && !waiting.told.latch().is_set() {
                waiting.set_timer(waiting.deadline);
            }
            match Pin::new(&mut waiting.told).poll(cx) {
                Poll::Ready(told) => self.is_told(told),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<M: Send + 'static> fmt::Debug for SendFuture<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_decided = match &self.state {
            State::Decided(_) => true,
            State::Waiting(waiting) => waiting.told.latch().is_set(),
        };
        f.debug_struct("SendFuture").field("decided", &is_decided).finish()
    }
}
