//! How a lease gets to a process, and the look before its steps. `lease.rs` has the protocol.

use super::lease::Lease;
use super::resident_waker::PollRequests as _;
use super::road::{Executor, Road};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::sched::body::Ready;

impl Road {
    /// Gives a lease to a process.
    pub(crate) fn give_lease(&self, pid: Pid, lease: Arc<Lease>) {
        self.new_leases.add(pid, lease, |_| false, |pid, _| self.is_alive(pid));
        self.request_poll(pid);
    }

    /// Takes the leases that have come for a process. Called when its turn begins with polls.
    pub(super) fn take_leases<H: Executor>(&self, executor: &mut H, body: &mut Ready) {
        let new = self.new_leases.take(body.head.pid);
        if !new.is_empty() {
            let leases = &mut body.head.prepared().leases;
            leases.retain(|lease| !lease.is_released());
            leases.extend(new.iter().cloned());
            // Callbacks of users may take long.
            executor.let_go();
            new.iter().for_each(|lease| (lease.taken)());
        }
    }

    /// Whether the process has lost a name, so that it must not be stepped. If so, it is to be ended.
    pub(super) fn is_fenced<H: Executor>(&self, executor: &mut H, body: &Ready) -> bool {
        let is_fenced = self.has_lost_name(body);
        if is_fenced {
            let _ = self.terminate(executor, body.head.pid, 0);
        }
        is_fenced
    }

    /// Whether the process has lost a name.
    pub(super) fn has_lost_name(&self, body: &Ready) -> bool {
        let Some(rare) = body.head.rare.as_ref().filter(|rare| !rare.leases.is_empty()) else { return false };
        let now = self.clock.now();
        rare.leases.iter().any(|lease| lease.is_over(now))
    }
}
