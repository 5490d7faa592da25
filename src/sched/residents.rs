//! The futures that live in the body of a process: its residents.
//!
//! **The body is the permission**, also for futures. The thread that has the body polls them, between the steps and
//! never beside one. They are dropped with the body. `resident_waker.rs` has the protocol of their wakers.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::resident_waker::{PollRequests, ResidentWaker, WokenList};
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, Weak};
use crate::process::command::Answer;
use crate::timer::TimerId;

/// The most futures of a process that one turn polls.
pub(crate) const POLLS_A_TURN: u32 = 64;

/// The most entries for which an empty buffer is kept.
const KEPT: usize = 64;

/// A future with the type of its output erased.
pub(crate) trait AnyFuture: Send {
    /// Polls for the answer of the command.
    fn poll_any(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer>;
}

impl<F: Future<Output: Send + 'static> + Send> AnyFuture for F {
    fn poll_any(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.poll(context).map(|output| Ok(Box::new(output) as Box<dyn Any + Send>))
    }
}

pub(crate) type BoxedFuture = Pin<Box<dyn AnyFuture>>;

/// A future that lives in a body.
pub(crate) struct Resident {
    /// Empty when it was ready.
    future: Option<BoxedFuture>,
    shared: Arc<ResidentWaker>,
    waker: Waker,
    /// The timer of its limit.
    timer: Option<TimerId>,
}

impl Resident {
    pub(crate) fn tag(&self) -> u64 {
        self.shared.tag
    }

    pub(crate) fn timer(&self) -> Option<TimerId> {
        self.timer
    }

    /// Prepares a poll. Returns whether the limit is over, so that the future is not to be polled.
    pub(crate) fn begin_poll(&self) -> bool {
        self.shared.begin_poll()
    }

    /// Polls the future. Drops it if it is ready.
    pub(crate) fn poll(&mut self) -> Poll<Answer> {
        let polled = match &mut self.future {
            Some(future) => future.as_mut().poll_any(&mut Context::from_waker(&self.waker)),
            None => Poll::Pending,
        };
        if polled.is_ready() {
            self.drop_future();
        }
        polled
    }

    /// Whether the future is dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.future.is_none()
    }

    fn drop_future(&mut self) {
        self.shared.end();
        drop_contained(self.future.take());
    }
}

/// Each future is dropped by itself, because two destructors that panic at once end the program.
impl Drop for Resident {
    fn drop(&mut self) {
        self.drop_future();
    }
}

/// All futures of one process.
pub(crate) struct Residents {
    list: Arc<WokenList>,
    /// Futures that have been polled, by their tags.
    pending: HashMap<u64, Resident>,
    /// Futures that have not been polled, oldest first.
    fresh: VecDeque<Resident>,
    /// The tags of woken futures that are to be polled. Some may have ended.
    due: VecDeque<u64>,
    /// The number of polls that this turn may still make.
    polls_left: u32,
}

impl Residents {
    pub(crate) fn new(pid: Pid, road: Weak<dyn PollRequests>) -> Residents {
        Residents {
            list: WokenList::new(pid, road),
            pending: HashMap::new(),
            fresh: VecDeque::new(),
            due: VecDeque::new(),
            polls_left: POLLS_A_TURN,
        }
    }

    /// Takes a new future in. Returns its waker, for the timer of its limit.
    pub(crate) fn admit(&mut self, tag: u64, future: BoxedFuture) -> &Arc<ResidentWaker> {
        let shared = ResidentWaker::new(tag, &self.list);
        let waker = Waker::from(shared.clone());
        &self.fresh.push_back_mut(Resident { future: Some(future), shared, waker, timer: None }).shared
    }

    /// Records the timer of the future that was taken in last.
    pub(crate) fn set_timer(&mut self, timer: TimerId) {
        if let Some(newest) = self.fresh.back_mut() {
            newest.timer = Some(timer);
        }
    }

    /// Takes a future out. The caller drops it.
    pub(crate) fn remove(&mut self, tag: u64) -> Option<Resident> {
        let place = || self.fresh.binary_search_by_key(&tag, Resident::tag).ok();
        match place() {
            Some(place) => self.fresh.remove(place),
            None => self.pending.remove(&tag),
        }
    }

    /// Takes all futures out, in the order of their tags.
    pub(crate) fn take_all(&mut self) -> Vec<Resident> {
        let pending = std::mem::take(&mut self.pending).into_values();
        let mut all: Vec<Resident> = pending.chain(std::mem::take(&mut self.fresh)).collect();
        all.sort_unstable_by_key(Resident::tag);
        all
    }

    /// Records that a turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.polls_left = POLLS_A_TURN;
    }

    /// Takes over the futures that were woken. Each is polled at most once before the next call.
    pub(crate) fn take_woken(&mut self) {
        self.list.take(&mut self.due);
    }

    /// Takes out the next future to poll in this turn. The caller puts it back if it is not ready.
    ///
    /// New futures and woken ones take turns. Otherwise many futures that always wake themselves would keep a new one
    /// from its first poll.
    pub(crate) fn next_due(&mut self) -> Option<Resident> {
        while self.polls_left > 0 {
            let is_fresh_next = self.due.is_empty() || self.polls_left.is_multiple_of(2);
            let next = match self.fresh.pop_front_if(|_| is_fresh_next) {
                Some(fresh) => Some(fresh),
                None => {
                    let tag = self.due.pop_front()?;
                    self.pending.remove(&tag)
                }
            };
            if next.is_some() {
                self.polls_left -= 1;
                return next;
            }
        }
        None
    }

    pub(crate) fn put_back(&mut self, resident: Resident) {
        self.pending.insert(resident.tag(), resident);
    }

    /// Whether there are futures that have not been polled yet.
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether futures are left that this turn could not poll any more.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty() || !self.fresh.is_empty()
    }

    /// Frees large empty buffers.
    pub(crate) fn shrink(&mut self) {
        if self.pending.is_empty() && self.pending.capacity() > KEPT {
            self.pending = HashMap::new();
        }
        if self.fresh.is_empty() && self.fresh.capacity() > KEPT {
            self.fresh = VecDeque::new();
        }
        if self.due.is_empty() && self.due.capacity() > KEPT {
            self.due = VecDeque::new();
        }
    }
}
