//! Exits, failures, panics and refusals: the types that all parts of the crate share.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};

/// Any error that user code returns. The operator `?` converts errors to it.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Why a process, task or job was asked to stop, or was ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// Its time was over.
    #[error("timed out")]
    TimedOut,
    /// It was ended by force.
    #[error("terminated")]
    Terminated,
    /// The runtime, pool or task scheduler that it belongs to is shutting down.
    #[error("shutdown")]
    Shutdown,
    /// The owning process or task has ended.
    #[error("what it worked for has ended")]
    Ended,
    /// The operating system gave no thread for it.
    #[error("there is no thread for it")]
    NoThread,
    /// There was no such process: it had ended before, or never existed.
    #[error("no such process")]
    NoSuchProcess,
    /// It is on another node, and there is no connection to that node. It may live.
    #[error("the connection to its node has broken")]
    NodeDown,
    /// It had a unique name of its cluster, and has lost it.
    #[error("it has lost its unique name")]
    NameLost,
    /// A process to which it was linked has ended.
    #[error("{0}")]
    Linked(LinkedExit),
    /// A reason in the user's own words.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Reason {
        Reason::Other(Cow::Borrowed(text))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason::Other(Cow::Owned(text))
    }
}

/// The process whose end has ended other processes through their links.
///
/// In a chain of links, it is the process that ended first. Two values are equal if they name the same process,
/// because a process ends only once.
#[derive(Clone)]
pub struct LinkedExit {
    first: Arc<(Pid, Exit)>,
}

impl LinkedExit {
    pub(crate) fn new(pid: Pid, exit: Exit) -> LinkedExit {
        LinkedExit { first: Arc::new((pid, exit)) }
    }

    /// Returns the process that ended first.
    pub fn pid(&self) -> Pid {
        self.first.0
    }

    /// Returns how that process ended.
    pub fn exit(&self) -> &Exit {
        &self.first.1
    }
}

impl PartialEq for LinkedExit {
    fn eq(&self, other: &LinkedExit) -> bool {
        self.pid() == other.pid()
    }
}

impl Eq for LinkedExit {}

impl std::hash::Hash for LinkedExit {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.pid().hash(state);
    }
}

impl fmt::Debug for LinkedExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkedExit").field("pid", &self.pid()).field("exit", self.exit()).finish()
    }
}

impl fmt::Display for LinkedExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linked to {}, which ended: {}", self.pid(), self.exit())
    }
}

/// The error with which a process, task or command ended. It is cheap to clone, so all waiting callers can get it.
#[derive(Clone)]
pub struct Failure {
    error: Arc<Contained<BoxError>>,
}

/// A user's value. Its destructor may panic, wherever the last clone is dropped.
struct Contained<T>(Option<T>);

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        drop_contained(self.0.take());
    }
}

impl Failure {
    pub(crate) fn new(error: impl Error + Send + Sync + 'static) -> Failure {
        Failure::of(Box::new(error))
    }

    fn of(error: BoxError) -> Failure {
        Failure { error: Arc::new(Contained(Some(error))) }
    }

    /// Returns the error that user code returned. It can be downcast.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        match &self.error.0 {
            Some(error) => &**error,
            None => unreachable!("it goes when nobody can ask for it any more"),
        }
    }
}

/// Unwraps a boxed `Failure`, so that the error in it can still be downcast.
impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Failure {
        error.downcast::<Failure>().map_or_else(Failure::of, |failure| *failure)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.error(), f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error().source()
    }
}

/// A panic that was caught: its message as text, and the payload itself.
#[derive(Clone, thiserror::Error)]
#[error("panicked: {message}")]
pub struct Panic {
    message: Arc<str>,
    payload: Arc<Mutex<Contained<Payload>>>,
}

type Payload = Box<dyn Any + Send + 'static>;

impl Panic {
    pub(crate) fn new(payload: Payload) -> Panic {
        let message = Arc::from(text_of(&*payload));
        Panic { message, payload: Arc::new(Mutex::new(Contained(Some(payload)))) }
    }

    /// Returns the message of the panic. If the payload was not text, this is a fixed text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Takes the payload of the panic. All clones share the payload, and only the first call returns it. It can be
    /// downcast, or thrown again with [`std::panic::resume_unwind`].
    pub fn take_payload(&self) -> Option<Box<dyn Any + Send + 'static>> {
        lock(&self.payload).0.take()
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panic").field(&self.message).finish()
    }
}

/// Runs user code and catches a panic.
#[inline]
pub(crate) fn contain<R>(run: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Panic::new)
}

/// Lends a value to user code. If the code panics, `undo` is given the value, and then the panic goes on.
///
/// While `undo` runs, the thread is not panicking. So a destructor that panics as well does not end the program.
pub(crate) fn undo_if_panicking<T, R>(mut value: T, run: impl FnOnce(&mut T) -> R, undo: impl FnOnce(T)) -> R {
    catch_unwind(AssertUnwindSafe(|| run(&mut value))).unwrap_or_else(|payload| {
        undo(value);
        resume_unwind(payload)
    })
}

/// Drops a user's value. A panic of its destructor is caught and written to the log.
#[inline]
pub(crate) fn drop_contained<T>(value: T) {
    if std::mem::needs_drop::<T>()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
    {
        drop_payload(payload);
    }
}

/// Writes to the log. User code may run here and panic: a subscriber, or the `Display` of an error. The panic is
/// dropped, and the caller continues.
#[cold]
pub(crate) fn tell_log(tell: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(tell)) {
        // Not logged, because the panic came from the logging.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
    }
}

/// Drops a payload. Its destructor may panic with another payload, and so on. After a few rounds the payload is
/// leaked.
#[cold]
fn drop_payload(mut payload: Payload) {
    for _ in 0..3 {
        tell_log(|| tracing::error!(message = text_of(&*payload), "a destructor panicked"));
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic whose payload is not text")
}

/// How a process or a task ended.
///
/// Handles of processes return an `Exit<Arc<Output>>`. Observers and events get an `Exit<()>`, without the output.
/// Handles of tasks return an `Exit<T, E>` with the types of the closure.
#[derive(Clone, Debug)]
pub enum Exit<T = (), E = Failure> {
    /// It was done, with this output.
    Done(T),
    /// It returned an error. The runtime also ends a process with an error if the process breaks a rule, for example
    /// with [`WaitedForNothing`](crate::observe::WaitedForNothing).
    Failed(E),
    /// It panicked.
    Panicked(Panic),
    /// It was ended from outside.
    Terminated(Reason),
}

impl<T, E> Exit<T, E> {
    /// Returns the output of an [`Exit::Done`].
    pub fn output(&self) -> Option<&T> {
        match self {
            Exit::Done(output) => Some(output),
            _ => None,
        }
    }

    /// Returns the output, or an error for every other exit. The user's own error can be downcast.
    pub fn into_result(self) -> Result<T, ExitError>
    where
        E: Into<BoxError>,
    {
        match self {
            Exit::Done(output) => Ok(output),
            Exit::Failed(error) => Err(ExitError::Failed(Failure::from(error.into()))),
            Exit::Panicked(panic) => Err(ExitError::Panicked(panic)),
            Exit::Terminated(reason) => Err(ExitError::Terminated(reason)),
        }
    }

    /// Whether this is [`Exit::Done`].
    pub fn is_done(&self) -> bool {
        matches!(self, Exit::Done(_))
    }

    /// Returns the same exit without the output.
    pub fn without_output(&self) -> Exit<(), E>
    where
        E: Clone,
    {
        match self {
            Exit::Done(_) => Exit::Done(()),
            Exit::Failed(error) => Exit::Failed(error.clone()),
            Exit::Panicked(panic) => Exit::Panicked(panic.clone()),
            Exit::Terminated(reason) => Exit::Terminated(reason.clone()),
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for Exit<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Done(_) => f.write_str("done"),
            Exit::Failed(error) => write!(f, "failed: {error}"),
            Exit::Panicked(panic) => panic.fmt(f),
            Exit::Terminated(reason) => write!(f, "terminated ({reason})"),
        }
    }
}

/// An exit other than [`Exit::Done`], as an error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExitError {
    /// See [`Exit::Failed`].
    #[error("it failed: {0}")]
    Failed(#[source] Failure),
    /// See [`Exit::Panicked`].
    #[error("it {0}")]
    Panicked(#[source] Panic),
    /// See [`Exit::Terminated`].
    #[error("it was terminated ({0})")]
    Terminated(#[source] Reason),
}

/// An error that hands the refused value back, with the reason.
///
/// It works with `?`, even if the refused value cannot be shared between threads. It has the size of a box, however
/// large the value is.
pub struct Rejected<T, E> {
    refusal: Box<Refusal<T, E>>,
}

struct Refusal<T, E> {
    reason: E,
    // Only accessed by value. The lock makes the refusal `Sync` even if the value is not.
    item: Mutex<T>,
}

impl<T, E> Rejected<T, E> {
    #[cold]
    pub(crate) fn new(item: T, reason: E) -> Rejected<T, E> {
        Rejected { refusal: Box::new(Refusal { reason, item: Mutex::new(item) }) }
    }

    /// Returns the reason for the refusal.
    pub fn reason(&self) -> &E {
        &self.refusal.reason
    }

    /// Returns the refused value.
    pub fn into_inner(self) -> T {
        self.into_parts().0
    }

    /// Looks at the refused value.
    pub(crate) fn look(&self, look: impl FnOnce(&T)) {
        look(&lock(&self.refusal.item));
    }

    /// Returns the refused value and the reason.
    pub fn into_parts(self) -> (T, E) {
        let Refusal { reason, item } = *self.refusal;
        let item = item.into_inner();
        #[cfg(not(loom))]
        let item = item.unwrap_or_else(std::sync::PoisonError::into_inner);
        #[cfg(loom)]
        let item = item.expect("the model's locks are never poisoned");
        (item, reason)
    }
}

impl<T, E: fmt::Debug> fmt::Debug for Rejected<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", self.reason()).field("item", &std::any::type_name::<T>()).finish()
    }
}

impl<T, E: fmt::Display> fmt::Display for Rejected<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason().fmt(f)
    }
}

impl<T, E: Error + 'static> Error for Rejected<T, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason().source()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_message_of_a_panic_is_text_and_its_payload_is_had_once() {
        let panic = contain(|| panic!("broken {}", std::hint::black_box(7))).unwrap_err();
        let clone = panic.clone();
        assert_eq!(panic.message(), "broken 7");
        assert_eq!(clone.take_payload().unwrap().downcast_ref::<String>().unwrap(), "broken 7");
        assert!(panic.take_payload().is_none());

        let odd = contain(|| std::panic::panic_any(42_u8)).unwrap_err();
        assert_eq!(odd.message(), "a panic whose payload is not text");
        assert_eq!(*odd.take_payload().unwrap().downcast::<u8>().unwrap(), 42);
    }

    #[test]
    fn a_refusal_of_something_unshareable_is_still_an_error_for_everybody() {
        fn shareable<E: Error + Send + Sync + 'static>(error: E) -> BoxError {
            Box::new(error)
        }
        let refusal = Rejected::new(Cell::new(3), Reason::Shutdown);
        assert_eq!(refusal.to_string(), "shutdown");
        assert_eq!(shareable(refusal).downcast::<Rejected<Cell<i32>, Reason>>().unwrap().into_inner().get(), 3);
    }

    #[test]
    fn a_destructor_that_panics_is_contained() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in a destructor");
            }
        }
        drop_contained(Bomb);
        let panic = contain(|| std::panic::panic_any(Bomb)).unwrap_err();
        drop_contained(panic.clone());
        // Not contained: the last clone drops a value of the runtime, and not the user's.
        drop(panic);
    }

    #[test]
    fn what_a_destructor_panicked_with_is_dropped_too() {
        struct Bomb(Arc<()>);
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::panic_any(self.0.clone());
            }
        }
        let token = Arc::new(());
        drop_contained(Bomb(token.clone()));
        assert_eq!(Arc::strong_count(&token), 1);
    }

    #[test]
    fn an_exit_is_a_result_with_its_cause() {
        assert_eq!(Exit::<u8>::Done(5).into_result().unwrap(), 5);
        let failed: Exit<u8> = Exit::Failed(Failure::from(BoxError::from("no stock")));
        assert_eq!(failed.to_string(), "failed: no stock");
        assert_eq!(failed.into_result().unwrap_err().source().unwrap().to_string(), "no stock");
        assert_eq!(Exit::<()>::Terminated(Reason::from("operator")).to_string(), "terminated (operator)");

        // An error of the user's own type is itself again when it is taken out, and a failure does not hide in another.
        let typed: Exit<u8, Reason> = Exit::Failed(Reason::Shutdown);
        for exit in [typed.clone(), typed] {
            let ExitError::Failed(failure) = exit.into_result().unwrap_err() else { panic!("it failed") };
            let again: Exit<u8> = Exit::Failed(failure);
            let ExitError::Failed(failure) = again.into_result().unwrap_err() else { panic!("it failed") };
            assert_eq!(failure.error().downcast_ref(), Some(&Reason::Shutdown));
        }
    }
}
