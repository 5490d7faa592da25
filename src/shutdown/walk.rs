//! Visits a whole tree: top to bottom, then left to right, each node once, with a list instead of recursion.

use std::collections::HashSet;
use std::ops::ControlFlow::{self, Break, Continue};

use super::error::{Names, NodeError};
use super::node::{Node, Own};
use crate::primitives::Arc;

/// A node of the walk, with its way.
pub(super) struct Place<'a> {
    pub(super) node: &'a Arc<Node>,
    /// The number in this walk of the node above.
    pub(super) above: Option<usize>,
    /// All visited nodes, each with the node above it. This one is the last.
    trail: &'a [(Option<usize>, Arc<Node>)],
}

impl Place<'_> {
    /// Returns the names from the top to this node, outermost first.
    pub(super) fn names(&self) -> Names {
        let mut names = Vec::new();
        let mut next = self.trail.last();
        while let Some((above, node)) = next {
            names.extend(node.spec.name.clone());
            next = above.and_then(|above| self.trail.get(above));
        }
        names.reverse();
        names
    }
}

/// Calls `look` for each node. It breaks off the walk, or returns the nodes below to visit. No lock is held during the
/// call.
pub(super) fn walk<R>(
    root: &Arc<Node>,
    mut look: impl FnMut(&Place<'_>) -> ControlFlow<R, Vec<Arc<Node>>>,
) -> Option<R> {
    let mut seen = HashSet::new();
    // The visited nodes are held, so that no other node gets the same address.
    let mut trail = Vec::new();
    let mut ahead = vec![(root.clone(), None)];
    while let Some((node, above)) = ahead.pop() {
        if !seen.insert(Arc::as_ptr(&node)) {
            continue;
        }
        let number = trail.len();
        trail.push((above, node.clone()));
        match look(&Place { node: &node, above, trail: &trail }) {
            Continue(below) => ahead.extend(below.into_iter().rev().map(|child| (child, Some(number)))),
            Break(found) => return Some(found),
        }
    }
    None
}

/// Returns the first error. A node's own error comes before those below it, and those are in order from left to
/// right.
pub(super) fn error(root: &Arc<Node>) -> Option<NodeError> {
    walk(root, |place| {
        let (own, kept, below) = {
            let inner = place.node.lock();
            if !inner.failed {
                return Continue(Vec::new());
            }
            (inner.error.clone(), inner.kept.clone(), inner.below())
        };
        if let Some(failure) = own {
            return Break(NodeError::new(place.names(), failure));
        }
        match kept {
            // Removed children were to the left of those that are there.
            Some(error) => Break(error.below(place.names())),
            None => Continue(below),
        }
    })
}

/// Whether a group is this node, or is below it.
pub(super) fn is_below(group: &Arc<Node>, top: &Arc<Node>) -> bool {
    let found = walk(top, |place| {
        if Arc::ptr_eq(place.node, group) {
            return Break(());
        }
        Continue(place.node.lock().below())
    });
    found.is_some()
}

/// Returns the names on the way to a node that is not done and waits for the calling thread.
pub(super) fn inside(root: &Arc<Node>) -> Option<Names> {
    walk(root, |place| {
        let (waits, below) = {
            let inner = place.node.lock();
            (matches!(inner.own, Own::Works | Own::Cancelled), inner.below())
        };
        if waits && place.node.spec.is_inside() {
            return Break(place.names());
        }
        Continue(below)
    })
}
