//! The newest records, in memory and in order, until they are on disk.
//!
//! A step appends its record and goes on. The writer thread commits everything that was appended while its last commit
//! ran. When a record is on disk it is *released*, and everything that waits for it leaves the store.
//!
//! # The states
//!
//! | state | append | the writer |
//! |---|---|---|
//! | open | takes a record, and gives it the next position | takes a batch, or waits |
//! | rewinding | refuses | opens the journal anew |
//! | closing | refuses | takes batches until none is left |
//! | closed | refuses | has ended |
//!
//! # The arrows
//!
//! | arrow | by | from | to |
//! |---|---|---|---|
//! | `append` | a process, a caller | open | open |
//! | `take` | the writer | open, closing | the same, or closed if it is closing and nothing is left |
//! | `committed` | the writer | open, closing | the same |
//! | `rewind` | the writer, after a failed commit | open, closing | rewinding |
//! | `reopen` | a thread for which the tables have failed | open | the same; the writer rewinds |
//! | `reopened` | the writer | rewinding | open, or closing if it was closing |
//! | `give_up` | the writer, when it ends in any way | any | closed |
//! | `close` | the owner | open, rewinding | closing |
//!
//! # Positions and lives
//!
//! A record has its position when `append` returns. Positions follow each other without gaps, and a batch is a range of
//! them. So the content of the disk is a prefix of the order of appends.
//!
//! After a rewind the positions of lost records are given to other records. So a rewind begins a new *life* of the
//! tail. A process belongs to the life in which it was loaded, and an append of an earlier life is refused: the state
//! of the process may rest on a record that is lost. Another life begins when the journal is open again, because a
//! process that was loaded meanwhile may have been read by a reader of the last opening. No waiter outlives its life.
//!
//! # Why nothing is lost
//!
//! - *Append and take.* Both have the lock. Either the writer sees the record, or it already waits and `append`
//!   notifies it. The writer waits only while nothing is pending, and it looks and begins to wait under one lock.
//! - *Commit and a new waiter.* A waiter of `append` is in the map before the writer can see its record. A later waiter
//!   compares its position with the released one under the lock. Either the record is released, and the waiter is told
//!   at once, or the waiter is in the map before `committed` takes those that are released.
//! - *A failed commit and an append.* `rewind` begins the new life under the lock. An append before it is in a batch
//!   that `rewind` drops, and its waiters are told by `reopened`. An append after it is refused.
//! - *A batch that is on disk although its commit failed.* `reopened` gets the last position on disk. Waiters up to
//!   there are told that their records are released, all others that they are lost. Nobody has been told before.
//! - *Close.* An append before `close` is taken before the writer ends. An append after it is refused. At the end,
//!   each waiter has been told.
//!
//! # The bound
//!
//! Unsynced records take at most [`UNSYNCED`] bytes. A process asks for room *before* its step, because a step that was
//! made must be appended. So the tail exceeds the bound by at most one record for each thread. No thread waits here.
//! If there is no room, a waiter is told when there is.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::journal::{Batch, EncodedRecord, JournalError, Position};
use crate::primitives::{Condvar, Mutex, MutexGuard, OnceLock, lock, wait};

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

/// The most bytes of records that are not on disk.
pub(crate) const UNSYNCED: usize = 64 << 20;

/// The number of lives whose ends are remembered.
const SETTLED: usize = 64;

/// The life of a tail: the time between two rewinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life(u64);

impl Life {
    pub(crate) const FIRST: Life = Life(0);

    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// Why a record was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The process was loaded before a rewind, or a rewind is going on.
    Rewound,
    /// No record is taken any more.
    Closed,
}

/// The fate of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is on disk.
    Released,
    /// It is not on disk, and never will be.
    Lost,
    /// The writer has given up. The next opening of the journal shows whether it is on disk.
    Unknown,
}

pub(crate) type Waiter = Box<dyn FnOnce(Fate) + Send>;
type RoomWaiter = Box<dyn FnOnce() + Send>;

/// The records that are not on disk yet.
pub(crate) struct Tail {
    state: Mutex<State>,
    /// Notified when the writer has something to do.
    work: Condvar,
    /// Called in the place of the notification, if the writer has no thread.
    on_work: OnceLock<Box<dyn Fn() + Send + Sync>>,
    bound: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Rewinding,
    Closed,
}

struct State {
    phase: Phase,
    /// Whether `close` was called.
    is_closing: bool,
    /// Set when `reopen` was called, until the writer has seen it. The text of the first error that counts, if any.
    is_broken: Option<Option<String>>,
    life: u64,
    /// The life that the last rewind has ended, while its fate is not known to the last record.
    rewound: Option<u64>,
    /// The last lives that rewinds have ended and that are settled, each with the last of its records that is on disk.
    /// A process may ask only in its next turn, and there may be another rewind before it.
    settled: VecDeque<(u64, Position)>,
    /// The batches that the writer has not taken. Only the last one may have room for more.
    pending: VecDeque<Batch>,
    appended: Position,
    released: Position,
    /// The bytes of the records that are appended and not released.
    unsynced: usize,
    waiters: BTreeMap<Position, Vec<Waiter>>,
    for_room: Vec<RoomWaiter>,
}

impl State {
    /// The fate of a record that was appended in this life. `None` if it is not known yet: then a waiter is told.
    fn fate(&self, life: Life, position: Position) -> Option<Fate> {
        if life.0 == self.life || self.rewound == Some(life.0) {
            return match self.phase {
                _ if position <= self.released => Some(Fate::Released),
                Phase::Closed => Some(Fate::Unknown),
                Phase::Open | Phase::Rewinding => None,
            };
        }
        let is_on_disk = self.settled.iter().any(|&(of, last)| of == life.0 && position <= last);
        Some(if is_on_disk { Fate::Released } else { Fate::Lost })
    }
}

/// The writer's next work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Commit(Batch),
    /// The tables have failed. The journal is to be opened anew.
    Reopen {
        /// The text of the error, if it counts towards those that close the store.
        why: Option<String>,
    },
    /// Everything is on disk, and no record will come.
    End,
}

/// Waiters that are told when the lock is free.
#[must_use]
#[derive(Default)]
struct Told {
    waiters: Vec<(Fate, Vec<Waiter>)>,
    for_room: Vec<RoomWaiter>,
}

impl Told {
    fn tell(self) {
        for (fate, waiters) in self.waiters {
            waiters.into_iter().for_each(|waiter| waiter(fate));
        }
        self.for_room.into_iter().for_each(|waiter| waiter());
    }
}

impl Tail {
    /// Makes a tail after a journal whose last record is this one.
    pub(crate) fn new(last: Position) -> Tail {
        Tail::with_bound(last, UNSYNCED)
    }

    /// As [`Tail::new`], with another bound.
    pub(crate) fn with_bound(last: Position, bound: usize) -> Tail {
        let state = State {
            phase: Phase::Open,
            is_closing: false,
            is_broken: None,
            life: 0,
            rewound: None,
            settled: VecDeque::new(),
            pending: VecDeque::new(),
            appended: last,
            released: last,
            unsynced: 0,
            waiters: BTreeMap::new(),
            for_room: Vec::new(),
        };
        Tail { state: Mutex::new(state), work: Condvar::new(), on_work: OnceLock::new(), bound }
    }

    /// The life of this moment. A process that is loaded now belongs to it.
    pub(crate) fn life(&self) -> Life {
        Life(lock(&self.state).life)
    }

    /// Appends a record. It is after all records that were appended before. This never waits.
    ///
    /// The waiter is told the fate of the record by the writer. If the record is refused, the waiter is dropped.
    pub(crate) fn append(
        &self,
        life: Life,
        record: &EncodedRecord,
        waiter: Option<Waiter>,
    ) -> Result<Position, Refused> {
        let mut state = lock(&self.state);
        if state.is_closing || state.phase == Phase::Closed {
            return Err(Refused::Closed);
        }
        if state.phase == Phase::Rewinding || state.life != life.0 {
            return Err(Refused::Rewound);
        }
        let was_empty = state.pending.is_empty();
        let position = state.appended.next();
        // Without a thread each record is a batch. So every prefix of the records may be on disk at a crash.
        let batch = if self.on_work.get().is_some() { None } else { state.pending.back_mut() };
        if batch.and_then(|batch| batch.push(record)).is_none() {
            let mut batch = Batch::new(position);
            batch.push(record);
            state.pending.push_back(batch);
        }
        state.appended = position;
        state.unsynced += record.size();
        if let Some(waiter) = waiter {
            state.waiters.entry(position).or_default().push(waiter);
        }
        drop(state);
        // If a batch was pending, the writer has been notified, or it will look when its commit has ended.
        if was_empty {
            self.notify_writer();
        }
        Ok(position)
    }

    /// Tells a waiter when a record and all before it are on disk. If the fate is known, this thread tells the waiter.
    ///
    /// A process asks this for the last record that it rests on. In a later life the process is gone, and the fate is
    /// [`Fate::Lost`], also of a record that is on disk: see [`when_settled`](Tail::when_settled).
    pub(crate) fn when_released(&self, life: Life, position: Position, waiter: impl FnOnce(Fate) + Send + 'static) {
        let mut state = lock(&self.state);
        let fate = if life.0 == state.life { state.fate(life, position) } else { Some(Fate::Lost) };
        let Some(fate) = fate else {
            state.waiters.entry(position).or_default().push(Box::new(waiter));
            return;
        };
        drop(state);
        waiter(fate);
    }

    /// As [`when_released`](Tail::when_released), for a caller from outside. The fates of the records of the lives that
    /// the last 64 rewinds have ended are known as well, or will be when the journal is open again. The fate of an
    /// earlier record is [`Fate::Lost`], so ask only for records that the tables do not have.
    pub(crate) fn when_settled(&self, life: Life, position: Position, waiter: impl FnOnce(Fate) + Send + 'static) {
        if let Some((fate, waiter)) = self.settles(life, position, waiter) {
            waiter(fate);
        }
    }

    /// Like [`when_settled`](Tail::when_settled), but returns the waiter with the fate if the fate is known already.
    pub(crate) fn settles<W: FnOnce(Fate) + Send + 'static>(
        &self,
        life: Life,
        position: Position,
        waiter: W,
    ) -> Option<(Fate, W)> {
        let mut state = lock(&self.state);
        let Some(fate) = state.fate(life, position) else {
            state.waiters.entry(position).or_default().push(Box::new(waiter));
            return None;
        };
        Some((fate, waiter))
    }

    /// Whether a process may be stepped. If not, the waiter is told when it may.
    pub(crate) fn has_room(&self, waiter: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.state);
        if state.unsynced < self.bound || state.phase == Phase::Closed {
            return true;
        }
        state.for_room.push(Box::new(waiter));
        false
    }

    /// The last record that was appended, and the life in which it was.
    pub(crate) fn end(&self) -> (Life, Position) {
        let state = lock(&self.state);
        (Life(state.life), state.appended)
    }

    /// The fate of a record that was appended in this life, if it is known.
    pub(crate) fn fate(&self, life: Life, position: Position) -> Option<Fate> {
        lock(&self.state).fate(life, position)
    }

    /// Whether this record of this life is known to be lost.
    pub(crate) fn is_lost(&self, life: Life, position: Position) -> bool {
        self.fate(life, position) == Some(Fate::Lost)
    }

    /// Whether this record of this life, and all before it, are on disk.
    pub(crate) fn is_released(&self, life: Life, position: Position) -> bool {
        let state = lock(&self.state);
        state.life == life.0 && position <= state.released
    }

    /// Whether a load of this moment reads all that there will be of a record: it is on disk, or of an earlier life.
    pub(crate) fn is_settled(&self, life: Life, position: Position) -> bool {
        let state = lock(&self.state);
        state.life != life.0 || position <= state.released
    }

    /// The life of this moment, unless the journal is being opened anew.
    pub(crate) fn open_life(&self) -> Option<Life> {
        let state = lock(&self.state);
        (state.phase != Phase::Rewinding).then_some(Life(state.life))
    }

    /// The bytes of the records that are not on disk.
    pub(crate) fn unsynced(&self) -> usize {
        lock(&self.state).unsynced
    }

    /// The last record that is on disk.
    pub(crate) fn released(&self) -> Position {
        lock(&self.state).released
    }

    /// Refuses further records. The writer ends when all records are on disk.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.notify_writer();
    }

    /// Has the writer open the journal anew, because the tables have failed. Records that are not on disk are lost.
    ///
    /// `life` is the one in which they have failed. If the journal has been opened anew since, nothing is done.
    /// [`JournalError::Broken`] follows from another error, which says whether it counts.
    pub(crate) fn reopen(&self, life: Life, error: &JournalError) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Open && state.life == life.0 {
            let why = (error.counts() && !error.follows()).then(|| error.to_string());
            let first = state.is_broken.get_or_insert_default();
            *first = first.take().or(why);
            drop(state);
            self.notify_writer();
        }
    }

    /// Whether no record is taken any more. A writer that cannot open the journal asks.
    pub(crate) fn is_closing(&self) -> bool {
        let state = lock(&self.state);
        state.is_closing || state.phase == Phase::Closed
    }

    fn notify_writer(&self) {
        match self.on_work.get() {
            Some(on_work) => on_work(),
            None => self.work.notify_one(),
        }
    }

    /// Has a writer without a thread called when it has something to do.
    pub(super) fn set_on_work(&self, on_work: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_work.set(Box::new(on_work));
    }

    /// Whether the writer has something to do.
    pub(super) fn has_work(&self) -> bool {
        let state = lock(&self.state);
        state.is_broken.is_some() || state.is_closing || !state.pending.is_empty()
    }

    /// Waits for work. Only the writer calls this and the arrows below.
    pub(crate) fn take(&self) -> Work {
        let mut state = lock(&self.state);
        loop {
            match self.take_now(state) {
                Ok(work) => return work,
                Err(nothing) => state = wait(&self.work, nothing),
            }
        }
    }

    /// As [`take`](Self::take), for a writer without a thread. `None` if there is nothing to do.
    pub(super) fn try_take(&self) -> Option<Work> {
        self.take_now(lock(&self.state)).ok()
    }

    fn take_now<'a>(&self, mut state: MutexGuard<'a, State>) -> Result<Work, MutexGuard<'a, State>> {
        if let Some(why) = state.is_broken.clone().filter(|_| !state.is_closing) {
            return Ok(Work::Reopen { why });
        }
        if let Some(batch) = state.pending.pop_front() {
            return Ok(Work::Commit(batch));
        }
        if state.is_closing || state.phase == Phase::Closed {
            let told = self.tell_all(&mut state);
            drop(state);
            told.tell();
            return Ok(Work::End);
        }
        Err(state)
    }

    /// A batch is on disk.
    pub(crate) fn committed(&self, batch: &Batch) {
        let mut state = lock(&self.state);
        state.unsynced = state.unsynced.saturating_sub(batch.records_size());
        let told = self.release(&mut state, batch.last());
        drop(state);
        told.tell();
    }

    /// A commit has failed. Everything that is not released is dropped, and a new life begins.
    pub(crate) fn rewind(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Rewinding;
        state.is_broken = None;
        state.rewound = Some(state.life);
        state.life += 1;
        state.pending.clear();
        state.unsynced = 0;
    }

    /// The journal is open again, and this is its last record.
    pub(crate) fn reopened(&self, last: Position) {
        let mut state = lock(&self.state);
        if let Some(life) = state.rewound.take() {
            state.settled.truncate(SETTLED - 1);
            state.settled.push_front((life, last));
        }
        state.life += 1;
        let mut told = self.release(&mut state, last);
        told.waiters.extend(std::mem::take(&mut state.waiters).into_values().map(|waiters| (Fate::Lost, waiters)));
        state.appended = last;
        state.phase = Phase::Open;
        drop(state);
        told.tell();
    }

    /// The journal cannot be used any more.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.state);
        state.pending.clear();
        let told = self.tell_all(&mut state);
        drop(state);
        told.tell();
    }

    fn release(&self, state: &mut MutexGuard<'_, State>, last: Position) -> Told {
        state.released = last;
        let behind = state.waiters.split_off(&last.next());
        let released = std::mem::replace(&mut state.waiters, behind);
        let mut told = Told::default();
        told.waiters.extend(released.into_values().map(|waiters| (Fate::Released, waiters)));
        if state.unsynced < self.bound {
            told.for_room = std::mem::take(&mut state.for_room);
        }
        told
    }

    fn tell_all(&self, state: &mut MutexGuard<'_, State>) -> Told {
        state.phase = Phase::Closed;
        let waiters =
            std::mem::take(&mut state.waiters).into_values().map(|waiters| (Fate::Unknown, waiters)).collect();
        Told { waiters, for_room: std::mem::take(&mut state.for_room) }
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Tail")
            .field("phase", &state.phase)
            .field("appended", &state.appended)
            .field("released", &state.released)
            .field("unsynced", &state.unsynced)
            .finish_non_exhaustive()
    }
}
