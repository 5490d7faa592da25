//! The trait of actors.

use std::fmt;

use super::actions::Actions;
use crate::command::CancelRequest;
use crate::exit::ExitSignal;
use crate::names::GroupEvent;
use crate::{Address, BoxError, Down, Event, Exit};

/// A state that handles messages, one in each step.
///
/// [`actor`](super::actor()) makes a [`Process`](crate::Process) of it. The actor's methods are callbacks of that
/// process. Each callback writes its effects to [`Actions`]. The runtime performs them when the step has succeeded. If
/// a callback fails or panics, its step fails: none of its effects is performed, and the actor ends, unless it is
/// replaced. See [Failures](Actor#failures).
///
/// ```
/// use procession::actor::{Actions, Actor, actor};
/// use procession::{BoxError, Reply, Runtime};
/// use std::time::Duration;
///
/// struct Counter { total: u64 }
///
/// enum CounterMessage { Add(u64), Read(Reply<u64>) }
///
/// impl Actor for Counter {
///     type Message = CounterMessage;
///     type Output = u64;
///
///     fn receive(&mut self, message: CounterMessage, out: &mut Actions<Self>) -> Result<(), BoxError> {
///         match message {
///             CounterMessage::Add(n) => self.total += n,
///             CounterMessage::Read(reply) => out.reply(reply, self.total),
///         }
///         Ok(())
///     }
///
///     fn finish(&mut self, _: &mut Actions<Self>) -> Result<u64, BoxError> {
///         Ok(self.total)
///     }
/// }
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let counter = runtime.spawn(actor(Counter { total: 0 }))?;
/// runtime.send(&counter, CounterMessage::Add(2))?;
/// assert_eq!(runtime.ask(&counter, CounterMessage::Read, Duration::from_secs(10)).wait()?, 2);
/// runtime.cancel(&counter, "closing time")?;
/// assert_eq!(**counter.join()?.output().unwrap(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Failures
///
/// A step handles one event. So if a message makes its step fail, only that message is lost. It becomes a dead letter.
///
/// An actor whose step fails is replaced in these cases, tried in this order:
///
/// 1. [`recover`](Self::recover) returns a new actor.
/// 2. The function given to [`SpawnOptions::recover_with`](crate::SpawnOptions::recover_with) returns a successor.
/// 3. Its supervisor restarts it. Give [`ChildSpec::new`](crate::supervisor::ChildSpec::new) or
///    [`ChildSpec::in_place`](crate::supervisor::ChildSpec::in_place) a function that returns the process, for example
///    `|| actor(Counter { total: 0 })`.
///
/// In each case [`start`](Self::start) of the new actor is called. The continuations of the failed actor are dropped,
/// and the replies that it held are answered with an error.
pub trait Actor: Sized + Send + 'static {
    /// The type of the messages that the actor takes.
    type Message: Send + 'static;

    /// The value that [`finish`](Self::finish) returns.
    type Output: Send + Sync + 'static;

    /// The most events that one step handles. Zero counts as one.
    ///
    /// A step costs about as much as a cheap message. So an actor that receives long streams of cheap messages is
    /// faster with a larger number. In return, a message that fails takes the other messages of its step with it: all
    /// of them become dead letters, and none of their effects is performed.
    const MESSAGES_A_STEP: usize = 1;

    /// Called once, before the first message.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let _ = out;
        Ok(())
    }

    /// Handles a message.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn receive(&mut self, message: Self::Message, out: &mut Actions<Self>) -> Result<(), BoxError>;

    /// Describes the actor for people, as [`Process::describe`](crate::Process::describe) does.
    ///
    /// # Errors
    /// Those of the formatter.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("This actor gives no description.")
    }

    /// Handles a request to stop. The default implementation ends the actor with [`Actions::stop`]. Messages that wait
    /// become dead letters then.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn stop(&mut self, request: CancelRequest, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let _ = request;
        out.stop();
        Ok(())
    }

    /// Handles the end of a process that this actor monitors. The default implementation does nothing.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn down(&mut self, down: Down, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let _ = (down, out);
        Ok(())
    }

    /// Handles the exit of a linked process. It is called only if the actor traps exits. The default implementation
    /// does nothing.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn exit(&mut self, exit: ExitSignal, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let _ = (exit, out);
        Ok(())
    }

    /// Handles a change of a group to which this actor subscribes. The default implementation does nothing.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn group(&mut self, event: GroupEvent, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let _ = (event, out);
        Ok(())
    }

    /// Handles every event that has no callback of its own. These are [`Event::Recovered`], and an
    /// [`Event::Completed`] whose tag has no [continuation](crate::Tag::then). The default implementation does nothing.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn other(&mut self, event: Event<Self::Message>, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let _ = (event, out);
        Ok(())
    }

    /// Returns the output. It is called once, after [`Actions::stop`], in the same step. It is not called if the actor
    /// fails or is terminated.
    ///
    /// # Errors
    /// The actor fails with the error.
    fn finish(&mut self, out: &mut Actions<Self>) -> Result<Self::Output, BoxError>;

    /// Returns an actor that replaces this one after a failed step. [`Process::recover`](crate::Process::recover) says
    /// what the process keeps. The default implementation returns `None`.
    ///
    /// The failed step may have left this actor in an inconsistent state. So do not move its fields into the next one.
    fn recover(&mut self, exit: &Exit) -> Option<Self> {
        let _ = exit;
        None
    }
}

impl<A: Actor> Actions<'_, A> {
    /// The address of the actor that is being stepped.
    pub fn address(&self) -> Address<A::Message> {
        self.pid().typed()
    }
}
