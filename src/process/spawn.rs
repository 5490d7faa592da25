//! Spawning: the options of a new process, and the yields that spawn one.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;

#[cfg(feature = "cluster")]
use super::command::CommandError;
use super::command::Tag;
use super::contract::{Process, Upgrade};
use super::entry::EntryPoint;
use super::host::SpawnError;
use super::relation::{Bond, Monitor, ParentEndPolicy};
use crate::outcome::{Exit, Rejected, contain, tell_log};
#[cfg(feature = "cluster")]
use crate::outcome::{Failure, drop_contained};
use crate::pid::{Address, Pid};
use crate::primitives::Arc;
use crate::sched::body::{Body, Given, Ready, RecoverWith, StartReport, StepOutput, Yield};
use crate::sched::machine::{ExitLatch, Typed, body_in, new_body};
use crate::sched::mailbox::{Bound, Overflow};

/// Options of a new process. By default the entry method is `"main"` without input, the process has no name, and its
/// mailbox has no bound.
///
/// ```
/// use procession::SpawnOptions;
/// use procession::spawn::Overflow;
///
/// let options = SpawnOptions::new().name("sink").mailbox(1_000, Overflow::DropOldest).entry("from", 7_u64);
/// # let _ = options;
/// ```
#[derive(Default)]
#[must_use = "options do nothing until something is spawned with them"]
pub struct SpawnOptions {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) entry: Option<Box<EntryPoint>>,
    pub(crate) bound: Option<Bound>,
    pub(crate) traps: bool,
    pub(crate) never_held: bool,
    pub(super) parent_end: ParentEndPolicy,
    step_events: Option<usize>,
    given: Option<Box<Given>>,
    bonds: Bonds,
}

/// The relations of the new process to the process that spawns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bonds {
    pub(crate) link: bool,
    pub(crate) monitor: bool,
    report_started: bool,
}

/// Those options of a process on another node that only this file sees.
#[cfg(feature = "cluster")]
pub(crate) struct TravellingOptions<'o> {
    pub(crate) groups: &'o [Arc<str>],
    pub(crate) step_events: Option<usize>,
    pub(crate) bonds: Bonds,
}

impl SpawnOptions {
    /// The default options.
    pub fn new() -> SpawnOptions {
        SpawnOptions::default()
    }

    /// Sets a name of the process. No other process of the runtime may have it. The process keeps the name until it
    /// ends or the name is unregistered. The step that spawns the process can already use the name.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> SpawnOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets the entry method with which `init` is called, and its input.
    pub fn entry<I: Send + 'static>(mut self, method: impl Into<Cow<'static, str>>, input: I) -> SpawnOptions {
        self.entry = Some(Box::new(EntryPoint::new(method, input)));
        self
    }

    /// Sets a bound for the mailbox: at most `limit` messages wait. The limit must be at least one. `overflow` says
    /// what happens to further messages.
    pub fn mailbox(mut self, limit: usize, overflow: Overflow) -> SpawnOptions {
        self.bound = Some(Bound { limit, overflow });
        self
    }

    /// Limits the new events that one step of the process is given. The limit must be at least one. A limit above that
    /// of the runtime has no effect: see [`RuntimeBuilder::step_events`](crate::config::RuntimeBuilder::step_events).
    /// That method also says which events are counted.
    ///
    /// With a limit of one, a step that fails loses at most one message. Each message costs a step of its own then.
    pub fn step_events(mut self, events: usize) -> SpawnOptions {
        self.step_events = Some(events);
        self
    }

    /// Makes the process trap exits from its birth on. The end of a linked process is then an event to it. See
    /// [`StepOutput::link`](super::StepOutput::link).
    pub fn trap_exits(mut self) -> SpawnOptions {
        self.traps = true;
        self
    }

    /// Never holds the process.
    ///
    /// By default a process is held after it has sent a message or an answer to another node for which too much waits.
    /// It is not stepped until there is room, the node is down, or a control signal comes that is no answer. With this
    /// option the process goes on. Its messages become dead letters with
    /// [`DeadLetterReason::Busy`](crate::process::DeadLetterReason::Busy) while there is no room.
    #[cfg(feature = "cluster")]
    pub fn never_held(mut self) -> SpawnOptions {
        self.never_held = true;
        self
    }

    /// Links the process to the process that spawns it, from its birth on. See
    /// [`StepOutput::link`](super::StepOutput::link).
    pub fn link(mut self) -> SpawnOptions {
        self.bonds.link = true;
        self
    }

    /// Makes the spawner monitor the process from its birth on. So the process cannot end before it is monitored. The
    /// monitor is in [`Spawned::monitor`]. If `init` fails or the name is taken, the spawner gets that exit with the
    /// [`Event::Down`](super::Event::Down), too.
    pub fn monitor(mut self) -> SpawnOptions {
        self.bonds.monitor = true;
        self
    }

    /// Makes the spawn a command. It is answered when `init` of the new process has returned. Its tag is in
    /// [`Spawned::started`]. The answer is an error if `init` has failed, or if the process has ended before.
    pub fn report_started(mut self) -> SpawnOptions {
        self.bonds.report_started = true;
        self
    }

    /// Sets the fate of the process when its parent ends, if it is a child of
    /// [`StepOutput::run_with`](super::StepOutput::run_with). By default the process is terminated. Other spawns ignore
    /// this option.
    pub fn parent_end(mut self, policy: ParentEndPolicy) -> SpawnOptions {
        self.parent_end = policy;
        self
    }

    /// Adds the process to this group before its first step. For several groups, call this several times.
    ///
    /// The process joins when its `init` has returned. If its state machine is replaced, also after a failure, the
    /// process stays in the group.
    pub fn group(mut self, name: impl Into<Arc<str>>) -> SpawnOptions {
        self.given.get_or_insert_default().groups.push(name.into());
        self
    }

    /// Sets a function that recovers the process from a failed step.
    ///
    /// The runtime calls it if [`Process::recover`] returns `None`. The function receives the failure. It returns the
    /// state machine that replaces the failed one, or `None`. [`Process::recover`] lists what the process keeps. The
    /// function is called after each failure until the process ends, also after an upgrade. If the function panics,
    /// the process ends with the failure of the step.
    ///
    /// The new state machine must have the same type of output as the process that is spawned.
    ///
    /// ```
    /// use procession::{Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Upgrade};
    ///
    /// struct Clerk;
    ///
    /// impl Process for Clerk {
    ///     type Message = &'static str;
    ///     type Output = ();
    ///
    ///     fn step(&mut self, events: &mut Events<&'static str>, _: &mut StepOutput) -> StepResult<()> {
    ///         if events.next().is_some() { Err("a bad day".into()) } else { Ok(Step::Idle) }
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let mut left = 1;
    /// let options = SpawnOptions::new().recover_with(move |_| {
    ///     left -= 1;
    ///     (left >= 0).then(|| Upgrade::to(Clerk))
    /// });
    /// let clerk = runtime.spawn_with(Clerk, options)?;
    /// runtime.send(clerk.address(), "one")?;
    /// runtime.send(clerk.address(), "two")?;
    /// assert_eq!(clerk.join()?.without_output().to_string(), "failed: a bad day");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recover_with<O: 'static>(
        mut self,
        mut recover: impl FnMut(&Exit) -> Option<Upgrade<O>> + Send + 'static,
    ) -> SpawnOptions {
        let contained = move |exit: &Exit| match contain(|| recover(exit)) {
            Ok(upgrade) => upgrade.map(|upgrade| upgrade.successor),
            Err(panic) => {
                tell_log(|| tracing::error!(%panic, "the function of `recover_with` panicked"));
                None
            }
        };
        let output = (TypeId::of::<O>(), type_name::<O>());
        self.given.get_or_insert_default().recover = Some(RecoverWith { recover: Box::new(contained), output });
        self
    }

    /// The name that was set with [`name`](Self::name).
    pub fn given_name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    fn groups(&self) -> &[Arc<str>] {
        self.given.as_ref().map_or(&[], |given| &given.groups)
    }

    /// The output of the state machines that the function given to [`recover_with`](Self::recover_with) returns.
    fn recovers_to(&self) -> Option<(TypeId, &'static str)> {
        Some(self.given.as_ref()?.recover.as_ref()?.output)
    }

    /// Refuses options that relate the new process to its spawner. A spawn from outside calls this, and a `run`.
    pub(crate) fn check_unrelated(&self) -> Result<(), SpawnError> {
        if self.bonds == Bonds::default() { Ok(()) } else { Err(SpawnError::OutsideStep) }
    }

    /// The options that another node is told.
    #[cfg(feature = "cluster")]
    pub(crate) fn travelling(&self) -> Result<TravellingOptions<'_>, SpawnError> {
        let option = match &self.given {
            _ if self.entry.is_some() => Some("entry"),
            Some(given) if given.recover.is_some() => Some("recover_with"),
            _ => None,
        };
        match option {
            Some(option) => Err(SpawnError::StaysHere { option }),
            None => Ok(TravellingOptions { groups: self.groups(), step_events: self.step_events, bonds: self.bonds }),
        }
    }

    /// Checks the options for a process of this type. The state of the runtime is not considered.
    pub(crate) fn check<P: Process>(&self) -> Result<(), SpawnError> {
        if let Some((output, given)) = self.recovers_to()
            && output != TypeId::of::<P::Output>()
        {
            return Err(SpawnError::WrongRecovery { output: type_name::<P::Output>(), given });
        }
        if self.bound.is_some_and(|bound| bound.limit == 0) {
            return Err(SpawnError::ZeroMailbox);
        }
        if self.step_events == Some(0) {
            return Err(SpawnError::ZeroStepEvents);
        }
        if self.name.iter().chain(self.groups()).any(|name| name.is_empty()) {
            return Err(SpawnError::EmptyName);
        }
        Ok(())
    }
}

impl std::fmt::Debug for SpawnOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpawnOptions")
            .field("name", &self.name)
            .field("entry", &self.entry.as_ref().map(|entry| &entry.method))
            .field("mailbox", &self.bound)
            .field("step_events", &self.step_events)
            .field("traps_exits", &self.traps)
            .field("never_held", &self.never_held)
            .field("bonds", &self.bonds)
            .field("parent_end", &self.parent_end)
            .field("groups", &self.groups())
            .field("recovers_to", &self.recovers_to().map(|(_, output)| output))
            .finish()
    }
}

/// The body of a process with these options, not yet in the table.
pub(crate) fn described_body<P: Process>(
    process: P,
    pid: Pid,
    options: SpawnOptions,
    exit: Option<ExitLatch<P::Output>>,
) -> Box<Body<Typed<P>>> {
    let SpawnOptions { name, entry, bound, traps, never_held, step_events, given, parent_end: _, bonds: _ } = options;
    let mut body = new_body(process, pid, entry, exit);
    if name.is_some() || bound.is_some() || traps || never_held || step_events.is_some() || given.is_some() {
        let rare = body.head.rare();
        rare.is_prepared = bound.is_some() || step_events.is_some();
        rare.step_events = step_events.map_or(0, |events| u32::try_from(events).unwrap_or(u32::MAX));
        (rare.name, rare.bound, rare.traps, rare.never_held, rare.given) = (name, bound, traps, never_held, given);
    }
    body
}

/// The result of a spawn with options in a step.
pub struct Spawned<M> {
    /// The address of the new process.
    pub address: Address<M>,
    /// The monitor, if [`SpawnOptions::monitor`] was given.
    pub monitor: Option<Monitor>,
    /// The tag of the command that reports the start, if [`SpawnOptions::report_started`] was given.
    pub started: Option<Tag<()>>,
}

impl<M> Spawned<M> {
    #[cfg(feature = "cluster")]
    pub(crate) fn of(pid: Pid, monitor: Option<Monitor>) -> Spawned<M> {
        Spawned { address: pid.typed(), monitor, started: None }
    }

    /// The PID of the new process.
    pub fn pid(&self) -> Pid {
        self.address.pid()
    }
}

impl<M> Clone for Spawned<M> {
    fn clone(&self) -> Spawned<M> {
        *self
    }
}

impl<M> Copy for Spawned<M> {}

impl<M> std::fmt::Debug for Spawned<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawned")
            .field("address", &self.address)
            .field("monitor", &self.monitor)
            .field("started", &self.started)
            .finish()
    }
}

impl StepOutput {
    /// Spawns a process, and returns its address at once. The runtime calls its `init` later, before its first step.
    /// If `init` fails, the failure is the exit of the process. Later yields of this step may already address the
    /// process.
    ///
    /// # Errors
    /// If the runtime is at its limit of processes, or is shutting down, the process comes back with the reason.
    #[inline]
    pub fn spawn<P: Process>(&mut self, process: P) -> Result<Address<P::Message>, Rejected<P, SpawnError>> {
        let pid = match self.stock.pop() {
            Some(pid) => pid,
            None => match self.vacancy() {
                Ok(pid) => pid,
                Err(why) => return Err(Rejected::new(process, why)),
            },
        };
        let body = body_in(&mut self.spares, process, pid);
        self.push(Yield::Spawn(body));
        Ok(pid.typed())
    }

    /// Spawns a process with options. If the name is taken, the new process fails, and its exit says so.
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn). The process also comes back if an option is invalid.
    pub fn spawn_with<P: Process>(
        &mut self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Spawned<P::Message>, Rejected<P, SpawnError>> {
        self.spawn_reporting(process, options, |_, _| Box::new(()))
    }

    /// As `spawn_with`. The start is reported with this answer.
    fn spawn_reporting<P: Process>(
        &mut self,
        process: P,
        options: SpawnOptions,
        answer: fn(Pid, Option<Monitor>) -> Box<dyn Any + Send>,
    ) -> Result<Spawned<P::Message>, Rejected<P, SpawnError>> {
        let pid = match options.check::<P>().and_then(|()| self.vacancy()) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(process, why)),
        };
        if let Some(name) = &options.name {
            self.pending_names().give(name, pid);
        }
        let bonds = options.bonds;
        let mut body: Ready = described_body(process, pid, options, None);
        let monitor = bonds.monitor.then(|| self.new_monitor(pid));
        let started = bonds.report_started.then(|| self.tag());
        if bonds != Bonds::default() {
            let rare = body.head.rare();
            rare.begun = started.map(|tag: Tag<()>| StartReport { to: self.pid, tag: tag.id(), answer });
            rare.bond = Some(Bond { parent: self.pid, monitor, watcher: self.pid, link: bonds.link, run: None });
        }
        self.push(Yield::Spawn(body));
        Ok(Spawned { address: pid.typed(), monitor, started })
    }

    /// Spawns a process here for a spawn that names a node. The command is answered when its `init` has returned.
    #[cfg(feature = "cluster")]
    pub(crate) fn spawn_here<P: Process>(&mut self, process: P, options: SpawnOptions) -> Tag<Spawned<P::Message>> {
        let answer = |pid: Pid, monitor| -> Box<dyn Any + Send> { Box::new(Spawned::<P::Message>::of(pid, monitor)) };
        match self.spawn_reporting(process, options.report_started(), answer) {
            Ok(Spawned { started: Some(tag), .. }) => Tag::new(tag.id()),
            Ok(_) => self.refused(CommandError::Dropped),
            Err(refused) => {
                let (process, why) = refused.into_parts();
                drop_contained(process);
                self.refused(CommandError::Failed(Failure::new(why)))
            }
        }
    }

    #[inline(never)]
    pub(super) fn vacancy(&mut self) -> Result<Pid, SpawnError> {
        if self.stock.is_empty() {
            self.reads.vacancies(&mut self.stock)?;
        }
        self.stock.pop().ok_or(SpawnError::ShuttingDown)
    }
}
