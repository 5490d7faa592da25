//! The polls of a turn: the futures in the body are polled between the steps, and their outputs are answers.
//!
//! A turn polls a future at most once, and at most [`POLLS_A_TURN`](super::residents::POLLS_A_TURN) futures. A turn
//! begins with the futures that were woken. After each step it goes on with those that the step has yielded. A future
//! that is woken meanwhile waits for the next turn.
//!
//! Futures are dropped in the context of polls, too. A future that is ready is dropped with its poll.
//!
//! A poll without an output is no step. If a process was woken for such polls only, its body comes to rest as it was.
//! Feeds (`feeds.rs`) are looked at when a turn begins, too, and visits are received (`describing.rs`).

use std::task::Poll;

use super::cell::Cell;
use super::describing::free_rare;
use super::engine::Engine;
use super::feeds::{AnyNewFeed, FeedHost, wake_all};
use super::residents::{Resident, Residents};
use super::road::Executor;
use crate::outcome::{contain, drop_contained, tell_log};
use crate::primitives::{Arc, Ordering, Weak};
use crate::process::{Answer, CommandError, StepActivity};
use crate::sched::body::{Head, Ready, Stage};

/// Calls its argument, surrounded by the user's code.
pub(crate) type PollContext = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Whether a turn begins with polls. If so, this takes the request back. Call it before anything is looked at that may
/// have been the reason for a request: one that comes later is kept for the next turn.
#[inline]
pub(super) fn polls_are_due(cell: &Cell, body: &Ready) -> bool {
    let are_due = body.head.rare.as_ref().is_some_and(|rare| rare.poll_requested || rare.has_feeds);
    if are_due {
        cell.take_poll_request();
    }
    are_due
}

/// Begins a turn: polls the futures that were woken, and fetches new items of feeds. Returns whether the process is to
/// be stepped. `polls_are_due` was asked before.
pub(super) fn begin_turn<E: Engine, H: Executor>(engine: &E, executor: &mut H, cell: &Cell, body: &mut Ready) -> bool {
    let Some(rare) = &mut body.head.rare else { return true };
    let only_polls = std::mem::take(&mut rare.only_polls);
    rare.residents.iter_mut().for_each(|residents| residents.begin_turn());
    if !std::mem::take(&mut rare.poll_requested) && !rare.has_feeds {
        return true;
    }
    #[cfg(feature = "cluster")]
    engine.road().take_leases(executor, body);
    let had_visits = engine.road().receive_visits(executor, body);
    let Some(rare) = &mut body.head.rare else { return true };
    if let Some(residents) = &mut rare.residents {
        residents.take_woken();
        poll_due(engine, executor, cell, body);
    }
    let is_fed = body.machine.feeds().is_some_and(|feeds| feeds.fetch());
    settle_feeds(executor, body);
    // A process that waits for answers is given no items.
    let is_fed = is_fed && !body.head.waits;
    // The step that follows sees these answers, so they are not news after it.
    let is_answered = std::mem::take(&mut body.head.is_answered);
    // The process may have been terminated during a poll. Then it is not stepped.
    let is_doomed = engine.road().dooms.load(Ordering::Relaxed) > 0 && cell.doomed().is_some();
    let is_due = (is_answered || is_fed || !only_polls || body.machine.is_due()) && !is_doomed;
    if had_visits {
        free_rare(body);
    }
    is_due
}

/// Attaches a feed to the process whose step has made it. A process that is done has no feeds.
pub(crate) fn attach_feed<H: Executor>(
    executor: &mut H,
    body: &mut Ready,
    feed: Box<dyn AnyNewFeed>,
    host: Weak<dyn FeedHost>,
) {
    // Wakers of those that wait to put an item may take long.
    executor.let_go();
    if body.head.stage == Stage::Done {
        return drop_contained(feed);
    }
    body.machine.attach(feed, host);
    body.head.prepared().has_feeds = body.machine.feeds().is_some();
}

/// Makes room in the feeds from which a step has taken items.
pub(super) fn settle_feeds<H: Executor>(executor: &mut H, body: &mut Ready) {
    let Some(rare) = body.head.rare.as_mut().filter(|rare| rare.has_feeds) else { return };
    let Some((woken, has_feeds)) = body.machine.feeds().map(|feeds| feeds.settle()) else { return };
    rare.has_feeds = has_feeds;
    if !woken.is_empty() {
        executor.let_go();
        wake_all(woken);
    }
}

/// Polls the futures that a step has yielded.
pub(super) fn poll_fresh<E: Engine, H: Executor>(engine: &E, executor: &mut H, cell: &Cell, body: &mut Ready) {
    if body.head.residents().is_some_and(|residents| residents.has_fresh()) {
        poll_due(engine, executor, cell, body);
    }
}

fn poll_due<E: Engine, H: Executor>(engine: &E, executor: &mut H, cell: &Cell, body: &mut Ready) {
    // A poll is user code, and may take long.
    executor.let_go();
    let pid = body.head.pid;
    while let Some(mut resident) = body.head.residents().and_then(Residents::next_due) {
        // The polls before it, or the step, may have taken long.
        #[cfg(feature = "cluster")]
        if engine.road().is_fenced(executor, body) {
            if let Some(residents) = body.head.residents() {
                residents.put_back(resident);
            }
            break;
        }
        let tag = resident.tag();
        executor.shows(StepActivity::Poll { tag });
        match poll(engine, &mut resident) {
            Some(answer) => {
                drop_future(engine, resident);
                executor.polled(body, &answer);
                engine.road().answer_in_hand(executor, body, tag, answer);
            }
            None => {
                if let Some(residents) = body.head.residents() {
                    residents.put_back(resident);
                }
            }
        }
    }
    executor.shows(StepActivity::AfterStep);
    let Some(residents) = body.head.residents() else { return };
    residents.shrink();
    if residents.has_due() {
        // The body is in hand, so this only sets the flag. The process does not come to rest.
        drop(cell.request_poll(pid));
    }
}

/// Polls a future once. Returns the answer, if there is one.
fn poll<E: Engine>(engine: &E, resident: &mut Resident) -> Option<Answer> {
    if resident.begin_poll() {
        return Some(Err(CommandError::TimedOut));
    }
    match in_context(engine, || resident.poll()) {
        Ok(Poll::Pending) => None,
        Ok(Poll::Ready(answer)) => Some(answer),
        Err(error) => Some(Err(error)),
    }
}

/// Runs a user's code in the context that the runtime was built with. A panic becomes an error.
pub(crate) fn in_context<E: Engine, R>(engine: &E, run: impl FnOnce() -> R) -> Result<R, CommandError> {
    let (mut run, mut result) = (Some(run), None);
    let ran = contain(|| {
        engine.in_context(&mut || {
            if let Some(run) = run.take() {
                result = Some(run());
            }
        });
    });
    drop_contained(run);
    match (ran, result) {
        (Ok(()), Some(result)) => Ok(result),
        // The context has not called it.
        (Ok(()), None) => Err(CommandError::Dropped),
        (Err(panic), result) => {
            drop_contained(result);
            Err(CommandError::Panicked(panic))
        }
    }
}

/// Drops a future that was taken out of its body, and cancels its timer.
pub(crate) fn drop_future<E: Engine>(engine: &E, resident: Resident) {
    if let Some(timer) = resident.timer() {
        engine.forget_limit(timer);
    }
    if resident.is_dropped() {
        return;
    }
    if let Err(error) = in_context(engine, || drop(resident)) {
        tell_log(|| tracing::error!(%error, "the drop of a future failed in its destructor or in `in_context`"));
    }
}

/// Drops all futures of a state machine that has ended, or has failed and is replaced.
pub(super) fn drop_futures<E: Engine, H: Executor>(engine: &E, executor: &mut H, head: &mut Head) {
    let Some(mut residents) = head.rare.as_mut().and_then(|rare| rare.residents.take()) else { return };
    let all = residents.take_all();
    if !all.is_empty() {
        executor.let_go();
        all.into_iter().for_each(|resident| drop_future(engine, resident));
    }
}
