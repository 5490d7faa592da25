//! The part of the runtime that does for a process what is beyond messages.

use std::collections::HashSet;

use super::cell::{LeftBehind, Next};
use super::road::{Executor, Road};
use super::router::Router;
use crate::outcome::Exit;
use crate::primitives::Arc;
use crate::process::{Bond, Pid, Recovered, Relate};
use crate::sched::body::{Head, Ready, Yield};
use crate::sched::mailbox::Unwanted;
use crate::sched::outbox::Outbox;

/// Does for a process what is beyond the road: timers, the pool, handlers, names.
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
        outbox.deliver(lane, count, to, from, &mut Router::new(self.road(), executor));
    }

    /// A step has spawned this child. Comes back if it is to be stepped on this road.
    #[inline(always)]
    fn spawned(&self, child: Ready) -> Option<Ready> {
        Some(child)
    }

    /// Performs one yield of the process with this head.
    fn perform<H: Executor>(&self, one: Yield, head: &mut Head, outbox: &mut Outbox, executor: &mut H);

    /// Begins or ends a relation of the process in hand. Returns the event that it may have got already, and does not
    /// want to be; nothing more is told of that, unless it begins the same anew.
    fn relate<H: Executor>(&self, relate: Relate, body: &mut Ready, executor: &mut H) -> Option<Unwanted>;

    /// Takes out of the mailbox of the process in hand what that does not want to be told any more.
    fn forget_told(&self, unwanted: &HashSet<Unwanted>, body: &mut Ready);

    /// A process that is not in the table yet is related to its parent.
    fn bond(&self, child: Pid, bond: Bond);

    /// A process has ended, or was not begun after all: the processes related to it are told.
    fn tell_related<H: Executor>(&self, pid: Pid, exit: &Exit, executor: &mut H);

    /// A process begins, or goes on with another state machine: it takes its name, if it wants one and has not taken
    /// it.
    fn begins(&self, head: &mut Head) -> Result<(), Exit>;

    /// The first `init` of a process has returned: it joins the groups that it was given.
    fn joins<H: Executor>(&self, groups: Vec<Arc<str>>, pid: Pid, executor: &mut H);

    /// The state machine of a process has failed and is replaced: what was going on for it outside of the road ends.
    fn abandons(&self, head: &mut Head);

    /// The same for its relations and groups; then the next incarnation of the process begins, whose body is in hand.
    fn recover<H: Executor>(&self, recovered: &Recovered, next: Next, body: &mut Ready, executor: &mut H)
    -> LeftBehind;

    /// A process has ended: what it had outside of the road goes.
    fn ended(&self, head: &mut Head);

    /// A process has ended whose head is lost: what can be found goes.
    fn forget(&self, pid: Pid);

    /// The next step of this process is to be run on the pool.
    fn to_pool(&self, ready: Ready);
}
