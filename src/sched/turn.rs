//! A turn: a process in hand is stepped and its yields are performed. Then its body is put to rest or passed on, or
//! it ends.
//!
//! Every [`Executor`] can give a turn: a worker, a thread of the pool for a blocking step, or a shutdown that ends
//! processes that no worker came to.

use std::collections::HashSet;

use super::beginning::{end_initialised, enter, entered, hand_over, start};
use super::cell::{Birth, Cell, Freed, NEVER_HELD, RELATED, Settled, TRAPS};
pub(crate) use super::ending::{body_lost, identity, told_of_spawn};
use super::ending::{bury, close, end};
pub(crate) use super::engine::Engine;
use super::polling::{begin_turn, poll_fresh, polls_are_due, settle_feeds};
use super::replacing::{failed, hold, tell_of_freed, upgrade};
use super::road::{Executor, Road};
use super::step_traces::{note_commands, step_traced};
use crate::outcome::{Exit, Failure, Reason, drop_contained, tell_log};
use crate::primitives::Ordering;
use crate::process::{CommandError, Completion, DeadLetterReason, Relate, StepActivity, WaitedForNothing};
use crate::sched::body::{Begun, Ready, Stage, StepOutput, Stepped, Verdict, Yield};
use crate::sched::mailbox::Unwanted;
use crate::sched::open_asks::SpareAsks;
use crate::sched::orders::Order;
use crate::sched::outbox::Outbox;

/// The state of the body after a turn.
#[must_use]
pub(crate) enum After {
    /// The body is at rest, or gone.
    Nothing,
    /// The process is ready, behind the others.
    Ready(Ready),
}

/// The factor by which a process with many waiting messages may have more steps in a row.
const MOST_MORE_IN_A_ROW: u32 = 16;

/// The most microseconds, roughly, that such additional steps may take.
const LONG: u64 = 500;

/// Gives the process a turn.
#[inline(always)]
pub(crate) fn turn<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    mut body: Ready,
) -> After {
    let road = engine.road();
    let pid = body.head.pid;
    let Some(cell) = road.table.cell(pid) else { return After::Nothing };
    let (mut in_a_row, mut allowed, mut until) = (0, H::STEPS_IN_A_ROW, u64::MAX);
    loop {
        let doom = || if road.dooms.load(Ordering::Relaxed) > 0 { cell.doomed() } else { None };
        if let Some(reason) = doom() {
            executor.begins(pid, &mut body);
            executor.shows(StepActivity::AfterStep);
            end_initialised(engine, executor, out, body, Exit::Terminated(reason));
            return After::Nothing;
        }
        executor.begins(pid, &mut body);
        let is_first = body.head.stage != Stage::Open;
        if is_first {
            // A state machine that replaces another has its leases.
            #[cfg(feature = "cluster")]
            if road.is_fenced(executor, &body) {
                continue;
            }
            let is_new = body.head.stage == Stage::New;
            let begun = enter(engine, executor, out, &mut body);
            if begun != Begun::Plain {
                body = match begin_otherwise(engine, executor, cell, out, (body, begun, is_new)) {
                    Ok(body) => body,
                    Err(after) => return after,
                };
            } else if is_new {
                hand_over(executor, cell, &mut body);
            }
            // It may have been terminated while its `start` ran.
            if let Some(reason) = doom() {
                end(engine, executor, out, body, Exit::Terminated(reason));
                return After::Nothing;
            }
        }
        let mut budget = road.budget;
        if body.head.rare.is_some() {
            budget = match prepare(engine, executor, cell, &mut body, out, in_a_row == 0) {
                Some(budget) => budget,
                None => return rest_again(engine, executor, out, cell, body),
            };
            executor.shows(StepActivity::Step);
        }
        let mut stepped = step(executor, out, &mut body, budget);
        match stepped.verdict {
            Verdict::Continue | Verdict::Idle | Verdict::Wait | Verdict::Blocking => {}
            // The first step often only sets up. Events that came before it wait for the second step, as later events
            // do.
            Verdict::Declined if is_first => stepped.verdict = Verdict::Idle,
            Verdict::Declined => tell_of_declining(executor, &mut body),
            Verdict::Done => {
                // Closed first: its resources are released before its last messages have effects elsewhere.
                close(executor, &mut body);
                body.head.stage = Stage::Done;
                perform(engine, executor, out, &mut body);
                end(engine, executor, out, body, Exit::Done(()));
                return After::Nothing;
            }
            Verdict::Broken => {
                return failed(engine, executor, out, body, stepped.taken).map_or(After::Nothing, After::Ready);
            }
            Verdict::Upgrade => {
                close(executor, &mut body);
                perform(engine, executor, out, &mut body);
                if let Some(successor) = out.successor.take() {
                    let before = body.machine.kind();
                    body = upgrade(road, executor, body, *successor, stepped.taken);
                    executor.counters().replaced(before, body.machine.kind());
                }
                // Behind the others, like a process that continues: it might do the same again.
                return After::Ready(body);
            }
        }
        perform(engine, executor, out, &mut body);
        if body.head.is_prepared() {
            performed(engine, executor, cell, &mut body);
        }
        match cell.settle(body, stepped) {
            Settled::Resting => return After::Nothing,
            Settled::Asking(asked) => {
                if executor.next() != Some(asked) {
                    road.came_to_rest(executor, pid, asked);
                }
                return After::Nothing;
            }
            Settled::Ends(body) => {
                let waits_for_nothing = || Exit::Failed(Failure::new(WaitedForNothing));
                let exit = cell.doomed().map_or_else(waits_for_nothing, Exit::Terminated);
                end(engine, executor, out, body, exit);
                return After::Nothing;
            }
            Settled::Again(ready) if stepped.verdict == Verdict::Blocking => {
                engine.to_pool(ready);
                return After::Nothing;
            }
            Settled::Again(mut ready) => {
                let continues = stepped.verdict == Verdict::Continue;
                if continues {
                    // A process that has got a signal must not wait.
                    let told = ready.machine.mailbox().has_signals();
                    ready.head.passes = if told { 0 } else { executor.turns_to_pass() };
                    if ready.head.passes > 0 {
                        return After::Ready(ready);
                    }
                }
                if ready.head.is_poll_requested() {
                    return After::Ready(ready);
                }
                in_a_row = u32::saturating_add(in_a_row, 1);
                body = ready;
                if !continues && in_a_row == H::STEPS_IN_A_ROW && allowed == H::STEPS_IN_A_ROW {
                    // Messages of other processes must not pile up, turn by turn. So the messages that are there now
                    // are handled now, within reason.
                    let waiting = body.machine.mailbox().messages() / budget as usize;
                    allowed += waiting.min(MOST_MORE_IN_A_ROW as usize * H::STEPS_IN_A_ROW as usize) as u32;
                    until = executor.about_now() + LONG;
                }
                let may_go_on = !continues && in_a_row < allowed && executor.about_now() <= until;
                if !executor.goes_on(may_go_on) {
                    return After::Ready(body);
                }
            }
        }
    }
}

/// Puts a process to rest that was polled, or held, and is not to be stepped.
#[inline(never)]
fn rest_again<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    cell: &Cell,
    mut body: Ready,
) -> After {
    let pid = body.head.pid;
    let held_after = body.head.rare.as_mut().and_then(|rare| rare.held_after.take());
    let settled = match held_after {
        Some(stepped) => cell.settle_held(body, stepped),
        None => cell.settle_polled(body),
    };
    match settled {
        Settled::Resting => {}
        Settled::Asking(asked) => engine.road().came_to_rest(executor, pid, asked),
        Settled::Again(body) if held_after.is_some_and(|stepped| stepped.verdict == Verdict::Blocking) => {
            engine.to_pool(body);
        }
        Settled::Again(body) => return After::Ready(body),
        Settled::Ends(body) => {
            let waits_for_nothing = || Exit::Failed(Failure::new(WaitedForNothing));
            let exit = cell.doomed().map_or_else(waits_for_nothing, Exit::Terminated);
            end(engine, executor, out, body, exit);
        }
    }
    After::Nothing
}

/// Begins a process that is not as most are: it begins in stages, its `start` yields, its steps are shown, or something
/// has failed. Returns the body if the process is to be stepped now.
#[inline(never)]
fn begin_otherwise<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    cell: &Cell,
    out: &mut StepOutput,
    (mut body, mut begun, is_new): (Ready, Begun, bool),
) -> Result<Ready, After> {
    if begun == Begun::NotEntered {
        let exit = out.failure.take().unwrap_or(Exit::Terminated(Reason::Terminated));
        end(engine, executor, out, body, exit);
        return Err(After::Nothing);
    }
    if matches!(begun, Begun::Entered | Begun::Initialised) {
        // It may have been terminated while its `init` ran, and must not be started then.
        if let Some(reason) = cell.doomed() {
            end(engine, executor, out, body, Exit::Terminated(reason));
            return Err(After::Nothing);
        }
        if is_new {
            entered(engine, executor, &mut body);
        }
        executor.shows(StepActivity::Start);
        begun = start(out, &mut body);
    }
    if begun == Begun::Yields {
        body = started(engine, executor, out, body)?;
    }
    if is_new {
        hand_over(executor, cell, &mut body);
    }
    executor.shows(StepActivity::Step);
    Ok(body)
}

/// Prepares a step of a process with rare fields. Returns the most new events that the step is given, or nothing if the
/// process is not to be stepped.
#[inline(never)]
fn prepare<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    cell: &Cell,
    body: &mut Ready,
    out: &mut StepOutput,
    begins_turn: bool,
) -> Option<u32> {
    let budget = match &mut body.head.rare {
        Some(rare) if !rare.is_prepared && !rare.poll_requested => {
            rare.asked.forget_decided(&mut out.spare_asks);
            Some(engine.road().budget)
        }
        _ => prepare_more(engine, executor, cell, body, out, begins_turn),
    };
    budget.inspect(|_| executor.given(body))
}

/// As `prepare`, for a process that needs more. At the beginning of a turn its woken futures are polled, and its feeds
/// are looked at.
#[inline(never)]
fn prepare_more<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    cell: &Cell,
    body: &mut Ready,
    out: &mut StepOutput,
    begins_turn: bool,
) -> Option<u32> {
    // Before the polls, which are code of the process, too.
    #[cfg(feature = "cluster")]
    if engine.road().is_fenced(executor, body) {
        return None;
    }
    if begins_turn {
        if body.head.rare.as_ref().is_some_and(|rare| rare.held_after.is_some()) {
            return None;
        }
        if polls_are_due(cell, body) {
            while body.machine.release(out) {
                perform_all(engine, executor, out, body);
            }
        }
        if !begin_turn(engine, executor, cell, body) {
            return None;
        }
    }
    // After the polls, which may have taken long.
    #[cfg(feature = "cluster")]
    if engine.road().is_fenced(executor, body) {
        return None;
    }
    let mut budget = engine.road().budget;
    if let Some(rare) = &body.head.rare
        && rare.step_events > 0
    {
        budget = budget.min(rare.step_events);
    }
    if let Some(freed) = take_share(cell, body, budget, &mut out.spare_asks) {
        tell_of_freed(engine.road(), executor, body, freed);
    }
    out.load_draws(&body.head);
    Some(budget)
}

/// Handles a process for which `prepare_more` was called when the yields of its step have been performed.
#[inline(never)]
fn performed<E: Engine, H: Executor>(engine: &E, executor: &mut H, cell: &Cell, body: &mut Ready) {
    if body.head.is_bounded() {
        hold(engine.road(), executor, cell, body);
    }
    settle_feeds(executor, body);
    poll_fresh(engine, executor, cell, body);
}

#[inline]
fn step<H: Executor>(executor: &mut H, out: &mut StepOutput, body: &mut Ready, budget: u32) -> Stepped {
    let budget = executor.allow(body, budget);
    let stepped = if tracing::level_enabled!(tracing::Level::TRACE) {
        step_traced(executor, out, body, budget)
    } else {
        body.machine.step(&mut body.head, out, budget, executor.sight())
    };
    let stepped = executor.stepped(body, out, stepped);
    executor.counts_step(body, out, stepped);
    stepped
}

/// Performs the yields of `start`, or handles its failure. Returns the body if it is to be stepped now.
#[inline(never)]
fn started<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    mut body: Ready,
) -> Result<Ready, After> {
    executor.shows(StepActivity::AfterStep);
    note_commands(&mut body, out);
    if out.failure.is_some() {
        executor.not_begun(&body, out);
        out.counted.clear();
        executor.not_stepped(&mut body);
        return Err(failed(engine, executor, out, body, 0).map_or(After::Nothing, After::Ready));
    }
    executor.started(out);
    if let Some(figures) = &executor.counters().figures {
        figures.started(body.machine.kind(), out);
    }
    perform(engine, executor, out, &mut body);
    // The first step is given the answers that are in the body already.
    body.head.is_answered = false;
    // A process that was woken must not wait for the first step.
    executor.let_go();
    Ok(body)
}

/// Warns, once for each process, of a step that takes nothing and says `Idle`. Mostly that is a mistake.
#[cold]
fn tell_of_declining<H: Executor>(executor: &mut H, body: &mut Ready) {
    if std::mem::replace(&mut body.head.rare().warned, true) {
        return;
    }
    let (pid, process, name) = (body.head.pid, body.machine.kind().process, body.head.name().map(|name| &**name));
    executor.let_go();
    tell_log(|| {
        tracing::warn!(
            %pid,
            process = process(),
            name,
            "a step took none of its events and said `Step::Idle`, so they wait until something new arrives: \
             take them, pass them over with `Events::select`, or say `Step::Continue`"
        );
    });
}

/// Performs the yields of a step, in order.
#[inline(always)]
fn perform<E: Engine, H: Executor>(engine: &E, executor: &mut H, out: &mut StepOutput, body: &mut Ready) {
    match *out.orders.newest() {
        [] => {}
        // The usual case.
        [Order::Send { lane, count, to }] => {
            out.orders.clear();
            executor.pause();
            executor.count(|counters| &counters.accepted, u64::from(count));
            engine.deliver(&mut out.outbox, (lane, count), (body.head.pid, to), executor);
        }
        _ => perform_all(engine, executor, out, body),
    }
}

#[inline(never)]
fn perform_all<E: Engine, H: Executor>(engine: &E, executor: &mut H, out: &mut StepOutput, body: &mut Ready) {
    // The second most usual case: a question, or the answer to one.
    if let ([Order::Next], [Yield::Ask { .. } | Yield::Reply(_)]) = (out.orders.newest(), &out.yields[..]) {
        out.orders.clear();
        if let Some(one) = out.yields.pop() {
            executor.pause();
            engine.perform(one, body, &mut out.outbox, executor);
        }
        return;
    }
    if out.orders.has_slices() {
        perform_slices(engine, executor, out, body);
        out.performed();
        out.shrink();
    } else {
        let orders = out.orders.newest().iter().copied();
        perform_these(engine, executor, body, orders, (&mut out.yields.iter_mut(), &mut out.outbox));
        out.performed();
    }
    out.note_draws(&mut body.head);
}

/// Performs very many yields. Processes that a slice of them wakes are stepped after it, with all its messages.
/// Otherwise, an idle worker would step a receiver after each message.
#[cold]
fn perform_slices<E: Engine, H: Executor>(engine: &E, executor: &mut H, out: &mut StepOutput, body: &mut Ready) {
    let mut others = out.yields.iter_mut();
    for slice in out.orders.take_slices() {
        executor.hold_back();
        perform_these(engine, executor, body, slice, (&mut others, &mut out.outbox));
    }
    executor.release();
}

#[inline(always)]
fn perform_these<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    body: &mut Ready,
    orders: impl Iterator<Item = Order>,
    (others, outbox): (&mut std::slice::IterMut<'_, Yield>, &mut Outbox),
) {
    let pid = body.head.sender();
    let mut orders = orders.peekable();
    // Events of relations that the step takes back are removed from the mailbox once, at the end, because it may be
    // long. No more such events arrive in the meantime.
    let mut unwanted: Option<HashSet<Unwanted>> = None;
    while let Some(order) = orders.next() {
        executor.pause();
        match order {
            Order::Send { lane, count, to } => {
                executor.count(|counters| &counters.accepted, u64::from(count));
                engine.deliver(outbox, (lane, count), (pid, to), executor);
            }
            Order::Next => match others.next().map(|one| std::mem::replace(one, Yield::Performed)) {
                Some(Yield::Spawn(child)) => {
                    let Some(mut child) = engine.spawned(child) else { continue };
                    // Messages that the parent sends to the child at once are in its mailbox from the beginning,
                    // before others can reach it.
                    let mut given = 0;
                    while let Some(&Order::Send { lane, count, to }) = orders.peek()
                        && to == child.head.pid
                        && !child.head.is_bounded()
                        && outbox.lane(lane).fill(count, Some(pid), child.machine.mailbox(), None).is_some()
                    {
                        if count > 1 {
                            outbox.lane(lane).settle();
                        }
                        given += count;
                        orders.next();
                    }
                    begin(engine, executor, child, given);
                }
                Some(Yield::Relate(relate)) => {
                    // A link that is made anew reports anew. Events of the old link are removed first.
                    if let Relate::Link(to) = &relate
                        && let Some(told) = unwanted.take_if(|told| Unwanted::concerns_link(told, *to))
                    {
                        forget(engine.road(), executor, &told, body);
                    }
                    match engine.relate(relate, body, executor) {
                        // That process lives. The next yield may begin another link to it, and then more events
                        // follow.
                        Some(told @ Unwanted::Recovered(_)) => {
                            forget(engine.road(), executor, &HashSet::from([told]), body)
                        }
                        Some(told) => _ = unwanted.get_or_insert_default().insert(told),
                        None => {}
                    }
                }
                Some(other) => engine.perform(other, body, outbox, executor),
                None => {}
            },
        }
    }
    if let Some(told) = unwanted {
        forget(engine.road(), executor, &told, body);
    }
}

/// Takes events that the process in hand no longer wants out of its mailbox and out of the inbox of its cell.
fn forget<H: Executor>(road: &Road, executor: &mut H, unwanted: &HashSet<Unwanted>, body: &mut Ready) {
    let mut gone = body.machine.mailbox().forget(unwanted);
    if let Some(cell) = road.table.cell(body.head.pid) {
        gone.extend(cell.forget(body.head.pid, unwanted));
    }
    if !gone.is_empty() {
        // An event may have a user's error, and the destructor of that may take long.
        executor.let_go();
        gone.into_iter().for_each(drop_contained);
    }
}

/// Enters a process that a step has spawned in the table, with this many messages in its mailbox.
pub(crate) fn begin<E: Engine, H: Executor>(engine: &E, executor: &mut H, mut child: Ready, given: u32) {
    let road = engine.road();
    executor.count(|counters| &counters.accepted, u64::from(given));
    let pid = child.head.pid;
    let kind = child.machine.kind();
    let mut birth = Birth { queued: given, ..Birth::default() };
    let (mut has_name, mut is_run) = (false, false);
    if let Some(rare) = &mut child.head.rare {
        has_name = rare.name.is_some();
        birth.bound = rare.bound;
        let marks = [(TRAPS, rare.traps), (RELATED, rare.bond.is_some()), (NEVER_HELD, rare.never_held)];
        birth.marks = marks.iter().filter(|(_, holds)| *holds).map(|(mark, _)| mark).sum();
        // Before any thread can end it, so that its end is always noticed.
        rare.bond.into_iter().for_each(|bond| engine.bond(pid, bond));
        if let Some(answer) = rare.given.as_mut().and_then(|given| given.answer.as_mut()) {
            answer.begin();
            is_run = true;
        }
    }
    let installed = road.table.cell(pid).is_some_and(|cell| {
        cell.install(pid.generation(), kind, birth, executor.about_now(), || road.door.is_closed())
    });
    if !installed {
        executor.let_go();
        // The runtime began to shut down in the middle of the step. The child never began, so it is not closed.
        tell_log(|| tracing::info!(%pid, process = (kind.process)(), "not begun, for the runtime shuts down"));
        bury(road, executor, pid, child.machine.mailbox(), DeadLetterReason::NoSuchProcess);
        road.table.give_back_after(pid);
        let begun = child.head.rare.as_mut().and_then(|rare| rare.begun.take());
        let output = child.head.take_answer().and_then(|answer| answer.take(false));
        drop_contained(child);
        for (parent, tag) in begun.map(|report| (report.to, report.tag)).into_iter().chain(output) {
            let why = CommandError::Cancelled(Reason::Shutdown);
            road.complete(executor, parent, Completion::from(Some(pid), tag, Err(why)));
        }
        if birth.marks & RELATED != 0 {
            engine.tell_related(pid, &Exit::Terminated(Reason::NoSuchProcess), executor);
        }
        return;
    }
    if has_name {
        // It can be found from now on, as it could in the step. If the name is taken and still taken when the child
        // begins, that is the child's exit.
        drop_contained(engine.begins(&mut child.head));
    }
    if is_run && !child.head.is_answer_wanted() {
        // The limit was over before the child was in the table, so nobody has ended it.
        _ = road.terminate(executor, pid, 0);
    }
    executor.count(|counters| &counters.spawned, 1);
    if road.observer.is_some() {
        executor.let_go();
    }
    told_of_spawn(road, executor.counters(), &mut child);
    executor.spawned(child);
}

/// Gives a process its share for the next step if it has a bound, and then forgets its decided questions.
///
/// In this order, because the share may bring the answer to the newest question. If that question was not forgotten,
/// nobody would see that the process waits for an older one, and a cycle of asks would be missed.
#[inline]
pub(super) fn take_share(cell: &Cell, body: &mut Ready, budget: u32, spares: &mut SpareAsks) -> Option<Freed> {
    let freed = body.head.is_bounded().then(|| cell.fill(body, budget));
    body.head.rare.iter_mut().for_each(|rare| rare.asked.forget_decided(spares));
    freed
}
