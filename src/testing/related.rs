//! The relations that a driven process has yielded, written down.

use crate::process::{Monitor, Naming, Pid, Relate, Subscription};
use crate::sched::body::Ready;
use crate::sync::Arc;

/// What a driven process has monitored, linked and joined, and not taken back.
#[derive(Default)]
pub(super) struct Related {
    pub(super) monitors: Vec<Monitor>,
    pub(super) links: Vec<Pid>,
    pub(super) traps: bool,
    pub(super) subscriptions: Vec<Subscription>,
    /// The groups that it has joined by itself, each as often.
    pub(super) own_groups: Vec<Arc<str>>,
}

impl Related {
    pub(super) fn write_down(&mut self, relate: Relate) {
        match relate {
            Relate::Monitor(monitor) => self.monitors.push(monitor),
            Relate::Demonitor(monitor) => self.monitors.retain(|one| *one != monitor),
            Relate::Link(pid) if !self.links.contains(&pid) => self.links.push(pid),
            Relate::Link(_) => {}
            Relate::Unlink(pid) => self.links.retain(|one| *one != pid),
            Relate::TrapExits(trap) => self.traps = trap,
            Relate::Subscribe(subscription) => self.subscriptions.push(subscription),
            Relate::Unsubscribe(subscription) => self.subscriptions.retain(|one| *one != subscription),
        }
    }

    /// The process, which has this PID, joins or leaves a group, or has another do so.
    pub(super) fn write_down_naming(&mut self, naming: &Naming, me: Pid) {
        match naming {
            Naming::Join { group, pid } if *pid == me => self.own_groups.push(group.clone()),
            Naming::Leave { group, pid } if *pid == me => {
                let place = self.own_groups.iter().position(|own| own == group);
                place.map(|place| self.own_groups.swap_remove(place));
            }
            _ => {}
        }
    }

    /// What waits for it to have begun.
    pub(super) fn bond(&mut self, child: &Ready) -> Option<u64> {
        let rare = child.head.rare.as_ref()?;
        let bond = rare.bond?;
        self.monitors.extend(bond.monitor);
        self.links.extend(bond.link.then_some(child.head.pid));
        rare.begun.map(|(_, tag)| tag)
    }
}
