//! Does the work of an operator in a store that is open.

use std::time::Duration;

use serde_json::Value;

use super::commit_counts::Commits;
use super::core::StoreCore;
use super::ends::not_told;
use super::error::StoreError;
use super::journal::{Damage, JournalError};
use super::mail_counts::{self, MailCounts};
use super::operating::Desk;
use super::query::{Query, Request, Which};
use super::repair::{Action, NotRepaired};
use super::rows::{StoredReason, StoredRequest};
use super::tail::Fate;
use crate::clock::Clock;
use crate::inside::is_step;
use crate::latch::Latch;
use crate::pid::Pid;
use crate::primitives::{Arc, Ordering};
use crate::process::ParseCommandKeyError;
use crate::runtime::StoreStats;
use crate::sched::cell::Missing;

/// How long an order may take, by the clock of the runtime. It waits for the disk, and for the process.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many orders are given at once to the processes that a query selects.
const AT_ONCE: usize = 1_000;

/// Carries out the requests of operators in an open store.
#[derive(Clone)]
pub(super) struct Operator {
    pub(super) core: Arc<StoreCore>,
    pub(super) clock: Clock,
}

impl Operator {
    /// The counts that are in memory, and the number of parked processes.
    pub(super) fn stats(&self, parked: Option<u64>) -> StoreStats {
        let core = &self.core;
        // The earlier one first: records are applied when they are on disk, and on disk when they were appended.
        let applied = core.applied.load(Ordering::Acquire);
        let stored = core.tail.released().0;
        let (_, appended) = core.tail.end();
        let Commits { commits, bytes, micros, rewinds } = core.commits.get();
        StoreStats {
            in_memory: core.keeper.residents(),
            loaded: core.keeper.stays(),
            parked,
            stored,
            unstored: appended.0.saturating_sub(stored),
            unstored_bytes: core.tail.unsynced() as u64,
            commits,
            commit_bytes: bytes,
            commit_time: Duration::from_micros(micros),
            rewinds,
            unapplied: stored.saturating_sub(applied),
            unapplied_bytes: core.unapplied.load(Ordering::Relaxed),
        }
    }

    /// Reads the rows that are on disk now.
    pub(super) fn read<R>(&self, read: impl FnOnce(&mut Desk<'_>) -> Result<R, StoreError>) -> Result<R, StoreError> {
        if is_step() {
            return Err(StoreError::InsideStep);
        }
        self.core.apply()?;
        // One of its own, so that no load waits for it.
        let (life, reader) = self.core.with_tables(|tables, _| Ok((self.core.tail.life(), tables.reader()?)))?;
        let read = read(&mut Desk { reader, viewer: self.core.viewer() });
        if let Err(StoreError::Journal(error)) = &read {
            let _ = self.core.tables_failed(life, error);
        }
        read
    }

    pub(super) fn serial_of(&self, pid: Pid) -> Result<u64, StoreError> {
        self.core.number_of(pid).ok_or(StoreError::NotRepaired(NotRepaired::NoSuchProcess))
    }

    fn wait(&self, done: &Latch<Result<(), NotRepaired>>) -> Result<(), StoreError> {
        done.join(&self.clock, PATIENCE)?.map_err(StoreError::NotRepaired)
    }

    /// Refuses an order that the process cannot carry out, before the process is disturbed.
    fn check_order(&self, serial: u64, order: &Action) -> Result<(), StoreError> {
        let shown = match self.read(|desk| desk.show(serial)) {
            // It can end, and nothing else.
            Err(StoreError::Journal(JournalError::Damaged(_))) if matches!(order, Action::Terminate) => return Ok(()),
            // It may have been begun just now.
            Err(StoreError::NoSuchId(_)) => {
                self.caught_up()?;
                self.read(|desk| desk.show(serial))?
            }
            shown => shown?,
        };
        let is_over = shown.listed.status == super::journal::Status::Ended;
        match order {
            _ if is_over => Err(StoreError::NotRepaired(NotRepaired::NoSuchProcess)),
            Action::Retry | Action::Skip | Action::Replace { .. } if shown.listed.error.is_none() => {
                Err(StoreError::NotRepaired(NotRepaired::NotParked))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the fate of each record is known that was appended before.
    fn caught_up(&self) -> Result<(), StoreError> {
        let (life, end) = self.core.tail.end();
        let fate = Latch::new();
        let told = fate.clone();
        self.core.tail.when_settled(life, end, move |fate| _ = told.set(fate));
        fate.join(&self.clock, PATIENCE)?;
        Ok(())
    }

    pub(super) fn order(&self, serial: u64, order: Action) -> Result<(), StoreError> {
        self.check_order(serial, &order)?;
        self.wait(&self.core.repair(serial, order))
    }

    /// Gives an order to all that a query selects. Those that cannot carry it out are left out of the count.
    pub(super) fn order_all(&self, query: &Query, order: &Action) -> Result<u64, StoreError> {
        let (mut query, mut count) = (query.clone(), 0);
        let mut left = query.limit.unwrap_or(usize::MAX);
        while left > 0 {
            let page = self.read(|desk| desk.list(&query.clone().limit(left.min(AT_ONCE))))?;
            let Some(last) = page.last() else { break };
            left -= page.len();
            query = query.after(last.pid);
            // Others would leave memory for nothing.
            let parked = page.iter().filter(|listed| listed.error.is_some());
            let serials = parked.filter_map(|listed| self.core.number_of(listed.pid));
            let begun: Vec<_> = serials.map(|serial| self.core.repair(serial, order.clone())).collect();
            for done in begun {
                match self.wait(&done) {
                    Ok(()) => count += 1,
                    Err(StoreError::NotRepaired(NotRepaired::Lost | NotRepaired::Closed)) => {
                        return self.wait(&done).map(|()| count);
                    }
                    Err(StoreError::NotRepaired(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(count)
    }

    fn give(&self, which: &Which, order: Action) -> Result<Value, StoreError> {
        Ok(match which {
            Which::One(process) => {
                let serial = self.read(|desk| desk.find(process))?;
                self.order(serial, order)?;
                1.into()
            }
            Which::All(query) => self.order_all(query, &order)?.into(),
        })
    }

    pub(super) fn replace(&self, serial: u64, json: &str) -> Result<(), StoreError> {
        let shown = self.read(|desk| desk.show(serial))?;
        let kind = self.core.kinds.get(&*shown.listed.kind);
        let kind =
            kind.ok_or_else(|| StoreError::refused(format_args!("the kind {:?} is not known", shown.listed.kind)))?;
        let state = self.core.encode_state(kind, json).map_err(StoreError::NotRepaired)?;
        self.order(serial, Action::Replace { state, of: Some((kind.version, kind.format)) })
    }

    fn cancel(&self, pid: Pid) -> Result<(), StoreError> {
        let stop = StoredRequest::Stop { reason: StoredReason::Cancelled, deadline: None };
        self.request(self.serial_of(pid)?, &stop)
    }

    /// Stores a request to a process. Returns when it is on disk.
    fn request(&self, serial: u64, request: &StoredRequest) -> Result<(), StoreError> {
        // Of requests to stop, only the refusals are asked for.
        let order = if *request == StoredRequest::End { Action::Terminate } else { Action::Resend(0) };
        self.check_order(serial, &order)?;
        if self.core.core().is_none_or(|core| core.road.door.is_closed()) {
            return Err(NotRepaired::Closed.into());
        }
        let fate = Latch::new();
        let give = || {
            let told = fate.clone();
            self.core.request(serial, request, Some(Box::new(move |fate| _ = told.set(fate))))
        };
        let mut given = give();
        if matches!(given, Err(Missing::Ended)) {
            // Its end may not be on disk yet, and may be lost.
            self.caught_up()?;
            given = give();
        }
        match given {
            Ok(()) => self.stored(&fate),
            Err(Missing::Ended) => Err(NotRepaired::NoSuchProcess.into()),
            Err(Missing::NotNow) if !self.core.tail.is_closing() => Err(NotRepaired::Lost.into()),
            Err(Missing::Never | Missing::NotNow | Missing::NodeDown) => Err(NotRepaired::Closed.into()),
        }
    }

    fn stored(&self, fate: &Latch<Fate>) -> Result<(), StoreError> {
        match fate.join(&self.clock, PATIENCE)? {
            Fate::Released => Ok(()),
            Fate::Lost => Err(StoreError::Lost),
            Fate::Unknown => Err(StoreError::Unknown),
        }
    }

    /// Ends a process. Returns when its end is on disk.
    pub(super) fn terminate(&self, pid: Pid) -> Result<(), StoreError> {
        let serial = self.serial_of(pid)?;
        let end = self.core.end_of_any(serial)?;
        if let Err(error) = self.request(serial, &StoredRequest::End) {
            // The latch of a store that closes is set, and does not count.
            if !end.is_set() {
                self.core.waits_no_longer(serial);
            }
            return Err(error);
        }
        let ended = end.join(&self.clock, PATIENCE);
        if ended.is_err() {
            self.core.waits_no_longer(serial);
        }
        ended?.map_err(not_told)?;
        Ok(())
    }

    /// Calls `order` with one process, or with all that a query selects. Returns the number of those that took it.
    fn each(&self, which: &Which, order: impl Fn(Pid) -> Result<(), StoreError>) -> Result<u64, StoreError> {
        let query = match which {
            Which::One(process) => {
                let serial = self.read(|desk| desk.find(process))?;
                let pid = self.core.ticket(serial).ok_or(NotRepaired::NoSuchProcess)?;
                return order(pid).map(|()| 1);
            }
            Which::All(query) => query.clone(),
        };
        let limit = query.limit.unwrap_or(usize::MAX);
        let selected = self.read(|desk| desk.list(&query.limit(limit)))?;
        let mut count = 0;
        for listed in selected {
            match order(listed.pid) {
                Ok(()) => count += 1,
                Err(StoreError::NotRepaired(_) | StoreError::Journal(JournalError::Damaged(_))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    pub(super) fn check(&self) -> Result<Vec<Damage>, StoreError> {
        self.core.apply()?;
        Ok(self.core.with_tables(|tables, reader| mail_counts::check(tables, reader))?)
    }

    pub(super) fn mail_counts(&self) -> Result<MailCounts, StoreError> {
        if is_step() {
            return Err(StoreError::InsideStep);
        }
        self.core.apply()?;
        let counts = self.core.with_tables(mail_counts::count_mail)?;
        counts.map_err(|damage| JournalError::Damaged(damage).into())
    }

    pub(super) fn backup(&self, to: &std::path::Path) -> Result<(), StoreError> {
        self.core.apply()?;
        let copy = self.core.with_tables(|tables, _| tables.copy())?;
        // Without the lock: it may take long.
        Ok(copy(to)?)
    }

    /// Carries out a request. The answer is as the request says.
    pub(super) fn carry_out(&self, request: &Request) -> Result<Value, StoreError> {
        if is_step() {
            return Err(StoreError::InsideStep);
        }
        Ok(match request {
            Request::Retry(which) => self.give(which, Action::Retry)?,
            Request::Skip(which) => self.give(which, Action::Skip)?,
            Request::Terminate(which) => self.each(which, |pid| self.terminate(pid))?.into(),
            Request::Cancel(which) => self.each(which, |pid| self.cancel(pid))?.into(),
            Request::Replace { process, state } => {
                let serial = self.read(|desk| desk.find(process))?;
                self.replace(serial, state)?;
                1.into()
            }
            Request::Resend { process, number } => {
                let serial = self.read(|desk| desk.find(process))?;
                self.order(serial, Action::Resend(*number))?;
                1.into()
            }
            Request::Answer { key, json, is_error } => {
                let key = key.parse().map_err(|error: ParseCommandKeyError| StoreError::refused(error))?;
                let fate = Latch::new();
                let told = fate.clone();
                self.core.answer_with_json(key, (json, *is_error), Box::new(move |fate| _ = told.set(fate)))?;
                self.stored(&fate)?;
                1.into()
            }
            Request::Mail => serde_json::to_value(self.mail_counts()?).map_err(StoreError::refused)?,
            Request::Check => self.check()?.iter().map(Damage::to_string).collect(),
            Request::Backup(to) => {
                self.backup(to)?;
                Value::Null
            }
            reads => self.read(|desk| desk.answer(reads))?,
        })
    }
}
