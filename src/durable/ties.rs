//! The entries of a process that tie it to others: its children, its names, its groups, its
//! subscriptions, its monitors, and its links to ordinary processes.

use std::collections::BTreeMap;

use super::journal::{Change, EntryRow};
use super::rows::{self, CHILDREN, GROUPS, NAMES, OUTSIDE, SUBSCRIPTIONS, StoredChild, TRAPS, WATCHES};
use crate::outcome::BoxError;
use crate::process::Subscription;

/// The ties of a process, as its last record has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ties {
    /// The children that answer commands, by the tags of these.
    pub(super) children: BTreeMap<u64, StoredChild>,
    /// The names and the groups of the process, by the classes and the numbers of their entries.
    pub(super) names: BTreeMap<(u8, u64), String>,
    /// The processes that it monitors, as `Run::note` notes them, by the numbers of the monitors.
    pub(super) watches: BTreeMap<u64, (u64, u64)>,
    /// The groups to which it subscribes, by the numbers of the subscriptions.
    pub(super) subscriptions: BTreeMap<u64, String>,
    /// The numbers of its links to ordinary processes, by these as `Run::note` notes them.
    pub(super) outside: BTreeMap<(u64, u64), u64>,
    /// Whether the ends of linked processes are events to it.
    pub(super) traps: bool,
}

impl Ties {
    /// Adds the entry of a tie. Other entries are left alone.
    pub(super) fn add(&mut self, class: u8, number: u64, body: &[u8]) {
        match class {
            CHILDREN => self.children.extend(postcard::from_bytes(body).ok().map(|child| (number, child))),
            NAMES | GROUPS => _ = self.names.insert((class, number), String::from_utf8_lossy(body).into_owned()),
            WATCHES => self.watches.extend(postcard::from_bytes(body).ok().map(|noted| (number, noted))),
            OUTSIDE => self.outside.extend(postcard::from_bytes(body).ok().map(|noted: (u64, u64)| (noted, number))),
            SUBSCRIPTIONS => _ = self.subscriptions.insert(number, String::from_utf8_lossy(body).into_owned()),
            TRAPS => self.traps = true,
            _ => {}
        }
    }

    /// The changes that lead from the names, subscriptions, monitors and links of `before` to those of this.
    pub(super) fn changes(&self, before: &Ties, serial: u64) -> Result<Vec<Change>, BoxError> {
        let gone = before.names.keys().filter(|key| !self.names.contains_key(key));
        let new = self.names.iter().filter(|(key, _)| !before.names.contains_key(key));
        let gone = gone.map(|(class, number)| rows::answered(serial, *class, *number));
        let mut changes: Vec<Change> = gone.chain(new.map(|(key, name)| rows::named(serial, *key, name))).collect();
        let gone = before.watches.keys().filter(|id| !self.watches.contains_key(id));
        changes.extend(gone.map(|id| rows::answered(serial, WATCHES, *id)));
        for (id, noted) in self.watches.iter().filter(|(id, _)| !before.watches.contains_key(id)) {
            changes.push(rows::watch(serial, *id, *noted)?);
        }
        let gone = before.subscriptions.keys().filter(|id| !self.subscriptions.contains_key(id));
        changes.extend(gone.map(|id| rows::answered(serial, SUBSCRIPTIONS, *id)));
        let new = self.subscriptions.iter().filter(|(id, _)| !before.subscriptions.contains_key(id));
        changes.extend(new.map(|(id, group)| subscription(serial, *id, group)));
        // A link that a step has made anew has another number.
        let gone = before.outside.iter().filter(|(noted, number)| self.outside.get(noted) != Some(number));
        changes.extend(gone.map(|(_, number)| rows::answered(serial, OUTSIDE, *number)));
        for (noted, number) in self.outside.iter().filter(|(noted, number)| before.outside.get(noted) != Some(number)) {
            changes.push(rows::outside(serial, *number, *noted)?);
        }
        changes.extend((self.traps != before.traps).then(|| rows::traps(serial, self.traps)));
        Ok(changes)
    }

    /// The subscriptions to groups.
    pub(super) fn subscriptions(&self) -> impl Iterator<Item = Subscription> {
        self.subscriptions.iter().map(|(id, group)| Subscription::new(*id, group.as_str().into()))
    }

    /// Whether the process has to stay in memory because of its ties. Only a process in memory gets changes of groups,
    /// and ends of the ordinary processes that it monitors.
    pub(super) fn needs_memory(&self) -> bool {
        !self.subscriptions.is_empty() || self.watches.values().any(|(run, _)| *run != 0)
    }

    /// Notes the subscriptions that a step begins and ends.
    pub(super) fn subscribe(&mut self, changes: &[(Subscription, bool)]) {
        for (one, begins) in changes {
            if *begins {
                self.subscriptions.insert(one.id(), one.group().to_owned());
            } else {
                self.subscriptions.remove(&one.id());
            }
        }
    }

    /// The key of this name, or of a membership in this group.
    pub(super) fn find(&self, class: u8, name: &str) -> Option<(u8, u64)> {
        self.names.iter().find(|((of, _), other)| *of == class && *other == name).map(|(key, _)| *key)
    }
}

/// A subscription to a group. Each start finds it, because only a process in memory is told of changes.
fn subscription(serial: u64, id: u64, group: &str) -> Change {
    let row = EntryRow { due: Some(0), body: group.as_bytes().to_vec() };
    Change::Entry { serial, class: SUBSCRIPTIONS, number: id, row: Some(row) }
}
