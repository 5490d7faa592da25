//! The calls of a context: the waits and the yields.

use std::ops::Range;
use std::time::Duration;

use super::context::Context;
use super::waits::{AnswerFuture, NextFuture, ReceiveFuture, SelectFuture};
use crate::command::TimerFired;
use crate::names::Accepts;
use crate::{Pid, Reply, StepOutput, Tag};

impl<M: Send + 'static> Context<M> {
    /// Waits for the next message. `None`: the process was asked to stop.
    ///
    /// Other events wait for the next [`receive`](Self::receive).
    pub fn next(&self) -> NextFuture<'_, M> {
        NextFuture::new(self)
    }

    /// Waits for the next event: a message, the answer to a command that nothing else waits for, or a control signal.
    pub fn receive(&self) -> ReceiveFuture<'_, M> {
        ReceiveFuture::new(self)
    }

    /// Waits for the next message for which `wanted` is true. The others stay in the mailbox, in order.
    ///
    /// # Errors
    /// [`CommandError::Cancelled`](crate::CommandError::Cancelled): the process was asked to stop.
    pub fn select<F: FnMut(&M) -> bool + Unpin>(&self, wanted: F) -> SelectFuture<'_, M, F> {
        SelectFuture::new(self, wanted)
    }

    /// The sender of the message that was taken last in this step. `None` if it was sent from outside.
    pub fn sender(&self) -> Option<Pid> {
        self.state.open_in_poll()?.events.as_ref()?.sender()
    }

    /// Asks another process. The question is sent with this step, even if the future is not polled before. See
    /// [`StepOutput::ask`] for the errors and for cycles of asks.
    pub fn ask<Q: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Accepts<Q>,
        question: impl FnOnce(Reply<T>) -> Q,
        limit: Duration,
    ) -> AnswerFuture<'_, M, T> {
        AnswerFuture::owner(self, self.lend(|out| out.ask(to, question, limit)).0)
    }

    /// Waits for `delay`, by the runtime's clock.
    pub fn sleep(&self, delay: Duration) -> AnswerFuture<'_, M, TimerFired> {
        AnswerFuture::owner(self, self.lend(|out| out.after(delay)).0)
    }

    /// Runs a closure on the pool, where it may block. See [`StepOutput::blocking`].
    pub fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> AnswerFuture<'_, M, T> {
        AnswerFuture::owner(self, self.lend(|out| out.blocking(work)).0)
    }

    /// Yields a command, and waits for its answer. Each yield that returns a tag can be waited for in this way.
    ///
    /// If the future is dropped before, the command is cancelled, as by [`StepOutput::cancel_command`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use procession::command::{Command, Retry};
    /// use procession::prelude::*;
    ///
    /// #[derive(Clone)]
    /// struct Fetch(u64);
    ///
    /// impl Command for Fetch {
    ///     type Output = String;
    /// }
    ///
    /// async fn fetch(context: Context<()>) -> Result<String, BoxError> {
    ///     let limit = Duration::from_secs(1);
    ///     let retry = Retry::new().attempts(3);
    ///     Ok(context.perform(|out| out.retry(retry, move |out, _| out.command_timeout(Fetch(7), limit))).await?)
    /// }
    ///
    /// let pages = |Fetch(id)| async move { Ok(format!("page {id}")) };
    /// let runtime = Runtime::builder().handler_async(pages).start()?;
    /// assert_eq!(*runtime.spawn(async_process(fetch))?.join()?.into_result()?, "page 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn perform<T: Send + 'static>(&self, run: impl FnOnce(&mut StepOutput) -> Tag<T>) -> AnswerFuture<'_, M, T> {
        AnswerFuture::owner(self, self.out(run))
    }

    /// Waits for the answer to a command, for example one that was yielded with [`out`](Self::out). There may be one
    /// such wait for a tag at a time.
    ///
    /// If the future is dropped, the answer is kept: for another call, or for [`receive`](Self::receive). Nothing
    /// limits the number of answers that are kept.
    ///
    /// # Errors
    /// The error of the command. [`CommandError::Dropped`](crate::CommandError::Dropped) if it was taken before.
    pub fn answer<T: 'static>(&self, tag: Tag<T>) -> AnswerFuture<'_, M, T> {
        AnswerFuture::borrower(self, tag)
    }

    /// Sends a message. See [`StepOutput::send`].
    pub fn send<N: Send + 'static>(&self, to: impl Accepts<N>, message: N) {
        // No user code runs in this, unless the message is converted.
        if to.recipient().is_none()
            && let Some(mut inner) = self.state.open_in_poll()
            && let Some(out) = &mut inner.out
        {
            return out.send(to, message);
        }
        self.out(|out| out.send(to, message));
    }

    /// Answers a question. See [`StepOutput::reply`].
    pub fn reply<T: Send + 'static>(&self, reply: Reply<T>, value: T) {
        if let Some(mut inner) = self.state.open_in_poll()
            && let Some(out) = &mut inner.out
        {
            return out.reply(reply, value);
        }
        self.out(|out| out.reply(reply, value));
    }

    /// Lends the output of the step, for every other yield.
    ///
    /// The answers to its commands are kept until they are taken: by [`answer`](Self::answer) or
    /// [`receive`](Self::receive).
    pub fn out<R>(&self, run: impl FnOnce(&mut StepOutput) -> R) -> R {
        let (result, tags) = self.lend(run);
        if !tags.is_empty() {
            self.state.open().yielded(tags);
        }
        result
    }

    /// Lends the output of the step. Returns the tags that were given out, too.
    fn lend<R>(&self, run: impl FnOnce(&mut StepOutput) -> R) -> (R, Range<u64>) {
        let mut borrowed = self.borrow();
        match borrowed.as_mut().and_then(|borrowed| borrowed.out.as_deref_mut()) {
            Some(out) => {
                let first = out.tags + 1;
                let result = run(out);
                (result, first..out.tags + 1)
            }
            None => (StepOutput::outside(&self.state.link, self.state.pid, run), 0..0),
        }
    }
}
