//! What follows from a change, done by the thread that makes it.
//!
//! First all that changes in the tree, which runs no code of the user's. Then the limits of jobs begin. Then the notices are
//! given, which may run callbacks of the user's. A callback may change the tree in its turn (a job that says done in the
//! callback that tells it to end): that is done at once, inside of the callback. A chain of such jobs needs no deep stack,
//! because latches bound the depth of callbacks. A callback that hangs blocks its thread, and what that thread was to do next.

use std::collections::HashSet;

use super::error::StateError;
use super::node::{Edge, Move, Moves, Node, Signal};
use super::parts::Closing;
use super::walk;
use crate::outcome::{Failure, Reason, drop_contained, tell_log};
use crate::sync::{Arc, Weak};

/// Does what follows, and what follows from that.
pub(super) fn run(mut moves: Moves) {
    while let Some(next) = moves.next.pop_front() {
        step(next, &mut moves);
    }
    moves.limits.iter().for_each(|(node, closing)| limit(node, closing));
    moves.signals.iter().for_each(Signal::give);
}

/// Makes an arrow, and does what follows.
pub(super) fn after<R>(arrow: impl FnOnce(&mut Moves) -> R) -> R {
    let mut moves = Moves::default();
    let result = arrow(&mut moves);
    run(moves);
    result
}

/// Asks a state to close.
pub(super) fn ask(node: &Arc<Node>) {
    after(|moves| node.ask(&Closing::new(), moves));
}

/// The own work of a node has ended.
pub(super) fn end_own(node: &Arc<Node>) {
    if after(|moves| node.end_own(moves)) {
        drop(settle(node));
    }
}

/// What was given up has ended after all: groups that have it, or something above it, let it go. Who has left, and who was
/// looked at: they may be the last of their kind, and what is the user's is dropped with them.
fn settle(node: &Arc<Node>) -> (Vec<Edge>, Vec<Arc<Node>>) {
    // Those that were seen are held, so that nobody else comes to where one of them was, and is taken for it.
    let (mut seen, mut held, mut ahead) = (HashSet::new(), Vec::new(), vec![node.clone()]);
    let mut left = Vec::new();
    while let Some(node) = ahead.pop() {
        if seen.insert(Arc::as_ptr(&node)) {
            for (parent, edge) in node.hangs_at() {
                left.extend(let_go(&parent, edge));
                // A parent that has not ended itself keeps all above it, and comes here when it ends.
                if !parent.lock().hangs() {
                    ahead.push(parent);
                }
            }
        }
        held.push(node);
    }
    (left, held)
}

/// Lets somebody go who was not waited for, if all of it has ended.
fn let_go(parent: &Arc<Node>, edge: u64) -> Option<Edge> {
    let _has_ended = parent.overdue(edge).filter(|child| !walk::is_open(child))?;
    parent.let_go(edge, walk::error)
}

/// Sets the node's own error, if it has none. Whether it had none.
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
                // It may have ended after all before it was struck.
                drop(let_go(&parent, edge));
            }
        }
        Move::Unlimit(node, closing, limits) => closing.forget(&node.face.clock, &limits),
    }
}

fn error_of_leaver(parent: &Arc<Node>, edge: u64) -> Option<StateError> {
    walk::error(&parent.leaver(edge)?)
}

/// The limits of a job that has been told to end.
fn limit(node: &Arc<Node>, closing: &Arc<Closing>) {
    let Some(job) = &node.face.job else { return };
    for (delay, over) in [(job.cancel_after, cancel as fn(Arc<Node>)), (job.give_up_after, give_up)] {
        let Some(delay) = delay else { continue };
        let weak: Weak<Node> = Arc::downgrade(node);
        let action = move || {
            if let Some(node) = weak.upgrade() {
                over(node);
            }
        };
        match closing.timers(&node.face.clock).after(delay, Box::new(action)) {
            Ok(Some(key)) if !node.note_limit(key) => closing.forget(&node.face.clock, &[key]),
            Ok(_) => {}
            Err(_) => tell_log(
                || tracing::error!(name = ?node.face.name, "no thread for the limits of a job: it is waited for without one"),
            ),
        }
    }
}

fn cancel(node: Arc<Node>) {
    after(|moves| node.cancel(moves));
}

fn give_up(node: Arc<Node>) {
    if after(|moves| node.give_up(moves)) {
        tell_log(|| tracing::warn!(name = ?node.face.name, "a job does not end, and is not waited for any longer"));
    }
}

impl Signal {
    /// Runs code of the user's.
    fn give(&self) {
        match self {
            Signal::End(node) => {
                if let Some(job) = &node.face.job {
                    job.end.cancel(Reason::Shutdown);
                }
            }
            Signal::Cancel(node) => {
                if let Some(job) = &node.face.job {
                    // By a limit of nothing it may come before whoever tells it to end has come so far.
                    job.end.cancel(Reason::Shutdown);
                    job.cancel(&node.face.clock).cancel(Reason::TimedOut);
                }
            }
            Signal::Ring(latch) => {
                let _ = latch.set(());
            }
        }
    }
}
