//! Steps that wait for room in the tail, and for the disk: see [`StoreBuilder::ahead`](super::StoreBuilder::ahead).
//!
//! A process rests on the record of its last step, and on the records of the events that it was given. The thread that
//! gives an event notes its record before the event can be taken. So the machine sees the record when it is about to
//! step, and waits until the record is released.

use super::contract::Durable;
use super::core::StoreCore;
use super::journal::Position;
use super::machine::DurableMachine;
use super::residency::{Call, Resident};
use super::tail::Fate;
use crate::primitives::Arc;

impl StoreCore {
    /// The process was given something that rests on this record. Called before a step can take it.
    pub(super) fn note_told(&self, resident: &Resident, position: Position) {
        if !self.settings.ahead {
            resident.note_told(position);
        }
    }

    /// Whether the tail has room for a step. If not, the process is called when it has.
    fn has_room(&self, resident: &Arc<Resident>) -> bool {
        let (resident, core) = (resident.clone(), self.core.get().cloned());
        self.tail.has_room(move || {
            if let Some(core) = core.and_then(|core| core.upgrade()) {
                resident.call(&core.road, Call::Room);
            }
        })
    }

    /// Has the process take a turn for its next step when this record is on disk.
    fn when_on_disk(&self, resident: &Arc<Resident>, position: Position) {
        let (waits, core) = (resident.clone(), self.core.get().cloned());
        self.tail.when_released(resident.life, position, move |fate| {
            let Some(core) = core.and_then(|core| core.upgrade()) else { return };
            waits.call(&core.road, if fate == Fate::Released { Call::OnDisk } else { Call::Leave });
        });
    }
}

impl<P: Durable> DurableMachine<P> {
    /// Whether the tail has room for a step. The process does not wait twice at once.
    pub(super) fn gets_room(&mut self) -> bool {
        if self.waits_for_room && !self.resident.take_call(Call::Room) {
            return false;
        }
        self.waits_for_room = !self.store.has_room(&self.resident);
        !self.waits_for_room
    }

    /// Whether the process may be stepped, if steps wait for the disk. If not, it is called when it may.
    pub(super) fn is_on_disk(&mut self) -> bool {
        if self.store.settings.ahead {
            return true;
        }
        self.resident.take_call(Call::OnDisk);
        let rests_on = self.rests_on.max(self.resident.told());
        if self.is_released(rests_on) {
            return true;
        }
        if self.waits_for_disk < rests_on {
            self.waits_for_disk = rests_on;
            self.store.when_on_disk(&self.resident, rests_on);
        }
        false
    }
}
