//! Queries of relations to a cell. Each is decided in one critical section, like everything else there.
//! `relations.rs` has the protocol.

use std::collections::HashSet;

use super::{BodyState, Cell, DOOMED, HAS_FAILED, Inner, LinkTold, RELATED, TRAPS};
use crate::outcome::LinkedExit;
use crate::primitives::enter;
use crate::process::Pid;
use crate::sched::mailbox::{Control, Signal, Unwanted};

impl Cell {
    /// Makes the end of the process reported to its related processes. Returns whether it lives. A process that is
    /// about to be ended does.
    pub(crate) fn relate(&self, pid: Pid) -> bool {
        let mut inner = enter(&self.inner);
        let lives = inner.is_live(pid);
        if lives {
            inner.stamp |= RELATED;
        }
        lives
    }

    /// Whether the process lives. A process that is about to be ended does.
    pub(crate) fn is_live(&self, pid: Pid) -> bool {
        enter(&self.inner).is_live(pid)
    }

    /// Sets whether the exits of linked processes are events for this one.
    pub(crate) fn trap_exits(&self, pid: Pid, trap: bool) {
        let mut inner = enter(&self.inner);
        if inner.is_live(pid) {
            inner.set_flag(TRAPS, trap);
        }
    }

    /// Whether the exits of linked processes are events for this one.
    pub(crate) fn traps_exits(&self, pid: Pid) -> bool {
        let inner = enter(&self.inner);
        inner.is_live(pid) && inner.stamp & TRAPS != 0
    }

    /// Notifies this process that a linked process has ended, or has recovered from a failure. If this one traps
    /// exits, it gets an event. Otherwise it ends if there is a `killer`.
    #[inline]
    pub(crate) fn tell_linked(&self, pid: Pid, event: Control, killer: Option<LinkedExit>) -> LinkTold {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() {
            return LinkTold::Refused(event);
        }
        if inner.stamp & TRAPS != 0 {
            return LinkTold::Trapped(inner.signal(Signal::Control(event)));
        }
        let Some(killer) = killer else { return LinkTold::Refused(event) };
        inner.stamp |= DOOMED;
        inner.kill(killer);
        LinkTold::Doomed(inner.wake_even_if_held())
    }

    /// Returns the event that others may have got about the process with this PID: that it has ended, or that it has
    /// failed and recovers.
    pub(crate) fn may_have_told(&self, pid: Pid) -> Option<Unwanted> {
        let inner = enter(&self.inner);
        if !inner.is_live(pid) {
            return Some(Unwanted::Exit(pid));
        }
        (inner.stamp & HAS_FAILED != 0).then_some(Unwanted::Recovered(pid))
    }

    /// Records that the process, whose body is in hand, recovers from a failure. Others are notified after this.
    #[cold]
    pub(crate) fn fails(&self) {
        enter(&self.inner).stamp |= HAS_FAILED;
    }

    /// Takes unwanted events out of the mailbox. The caller drops them outside the lock.
    pub(crate) fn forget(&self, pid: Pid, unwanted: &HashSet<Unwanted>) -> Vec<Control> {
        let mut inner = enter(&self.inner);
        if !inner.is_live(pid) {
            return Vec::new();
        }
        inner.body.inbox().map_or_else(Vec::new, |(inbox, _)| inbox.forget(unwanted))
    }
}

impl Inner {
    /// Records the link through which the process is ended.
    fn kill(&mut self, by: LinkedExit) {
        let mailbox = match &mut self.body {
            BodyState::Resting(body) => Some(body.machine.mailbox()),
            _ => self.make_inbox(),
        };
        if let Some(mailbox) = mailbox {
            mailbox.signals().get_or_insert_default().kill(by);
        }
    }
}
