//! Messages to a supervisor, and its answers.

use std::any::Any;
use std::sync::Arc;

use super::contained::Contained;
use super::spec::{ChildSpec, Restart, SpecError};
use crate::{Exit, Pid, Reply, SpawnError};

/// A message to a [`Supervisor`](super::Supervisor): made with one of these functions, around the [`Reply`] that it is
/// answered with. Send it with [`Runtime::ask`](crate::Runtime::ask) or [`StepOutput::ask`](crate::StepOutput::ask).
#[derive(Debug)]
pub struct SupervisorMessage {
    pub(super) request: Request,
}

#[derive(Debug)]
pub(super) enum Request {
    Children(Reply<Vec<ChildInfo>>),
    Add(ChildSpec, Reply<Result<Pid, ChildError>>),
    AddOfKind(Contained<Box<dyn Any + Send>>, &'static str, Reply<Result<Pid, ChildError>>),
    Stop(Arc<str>, Reply<Result<(), ChildError>>),
    Restart(Arc<str>, Reply<Result<Pid, ChildError>>),
    Delete(Arc<str>, Reply<Result<(), ChildError>>),
    InPlaceFailed(InPlaceFailed),
    Started(Reply<()>),
}

/// A child that is to be restarted in place has failed, and waits to be told to go on.
#[derive(Debug)]
pub(super) struct InPlaceFailed {
    pub(super) pid: Pid,
    pub(super) exit: Exit,
    pub(super) reply: Reply<()>,
}

impl SupervisorMessage {
    /// Lists the children with their states, in the order of their start.
    pub fn children(reply: Reply<Vec<ChildInfo>>) -> SupervisorMessage {
        SupervisorMessage { request: Request::Children(reply) }
    }

    /// Adds a child behind the others, and starts it. Answered with its PID when it has begun; one that does not
    /// begin is not kept.
    pub fn add(spec: ChildSpec) -> impl FnOnce(Reply<Result<Pid, ChildError>>) -> SupervisorMessage {
        move |reply| SupervisorMessage { request: Request::Add(spec, reply) }
    }

    /// Adds a child of the one kind of a [dynamic](super::SupervisorBuilder::dynamic) supervisor, made from this input.
    /// Answered with its PID when it has begun.
    pub fn add_of_kind<I: Send + Sync + 'static>(
        input: I,
    ) -> impl FnOnce(Reply<Result<Pid, ChildError>>) -> SupervisorMessage {
        let input: Box<dyn Any + Send> = Box::new(input);
        let input = Contained::new(input);
        move |reply| SupervisorMessage { request: Request::AddOfKind(input, std::any::type_name::<I>(), reply) }
    }

    /// Stops a child, which stays known. Answered when it has ended.
    pub fn stop(id: impl Into<Arc<str>>) -> impl FnOnce(Reply<Result<(), ChildError>>) -> SupervisorMessage {
        let id = id.into();
        move |reply| SupervisorMessage { request: Request::Stop(id, reply) }
    }

    /// Starts a child anew: stops it first, if it is up. It is not counted with the restarts. Answered with its PID
    /// when it has begun; one that does not begin stays down, whatever its [`Restart`], until it is started by hand
    /// again.
    pub fn restart(id: impl Into<Arc<str>>) -> impl FnOnce(Reply<Result<Pid, ChildError>>) -> SupervisorMessage {
        let id = id.into();
        move |reply| SupervisorMessage { request: Request::Restart(id, reply) }
    }

    /// Stops a child and forgets it. Answered when it has ended.
    pub fn delete(id: impl Into<Arc<str>>) -> impl FnOnce(Reply<Result<(), ChildError>>) -> SupervisorMessage {
        let id = id.into();
        move |reply| SupervisorMessage { request: Request::Delete(id, reply) }
    }

    /// Answered when all children that it had from the beginning have been up (one of them may have failed since, and
    /// be about to be restarted); with an error if it ends before.
    pub fn started(reply: Reply<()>) -> SupervisorMessage {
        SupervisorMessage { request: Request::Started(reply) }
    }

    pub(super) fn in_place_failed(failed: InPlaceFailed) -> SupervisorMessage {
        SupervisorMessage { request: Request::InPlaceFailed(failed) }
    }
}

/// The state of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildState {
    /// It is to be started when others are up, or have stopped.
    Queued,
    /// It has been spawned, and its `init` has not returned.
    Starting,
    /// It is up.
    Up,
    /// It has failed, and is restarted when its delay is over.
    Delayed,
    /// It is to be stopped when others have.
    ToStop,
    /// It has been told to stop.
    Stopping,
    /// It has ended, or was stopped, and is not restarted by itself.
    Down,
}

/// One child of a supervisor, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id.
    pub id: Arc<str>,
    /// Its PID, if there is a process.
    pub pid: Option<Pid>,
    /// Its state.
    pub state: ChildState,
    /// When it is restarted.
    pub restart: Restart,
    /// Whether it is a supervisor.
    pub supervises: bool,
    /// How often it was restarted, in place or not.
    pub restarts: u64,
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
    /// There are as many children as there may be.
    #[error("the supervisor has its limit of {limit} children")]
    Limit {
        /// The limit.
        limit: usize,
    },
    /// Only a dynamic supervisor has children of one kind, and no others.
    #[error("this supervisor's children are not of this kind: {reason}")]
    WrongKind {
        /// The kind of child that the supervisor takes.
        reason: String,
    },
    /// The child could not be spawned.
    #[error("the child was not spawned: {0}")]
    Spawn(#[source] SpawnError),
    /// Its factory panicked.
    #[error("the factory of the child panicked: {message}")]
    FactoryPanicked {
        /// The message of the panic.
        message: String,
    },
    /// It ended before it had begun.
    #[error("the child ended before it had begun: {0}")]
    Ended(Exit),
    /// Something else was wanted of the child meanwhile, or the supervisor stops.
    #[error("the child was stopped before it had begun")]
    Stopped,
}

/// How a supervisor fails.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// A child did not start, when all were started for the first time.
    #[error("child {id:?} did not start: {error}")]
    NotStarted {
        /// The child's id.
        id: Arc<str>,
        /// Why.
        #[source]
        error: ChildError,
    },
    /// There were more restarts than there may be within the window.
    #[error("too many restarts: {}", list(.restarts))]
    TooManyRestarts {
        /// All of them, oldest first: the child's id, and how it had ended.
        restarts: Vec<(Arc<str>, Exit)>,
    },
    /// A process that is no child, and to which the supervisor is linked, has ended.
    #[error("{pid}, to which it was linked, has ended: {exit}")]
    Linked {
        /// The process.
        pid: Pid,
        /// How it ended.
        exit: Exit,
    },
}

/// So many restarts are in the text of an error: each may be the end of a supervisor, with a list of its own.
const IN_TEXT: usize = 8;

fn list(restarts: &[(Arc<str>, Exit)]) -> String {
    let each: Vec<String> = restarts.iter().take(IN_TEXT).map(|(id, exit)| format!("{id} ({exit})")).collect();
    match restarts.len().saturating_sub(IN_TEXT) {
        0 => each.join(", "),
        more => format!("{}, and {more} more", each.join(", ")),
    }
}
