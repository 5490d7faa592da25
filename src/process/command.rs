//! Commands and their completions: the questions that a process yields, and the one answer that each of them gets.

use std::any::{Any, TypeId, type_name};
use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::time::Instant;

use super::pid::Pid;
use super::refusal::SendError;
use crate::cancel::Cancel;
use crate::outcome::{BoxError, Failure, Panic, Reason, contain};
use crate::sync::{Arc, Mutex, lock};

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

    /// The number: the first command of a process has 1, the next 2.
    pub fn id(self) -> u64 {
        self.id
    }
}

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
pub struct Elapsed;

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
    /// Its handler let go of the completion without completing it, or the process that was asked dropped the reply.
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
    /// The PID has never named a process of this runtime, or its process had ended before the message came.
    #[error("no such process: {0}")]
    NoSuchProcess(Pid),
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
    /// It was asked by blocking from inside a step, which would hold up a worker: ask with `StepOutput::ask` there.
    #[error("a step cannot wait for an answer by blocking: yield the question with `StepOutput::ask`")]
    InsideStep,
}

impl From<SendError> for CommandError {
    fn from(error: SendError) -> CommandError {
        match error {
            SendError::NoSuchProcess { pid } => CommandError::NoSuchProcess(pid),
            SendError::WrongType { pid, takes, sent } => CommandError::WrongType { pid, takes, sent },
            SendError::Full { pid, .. } => CommandError::Full(pid),
            SendError::InsideStep { .. } => CommandError::InsideStep,
        }
    }
}

/// An answer on its way: of any type, for the type is known to the tag.
pub(crate) type Answer = Result<Box<dyn Any + Send>, CommandError>;

/// The answer to one command. Which one: compare or take with the tag that was given when it was yielded.
pub struct Completed {
    tag: u64,
    answer: Cell<Option<Answer>>,
}

impl Completed {
    pub(crate) fn new(tag: u64, answer: Answer) -> Completed {
        Completed { tag, answer: Cell::new(Some(answer)) }
    }

    /// The number of the tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Whether this answers the command with this tag.
    pub fn is<T>(&self, tag: Tag<T>) -> bool {
        self.tag == tag.id
    }

    /// Takes the answer out, if it is the answer to the command with this tag (and was not taken before).
    pub fn take<T: 'static>(&self, tag: Tag<T>) -> Option<Result<T, CommandError>> {
        if !self.is(tag) {
            return None;
        }
        match self.answer.take()? {
            Ok(value) => match value.downcast::<T>() {
                Ok(value) => Some(Ok(*value)),
                Err(value) => {
                    self.answer.set(Some(Ok(value)));
                    None
                }
            },
            Err(error) => Some(Err(error)),
        }
    }
}

impl fmt::Debug for Completed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completed").field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// Where answers go: the runtime, or a test in its place.
pub(crate) trait AnswerTo: Send + Sync {
    /// Delivers the answer to the command `tag` of process `to`.
    fn answer(&self, to: Pid, tag: u64, answer: Answer);
}

/// The duty to answer one command. It may be carried to any thread or async runtime; dropping it answers with
/// [`CommandError::Dropped`].
#[must_use = "dropping this answers with `CommandError::Dropped`"]
pub struct Completion<T> {
    duty: Arc<Duty>,
    cancel: Cancel,
    answers: PhantomData<fn(T)>,
}

/// Shared by the completion and the call of the handler, for either may be the one that answers: a handler that returns
/// an error or panics has, on its way out, dropped the completion, and the error is the better answer.
struct Duty {
    link: Arc<dyn AnswerTo>,
    to: Pid,
    tag: u64,
    state: Mutex<DutyState>,
}

#[derive(Clone, Copy, PartialEq)]
enum DutyState {
    /// The handler has not returned; a dropped completion waits for what it returns.
    InHandler {
        dropped: bool,
    },
    /// The handler has returned and nobody has answered.
    Open,
    Answered,
}

impl Duty {
    fn answer(&self, answer: Answer) {
        let first = std::mem::replace(&mut *lock(&self.state), DutyState::Answered) != DutyState::Answered;
        if first {
            self.link.answer(self.to, self.tag, answer);
        } else {
            crate::outcome::drop_contained(answer);
        }
    }

    fn dropped(&self) {
        {
            let mut state = lock(&self.state);
            match *state {
                DutyState::InHandler { .. } => {
                    *state = DutyState::InHandler { dropped: true };
                    return;
                }
                DutyState::Open => {}
                DutyState::Answered => return,
            }
        }
        self.answer(Err(CommandError::Dropped));
    }

    fn handler_returned(&self, outcome: Result<Result<(), BoxError>, Panic>) {
        let answer = match outcome {
            Err(panic) => CommandError::Panicked(panic),
            Ok(Err(error)) => CommandError::Failed(Failure::from(error)),
            Ok(Ok(())) => {
                let mut state = lock(&self.state);
                match *state {
                    DutyState::InHandler { dropped: true } => CommandError::Dropped,
                    DutyState::InHandler { dropped: false } => {
                        *state = DutyState::Open;
                        return;
                    }
                    DutyState::Open | DutyState::Answered => return,
                }
            }
        };
        self.answer(Err(answer));
    }
}

impl<T: Send + 'static> Completion<T> {
    /// Answers, with a value or with an error of any type.
    pub fn complete<E: Into<BoxError>>(self, outcome: Result<T, E>) {
        self.duty.answer(match outcome {
            Ok(value) => Ok(Box::new(value)),
            Err(error) => Err(CommandError::Failed(Failure::from(error.into()))),
        });
    }

    /// Answers with a value.
    pub fn ok(self, value: T) {
        self.complete(Ok::<T, BoxError>(value));
    }

    /// Answers with an error.
    pub fn fail(self, error: impl Into<BoxError>) {
        self.complete(Err(error));
    }

    /// Cancelled when the process that waits has ended: nobody wants the answer any more.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The process that waits.
    pub fn pid(&self) -> Pid {
        self.duty.to
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        self.duty.dropped();
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({} for {}, {})", self.duty.tag, self.duty.to, type_name::<T>())
    }
}

/// A command as the runtime carries it to its handler.
pub(crate) struct BoxedCommand {
    pub(crate) command: Box<dyn Any + Send>,
    pub(crate) name: &'static str,
}

impl BoxedCommand {
    pub(crate) fn new<C: Command>(command: C) -> BoxedCommand {
        BoxedCommand { command: Box::new(command), name: type_name::<C>() }
    }

    /// The type of the command itself.
    pub(crate) fn kind(&self) -> TypeId {
        (*self.command).type_id()
    }
}

/// A registered handler, whatever its command.
pub(crate) trait Handler: Send + Sync {
    /// Calls it. However that goes, the command is answered once.
    fn handle(&self, command: Box<dyn Any + Send>, link: Arc<dyn AnswerTo>, to: Pid, tag: u64, cancel: Cancel);
}

/// The user's closure as a [`Handler`].
pub(crate) struct HandlerFn<C, F> {
    call: F,
    handles: PhantomData<fn(C)>,
}

impl<C, F> HandlerFn<C, F> {
    pub(crate) fn new(call: F) -> HandlerFn<C, F> {
        HandlerFn { call, handles: PhantomData }
    }
}

impl<C, F> Handler for HandlerFn<C, F>
where
    C: Command,
    F: Fn(C, Completion<C::Output>) -> Result<(), BoxError> + Send + Sync,
{
    fn handle(&self, command: Box<dyn Any + Send>, link: Arc<dyn AnswerTo>, to: Pid, tag: u64, cancel: Cancel) {
        let state = Mutex::new(DutyState::InHandler { dropped: false });
        let duty = Arc::new(Duty { link, to, tag, state });
        let completion = Completion { duty: duty.clone(), cancel, answers: PhantomData };
        duty.handler_returned(match command.downcast::<C>() {
            Ok(command) => contain(|| (self.call)(*command, completion)),
            // The registry is keyed by the type, so this does not happen; it is still an answer.
            Err(_) => Ok(Err("the handler is for another type of command".into())),
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Answers(Mutex<Vec<(u64, Result<u32, String>)>>);

    impl AnswerTo for Answers {
        fn answer(&self, _: Pid, tag: u64, answer: Answer) {
            let answer = answer.map(|value| *value.downcast::<u32>().unwrap()).map_err(|error| error.to_string());
            lock(&self.0).push((tag, answer));
        }
    }

    struct Double(u32);
    impl Command for Double {
        type Output = u32;
    }

    fn handle<F>(call: F) -> Vec<Result<u32, String>>
    where
        F: Fn(Double, Completion<u32>) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        let answers = Arc::new(Answers::default());
        let handler = HandlerFn::<Double, F>::new(call);
        let pid = "<0.1.1>".parse().unwrap();
        handler.handle(Box::new(Double(4)), answers.clone(), pid, 9, Cancel::new());
        drop(handler);
        std::mem::take(&mut *lock(&answers.0)).into_iter().map(|(_, answer)| answer).collect()
    }

    #[test]
    fn however_a_handler_ends_the_command_is_answered_once_and_says_how() {
        let ok = |n: u32| vec![Ok(n)];
        let err = |text: &str| vec![Err(String::from(text))];
        assert_eq!(
            handle(|double, done| {
                done.ok(double.0 * 2);
                Ok(())
            }),
            ok(8)
        );
        assert_eq!(
            handle(|_, done| {
                done.fail("no route");
                Ok(())
            }),
            err("failed: no route")
        );
        assert_eq!(handle(|_, _done| Err("no disk".into())), err("failed: no disk"));
        assert_eq!(handle(|_, _done| Ok(())), err("dropped without an answer"));
        assert_eq!(handle(|_, _done| panic!("boom")), err("panicked: boom"));
        assert_eq!(
            handle(|_, done| {
                done.ok(1);
                panic!("too late")
            }),
            ok(1)
        );
        assert_eq!(
            handle(|_, done| {
                done.ok(1);
                Err("too late".into())
            }),
            ok(1)
        );
    }

    #[test]
    fn a_completion_may_outlive_its_handler_and_is_answered_when_it_is_dropped_elsewhere() {
        let kept: Arc<Mutex<Vec<Completion<u32>>>> = Arc::default();
        let answers = Arc::new(Answers::default());
        let keep = kept.clone();
        let handler = HandlerFn::new(move |_: Double, done| {
            lock(&keep).push(done);
            Ok(())
        });
        let pid = "<0.1.1>".parse().unwrap();
        for tag in [1, 2] {
            handler.handle(Box::new(Double(1)), answers.clone(), pid, tag, Cancel::new());
        }
        assert!(lock(&answers.0).is_empty());
        let second = lock(&kept).pop().unwrap();
        second.ok(5);
        let first = lock(&kept).pop().unwrap();
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert_eq!(*lock(&answers.0), [(2, Ok(5)), (1, Err(String::from("dropped without an answer")))]);
    }

    #[test]
    fn an_answer_is_taken_once_and_only_with_its_own_tag() {
        let done = Completed::new(3, Ok(Box::new(7_u32)));
        assert!(done.take(Tag::<u32>::new(2)).is_none());
        assert!(done.take(Tag::<String>::new(3)).is_none(), "a tag of another type takes nothing");
        assert_eq!(done.take(Tag::<u32>::new(3)).unwrap().unwrap(), 7);
        assert!(done.take(Tag::<u32>::new(3)).is_none());
    }
}
