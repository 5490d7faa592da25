//! The futures of a context.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use super::context::Context;
use super::state::{Found, Inner, Later, SharedState, Since};
use crate::command::CancelRequest;
use crate::process::event::LentEvents;
use crate::process::propagation::begin_deferred;
use crate::sched::mailbox::Control;
use crate::{CommandError, Event, StepOutput, Tag};

/// A wait for events.
struct Wait<'a, M> {
    context: &'a Context<M>,
    number: Option<u64>,
    since: Since,
}

impl<'a, M> Wait<'a, M> {
    fn new(context: &'a Context<M>) -> Wait<'a, M> {
        Wait { context, number: None, since: None }
    }

    fn state(&self) -> &'a SharedState<M> {
        &self.context.state
    }

    /// Polls. `take` takes the event, and `stopped` makes the output of a request to stop.
    fn poll<R>(
        &mut self,
        context: &mut TaskContext<'_>,
        outside: Poll<R>,
        stopped: impl FnOnce(CancelRequest) -> R,
        take: impl FnOnce(&mut Inner<M>, &mut Later<M>) -> Option<R>,
    ) -> Poll<R> {
        let wakes = self.state().wakes(context.waker());
        let Some(mut inner) = self.state().open_in_poll() else { return outside };
        let mut later = Later::new();
        let ready = match inner.stopped(&mut self.since) {
            Some(request) => Some(stopped(request)),
            None => {
                inner.events.iter_mut().for_each(|events| events.offer_again());
                take(&mut inner, &mut later)
            }
        };
        match ready {
            Some(_) => inner.unregister(self.number.take(), &mut later),
            None => inner.register(&mut self.number, wakes, &mut later),
        }
        let is_traced = inner.is_traced();
        drop(inner);
        if is_traced {
            begin_deferred();
        }
        later.run();
        ready.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<M> Drop for Wait<'_, M> {
    fn drop(&mut self) {
        if self.number.is_some() {
            let mut later = Later::new();
            self.state().open().unregister(self.number, &mut later);
            later.run();
        }
    }
}

/// Waits for the next message. Made by [`Context::next`].
#[must_use = "futures do nothing unless they are polled"]
pub struct NextFuture<'a, M>(Wait<'a, M>);

impl<'a, M> NextFuture<'a, M> {
    pub(super) fn new(context: &'a Context<M>) -> NextFuture<'a, M> {
        NextFuture(Wait::new(context))
    }
}

impl<M> Future for NextFuture<'_, M> {
    type Output = Option<M>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<M>> {
        self.0.poll(
            context,
            Poll::Ready(None),
            |_| None,
            |inner, later| loop {
                match inner.events.as_mut()?.next()? {
                    Event::Message(message) => return Some(Some(message)),
                    other => inner.sort(other, later),
                }
            },
        )
    }
}

/// Waits for the next event. Made by [`Context::receive`].
#[must_use = "futures do nothing unless they are polled"]
pub struct ReceiveFuture<'a, M>(Wait<'a, M>);

impl<'a, M> ReceiveFuture<'a, M> {
    pub(super) fn new(context: &'a Context<M>) -> ReceiveFuture<'a, M> {
        ReceiveFuture(Wait::new(context))
    }
}

impl<M> Future for ReceiveFuture<'_, M> {
    type Output = Event<M>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Event<M>> {
        self.0.poll(
            context,
            Poll::Pending,
            |request| Box::new(Control::Cancel(request)).into(),
            |inner, later| {
                let mut next = inner.take_kept();
                while next.is_none() {
                    next = match inner.events.as_mut()?.next()? {
                        Event::Completed(answer) => inner.answered(answer, later),
                        other => Some(other),
                    };
                }
                next
            },
        )
    }
}

/// Waits for the next message for which a predicate is true. Made by [`Context::select`].
#[must_use = "futures do nothing unless they are polled"]
pub struct SelectFuture<'a, M, F> {
    wait: Wait<'a, M>,
    wanted: F,
}

impl<'a, M, F> SelectFuture<'a, M, F> {
    pub(super) fn new(context: &'a Context<M>, wanted: F) -> SelectFuture<'a, M, F> {
        SelectFuture { wait: Wait::new(context), wanted }
    }
}

/// The events of a step, while a predicate looks at them. They are put back when this is dropped.
struct Looking<'a, M> {
    state: &'a SharedState<M>,
    events: Option<LentEvents<M>>,
    others: Vec<Event<M>>,
}

impl<M> Drop for Looking<'_, M> {
    fn drop(&mut self) {
        let mut later = Later::new();
        let mut inner = self.state.open();
        inner.events = self.events.take();
        self.others.drain(..).for_each(|event| inner.sort(event, &mut later));
        drop(inner);
        later.run();
    }
}

impl<M, F: FnMut(&M) -> bool + Unpin> Future for SelectFuture<'_, M, F> {
    type Output = Result<M, CommandError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Result<M, CommandError>> {
        let SelectFuture { wait, wanted } = &mut *self;
        let mut found = None;
        // The predicate is the user's, so it looks without the lock. Registered first, because an event that the
        // predicate passes over may be for another wait.
        let begun = wait.poll(
            context,
            Poll::Ready(Err(CommandError::Dropped)),
            |request| Err(CommandError::Cancelled(request.reason)),
            |_, _| None,
        );
        if begun.is_ready() {
            return begun;
        }
        let events = wait.state().open_in_poll().and_then(|mut inner| inner.events.take());
        if events.is_some() {
            let mut looking = Looking { state: wait.state(), events, others: Vec::new() };
            while let Some(event) = looking.events.as_mut().and_then(|events| events.select(&mut *wanted)) {
                match event {
                    Event::Message(message) => {
                        found = Some(message);
                        break;
                    }
                    other => looking.others.push(other),
                }
            }
        }
        let Some(message) = found else { return Poll::Pending };
        let mut later = Later::new();
        let mut inner = wait.state().open();
        inner.unregister(wait.number.take(), &mut later);
        let is_traced = inner.is_traced();
        drop(inner);
        if is_traced {
            begin_deferred();
        }
        later.run();
        Poll::Ready(Ok(message))
    }
}

/// Waits for the answer to a command. Made by [`Context::ask`], [`Context::sleep`], [`Context::blocking`] and
/// [`Context::answer`].
#[must_use = "the answer is dropped with the future"]
pub struct AnswerFuture<'a, M, T> {
    context: &'a Context<M>,
    /// Empty if the command was yielded outside of a poll, and when the output was returned.
    tag: Option<Tag<T>>,
    /// Whether nobody else can wait for the answer.
    is_owner: bool,
    is_registered: bool,
    since: Since,
}

impl<'a, M, T> AnswerFuture<'a, M, T> {
    /// Waits for the answer to a command that the context has just yielded.
    pub(super) fn owner(context: &'a Context<M>, tag: Tag<T>) -> AnswerFuture<'a, M, T> {
        let tag = StepOutput::is_performed(tag.id()).then_some(tag);
        if let Some(tag) = tag {
            context.state.open().expect(tag.id());
        }
        AnswerFuture { context, tag, is_owner: true, is_registered: true, since: None }
    }

    /// Waits for the answer to a command that anybody may wait for.
    pub(super) fn borrower(context: &'a Context<M>, tag: Tag<T>) -> AnswerFuture<'a, M, T> {
        let tag = StepOutput::is_performed(tag.id()).then_some(tag);
        AnswerFuture { context, tag, is_owner: false, is_registered: false, since: None }
    }

    /// Gives the answer up.
    fn give_up(&mut self) {
        let Some(tag) = self.tag.take().filter(|_| self.is_registered) else { return };
        let mut later = Later::new();
        let is_outstanding = self.context.state.open().give_up(tag.id(), self.is_owner, &mut later);
        later.run();
        if is_outstanding {
            let mut borrowed = self.context.borrow();
            let out = borrowed.as_mut().and_then(|borrowed| borrowed.out.as_mut());
            out.into_iter().for_each(|out| out.cancel_command(tag));
        }
    }
}

impl<M, T: 'static> Future for AnswerFuture<'_, M, T> {
    type Output = Result<T, CommandError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Result<T, CommandError>> {
        let Some(tag) = self.tag else { return Poll::Ready(Err(CommandError::Dropped)) };
        let state = &self.context.state;
        let wakes = state.wakes(context.waker());
        let Some(mut inner) = state.open_in_poll() else { return Poll::Ready(Err(CommandError::Dropped)) };
        let mut later = Later::new();
        let found = inner.poll_answer(tag.id(), &mut self.since, wakes, &mut later);
        drop(inner);
        later.run();
        let answer = match found {
            Poll::Pending => {
                self.is_registered = true;
                return Poll::Pending;
            }
            Poll::Ready(Found::Stop(request)) => {
                self.give_up();
                return Poll::Ready(Err(CommandError::Cancelled(request.reason)));
            }
            Poll::Ready(Found::Answer(answer)) => answer.take(tag),
            Poll::Ready(Found::Nothing) => None,
        };
        self.tag = None;
        Poll::Ready(answer.unwrap_or(Err(CommandError::Dropped)))
    }
}

impl<M, T> Drop for AnswerFuture<'_, M, T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<M, T> Unpin for AnswerFuture<'_, M, T> {}

impl<M> fmt::Debug for NextFuture<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextFuture")
    }
}

impl<M> fmt::Debug for ReceiveFuture<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiveFuture")
    }
}

impl<M, F> fmt::Debug for SelectFuture<'_, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SelectFuture")
    }
}

impl<M, T> fmt::Debug for AnswerFuture<'_, M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerFuture").field("tag", &self.tag).finish_non_exhaustive()
    }
}
