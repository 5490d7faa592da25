//! The part of the runtime that does more for a process than deliver messages.

use super::road::{Executor, Road};
use crate::outcome::Exit;
use crate::primitives::Arc;
use crate::process::{Bond, Pid, Recovered, Relate, SpawnError};
use crate::sched::body::{Head, Ready, Yield};
use crate::sched::mailbox::Unwanted;
use crate::sched::outbox::Outbox;
use crate::timer::TimerId;

/// Serves processes beyond messages: timers, the pool, handlers, names.
pub(crate) trait Engine: Send + Sync + 'static {
    fn road(&self) -> &Road;

    /// Delivers the next `count` messages of a lane, which the step of `from` has sent.
    #[inline(always)]
    fn deliver<H: Executor>(
        &self,
        outbox: &mut Outbox,
        (lane, count): (u32, u32),
        (from, to): (Pid, Pid),
        executor: &mut H,
    ) {
        self.road().deliver(executor, outbox.lane(lane), count, (from, to), |_| ());
    }

    /// Handles a child that a step has spawned. Returns it if it is to be stepped by this scheduler.
    #[inline(always)]
    fn spawned(&self, child: Ready) -> Option<Ready> {
        Some(child)
    }

    /// Performs one yield of the process in hand.
    fn perform<H: Executor>(&self, one: Yield, body: &mut Ready, outbox: &mut Outbox, executor: &mut H);

    /// Begins or ends a relation of the process in hand. Returns an event that the process may have got already and
    /// no longer wants. No more such events follow, unless the process begins the relation anew.
    fn relate<H: Executor>(&self, relate: Relate, body: &mut Ready, executor: &mut H) -> Option<Unwanted>;

    /// Relates a process that is not in the table yet to its parent.
    fn bond(&self, child: Pid, bond: Bond);

    /// Notifies the related processes of the end of a process, or that it was not begun after all.
    fn tell_related<H: Executor>(&self, pid: Pid, exit: &Exit, executor: &mut H);

    /// Begins a process, or its next state machine: it takes its name, if it wants one and has not taken it.
    fn begins(&self, head: &mut Head) -> Result<(), SpawnError>;

    /// Joins the given groups after the first `init` of a process has returned.
    fn joins<H: Executor>(&self, groups: Vec<Arc<str>>, pid: Pid, executor: &mut H);

    /// Ends the timers, pool work and handlers of a state machine that has failed and is replaced.
    fn abandons(&self, head: &mut Head);

    /// Ends the relations and subscriptions that it had begun, and notifies the processes that are linked to it.
    /// Returns whether its parent was notified. The successor is in hand.
    fn recovers<H: Executor>(&self, recovered: &Recovered, body: &Ready, executor: &mut H) -> bool;

    /// Releases everything else that an ended process had.
    fn ended(&self, head: &mut Head);

    /// Calls `run`, a poll or a blocking closure, in the context that the builder was given.
    fn in_context(&self, run: &mut dyn FnMut()) {
        run();
    }

    /// Cancels the timer of a future that has ended.
    fn forget_limit(&self, timer: TimerId);

    /// Runs the next step of this process on the pool.
    fn to_pool(&self, ready: Ready);
}
