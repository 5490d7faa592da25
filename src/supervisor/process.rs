//! The supervisor: a process that reacts to the exits of other processes.
//!
//! An event only changes the states of children, and the *batches* to which they belong. Then
//! [`carry_on`](Supervisor::carry_on) does the next thing in each batch that has changed. In a batch, children are
//! first stopped in reverse order, one after the other. When none is left to be stopped, children are started in
//! order, one after the other. If the batch has a delay, the first start waits for it. Batches are independent of
//! each other. A child that takes long, or waits for a delay, delays only its own batch. `carry_on` looks only at the
//! next child, so the cost of an event does not grow with the number of children.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use super::backoff::Backoff;
use super::child::Child;
use super::intensity::RestartWindow;
use super::message::{ChildInfo, SupervisorError, SupervisorMessage};
use super::spec::{AutoShutdown, ChildSpec, Strategy};
use crate::command::TimerFired;
use crate::{Completion, Event, Events, Pid, Process, Reply, Step, StepOutput, StepResult, Tag};

/// A process that starts other processes, restarts them after failures, and stops them at the end.
///
/// Build it with [`Supervisor::builder`], spawn it like any process, and send it [`SupervisorMessage`]s.
///
/// After a cancel request, it stops its children in reverse order of their start. Each child has its own limit. The
/// supervisor is done when the last child has ended. If the supervisor is terminated, the links end its children.
pub struct Supervisor {
    pub(super) config: Config,
    /// All children, by number. The numbers follow the order of their start.
    pub(super) children: BTreeMap<u64, Child>,
    pub(super) by_id: HashMap<Arc<str>, u64>,
    pub(super) by_pid: HashMap<Pid, u64>,
    /// Children that have a process and are not to be stopped.
    pub(super) running: BTreeSet<u64>,
    /// Children that are to be stopped or started, by batch.
    pub(super) batches: BTreeMap<u64, Batch>,
    /// Batches in which something has changed since the last `carry_on`.
    pub(super) changed: BTreeSet<u64>,
    /// Children of the specification that have not been up yet.
    pub(super) first: BTreeSet<u64>,
    /// Commands that this supervisor waits for, by tag.
    pub(super) awaited: BTreeMap<u64, Awaited>,
    pub(super) numbers: u64,
    pub(super) life: Life,
    /// Requests to be answered when all initial children are up.
    pub(super) starters: Vec<Reply<()>>,
}

/// The configuration of a supervisor.
pub(super) struct Config {
    pub(super) strategy: Strategy,
    pub(super) auto: AutoShutdown,
    pub(super) intensity: RestartWindow,
    pub(super) backoff: Option<Backoff>,
    pub(super) limit: Option<usize>,
    pub(super) kind: Option<Kind>,
}

/// How to make the children of a dynamic supervisor.
pub(super) struct Kind {
    pub(super) input: &'static str,
    pub(super) make: Box<MakeOfKind>,
}

/// Makes a specification from an input and a number for the id. Returns `None` if the input has another type.
type MakeOfKind = dyn Fn(Box<dyn Any + Send>, u64) -> Option<ChildSpec> + Send;

pub(super) enum Life {
    New,
    Starting,
    Up,
    /// The supervisor ends when its children have ended, with this error if there is one.
    Ending(Option<SupervisorError>),
}

/// Children that are first stopped, and then started, one after the other.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) stopping: BTreeSet<u64>,
    pub(super) starting: BTreeSet<u64>,
    /// No child of the batch is started until this timer has fired.
    pub(super) delay: Option<Tag<TimerFired>>,
}

impl Batch {
    pub(super) fn all(&self, from: u64) -> impl Iterator<Item = u64> {
        self.stopping.range(from..).chain(self.starting.range(from..)).copied()
    }

    /// Whether no child of the batch comes before this one.
    pub(super) fn begins_at(&self, from: u64) -> bool {
        self.stopping.first().into_iter().chain(self.starting.first()).all(|first| *first >= from)
    }

    pub(super) fn len(&self) -> usize {
        self.stopping.len() + self.starting.len()
    }
}

/// The purpose of a command that has no answer yet.
pub(super) enum Awaited {
    /// A stage in the start of the child with this number.
    Start(u64, Pid, Stage),
    /// The delay of a batch.
    Delay(u64),
    /// The time that a child has to stop.
    Limit(Pid),
    /// The delay of a child that is restarted in place. The child waits for the reply.
    InPlace(u64, Pid, Reply<()>),
}

/// A stage in the start of a child.
pub(super) enum Stage {
    /// The `init` of the child.
    Init(Tag<()>),
    /// The child is a supervisor. It answers when its children are up.
    Children(Tag<()>),
    /// The time until the child is asked again.
    AskAgain(Tag<TimerFired>),
}

/// The batch of the initial children.
pub(super) const FIRST: u64 = 0;

impl Supervisor {
    pub(super) fn with(config: Config, specs: Vec<ChildSpec>) -> Supervisor {
        let mut supervisor = Supervisor {
            config,
            children: BTreeMap::new(),
            by_id: HashMap::new(),
            by_pid: HashMap::new(),
            running: BTreeSet::new(),
            batches: BTreeMap::new(),
            changed: BTreeSet::new(),
            first: BTreeSet::new(),
            awaited: BTreeMap::new(),
            numbers: FIRST,
            life: Life::New,
            starters: Vec::new(),
        };
        for spec in specs {
            let key = supervisor.insert(Child::new(spec, FIRST));
            supervisor.first.insert(key);
        }
        supervisor
    }

    /// The states of all children, in the order of their start.
    pub(super) fn infos(&self) -> impl Iterator<Item = ChildInfo> {
        let is_delayed = |child: &Child| self.batches.get(&child.batch).is_some_and(|batch| batch.delay.is_some());
        self.children.values().map(move |child| child.info(is_delayed(child)))
    }

    fn answered(&mut self, awaited: Awaited, done: &Completion, out: &mut StepOutput) {
        match awaited {
            Awaited::Start(key, pid, stage) => self.start_goes_on(key, pid, stage, done, out),
            Awaited::Delay(batch) => {
                if let Some(batch) = self.batches.get_mut(&batch) {
                    batch.delay = None;
                }
                self.changed.insert(batch);
            }
            Awaited::Limit(pid) => drop(out.terminate(pid)),
            Awaited::InPlace(key, pid, reply) => self.goes_on(key, pid, reply, out),
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.children.values().map(|child| &child.spec.id);
        f.debug_struct("Supervisor")
            .field("strategy", &self.config.strategy)
            .field("children", &ids.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Process for Supervisor {
    type Message = SupervisorMessage;
    type Output = ();

    /// The strategy, and a line for each child.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}, {} children", self.config.strategy, self.children.len())?;
        self.infos().try_for_each(|info| writeln!(f, "{info}"))
    }

    fn step(&mut self, events: &mut Events<'_, SupervisorMessage>, out: &mut StepOutput) -> StepResult<()> {
        match &self.life {
            Life::New => {
                out.trap_exits(true);
                self.life = Life::Starting;
            }
            // A step that fails has no effects, and the last step may have had some.
            Life::Ending(Some(error)) if self.children.is_empty() => return Err(error.clone().into()),
            _ => {}
        }
        let mut let_go = Vec::new();
        for event in events {
            match event {
                Event::Exit(signal) => match self.by_pid.remove(&signal.pid) {
                    Some(key) => self.ended(key, signal.into_inner().exit, out),
                    None if signal.exit.is_done() || let_go.contains(&signal.pid) => {}
                    None => {
                        let (pid, exit) = (signal.pid, signal.into_inner().exit);
                        self.end(Some(SupervisorError::Linked { pid, exit }), out);
                    }
                },
                // A child that is being stopped may have removed its link. If it has not, its exit event is
                // redundant: no later step gets it, but this step may.
                Event::Down(down) => {
                    if let Some(key) = self.by_pid.remove(&down.pid) {
                        out.unlink(down.pid);
                        let_go.push(down.pid);
                        self.ended(key, down.into_inner().exit, out);
                    }
                }
                Event::Recovered(recovered) => self.recovered(recovered.into_inner(), out),
                Event::Cancel(_) => self.end(None, out),
                Event::Completed(done) => {
                    if let Some(awaited) = self.awaited.remove(&done.tag()) {
                        self.answered(awaited, &done, out);
                    }
                }
                Event::Message(message) => self.request(message.request, out),
                _ => {}
            }
        }
        self.carry_on(out);
        match self.life {
            Life::Ending(None) if self.children.is_empty() => Ok(Step::Done(())),
            Life::Ending(Some(_)) if self.children.is_empty() => Ok(Step::Continue),
            // If a child could not be spawned, the next one may have its turn.
            _ if !self.changed.is_empty() => Ok(Step::Continue),
            _ => Ok(Step::Idle),
        }
    }
}
