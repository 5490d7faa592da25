//! Reads the processes of a store for an operator.

use std::collections::HashMap;

use serde_json::Value;

use super::coding::{Format, Run};
use super::core::{Found, Kind, ShowFn};
use super::error::StoreError;
use super::journal::{Damage, JournalError, ProcessRow, Reader, Status};
use super::query::{Listed, Query, Request, Shown, ShownChild, ShownCommand, ShownDead, ShownMail, ShownTimer};
use super::rows::{self, FailedEvent, StoredDead, StoredExit, StoredHead, StoredMail};
use super::tail::Life;
use crate::outcome::contain;
use crate::pid::Pid;
use crate::process::CommandKey;

/// The number of processes that a query finds in one read of the tables. So a query over a million processes never has
/// all of their numbers in memory.
const PAGE: usize = 1_000;

/// The number of processes that a list returns, if its query has no limit. It bounds the memory of the answer, which is
/// one JSON text for `procession-store`.
const LIMIT: usize = 1_000;

/// The kinds that the program knows. They can show states that are not JSON.
pub(super) type Kinds = HashMap<&'static str, Kind>;

/// Reads the tables of a store.
pub(super) struct Desk<'a> {
    pub(super) reader: Box<dyn Reader>,
    pub(super) run: Run,
    /// The random number of the store.
    pub(super) id: u64,
    pub(super) kinds: &'a Kinds,
}

impl Desk<'_> {
    fn pid(&self, serial: u64) -> Result<Pid, StoreError> {
        self.run.ticket(serial).ok_or_else(|| StoreError::NoSuchId(serial.to_string()))
    }

    /// The serial number of a process, by its PID or its id. A PID may be without its brackets.
    pub(super) fn find(&mut self, pid_or_id: &str) -> Result<u64, StoreError> {
        let bare = format!("<{pid_or_id}>");
        let pid = pid_or_id.parse().or_else(|_| bare.parse::<Pid>()).ok();
        if let Some(serial) = pid.and_then(|pid| self.run.number_of(pid)) {
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
                    Ok(Some(row)) => self.listed(serial, &row)?.0,
                    // It was removed meanwhile.
                    Ok(None) => continue,
                    Err(JournalError::Damaged(damage)) => self.damaged(serial, &damage)?,
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

    fn listed(&self, serial: u64, row: &ProcessRow) -> Result<(Listed, StoredHead), StoreError> {
        let pid = self.pid(serial)?;
        let head: Result<StoredHead, _> = postcard::from_bytes(&row.head);
        let head =
            head.map_err(|error| StoreError::refused(format_args!("the row of {pid} cannot be read: {error}")))?;
        let parked = head.parked.as_ref();
        let listed = Listed {
            pid,
            id: head.id.clone(),
            kind: row.kind.clone(),
            version: row.version,
            parent: head.parent.and_then(|parent| self.run.ticket(parent.serial)),
            status: row.status,
            begun: head.begun,
            error: parked.map(|parked| parked.error.clone()),
            attempts: parked.map_or(0, |parked| parked.attempts),
        };
        Ok((listed, head))
    }

    /// A process whose row cannot be read. Nothing of it runs, and its mail is kept.
    fn damaged(&self, serial: u64, damage: &Damage) -> Result<Listed, StoreError> {
        Ok(Listed {
            pid: self.pid(serial)?,
            id: None,
            kind: String::new(),
            version: 0,
            parent: None,
            status: Status::Parked,
            begun: 0,
            error: Some(damage.to_string()),
            attempts: 0,
        })
    }

    pub(super) fn show(&mut self, serial: u64) -> Result<Shown, StoreError> {
        let pid = self.pid(serial)?;
        let stored = self.reader.load(serial)?;
        let found = Found::of(serial, Life::FIRST, stored)?.ok_or_else(|| StoreError::NoSuchId(pid.to_string()))?;
        let (listed, head) = self.listed(serial, &found.row)?;
        let kind = self.kinds.get(&*found.row.kind);
        let state = |bytes: &[u8]| self.value(head.format, bytes, kind.map(|kind| kind.show.state));
        let output = match &head.exit {
            Some(StoredExit::Done(output)) => Some(self.value(head.format, output, kind.map(|kind| kind.show.output))),
            _ => None,
        };
        let failing = head.parked.as_ref().and_then(|parked| parked.event);
        let mail = found.mail.iter().map(|(number, mail)| ShownMail {
            number: *number,
            from: mail.from.and_then(|from| self.run.read(from)),
            message: self.message(mail),
            fails: failing == Some(FailedEvent::Mail(*number)),
        });
        let commands = found.commands.iter().map(|(tag, stored)| ShownCommand {
            key: CommandKey::new(self.id, serial, *tag).to_string(),
            tag: *tag,
            attempt: stored.attempt,
            phase: stored.phase.name(),
            name: stored.name.clone(),
            command: self.value(Format::Json, &stored.command, None),
        });
        let children = found.ties.children.iter();
        let children =
            children.filter_map(|(tag, child)| Some(ShownChild { tag: *tag, pid: self.run.ticket(child.serial)? }));
        Ok(Shown {
            state: if head.exit.is_some() { Value::Null } else { state(&found.row.state) },
            output,
            mail: mail.collect(),
            timers: found.timers.iter().map(|(tag, due)| ShownTimer { tag: *tag, due: *due }).collect(),
            commands: commands.collect(),
            children: children.collect(),
            dead: found.dead.iter().map(|(number, dead)| self.dead(pid, *number, dead)).collect(),
            trail: head.trail.steps(),
            listed,
        })
    }

    /// Dead letters in the order of their receivers, after this one, at most so many.
    pub(super) fn dead_letters(&mut self, after: (u64, u64), limit: usize) -> Result<Vec<ShownDead>, StoreError> {
        let entries = self.reader.of_class(rows::DEAD, after, limit)?;
        let decoded = entries.into_iter().filter_map(|(serial, number, row)| {
            let dead: StoredDead = postcard::from_bytes(&row.body).ok()?;
            Some(self.dead(self.run.ticket(serial)?, number, &dead))
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

    fn dead(&self, to: Pid, number: u64, dead: &StoredDead) -> ShownDead {
        let from = dead.mail.from.and_then(|from| self.run.read(from));
        ShownDead { to, number, from, message: self.message(&dead.mail), why: dead.why, since: dead.since }
    }

    fn message(&self, mail: &StoredMail) -> Value {
        let kind = mail.kinds.iter().find_map(|kind| self.kinds.get(&**kind));
        self.value(mail.format, &mail.message, kind.map(|kind| kind.show.message))
    }

    /// A stored value as JSON. Its type is asked only if it is not JSON.
    fn value(&self, format: Format, bytes: &[u8], show: Option<ShowFn>) -> Value {
        let shown = match (format, show) {
            (Format::Json, _) => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
            (_, Some(show)) => {
                let (shown, _) = self.run.code(|| contain(|| show(format, bytes)));
                shown.map_err(|panic| panic.to_string()).and_then(|shown| shown.map_err(|error| error.to_string()))
            }
            (format, None) => Err(format!("this program does not know the type, and the format is {format:?}")),
        };
        shown.unwrap_or_else(|why| Value::String(format!("({} bytes cannot be shown: {why})", bytes.len())))
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
