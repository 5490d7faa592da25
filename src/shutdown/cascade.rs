//! The consequences of a change. The thread that makes the change carries them out.
//!
//! First come all changes in the tree, which run no user code. Then the limits of jobs begin. Then the notices are
//! given, which may run callbacks of the user. A callback may change the tree in turn: a job may report its end in
//! the callback that tells it to end. Such a change is carried out at once, inside the callback. A chain of such jobs
//! needs no deep stack, because latches bound the depth of callbacks. A callback that hangs blocks its thread, and
//! the remaining work of that thread.

use std::collections::HashSet;

use super::closing::Closing;
use super::error::NodeError;
use super::node::{Edge, Life, Move, Moves, Node, Notice};
use super::walk;
use crate::outcome::{Failure, drop_contained, tell_log};
use crate::primitives::{Arc, Weak};

/// Carries out the consequences of an arrow, and their consequences.
pub(super) fn run(mut moves: Moves) {
    while let Some(next) = moves.next.pop_front() {
        step(next, &mut moves);
    }
    moves.limits.iter().for_each(|(node, closing)| limit(node, closing));
    moves.notices.iter().for_each(Notice::give);
}

/// Makes an arrow, and carries out its consequences.
pub(super) fn after<R>(arrow: impl FnOnce(&mut Moves) -> R) -> R {
    let mut moves = Moves::default();
    let result = arrow(&mut moves);
    run(moves);
    result
}

/// Asks a node to close.
pub(super) fn ask(node: &Arc<Node>) {
    after(|moves| node.ask(&Arc::default(), moves));
}

/// Ends the own work of a node.
pub(super) fn end_own(node: &Arc<Node>) {
    if after(|moves| node.end_own(moves)) {
        drop(settle(node));
    }
}

/// Handles a job that was given up and has now ended: groups that contain it, or a node above it, remove it.
///
/// Returns the removed edges and the visited nodes. They may be the last references, so dropping them may drop user
/// values.
fn settle(node: &Arc<Node>) -> (Vec<Edge>, Vec<Arc<Node>>) {
    // Visited nodes are held, so that no other node gets the same address.
    let (mut seen, mut held, mut ahead) = (HashSet::new(), Vec::new(), vec![node.clone()]);
    let mut left = Vec::new();
    while let Some(node) = ahead.pop() {
        if seen.insert(Arc::as_ptr(&node)) {
            for (parent, edge) in node.hangs_at() {
                left.extend(let_go(&parent, edge));
                // A parent that has not ended itself keeps all above it. When it ends, it comes here.
                if !parent.lock().hangs() {
                    ahead.push(parent);
                }
            }
        }
        held.push(node);
    }
    (left, held)
}

/// Removes a child that was given up, if all of it has ended.
fn let_go(parent: &Arc<Node>, edge: u64) -> Option<Edge> {
    let _has_ended = parent.overdue(edge).filter(|child| !walk::is_open(child))?;
    parent.let_go(edge, walk::error)
}

/// Sets the node's own error, if it has none. Returns whether it had none.
pub(super) fn set_error(node: &Arc<Node>, error: Failure) -> bool {
    after(|moves| node.set_error(error, moves)).map_err(drop_contained).is_ok()
}

fn step(next: Move, moves: &mut Moves) {
    match next {
        Move::Ask(node, closing) => node.ask(&closing, moves),
        Move::Fail(node) => node.fail(moves),
        Move::Strike { parent, edge, forced, failed } => {
            let kept = failed.then(|| error_of_leaver(&parent, edge)).flatten();
            drop(parent.strike(edge, (forced, failed), kept, moves));
            if forced {
                // It may have ended before it was struck.
                drop(let_go(&parent, edge));
            }
        }
        Move::Release(node, closing) => drop((node, closing)),
    }
}

fn error_of_leaver(parent: &Arc<Node>, edge: u64) -> Option<NodeError> {
    walk::error(&parent.leaver(edge)?)
}

/// Begins the limits of a job that has been told to end. If the job ends in time, they fire without effect.
fn limit(node: &Arc<Node>, closing: &Arc<Closing>) {
    let spec = &node.spec;
    for (delay, over) in [(spec.cancel_after, cancel as fn(Arc<Node>)), (spec.give_up_after, give_up)] {
        let Some(delay) = delay.filter(|_| node.lock().life != Life::Done) else { continue };
        let weak: Weak<Node> = Arc::downgrade(node);
        let action = move || {
            if let Some(node) = weak.upgrade() {
                over(node);
            }
        };
        if closing.timers(&spec.clock).after(delay, Box::new(action)).is_err() {
            tell_log(
                || tracing::error!(name = ?spec.name, "no thread for the limits of a job: it is waited for without one"),
            );
        }
    }
}

fn cancel(node: Arc<Node>) {
    after(|moves| node.cancel(moves));
}

fn give_up(node: Arc<Node>) {
    if after(|moves| node.give_up(moves)) {
        tell_log(|| tracing::warn!(name = ?node.spec.name, "a job does not end, and is not waited for any longer"));
    }
}
