//! The tables that a connection has of monitors and links between its two nodes.
//!
//! `docs/cluster.md`, "Relations between nodes", has the protocol. A table changes together with the frame that says
//! so, under one lock. So frames about one process have the order of the changes. Callers have the locks of the halves.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::pid::Pid;
use crate::primitives::{Mutex, lock};
use crate::relations::LinkEnd;

/// The tables of one connection. `W` watches a process of this node.
pub(crate) struct FarRelations<W> {
    /// `None` when the connection is down.
    tables: Mutex<Option<Tables<W>>>,
    /// The most processes of this node that are watched.
    max_watched: usize,
    /// The most links. Calls of this node are not bound by it.
    max_links: usize,
}

/// Whether a watcher was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    Kept,
    /// The other node watches as many processes as it may. `is_first` says that none was refused before.
    Full {
        is_first: bool,
    },
    Down,
}

/// Why a link of the other node is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRefused {
    NoSuchProcess,
    /// There are as many links as there may be. `is_first` says that none was refused before.
    Full {
        is_first: bool,
    },
}

struct Tables<W> {
    /// The processes of the other node that are watched here.
    watching: BTreeSet<Pid>,
    /// The processes of this node that the other one watches.
    watched: BTreeMap<Pid, W>,
    /// The links, by the process of the other node and by that of this one.
    links: BTreeMap<Pid, BTreeMap<Pid, Link>>,
    /// The number of links.
    link_count: usize,
    /// Whether a monitor or a link of the other node was refused because of a limit.
    has_refused: bool,
}

/// The last call of either side that is known here. Later ones are greater: at the same number, an unlink.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    number: u64,
    is_unlinked: bool,
}

impl<W> Tables<W> {
    fn link(&self, (near, far): (Pid, Pid)) -> Option<Link> {
        self.links.get(&far)?.get(&near).copied()
    }

    fn set_link(&mut self, (near, far): (Pid, Pid), link: Link) {
        let before = self.links.entry(far).or_default().insert(near, link);
        self.link_count += usize::from(before.is_none());
    }

    fn forget_link(&mut self, (near, far): (Pid, Pid)) {
        if let Entry::Occupied(mut of) = self.links.entry(far) {
            self.link_count -= usize::from(of.get_mut().remove(&near).is_some());
            if of.get().is_empty() {
                of.remove();
            }
        }
    }

    /// Notes that something is refused. Returns whether it is the first time.
    fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.has_refused, true)
    }

    fn next(&self, pair: (Pid, Pid)) -> u64 {
        self.link(pair).map_or(0, |link| link.number).saturating_add(1)
    }
}

impl<W> FarRelations<W> {
    /// The tables of a new connection, with the most processes of this node that are watched, and the most links.
    pub(crate) fn new(max_watched: usize, max_links: usize) -> FarRelations<W> {
        let (watching, watched, links) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let tables = Tables { watching, watched, links, link_count: 0, has_refused: false };
        FarRelations { tables: Mutex::new(Some(tables)), max_watched, max_links }
    }

    fn with<R>(&self, change: impl FnOnce(&mut Tables<W>) -> R) -> Option<R> {
        lock(&self.tables).as_mut().map(change)
    }

    /// A process of the other node is watched. `send` is called if it was not before. Returns whether the connection
    /// is up.
    pub(crate) fn watch(&self, far: Pid, send: impl FnOnce()) -> bool {
        let watch = |tables: &mut Tables<W>| {
            if tables.watching.insert(far) {
                send();
            }
        };
        self.with(watch).is_some()
    }

    /// A process of the other node is watched no longer.
    pub(crate) fn unwatch(&self, far: Pid, send: impl FnOnce()) {
        self.with(|tables| {
            if tables.watching.remove(&far) {
                send();
            }
        });
    }

    /// Takes out the processes with this number that are watched. Their watchers are told after this call.
    pub(crate) fn take_watching(&self, number: u32) -> Vec<Pid> {
        let take = |tables: &mut Tables<W>| tables.watching.extract_if(.., |pid| pid.node() == number).collect();
        self.with(take).unwrap_or_default()
    }

    /// A process of the other node has ended. Its watchers are told after this call.
    pub(crate) fn ended(&self, far: Pid) {
        self.with(|tables| tables.watching.remove(&far));
    }

    /// Keeps the watcher of a process of this node. Returns one that is to be dropped, and whether the new one is
    /// kept.
    pub(crate) fn keep_watcher(&self, near: Pid, watcher: W) -> (Option<W>, Keeping) {
        match &mut *lock(&self.tables) {
            Some(tables) if tables.watched.len() >= self.max_watched && !tables.watched.contains_key(&near) => {
                (Some(watcher), Keeping::Full { is_first: tables.refuse() })
            }
            Some(tables) => (tables.watched.insert(near, watcher), Keeping::Kept),
            None => (Some(watcher), Keeping::Down),
        }
    }

    /// Takes the watcher of a process of this node out.
    pub(crate) fn take_watcher(&self, near: Pid) -> Option<W> {
        self.with(|tables| tables.watched.remove(&near)).flatten()
    }

    /// A process of this node links itself to one of the other. Returns whether the connection is up.
    pub(crate) fn link(&self, near: Pid, far: Pid, send: impl FnOnce(u64)) -> bool {
        let link = |tables: &mut Tables<W>| {
            let number = tables.next((near, far));
            tables.set_link((near, far), Link { number, is_unlinked: false });
            send(number);
        };
        self.with(link).is_some()
    }

    /// A process of this node begins, with a link that one of the other has made. `send` says whether that was sent.
    /// Returns whether the link stands.
    pub(crate) fn begin_link(&self, near: Pid, far: Pid, send: impl FnOnce() -> bool) -> bool {
        let begin = |tables: &mut Tables<W>| {
            let is_sent = send();
            if is_sent {
                // As if its `Link` had arrived.
                tables.set_link((near, far), Link { number: 1, is_unlinked: false });
            }
            is_sent
        };
        self.with(begin).unwrap_or(false)
    }

    /// A process of this node ends its link to one of the other.
    pub(crate) fn unlink(&self, near: Pid, far: Pid, send: impl FnOnce(u64)) {
        self.with(|tables| {
            let number = tables.next((near, far));
            tables.set_link((near, far), Link { number, is_unlinked: true });
            send(number);
        });
    }

    /// The other node says that `far` has linked itself to `near`. If that one has ended, or there are too many links,
    /// `refuse` is called. Returns whether the link is written.
    pub(crate) fn link_arrived(
        &self,
        (near, far): (Pid, Pid),
        number: u64,
        lives: bool,
        refuse: impl FnOnce(LinkRefused),
    ) -> bool {
        let link = Link { number, is_unlinked: false };
        let arrived = self.with(|tables| {
            if let Some(before) = tables.link((near, far)).filter(|before| *before >= link) {
                // If it is linked still, both have made the link.
                return lives && !before.is_unlinked;
            }
            let before = tables.link((near, far));
            if lives && before.is_none() && tables.link_count >= self.max_links {
                // As if it had ended: the other node forgets the link, too.
                refuse(LinkRefused::Full { is_first: tables.refuse() });
                return false;
            }
            let is_linked = before.is_some_and(|before| !before.is_unlinked);
            if lives || is_linked {
                // If it has ended, its exit is about to be sent.
                tables.set_link((near, far), link);
            } else {
                tables.forget_link((near, far));
                refuse(LinkRefused::NoSuchProcess);
            }
            lives
        });
        arrived.unwrap_or(false)
    }

    /// The other node says that `far` has ended its link to `near`. `acknowledge` is called if that is the last call
    /// of the two.
    pub(crate) fn unlink_arrived(&self, near: Pid, far: Pid, number: u64, acknowledge: impl FnOnce()) -> LinkEnd {
        let link = Link { number, is_unlinked: true };
        let arrived = self.with(|tables| match tables.link((near, far)) {
            Some(before) if before > link && !before.is_unlinked => LinkEnd::OfOtherOnly,
            Some(before) if before > link => LinkEnd::Nothing,
            Some(before) if before == link => {
                // Both have ended it. Each answers the other one by that.
                tables.forget_link((near, far));
                LinkEnd::Nothing
            }
            _ => {
                tables.forget_link((near, far));
                acknowledge();
                LinkEnd::Whole
            }
        });
        arrived.unwrap_or(LinkEnd::Nothing)
    }

    /// The other node has got the `Unlink` with this number.
    pub(crate) fn unlinked_arrived(&self, near: Pid, far: Pid, number: u64) {
        self.with(|tables| {
            if tables.link((near, far)) == Some(Link { number, is_unlinked: true }) {
                tables.forget_link((near, far));
            }
        });
    }

    /// One of two linked processes has ended. If it is that of this node, `send` says so.
    pub(crate) fn exit(&self, near: Pid, far: Pid, send: impl FnOnce()) -> bool {
        let exit = |tables: &mut Tables<W>| {
            tables.forget_link((near, far));
            send();
        };
        self.with(exit).is_some()
    }

    /// The connection is down. Returns the processes of the other node that have relations here, and the watchers.
    pub(crate) fn down(&self) -> (BTreeSet<Pid>, Vec<W>) {
        let Some(Tables { mut watching, watched, links, .. }) = lock(&self.tables).take() else {
            return (BTreeSet::new(), Vec::new());
        };
        watching.extend(links.into_keys());
        (watching, watched.into_values().collect())
    }

    /// The numbers of processes that are watched there and here, and of links.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize, usize) {
        let len = |tables: &mut Tables<W>| {
            (tables.watching.len(), tables.watched.len(), tables.links.values().map(BTreeMap::len).sum())
        };
        self.with(len).unwrap_or_default()
    }
}

#[cfg(all(test, loom))]
mod models;
