//! Making nodes: options, and a node together with the thread or future that does its work.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::drive;
use super::face::{Detail, Face, Inside, Kind, Nature, Signals};
use super::handle::ShutdownNode;
use super::key::Stored;
use super::node::Node;
use super::parts::{Own, Ready};
use super::tail::{Group, Job, JobGuard};
use crate::clock::Clock;
use crate::outcome::{BoxError, Panic, Rejected, contain, drop_contained};
use crate::sync::{Arc, Mutex, OnceLock, lock, thread};
use crate::threads;

/// What a node is made of.
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) own: Own,
    pub(super) ready: Ready,
    pub(super) name: Option<String>,
    pub(super) value: Option<Stored>,
    pub(super) children: Vec<ShutdownNode>,
    pub(super) after: Option<ShutdownNode>,
    pub(super) clock: Option<Clock>,
    pub(super) limits: (Option<Duration>, Option<Duration>),
    pub(super) detail: Option<Detail>,
    pub(super) inside: Option<Inside>,
}

impl Plan {
    pub(super) fn new(kind: Kind, own: Own, children: impl IntoIterator<Item = ShutdownNode>) -> Plan {
        Plan {
            kind,
            own,
            ready: Ready::Always,
            name: None,
            value: None,
            children: children.into_iter().collect(),
            after: None,
            clock: None,
            limits: (None, None),
            detail: None,
            inside: None,
        }
    }

    pub(super) fn make(self) -> Arc<Node> {
        self.make_with_signals().0
    }

    fn make_with_signals(self) -> (Arc<Node>, Option<Arc<Signals>>) {
        let below = self.after.iter().chain(&self.children);
        let own = Nature {
            inert: self.own == Own::Nothing,
            valued: self.value.is_some(),
            grows: self.kind == Kind::Group,
            counts: matches!(self.kind, Kind::Counted | Kind::Group),
            asks_inside: self.inside.is_some() || self.kind == Kind::Group,
        };
        let nature = below.clone().fold(own, |nature, state| nature.with(state.node().face.nature));
        // A manual clock anywhere below is the clock of all above, so that a test need say it once.
        let mut inherited = below.map(|state| &state.node().face.clock).filter(|clock| clock.is_manual());
        let clock = self.clock.or_else(|| inherited.next().cloned()).unwrap_or_default();
        let (cancel_after, give_up_after) = self.limits;
        let signals = (self.own == Own::Works).then(|| Arc::new(Signals::new(&clock, cancel_after, give_up_after)));
        let name = self.name.filter(|name| !name.is_empty()).map(Arc::from);
        let job = signals.clone();
        let (kind, value, detail, inside) = (self.kind, self.value, self.detail, self.inside);
        let face = Face { kind, name, clock, value, job, detail, inside, nature };
        let children = self.children.iter().map(|state| state.node().clone()).collect();
        let after = self.after.map(|state| state.node().clone());
        (drive::after(|moves| Node::new(face, self.own, self.ready, children, after, moves)), signals)
    }

    pub(super) fn make_job(self) -> (ShutdownNode, JobGuard) {
        let (node, signals) = Plan { own: Own::Works, ..self }.make_with_signals();
        let signals = signals.unwrap_or_else(|| Arc::new(Signals::new(&node.face.clock, None, None)));
        (ShutdownNode::of(node.clone()), JobGuard::new(node, signals))
    }
}

/// Options of a node, each with its default: no name, no children, no limits, ready from the start, and the clock of the
/// first child that has a manual one, or the system's.
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
/// server.shutdown(Some(Duration::from_secs(20)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a node is made by the last call: `job`, `thread`, `future`, `group` or `merge`"]
pub struct ShutdownNodeBuilder {
    plan: Plan,
}

impl ShutdownNodeBuilder {
    pub(super) fn new() -> ShutdownNodeBuilder {
        ShutdownNodeBuilder { plan: Plan::new(Kind::Merge, Own::Nothing, []) }
    }

    /// What it is called in errors and reports, as if it were annotated; a thread is called so, too.
    pub fn name(mut self, name: impl Into<String>) -> ShutdownNodeBuilder {
        self.plan.name = Some(name.into());
        self
    }

    /// What closes before it: in addition to those given before.
    pub fn children(mut self, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNodeBuilder {
        self.plan.children.extend(children);
        self
    }

    /// The clock for its limits, and for the times in reports.
    pub fn clock(mut self, clock: Clock) -> ShutdownNodeBuilder {
        self.plan.clock = Some(clock);
        self
    }

    /// A job that has not ended so long after its end signal is told to [cancel](Job::cancel).
    pub fn cancel_after(mut self, limit: Duration) -> ShutdownNodeBuilder {
        self.plan.limits.0 = Some(limit);
        self
    }

    /// A job that has not ended so long after its end signal is given up: what waits for it goes on, and the shutdown
    /// fails, with the job in its error. It is told to cancel at this time at the latest.
    pub fn give_up_after(mut self, limit: Duration) -> ShutdownNodeBuilder {
        self.plan.limits.1 = Some(limit);
        self
    }

    /// A job that is not ready until it [says so](Job::ready).
    pub fn unready(mut self) -> ShutdownNodeBuilder {
        self.plan.ready = Ready::NotYet;
        self
    }

    /// What it waits for, in a few words: told in reports, and in the error of a shutdown that it holds up, as long as it
    /// has been told to end and has not. Called by whoever looks.
    pub fn detail(mut self, detail: impl Fn() -> Option<String> + Send + Sync + 'static) -> ShutdownNodeBuilder {
        self.plan.detail = Some(Arc::new(detail));
        self
    }

    /// Whether the calling thread is one that the job waits for: who waits for the end of the tree there would wait for itself,
    /// and is refused.
    pub(crate) fn inside(mut self, inside: impl Fn() -> bool + Send + Sync + 'static) -> ShutdownNodeBuilder {
        self.plan.inside = Some(Arc::new(inside));
        self
    }

    fn job_plan(self) -> Plan {
        Plan { kind: Kind::Job, ..self.plan }
    }

    /// A job: its node, and the tail for whoever does the work.
    pub fn job(self) -> (ShutdownNode, JobGuard) {
        self.job_plan().make_job()
    }

    /// A job that is done by a thread of its own. An error that it returns, and a panic, is the job's error; it is done
    /// when it has returned.
    ///
    /// # Errors
    /// The closure comes back if the operating system gives no thread, or the name has a NUL in it.
    pub fn thread<F>(self, work: F) -> Result<ShutdownNode, Rejected<F, io::Error>>
    where
        F: FnOnce(Job) -> Result<(), BoxError> + Send + 'static,
    {
        let name = self.plan.name.clone().unwrap_or_else(|| String::from("procession-job"));
        let worker = Arc::new(OnceLock::new());
        let known = worker.clone();
        let (state, tail) = self.inside(move || known.get() == Some(&thread::current().id())).job();
        // Shared, so that it can come back from a thread that was not started.
        let work = Arc::new(Mutex::new(Some((work, tail))));
        let taken = work.clone();
        let started = threads::start(name, move || {
            let work = lock(&taken).take();
            let _ = worker.set(thread::current().id());
            if let Some((work, tail)) = work {
                work_for(&tail, work);
            }
        });
        match started {
            Ok(_) => Ok(state),
            Err(error) => match lock(&work).take() {
                Some((work, _tail)) => Err(Rejected::new(work, error)),
                // It was started after all.
                None => Ok(state),
            },
        }
    }

    /// A job that is done by a future, which is returned to be spawned wherever futures are run. An error that it returns,
    /// and a panic, is the job's error; it is done when the future has completed or is dropped.
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
        let (state, tail) = self.job();
        let work = Box::pin(work(tail.job()));
        (state, JobFuture { running: Some((work, tail)) })
    }

    /// A group that takes states in while it runs, and the tail to do that with. The children stay as long as the group.
    pub fn group(self) -> (ShutdownNode, Group) {
        let node = Plan { kind: Kind::Group, own: Own::Held, ..self.plan }.make();
        (ShutdownNode::of(node.clone()), Group::new(node))
    }

    /// One state for all children.
    pub fn merge(self) -> ShutdownNode {
        ShutdownNode::of(self.plan.make())
    }
}

fn work_for(tail: &JobGuard, work: impl FnOnce(Job) -> Result<(), BoxError>) {
    conclude(tail, contain(|| work(tail.job())));
}

fn conclude(tail: &JobGuard, result: Result<Result<(), BoxError>, Panic>) {
    match result {
        Ok(result) => drop(tail.fail_on(result)),
        Err(panic) => drop(tail.fail(panic)),
    }
}

impl fmt::Debug for ShutdownNodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownNodeBuilder")
            .field("name", &self.plan.name)
            .field("children", &self.plan.children)
            .finish_non_exhaustive()
    }
}

/// The work of a job as a future. It completes when the work has, also when that has failed or panicked: the error is in
/// the state.
#[must_use = "a future does nothing unless it is polled; dropping this says that the job is done"]
pub struct JobFuture<W> {
    running: Option<(Pin<Box<W>>, JobGuard)>,
}

impl<W: Future<Output = Result<(), BoxError>>> Future for JobFuture<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some((work, tail)) = &mut self.running else { return Poll::Ready(()) };
        let result = match contain(|| work.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        conclude(tail, result);
        // What it holds goes before it is done.
        if let Some((work, _tail)) = self.running.take() {
            drop_contained(work);
        }
        Poll::Ready(())
    }
}

impl<W> Drop for JobFuture<W> {
    fn drop(&mut self) {
        if let Some((work, _tail)) = self.running.take() {
            drop(work);
        }
    }
}

impl<W> fmt::Debug for JobFuture<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobFuture").field("tail", &self.running.as_ref().map(|(_, tail)| tail)).finish()
    }
}
