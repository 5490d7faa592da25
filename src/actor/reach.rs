//! Ways to reach a process: the base of an actor's calls.

use std::fmt;
use std::time::Duration;

use crate::names::{Accepts, Target};
use crate::{AskFuture, Rejected, Reply, Runtime, SendError};

/// The limit of a call that returns a value. [`AskFuture::timeout`] sets another one.
pub const CALL_LIMIT: Duration = Duration::from_secs(5);

/// A way to reach a process that takes messages of type `M`.
///
/// The attribute `#[actor]` makes a trait of calls for each actor. Everything that implements `Reach` for the messages
/// of the actor has these calls. The methods of this trait have long names, so that they hide no call.
pub trait Reach<M: Send + 'static> {
    /// Sends a message.
    ///
    /// # Errors
    /// The message comes back with the reason, as from [`Runtime::send`].
    fn reach_send(&self, message: M) -> Result<(), Rejected<M, SendError>>;

    /// Asks a question, as [`Runtime::ask`] does.
    fn reach_ask<T: Send + 'static>(&self, question: impl FnOnce(Reply<T>) -> M, limit: Duration) -> AskFuture<T>;
}

/// A target in a runtime, made with [`Runtime::reach`]. It has the calls of an actor.
#[derive(Clone)]
pub struct Reached<'a, T> {
    runtime: &'a Runtime,
    target: T,
}

impl Runtime {
    /// A way to reach the process at a target, for the calls of an actor. A name or a group is looked up at each call.
    pub fn reach<T: Target + Clone>(&self, target: T) -> Reached<'_, T> {
        Reached { runtime: self, target }
    }
}

impl<M: Send + 'static, T: Accepts<M> + Clone> Reach<M> for Reached<'_, T> {
    fn reach_send(&self, message: M) -> Result<(), Rejected<M, SendError>> {
        self.runtime.send(self.target.clone(), message)
    }

    fn reach_ask<R: Send + 'static>(&self, question: impl FnOnce(Reply<R>) -> M, limit: Duration) -> AskFuture<R> {
        self.runtime.ask(self.target.clone(), question, limit)
    }
}

impl<T: fmt::Debug> fmt::Debug for Reached<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reached").field("target", &self.target).finish_non_exhaustive()
    }
}
