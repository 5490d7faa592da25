//! Calls of a store that cannot do what they are asked to, and waits for something that will not come.

use std::sync::{Arc, OnceLock};
use std::thread;

use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Query, Store, StoreError};
use procession::observe::{Observer, ProcessIdentity};
use procession::{Address, Runtime};

use crate::gate::{Gate, GatedJournal};
use crate::monitors::Ordinary;
use crate::wait::{LIMIT, until, wait};
use crate::worker::{Worker, WorkerMessage, end, open, start, stepped};

/// A store with one process, and a message to it with the key "1". Both are on disk.
fn with_a_worker(disk: &MemoryDisk) -> (Store, Runtime, Address<WorkerMessage>) {
    let (store, runtime) = open(disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    let worker = worker.address();
    store.send_once(worker, "1", WorkerMessage::Who).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    (store, runtime, worker)
}

/// Lets all calls of the disk fail from now on.
pub(crate) fn fail_all(disk: &MemoryDisk, fault: Fault) {
    (disk.calls()..disk.calls() + 100_000).for_each(|call| disk.fail_at(call, fault));
}

/// Fills the disk. The store tries to open its files again until the disk is healed.
fn rewind(disk: &MemoryDisk, store: &Store, worker: Address<WorkerMessage>) {
    fail_all(disk, Fault::Full);
    until("the store opens its files again", || store.send(worker, WorkerMessage::Who).is_err());
}

#[test]
fn a_message_and_a_process_on_disk_are_not_called_lost_in_a_rewind() {
    let disk = MemoryDisk::new();
    let (store, runtime, worker) = with_a_worker(&disk);
    rewind(&disk, &store, worker);
    let again = store.send_once(worker, "1", WorkerMessage::Who).unwrap();
    assert!(again.was_there());
    again.wait(LIMIT).unwrap();
    let begun = store.begin("a", Worker::default()).unwrap();
    assert!(begun.was_there());
    begun.wait(LIMIT).unwrap();
    disk.heal();
    let is_stored = || store.send(worker, WorkerMessage::Who).is_ok_and(|sent| sent.wait(LIMIT).is_ok());
    until("the store goes on", is_stored);
    end((store, runtime));
}

#[test]
fn a_message_on_disk_is_not_called_lost_after_its_store_has_closed() {
    let disk = MemoryDisk::new();
    let (store, runtime, worker) = with_a_worker(&disk);
    fail_all(&disk, Fault::Error);
    drop(store.send(worker, WorkerMessage::Who));
    drop(runtime.shutdown(LIMIT));
    assert!(store.close().is_err());
    let again = store.send_once(worker, "1", WorkerMessage::Who).unwrap();
    assert!(again.was_there());
    again.wait(LIMIT).unwrap();
}

/// The process lives, and the store is not closed.
#[test]
fn a_request_in_a_rewind_is_refused_with_the_reason() {
    let disk = MemoryDisk::new();
    let (store, runtime, worker) = with_a_worker(&disk);
    rewind(&disk, &store, worker);
    let said = [
        runtime.terminate(worker.pid()).map(drop).map_err(|why| why.to_string()),
        runtime.cancel(worker.pid(), "stop").map(drop).map_err(|why| why.to_string()),
    ];
    let tells = |why: &String| !why.contains("no such process") && why.contains("try again");
    assert!(said.iter().all(|one| one.as_ref().err().is_none_or(tells)), "{said:#?}");
    disk.heal();
    drop(runtime.shutdown(LIMIT));
    drop(store.close());
}

#[test]
fn a_message_with_a_reply_has_no_receipt_and_comes_back() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    let mut refusal = String::new();
    let question = |reply| {
        let refused = store.send(worker, WorkerMessage::Look(reply)).unwrap_err();
        refusal = refused.to_string();
        refused.into_inner()
    };
    assert_eq!(runtime.ask(worker, question, LIMIT).wait().unwrap().0, 0);
    assert!(refusal.contains("no receipt"), "{refusal}");
    end((store, runtime));
}

#[test]
fn a_message_to_an_ordinary_process_is_refused_with_the_reason() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let ordinary = runtime.spawn(Ordinary).unwrap();
    let refusals = [
        store.send(ordinary.address(), ()).unwrap_err().to_string(),
        store.send_once(ordinary.address(), "1", ()).unwrap_err().to_string(),
    ];
    assert!(refusals.iter().all(|why| why.contains("no process of the store")), "{refusals:#?}");
    runtime.terminate(&ordinary).unwrap();
    wait(&ordinary);
    end((store, runtime));
}

#[test]
fn the_calls_of_a_closed_store_say_that_it_is_closed() {
    let disk = MemoryDisk::new();
    let (store, runtime, worker) = with_a_worker(&disk);
    end((store.clone(), runtime));
    let refusals = [
        store.send_once(worker, "2", WorkerMessage::Who).unwrap_err().to_string(),
        store.send(worker, WorkerMessage::Who).unwrap_err().to_string(),
        store.find::<Worker>("b").unwrap_err().to_string(),
        store.begin("b", Worker::default()).unwrap_err().to_string(),
        store.list(&Query::all()).unwrap_err().to_string(),
        store.retry(worker.pid()).unwrap_err().to_string(),
        store.terminate(worker.pid()).unwrap_err().to_string(),
    ];
    assert!(refusals.iter().all(|why| why.contains("the store is closed")), "{refusals:#?}");
}

#[test]
fn a_wait_for_a_result_ends_when_the_store_is_closed() {
    let disk = MemoryDisk::new();
    let (store, runtime, _) = with_a_worker(&disk);
    let result = store.result::<Worker>("a").unwrap();
    let waits = thread::spawn(move || result.wait(LIMIT));
    end((store, runtime));
    let told = wait(waits).unwrap();
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
}

#[test]
fn a_wait_for_the_result_of_a_lost_process_ends() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    store.begin("first", Worker::default()).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    gate.close();
    let begun = store.begin("a", Worker::default()).unwrap();
    let result = store.result::<Worker>("a").unwrap();
    gate.wait_for(1);
    disk.fail_at(disk.calls(), Fault::Full);
    gate.open();
    assert!(matches!(begun.wait(LIMIT), Err(StoreError::Lost)));
    let told = result.wait(LIMIT);
    assert!(matches!(told, Err(StoreError::Lost)), "{told:?}");
    end((store, runtime));
}

/// Looks for a process of the store when one is begun.
struct Looks(Arc<OnceLock<Store>>);

impl Observer for Looks {
    fn spawned(&self, _: &ProcessIdentity) {
        self.0.get().into_iter().for_each(|store| drop(store.find::<Worker>("a")));
    }
}

#[test]
fn an_observer_may_call_the_store_when_a_process_is_begun() {
    let cell = Arc::new(OnceLock::new());
    let builder = Runtime::builder().observer(Looks(cell.clone()));
    let (store, runtime) = start(MemoryJournal::new(&MemoryDisk::new()), builder);
    assert!(cell.set(store.clone()).is_ok());
    let begins = store.clone();
    // If a lock were held meanwhile, this thread would wait for itself.
    wait(thread::spawn(move || drop(begins.begin("a", Worker::default()).unwrap()))).unwrap();
    end((store, runtime));
}
