//! Monitors and links: which processes are told of the end of which others.
//!
//! **State.** Each relation has two *halves*, kept in a table by PID, in shards with a lock each. A monitor: "W watches T" with
//! W, "T is watched by W" with T. A link between A and B: B's PID with A, A's with B. (A watcher outside of the runtime has
//! no PID, and only the half with T.) A half of a link also has whether the other end has made the link; linking twice is one
//! link. A process's cell has a mark if it may have halves here; processes without relations
//! are never looked for.
//!
//! **The half with the process that is told is the right to tell.** The thread that takes it out tells, or has it untold. The
//! telling (into the mailbox, under the lock of the cell) is part of the same critical section of the shard. So at any moment a
//! relation is in the table, or its event is in the mailbox, or it is over; none is on its way.
//!
//! | | by | under the shards of | what happens |
//! |---|---|---|---|
//! | monitor, link | the owner of W's (A's) body | both | marks the cell of the other, if it lives, and writes both halves; else tells W (A) at once that there is no such process |
//! | bond | the owner of the parent's body | both | writes both halves before the child is in the table of processes; the child begins with the mark |
//! | demonitor, unlink | the owner of W's (A's) body | both | takes both halves out; takes events of that out of the mailbox that it has in hands, or out of the cell's, if one may have been told |
//! | end | the last owner of the body | one after the other | vacates the cell, which says whether it has the mark; takes all halves of the ended one; then, for each partner, takes its half, and tells it if that was still there |
//! | recovery | the owner of the body | its own; then both, for one partner after the other | `relations/recovering.rs` |
//!
//! **Why an end is told exactly once.** Take a monitor of T and T's end. If the cell is marked before it is vacated, the end sees
//! the mark, and since the halves are written under the lock under which the cell was marked, it finds them. If the cell is
//! vacated first, the mark is refused, and W is told at once that there is no such process. There is no third case. Of a
//! demonitor and the end one takes the half with W first: either W is never told, or the event is in W's mailbox when the
//! demonitor finds no half, and is taken out there.
//!
//! **Why nothing is left over.** Halves are written only while both live. The end of either takes its own out, and those of its
//! partners; nobody writes new ones, for its cell is vacant.
//!
//! Locks: at most two shards, the lower first; inside them cells, which are leaves. What is dropped, woken or called is so when
//! all are free: [`Told`] carries it out.

mod recovering;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::latch::Latch;
use crate::outcome::{Exit, LinkedExit, Reason, drop_contained};
use crate::primitives::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::process::{Bond, Down, ExitSignal, LinkedBy, Monitor, Pid};
use crate::sched::body::Ready;
use crate::sched::cell::{Cell, LinkTold};
use crate::sched::mailbox::{Control, Signal, Unwanted};

/// A power of two; few under the model checker, so that two processes can share one.
const SHARDS: usize = if cfg!(loom) { 2 } else { 64 };

/// A shard that has lost most of what it held lets its memory go, if it is more than for so many.
const KEPT: usize = 256;

/// All relations of a runtime.
pub(crate) struct Relations {
    shards: Box<[Mutex<Shard>]>,
}

/// The access of relations to processes.
pub(crate) trait Cells {
    /// Where the process of this PID is, or was, or will be.
    fn cell(&self, pid: Pid) -> Option<&Cell>;

    /// How many are to be ended and have not been told.
    fn dooms(&self) -> &AtomicUsize;
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Pid, Entry, BuildHasherDefault<OfPid>>,
}

/// The halves of one process.
#[derive(Default)]
struct Entry {
    watched_by: BTreeMap<u64, Watcher>,
    watches: BTreeMap<u64, Pid>,
    links: BTreeMap<Pid, LinkedBy>,
}

#[derive(Clone)]
enum Watcher {
    Process(Pid),
    Outside(Latch<Down>),
}

/// An action that is carried out when all locks are free.
#[must_use]
pub(crate) enum Told {
    Nothing,
    /// This one was woken.
    Woken(Ready),
    /// This one is to be ended; with its body, if it was at rest.
    Doomed(Pid, Option<Ready>),
    /// Nobody wanted to know: to be dropped.
    Refused(Control),
    /// Somebody outside is to be told.
    Outside(Latch<Down>, Down),
}

impl Entry {
    /// Notes that this end, or the other, has made a link.
    fn link(&mut self, other: Pid, by: LinkedBy) {
        // Mostly there is none yet.
        if let Some(before) = self.links.insert(other, by) {
            self.links.insert(other, LinkedBy { other: by.other || before.other, ..by });
        }
    }

    fn is_empty(&self) -> bool {
        self.watched_by.is_empty() && self.watches.is_empty() && self.links.is_empty()
    }
}

impl Shard {
    fn of(&mut self, pid: Pid) -> &mut Entry {
        self.entries.entry(pid).or_default()
    }

    /// Takes something out of an entry, and the entry itself if it was the last.
    fn take<R>(&mut self, pid: Pid, take: impl FnOnce(&mut Entry) -> Option<R>) -> Option<R> {
        let entry = self.entries.get_mut(&pid)?;
        let taken = take(entry);
        if entry.is_empty() {
            self.remove(pid);
        }
        taken
    }

    fn remove(&mut self, pid: Pid) -> Option<Entry> {
        let removed = self.entries.remove(&pid);
        if self.entries.capacity() > KEPT && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        removed
    }
}

/// The shards of two processes, which may be one.
struct Both<'a> {
    one: MutexGuard<'a, Shard>,
    two: Option<MutexGuard<'a, Shard>>,
    /// Whether `one` is the first process's.
    in_order: bool,
}

impl Both<'_> {
    fn first(&mut self) -> &mut Shard {
        match &mut self.two {
            Some(two) if !self.in_order => two,
            _ => &mut self.one,
        }
    }

    fn second(&mut self) -> &mut Shard {
        match &mut self.two {
            Some(two) if self.in_order => two,
            _ => &mut self.one,
        }
    }
}

impl Relations {
    pub(crate) fn new() -> Relations {
        Relations { shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect() }
    }

    fn index(pid: Pid) -> usize {
        pid.slot() as usize % SHARDS
    }

    fn shard(&self, pid: Pid) -> MutexGuard<'_, Shard> {
        lock(&self.shards[Relations::index(pid)])
    }

    fn both(&self, first: Pid, second: Pid) -> Both<'_> {
        let (a, b) = (Relations::index(first), Relations::index(second));
        let one = lock(&self.shards[a.min(b)]);
        let two = (a != b).then(|| lock(&self.shards[a.max(b)]));
        Both { one, two, in_order: a <= b }
    }

    /// `watcher`, whose body is in hand, monitors another.
    pub(crate) fn monitor(&self, cells: &impl Cells, watcher: Pid, monitor: Monitor) -> Told {
        let target = monitor.pid();
        let mut both = self.both(watcher, target);
        if !mark(cells, target) {
            return tell_down(cells, watcher, Down::nobody(monitor));
        }
        write_monitor(&mut both, cells, watcher, monitor);
        Told::Nothing
    }

    /// Somebody outside watches a process.
    pub(crate) fn watch(&self, cells: &impl Cells, monitor: Monitor, latch: Latch<Down>) -> Told {
        let target = monitor.pid();
        let mut shard = self.shard(target);
        if !mark(cells, target) {
            return Told::Outside(latch, Down::nobody(monitor));
        }
        shard.of(target).watched_by.insert(monitor.id(), Watcher::Outside(latch));
        Told::Nothing
    }

    /// Somebody outside does not want to be told any more.
    pub(crate) fn unwatch(&self, monitor: Monitor) {
        let watcher = self.shard(monitor.pid()).take(monitor.pid(), |entry| entry.watched_by.remove(&monitor.id()));
        drop(watcher);
    }

    /// Takes a monitor back. Whether it had not been told: if it had, the event is in the watcher's mailbox, or was.
    pub(crate) fn demonitor(&self, watcher: Pid, monitor: Monitor) -> bool {
        let mut both = self.both(watcher, monitor.pid());
        let untold = both.first().take(watcher, |entry| entry.watches.remove(&monitor.id())).is_some();
        if untold {
            both.second().take(monitor.pid(), |entry| entry.watched_by.remove(&monitor.id()));
        }
        untold
    }

    /// `one`, whose body is in hand, is linked to another.
    pub(crate) fn link(&self, cells: &impl Cells, one: Pid, other: Pid) -> Told {
        if one == other {
            return Told::Nothing;
        }
        let mut both = self.both(one, other);
        if !mark(cells, other) {
            let exit = Exit::Terminated(Reason::NoSuchProcess);
            return tell_exit(cells, one, (other, &exit), LinkedBy::ME);
        }
        write_link(&mut both, cells, one, other);
        Told::Nothing
    }

    /// `one`, whose body is in hand, takes a link away, if there is one. Whether there was, and what may have been told of
    /// the other before, and be in the mailbox.
    pub(crate) fn unlink(&self, cells: &impl Cells, one: Pid, other: Pid) -> (bool, Option<Unwanted>) {
        let mut both = self.both(one, other);
        let linked = both.first().take(one, |entry| entry.links.remove(&other)).is_some();
        if linked {
            both.second().take(other, |entry| entry.links.remove(&one));
        }
        let told = cells.cell(other).map_or(Some(Unwanted::Exit(other)), |cell| cell.may_have_told(other));
        (linked, told)
    }

    /// A child, which is not in the table of processes yet, is related to its parent, whose body is in hand.
    pub(crate) fn bond(&self, cells: &impl Cells, child: Pid, bond: Bond) {
        let mut both = self.both(bond.parent, child);
        if let Some(monitor) = bond.monitor {
            write_monitor(&mut both, cells, bond.parent, monitor);
        }
        if bond.link {
            write_link(&mut both, cells, bond.parent, child);
        }
    }

    /// A process has ended, and its cell is vacant: tells each of its partners.
    pub(crate) fn ended(&self, cells: &impl Cells, pid: Pid, exit: &Exit, mut then: impl FnMut(Told)) {
        let Some(entry) = self.shard(pid).remove(pid) else { return };
        for (id, target) in entry.watches {
            let watcher = self.shard(target).take(target, |entry| entry.watched_by.remove(&id));
            drop(watcher);
        }
        for (id, watcher) in entry.watched_by {
            let down = || Down { monitor: Monitor::new(id, pid), pid, exit: exit.clone() };
            then(match watcher {
                Watcher::Outside(latch) => Told::Outside(latch, down()),
                Watcher::Process(watcher) => {
                    let mut shard = self.shard(watcher);
                    match shard.take(watcher, |entry| entry.watches.remove(&id)) {
                        Some(_) => tell_down(cells, watcher, down()),
                        None => Told::Nothing,
                    }
                }
            });
        }
        for partner in entry.links.into_keys() {
            let told = {
                let mut shard = self.shard(partner);
                match shard.take(partner, |entry| entry.links.remove(&pid)) {
                    Some(by) => tell_exit(cells, partner, (pid, exit), by),
                    None => Told::Nothing,
                }
            };
            then(told);
        }
    }

    /// How many processes have relations.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// For how many processes there is room.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn capacity(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.capacity()).sum()
    }
}

/// At the end of the runtime, the watchers outside are dropped that have not been told.
impl Drop for Relations {
    fn drop(&mut self) {
        for shard in &self.shards {
            let entries = std::mem::take(&mut lock(shard).entries);
            for (pid, entry) in entries {
                for (id, watcher) in entry.watched_by {
                    let exit = Exit::Terminated(Reason::Shutdown);
                    if let Watcher::Outside(latch) = watcher {
                        drop_contained(latch.set(Down { monitor: Monitor::new(id, pid), pid, exit }));
                    }
                }
            }
        }
    }
}

/// Has a process's end told here. Whether it lives.
fn mark(cells: &impl Cells, pid: Pid) -> bool {
    cells.cell(pid).is_some_and(|cell| cell.relate(pid))
}

fn write_monitor(both: &mut Both<'_>, cells: &impl Cells, watcher: Pid, monitor: Monitor) {
    both.first().of(watcher).watches.insert(monitor.id(), monitor.pid());
    both.second().of(monitor.pid()).watched_by.insert(monitor.id(), Watcher::Process(watcher));
    mark(cells, watcher);
}

fn write_link(both: &mut Both<'_>, cells: &impl Cells, one: Pid, other: Pid) {
    both.first().of(one).link(other, LinkedBy::ME);
    both.second().of(other).link(one, LinkedBy::OTHER);
    mark(cells, one);
}

fn tell_down(cells: &impl Cells, watcher: Pid, down: Down) -> Told {
    let down = Signal::Control(Control::Down(down));
    let told = match cells.cell(watcher) {
        Some(cell) => cell.signal(watcher, down).map_err(|(_, signal)| signal),
        None => Err(down),
    };
    match told {
        Ok(woken) => woken.map_or(Told::Nothing, Told::Woken),
        Err(Signal::Control(control)) => Told::Refused(control),
        Err(Signal::Completed(_)) => Told::Nothing,
    }
}

/// Tells `partner` of the end of one to which it is linked, by a link that these have made.
fn tell_exit(cells: &impl Cells, partner: Pid, (ended, exit): (Pid, &Exit), by: LinkedBy) -> Told {
    let signal = Control::Exit(ExitSignal { pid: ended, exit: exit.clone() }, by);
    let killer = match exit {
        Exit::Done(()) => None,
        // Handed on as it is, so that it names the first one, and no chain of causes grows with the chain of links.
        Exit::Terminated(Reason::Linked(linked)) => Some(linked.clone()),
        exit => Some(LinkedExit::new(ended, exit.clone())),
    };
    let Some(cell) = cells.cell(partner) else { return Told::Refused(signal) };
    // Counted first: a worker that does not see the count yet is in the step that the process may be in.
    cells.dooms().fetch_add(1, Ordering::SeqCst);
    let told = cell.tell_linked(partner, signal, killer);
    if !matches!(told, LinkTold::Doomed(_)) {
        cells.dooms().fetch_sub(1, Ordering::SeqCst);
    }
    match told {
        LinkTold::Trapped(woken) => woken.map_or(Told::Nothing, Told::Woken),
        LinkTold::Doomed(body) => Told::Doomed(partner, body),
        LinkTold::Refused(signal) => Told::Refused(signal),
    }
}

/// A PID is a number that nobody chooses, so a multiplication spreads it well enough.
#[derive(Default)]
struct OfPid(u64);

impl Hasher for OfPid {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(all(test, loom))]
mod models;
