//! One node of the shutdown tree: where it is in its life, and why it is told once and done once.
//!
//! # The protocol
//!
//! A node has *children*, which close before it, perhaps *own work* (a job with a tail), and perhaps a state that closes
//! *after* the children (the parent of a dependency). Each of these is an *edge* to another node; the other node has a link
//! back. All that changes is under the node's own lock, and no thread ever holds two of them.
//!
//! | phase | means |
//! |---|---|
//! | `Open` | nobody has asked it to close |
//! | `Closing` | asked; its open children have been asked, and it waits for them |
//! | `Told` | all children are done; its job has the end signal, and what closes after the children has been asked |
//! | `Done` | everything that it had to wait for has ended |
//!
//! | arrow | made by | from | does |
//! |---|---|---|---|
//! | `ask` | a shutdown, a parent that is asked, a group that is being closed while it takes the node in | `Open` | to `Closing`; asks the open children; then *goes on* |
//! | `strike` | a child that is done, once for each link | any | the edge is not open any more; then *goes on* |
//! | `end_own` | the tail: done, or dropped | any | the own work has ended; then *goes on* |
//! | `give_up` | a limit | `Told` | the own work counts as ended, by force; then *goes on* |
//! | `release` | a group that refuses a state after all | any | the edge is taken away; then *goes on* |
//!
//! *Goes on*, in the same critical section: `Closing` with no child open becomes `Told`. Then, `Told` or `Open` (not
//! `Closing`, where children are open) with nothing open at all becomes `Done`, and its links are struck. From `Open` that is
//! a node that has ended by itself; what has a tail that was not dropped does not end by itself.
//!
//! **Told once.** Only `goes on` makes `Told`, from `Closing`, and nothing leads back to `Closing`. **Done once**: likewise,
//! and nothing leads out of `Done`.
//!
//! **Nothing is lost.** The race is: the last child is done while its parent is asked. The child strikes the edge, which
//! is a critical section of the parent, and so is `ask`. If `ask` comes first, the strike finds `Closing` with nothing open,
//! and goes on. If the strike comes first, `ask` finds nothing open, and goes on. And a link is never missed: it is entered
//! under the child's lock, in the same critical section in which the parent-to-be learns whether the child is done. Either
//! the child is done, and the parent strikes the edge itself; or it is not, and will find the link when it is.
//!
//! **A new child and the closing of its group.** The edge is entered first and *unchecked*: the group waits for it, but does
//! not ask it. Then it is looked whether the group is below the child. Only then the edge is checked, and if the group was
//! asked meanwhile, whoever adds the child asks it, too. Two who would make a circle together both see it, for each looks
//! after it has entered its edge.
//!
//! **Who leaves.** The child of a group leaves with its strike, and its error is kept in that critical section. If the strike was by
//! force, it stays, for something there still runs. It leaves when that has ended: whoever ends it looks for the groups
//! above after that, and whoever strikes by force looks at the child after that, so one of the two finds it.
//!
//! **Who holds whom.** A node holds what is below it, and is held by whoever has its state or its tail. From `ask` until `Done` it
//! holds itself: its children will strike it, and what it is to tell then must not depend on who still looks.
//!
//! An arrow runs no code of the user's. What is to be done next with other nodes, and who is to be told, goes onto a list
//! (`Moves`), which the thread works off when it has let the lock go: no thread for each node, and no recursion.

mod adding;

use std::collections::VecDeque;
use std::time::Instant;

use super::error::StateError;
use super::face::{Face, Kind};
use super::parts::{Bell, Bells, Closing, Life, Own, Ready, Times};
use crate::latch::Latch;
use crate::numbered_list::NumberedList;
use crate::outcome::{Failure, drop_contained};
use crate::sync::{Arc, Mutex, Weak, lock};
use crate::timer::TimerKey;

pub(super) struct Node {
    pub(super) face: Face,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) life: Life,
    pub(super) own: Own,
    pub(super) ready: Ready,
    /// Open edges to children, and to what closes after them.
    before: usize,
    after: usize,
    pub(super) edges: NumberedList<Edge>,
    links: NumberedList<Link>,
    pub(super) times: Times,
    /// Something here or below was given up.
    pub(super) forced: bool,
    /// There is an error here or below. Once true it stays.
    pub(super) failed: bool,
    pub(super) error: Option<Failure>,
    /// The first error of a child that has left.
    pub(super) kept: Option<StateError>,
    pub(super) closes_on_error: bool,
    pub(super) count: usize,
    /// How often the count was raised; of a group, how often it took in what is counted.
    pub(super) raised: u64,
    bells: Option<Box<Bells>>,
    closing: Option<Arc<Closing>>,
    /// The node itself, from when it is asked until it is done: a shutdown goes on also if nobody holds the tree.
    held: Option<Arc<Node>>,
    limits: Vec<TimerKey>,
}

pub(super) struct Edge {
    pub(super) child: Arc<Node>,
    /// The number of the link in the child, once there is one.
    link: Option<u64>,
    open: bool,
    checked: bool,
    /// It goes when the child is done.
    leaves: bool,
    after: bool,
}

struct Link {
    parent: Weak<Node>,
    edge: u64,
    leaves: bool,
}

/// What follows from an arrow, to be done with no lock held.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) next: VecDeque<Move>,
    pub(super) signals: VecDeque<Signal>,
    /// Jobs that have been told to end: their limits begin.
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
    /// A job has ended: its limits are over. All of it may be the last of its kind, and is dropped here.
    Unlimit(Arc<Node>, Arc<Closing>, Vec<TimerKey>),
}

/// Somebody is told. This runs code of the user's.
pub(super) enum Signal {
    End(Arc<Node>),
    Cancel(Arc<Node>),
    Ring(Latch<()>),
}

impl Node {
    /// A node with its children, and what closes after them, linked. What follows for others goes to `moves`.
    pub(super) fn new(
        face: Face,
        own: Own,
        ready: Ready,
        children: Vec<Arc<Node>>,
        after: Option<Arc<Node>>,
        moves: &mut Moves,
    ) -> Arc<Node> {
        let now = face.clock.now();
        let mut inner = Inner {
            life: Life::Open,
            own,
            ready,
            before: children.len(),
            after: usize::from(after.is_some()),
            edges: NumberedList::new(),
            links: NumberedList::new(),
            times: Times { made: now, asked: None, told: None, done: None },
            forced: false,
            failed: false,
            error: None,
            kept: None,
            closes_on_error: false,
            count: 0,
            raised: 0,
            bells: None,
            closing: None,
            held: None,
            limits: Vec::new(),
        };
        // In front: errors and values are looked for there first.
        let after = after.map(|child| (child, true));
        for (child, after) in after.into_iter().chain(children.into_iter().map(|child| (child, false))) {
            inner.edges.push(Edge { child, link: None, open: true, checked: true, leaves: false, after });
        }
        let edges: Vec<Arc<Node>> = inner.edges.iter().map(|edge| edge.child.clone()).collect();
        let node = Arc::new(Node { face, inner: Mutex::new(inner) });
        let linked: Vec<Linked> = edges.iter().zip(0..).map(|(child, edge)| child.link(&node, edge, false)).collect();
        let mut inner = node.lock();
        for (linked, number) in linked.into_iter().zip(0..) {
            inner.take_link(number, &linked);
            if linked.failed {
                moves.next.push_back(Move::Fail(node.clone()));
            }
        }
        inner.go_on(&node, now, moves);
        drop(inner);
        node
    }

    pub(super) fn lock(&self) -> crate::sync::MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Enters the link back to a parent.
    fn link(&self, parent: &Arc<Node>, edge: u64, leaves: bool) -> Linked {
        let mut inner = self.lock();
        let done = inner.life == Life::Done;
        let number =
            (!(leaves && done)).then(|| inner.links.push(Link { parent: Arc::downgrade(parent), edge, leaves }));
        Linked { number, done, forced: inner.forced, failed: inner.failed }
    }

    fn unlink(&self, number: Option<u64>) {
        if let Some(number) = number {
            drop(self.lock().links.remove(number));
        }
    }

    /// Arrow: please close.
    pub(super) fn ask(self: &Arc<Node>, closing: &Arc<Closing>, moves: &mut Moves) {
        let now = self.face.clock.now();
        let mut inner = self.lock();
        if inner.life != Life::Open {
            return;
        }
        inner.life = Life::Closing;
        inner.times.asked = Some(now);
        (inner.closing, inner.held) = (Some(closing.clone()), Some(self.clone()));
        inner.ring(Bell::Asked, moves);
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
        mut kept: Option<StateError>,
        moves: &mut Moves,
    ) -> Option<Arc<Node>> {
        let now = self.face.clock.now();
        let mut inner = self.lock();
        let left = inner.strike(edge, forced)?;
        if inner.kept.is_none() {
            inner.kept = kept.take();
        }
        // Whoever sets an error may not have come up to here yet, and would not find the way where somebody has left.
        if failed {
            inner.fail(self, moves);
        }
        inner.go_on(self, now, moves);
        // It may be the last of its kind, and is dropped where no lock is held.
        left
    }

    /// Arrow: the tail has said done, or was dropped. Whether it had been given up.
    pub(super) fn end_own(self: &Arc<Node>, moves: &mut Moves) -> bool {
        let now = self.face.clock.now();
        let mut inner = self.lock();
        let was_given_up = inner.own == Own::GivenUp;
        if inner.own != Own::Nothing {
            inner.own = Own::Ended;
            inner.go_on(self, now, moves);
        }
        was_given_up
    }

    /// A limit is over: the job should cancel.
    pub(super) fn cancel(self: &Arc<Node>, moves: &mut Moves) {
        let mut inner = self.lock();
        if inner.own == Own::Works && inner.life == Life::Told {
            inner.own = Own::Cancelled;
            moves.signals.push_back(Signal::Cancel(self.clone()));
        }
    }

    /// Arrow: a limit is over, and the job is not waited for any longer.
    pub(super) fn give_up(self: &Arc<Node>, moves: &mut Moves) -> bool {
        let now = self.face.clock.now();
        self.cancel(moves);
        let mut inner = self.lock();
        if inner.own != Own::Cancelled {
            return false;
        }
        inner.own = Own::GivenUp;
        inner.forced = true;
        inner.go_on(self, now, moves);
        true
    }

    /// Notes the key of a limit; whether the node has not ended meanwhile.
    pub(super) fn note_limit(&self, limit: TimerKey) -> bool {
        let mut inner = self.lock();
        let runs = inner.life != Life::Done;
        if runs {
            inner.limits.push(limit);
        }
        runs
    }

    /// There is an error here or below.
    pub(super) fn fail(self: &Arc<Node>, moves: &mut Moves) {
        self.lock().fail(self, moves);
    }

    /// Sets the node's own error, if it has none; otherwise it comes back.
    pub(super) fn set_error(self: &Arc<Node>, error: Failure, moves: &mut Moves) -> Result<(), Failure> {
        let mut inner = self.lock();
        if inner.error.is_some() {
            return Err(error);
        }
        inner.error = Some(error);
        inner.fail(self, moves);
        Ok(())
    }

    /// A latch that is set when it happens, or is set already.
    pub(super) fn bell(&self, bell: Bell) -> Latch<()> {
        let mut inner = self.lock();
        if !inner.has_rung(bell) {
            let bells = inner.bells.get_or_insert_default();
            return bells[bell as usize].get_or_insert_default().clone();
        }
        drop(inner);
        let latch = Latch::new();
        let _ = latch.set(());
        latch
    }
}

struct Linked {
    number: Option<u64>,
    done: bool,
    forced: bool,
    failed: bool,
}

impl Inner {
    fn take_link(&mut self, edge: u64, linked: &Linked) {
        if let Some(edge) = self.edges.get_mut(edge) {
            edge.link = linked.number;
        }
        if linked.done {
            // None of them leaves.
            let _ = self.strike(edge, linked.forced);
        }
    }

    /// The edge is not open any more. `None` if it was not; else the child, if it leaves.
    fn strike(&mut self, number: u64, forced: bool) -> Option<Option<Arc<Node>>> {
        let edge = self.edges.get_mut(number).filter(|edge| edge.open)?;
        edge.open = false;
        // Who was given up has not ended: its branch stays, and can be looked at.
        let (leaves, after) = (edge.leaves && !forced, edge.after);
        let open = if after { &mut self.after } else { &mut self.before };
        *open -= 1;
        self.forced |= forced;
        Some(leaves.then(|| self.edges.remove(number).map(|edge| edge.child)).flatten())
    }

    /// The parents are told, if it is new.
    fn fail(&mut self, node: &Arc<Node>, moves: &mut Moves) {
        if self.failed {
            return;
        }
        self.failed = true;
        self.ring(Bell::Failed, moves);
        let parents = self.links.iter().filter_map(|link| link.parent.upgrade());
        moves.next.extend(parents.map(Move::Fail));
        if self.closes_on_error && self.life == Life::Open {
            moves.next.push_back(Move::Ask(node.clone(), Closing::new()));
        }
    }

    /// What follows when nothing is left to wait for.
    fn go_on(&mut self, node: &Arc<Node>, now: Instant, moves: &mut Moves) {
        if self.life == Life::Closing && self.before == 0 {
            self.life = Life::Told;
            self.times.told = Some(now);
            if let Some(closing) = &self.closing {
                if self.own == Own::Works {
                    moves.signals.push_back(Signal::End(node.clone()));
                    if node.face.has_limits() {
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
        if matches!(self.life, Life::Open | Life::Told) && nothing_is_open {
            self.life = Life::Done;
            self.times.done = Some(now);
            self.ring(Bell::Done, moves);
            if let Some((closing, held)) = self.closing.take().zip(self.held.take()) {
                moves.next.push_back(Move::Unlimit(held, closing, std::mem::take(&mut self.limits)));
            }
            for link in self.links.iter() {
                if let Some(parent) = link.parent.upgrade() {
                    let strike = Move::Strike { parent, edge: link.edge, forced: self.forced, failed: self.failed };
                    moves.next.push_back(strike);
                }
            }
            let forced = self.forced;
            self.links.retain(|link| forced || !link.leaves);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn links(&self) -> usize {
        self.links.iter().count()
    }

    fn has_rung(&self, bell: Bell) -> bool {
        match bell {
            Bell::Asked => self.times.asked.is_some(),
            Bell::Done => self.life == Life::Done,
            Bell::Failed => self.failed,
            Bell::Ready => self.ready != Ready::NotYet,
            Bell::Zero => self.count == 0,
        }
    }

    pub(super) fn ring(&mut self, bell: Bell, moves: &mut Moves) {
        if let Some(latch) = self.bells.as_mut().and_then(|bells| bells[bell as usize].take()) {
            moves.signals.push_back(Signal::Ring(latch));
        }
    }

    /// Whether its job was told to end and has not ended, or was given up.
    pub(super) fn hangs(&self) -> bool {
        match self.own {
            Own::Works | Own::Cancelled => self.life == Life::Told,
            Own::GivenUp => true,
            Own::Nothing | Own::Held | Own::Ended => false,
        }
    }

    /// What is below, in the order in which it is looked at.
    pub(super) fn below(&self) -> Vec<Arc<Node>> {
        self.edges.iter().map(|edge| edge.child.clone()).collect()
    }

    /// How many states a group has taken in that are still there.
    pub(super) fn taken_in(&self) -> usize {
        self.edges.iter().filter(|edge| edge.open && edge.leaves).count()
    }
}

/// One after the other, however deep the tree is that nobody else holds.
impl Drop for Node {
    fn drop(&mut self) {
        let mut below = self.take_edges();
        while let Some((child, link)) = below.pop() {
            child.unlink(link);
            if let Some(node) = Arc::into_inner(child) {
                below.extend(node.take_edges());
            }
        }
        let mut inner = self.lock();
        let (error, kept, bells) = (inner.error.take(), inner.kept.take(), inner.bells.take());
        drop(inner);
        // One by one: a destructor that panics must not meet another one that does.
        drop_contained(error);
        drop_contained(kept);
        bells.into_iter().flat_map(|bells| *bells).for_each(drop_contained);
    }
}

impl Node {
    fn take_edges(&self) -> Vec<(Arc<Node>, Option<u64>)> {
        let mut inner = self.lock();
        inner.edges.take().into_iter().map(|edge| (edge.child, edge.link)).collect()
    }

    pub(super) fn kind(&self) -> Kind {
        self.face.kind
    }
}
