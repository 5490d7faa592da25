//! The engine of a world: that of its runtime, with messages that may be held.

use super::delivery::Delivery;
use super::shared::{Shared, WorldEngine};
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::{Bond, Recovered, Relate, SpawnError};
use crate::sched::body::{Head, Ready, Yield};
use crate::sched::mailbox::Unwanted;
use crate::sched::outbox::Outbox;
use crate::sched::road::{Executor, Road};
use crate::sched::turn::Engine;
use crate::timer::TimerId;

impl WorldEngine {
    /// The world, if its messages may be held. Otherwise its count of owners need not be touched.
    fn shared_if_held(&self) -> Option<Arc<Shared>> {
        if self.delivery == Delivery::Immediate { None } else { self.shared.upgrade() }
    }

    /// Delivers the held messages of a process to these receivers.
    fn deliver_held(&self, from: Pid, is_to: impl Fn(Pid) -> bool) {
        if let Some(shared) = self.shared_if_held() {
            shared.deliver_held(|pair| (pair.0, pair.1) == (self.runtime, from) && is_to(pair.2));
        }
    }
}

impl Engine for WorldEngine {
    fn road(&self) -> &Road {
        &self.core.road
    }

    fn deliver<H: Executor>(
        &self,
        outbox: &mut Outbox,
        (lane, count): (u32, u32),
        (from, to): (Pid, Pid),
        executor: &mut H,
    ) {
        if self.shared_if_held().is_some_and(|shared| shared.hold(outbox, (lane, count), (self.runtime, from, to))) {
            // It is counted when it is delivered.
            let counters = executor.counters();
            counters.take_back(&counters.accepted, u64::from(count));
            return;
        }
        self.core.deliver(outbox, (lane, count), (from, to), executor);
    }

    fn perform<H: Executor>(&self, one: Yield, body: &mut Ready, outbox: &mut Outbox, executor: &mut H) {
        let me = body.head.pid;
        match &one {
            Yield::Ask { to, .. } | Yield::Cancel { to, .. } | Yield::Terminate { to, .. } => {
                self.deliver_held(me, |other| other == *to);
            }
            Yield::Reply(reply) => self.deliver_held(me, |other| Some(other) == reply.identity().0),
            Yield::Broadcast { to, .. } => self.deliver_held(me, |other| to.contains(&other)),
            Yield::SendTimeout(_) => self.deliver_held(me, |_| true),
            _ => {}
        }
        self.core.perform(one, body, outbox, executor);
    }

    fn relate<H: Executor>(&self, relate: Relate, body: &mut Ready, executor: &mut H) -> Option<Unwanted> {
        self.core.relate(relate, body, executor)
    }

    fn bond(&self, child: Pid, bond: Bond) {
        self.core.bond(child, bond);
    }

    fn tell_related<H: Executor>(&self, pid: Pid, exit: &Exit, executor: &mut H) {
        self.deliver_held(pid, |_| true);
        self.core.tell_related(pid, exit, executor);
    }

    fn begins(&self, head: &mut Head) -> Result<(), SpawnError> {
        self.core.begins(head)
    }

    fn joins<H: Executor>(&self, groups: Vec<Arc<str>>, pid: Pid, executor: &mut H) {
        self.core.joins(groups, pid, executor);
    }

    fn abandons(&self, head: &mut Head) {
        self.core.abandons(head);
    }

    fn recovers<H: Executor>(&self, recovered: &Recovered, body: &Ready, executor: &mut H) -> bool {
        self.deliver_held(recovered.pid, |_| true);
        self.core.recovers(recovered, body, executor)
    }

    fn ended(&self, head: &mut Head) {
        self.core.ended(head);
    }

    fn in_context(&self, run: &mut dyn FnMut()) {
        self.core.in_context(run);
    }

    fn forget_limit(&self, timer: TimerId) {
        self.core.forget_limit(timer);
    }

    fn to_pool(&self, ready: Ready) {
        self.core.to_pool(ready);
    }
}
