//! Reads the processes of a store for an operator.

use serde_json::Value;

use super::core::Found;
use super::error::StoreError;
use super::journal::{JournalError, Reader};
use super::query::{Listed, Query, Request, Shown, ShownDead};
use super::rows::{self, StoredDead};
use super::tail::Life;
use super::viewing::Viewer;
use crate::pid::Pid;

/// The number of processes that a query finds in one read of the tables. So a query over a million processes never has
/// all of their numbers in memory.
const PAGE: usize = 1_000;

/// The number of processes that a list returns, if its query has no limit. It bounds the memory of the answer, which is
/// one JSON text for `procession-store`.
const LIMIT: usize = 1_000;

/// Reads the tables of a store.
pub(super) struct Desk<'a> {
    pub(super) reader: Box<dyn Reader>,
    pub(super) viewer: Viewer<'a>,
}

impl Desk<'_> {
    /// The serial number of a process, by its PID or its id. A PID may be without its brackets.
    pub(super) fn find(&mut self, pid_or_id: &str) -> Result<u64, StoreError> {
        let bare = format!("<{pid_or_id}>");
        let pid = pid_or_id.parse().or_else(|_| bare.parse::<Pid>()).ok();
        if let Some(serial) = pid.and_then(|pid| self.viewer.run.number_of(pid)) {
            return Ok(serial);
        }
        let row = self.reader.name(rows::IDS, pid_or_id)?;
        row.map(|row| row.serial).ok_or_else(|| StoreError::NoSuchId(pid_or_id.into()))
    }

    /// Calls `see` with the processes that a query selects, in order. Stops at the limit of the query, or if there
    /// is none, at `limit`.
    pub(super) fn select(
        &mut self,
        query: &Query,
        limit: usize,
        mut see: impl FnMut(&mut Self, u64, Listed) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut left = query.limit.unwrap_or(limit);
        let mut after = match &query.after {
            Some(after) => self.find(after)?,
            None => 0,
        };
        while left > 0 {
            let page = self.reader.with_status(query.status, after, PAGE)?;
            let is_last = page.len() < PAGE;
            for serial in page {
                after = serial;
                let listed = match self.reader.process(serial) {
                    Ok(Some(row)) => self.viewer.listed(serial, &row)?.0,
                    // It was removed meanwhile.
                    Ok(None) => continue,
                    Err(JournalError::Damaged(damage)) => self.viewer.damaged(serial, &damage)?,
                    Err(error) => return Err(error.into()),
                };
                if query.selects(&listed) && left > 0 {
                    left -= 1;
                    see(self, serial, listed)?;
                }
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Everything that is stored of a process.
    pub(super) fn show(&mut self, serial: u64) -> Result<Shown, StoreError> {
        let stored = self.reader.load(serial)?;
        let found = Found::of(serial, Life::FIRST, stored)?;
        self.viewer.shown(found.ok_or(self.viewer.pid(serial)?.to_string()).map_err(StoreError::NoSuchId)?)
    }

    pub(super) fn list(&mut self, query: &Query) -> Result<Vec<Listed>, StoreError> {
        let mut found = Vec::new();
        self.select(query, LIMIT, |_, _, listed| {
            found.push(listed);
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn count(&mut self, query: &Query) -> Result<u64, StoreError> {
        let mut count = 0;
        self.select(query, usize::MAX, |_, _, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    /// Dead letters in the order of their receivers, after this one, at most so many.
    pub(super) fn dead_letters(&mut self, after: (u64, u64), limit: usize) -> Result<Vec<ShownDead>, StoreError> {
        let entries = self.reader.of_class(rows::DEAD, after, limit)?;
        let decoded = entries.into_iter().filter_map(|(serial, number, row)| {
            let dead: StoredDead = postcard::from_bytes(&row.body).ok()?;
            Some(self.viewer.dead(self.viewer.run.ticket(serial)?, number, &dead))
        });
        Ok(decoded.collect())
    }

    /// Answers a request that only reads.
    pub(super) fn answer(&mut self, request: &Request) -> Result<Value, StoreError> {
        Ok(match request {
            Request::List(query) => serde_json::to_value(self.list(query)?).map_err(StoreError::refused)?,
            Request::Count(query) => self.count(query)?.into(),
            Request::Show(process) => {
                let serial = self.find(process)?;
                serde_json::to_value(self.show(serial)?).map_err(StoreError::refused)?
            }
            Request::Dead { after, limit } => {
                let after = match after {
                    Some((process, number)) => (self.find(process)?, *number),
                    None => (0, 0),
                };
                serde_json::to_value(self.dead_letters(after, *limit)?).map_err(StoreError::refused)?
            }
            // The other requests change something.
            _ => Value::Null,
        })
    }
}

impl Query {
    fn selects(&self, listed: &Listed) -> bool {
        self.kind.as_ref().is_none_or(|kind| *kind == listed.kind)
            && self.id.as_ref().is_none_or(|id| listed.id.as_ref().is_some_and(|other| other.starts_with(&**id)))
            && self.parent.as_ref().is_none_or(|pid| listed.parent.is_some_and(|parent| parent.to_string() == *pid))
            && self.begun_before.is_none_or(|time| listed.begun < time)
            && self.error.as_ref().is_none_or(|text| listed.error.as_ref().is_some_and(|error| error.contains(&**text)))
    }
}
