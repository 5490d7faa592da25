//! The core of a runtime, and how it performs the yields of a step.

use std::any::TypeId;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::simulated::SimulationHost;
use super::timed::Timed;
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::groups::{Doer, Groups};
use crate::name_table::Names;
use crate::outcome::{Exit, Reason, contain};
use crate::pool::{Pool, PoolStatus};
use crate::primitives::{Arc, AtomicU64, Mutex, Ordering, ThreadId, Weak, is_looking, lock, thread};
use crate::process::command::why_dead;
use crate::process::propagation::{Propagator, beside_step};
use crate::process::{
    Answer, AnyHandler, Ask, Bond, CancelRequest, CommandError, Completion, DeadLetter, DeadLetterReason,
    NoSuchProcessError, Pid, ProcessIdentity, Recovered, Relate, SpawnError, Target,
};
use crate::relations::Relations;
use crate::sched::body::{Head, Host, LimitedCommand, Ready, StepOutput, Yield};
use crate::sched::cell::{BY_SHUTDOWN, Missing, NO_THREAD};
use crate::sched::mailbox::{Control, Signal, Unwanted};
#[cfg(feature = "cluster")]
use crate::sched::non_local::Stop;
use crate::sched::outbox::Outbox;
use crate::sched::polling::{PollContext, attach_feed};
use crate::sched::road::{Executor, OutsideExecutor, Road};
use crate::sched::turn::{After, Engine, body_lost, identity, turn};
use crate::sched::wait_sampler::WaitSampler;
use crate::timer::{TimerId, TimerSet};

/// How many numbers for monitors a step output takes at once. All outputs share one counter. A larger share means
/// fewer accesses to it.
const MONITORS_AT_ONCE: u64 = 64;

/// The shared state of a runtime, without the threads of its workers.
pub(crate) struct Core {
    pub(crate) road: Arc<Road>,
    pub(crate) timers: TimerSet<Timed>,
    pub(crate) pool: Pool,
    pub(crate) names: Names,
    pub(crate) relations: Relations,
    pub(crate) groups: Groups,
    /// The seed of all random decisions.
    pub(crate) seed: u64,
    /// The number of the next monitor.
    pub(crate) monitors: AtomicU64,
    pub(crate) handlers: HashMap<TypeId, AnyHandler>,
    /// Blocking steps by packed PID, with the time of their beginning and their thread.
    pub(crate) pool_steps: Mutex<HashMap<u64, (Instant, ThreadId)>>,
    /// Bodies that wait for a thread of the pool, by packed PID. A termination takes them back from here.
    pub(crate) for_pool: Mutex<HashMap<u64, Ready>>,
    /// Cancelled when the limit of a shutdown is over. It cancels the blocking work of processes that are done.
    pub(crate) over: CancelToken,
    /// Surrounds polls of futures, and blocking closures.
    pub(crate) context: Option<PollContext>,
    /// The simulation that this runtime belongs to, if it belongs to one.
    pub(crate) simulation: Option<Arc<dyn SimulationHost>>,
    pub(crate) me: Weak<Core>,
}

impl Core {
    pub(crate) fn executor(&self) -> OutsideExecutor<'_> {
        OutsideExecutor { road: &self.road }
    }

    /// A shared reference, for code that outlives the call. The core has an owner while any code of it runs.
    pub(crate) fn shared(&self) -> Option<Arc<Core>> {
        self.me.upgrade()
    }

    /// The process at a target. It may have ended.
    #[inline]
    pub(crate) fn resolve(&self, target: &impl Target) -> Result<Pid, NoSuchProcessError> {
        target.named().find(|name| self.holder(name), |group| self.next_member(group), |name| self.shared_holder(name))
    }

    /// Sends a cancel request. Returns whether the process lived.
    pub(crate) fn cancel<H: Executor>(
        &self,
        executor: &mut H,
        to: Pid,
        reason: Reason,
        limit: Option<Duration>,
    ) -> Result<bool, NoSuchProcessError> {
        let deadline = limit.and_then(|limit| self.road.clock.deadline(limit).0);
        let request = Control::Cancel(CancelRequest { reason, deadline });
        match self.road.signal(executor, to, Signal::Control(request)) {
            Ok(()) => Ok(true),
            Err((Missing::Ended, _)) => Ok(false),
            Err((Missing::Never, _)) => Err(NoSuchProcessError::Pid(to)),
            Err((Missing::NotNow, _)) => Err(NoSuchProcessError::NotNow(to)),
            Err((Missing::NodeDown, _)) => Err(NoSuchProcessError::NodeDown(to)),
        }
    }

    /// Marks a process, so that it is ended instead of stepped. Returns whether it lived.
    pub(crate) fn terminate<H: Executor>(
        &self,
        executor: &mut H,
        pid: Pid,
        by_shutdown: bool,
    ) -> Result<bool, NoSuchProcessError> {
        let told = self.road.terminate(executor, pid, if by_shutdown { BY_SHUTDOWN } else { 0 });
        self.leave_pool(pid);
        told.map_err(|missing| match missing {
            Missing::NotNow => NoSuchProcessError::NotNow(pid),
            Missing::NodeDown => NoSuchProcessError::NodeDown(pid),
            Missing::Never | Missing::Ended => NoSuchProcessError::Pid(pid),
        })
    }

    /// Takes a process that is to be ended out of the queue of the pool. A worker ends it, so it needs no thread of
    /// the pool.
    pub(super) fn leave_pool(&self, pid: Pid) {
        if let Some(ready) = self.take_from_pool(pid) {
            self.road.inject(ready);
        }
    }

    pub(crate) fn take_from_pool(&self, pid: Pid) -> Option<Ready> {
        lock(&self.for_pool).remove(&pid.to_word())
    }

    /// Sends a question that a process asks, and sets the timer that ends its wait.
    fn ask<H: Executor>(
        &self,
        head: &mut Head,
        (to, lane): (Pid, u32),
        ask: Arc<Ask>,
        limit: Duration,
        outbox: &mut Outbox,
        executor: &mut H,
    ) {
        let counters = executor.counters();
        counters.add(&counters.accepted, 1);
        let mut is_refused = false;
        let may_wait = head.has_queued_sends();
        if may_wait {
            outbox.lane(lane).set_ask(Some(ask.clone()));
        }
        self.road.deliver(executor, outbox.lane(lane), 1, (head.sender(), to), |letter| {
            if let Some(why) = why_dead(letter) {
                is_refused = true;
                ask.refuse(why);
            }
        });
        if may_wait {
            outbox.lane(lane).set_ask(None);
        }
        // If it is not refused, the question is not read here. The process that answers it may be about to write it,
        // on another processor.
        if is_refused {
            // The drop of the message has answered the question, unless the reply is not in the message.
            return ask.abandon();
        }
        // Without a limit there is no timer, and the clock is not read.
        if limit < Duration::MAX {
            self.limit(&ask, limit, executor.number());
        }
        head.rare().asked.note(ask);
    }

    /// Sets the timer that ends the wait for an answer, in the part of this worker.
    pub(crate) fn limit(&self, ask: &Arc<Ask>, limit: Duration, worker: usize) {
        if ask.is_decided() {
            return;
        }
        match self.timers.after(worker, limit, Timed::Ask(ask.clone())) {
            Ok(Some(key)) => ask.set_timer(key.id()),
            Ok(None) => {}
            Err(_) => ask.give_up(CommandError::Cancelled(self.why_no_timer())),
        }
    }

    /// The reason why a timer was refused.
    pub(super) fn why_no_timer(&self) -> Reason {
        if self.timers.are_stopped() { Reason::Shutdown } else { Reason::NoThread }
    }

    /// The reason why a job was refused or dropped. While the pool runs, the only reason is the lack of a thread.
    pub(super) fn why_no_job(&self) -> Reason {
        if self.pool.status() == PoolStatus::Running { Reason::NoThread } else { Reason::Shutdown }
    }

    fn set_timer<H: Executor>(&self, body: &mut Ready, tag: u64, delay: Duration, executor: &mut H) {
        match self.timers.after(executor.number(), delay, Timed::After(body.head.pid, tag)) {
            Ok(key) => body.head.rare().timers.note(tag, key, || self.road.clock.now()),
            Err(_) => {
                let why = CommandError::Cancelled(self.why_no_timer());
                self.road.answer_in_hand(executor, body, tag, Err(why));
            }
        }
    }

    pub(super) fn cancel_timer<H: Executor>(&self, body: &mut Ready, tag: u64, executor: &mut H) {
        let Some(key) = body.head.rare.as_mut().and_then(|rare| rare.timers.remove(tag)) else { return };
        // A timer that never fires has no key, and cannot have fired.
        if key.is_none_or(|key| self.timers.cancel(key.id()).is_some()) {
            self.road.answer_in_hand(executor, body, tag, Err(CommandError::Cancelled(Reason::Cancelled)));
        }
    }
}

/// The result as the answer to a command.
fn as_answer(told: Result<bool, NoSuchProcessError>) -> Answer {
    Ok(Box::new(told?))
}

impl Engine for Core {
    fn road(&self) -> &Road {
        &self.road
    }

    fn perform<H: Executor>(&self, one: Yield, body: &mut Ready, outbox: &mut Outbox, executor: &mut H) {
        let pid = body.head.pid;
        match one {
            Yield::Ask { lane, to, ask, limit } => self.ask(&mut body.head, (to, lane), ask, limit, outbox, executor),
            Yield::Broadcast { lane, to } => {
                self.road.deliver_each(executor, outbox.lane(lane), body.head.sender(), &to)
            }
            Yield::SendNowhere { lane, why } => {
                let counters = executor.counters();
                counters.add(&counters.accepted, 1);
                let nowhere = DeadLetter::new(self.nobody(), DeadLetterReason::NoSuchName);
                let letter = DeadLetter { name: why.name(), from: Some(body.head.sender()), ..nowhere };
                self.road.bury(executor, outbox.lane(lane), 1, &letter, |_| ());
            }
            Yield::Refused { tag, why } => self.road.answer_in_hand(executor, body, tag, Err(*why)),
            Yield::Reply(reply) => {
                // The wakers of an asker outside may take long.
                if let Some((to, completion)) = reply.send(self, pid, || executor.let_go()) {
                    self.road.complete(executor, to, completion);
                }
            }
            Yield::Blocking { tag, work } => self.block(&mut body.head, tag, work, executor),
            Yield::Timer { tag, delay } => self.set_timer(body, tag, delay, executor),
            Yield::CancelTimer { tag } => self.cancel_timer(body, tag, executor),
            Yield::Command { tag, command } => self.command(body, tag, command, Duration::MAX, executor),
            Yield::CommandTimeout(limited) => {
                let LimitedCommand { tag, command, limit } = *limited;
                self.command(body, tag, command, limit, executor);
            }
            Yield::CancelCommand { tag } => self.cancel_command(body, tag, executor),
            Yield::Entrust { tag, entrust } => self.entrust(&mut body.head, tag, entrust),
            Yield::BeginRun { duty, limit } => self.begin_run(body, duty, limit, executor),
            Yield::SendTimeout(request) => self.send_timeout(body, *request, executor),
            Yield::Future { tag, future, limit } => self.host_future(body, tag, future, limit, executor),
            Yield::Feed(feed) => attach_feed(executor, body, feed, Arc::downgrade(&self.road) as _),
            Yield::CancelFuture { tag } => self.drop_future(body, tag, Reason::Cancelled, executor),
            Yield::Cancel { tag, to, request } => {
                let (reason, limit) = *request;
                #[cfg(feature = "cluster")]
                if let Some(node) = self.road.node_of(to) {
                    return self.stop_elsewhere(node, (pid, tag), to, Stop::Cancel { reason, limit });
                }
                let told = self.cancel(executor, to, reason, limit);
                self.road.answer_in_hand(executor, body, tag, as_answer(told));
            }
            Yield::Terminate { tag, to } => {
                #[cfg(feature = "cluster")]
                if let Some(node) = self.road.node_of(to) {
                    return self.stop_elsewhere(node, (pid, tag), to, Stop::Terminate);
                }
                let told = self.terminate(executor, to, false);
                self.road.answer_in_hand(executor, body, tag, as_answer(told));
            }
            Yield::Naming { tag, naming } => self.name_process(pid, tag, *naming, executor),
            // The turn performs these itself.
            Yield::Spawn(_) | Yield::Relate(_) | Yield::Drawn | Yield::Performed => {}
        }
    }

    fn relate<H: Executor>(&self, relate: Relate, body: &mut Ready, executor: &mut H) -> Option<Unwanted> {
        let pid = body.head.pid;
        let road = &*self.road;
        match relate {
            Relate::Monitor(monitor) => self.told(self.relations.monitor(road, pid, monitor), executor),
            // A durable process keeps its links when it leaves memory.
            Relate::Link(other) => self.told(self.relations.link(road, body.head.sender(), other), executor),
            Relate::Demonitor(monitor) => {
                let untold = self.relations.demonitor(road, pid, monitor);
                return (!untold).then_some(Unwanted::Down(monitor));
            }
            Relate::Unlink(other) => {
                return self.relations.unlink(road, body.head.sender(), other).1;
            }
            Relate::Subscribe(subscription) => {
                self.told(self.groups.subscribe(road, &subscription, pid), executor);
            }
            Relate::Unsubscribe(subscription) => {
                self.groups.unsubscribe(&subscription, pid);
                return Some(Unwanted::Group(subscription.id()));
            }
            Relate::TrapExits(trap) => {
                if let Some(cell) = road.table.cell(pid) {
                    cell.trap_exits(pid, trap);
                }
            }
        }
        None
    }

    fn bond(&self, child: Pid, bond: Bond) {
        self.relations.bond(&*self.road, child, bond);
    }

    fn tell_related<H: Executor>(&self, pid: Pid, exit: &Exit, executor: &mut H) {
        // The names are free before any process is notified of the end.
        self.names.ended(pid);
        self.groups.ended(&*self.road, pid, |told| self.told(told, executor));
        self.relations.ended(&*self.road, pid, exit, |told| self.told(told, executor));
    }

    #[inline]
    fn begins(&self, head: &mut Head) -> Result<(), SpawnError> {
        match &mut head.rare {
            Some(rare) if rare.name.is_some() => self.take_name(rare, head.pid),
            _ => Ok(()),
        }
    }

    fn joins<H: Executor>(&self, groups: Vec<Arc<str>>, pid: Pid, executor: &mut H) {
        for group in groups {
            // The process cannot have ended, because its body is in hand. No name is empty. So the join is not
            // refused.
            let _ = self.join_group(&group, pid, Doer::Another, executor);
        }
    }

    #[cold]
    fn abandons(&self, head: &mut Head) {
        let Some(rare) = head.rare.as_mut() else { return };
        self.take_work_back(head.pid, rare);
        // The answer is not delivered. A reply that comes from now on is late.
        rare.asked.take().for_each(|ask| drop(ask.decide(CommandError::Dropped)));
    }

    fn recovers<H: Executor>(&self, recovered: &Recovered, body: &Ready, executor: &mut H) -> bool {
        self.groups.recovered(&*self.road, recovered.pid, |told| self.told(told, executor));
        self.relations.recover(&*self.road, recovered, body, |told| self.told(told, executor))
    }

    fn ended(&self, head: &mut Head) {
        let Some(rare) = head.rare.as_mut() else { return };
        if rare.name.is_some() {
            self.names.ended(head.pid);
        }
        self.take_work_back(head.pid, rare);
        // Nobody waits for the answers any more. A reply that comes from now on is late.
        rare.asked.take().for_each(|ask| drop(ask.decide(CommandError::Dropped)));
    }

    fn in_context(&self, run: &mut dyn FnMut()) {
        match &self.context {
            Some(context) => context(run),
            None => run(),
        }
    }

    fn forget_limit(&self, timer: TimerId) {
        drop(self.timers.cancel(timer));
    }

    fn to_pool(&self, ready: Ready) {
        let Some(core) = self.shared() else { return };
        let pid = ready.head.pid;
        lock(&self.for_pool).insert(pid.to_word(), ready);
        match &self.simulation {
            Some(simulation) => simulation.blocking_step(pid),
            None => {
                let turn = PoolTurn { core, pid, begun: false };
                // A turn that is refused is dropped, and ends its process.
                let _ = self.pool.execute(move || turn.run());
            }
        }
        // A call that terminates the process marks it first, and looks into `for_pool` afterwards. This thread does
        // the reverse. So one of the two sees the other.
        if self.road.table.cell(pid).is_some_and(|cell| cell.doomed().is_some()) {
            self.leave_pool(pid);
        }
    }
}

impl Core {
    /// Ends all processes in the queues. `first` is called with each of them before its end.
    pub(super) fn reap(&self, first: impl Fn(ProcessIdentity)) {
        let Some(core) = self.shared() else { return };
        let mut out = StepOutput::new(core);
        while let Some(ready) = self.road.queues.take_any() {
            let pid = ready.head.pid;
            first(identity(&ready));
            let _ = self.road.terminate(&mut self.executor(), pid, BY_SHUTDOWN);
            // The caller may be in a step, also of another runtime.
            match beside_step(|| contain(|| turn(self, &mut self.executor(), &mut out, ready))) {
                Ok(After::Ready(ready)) => self.road.queues.push(ready),
                Ok(After::Nothing) => {}
                Err(panic) => body_lost(self, &mut self.executor(), &mut out, pid, panic),
            }
        }
        give_back(self, &mut out);
    }

    /// Sets the exits of all processes in the queues. They are ended later. Returns the calls of wakers and callbacks.
    pub(super) fn set_exits(&self) -> Vec<Box<dyn FnOnce() + Send>> {
        let mut bodies: Vec<Ready> = std::iter::from_fn(|| self.road.queues.take_any()).collect();
        let exit = Exit::Terminated(Reason::Shutdown);
        let calls = bodies.iter_mut().filter_map(|body| body.machine.last_word(&exit)?()).collect();
        bodies.into_iter().for_each(|body| self.road.queues.push(body));
        calls
    }
}

impl Host for Core {
    fn answer_from(&self, from: Option<Pid>, to: Pid, tag: u64, answer: Answer) {
        if let Some(simulation) = &self.simulation {
            simulation.answers(to, &answer);
        }
        self.road.complete(&mut self.executor(), to, Completion::from(from, tag, answer));
    }

    fn is_alive(&self, pid: Pid) -> bool {
        // A destructor calls this. If an invariant has reached for a process, and its panic drops a question, the
        // destructor must not panic as well.
        is_looking() || self.road.is_alive(pid)
    }

    #[cfg(feature = "durable")]
    fn stores(&self, process: TypeId) -> bool {
        self.road.non_local.get().is_some_and(|other| other.stores(process))
    }

    fn late_reply(&self) {
        self.road.outside.add(&self.road.outside.late_replies, 1);
    }

    #[cold]
    fn bury_unsent(&self, letter: &DeadLetter<'_>) {
        self.road.outside.add(&self.road.outside.accepted, 1);
        self.road.dead_letter(&self.road.outside, letter);
    }

    fn surround(&self, run: &mut dyn FnMut()) {
        self.in_context(run);
    }

    fn discarded_answer(&self) {
        self.road.outside.add(&self.road.outside.discarded_answers, 1);
    }

    fn forget_timer(&self, timer: TimerId) {
        drop(self.timers.cancel(timer));
    }

    fn end_run(&self, child: Pid, reason: Reason) {
        self.end_child(child, reason);
    }

    fn nobody(&self) -> Pid {
        self.road.table.nobody()
    }

    fn propagator(&self) -> Option<Arc<dyn Propagator>> {
        self.road.propagator.clone()
    }

    fn wait_sampler(&self) -> Option<WaitSampler> {
        self.road.wait_sampler()
    }

    fn counts(&self) -> bool {
        self.road.directory.is_some()
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
        let wanted = (self.road.stock / 2).max(1);
        stock.extend(std::iter::from_fn(|| self.road.table.vacancy()).take(wanted));
        // The stock is a stack, so the lowest slots are taken first.
        stock.reverse();
        if stock.is_empty() { Err(SpawnError::Limit { limit: self.road.table.limit() }) } else { Ok(()) }
    }

    fn give_back_after(&self, pid: Pid) {
        self.road.table.give_back_after(pid);
    }

    fn is_shutting_down(&self) -> bool {
        self.road.door.is_closed()
    }

    fn holder(&self, name: &str) -> Option<Pid> {
        self.names.holder(name).or_else(|| self.road.named_elsewhere(name))
    }

    #[cfg(feature = "cluster")]
    fn shared_holder(&self, name: &str) -> Option<Pid> {
        self.road.nodes.get()?.whereis(name)
    }

    fn next_member(&self, group: &str) -> Option<Pid> {
        self.groups.next_member(group)
    }

    fn group(&self, name: &str) -> Vec<Pid> {
        self.groups.members(name)
    }

    fn receivers(&self, group: &str) -> Option<Arc<[Pid]>> {
        self.groups.receivers(group)
    }

    fn monitor_numbers(&self) -> Range<u64> {
        // Ordering: Relaxed: the numbers only have to be unique.
        let first = self.monitors.fetch_add(MONITORS_AT_ONCE, Ordering::Relaxed);
        first..first + MONITORS_AT_ONCE
    }
}

/// A turn on the pool, for a step that may block. If it is dropped before it has run, its process is ended.
struct PoolTurn {
    core: Arc<Core>,
    pid: Pid,
    /// Whether this turn has begun. If it has, its drop must not take the process from the pool, because the process
    /// may wait for its next turn there.
    begun: bool,
}

impl PoolTurn {
    fn run(mut self) {
        self.begun = true;
        let Some(ready) = self.core.take_from_pool(self.pid) else { return };
        let (core, pid, key, me) = (self.core.clone(), self.pid, self.pid.to_word(), thread::current().id());
        lock(&core.pool_steps).insert(key, (core.road.clock.now(), me));
        let mut out = StepOutput::new(core.clone());
        let after = contain(|| turn(&*core, &mut core.executor(), &mut out, ready)).unwrap_or_else(|panic| {
            body_lost(&*core, &mut core.executor(), &mut out, pid, panic);
            After::Nothing
        });
        // The next turn of the same process may have begun on another thread, and at the same moment of a clock that
        // stands still.
        let mut steps = lock(&core.pool_steps);
        if steps.get(&key).is_some_and(|(_, thread)| *thread == me) {
            steps.remove(&key);
        }
        drop(steps);
        give_back(&core, &mut out);
        if let After::Ready(ready) = after {
            core.road.inject(ready);
        }
    }
}

impl Drop for PoolTurn {
    fn drop(&mut self) {
        if self.begun {
            return;
        }
        if let Some(ready) = self.core.take_from_pool(self.pid) {
            let why = if self.core.why_no_job() == Reason::NoThread { NO_THREAD } else { BY_SHUTDOWN };
            let _ = self.core.road.terminate(&mut self.core.executor(), self.pid, why);
            self.core.road.inject(ready);
        }
    }
}

/// Gives back the vacant slots of an output that is not used again.
pub(crate) fn give_back(core: &Core, out: &mut StepOutput) {
    out.stock.drain(..).for_each(|vacancy| core.road.table.give_back(vacancy));
}
