//! Spawning: how a new process is described, by a process or from outside.

use std::borrow::Cow;

use super::body::{NoVacancy, Ready, StepOutput, Yield};
use super::contract::Process;
use super::entry::EntryPoint;
use super::machine::{ExitLatch, HasProcess, body_in, new_body};
use super::mailbox::{Bound, Overflow};
use super::pid::{Address, Pid};
use crate::outcome::{Failure, Panic, Rejected};
use crate::sync::Arc;

/// How a process is to be spawned, where the defaults are not wanted: entered at `"main"` without input, no name, a
/// mailbox without bound.
///
/// ```
/// use procession::{Overflow, SpawnOptions};
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
}

impl SpawnOptions {
    /// The defaults.
    pub fn new() -> SpawnOptions {
        SpawnOptions::default()
    }

    /// Under this name the process can be found as long as it lives, also by the step that spawns it. No other process of
    /// the runtime may have it.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> SpawnOptions {
        self.name = Some(name.into());
        self
    }

    /// The entry method, and its input, with which `init` is called.
    pub fn entry<I: Send + 'static>(mut self, method: impl Into<Cow<'static, str>>, input: I) -> SpawnOptions {
        self.entry = Some(Box::new(EntryPoint::new(method, input)));
        self
    }

    /// At most `limit` messages may wait (at least one); what happens to one too many.
    pub fn mailbox(mut self, limit: usize, overflow: Overflow) -> SpawnOptions {
        self.bound = Some(Bound { limit, overflow });
        self
    }

    /// The ends of linked processes are events to the process, from its birth on; see
    /// [`StepOutput::link`](super::StepOutput::link).
    pub fn trap_exits(mut self) -> SpawnOptions {
        self.traps = true;
        self
    }

    /// What can be said of the options by themselves.
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        if self.bound.is_some_and(|bound| bound.limit == 0) {
            return Err(SpawnError::ZeroMailbox);
        }
        if self.name.as_ref().is_some_and(|name| name.is_empty()) {
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
            .field("traps_exits", &self.traps)
            .finish()
    }
}

/// Why a process was not spawned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There are as many processes as there may be.
    #[error("the runtime has its limit of {limit} processes; see `RuntimeBuilder::max_processes`")]
    Limit {
        /// The limit.
        limit: u32,
    },
    /// The runtime shuts down.
    #[error("the runtime is shutting down and takes no new process")]
    ShuttingDown,
    /// Another process has the name.
    #[error("the name {name:?} is taken by {holder}")]
    NameTaken {
        /// The name.
        name: Arc<str>,
        /// Who has it.
        holder: Pid,
    },
    /// The name is empty.
    #[error("a name may not be empty")]
    EmptyName,
    /// The bound of the mailbox is zero: no message could ever be delivered.
    #[error("the mailbox's limit is 0; at least one message must find room")]
    ZeroMailbox,
    /// `init` returned an error, and the process has been closed.
    #[error("`init` failed: {0}")]
    Init(#[source] Failure),
    /// `init` panicked, and the process has been closed.
    #[error("`init` {0}")]
    InitPanicked(#[source] Panic),
}

impl From<NoVacancy> for SpawnError {
    fn from(no: NoVacancy) -> SpawnError {
        match no {
            NoVacancy::Limit(limit) => SpawnError::Limit { limit },
            NoVacancy::ShuttingDown => SpawnError::ShuttingDown,
        }
    }
}

/// The body of a process with these options, not yet in the table.
pub(crate) fn described_body<P: Process>(
    process: P,
    pid: Pid,
    options: SpawnOptions,
    exit: Option<ExitLatch<P::Output>>,
) -> Box<super::body::Body<impl super::body::Machine + HasProcess<P>>> {
    let mut body = new_body(process, pid, options.entry, exit);
    if options.name.is_some() || options.bound.is_some() || options.traps {
        let rare = body.head.rare();
        rare.name = options.name;
        rare.bound = options.bound;
        rare.traps = options.traps;
    }
    body
}

impl StepOutput {
    /// Spawns a process. Its PID is known at once; its `init` is called on its own first turn, and if that fails the
    /// failure is its exit. What this step yields to it after the spawn finds it there.
    ///
    /// # Errors
    /// The process comes back if the runtime has as many as it may, or shuts down.
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

    /// The same, with options. A name that is taken is the exit of the new process.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn); also if the options are out of range.
    pub fn spawn_with<P: Process>(
        &mut self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Address<P::Message>, Rejected<P, SpawnError>> {
        let pid = match self.vacancy_for(&options) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(process, why)),
        };
        let body: Ready = described_body(process, pid, options, None);
        self.push(Yield::Spawn(body));
        Ok(pid.typed())
    }

    /// A PID for a process with these options.
    pub(super) fn vacancy_for(&mut self, options: &SpawnOptions) -> Result<Pid, SpawnError> {
        options.check()?;
        let pid = self.vacancy()?;
        if let Some(name) = &options.name {
            self.pending_names().give(name, pid);
        }
        Ok(pid)
    }

    #[inline(never)]
    fn vacancy(&mut self) -> Result<Pid, SpawnError> {
        if self.stock.is_empty() {
            self.link.vacancies(&mut self.stock)?;
        }
        self.stock.pop().ok_or(SpawnError::ShuttingDown)
    }
}
