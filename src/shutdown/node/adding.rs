//! The arrows of a group: states that are taken in, and those that leave.

use crate::shutdown::error::StateError;
use crate::shutdown::node::{Edge, Move, Moves, Node};
use crate::shutdown::parts::Life;
use crate::sync::Arc;

impl Node {
    /// An edge to a state that a group takes in; not checked yet. `None`: the group is closed.
    pub(in super::super) fn begin_add(&self, child: &Arc<Node>) -> Option<u64> {
        let mut inner = self.lock();
        if inner.life == Life::Done {
            return None;
        }
        inner.before += 1;
        inner.raised += u64::from(child.face.nature.counts);
        let edge = Edge { child: child.clone(), link: None, open: true, checked: false, leaves: true, after: false };
        Some(inner.edges.push(edge))
    }

    /// Arrow: takes the edge away again.
    pub(in super::super) fn release(self: &Arc<Node>, edge: u64, moves: &mut Moves) {
        let now = self.face.clock.now();
        let mut inner = self.lock();
        // The child itself is with whoever added it.
        if inner.edges.remove(edge).is_some() {
            inner.before -= 1;
            inner.go_on(self, now, moves);
        }
    }

    /// The state belongs to the group from now on.
    pub(in super::super) fn finish_add(self: &Arc<Node>, child: &Arc<Node>, edge: u64, moves: &mut Moves) {
        let linked = child.link(self, edge, true);
        if linked.failed {
            moves.next.push_back(Move::Fail(self.clone()));
        }
        let mut inner = self.lock();
        if let Some(edge) = inner.edges.get_mut(edge) {
            edge.link = linked.number;
            edge.checked = true;
            // A value that never had anything to end is there to be found, and stays as long as the group.
            edge.leaves = !(child.face.nature.inert && child.face.nature.valued);
        }
        if linked.done {
            let strike = Move::Strike { parent: self.clone(), edge, forced: linked.forced, failed: linked.failed };
            moves.next.push_back(strike);
        } else if let Some(closing) = &inner.closing {
            moves.next.push_back(Move::Ask(child.clone(), closing.clone()));
        }
    }

    /// Who leaves with its strike, and has an error that should be kept.
    pub(in super::super) fn leaver(&self, edge: u64) -> Option<Arc<Node>> {
        let mut inner = self.lock();
        inner.edges.get_mut(edge).filter(|edge| edge.open && edge.leaves).map(|edge| edge.child.clone())
    }

    /// The edges at which the node hangs, from above.
    pub(in super::super) fn hangs_at(&self) -> Vec<(Arc<Node>, u64)> {
        let inner = self.lock();
        inner.links.iter().filter_map(|link| Some((link.parent.upgrade()?, link.edge))).collect()
    }

    /// Who is at an edge that was struck by force, and leaves when it has ended after all.
    pub(in super::super) fn overdue(&self, edge: u64) -> Option<Arc<Node>> {
        let mut inner = self.lock();
        inner.edges.get_mut(edge).filter(|edge| !edge.open && edge.leaves).map(|edge| edge.child.clone())
    }

    /// It has ended after all, and leaves; its error is kept. It is dropped where no lock is held.
    pub(in super::super) fn let_go(
        &self,
        edge: u64,
        error: impl FnOnce(&Arc<Node>) -> Option<StateError>,
    ) -> Option<Edge> {
        let (child, link) = self.lock().edges.get_mut(edge).map(|edge| (edge.child.clone(), edge.link))?;
        // First of all: who sets an error from here on does not tell this node, and one that was told of is found now. As long
        // as the edge is there, so is the way to it.
        child.unlink(link);
        let kept = error(&child);
        let mut inner = self.lock();
        if inner.kept.is_none() {
            inner.kept = kept;
        }
        inner.edges.remove(edge)
    }
}
