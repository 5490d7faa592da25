//! Asks that form a cycle: the process that closes the cycle finds it, and one ask of it ends with an error.
//!
//! A process *waits for one answer* if it rests after `Step::Wait`, exactly one of its commands is outstanding, and
//! that command is an ask that is open and not handed on. Only the answer or a control signal wakes it. So each
//! process has at most one *arrow*, from itself to the process that it has asked. A cycle of arrows waits for ever. A
//! process that waits for several answers has no arrow. A knot of such processes is not searched for: it ends by the
//! limits of its asks.
//!
//! An arrow is stored nowhere but in the body that rests in its cell. So nothing has to be kept up to date, and a
//! process that does not ask and wait has no part in this. The protocol:
//!
//! 1. A process comes to rest, in the critical section of its cell. It has asked before. Each rest has a number of
//!    its own: the count of the process's steps.
//! 2. The worker that has put the process to rest *follows* the arrows from cell to cell, one lock at a time, and
//!    records nothing. Mostly the first or the second process on the way has no arrow: there is no cycle. If the
//!    first one is the process that this worker steps next, no cell is looked at: a process whose body is in a
//!    worker's hands does not rest.
//! 3. If the arrows lead back to the process within [`LONGEST`] arrows, there may be a cycle. So far nothing is
//!    decided: the arrows were not seen at the same moment. The worker takes the one lock for such decisions. It
//!    follows the arrows again, and records each process with the number of its rest and its ask.
//! 4. Under the same lock it takes a *second look* at each of them: is the process still in this rest, and is the ask
//!    still open and not handed on? If so, it decides the ask of the process that came to rest, with the cycle as its
//!    answer. To the process this is an answer like any other, so nothing has to be undone.
//!
//! *A reported cycle existed.* Between the recording and the second look lies a moment at which each of the processes
//! rested, because it was in the same rest before and after that moment. At that moment each ask was open, because an
//! ask that is open later was open before. So at that moment all of them waited for each other.
//!
//! *One error for one cycle.* Two workers may close a cycle at the same time. The second one to have the lock finds
//! the ask of the first one decided. No arrows lead back to a process that only leads into a cycle. It gets no error.
//!
//! *No cycle is missed.* Let there be a cycle of at most [`LONGEST`] processes, all of them in their last rest, and
//! suppose that none of them has found it. Then each of them, when it had come to rest, looked at another one before
//! that one had come to its last rest. Otherwise it would have seen every arrow of the cycle. (An ask that is decided
//! stays decided, and a rest that is over does not come back. So "it has no arrow" and "it has another arrow" can
//! only mean: not yet in the last rest.) So for each of them there is another one that came to its last rest later.
//! The cell of that one was looked at before the critical section in which it came to rest, and after the critical
//! section in which the first one did. "Later" is an order without cycles, and a finite set has a last element in it.
//! The last process has found the cycle.
//!
//! A process that was asked hands the ask on in a step, before it rests. A search that sees it at rest has entered
//! its cell since, and sees the hand-on in the second look.

use super::cell::{AskWait, Cell};
use super::road::{Executor, Road};
use crate::outcome::tell_log;
use crate::primitives::{Mutex, lock};
use crate::process::{CommandError, Cycle, Decided, Pid};

/// The most processes of a cycle that is found.
///
/// It is also the most cells that are looked at when a process comes to rest. More would make each ask at the end of
/// a long chain more expensive. A longer cycle ends by the limits of its asks.
#[cfg(not(loom))]
pub(super) const LONGEST: usize = 1_000;
#[cfg(loom)]
pub(super) const LONGEST: usize = 3;

impl Road {
    /// Handles a process that has come to rest and waits for one answer, of `asked`. If that closes a cycle, its ask
    /// ends with an error.
    #[inline(never)]
    pub(super) fn came_to_rest<H: Executor>(&self, executor: &mut H, pid: Pid, asked: Pid) {
        let closed = closes_cycle(&|pid| self.table.cell(pid), &self.ask_cycles, pid, asked);
        if let Some((cycle, Decided::Deliver { to, completion })) = closed {
            // A subscriber of the log may take long.
            executor.let_go();
            tell_log(|| tracing::warn!(%pid, %cycle, "asks form a cycle, and one of them is given up"));
            self.complete(executor, to, completion);
        }
    }
}

/// Returns the cycle that `from` closes with its ask of `asked`, and the decision of that ask, which is not delivered
/// yet. Steps 2 to 4 of the protocol.
#[inline]
pub(super) fn closes_cycle<'a>(
    find: &impl Fn(Pid) -> Option<&'a Cell>,
    decisions: &Mutex<()>,
    from: Pid,
    asked: Pid,
) -> Option<(Cycle, Decided)> {
    if leads_back(find, from, asked) { give_up(find, decisions, from) } else { None }
}

/// Whether the arrows lead from `asked` back to `from`. Step 2 of the protocol.
fn leads_back<'a>(find: &impl Fn(Pid) -> Option<&'a Cell>, from: Pid, asked: Pid) -> bool {
    let mut at = asked;
    for _ in 0..LONGEST {
        if at == from {
            return true;
        }
        match find(at).and_then(|cell| cell.waits_for(at)) {
            Some(next) => at = next,
            None => return false,
        }
    }
    false
}

/// Decides the ask of a process if it is part of a cycle. Steps 3 and 4 of the protocol.
pub(super) fn give_up<'a>(
    find: &impl Fn(Pid) -> Option<&'a Cell>,
    decisions: &Mutex<()>,
    pid: Pid,
) -> Option<(Cycle, Decided)> {
    let look = |pid: Pid| find(pid)?.ask_wait(pid);
    // Dropped when the lock is released.
    let mut cycle: Vec<(Pid, AskWait)> = Vec::new();
    let _alone = lock(decisions);
    let mut at = pid;
    while cycle.len() < LONGEST {
        let wait = look(at)?;
        let next = wait.asked;
        cycle.push((at, wait));
        if next == pid {
            break;
        }
        at = next;
    }
    let (_, last) = cycle.last()?;
    let is_closed = last.asked == pid;
    if !is_closed || !cycle.iter().all(|(pid, wait)| look(*pid).is_some_and(|now| now.is_still(wait))) {
        return None;
    }
    let (_, first) = cycle.first()?;
    let told = Cycle::new(cycle.iter().map(|(pid, _)| *pid).collect::<Vec<_>>());
    let decided = first.ask.decide(CommandError::Cycle(told.clone()));
    Some((told, decided))
}
