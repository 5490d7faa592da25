//! Waiting: for counters, for readiness, for an error, for the end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::{Names, StateError, write_names};
use super::face::Kind;
use super::node::Node;
use super::parts::{Bell, Ready};
use super::walk::{self, Go, walk};
use crate::clock::{Clock, Deadline};
use crate::inside::WaitError;
use crate::latch::{Latch, Waiting};
use crate::sync::Arc;

/// Why a state is not ready.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NotReady {
    /// The limit was over before.
    TimedOut(NotReadyYet),
    /// It was asked to shut down before.
    ShutDown,
    /// The caller is a step of a process, which does not wait: it would block its worker.
    InsideStep,
    /// There was an error before.
    Failed(StateError),
    /// Who should have said that it is ready has gone without a word.
    Dropped(NotReadyYet),
}

/// The first node that was not ready, by its names.
#[derive(Clone, Debug)]
pub struct NotReadyYet {
    names: Names,
}

impl NotReadyYet {
    /// The names (annotations) on the way to it, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::TimedOut(place) => {
                write_names(f, &place.names)?;
                f.write_str("not ready when the limit was over")
            }
            NotReady::InsideStep => WaitError::InsideStep.fmt(f),
            NotReady::ShutDown => f.write_str("shut down before it was ready"),
            NotReady::Failed(error) => write!(f, "failed before it was ready: {error}"),
            NotReady::Dropped(place) => {
                write_names(f, &place.names)?;
                f.write_str("will never be ready")
            }
        }
    }
}

impl std::error::Error for NotReady {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NotReady::Failed(error) => Some(error),
            _ => None,
        }
    }
}

pub(super) fn deadline(clock: &Clock, limit: Option<Duration>) -> Deadline {
    limit.map_or(Deadline::NEVER, |limit| clock.deadline(limit))
}

/// Whether one of these was set before the deadline.
fn any(bells: &[Latch<()>], clock: &Clock, deadline: Deadline) -> bool {
    let woken = Latch::new();
    let callbacks: Vec<Option<u64>> = bells
        .iter()
        .map(|bell| {
            let woken = woken.clone();
            bell.on_set(move |()| {
                let _ = woken.set(());
            })
        })
        .collect();
    let in_time = woken.wait_until(clock, deadline);
    for (bell, callback) in bells.iter().zip(callbacks) {
        if let Some(callback) = callback {
            bell.forget(callback);
        }
    }
    in_time
}

/// Until all counters from here down are zero at the same time. Whether that was before the limit was over.
///
/// Each counter is waited for in turn, and then they are looked at again, until [`Looks`] says that it is enough.
pub(super) fn counters(root: &Arc<Node>, limit: Option<Duration>) -> bool {
    let clock = &root.face.clock;
    let deadline = deadline(clock, limit);
    zeros(Looks::of(root), || look(root, clock, deadline), || deadline.has_passed(clock))
}

/// Looks until that is enough, or until a look finds that one does not come to zero in time. Where others come and go faster
/// than two looks can be made, no look has anything to wait for: then it is the limit that ends this.
pub(super) fn zeros(mut looks: Looks, look: impl Fn() -> Option<Look>, is_late: impl Fn() -> bool) -> bool {
    loop {
        let is_second = looks.before.is_some();
        let Some(look) = look() else { return false };
        if looks.are_enough(look) {
            return true;
        }
        if is_second && is_late() {
            return false;
        }
    }
}

/// Waits for each counter in turn. Nothing, if the deadline was before.
pub(super) fn look(root: &Arc<Node>, clock: &Clock, deadline: Deadline) -> Option<Look> {
    let mut look = Look::default();
    let late = walk(root, |place| {
        let (count, raises, below) = {
            let inner = place.node.lock();
            (inner.count, inner.raised, inner.below())
        };
        let seen = || Seen { node: place.node.clone(), raised: raises };
        match place.node.kind() {
            Kind::Counted => look.counters.push(seen()),
            Kind::Group => look.groups.push(seen()),
            _ => {}
        }
        if count > 0 {
            look.waited = true;
            if !place.node.bell(Bell::Zero).wait_until(clock, deadline) {
                return Go::Stop(());
            }
        }
        Go::On(below)
    });
    late.is_none().then_some(look)
}

/// One look at all counters, after which each of them has been seen at zero.
#[derive(Clone, Default)]
pub(super) struct Look {
    pub(super) counters: Vec<Seen>,
    /// Where others may have come and gone.
    pub(super) groups: Vec<Seen>,
    /// One of them had to be waited for, so others may have been raised meanwhile.
    pub(super) waited: bool,
}

/// A counter, and how often it was ever raised; or a group, and how often it took in what is counted. It is held, so that no
/// other one is taken for it.
#[derive(Clone)]
pub(super) struct Seen {
    node: Arc<Node>,
    pub(super) raised: u64,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        Arc::ptr_eq(&self.node, &other.node) && self.raised == other.raised
    }
}

/// Whether all counters were zero at one moment. When a look has found zeros only, the next one must find the same counters,
/// that none was raised since, and that no group has taken in another one, which may have had work and be gone: then they were
/// all zero between the two. Where there can be only one counter, its own zero is enough; not where a group is, for whoever
/// lowers it may have had another one taken in before.
pub(super) struct Looks {
    grows: bool,
    before: Option<Look>,
}

impl Looks {
    pub(super) fn of(root: &Arc<Node>) -> Looks {
        Looks { grows: root.face.nature.grows, before: None }
    }

    pub(super) fn are_enough(&mut self, look: Look) -> bool {
        let is_alone = look.counters.len() <= 1 && !self.grows;
        let is_as = |before: &Look| before.counters == look.counters && before.groups == look.groups;
        let is_same = !look.waited && self.before.as_ref().is_some_and(is_as);
        self.before = (!look.waited).then_some(look);
        is_alone || is_same
    }
}

/// Whether all from here down are ready.
pub(super) fn is_ready(root: &Arc<Node>) -> bool {
    let not = walk(root, |place| {
        let inner = place.node.lock();
        match inner.ready {
            Ready::Always | Ready::Yes => Go::On(inner.below()),
            Ready::NotYet | Ready::Never => Go::Stop(()),
        }
    });
    not.is_none()
}

/// Until all from here down are ready.
pub(super) fn ready(root: &Arc<Node>, limit: Option<Duration>) -> Result<(), NotReady> {
    let clock = &root.face.clock;
    let deadline = deadline(clock, limit);
    let above = [root.bell(Bell::Failed), root.bell(Bell::Asked), root.bell(Bell::Done)];
    let why = walk(root, |place| {
        let node = place.node;
        let mut bells = above.to_vec();
        loop {
            let [failed, shut, done] = &above;
            // Looked at first: what comes before the end (it is ready, there is an error, it was asked to close) is seen then.
            let is_done = done.is_set();
            let (ready, asked) = {
                let inner = node.lock();
                match inner.ready {
                    Ready::Always | Ready::Yes => return Go::On(inner.below()),
                    ready => (ready, inner.times.asked.is_some()),
                }
            };
            if failed.is_set()
                && let Some(error) = walk::error(root)
            {
                return Go::Stop(NotReady::Failed(error));
            }
            if asked || shut.is_set() {
                return Go::Stop(NotReady::ShutDown);
            }
            // Done without having been asked is: by itself, and what is not ready then was dropped.
            if ready == Ready::Never || is_done {
                return Go::Stop(NotReady::Dropped(NotReadyYet { names: place.names() }));
            }
            bells.extend([node.bell(Bell::Ready), node.bell(Bell::Asked)]);
            if !any(&bells, clock, deadline) {
                return Go::Stop(NotReady::TimedOut(NotReadyYet { names: place.names() }));
            }
        }
    });
    why.map_or(Ok(()), Err)
}

/// Until there is an error from here down.
pub(super) fn failed(root: &Arc<Node>, limit: Option<Duration>) -> Option<StateError> {
    let clock = &root.face.clock;
    root.bell(Bell::Failed).wait_until(clock, deadline(clock, limit));
    walk::error(root)
}

/// Keeps a callback of a state in place, and the state with it; dropping it takes the callback back.
#[must_use = "dropping this takes the callback back"]
pub struct Subscription {
    bell: Latch<()>,
    callback: Option<u64>,
    _of: Option<Arc<Node>>,
}

impl Subscription {
    pub(super) fn new(
        bell: Latch<()>,
        of: Option<&Arc<Node>>,
        callback: impl FnOnce() + Send + 'static,
    ) -> Subscription {
        let callback = bell.on_set(move |()| callback());
        Subscription { bell, callback, _of: of.cloned() }
    }

    /// Leaves the callback in place for as long as there is the state, which this does not keep.
    pub fn keep(mut self) {
        self.callback = None;
    }
}

/// The moment at which a node is closed, as a future that keeps the node.
pub(super) struct Closed {
    closed: Waiting<()>,
    _of: Arc<Node>,
}

impl Closed {
    pub(super) fn new(of: &Arc<Node>) -> Closed {
        Closed { closed: Waiting::new(of.bell(Bell::Done)), _of: of.clone() }
    }
}

impl Future for Closed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.closed).poll(cx)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("called", &self.bell.is_set()).finish()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(callback) = self.callback {
            self.bell.forget(callback);
        }
    }
}
