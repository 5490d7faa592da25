//! Handles to processes that were spawned from outside.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::access::WeakAccess;
use super::ask::AskFuture;
use super::process_node::node_of;
use super::process_ref::ProcessRef;
use super::send_future::SendFuture;
use crate::clock::Clock;
use crate::inside::WaitError;
use crate::latch::LatchFuture;
use crate::outcome::{Exit, Rejected};
use crate::primitives::Arc;
use crate::process::{Accepts, Address, Named, Pid, Process, Reply, Resolve, SendError, Target};
use crate::sched::machine::ExitLatch;
use crate::shutdown::ShutdownNode;

/// A handle to a process that was spawned from outside. It has the address of the process, and can wait for its end.
/// Clones are handles to the same process. The drop of a handle does not end the process.
///
/// A handle is also a `Future` of the exit.
pub struct Handle<P: Process> {
    address: Address<P::Message>,
    exit: LatchFuture<Exit<Arc<P::Output>>>,
    access: WeakAccess,
    clock: Clock,
}

impl<P: Process> Handle<P> {
    pub(super) fn new(pid: Pid, exit: ExitLatch<P::Output>, access: WeakAccess, clock: Clock) -> Handle<P> {
        Handle { address: pid.typed(), exit: LatchFuture::new(exit), access, clock }
    }

    /// The PID.
    pub fn pid(&self) -> Pid {
        self.address.pid()
    }

    /// The address: the PID with the type of the messages.
    pub fn address(&self) -> Address<P::Message> {
        self.address
    }

    /// A reference to the process, with all calls that name a process. It does not depend on the type of the process,
    /// but only on that of its messages.
    pub fn process_ref(&self) -> ProcessRef<P::Message> {
        ProcessRef::new(self.access.clone(), &self)
    }

    /// Sends a message. See [`Runtime::send`](crate::Runtime::send).
    ///
    /// # Errors
    /// The errors of [`Runtime::send`](crate::Runtime::send), or the runtime has ended. The message comes back.
    pub fn send(&self, message: P::Message) -> Result<(), Rejected<P::Message, SendError>> {
        self.access.send(&self, message)
    }

    /// Sends a message when there is room. See [`Runtime::send_timeout`](crate::Runtime::send_timeout).
    pub fn send_timeout(&self, message: P::Message, limit: Duration) -> SendFuture<P::Message> {
        self.access.send_timeout(&self, message, limit)
    }

    /// Asks the process. See [`Runtime::ask`](crate::Runtime::ask).
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Reply<T>) -> P::Message,
        limit: Duration,
    ) -> AskFuture<T> {
        self.access.ask(&self, question, limit)
    }

    /// Makes a node for the process in a [shutdown tree](crate::shutdown). Each call makes a new one.
    ///
    /// A request to the node asks the process to stop, with [`Reason::Shutdown`](crate::Reason::Shutdown). The node
    /// closes when the process has ended, for any reason. Then [`exit`](Self::exit) returns the exit. If that is not
    /// [`Exit::Done`], it is the error of the node. The name of the node is that of the process, or else its PID.
    ///
    /// The node needs no thread, and keeps neither the process nor the runtime alive. Callbacks of the nodes above it
    /// run on the thread that ends the process.
    ///
    /// ```
    /// use procession::prelude::*;
    /// use std::time::Duration;
    ///
    /// struct Listener;
    ///
    /// #[actor]
    /// impl Listener {}
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let listener = runtime.spawn(actor(Listener))?;
    /// // The listener ends before all other processes.
    /// let all = runtime.shutdown_node().depends_on([listener.shutdown_node()]);
    /// all.shutdown_timeout(Duration::from_secs(20))?;
    /// assert!(listener.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_node(&self) -> ShutdownNode {
        let (node, job) = node_of(self.pid(), &self.access);
        self.exit.latch().on_set(move |exit| job.close(exit)).keep();
        node
    }

    /// Blocks the calling thread until the process has ended and was closed. Returns its exit. Any number of threads
    /// may wait.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]). In a step, use
    /// [`StepOutput::monitor`](crate::StepOutput::monitor) instead.
    pub fn join(&self) -> Result<Exit<Arc<P::Output>>, WaitError> {
        self.join_timeout(Duration::MAX)
    }

    /// Like [`join`](Self::join), but waits no longer than `limit` by the runtime's clock.
    ///
    /// # Errors
    /// The errors of [`join`](Self::join), or [`WaitError::TimedOut`] if the limit was over first.
    pub fn join_timeout(&self, limit: Duration) -> Result<Exit<Arc<P::Output>>, WaitError> {
        self.exit.latch().join(&self.clock, limit)
    }

    /// The exit of the process. `None` if it has not ended.
    pub fn exit(&self) -> Option<Exit<Arc<P::Output>>> {
        self.exit.latch().get()
    }

    /// Whether the process has ended.
    pub fn is_finished(&self) -> bool {
        self.exit.latch().is_set()
    }
}

impl<P: Process> Target for &Handle<P> {}
impl<P: Process> Accepts<P::Message> for &Handle<P> {}

impl<P: Process> Resolve for &Handle<P> {
    #[inline]
    fn named(&self) -> Named<'_> {
        Named::Process(self.pid())
    }
}

impl<P: Process> Clone for Handle<P> {
    fn clone(&self) -> Handle<P> {
        Handle {
            address: self.address,
            exit: LatchFuture::new(self.exit.latch().clone()),
            access: self.access.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl<P: Process> Future for Handle<P> {
    type Output = Exit<Arc<P::Output>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.exit).poll(cx)
    }
}

// The fields are shared references and numbers. No field is pinned.
impl<P: Process> Unpin for Handle<P> {}

impl<P: Process> fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("pid", &self.pid())
            .field("process", &std::any::type_name::<P>())
            .field("is_finished", &self.is_finished())
            .finish()
    }
}
