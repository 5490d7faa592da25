//! Streams as commands, with the feature `stream`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use super::command::{Answer, Tag};
use super::feed::Feed;
use crate::outcome::drop_contained;
use crate::sched::body::StepOutput;
use crate::sched::feeds::NotFed;
use crate::sched::residents::AnyFuture;

impl StepOutput {
    /// Polls a stream. Its items come as messages of the process, as those of a [`Feed`] do. When
    /// the stream has ended, and the process has taken all items, the command is answered.
    ///
    /// At most `limit` items are untaken. The stream is not polled further ahead. If a poll panics, the answer is
    /// [`CommandError::Panicked`](super::CommandError::Panicked). If the process takes messages of another type, the
    /// answer is [`CommandError::WrongType`](super::CommandError::WrongType). The stream is dropped with the process,
    /// and [`cancel_future`](Self::cancel_future) drops it, too. Items that were put still come.
    ///
    /// A step after [`Step::Wait`](super::Step::Wait) is given no items. So a process that waits for the answer of a
    /// stream says [`Step::Idle`](super::Step::Idle).
    pub fn stream<S>(&mut self, limit: usize, stream: S) -> Tag<()>
    where
        S: Stream<Item: Send + 'static> + Send + 'static,
    {
        let feed = self.feed(limit);
        let pump = Pump { stream: Some(Box::pin(stream)), feed, ticket: None };
        self.push_future(Duration::MAX, Box::pin(pump))
    }
}

/// Moves the items of a stream into a feed. It is the only one that puts any.
struct Pump<S: Stream<Item: Send + 'static>> {
    /// Empty when the stream has ended.
    stream: Option<Pin<Box<S>>>,
    feed: Feed<S::Item>,
    ticket: Option<u64>,
}

impl<S: Stream<Item: Send + 'static>> Unpin for Pump<S> {}

impl<S: Stream<Item: Send + 'static> + Send> AnyFuture for Pump<S> {
    fn poll_any(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let Pump { stream, feed, ticket } = &mut *self;
        let feed = feed.shared();
        loop {
            let Some(open) = stream else {
                // The answer comes after the last item.
                return if feed.wait_while(1, ticket, context.waker().clone()) {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(Box::new(())))
                };
            };
            match feed.room() {
                Ok(()) => {}
                Err(NotFed::NoRoom) if feed.wait_for_room(ticket, context.waker().clone()) => return Poll::Pending,
                Err(NotFed::NoRoom) => continue,
                Err(NotFed::Refused(why)) => return Poll::Ready(Err(why.into())),
            }
            match open.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => drop_contained(stream.take()),
                Poll::Ready(Some(item)) => {
                    if let Err((item, why)) = feed.offer(item) {
                        drop_contained(item);
                        if let NotFed::Refused(why) = why {
                            return Poll::Ready(Err(why.into()));
                        }
                    }
                }
            }
        }
    }
}
