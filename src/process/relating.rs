//! The yields with which a process relates itself to others: monitors, links, and children that have them from birth.

use super::body::{Ready, StepOutput, Yield};
use super::command::Tag;
use super::contract::Process;
use super::pid::{Address, Pid};
use super::relation::{Bond, Monitor, Relate};
use super::spawn::{SpawnError, SpawnOptions, described_body};
use crate::outcome::Rejected;

/// A child's address, and the command that is answered when it has begun.
type Begun<M> = (Address<M>, Tag<()>);

/// The process back, and why.
type NotSpawned<P> = Rejected<P, SpawnError>;

/// Relations. Like all yields they are performed in order, after the step has returned `Ok`.
impl StepOutput {
    /// Monitors a process: when it ends, this one gets one [`Event::Down`](super::Event::Down) with this monitor; at once, if
    /// there is no such process. Each monitor is told by itself, also several of one process.
    ///
    /// What the process has sent to this one before it ended is stepped before the event (but a step after
    /// [`Step::Wait`](super::Step::Wait) is given no messages, and is told at once), and so is its answer to a question of
    /// this one. Otherwise the event overtakes messages, and a bound of the mailbox does not count it.
    pub fn monitor(&mut self, pid: Pid) -> Monitor {
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
    pub fn link(&mut self, pid: Pid) {
        self.push(Yield::Relate(Relate::Link(pid)));
    }

    /// Takes a link away, whichever of the two had made it: when the step has succeeded, no later one is told of the other's
    /// end, also if the event was on its way. Where there is no link nothing changes.
    pub fn unlink(&mut self, pid: Pid) {
        self.push(Yield::Relate(Relate::Unlink(pid)));
    }

    /// Whether the ends of linked processes are events to this one, from now on. See [`link`](Self::link), and
    /// [`SpawnOptions::trap_exits`] for one that must trap them from its birth.
    pub fn trap_exits(&mut self, trap: bool) {
        self.push(Yield::Relate(Relate::TrapExits(trap)));
    }

    /// Spawns a process and monitors it, in one step: the child cannot end unnoticed in between. Also that its `init` fails,
    /// or its name is taken, comes with the [`Event::Down`](super::Event::Down).
    ///
    /// # Errors
    /// As [`spawn_with`](Self::spawn_with).
    pub fn spawn_monitored<P: Process>(
        &mut self,
        process: P,
        options: SpawnOptions,
    ) -> Result<(Address<P::Message>, Monitor), NotSpawned<P>> {
        let pid = match self.vacancy_for::<P>(&options) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(process, why)),
        };
        let monitor = self.new_monitor(pid);
        let bond = Bond { parent: self.pid, monitor: Some(monitor), link: false, begun: None };
        self.push_bonded(described_body(process, pid, options, None), bond);
        Ok((pid.typed(), monitor))
    }

    /// Spawns a process that is linked to this one, in one step.
    ///
    /// # Errors
    /// As [`spawn_with`](Self::spawn_with).
    pub fn spawn_linked<P: Process>(
        &mut self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Address<P::Message>, Rejected<P, SpawnError>> {
        let pid = match self.vacancy_for::<P>(&options) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(process, why)),
        };
        let bond = Bond { parent: self.pid, monitor: None, link: true, begun: None };
        self.push_bonded(described_body(process, pid, options, None), bond);
        Ok(pid.typed())
    }

    /// The same, with a command that is answered when the child's `init` has returned: with an error if it failed, or if the
    /// child has ended before. So one child can be begun when another has.
    ///
    /// # Errors
    /// As [`spawn_with`](Self::spawn_with).
    pub fn spawn_linked_begun<P: Process>(
        &mut self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Begun<P::Message>, NotSpawned<P>> {
        let pid = match self.vacancy_for::<P>(&options) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(process, why)),
        };
        let tag = self.tag();
        let bond = Bond { parent: self.pid, monitor: None, link: true, begun: Some(tag.id()) };
        self.push_bonded(described_body(process, pid, options, None), bond);
        Ok((pid.typed(), tag))
    }

    fn push_bonded(&mut self, mut body: Ready, bond: Bond) {
        let rare = body.head.rare();
        rare.begun = bond.begun.map(|tag| (bond.parent, tag));
        rare.bond = Some(bond);
        self.push(Yield::Spawn(body));
    }

    fn new_monitor(&mut self, pid: Pid) -> Monitor {
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
