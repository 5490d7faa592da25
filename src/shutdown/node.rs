//! One node of the shutdown tree: its phases, and why it is told once and done once.
//!
//! # The protocol
//!
//! A node has *children*, which close before it, perhaps *own work* (a job with a guard), and perhaps a node that
//! closes *after* the children (the parent of a dependency). Each of these is an *edge* to another node; the other
//! node has a link back. All that changes is under the node's own lock, and no thread ever holds two of them.
//!
//! | phase | means |
//! |---|---|
//! | `Open` | it was not asked to close |
//! | `Closing` | asked; its open children have been asked, and it waits for them |
//! | `Told` | all children are done; its job has the end signal, and what closes after the children has been asked |
//! | `Done` | everything that it had to wait for has ended |
//!
//! | arrow | made by | from | does |
//! |---|---|---|---|
//! | `ask` | a shutdown, an asked parent, a closing group | `Open` | to `Closing`; asks open children; then *goes on* |
//! | `strike` | a child that is done or has settled, for each link | any | the edge is closed; then *goes on* |
//! | `end_own` | the guard: done, or dropped | any | the own work has ended; then *goes on* |
//! | `give_up` | a limit | `Told` | the own work counts as ended, by force; then *goes on* |
//! | `release` | a group that refuses a node after all | any | the edge is taken away; then *goes on* |
//!
//! *Goes on*, in the same critical section: `Closing` with no child open becomes `Told`. Then, `Told` or `Open` (not
//! `Closing`, where children are open) with nothing open at all becomes `Done`, and its links are struck. A node that
//! becomes `Done` from `Open` has ended by itself. A node whose guard was not dropped does not end by itself.
//!
//! **By force.** After `give_up` the job still runs. The node is `Done` *by force*, and strikes its links by force. A
//! strike by force closes the edge, and records that the branch still runs. A node has *settled* when it is `Done`,
//! was not given up or has ended since, and no branch of it still runs. A node that is not `Done` by force settles
//! when it becomes `Done`. Any other one settles later, in `end_own` or in a strike. It then strikes its links once
//! more, without force. Different threads carry out the two strikes of a link, so the second may come first. Then the
//! first finds the edge closed, and changes nothing.
//!
//! **Told once.** Only `goes on` makes `Told`, from `Closing`, and nothing leads back to `Closing`. **Done once**:
//! likewise, and nothing leads out of `Done`.
//!
//! **Nothing is lost.** The race is: the last child is done while its parent is asked. The child strikes the edge in
//! a critical section of the parent. `ask` is one, too. If `ask` comes first, the strike finds `Closing` with nothing
//! open, and goes on. If the strike comes first, `ask` finds nothing open, and goes on. And a link is never missed.
//! It is entered under the child's lock, in the same critical section in which the future parent learns whether the
//! child is done. If the child is done, the parent strikes the edge itself. If it is not, the child finds the link
//! when it is done.
//!
//! **A new child and the closing of its group.** The edge is entered first and *unchecked*: the group waits for the
//! child, but does not ask it. Then the adding thread looks whether the group is below the child. Only then the edge
//! is checked. If the group was asked in the meantime, the adding thread asks the child, too. Two threads that would
//! make a cycle together both see it, because each looks after it has entered its edge.
//!
//! **Leaving.** The child of a group is removed by its strike without force, and its error is kept in that critical
//! section. So a child that is done by force stays until it has settled. Its link to the group goes in the critical
//! section in which it settles. An error that is set before that is told by the strike, and is found, because the
//! strike removes the child. An error that is set after that is not told to the group.
//!
//! **Ownership.** A node holds the nodes below it. Its handles and its guard hold the node. From `ask` until `Done`
//! it holds itself: its children will strike it, and it must then tell others even if no handle is left.
//!
//! An arrow runs no user code. Further work on other nodes, and the notices to give, go onto a list (`Moves`). The
//! thread works through the list after it has released the lock. So there is no thread for each node, and no
//! recursion.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use super::closing::Closing;
use super::error::NodeError;
use super::spec::NodeSpec;
use crate::cancel::CancelToken;
use crate::latch::Latch;
use crate::numbered_list::NumberedList;
use crate::outcome::{Failure, Reason, contain, drop_contained, tell_log};
use crate::primitives::{Arc, Mutex, MutexGuard, OnceLock, Weak, lock};

/// The phase of a node in the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Open,
    Closing,
    Told,
    Done,
}

/// The state of the node's own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Own {
    #[default]
    Nothing,
    /// There is a guard that needs no end signal. It only keeps the node from ending by itself.
    Held,
    /// A job.
    Works,
    /// A job that was told to end, and later to end at once.
    Cancelled,
    /// A job that the shutdown has stopped waiting for.
    GivenUp,
    Ended,
}

impl Own {
    /// Whether it is a job that has not reported its end.
    pub(super) fn is_unfinished_job(self) -> bool {
        matches!(self, Own::Works | Own::Cancelled | Own::GivenUp)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ready {
    #[default]
    Yes,
    NotYet,
    /// The guard was dropped before it marked the node as ready.
    Never,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) asked: Option<Instant>,
    pub(super) told: Option<Instant>,
    pub(super) done: Option<Instant>,
}

/// A condition of a node that a thread may wait for.
#[derive(Clone, Copy)]
pub(super) enum Condition {
    Asked,
    Done,
    Failed,
    Ready,
    Zero,
}

/// A node of the shutdown tree, with all nodes below it. Clones are the same node.
///
/// Dropping the last clone shuts down nothing: the jobs of the tree go on. A shutdown that was requested goes on to
/// its end as well.
///
/// The page of the module [`shutdown`](crate::shutdown) explains the tree.
#[derive(Clone, Debug)]
pub struct ShutdownNode {
    pub(super) node: Arc<Node>,
}

impl ShutdownNode {
    /// Returns the name (or annotation) of this node itself.
    pub fn name(&self) -> Option<&str> {
        self.node.spec.name.as_deref()
    }
}

pub(super) struct Node {
    pub(super) spec: NodeSpec,
    pub(super) made: Instant,
    // The signals of a job. They are made when they are first requested.
    end: OnceLock<CancelToken>,
    cancel: OnceLock<CancelToken>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) life: Life,
    pub(super) own: Own,
    pub(super) ready: Ready,
    /// The number of open edges to children, and to the node that closes after them.
    before: usize,
    after: usize,
    pub(super) edges: NumberedList<Edge>,
    links: NumberedList<Link>,
    pub(super) times: Times,
    /// The number of edges that were struck by force, and whose branches still run.
    running: usize,
    /// Whether the node is done, and no job that was given up still runs here or below.
    pub(super) settled: bool,
    /// Whether there is an error here or below. It never becomes false again.
    pub(super) failed: bool,
    pub(super) error: Option<Failure>,
    /// The first error of a child that was removed.
    pub(super) kept: Option<NodeError>,
    pub(super) closes_on_error: bool,
    pub(super) count: usize,
    /// How often the count was raised. For a group: how many counted nodes it has taken in.
    pub(super) raised: u64,
    /// A latch for each condition that a thread waits for.
    latches: Option<Box<[Option<Latch<()>>; 5]>>,
    /// The shutdown, and the node itself, from the request until it is done. So a shutdown goes on even if there is no
    /// handle of the tree.
    closing: Option<(Arc<Closing>, Arc<Node>)>,
}

pub(super) struct Edge {
    pub(super) child: Arc<Node>,
    /// The number of the link in the child, once there is one.
    link: Option<u64>,
    open: bool,
    /// Whether the edge was struck by force, and its branch still runs.
    runs: bool,
    checked: bool,
    /// Whether the edge is removed when the child has settled.
    leaves: bool,
    after: bool,
}

struct Link {
    parent: Weak<Node>,
    edge: u64,
    leaves: bool,
}

/// The consequences of an arrow, to be carried out with no lock held.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) next: VecDeque<Move>,
    pub(super) notices: Vec<Notice>,
    /// Jobs that have been told to end. Their limits begin.
    pub(super) limits: Vec<(Arc<Node>, Arc<Closing>)>,
}

pub(super) enum Move {
    Ask(Arc<Node>, Arc<Closing>),
    Strike {
        parent: Arc<Node>,
        edge: u64,
        forced: bool,
        failed: bool,
    },
    Fail(Arc<Node>),
    /// A node is done. This may be the last reference to it and its shutdown, and is dropped here.
    Release((Arc<Closing>, Arc<Node>)),
}

/// A signal to be given. Giving it runs user code.
pub(super) enum Notice {
    End(Arc<Node>),
    Cancel(Arc<Node>),
    Reached(Latch<()>),
}

impl Notice {
    pub(super) fn give(&self) {
        let given = contain(|| match self {
            Notice::End(node) => {
                node.end().cancel(Reason::Shutdown);
            }
            Notice::Cancel(node) => {
                // With a limit of zero, this thread may come before the thread that tells the job to end.
                node.end().cancel(Reason::Shutdown);
                node.cancel_token().cancel(Reason::TimedOut);
            }
            Notice::Reached(latch) => {
                let _ = latch.set(());
            }
        });
        if let Err(panic) = given {
            tell_log(|| tracing::error!(%panic, "a signal of the shutdown tree panicked"));
        }
    }
}

impl Node {
    /// Makes a node that is linked with its children and the node that closes after them. Consequences go to `moves`.
    pub(super) fn new(
        spec: NodeSpec,
        own: Own,
        ready: Ready,
        children: Vec<Arc<Node>>,
        after: Option<Arc<Node>>,
        moves: &mut Moves,
    ) -> Arc<Node> {
        let now = spec.clock.now();
        let mut inner = Inner { own, ready, ..Inner::default() };
        // The node that closes after the children comes first, because errors and values are searched there first.
        let after = after.map(|child| (child, true));
        let edges: Vec<(u64, Arc<Node>)> = after
            .into_iter()
            .chain(children.into_iter().map(|child| (child, false)))
            .map(|(child, after)| (inner.enter(child.clone(), after, false), child))
            .collect();
        let (end, cancel) = (OnceLock::new(), OnceLock::new());
        let node = Arc::new(Node { spec, made: now, end, cancel, inner: Mutex::new(inner) });
        edges.iter().for_each(|(edge, child)| node.attach(child, *edge, false, moves));
        node.lock().go_on(&node, now, moves);
        node
    }

    /// The end signal.
    pub(super) fn end(&self) -> &CancelToken {
        self.end.get_or_init(|| CancelToken::with_clock(self.spec.clock.clone()))
    }

    /// The cancel signal: end at once.
    pub(super) fn cancel_token(&self) -> &CancelToken {
        self.cancel.get_or_init(|| CancelToken::with_clock(self.spec.clock.clone()))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Links an entered edge to its child, in one critical section of the child. From now on the edge counts as
    /// checked.
    pub(super) fn attach(self: &Arc<Node>, child: &Arc<Node>, edge: u64, leaves: bool, moves: &mut Moves) {
        let (link, done, settled, failed) = {
            let mut inner = child.lock();
            let settled = inner.settled;
            let link =
                (!(leaves && settled)).then(|| inner.links.push(Link { parent: Arc::downgrade(self), edge, leaves }));
            (link, inner.life == Life::Done, settled, inner.failed)
        };
        if failed {
            moves.next.push_back(Move::Fail(self.clone()));
        }
        let mut inner = self.lock();
        if let Some(edge) = inner.edges.get_mut(edge) {
            (edge.link, edge.checked) = (link, true);
        }
        if done {
            moves.next.push_back(Move::Strike { parent: self.clone(), edge, forced: !settled, failed });
        } else if let Some((closing, _)) = &inner.closing {
            moves.next.push_back(Move::Ask(child.clone(), closing.clone()));
        }
    }

    /// Arrow: asks the node to close.
    pub(super) fn ask(self: &Arc<Node>, closing: &Arc<Closing>, moves: &mut Moves) {
        let now = self.spec.clock.now();
        let mut inner = self.lock();
        if inner.life != Life::Open {
            return;
        }
        inner.life = Life::Closing;
        inner.times.asked = Some(now);
        inner.closing = Some((closing.clone(), self.clone()));
        inner.reach(Condition::Asked, moves);
        for edge in inner.edges.iter().filter(|edge| edge.open && edge.checked && !edge.after) {
            moves.next.push_back(Move::Ask(edge.child.clone(), closing.clone()));
        }
        inner.go_on(self, now, moves);
    }

    /// Arrow: a child is done.
    pub(super) fn strike(
        self: &Arc<Node>,
        edge: u64,
        (forced, failed): (bool, bool),
        mut kept: Option<NodeError>,
        moves: &mut Moves,
    ) -> Option<Arc<Node>> {
        let now = self.spec.clock.now();
        let mut inner = self.lock();
        let left = inner.strike(edge, forced)?;
        if inner.kept.is_none() {
            inner.kept = kept.take();
        }
        // A thread that sets an error may not have come up to here yet. It would not find the way from a removed
        // node.
        if failed {
            inner.fail(self, moves);
        }
        inner.go_on(self, now, moves);
        // It may be the last reference, so the caller drops it with no lock held.
        left
    }

    /// Arrow: the guard has reported the end, or was dropped.
    pub(super) fn end_own(self: &Arc<Node>, moves: &mut Moves) {
        let now = self.spec.clock.now();
        let mut inner = self.lock();
        if inner.own != Own::Nothing {
            inner.own = Own::Ended;
            // If the node is not ready now, it never will be.
            inner.set_ready(Ready::Never, moves);
            inner.go_on(self, now, moves);
        }
    }

    /// Tells the job to cancel, because a limit is over.
    pub(super) fn cancel(self: &Arc<Node>, moves: &mut Moves) {
        let mut inner = self.lock();
        if inner.own == Own::Works && inner.life == Life::Told {
            inner.own = Own::Cancelled;
            moves.notices.push(Notice::Cancel(self.clone()));
        }
    }

    /// Arrow: gives the job up, because a limit is over.
    pub(super) fn give_up(self: &Arc<Node>, moves: &mut Moves) -> bool {
        let now = self.spec.clock.now();
        self.cancel(moves);
        let mut inner = self.lock();
        if inner.own != Own::Cancelled {
            return false;
        }
        inner.own = Own::GivenUp;
        inner.go_on(self, now, moves);
        true
    }

    /// Sets the node's own error. If there is one already, returns the new one.
    pub(super) fn set_error(self: &Arc<Node>, error: Failure, moves: &mut Moves) -> Result<(), Failure> {
        let mut inner = self.lock();
        if inner.error.is_some() {
            return Err(error);
        }
        inner.error = Some(error);
        inner.fail(self, moves);
        Ok(())
    }

    /// Returns a latch that is set when the condition holds.
    pub(super) fn latch(&self, condition: Condition) -> Latch<()> {
        let mut inner = self.lock();
        if !inner.has_reached(condition) {
            let latches = inner.latches.get_or_insert_default();
            return latches[condition as usize].get_or_insert_default().clone();
        }
        drop(inner);
        let latch = Latch::new();
        let _ = latch.set(());
        latch
    }
}

impl Inner {
    /// Enters an edge to a child. It is neither linked nor checked yet.
    fn enter(&mut self, child: Arc<Node>, after: bool, leaves: bool) -> u64 {
        *(if after { &mut self.after } else { &mut self.before }) += 1;
        self.edges.push(Edge { child, link: None, open: true, runs: false, checked: false, leaves, after })
    }

    /// Closes an edge. Returns `None` if this changes nothing, and otherwise the child if it is removed.
    fn strike(&mut self, number: u64, forced: bool) -> Option<Option<Arc<Node>>> {
        let edge = self.edges.get_mut(number).filter(|edge| edge.open || edge.runs && !forced)?;
        let open = if edge.after { &mut self.after } else { &mut self.before };
        *open -= usize::from(std::mem::take(&mut edge.open));
        self.running += usize::from(forced);
        self.running -= usize::from(std::mem::replace(&mut edge.runs, forced));
        // A job that was given up has not ended. Its branch stays, and can be inspected.
        let leaves = edge.leaves && !forced;
        Some(leaves.then(|| self.edges.remove(number).map(|edge| edge.child)).flatten())
    }

    /// Records an error here or below. Tells the parents of it, if it is the first.
    pub(super) fn fail(&mut self, node: &Arc<Node>, moves: &mut Moves) {
        if self.failed {
            return;
        }
        self.failed = true;
        self.reach(Condition::Failed, moves);
        let parents = self.links.iter().filter_map(|link| link.parent.upgrade());
        moves.next.extend(parents.map(Move::Fail));
        if self.closes_on_error && self.life == Life::Open {
            moves.next.push_back(Move::Ask(node.clone(), Arc::default()));
        }
    }

    /// Carries out the next phases when nothing is left to wait for.
    fn go_on(&mut self, node: &Arc<Node>, now: Instant, moves: &mut Moves) {
        if self.life == Life::Closing && self.before == 0 {
            self.life = Life::Told;
            self.times.told = Some(now);
            if let Some((closing, _)) = &self.closing {
                if self.own == Own::Works {
                    moves.notices.push(Notice::End(node.clone()));
                    if node.spec.has_limits() {
                        moves.limits.push((node.clone(), closing.clone()));
                    }
                }
                for edge in self.edges.iter().filter(|edge| edge.open && edge.after) {
                    moves.next.push_back(Move::Ask(edge.child.clone(), closing.clone()));
                }
            }
        }
        let own_has_ended = match self.own {
            Own::Nothing | Own::Ended | Own::GivenUp => true,
            Own::Held => self.life == Life::Told,
            Own::Works | Own::Cancelled => false,
        };
        let nothing_is_open = self.before == 0 && self.after == 0 && own_has_ended;
        let ends = matches!(self.life, Life::Open | Life::Told) && nothing_is_open;
        if ends {
            self.life = Life::Done;
            self.times.done = Some(now);
            self.reach(Condition::Done, moves);
            moves.next.extend(self.closing.take().map(Move::Release));
        }
        let forced = self.own == Own::GivenUp || self.running > 0;
        if ends || self.life == Life::Done && !forced && !self.settled {
            self.settled = !forced;
            for link in self.links.iter() {
                if let Some(parent) = link.parent.upgrade() {
                    moves.next.push_back(Move::Strike { parent, edge: link.edge, forced, failed: self.failed });
                }
            }
            self.links.retain(|link| forced || !link.leaves);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn links(&self) -> usize {
        self.links.iter().count()
    }

    fn has_reached(&self, condition: Condition) -> bool {
        match condition {
            Condition::Asked => self.times.asked.is_some(),
            Condition::Done => self.life == Life::Done,
            Condition::Failed => self.failed,
            Condition::Ready => self.ready != Ready::NotYet,
            Condition::Zero => self.count == 0,
        }
    }

    pub(super) fn reach(&mut self, condition: Condition, moves: &mut Moves) {
        if let Some(latch) = self.latches.as_mut().and_then(|latches| latches[condition as usize].take()) {
            moves.notices.push(Notice::Reached(latch));
        }
    }

    /// Decides whether the node is ready. The first decision counts.
    pub(super) fn set_ready(&mut self, ready: Ready, moves: &mut Moves) {
        if self.ready == Ready::NotYet {
            self.ready = ready;
            self.reach(Condition::Ready, moves);
        }
    }

    /// Returns the nodes below, in the order in which they are visited.
    pub(super) fn below(&self) -> Vec<Arc<Node>> {
        self.edges.iter().map(|edge| edge.child.clone()).collect()
    }

    /// Returns how many nodes a group has taken in that are still there.
    pub(super) fn taken_in(&self) -> usize {
        self.edges.iter().filter(|edge| edge.open && edge.checked && edge.leaves).count()
    }
}

/// Drops the nodes one after the other, so that a deep tree needs no deep stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut below = self.take_edges();
        while let Some((child, link)) = below.pop() {
            if let Some(link) = link {
                drop(child.lock().links.remove(link));
            }
            if let Some(node) = Arc::into_inner(child) {
                below.extend(node.take_edges());
            }
        }
        let mut inner = self.lock();
        let (error, kept, latches) = (inner.error.take(), inner.kept.take(), inner.latches.take());
        drop(inner);
        // One by one: if one destructor panics, no other may run while it unwinds.
        drop_contained(self.spec.value.take());
        drop_contained(self.spec.detail.take());
        drop_contained(self.spec.inside.take());
        drop_contained(error);
        drop_contained(kept);
        latches.into_iter().flat_map(|latches| *latches).for_each(drop_contained);
    }
}

impl Node {
    fn take_edges(&self) -> Vec<(Arc<Node>, Option<u64>)> {
        let mut inner = self.lock();
        inner.edges.take().into_iter().map(|edge| (edge.child, edge.link)).collect()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = self.lock().life;
        f.debug_struct("Node")
            .field("kind", &self.spec.kind)
            .field("name", &self.spec.name)
            .field("life", &life)
            .finish_non_exhaustive()
    }
}

/// The arrows of a group: adding and removing nodes.
impl Node {
    /// Enters an unchecked edge to a node that a group takes in. Returns `None` if the group is closed.
    pub(super) fn begin_add(&self, child: &Arc<Node>) -> Option<u64> {
        let mut inner = self.lock();
        if inner.life == Life::Done {
            return None;
        }
        inner.raised += u64::from(child.spec.counts);
        Some(inner.enter(child.clone(), false, child.spec.leaves_groups()))
    }

    /// Arrow: removes the edge again.
    pub(super) fn release(self: &Arc<Node>, edge: u64, moves: &mut Moves) {
        let now = self.spec.clock.now();
        let mut inner = self.lock();
        // The caller holds the child, too.
        if inner.edges.remove(edge).is_some() {
            inner.before -= 1;
            inner.go_on(self, now, moves);
        }
    }

    /// Returns the child that a strike without force removes.
    pub(super) fn leaver(&self, edge: u64) -> Option<Arc<Node>> {
        let mut inner = self.lock();
        inner.edges.get_mut(edge).filter(|edge| edge.leaves).map(|edge| edge.child.clone())
    }
}
