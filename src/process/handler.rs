//! Handlers of commands that the user defines, and their duty to answer.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;

use super::attempt::{AnsweredLater, CommandKey};
use super::command::{Command, CommandError};
use super::duty::Duty;
use crate::cancel::CancelToken;
use crate::outcome::{BoxError, Failure, contain};
use crate::pid::Pid;
use crate::primitives::Arc;

/// Answers one command. It may be moved to any thread or async runtime. If it is dropped without an answer, the
/// command is answered with [`CommandError::Dropped`].
#[must_use = "dropping this answers with `CommandError::Dropped`"]
pub struct Responder<T> {
    duty: Arc<Duty>,
    answers: PhantomData<fn(T)>,
}

impl<T: Send + 'static> Responder<T> {
    /// Answers with a value, or with an error of any type.
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

    /// Says that the answer comes later, in this run or in another: from a webhook, or from a person.
    ///
    /// This is for stored commands of durable processes. When it is on disk, the handler is not called again for the
    /// command. `procession::durable::Store::answer` answers it by its [key](Self::key). Any other command fails with
    /// [`AnsweredLater`].
    pub fn later(self) {
        self.fail(AnsweredLater);
    }

    /// The key of the command, if it is one of a durable process, and stored. It is the same in each attempt.
    pub fn key(&self) -> Option<CommandKey> {
        self.duty.attempt().map(|attempt| attempt.key)
    }

    /// The number of the attempt: 1, or more if the command is stored and was handed out before.
    pub fn attempt(&self) -> u32 {
        self.duty.attempt().map_or(1, |attempt| attempt.number)
    }

    /// Returns the token of the command. It is cancelled when nothing receives the answer any more:
    ///
    /// - The process that waits has ended, or its state machine has failed. The reason is [`Reason::Ended`].
    /// - The limit of the command is over. The reason is [`Reason::TimedOut`].
    /// - The process has cancelled the command. The reason is [`Reason::Cancelled`].
    ///
    /// [`Reason::Ended`]: crate::Reason::Ended
    /// [`Reason::TimedOut`]: crate::Reason::TimedOut
    /// [`Reason::Cancelled`]: crate::Reason::Cancelled
    pub fn cancel(&self) -> &CancelToken {
        self.duty.cancel().token()
    }

    /// The process that waits.
    pub fn pid(&self) -> Pid {
        self.duty.pid()
    }
}

impl<T> fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Responder({} for {}, {})", self.duty.tag(), self.duty.pid(), type_name::<T>())
    }
}

/// A command and the name of its type. The type itself is erased.
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

/// A registered handler. The type of its command is erased. The command is answered once, however the call ends.
pub(crate) type Handler = dyn Fn(Box<dyn Any + Send>, Arc<Duty>) + Send + Sync;

/// Makes the user's closure a [`Handler`].
pub(crate) fn handler<C, F>(call: F) -> Arc<Handler>
where
    C: Command,
    F: Fn(C, Responder<C::Output>) -> Result<(), BoxError> + Send + Sync + 'static,
{
    Arc::new(move |command, duty| {
        // The registry is keyed by the type, so the command has this type. If it had not, the drop of the duty would
        // answer.
        let Ok(command) = command.downcast::<C>() else { return };
        let responder = Responder { duty: duty.clone(), answers: PhantomData };
        match contain(|| call(*command, responder)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => duty.answer(Err(CommandError::Failed(Failure::from(error)))),
            Err(panic) => duty.answer(Err(CommandError::Panicked(panic))),
        }
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::command::Answer;
    use super::super::host::Clerk;
    use super::*;
    use crate::primitives::{Mutex, lock};
    use crate::wait::wait;

    fn answers_of(clerk: &Clerk) -> Vec<(u64, Result<u32, String>)> {
        let text = |answer: Answer| answer.map(|value| *value.downcast().unwrap()).map_err(|error| error.to_string());
        std::mem::take(&mut *lock(&clerk.answers)).into_iter().map(|(tag, answer)| (tag, text(answer))).collect()
    }

    struct Double(u32);
    impl Command for Double {
        type Output = u32;
    }

    fn handle<F>(call: F) -> Vec<Result<u32, String>>
    where
        F: Fn(Double, Responder<u32>) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        let clerk = Arc::new(Clerk::default());
        let handler = handler(call);
        let pid = "<0.1.1>".parse().unwrap();
        handler(Box::new(Double(4)), Duty::new(clerk.clone(), pid, 9, CancelToken::new()));
        drop(handler);
        answers_of(&clerk).into_iter().map(|(_, answer)| answer).collect()
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
        let clerk = Arc::new(Clerk::default());
        let keep = kept.clone();
        let handler = handler(move |_: Double, done| {
            lock(&keep).push(done);
            Ok(())
        });
        let pid = "<0.1.1>".parse().unwrap();
        for tag in [1, 2] {
            handler(Box::new(Double(1)), Duty::new(clerk.clone(), pid, tag, CancelToken::new()));
        }
        assert!(lock(&clerk.answers).is_empty());
        let second = lock(&kept).pop().unwrap();
        second.ok(5);
        let first = lock(&kept).pop().unwrap();
        wait(std::thread::spawn(move || drop(first))).unwrap();
        assert_eq!(answers_of(&clerk), [(2, Ok(5)), (1, Err(String::from("dropped without an answer")))]);
    }

    #[test]
    fn a_second_answer_whose_destructor_panics_disturbs_nobody() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        struct Make;
        impl Command for Make {
            type Output = Bomb;
        }
        let kept: Arc<Mutex<Vec<Responder<Bomb>>>> = Arc::default();
        let (clerk, keep) = (Arc::new(Clerk::default()), kept.clone());
        let handler = handler(move |_: Make, done| {
            lock(&keep).push(done);
            Err("no powder".into())
        });
        let pid = "<0.1.1>".parse().unwrap();
        handler(Box::new(Make), Duty::new(clerk.clone(), pid, 1, CancelToken::new()));
        let late = lock(&kept).pop().unwrap();
        late.ok(Bomb);
        assert_eq!(lock(&clerk.answers).len(), 1, "the error of the handler is the answer");
    }
}
