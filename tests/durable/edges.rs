//! Beginnings, ends and messages of durable processes that meet an error of the disk, a limit or a wrong type.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Receipt, Store, StoreError};
use procession::observe::ExitWatcher;
use procession::{Address, CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::promises::Sink;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{Worker, WorkerMessage, end, look, open, start, stepped};

/// Passes a question and its number on to another one, which answers.
#[derive(Serialize, Deserialize)]
struct Teller {
    number: u64,
}

#[derive(Serialize, Deserialize)]
enum TellerMessage {
    Set(u64),
    Ask(Reply<u64>, Address<TellerMessage>),
    Answer(Reply<u64>, u64),
}

impl Process for Teller {
    type Message = TellerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, TellerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(TellerMessage::Set(number)) => self.number = number,
                Event::Message(TellerMessage::Ask(reply, to)) => {
                    out.send(to, TellerMessage::Answer(reply, self.number))
                }
                Event::Message(TellerMessage::Answer(reply, number)) => out.reply(reply, number),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Teller {
    const NAME: &str = "teller";
}

#[test]
fn a_run_whose_first_record_is_not_stored_does_not_begin() {
    let disk = MemoryDisk::new();
    let (mut nodes, mut failures) = (Vec::new(), 0);
    let mut pid = None;
    for fault in 0..12 {
        disk.fail_at(disk.calls() + fault, Fault::Error);
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>();
        let started = store.start(Runtime::builder().workers(1));
        disk.heal();
        let Ok((store, runtime)) = started else {
            failures += 1;
            continue;
        };
        // The error of a sweep has the files opened anew. Meanwhile nothing is begun.
        until("it has begun, and that is on disk", || {
            let Ok(begun) = store.begin("a", Worker::default()) else { return false };
            let is_on_disk = begun.wait(LIMIT).is_ok();
            assert!(!is_on_disk || *pid.get_or_insert(begun.pid()) == begun.pid(), "the store has one node");
            is_on_disk
        });
        nodes.push(runtime.node());
        // The error may also undo the first step.
        drop(runtime.shutdown(LIMIT).unwrap());
        store.close().unwrap();
    }
    assert!(failures > 1 && nodes.len() > 2, "{failures} starts have failed, {nodes:?}");
    let runs = nodes.len();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), runs, "each run has a node of its own");
}

#[test]
fn an_end_that_is_lost_is_told_to_nobody() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, worker.address()).0, 0);
    let result = store.result::<Worker>("a").unwrap();
    gate.close();
    let over = store.send(worker.address(), WorkerMessage::Over).unwrap();
    stepped(&runtime);
    disk.crash();
    gate.open();
    assert!(matches!(over.wait(LIMIT), Err(StoreError::Lost)));
    until("it lives", || {
        let answer = runtime.ask(worker.address(), WorkerMessage::Look, LIMIT).wait();
        answer.is_ok_and(|(value, ..)| value == 0)
    });
    assert!(matches!(result.wait(Duration::ZERO), Err(StoreError::Wait(_))), "nobody is told of an end");
    runtime.send(worker.address(), WorkerMessage::Set(3)).unwrap();
    runtime.send(worker.address(), WorkerMessage::Over).unwrap();
    assert_eq!(result.wait(LIMIT).unwrap(), 3);
    end((store, runtime));
}

/// Ends a process while nothing reaches the disk, and makes every call that code outside can make to it. Then `fate`
/// decides whether its end is lost. Returns a watcher, the answer to a question, and the receipt of a message.
fn end_while_others_call(
    (store, runtime): &(Store, Runtime),
    gate: &Gate,
    fate: impl FnOnce(),
) -> (ExitWatcher, Result<u64, CommandError>, Receipt) {
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    let to = worker.address();
    assert_eq!(look(runtime, to).0, 0);
    gate.close();
    runtime.send(to, WorkerMessage::Over).unwrap();
    stepped(runtime);
    let receipt = store.send(to, WorkerMessage::Set(3)).unwrap();
    runtime.send(to, WorkerMessage::Set(4)).unwrap();
    let mut answer = runtime.ask(to, WorkerMessage::Look, LIMIT);
    let down = runtime.watch(to.pid());
    assert!(runtime.is_alive(to.pid()), "it may live");
    assert!(!runtime.terminate(to.pid()).unwrap(), "it is being ended");
    stepped(runtime);
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut answer).poll(&mut context).is_pending(), "its asker is not told of the end");
    assert!(down.down().is_none(), "its watcher is not told of the end");
    assert_eq!(runtime.stats().messages.dead(), 0, "no message is dead");
    fate();
    gate.open();
    (down, answer.wait().map(|(value, ..)| value), receipt)
}

#[test]
fn nobody_outside_is_told_of_an_end_that_is_lost() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let all = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let (down, answer, receipt) = end_while_others_call(&all, &gate, || disk.crash());
    assert_eq!(answer.unwrap(), 0, "it lives, and messages that came after its end are lost");
    assert!(matches!(receipt.wait(LIMIT), Err(StoreError::Lost)));
    assert!(all.1.is_alive(down.pid()) && down.down().is_none(), "it lives");
    end(all);
}

#[test]
fn those_outside_are_told_of_an_end_when_it_is_on_disk() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let all = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let (down, answer, receipt) = end_while_others_call(&all, &gate, || ());
    assert!(matches!(answer, Err(CommandError::Ended(_))));
    receipt.wait(LIMIT).unwrap();
    let (store, runtime) = &all;
    until("its watcher is told", || down.down().is_some());
    assert!(down.down().unwrap().exit.is_done() && !runtime.is_alive(down.pid()));
    // The question, and the two messages, which are dead letters on disk.
    until("they are dead letters", || runtime.stats().messages.dead() == 3);
    until("they are on disk", || store.dead_letters(None, 10).is_ok_and(|dead| dead.len() == 2));
    end(all);
}

/// The end is on disk or not: the next run knows.
#[test]
fn a_question_to_a_process_whose_end_is_never_stored_ends() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    stepped(&runtime);
    gate.close();
    runtime.send(worker.address(), WorkerMessage::Over).unwrap();
    stepped(&runtime);
    let answer = runtime.ask(worker.address(), WorkerMessage::Look, Duration::MAX);
    let report = runtime.shutdown(Duration::ZERO).unwrap();
    assert!(!report.is_clean(), "the disk has not stored the end: {report}");
    assert!(answer.wait().is_err());
    gate.open();
    store.close().unwrap();
}

#[test]
fn a_process_that_finds_no_room_begins_later_with_all_its_mail() {
    let (disk, gate, clock) = (MemoryDisk::new(), Gate::default(), ManualClock::new());
    let builder = Runtime::builder().max_processes(1).clock(clock.clock());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), builder);
    let first = store.begin("first", Worker::default()).unwrap();
    first.wait(Duration::MAX).unwrap();
    gate.close();
    let second = store.begin("second", Worker::default()).unwrap();
    let receipt = store.send(second.address(), WorkerMessage::Set(5)).unwrap();
    // It is looked for while nothing of it is on disk.
    for _ in 0..10 {
        clock.advance(Duration::from_millis(100));
        stepped(&runtime);
    }
    gate.open();
    receipt.wait(Duration::MAX).unwrap();
    runtime.send(first.address(), WorkerMessage::Over).unwrap();
    store.result::<Worker>("first").unwrap().wait(Duration::MAX).unwrap();
    let answer = runtime.ask(second.address(), WorkerMessage::Look, Duration::MAX);
    until("there is room for it", || {
        clock.advance(Duration::from_millis(100));
        runtime.processes().len() == 1
    });
    assert_eq!(answer.wait().unwrap().0, 5);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_question_that_is_passed_on_is_answered_when_all_is_on_disk() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let store = store_in(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Teller>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let [one, two] = ["one", "two"].map(|id| store.begin(id, Teller { number: 0 }).unwrap());
    two.wait(LIMIT).unwrap();
    let to = two.address();
    assert_eq!(runtime.ask(one.address(), |reply| TellerMessage::Ask(reply, to), LIMIT).wait().unwrap(), 0);
    gate.close();
    runtime.send(one.address(), TellerMessage::Set(42)).unwrap();
    let mut answer = runtime.ask(one.address(), |reply| TellerMessage::Ask(reply, to), LIMIT);
    stepped(&runtime);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut answer).poll(&mut context).is_pending(), "42 is not on disk");
    gate.open();
    assert_eq!(answer.wait().unwrap(), 42);
    end((store, runtime));
}

#[test]
fn a_message_of_another_type_to_a_process_that_sleeps_does_not_park_it() {
    let disk = MemoryDisk::new();
    let both = || store_in(MemoryJournal::new(&disk)).kind::<Worker>().kind::<Teller>();
    let (store, runtime) = both().start(Runtime::builder().workers(1)).unwrap();
    let worker = store.begin("a", Worker::default()).unwrap();
    store.send(worker.address(), WorkerMessage::Set(4)).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    end((store, runtime));

    let (store, runtime) = both().start(Runtime::builder().workers(1)).unwrap();
    assert_eq!(runtime.processes().len(), 0, "it sleeps");
    let wrong: Address<TellerMessage> = worker.pid().typed();
    store.send(wrong, TellerMessage::Set(1)).unwrap().wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, worker.address()).0, 4);
    let dead = runtime.stats().messages.dead_by_reason[&procession::observe::DeadLetterReason::WrongType];
    assert_eq!(dead, 1);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    assert_eq!(look(&runtime, worker.address()).0, 4);
    end((store, runtime));
}

#[test]
fn a_message_names_its_sender_also_in_a_later_run() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [one, two] = ["one", "two"].map(|id| store.begin(id, Worker::default()).unwrap());
    store.send(one.address(), WorkerMessage::Introduce(two.address())).unwrap();
    store.send(two.address(), WorkerMessage::Who).unwrap();
    stepped(&runtime);
    let mut notes = look(&runtime, two.address()).1;
    notes.sort_unstable();
    assert_eq!(notes, ["None".to_owned(), format!("Some({})", one.pid())]);
    end((store, runtime));

    // The message waits behind an answer until the next run.
    let (store, runtime) = open(&disk);
    store.send(two.address(), WorkerMessage::HangAndWait).unwrap().wait(LIMIT).unwrap();
    until("it waits", || runtime.stats().messages.stepped == 1);
    store.send(one.address(), WorkerMessage::Introduce(two.address())).unwrap();
    until("the message waits", || {
        let messages = runtime.stats().messages;
        (messages.stepped, messages.queued) == (2, 1)
    });
    end((store, runtime));
    let (store, runtime) = open(&disk);
    until("it is stepped", || look(&runtime, two.address()).1.len() == 4);
    assert_eq!(look(&runtime, two.address()).1[2..], ["answer".to_owned(), format!("Some({})", one.pid())]);
    end((store, runtime));
}

/// Keeps the address of an ordinary process, and tells it numbers.
#[derive(Default, Serialize, Deserialize)]
struct Friend {
    of: Option<Address<u64>>,
}

#[derive(Serialize, Deserialize)]
enum FriendMessage {
    Know(Address<u64>),
    Tell(u64),
}

impl Process for Friend {
    type Message = FriendMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, FriendMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match (event, self.of) {
                (Event::Message(FriendMessage::Know(of)), _) => self.of = Some(of),
                (Event::Message(FriendMessage::Tell(number)), Some(of)) => out.send(of, number),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Friend {
    const NAME: &str = "friend";
}

#[test]
fn nobody_has_the_pid_of_an_ordinary_process_of_an_earlier_run() {
    let (disk, mut known) = (MemoryDisk::new(), None);
    for run in 0..3 {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Friend>();
        let (store, runtime) = store.start(Runtime::builder().workers(1)).unwrap();
        let friend = store.begin("a", Friend::default()).unwrap().address();
        let told = Arc::new(Mutex::new(Vec::new()));
        let sinks: Vec<_> = (0..100).map(|_| runtime.spawn(Sink(told.clone())).unwrap()).collect();
        let of = *known.get_or_insert(sinks[50].address());
        if run == 0 {
            store.send(friend, FriendMessage::Know(of)).unwrap();
        }
        assert_eq!(sinks.iter().filter(|sink| sink.pid() == of.pid()).count(), usize::from(run == 0));
        store.send(friend, FriendMessage::Tell(run)).unwrap();
        let dead = || runtime.stats().messages.dead();
        until("the number has arrived, or is a dead letter", || told.lock().unwrap().len() as u64 + dead() == 1);
        assert_eq!(dead(), u64::from(run > 0), "run {run}");
        end((store, runtime));
    }
}
