//! The contract: what a type must do to be a process.

use super::body::{StepOutput, Successor};
use super::entry::{Entry, InitResult};
use super::event::Events;
use crate::outcome::{BoxError, Exit};

/// A small state machine that a runtime steps when it has events.
///
/// The runtime calls [`init`](Self::init) once, then [`step`](Self::step) as often as there is something to do, by one
/// thread at a time, each call seeing all that the one before has written; and [`close`](Self::close) once, after the
/// last step, however the process ended.
///
/// A process never holds a handle to the runtime: it is told events, and yields commands. So it can be tested as a plain
/// function, with [`testing`](crate::testing).
///
/// ```
/// use procession::{Event, Events, Process, Reply, Step, StepOutput, StepResult};
///
/// struct Counter { total: u64 }
///
/// enum CounterMessage { Add(u64), Read(Reply<u64>) }
///
/// impl Process for Counter {
///     type Message = CounterMessage;
///     type Output = u64;
///
///     fn step(&mut self, events: &mut Events<CounterMessage>, out: &mut StepOutput) -> StepResult<u64> {
///         for event in events {
///             match event {
///                 Event::Message(CounterMessage::Add(n)) => self.total += n,
///                 Event::Message(CounterMessage::Read(reply)) => out.reply(reply, self.total),
///                 Event::Cancel(_) => return Ok(Step::Done(self.total)),
///                 _ => {}
///             }
///         }
///         Ok(Step::Idle)
///     }
/// }
/// ```
pub trait Process: Sized + Send + 'static {
    /// What it can be sent. A mailbox has room for one message within the process itself, so a large one is better sent
    /// in a `Box`.
    type Message: Send + 'static;

    /// What it leaves when it is done.
    type Output: Send + Sync + 'static;

    /// Prepares, before anything reaches the process: told which entry method the spawner chose, and its input.
    ///
    /// Without an implementation there is one method, `"main"`, without input.
    ///
    /// # Errors
    /// The process ends with the error; spawned from outside, `spawn` returns it and nothing of the process remains.
    fn init(&mut self, entry: Entry) -> InitResult {
        entry.main_only()
    }

    /// Advances, with the events that arrived; what it wants done it writes to `out`. The first step comes after
    /// spawning by itself; it needs no event, and may be given some.
    ///
    /// A step should be short: it has a worker for itself. What blocks belongs into [`StepOutput::blocking`], or into a
    /// step after [`Step::Blocking`].
    ///
    /// # Errors
    /// The process ends with the error. So it does if the step panics. In both cases nothing that the step has yielded is
    /// done, and the messages that it had taken are dead letters.
    fn step(&mut self, events: &mut Events<'_, Self::Message>, out: &mut StepOutput) -> StepResult<Self::Output>;

    /// A step has failed or panicked, and what it had yielded is dropped: the process may be replaced *in place* instead of
    /// ending, by what this returns. It keeps its PID, names, monitors, links, and what is in the mailbox; only the messages
    /// that the failed step had taken are dead letters. This state machine is closed, and the next one's `init` is called, as
    /// with [`Step::Upgrade`]. If this panics, the process ends as it would have.
    ///
    /// What else the failed step had taken is not given again, a request to stop included. This state machine may have noted
    /// that it was asked to stop, and then return nothing here.
    ///
    /// The state may be broken in any way by now, so what is returned is best made afresh. Whoever always recovers at once may
    /// do so for ever: see `ChildSpec::in_place` for limits and delays.
    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<Self::Output>> {
        let _ = exit;
        None
    }

    /// Releases what it holds. Called once for every process whose `init` was called, after its last step, on whatever
    /// thread. A panic in it is contained and logged.
    fn close(&mut self) {}
}

/// What a step returns. Any error can be thrown with `?`.
pub type StepResult<O> = Result<Step<O>, BoxError>;

/// What a process wants after a step.
#[derive(Debug)]
pub enum Step<O> {
    /// To be stepped again without any event, behind the others that are ready.
    Continue,
    /// To be stepped when there is an event that it has not been shown: at once if the step has taken some and left others.
    ///
    /// A step that has taken none of the events that it was offered, and has passed none over with
    /// [`Events::select`](super::Events::select), has been shown all of them. It is stepped again, with all that is there, when
    /// something new arrives. The log is told of the first such step of a process by a warning. To have the next step at once,
    /// say [`Step::Continue`]; to leave messages until a command is answered, say [`Step::Wait`].
    Idle,
    /// To be stepped when one of its commands is answered, or a control signal comes. Messages wait meanwhile, and the
    /// next step is given none. With no command outstanding this can never end, and the process fails with
    /// [`WaitedForNothing`].
    ///
    /// If the only outstanding command is an ask, and the process that was asked waits in the same way, over at most 1,000
    /// processes, for this one, then one of these asks ends at once with
    /// [`CommandError::Cycle`](super::CommandError::Cycle). Other processes that wait for each other (one of them for several
    /// answers) go on when the limit of one of their asks is over.
    Wait,
    /// To be stepped next on the pool, at once, where it may block.
    Blocking,
    /// To end, with this output.
    Done(O),
    /// To be replaced in place by another state machine, which keeps the PID, the name and what is in the mailbox.
    Upgrade(Upgrade<O>),
}

/// The state machine that takes over, made with [`Upgrade::to`].
pub struct Upgrade<O> {
    pub(super) successor: Box<dyn Successor>,
    pub(super) leaves: std::marker::PhantomData<fn() -> O>,
}

impl<O> std::fmt::Debug for Upgrade<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upgrade")
    }
}

/// A step said [`Step::Wait`] with no command outstanding: nothing would ever have woken the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the step said `Step::Wait` and no command of the process is outstanding; to wait for messages say `Step::Idle`"
)]
pub struct WaitedForNothing;
