//! Handlers of the user's own commands, and their duty to answer.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;

use super::command::{Answer, AnswerTo, Command, CommandError};
use crate::cancel::CancelToken;
use crate::outcome::{BoxError, Failure, Panic, contain};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};

/// The duty to answer one command. It may be moved to any thread or async runtime. If it is dropped, the command is
/// answered with [`CommandError::Dropped`].
#[must_use = "dropping this answers with `CommandError::Dropped`"]
pub struct Responder<T> {
    duty: Arc<Duty>,
    cancel: CancelToken,
    answers: PhantomData<fn(T)>,
}

/// Shared by the responder and the call of the handler, because either may answer. A handler that returns an error or
/// panics has dropped the responder on its way out. The error or the panic is the better answer then.
struct Duty {
    link: Arc<dyn AnswerTo>,
    to: Pid,
    tag: u64,
    state: Mutex<DutyState>,
}

#[derive(Clone, Copy, PartialEq)]
enum DutyState {
    /// The handler has not returned. If the responder is dropped, the result of the handler decides the answer.
    InHandler {
        dropped: bool,
    },
    /// The handler has returned and the command is not answered yet.
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

impl<T: Send + 'static> Responder<T> {
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

    /// Cancelled when the process that waits has ended, because nothing receives the answer then.
    pub fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// The process that waits.
    pub fn pid(&self) -> Pid {
        self.duty.to
    }
}

impl<T> Drop for Responder<T> {
    fn drop(&mut self) {
        self.duty.dropped();
    }
}

impl<T> fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Responder({} for {}, {})", self.duty.tag, self.duty.to, type_name::<T>())
    }
}

/// A command on its way to its handler.
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

/// A registered handler for commands of any type.
pub(crate) trait Handler: Send + Sync {
    /// Calls the handler. The command is answered once, however the call ends.
    fn handle(&self, command: Box<dyn Any + Send>, link: Arc<dyn AnswerTo>, to: Pid, tag: u64, cancel: CancelToken);
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
    F: Fn(C, Responder<C::Output>) -> Result<(), BoxError> + Send + Sync,
{
    fn handle(&self, command: Box<dyn Any + Send>, link: Arc<dyn AnswerTo>, to: Pid, tag: u64, cancel: CancelToken) {
        let state = Mutex::new(DutyState::InHandler { dropped: false });
        let duty = Arc::new(Duty { link, to, tag, state });
        let completion = Responder { duty: duty.clone(), cancel, answers: PhantomData };
        duty.handler_returned(match command.downcast::<C>() {
            Ok(command) => contain(|| (self.call)(*command, completion)),
            // The registry is keyed by the type, so this does not happen. The command is answered all the same.
            Err(_) => Ok(Err("the handler is for another type of command".into())),
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait::wait;

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
        F: Fn(Double, Responder<u32>) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        let answers = Arc::new(Answers::default());
        let handler = HandlerFn::<Double, F>::new(call);
        let pid = "<0.1.1>".parse().unwrap();
        handler.handle(Box::new(Double(4)), answers.clone(), pid, 9, CancelToken::new());
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
    fn a_responder_may_outlive_its_handler_and_answers_on_drop() {
        let kept: Arc<Mutex<Vec<Responder<u32>>>> = Arc::default();
        let answers = Arc::new(Answers::default());
        let keep = kept.clone();
        let handler = HandlerFn::new(move |_: Double, done| {
            lock(&keep).push(done);
            Ok(())
        });
        let pid = "<0.1.1>".parse().unwrap();
        for tag in [1, 2] {
            handler.handle(Box::new(Double(1)), answers.clone(), pid, tag, CancelToken::new());
        }
        assert!(lock(&answers.0).is_empty());
        let second = lock(&kept).pop().unwrap();
        second.ok(5);
        let first = lock(&kept).pop().unwrap();
        wait(std::thread::spawn(move || drop(first))).unwrap();
        assert_eq!(*lock(&answers.0), [(2, Ok(5)), (1, Err(String::from("dropped without an answer")))]);
    }
}
