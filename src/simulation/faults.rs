//! The faults that a simulation may inject, and their limits.

use std::any::TypeId;
use std::time::Duration;

use crate::command::Command;
use crate::pid::Pid;
use crate::process::Process;

/// A fault of a command.
///
/// Each is a value for [`Faults::command`]. `chance` is the probability for each command, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub(super) kind: CommandFault,
    pub(super) chance: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CommandFault {
    Fail,
    Late(Duration),
    LostBefore,
    LostAfter,
    Never,
}

impl Fault {
    /// The command is answered with an error at once. Its handler is not called.
    pub fn fail(chance: f64) -> Fault {
        Fault { kind: CommandFault::Fail, chance }
    }

    /// The answer comes later, by a time up to `most` that the seed decides.
    pub fn late(chance: f64, most: Duration) -> Fault {
        Fault { kind: CommandFault::Late(most), chance }
    }

    /// The command is lost before it is carried out: its handler is not called, and the answer is
    /// [`CommandError::Dropped`](crate::CommandError::Dropped).
    pub fn lost_before(chance: f64) -> Fault {
        Fault { kind: CommandFault::LostBefore, chance }
    }

    /// The command is carried out, and its answer is lost: the process is answered with
    /// [`CommandError::Dropped`](crate::CommandError::Dropped).
    pub fn lost_after(chance: f64) -> Fault {
        Fault { kind: CommandFault::LostAfter, chance }
    }

    /// The command is carried out, and never answered. Only a limit of the command, or its cancellation, ends the
    /// wait.
    pub fn never(chance: f64) -> Fault {
        Fault { kind: CommandFault::Never, chance }
    }
}

/// The faults that a simulation may inject. Nothing is injected that is not listed here.
///
/// ```
/// use procession::simulation::Faults;
/// use std::time::Duration;
/// # struct Account;
/// # impl procession::Process for Account {
/// #     type Message = ();
/// #     type Output = ();
/// #     fn step(
/// #         &mut self,
/// #         _: &mut procession::Events<()>,
/// #         _: &mut procession::StepOutput,
/// #     ) -> procession::StepResult<()> {
/// #         Ok(procession::Step::Idle)
/// #     }
/// # }
///
/// let faults = Faults::none()
///     .panic::<Account>(0.02)
///     .stall::<Account>(0.05, Duration::from_secs(1))
///     .at_most(3)
///     .until(Duration::from_secs(30));
/// # let _ = faults;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub(super) rules: Vec<Rule>,
    pub(super) at_most: Option<u32>,
    pub(super) until: Option<Duration>,
}

/// A fault, its place, and its probability.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) whom: Whom,
    pub(super) what: What,
    pub(super) chance: f64,
}

#[derive(Clone, Debug)]
pub(super) enum Whom {
    Type(TypeId),
    Process(Pid),
    /// The step with this number of each process of the type. The first one is 1.
    Step(TypeId, u32),
    Command(TypeId),
    Blocking(TypeId),
    /// The whole program.
    Program,
    #[cfg_attr(not(feature = "durable"), allow(dead_code))]
    Disk,
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    Network,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Crash,
    Panic,
    /// By a time up to this one.
    Stall(Duration),
    StallFor(Duration),
    Command(CommandFault),
    BlockingLate(Duration),
    BlockingPanics,
    Kill,
    #[cfg(feature = "durable")]
    Disk(crate::durable::journal::Fault),
    #[cfg(feature = "cluster")]
    LoseFrame,
    #[cfg(feature = "cluster")]
    RepeatFrame,
    #[cfg(feature = "cluster")]
    DelayFrame(Duration),
    /// One node from another, for a time up to this one.
    #[cfg(feature = "cluster")]
    Cut(Duration),
    /// A node, for a time up to this one.
    #[cfg(feature = "cluster")]
    Pause(Duration),
}

/// A fault of a process at a step that the test chooses. See [`Faults::at`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepFault {
    /// The process is terminated in the place of the step.
    Crash,
    /// The step panics at its end. None of its yields is performed.
    Panic,
    /// The step comes later, by this time.
    Stall(Duration),
}

impl Faults {
    /// No faults.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Terminates a process of this type before a step, with this probability for each step.
    pub fn crash<P: Process>(self, chance: f64) -> Faults {
        self.with(Whom::Type(TypeId::of::<P>()), What::Crash, chance)
    }

    /// Makes a step of a process of this type panic at its end, with this probability. None of its yields is performed.
    pub fn panic<P: Process>(self, chance: f64) -> Faults {
        self.with(Whom::Type(TypeId::of::<P>()), What::Panic, chance)
    }

    /// Holds a step of a process of this type up, with this probability, for a time up to `most` that the seed decides.
    /// Meanwhile its mailbox fills, and the limits and timers of others pass.
    pub fn stall<P: Process>(self, chance: f64, most: Duration) -> Faults {
        self.with(Whom::Type(TypeId::of::<P>()), What::Stall(most), chance)
    }

    /// Terminates this process before a step, with this probability for each step.
    pub fn crash_process(self, pid: Pid, chance: f64) -> Faults {
        self.with(Whom::Process(pid), What::Crash, chance)
    }

    /// Makes a step of this process panic at its end, with this probability for each step. None of its yields is
    /// performed.
    pub fn panic_process(self, pid: Pid, chance: f64) -> Faults {
        self.with(Whom::Process(pid), What::Panic, chance)
    }

    /// Injects a fault at the step with this number of each process of the type. The first step is 1.
    pub fn at<P: Process>(self, step: u32, fault: StepFault) -> Faults {
        let what = match fault {
            StepFault::Crash => What::Crash,
            StepFault::Panic => What::Panic,
            StepFault::Stall(time) => What::StallFor(time),
        };
        self.with(Whom::Step(TypeId::of::<P>(), step), what, 1.0)
    }

    /// Injects a fault into commands of this type.
    pub fn command<C: Command>(self, fault: Fault) -> Faults {
        self.with(Whom::Command(TypeId::of::<C>()), What::Command(fault.kind), fault.chance)
    }

    /// Begins blocking closures of processes of this type later, with this probability, by a time up to `most`. So
    /// they also come out of order.
    pub fn blocking_late<P: Process>(self, chance: f64, most: Duration) -> Faults {
        self.with(Whom::Blocking(TypeId::of::<P>()), What::BlockingLate(most), chance)
    }

    /// Lets blocking closures of processes of this type panic in the place of their code, with this probability.
    pub fn blocking_panics<P: Process>(self, chance: f64) -> Faults {
        self.with(Whom::Blocking(TypeId::of::<P>()), What::BlockingPanics, chance)
    }

    /// Kills the program, with this probability after each turn: see [`World::program`](super::World::program).
    /// Everything that is not on disk is lost.
    pub fn kill(self, chance: f64) -> Faults {
        self.with(Whom::Program, What::Kill, chance)
    }

    /// Lets calls of a disk in memory fail, with this probability for each commit, each opening and each load.
    #[cfg(feature = "durable")]
    pub fn disk(self, fault: crate::durable::journal::Fault, chance: f64) -> Faults {
        self.with(Whom::Disk, What::Disk(fault), chance)
    }

    /// Loses frames between nodes, with this probability for each frame.
    #[cfg(feature = "cluster")]
    pub fn lose_frames(self, chance: f64) -> Faults {
        self.with(Whom::Network, What::LoseFrame, chance)
    }

    /// Lets frames between nodes arrive twice, with this probability for each frame.
    #[cfg(feature = "cluster")]
    pub fn repeat_frames(self, chance: f64) -> Faults {
        self.with(Whom::Network, What::RepeatFrame, chance)
    }

    /// Delays frames between nodes by up to this time, with this probability for each frame. Later frames between the
    /// same two nodes do not pass it.
    #[cfg(feature = "cluster")]
    pub fn delay_frames(self, chance: f64, most: Duration) -> Faults {
        self.with(Whom::Network, What::DelayFrame(most), chance)
    }

    /// Loses a frame and all further ones of one node to another, for up to this time. The probability is that for each
    /// frame.
    #[cfg(feature = "cluster")]
    pub fn cut_nodes(self, chance: f64, most: Duration) -> Faults {
        self.with(Whom::Network, What::Cut(most), chance)
    }

    /// Pauses a node when it sends a frame to another one, with this probability for each frame, for up to this time.
    ///
    /// The threads of its runtime do not run meanwhile, as if the program were stopped, or its virtual machine were
    /// moved to another host. The clock goes on. Frames that arrive wait at the node, and the timers of the runtime are
    /// late. A separate [`TaskScheduler`](crate::task::TaskScheduler) of the node is not paused.
    #[cfg(feature = "cluster")]
    pub fn pause_nodes(self, chance: f64, most: Duration) -> Faults {
        self.with(Whom::Network, What::Pause(most), chance)
    }

    /// Sets the most faults of one run. The default is no limit.
    pub fn at_most(mut self, most: u32) -> Faults {
        self.at_most = Some(most);
        self
    }

    /// Sets the virtual time after which no fault is injected. The default is no limit.
    ///
    /// A system that must recover can only be judged when the faults have ended. See
    /// [`World::eventually`](super::World::eventually).
    pub fn until(mut self, time: Duration) -> Faults {
        self.until = Some(time);
        self
    }

    fn with(mut self, whom: Whom, what: What, chance: f64) -> Faults {
        self.rules.push(Rule { whom, what, chance: chance.clamp(0.0, 1.0) });
        self
    }
}

impl Whom {
    /// Whether this rule is about the step with this number of a process of this type.
    pub(super) fn is_step(&self, pid: Pid, process: Option<TypeId>, step: u32) -> bool {
        match self {
            Whom::Type(wanted) => process == Some(*wanted),
            Whom::Step(wanted, number) => process == Some(*wanted) && step == *number,
            Whom::Process(wanted) => pid == *wanted,
            Whom::Command(..) | Whom::Blocking(..) | Whom::Program | Whom::Disk | Whom::Network => false,
        }
    }
}
