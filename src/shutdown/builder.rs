//! Builds nodes: their options, and a node together with the thread or future that does its work.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::cascade;
use super::guards::{Group, Job, JobGuard};
use super::key::Stored;
use super::node::{Node, Own, Ready, ShutdownNode};
use super::spec::{Kind, NodeSpec};
use crate::clock::Clock;
use crate::outcome::{BoxError, Rejected, contain, drop_contained};
use crate::primitives::{Arc, Mutex, OnceLock, lock, thread};
use crate::threads;

/// Options of a node.
///
/// By default a node has no name, no children and no limits, and is ready from the start. Its clock is the manual clock
/// of the first child that has one. If no child has one, it is the system's clock.
///
/// ```
/// use procession::ShutdownNode;
/// use std::time::Duration;
///
/// let store = ShutdownNode::builder().name("store").thread(|job| {
///     job.end().wait();
///     Ok(())
/// })?;
/// let server = ShutdownNode::builder()
///     .name("server")
///     .children([store])
///     .cancel_after(Duration::from_secs(5))
///     .give_up_after(Duration::from_secs(10))
///     .thread(|job| {
///         job.end().wait();
///         Ok(())
///     })?;
/// server.shutdown_timeout(Duration::from_secs(20))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a node is made by the last call: `job`, `thread`, `future`, `group` or `merge`"]
pub struct ShutdownNodeBuilder {
    spec: NodeSpec,
    clock: Option<Clock>,
    own: Own,
    ready: Ready,
    children: Vec<ShutdownNode>,
    pub(super) after: Option<ShutdownNode>,
}

impl ShutdownNodeBuilder {
    pub(super) fn new(kind: Kind, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNodeBuilder {
        let spec = NodeSpec {
            kind,
            name: None,
            clock: Clock::system(),
            value: None,
            cancel_after: None,
            give_up_after: None,
            detail: None,
            inside: None,
            is_inert: false,
            has_value: false,
            counts: false,
        };
        let children = children.into_iter().collect();
        ShutdownNodeBuilder { spec, clock: None, own: Own::Nothing, ready: Ready::Yes, children, after: None }
    }

    pub(super) fn value(mut self, value: Stored) -> ShutdownNodeBuilder {
        self.spec.value = Some(value);
        self
    }

    pub(super) fn make_node(self) -> ShutdownNode {
        let ShutdownNodeBuilder { mut spec, clock, own, ready, children, after } = self;
        let below: Vec<&NodeSpec> = after.iter().chain(&children).map(|node| &node.node.spec).collect();
        spec.is_inert = own == Own::Nothing && below.iter().all(|below| below.is_inert);
        spec.has_value = spec.value.is_some() || below.iter().any(|below| below.has_value);
        spec.counts = matches!(spec.kind, Kind::Counted | Kind::Group) || below.iter().any(|below| below.counts);
        // A manual clock anywhere below is used by all nodes above it. So a test sets it once.
        let manual = || below.iter().map(|below| &below.clock).find(|clock| clock.is_manual()).cloned();
        spec.clock = clock.or_else(manual).unwrap_or_default();
        let children = children.iter().map(|child| child.node.clone()).collect();
        let after = after.map(|after| after.node.clone());
        ShutdownNode { node: cascade::after(|moves| Node::new(spec, own, ready, children, after, moves)) }
    }

    /// Builds the node, and the hold that keeps it from ending by itself.
    pub(super) fn make_held(self) -> (ShutdownNode, Arc<JobGuard>) {
        let node = ShutdownNodeBuilder { own: Own::Held, ..self }.make_node();
        let guard = Arc::new(JobGuard::new(node.node.clone()));
        (node, guard)
    }

    /// Sets the name of the node in errors and reports, like an annotation. A thread of the node has this name, too.
    pub fn name(mut self, name: impl Into<String>) -> ShutdownNodeBuilder {
        let name = name.into();
        self.spec.name = (!name.is_empty()).then(|| Arc::from(name));
        self
    }

    /// Adds nodes that close before this one.
    pub fn children(mut self, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNodeBuilder {
        self.children.extend(children);
        self
    }

    /// Sets the clock for the limits of the node, and for the times in reports.
    pub fn clock(mut self, clock: Clock) -> ShutdownNodeBuilder {
        self.clock = Some(clock);
        self
    }

    /// Sets how long after its end signal an unfinished job is told to [cancel](Job::cancel).
    pub fn cancel_after(mut self, limit: Duration) -> ShutdownNodeBuilder {
        self.spec.cancel_after = Some(limit);
        self
    }

    /// Sets how long after its end signal an unfinished job is given up.
    ///
    /// The shutdown then goes on without the job. It returns an error that names the job. The job is told to
    /// [cancel](Job::cancel) at this time at the latest.
    pub fn give_up_after(mut self, limit: Duration) -> ShutdownNodeBuilder {
        self.spec.give_up_after = Some(limit);
        self
    }

    /// Makes the job begin unready. It is ready when it [reports that](Job::ready).
    pub fn unready(mut self) -> ShutdownNodeBuilder {
        self.ready = Ready::NotYet;
        self
    }

    /// Sets a function that describes in a few words what the node waits for.
    ///
    /// The description is shown in reports. It is also shown in the error of a shutdown while the node has been told
    /// to end and has not ended. The thread that makes the report calls the function.
    pub fn detail(mut self, detail: impl Fn() -> Option<String> + Send + Sync + 'static) -> ShutdownNodeBuilder {
        self.spec.detail = Some(Box::new(detail));
        self
    }

    /// Sets a function that tells whether the job waits for the calling thread. On such a thread, a wait for the end
    /// of the tree would wait for itself, and is refused.
    pub(crate) fn inside(mut self, inside: impl Fn() -> bool + Send + Sync + 'static) -> ShutdownNodeBuilder {
        self.spec.inside = Some(Box::new(inside));
        self
    }

    /// Builds a job. Returns its node, and the guard for the work.
    pub fn job(mut self) -> (ShutdownNode, JobGuard) {
        (self.spec.kind, self.own) = (Kind::Job, Own::Works);
        let node = self.make_node();
        let guard = JobGuard::new(node.node.clone());
        (node, guard)
    }

    /// Builds a job that runs on a thread of its own.
    ///
    /// The job is done when the closure has returned. If it returns an error or panics, that is the job's error.
    ///
    /// # Errors
    /// Returns the closure if the operating system gives no thread, or if the name contains a NUL.
    pub fn thread<F>(self, work: F) -> Result<ShutdownNode, Rejected<F, io::Error>>
    where
        F: FnOnce(Job) -> Result<(), BoxError> + Send + 'static,
    {
        let name = String::from(self.spec.name.as_deref().unwrap_or("procession-job"));
        let worker = Arc::new(OnceLock::new());
        let known = worker.clone();
        let (node, guard) = self.inside(move || known.get() == Some(&thread::current().id())).job();
        // Shared, so that the closure can be returned if its thread does not start.
        let work = Arc::new(Mutex::new(Some((work, guard))));
        let taken = work.clone();
        let started = threads::start(name, move || {
            let work = lock(&taken).take();
            let _ = worker.set(thread::current().id());
            if let Some((work, guard)) = work {
                let result = contain(|| work(guard.job()));
                guard.fail_on(result.unwrap_or_else(|panic| Err(panic.into())));
            }
        });
        let Err(error) = started else { return Ok(node) };
        let work = lock(&work).take();
        // Without work, the thread did start.
        work.map_or(Ok(node), |(work, _guard)| Err(Rejected::new(work, error)))
    }

    /// Builds a job that runs as a future.
    ///
    /// The future is returned, and can be spawned on any executor. The job is done when the future has completed or is
    /// dropped. If it returns an error or panics, that is the job's error.
    ///
    /// ```
    /// use procession::ShutdownNode;
    /// # fn spawn(_: impl Future<Output = ()> + Send + 'static) {}
    ///
    /// let (state, work) = ShutdownNode::builder().name("mailer").future(|job| async move {
    ///     let why = job.end().cancelled().await;
    ///     println!("the mailer ends: {why}");
    ///     Ok(())
    /// });
    /// spawn(work);
    /// # drop(state);
    /// ```
    pub fn future<F, W>(self, work: F) -> (ShutdownNode, JobFuture<W>)
    where
        F: FnOnce(Job) -> W,
        W: Future<Output = Result<(), BoxError>>,
    {
        let (node, guard) = self.job();
        let work = Box::pin(work(guard.job()));
        (node, JobFuture { running: Some((work, guard)) })
    }

    /// Builds a group. Returns its node, and the guard that adds nodes while the group runs.
    ///
    /// The children stay as long as the group.
    pub fn group(mut self) -> (ShutdownNode, Group) {
        self.spec.kind = Kind::Group;
        let (node, hold) = self.make_held();
        (node, Group { hold })
    }

    /// Builds one node of all children. It has no work of its own.
    pub fn merge(self) -> ShutdownNode {
        self.make_node()
    }
}

impl fmt::Debug for ShutdownNodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownNodeBuilder")
            .field("name", &self.spec.name)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}

/// The work of a job as a future.
///
/// It completes when the work has completed, failed or panicked. The error is in the node.
#[must_use = "a future does nothing unless it is polled; dropping this says that the job is done"]
pub struct JobFuture<W> {
    // The work is dropped before the guard.
    running: Option<(Pin<Box<W>>, JobGuard)>,
}

impl<W: Future<Output = Result<(), BoxError>>> Future for JobFuture<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some((work, guard)) = &mut self.running else { return Poll::Ready(()) };
        let result = match contain(|| work.as_mut().poll(cx)) {
            Ok(poll) => ready!(poll),
            Err(panic) => Err(panic.into()),
        };
        guard.fail_on(result);
        // Drops the work before the job counts as done.
        if let Some((work, _guard)) = self.running.take() {
            drop_contained(work);
        }
        Poll::Ready(())
    }
}

impl<W> fmt::Debug for JobFuture<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobFuture").field("guard", &self.running.as_ref().map(|(_, guard)| guard)).finish()
    }
}
