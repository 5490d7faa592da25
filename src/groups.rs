//! Groups of processes, by name, within one runtime.
//!
//! A group exists while it has members or subscribers. The thread that changes a group puts the change into the
//! mailboxes of the subscribers, under the locks of their cells. It does so in the critical section of the change. A
//! subscription begins with a snapshot of the members. The snapshot is taken in the critical section in which the
//! subscription is written. So a subscriber receives each change once, in order, from the snapshot on.
//!
//! A membership is the process's *own* if the process has joined by itself. It is *given* if the spawn options or
//! another process made it. When the state machine of a process has failed and is replaced, its subscriptions and its
//! own memberships end. The given ones stay.
//!
//! The receivers of a broadcast are a list that all broadcasts share until a member comes or goes. A change discards
//! the list in its critical section, and the next broadcast makes a new one. So a change costs the same in a large
//! group as in a small one. A second join of a member, and a leave that leaves it a membership, keep the list. Two
//! broadcasts that find no list share the one that the first of them makes, because no change can come between them:
//! both read the group, and a change needs it alone.
//!
//! A join and the end of the process may happen at once. The protocol is that of names (`name_table.rs`). Under the
//! lock of the group, a join first adds the group to the groups of the process, then marks the cell, then writes the
//! member.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use dashmap::DashMap;
use dashmap::mapref::entry::{Entry, OccupiedEntry};

use crate::name_table::Removals;
use crate::primitives::{Arc, OnceLock};
use crate::process::{GroupChange, GroupEvent, NameError, NoSuchProcessError, Pid, Subscription};
use crate::relations::{Cells, Told, mark, tell};
use crate::sched::mailbox::Control;

/// The members of each group.
#[derive(Default)]
pub(crate) struct Groups {
    groups: DashMap<Arc<str>, Group>,
    // The groups of which a process is a member, or to which it subscribes.
    of: DashMap<Pid, BTreeSet<Arc<str>>>,
    groups_gone: Removals,
    processes_gone: Removals,
}

struct Group {
    /// Each member, with its memberships.
    members: BTreeMap<Pid, Memberships>,
    /// Each subscriber, with the number of its subscription.
    subscribers: BTreeSet<(Pid, u64)>,
    /// The member whose turn was last, if there was a turn.
    last_turn: Option<Pid>,
    /// Each member once. Made by the first broadcast after a change.
    receivers: OnceLock<Arc<[Pid]>>,
}

/// The memberships of a process in a group.
#[derive(Clone, Copy, Default)]
struct Memberships {
    /// How often the process has joined by itself.
    own: usize,
    /// How many memberships its spawn options or other processes have made.
    given: usize,
}

/// Which process makes a join or a leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doer {
    Itself,
    Another,
}

impl Memberships {
    fn total(self) -> usize {
        self.own + self.given
    }

    /// The process joins, once.
    fn add(&mut self, by: Doer) {
        match by {
            Doer::Itself => self.own += 1,
            Doer::Another => self.given += 1,
        }
    }

    /// The process leaves, once. If it leaves by itself, its own memberships go first, otherwise the given ones.
    fn take(&mut self, by: Doer) {
        let own = match by {
            Doer::Itself => self.own > 0,
            Doer::Another => self.given == 0,
        };
        let count = if own { &mut self.own } else { &mut self.given };
        *count = count.saturating_sub(1);
    }
}

impl Group {
    fn new() -> Group {
        Group { members: BTreeMap::new(), subscribers: BTreeSet::new(), last_turn: None, receivers: OnceLock::new() }
    }

    /// Adds a membership.
    fn add(&mut self, pid: Pid, by: Doer) {
        let times = self.members.entry(pid).or_insert_with(|| {
            self.receivers = OnceLock::new();
            Memberships::default()
        });
        times.add(by);
    }

    /// Lets `take` take memberships of a process. Returns its result, or `None` if the process is no member.
    fn take<R>(&mut self, pid: Pid, take: impl FnOnce(&mut Memberships) -> R) -> Option<R> {
        let times = self.members.get_mut(&pid)?;
        let taken = take(times);
        if times.total() == 0 {
            self.members.remove(&pid);
            self.receivers = OnceLock::new();
        }
        Some(taken)
    }

    /// Each member once, in order.
    fn receivers(&self) -> &Arc<[Pid]> {
        self.receivers.get_or_init(|| self.members.keys().copied().collect())
    }

    fn has(&self, pid: Pid) -> bool {
        self.members.contains_key(&pid) || self.subscribers.range((pid, 0)..=(pid, u64::MAX)).next().is_some()
    }

    fn end_subscriptions(&mut self, pid: Pid) {
        self.subscribers.extract_if((pid, 0)..=(pid, u64::MAX), |_| true).for_each(drop);
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.subscribers.is_empty()
    }

    fn members(&self) -> Vec<Pid> {
        self.members.iter().flat_map(|(pid, times)| std::iter::repeat_n(*pid, times.total())).collect()
    }

    /// Notifies all subscribers of a change.
    fn tell(&self, cells: &impl Cells, group: &Arc<str>, change: &GroupChange, told: &mut Vec<Told>) {
        for (subscriber, id) in &self.subscribers {
            told.push(tell_change(cells, group, *id, *subscriber, change.clone()));
        }
    }
}

fn tell_change(cells: &impl Cells, group: &Arc<str>, id: u64, subscriber: Pid, change: GroupChange) -> Told {
    let event = GroupEvent { subscription: Subscription::new(id, group.clone()), change };
    tell(cells, subscriber, Control::Group(event))
}

impl Groups {
    /// Adds a process, once more if it is in the group already.
    pub(crate) fn join(
        &self,
        cells: &impl Cells,
        name: &Arc<str>,
        pid: Pid,
        by: Doer,
        then: impl FnMut(Told),
    ) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let mut told = Vec::new();
        let mut group = self.groups.entry(name.clone()).or_insert_with(Group::new);
        let (is_new, lives) = self.note(cells, name, pid);
        if lives {
            group.add(pid, by);
            group.tell(cells, name, &GroupChange::Joined(pid), &mut told);
            drop(group);
            told.into_iter().for_each(then);
            return Ok(());
        }
        // A note that was there before is for the end of the process, which may be about to take it out of the group.
        // A new note is of this call, and is removed.
        if is_new {
            self.forget(name, pid);
        }
        let empty = group.is_empty();
        drop(group);
        if empty {
            self.groups.remove_if(name, |_, group| group.is_empty());
        }
        Err(NoSuchProcessError::Pid(pid).into())
    }

    /// Notes a group with a process, and marks the process's cell. Returns whether the note is new, and whether the
    /// process lives.
    fn note(&self, cells: &impl Cells, name: &Arc<str>, pid: Pid) -> (bool, bool) {
        let is_new = self.of.entry(pid).or_default().insert(name.clone());
        (is_new, mark(cells, pid))
    }

    fn forget(&self, name: &str, pid: Pid) {
        if let Entry::Occupied(mut of) = self.of.entry(pid) {
            of.get_mut().remove(name);
            if of.get().is_empty() {
                of.remove();
                self.processes_gone.count(&self.of);
            }
        }
    }

    /// Removes a process from a group, once. Returns whether it was in the group.
    pub(crate) fn leave(&self, cells: &impl Cells, name: &str, pid: Pid, by: Doer, then: impl FnMut(Told)) -> bool {
        let Entry::Occupied(mut group) = self.groups.entry(Arc::from(name)) else { return false };
        if group.get_mut().take(pid, |times| times.take(by)).is_none() {
            return false;
        }
        let mut told = Vec::new();
        group.get().tell(cells, &group.key().clone(), &GroupChange::Left(pid), &mut told);
        self.tidy(group, pid);
        told.into_iter().for_each(then);
        true
    }

    /// Removes empty entries after a process has left, or has ended a subscription.
    fn tidy(&self, group: OccupiedEntry<'_, Arc<str>, Group>, pid: Pid) {
        if !group.get().has(pid) {
            self.forget(group.key(), pid);
        }
        if group.get().is_empty() {
            group.remove();
            self.groups_gone.count(&self.groups);
        }
    }

    /// Subscribes a process, whose body is in hand. It gets the members now, and each later change.
    pub(crate) fn subscribe(&self, cells: &impl Cells, subscription: &Subscription, pid: Pid) -> Told {
        let name = subscription.shared_group();
        let mut group = self.groups.entry(name.clone()).or_insert_with(Group::new);
        self.note(cells, name, pid);
        group.subscribers.insert((pid, subscription.id()));
        tell_change(cells, name, subscription.id(), pid, GroupChange::Members(group.members()))
    }

    pub(crate) fn unsubscribe(&self, subscription: &Subscription, pid: Pid) {
        let Entry::Occupied(mut group) = self.groups.entry(subscription.shared_group().clone()) else { return };
        if group.get_mut().subscribers.remove(&(pid, subscription.id())) {
            self.tidy(group, pid);
        }
    }

    /// The members, each as often as it has joined.
    pub(crate) fn members(&self, name: &str) -> Vec<Pid> {
        self.groups.get(name).map(|group| group.members()).unwrap_or_default()
    }

    /// The members, each once: the receivers of a broadcast. `None` if there is no member.
    pub(crate) fn receivers(&self, name: &str) -> Option<Arc<[Pid]>> {
        let group = self.groups.get(name)?;
        if group.members.is_empty() { None } else { Some(group.receivers().clone()) }
    }

    /// The next member. Each member has its turn once, however often it has joined.
    pub(crate) fn next_member(&self, name: &str) -> Option<Pid> {
        let mut group = self.groups.get_mut(name)?;
        let after = group.last_turn.map_or(Bound::Unbounded, Bound::Excluded);
        let mut next = group.members.range((after, Bound::Unbounded)).chain(&group.members);
        let next = *next.next()?.0;
        group.last_turn = Some(next);
        Some(next)
    }

    /// All groups that have members. The entries are not of one single moment.
    pub(crate) fn all(&self) -> Vec<Arc<str>> {
        self.groups.iter().filter(|group| !group.members.is_empty()).map(|group| group.key().clone()).collect()
    }

    /// Removes a process that has ended from all groups.
    pub(crate) fn ended(&self, cells: &impl Cells, pid: Pid, then: impl FnMut(Told)) {
        let Some((_, names)) = self.of.remove(&pid) else { return };
        self.part(cells, pid, names, |times| std::mem::take(times).total(), then);
        self.processes_gone.count(&self.of);
    }

    /// Removes the subscriptions and the own memberships of a process. Its body is in hand, and its failed state
    /// machine is replaced. The given memberships stay.
    #[cold]
    pub(crate) fn recovered(&self, cells: &impl Cells, pid: Pid, then: impl FnMut(Told)) {
        // A copy, because the note is looked up again in the critical section of each group.
        let Some(names) = self.of.get(&pid).map(|names| names.clone()) else { return };
        self.part(cells, pid, names, |times| std::mem::take(&mut times.own), then);
    }

    /// Removes the subscriptions of a process to these groups, and the memberships that `leaves` takes and counts.
    fn part(
        &self,
        cells: &impl Cells,
        pid: Pid,
        names: BTreeSet<Arc<str>>,
        leaves: impl Fn(&mut Memberships) -> usize,
        mut then: impl FnMut(Told),
    ) {
        for name in names {
            let Entry::Occupied(mut entry) = self.groups.entry(name) else { continue };
            let (name, group, mut told) = (entry.key().clone(), entry.get_mut(), Vec::new());
            group.end_subscriptions(pid);
            for _ in 0..group.take(pid, &leaves).unwrap_or(0) {
                group.tell(cells, &name, &GroupChange::Left(pid), &mut told);
            }
            self.tidy(entry, pid);
            told.into_iter().for_each(&mut then);
        }
    }

    /// The number of groups and of processes with groups. Groups without members are counted, too.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.groups.len() + self.of.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitives::AtomicUsize;
    use crate::sched::cell::Cell;

    /// A table without processes.
    struct Nobody;

    impl Cells for Nobody {
        fn cell(&self, _: Pid) -> Option<&Cell> {
            None
        }

        fn dooms(&self) -> &AtomicUsize {
            unreachable!("nobody is to be ended")
        }
    }

    #[test]
    fn broadcasts_share_one_list_until_a_member_comes_or_goes() {
        let (groups, name): (Groups, Arc<str>) = (Groups::default(), Arc::from("group"));
        let [one, two]: [Pid; 2] = ["<0.1.1>".parse().unwrap(), "<0.2.1>".parse().unwrap()];
        let add = |pid, by| {
            groups.groups.entry(name.clone()).or_insert_with(Group::new).add(pid, by);
            groups.of.entry(pid).or_default().insert(name.clone());
        };
        let has_list = || groups.groups.get(&name).is_some_and(|group| group.receivers.get().is_some());
        let list = || groups.receivers(&name).unwrap();
        assert!(groups.receivers(&name).is_none(), "there is no such group");
        add(two, Doer::Itself);
        assert!(!has_list(), "nobody has broadcast");
        let first = list();
        add(two, Doer::Another);
        assert!(Arc::ptr_eq(&first, &list()), "it was a member");
        add(one, Doer::Itself);
        assert!(!has_list(), "a change does not make the list");
        let second = list();
        assert_eq!((&*first, &*second), (&[two][..], &[one, two][..]), "a broadcast that has begun keeps its list");
        groups.recovered(&Nobody, two, drop);
        groups.recovered(&Nobody, two, drop);
        assert!(Arc::ptr_eq(&second, &list()), "it is still a member");
        assert!(groups.leave(&Nobody, &name, two, Doer::Another, drop) && !has_list());
        assert_eq!(*list(), [one]);
        groups.recovered(&Nobody, one, drop);
        assert!(groups.receivers(&name).is_none() && groups.len() == 0);
    }

    #[test]
    fn a_group_without_members_keeps_no_list() {
        let (groups, name): (Groups, Arc<str>) = (Groups::default(), Arc::from("group"));
        let pids = || (0..1_000).filter_map(|slot| Pid::new(1, slot, 1));
        let subscriber = Pid::new(1, 1_000, 1).unwrap();
        groups.groups.entry(name.clone()).or_insert_with(Group::new).subscribers.insert((subscriber, 1));
        for pid in pids() {
            groups.groups.entry(name.clone()).or_insert_with(Group::new).add(pid, Doer::Itself);
            groups.of.entry(pid).or_default().insert(name.clone());
        }
        let list = groups.receivers(&name).map(|list| Arc::downgrade(&list)).unwrap();
        assert_eq!(list.upgrade().map(|list| list.len()), Some(1_000));
        pids().for_each(|pid| groups.ended(&Nobody, pid, |_| ()));
        assert!(list.upgrade().is_none() && groups.receivers(&name).is_none());
        assert_eq!(groups.len(), 1, "it has a subscriber");
    }

    #[test]
    fn when_most_have_left_so_has_the_memory_for_them() {
        let (groups, name): (Groups, Arc<str>) = (Groups::default(), Arc::from("group"));
        let pids = || (0..100_000).filter_map(|slot| Pid::new(1, slot, 1));
        for pid in pids() {
            groups.groups.entry(name.clone()).or_insert_with(Group::new).add(pid, Doer::Another);
            groups.of.entry(pid).or_default().insert(name.clone());
        }
        assert!(groups.of.capacity() >= 100_000);
        // They leave, and have nothing to take back when they end.
        pids().for_each(|pid| assert!(groups.leave(&Nobody, &name, pid, Doer::Itself, drop)));
        pids().for_each(|pid| groups.ended(&Nobody, pid, |_| ()));
        assert_eq!(groups.len(), 0);
        assert!(groups.of.capacity() < 50_000, "{}", groups.of.capacity());
    }

    #[test]
    fn when_most_groups_are_gone_so_is_the_memory_for_them() {
        for ends in [false, true] {
            let (groups, pid) = (Groups::default(), Pid::new(1, 1, 1).unwrap());
            let names: Vec<Arc<str>> = (0..100_000).map(|n| Arc::from(n.to_string())).collect();
            for name in &names {
                groups.groups.entry(name.clone()).or_insert_with(Group::new).add(pid, Doer::Another);
                groups.of.entry(pid).or_default().insert(name.clone());
            }
            assert!(groups.groups.capacity() >= names.len());
            if ends {
                groups.ended(&Nobody, pid, |_| ());
            } else {
                names.iter().for_each(|name| assert!(groups.leave(&Nobody, name, pid, Doer::Itself, drop)));
            }
            assert_eq!(groups.len(), 0);
            assert!(groups.groups.capacity() < names.len() / 2, "{}", groups.groups.capacity());
        }
    }

    #[test]
    fn who_joins_while_it_is_half_ended_leaves_nothing_behind() {
        let (pid, name): (Pid, Arc<str>) = ("<1.1.1>".parse().unwrap(), Arc::from("group"));
        // The end has not begun to look for the groups, or it has the notes and has not come to this group.
        for begun in [false, true] {
            let groups = Groups::default();
            groups.groups.entry(name.clone()).or_insert_with(Group::new).add(pid, Doer::Another);
            groups.of.entry(pid).or_default().insert(name.clone());
            let noted = begun.then(|| groups.of.remove(&pid));
            assert!(matches!(groups.join(&Nobody, &name, pid, Doer::Another, drop), Err(NameError::NoSuchProcess(_))));
            if let Some(noted) = noted.flatten() {
                assert!(groups.of.is_empty(), "nobody would ever look for it");
                groups.of.insert(noted.0, noted.1);
            }
            groups.ended(&Nobody, pid, |_| ());
            assert_eq!(groups.len(), 0, "begun: {begun}");
        }
    }
}
