//! The calls of a runtime that name a process.

use std::time::Duration;

use super::access::WeakAccess;
use super::ask::AskFuture;
use super::inspect::{ProcessInfo, ProcessState};
use super::process_ref::ProcessRef;
use super::send_future::SendFuture;
use super::system::Runtime;
use super::watch::ExitWatcher;
use crate::outcome::{Reason, Rejected};
use crate::process::{Accepts, NoSuchProcessError, Reply, SendError, Target};

impl Runtime {
    /// Sends a message from outside. If this returns `Ok`, the message was accepted. Messages from one thread to one
    /// receiver are stepped in the order in which they were sent.
    ///
    /// # Errors
    /// The message comes back if there is no process at the target, if its mailbox refuses the message because it is
    /// full, or if the process takes messages of another type. For an [`Address`](crate::Address) and a handle, the
    /// compiler checks the type. A mailbox counts as full as long as messages of
    /// [`send_timeout`](Self::send_timeout) wait for room in it.
    pub fn send<M: Send + 'static>(&self, to: impl Accepts<M>, message: M) -> Result<(), Rejected<M, SendError>> {
        self.core().send(&to, message)
    }

    /// Sends a message when there is room for it, but not later than after `limit`.
    ///
    /// If the mailbox has room, this call sends the message. Otherwise the message waits for room, behind all messages
    /// that began to wait earlier. To learn the outcome, await the [`SendFuture`], or call
    /// [`wait`](SendFuture::wait) on it. The message is sent as soon as there is room, also if nobody polls the future
    /// then. So messages of one thread to one receiver are stepped in the order of the calls, in whatever order the
    /// futures are awaited. If the future is dropped before there is room, the message is not sent.
    ///
    /// A message to another node waits in the same way if too many messages wait for that node. It does not wait for
    /// room in a mailbox there.
    ///
    /// The limit runs from this call, by the runtime's clock. It is enforced only from the first poll or wait on. A
    /// limit of zero does not wait.
    ///
    /// # Errors
    /// The future gives the message back with the errors of [`send`](Self::send). If there was no room in time, the
    /// error is [`SendError::Full`], or says that the other node is busy. If the process ends while the message waits,
    /// the message comes back at once.
    ///
    /// ```
    /// # use procession::prelude::*;
    /// # struct Printer;
    /// # impl Process for Printer {
    /// #     type Message = String;
    /// #     type Output = ();
    /// #     fn step(&mut self, events: &mut Events<String>, _: &mut StepOutput) -> StepResult<()> {
    /// #         events.for_each(drop);
    /// #         Ok(Step::Idle)
    /// #     }
    /// # }
    /// use procession::spawn::Overflow;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let printer = runtime.spawn_with(Printer, SpawnOptions::new().mailbox(16, Overflow::Refuse))?;
    /// for page in 0..100 {
    ///     // In async code: `.await`.
    ///     runtime.send_timeout(&printer, format!("page {page}"), Duration::from_secs(10)).wait()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_timeout<M: Send + 'static>(&self, to: impl Accepts<M>, message: M, limit: Duration) -> SendFuture<M> {
        self.owner.access.send_timeout(&to, message, limit)
    }

    /// Asks a process. `question` receives a [`Reply`] and returns the message that contains it.
    ///
    /// This call sends the question, and the limit begins. To get the reply, await the [`AskFuture`], or call
    /// [`wait`](AskFuture::wait) on it. The result is the reply, or an error that says why there is none. The error
    /// comes at once in these cases:
    ///
    /// - There is no process at the target, or the process ends.
    /// - The process takes messages of another type.
    /// - The mailbox of the process is full.
    /// - The process drops the reply.
    ///
    /// Otherwise the error comes when `limit` is over.
    ///
    /// The runtime enforces the limit only from the first poll or wait on. If the reply has arrived by then, it is
    /// returned, however late it came.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> AskFuture<T> {
        self.owner.access.ask(&to, question, limit)
    }

    /// A reference to the process at a target. It can be kept anywhere, and keeps no runtime alive. A name or a group
    /// is looked up again with each call. See [`ProcessRef`].
    ///
    /// For a name, give the type of the messages: `runtime.process_ref::<BankMessage>("bank")`. The type is checked
    /// when a message is delivered.
    pub fn process_ref<M>(&self, target: impl Accepts<M>) -> ProcessRef<M> {
        ProcessRef::new(WeakAccess::of(&self.owner.access), &target)
    }

    /// Asks a process to stop, with a reason. The process gets an [`Event::Cancel`](crate::Event::Cancel), and decides
    /// how it responds. Returns `true` if the process lived, and `false` if it has ended or is being ended.
    ///
    /// # Errors
    /// There has never been a process with this PID, no process has the name, or the group has no members.
    pub fn cancel(&self, target: impl Target, reason: impl Into<Reason>) -> Result<bool, NoSuchProcessError> {
        self.core().cancel_at(&target, reason.into(), None)
    }

    /// Asks a process to stop within `limit`. The event contains the deadline. If the process does not stop in time,
    /// nothing happens.
    ///
    /// # Errors
    /// The errors of [`cancel`](Self::cancel).
    pub fn cancel_timeout(
        &self,
        target: impl Target,
        reason: impl Into<Reason>,
        limit: Duration,
    ) -> Result<bool, NoSuchProcessError> {
        self.core().cancel_at(&target, reason.into(), Some(limit))
    }

    /// Terminates a process. If it is in a step, the step runs to its end. Then the process is closed, and its exit is
    /// [`Exit::Terminated`](crate::Exit::Terminated). If that step fails or panics, the exit says so instead. Returns
    /// `true` if the process lived, and `false` if it has ended or is being ended.
    ///
    /// # Errors
    /// There has never been a process with this PID, no process has the name, or the group has no members.
    pub fn terminate(&self, target: impl Target) -> Result<bool, NoSuchProcessError> {
        self.core().terminate_at(&target)
    }

    /// Whether the process lives and was not terminated.
    pub fn is_alive(&self, target: impl Target) -> bool {
        self.core().is_alive_at(&target)
    }

    /// Watches a process. The watcher gets the [`Down`](crate::Down) when the process has ended. If there is no such
    /// process, the watcher gets one with [`Reason::NoSuchProcess`] at once.
    ///
    /// If no process has the name, or the group has no members, the PID of the watcher is one that no process has.
    pub fn watch(&self, target: impl Target) -> ExitWatcher {
        self.core().watch(&target)
    }

    /// Describes one process. `None` if there is no process at the target, or if it has ended.
    pub fn process(&self, target: impl Target) -> Option<ProcessInfo> {
        self.core().info_at(&target)
    }

    /// The state of a process. It is [`ProcessState::Complete`] if the process has ended. `None` if there has never
    /// been a process with this PID, if no process has the name, or if the group has no members.
    pub fn process_state(&self, target: impl Target) -> Option<ProcessState> {
        self.core().state_at(&target)
    }
}
