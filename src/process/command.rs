//! Commands and their completions: the questions that a process yields, and the one answer that each of them gets.

use std::any::{Any, type_name};
use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::time::Instant;

use super::cycle::Cycle;
use super::dead_letter::SendError;
use super::target::NoSuchProcessError;
use crate::outcome::{BoxError, Failure, Panic, Reason};
use crate::pid::Pid;

/// A command of the user's own: data that says what is to be done. A handler for it is registered when the runtime is
/// built; a process yields it with [`StepOutput::command`](super::StepOutput::command).
pub trait Command: Send + 'static {
    /// What the answer is, if all goes well.
    type Output: Send + 'static;
}

/// Names one yielded command of one process, and the type of its answer. A plain `u64` underneath.
pub struct Tag<T> {
    id: u64,
    answers: PhantomData<fn() -> T>,
}

impl<T> Tag<T> {
    pub(crate) fn new(id: u64) -> Tag<T> {
        Tag { id, answers: PhantomData }
    }

    /// The number: the first command of a process has 1, the next 2. A state machine that replaces a failed one counts in a
    /// range of its own, so no two commands of a process have the same number.
    pub fn id(self) -> u64 {
        self.id
    }
}

/// The upper 16 bits of a tag's number say to which *incarnation* of its process the command belongs. A process begins as
/// incarnation 0; a recovery after a failure begins the next one. The answers of an earlier one are late, and are refused.
pub(crate) const INCARNATION_SHIFT: u32 = 48;

impl<T> Clone for Tag<T> {
    fn clone(&self) -> Tag<T> {
        *self
    }
}

impl<T> Copy for Tag<T> {}

impl<T> PartialEq for Tag<T> {
    fn eq(&self, other: &Tag<T>) -> bool {
        self.id == other.id
    }
}

impl<T> Eq for Tag<T> {}

impl<T> Hash for Tag<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<T> fmt::Debug for Tag<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({}: {})", self.id, type_name::<T>())
    }
}

/// A [`Tag`], or an `Option` of one.
pub trait AsTag: Copy {
    /// What the command is answered with.
    type Answer: 'static;

    /// The number of the tag, if there is one.
    fn id(self) -> Option<u64>;
}

impl<T: 'static> AsTag for Tag<T> {
    type Answer = T;

    fn id(self) -> Option<u64> {
        Some(self.id)
    }
}

impl<T: 'static> AsTag for Option<Tag<T>> {
    type Answer = T;

    fn id(self) -> Option<u64> {
        self.map(|tag| tag.id)
    }
}

/// A request to a process to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// Why.
    pub reason: Reason,
    /// Until when it should have stopped, if whoever asks has said so.
    pub deadline: Option<Instant>,
}

/// What a timer answers with: its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerFired;

/// Why a command or an ask was answered without a value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Its handler returned this error.
    #[error("failed: {0}")]
    Failed(#[source] Failure),
    /// Its handler, or the blocking closure, panicked.
    #[error("{0}")]
    Panicked(#[source] Panic),
    /// Its handler let go of the completion without completing it, or the process that was asked dropped the reply: also by
    /// panicking or failing with the reply in its hands.
    #[error("dropped without an answer")]
    Dropped,
    /// No answer came in time.
    #[error("timed out")]
    TimedOut,
    /// It was cancelled; for a timer, by its process.
    #[error("cancelled ({0})")]
    Cancelled(#[source] Reason),
    /// No handler was registered for this type of command.
    #[error("unknown command {name}: no handler was registered for it when the runtime was built")]
    Unknown {
        /// The type of the command.
        name: &'static str,
    },
    /// There is no process at the target. For a PID: it has never been a process of this runtime, or had ended before the message
    /// came.
    #[error(transparent)]
    NoSuchProcess(#[from] NoSuchProcessError),
    /// The process that was asked has ended before it replied.
    #[error("{0} ended before it replied")]
    Ended(Pid),
    /// The mailbox of the process that was asked is full.
    #[error("the mailbox of {0} is full")]
    Full(Pid),
    /// The process that was asked takes messages of another type.
    #[error("{pid} takes messages of type {takes}, and was asked with {sent}")]
    WrongType {
        /// The process that was asked.
        pid: Pid,
        /// The type that it takes.
        takes: &'static str,
        /// The type of the question.
        sent: &'static str,
    },
    /// The process waits for this answer only, and the process that was asked waits in the same way, perhaps over others,
    /// for this one: the asks form a cycle, and no answer would ever have come. The same question, asked again before the
    /// process has taken the messages that wait for it, closes the same cycle again.
    #[error("the asks form a cycle: {0}")]
    Cycle(Cycle),
    /// It was asked by blocking from inside a step, which would hold up a worker: ask with `StepOutput::ask` there.
    #[error("a step cannot wait for an answer by blocking: yield the question with `StepOutput::ask`")]
    InsideStep,
}

impl CommandError {
    /// An error such as a handler would return, for a test that answers in its place.
    pub fn failed(error: impl Into<BoxError>) -> CommandError {
        CommandError::Failed(Failure::from(error.into()))
    }

    /// The handler's own error, if it is of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            CommandError::Failed(failure) => failure.error().downcast_ref(),
            _ => None,
        }
    }
}

impl From<SendError> for CommandError {
    fn from(error: SendError) -> CommandError {
        match error {
            SendError::NoSuchProcess(error) => CommandError::NoSuchProcess(error),
            SendError::WrongType { pid, takes, sent } => CommandError::WrongType { pid, takes, sent },
            SendError::Full { pid, .. } => CommandError::Full(pid),
            SendError::InsideStep { .. } => CommandError::InsideStep,
        }
    }
}

/// An answer on its way: of any type, for the type is known to the tag.
pub(crate) type Answer = Result<Box<dyn Any + Send>, CommandError>;

/// The answer to one command. Which one: compare or take with the tag that was given when it was yielded.
pub struct Completion {
    // In a box, so that an event that is a message is no larger than the message.
    inside: Box<Inside>,
}

struct Inside {
    tag: u64,
    /// The process that has answered, if it was one: its end is not told before.
    from: Option<Pid>,
    answer: Cell<Option<Answer>>,
}

impl Completion {
    /// The answer of a process.
    pub(crate) fn from(from: Option<Pid>, tag: u64, answer: Answer) -> Completion {
        Completion { inside: Box::new(Inside { tag, from, answer: Cell::new(Some(answer)) }) }
    }

    /// The incarnation of the process to which the command belongs.
    pub(crate) fn incarnation(&self) -> u16 {
        (self.inside.tag >> INCARNATION_SHIFT) as u16
    }

    /// Which process has answered, if it was one.
    pub(crate) fn answered_by(&self) -> Option<Pid> {
        self.inside.from
    }

    /// The number of the tag.
    pub fn tag(&self) -> u64 {
        self.inside.tag
    }

    /// Whether this answers the command with this tag: a [`Tag`], or an `Option` of one. `None` is never answered.
    pub fn is(&self, tag: impl AsTag) -> bool {
        tag.id() == Some(self.inside.tag)
    }

    /// Takes the answer out, if it is the answer to the command with this tag (and was not taken before).
    pub fn take<K: AsTag>(&self, tag: K) -> Option<Result<K::Answer, CommandError>> {
        if !self.is(tag) {
            return None;
        }
        match self.inside.answer.take()? {
            Ok(value) => match value.downcast::<K::Answer>() {
                Ok(value) => Some(Ok(*value)),
                Err(value) => {
                    self.inside.answer.set(Some(Ok(value)));
                    None
                }
            },
            Err(error) => Some(Err(error)),
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("tag", &self.tag()).finish_non_exhaustive()
    }
}

/// Where answers go: the runtime, or a test in its place.
pub(crate) trait AnswerTo: Send + Sync {
    /// Delivers the answer to the command `tag` of process `to`.
    fn answer(&self, to: Pid, tag: u64, answer: Answer);

    /// The same for the answer of a process, whose end is told later than that.
    fn answer_from(&self, from: Pid, to: Pid, tag: u64, answer: Answer) {
        let _ = from;
        self.answer(to, tag, answer);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_once_and_only_with_its_own_tag() {
        let done = Completion::from(None, 3, Ok(Box::new(7_u32)));
        assert!(done.take(Tag::<u32>::new(2)).is_none());
        assert!(done.take(Tag::<String>::new(3)).is_none(), "a tag of another type takes nothing");
        assert_eq!(done.take(Tag::<u32>::new(3)).unwrap().unwrap(), 7);
        assert!(done.take(Tag::<u32>::new(3)).is_none());
        assert!(done.is(Some(Tag::<u32>::new(3))) && !done.is(None::<Tag<u32>>));
    }

    #[test]
    fn an_error_of_a_handler_can_be_made_and_read() {
        let error = CommandError::failed(std::io::Error::other("disk"));
        assert_eq!(error.downcast_ref::<std::io::Error>().unwrap().to_string(), "disk");
        assert!(CommandError::Dropped.downcast_ref::<std::io::Error>().is_none());
    }
}
