//! The yields of futures.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::command::{Answer, CommandError, Tag};
use super::propagation::{TraceContext, in_trace};
use crate::outcome::{BoxError, Failure};
use crate::primitives::Arc;
use crate::sched::body::{StepOutput, Yield};
use crate::sched::residents::{AnyFuture, BoxedFuture};

/// Futures.
///
/// A future that a step yields lives in the process. No executor is needed: the thread that steps the process polls the
/// future, too. Like a message, a wake makes the process ready. A poll that does not end the future causes no step.
///
/// - The future is polled for the first time after its step has returned `Ok`. It is never polled during a step of the
///   process. If the step fails, the future is dropped without a poll.
/// - Its output is the answer of the command, also if it is an `Err`. With [`try_future`](Self::try_future), an `Err`
///   is the failure of the command instead. If a poll panics, the answer is
///   [`CommandError::Panicked`].
/// - When the process ends, its futures are dropped before `join` returns. If the process recovers from a failure, the
///   futures of the failed state machine are dropped. An [upgrade](super::Step::Upgrade) keeps them. The futures of a
///   step that returns [`Step::Done`](super::Step::Done) are dropped without a poll.
///
/// A poll occupies a worker, as a step does. So it should return soon, and must not block. One turn of a process polls
/// at most 64 futures, each of them once.
///
/// A future may use the reactor of an async runtime. If that runtime expects to be entered, see
/// [`RuntimeBuilder::in_context`](crate::config::RuntimeBuilder::in_context).
impl StepOutput {
    /// Polls a future until it is ready. The answer is its output.
    ///
    /// ```
    /// use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
    ///
    /// async fn fetch() -> String {
    ///     "page".into()
    /// }
    ///
    /// struct Fetcher { page: Option<Tag<String>> }
    ///
    /// impl Process for Fetcher {
    ///     type Message = ();
    ///     type Output = String;
    ///
    ///     fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<String> {
    ///         let page = *self.page.get_or_insert_with(|| out.future(fetch()));
    ///         for event in events {
    ///             if let Event::Completed(done) = event
    ///                 && let Some(page) = done.take(page)
    ///             {
    ///                 return Ok(Step::Done(page?));
    ///             }
    ///         }
    ///         Ok(Step::Wait)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let fetcher = runtime.spawn(Fetcher { page: None })?;
    /// assert_eq!(**fetcher.join()?.output().unwrap(), "page");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn future<F>(&mut self, future: F) -> Tag<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.future_timeout(Duration::MAX, future)
    }

    /// As [`future`](Self::future), with a limit. When `limit` is over by the runtime's clock, and not before, the
    /// future is dropped, and the answer is [`CommandError::TimedOut`]. The limit begins
    /// when the step has returned.
    ///
    /// If the process is in a step then, the future is dropped after that step. [`Duration::MAX`] is no limit.
    pub fn future_timeout<F>(&mut self, limit: Duration, future: F) -> Tag<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.push_future(limit, Box::pin(future))
    }

    /// As [`future`](Self::future), for a future whose output is a `Result`. The answer is the value. If the output is
    /// an `Err`, the answer is [`CommandError::Failed`] with this error. So a [`retry`](Self::retry) attempts it again.
    ///
    /// ```
    /// use procession::command::Retry;
    /// use procession::prelude::*;
    /// use std::io;
    /// use std::time::Duration;
    ///
    /// async fn fetch(attempt: u32) -> Result<String, io::Error> {
    ///     if attempt < 3 { Err(io::Error::other("busy")) } else { Ok("page".into()) }
    /// }
    ///
    /// #[derive(Default)]
    /// struct Fetcher { page: String }
    ///
    /// #[actor]
    /// impl Fetcher {
    ///     #[on(start)]
    ///     fn start(&mut self, out: &mut Actions<Self>) {
    ///         let retry = Retry::new().first_pause(Duration::from_millis(1));
    ///         out.retry(retry, |out, attempt| out.try_future(fetch(attempt))).then(out, |fetcher, page, out| {
    ///             fetcher.page = page?;
    ///             out.stop();
    ///             Ok(())
    ///         });
    ///     }
    ///
    ///     #[on(finish)]
    ///     fn page(&mut self) -> String {
    ///         std::mem::take(&mut self.page)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let fetcher = runtime.spawn(actor(Fetcher::default()))?;
    /// assert_eq!(*fetcher.join()?.into_result()?, "page");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_future<F, T, E>(&mut self, future: F) -> Tag<T>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.try_future_timeout(Duration::MAX, future)
    }

    /// As [`try_future`](Self::try_future), with a limit, as that of [`future_timeout`](Self::future_timeout).
    pub fn try_future_timeout<F, T, E>(&mut self, limit: Duration, future: F) -> Tag<T>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.push_future(limit, Box::pin(TryFuture(Box::pin(future))))
    }

    pub(super) fn push_future<T>(&mut self, limit: Duration, future: BoxedFuture) -> Tag<T> {
        let future = match self.current_trace() {
            None => future,
            Some(context) => Box::pin(TracedFuture { future, context }),
        };
        let tag = self.tag();
        self.push(Yield::Future { tag: tag.id(), future, limit });
        tag
    }

    /// As `future`, for a future of the library. It is in no trace.
    pub(crate) fn listener<F>(&mut self, future: F) -> Tag<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let tag = self.tag_of_library();
        self.push(Yield::Future { tag: tag.id(), future: Box::pin(future), limit: Duration::MAX });
        tag
    }

    /// Drops a future of this process. Its command is answered with
    /// [`CommandError::Cancelled`], unless it was answered before.
    pub fn cancel_future<T>(&mut self, future: Tag<T>) {
        self.push(Yield::CancelFuture { tag: future.id() });
    }
}

/// A future that is polled within a trace.
pub(crate) struct TracedFuture {
    pub(crate) future: BoxedFuture,
    pub(crate) context: Arc<dyn TraceContext>,
}

impl AnyFuture for TracedFuture {
    fn poll_any(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let TracedFuture { future, context: trace } = &mut *self;
        in_trace(Some(&**trace), || future.as_mut().poll_any(context))
    }
}

/// A future whose `Err` is the failure of its command.
struct TryFuture<F>(Pin<Box<F>>);

impl<F, T, E> AnyFuture for TryFuture<F>
where
    F: Future<Output = Result<T, E>> + Send,
    T: Send + 'static,
    E: Into<BoxError>,
{
    fn poll_any(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.0.as_mut().poll(context).map(|output| match output {
            Ok(value) => Ok(Box::new(value) as _),
            Err(error) => Err(CommandError::Failed(Failure::from(error.into()))),
        })
    }
}
