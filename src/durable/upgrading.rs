//! A durable process that replaces itself by one of another kind: `Step::Upgrade`.
//!
//! The record of the step has the row of the process with the name, the version and the state of the new kind. So a
//! kill finds the one kind or the other. The process leaves memory after the step, and is loaded as one of the new
//! kind. Its entries stay as they are: mail, timers, commands, children, names and monitors. It begins as a new process
//! does, with `init` and `start`.

use std::any::Any;

use super::contract::Durable;
use super::core::{Id, StepError, StoreCore};
use super::journal::{Change, NameRow, Position};
use super::machine::DurableMachine;
use super::next_kind::NextKind;
use super::residency::Call;
use super::rows::IDS;
use super::tail::Life;
use crate::outcome::{BoxError, drop_contained};
use crate::primitives::lock;
use crate::process::{Events, Process, Step, StepResult};
use crate::sched::body::StepOutput;
use crate::sched::machine::new_body;

/// The predecessor of the new machine, which is made only to have its state encoded.
struct Nobody;

impl Process for Nobody {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

impl<P: Durable> DurableMachine<P> {
    /// Encodes the process to which a step upgrades this one.
    pub(super) fn next_kind(&self, out: &mut StepOutput) -> Result<NextKind, StepError> {
        let failed = |why: &str| Err(StepError::from(BoxError::from(why)));
        let Some(successor) = out.successor.take() else { return failed("an upgrade without a process") };
        if !successor.given_back.is_empty() {
            drop_contained(successor);
            return failed("a durable process cannot give signals back to the one that it is upgraded to");
        }
        let (ready, _) = (successor.succeed)(new_body(Nobody, self.resident.pid, None, None));
        let next = match self.store.child_type(&ready) {
            None => failed("a durable process can be upgraded only to a durable kind that the store knows"),
            Some(kind) if (kind.child.has_entry)(&ready.machine as &dyn Any) => {
                failed("a durable process can be upgraded only to one that begins without a method")
            }
            Some(kind) => {
                let limits = (self.store.run, self.store.settings.largest_state);
                (kind.child.encode)(limits, &ready.machine as &dyn Any)
                    .map(|(format, state)| NextKind { name: kind.name, version: kind.version, format, state })
                    .map_err(StepError::Failed)
            }
        };
        drop_contained(ready);
        next
    }

    /// The id belongs to the new kind.
    pub(super) fn renamed(&self) -> Option<Change> {
        let (next, id) = (self.next_kind.as_ref()?, self.stored.id.clone()?);
        let row = NameRow { serial: self.resident.serial, body: next.name.as_bytes().to_vec() };
        Some(Change::Name { class: IDS, name: id, row: Some(row) })
    }

    /// The record of an upgrade is appended. The process leaves, and is loaded as one of the new kind.
    pub(super) fn leave_upgraded(&self) {
        if let (Some(next), Some(id)) = (&self.next_kind, &self.stored.id) {
            self.store.rename_id(id, (self.resident.serial, next.name), (self.resident.life, self.rests_on));
        }
        self.resident.set_departs();
        if let Some(core) = self.store.core() {
            self.resident.call(&core.road, Call::Repair);
        }
    }
}

impl StoreCore {
    fn rename_id(&self, id: &str, (serial, kind): (u64, &str), (life, position): (Life, Position)) {
        let mut ids = lock(&self.ids);
        // The ids are cleared after the beginning of a new life.
        if self.tail.life() == life {
            ids.insert(id.to_owned(), Id { serial, kind: kind.into(), life, position });
        }
    }
}
