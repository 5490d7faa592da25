//! Tests of state that is not visible from outside: senders that wait for room in a mailbox, and data that the runtime
//! keeps.

use std::any::TypeId;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::Runtime;
use crate::latch::Latch;
use crate::outcome::Rejected;
use crate::primitives::thread::JoinHandle;
use crate::primitives::{Arc, AtomicUsize, Ordering, lock, thread};
use crate::process::{
    Address, AnyHandler, Command, Event, Events, Monitor, NoSuchProcessError, Overflow, Pid, Process, Reply, SendError,
    SpawnOptions, Step, StepOutput, StepResult, Subscription, Tag, TimerFired, Upgrade,
};
use crate::wait::{until, wait};

/// A process that passes over all messages until it is asked to stop. The reason of the request says what it does
/// then.
struct Picky {
    taken: Arc<AtomicUsize>,
}

impl Process for Picky {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        let mut takes = false;
        while let Some(event) = events.select(|_| takes) {
            match event {
                Event::Message(_) => {
                    self.taken.fetch_add(1, Ordering::SeqCst);
                }
                Event::Cancel(request) => match request.reason.to_string().as_str() {
                    "take" => takes = true,
                    "fail" => return Err("as it was told".into()),
                    "upgrade" => return Ok(Step::Upgrade(Upgrade::to(Picky { taken: self.taken.clone() }))),
                    _ => return Ok(Step::Done(())),
                },
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A full mailbox at rest, with this many senders that wait for room.
struct Full {
    runtime: Runtime,
    to: Address<u32>,
    taken: Arc<AtomicUsize>,
    waiting: Vec<JoinHandle<Result<(), Rejected<u32, SendError>>>>,
}

impl Full {
    fn new(room: usize, senders: usize) -> Full {
        let (runtime, taken) = (Runtime::builder().workers(1).start().unwrap(), Arc::default());
        let options = SpawnOptions::new().mailbox(room, Overflow::Refuse);
        let to = runtime.spawn_with(Picky { taken: Arc::clone(&taken) }, options).unwrap().address();
        (0..room).for_each(|_| runtime.send(to, 0).unwrap());
        // While it is stepped there is room for as many again.
        until("the receiver rests", || runtime.is_idle());
        let waiting = (0..senders)
            .map(|_| {
                let runtime = runtime.clone();
                thread::spawn(move || runtime.send_timeout(to, 1, Duration::MAX).wait())
            })
            .collect();
        let full = Full { runtime, to, taken, waiting };
        until("all senders wait", || full.waiting() == senders);
        full
    }

    fn waiting(&self) -> usize {
        self.runtime.core().road.table.cell(self.to.pid()).unwrap().waiting()
    }

    /// Makes the process take all messages, until it has taken this many.
    fn is_emptied(&self, messages: usize) {
        until("all messages are taken", || {
            // An event that comes with one request is passed over again, and taken with the next.
            self.runtime.cancel(self.to.pid(), "take").unwrap();
            until("the receiver rests", || self.runtime.is_idle());
            self.taken.load(Ordering::SeqCst) == messages
        });
    }

    /// Waits for all senders. Returns how many messages were accepted. The others came back.
    fn accepted(&mut self) -> usize {
        let sent = self.waiting.drain(..).map(|sender| wait(sender).unwrap());
        sent.filter(|sent| match sent {
            Ok(()) => true,
            Err(refused) => {
                assert_eq!(refused.reason(), &SendError::NoSuchProcess(NoSuchProcessError::Pid(self.to.pid())));
                false
            }
        })
        .count()
    }
}

#[test]
fn senders_that_wait_for_room_are_told_of_every_kind_of_end() {
    let ends: [fn(&Full) -> bool; 4] = [
        |full| full.runtime.cancel(full.to.pid(), "be done").unwrap(),
        |full| full.runtime.cancel(full.to.pid(), "fail").unwrap(),
        |full| full.runtime.terminate(full.to.pid()).unwrap(),
        |full| full.runtime.shutdown(Duration::ZERO).is_ok(),
    ];
    for end in ends {
        let mut full = Full::new(2, 3);
        assert!(end(&full));
        assert_eq!(full.accepted(), 0);
    }
}

#[test]
fn taking_passed_over_messages_notifies_waiting_senders() {
    for (room, senders) in [(2, 1), (2, 2)] {
        let mut full = Full::new(room, senders);
        // One step takes them all. No later step could notify the senders.
        full.runtime.cancel(full.to.pid(), "take").unwrap();
        assert_eq!(full.accepted(), senders);
    }
    let mut full = Full::new(1, 3);
    full.is_emptied(4);
    assert_eq!(full.accepted(), 3);
}

#[test]
fn senders_that_wait_for_room_are_told_when_the_mailbox_is_replaced() {
    let mut full = Full::new(2, 2);
    full.runtime.cancel(full.to.pid(), "upgrade").unwrap();
    full.is_emptied(4);
    assert_eq!(full.accepted(), 2);
}

/// A process that takes all messages in each step, and then waits for the next gate.
struct Slow {
    begun: Latch<()>,
    gates: Vec<Latch<()>>,
}

impl Process for Slow {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        let Some(gate) = self.gates.pop() else { return Ok(Step::Done(())) };
        let _ = self.begun.set(());
        wait(&gate);
        Ok(Step::Idle)
    }
}

#[test]
fn waiting_senders_are_notified_when_a_step_gets_its_messages() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (begun, first, second) = (Latch::new(), Latch::new(), Latch::new());
    let slow = Slow { begun: begun.clone(), gates: vec![second.clone(), first.clone()] };
    let slow = runtime.spawn_with(slow, SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    let (to, sender) = (slow.address(), runtime.clone());
    wait(&begun);
    runtime.send(to, 1).unwrap();
    let waiting = thread::spawn(move || sender.send_timeout(to, 2, Duration::MAX).wait());
    until("the sender waits", || runtime.core().road.table.cell(to.pid()).unwrap().waiting() == 1);
    first.set(()).unwrap();
    wait(waiting).unwrap().unwrap();
    second.set(()).unwrap();
    assert!(wait(&slow).is_done());
}

/// A process that keeps all replies.
struct Keeper(Vec<Reply<()>>);

impl Process for Keeper {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<()>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => self.0.push(reply),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    }
}

const MANY: usize = 2_000;

#[test]
fn nothing_is_kept_for_senders_that_have_given_up_waiting_for_room() {
    let full = Full::new(1, 0);
    for _ in 0..MANY {
        assert!(full.runtime.send_timeout(full.to, 1, Duration::ZERO).wait().is_err());
    }
    assert_eq!(full.waiting(), 0);
    let mut futures: Vec<_> = (0..MANY).map(|_| full.runtime.send_timeout(full.to, 1, Duration::MAX)).collect();
    for future in &mut futures {
        assert!(Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(full.waiting(), MANY);
    drop(futures);
    assert_eq!((full.waiting(), full.runtime.core().timers.pending()), (0, 0));
    let (kept, _thread) = full.runtime.core().timers.halt();
    assert_eq!(kept.len(), 0, "what the timers keep for sends that are over");
}

#[test]
fn nothing_is_kept_for_questions_from_outside_that_are_over() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let keeper = runtime.spawn(Keeper(Vec::new())).unwrap();
    let to = keeper.address();
    for _ in 0..MANY {
        // Given up by a sleeping thread, and by a future.
        runtime.ask(to, |reply| reply, Duration::ZERO).wait().unwrap_err();
        for limit in [Duration::from_secs(3_600), Duration::MAX] {
            let mut asking = runtime.ask(to, |reply| reply, limit);
            assert!(Pin::new(&mut asking).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }
    // Answered while the thread sleeps, because the keeper ends.
    let asking = thread::spawn({
        let runtime = runtime.clone();
        move || runtime.ask(to, |reply| reply, Duration::MAX).wait()
    });
    until("all are asked", || runtime.stats().messages.stepped == 3 * MANY as u64 + 1);
    runtime.cancel(keeper.pid(), "over").unwrap();
    wait(asking).unwrap().unwrap_err();
    wait(&keeper);
    let (kept, _thread) = runtime.core().timers.halt();
    assert_eq!(kept.len(), 0, "what the timers keep for questions that are over");
}

/// The sizes of everything that a runtime keeps for its processes.
fn kept(runtime: &Runtime) -> [usize; 7] {
    let core = runtime.core();
    [
        core.names.all().len(),
        core.groups.len(),
        core.relations.len(),
        core.timers.pending(),
        lock(&core.pool_steps).len(),
        lock(&core.for_pool).len(),
        core.over.children(),
    ]
}

/// Is done when it receives an event.
struct Waits;

impl Process for Waits {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    }
}

/// A process that takes everything that it can give back, and gives it back in its next step.
struct Fickle {
    other: Pid,
    rounds: usize,
    taken: Option<(Monitor, Subscription, Tag<TimerFired>)>,
}

impl Process for Fickle {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        if self.rounds == 0 {
            return Ok(Step::Idle);
        }
        let (me, round) = (out.pid(), self.rounds.to_string());
        if let Some((monitor, subscription, timer)) = self.taken.take() {
            out.unregister(round.as_str());
            out.leave_group(round.as_str(), me);
            out.unsubscribe(subscription);
            out.demonitor(monitor);
            out.unlink(self.other);
            out.cancel_timer(timer);
            self.rounds -= 1;
            return Ok(Step::Continue);
        }
        out.register(round.as_str(), me);
        out.join_group(round.as_str(), me);
        out.link(self.other);
        let timer = out.after(Duration::from_secs(3_600));
        self.taken = Some((out.monitor(self.other), out.subscribe(round), timer));
        Ok(Step::Continue)
    }
}

#[test]
fn nothing_is_kept_of_what_a_living_process_has_given_back() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let other = runtime.spawn(Waits).unwrap();
    let before = kept(&runtime);
    let fickle = runtime.spawn(Fickle { other: other.pid(), rounds: MANY, taken: None }).unwrap();
    until("the rounds are over", || runtime.is_idle());
    assert!(runtime.process(fickle.pid()).is_some_and(|info| info.steps >= 2 * MANY as u64));
    assert_eq!((kept(&runtime), before), ([0; 7], [0; 7]));
}

#[test]
fn refused_and_revoked_relations_leave_nothing_behind() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (ended, living) = (runtime.spawn(Waits).unwrap(), runtime.spawn(Waits).unwrap());
    runtime.send(ended.address(), ()).unwrap();
    wait(&ended);
    for n in 0..MANY {
        let name = n.to_string();
        runtime.register(format!("never {n}"), ended.pid()).unwrap_err();
        runtime.join_group(format!("never {n}"), ended.pid()).unwrap_err();
        drop(runtime.watch(ended.pid()));
        runtime.register(name.as_str(), living.pid()).unwrap();
        runtime.join_group(name.as_str(), living.pid()).unwrap();
        drop(runtime.watch(living.pid()));
        assert_eq!(runtime.unregister(&name), Some(living.pid()));
        assert!(runtime.leave_group(&name, living.pid()));
    }
    assert_eq!(kept(&runtime), [0; 7]);
}

/// A process that yields blocking work, waits, and is done in a blocking step. It does not wait for the work that it
/// yields with its end.
struct Works(usize, bool);

impl Process for Works {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        self.0 -= events.count();
        if self.0 == 3 {
            for _ in 0..3 {
                out.blocking(|| ());
            }
            return Ok(Step::Wait);
        }
        if self.0 > 0 {
            return Ok(Step::Wait);
        }
        if !self.1 {
            self.1 = true;
            return Ok(Step::Blocking);
        }
        out.blocking(|| ());
        Ok(Step::Done(()))
    }
}

#[test]
fn nothing_is_kept_for_blocking_work_that_is_done() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let all: Vec<_> = (0..200).map(|_| runtime.spawn(Works(3, false)).unwrap()).collect();
    all.iter().for_each(|process| assert!(wait(process).is_done()));
    until("the last work is done", || runtime.is_idle());
    assert_eq!(kept(&runtime), [0; 7]);
}

/// A process that monitors this many children from their birth.
struct Watches(usize);

impl Process for Watches {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(Event::Message(())) = events.next() {
            for _ in 0..self.0 {
                let other = out.spawn_with(Waits, SpawnOptions::new().monitor())?;
                out.join_group("all", other.pid());
            }
            return Ok(Step::Idle);
        }
        Ok(Step::Idle)
    }
}

#[test]
fn room_for_very_many_relations_goes_with_them() {
    const RELATED: usize = 32_000;
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let watches = runtime.spawn(Watches(RELATED)).unwrap();
    runtime.send(watches.address(), ()).unwrap();
    until("all are there", || runtime.stats().processes == RELATED as u64 + 1 && runtime.is_idle());
    let before = runtime.core().relations.capacity();
    assert!(before >= RELATED);
    assert_eq!(runtime.broadcast("all", ()), RELATED);
    until("all have ended", || runtime.stats().processes == 1 && runtime.is_idle());
    assert_eq!(kept(&runtime), [0; 7]);
    assert!(runtime.core().relations.capacity() < before / 2);
}

/// A process that traps exits, and keeps the replies that it receives.
struct Keeps(Vec<Reply<()>>);

impl Process for Keeps {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<()>>, out: &mut StepOutput) -> StepResult<()> {
        out.trap_exits(true);
        self.0.extend(events.filter_map(|event| match event {
            Event::Message(reply) => Some(reply),
            _ => None,
        }));
        Ok(Step::Idle)
    }
}

/// A process that takes everything that a state machine can take, and then fails, in several rounds.
struct Frail {
    other: Address<Reply<()>>,
    rounds: usize,
    has_all: bool,
}

impl Process for Frail {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        if self.has_all {
            return Err("it has all of it".into());
        }
        self.has_all = self.rounds > 0;
        if self.has_all {
            let me = out.pid();
            for _ in 0..2 {
                out.monitor(self.other.pid());
                out.join_group("group", me);
                out.subscribe("group");
                out.after(Duration::from_secs(3_600));
                out.ask(self.other, |reply| reply, Duration::from_secs(3_600));
            }
            out.link(self.other.pid());
            return Ok(Step::Continue);
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &crate::outcome::Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Frail { other: self.other, rounds: self.rounds - 1, has_all: false }))
    }
}

#[test]
fn a_thousand_recoveries_leave_nothing_behind() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let other = runtime.spawn(Keeps(Vec::new())).unwrap();
    let frail = runtime.spawn(Frail { other: other.address(), rounds: 1_000, has_all: false }).unwrap();
    until("the rounds are over", || runtime.is_idle());
    assert!(runtime.process(frail.pid()).is_some_and(|info| info.steps >= 2_000));
    assert_eq!(kept(&runtime), [0; 7]);
}

/// A map that cannot change, and so needs no lock. With a lock around it or in it, this would not compile.
#[test]
fn handlers_are_looked_up_in_a_map_without_a_lock() {
    struct Question;
    impl Command for Question {
        type Output = ();
    }
    let runtime = Runtime::builder().workers(1).handler(|_: Question, _| Ok(())).start().unwrap();
    let handlers: &HashMap<TypeId, AnyHandler> = &runtime.core().handlers;
    assert!(handlers.contains_key(&TypeId::of::<Question>()));
}

#[test]
fn a_count_between_messages_does_not_divide_them() {
    use crate::sched::body::StepOutput;
    use crate::sched::orders::Order;

    for has_figures in [true, false] {
        let builder = Runtime::builder().workers(1);
        let builder = if has_figures { builder.metrics(crate::runtime::MetricsOptions::new()) } else { builder };
        let (runtime, _workers) = builder.by_hand();
        let mut out = StepOutput::new(runtime.core().clone());
        for n in 0..100_u32 {
            out.send(crate::pid::Pid::FIRST, n);
            out.count("sent", 2);
        }
        assert!(matches!(out.orders.newest(), [Order::Send { count: 100, .. }]));
        assert_eq!(out.counted, if has_figures { vec![("sent", 200)] } else { Vec::new() });
        out.clear();
        assert!(out.counted.is_empty());
    }
}
