//! The contract between a process and the runtime.

use super::entry::{EntryArgs, InitResult};
use super::event::{Event, Events};
use crate::outcome::{BoxError, Exit};
use crate::sched::body::{StepOutput, Successor};

/// A small state machine that a runtime steps when it has events.
///
/// The runtime calls [`init`](Self::init) once. Then it calls [`step`](Self::step) as often as there is something to
/// do. One thread at a time steps a process, and each call sees all that the call before it has written. After the
/// last step the runtime calls [`close`](Self::close) once, however the process ended.
///
/// A process never holds a handle to the runtime: it receives events, and yields commands. So it can be tested as a
/// plain function, with [`testing`](crate::testing).
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
    /// The type of the messages that the process takes. A mailbox has room for one message within the process itself.
    /// Send a large message in a `Box`.
    type Message: Send + 'static;

    /// The value that the process returns when it is done.
    type Output: Send + Sync + 'static;

    /// Prepares the process before any event reaches it. `entry` has the entry method that the spawner chose, and its
    /// input.
    ///
    /// The default implementation offers one method, `"main"`, without input.
    ///
    /// # Errors
    /// The process ends with the error. If it was spawned from outside, `spawn` returns the error and nothing of the
    /// process remains.
    fn init(&mut self, entry: EntryArgs) -> InitResult {
        entry.main_only()
    }

    /// Handles the events that have arrived, and writes the wanted actions to `out`. The first step follows the
    /// spawn. It needs no event, and may be given some.
    ///
    /// A step occupies a worker, so it should be short. Blocking code belongs in [`StepOutput::blocking`], or in a
    /// step after [`Step::Blocking`].
    ///
    /// # Errors
    /// The process ends with the error. It also ends if the step panics. In both cases nothing that the step has
    /// yielded is performed, and the messages that the step had taken are dead letters.
    fn step(&mut self, events: &mut Events<'_, Self::Message>, out: &mut StepOutput) -> StepResult<Self::Output>;

    /// Returns a state machine that replaces this one after a failed step. The step has returned an error or
    /// panicked, and its yields are dropped. If this returns an upgrade, the process recovers: the new state machine
    /// replaces this one *in place*. This state machine is closed, and `init` of the next one is called, as with
    /// [`Step::Upgrade`]. If this panics, the process ends with the failure of the step. If this returns `None`, the
    /// runtime calls the function given to [`SpawnOptions::recover_with`](super::SpawnOptions::recover_with), if
    /// there is one.
    ///
    /// Everything that other processes hold stays:
    ///
    /// - The PID, and the names of the process.
    /// - Monitors of it.
    /// - Links that others have made, and the link of the process that spawned it.
    /// - Memberships that it was given.
    /// - The contents of the mailbox. Only the messages that the failed step had taken are dead letters.
    ///
    /// Everything that this state machine took itself ends, as at the end of a process:
    ///
    /// - Monitors that it set, subscriptions and groups that it joined, and events of them that wait in the mailbox.
    /// - Links that it made. The other end has the failure as this one's exit, unless it has made the link, too.
    /// - Timers, questions and other commands. Their answers are discarded and counted, and never reach the next
    ///   state machine. The [`CancelToken`](crate::CancelToken) of its blocking work is cancelled.
    /// - Replies that it held. Their askers are told that they were dropped.
    /// - [`trap_exits`](StepOutput::trap_exits) is again as the spawn options say.
    ///
    /// Processes that have linked themselves to this one, and trap exits, get an [`Event::Recovered`]. So a
    /// supervisor counts the failure. Without a supervisor, a process may recover for ever.
    ///
    /// A process that was asked to stop does not recover, unless the upgrade says
    /// [`even_if_stopping`](Upgrade::even_if_stopping). A process that is terminated never recovers, and this may not
    /// be called then.
    ///
    /// The failed step may have left the state inconsistent. So make the next state machine from scratch.
    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<Self::Output>> {
        let _ = exit;
        None
    }

    /// The name of the type in the log, in statistics and in dead letters. A process that wraps another one returns
    /// the name of the wrapped one.
    fn type_name() -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Releases the resources of the process. The runtime calls it once for every process whose `init` was called,
    /// after its last step, on any thread. A panic in it is contained and logged.
    fn close(&mut self) {}
}

/// The result of a step. Any error can be returned with `?`.
pub type StepResult<O> = Result<Step<O>, BoxError>;

/// The way a process goes on after a step.
#[derive(Debug)]
pub enum Step<O> {
    /// The process is stepped again without any event, behind the other ready processes.
    Continue,
    /// The process is stepped again when something new arrives. If the step has taken some events and left others, it
    /// is stepped again at once.
    ///
    /// A step that has taken none of the offered events, and has passed over none with
    /// [`Events::select`](super::Events::select), has been shown all of them. The next step comes when something new
    /// arrives, and is given all events that are there. The first step of a process is an exception: events that it
    /// left are offered again at once. A later step that takes none logs a warning, once for each process. To have
    /// the next step at once, return [`Step::Continue`]. To leave messages until a command is answered, return
    /// [`Step::Wait`].
    Idle,
    /// The process waits until one of its commands is answered, or a control signal arrives. Messages wait until
    /// then, and the next step is given none. If no command is outstanding, the wait could never end, and the process
    /// fails with [`WaitedForNothing`].
    ///
    /// The only outstanding command may be an ask. If the process that was asked waits in the same way, over at most
    /// 1,000 processes, for this one, then one of these asks ends at once with
    /// [`CommandError::Cycle`](super::CommandError::Cycle). Other processes that wait for each other (one of them for
    /// several answers) go on when the limit of one of their asks is over.
    Wait,
    /// The next step runs at once, on the pool, where it may block.
    Blocking,
    /// The process ends with this output.
    Done(O),
    /// Another state machine replaces this one in place. It keeps everything of the process: PID, names, mailbox,
    /// monitors and links in both directions, memberships and subscriptions, timers, and the answers to outstanding
    /// commands.
    Upgrade(Upgrade<O>),
}

/// A state machine that replaces another, made with [`Upgrade::to`].
pub struct Upgrade<O> {
    pub(crate) successor: Box<Successor>,
    pub(crate) leaves: std::marker::PhantomData<fn() -> O>,
}

impl<O> Upgrade<O> {
    /// Makes the process recover even if it was asked to stop. If the failed state machine had taken the request, the
    /// next one receives the latest request again, before any message. In a [`Step::Upgrade`] this changes nothing.
    pub fn even_if_stopping(mut self) -> Upgrade<O> {
        self.successor.even_if_stopping = true;
        self
    }

    /// Gives these events to the successor again, before all events that wait. They are downs, exits, recoveries,
    /// changes of groups and requests to stop that its predecessor has taken. Messages and completions cannot be
    /// given back, and are dropped.
    pub(crate) fn giving_back<M>(mut self, events: Vec<Event<M>>) -> Upgrade<O> {
        self.successor.given_back = events.into_iter().filter_map(Event::into_control).collect();
        self
    }
}

impl<O> std::fmt::Debug for Upgrade<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upgrade")
    }
}

/// A step returned [`Step::Wait`] with no command outstanding. Nothing would ever have woken the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the step said `Step::Wait` and no command of the process is outstanding; to wait for messages say `Step::Idle`"
)]
pub struct WaitedForNothing;
