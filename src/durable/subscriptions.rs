//! Subscriptions of durable processes to groups.
//!
//! A subscription is an entry of its process, in the record of the step that yields it. Each start of the store loads
//! the process, which stays in memory while it subscribes. So it gets each change.
//!
//! *The beginning.* A subscription begins in the runtime when the record is on disk, and again in each load. The
//! process first gets the members.
//!
//! *The end.* A subscription ends in the runtime when the record of the step that ends it is appended. So no later step
//! gets an event of it. If the beginning is still held, the subscription does not begin. If the record of the end is
//! lost, the process is loaded again, and so subscribes again.
//!
//! *A failed step.* The changes that it has taken are offered again, in front of the later changes.
//!
//! *A parked process* takes no change. When the next change comes, all its subscriptions end in the runtime, and their
//! events are dropped. So no more changes wait for it. The load after a repair begins the subscriptions again.

use std::collections::HashSet;

use super::contract::Durable;
use super::core::StoreCore;
use super::machine::DurableMachine;
use super::ties::Ties;
use crate::primitives::Arc;
use crate::process::{Relate, Subscription};
use crate::runtime::Core;
use crate::sched::body::{Ready, Yield};
use crate::sched::mailbox::Unwanted;
use crate::sched::turn::Engine;

impl<P: Durable> DurableMachine<P> {
    /// Ends subscriptions in the runtime, and takes their events out of the mailbox.
    pub(super) fn end_subscriptions(&mut self, ended: &[Subscription]) {
        let (Some(core), Some(local)) = (self.store.core(), self.resident.local.get()) else { return };
        if ended.is_empty() {
            return;
        }
        let begins = |one: &Yield| matches!(one, Yield::Relate(Relate::Subscribe(begins)) if ended.contains(begins));
        let held = self.held.iter_mut().flat_map(|held| &mut held.yields);
        held.filter(|one| begins(one)).for_each(|one| *one = Yield::Performed);
        // Before their events are removed from the mailbox: no event comes from then on.
        ended.iter().for_each(|one| core.groups.unsubscribe(one, *local));
        let unwanted: HashSet<Unwanted> = ended.iter().map(|one| Unwanted::Group(one.id())).collect();
        self.forget(&unwanted);
    }
}

impl StoreCore {
    /// Begins the subscriptions of a process that was loaded. It first gets the members.
    pub(super) fn subscribe_again(&self, core: &Arc<Core>, ties: &Ties, body: &mut Ready) {
        for subscription in ties.subscriptions() {
            let _ = core.relate(Relate::Subscribe(subscription), body, &mut core.executor());
        }
    }
}
