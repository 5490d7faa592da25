//! The state of a world between two turns, as invariants see it.

use std::any::Any;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::delivery::HeldMessages;
use super::entries::Entries;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::Address;
use crate::runtime::dispatch::Core;
use crate::sched::body::{Host as _, Ready};
use crate::sched::cell::view::CellView;

/// The state of a world between two turns. Invariants read it, and change nothing.
///
/// While an invariant runs, the world has locked the processes that the invariant has looked at. A call of the runtime
/// that needs such a process panics, and so the run fails. The run also fails if an invariant sends, spawns, or waits.
pub struct WorldState<'a> {
    cores: &'a [Arc<Core>],
    /// The entries of the world, with the bodies that are ready.
    entries: &'a Entries,
    /// The bodies that wait for a blocking step, by runtime.
    for_pool: &'a [HashMap<u64, Ready>],
    held: &'a HeldMessages,
    views: OnceCell<Vec<ProcessView<'a>>>,
    start: Instant,
    now: Instant,
}

/// A process, and its body unless it is in the cell.
type ProcessView<'a> = (Pid, CellView<'a>, Option<&'a Ready>);

/// A message that waits for its receiver.
#[derive(Debug)]
#[non_exhaustive]
pub struct WaitingMessage<'a, M> {
    /// The sender. `None` if the message was sent from outside.
    pub from: Option<Pid>,
    /// The receiver.
    pub to: Pid,
    /// The message.
    pub message: &'a M,
}

impl std::fmt::Debug for WorldState<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorldState").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl<'a> WorldState<'a> {
    pub(super) fn new(
        cores: &'a [Arc<Core>],
        (entries, for_pool, held): (&'a Entries, &'a [HashMap<u64, Ready>], &'a HeldMessages),
        (start, now): (Instant, Instant),
    ) -> WorldState<'a> {
        WorldState { cores, entries, for_pool, held, views: OnceCell::new(), start, now }
    }

    fn views(&self) -> &Vec<ProcessView<'a>> {
        self.views.get_or_init(|| {
            let mut ready = Vec::with_capacity(self.entries.len());
            self.entries.each_body(|body| ready.push((body.head.pid, body)));
            let for_pool = self.for_pool.iter().flat_map(HashMap::values);
            ready.extend(for_pool.map(|body| (body.head.pid, body)));
            ready.sort_unstable_by_key(|(pid, _)| *pid);
            let used = self.cores.iter().map(|core| core.road.table.used()).sum();
            let mut all = Vec::with_capacity(used);
            for core in self.cores {
                let table = &core.road.table;
                for (slot, cell) in table.cells() {
                    let Some(view) = cell.view() else { continue };
                    let Some(pid) = table.pid(slot, view.generation()) else { continue };
                    let place = ready.binary_search_by_key(&pid, |(pid, _)| *pid);
                    all.push((pid, view, place.ok().map(|place| ready[place].1)));
                }
            }
            all
        })
    }

    /// Returns the living processes of this type, with their PIDs, in the order of the PIDs.
    ///
    /// A process is the state machine itself. That of an actor is an [`ActorProcess`](crate::actor::ActorProcess).
    pub fn processes<P: 'static>(&self) -> impl Iterator<Item = (Pid, &P)> {
        self.views().iter().filter_map(|(pid, view, body)| {
            let process = view.body().or(*body)?.machine.process()?;
            Some((*pid, process.downcast_ref::<P>()?))
        })
    }

    /// Returns this process, if it lives and has this type.
    pub fn process<P: 'static>(&self, pid: Pid) -> Option<&P> {
        let (_, view, body) = self.views().iter().find(|(other, ..)| *other == pid)?;
        view.body().or(*body)?.machine.process()?.downcast_ref()
    }

    /// Returns the messages of this type that no step has taken yet. They wait in a mailbox, or are held.
    pub fn messages<M: 'static>(&self) -> impl Iterator<Item = WaitingMessage<'_, M>> {
        let mut all = Vec::new();
        for (pid, view, body) in self.views() {
            let mut show = |from: Option<Pid>, message| {
                if let Some(message) = <dyn Any>::downcast_ref::<M>(message) {
                    all.push(WaitingMessage { from, to: *pid, message });
                }
            };
            if let Some(body) = view.body().or(*body) {
                body.machine.show_messages(&mut show);
            }
            view.show_inbox(&mut show);
        }
        let held = self.held.iter().filter_map(|((_, from, to), lane)| {
            let (message, _) = lane.look(0)?;
            Some(WaitingMessage { from: Some(*from), to: *to, message: message.downcast_ref()? })
        });
        all.extend(held);
        all.into_iter()
    }

    /// Returns the process that has this name.
    pub fn holder(&self, name: &str) -> Option<Pid> {
        self.cores.iter().find_map(|core| core.holder(name))
    }

    /// Returns the members of this group, in order, each as often as it has joined.
    pub fn members(&self, group: &str) -> Vec<Pid> {
        self.cores.iter().flat_map(|core| core.group(group)).collect()
    }

    /// Returns whether this process lives.
    pub fn is_alive<M>(&self, address: Address<M>) -> bool {
        let pid = address.pid();
        self.views().iter().any(|(other, ..)| *other == pid)
    }

    /// Returns the number of dead letters so far.
    pub fn dead_letters(&self) -> u64 {
        let dead = |core: &Arc<Core>| core.road.outside.dead.iter().map(|count| count.get()).sum::<u64>();
        self.cores.iter().map(dead).sum()
    }

    /// The first process that waits for an answer and has nothing else to do.
    pub(super) fn waiting(&self) -> Option<Pid> {
        self.views().iter().find(|(_, view, _)| view.waits()).map(|(pid, ..)| *pid)
    }

    /// How the messages of a runtime do not add up.
    pub(super) fn unaccounted(&self) -> Option<String> {
        self.cores.iter().find_map(|core| {
            let counters = &core.road.outside;
            let dead: u64 = counters.dead.iter().map(|count| count.get()).sum();
            let queued = self.views().iter().filter(|(pid, ..)| pid.node() == core.road.table.node());
            let queued: u64 = queued.map(|(_, view, _)| u64::from(view.queued())).sum();
            let (accepted, stepped) = (counters.accepted.get(), counters.stepped.get());
            let text = || format!("{accepted} accepted, {stepped} stepped, {dead} dead letters, {queued} queued");
            (accepted != stepped + dead + queued).then(text)
        })
    }

    /// Returns the virtual time since the beginning of the run.
    pub fn now(&self) -> Duration {
        self.since_start(self.now)
    }

    /// The virtual time of this moment.
    pub(super) fn since_start(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }
}
