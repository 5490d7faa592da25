//! The entries of all nodes, as one node sees them: a machine without threads, clock or network.
//!
//! `docs/cluster.md`, "Groups and shared names", has the protocol and says why nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::entries::{Digest, Entries, Entry, Role, TooMany};
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::router::rendezvous::{hash_of, pick};

/// The most bytes of entries in one part of a snapshot, as they are counted. A part is a small item of a connection.
const PART: usize = 16 << 10;

/// A report of a node to another one about its own entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Share {
    /// A part of all entries. No other share comes between the parts.
    Whole { entries: Vec<Entry>, is_last: bool },
    /// An entry was added or removed.
    Changed { entry: Entry, is_there: bool },
    /// The digest of all entries now.
    Digest(Digest),
    /// The digest differs from that of the entries that the sender has: it asks for all of them.
    Again,
}

impl Share {
    /// The entries in it.
    pub(crate) fn entries(&self) -> &[Entry] {
        match self {
            Share::Whole { entries, .. } => entries,
            Share::Changed { entry, .. } => std::slice::from_ref(entry),
            Share::Digest(_) | Share::Again => &[],
        }
    }
}

/// The nodes that are to get a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    All,
    /// The node with this incarnation.
    One(u64),
}

/// An entry was added to the table, or removed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) entry: Entry,
    pub(crate) is_there: bool,
}

/// The results of a call, each list in order.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) shares: Vec<(To, Share)>,
    pub(crate) changes: Vec<Change>,
    pub(crate) lost: Vec<Loss>,
}

/// A process of this node has lost a shared name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) name: String,
    pub(crate) pid: Pid,
    pub(crate) holder: Pid,
}

/// The entries of all nodes that are connected, and of this one.
#[derive(Debug)]
pub(crate) struct Table {
    /// The incarnation of this node.
    here: u64,
    own: Entries,
    /// The entries of this node, by process.
    of: BTreeMap<Pid, BTreeSet<Entry>>,
    /// By incarnation.
    others: BTreeMap<u64, Other>,
}

/// A node that is connected.
#[derive(Debug, Default)]
struct Other {
    entries: Entries,
    /// The parts of a snapshot that have come, until the last one comes.
    arriving: Option<Entries>,
    /// Whether it was asked for all its entries.
    is_asked: bool,
    /// Whether it has been sent an entry.
    has_entries: bool,
    /// Whether it was sent a digest since the last snapshot.
    may_ask: bool,
}

impl Other {
    fn share(&mut self, shares: &mut Vec<(To, Share)>, peer: u64, own: &Entries) {
        (self.may_ask, self.has_entries) = (false, true);
        let mut parts = vec![Vec::new()];
        let mut bytes = 0;
        for entry in own.iter() {
            bytes += entry.cost();
            if bytes > PART {
                bytes = entry.cost();
                parts.push(Vec::new());
            }
            parts.last_mut().into_iter().for_each(|part| part.push(entry.clone()));
        }
        let last = parts.len() - 1;
        let part = |(at, entries)| (To::One(peer), Share::Whole { entries, is_last: at == last });
        shares.extend(parts.into_iter().enumerate().map(part));
    }
}

impl Table {
    pub(crate) fn new(here: u64) -> Table {
        Table { here, own: Entries::default(), of: BTreeMap::new(), others: BTreeMap::new() }
    }

    /// Adds an entry of this node. Returns whether it is new.
    pub(crate) fn insert(&mut self, entry: Entry, effects: &mut Effects) -> Result<bool, TooMany> {
        let is_new = self.own.insert(&entry)?;
        if is_new {
            self.of.entry(entry.pid).or_default().insert(entry.clone());
            self.changed(Change { entry, is_there: true }, effects);
        }
        Ok(is_new)
    }

    /// Removes the entries of a process of this node that match. Returns whether there were any.
    pub(crate) fn remove(&mut self, pid: Pid, matches: impl Fn(&Entry) -> bool, effects: &mut Effects) -> bool {
        let of = self.of.get(&pid).into_iter().flatten();
        let removed: Vec<Entry> = of.filter(|entry| matches(entry)).cloned().collect();
        removed.iter().for_each(|entry| self.remove_own(entry, effects));
        !removed.is_empty()
    }

    /// Removes all entries of this node that match.
    pub(crate) fn remove_all(&mut self, matches: impl Fn(&Entry) -> bool, effects: &mut Effects) {
        let removed: Vec<Entry> = self.of.values().flatten().filter(|entry| matches(entry)).cloned().collect();
        removed.iter().for_each(|entry| self.remove_own(entry, effects));
    }

    fn remove_own(&mut self, entry: &Entry, effects: &mut Effects) {
        self.own.remove(entry);
        if let Some(of) = self.of.get_mut(&entry.pid) {
            of.remove(entry);
            if of.is_empty() {
                self.of.remove(&entry.pid);
            }
        }
        self.changed(Change { entry: entry.clone(), is_there: false }, effects);
    }

    /// An entry of this node has changed.
    fn changed(&mut self, change: Change, effects: &mut Effects) {
        let Change { entry, is_there } = change.clone();
        self.others.values_mut().for_each(|other| other.has_entries = true);
        effects.shares.push((To::All, Share::Changed { entry, is_there }));
        effects.changes.push(change);
    }

    /// Whether a process of this node has an entry.
    pub(crate) fn has(&self, pid: Pid) -> bool {
        self.of.contains_key(&pid)
    }

    /// A node is connected.
    pub(crate) fn up(&mut self, peer: u64, effects: &mut Effects) {
        self.down(peer, effects);
        let other = self.others.entry(peer).or_default();
        if self.own.digest() != Digest::default() {
            other.share(&mut effects.shares, peer, &self.own);
        }
    }

    /// A node is not connected any more.
    pub(crate) fn down(&mut self, peer: u64, effects: &mut Effects) {
        let Some(other) = self.others.remove(&peer) else { return };
        effects.changes.extend(other.entries.iter().map(|entry| Change { entry, is_there: false }));
    }

    /// Tells a node the digest of the entries of this one, if it was told of an entry before.
    pub(crate) fn compare(&mut self, peer: u64, effects: &mut Effects) {
        if let Some(other) = self.others.get_mut(&peer).filter(|other| other.has_entries) {
            other.may_ask = true;
            effects.shares.push((To::One(peer), Share::Digest(self.own.digest())));
        }
    }

    /// Takes a share of another node.
    pub(crate) fn receive(&mut self, peer: u64, share: Share, effects: &mut Effects) -> Result<(), BoxError> {
        let Some(other) = self.others.get_mut(&peer) else { return Ok(()) };
        let first = effects.changes.len();
        match share {
            Share::Whole { entries, is_last } => {
                let arriving = other.arriving.get_or_insert_default();
                for entry in &entries {
                    check(entry)?;
                    arriving.insert(entry)?;
                }
                if is_last {
                    let before = std::mem::replace(&mut other.entries, other.arriving.take().unwrap_or_default());
                    other.is_asked = false;
                    let gone = before.iter().filter(|entry| !other.entries.contains(entry));
                    let new = other.entries.iter().filter(|entry| !before.contains(entry));
                    let gone = gone.map(|entry| Change { entry, is_there: false });
                    effects.changes.extend(gone.chain(new.map(|entry| Change { entry, is_there: true })));
                }
            }
            Share::Changed { .. } | Share::Digest(_) if other.arriving.is_some() => {
                return Err("a share has come between the parts of a snapshot".into());
            }
            Share::Changed { entry, is_there } => {
                check(&entry)?;
                let is_news = if is_there { other.entries.insert(&entry)? } else { other.entries.remove(&entry) };
                effects.changes.extend(is_news.then_some(Change { entry, is_there }));
            }
            Share::Digest(digest) => {
                if digest != other.entries.digest() && !std::mem::replace(&mut other.is_asked, true) {
                    effects.shares.push((To::One(peer), Share::Again));
                }
            }
            Share::Again if other.may_ask => other.share(&mut effects.shares, peer, &self.own),
            Share::Again => {}
        }
        let is_claim = |change: &&Change| change.is_there && matches!(change.entry.role, Role::Claimant { .. });
        let claimed: Vec<String> =
            effects.changes[first..].iter().filter(is_claim).map(|change| change.entry.name.clone()).collect();
        claimed.iter().for_each(|name| self.settle(name, effects));
        Ok(())
    }

    /// Another node has claimed a name. If a process of this node has claimed it later, that one has lost it.
    fn settle(&mut self, name: &str, effects: &mut Effects) {
        let Some((since, pid)) = self.own.claim(name) else { return };
        if let Some(holder) = self.holder(name).filter(|holder| *holder != pid) {
            self.remove_own(&Entry { name: name.into(), role: Role::Claimant { since }, pid }, effects);
            effects.lost.push(Loss { name: name.into(), pid, holder });
        }
    }

    /// The entries of each node, in the order of the incarnations, which is the same on all nodes.
    fn all(&self) -> impl Iterator<Item = (u64, &Entries)> {
        let own = std::iter::once((self.here, &self.own));
        let others = |range| self.others.range(range).map(|(peer, other)| (*peer, &other.entries));
        let greater = (std::ops::Bound::Excluded(self.here), std::ops::Bound::Unbounded);
        others((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(self.here))).chain(own).chain(others(greater))
    }

    /// The members of a group, with their labels.
    pub(crate) fn members(&self, group: &str) -> impl Iterator<Item = (&str, Pid)> {
        self.all().flat_map(move |(_, entries)| entries.members(group))
    }

    /// The member of a group that has this key, by rendezvous hashing over the labels. Of several members with one
    /// label it is the last one.
    pub(crate) fn pick(&self, group: &str, key: u64) -> Option<Pid> {
        let at = pick(key, self.members(group).map(|(label, _)| hash_of(label)))?;
        self.members(group).nth(at).map(|(_, pid)| pid)
    }

    /// The process that has a shared name: that of the earliest claim. Of two claims of one time, it is that of the
    /// lower incarnation.
    pub(crate) fn holder(&self, name: &str) -> Option<Pid> {
        let claims =
            self.all().filter_map(|(peer, entries)| entries.claim(name).map(|(since, pid)| (since, peer, pid)));
        claims.min().map(|(.., pid)| pid)
    }

    /// The process that holds a unique name. If two nodes say so, the greater token is right.
    pub(crate) fn unique_holder(&self, name: &str) -> Option<Pid> {
        self.all().filter_map(|(_, entries)| entries.holding(name)).max().map(|(_, pid)| pid)
    }

    /// The digests of the entries of all nodes.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn digests(&self) -> Vec<(u64, Digest)> {
        self.all().map(|(peer, entries)| (peer, entries.digest())).collect()
    }

    /// The entries of another node, to be spoilt.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn entries_of(&mut self, peer: u64) -> Option<&mut Entries> {
        self.others.get_mut(&peer).map(|other| &mut other.entries)
    }
}

fn check(entry: &Entry) -> Result<(), BoxError> {
    if entry.is_valid() { Ok(()) } else { Err("a name or a label of another node is empty or too long".into()) }
}

#[cfg(all(test, not(loom)))]
mod tests;
