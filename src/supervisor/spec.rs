//! Specifications of children, and the errors in them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::contained::Contained;
use crate::{Pid, Process, SpawnError, SpawnOptions, StepOutput, Tag};

/// When a child that has ended is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// If it ended otherwise than done.
    Transient,
    /// Never; when it has ended its specification goes, too.
    Temporary,
}

/// How a child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shutdown {
    /// It is terminated.
    AtOnce,
    /// It is asked to stop, and terminated when it has not within this limit.
    Within(Duration),
    /// It is asked to stop, and has all the time it needs: for supervisors.
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
    /// Nothing: it alone is restarted.
    #[default]
    OneForOne,
    /// All other children are stopped, and all are started again.
    OneForAll,
    /// Those that were started after it are stopped, and it and they are started again.
    RestForOne,
}

/// Whether a supervisor ends when significant children have ended by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// It does not.
    #[default]
    Never,
    /// With the first of them.
    AnySignificant,
    /// With the last of them.
    AllSignificant,
}

/// One child: an id, how it is made, and what is done when it ends.
///
/// A child is entered at `"main"` without input, unless its [`options`](Self::options) say otherwise.
#[derive(Clone)]
#[must_use = "a specification does nothing until a supervisor has it"]
pub struct ChildSpec {
    pub(super) id: Arc<str>,
    pub(super) start: Arc<dyn Start>,
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(super) significant: bool,
    pub(super) supervises: bool,
    pub(super) options: Arc<dyn Fn() -> SpawnOptions + Send + Sync>,
}

/// Starts a child: a link to this process, and the tag that is answered when its `init` has returned.
pub(super) trait Start: Send + Sync {
    fn start(&self, out: &mut StepOutput, options: SpawnOptions) -> Result<(Pid, Tag<()>), SpawnError>;

    /// Whether the child asks its supervisor when it has failed, instead of ending.
    fn is_in_place(&self) -> bool {
        false
    }
}

/// Spawns a child: linked to its supervisor, which is told when it has started.
pub(super) fn spawn_child<P: Process>(
    out: &mut StepOutput,
    process: P,
    options: SpawnOptions,
) -> Result<(Pid, Tag<()>), SpawnError> {
    let child = out.spawn_with(process, options.link().report_started()).map_err(|refused| refused.into_parts().1)?;
    Ok((child.pid(), child.started.ok_or(SpawnError::OutsideStep)?))
}

impl<P: Process, F: Fn() -> P + Send + Sync> Start for Contained<F> {
    fn start(&self, out: &mut StepOutput, options: SpawnOptions) -> Result<(Pid, Tag<()>), SpawnError> {
        spawn_child(out, self.get()(), options)
    }
}

impl ChildSpec {
    /// A permanent child, made anew by `make` for each start, that has five seconds to stop.
    pub fn new<P: Process>(id: impl Into<Arc<str>>, make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec {
        ChildSpec::starting(id.into(), Arc::new(Contained::new(make)))
    }

    pub(super) fn starting(id: Arc<str>, start: Arc<dyn Start>) -> ChildSpec {
        ChildSpec {
            id,
            start,
            restart: Restart::default(),
            shutdown: Shutdown::default(),
            significant: false,
            supervises: false,
            options: Arc::new(SpawnOptions::new),
        }
    }

    /// When it is restarted.
    pub fn restart(mut self, restart: Restart) -> ChildSpec {
        self.restart = restart;
        self
    }

    /// How it is stopped.
    pub fn shutdown(mut self, shutdown: Shutdown) -> ChildSpec {
        self.shutdown = shutdown;
        self
    }

    /// The supervisor may end when it has ended by itself: see [`AutoShutdown`].
    pub fn significant(mut self) -> ChildSpec {
        self.significant = true;
        self
    }

    /// The options of each start, made anew: a name, a bounded mailbox, an entry.
    pub fn options(mut self, options: impl Fn() -> SpawnOptions + Send + Sync + 'static) -> ChildSpec {
        let options = Contained::new(options);
        self.options = Arc::new(move || options.get()());
        self
    }

    /// The id.
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
    /// Two children have one id.
    #[error("two children have the id {id:?}")]
    TwoWithOneId {
        /// The id.
        id: Arc<str>,
    },
    /// A child's id is empty.
    #[error("the id of a child may not be empty")]
    EmptyId,
    /// Restarts are counted within no time, so never.
    #[error("the window in which restarts are counted is zero; it must have a length")]
    NoWindow,
    /// A limit of zero children.
    #[error("the limit of children is 0; at least one must find room")]
    NoRoom,
    /// There are more children than there may be.
    #[error("there are {children} children, and the limit is {limit}")]
    TooMany {
        /// How many there are.
        children: usize,
        /// The limit.
        limit: usize,
    },
    /// A dynamic supervisor has no children but those of its kind.
    #[error("a dynamic supervisor makes all its children of one kind, and was given others as well")]
    KindAndOthers,
    /// A child has no time to stop.
    #[error("child {id:?} has a limit of zero to stop: say `Shutdown::AtOnce` if that is meant")]
    NoTimeToStop {
        /// The child's id.
        id: Arc<str>,
    },
    /// A permanent child does not end by itself.
    #[error(
        "child {id:?} is significant and permanent: it is always restarted, so the supervisor would never end with it"
    )]
    SignificantAndPermanent {
        /// The child's id.
        id: Arc<str>,
    },
    /// Significant children end nothing, unless the supervisor is told that they do.
    #[error("child {id:?} is significant, and the supervisor has no automatic shutdown")]
    SignificantForNothing {
        /// The child's id.
        id: Arc<str>,
    },
    /// The delays cannot be.
    #[error(
        "delays from {first:?} to {cap:?} with a jitter of {jitter}: the first must not be zero nor above the cap, the jitter from 0 to 1"
    )]
    Backoff {
        /// The first delay.
        first: Duration,
        /// The longest.
        cap: Duration,
        /// The random part.
        jitter: f64,
    },
}
