//! Telling a driven process of the ends of others.

use super::driver::Driver;
use crate::outcome::Exit;
use crate::process::mailbox::{Control, Signal};
use crate::process::{Down, ExitSignal, Monitor, Pid, Process};

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

    /// Ends another process, as far as this one is concerned: each of its monitors of it is told, and its link if it traps
    /// exits. A link that is not trapped is not carried out: see [`terminate`](Self::terminate).
    pub fn ended(&mut self, pid: Pid, exit: &Exit) -> &mut Driver<P> {
        let of_it = |monitor: &Monitor| monitor.pid() == pid;
        let told: Vec<Monitor> = self.related.monitors.iter().copied().filter(of_it).collect();
        self.related.monitors.retain(|monitor| !of_it(monitor));
        for monitor in told {
            self.signal(Signal::Control(Control::Down(Box::new(Down { monitor, pid, exit: exit.clone() }))));
        }
        let linked = self.related.links.contains(&pid);
        self.related.links.retain(|one| *one != pid);
        if linked && self.related.traps {
            self.signal(Signal::Control(Control::Exit(Box::new(ExitSignal { pid, exit: exit.clone() }))));
        }
        self
    }
}
