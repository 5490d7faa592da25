//! A process that is spawned on another node: the order for it, its options, and its beginning there.

use std::any::{Any, TypeId, type_name};

use serde::{Deserialize, Serialize};

use super::guarded;
use super::questions::{Answer, ReadAnswer};
use super::remote::RemoteProcess;
use crate::outcome::{BoxError, Exit, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::{
    Ask, EntryArgs, Events, InitResult, Monitor, Overflow, Process, Reply, SpawnError, SpawnOptions, Spawned,
    StepOutput, StepResult, Upgrade, described_body,
};
use crate::sched::body::Ready;

/// The order for a process, on its way to the connection. It is sent as a message to the other node.
pub(crate) struct SpawnOrder {
    /// The type of the process, as the wire knows it.
    pub(crate) process: TypeId,
    pub(crate) type_name: &'static str,
    pub(crate) argument: Box<dyn Any + Send>,
    pub(crate) options: FarOptions,
    /// The reply to the question. If the order is dropped and was not sent, it tells the asker.
    pub(crate) reply: Box<dyn AnyReply>,
    /// Reads the answer to the question.
    pub(crate) read: ReadAnswer,
}

/// A reply to a question with any answer.
pub(crate) trait AnyReply: Send {
    fn ask(&self) -> Option<&Arc<Ask>>;
}

impl<T: Send + 'static> AnyReply for Reply<T> {
    fn ask(&self) -> Option<&Arc<Ask>> {
        Reply::ask(self)
    }
}

impl SpawnOrder {
    /// The order for a process of this type.
    pub(crate) fn new<P: RemoteProcess>(
        argument: P::Argument,
        options: FarOptions,
        reply: Reply<Spawned<P::Message>>,
    ) -> SpawnOrder {
        SpawnOrder {
            process: TypeId::of::<Begins<P>>(),
            type_name: P::type_name(),
            argument: Box::new(argument),
            options,
            reply: Box::new(reply),
            read: read_spawned::<P::Message>,
        }
    }
}

/// Reads the report of a start.
fn read_spawned<M: Send + 'static>(bytes: &[u8]) -> Result<Answer, BoxError> {
    let (pid, monitor): (Pid, Option<u64>) = guarded::decode(bytes)?;
    let spawned = Spawned::<M>::of(pid, monitor.map(|id| Monitor::new(id, pid)));
    Ok(Box::new(move |ask| Reply::to(ask).is_some_and(|reply| reply.send(spawned))))
}

/// The options of a process, as they travel.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct FarOptions {
    name: Option<String>,
    mailbox: Option<(u64, FarOverflow)>,
    step_events: Option<u64>,
    traps: bool,
    never_held: bool,
    groups: Vec<String>,
    /// Whether the spawner is linked to the process.
    pub(crate) link: bool,
    /// The number of the spawner's monitor.
    pub(crate) monitor: Option<u64>,
}

/// An [`Overflow`].
#[derive(Clone, Copy, Serialize, Deserialize)]
enum FarOverflow {
    Refuse,
    DropOldest,
    DropNewest,
}

impl FarOptions {
    /// Refuses options that cannot travel. `number` is called for the number of a monitor.
    pub(crate) fn of(options: &SpawnOptions, number: impl FnOnce() -> u64) -> Result<FarOptions, SpawnError> {
        let travelling = options.travelling()?;
        let overflow = |overflow| match overflow {
            Overflow::Refuse => FarOverflow::Refuse,
            Overflow::DropOldest => FarOverflow::DropOldest,
            Overflow::DropNewest => FarOverflow::DropNewest,
        };
        Ok(FarOptions {
            name: options.name.as_deref().map(String::from),
            mailbox: options.bound.map(|bound| (bound.limit as u64, overflow(bound.overflow))),
            step_events: travelling.step_events.map(|events| events as u64),
            traps: options.traps,
            never_held: options.never_held,
            groups: travelling.groups.iter().map(|group| String::from(&**group)).collect(),
            link: travelling.bonds.link,
            monitor: travelling.bonds.monitor.then(number),
        })
    }

    /// The options that the new process itself has.
    pub(crate) fn here(self) -> SpawnOptions {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut options = SpawnOptions::new();
        if let Some(name) = self.name {
            options = options.name(name);
        }
        if let Some((limit, overflow)) = self.mailbox {
            let overflow = match overflow {
                FarOverflow::Refuse => Overflow::Refuse,
                FarOverflow::DropOldest => Overflow::DropOldest,
                FarOverflow::DropNewest => Overflow::DropNewest,
            };
            options = options.mailbox(number(limit), overflow);
        }
        if let Some(events) = self.step_events {
            options = options.step_events(number(events));
        }
        if self.traps {
            options = options.trap_exits();
        }
        if self.never_held {
            options = options.never_held();
        }
        self.groups.into_iter().fold(options, SpawnOptions::group)
    }
}

/// Makes the body of a process that was ordered, or says why not.
pub(crate) type Described = Box<dyn FnOnce(Pid, SpawnOptions) -> Result<Ready, SpawnError>>;

/// Decodes the argument of a process of this type.
pub(crate) fn described<P: RemoteProcess>(bytes: &[u8]) -> Result<Described, BoxError> {
    let process = Begins::<P>::new(guarded::decode(bytes)?);
    Ok(Box::new(move |pid, options| match options.check::<Begins<P>>() {
        Ok(()) => Ok(described_body(process, pid, options, None)),
        Err(why) => {
            drop_contained(process);
            Err(why)
        }
    }))
}

/// A process that its `init` makes of the argument.
pub(crate) struct Begins<P: RemoteProcess> {
    /// Taken by `init`.
    argument: Option<P::Argument>,
    /// There from `init` on.
    process: Option<P>,
}

impl<P: RemoteProcess> Begins<P> {
    pub(crate) fn new(argument: P::Argument) -> Begins<P> {
        Begins { argument: Some(argument), process: None }
    }

    fn process(&mut self) -> Result<&mut P, BoxError> {
        self.process.as_mut().ok_or_else(|| format!("{} has not begun", type_name::<P>()).into())
    }
}

impl<P: RemoteProcess> Process for Begins<P> {
    type Message = P::Message;
    type Output = P::Output;

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        let argument = self.argument.take().ok_or("a process begins once")?;
        self.process.insert(P::begin(argument)?).init(entry)
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.process()?.start(out)
    }

    fn step(&mut self, events: &mut Events<'_, P::Message>, out: &mut StepOutput) -> StepResult<P::Output> {
        self.process()?.step(events, out)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<P::Output>> {
        self.process.as_mut()?.recover(exit)
    }

    fn type_name() -> &'static str {
        P::type_name()
    }

    fn close(&mut self) {
        self.process.iter_mut().for_each(P::close);
    }
}
