//! Waits for the end, for counters, for readiness, and for an error.

use std::ops::ControlFlow::{Break, Continue};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::cascade;
use super::error::{NodeError, NotReadyError, NotReadyNode};
use super::node::{Condition, Life, Node, Ready};
use super::report::ShutdownTimeout;
use super::spec::Kind;
use super::walk::{self, walk};
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, deadline_here, is_step, refuse_step_timeout, why_not_over};
use crate::latch::{Latch, LatchCallback, LatchFuture};
use crate::primitives::Arc;

/// Asks a node to close, and waits until it is closed.
pub(super) fn shutdown(root: &Arc<Node>, limit: Duration) -> Result<(), ShutdownTimeout> {
    let clock = &root.spec.clock;
    let deadline = clock.deadline(limit);
    cascade::ask(root);
    let inside = if is_step() { None } else { walk::inside(root) };
    if inside.is_none() {
        root.latch(Condition::Done).wait_until(clock, deadline_here(clock, deadline));
    }
    // Read before the report. A job can be given up while the report is made. Then the report may have visited the
    // job before it was told to end.
    let was_done = {
        let inner = root.lock();
        if inner.settled {
            return Ok(());
        }
        inner.life == Life::Done
    };
    let error = ShutdownTimeout::of(root, why_not_over(limit), inside);
    // The node may have settled while the error was made. Or the jobs that were given up have all ended, and their
    // thread has not struck the links up to this node yet.
    let has_settled = root.lock().settled || was_done && error.open().is_empty();
    if has_settled { Ok(()) } else { Err(error) }
}

/// Waits until a node is closed.
pub(super) fn closed(root: &Arc<Node>, limit: Duration) -> Result<(), WaitError> {
    if root.lock().life == Life::Done {
        return Ok(());
    }
    refuse_step_timeout(limit)?;
    if walk::inside(root).is_some() {
        return Err(WaitError::Inside);
    }
    let clock = &root.spec.clock;
    if root.latch(Condition::Done).wait_until(clock, clock.deadline(limit)) { Ok(()) } else { Err(WaitError::TimedOut) }
}

/// Waits until all counters of this node and below are zero at the same time.
pub(super) fn counters(root: &Arc<Node>, limit: Duration) -> Result<(), WaitError> {
    refuse_step_timeout(limit)?;
    let clock = &root.spec.clock;
    let deadline = clock.deadline(limit);
    if zeros(|| look(root, clock, deadline), || deadline.has_passed(clock)) { Ok(()) } else { Err(WaitError::TimedOut) }
}

/// Looks until two looks in a row are the same, or until a counter does not come to zero in time.
///
/// A look sees each counter at zero, but not all at the same moment. Suppose that the next look finds the same
/// counters, that none of them was raised in between, and that no group has taken in another one. Then all of them
/// were zero between the two looks. If counters come and go faster than two looks can be made, the limit ends this.
pub(super) fn zeros(look: impl Fn() -> Option<Vec<Seen>>, is_late: impl Fn() -> bool) -> bool {
    let mut before = None;
    loop {
        let Some(look) = look() else { return false };
        if before.as_ref() == Some(&look) {
            return true;
        }
        if before.is_some() && is_late() {
            return false;
        }
        before = Some(look);
    }
}

/// A counter or a group that a look has seen, with a number.
///
/// The number says how often the counter was raised before the wait, or how many counted nodes the group has taken in.
/// The node is held, so that its address cannot be reused for another one.
pub(super) struct Seen {
    node: Arc<Node>,
    pub(super) raised: u64,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        Arc::ptr_eq(&self.node, &other.node) && self.raised == other.raised
    }
}

/// Waits for each counter in turn. Returns `None` if the deadline passes first.
pub(super) fn look(root: &Arc<Node>, clock: &Clock, deadline: Deadline) -> Option<Vec<Seen>> {
    let mut seen = Vec::new();
    let late = walk(root, |place| {
        let (count, raised, below) = {
            let inner = place.node.lock();
            (inner.count, inner.raised, inner.below())
        };
        if matches!(place.node.spec.kind, Kind::Counted | Kind::Group) {
            seen.push(Seen { node: place.node.clone(), raised });
        }
        if count > 0 && !place.node.latch(Condition::Zero).wait_until(clock, deadline) {
            return Break(());
        }
        Continue(below)
    });
    late.is_none().then_some(seen)
}

/// Whether one of these latches was set before the deadline.
fn any(latches: &[Latch<()>], clock: &Clock, deadline: Deadline) -> bool {
    let woken = Latch::new();
    let wake = |latch: &Latch<()>| {
        let woken = woken.clone();
        latch.on_set(move |()| {
            let _ = woken.set(());
        })
    };
    let _callbacks: Vec<LatchCallback<()>> = latches.iter().map(wake).collect();
    woken.wait_until(clock, deadline)
}

/// Waits until this node and all below it are ready.
pub(super) fn ready(root: &Arc<Node>, limit: Duration) -> Result<(), NotReadyError> {
    refuse_step_timeout(limit).map_err(|_| NotReadyError::InsideStep)?;
    let clock = &root.spec.clock;
    let deadline = clock.deadline(limit);
    let above = [root.latch(Condition::Failed), root.latch(Condition::Asked), root.latch(Condition::Done)];
    let why = walk(root, |place| {
        let node = place.node;
        let mut latches = above.to_vec();
        loop {
            let [failed, shut, done] = &above;
            // Checked first. Events before the end (it is ready, there is an error, it was asked to close) are then
            // visible below.
            let is_done = done.is_set();
            let (ready, asked) = {
                let inner = node.lock();
                match inner.ready {
                    Ready::Yes => return Continue(inner.below()),
                    ready => (ready, inner.times.asked.is_some()),
                }
            };
            if failed.is_set()
                && let Some(error) = walk::error(root)
            {
                return Break(NotReadyError::Failed(error));
            }
            if asked || shut.is_set() {
                return Break(NotReadyError::ShutDown);
            }
            // A node that is done without having been asked has ended by itself. Guards that were not ready then were
            // dropped.
            if ready == Ready::Never || is_done {
                return Break(NotReadyError::Dropped(NotReadyNode { names: place.names() }));
            }
            latches.extend([node.latch(Condition::Ready), node.latch(Condition::Asked)]);
            if !any(&latches, clock, deadline) {
                return Break(NotReadyError::TimedOut(NotReadyNode { names: place.names() }));
            }
        }
    });
    why.map_or(Ok(()), Err)
}

/// Waits until there is an error in this node or below.
pub(super) fn failed(root: &Arc<Node>, limit: Duration) -> Result<NodeError, WaitError> {
    refuse_step_timeout(limit)?;
    let clock = &root.spec.clock;
    root.latch(Condition::Failed).wait_until(clock, clock.deadline(limit));
    walk::error(root).ok_or(WaitError::TimedOut)
}

/// A registered callback. Dropping this removes the callback.
///
/// If the callback belongs to a node, this keeps the node alive.
#[derive(Debug)]
#[must_use = "dropping this takes the callback back"]
pub struct Subscription {
    callback: LatchCallback<()>,
    _of: Option<Arc<Node>>,
}

impl Subscription {
    pub(super) fn new(
        latch: Latch<()>,
        of: Option<&Arc<Node>>,
        callback: impl FnOnce() + Send + 'static,
    ) -> Subscription {
        let callback = latch.on_set(move |()| callback());
        Subscription { callback, _of: of.cloned() }
    }

    /// Keeps the callback registered until the node is dropped. The callback does not keep the node alive.
    pub fn keep(self) {
        self.callback.keep();
    }
}

/// A future that completes when a node is closed. It keeps the node alive.
#[derive(Debug)]
pub struct ClosedFuture {
    closed: LatchFuture<()>,
    _of: Arc<Node>,
}

impl ClosedFuture {
    pub(super) fn new(of: &Arc<Node>) -> ClosedFuture {
        ClosedFuture { closed: LatchFuture::new(of.latch(Condition::Done)), _of: of.clone() }
    }
}

impl Future for ClosedFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.closed).poll(cx)
    }
}
