//! Visits a whole tree: top to bottom, then left to right, each node once, with a list instead of recursion.

use std::collections::HashSet;

use super::error::{Names, NodeError};
use super::key::{Key, Pair};
use super::node::{Node, Own};
use crate::primitives::Arc;

/// A node of the walk, with its way.
pub(super) struct Place<'a> {
    pub(super) node: &'a Arc<Node>,
    /// Its number in this walk, and the number of the node above.
    pub(super) number: usize,
    pub(super) above: Option<usize>,
    trail: &'a Trail,
}

/// The next move of a walk.
pub(super) enum Go<R> {
    /// Visit these.
    On(Vec<Arc<Node>>),
    /// Go no further down.
    Past,
    Stop(R),
}

/// All visited nodes, each with the node above it. They are held, so that no other node gets the same address.
#[derive(Default)]
struct Trail(Vec<(Option<usize>, Arc<Node>)>);

impl Place<'_> {
    /// Returns the names from the top to this node, outermost first.
    pub(super) fn names(&self) -> Names {
        let mut names = Vec::new();
        let mut next = Some(self.number);
        while let Some((above, node)) = next.and_then(|number| self.trail.0.get(number)) {
            names.extend(node.spec.name.clone());
            next = *above;
        }
        names.reverse();
        names
    }
}

/// Calls `look` for each node until it says stop. No lock is held during the call.
pub(super) fn walk<R>(root: &Arc<Node>, mut look: impl FnMut(&Place<'_>) -> Go<R>) -> Option<R> {
    let mut seen = HashSet::new();
    let mut trail = Trail::default();
    let mut ahead = vec![(root.clone(), None)];
    while let Some((node, above)) = ahead.pop() {
        if !seen.insert(Arc::as_ptr(&node)) {
            continue;
        }
        let number = trail.0.len();
        trail.0.push((above, node.clone()));
        match look(&Place { node: &node, number, above, trail: &trail }) {
            Go::On(below) => ahead.extend(below.into_iter().rev().map(|child| (child, Some(number)))),
            Go::Past => {}
            Go::Stop(found) => return Some(found),
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
                return Go::Past;
            }
            (inner.error.clone(), inner.kept.clone(), inner.below())
        };
        if let Some(failure) = own {
            return Go::Stop(NodeError::new(place.names(), failure));
        }
        match kept {
            // Removed children were to the left of those that are there.
            Some(error) => Go::Stop(error.below(place.names())),
            None => Go::On(below),
        }
    })
}

/// Returns the first value under a key.
pub(super) fn value<K: Key>(root: &Arc<Node>, key: &K) -> Option<Arc<K::Value>> {
    walk(root, |place| match place.node.spec.value.as_ref().and_then(|stored| stored.downcast_ref::<Pair<K>>()) {
        // The key's `eq` is user code.
        Some(pair) if pair.key == *key => Go::Stop(pair.value.clone()),
        _ => Go::On(place.node.lock().below()),
    })
}

/// Whether a group is this node, or is below it.
pub(super) fn is_below(group: &Arc<Node>, top: &Arc<Node>) -> bool {
    let found = walk(top, |place| {
        if Arc::ptr_eq(place.node, group) {
            return Go::Stop(());
        }
        Go::On(place.node.lock().below())
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
            return Go::Stop(place.names());
        }
        Go::On(below)
    })
}
