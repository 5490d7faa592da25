//! Messages that are sent once, by their keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::Store;
#[cfg(feature = "sqlite")]
use procession::durable::journal::SqliteJournal;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::{Events, Process, Runtime, SendError, Step, StepOutput, StepResult};

use crate::gate::{Gate, GatedJournal};
#[cfg(feature = "sqlite")]
use crate::places::Directory;
use crate::places::store_in;
use crate::wait::{Barrier, LIMIT, until, wait};
use crate::worker::{Worker, WorkerMessage, asked, end, kill, look, start, stepped};

/// How many messages the worker has taken that ask who has sent them.
fn taken(runtime: &Runtime, store: &Store) -> usize {
    look(runtime, store.find::<Worker>("a").unwrap()).1.len()
}

/// Sends with a key, and returns whether it was there.
fn send(store: &Store, key: &str) -> bool {
    let receipt = store.send_once(store.find::<Worker>("a").unwrap(), key, WorkerMessage::Who).unwrap();
    receipt.wait(LIMIT).unwrap();
    receipt.was_there()
}

#[test]
fn a_message_with_a_key_is_sent_once_in_all_runs() {
    let disk = MemoryDisk::new();
    sends_once_in_all_runs(|| MemoryJournal::new(&disk), || disk.crash());
    #[cfg(feature = "sqlite")]
    {
        let directory = Directory::new();
        sends_once_in_all_runs(|| SqliteJournal::new(directory.path()), || {});
    }
}

fn sends_once_in_all_runs<J: Journal + 'static>(journal: impl Fn() -> J, crash: impl Fn()) {
    let run = || start(journal(), Runtime::builder());
    let (store, runtime) = run();
    let [a, b] = ["a", "b"].map(|id| store.begin(id, Worker::default()).unwrap().address());
    assert!(!send(&store, "1"));
    assert!(send(&store, "1"));
    assert!(!send(&store, "2"));
    // Another process has keys of its own.
    assert!(!store.send_once(b, "1", WorkerMessage::Who).unwrap().was_there());
    assert!(!store.send(a, WorkerMessage::Who).unwrap().was_there(), "without a key it is another one");
    assert_eq!((taken(&runtime, &store), look(&runtime, b).1.len()), (3, 1));
    end((store, runtime));
    crash();

    let (store, runtime) = run();
    assert!(send(&store, "2") && send(&store, "1"));
    assert!(!send(&store, "3"));
    assert_eq!(taken(&runtime, &store), 4);
    // Also when its process has ended.
    store.send(a, WorkerMessage::Over).unwrap();
    store.result::<Worker>("a").unwrap().wait(LIMIT).unwrap();
    assert!(send(&store, "3"));
    let refused = store.send_once(a, "4", WorkerMessage::Set(4)).unwrap_err();
    assert!(matches!(refused.reason(), SendError::NoSuchProcess(_)), "{refused}");
    assert!(matches!(refused.into_inner(), WorkerMessage::Set(4)));
    end((store, runtime));
    crash();
}

#[test]
fn of_many_senders_with_one_key_one_sends() {
    const SENDERS: usize = 8;
    let disk = MemoryDisk::new();
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder());
    store.begin("a", Worker::default()).unwrap();
    for round in 0..20 {
        let (barrier, key) = (Barrier::new(SENDERS), round.to_string());
        let sent = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    wait(&barrier);
                    sent.fetch_add(usize::from(!send(&store, &key)), Ordering::SeqCst);
                });
            }
        });
        assert_eq!(sent.into_inner(), 1);
    }
    assert_eq!(taken(&runtime, &store), 20);
    end((store, runtime));
}

#[test]
fn a_key_is_on_disk_exactly_if_its_message_is() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let journal = || GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = start(journal(), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    stepped(&runtime);
    gate.close();
    let receipt = store.send_once(worker.address(), "1", WorkerMessage::Who).unwrap();
    let second = store.send_once(worker.address(), "1", WorkerMessage::Who).unwrap();
    assert!(!receipt.was_there() && second.was_there());
    assert!(second.wait(Duration::ZERO).is_err(), "the first one is not on disk");
    // The next write fails, and everything that was not written is lost.
    disk.crash();
    gate.open();
    let is_lost = receipt.wait(LIMIT).is_err();
    assert_eq!(second.wait(LIMIT).is_err(), is_lost, "both wait for the same record");
    let mut again = None;
    until("it is sent again", || {
        let sent = store.send_once(worker.address(), "1", WorkerMessage::Who);
        again = sent.ok().filter(|receipt| receipt.wait(LIMIT).is_ok());
        again.is_some()
    });
    assert_eq!(again.unwrap().was_there(), !is_lost);
    let notes = || asked(|| runtime.ask(worker.address(), WorkerMessage::Look, LIMIT).wait().ok()).1;
    until("it is taken", || notes().len() == 1);
    kill(&disk, (store, runtime));
    let (store, runtime) = start(journal(), Runtime::builder());
    assert!(send(&store, "1"), "it is known after a kill");
    assert_eq!(taken(&runtime, &store), 1);
    end((store, runtime));
}

#[test]
fn a_key_is_free_when_its_time_is_over_and_when_its_message_was_refused() {
    const KEEP: Duration = Duration::from_secs(60 * 60);
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let start = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(KEEP).mailbox_limit(1);
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = start();
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(Duration::MAX).unwrap();
    let send = |key: &str| store.send_once(worker.address(), key, WorkerMessage::Who);
    assert!(!send("1").unwrap().was_there());
    stepped(&runtime);
    clock.advance(KEEP - Duration::from_secs(10));
    assert!(send("1").unwrap().was_there(), "it is kept");
    let mut again = false;
    until("its time is over", || {
        clock.advance(Duration::from_secs(1));
        again = !send("1").unwrap().was_there();
        again
    });
    stepped(&runtime);
    // It waits for a future, so its mail waits.
    store.send(worker.address(), WorkerMessage::HangAndWait).unwrap();
    stepped(&runtime);
    assert!(!send("2").unwrap().was_there());
    let full = send("3").unwrap_err();
    assert!(matches!(full.reason(), SendError::Full { limit: 1, .. }), "{full}");
    let again = send("3").unwrap_err();
    assert!(matches!(again.reason(), SendError::Full { limit: 1, .. }), "its key is free: {again}");
    assert!(send("2").unwrap().was_there());
    runtime.terminate(worker.pid()).unwrap();
    end((store, runtime));
}

#[test]
fn a_question_has_no_key_and_a_step_has_none() {
    let disk = MemoryDisk::new();
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap().address();
    let mut refusal = String::new();
    let question = |reply| {
        let refused = store.send_once(worker, "1", WorkerMessage::Look(reply)).unwrap_err();
        refusal = refused.to_string();
        refused.into_inner()
    };
    // It comes back, and can be asked.
    assert_eq!(runtime.ask(worker, question, LIMIT).wait().unwrap().0, 0);
    assert!(refusal.contains("has no key"), "{refusal}");
    let in_step = InStep(store.clone(), worker);
    let exit = runtime.spawn(in_step).unwrap().join_timeout(LIMIT).unwrap();
    let refused = exit.output().unwrap();
    assert!(refused.contains("a step may not wait"), "{refused}");
    assert!(!send(&store, "1"), "its key is free");
    end((store, runtime));
}

/// Sends with a key in a step.
struct InStep(Store, procession::Address<WorkerMessage>);

impl Process for InStep {
    type Message = ();
    type Output = String;

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<String> {
        let refused = self.0.send_once(self.1, "1", WorkerMessage::Who).unwrap_err();
        Ok(Step::Done(refused.to_string()))
    }
}

#[test]
fn keys_may_be_empty_or_strange() {
    let disk = MemoryDisk::new();
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder());
    store.begin("a", Worker::default()).unwrap();
    for key in ["", "a\0b", "a", "a/b", "ä€", &"y".repeat(3 << 20)] {
        assert!(!send(&store, key));
        assert!(send(&store, key));
    }
    let worker = store.find::<Worker>("a").unwrap();
    let refused = store.send_once(worker, &"x".repeat(9 << 20), WorkerMessage::Who).unwrap_err();
    assert!(refused.to_string().contains("the limit is"), "{refused}");
    end((store, runtime));
}

#[test]
fn a_store_may_keep_everything_for_ever() {
    let disk = MemoryDisk::new();
    let run = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(Duration::MAX);
        store.start(Runtime::builder().workers(2)).unwrap()
    };
    let (store, runtime) = run();
    let worker = store.begin("a", Worker::default()).unwrap().address();
    assert!(!send(&store, "1"));
    store.send(worker, WorkerMessage::Over).unwrap();
    store.result::<Worker>("a").unwrap().wait(LIMIT).unwrap();
    assert!(send(&store, "1"));
    end((store, runtime));
    let (store, runtime) = run();
    assert!(send(&store, "1"));
    store.result::<Worker>("a").unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
}
