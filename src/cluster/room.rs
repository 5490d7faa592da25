//! The senders that wait for room at other nodes. `docs/cluster.md` has the protocol.

use std::collections::{HashMap, VecDeque};

use super::peer::Bound;
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Mutex, Ordering, Weak, lock};
use crate::sched::non_local::WaitingOutside;

/// Those that wait, by the number of the node.
#[derive(Default)]
pub(super) struct Waiting {
    inner: Mutex<Inner>,
    /// The number of nodes for which senders outside wait, so that others need no lock.
    nodes: AtomicUsize,
    /// The number of nodes and bounds for which processes wait, for the same reason.
    bounds: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    outside: HashMap<u32, Outside>,
    /// The processes that wait for room, by node and bound.
    processes: HashMap<(u32, Bound), Vec<Pid>>,
    /// The nodes and bounds for which each process waits.
    holders: HashMap<Pid, Vec<(u32, Bound)>>,
}

/// The senders outside that wait for one node.
#[derive(Default)]
struct Outside {
    /// In the order in which they began to wait. A message stays here while it is offered, so that no later one is
    /// before it.
    queue: VecDeque<Weak<dyn WaitingOutside>>,
    offers: Offers,
}

/// Whether a thread offers the messages of a queue.
#[derive(Default, PartialEq, Eq)]
enum Offers {
    #[default]
    No,
    Yes,
    /// It is to offer them once more, because there may be more room.
    Again,
}

impl Waiting {
    /// Puts a process among those that wait for room at a node for items of this bound. It is there once. Returns
    /// whether those that have ended are to be forgotten now.
    pub(super) fn push_process(&self, node: u32, bound: Bound, pid: Pid) -> bool {
        let Inner { processes, holders, .. } = &mut *lock(&self.inner);
        let bounds = holders.entry(pid).or_default();
        if bounds.contains(&(node, bound)) {
            return false;
        }
        bounds.push((node, bound));
        processes.entry((node, bound)).or_default().push(pid);
        // Ordering: Relaxed: only who sends again and again must see it, some time.
        self.bounds.store(processes.len(), Ordering::Relaxed);
        bounds.len() == 1 && holders.len().is_power_of_two()
    }

    /// Forgets the processes that have ended. Any number of them may have sent in their last steps.
    pub(super) fn forget_ended(&self, is_alive: impl Fn(Pid) -> bool) {
        let Inner { processes, holders, .. } = &mut *lock(&self.inner);
        holders.retain(|pid, _| is_alive(*pid));
        processes.retain(|_, pids| {
            pids.retain(|pid| holders.contains_key(pid));
            !pids.is_empty()
        });
        self.bounds.store(processes.len(), Ordering::Relaxed);
    }

    /// Puts a sender outside at the end of those that wait for a node.
    pub(super) fn push_outside(&self, node: u32, sender: Weak<dyn WaitingOutside>) {
        let outside = &mut lock(&self.inner).outside;
        let queue = &mut outside.entry(node).or_default().queue;
        // Without those whose futures were dropped, for example because a limit was over.
        if queue.len().is_power_of_two() {
            queue.retain(|sender| sender.strong_count() > 0);
        }
        queue.push_back(sender);
        // Ordering: Relaxed: only messages of this thread must not overtake this one.
        self.nodes.store(outside.len(), Ordering::Relaxed);
    }

    /// Takes out the processes that wait for room at a node for items of this bound. Returns those that wait for
    /// nothing else.
    pub(super) fn take_processes(&self, node: u32, bound: Bound) -> Vec<Pid> {
        let Inner { processes, holders, .. } = &mut *lock(&self.inner);
        let mut pids = processes.remove(&(node, bound)).unwrap_or_default();
        self.bounds.store(processes.len(), Ordering::Relaxed);
        pids.retain(|pid| {
            let Some(others) = holders.get_mut(pid) else { return false };
            others.retain(|holder| *holder != (node, bound));
            let is_free = others.is_empty();
            if is_free {
                holders.remove(pid);
            }
            is_free
        });
        pids
    }

    /// Whether senders outside wait for a node. Until they have had their turn, there is no room for others.
    pub(super) fn has_outside(&self, node: u32) -> bool {
        self.nodes.load(Ordering::Relaxed) > 0
            && lock(&self.inner).outside.get(&node).is_some_and(|outside| !outside.queue.is_empty())
    }

    /// Whether processes wait for room at a node for items of this bound.
    pub(super) fn has_processes(&self, node: u32, bound: Bound) -> bool {
        self.bounds.load(Ordering::Relaxed) > 0 && lock(&self.inner).processes.contains_key(&(node, bound))
    }

    /// Takes out the senders outside that wait for a node.
    pub(super) fn take_outside(&self, node: u32) -> VecDeque<Weak<dyn WaitingOutside>> {
        let mut inner = lock(&self.inner);
        inner.outside.get_mut(&node).map(|outside| std::mem::take(&mut outside.queue)).unwrap_or_default()
    }

    /// Takes out the first senders outside that wait for a node, as long as they have given up. Returns whether there
    /// were some.
    pub(super) fn forget_given_up(&self, node: u32) -> bool {
        // Ordering: Relaxed: a message that another thread puts there is offered by that thread.
        if self.nodes.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut has_forgotten = false;
        loop {
            let first = lock(&self.inner).outside.get(&node).and_then(|outside| outside.queue.front().cloned());
            let Some(first) = first else { return has_forgotten };
            let waits = first.upgrade().is_some_and(|sender| {
                let waits = sender.waits();
                // Its future may have been dropped meanwhile. Then the message is dropped here, which is user code.
                drop_contained(sender);
                waits
            });
            if waits {
                return has_forgotten;
            }
            if let Some(outside) = lock(&self.inner).outside.get_mut(&node) {
                has_forgotten |= outside.queue.pop_front_if(|front| front.ptr_eq(&first)).is_some();
            }
        }
    }

    /// Offers the messages from outside that wait for a node, until `offer` says that one waits still. Returns whether
    /// it has said so. If another thread offers them, that one does all this.
    pub(super) fn offer_outside(&self, node: u32, mut offer: impl FnMut(&Arc<dyn WaitingOutside>) -> bool) -> bool {
        match lock(&self.inner).outside.get_mut(&node) {
            None => return false,
            Some(outside) if outside.offers != Offers::No => {
                outside.offers = Offers::Again;
                return false;
            }
            Some(outside) => outside.offers = Offers::Yes,
        }
        let mut guard = OffersGuard { waiting: self, node, is_over: false };
        loop {
            let front = lock(&self.inner).outside.get(&node).and_then(|outside| outside.queue.front().cloned());
            // Without the lock, because an encoder is user code.
            let waits = front.as_ref().and_then(Weak::upgrade).is_some_and(|sender| {
                let waits = offer(&sender);
                // Its future may have been dropped meanwhile. Then the message is dropped here, which is user code.
                drop_contained(sender);
                waits
            });
            let outsides = &mut lock(&self.inner).outside;
            let Some(outside) = outsides.get_mut(&node) else {
                guard.is_over = true;
                return waits;
            };
            match front {
                // A down may have taken it out.
                Some(front) if !waits => _ = outside.queue.pop_front_if(|first| first.ptr_eq(&front)),
                _ if outside.offers == Offers::Again => outside.offers = Offers::Yes,
                _ => {
                    outside.offers = Offers::No;
                    guard.is_over = true;
                    if outside.queue.is_empty() {
                        outsides.remove(&node);
                        self.nodes.store(outsides.len(), Ordering::Relaxed);
                    }
                    return waits;
                }
            }
        }
    }

    /// The numbers of sends from outside that still wait, and of processes that wait.
    pub(super) fn counts(&self, is_alive: impl Fn(Pid) -> bool) -> (usize, usize) {
        let inner = &*lock(&self.inner);
        let waits = |outside: &Outside| outside.queue.iter().filter(|sender| sender.strong_count() > 0).count();
        (inner.outside.values().map(waits).sum(), inner.holders.keys().filter(|pid| is_alive(**pid)).count())
    }

    /// The numbers of senders outside and of processes that are listed.
    #[cfg(all(test, not(loom)))]
    pub(super) fn len(&self) -> (usize, usize) {
        let inner = &*lock(&self.inner);
        (inner.outside.values().map(|outside| outside.queue.len()).sum(), inner.holders.len())
    }
}

/// The turn of a thread that offers. If the thread panics, others may offer.
struct OffersGuard<'w> {
    waiting: &'w Waiting,
    node: u32,
    is_over: bool,
}

impl Drop for OffersGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(outside) = lock(&self.waiting.inner).outside.get_mut(&self.node)
        {
            outside.offers = Offers::No;
        }
    }
}

/// Tells a sender that its node is down. Its future may be dropped meanwhile. Then the message is dropped here.
pub(super) fn tell_down(sender: &Weak<dyn WaitingOutside>) {
    if let Some(sender) = sender.upgrade() {
        sender.node_down();
        drop_contained(sender);
    }
}

#[cfg(all(test, loom))]
mod models;
