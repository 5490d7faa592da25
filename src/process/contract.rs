//! The contract between a process and the runtime.

use std::fmt;

use super::entry::{EntryArgs, InitResult};
use super::event::{Event, Events};
use crate::outcome::{BoxError, Exit};
use crate::sched::body::{StepOutput, Successor};

/// A small state machine that a runtime steps when it has events.
///
/// The runtime calls [`init`](Self::init) once, and then [`start`](Self::start). After that it calls
/// [`step`](Self::step) whenever the process has events to handle. One thread at a time steps a process. Each call
/// sees everything that the call before it has written. After the last step the runtime calls [`close`](Self::close)
/// once, however the process ended.
///
/// A process holds no handle to the runtime. It receives events, and yields actions. So a test can drive it without a
/// runtime: see [`testing`](crate::testing).
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a process",
    note = "make a process of an actor with `actor(..)`, and of an `async fn` with `async_process(..)`"
)]
pub trait Process: Sized + Send + 'static {
    /// The type of the messages that the process takes. The memory of each process includes room for one message. So
    /// put large messages in a `Box`.
    type Message: Send + 'static;

    /// The value that the process returns when it is done.
    type Output: Send + Sync + 'static;

    /// Prepares the process before its first step. `entry` has the entry method that the spawner chose, and its input.
    ///
    /// The default implementation offers one method, `"main"`, without input.
    ///
    /// # Errors
    /// The process ends with the error. If it was spawned from outside, `spawn` returns the error.
    fn init(&mut self, entry: EntryArgs) -> InitResult {
        entry.main_only()
    }

    /// Begins the work of the process. Unlike [`init`](Self::init), it can yield: it can set timers, ask other
    /// processes, spawn children, or join groups. The default implementation does nothing.
    ///
    /// The runtime calls it once before the first step, on the same thread. It also calls it for a state machine that
    /// replaces another one, after [`Step::Upgrade`] and after a [recovery](Self::recover). In each case it calls
    /// `init` first.
    ///
    /// `start` counts as a step of its own, without events:
    ///
    /// - Its yields are performed before the first step. The first step may be given their answers.
    /// - It occupies a worker, so it must not block. A start that has to block yields [`StepOutput::blocking`], or the
    ///   first step returns [`Step::Blocking`].
    /// - It is called even if events or a request to stop wait already. The first step is given them.
    /// - It is not called if the process was terminated before.
    ///
    /// The spawner does not wait for it: a process that was spawned has been initialised, and may not have started.
    /// To give the process no messages before an answer has come, return [`Step::Wait`] from the first step without
    /// taking an event.
    ///
    /// ```
    /// use procession::command::TimerFired;
    /// use procession::{BoxError, Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
    /// use std::time::Duration;
    ///
    /// #[derive(Default)]
    /// struct Alarm { timer: Option<Tag<TimerFired>> }
    ///
    /// impl Process for Alarm {
    ///     type Message = ();
    ///     type Output = &'static str;
    ///
    ///     fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
    ///         self.timer = Some(out.after(Duration::from_millis(1)));
    ///         Ok(())
    ///     }
    ///
    ///     fn step(&mut self, events: &mut Events<()>, _: &mut StepOutput) -> StepResult<&'static str> {
    ///         for event in events {
    ///             if let Event::Completed(done) = event && done.is(self.timer) {
    ///                 return Ok(Step::Done("wake up"));
    ///             }
    ///         }
    ///         Ok(Step::Idle)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// assert_eq!(**runtime.spawn(Alarm::default())?.join()?.output().unwrap(), "wake up");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An error or a panic is a failed step: none of the yields of `start` is performed. The process ends with the
    /// failure, unless it [recovers](Self::recover).
    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        let _ = out;
        Ok(())
    }

    /// Handles events, and writes actions to `out`. The first step follows `init` and `start`, even if there are no
    /// events.
    ///
    /// A step occupies a worker, so it should return soon. Run code that may block with [`StepOutput::blocking`], or
    /// in a step after [`Step::Blocking`].
    ///
    /// # Errors
    /// The process ends with the error, unless it [recovers](Self::recover). The same holds if the step panics. In
    /// both cases none of the step's yields is performed. The messages that the step had taken are dead letters.
    fn step(&mut self, events: &mut Events<'_, Self::Message>, out: &mut StepOutput) -> StepResult<Self::Output>;

    /// Returns a state machine that replaces this one after a failed step. The step has returned an error or panicked,
    /// and `exit` says which.
    ///
    /// - If this method returns an upgrade, the process *recovers*: the new state machine replaces this one under the
    ///   same PID. This state machine is closed, and `init` and `start` of the next one are called, as with
    ///   [`Step::Upgrade`].
    /// - If this method returns `None`, the runtime calls the function given to
    ///   [`SpawnOptions::recover_with`](super::SpawnOptions::recover_with). If there is none, the process ends with
    ///   the failure.
    /// - If this method panics, the panic is logged, and counts as `None`.
    ///
    /// The process keeps everything that other processes hold of it:
    ///
    /// - Its PID, and its names.
    /// - Monitors of it.
    /// - Links that other processes have made, and the link of the process that spawned it.
    /// - Memberships in groups that other processes or the spawn options gave it.
    /// - The messages in its mailbox. Only the messages that the failed step had taken are dead letters.
    ///
    /// The process loses everything that the failed state machine took itself:
    ///
    /// - Monitors that it set, its subscriptions, and memberships in groups that it joined. Their events in the
    ///   mailbox are removed.
    /// - Links that it made. The other process receives the failure as the exit of this process, unless it has made
    ///   the link, too.
    /// - Timers, questions, futures and other commands. Their answers are discarded and counted. They never reach the
    ///   next state machine. Its futures are dropped. The [`CancelToken`](crate::CancelToken) of its blocking work is
    ///   cancelled.
    /// - Replies that it held. Their askers get [`CommandError::Dropped`](super::CommandError::Dropped).
    /// - Its setting of [`trap_exits`](StepOutput::trap_exits). The setting of the spawn options holds again.
    ///
    /// A process that has linked itself to this one, and traps exits, gets an [`Event::Recovered`]. So a supervisor
    /// counts the failure. Without a supervisor, nothing limits the number of recoveries.
    ///
    /// A process that was asked to stop does not recover, unless the upgrade was made with
    /// [`even_if_stopping`](Upgrade::even_if_stopping). A process that was terminated never recovers. The runtime may
    /// call this method nevertheless.
    ///
    /// The failed step may have left this state machine in an inconsistent state. So do not move its fields into the
    /// next one.
    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<Self::Output>> {
        let _ = exit;
        None
    }

    /// Describes the process for people, for example on a console: its state, in a few lines. See
    /// [`Runtime::describe`](crate::Runtime::describe).
    ///
    /// It is called between two steps, and occupies the thread like a step. So it should return soon. A panic in it is
    /// contained, and the process goes on. The default implementation says that there is no description.
    ///
    /// # Errors
    /// Those of the formatter. It takes 16 KiB, and then it returns an error. The description is cut there.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("This process gives no description.")
    }

    /// The name of the type in the log and in reports. If a process wraps another one, return the name of the wrapped
    /// one.
    fn type_name() -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Releases the resources of the process. The runtime calls it after the last step, once for each call of `init`.
    /// It may call it on any thread. A panic in it is contained and logged.
    fn close(&mut self) {}
}

/// The result of a step. Any error can be returned with `?`.
pub type StepResult<O> = Result<Step<O>, BoxError>;

/// How a process goes on after a step.
#[derive(Debug)]
pub enum Step<O> {
    /// The process is stepped again, behind the other ready processes. It needs no event.
    Continue,
    /// The process is stepped again when a new event arrives. If the step has taken some events and left others, the
    /// process is stepped again at once.
    ///
    /// A step may take none of its events, and pass none over with [`Events::select`](super::Events::select). Then the
    /// next step comes when a new event arrives, and is given the old events and the new ones. The first such step of
    /// a process logs a warning. The first step of a process is an exception: the events that it left are offered to
    /// the second step at once.
    ///
    /// To have the next step at once, return [`Step::Continue`]. To take no messages until a command is answered,
    /// return [`Step::Wait`].
    Idle,
    /// The process waits until one of its commands is answered. A control signal ends the wait, too. Messages do not
    /// end the wait, and the next step is given none. If no command is outstanding, the process fails with
    /// [`WaitedForNothing`], because the wait might never end.
    ///
    /// If the only outstanding command is an ask, the process may be part of a cycle: the asked process waits in the
    /// same way for this process, directly or through other processes. In a cycle of at most 1,000 processes, one of
    /// the asks ends at once with [`CommandError::Cycle`](super::CommandError::Cycle). A longer cycle, or a cycle in
    /// which a process waits for several answers, ends when the limit of one of its asks is over.
    ///
    /// A child that this process [runs](StepOutput::run) must not ask it and wait: each would wait for the other. This
    /// cycle is not found, because this process waits for an output and not for an answer. It ends when the limit of
    /// the child's ask, or that of the command, is over.
    Wait,
    /// The next step runs on the pool, where it may block. It needs no event.
    Blocking,
    /// The process ends with this output.
    Done(O),
    /// Another state machine replaces this one under the same PID. The process keeps its names, its mailbox, monitors
    /// and links in both directions, memberships and subscriptions, timers, futures, and the answers to
    /// outstanding commands.
    Upgrade(Upgrade<O>),
}

/// A state machine that replaces another, made with [`Upgrade::to`].
pub struct Upgrade<O> {
    pub(crate) successor: Box<Successor>,
    pub(crate) leaves: std::marker::PhantomData<fn() -> O>,
}

impl<O> Upgrade<O> {
    /// Makes the process recover even if it was asked to stop. If the failed state machine had taken the request, the
    /// next state machine receives the latest request again, before any message. For a [`Step::Upgrade`] this has no
    /// effect.
    pub fn even_if_stopping(mut self) -> Upgrade<O> {
        self.successor.even_if_stopping = true;
        self
    }

    /// Gives these control signals to the successor, which takes them again. Use it in a temporary state machine that
    /// has taken signals for its successor.
    ///
    /// The successor gets them in this order, before all control signals that wait. An event that tells of another
    /// process still comes after the messages of that process that wait. Messages and completions among the events are
    /// dropped. In a recovery this has no effect.
    pub fn giving_back<M>(mut self, events: Vec<Event<M>>) -> Upgrade<O> {
        self.successor.given_back.extend(events.into_iter().filter_map(Event::into_control));
        self
    }
}

impl<O> std::fmt::Debug for Upgrade<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upgrade")
    }
}

/// A step returned [`Step::Wait`], but no command was outstanding. No answer would ever have woken the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the step said `Step::Wait` and no command of the process is outstanding; to wait for messages say `Step::Idle`"
)]
pub struct WaitedForNothing;
