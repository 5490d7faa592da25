//! Messages that wait for room in the mailbox of a cell. `sched/room_queue.rs` has the protocol.

use super::{Cell, Inner, WAITS};
use crate::primitives::{Arc, enter};
use crate::process::Pid;
use crate::sched::body::{Host, Ready};
use crate::sched::bounded_mailbox::BoundedMailbox;
use crate::sched::doorway::{Doorway, ToldSends};
use crate::sched::room_queue::QueuedSend;
use crate::timer::TimerId;

impl Cell {
    /// Takes out a message that waits. A returned body has been woken.
    pub(crate) fn withdraw(&self, pid: Pid, from: Pid, number: u64) -> (ToldSends, Option<Ready>) {
        self.change_waiting(pid, |doorway| doorway.withdraw(from, number))
    }

    /// Takes out all messages of this process that wait with a limit. A returned body has been woken.
    pub(crate) fn withdraw_all(&self, pid: Pid, from: Pid) -> (ToldSends, Option<Ready>) {
        self.change_waiting(pid, |doorway| doorway.withdraw_all(from))
    }

    /// Lets messages in, if there is room. A returned body has been woken.
    pub(crate) fn let_messages_in(&self, pid: Pid) -> (ToldSends, Option<Ready>) {
        self.change_waiting(pid, |doorway| doorway.let_in())
    }

    /// Fills the place of a message that was converted, or gives it back. If the process has ended, the message comes
    /// back. A returned body has been woken.
    pub(crate) fn fill_converted(
        &self,
        pid: Pid,
        from: Pid,
        mut converted: Option<QueuedSend>,
    ) -> (ToldSends, Option<Ready>, Option<QueuedSend>) {
        let (told, woken) = self.change_waiting(pid, |doorway| doorway.fill_converted(from, converted.take()));
        (told, woken, converted)
    }

    /// Gives back a place that was kept for a message. Lets messages in that have waited for it.
    pub(crate) fn give_place_back(&self, pid: Pid) -> (ToldSends, Option<Ready>) {
        if let Some(bounded) = enter(&self.inner).bounded_of(pid) {
            bounded.bounds.leave_reservation();
        }
        self.let_messages_in(pid)
    }

    fn change_waiting(
        &self,
        pid: Pid,
        change: impl FnOnce(&mut Doorway<'_>) -> ToldSends,
    ) -> (ToldSends, Option<Ready>) {
        let mut inner = enter(&self.inner);
        let told = if inner.is_live(pid) { inner.at_door(change) } else { ToldSends::default() };
        let wakes = told.entered > 0 && inner.stamp & WAITS == 0;
        let woken = if wakes { inner.wake() } else { None };
        (told, woken)
    }

    /// Records the timer of a message that waits. Returns whether it still waits.
    pub(crate) fn note_send_timer(&self, pid: Pid, from: Pid, tag: u64, host: Arc<dyn Host>, timer: TimerId) -> bool {
        let mut inner = enter(&self.inner);
        inner.bounded_of(pid).is_some_and(|bounded| bounded.bounds.note_timer(from, tag, (host, timer)))
    }

    /// Whether messages of this process wait here.
    pub(crate) fn has_waiting(&self, pid: Pid, from: Pid) -> bool {
        let mut inner = enter(&self.inner);
        inner.bounded_of(pid).is_some_and(|bounded| bounded.bounds.is_waiting(from))
    }
}

impl Inner {
    /// Lets messages that wait into the mailbox, while there is room.
    pub(super) fn let_in(&mut self) -> ToldSends {
        self.at_door(|doorway| doorway.let_in())
    }

    fn at_door(&mut self, change: impl FnOnce(&mut Doorway<'_>) -> ToldSends) -> ToldSends {
        let takes = self.kind.map(|kind| kind.message_name);
        let told = match (self.body.bounded(), takes) {
            (Some(BoundedMailbox { mailbox, bounds }), Some(takes)) if bounds.waiting.is_some() => {
                change(&mut Doorway { mailbox: &mut **mailbox, bounds, takes })
            }
            _ => return ToldSends::default(),
        };
        self.queued += told.entered;
        told
    }

    fn bounded_of(&mut self, pid: Pid) -> Option<&mut BoundedMailbox> {
        if self.is_live(pid) { self.body.bounded() } else { None }
    }
}
