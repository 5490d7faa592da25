//! Specifications of children, and the errors in them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::contained::Contained;
use crate::{Pid, Process, SpawnError, SpawnOptions, StepOutput, Tag};

/// When to restart a child that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// The child is always restarted.
    #[default]
    Permanent,
    /// The child is restarted unless its exit is [`Done`](crate::Exit::Done).
    Transient,
    /// The child is never restarted. When it has ended, its specification is deleted.
    Temporary,
}

/// How to stop a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shutdown {
    /// The child is terminated.
    AtOnce,
    /// The child is asked to stop. It is terminated if it has not ended within this limit.
    Within(Duration),
    /// The child is asked to stop, without a limit. This is for children that are supervisors.
    Unlimited,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown::Within(Duration::from_secs(5))
    }
}

/// Which other children are restarted with a child that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// No other child. Only the child that has ended is restarted.
    #[default]
    OneForOne,
    /// All other children. They are stopped, and then all children are started again.
    OneForAll,
    /// The children that were started after the ended child. They are stopped. Then they and the ended child are
    /// started again.
    RestForOne,
}

/// Whether a supervisor ends when significant children have ended by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// The supervisor does not end for this reason.
    #[default]
    Never,
    /// The supervisor ends when the first significant child has ended by itself.
    AnySignificant,
    /// The supervisor ends when the last significant child has ended by itself.
    AllSignificant,
}

/// The specification of one child: its id, how it is made, and what happens when it ends.
///
/// A child begins with the entry method `"main"` and without input. Its [`options`](Self::options) can set another
/// entry.
#[derive(Clone)]
#[must_use = "a specification does nothing until a supervisor has it"]
pub struct ChildSpec {
    pub(super) id: Arc<str>,
    pub(super) start: Arc<Contained<Box<Start>>>,
    /// Whether a child that has failed asks its supervisor before it ends.
    pub(super) in_place: bool,
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(super) significant: bool,
    pub(super) supervises: bool,
    pub(super) options: Arc<dyn Fn() -> SpawnOptions + Send + Sync>,
}

/// Starts a child with a link to this process. The tag is answered when the child's `init` has returned.
pub(super) type Start = dyn Fn(&mut StepOutput, SpawnOptions) -> Result<(Pid, Tag<()>), SpawnError> + Send + Sync;

/// Refuses a process of a type that the store of the runtime knows: the store restarts it, and not a supervisor.
pub(super) fn refuse_stored<P: Process>(out: &StepOutput) -> Result<(), SpawnError> {
    let process = std::any::TypeId::of::<P>();
    #[cfg(feature = "durable")]
    if out.link.stores(process) {
        return Err(SpawnError::Durable);
    }
    let _ = (out, process);
    Ok(())
}

/// Spawns a child with a link to its supervisor. The supervisor is notified when the child has started.
pub(super) fn spawn_child<P: Process>(
    out: &mut StepOutput,
    process: P,
    options: SpawnOptions,
) -> Result<(Pid, Tag<()>), SpawnError> {
    refuse_stored::<P>(out)?;
    let child = out.spawn_with(process, options.link().report_started()).map_err(|refused| refused.into_parts().1)?;
    Ok((child.pid(), child.started.ok_or(SpawnError::OutsideStep)?))
}

impl ChildSpec {
    /// Describes a permanent child, which has five seconds to stop. Each start calls `make` for a new process.
    pub fn new<P: Process>(id: impl Into<Arc<str>>, make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec {
        ChildSpec::starting(id.into(), Box::new(move |out, options| spawn_child(out, make(), options)))
    }

    pub(super) fn starting(id: Arc<str>, start: Box<Start>) -> ChildSpec {
        ChildSpec {
            id,
            start: Arc::new(Contained::new(start)),
            in_place: false,
            restart: Restart::default(),
            shutdown: Shutdown::default(),
            significant: false,
            supervises: false,
            options: Arc::new(SpawnOptions::new),
        }
    }

    /// Sets when to restart the child.
    pub fn restart(mut self, restart: Restart) -> ChildSpec {
        self.restart = restart;
        self
    }

    /// Sets how to stop the child.
    pub fn shutdown(mut self, shutdown: Shutdown) -> ChildSpec {
        self.shutdown = shutdown;
        self
    }

    /// Marks the child as significant. [`AutoShutdown`] says how its end can end the supervisor.
    pub fn significant(mut self) -> ChildSpec {
        self.significant = true;
        self
    }

    /// Sets the spawn options, for example a name, a bounded mailbox or an entry. Each start calls `options`.
    pub fn options(mut self, options: impl Fn() -> SpawnOptions + Send + Sync + 'static) -> ChildSpec {
        let options = Contained::new(options);
        self.options = Arc::new(move || options.get()());
        self
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn check(&self, auto: AutoShutdown) -> Result<(), SpecError> {
        let id = || self.id.clone();
        if self.id.is_empty() {
            return Err(SpecError::EmptyId);
        }
        if self.shutdown == Shutdown::Within(Duration::ZERO) {
            return Err(SpecError::NoTimeToStop { id: id() });
        }
        if self.significant && self.restart == Restart::Permanent {
            return Err(SpecError::SignificantAndPermanent { id: id() });
        }
        if self.significant && auto == AutoShutdown::Never {
            return Err(SpecError::SignificantForNothing { id: id() });
        }
        Ok(())
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("restart", &self.restart)
            .field("shutdown", &self.shutdown)
            .field("significant", &self.significant)
            .finish_non_exhaustive()
    }
}

/// An error in the specification of a supervisor or of a child.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Two children have the same id.
    #[error("two children have the id {id:?}")]
    TwoWithOneId {
        /// The id.
        id: Arc<str>,
    },
    /// A child's id is empty.
    #[error("the id of a child may not be empty")]
    EmptyId,
    /// The window in which restarts are counted has zero length. No restart would ever count.
    #[error("the window in which restarts are counted is zero; it must have a length")]
    NoWindow,
    /// The limit of children is zero.
    #[error("the limit of children is 0; at least one must find room")]
    NoRoom,
    /// A [router](crate::router::Router) has no children.
    #[error("a router with 0 children has nobody to pass its messages on to")]
    NoChildren,
    /// There are more children than the limit allows.
    #[error("there are {children} children, and the limit is {limit}")]
    TooMany {
        /// The number of children.
        children: usize,
        /// The limit.
        limit: usize,
    },
    /// Other children were added to a dynamic supervisor. It takes only children of its kind.
    #[error("a dynamic supervisor makes all its children of one kind, and was given others as well")]
    KindAndOthers,
    /// The child's time to stop is zero. [`Shutdown::AtOnce`] terminates a child at once.
    #[error("child {id:?} has a limit of zero to stop: say `Shutdown::AtOnce` if that is meant")]
    NoTimeToStop {
        /// The child's id.
        id: Arc<str>,
    },
    /// A child is significant and permanent. It is always restarted, so the supervisor would never end with it.
    #[error(
        "child {id:?} is significant and permanent: it is always restarted, so the supervisor would never end with it"
    )]
    SignificantAndPermanent {
        /// The child's id.
        id: Arc<str>,
    },
    /// A child is significant, but the supervisor never ends because of significant children.
    #[error("child {id:?} is significant, and the supervisor has no automatic shutdown")]
    SignificantForNothing {
        /// The child's id.
        id: Arc<str>,
    },
    /// The delays are out of range.
    #[error(
        "delays from {first:?} to {cap:?} with a jitter of {jitter}: the first must not be zero nor above the cap, \
         the jitter from 0 to 1"
    )]
    Backoff {
        /// The first delay.
        first: Duration,
        /// The longest delay.
        cap: Duration,
        /// The random part of each delay.
        jitter: f64,
    },
}
