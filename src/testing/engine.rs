//! The engine of a driven process. It records yields instead of carrying them out.
//!
//! The process is stepped by the runtime's own turn (`src/sched/turn.rs`), and its body rests in a cell. There are no
//! other processes. Messages, children and commands are recorded for the test.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use super::notes::{NotedSend, Notes};
use crate::cancel::CancelToken;
use crate::clock::{Clock, ManualClock};
use crate::name_table::Names;
use crate::outcome::{Exit, Failure, Reason, drop_contained};
use crate::primitives::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, Weak, lock};
use crate::process::handler::BoxedCommand;
use crate::process::output_answer::OutputAnswer;
use crate::process::{
    Answer, Bond, CancelRequest, CommandError, Completion, DeadLetter, Duty, NameError, Naming, Pid, Recovered, Relate,
    SendError, SpawnError, TimerFired,
};
use crate::sched::body::{Head, Host, LimitedCommand, Ready, SendRequest, Stage, StartReport, Yield};
use crate::sched::cell::Cell;
use crate::sched::engine::Engine;
use crate::sched::feeds::FeedHost;
use crate::sched::mailbox::Unwanted;
use crate::sched::outbox::Outbox;
use crate::sched::polling::{attach_feed, drop_future};
use crate::sched::queue::Queues;
use crate::sched::resident_waker::PollRequests;
use crate::sched::residents::{BoxedFuture, Residents};
use crate::sched::road::{Executor, OutsideExecutor, Road};
use crate::sched::table::Table;
use crate::timer::{TimerId, Timers};

/// The number of PIDs for the children of one process. The PIDs for the next process's children follow.
const CHILDREN: usize = 1_000;

/// Steps one process without a runtime.
pub(super) struct TestEngine {
    pub(super) road: Road,
    pid: Pid,
    seed: u64,
    pub(super) timers: Timers,
    /// The body of the process, if its next step would run on the pool. A ready body is in the queue of the road.
    pub(super) on_pool: Mutex<Option<Ready>>,
    /// The driver's notes during a turn. Empty at other times.
    pub(super) notes: Mutex<Notes>,
    /// Cancels the blocking closures of the process.
    cancel: Mutex<CancelToken>,
    next_child: AtomicUsize,
    pub(super) shuts_down: AtomicBool,
    names: Names,
    /// The members are sorted, as in a runtime.
    groups: Mutex<HashMap<Arc<str>, Vec<Pid>>>,
    me: Weak<TestEngine>,
}

impl TestEngine {
    /// Makes an engine for the process with this PID. A step is given at most `step_events` new events.
    pub(super) fn new(manual: &ManualClock, pid: Pid, step_events: u32, seed: u64) -> Arc<TestEngine> {
        let clock = manual.clock();
        let table = Table::of_one(pid).expect("a PID has a node in range");
        Arc::new_cyclic(|me| TestEngine {
            road: Road::new(table, Queues::new(0).0, 0, clock.clone(), step_events),
            pid,
            seed,
            timers: Timers::new(clock.clone(), "testing-timers"),
            on_pool: Mutex::default(),
            notes: Mutex::default(),
            cancel: Mutex::new(CancelToken::with_clock(clock)),
            next_child: AtomicUsize::new(pid.slot() as usize * CHILDREN % Pid::MAX_SLOT as usize + 1),
            shuts_down: AtomicBool::new(false),
            names: Names::default(),
            groups: Mutex::default(),
            me: me.clone(),
        })
    }

    pub(super) fn cell(&self) -> &Cell {
        self.road.table.cell(self.pid).expect("the cell was made with the engine")
    }

    pub(super) fn executor(&self) -> OutsideExecutor<'_> {
        OutsideExecutor { road: &self.road }
    }

    /// Takes the body, ready or at rest, with everything that has arrived for it.
    pub(super) fn take_body(&self) -> Option<Ready> {
        let ready = self.road.queues.take_one().or_else(|| lock(&self.on_pool).take());
        let mut body = ready.or_else(|| self.cell().take_resting())?;
        if self.cell().hand_over(&mut body).is_some()
            && let Some(rare) = &mut body.head.rare
        {
            // The turn does not find these events in the cell.
            rare.only_polls = false;
        }
        Some(body)
    }

    pub(super) fn cancel_token(&self) -> CancelToken {
        lock(&self.cancel).clone()
    }

    fn note<T>(&self, write: impl FnOnce(&mut Notes) -> T) -> T {
        write(&mut lock(&self.notes))
    }

    /// Changes names or groups for a process. All processes count as alive here.
    pub(super) fn name(&self, naming: Naming) -> Answer {
        let refused = |why| CommandError::Failed(Failure::new(why));
        let groups = &mut *lock(&self.groups);
        match naming {
            Naming::Register { name, pid } => {
                self.names.register(&name, pid, || true).map(|()| Box::new(()) as _).map_err(refused)
            }
            Naming::Unregister { name } => Ok(Box::new(self.names.unregister(&name))),
            Naming::Join { group, .. } if group.is_empty() => Err(refused(NameError::Empty)),
            Naming::Join { group, pid } => {
                let members = groups.entry(group).or_default();
                members.insert(members.partition_point(|other| *other <= pid), pid);
                Ok(Box::new(()))
            }
            Naming::Leave { group, pid } => {
                let members = groups.entry(group).or_default();
                let place = members.iter().position(|other| *other == pid);
                place.map(|place| members.remove(place));
                Ok(Box::new(place.is_some()))
            }
        }
    }

    /// Takes a future into the body in hand.
    fn host_future(&self, body: &mut Ready, tag: u64, future: BoxedFuture, limit: Duration) {
        if body.head.stage == Stage::Done {
            return drop_contained(future);
        }
        let (pid, me) = (body.head.pid, self.me.clone());
        let residents = body.head.prepared().residents.get_or_insert_with(|| Box::new(Residents::new(pid, me)));
        let waker = residents.admit(tag, future).clone();
        self.note(|notes| {
            notes.futures.retain(|waker| !waker.is_over());
            notes.futures.push(waker.clone());
        });
        if limit < Duration::MAX
            && let Ok(Some(key)) = self.timers.after(limit, Box::new(move || waker.expire()))
        {
            residents.set_timer(key.id());
        }
    }

    /// Records the groups that the process itself has joined.
    fn note_own_group(&self, naming: &Naming) {
        self.note(|notes| match naming {
            Naming::Join { group, pid } if *pid == self.pid => notes.own_groups.push(group.clone()),
            Naming::Leave { group, pid } if *pid == self.pid => {
                let place = notes.own_groups.iter().position(|own| own == group);
                place.map(|place| notes.own_groups.swap_remove(place));
            }
            _ => {}
        });
    }

    fn duty(&self, tag: u64) -> Arc<Duty> {
        let host = self.me.upgrade().expect("the engine lives while it performs yields");
        Duty::new(host, self.pid, tag, self.cancel_token())
    }

    fn note_command(&self, tag: u64, command: BoxedCommand, limit: Duration) {
        let duty = self.duty(tag);
        self.set_limit(&duty, limit);
        self.note(|notes| notes.commands.push_back((duty, command)));
    }

    fn set_limit(&self, duty: &Arc<Duty>, limit: Duration) {
        let late = Arc::downgrade(duty);
        let time_out = move || late.upgrade().into_iter().for_each(|duty| duty.time_out());
        if let Ok(Some(key)) = self.timers.after(limit, Box::new(time_out)) {
            duty.set_timer(key.id());
        }
    }

    fn note_send(&self, request: SendRequest) {
        let SendRequest { to, limit, send } = request;
        let tag = send.number();
        let to = match to {
            Ok(to) => to,
            Err(why) => return self.answer(self.pid, tag, send.handed_back(why.into())),
        };
        let noted = Arc::new(NotedSend { to, tag, send: Mutex::new(Some(send)) });
        let (late, engine) = (Arc::downgrade(&noted), self.me.clone());
        let time_out = move || {
            if let (Some(noted), Some(engine)) = (late.upgrade(), engine.upgrade()) {
                engine.refuse_send(&noted, SendError::Full { pid: noted.to, limit: 0 });
            }
        };
        drop(self.timers.after(limit, Box::new(time_out)));
        self.note(|notes| notes.sends.push_back(noted));
    }

    /// Hands a message that waits for room back to the process. Returns whether it waited.
    pub(super) fn refuse_send(&self, noted: &NotedSend, why: SendError) -> bool {
        let send = lock(&noted.send).take();
        send.map(|send| self.answer(self.pid, noted.tag, send.handed_back(why))).is_some()
    }

    fn cancel_command(&self, tag: u64) {
        let send = self.note(|notes| notes.sends.iter().find(|noted| noted.tag == tag).cloned());
        if let Some(noted) = send {
            self.refuse_send(&noted, SendError::Full { pid: noted.to, limit: 0 });
            return;
        }
        let (duty, ask) = self.note(|notes| {
            let ask = notes.asks.iter().find(|ask| ask.tag() == Some(tag)).cloned();
            (notes.duty(tag), ask)
        });
        let cancelled = CommandError::Cancelled(Reason::Cancelled);
        match (duty, ask) {
            (Some(duty), _) if duty.give_up() => {
                self.answer(self.pid, tag, Err(cancelled));
                duty.stop_work(Reason::Cancelled);
            }
            (Some(_), _) => {}
            (None, Some(ask)) => ask.give_up(cancelled),
            (None, None) => self.cancel_timer(tag),
        }
    }

    fn cancel_timer(&self, tag: u64) {
        let key = self.note(|notes| notes.timers.remove(&tag));
        if key.is_some_and(|key| key.is_none_or(|key| self.timers.cancel(key).is_some())) {
            self.answer(self.pid, tag, Err(CommandError::Cancelled(Reason::Cancelled)));
        }
    }

    fn send(&self, outbox: &mut Outbox, lane: u32, count: u32, to: Pid) {
        let sent =
            (0..count).filter_map(|_| outbox.lane(lane).pop()).map(|popped| (to, popped.message, popped.type_name));
        self.note(|notes| notes.sent.extend(sent));
    }
}

impl Engine for TestEngine {
    fn road(&self) -> &Road {
        &self.road
    }

    fn deliver<H: Executor>(&self, outbox: &mut Outbox, (lane, count): (u32, u32), (_, to): (Pid, Pid), _: &mut H) {
        self.send(outbox, lane, count, to);
    }

    /// Records a child. The child is never stepped. A process that waits for the child's `init` goes on.
    fn spawned(&self, mut child: Ready) -> Option<Ready> {
        let pid = child.head.pid;
        if child.head.rare.as_ref().is_some_and(|rare| rare.is_helper) {
            self.note(|notes| notes.helpers.push(child));
            return None;
        }
        if let Some(name) = child.head.name() {
            drop(self.name(Naming::Register { name: name.clone(), pid }));
        }
        let rare = child.head.rare.as_ref();
        let bond = rare.and_then(|rare| rare.bond);
        let begun = rare.and_then(|rare| rare.begun);
        let run = child.head.take_answer().and_then(OutputAnswer::hand_over);
        self.note(|notes| {
            notes.runs.extend(run.map(|duty| (duty, pid)));
            if let Some(bond) = bond {
                notes.monitors.extend(bond.monitor);
                notes.links.extend(bond.link.then_some(pid));
            }
            notes.spawned.push_back(child);
        });
        if let Some(StartReport { tag, answer, .. }) = begun {
            self.answer(self.pid, tag, Ok(answer(pid, bond.and_then(|bond| bond.monitor))));
        }
        None
    }

    fn perform<H: Executor>(&self, one: Yield, body: &mut Ready, outbox: &mut Outbox, executor: &mut H) {
        let pid = body.head.pid;
        match one {
            Yield::Ask { lane, to, ask, limit } => {
                let late = ask.clone();
                let timer = self.timers.after(limit, Box::new(move || late.give_up(CommandError::TimedOut)));
                if let Ok(Some(key)) = timer {
                    ask.set_timer(key.id());
                }
                body.head.rare().asked.note(ask.clone());
                self.note(|notes| notes.asks.push(ask));
                self.send(outbox, lane, 1, to);
            }
            Yield::Broadcast { lane, to } => to.iter().for_each(|to| self.send(outbox, lane, 1, *to)),
            Yield::SendNowhere { lane, .. } => self.send(outbox, lane, 1, Host::nobody(self)),
            Yield::Refused { tag, why } => self.answer(pid, tag, Err(*why)),
            Yield::Reply(reply) => {
                if let Some((to, completion)) = reply.send(self, pid, || ()) {
                    self.road.complete(&mut self.executor(), to, completion);
                }
            }
            Yield::Blocking { tag, work } => {
                let duty = self.duty(tag);
                self.note(|notes| notes.blocking.push_back((duty, work)));
            }
            Yield::Timer { tag, delay } => {
                let engine = self.me.clone();
                let fire = move || {
                    if let Some(engine) = engine.upgrade() {
                        engine.answer(pid, tag, Ok(Box::new(TimerFired)));
                    }
                };
                let key = self.timers.after(delay, Box::new(fire)).ok().flatten();
                self.note(|notes| notes.timers.insert(tag, key));
            }
            Yield::CancelTimer { tag } => self.cancel_timer(tag),
            Yield::Command { tag, command } => self.note_command(tag, command, Duration::MAX),
            Yield::CommandTimeout(limited) => {
                let LimitedCommand { tag, command, limit } = *limited;
                self.note_command(tag, command, limit);
            }
            Yield::CancelCommand { tag } => match body.head.residents().and_then(|residents| residents.remove(tag)) {
                Some(future) => {
                    drop_future(self, future);
                    self.answer(pid, tag, Err(CommandError::Cancelled(Reason::Cancelled)));
                }
                None => self.cancel_command(tag),
            },
            Yield::BeginRun { duty, limit } => self.set_limit(&duty, limit),
            Yield::SendTimeout(request) => self.note_send(*request),
            Yield::Entrust { tag, entrust } => {
                let duty = self.duty(tag);
                self.note(|notes| notes.retries.push(duty.clone()));
                entrust(duty);
            }
            Yield::Future { tag, future, limit } => self.host_future(body, tag, future, limit),
            Yield::Feed(feed) => attach_feed(executor, body, feed, self.me.clone()),
            Yield::CancelFuture { tag } => {
                if let Some(future) = body.head.residents().and_then(|residents| residents.remove(tag)) {
                    drop_future(self, future);
                    self.answer(pid, tag, Err(CommandError::Cancelled(Reason::Cancelled)));
                }
            }
            Yield::Cancel { tag, to, request } => {
                let (reason, limit) = *request;
                let deadline = limit.and_then(|limit| self.road.clock.deadline(limit).0);
                self.note(|notes| notes.cancelled.push((to, CancelRequest { reason, deadline })));
                self.answer(pid, tag, Ok(Box::new(true)));
            }
            Yield::Terminate { tag, to } => {
                self.note(|notes| notes.terminated.push(to));
                self.answer(pid, tag, Ok(Box::new(true)));
            }
            Yield::Naming { tag, naming } => {
                self.note_own_group(&naming);
                self.answer(pid, tag, self.name(*naming));
            }
            // The turn handles these itself.
            Yield::Spawn(_) | Yield::Relate(_) | Yield::Drawn | Yield::Performed => {}
        }
    }

    fn relate<H: Executor>(&self, relate: Relate, _: &mut Ready, _: &mut H) -> Option<Unwanted> {
        let notes = &mut *lock(&self.notes);
        match relate {
            Relate::Monitor(monitor) => notes.monitors.push(monitor),
            Relate::Demonitor(monitor) => {
                notes.monitors.retain(|one| *one != monitor);
                return Some(Unwanted::Down(monitor));
            }
            Relate::Link(pid) if notes.links.contains(&pid) => {}
            Relate::Link(pid) => notes.links.push(pid),
            Relate::Unlink(pid) => {
                notes.links.retain(|one| *one != pid);
                return Some(Unwanted::Exit(pid));
            }
            Relate::TrapExits(trap) => notes.traps = trap,
            Relate::Subscribe(subscription) => notes.subscriptions.push(subscription),
            Relate::Unsubscribe(subscription) => {
                notes.subscriptions.retain(|one| *one != subscription);
                return Some(Unwanted::Group(subscription.id()));
            }
        }
        None
    }

    // Does nothing. Only a child has relations, a name or groups from its start, and children are not stepped.
    fn bond(&self, _: Pid, _: Bond) {}

    fn tell_related<H: Executor>(&self, _: Pid, _: &Exit, _: &mut H) {}

    fn begins(&self, _: &mut Head) -> Result<(), SpawnError> {
        Ok(())
    }

    fn joins<H: Executor>(&self, _: Vec<Arc<str>>, _: Pid, _: &mut H) {}

    fn abandons(&self, head: &mut Head) {
        let mut gone = self.note(std::mem::take);
        self.note(|notes| {
            std::mem::swap(&mut notes.sent, &mut gone.sent);
            std::mem::swap(&mut notes.spawned, &mut gone.spawned);
            std::mem::swap(&mut notes.cancelled, &mut gone.cancelled);
            std::mem::swap(&mut notes.terminated, &mut gone.terminated);
        });
        gone.duties().for_each(|duty| _ = duty.give_up());
        for key in gone.timers.drain().filter_map(|(_, key)| key) {
            self.timers.cancel(key);
        }
        for ask in gone.asks.drain(..) {
            drop(ask.decide(CommandError::Dropped));
        }
        for group in gone.own_groups.drain(..) {
            drop(self.name(Naming::Leave { group, pid: head.pid }));
        }
        drop(gone);
        let next = CancelToken::with_clock(self.road.clock.clone());
        let cancel = std::mem::replace(&mut *lock(&self.cancel), next);
        cancel.cancel(Reason::Ended);
    }

    fn recovers<H: Executor>(&self, _: &Recovered, _: &Ready, _: &mut H) -> bool {
        false
    }

    fn ended(&self, _: &mut Head) {}

    fn forget_limit(&self, timer: TimerId) {
        drop(self.timers.take_back(timer));
    }

    fn to_pool(&self, ready: Ready) {
        *lock(&self.on_pool) = Some(ready);
    }
}

impl PollRequests for TestEngine {
    fn request_poll(&self, pid: Pid) {
        self.road.request_poll(pid);
    }
}

impl FeedHost for TestEngine {
    fn fed(&self, pid: Pid) -> Option<bool> {
        self.road.fed(pid)
    }

    fn announce(&self, is_woken: bool) {
        self.road.announce(is_woken);
    }
}

impl Host for TestEngine {
    fn answer_from(&self, from: Option<Pid>, to: Pid, tag: u64, answer: Answer) {
        self.road.complete(&mut self.executor(), to, Completion::from(from, tag, answer));
    }

    fn is_alive(&self, _: Pid) -> bool {
        true
    }

    fn bury_unsent(&self, letter: &DeadLetter<'_>) {
        self.road.outside.add(&self.road.outside.accepted, 1);
        self.road.dead_letter(&self.road.outside, letter);
    }

    fn late_reply(&self) {}

    fn discarded_answer(&self) {}

    fn forget_timer(&self, timer: TimerId) {
        drop(self.timers.take_back(timer));
    }

    fn holder(&self, name: &str) -> Option<Pid> {
        self.names.holder(name)
    }

    /// Always the first member, so that a test can predict it.
    fn next_member(&self, group: &str) -> Option<Pid> {
        self.group(group).first().copied()
    }

    // Does nothing. Children are not stepped.
    fn end_run(&self, _: Pid, _: Reason) {}

    fn nobody(&self) -> Pid {
        Pid::nobody(self.pid.node()).unwrap_or(Pid::FIRST)
    }

    fn counts(&self) -> bool {
        true
    }

    fn clock(&self) -> &Clock {
        &self.road.clock
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn vacancies(&self, stock: &mut Vec<Pid>) -> Result<(), SpawnError> {
        if self.is_shutting_down() {
            return Err(SpawnError::ShuttingDown);
        }
        let slot = self.next_child.fetch_add(1, Ordering::Relaxed) as u32;
        stock.push(Pid::new(self.pid.node(), slot, 1).ok_or(SpawnError::Limit { limit: slot })?);
        Ok(())
    }

    fn give_back_after(&self, _: Pid) {}

    fn is_shutting_down(&self) -> bool {
        self.shuts_down.load(Ordering::Relaxed)
    }

    fn group(&self, name: &str) -> Vec<Pid> {
        lock(&self.groups).get(name).cloned().unwrap_or_default()
    }

    fn receivers(&self, group: &str) -> Option<Arc<[Pid]>> {
        let mut members = self.group(group);
        members.dedup();
        if members.is_empty() { None } else { Some(members.into()) }
    }

    fn monitor_numbers(&self) -> Range<u64> {
        // One driver has one output, which asks once.
        1..u64::MAX
    }
}
