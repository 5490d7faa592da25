//! The consequences of a change. The thread that makes the change carries them out.
//!
//! First come all changes in the tree, which run no user code. Then the limits of jobs begin. Then the notices are
//! given, which may run callbacks of the user. A callback may change the tree in turn: a job may report its end in
//! the callback that tells it to end. Such a change is carried out at once, inside the callback. A chain of such jobs
//! needs no deep stack, because latches bound the depth of callbacks. A callback that hangs blocks its thread, and
//! the remaining work of that thread.

use super::closing::Closing;
use super::node::{Life, Move, Moves, Node, Notice};
use super::walk;
use crate::outcome::{Failure, drop_contained, tell_log};
use crate::primitives::{Arc, Weak};

/// Carries out an arrow's consequences and their consequences. Then gives the notices.
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

/// Sets the node's own error, if it has none. Returns whether it had none.
pub(super) fn set_error(node: &Arc<Node>, error: Failure) -> bool {
    after(|moves| node.set_error(error, moves)).map_err(drop_contained).is_ok()
}

fn step(next: Move, moves: &mut Moves) {
    match next {
        Move::Ask(node, closing) => node.ask(&closing, moves),
        Move::Fail(node) => {
            node.lock().fail(&node, moves);
        }
        Move::Strike { parent, edge, forced, failed } => {
            let leaver = (failed && !forced).then(|| parent.leaver(edge)).flatten();
            let kept = leaver.and_then(|child| walk::error(&child));
            drop(parent.strike(edge, (forced, failed), kept, moves));
        }
        Move::Release(last) => drop(last),
    }
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
            let name = &spec.name;
            tell_log(|| tracing::error!(?name, "no thread for the limits of a job: it is waited for without one"));
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
