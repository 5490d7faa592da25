//! Yields that send and wait for room.

use std::time::Duration;

use super::command::Tag;
use super::dead_letter::SendError;
use super::target::Accepts;
use crate::outcome::Rejected;
use crate::sched::body::{SendRequest, StepOutput, Yield};
use crate::sched::room_queue::QueuedSend;

/// Sends that wait for room.
impl StepOutput {
    /// Sends a message to a mailbox that may be full, and learns whether it was accepted.
    ///
    /// The command is answered with `Ok(())` when the mailbox has accepted the message. If the mailbox is full and
    /// [refuses](crate::spawn::Overflow::Refuse) messages, the message waits until there is room. If the message is not
    /// accepted, the answer is a [`Rejected`] that hands it back with the reason:
    ///
    /// - [`SendError::Full`]: the limit is over, or a step has [cancelled](Self::cancel_command) the command.
    /// - [`SendError::NoSuchProcess`]: there is no process at the target, or the process has ended.
    /// - [`SendError::WrongType`]: the process takes messages of another type.
    ///
    /// The outer `Result` of the completion is `Ok`, unless the conversion of a [`Recipient`](super::Recipient) panics.
    /// A message to a recipient is converted when it has room. So a message that comes back was not converted.
    ///
    /// A mailbox without a bound, or one that drops messages when it is full, answers at once. The limit is by the
    /// runtime's clock. It begins when the yields of the step are performed. [`Duration::ZERO`] does not wait, and
    /// [`Duration::MAX`] is no limit.
    ///
    /// **Order.** Later messages of this process to the same receiver do not overtake: those of
    /// [`send`](Self::send), [`ask`](Self::ask), [`broadcast`](Self::broadcast) and this function wait behind the
    /// message. When it has been accepted or handed back, a message that was sent without a limit is treated as if it
    /// were sent at that moment. If the mailbox is full again, it becomes a dead letter.
    ///
    /// **Turns.** Processes, and threads in [`Runtime::send_timeout`](crate::Runtime::send_timeout), take turns in the
    /// order in which they began to wait.
    ///
    /// **End.** If this process ends, or if its state machine fails, its messages that still wait become dead letters.
    /// To be sure that a message is accepted, wait for the answer before [`Step::Done`](super::Step::Done).
    ///
    /// **Other nodes.** A message to another node does not wait. If too many messages wait for that node, this one is
    /// taken, and this process is not stepped until there is room. With [`Duration::ZERO`], or if the process is never
    /// held, the message is handed back.
    ///
    /// **Cycles.** A process that returns [`Step::Wait`](super::Step::Wait) takes no messages meanwhile. If processes
    /// wait in this way for room in each other's full mailboxes, no message is accepted until a limit is over. So give
    /// each send a limit, or return [`Step::Idle`](super::Step::Idle) and go on taking messages.
    ///
    /// ```
    /// use procession::{Address, Event, Events, Process, Rejected, SendError, Step, StepOutput, StepResult, Tag};
    /// use std::time::Duration;
    ///
    /// /// Sends the numbers below 1,000, as fast as the receiver takes them.
    /// struct Source { to: Address<u32>, next: u32, sent: Option<Tag<Result<(), Rejected<u32, SendError>>>> }
    ///
    /// impl Process for Source {
    ///     type Message = ();
    ///     type Output = ();
    ///
    ///     fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
    ///         for event in events {
    ///             if let Event::Completed(done) = event
    ///                 && let Some(accepted) = done.take(self.sent)
    ///             {
    ///                 accepted??;
    ///             }
    ///         }
    ///         if self.next == 1_000 {
    ///             return Ok(Step::Done(()));
    ///         }
    ///         self.sent = Some(out.send_timeout(self.to, self.next, Duration::from_secs(10)));
    ///         self.next += 1;
    ///         Ok(Step::Wait)
    ///     }
    /// }
    /// ```
    pub fn send_timeout<M: Send + 'static>(
        &mut self,
        to: impl Accepts<M>,
        message: M,
        limit: Duration,
    ) -> Tag<Result<(), Rejected<M, SendError>>> {
        let (pid, recipient) = (self.resolve(&to), to.recipient().map(|recipient| recipient.route().clone()));
        let tag: Tag<Result<(), Rejected<M, SendError>>> = self.tag();
        let send = match recipient {
            None => QueuedSend::of_process(self.pid, tag.id(), message),
            Some(route) => QueuedSend::to_recipient(self.pid, tag.id(), message, route),
        };
        let send = send.in_trace(self.current_trace());
        self.push(Yield::SendTimeout(Box::new(SendRequest { to: pid, limit, send })));
        tag
    }
}
