//! The yields with which a process relates itself to others: monitors and links.

use super::body::{StepOutput, Yield};
use super::pid::Pid;
use super::relation::{Monitor, Relate};
use super::target::Target;

/// Relations. Like all yields they are performed in order, after the step has returned `Ok`.
impl StepOutput {
    /// Monitors a process: when it ends, this one gets one [`Event::Down`](super::Event::Down) with this monitor; at once, if
    /// there is no such process. Each monitor is told by itself, also several of one process.
    ///
    /// What the process has sent to this one before it ended is stepped before the event (but a step after
    /// [`Step::Wait`](super::Step::Wait) is given no messages, and is told at once), and so is its answer to a question of
    /// this one. Otherwise the event overtakes messages, and a bound of the mailbox does not count it.
    ///
    /// If nobody has the name or is in the group, the monitor's PID is one that no process has.
    pub fn monitor(&mut self, target: impl Target) -> Monitor {
        let pid = self.pid_of(target);
        let monitor = self.new_monitor(pid);
        self.push(Yield::Relate(Relate::Monitor(monitor)));
        monitor
    }

    /// Takes a monitor of this process back: when the step has succeeded, no later one is told of it, also if the event was
    /// on its way. A monitor that has been told, or is not this process's, changes nothing.
    pub fn demonitor(&mut self, monitor: Monitor) {
        self.push(Yield::Relate(Relate::Demonitor(monitor)));
    }

    /// Links this process and another. When one of them ends otherwise than done (it failed, panicked, was terminated, or
    /// was ended through another link), the other is terminated with
    /// [`Reason::Linked`](crate::Reason::Linked), which names the first that ended and how; unless it traps exits: then it
    /// gets an [`Event::Exit`](super::Event::Exit) and lives on. That one is done is an event for those that trap exits, and
    /// nothing to the others.
    ///
    /// If there is no such process, this one has that as the other's end. Linking twice is one link, and a link to oneself
    /// is none.
    pub fn link(&mut self, target: impl Target) {
        let pid = self.pid_of(target);
        self.push(Yield::Relate(Relate::Link(pid)));
    }

    /// Takes a link away, whichever of the two had made it: when the step has succeeded, no later one is told of the other's
    /// end, also if the event was on its way. Where there is no link nothing changes.
    pub fn unlink(&mut self, target: impl Target) {
        let pid = self.pid_of(target);
        self.push(Yield::Relate(Relate::Unlink(pid)));
    }

    /// Whether the ends of linked processes are events to this one, from now on. See [`link`](Self::link), and
    /// [`SpawnOptions::trap_exits`] for one that must trap them from its birth.
    pub fn trap_exits(&mut self, trap: bool) {
        self.push(Yield::Relate(Relate::TrapExits(trap)));
    }

    pub(super) fn new_monitor(&mut self, pid: Pid) -> Monitor {
        Monitor::new(self.new_number(), pid)
    }

    /// A number that no other monitor or subscription has.
    pub(super) fn new_number(&mut self) -> u64 {
        self.monitors.next().unwrap_or_else(|| {
            self.monitors = self.link.monitor_numbers();
            self.monitors.next().unwrap_or_default()
        })
    }
}
