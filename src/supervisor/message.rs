//! Messages to a supervisor, and its answers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::contained::Contained;
#[cfg(feature = "console")]
use super::spec::Strategy;
use super::spec::{ChildSpec, Restart, SpecError};
use crate::{Exit, Pid, Reply, SpawnError};

/// A message to a [`Supervisor`](super::Supervisor).
///
/// Each function of this type makes a message around a [`Reply`], with which the supervisor answers. Pass the function,
/// or the closure that it returns, to [`Runtime::ask`](crate::Runtime::ask) or
/// [`StepOutput::ask`](crate::StepOutput::ask).
#[derive(Debug)]
pub struct SupervisorMessage {
    pub(super) request: Request,
}

#[derive(Debug)]
pub(super) enum Request {
    Children(Reply<Vec<ChildInfo>>),
    #[cfg(feature = "console")]
    Overview(Reply<(Strategy, Vec<ChildInfo>)>),
    Add(ChildSpec, Reply<Result<Pid, ChildError>>),
    AddOfKind(Contained<Box<dyn Any + Send>>, &'static str, Reply<Result<Pid, ChildError>>),
    Stop(Arc<str>, Reply<Result<(), ChildError>>),
    Restart(Arc<str>, Reply<Result<Pid, ChildError>>),
    Delete(Arc<str>, Reply<Result<(), ChildError>>),
    /// A child that is restarted in place has failed. It waits for the reply.
    InPlaceFailed(Pid, Exit, Reply<()>),
    Started(Reply<()>),
}

impl SupervisorMessage {
    /// Lists the children with their states, in the order of their start.
    pub fn children(reply: Reply<Vec<ChildInfo>>) -> SupervisorMessage {
        SupervisorMessage { request: Request::Children(reply) }
    }

    /// Lists the children, beside the strategy of the supervisor.
    #[cfg(feature = "console")]
    pub(crate) fn overview(reply: Reply<(Strategy, Vec<ChildInfo>)>) -> SupervisorMessage {
        SupervisorMessage { request: Request::Overview(reply) }
    }

    /// Adds a child after the others, and starts it.
    ///
    /// The answer is the PID of the child. It comes when the child's `init` has returned. If the child does not start,
    /// the supervisor removes it.
    pub fn add(spec: ChildSpec) -> impl FnOnce(Reply<Result<Pid, ChildError>>) -> SupervisorMessage {
        move |reply| SupervisorMessage { request: Request::Add(spec, reply) }
    }

    /// Adds a child to a [dynamic](super::SupervisorBuilder::dynamic) supervisor, made from this input.
    ///
    /// The answer is the PID of the child. It comes when the child's `init` has returned.
    pub fn add_of_kind<I: Send + Sync + 'static>(
        input: I,
    ) -> impl FnOnce(Reply<Result<Pid, ChildError>>) -> SupervisorMessage {
        let input: Box<dyn Any + Send> = Box::new(input);
        let input = Contained::new(input);
        move |reply| SupervisorMessage { request: Request::AddOfKind(input, std::any::type_name::<I>(), reply) }
    }

    /// Stops a child. The supervisor keeps its specification. The answer comes when the child has ended.
    pub fn stop(id: impl Into<Arc<str>>) -> impl FnOnce(Reply<Result<(), ChildError>>) -> SupervisorMessage {
        let id = id.into();
        move |reply| SupervisorMessage { request: Request::Stop(id, reply) }
    }

    /// Restarts a child. If it is up, it is stopped first.
    ///
    /// The answer is the new PID of the child. It comes when the child's `init` has returned. This restart does not
    /// count toward the limit of restarts. If the child does not start, it stays down, with any [`Restart`], until a
    /// request starts it again.
    pub fn restart(id: impl Into<Arc<str>>) -> impl FnOnce(Reply<Result<Pid, ChildError>>) -> SupervisorMessage {
        let id = id.into();
        move |reply| SupervisorMessage { request: Request::Restart(id, reply) }
    }

    /// Stops a child and deletes its specification. The answer comes when the child has ended.
    pub fn delete(id: impl Into<Arc<str>>) -> impl FnOnce(Reply<Result<(), ChildError>>) -> SupervisorMessage {
        let id = id.into();
        move |reply| SupervisorMessage { request: Request::Delete(id, reply) }
    }

    /// Waits for the start of the supervisor. The answer comes when each of its initial children has been up.
    ///
    /// By then, a child may have failed and may wait for its restart. If the supervisor ends before that, the answer is
    /// an error.
    pub fn started(reply: Reply<()>) -> SupervisorMessage {
        SupervisorMessage { request: Request::Started(reply) }
    }
}

/// The state of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildState {
    /// The child waits for its turn to start. Other children must be up first, or must have stopped.
    Queued,
    /// The child has been spawned, but its `init` has not returned.
    Starting,
    /// The child is up: its `init` has returned. If the child is a supervisor, its own children are up, too.
    Up,
    /// The child has failed. It is restarted when its delay is over.
    Delayed,
    /// The child waits for its turn to stop. Other children must have stopped first.
    ToStop,
    /// The child has been asked to stop.
    Stopping,
    /// The child has ended or was stopped. The supervisor does not restart it by itself.
    Down,
}

/// The state of one child of a supervisor at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// The id of the child.
    pub id: Arc<str>,
    /// The PID of its process, if there is one.
    pub pid: Option<Pid>,
    /// The state of the child.
    pub state: ChildState,
    /// When the child is restarted.
    pub restart: Restart,
    /// Whether the child is a supervisor.
    pub supervises: bool,
    /// How often the child was restarted, in place or otherwise.
    pub restarts: u64,
}

/// The id, the state, the PID, and the number of restarts if there were any.
impl fmt::Display for ChildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.id, self.state)?;
        if let Some(pid) = self.pid {
            write!(f, " {pid}")?;
        }
        match self.restarts {
            0 => Ok(()),
            1 => f.write_str(", restarted once"),
            times => write!(f, ", restarted {times} times"),
        }
    }
}

/// Why a child was not added, started or stopped.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// No child has this id.
    #[error("there is no child {id:?}")]
    NoSuchChild {
        /// The id.
        id: Arc<str>,
    },
    /// The specification is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The supervisor already has as many children as its limit allows.
    #[error("the supervisor has its limit of {limit} children")]
    Limit {
        /// The limit.
        limit: usize,
    },
    /// The supervisor does not take this kind of child.
    ///
    /// A dynamic supervisor takes only children of its kind. Other supervisors take no requests of
    /// [`SupervisorMessage::add_of_kind`].
    #[error("this supervisor's children are not of this kind: {reason}")]
    WrongKind {
        /// The kind of child that the supervisor takes.
        reason: String,
    },
    /// The child could not be spawned.
    #[error("the child was not spawned: {0}")]
    Spawn(#[source] SpawnError),
    /// The factory of the child panicked.
    #[error("the factory of the child panicked: {message}")]
    FactoryPanicked {
        /// The message of the panic.
        message: String,
    },
    /// The child ended before its `init` had returned.
    #[error("the child ended before it had begun: {0}")]
    Ended(Exit),
    /// Another request has stopped the child, or the supervisor is stopping.
    #[error("the child was stopped before it had begun")]
    Stopped,
}

/// The error with which a supervisor fails.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// A child did not start when the supervisor started its initial children.
    #[error("child {id:?} did not start: {error}")]
    NotStarted {
        /// The child's id.
        id: Arc<str>,
        /// The reason.
        #[source]
        error: ChildError,
    },
    /// The children were restarted more often within the window than the limit allows.
    #[error("too many restarts: {}", list(.restarts))]
    TooManyRestarts {
        /// The restarts, oldest first: the id of the child, and how it had ended.
        restarts: Vec<(Arc<str>, Exit)>,
    },
    /// A linked process that is not a child of the supervisor has ended.
    #[error("{pid}, to which it was linked, has ended: {exit}")]
    Linked {
        /// The process.
        pid: Pid,
        /// How it ended.
        exit: Exit,
    },
}

/// The most restarts that the text of an error shows. Each may be the end of a supervisor, with a list of its own.
const IN_TEXT: usize = 8;

fn list(restarts: &[(Arc<str>, Exit)]) -> String {
    let each: Vec<String> = restarts.iter().take(IN_TEXT).map(|(id, exit)| format!("{id} ({exit})")).collect();
    match restarts.len().saturating_sub(IN_TEXT) {
        0 => each.join(", "),
        more => format!("{}, and {more} more", each.join(", ")),
    }
}
