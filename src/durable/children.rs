//! Children of durable processes: they are begun by the record of the step that runs them, and answer with their end.
//!
//! A step yields a child as any process does. If the store knows its type, the machine takes the yield out, and the
//! record of the step has the child as well: its row, and an entry of its parent with the tag of the command. The last
//! record of the child has its answer, as an entry of its parent. `notice.rs` says how the answer arrives once.

use std::any::{Any, TypeId, type_name};
use std::collections::HashSet;

use super::contract::Durable;
use super::core::{Kind, StepError, StoreCore};
use super::journal::{Change, Position};
use super::loaded::{Loaded, body_of};
use super::machine::DurableMachine;
use super::new_child::{ChildType, NewChild, StoredNewChild};
use super::notice::{Notice, Notified, ORDER, end_of_parent};
use super::residency::{Place, Residence, Resident, Taken};
use super::rows::{
    self, ANSWERS, DOWNS, DownExit, EventAnswer, Order, StoredChild, StoredEvent, StoredExit, StoredHead, StoredParent,
    WATCHERS,
};
use super::tail::Life;
use crate::outcome::{BoxError, Failure, Reason, contain, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{Answer, CommandError};
use crate::runtime::Core;
use crate::sched::body::Ready;
use crate::sched::machine::Typed;

/// A new process that was brought into memory, or could not be.
#[must_use]
pub(super) struct Installed<P: Durable> {
    serial: u64,
    made: Made,
    /// Dropped when no lock is held.
    needless: (Option<Ready>, Option<Loaded<P>>),
}

enum Made {
    Body(Ready),
    /// Another thread has the process, or the process no longer exists.
    Nothing,
    /// The process has run already, and is not in memory now.
    Loads,
    NoRoom,
}

impl ChildType {
    pub(super) fn of<P: Durable>() -> ChildType {
        ChildType {
            process: TypeId::of::<P>(),
            machine: TypeId::of::<Typed<P>>(),
            has_entry: |machine| machine.downcast_ref::<Typed<P>>().is_none_or(|typed| typed.entry().is_some()),
            encode: |run, machine| {
                let process = machine.downcast_ref::<Typed<P>>().and_then(Typed::process);
                let process = process.ok_or_else(|| Failure::from(BoxError::from("the child has no state")))?;
                Ok((P::FORMAT, rows::encode_state(run, process)?))
            },
            decode_output: |format, output| Ok(Box::new(format.decode::<P::Output>(output)?)),
        }
    }
}

/// Begins a child that is stored. Its body becomes the one of a resident, in the same place of the table.
pub(super) fn begin_child<P: Durable>(store: &Arc<StoreCore>, mut child: NewChild, (life, position): (Life, Position)) {
    let process = (&mut child.ready.machine as &mut dyn Any).downcast_mut::<Typed<P>>().and_then(Typed::take_process);
    let local = child.ready.head.pid;
    let (Some(process), Some(StoredNewChild { serial, head, state, residence }), Some(core)) =
        (process, child.stored, store.core())
    else {
        return;
    };
    // The duty to answer as an ordinary process ends here, without an answer.
    drop_contained(child.ready);
    let Some(pid) = store.ticket(serial) else { return };
    let resident = Resident::new((serial, pid), life, (TypeId::of::<P::Message>(), type_name::<P::Message>));
    let loaded = Loaded::new(process, state, head, position);
    let installed = store.install_new(&core, resident, loaded, (Some(local), position, residence));
    store.began(installed);
}

impl StoreCore {
    /// The type of a child that can be stored.
    pub(super) fn child_type(&self, ready: &Ready) -> Option<&Kind> {
        let machine = (&ready.machine as &dyn Any).type_id();
        self.kinds.values().find(|kind| kind.child.machine == machine)
    }

    /// Brings a process that has just begun into memory. `local` is its place in the table, if it has one. `known`
    /// is the residence that it had before its record was appended.
    ///
    /// Its record is in the tail already. So another thread may have found it meanwhile: that thread loads it, or the
    /// process has run since. Then this state is out of date. A process that has run, and is not in memory now, is
    /// loaded. A process is in memory once.
    pub(super) fn install_new<P: Durable>(
        &self,
        core: &Arc<Core>,
        resident: Arc<Resident>,
        loaded: Loaded<P>,
        (local, position, known): (Option<Pid>, Position, Arc<Mutex<Residence>>),
    ) -> Installed<P> {
        let (serial, life) = (resident.serial, resident.life);
        let (mut refused, mut loaded, mut local) = (None, Some(loaded), local);
        let made = self.residency.enter_this(serial, |this, residence| {
            let is_unknown = residence.left_behind.is_none() && Arc::ptr_eq(this, &known);
            if matches!(residence.place, Place::Asleep | Place::Loading) {
                // A load waits until the tables have this record, and the later ones of the process.
                let later = residence.left_behind.filter(|(of, at)| *of == life && *at > position);
                residence.left_behind = Some(later.unwrap_or((life, position)));
            }
            // Another thread looked for the process before its record was on disk, and found nothing.
            let is_passed_over = matches!(residence.place, Place::Nobody) && is_unknown;
            let (true, Some(me)) = (is_passed_over || matches!(residence.place, Place::Asleep), self.me.upgrade())
            else {
                return Made::Nothing;
            };
            if !is_unknown {
                residence.place = Place::Loading;
                return Made::Loads;
            }
            let made = local.take().or_else(|| core.vacancy()).and_then(|vacancy| {
                // The process is a user's value. If there is no room, it is dropped later, without the lock.
                let loaded = loaded.take()?;
                let _ = resident.local.set(vacancy);
                let body = body_of(me, resident.clone(), loaded, (vacancy, &HashSet::new()));
                core.install_body(body.body).map_err(|body| refused = Some(body)).ok()
            });
            if made.is_some() {
                self.keeper.came();
            }
            residence.place = if made.is_some() { Place::Resident(resident.clone()) } else { Place::Loading };
            made.map_or(Made::NoRoom, Made::Body)
        });
        if let Some(local) = local {
            core.road.table.give_back_after(local);
        }
        Installed { serial, made, needless: (refused, loaded) }
    }

    /// Forgets the residences of children that do not begin, because their record was not appended.
    pub(super) fn forget_children(&self, children: &[NewChild]) {
        let stored = children.iter().filter_map(|child| child.stored.as_ref());
        stored.for_each(|child| self.residency.forget_unknown(child.serial));
    }

    /// Begins a process that was brought into memory. It calls observers, and so it needs that no lock is held.
    pub(super) fn began<P: Durable>(&self, installed: Installed<P>) {
        let Installed { serial, made, needless } = installed;
        if let Some(core) = self.core() {
            match made {
                Made::Body(body) => core.began_body(body),
                Made::Nothing => {}
                Made::Loads => self.start_load(&core, serial),
                // It begins when there is room for it.
                Made::NoRoom => self.load_later(&core, serial),
            }
        }
        drop_contained(needless);
    }

    /// Reads the answer to a command.
    pub(super) fn answer_of(&self, stored: &EventAnswer) -> Result<Answer, BoxError> {
        match stored {
            EventAnswer::Named => Ok(Ok(Box::new(()))),
            EventAnswer::Unregistered(serial) => Ok(Ok(Box::new(self.ticket(*serial)))),
            EventAnswer::Requested => Ok(Ok(Box::new(true))),
            EventAnswer::Left => Ok(Ok(Box::new(true))),
            EventAnswer::Cancelled => Ok(Err(CommandError::Cancelled(Reason::Cancelled))),
            EventAnswer::Child { kind, format, exit: StoredExit::Done(output), .. } => {
                let kind = self.kinds.get(&**kind).ok_or_else(|| format!("the program does not know {kind:?}"))?;
                let (decoded, _) = self.run.code(|| contain(|| (kind.child.decode_output)(*format, output)));
                Ok(Ok(decoded.unwrap_or_else(|panic| Err(Box::new(panic)))?))
            }
            EventAnswer::Child { serial, exit, .. } => {
                let pid = self.ticket(*serial).ok_or("the serial number of a child is out of range")?;
                Ok(Err(CommandError::ChildExit { pid, exit: exit.exit(self.run) }))
            }
            EventAnswer::Reply { name, value } => self.reply_of(name, value),
            EventAnswer::NoReply(why) => self.error_of(*why),
        }
    }

    /// Finishes the delivery of a notice that was made in this life. No lock of a residence is held.
    pub(super) fn notified(
        &self,
        core: &Arc<Core>,
        life: Life,
        (maker, to): (u64, u64),
        (class, number): (u8, u64),
        notified: Notified,
    ) {
        match notified {
            Notified::Kept => {}
            Notified::Sleeps(left_behind) => self.sleeps_on(to, left_behind),
            Notified::Woke(ready) => core.road.inject(ready),
            Notified::Loads => self.start_load(core, to),
            Notified::Refused(completion) => drop_contained(completion),
            Notified::Nobody if class == WATCHERS => {
                self.tell_watchers(core, vec![(number, maker)], (to, DownExit::NoSuchProcess))
            }
            Notified::Nobody if class == rows::LINKS => {
                self.tell_linked(core, vec![maker], (to, DownExit::NoSuchProcess));
            }
            // A later life may have made the event again.
            Notified::Nobody => self.remove_in(life, vec![rows::answered(to, class, number)]),
        }
    }
}

/// The part of a step's record that concerns children and stored events.
impl<P: Durable> DurableMachine<P> {
    /// The rows of children that begin.
    pub(super) fn begin_children(&self, children: &mut [NewChild]) -> Result<Vec<Change>, StepError> {
        let (parent, mut changes) = (self.resident.serial, Vec::new());
        for child in children {
            let Some(kind) = self.store.child_type(&child.ready) else { continue };
            let limits = (self.store.run, self.store.settings.largest_state);
            let (format, state) = (kind.child.encode)(limits, &child.ready.machine as &dyn Any)?;
            let serial = self.store.number().map_err(|_| StepError::Rewound)?;
            let mut head = StoredHead::new(format, None, self.store.wall_millis());
            head.parent = Some(StoredParent { serial: parent, tag: child.tag });
            changes.push(Change::Process { serial, row: Some(head.row(kind.name, kind.version, state.clone())?) });
            changes.push(rows::child(parent, child.tag, &StoredChild { serial, at_end: child.at_end })?);
            let residence = self.store.residency.of(serial);
            child.stored = Some(StoredNewChild { serial, head, state, residence });
        }
        Ok(changes)
    }

    /// The keys of the stored events that a step has taken.
    pub(super) fn taken_events(&self, taken: &Taken) -> Vec<(u8, u64)> {
        let events = lock(&self.resident.events);
        if events.is_empty() {
            return Vec::new();
        }
        let answers = taken.answers.iter().map(|tag| (ANSWERS, *tag)).filter(|key| events.contains_key(key));
        let mut keys: Vec<(u8, u64)> = answers.collect();
        let is_done = match events.get(&ORDER) {
            Some(StoredEvent::Order(Order::Cancel)) => taken.cancels.contains(&end_of_parent()),
            Some(StoredEvent::Order(Order::Leave)) => true,
            _ => false,
        };
        keys.extend(is_done.then_some(ORDER));
        let downs = taken.downs.iter().map(|down| (DOWNS, down.monitor.id()));
        keys.extend(downs.filter(|key| events.contains_key(key)));
        // The half is still there if the other one had ended before.
        let exits = taken.exits.iter().filter_map(|exit| self.store.number_of(exit.pid));
        let exits = exits.flat_map(|other| [(rows::EXITS, other), (rows::LINKS, other)]);
        keys.extend(exits.filter(|key| events.contains_key(key)));
        keys
    }

    /// The parent that waits for the output, if there is one.
    pub(super) fn wanted_by(&self) -> Option<StoredParent> {
        self.stored.parent.filter(|_| !lock(&self.resident.events).contains_key(&ORDER))
    }

    /// The notices of this step to other processes of the store, and to the process itself.
    pub(super) fn notices(&self, taken: &Taken, cancelled: &[u64], exit: Option<&StoredExit>) -> Vec<Notice> {
        let own = self.resident.serial;
        let open = self.ties.children.iter().filter(|(tag, _)| !taken.answers.contains(tag));
        let Some(exit) = exit else {
            let cancelled = open.filter(|(tag, _)| cancelled.contains(tag));
            let told = cancelled.flat_map(|(tag, child)| {
                let answer = Err(CommandError::Cancelled(Reason::Cancelled));
                let own = Notice::own(own, *tag, EventAnswer::Cancelled, answer);
                [Notice::order(child.serial, *tag, Order::Terminate), own]
            });
            return told.collect();
        };
        let mut notices: Vec<_> = open.map(|(tag, child)| Notice::order(child.serial, *tag, child.at_end)).collect();
        // If the parent does not want the answer any more, that is seen under the lock.
        if let Some(parent) = self.stored.parent {
            let kind = P::NAME.to_owned();
            let stored = EventAnswer::Child { serial: own, kind, format: P::FORMAT, exit: exit.clone() };
            let answer = self.store.answer_of(&stored).unwrap_or_else(|error| Err(CommandError::failed(error)));
            notices.push(Notice::of_child((parent.serial, parent.tag), stored, (self.resident.pid, answer)));
        }
        notices
    }

    /// Begins the children of a step that is stored, and forgets the stored events that it has taken.
    pub(super) fn settle_children(&mut self, children: Vec<NewChild>, taken: &[u64], events: &[(u8, u64)]) {
        taken.iter().for_each(|tag| _ = self.ties.children.remove(tag));
        {
            let mut stored = lock(&self.resident.events);
            events.iter().for_each(|key| _ = stored.remove(key));
        }
        for child in children {
            let (Some(kind), Some(stored)) = (self.store.child_type(&child.ready), &child.stored) else {
                continue;
            };
            self.ties.children.insert(child.tag, StoredChild { serial: stored.serial, at_end: child.at_end });
            (kind.begin_child)(&self.store, child, (self.resident.life, self.rests_on));
        }
    }
}
