//! The waker of a future that lives in the body of a process, and how a wake reaches the body.
//!
//! **State.** A waker has three bits: *woken*, *expired*, *over*. The wakers of one process share a list with the tags
//! of woken futures. The cell of the process has a flag, `POLLS`. The body has a mark, `poll_requested`. The mark
//! belongs to the thread that has the body.
//!
//! | the future is | it is woken | its limit is over | the owner of the body polls it | it ends |
//! |---|---|---|---|---|
//! | **quiet** | woken, and listed | woken and expired, and listed | — | over |
//! | **woken** | — | expired | quiet | over |
//! | **expired** | — | — | it is not polled: it ends, timed out | over |
//! | **over** | — | — | — | — |
//!
//! **A thread that wakes a future:**
//!
//! 1. sets *woken*. If *woken* or *over* was set before, it is done. (If the limit is over, it sets *expired*, too.)
//! 2. Under the lock of the list, it adds the tag. If the list was not empty, it is done.
//! 3. Under the lock of the cell (`Cell::request_poll`): if the body rests there, it takes the body out, marks it
//!    `poll_requested`, and queues it. Otherwise it sets `POLLS`.
//!
//! **The owner of the body:**
//!
//! - *When a step or a poll is over* (`Cell::settle`), under the lock of the cell: if `POLLS` is set, it clears the
//!   flag and marks the body. A marked body does not come to rest. Its turn ends.
//! - *When a turn begins* with a marked body: (a) it takes the mark off and clears `POLLS`, under the lock of the cell.
//!   (b) It takes the tags out of the list. (c) For each tag it clears *woken*, and then polls that future.
//!
//! A machine with yields that are released later is looked at between (a) and (b), for the same reason: it is asked for
//! a poll after each release.
//!
//! **Why no wake is lost.** Let a future be woken.
//!
//! - If *woken* was set before, its tag is listed or will be, and the owner has not come to (c) for it. The poll comes
//!   after (c). Both threads change the same word, so the poll sees everything that the waking thread wrote before.
//! - If the list was not empty, another thread has added the first tag of it, and goes on to 3. Both tags are taken out
//!   by the same (b).
//! - Otherwise the thread goes on to 3. If it finds the body at rest, it queues a marked body, whose turn comes to (b).
//!   If not, it sets `POLLS`. The owner's next settlement finds the flag and marks the body, unless (a) clears the flag
//!   first. But (b) follows (a), and the tag is in the list since 2.
//!
//! A wake after (b) and before the end of the poll finds *woken* cleared or about to be cleared. In the second case
//! (c) comes after the wake, so the poll sees it.
//!
//! A request to poll may find an empty list, because an earlier (b) has taken the tag. Then nothing is polled, and the
//! body comes to rest again.
//!
//! **After the end.** A future that ends sets *over* first. Its waker does nothing from then on. A waker holds the
//! runtime weakly, and names the process with its generation. So it keeps no runtime alive, and reaches no successor.

use std::collections::VecDeque;
use std::task::Wake;

use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Brief, Ordering, Weak, enter};

const WOKEN: usize = 1;
const EXPIRED: usize = 1 << 1;
const OVER: usize = 1 << 2;

/// Makes processes poll their futures.
pub(crate) trait PollRequests: Send + Sync {
    /// Makes a process poll its woken futures, if it lives.
    fn request_poll(&self, pid: Pid);
}

/// The woken futures of one process.
pub(crate) struct WokenList {
    pid: Pid,
    road: Weak<dyn PollRequests>,
    tags: Brief<VecDeque<u64>>,
}

impl WokenList {
    pub(crate) fn new(pid: Pid, road: Weak<dyn PollRequests>) -> Arc<WokenList> {
        Arc::new(WokenList { pid, road, tags: Brief::new(VecDeque::new()) })
    }

    fn add(&self, tag: u64) {
        let is_first = {
            let mut tags = enter(&self.tags);
            tags.push_back(tag);
            tags.len() == 1
        };
        if is_first && let Some(road) = self.road.upgrade() {
            road.request_poll(self.pid);
        }
    }

    /// Moves the tags behind those of `due`.
    pub(crate) fn take(&self, due: &mut VecDeque<u64>) {
        let mut tags = enter(&self.tags);
        if due.is_empty() {
            std::mem::swap(&mut *tags, due);
        } else {
            due.append(&mut tags);
        }
    }
}

/// The waker of one future.
pub(crate) struct ResidentWaker {
    bits: AtomicUsize,
    pub(crate) tag: u64,
    list: Arc<WokenList>,
}

/// A million futures that wait have a million wakers.
#[cfg(not(loom))]
const _: () = assert!(size_of::<ResidentWaker>() <= 24);

impl ResidentWaker {
    /// Makes the waker of a new future. It counts as woken, because every future is polled once.
    pub(crate) fn new(tag: u64, list: &Arc<WokenList>) -> Arc<ResidentWaker> {
        Arc::new(ResidentWaker { bits: AtomicUsize::new(WOKEN), tag, list: list.clone() })
    }

    fn set(&self, bits: usize) {
        // Ordering: AcqRel, for `begin_poll`. Both change this word, and the second sees what the first wrote before.
        let before = self.bits.fetch_or(WOKEN | bits, Ordering::AcqRel);
        if before & (WOKEN | OVER) == 0 {
            self.list.add(self.tag);
        }
    }

    /// Ends the future with a time-out, unless it has ended.
    pub(crate) fn expire(&self) {
        self.set(EXPIRED);
    }

    /// Clears *woken*, before a poll. Returns whether the limit is over, so that the future is not to be polled.
    pub(crate) fn begin_poll(&self) -> bool {
        self.bits.fetch_and(!WOKEN, Ordering::AcqRel) & EXPIRED != 0
    }

    /// Makes this waker do nothing from now on.
    pub(crate) fn end(&self) {
        // Ordering: Relaxed: a thread that does not see this yet adds a tag that no future has.
        self.bits.fetch_or(OVER, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bits.load(Ordering::Relaxed) & OVER != 0
    }
}

impl Wake for ResidentWaker {
    fn wake(self: Arc<Self>) {
        self.set(0);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set(0);
    }
}
