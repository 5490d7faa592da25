//! A turn: a process in hand is stepped, what it wants is done, and its body is put to rest, or passed on, or it ends.
//!
//! Whoever has hands can give a turn: a worker, a thread of the pool for a blocking step, or a shutdown that ends what
//! no worker came to.

use super::cell::{Cell, Settled, Vacated, Want};
use super::road::{Hands, Road};
use super::router::Router;
use crate::latch::Latch;
use crate::outcome::{Exit, Failure, Panic, Reason, drop_contained, tell_log};
use crate::process::body::{Head, Order, Ready, Stage, StepOutput, Stepped, Successor, Verdict, Yield};
use crate::process::mailbox::AnyMailbox;
use crate::process::outbox::Outbox;
use crate::process::{DeadLetter, DeadReason, Pid, ProcessRef, WaitedForNothing};
use crate::sync::Ordering;

/// What the runtime does for a process beyond the road: timers, the pool, handlers, names.
pub(crate) trait Engine: Send + Sync + 'static {
    fn road(&self) -> &Road;

    /// Performs one yield of the process with this head.
    fn perform<H: Hands>(&self, one: Yield, head: &mut Head, outbox: &mut Outbox, hands: &mut H);

    /// A process begins: it takes its name, if it wants one.
    fn begins(&self, head: &Head) -> Result<(), Exit>;

    /// A process has ended: what it had outside of the road goes.
    fn ended(&self, head: &mut Head);

    /// A process has ended whose head is lost: what can be found goes.
    fn forget(&self, pid: Pid);

    /// The next step of this process is to be run on the pool.
    fn to_pool(&self, ready: Ready);
}

/// What is to be done with the body after a turn.
#[must_use]
pub(crate) enum After {
    /// Nothing: it rests, or is gone.
    Nothing,
    /// It is ready, behind the others.
    Ready(Ready),
}

/// A process for which many messages wait may have so many times as many steps in a row as the others,
const MOST_MORE_IN_A_ROW: u32 = 16;

/// but not for much longer than so many microseconds.
const LONG: u64 = 500;

/// Gives the process a turn.
pub(crate) fn turn<E: Engine, H: Hands>(engine: &E, hands: &mut H, out: &mut StepOutput, mut body: Ready) -> After {
    let road = engine.road();
    let pid = body.head.pid;
    let Some(cell) = road.table.cell(pid) else { return After::Nothing };
    let (mut in_a_row, mut allowed, mut until) = (0, H::STEPS_IN_A_ROW, u64::MAX);
    loop {
        let doom = || if road.dooms.load(Ordering::Relaxed) > 0 { cell.doomed() } else { None };
        if let Some(reason) = doom() {
            end(engine, hands, out, body, Exit::Terminated(reason));
            return After::Nothing;
        }
        hands.begins(pid);
        if body.head.stage == Stage::New {
            // It may be terminated while its `init` runs, and must not be stepped then.
            let ended = enter(engine, &mut body).err().or_else(|| doom().map(Exit::Terminated));
            if let Some(exit) = ended {
                end(engine, hands, out, body, exit);
                return After::Nothing;
            }
            // Mostly there is the one message with which it was spawned, and nothing else to be looked for.
            if body.machine.mailbox().messages() != 1 {
                drop(cell.hand_over(&mut body));
            }
        }
        if body.head.is_bounded() {
            tell_of_room(cell.fill(&mut body, road.budget));
        }
        let stepped = step(road, hands, out, &mut body);
        let want = match stepped.verdict {
            Verdict::Continue => Want::Again,
            Verdict::Idle => Want::AnyEvent,
            Verdict::Wait => Want::Signal,
            Verdict::Blocking => Want::AgainOnPool,
            Verdict::Done => {
                // Closed first: what its last messages set off elsewhere finds its resources released.
                close(hands, &mut body);
                body.head.stage = Stage::Done;
                perform(engine, hands, out, &mut body.head);
                end(engine, hands, out, body, Exit::Done(()));
                return After::Nothing;
            }
            Verdict::Broken => {
                lost(road, hands, &body, stepped.taken);
                let exit = out.failure.take().unwrap_or(Exit::Terminated(Reason::Terminated));
                end(engine, hands, out, body, exit);
                return After::Nothing;
            }
            Verdict::Upgrade => {
                close(hands, &mut body);
                perform(engine, hands, out, &mut body.head);
                if let Some(successor) = out.successor.take() {
                    body = upgrade(road, hands, body, successor, stepped.taken);
                }
                // Behind the others, as one that continues: it might do the same again.
                return After::Ready(body);
            }
        };
        perform(engine, hands, out, &mut body.head);
        if body.head.is_bounded() {
            hold(road, hands, cell, &mut body);
        }
        match cell.settle(body, want, stepped) {
            Settled::Resting => return After::Nothing,
            Settled::Doomed(body) => {
                let reason = cell.doomed().unwrap_or(Reason::Terminated);
                end(engine, hands, out, body, Exit::Terminated(reason));
                return After::Nothing;
            }
            Settled::WaitsForNothing(body) => {
                end(engine, hands, out, body, Exit::Failed(Failure::new(WaitedForNothing)));
                return After::Nothing;
            }
            Settled::Again(ready) if want == Want::AgainOnPool => {
                engine.to_pool(ready);
                return After::Nothing;
            }
            Settled::Again(mut ready) => {
                if want == Want::Again {
                    // Who has been told something must not wait for it.
                    let told = ready.machine.mailbox().has_signals();
                    ready.head.passes = if told { 0 } else { hands.turns_to_pass() };
                    if ready.head.passes > 0 {
                        return After::Ready(ready);
                    }
                }
                in_a_row = u32::saturating_add(in_a_row, 1);
                body = ready;
                if want != Want::Again && in_a_row == H::STEPS_IN_A_ROW && allowed == H::STEPS_IN_A_ROW {
                    // What others have sent in their turns is not left to pile up, turn by turn: what is there now is
                    // stepped now, within reason.
                    let waiting = body.machine.mailbox().messages() / road.budget as usize;
                    allowed += waiting.min(MOST_MORE_IN_A_ROW as usize * H::STEPS_IN_A_ROW as usize) as u32;
                    until = hands.about_now() + LONG;
                }
                let goes_on =
                    want != Want::Again && in_a_row < allowed && !hands.has_next() && hands.about_now() <= until;
                if !goes_on && !hands.is_alone() {
                    return After::Ready(body);
                }
                hands.goes_on();
            }
        }
    }
}

fn enter<E: Engine>(engine: &E, body: &mut Ready) -> Result<(), Exit> {
    engine.begins(&body.head)?;
    body.head.stage = Stage::Open;
    body.machine.enter()
}

#[inline]
fn step<H: Hands>(road: &Road, hands: &mut H, out: &mut StepOutput, body: &mut Ready) -> Stepped {
    let stepped = if tracing::level_enabled!(tracing::Level::TRACE) {
        step_traced(road, out, body)
    } else {
        body.machine.step(&mut body.head, out, road.budget)
    };
    hands.count(|counters| &counters.steps, 1);
    if stepped.verdict != Verdict::Broken {
        hands.count(|counters| &counters.stepped, u64::from(stepped.taken));
    }
    stepped
}

#[cold]
fn step_traced(road: &Road, out: &mut StepOutput, body: &mut Ready) -> Stepped {
    let process = (body.machine.kind().process)();
    let _entered = tracing::trace_span!("step", pid = %body.head.pid, process).entered();
    body.machine.step(&mut body.head, out, road.budget)
}

/// The messages that a failed step had taken are dead letters, though nobody has them any more.
#[cold]
fn lost<H: Hands>(road: &Road, hands: &mut H, body: &Ready, taken: u32) {
    hands.let_go();
    for _ in 0..taken {
        let letter = DeadLetter {
            to: body.head.pid,
            from: None,
            reason: DeadReason::StepFailed,
            type_name: (body.machine.kind().message_name)(),
            message: None,
        };
        road.dead_letter(hands.counters(), &letter);
    }
}

/// Performs what the step has yielded, in order.
#[inline(always)]
fn perform<E: Engine, H: Hands>(engine: &E, hands: &mut H, out: &mut StepOutput, head: &mut Head) {
    match out.orders[..] {
        [] => {}
        // What most steps do.
        [Order::Send { lane, count, to }] => {
            out.orders.clear();
            hands.count(|counters| &counters.accepted, u64::from(count));
            out.outbox.deliver(lane, count, to, head.pid, &mut Router::new(engine.road(), hands));
        }
        _ => perform_all(engine, hands, out, head),
    }
}

#[inline(never)]
fn perform_all<E: Engine, H: Hands>(engine: &E, hands: &mut H, out: &mut StepOutput, head: &mut Head) {
    let road = engine.road();
    let StepOutput { orders, yields, outbox, .. } = out;
    let mut others = yields.iter_mut();
    let mut orders = orders.iter().copied().peekable();
    while let Some(order) = orders.next() {
        match order {
            Order::Send { lane, count, to } => {
                hands.count(|counters| &counters.accepted, u64::from(count));
                outbox.deliver(lane, count, to, head.pid, &mut Router::new(road, hands));
            }
            Order::Next => match others.next().map(|one| std::mem::replace(one, Yield::Performed)) {
                Some(Yield::Spawn(mut child)) => {
                    // What the parent sends it at once is with it from the beginning, before anybody else can reach it.
                    let mut given = 0;
                    while let Some(&Order::Send { lane, count, to }) = orders.peek()
                        && to == child.head.pid
                        && !child.head.is_bounded()
                        && outbox.give(lane, count, head.pid, child.machine.mailbox())
                    {
                        given += count;
                        orders.next();
                    }
                    begin(road, hands, child, given);
                }
                Some(other) => engine.perform(other, head, outbox, hands),
                None => {}
            },
        }
    }
    out.performed();
}

/// A process that a step has spawned takes its place in the table, with so many messages in its mailbox.
fn begin<H: Hands>(road: &Road, hands: &mut H, mut child: Ready, given: u32) {
    hands.count(|counters| &counters.accepted, u64::from(given));
    let pid = child.head.pid;
    let kind = child.machine.kind();
    let bound = child.head.rare.as_ref().and_then(|rare| rare.bound);
    let installed = road.table.cell(pid).is_some_and(|cell| {
        cell.install(pid.generation(), kind, (bound, given), hands.about_now(), || road.door.is_closed())
    });
    if !installed {
        // The runtime began to shut down in the middle of the step. The child never was: nobody has to close it.
        tell_log(|| tracing::info!(%pid, process = (kind.process)(), "not begun, for the runtime shuts down"));
        bury(road, hands, pid, child.machine.mailbox(), DeadReason::NoSuchProcess);
        road.table.give_back_after(pid);
        drop_contained(child);
        return;
    }
    hands.count(|counters| &counters.spawned, 1);
    if road.hook.is_some() {
        hands.let_go();
    }
    told_of_spawn(road, &child);
    hands.spawned(child);
}

/// Tells the log and the hook that a process was spawned.
#[inline]
pub(crate) fn told_of_spawn(road: &Road, body: &Ready) {
    if tracing::level_enabled!(tracing::Level::DEBUG) {
        let (pid, process, name) = (body.head.pid, body.machine.kind().process, body.head.name());
        tell_log(|| tracing::debug!(%pid, process = process(), name = name.map(|name| &**name), "spawned"));
    }
    if road.hook.is_some() {
        let process = reference(body);
        road.tell_hook(|hook| hook.spawned(&process));
    }
}

fn reference(body: &Ready) -> ProcessRef {
    ProcessRef { pid: body.head.pid, type_name: (body.machine.kind().process)(), name: body.head.name().cloned() }
}

/// Calls `close`, if `init` was called and `close` was not.
fn close<H: Hands>(hands: &mut H, body: &mut Ready) {
    if body.head.stage == Stage::Open {
        body.head.stage = Stage::Closed;
        hands.let_go();
        body.machine.close();
    }
}

/// Replaces the state machine. What waited for the old one and is of a type that the new one does not take, is dead.
fn upgrade<H: Hands>(road: &Road, hands: &mut H, body: Ready, successor: Box<dyn Successor>, taken: u32) -> Ready {
    let pid = body.head.pid;
    let (mut body, refused) = successor.succeed(body);
    let Some(cell) = road.table.cell(pid) else { return body };
    let bound = body.head.rare.as_ref().and_then(|rare| rare.bound);
    let mut inbox = cell.upgrade(body.machine.kind(), bound, taken);
    if let Some(inbox) = &mut inbox {
        let completions = body.machine.mailbox().absorb(&mut **inbox, usize::MAX);
        body.head.answered(completions);
        tell_of_room(inbox.take_waiting());
    }
    let mut dead = 0;
    for mut mailbox in [refused, inbox].into_iter().flatten() {
        dead += mailbox.messages() as u32;
        bury(road, hands, pid, &mut *mailbox, DeadReason::WrongType);
    }
    cell.forget_messages(dead);
    hold(road, hands, cell, &mut body);
    body
}

/// What a step under a bound has left holds its places again, and if the bound drops the oldest, these go first.
#[cold]
fn hold<H: Hands>(road: &Road, hands: &mut H, cell: &Cell, body: &mut Ready) {
    let Some(bound) = body.head.rare.as_ref().and_then(|rare| rare.bound) else { return };
    let (oldest, waiting) = cell.hold(body, bound);
    if let Some(mut oldest) = oldest {
        bury(road, hands, body.head.pid, &mut *oldest, DeadReason::DroppedOldest);
    }
    tell_of_room(waiting);
}

/// Those who wait for room in a mailbox may try again; if the process has ended, they learn it then.
fn tell_of_room(waiting: Vec<Latch<()>>) {
    for room in waiting {
        let _ = room.set(());
    }
}

/// Reports every message in a mailbox that no step will see, and drops it.
fn bury<H: Hands>(road: &Road, hands: &mut H, pid: Pid, mailbox: &mut dyn AnyMailbox, reason: DeadReason) {
    if mailbox.messages() == 0 {
        return;
    }
    hands.let_go();
    let counters = hands.counters();
    mailbox.bury(&mut |from, type_name, message| {
        road.dead_letter(counters, &DeadLetter { to: pid, from, reason, type_name, message: Some(message) });
    });
}

/// Ends a process: closes it, makes its PID name nobody, lets go of all it had, and tells those who wait.
#[inline(never)]
pub(crate) fn end<E: Engine, H: Hands>(
    engine: &E,
    hands: &mut H,
    out: &mut StepOutput,
    mut body: Ready,
    mut exit: Exit,
) {
    let road = engine.road();
    let pid = body.head.pid;
    close(hands, &mut body);
    let Some(cell) = road.table.cell(pid) else { return };
    let Vacated { inbox, watched, doom, .. } = cell.vacate();
    if let Some(reason) = doom {
        road.dooms.fetch_sub(1, Ordering::SeqCst);
        // It was terminated while its last step ran. Whoever did it was told that it was there to be ended.
        if matches!(exit, Exit::Done(())) {
            exit = Exit::Terminated(reason);
        }
    }
    if road.hook.is_some() || body.head.rare.as_ref().is_some_and(|rare| rare.cancel.is_some()) {
        // The hook, and the callbacks of those who are told that it has ended, may take their time.
        hands.let_go();
    }
    // Only now what a failed step has yielded: a reply among it tells its asker that the process has ended.
    if !out.orders.is_empty() {
        out.clear();
        // The PIDs of children that were never born: no more than this output may keep.
        while out.stock.len() > road.stock {
            out.stock.pop().into_iter().for_each(|vacancy| road.table.give_back(vacancy));
        }
    }
    if body.head.rare.is_some() {
        engine.ended(&mut body.head);
    }
    bury(road, hands, pid, body.machine.left(), DeadReason::Ended);
    if let Some(mut inbox) = inbox {
        bury(road, hands, pid, &mut *inbox, DeadReason::Ended);
        tell_of_room(inbox.take_waiting());
        inbox.drop_signals();
    }
    body.machine.mailbox().drop_signals();
    let counters = hands.counters();
    counters.ended(&exit);
    told_of_exit(road, &body, &exit);
    let last_word = body.machine.last_word(&exit);
    out.spares.keep(body);
    drop_contained(exit);
    match pid.successor() {
        Some(next) if out.stock.len() < road.stock => out.stock.push(next),
        _ => road.table.give_back_after(pid),
    }
    if let Some(last_word) = last_word {
        last_word();
    }
    if watched {
        road.roll.strike();
    }
}

/// A panic that nobody expected has come through a turn and taken the body with it: the process ends, as far as it can
/// without one. What it had yielded is not sent by the next.
#[cold]
pub(crate) fn body_lost<E: Engine, H: Hands>(engine: &E, hands: &mut H, out: &mut StepOutput, pid: Pid, panic: Panic) {
    let road = engine.road();
    tell_log(|| tracing::error!(%pid, %panic, "a panic in the runtime has ended a process"));
    hands.let_go();
    out.clear();
    drop_contained(out.failure.take());
    drop_contained(out.successor.take());
    let Some((cell, Vacated { inbox, watched, doom, queued })) =
        road.table.cell(pid).and_then(|cell| Some((cell, cell.vacate_lost(pid)?)))
    else {
        return;
    };
    if doom.is_some() {
        road.dooms.fetch_sub(1, Ordering::SeqCst);
    }
    engine.forget(pid);
    let mut unseen = queued;
    if let Some(mut inbox) = inbox {
        unseen = unseen.saturating_sub(inbox.messages() as u32);
        bury(road, hands, pid, &mut *inbox, DeadReason::Ended);
        tell_of_room(inbox.take_waiting());
        inbox.drop_signals();
    }
    // Those that were in the body are gone; they are counted all the same.
    let counters = hands.counters();
    counters.dead(DeadReason::StepFailed, u64::from(unseen));
    let exit = Exit::Panicked(panic);
    counters.ended(&exit);
    road.tell_hook(|hook| hook.exited(&ProcessRef { pid, type_name: cell.last_type(), name: None }, &exit));
    road.table.give_back_after(pid);
    if watched {
        road.roll.strike();
    }
}

fn told_of_exit(road: &Road, body: &Ready, exit: &Exit) {
    let level = match exit {
        Exit::Done(()) => tracing::Level::DEBUG,
        Exit::Terminated(_) => tracing::Level::INFO,
        Exit::Failed(_) => tracing::Level::WARN,
        Exit::Panicked(_) => tracing::Level::ERROR,
    };
    if tracing::level_enabled!(level) {
        let (pid, process) = (body.head.pid, body.machine.kind().process);
        tell_log(|| tell_exit(pid, process(), body.head.name().map(|name| &**name), exit));
    }
    if road.hook.is_some() {
        let process = reference(body);
        road.tell_hook(|hook| hook.exited(&process, exit));
    }
}

fn tell_exit(pid: Pid, process: &str, name: Option<&str>, exit: &Exit) {
    match exit {
        Exit::Done(()) => tracing::debug!(%pid, process, name, "done"),
        Exit::Terminated(reason) => tracing::info!(%pid, process, name, %reason, "terminated"),
        Exit::Failed(error) => tracing::warn!(%pid, process, name, %error, "failed"),
        Exit::Panicked(panic) => tracing::error!(%pid, process, name, message = panic.message(), "panicked"),
    }
}
