//! References to processes, for code outside.

use std::fmt;
use std::time::Duration;

use super::access::WeakAccess;
use super::ask::AskFuture;
use super::inspect::{ProcessInfo, ProcessState};
use super::process_node::node_of;
use super::send_future::SendFuture;
use super::watch::ExitWatcher;
use crate::groups::Doer;
use crate::outcome::{Exit, Reason, Rejected};
use crate::primitives::Arc;
use crate::process::{
    Accepts, NameError, Named, NoSuchProcessError, OwnedTarget, Pid, Recipient, Reply, Resolve, SendError, Target,
};
use crate::shutdown::ShutdownNode;

/// A reference to a process that takes messages of type `M`, with all calls that name a process.
///
/// It consists of a target and a weak reference to the runtime. So it can be kept anywhere, for example in the state
/// of a web server, and it keeps no runtime alive. A name or a group is looked up again with each call.
///
/// When the runtime has ended, each call fails at once with
/// [`NoSuchProcessError::RuntimeEnded`]. The message comes back.
///
/// A reference is also a target of the calls of its own runtime, and of its processes.
///
/// ```
/// use procession::prelude::*;
/// use procession::ProcessRef;
/// use std::time::Duration;
///
/// enum CounterMessage { Add(u64), Read(Reply<u64>) }
/// # struct Counter { total: u64 }
/// # impl Process for Counter {
/// #     type Message = CounterMessage;
/// #     type Output = u64;
/// #     fn step(&mut self, events: &mut Events<CounterMessage>, out: &mut StepOutput) -> StepResult<u64> {
/// #         for event in events {
/// #             match event {
/// #                 Event::Message(CounterMessage::Add(n)) => self.total += n,
/// #                 Event::Message(CounterMessage::Read(reply)) => out.reply(reply, self.total),
/// #                 _ => return Ok(Step::Done(self.total)),
/// #             }
/// #         }
/// #         Ok(Step::Idle)
/// #     }
/// # }
///
/// async fn add_and_read(counter: ProcessRef<CounterMessage>) -> Result<u64, Box<dyn std::error::Error>> {
///     let second = Duration::from_secs(1);
///     counter.send_timeout(CounterMessage::Add(1), second).await?;
///     Ok(counter.ask(CounterMessage::Read, second).await?)
/// }
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let counter = runtime.spawn(Counter { total: 0 })?;
/// let future = add_and_read(counter.process_ref()); // For any executor.
/// # drop(future);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ProcessRef<M> {
    access: WeakAccess,
    to: OwnedTarget,
    /// Converts the messages, if the target was a recipient.
    recipient: Option<Recipient<M>>,
}

impl<M> ProcessRef<M> {
    pub(super) fn new(access: WeakAccess, to: &impl Accepts<M>) -> ProcessRef<M> {
        ProcessRef { access, to: to.named().into_owned(), recipient: to.recipient().cloned() }
    }

    /// The PID of the process now.
    ///
    /// # Errors
    /// No process has the name, the group has no members, or the runtime has ended.
    pub fn pid(&self) -> Result<Pid, NoSuchProcessError> {
        self.access.get()?.core.resolve(&self)
    }

    /// Asks the process to stop, with a reason. See [`Runtime::cancel`](crate::Runtime::cancel).
    ///
    /// # Errors
    /// There has never been such a process, or the runtime has ended.
    pub fn cancel(&self, reason: impl Into<Reason>) -> Result<bool, NoSuchProcessError> {
        self.access.get()?.core.cancel_at(&self, reason.into(), None)
    }

    /// Asks the process to stop within `limit`. See [`Runtime::cancel_timeout`](crate::Runtime::cancel_timeout).
    ///
    /// # Errors
    /// The errors of [`cancel`](Self::cancel).
    pub fn cancel_timeout(&self, reason: impl Into<Reason>, limit: Duration) -> Result<bool, NoSuchProcessError> {
        self.access.get()?.core.cancel_at(&self, reason.into(), Some(limit))
    }

    /// Terminates the process. See [`Runtime::terminate`](crate::Runtime::terminate).
    ///
    /// # Errors
    /// The errors of [`cancel`](Self::cancel).
    pub fn terminate(&self) -> Result<bool, NoSuchProcessError> {
        self.access.get()?.core.terminate_at(&self)
    }

    /// Whether the process lives and was not terminated.
    pub fn is_alive(&self) -> bool {
        self.access.get().is_ok_and(|access| access.core.is_alive_at(&self))
    }

    /// Watches the process. See [`Runtime::watch`](crate::Runtime::watch). If the runtime has ended, the watcher gets
    /// a [`Down`](crate::Down) with [`Reason::NoSuchProcess`] at once.
    pub fn watch(&self) -> ExitWatcher {
        self.access.watch(&self)
    }

    /// Makes a node for the process in a [shutdown tree](crate::shutdown). Each call makes a new one, for the process
    /// that is at the target then. It is as that of [`Handle::shutdown_node`](crate::Handle::shutdown_node). If there
    /// is no such process, the node is closed. If the runtime has ended, the node is closed, too.
    pub fn shutdown_node(&self) -> ShutdownNode {
        let watcher = self.watch();
        let (node, job) = node_of(watcher.pid(), &self.access);
        watcher.on_down(move |down| {
            // A process that had ended before has left no exit.
            if down.is_no_such_process() { job.close(&Exit::Done(())) } else { job.close(&down.exit) }
        });
        node
    }

    /// Describes the process. `None` if there is no process at the target, or if it has ended.
    pub fn info(&self) -> Option<ProcessInfo> {
        self.access.get().ok()?.core.info_at(&self)
    }

    /// The state of the process. See [`Runtime::process_state`](crate::Runtime::process_state). `None` also if the
    /// runtime has ended.
    pub fn state(&self) -> Option<ProcessState> {
        self.access.get().ok()?.core.state_at(&self)
    }

    /// Gives the process a further name. See [`Runtime::register`](crate::Runtime::register).
    ///
    /// # Errors
    /// The name is taken or empty, there is no such process, or the runtime has ended.
    pub fn register(&self, name: impl Into<Arc<str>>) -> Result<(), NameError> {
        let core = &self.access.get()?.core;
        core.register(&name.into(), core.resolve(&self)?)
    }

    /// Adds the process to a group. See [`Runtime::join_group`](crate::Runtime::join_group).
    ///
    /// # Errors
    /// The group's name is empty, there is no such process, or the runtime has ended.
    pub fn join_group(&self, group: impl Into<Arc<str>>) -> Result<(), NameError> {
        let core = &self.access.get()?.core;
        core.join_group(&group.into(), core.resolve(&self)?, Doer::Another, &mut core.executor())
    }

    /// Removes one membership of the process in a group. Returns whether the process was in the group.
    pub fn leave_group(&self, group: &str) -> bool {
        let Ok(access) = self.access.get() else { return false };
        let core = &access.core;
        core.resolve(&self).is_ok_and(|pid| core.leave_group(group, pid, Doer::Another, &mut core.executor()))
    }
}

impl<M: Send + 'static> ProcessRef<M> {
    /// Sends a message. See [`Runtime::send`](crate::Runtime::send).
    ///
    /// # Errors
    /// The errors of [`Runtime::send`](crate::Runtime::send), or the runtime has ended. The message comes back.
    pub fn send(&self, message: M) -> Result<(), Rejected<M, SendError>> {
        self.access.send(&self, message)
    }

    /// Sends a message when there is room. See [`Runtime::send_timeout`](crate::Runtime::send_timeout). If the runtime
    /// has ended, the future is ready at once, and gives the message back.
    pub fn send_timeout(&self, message: M, limit: Duration) -> SendFuture<M> {
        self.access.send_timeout(&self, message, limit)
    }

    /// Asks the process. See [`Runtime::ask`](crate::Runtime::ask). If the runtime has ended, the future is ready at
    /// once, with that error, and `question` is not called.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(Reply<T>) -> M, limit: Duration) -> AskFuture<T> {
        self.access.ask(&self, question, limit)
    }
}

impl<M> Target for &ProcessRef<M> {}

impl<M> Accepts<M> for &ProcessRef<M> {
    fn recipient(&self) -> Option<&Recipient<M>> {
        self.recipient.as_ref()
    }
}

impl<M> Resolve for &ProcessRef<M> {
    #[inline]
    fn named(&self) -> Named<'_> {
        self.to.named()
    }
}

impl<M> Clone for ProcessRef<M> {
    fn clone(&self) -> ProcessRef<M> {
        ProcessRef { access: self.access.clone(), to: self.to.clone(), recipient: self.recipient.clone() }
    }
}

impl<M> fmt::Debug for ProcessRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessRef({:?} taking {})", self.to, std::any::type_name::<M>())
    }
}
