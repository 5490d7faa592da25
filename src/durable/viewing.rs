//! Shows the rows of a store as operators see them.

use std::collections::HashMap;

use serde_json::Value;

use super::coding::{Format, Run};
use super::core::{Found, Kind, ShowFn, StoreCore};
use super::error::StoreError;
use super::journal::{Damage, ProcessRow, Status};
use super::query::{Listed, Shown, ShownChild, ShownCommand, ShownDead, ShownMail, ShownTimer};
use super::rows::{FailedEvent, StoredDead, StoredExit, StoredHead, StoredMail};
use crate::outcome::contain;
use crate::pid::Pid;
use crate::process::CommandKey;

/// The kinds that the program knows. They can show states that are not JSON.
pub(super) type Kinds = HashMap<&'static str, Kind>;

/// Shows the rows of a store.
#[derive(Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) run: Run,
    /// The random number of the store.
    pub(super) id: u64,
    pub(super) kinds: &'a Kinds,
}

impl StoreCore {
    pub(super) fn viewer(&self) -> Viewer<'_> {
        Viewer { run: self.run, id: self.id, kinds: &self.kinds }
    }
}

impl Viewer<'_> {
    pub(super) fn pid(&self, serial: u64) -> Result<Pid, StoreError> {
        self.run.ticket(serial).ok_or_else(|| StoreError::NoSuchId(serial.to_string()))
    }

    pub(super) fn listed(&self, serial: u64, row: &ProcessRow) -> Result<(Listed, StoredHead), StoreError> {
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
    pub(super) fn damaged(&self, serial: u64, damage: &Damage) -> Result<Listed, StoreError> {
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

    /// Everything about a process that was read.
    pub(super) fn shown(&self, found: Found) -> Result<Shown, StoreError> {
        let serial = found.serial;
        let (listed, head) = self.listed(serial, &found.row)?;
        let pid = listed.pid;
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

    pub(super) fn dead(&self, to: Pid, number: u64, dead: &StoredDead) -> ShownDead {
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
