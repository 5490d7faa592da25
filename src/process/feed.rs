//! Feeds: queues with backpressure, by which futures, threads and tasks give messages to a process.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::dead_letter::SendError;
use crate::outcome::Rejected;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::sched::body::{StepOutput, Yield};
use crate::sched::feeds::{FeedShared, NewFeed, NotFed};

/// A bounded queue by which other code gives messages to a process.
///
/// A step makes a feed with [`StepOutput::feed`], and gives it to a future, a thread or a task of an async runtime. The
/// items come to the process as messages, beside its mailbox. A clone is another handle of the same feed.
///
/// - Items of one handle come in the order in which they were put. Messages of the mailbox and items of feeds have no
///   order among each other. If both wait, they come in turns. Several feeds come in turns, too.
/// - An item counts as untaken until a step takes it. [`put`](Self::put) waits while the limit of untaken items is
///   reached. The bound of the mailbox does not count items.
/// - When the process has ended, no item is accepted any longer. Items that no step has taken are dead letters. The
///   feed stays when the state machine is replaced by an upgrade or a recovery.
/// - When the last handle is dropped, the items that are left still come.
/// - A step after [`Step::Wait`](super::Step::Wait) is given no items. So a process must not wait in this way for a
///   future that puts items.
///
/// ```
/// use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};
///
/// /// Adds numbers that a future gives it.
/// struct Sum { total: u64, began: bool }
///
/// impl Process for Sum {
///     type Message = u64;
///     type Output = u64;
///
///     fn step(&mut self, events: &mut Events<u64>, out: &mut StepOutput) -> StepResult<u64> {
///         if !std::mem::replace(&mut self.began, true) {
///             let feed = out.feed::<u64>(16);
///             out.future(async move {
///                 for n in 1..=100 {
///                     if feed.put(n).await.is_err() {
///                         break;
///                     }
///                 }
///             });
///         }
///         for event in events {
///             match event {
///                 Event::Message(n) => self.total += n,
///                 Event::Completed(_) if self.total == 5050 => return Ok(Step::Done(self.total)),
///                 _ => {}
///             }
///         }
///         Ok(if self.total == 5050 { Step::Done(self.total) } else { Step::Idle })
///     }
/// }
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let sum = runtime.spawn(Sum { total: 0, began: false })?;
/// assert_eq!(**sum.join()?.output().unwrap(), 5050);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Feed<M: Send + 'static> {
    handle: Arc<FeedHandle<M>>,
}

/// The part that all handles of a feed share. Its drop closes the feed.
struct FeedHandle<M: Send + 'static>(Arc<FeedShared<M>>);

impl<M: Send + 'static> Drop for FeedHandle<M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl StepOutput {
    /// Makes a feed of this process. At most `limit` of its items are untaken. A limit of zero counts as one.
    ///
    /// Items are accepted when the step has returned `Ok`. If the step fails, or returns
    /// [`Step::Done`](super::Step::Done), none is. `M` should be the type of the process's messages. If it is not,
    /// every item is refused with [`SendError::WrongType`]. So name the type: `out.feed::<Line>(16)`.
    pub fn feed<M: Send + 'static>(&mut self, limit: usize) -> Feed<M> {
        let shared = FeedShared::new(self.pid, limit);
        self.push(Yield::Feed(Box::new(NewFeed(Some(shared.clone())))));
        Feed { handle: Arc::new(FeedHandle(shared)) }
    }
}

impl<M: Send + 'static> Feed<M> {
    pub(super) fn shared(&self) -> &FeedShared<M> {
        &self.handle.0
    }

    /// Puts an item. The future waits while there is no room. If it is dropped before it is ready, the item is not put.
    ///
    /// # Errors
    /// The item comes back if the process has ended, or takes messages of another type. This also ends a wait.
    pub fn put(&self, item: M) -> PutFuture<M> {
        PutFuture { feed: self.clone(), item: Some(item), ticket: None }
    }

    /// Puts an item, if there is room now.
    ///
    /// # Errors
    /// The item comes back with [`SendError::Full`] if there is no room, and for the reasons of [`put`](Self::put).
    pub fn try_put(&self, item: M) -> Result<(), Rejected<M, SendError>> {
        self.shared().offer(item).map_err(|(item, why)| match why {
            NotFed::NoRoom => Rejected::new(item, SendError::Full { pid: self.pid(), limit: self.limit() }),
            NotFed::Refused(why) => Rejected::new(item, why),
        })
    }

    /// The process to which the items go.
    pub fn pid(&self) -> Pid {
        self.shared().pid
    }

    /// The maximum number of items that are untaken.
    pub fn limit(&self) -> usize {
        self.shared().limit
    }
}

impl<M: Send + 'static> Clone for Feed<M> {
    fn clone(&self) -> Feed<M> {
        Feed { handle: self.handle.clone() }
    }
}

impl<M: Send + 'static> fmt::Debug for Feed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("pid", &self.pid()).field("limit", &self.limit()).finish_non_exhaustive()
    }
}

/// Puts an item into a [`Feed`]. Made with [`Feed::put`].
#[must_use = "the item is not put until the future is awaited"]
pub struct PutFuture<M: Send + 'static> {
    feed: Feed<M>,
    item: Option<M>,
    /// The ticket of this put in the queue. Empty before its first wait, and after its item was put.
    ticket: Option<u64>,
}

/// The item is never pinned.
impl<M: Send + 'static> Unpin for PutFuture<M> {}

impl<M: Send + 'static> Future for PutFuture<M> {
    type Output = Result<(), Rejected<M, SendError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Without an item it was ready before.
        let Some(mut item) = this.item.take() else { return Poll::Pending };
        loop {
            match this.feed.shared().offer(item) {
                Ok(()) => {
                    // The put may be polled without its wake, and still be in the queue.
                    this.feed.shared().leave(&mut this.ticket);
                    return Poll::Ready(Ok(()));
                }
                Err((back, NotFed::Refused(why))) => return Poll::Ready(Err(Rejected::new(back, why))),
                Err((back, NotFed::NoRoom)) => item = back,
            }
            if this.feed.shared().wait_for_room(&mut this.ticket, context.waker().clone()) {
                this.item = Some(item);
                return Poll::Pending;
            }
        }
    }
}

impl<M: Send + 'static> Drop for PutFuture<M> {
    fn drop(&mut self) {
        // Leaves the queue of the puts that wait for room.
        self.feed.shared().give_up(&mut self.ticket);
    }
}

impl<M: Send + 'static> fmt::Debug for PutFuture<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutFuture").field("feed", &self.feed).finish_non_exhaustive()
    }
}
