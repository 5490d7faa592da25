//! Messages that wait for room in the mailbox of a cell. `sched/waiting_sends.rs` has the protocol.

use super::{BodyState, Cell, Inner, WAITS};
use crate::primitives::{Arc, enter};
use crate::process::Pid;
use crate::sched::body::{Host, Ready};
use crate::sched::bounded_mailbox::BoundedMailbox;
use crate::sched::doorway::Doorway;
use crate::sched::waiting_sends::{EndedSends, Sender};
use crate::timer::TimerId;

impl Cell {
    /// Takes out a message that waits. A returned body has been woken.
    pub(crate) fn withdraw(&self, pid: Pid, sender: Sender, number: u64) -> (EndedSends, Option<Ready>) {
        self.change_waiting(pid, |doorway| doorway.withdraw(sender, number))
    }

    /// Takes out all messages of this process that wait with a limit. A returned body has been woken.
    pub(crate) fn withdraw_all(&self, pid: Pid, sender: Pid) -> (EndedSends, Option<Ready>) {
        self.change_waiting(pid, |doorway| doorway.withdraw_all(Sender::Process(sender)))
    }

    fn change_waiting(
        &self,
        pid: Pid,
        change: impl FnOnce(&mut Doorway<'_>) -> EndedSends,
    ) -> (EndedSends, Option<Ready>) {
        let mut inner = enter(&self.inner);
        let told = if inner.is_live(pid) { inner.at_door(change) } else { EndedSends::default() };
        let wakes = told.entered > 0 && inner.stamp & WAITS == 0;
        let woken = if wakes { inner.wake() } else { None };
        (told, woken)
    }

    /// Records the timer of a message that waits. Returns whether it still waits.
    pub(crate) fn note_send_timer(&self, pid: Pid, from: Pid, tag: u64, host: Arc<dyn Host>, timer: TimerId) -> bool {
        let mut inner = enter(&self.inner);
        let is_live = inner.is_live(pid);
        let bounded = inner.bounded().filter(|_| is_live);
        bounded.is_some_and(|bounded| bounded.bounds.note_timer(Sender::Process(from), tag, (host, timer)))
    }

    /// Whether messages of this process wait here.
    pub(crate) fn has_waiting(&self, pid: Pid, from: Pid) -> bool {
        let mut inner = enter(&self.inner);
        inner.is_live(pid) && inner.bounded().is_some_and(|bounded| bounded.bounds.is_waiting(Sender::Process(from)))
    }
}

impl Inner {
    /// Lets messages that wait into the mailbox, while there is room.
    pub(super) fn let_in(&mut self) -> EndedSends {
        self.at_door(|doorway| doorway.let_in())
    }

    fn at_door(&mut self, change: impl FnOnce(&mut Doorway<'_>) -> EndedSends) -> EndedSends {
        let takes = self.kind.map(|kind| kind.message_name);
        let told = match (self.bounded(), takes) {
            (Some(BoundedMailbox { mailbox, bounds }), Some(takes)) if bounds.waiting.is_some() => {
                change(&mut Doorway { mailbox: &mut **mailbox, bounds, takes })
            }
            _ => return EndedSends::default(),
        };
        self.queued += told.entered;
        told
    }

    fn bounded(&mut self) -> Option<&mut BoundedMailbox> {
        match &mut self.body {
            BodyState::Resting(body) => body.head.rare.as_mut()?.bounded.as_deref_mut(),
            BodyState::OutBounded(bounded) => Some(bounded),
            BodyState::Out(_) | BodyState::Vacant => None,
        }
    }
}
