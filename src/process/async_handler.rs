//! Handlers that answer a command with the output of a future.
//!
//! The future is a resident of the process that has yielded the command (`src/sched/residents.rs`). So it is polled
//! and dropped as the futures of that process are. It starts with the command alone. At its first poll, the handler
//! makes the user's future from the command. From then on, the user's future is polled.
//!
//! If the handler has a limit, the future has a ticket as well (`permits.rs`). The user's future is made when the
//! ticket is granted. The ticket is dropped after the user's future, however that future ends.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::command::{Answer, Command, CommandError};
use super::handler::Handler;
use super::permits::{Permits, Ticket};
use crate::outcome::{BoxError, Failure};
use crate::primitives::Arc;
use crate::sched::residents::{AnyFuture, BoxedFuture};

/// A handler of a command.
pub(crate) enum AnyHandler {
    /// A function that gets the command and a `Responder`, and may answer at any time.
    Call(Arc<Handler>),
    /// A function that makes a future, whose output is the answer.
    Async(Arc<AsyncHandler>),
}

/// A handler that makes a future from a command. The type of the command is erased.
pub(crate) struct AsyncHandler {
    begin: Box<BeginFuture>,
    permits: Option<Arc<Permits>>,
}

/// Makes the user's future. `None` if the command has another type.
type BeginFuture = dyn Fn(Box<dyn Any + Send>) -> Option<Pin<Box<dyn AnyHandled>>> + Send + Sync;

/// A user's future with the type of its output erased.
trait AnyHandled: Send {
    fn poll_answer(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer>;
}

impl<T, F> AnyHandled for F
where
    T: Send + 'static,
    F: Future<Output = Result<T, BoxError>> + Send,
{
    fn poll_answer(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.poll(context).map(|result| match result {
            Ok(value) => Ok(Box::new(value) as _),
            Err(error) => Err(CommandError::Failed(Failure::from(error))),
        })
    }
}

impl AsyncHandler {
    pub(crate) fn new<C, F, T>(call: F) -> AsyncHandler
    where
        C: Command,
        F: Fn(C) -> T + Send + Sync + 'static,
        T: Future<Output = Result<C::Output, BoxError>> + Send + 'static,
    {
        let begin = move |command: Box<dyn Any + Send>| {
            let command = command.downcast::<C>().ok()?;
            Some(Box::pin(call(*command)) as Pin<Box<dyn AnyHandled>>)
        };
        AsyncHandler { begin: Box::new(begin), permits: None }
    }

    /// Sets the maximum number of futures that run at once.
    pub(crate) fn limit(&mut self, most: usize) {
        self.permits = Some(Permits::new(most));
    }

    /// Makes the future for a command. The future takes its ticket now, and so its place in the queue for a permit.
    pub(crate) fn future(self: &Arc<AsyncHandler>, command: Box<dyn Any + Send>) -> BoxedFuture {
        self.future_with(command, self.ticket())
    }

    /// Whether a permit is needed for each future.
    #[cfg(feature = "durable")]
    pub(crate) fn is_limited(&self) -> bool {
        self.permits.is_some()
    }

    /// Takes a place in the queue for a permit, if there is a limit.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.permits.as_ref().map(Permits::ticket)
    }

    /// Makes the future for a command, with a ticket of this handler.
    pub(crate) fn future_with(
        self: &Arc<AsyncHandler>,
        command: Box<dyn Any + Send>,
        ticket: Option<Ticket>,
    ) -> BoxedFuture {
        Box::pin(HandlerFuture { running: None, command: Some(command), ticket, handler: self.clone() })
    }
}

/// The future for one command.
///
/// The fields are dropped in this order. So the next future gets the permit when the user's future is gone.
struct HandlerFuture {
    running: Option<Pin<Box<dyn AnyHandled>>>,
    /// Present until the user's future is made.
    command: Option<Box<dyn Any + Send>>,
    ticket: Option<Ticket>,
    handler: Arc<AsyncHandler>,
}

impl AnyFuture for HandlerFuture {
    fn poll_any(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let HandlerFuture { running, command, ticket, handler } = self.get_mut();
        if ticket.as_mut().is_some_and(|ticket| ticket.poll(context).is_pending()) {
            return Poll::Pending;
        }
        if let Some(command) = command.take() {
            *running = (handler.begin)(command);
        }
        match running {
            Some(future) => future.as_mut().poll_answer(context),
            None => Poll::Ready(Err(CommandError::Dropped)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::primitives::{Brief, enter};

    struct Job;

    impl Command for Job {
        type Output = ();
    }

    /// Looks in its destructor for a permit.
    struct Looks(Arc<Brief<Vec<bool>>>, Option<Ticket>);

    impl Drop for Looks {
        fn drop(&mut self) {
            let has_one = self.1.as_mut().map(|next| next.poll(&mut Context::from_waker(Waker::noop())).is_ready());
            enter(&self.0).extend(has_one);
        }
    }

    #[test]
    fn a_permit_comes_back_when_the_future_is_dropped() {
        let (seen, next) = (Arc::new(Brief::new(Vec::new())), Arc::new(Brief::new(None)));
        let (log, held) = (seen.clone(), next.clone());
        let mut handler = AsyncHandler::new(move |_: Job| {
            let looks = Looks(log.clone(), enter(&held).take());
            async move {
                let _looks = &looks;
                std::future::pending().await
            }
        });
        handler.limit(1);
        let handler = Arc::new(handler);
        let mut future = handler.future(Box::new(Job));
        *enter(&next) = handler.ticket();
        assert!(future.as_mut().poll_any(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(future);
        assert_eq!(*enter(&seen), [false]);
    }
}
