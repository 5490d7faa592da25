//! The yields of futures.

use std::future::Future;
use std::time::Duration;

use super::command::Tag;
use crate::sched::body::{StepOutput, Yield};

/// Futures.
///
/// A future that a step yields lives in the process. No executor is needed: the thread that steps the process polls the
/// future, too. Like a message, a wake makes the process ready. A poll that does not end the future causes no step.
///
/// - The future is polled for the first time after its step has returned `Ok`. It is never polled during a step of the
///   process. If the step fails, the future is dropped without a poll.
/// - Its output is the answer of the command. If a poll panics, the answer is
///   [`CommandError::Panicked`](super::CommandError::Panicked).
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
    /// future is dropped, and the answer is [`CommandError::TimedOut`](super::CommandError::TimedOut). The limit begins
    /// when the step has returned.
    ///
    /// If the process is in a step then, the future is dropped after that step. [`Duration::MAX`] is no limit.
    pub fn future_timeout<F>(&mut self, limit: Duration, future: F) -> Tag<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let tag = self.tag();
        self.push(Yield::Future { tag: tag.id(), future: Box::pin(future), limit });
        tag
    }

    /// Drops a future of this process. Its command is answered with
    /// [`CommandError::Cancelled`](super::CommandError::Cancelled), unless it was answered before.
    pub fn cancel_future<T>(&mut self, future: Tag<T>) {
        self.push(Yield::CancelFuture { tag: future.id() });
    }
}
