//! The vocabulary of random programs: acts of steps, and messages and commands.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use procession::command::Command;
use procession::spawn::Overflow;
use procession::{Pid, Reply, SpawnOptions};

use crate::monitor::Part;
use crate::observations::{Owned, Stamp};
use crate::records::World;

/// One thing that a step yields. Numbers choose among the processes that are known at that moment.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Send(usize),
    Spawn(usize, Born),
    Ask(usize),
    Timer(u8),
    Blocking {
        panics: bool,
    },
    Command(Outcome),
    /// With a limit of two seconds.
    CommandTimeout(Outcome),
    Cancel(usize),
    Terminate(usize),
    Monitor(usize),
    /// One of the monitors that it has.
    Demonitor(usize),
    Link(usize),
    Unlink(usize),
    Future(Completes),
    /// A child that is run for its output, with a limit of three seconds.
    Run(usize),
    /// One of the commands that are open. It may be a timer, and is no question.
    CancelCommand(usize),
    /// Waits for room in a full mailbox, for so many seconds.
    SendTimeout(usize, u8),
    /// Messages of many types.
    Parcels,
    /// So many yields that they are performed in slices.
    Burst,
}

/// Which of its events a step takes. The processes that are not written as state machines take all of them.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    All,
    /// At most so many. The next step follows at once.
    Few(usize),
    /// In a simulation, until the runtime shuts down. If the step is idle, they wait until something new comes.
    Nothing,
}

/// How the `start` of a process goes.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    Silent,
    Counts,
    Fails,
}

/// When a future completes.
#[derive(Clone, Copy, Debug)]
pub enum Completes {
    AtOnce,
    /// When another process has a step.
    Woken,
    Never,
}

/// How a child is related to its parent.
#[derive(Clone, Copy, Debug)]
pub enum Born {
    Alone,
    Monitored,
    Linked,
}

/// How the handler treats a command.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    AtOnce,
    Elsewhere,
    Fails,
    Panics,
    Drops,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Continue,
    Idle,
    Wait,
    Blocking,
    Done,
    Fail,
    Panic,
    Upgrade,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub steps: Vec<(Takes, Vec<Act>, Ending)>,
    /// Of the mailbox of a process that is born with this plan.
    pub bound: Option<(usize, Overflow)>,
    pub traps: bool,
    /// So many times it recovers.
    pub recovers: usize,
    /// Only a state machine has a `start` of its own.
    pub start: Start,
}

impl Plan {
    pub fn options(&self) -> SpawnOptions {
        let options = if self.traps { SpawnOptions::new().trap_exits() } else { SpawnOptions::new() };
        self.bound.iter().fold(options, |options, (limit, overflow)| options.mailbox(*limit, *overflow))
    }
}

pub struct Do {
    pub outcome: Outcome,
    pub of: StepNumber,
}

impl Command for Do {
    type Output = u32;
}

/// The same command, which is only used with a limit. So it may stay without an answer.
pub struct DoSoon(pub Do);

impl Command for DoSoon {
    type Output = u32;
}

/// A step of a process. Each effect carries it, so that it is known which step it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepNumber(pub u64);

/// A message says whom it is for, who it is from, and which of theirs it is.
pub struct Letter {
    pub to: Pid,
    pub from: Option<Pid>,
    pub number: u64,
    pub effective: bool,
    pub reply: Option<Reply<u32>>,
    pub stamp: Stamp,
}

/// A future of a process. Another one has to wake it, if it is not done or pending for ever.
pub fn future(world: &Arc<World>, me: Pid, completes: Completes) -> impl Future<Output = u32> + Send + use<> {
    let world = world.clone();
    async move {
        // Only the end of the state machine drops a future that is pending for ever. One that a failed step has
        // yielded is never polled.
        let _owned = matches!(completes, Completes::Never).then(|| Owned::new(&world, me, Part::Future));
        match (completes, &world.simulated) {
            (Completes::Never, Some(_)) => pending::<()>().await,
            (Completes::Woken, Some(simulated)) => {
                let mut is_woken = false;
                let wait = poll_fn(|task| {
                    if !is_woken {
                        simulated.wakers.lock().unwrap().push(task.waker().clone());
                    }
                    if std::mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }
                });
                wait.await;
            }
            _ => {}
        }
        3
    }
}
