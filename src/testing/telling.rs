//! Telling a driven process of the ends of others.

use super::driver::Driver;
use crate::outcome::Exit;
use crate::process::{
    Down, ExitSignal, GroupChange, GroupEvent, LinkedBy, Monitor, Naming, Pid, Process, Recovered, RecoveredBy,
    Subscription,
};
use crate::sched::mailbox::{Control, Signal};
use crate::sync::Ordering;

impl<P: Process> Driver<P> {
    /// The monitors that the process has, those of its children included, oldest first.
    pub fn monitors(&self) -> &[Monitor] {
        &self.related.monitors
    }

    /// The processes to which this one has linked itself, oldest first.
    pub fn links(&self) -> &[Pid] {
        &self.related.links
    }

    /// Whether the process has said that it traps exits.
    pub fn traps_exits(&self) -> bool {
        self.related.traps
    }

    /// Gives another process a name under which this one finds it.
    pub fn name(&mut self, name: &str, pid: Pid) -> &mut Driver<P> {
        drop(self.bench.name(Naming::Register { name: name.into(), pid }));
        self
    }

    /// Puts another process into a group.
    pub fn join_group(&mut self, group: &str, pid: Pid) -> &mut Driver<P> {
        drop(self.bench.name(Naming::Join { group: group.into(), pid }));
        self
    }

    /// The subscriptions to groups that the process has, oldest first.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.related.subscriptions
    }

    /// Tells the process of a change to a group, by each of its subscriptions to it.
    pub fn group_changed(&mut self, group: &str, change: &GroupChange) -> &mut Driver<P> {
        let subscribed = |one: &&Subscription| one.group() == group;
        let told: Vec<Subscription> = self.related.subscriptions.iter().filter(subscribed).cloned().collect();
        for subscription in told {
            let event = GroupEvent { subscription, change: change.clone() };
            self.signal(Signal::Control(Control::Group(event)));
        }
        self
    }

    /// From here on it is as in a runtime that shuts down: nobody can be spawned. The process is not asked to stop with this:
    /// see [`cancel`](Self::cancel).
    pub fn shuts_down(&mut self) -> &mut Driver<P> {
        self.bench.shuts_down.store(true, Ordering::Relaxed);
        self
    }

    /// Ends another process, as far as this one is concerned: each of its monitors of it is told, and its link if it traps
    /// exits. A link that is not trapped is not carried out: see [`terminate`](Self::terminate).
    pub fn ended(&mut self, pid: Pid, exit: &Exit) -> &mut Driver<P> {
        let of_it = |monitor: &Monitor| monitor.pid() == pid;
        let told: Vec<Monitor> = self.related.monitors.iter().copied().filter(of_it).collect();
        self.related.monitors.retain(|monitor| !of_it(monitor));
        for monitor in told {
            self.signal(Signal::Control(Control::Down(Down { monitor, pid, exit: exit.clone() })));
        }
        let linked = self.related.links.contains(&pid);
        self.related.links.retain(|one| *one != pid);
        if linked && self.related.traps {
            self.signal(Signal::Control(Control::Exit(ExitSignal { pid, exit: exit.clone() }, LinkedBy::ME)));
        }
        self
    }

    /// Another process recovers from a failure, as far as this one is concerned: it is told if it is linked to that one and traps
    /// exits.
    pub fn recovered(&mut self, pid: Pid, exit: &Exit, by: RecoveredBy) -> &mut Driver<P> {
        if self.related.links.contains(&pid) && self.related.traps {
            self.signal(Signal::Control(Control::Recovered(Recovered { pid, exit: exit.clone(), by })));
        }
        self
    }
}
