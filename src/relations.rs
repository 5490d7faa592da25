//! Monitors and links: relations by which a process is notified of another's end.
//!
//! **State.** Each relation has two *halves*. They are kept in a table by PID, which has shards with a lock each. Take
//! a monitor: W watches T. The entry of W has the half "watches T", and the entry of T has the half "is watched by W".
//! A link between A and B has B's PID in the entry of A, and A's PID in the entry of B. A watcher outside of the
//! runtime has no PID. It has only the half in the entry of T. A half of a link also says which end has made the link.
//! A second link between the same processes changes nothing. A process that is *run* by its parent has the halves of a
//! monitor of its parent, with a mark in their number ([`RUN`]). It is told the parent's end as a link tells it, and
//! the parent is not told its end. A process's cell has a mark if the process may have halves here. So processes
//! without relations are never looked up.
//!
//! **Each event is sent once**, because it needs a half. The half in the entry of the receiver is the right to send the
//! event. The thread that removes this half puts the event into the receiver's mailbox, or decides that there is no
//! event. It does so in the same critical section of the shard, under the lock of the receiver's cell. So at any moment
//! a relation is in the table, or its event is in the mailbox, or it is over. No event is on its way.
//!
//! The operations, each with its thread and its locks:
//!
//! - **monitor, link**: by the owner of W's (A's) body, under both shards. If the other process lives, marks its cell
//!   and writes both halves. Otherwise notifies W (A) at once that there is no such process.
//! - **bond**: by the owner of the parent's body, under both shards. Writes both halves before the child is in the
//!   table of processes. The child begins with the mark.
//! - **demonitor, unlink**: by the owner of W's (A's) body, under both shards. Takes both halves out. If an event may
//!   have been told, takes it out of the mailbox in hand, or out of the cell's.
//! - **end**: by the last owner of the body, under one shard after the other. Vacates the cell, which says whether it
//!   has the mark. Takes all halves of the ended process. Then, for each partner, takes the partner's half, and
//!   notifies the partner if the half was still there.
//! - **recovery**: by the owner of the body, under its own shard, then under both, for one partner after the other.
//!   See `relations/recovering.rs`.
//!
//! **Why an end is reported exactly once.** Take a monitor of T and T's end. If the cell is marked before it is
//! vacated, the end sees the mark. The halves are written under the lock under which the cell was marked, so the end
//! finds them. If the cell is vacated first, the mark is refused, and W is notified at once that there is no such
//! process. There is no third case. Of a demonitor and the end, one takes the half of W first. Either W gets no event,
//! or the event is in W's mailbox when the demonitor finds no half. Then the demonitor takes the event out there.
//!
//! **Why nothing is left over.** Halves are written only while both processes live. The end of either takes its own
//! halves out, and those of its partners. No thread writes new ones, because the cell is vacant.
//!
//! **Locks.** A thread locks at most two shards, the lower one first. It may then lock a cell, and no other lock after
//! that. Drops, wake-ups and calls are carried out when all locks are free: see [`Told`].

#[cfg(feature = "cluster")]
mod between_nodes;
mod recovering;

#[cfg(feature = "cluster")]
pub(crate) use self::between_nodes::LinkEnd;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::latch::Latch;
use crate::outcome::{Exit, LinkedExit, Reason, drop_contained};
use crate::primitives::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::process::{Bond, CancelRequest, Down, ExitSignal, LinkedBy, Monitor, ParentEndPolicy, Pid};
use crate::sched::body::Ready;
use crate::sched::cell::{Cell, LinkTold};
use crate::sched::mailbox::{Control, Signal, Unwanted};
use crate::sched::non_local::{LinkChange, NonLocal};

/// The number of shards, a power of two. There are few under the model checker, so that two processes can share one.
const SHARDS: usize = if cfg!(loom) { 2 } else { 64 };

/// The room, in entries, up to which a shard keeps its memory. A larger one releases memory when it has lost most of
/// its entries.
const KEPT: usize = 256;

/// All relations of a runtime.
pub(crate) struct Relations {
    shards: Box<[Mutex<Shard>]>,
}

/// The access of relations to processes.
pub(crate) trait Cells {
    /// The cell of a PID. Its process may live, may have ended, or may not have begun.
    fn cell(&self, pid: Pid) -> Option<&Cell>;

    /// The number of processes that are doomed and whose end has not begun.
    fn dooms(&self) -> &AtomicUsize;

    /// Reaches this process, if it lives elsewhere.
    fn elsewhere(&self, pid: Pid) -> Option<&dyn NonLocal> {
        let _ = pid;
        None
    }
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
    /// A child that the watched process runs. It is told the end of that process as the policy says.
    Child(Pid, ParentEndPolicy),
}

/// The mark in the number of a relation between a child and the process that runs it. No monitor has it, and it is
/// greater than the number of any monitor.
const RUN: u64 = 1 << 63;

/// An action that is carried out when all locks are free.
#[must_use]
pub(crate) enum Told {
    Nothing,
    /// This process was woken.
    Woken(Ready),
    /// This process is to be ended. If it was at rest, its body is here.
    Doomed(Pid, Option<Ready>),
    /// The receiver does not take the event. The event is to be dropped.
    Refused(Control),
    /// The exit of a process is to be handed over to a process on another node.
    #[cfg(feature = "cluster")]
    Elsewhere(Pid, Control),
    /// A watcher outside of the runtime is to be notified.
    Outside(Latch<Down>, Down),
}

impl Entry {
    /// Notes that this end, or the other, has made a link.
    fn link(&mut self, other: Pid, by: LinkedBy) {
        // In most cases there is no link yet.
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

    /// Takes a part out of an entry. Removes the entry if it is empty then.
    fn take<R>(&mut self, pid: Pid, take: impl FnOnce(&mut Entry) -> Option<R>) -> Option<R> {
        let entry = self.entries.get_mut(&pid)?;
        let taken = take(entry);
        if entry.is_empty() {
            self.remove(pid);
        }
        taken
    }

    /// As `take`, for a process that may live elsewhere. Nobody watches it when its last half is gone.
    fn take_of<R>(&mut self, cells: &impl Cells, pid: Pid, take: impl FnOnce(&mut Entry) -> Option<R>) -> Option<R> {
        let taken = self.take(pid, take);
        if let Some(elsewhere) = cells.elsewhere(pid)
            && !self.entries.contains_key(&pid)
        {
            elsewhere.unwatch(pid);
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

/// The locked shards of two processes. They may be the same shard.
struct Both<'a> {
    one: MutexGuard<'a, Shard>,
    two: Option<MutexGuard<'a, Shard>>,
    /// Whether `one` is the shard of the first process.
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

    /// Begins a monitor. The body of `watcher` is in hand.
    pub(crate) fn monitor(&self, cells: &impl Cells, watcher: Pid, monitor: Monitor) -> Told {
        let target = monitor.pid();
        let mut both = self.both(watcher, target);
        if !mark(cells, target) {
            return tell_down(cells, watcher, missing(cells, monitor));
        }
        write_monitor(&mut both, cells, watcher, monitor);
        Told::Nothing
    }

    /// Begins a watch from outside.
    pub(crate) fn watch(&self, cells: &impl Cells, monitor: Monitor, latch: Latch<Down>) -> Told {
        let target = monitor.pid();
        let mut shard = self.shard(target);
        if !mark(cells, target) {
            return Told::Outside(latch, missing(cells, monitor));
        }
        shard.of(target).watched_by.insert(monitor.id(), Watcher::Outside(latch));
        Told::Nothing
    }

    /// Ends a watch from outside.
    pub(crate) fn unwatch(&self, cells: &impl Cells, monitor: Monitor) {
        let mut shard = self.shard(monitor.pid());
        let watcher = shard.take_of(cells, monitor.pid(), |entry| entry.watched_by.remove(&monitor.id()));
        drop(shard);
        drop(watcher);
    }

    /// Ends a monitor. Returns whether its event had not been sent. If it was sent, it is in the watcher's mailbox, or
    /// a step has taken it.
    pub(crate) fn demonitor(&self, cells: &impl Cells, watcher: Pid, monitor: Monitor) -> bool {
        let mut both = self.both(watcher, monitor.pid());
        let untold = both.first().take(watcher, |entry| entry.watches.remove(&monitor.id())).is_some();
        if untold {
            both.second().take_of(cells, monitor.pid(), |entry| entry.watched_by.remove(&monitor.id()));
        }
        untold
    }

    /// Links two processes. The body of `one` is in hand.
    pub(crate) fn link(&self, cells: &impl Cells, one: Pid, other: Pid) -> Told {
        if one == other {
            return Told::Nothing;
        }
        let mut both = self.both(one, other);
        if !mark_linked(cells, one, other) {
            tell_change(cells, one, LinkChange { other, begins: true, by_me: true });
            if both.first().entries.get(&one).is_some_and(|entry| entry.links.contains_key(&other)) {
                // It was linked before. The exit that is about to be told has the real reason.
                return Told::Nothing;
            }
            let exit = Exit::Terminated(why_missing(cells, other));
            return tell_exit(cells, one, (other, &exit), LinkedBy::ME);
        }
        write_link(&mut both, cells, one, other);
        Told::Nothing
    }

    /// Removes a link, if there is one. The body of `one` is in hand. Returns whether there was a link, and the event
    /// of the other process that may be in the mailbox.
    pub(crate) fn unlink(&self, cells: &impl Cells, one: Pid, other: Pid) -> (bool, Option<Unwanted>) {
        let mut both = self.both(one, other);
        let linked = both.first().take(one, |entry| entry.links.remove(&other)).is_some();
        tell_change(cells, one, LinkChange { other, begins: false, by_me: true });
        if linked {
            both.second().take_of(cells, other, |entry| entry.links.remove(&one));
            if let Some(elsewhere) = cells.elsewhere(other) {
                elsewhere.unlink(one, other);
            }
            tell_change(cells, other, LinkChange { other: one, begins: false, by_me: false });
        }
        let told = cells.cell(other).map_or(Some(Unwanted::Exit(other)), |cell| cell.may_have_told(other));
        (linked, told)
    }

    /// Relates a child to its parent. The child is not in the table of processes yet, and the parent's body is in
    /// hand.
    pub(crate) fn bond(&self, cells: &impl Cells, child: Pid, bond: Bond) {
        if let Some(monitor) = bond.monitor {
            write_monitor(&mut self.both(bond.watcher, child), cells, bond.watcher, monitor);
        }
        if bond.link {
            write_link(&mut self.both(bond.parent, child), cells, bond.parent, child);
        }
        if let Some((number, policy)) = bond.run
            && policy != ParentEndPolicy::Leave
        {
            let mut both = self.both(bond.parent, child);
            both.second().of(child).watches.insert(RUN | number, bond.parent);
            both.first().of(bond.parent).watched_by.insert(RUN | number, Watcher::Child(child, policy));
            mark(cells, bond.parent);
        }
    }

    /// Tells each partner of a process that has ended and whose cell is vacant.
    pub(crate) fn ended(&self, cells: &impl Cells, pid: Pid, exit: &Exit, mut then: impl FnMut(Told)) {
        let Some(entry) = self.shard(pid).remove(pid) else { return };
        for (id, target) in entry.watches {
            let watcher = self.shard(target).take_of(cells, target, |entry| entry.watched_by.remove(&id));
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
                Watcher::Child(child, policy) => self.end_run(cells, id, (child, policy), (pid, exit)),
            });
        }
        for partner in entry.links.into_keys() {
            let told = {
                let mut shard = self.shard(partner);
                match shard.take_of(cells, partner, |entry| entry.links.remove(&pid)) {
                    Some(by) => tell_exit(cells, partner, (pid, exit), by),
                    None => Told::Nothing,
                }
            };
            then(told);
        }
    }

    /// Tells a child that the process that runs it has ended, or has failed and recovers.
    fn end_run(
        &self,
        cells: &impl Cells,
        id: u64,
        (child, policy): (Pid, ParentEndPolicy),
        parent: (Pid, &Exit),
    ) -> Told {
        let mut shard = self.shard(child);
        match shard.take(child, |entry| entry.watches.remove(&id)) {
            Some(_) if policy == ParentEndPolicy::Cancel => {
                tell(cells, child, Control::Cancel(CancelRequest { reason: Reason::Ended, deadline: None }))
            }
            Some(_) => tell_linked(cells, child, parent, LinkedBy::OTHER, Some(killer(parent))),
            None => Told::Nothing,
        }
    }

    /// Tells a process the end of one that has linked itself to it in its last step.
    #[cfg(feature = "durable")]
    pub(crate) fn linked_last(&self, cells: &impl Cells, partner: Pid, ended: (Pid, &Exit)) -> Told {
        let _shard = self.shard(partner);
        tell_exit(cells, partner, ended, LinkedBy::OTHER)
    }

    /// The processes to which this one is linked.
    #[cfg(feature = "durable")]
    pub(crate) fn links(&self, pid: Pid) -> Vec<(Pid, LinkedBy)> {
        let shard = self.shard(pid);
        let links = shard.entries.get(&pid).into_iter().flat_map(|entry| &entry.links);
        links.map(|(other, by)| (*other, *by)).collect()
    }

    /// The numbers of monitors of a process, and of its links.
    #[cfg(feature = "console")]
    pub(crate) fn counts(&self, pid: Pid) -> (usize, usize) {
        self.shard(pid).entries.get(&pid).map_or((0, 0), |entry| (entry.watched_by.len(), entry.links.len()))
    }

    /// Whether a process is linked to this other one.
    #[cfg(all(test, feature = "cluster", not(loom)))]
    pub(crate) fn is_linked_to(&self, pid: Pid, other: Pid) -> bool {
        self.shard(pid).entries.get(&pid).is_some_and(|entry| entry.links.contains_key(&other))
    }

    /// The number of processes that have relations.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// The number of processes for which there is room.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn capacity(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.capacity()).sum()
    }
}

/// Tells the end of the runtime to the watchers outside that have not been told.
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

/// Marks a process, so that its end is told here. Returns whether it lives.
pub(crate) fn mark(cells: &impl Cells, pid: Pid) -> bool {
    match cells.cell(pid) {
        Some(cell) => cell.relate(pid),
        None => cells.elsewhere(pid).is_some_and(|elsewhere| elsewhere.watch(pid)),
    }
}

/// As `mark`, for a process to which `one` links itself.
fn mark_linked(cells: &impl Cells, one: Pid, other: Pid) -> bool {
    match (cells.cell(other), cells.elsewhere(other)) {
        (None, Some(elsewhere)) => elsewhere.link(one, other),
        _ => mark(cells, other),
    }
}

fn why_missing(cells: &impl Cells, pid: Pid) -> Reason {
    cells.elsewhere(pid).map_or(Reason::NoSuchProcess, |elsewhere| elsewhere.why_missing(pid))
}

fn missing(cells: &impl Cells, monitor: Monitor) -> Down {
    Down { monitor, pid: monitor.pid(), exit: Exit::Terminated(why_missing(cells, monitor.pid())) }
}

fn write_monitor(both: &mut Both<'_>, cells: &impl Cells, watcher: Pid, monitor: Monitor) {
    both.first().of(watcher).watches.insert(monitor.id(), monitor.pid());
    both.second().of(monitor.pid()).watched_by.insert(monitor.id(), Watcher::Process(watcher));
    if !mark(cells, watcher) && cells.elsewhere(watcher).is_some() {
        // It has ended meanwhile. A watcher that lives here is in hand.
        both.first().take(watcher, |entry| entry.watches.remove(&monitor.id()));
        both.second().take(monitor.pid(), |entry| entry.watched_by.remove(&monitor.id()));
    }
}

fn write_link(both: &mut Both<'_>, cells: &impl Cells, one: Pid, other: Pid) {
    both.first().of(one).link(other, LinkedBy::ME);
    both.second().of(other).link(one, LinkedBy::OTHER);
    tell_change(cells, one, LinkChange { other, begins: true, by_me: true });
    if !mark(cells, one) && cells.elsewhere(one).is_some() {
        both.first().take(one, |entry| entry.links.remove(&other));
        both.second().take(other, |entry| entry.links.remove(&one));
        return;
    }
    tell_change(cells, other, LinkChange { other: one, begins: true, by_me: false });
}

/// Tells a process that lives elsewhere of the change of a link.
fn tell_change(cells: &impl Cells, pid: Pid, change: LinkChange) {
    if cells.cell(pid).is_none()
        && let Some(elsewhere) = cells.elsewhere(pid)
    {
        elsewhere.linked(pid, change);
    }
}

fn tell_down(cells: &impl Cells, watcher: Pid, down: Down) -> Told {
    tell(cells, watcher, Control::Down(down))
}

/// Puts a signal into the mailbox of a process.
pub(crate) fn tell(cells: &impl Cells, to: Pid, control: Control) -> Told {
    let signal = Signal::Control(control);
    let told = match cells.cell(to) {
        Some(cell) => cell.signal(to, signal).map_err(|(_, signal)| signal),
        None => signal_elsewhere(cells, to, signal).map(|()| None),
    };
    match told {
        Ok(woken) => woken.map_or(Told::Nothing, Told::Woken),
        Err(Signal::Control(control)) => Told::Refused(control),
        Err(Signal::Completed(_)) => Told::Nothing,
    }
}

/// Hands a signal over to a process that lives elsewhere.
#[cold]
fn signal_elsewhere(cells: &impl Cells, to: Pid, signal: Signal) -> Result<(), Signal> {
    match cells.elsewhere(to) {
        Some(elsewhere) => elsewhere.signal(to, signal).map_err(|(_, signal)| signal),
        None => Err(signal),
    }
}

/// Tells `partner` the end of a process to which it is linked. `by` has the makers of the link.
fn tell_exit(cells: &impl Cells, partner: Pid, ended: (Pid, &Exit), by: LinkedBy) -> Told {
    let killer = (!matches!(ended.1, Exit::Done(()))).then(|| killer(ended));
    tell_linked(cells, partner, ended, by, killer)
}

/// The cause of the end of a process that ends with this one.
fn killer((ended, exit): (Pid, &Exit)) -> LinkedExit {
    match exit {
        // Passed on unchanged. So it names the first process, and the chain of causes does not grow with the chain of
        // links.
        Exit::Terminated(Reason::Linked(linked)) => linked.clone(),
        exit => LinkedExit::new(ended, exit.clone()),
    }
}

/// Tells `partner` the end of another process. If it does not trap exits, it is ended by the `killer`, if there is one.
fn tell_linked(
    cells: &impl Cells,
    partner: Pid,
    (ended, exit): (Pid, &Exit),
    by: LinkedBy,
    killer: Option<LinkedExit>,
) -> Told {
    let signal = Control::Exit(ExitSignal { pid: ended, exit: exit.clone() }, by);
    let Some(cell) = cells.cell(partner) else {
        #[cfg(feature = "cluster")]
        if cells.elsewhere(partner).is_some_and(|elsewhere| elsewhere.shows_errors()) {
            return Told::Elsewhere(partner, signal);
        }
        // There it is decided whether the partner traps exits.
        return match signal_elsewhere(cells, partner, Signal::Control(signal)) {
            Err(Signal::Control(signal)) => Told::Refused(signal),
            Err(Signal::Completed(_)) | Ok(()) => Told::Nothing,
        };
    };
    // Counted first. A worker that does not see the count yet is in the step that the process may be in.
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

/// The program does not choose PIDs, so a multiplication spreads them well enough.
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
