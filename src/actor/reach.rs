//! Ways to reach a process: the base of an actor's calls.

use std::time::Duration;

use crate::{AskFuture, Handle, Process, ProcessRef, Rejected, Reply, SendError};

/// The limit of a call that returns a value. [`AskFuture::timeout`] sets another one.
pub const CALL_LIMIT: Duration = Duration::from_secs(5);

/// A way to reach a process that takes messages of type `M`.
///
/// The attribute `#[actor]` makes a trait of calls for each actor. Everything that implements `Reach` for the messages
/// of the actor has these calls: the [`Handle`] of the actor, and each [`ProcessRef`] to it. For a name or a group,
/// make a reference with [`Runtime::process_ref`](crate::Runtime::process_ref).
///
/// The methods of this trait have long names, so that they hide no call.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not reach an actor, so it has no calls",
    note = "an actor is called through its `Handle` or a `ProcessRef`: make one with `runtime.process_ref(address)`",
    note = "a step sends the messages themselves: `out.send(address, message)` or `out.ask(address, question, limit)`"
)]
pub trait Reach<M: Send + 'static> {
    /// Sends a message.
    ///
    /// # Errors
    /// The message comes back with the reason, as from [`Runtime::send`](crate::Runtime::send).
    fn reach_send(&self, message: M) -> Result<(), Rejected<M, SendError>>;

    /// Asks a question, as [`Runtime::ask`](crate::Runtime::ask) does.
    fn reach_ask<T: Send + 'static>(&self, question: impl FnOnce(Reply<T>) -> M, limit: Duration) -> AskFuture<T>;
}

impl<P: Process> Reach<P::Message> for Handle<P> {
    fn reach_send(&self, message: P::Message) -> Result<(), Rejected<P::Message, SendError>> {
        self.send(message)
    }

    fn reach_ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Reply<T>) -> P::Message,
        limit: Duration,
    ) -> AskFuture<T> {
        self.ask(question, limit)
    }
}

impl<M: Send + 'static> Reach<M> for ProcessRef<M> {
    fn reach_send(&self, message: M) -> Result<(), Rejected<M, SendError>> {
        self.send(message)
    }

    fn reach_ask<T: Send + 'static>(&self, question: impl FnOnce(Reply<T>) -> M, limit: Duration) -> AskFuture<T> {
        self.ask(question, limit)
    }
}
