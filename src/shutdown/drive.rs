//! What follows from a change, done by whichever thread makes it.
//!
//! First all that changes in the tree, which runs no code of the user's; then the signals, which may. A callback of a
//! signal may change the tree in its turn (a job that says done in the callback that tells it to end): that is done at once,
//! but the signals that follow from it wait until the callback has returned, and so a chain of such jobs needs no deep
//! stack. They wait in a list of the thread's own. Who is about to block in a callback gives them first.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};

use super::error::StateError;
use super::node::{Edge, Move, Moves, Node, Signal};
use super::parts::Closing;
use super::walk;
use crate::outcome::{Failure, Reason, contain, drop_contained, tell_log};
use crate::sync::{Arc, Mutex, Weak, lock, thread_local};
use crate::threads;

/// Does what follows, and what follows from that.
pub(super) fn run(mut moves: Moves) {
    follow(&mut moves);
    let signals = put(moves.signals);
    // Before the signals, for a callback of one of them may hang; but with all of them in the list, for a limit may be over at
    // once, and then it is this thread that gives up, or gives the rest.
    moves.limits.iter().for_each(|(node, closing)| limit(node, closing));
    match signals {
        Ok(()) => give(false),
        Err(signals) => signals.iter().for_each(tell),
    }
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
fn elsewhere<R>(arrow: impl FnOnce(&mut Moves) -> R) -> R {
    let mut moves = Moves::default();
    let result = arrow(&mut moves);
    follow(&mut moves);
    if !(moves.signals.is_empty() && moves.limits.is_empty()) {
        let rest = Mutex::new((moves.limits, moves.signals));
        threads::work_off(move || {
            let (next_limit, next_signal) = {
                let (limits, signals) = &mut *lock(&rest);
                let next = limits.pop();
                let is_limit = next.is_some();
                (next, if is_limit { None } else { signals.pop_front() })
            };
            match (next_limit, next_signal) {
                // First, as in `run`; one that is over at once runs code of the user's.
                (Some((node, closing)), _) => limit(&node, &closing),
                (None, Some(signal)) => match put(VecDeque::from([signal])) {
                    Ok(()) => give(false),
                    Err(signals) => signals.iter().for_each(tell),
                },
                (None, None) => return false,
            }
            true
        });
    }
    result
}

/// Gives the signals that wait for a callback to return. Before this thread blocks.
pub(super) fn flush() {
    give(true);
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

/// The same with an error if there is one, for whoever may not wait for code of the user's.
pub(super) fn end_own_elsewhere(node: &Arc<Node>, error: Option<Failure>) {
    let was_given_up = elsewhere(|moves| {
        if let Some(error) = error {
            let _ = node.set_error(error, moves).map_err(drop_contained);
        }
        node.end_own(moves)
    });
    if was_given_up {
        let left = settle(node);
        threads::on_helper_thread("procession-shutdown", move || drop(left));
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
    overdue(&node, |moves| node.cancel(moves));
}

fn give_up(node: Arc<Node>) {
    if !overdue(&node, |moves| node.give_up(moves)) {
        return;
    }
    let is_manual = node.face.clock.is_manual();
    // Whoever reads the log is code of the user's, and so is what goes with the last of a tree.
    let tell = move || {
        tell_log(|| tracing::warn!(name = ?node.face.name, "a job does not end, and is not waited for any longer"));
    };
    if is_manual {
        tell();
    } else {
        threads::on_helper_thread("procession-shutdown", tell);
    }
}

/// Makes the arrow of a limit that is over. Other limits of the shutdown go by the same timers, so callbacks, which may take long
/// or wait for somebody whose limit is over next, are called by other threads; by a manual clock whoever moves it does it.
fn overdue<R>(node: &Node, arrow: impl FnOnce(&mut Moves) -> R) -> R {
    if node.face.clock.is_manual() { after(arrow) } else { elsewhere(arrow) }
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

/// The list of a thread keeps no more room than for so many signals.
const ROOM: usize = 64;

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

/// Puts signals into the list of this thread. They come back if the thread is ending, and its list has gone.
fn put(signals: VecDeque<Signal>) -> Result<(), VecDeque<Signal>> {
    let mut signals = Some(signals);
    let _ = OUTBOX.try_with(|outbox| outbox.borrow_mut().waiting.extend(signals.take().unwrap_or_default()));
    signals.map_or(Ok(()), Err)
}

/// Gives the signals in the list, now, or when the callback that this thread is in has returned.
fn give(now: bool) {
    let was_giving = OUTBOX.try_with(|outbox| std::mem::replace(&mut outbox.borrow_mut().giving, true));
    let Ok(was_giving) = was_giving else { return };
    if was_giving && !now {
        return;
    }
    while let Some(signal) = next_waiting() {
        tell(&signal);
    }
    let _ = OUTBOX.try_with(|outbox| {
        let mut outbox = outbox.borrow_mut();
        outbox.giving = was_giving;
        outbox.waiting.shrink_to(ROOM);
    });
}

fn next_waiting() -> Option<Signal> {
    OUTBOX.try_with(|outbox| outbox.borrow_mut().waiting.pop_front()).ok().flatten()
}

fn tell(signal: &Signal) {
    if let Err(panic) = contain(|| signal.give()) {
        tell_log(|| tracing::error!(%panic, "a signal of the shutdown tree panicked"));
    }
}
