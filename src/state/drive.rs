//! What follows from a change, done by whichever thread makes it.
//!
//! First all that changes in the tree, which runs no code of the user's; then the signals, which may. A callback of a
//! signal may change the tree in its turn (a job that says done in the callback that tells it to end): that is done at once,
//! but the signals that follow from it wait until the callback has returned, and so a chain of such jobs needs no deep
//! stack. They wait in a list of the thread's own. Who is about to block in a callback gives them first.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::error::StateError;
use super::node::{Move, Moves, Node, Signal};
use super::parts::Closing;
use super::walk;
use crate::outcome::{Failure, Reason, contain, drop_contained, tell_log};
use crate::sync::{Arc, Mutex, Weak, lock, thread_local};
use crate::threads;

/// Does what follows, and what follows from that.
pub(super) fn run(mut moves: Moves) {
    follow(&mut moves);
    give(moves.signals, false);
}

/// All that changes in the tree. What is left are the signals.
fn follow(moves: &mut Moves) {
    while let Some(next) = moves.next.pop_front() {
        step(next, moves);
    }
}

/// Makes an arrow, and does what follows.
pub(super) fn after<R>(arrow: impl FnOnce(&mut Moves) -> R) -> R {
    let mut moves = Moves::default();
    let result = arrow(&mut moves);
    run(moves);
    result
}

/// Makes an arrow, for whoever may not wait for code of the user's: what follows in the tree has happened when this returns,
/// and the signals are given by other threads, each by itself, so that a callback that blocks holds up nobody.
pub(super) fn elsewhere<R>(arrow: impl FnOnce(&mut Moves) -> R) -> R {
    let mut moves = Moves::default();
    let result = arrow(&mut moves);
    follow(&mut moves);
    if !moves.signals.is_empty() {
        let signals = Mutex::new(moves.signals);
        threads::work_off(move || {
            let next = lock(&signals).pop_front();
            next.map(|signal| give(VecDeque::from([signal]), false)).is_some()
        });
    }
    result
}

/// Gives the signals that wait for a callback to return. Before this thread blocks.
pub(super) fn flush() {
    give(VecDeque::new(), true);
}

/// Asks a state to close.
pub(super) fn ask(node: &Arc<Node>) {
    after(|moves| node.ask(&Closing::new(&node.face.clock), moves));
}

/// Sets the node's own error, if it has none. Whether it had none.
pub(super) fn set_error(node: &Arc<Node>, error: Failure) -> bool {
    after(|moves| fail(node, error, moves))
}

/// The same as an arrow.
pub(super) fn fail(node: &Arc<Node>, error: Failure, moves: &mut Moves) -> bool {
    let mut inner = node.lock();
    if inner.error.is_some() {
        drop(inner);
        drop_contained(error);
        return false;
    }
    inner.error = Some(error);
    drop(inner);
    node.fail(moves);
    true
}

fn step(next: Move, moves: &mut Moves) {
    match next {
        Move::Ask(node, closing) => node.ask(&closing, moves),
        Move::Fail(node) => node.fail(moves),
        Move::Strike { parent, edge, forced, failed } => {
            let kept = failed.then(|| error_of_leaver(&parent, edge)).flatten();
            drop(parent.strike(edge, forced, kept, moves));
        }
        Move::Limit(node, closing) => limit(&node, &closing),
        Move::Unlimit(closing, limits) => closing.forget(&limits),
    }
}

fn error_of_leaver(parent: &Arc<Node>, edge: u64) -> Option<StateError> {
    walk::error(&parent.leaver(edge)?)
}

/// The limits of a job that has been told to end.
fn limit(node: &Arc<Node>, closing: &Arc<Closing>) {
    let Some(job) = &node.face.job else { return };
    for (delay, over) in [(job.cancel_after, cancel as fn(&Arc<Node>)), (job.give_up_after, give_up)] {
        let Some(delay) = delay else { continue };
        let weak: Weak<Node> = Arc::downgrade(node);
        let action = move || {
            if let Some(node) = weak.upgrade() {
                over(&node);
            }
        };
        match closing.timers().after(delay, Box::new(action)) {
            Ok(Some(key)) if !node.note_limit(key) => closing.forget(&[key]),
            Ok(_) => {}
            Err(_) => tell_log(
                || tracing::error!(name = ?node.face.name, "no thread for the limits of a job: it is waited for without one"),
            ),
        }
    }
}

fn cancel(node: &Arc<Node>) {
    after(|moves| node.cancel(moves));
}

fn give_up(node: &Arc<Node>) {
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
                    job.cancel(&node.face.clock).cancel(Reason::TimedOut);
                }
            }
            Signal::Ring(latch) => {
                let _ = latch.set(());
            }
        }
    }
}

struct Outbox {
    waiting: VecDeque<Signal>,
    giving: bool,
}

impl Outbox {
    fn empty() -> RefCell<Outbox> {
        RefCell::new(Outbox { waiting: VecDeque::new(), giving: false })
    }
}

thread_local! {
    static OUTBOX: RefCell<Outbox> = Outbox::empty();
}

/// Gives signals, now, or when the callback that this thread is in has returned.
fn give(signals: VecDeque<Signal>, now: bool) {
    let mut signals = Some(signals);
    let was_giving = OUTBOX.try_with(|outbox| {
        let mut outbox = outbox.borrow_mut();
        outbox.waiting.extend(signals.take().unwrap_or_default());
        std::mem::replace(&mut outbox.giving, true)
    });
    match was_giving {
        Ok(true) if !now => {}
        Ok(was_giving) => {
            while let Some(signal) = next_waiting() {
                tell(&signal);
            }
            let _ = OUTBOX.try_with(|outbox| outbox.borrow_mut().giving = was_giving);
        }
        // The thread is ending, and its list has gone.
        Err(_) => signals.unwrap_or_default().iter().for_each(tell),
    }
}

fn next_waiting() -> Option<Signal> {
    OUTBOX.try_with(|outbox| outbox.borrow_mut().waiting.pop_front()).ok().flatten()
}

fn tell(signal: &Signal) {
    if let Err(panic) = contain(|| signal.give()) {
        tell_log(|| tracing::error!(%panic, "a signal of the shutdown tree panicked"));
    }
}
