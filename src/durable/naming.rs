//! Names and groups of durable processes.
//!
//! A process gives itself names and joins groups. Each name and each membership is an entry of the process, in the
//! record of the step that yields it. So the names of a process are there in each run, also while it sleeps, and its
//! last record removes them.
//!
//! The tables of the runtime have the names and the members of all processes, under the PIDs that hold in each run. A
//! start enters those that are stored. A step takes a name there before its record is appended, because a name has one
//! holder. If the record is refused, the name is given back. When the journal has been opened anew, the tables are
//! compared with the disk. A change of a group is told to its subscribers, so it is held as all that leaves the store.

use std::collections::BTreeMap;
use std::mem::take;

use super::contract::Durable;
use super::core::StoreCore;
use super::held::Sorted;
use super::journal::{JournalError, Reader};
use super::machine::DurableMachine;
use super::notice::Notice;
use super::rows::{EventAnswer, GROUPS, NAMED, NAMES};
use super::ties::Ties;
use crate::groups::Doer;
use crate::outcome::{Failure, tell_log};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::{CommandError, Naming};
use crate::runtime::Core;
use crate::sched::body::Yield;
use crate::sched::orders::Order;

/// The names that a step changes.
#[derive(Default)]
pub(super) struct Named {
    /// The ties of the process after the step.
    pub(super) ties: Ties,
    pub(super) answers: Vec<Notice>,
    /// Names that this step has registered in the runtime. The process did not have them before.
    taken: Vec<Arc<str>>,
    /// Names that this step has unregistered in the runtime.
    freed: Vec<Arc<str>>,
}

impl Named {
    /// Takes the changes of the tables back.
    pub(super) fn undo(self, store: &StoreCore, pid: Pid) {
        let Some(core) = store.core() else { return };
        self.taken.iter().filter(|name| core.names.holder(name) == Some(pid)).for_each(|name| {
            core.names.unregister(name);
        });
        // Another process may have it already. Then this one has lost it until the next start.
        self.freed.iter().for_each(|name| drop(core.names.register(name, pid, || true)));
    }
}

impl<P: Durable> DurableMachine<P> {
    /// Performs the changes of names that a step has yielded, as far as they concern this process.
    pub(super) fn change_names(&self, sorted: &mut Sorted) -> Named {
        let mut named = Named { ties: self.ties.clone(), ..Named::default() };
        let (me, serial) = (self.resident.pid, self.resident.serial);
        let Some(core) = self.store.core() else { return named };
        for (tag, naming) in take(&mut sorted.namings) {
            let mut stays = None;
            match naming {
                Naming::Register { name, .. } => {
                    let had = core.names.holder(&name) == Some(me);
                    match core.names.register(&name, me, || true) {
                        Ok(()) => {
                            if named.ties.find(NAMES, &name).is_none() {
                                named.ties.names.insert((NAMES, tag), name.to_string());
                            }
                            let answer = Ok(Box::new(()) as _);
                            named.answers.push(Notice::own(serial, tag, EventAnswer::Named, answer));
                            named.taken.extend((!had).then_some(name));
                        }
                        Err(why) => {
                            let why = Box::new(CommandError::Failed(Failure::new(why)));
                            stays = Some(Yield::Refused { tag, why });
                        }
                    }
                }
                Naming::Unregister { name } => {
                    named.ties.find(NAMES, &name).into_iter().for_each(|key| drop(named.ties.names.remove(&key)));
                    core.names.unregister(&name);
                    let stored = EventAnswer::Unregistered(serial);
                    named.answers.push(Notice::own(serial, tag, stored, Ok(Box::new(Some(me)))));
                    named.freed.push(name);
                }
                Naming::Join { group, .. } if group.is_empty() => {
                    stays = Some(Yield::Naming { tag, naming: Box::new(Naming::Join { group, pid: me }) });
                }
                Naming::Join { group, .. } => {
                    named.ties.names.insert((GROUPS, tag), group.to_string());
                    named.answers.push(Notice::performed(serial, tag, EventAnswer::Named));
                    stays = Some(Yield::Naming { tag, naming: Box::new(Naming::Join { group, pid: me }) });
                }
                Naming::Leave { group, .. } => {
                    if let Some(key) = named.ties.find(GROUPS, &group) {
                        named.ties.names.remove(&key);
                        named.answers.push(Notice::performed(serial, tag, EventAnswer::Left));
                    }
                    stays = Some(Yield::Naming { tag, naming: Box::new(Naming::Leave { group, pid: me }) });
                }
            }
            if let Some(one) = stays {
                sorted.held.orders.push(Order::Next);
                sorted.held.yields.push(one);
            }
        }
        named
    }
}

impl StoreCore {
    /// Brings the names and the groups of the runtime to those on disk, for the processes of the store.
    pub(super) fn settle_names(&self, core: &Arc<Core>, reader: &mut dyn Reader) -> Result<(), JournalError> {
        let mut serials: Vec<u64> =
            reader.due(NAMED, NAMED, usize::MAX >> 1)?.into_iter().map(|(_, serial, ..)| serial).collect();
        serials.sort_unstable();
        serials.dedup();
        let (mut names, mut groups) = (BTreeMap::new(), BTreeMap::<(String, Pid), usize>::new());
        for serial in serials {
            let Some(pid) = self.ticket(serial) else { continue };
            for (class, _, row) in reader.entries(serial)? {
                let name = || String::from_utf8_lossy(&row.body).into_owned();
                match class {
                    NAMES => _ = names.insert(name(), pid),
                    GROUPS => *groups.entry((name(), pid)).or_default() += 1,
                    _ => {}
                }
            }
        }
        let is_ours = |pid: &Pid| pid.node() == self.run.store;
        for (pid, held) in core.names.all().into_iter().filter(|(pid, _)| is_ours(pid)) {
            held.iter()
                .filter(|name| names.get(&***name) != Some(&pid))
                .for_each(|name| _ = core.names.unregister(name));
        }
        for (name, pid) in names {
            if let Err(error) = core.names.register(&Arc::from(&*name), pid, || true) {
                tell_log(|| tracing::warn!(%pid, name, %error, "a durable process has lost its name"));
            }
        }
        let executor = &mut core.executor();
        for group in core.groups.all() {
            for pid in core.groups.members(&group).into_iter().filter(is_ours) {
                match groups.get_mut(&(group.to_string(), pid)) {
                    // This membership is there already.
                    Some(left @ 1..) => *left -= 1,
                    _ => _ = core.leave_group(&group, pid, Doer::Another, executor),
                }
            }
        }
        for ((group, pid), times) in groups {
            (0..times).for_each(|_| drop(core.join_group(&Arc::from(&*group), pid, Doer::Another, executor)));
        }
        Ok(())
    }
}
