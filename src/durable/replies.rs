//! Replies that are kept in the states of processes, and how they are written and read.
//!
//! A reply whose asker ends with the run has a number within it. While it is stored, the question is kept here. So a
//! state that is read again in the same run gets a reply to the same question. A state that is read in a later run gets
//! a reply that comes too late.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use crate::primitives::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::process::Reply;
use crate::process::host::CountedHost;
use crate::process::reply::Ask;
use crate::process::reply::{QuestionKey, ReplyKey};

/// The questions of this run whose replies are stored.
#[derive(Default)]
pub(super) struct Replies {
    next: AtomicU64,
    live: Mutex<LiveReplies>,
}

#[derive(Default)]
struct LiveReplies {
    /// By the numbers of the replies, with the processes whose states have them.
    asks: HashMap<u64, (Arc<Ask>, u64)>,
    /// The numbers, by the processes.
    of: HashMap<u64, BTreeSet<u64>>,
}

/// A reply that was written, or read.
pub(super) struct SeenReply {
    pub(super) key: ReplyKey,
    pub(super) ask: Arc<Ask>,
}

/// A reply that the state of a process has no more when the record of a step is on disk.
pub(super) struct GoneReply {
    pub(super) key: ReplyKey,
    /// The question, if the reply was dropped.
    pub(super) dropped: Option<Arc<Ask>>,
}

/// The store that writes or reads.
pub(super) trait ReplyDesk: Send + Sync {
    fn replies(&self) -> &Replies;

    /// The host of questions. `None` if the runtime has ended.
    fn host(&self) -> Option<CountedHost>;
}

thread_local! {
    static DESK: RefCell<Option<Arc<dyn ReplyDesk>>> = const { RefCell::new(None) };
    static SEEN: RefCell<Vec<SeenReply>> = const { RefCell::new(Vec::new()) };
}

/// Takes the store away when a call ends, also if it panics.
struct Reset;

impl Drop for Reset {
    fn drop(&mut self) {
        drop(DESK.take());
    }
}

/// Runs code that may write or read replies. Also returns these.
pub(super) fn at_desk<R>(desk: Arc<dyn ReplyDesk>, code: impl FnOnce() -> R) -> (R, Vec<SeenReply>) {
    DESK.set(Some(desk));
    drop(SEEN.take());
    let _reset = Reset;
    let result = code();
    (result, SEEN.take())
}

fn desk() -> Option<Arc<dyn ReplyDesk>> {
    DESK.with_borrow(|desk| desk.clone())
}

fn see(key: ReplyKey, ask: &Arc<Ask>) {
    SEEN.with_borrow_mut(|seen| seen.push(SeenReply { key, ask: ask.clone() }));
}

/// Names a reply that is written. `None` if no store writes it.
pub(super) fn write(ask: &Arc<Ask>) -> Option<ReplyKey> {
    let desk = desk()?;
    let number = || ReplyKey::Live(desk.replies().next.fetch_add(1, Ordering::Relaxed));
    let key = ask.stored_key().unwrap_or_else(number);
    see(key, ask);
    Some(key)
}

/// Reads a reply of this run by its number, or one of another run. `None` if no store reads it.
pub(super) fn read<T: Send + 'static>(number: Option<u64>) -> Option<Reply<T>> {
    let desk = desk()?;
    let live = number.and_then(|number| Some((number, lock(&desk.replies().live).asks.get(&number)?.0.clone())));
    if let Some((number, ask)) = live {
        see(ReplyKey::Live(number), &ask);
        return Reply::to(ask);
    }
    Some(Reply::late(desk.host()?))
}

/// Reads the reply to a stored question. `None` if no store reads it.
pub(super) fn read_question<T: Send + 'static>(key: QuestionKey) -> Option<Reply<T>> {
    let reply = Reply::to_stored(desk()?.host()?, key);
    reply.ask().into_iter().for_each(|ask| see(ReplyKey::Question(key), ask));
    Some(reply)
}

impl Replies {
    /// Keeps the questions whose replies the state of a process has.
    pub(super) fn keep(&self, owner: u64, replies: Vec<SeenReply>) {
        let mut live = lock(&self.live);
        for SeenReply { key, ask } in replies {
            let ReplyKey::Live(number) = key else { continue };
            ask.store_as(key);
            let before = live.asks.insert(number, (ask, owner)).map(|(_, owner)| owner);
            if let Some(before) = before.filter(|before| *before != owner) {
                live.forget(before, number);
            }
            live.of.entry(owner).or_default().insert(number);
        }
    }

    /// Forgets a question, unless the state of another process than this one has its reply now. Returns it.
    pub(super) fn forget(&self, number: u64, owner: Option<u64>) -> Option<Arc<Ask>> {
        let mut live = lock(&self.live);
        let (ask, of) = live.asks.get(&number).filter(|(_, of)| owner.is_none_or(|owner| owner == *of)).cloned()?;
        live.forget(of, number);
        live.asks.remove(&number);
        drop(live);
        ask.store_no_longer(ReplyKey::Live(number));
        Some(ask)
    }

    /// Gives up the questions of a process but for these. Their askers are told that no answer will come.
    pub(super) fn give_up(&self, owner: u64, but: &[ReplyKey]) {
        let all: Vec<u64> = lock(&self.live).of.get(&owner).into_iter().flatten().copied().collect();
        let over = all.into_iter().filter(|number| !but.contains(&ReplyKey::Live(*number)));
        let over: Vec<Arc<Ask>> = over.filter_map(|number| self.forget(number, Some(owner))).collect();
        over.into_iter().for_each(|ask| ask.abandon());
    }

    /// Gives up all questions.
    pub(super) fn give_up_all(&self) {
        let owners: Vec<u64> = lock(&self.live).of.keys().copied().collect();
        owners.into_iter().for_each(|owner| self.give_up(owner, &[]));
    }
}

impl LiveReplies {
    fn forget(&mut self, owner: u64, number: u64) {
        if let Some(numbers) = self.of.get_mut(&owner) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of.remove(&owner);
            }
        }
    }
}
