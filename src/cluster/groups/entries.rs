//! The entries of one node: its members of groups, its claims to shared names, and its holders of unique names.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::pid::Pid;
use crate::router::rendezvous::hash_of;

/// The longest name of a group, label or shared name, in bytes.
pub(crate) const LONGEST: usize = 255;

/// The most bytes that the entries of one node may take, as they are counted: some 16,000 short ones.
const LIMIT: usize = 8 << 20;

/// The memory that an entry takes beside its texts, as it is counted. One with a name of its own has a set of its own.
const OVERHEAD: usize = 512;

/// The relation of a process to a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Role {
    /// It has claimed the shared name at this time, in microseconds since 1970.
    Claimant { since: u64 },
    /// It is a member of the group, under this label.
    Member { label: String },
    /// It holds the unique name, with this token.
    Holder { token: u64 },
}

/// A fact about a process that its node owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The name of the group, or the shared or unique name.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) pid: Pid,
}

/// A summary of a set of entries. Two sets with the same digest are taken for equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest {
    count: u64,
    /// The sum of the hashes of the entries, so that their order does not matter.
    sum: u64,
}

/// The entries of a node take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node has too many members of groups and claims to names")]
pub(crate) struct TooMany;

/// The entries of one node.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    by_name: BTreeMap<String, BTreeSet<(Role, Pid)>>,
    digest: Digest,
    bytes: usize,
}

impl Entry {
    /// Whether its texts have a length that is allowed.
    pub(crate) fn is_valid(&self) -> bool {
        let is_valid = |text: &String| (1..=LONGEST).contains(&text.len());
        is_valid(&self.name)
            && match &self.role {
                Role::Claimant { .. } | Role::Holder { .. } => true,
                Role::Member { label } => is_valid(label),
            }
    }

    /// The memory that it takes, as it is counted.
    pub(crate) fn cost(&self) -> usize {
        let label = match &self.role {
            Role::Claimant { .. } | Role::Holder { .. } => 0,
            Role::Member { label } => label.len(),
        };
        OVERHEAD + self.name.len() + label
    }

    fn hash(&self) -> u64 {
        // The number of the node in the PID is another one on each node.
        hash_of(&(&self.name, &self.role, self.pid.slot(), self.pid.generation()))
    }
}

impl Entries {
    /// Adds an entry. Returns whether it is new.
    pub(crate) fn insert(&mut self, entry: &Entry) -> Result<bool, TooMany> {
        if self.contains(entry) {
            return Ok(false);
        }
        if self.bytes + entry.cost() > LIMIT {
            return Err(TooMany);
        }
        let Entry { name, role, pid } = entry.clone();
        self.by_name.entry(name).or_default().insert((role, pid));
        self.bytes += entry.cost();
        self.digest.count += 1;
        self.digest.sum = self.digest.sum.wrapping_add(entry.hash());
        Ok(true)
    }

    /// Removes an entry. Returns whether it was there.
    pub(crate) fn remove(&mut self, entry: &Entry) -> bool {
        let Some(of_name) = self.by_name.get_mut(&entry.name) else { return false };
        if !of_name.remove(&(entry.role.clone(), entry.pid)) {
            return false;
        }
        if of_name.is_empty() {
            self.by_name.remove(&entry.name);
        }
        self.bytes -= entry.cost();
        self.digest.count -= 1;
        self.digest.sum = self.digest.sum.wrapping_sub(entry.hash());
        true
    }

    pub(crate) fn contains(&self, entry: &Entry) -> bool {
        self.by_name.get(&entry.name).is_some_and(|of_name| of_name.contains(&(entry.role.clone(), entry.pid)))
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        let of_name = |(name, of_name)| -> (&String, &BTreeSet<_>) { (name, of_name) };
        self.by_name.iter().map(of_name).flat_map(|(name, of_name)| {
            of_name.iter().map(|(role, pid)| Entry { name: name.clone(), role: role.clone(), pid: *pid })
        })
    }

    /// The members of a group with their labels, in order.
    pub(crate) fn members(&self, group: &str) -> impl Iterator<Item = (&str, Pid)> {
        self.by_name.get(group).into_iter().flatten().filter_map(|(role, pid)| match role {
            Role::Member { label } => Some((label.as_str(), *pid)),
            Role::Claimant { .. } | Role::Holder { .. } => None,
        })
    }

    /// The earliest claim to a shared name: its time and its process.
    pub(crate) fn claim(&self, name: &str) -> Option<(u64, Pid)> {
        match self.by_name.get(name)?.first()? {
            (Role::Claimant { since }, pid) => Some((*since, *pid)),
            (Role::Member { .. } | Role::Holder { .. }, _) => None,
        }
    }

    /// The holding of a unique name with the greatest token: the token and the process.
    pub(crate) fn holding(&self, name: &str) -> Option<(u64, Pid)> {
        match self.by_name.get(name)?.last()? {
            (Role::Holder { token }, pid) => Some((*token, *pid)),
            (Role::Member { .. } | Role::Claimant { .. }, _) => None,
        }
    }
}
