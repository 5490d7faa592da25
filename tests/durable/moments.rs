//! Moments at which a store must know what is on disk: a departure, a load, a rewind, a close.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store, StoreError};
use procession::observe::DeadLetterReason;
use procession::sync::Latch;
use procession::{CommandError, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Deserializer, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, until, wait};
use crate::worker::{Worker, WorkerMessage, end, look, open, start, stepped};

/// The PID of the only process in memory, as this runtime knows it.
fn local(runtime: &Runtime) -> Pid {
    let all = runtime.processes();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].pid
}

/// Takes the only process out of memory, which is no end of it.
fn drop_from_memory(runtime: &Runtime) {
    assert!(runtime.terminate(local(runtime)).unwrap());
}

/// Starts a run whose commits wait while the gate is closed, and begins a worker in it.
fn gated(disk: &MemoryDisk) -> (Gate, (Store, Runtime), procession::Address<WorkerMessage>) {
    let gate = Gate::default();
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(disk), gate.clone()), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, worker.address()).0, 0);
    (gate, (store, runtime), worker.address())
}

#[test]
fn a_run_begins_only_after_its_record() {
    let disk = MemoryDisk::new();
    // The opening syncs once. Then the record is written.
    disk.fail_at(1, Fault::Full);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>();
    let started = store.start(Runtime::builder().workers(1));
    assert!(matches!(started, Err(StoreError::Journal(_))), "{started:?}");
}

#[test]
fn a_load_waits_for_the_messages_that_were_in_the_mailbox() {
    let disk = MemoryDisk::new();
    let (gate, (store, runtime), worker) = gated(&disk);
    // It takes no message until its future is ready.
    store.send(worker, WorkerMessage::HangAndWait).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    gate.close();
    let receipt = store.send(worker, WorkerMessage::Set(5)).unwrap();
    until("the message waits", || runtime.is_idle());
    drop_from_memory(&runtime);
    until("the load has begun, or waits", || runtime.is_idle());
    gate.open();
    receipt.wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, worker), (5, vec!["answer".to_owned()], 1));
    end((store, runtime));
}

#[test]
fn a_load_does_not_wait_for_records_that_are_lost() {
    if !goes_ahead() {
        return;
    }
    let disk = MemoryDisk::new();
    let (gate, (store, runtime), worker) = gated(&disk);
    gate.close();
    let receipts: Vec<_> = (0..50).map(|n| store.send(worker, WorkerMessage::Set(n)).unwrap()).collect();
    stepped(&runtime);
    drop_from_memory(&runtime);
    runtime.wait_idle_timeout(LIMIT).unwrap();
    disk.crash();
    gate.open();
    assert!(matches!(receipts[49].wait(LIMIT), Err(StoreError::Lost)));
    until("it is in memory", || runtime.processes().len() == 1);
    assert_eq!(look(&runtime, worker).0, 0);
    end((store, runtime));
}

#[test]
fn an_id_is_taken_before_it_is_on_disk_and_free_when_it_is_lost() {
    let disk = MemoryDisk::new();
    let (gate, (store, runtime), _) = gated(&disk);
    gate.close();
    let first = store.begin("b", Worker::default()).unwrap();
    let second = store.begin("b", Worker::default()).unwrap();
    assert_eq!((second.was_there(), second.pid()), (true, first.pid()));
    assert!(matches!(second.wait(Duration::ZERO), Err(StoreError::Wait(_))), "it is not on disk");
    disk.crash();
    gate.open();
    for begun in [first, second] {
        assert!(matches!(begun.wait(LIMIT), Err(StoreError::Lost)));
    }
    let third = store.begin("b", Worker::default()).unwrap();
    assert!(!third.was_there(), "the first was never begun");
    third.wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, third.address()).0, 0);
    end((store, runtime));
}

#[test]
fn no_pid_is_given_twice_though_the_reservation_of_numbers_is_lost() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    gate.close();
    let lost = store.begin("lost", Worker::default()).unwrap();
    disk.crash();
    gate.open();
    assert!(matches!(lost.wait(LIMIT), Err(StoreError::Lost)));
    let mut pids = vec![lost.pid()];
    for id in ["one", "two"] {
        let begun = store.begin(id, Worker::default()).unwrap();
        begun.wait(LIMIT).unwrap();
        pids.push(begun.pid());
    }
    end((store, runtime));
    let (store, runtime) = open(&disk);
    pids.extend(["three", "four", "five"].map(|id| store.begin(id, Worker::default()).unwrap().pid()));
    end((store, runtime));
    let all = pids.len();
    pids.sort_unstable_by_key(|pid| pid.to_string());
    pids.dedup();
    assert_eq!(pids.len(), all);
}

/// As a worker, with another type of messages.
#[derive(Serialize, Deserialize)]
struct Other;

#[derive(Serialize, Deserialize)]
enum OtherMessage {
    Set(u64),
}

impl Process for Other {
    type Message = OtherMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, OtherMessage>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

impl Durable for Other {
    const NAME: &str = "other";
}

#[test]
fn a_stored_message_of_another_type_is_refused_when_the_process_is_loaded() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Set(4)).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    end((store, runtime));
    // A program that cannot know the type of its messages. The message reads as one of a worker, too.
    let store = store_in(MemoryJournal::new(&disk)).kind::<Other>();
    let (store, runtime) = store.start(Runtime::builder().workers(1)).unwrap();
    store.send(worker.pid().typed(), OtherMessage::Set(1)).unwrap().wait(LIMIT).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    end((store, runtime));
    for dead in [1, 0] {
        let (store, runtime) = open(&disk);
        runtime.wait_idle_timeout(LIMIT).unwrap();
        assert_eq!(look(&runtime, worker).0, 4);
        assert_eq!(runtime.stats().messages.dead_by_reason[&DeadLetterReason::WrongType], dead);
        end((store, runtime));
    }
}

/// The load of a slow process waits here, if there is a latch.
static SLOW: crate::wait::Mutex<Option<(Sender<()>, Latch<()>)>> = crate::wait::Mutex::new(None);

/// A process whose state is read slowly.
#[derive(Serialize)]
struct Slow {
    value: u64,
}

impl<'a> Deserialize<'a> for Slow {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Slow, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            value: u64,
        }
        let Read { value } = Read::deserialize(from)?;
        if let Some((begun, latch)) = SLOW.lock().unwrap().take() {
            begun.send(()).unwrap();
            latch.wait_timeout(LIMIT);
        }
        Ok(Slow { value })
    }
}

#[derive(Serialize, Deserialize)]
enum SlowMessage {
    Set(u64),
    Look(Reply<u64>),
}

impl Process for Slow {
    type Message = SlowMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, SlowMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(SlowMessage::Set(value)) => self.value = value,
                Event::Message(SlowMessage::Look(reply)) => out.reply(reply, self.value),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Slow {
    const NAME: &str = "slow";
}

#[test]
fn a_load_of_an_earlier_life_reads_again() {
    let disk = MemoryDisk::new();
    let both = || store_in(MemoryJournal::new(&disk)).kind::<Worker>().kind::<Slow>();
    let (store, runtime) = both().start(Runtime::builder().workers(2)).unwrap();
    let slow = store.begin("slow", Slow { value: 1 }).unwrap();
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    stepped(&runtime);
    end((store, runtime));

    let (store, runtime) = both().start(Runtime::builder().workers(2)).unwrap();
    let (begun, begins) = channel();
    let latch = Latch::new();
    *SLOW.lock().unwrap() = Some((begun, latch.clone()));
    let first = runtime.ask(slow.address(), SlowMessage::Look, LIMIT);
    wait(&begins).unwrap();
    // It has read its state. Now the store opens its journal anew.
    disk.crash();
    until("it is open again", || {
        let sent = store.send(worker.address(), WorkerMessage::Set(1));
        sent.is_ok_and(|receipt| receipt.wait(LIMIT).is_ok())
    });
    // The message is of the new life. The load must not take it for one that was lost.
    until("the journal is open again", || {
        store.send(slow.address(), SlowMessage::Set(2)).is_ok_and(|receipt| receipt.wait(LIMIT).is_ok())
    });
    latch.set(()).unwrap();
    first.wait().unwrap();
    assert_eq!(runtime.ask(slow.address(), SlowMessage::Look, LIMIT).wait().unwrap(), 2);
    end((store, runtime));
}

#[test]
fn an_error_of_the_tables_has_the_journal_opened_anew() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk);
    let [one, two] = ["one", "two"].map(|id| store.begin(id, Worker::default()).unwrap());
    two.wait(LIMIT).unwrap();
    stepped(&runtime);
    end((store, runtime));

    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let ask = |to| runtime.ask(to, WorkerMessage::Look, Duration::MAX);
    store.send(one.address(), WorkerMessage::Set(3)).unwrap();
    stepped(&runtime);
    // The answer rests on the record, so nothing is left for the writer.
    until("it is on disk", || ask(one.address()).wait().is_ok_and(|(value, ..)| value == 3));
    disk.fail_at(disk.calls(), Fault::Error);
    let answer = ask(two.address());
    until("it is loaded", || {
        clock.advance(Duration::from_millis(100));
        runtime.processes().len() == 2
    });
    assert_eq!(answer.wait().unwrap().0, 0);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_question_to_a_sleeper_of_a_closed_store_gets_an_error() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    store.close().unwrap();
    let mut answer = runtime.ask(worker, WorkerMessage::Look, Duration::MAX);
    runtime.wait_idle().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let answer = std::pin::Pin::new(&mut answer).poll(&mut context);
    assert!(matches!(answer, std::task::Poll::Ready(Err(CommandError::Dropped))), "{answer:?}");
    drop(runtime.shutdown(Duration::MAX).unwrap());
}

/// Whether the next step of a [`Picky`] passes over odd numbers, and fails.
static IS_PICKY: AtomicBool = AtomicBool::new(false);

/// Notes numbers in the order in which it takes them.
#[derive(Default, Serialize, Deserialize)]
struct Picky {
    numbers: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
enum PickyMessage {
    Number(u64),
    /// Fails each time.
    Fail,
    /// As `Fail`, and its sender waits for the reply.
    FailAsk(Reply<()>),
    /// Waits for the latch of the test, within the step.
    Hold(u64),
    Look(Reply<Vec<u64>>),
}

/// The steps that are to be held up, by the numbers of their messages.
static HOLDS: crate::wait::Mutex<Vec<Hold>> = crate::wait::Mutex::new(Vec::new());

type Hold = (u64, Sender<()>, Latch<()>);

impl Process for Picky {
    type Message = PickyMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PickyMessage>, out: &mut StepOutput) -> StepResult<()> {
        let is_picky = IS_PICKY.swap(false, Ordering::SeqCst);
        let wants = |message: &PickyMessage| !is_picky || matches!(message, PickyMessage::Number(n) if n % 2 == 0);
        while let Some(event) = events.select(wants) {
            match event {
                Event::Message(PickyMessage::Number(number)) => self.numbers.push(number),
                Event::Message(PickyMessage::Fail | PickyMessage::FailAsk(_)) => return Err("on purpose".into()),
                Event::Message(PickyMessage::Hold(number)) => {
                    let held: Vec<_> = HOLDS.lock().unwrap().extract_if(.., |(of, ..)| *of == number).collect();
                    held.into_iter().for_each(|(_, begun, latch)| {
                        begun.send(()).unwrap();
                        latch.wait_timeout(LIMIT);
                    });
                    return Ok(Step::Idle);
                }
                Event::Message(PickyMessage::Look(reply)) => out.reply(reply, self.numbers.clone()),
                _ => {}
            }
        }
        if is_picky { Err("on purpose".into()) } else { Ok(Step::Idle) }
    }
}

impl Durable for Picky {
    const NAME: &str = "picky";
}

fn pickies(disk: &MemoryDisk, clock: &ManualClock) -> (Store, Runtime) {
    let store = store_in(MemoryJournal::new(disk)).kind::<Picky>();
    store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
}

/// Holds a step up, has the messages come meanwhile, and lets the step go on.
fn in_step(store: &Store, picky: procession::Address<PickyMessage>, number: u64, meanwhile: impl FnOnce()) {
    let (begun, begins) = channel();
    let latch = Latch::new();
    HOLDS.lock().unwrap().push((number, begun, latch.clone()));
    store.send(picky, PickyMessage::Hold(number)).unwrap();
    wait(&begins).unwrap();
    meanwhile();
    latch.set(()).unwrap();
}

#[test]
fn a_failed_step_that_has_passed_over_messages_leaves_their_order() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = pickies(&disk, &clock);
    let picky = store.begin("a", Picky::default()).unwrap().address();
    runtime.wait_idle().unwrap();
    in_step(&store, picky, 1, || {
        (1..=6).for_each(|number| drop(store.send(picky, PickyMessage::Number(number)).unwrap()));
        IS_PICKY.store(true, Ordering::SeqCst);
    });
    runtime.wait_idle().unwrap();
    assert!(!IS_PICKY.load(Ordering::SeqCst), "the step has failed");
    store.send(picky, PickyMessage::Number(7)).unwrap();
    clock.advance(Duration::from_secs(1));
    runtime.wait_idle().unwrap();
    let numbers = runtime.ask(picky, PickyMessage::Look, Duration::MAX).wait().unwrap();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_process_that_pauses_or_is_parked_is_terminated_at_once() {
    for attempts in [1, 5] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
        let (store, runtime) = pickies(&disk, &clock);
        let picky = store.begin("a", Picky::default()).unwrap().address();
        store.send(picky, PickyMessage::Fail).unwrap();
        runtime.wait_idle().unwrap();
        for attempt in 1..attempts {
            clock.advance(Duration::from_secs(1 << (attempt - 1)));
            runtime.wait_idle().unwrap();
        }
        let result = store.result::<Picky>("a").unwrap();
        assert!(runtime.terminate(picky.pid()).unwrap());
        assert!(matches!(result.wait(Duration::MAX), Err(StoreError::Terminated)));
        drop(runtime.shutdown(Duration::MAX).unwrap());
        store.close().unwrap();
    }
}

#[test]
fn questions_of_failed_steps_and_mail_that_stays_on_disk_are_counted_once() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = pickies(&disk, &clock);
    let picky = store.begin("a", Picky::default()).unwrap().address();
    let count = |runtime: &Runtime| {
        let messages = runtime.stats().messages;
        assert_eq!(messages.accepted, messages.stepped + messages.dead() + messages.queued, "{messages:?}");
        (messages.stepped, messages.dead(), messages.queued)
    };
    runtime.wait_idle().unwrap();
    let answer = runtime.ask(picky, PickyMessage::FailAsk, Duration::MAX);
    runtime.wait_idle().unwrap();
    assert!(answer.wait().is_err());
    assert_eq!(count(&runtime), (1, 0, 0), "the question was stepped, though in vain");
    store.send(picky, PickyMessage::Fail).unwrap();
    (1..=3).for_each(|number| drop(store.send(picky, PickyMessage::Number(number)).unwrap()));
    clock.advance(Duration::from_secs(1));
    runtime.wait_idle().unwrap();
    assert_eq!(count(&runtime), (1, 0, 4));
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
    assert_eq!(count(&runtime), (1, 0, 0), "they are on disk");
}

#[test]
fn mail_that_comes_in_the_last_step_stays_on_disk_or_is_dead() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = pickies(&disk, &clock);
    let picky = store.begin("a", Picky::default()).unwrap().address();
    let numbers = |of: std::ops::Range<u64>| of.for_each(|n| drop(store.send(picky, PickyMessage::Number(n)).unwrap()));
    runtime.wait_idle().unwrap();
    let dead = || runtime.stats().messages.dead();
    // It is taken out of memory, which is no end of it.
    let local = local(&runtime);
    in_step(&store, picky, 2, || {
        numbers(0..5);
        assert!(runtime.terminate(local).unwrap());
    });
    let seen = runtime.ask(picky, PickyMessage::Look, Duration::MAX).wait().unwrap();
    assert_eq!((seen, dead()), (vec![0, 1, 2, 3, 4], 0));

    in_step(&store, picky, 3, || {
        numbers(5..9);
        assert!(runtime.terminate(picky.pid()).unwrap());
    });
    assert!(matches!(store.result::<Picky>("a").unwrap().wait(Duration::MAX), Err(StoreError::Terminated)));
    runtime.wait_idle().unwrap();
    let messages = runtime.stats().messages;
    assert_eq!(messages.accepted, messages.stepped + messages.dead() + messages.queued, "{messages:?}");
    assert_eq!(messages.dead(), 4, "the record of the end has removed them");
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

/// A process that ought to have no question in its state.
#[derive(Serialize, Deserialize)]
struct Keeper {
    question: Option<Reply<()>>,
}

impl Process for Keeper {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

impl Durable for Keeper {
    const NAME: &str = "keeper";
}

/// Gives the questions that it gets to the test.
struct Giver(Sender<Reply<()>>);

impl Process for Giver {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<()>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(question) => self.0.send(question).unwrap(),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_process_with_a_question_in_its_state_is_not_begun() {
    let store = store_in(MemoryJournal::new(&MemoryDisk::new())).kind::<Keeper>();
    let (store, runtime) = store.start(Runtime::builder().workers(1)).unwrap();
    let (to, questions) = channel();
    let giver = runtime.spawn(Giver(to)).unwrap();
    let answer = runtime.ask(giver.address(), |reply| reply, LIMIT);
    let question = wait(&questions).unwrap();
    let refused = store.begin("a", Keeper { question: Some(question) });
    assert!(matches!(refused.unwrap_err().reason(), StoreError::NotStored(_)));
    assert!(answer.wait().is_err());
    assert!(matches!(store.find::<Keeper>("a"), Err(StoreError::NoSuchId(_))));
    store.begin("a", Keeper { question: None }).unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
}
