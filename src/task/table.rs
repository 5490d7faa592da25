//! The scheduler's table: its tasks, the retention of their records, and the counts. It makes plain decisions under
//! one lock. It uses no timer and no user code, so each rule can be tested as a function. Removed records are
//! returned, so that the caller drops them without the lock.
//!
//! A record is removed when its task has ended, its handle is dropped, and its [`Retention`] has passed. The later of
//! the first two events checks the third. The table frees memory as it becomes empty. Its tasks are listed in the
//! order of their submission.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use super::error::RemoveError;
use super::info::{Status, TaskId, TaskStats};
use super::options::Retention;
use crate::clock::Clock;
use crate::numbered_list::NumberedList;
use crate::primitives::ThreadId;
use crate::timer::TimerKey;

pub(super) struct Table<R> {
    pub(super) is_stopped: bool,
    /// The number of an entry is that of its task, less one.
    entries: NumberedList<Entry<R>>,
    /// For each limit of records, the records kept under it, the oldest first.
    newest: HashMap<usize, VecDeque<TaskId>>,
    /// Closures that have not returned although their tasks have ended.
    pub(super) inside: BTreeMap<TaskId, (R, ThreadId)>,
    /// Stops that have begun and have not yet run all user code.
    pub(super) open_stops: usize,
    /// For each thread of these stops, the task whose user code it runs.
    pub(super) clearing: HashMap<ThreadId, R>,
    /// The accepted tasks, and the ended ones by their status. The other counts are 0 here.
    pub(super) counts: TaskStats,
    /// Of the ended tasks, those that had begun.
    pub(super) over_after_begin: u64,
}

/// An entry of the table: a task's record, and the data for its removal.
#[derive(Debug)]
pub(super) struct Entry<R> {
    pub(super) record: R,
    retention: Retention,
    has_handle: bool,
    ended: Option<Instant>,
    /// The timer that removes the record.
    pub(super) timer: Option<TimerKey>,
}

/// The fate of a record after its task has ended or its handle was dropped.
#[must_use]
#[derive(Debug, PartialEq)]
pub(super) enum Settled<R> {
    /// The task has a handle, which can take the result.
    HasHandle,
    /// The record stays until it is removed, or until its task has ended.
    Stays,
    /// The record must be removed at this moment.
    Until(Instant),
    /// The record was removed.
    Gone(R),
}

/// The number of a task's entry.
fn number(id: TaskId) -> u64 {
    id.0.wrapping_sub(1)
}

impl<R: Clone> Table<R> {
    pub(super) fn new() -> Table<R> {
        Table {
            is_stopped: false,
            entries: NumberedList::new(),
            newest: HashMap::new(),
            inside: BTreeMap::new(),
            open_stops: 0,
            clearing: HashMap::new(),
            counts: TaskStats::default(),
            over_after_begin: 0,
        }
    }

    /// The number of the next task.
    pub(super) fn next_id(&self) -> TaskId {
        TaskId(self.entries.next_number() + 1)
    }

    /// Accepts a task. The caller must check first that the scheduler is not stopped.
    pub(super) fn insert(&mut self, record: R, retention: Retention) {
        self.counts.submitted += 1;
        self.entries.push(Entry { record, retention, has_handle: true, ended: None, timer: None });
    }

    /// Removes a task that could not be given to the pool.
    pub(super) fn take_back(&mut self, id: TaskId) -> Option<Entry<R>> {
        self.counts.submitted -= 1;
        self.entries.remove(number(id))
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&R> {
        self.entries.get(number(id)).map(|entry| &entry.record)
    }

    /// The number of records.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &R> {
        self.entries.iter().map(|entry| &entry.record)
    }

    /// Accepts no more tasks. Returns the remaining ones, which the caller ends.
    pub(super) fn begin_stop(&mut self) -> Vec<R> {
        self.is_stopped = true;
        self.open_stops += 1;
        self.entries.iter().filter(|entry| entry.ended.is_none()).map(|entry| entry.record.clone()).collect()
    }

    /// Notes that a stop has done all its work. Returns the last task.
    pub(super) fn end_stop(&mut self, thread: Option<ThreadId>) -> Option<R> {
        self.open_stops -= 1;
        thread.and_then(|thread| self.clearing.remove(&thread))
    }

    /// Notes that a task has ended. If it had begun and did not end by its closure's return, the closure still runs
    /// on this thread.
    pub(super) fn end(&mut self, id: TaskId, status: Status, now: Instant, had_begun: Option<ThreadId>) -> Settled<R> {
        match status {
            Status::Cancelled => self.counts.cancelled += 1,
            Status::TimedOut => self.counts.timed_out += 1,
            Status::Stopped => self.counts.stopped += 1,
            _ => self.counts.completed += 1,
        }
        self.over_after_begin += u64::from(had_begun.is_some());
        let Some(entry) = self.entries.get_mut(number(id)) else { return Settled::Stays };
        entry.ended = Some(now);
        if let Some(thread) = had_begun.filter(|_| status != Status::Completed) {
            self.inside.insert(id, (entry.record.clone(), thread));
        }
        if entry.has_handle { Settled::HasHandle } else { self.retire(id, || now) }
    }

    /// Notes that the handle was dropped.
    pub(super) fn handle_dropped(&mut self, id: TaskId, clock: &Clock) -> Settled<R> {
        let Some(entry) = self.entries.get_mut(number(id)) else { return Settled::Stays };
        entry.has_handle = false;
        if entry.ended.is_some() { self.retire(id, || clock.now()) } else { Settled::Stays }
    }

    /// Decides whether the record of an ended task without a handle stays. It reads the time only if it must: that
    /// costs more than the rest.
    fn retire(&mut self, id: TaskId, now: impl FnOnce() -> Instant) -> Settled<R> {
        let Some(entry) = self.entries.get(number(id)) else { return Settled::Stays };
        let gone = match entry.retention {
            Retention::UntilRemoved => return Settled::Stays,
            Retention::For(time) => match entry.ended.and_then(|ended| ended.checked_add(time)) {
                Some(until) if until <= now() => Some(id),
                until => return until.map_or(Settled::Stays, Settled::Until),
            },
            Retention::Newest(newest @ 1..) => {
                let kept = self.newest.entry(newest).or_default();
                kept.push_back(id);
                if kept.len() > newest { kept.pop_front() } else { None }
            }
            Retention::WithHandle | Retention::Newest(0) => Some(id),
        };
        let removed = gone.and_then(|id| self.entries.remove(number(id)));
        removed.map_or(Settled::Stays, |entry| Settled::Gone(entry.record))
    }

    /// Notes the timer that will remove a record. Returns whether the record is still there.
    pub(super) fn remove_by(&mut self, id: TaskId, timer: TimerKey) -> bool {
        self.entries.get_mut(number(id)).map(|entry| entry.timer = Some(timer)).is_some()
    }

    /// Removes the record of an ended task.
    pub(super) fn remove(&mut self, id: TaskId) -> Result<Entry<R>, RemoveError> {
        if self.entries.get(number(id)).is_some_and(|entry| entry.ended.is_none()) {
            return Err(RemoveError::NotFinished(id));
        }
        let entry = self.entries.remove(number(id)).ok_or(RemoveError::Unknown(id))?;
        if let Retention::Newest(newest) = entry.retention
            && let Some(others) = self.newest.get_mut(&newest)
        {
            others.retain(|other| *other != id);
            if others.is_empty() {
                self.newest.remove(&newest);
            }
        }
        Ok(entry)
    }

    /// Whether no stop is open and all closures of ended tasks have returned.
    pub(super) fn has_settled(&self) -> bool {
        self.inside.is_empty() && self.open_stops == 0
    }

    /// Whether the scheduler has ended.
    ///
    /// Then it accepts no more tasks, all tasks have ended, all closures have returned, and no stop is open.
    pub(super) fn has_ended(&self) -> bool {
        self.is_stopped && self.counts.submitted == self.counts.over() && self.has_settled()
    }

    /// Whether this thread is in an ended task's closure, or runs a stop's user code.
    pub(super) fn has_inside(&self, thread: ThreadId) -> bool {
        self.inside.values().any(|(_, other)| *other == thread) || self.clearing.contains_key(&thread)
    }

    /// The tasks of the closures that have not returned, except for those on this thread.
    pub(super) fn inside(&self, but: ThreadId) -> impl Iterator<Item = &R> {
        self.inside.values().filter(move |(_, thread)| *thread != but).map(|(record, _)| record)
    }

    /// The tasks whose user code is run by stops on threads other than this one.
    pub(super) fn cleared(&self, but: ThreadId) -> impl Iterator<Item = &R> {
        self.clearing.iter().filter(move |(thread, _)| **thread != but).map(|(_, record)| record)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::wait;

    const SECOND: Duration = Duration::from_secs(1);

    struct Bench {
        table: Table<u64>,
        manual: ManualClock,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { table: Table::new(), manual: ManualClock::new() }
        }

        fn insert(&mut self, id: u64, keep: Retention) {
            assert_eq!(self.table.next_id(), TaskId(id));
            self.table.insert(id, keep);
        }

        fn over(&mut self, id: u64) -> Settled<u64> {
            self.table.end(TaskId(id), Status::Completed, self.manual.now(), None)
        }

        fn drop_handle(&mut self, id: u64) -> Settled<u64> {
            self.table.handle_dropped(TaskId(id), &self.manual.clock())
        }

        fn there(&self) -> Vec<u64> {
            self.table.records().copied().collect()
        }
    }

    #[test]
    fn a_record_goes_with_the_second_of_end_and_handle() {
        let mut bench = Bench::new();
        (1..=2).for_each(|id| bench.insert(id, Retention::WithHandle));
        assert_eq!((bench.over(1), bench.drop_handle(1)), (Settled::HasHandle, Settled::Gone(1)));
        assert_eq!((bench.drop_handle(2), bench.over(2)), (Settled::Stays, Settled::Gone(2)));
        assert!(bench.there().is_empty());
    }

    #[test]
    fn a_kept_record_stays_until_it_is_removed() {
        let mut bench = Bench::new();
        bench.insert(1, Retention::UntilRemoved);
        assert_eq!(bench.table.remove(TaskId(1)).unwrap_err(), RemoveError::NotFinished(TaskId(1)));
        assert_eq!((bench.drop_handle(1), bench.over(1)), (Settled::Stays, Settled::Stays));
        assert_eq!(bench.there(), [1]);
        assert_eq!(bench.table.remove(TaskId(1)).unwrap().record, 1);
        assert_eq!(bench.table.remove(TaskId(1)).unwrap_err(), RemoveError::Unknown(TaskId(1)));
    }

    #[test]
    fn a_record_that_is_kept_for_a_time_stays_so_long_after_its_end() {
        let mut bench = Bench::new();
        for (id, time) in [(1, 2 * SECOND), (2, 2 * SECOND), (3, Duration::MAX), (4, Duration::ZERO)] {
            bench.insert(id, Retention::For(time));
            assert_eq!(bench.over(id), Settled::HasHandle);
        }
        let end = bench.manual.now();
        bench.manual.advance(SECOND);
        assert_eq!(bench.drop_handle(1), Settled::Until(end + 2 * SECOND));
        bench.manual.advance(SECOND);
        assert_eq!(bench.drop_handle(2), Settled::Gone(2), "its time was over before its handle was dropped");
        assert_eq!(bench.drop_handle(3), Settled::Stays, "for ever");
        assert_eq!(bench.drop_handle(4), Settled::Gone(4));
        assert_eq!(bench.there(), [1, 3]);
    }

    #[test]
    fn each_rule_of_the_newest_counts_its_own_records() {
        let mut bench = Bench::new();
        (1..=3).for_each(|id| bench.insert(id, Retention::Newest(2)));
        (4..=5).for_each(|id| bench.insert(id, Retention::Newest(1)));
        bench.insert(6, Retention::Newest(0));
        (1..=6).for_each(|id| drop(bench.drop_handle(id)));
        // The tasks that end last are the newest, whenever they were submitted.
        let gone = [3, 2, 4, 1, 6, 5].map(|id| bench.over(id));
        assert_eq!(gone[..3], [Settled::Stays, Settled::Stays, Settled::Stays]);
        assert_eq!(gone[3..], [Settled::Gone(3), Settled::Gone(6), Settled::Gone(4)]);
        assert_eq!(bench.there(), [1, 2, 5]);
        bench.table.remove(TaskId(2)).unwrap();
        bench.insert(7, Retention::Newest(2));
        assert_eq!((bench.over(7), bench.drop_handle(7)), (Settled::HasHandle, Settled::Stays));
        assert_eq!(bench.there(), [1, 5, 7]);
        [1, 5, 7].iter().for_each(|id| assert_eq!(bench.table.remove(TaskId(*id)).unwrap().record, *id));
        assert!(bench.table.newest.is_empty(), "an empty rule leaves nothing behind");
    }

    #[test]
    fn closures_that_have_not_returned_are_known_by_their_thread() {
        let mut bench = Bench::new();
        let here = std::thread::current().id();
        let there = wait(std::thread::spawn(|| std::thread::current().id())).unwrap();
        for (id, status, thread) in [
            (1, Status::Cancelled, Some(here)),
            (2, Status::TimedOut, Some(there)),
            (3, Status::Stopped, None),
            (4, Status::Completed, Some(here)),
        ] {
            bench.insert(id, Retention::WithHandle);
            let _ = bench.table.end(TaskId(id), status, bench.manual.now(), thread);
        }
        let others = |table: &Table<u64>, but| table.inside(but).copied().collect::<Vec<_>>();
        assert_eq!((others(&bench.table, here), others(&bench.table, there)), (vec![2], vec![1]));
        let elsewhere = wait(std::thread::spawn(|| std::thread::current().id())).unwrap();
        assert_eq!(others(&bench.table, elsewhere), [1, 2]);
        assert!(bench.table.has_inside(here) && !bench.table.has_inside(elsewhere));
        assert_eq!(bench.table.inside.remove(&TaskId(2)), Some((2, there)));
        assert_eq!(bench.table.over_after_begin, 3);
        assert_eq!(bench.table.counts.over(), 4);
    }

    #[test]
    fn it_has_ended_when_all_have_returned_and_no_stop_is_open() {
        let mut bench = Bench::new();
        assert!(!bench.table.has_ended());
        (1..=2).for_each(|id| bench.insert(id, Retention::WithHandle));
        let here = std::thread::current().id();
        assert_eq!((bench.table.begin_stop(), bench.table.begin_stop()), (vec![1, 2], vec![1, 2]));
        assert_eq!(bench.table.clearing.insert(here, 2), None);
        assert!(bench.table.has_inside(here) && bench.table.cleared(here).next().is_none());
        assert!(bench.table.begin_stop().len() == 2 && bench.table.end_stop(None).is_none());
        assert!(bench.table.has_inside(here), "a stop inside of another one leaves that open");
        assert_eq!((bench.table.end_stop(Some(here)), bench.table.has_inside(here)), (Some(2), false));
        let _ = bench.table.end(TaskId(1), Status::Stopped, bench.manual.now(), Some(here));
        assert!(bench.table.has_inside(here));
        bench.table.inside.remove(&TaskId(1));
        assert!(!bench.table.has_ended() && !bench.table.has_inside(here), "the other one is not over");
        let _ = bench.table.end(TaskId(2), Status::Stopped, bench.manual.now(), Some(here));
        assert!(!bench.table.has_settled(), "its closure has not returned");
        bench.table.inside.remove(&TaskId(2));
        assert!(!bench.table.has_ended(), "a stop is open");
        assert_eq!(bench.table.end_stop(None), None);
        assert!(bench.table.has_ended());
    }

    #[test]
    fn a_stop_hands_out_the_tasks_that_are_not_over() {
        let mut bench = Bench::new();
        (1..=3).for_each(|id| bench.insert(id, Retention::WithHandle));
        let _ = bench.over(2);
        assert!(!bench.table.is_stopped);
        assert_eq!(bench.table.begin_stop(), [1, 3]);
        assert!(bench.table.is_stopped);
        assert_eq!((bench.table.counts.submitted, bench.table.counts.over()), (3, 1));
    }
}
