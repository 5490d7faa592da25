//! What the road asks of the runtime: everything that is done for a process beyond messages.

use std::collections::HashSet;

use super::cell::{LeftBehind, Next};
use super::road::{Hands, Road};
use crate::outcome::Exit;
use crate::process::{Bond, Pid, Recovered, Relate};
use crate::sched::body::{Head, Ready, Yield};
use crate::sched::mailbox::Unwanted;
use crate::sched::outbox::Outbox;
use crate::sync::Arc;

/// What the runtime does for a process beyond the road: timers, the pool, handlers, names.
pub(crate) trait Engine: Send + Sync + 'static {
    fn road(&self) -> &Road;

    /// Performs one yield of the process with this head.
    fn perform<H: Hands>(&self, one: Yield, head: &mut Head, outbox: &mut Outbox, hands: &mut H);

    /// Begins or ends a relation of the process in hand. What it may have been told already, and does not want
    /// to be; nothing more is told of that, unless it begins the same anew.
    fn relate<H: Hands>(&self, relate: Relate, body: &mut Ready, hands: &mut H) -> Option<Unwanted>;

    /// Takes out of the mailbox of the process in hand what that does not want to be told any more.
    fn forget_told(&self, unwanted: &HashSet<Unwanted>, body: &mut Ready);

    /// A process that is not in the table yet is related to its parent.
    fn bond(&self, child: Pid, bond: Bond);

    /// A process has ended, or was not begun after all: those who are related to it are told.
    fn tell_related<H: Hands>(&self, pid: Pid, exit: &Exit, hands: &mut H);

    /// A process begins, or goes on with another state machine: it takes its name, if it wants one and has not taken it.
    fn begins(&self, head: &mut Head) -> Result<(), Exit>;

    /// The first `init` of a process has returned: it joins the groups that it was given.
    fn joins<H: Hands>(&self, groups: Vec<Arc<str>>, pid: Pid, hands: &mut H);

    /// The state machine of a process has failed and is replaced: what was going on for it outside of the road ends.
    fn abandons(&self, head: &mut Head);

    /// The same for its relations and groups; then the next incarnation of the process begins, whose body is in hand.
    fn recover<H: Hands>(&self, recovered: &Recovered, next: Next, body: &mut Ready, hands: &mut H) -> LeftBehind;

    /// A process has ended: what it had outside of the road goes.
    fn ended(&self, head: &mut Head);

    /// A process has ended whose head is lost: what can be found goes.
    fn forget(&self, pid: Pid);

    /// The next step of this process is to be run on the pool.
    fn to_pool(&self, ready: Ready);
}
