//! Calls of the disk that fail once, or now and then: the store mends them by itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use procession::Runtime;
use procession::clock::ManualClock;
use procession::command::CommandKey;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Query, Receipt, Store, StoreError};

use crate::guest::{self, Decide, Guest, GuestMessage};
use crate::key_worlds::{Notes, NotesMessage};
use crate::places::store_in;
use crate::script::{counts, draw};
use crate::wait::{LIMIT, Mutex, advance_until, until, wait};
use crate::worker::{Worker, WorkerMessage, answer_of, end, open, stepped};

/// The writer of the store pauses by the clock before it opens its files again.
const PAUSE: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_operator_can_list_again_after_one_error_of_the_tables() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    store.begin("a", Worker::default()).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    disk.fail_at(disk.calls(), Fault::Error);
    assert!(store.list(&Query::all()).is_err(), "the call of the disk has failed");
    disk.heal();
    until("it can be listed", || store.list(&Query::all()).is_ok());
    end((store, runtime));
}

#[test]
fn a_command_can_be_answered_after_one_error_of_the_tables() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 920;
    let disk = MemoryDisk::new();
    let run = || guest::start(MemoryJournal::new(&disk), Runtime::builder(), |store| store, &KEYS);
    let (store, runtime) = run();
    let guest = store.begin("1", Guest::new(TEST, 1)).unwrap().address();
    store.send(guest, GuestMessage::Later).unwrap().wait(LIMIT).unwrap();
    until("it is handed out", || KEYS.lock().unwrap().len() == 1);
    let key = KEYS.lock().unwrap()[0];
    end((store, runtime));
    let (store, runtime) = run();
    store.begin("2", Guest::new(TEST, 2)).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    disk.fail_at(disk.calls(), Fault::Error);
    assert!(store.answer::<Decide>(key, Ok(1)).is_err(), "the call of the disk has failed");
    disk.heal();
    until("it is answered", || store.answer::<Decide>(key, Ok(1)).is_ok());
    end((store, runtime));
}

#[test]
fn old_keys_are_removed_after_one_error_of_the_tables() {
    const KEEP: Duration = Duration::from_secs(60);
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(KEEP);
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(Duration::MAX).unwrap();
    let send = || store.send_once(worker.address(), "1", WorkerMessage::Who);
    send().unwrap().wait(Duration::MAX).unwrap();
    stepped(&runtime);
    let failing = disk.calls();
    disk.fail_at(failing, Fault::Error);
    // Nothing else calls the disk.
    advance_until("the look at the old keys fails", &clock, SECOND, || disk.calls() > failing);
    disk.heal();
    advance_until("the key is free", &clock, SECOND, || send().is_ok_and(|sent| !sent.was_there()));
    end((store, runtime));
}

/// Whether it is on disk, when the store knows. Another thread moves the clock.
fn told(receipt: &Receipt) -> Result<(), StoreError> {
    let mut told = Ok(());
    until("the store says whether it is on disk", || {
        told = receipt.wait(Duration::ZERO);
        !matches!(told, Err(StoreError::Wait(_)))
    });
    told
}

/// Moves the clock, and has a call of the disk fail after each 50 calls or so.
fn fail_again_and_again(disk: &MemoryDisk, clock: &ManualClock, is_over: &AtomicBool) -> u64 {
    let (mut faults, mut next) = (0, disk.calls());
    until("all is sent", || {
        clock.advance(PAUSE);
        if disk.calls() >= next {
            // Three errors in a row would close the store.
            let fault = if faults % 4 == 3 { Fault::Error } else { Fault::Full };
            disk.fail_at(disk.calls() + draw(1, faults, 0, 40), fault);
            next = disk.calls() + 50 + draw(1, faults, 1, 20);
            faults += 1;
        }
        is_over.load(Ordering::SeqCst)
    });
    disk.heal();
    faults
}

/// Four senders try all keys. Two of them begin with another one.
#[test]
fn of_senders_on_a_disk_that_fails_one_sends_each_key() {
    let keys = counts("keys", 150, 4_000) as u32;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Notes>().sleep_after(Duration::from_millis(5));
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let notes = store.begin("a", Notes::default()).unwrap();
    notes.wait(Duration::MAX).unwrap();
    let (to, is_over, acknowledged) = (notes.address(), AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    let send = |number: u32| {
        let is_known = acknowledged.lock().unwrap().contains(&number);
        let Ok(sent) = store.send_once(to, &number.to_string(), NotesMessage::Note(number)) else { return false };
        assert!(!is_known || sent.was_there(), "{number} is sent twice");
        match told(&sent) {
            Ok(()) => {
                acknowledged.lock().unwrap().insert(number);
                true
            }
            Err(StoreError::Lost) if !is_known => false,
            Err(other) => panic!("{number}: {other}"),
        }
    };
    thread::scope(|scope| {
        let fails = scope.spawn(|| fail_again_and_again(&disk, &clock, &is_over));
        let sends = |sender: u32| move || (0..keys).for_each(|n| until("it is sent", || send((n + sender % 2) % keys)));
        let senders: Vec<_> = (0..4).map(|sender| scope.spawn(sends(sender))).collect();
        let sent: Vec<_> = senders.into_iter().map(wait).collect();
        is_over.store(true, Ordering::SeqCst);
        let faults = wait(fails).unwrap();
        sent.into_iter().for_each(|sent| sent.unwrap());
        assert!(faults > 0, "no fault");
    });
    let (mut asked, mut seen) = (None, None);
    advance_until("it answers", &clock, PAUSE, || {
        let ask = || runtime.ask(to, NotesMessage::Look, Duration::MAX);
        seen = answer_of(&mut asked, ask).and_then(Result::ok);
        seen.is_some()
    });
    let mut seen = seen.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..keys).collect::<Vec<_>>());
    until("each message is counted once", || is_counted(&runtime));
    end((store, runtime));
}

/// Whether each accepted message is stepped, is a dead letter, or waits.
fn is_counted(runtime: &Runtime) -> bool {
    let counts = runtime.stats().messages;
    counts.accepted == counts.stepped + counts.dead() + counts.queued
}

/// Sends messages to a process that is asleep, parked, full, terminated or over, while calls of the disk fail.
#[test]
fn messages_are_counted_once_though_calls_of_the_disk_fail() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let rest = Duration::from_millis(5);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().mailbox_limit(20).sleep_after(rest);
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let begin = |store: &Store, id: u64| {
        let mut begun = None;
        advance_until("it is begun", &clock, PAUSE, || {
            begun = store.begin(&id.to_string(), Worker::default()).ok();
            begun.is_some()
        });
        begun.unwrap()
    };
    let rounds = counts("rounds", 60, 2_000);
    for round in 0..rounds {
        let draw = |of, below| draw(7, round, of, below);
        let worker = begin(&store, round / 4).address();
        let other = store.find::<Worker>("0").ok();
        for n in 0..draw(0, 30) {
            drop(store.send(worker, WorkerMessage::Who));
            drop(store.send_once(worker, &draw(10 + n, 10).to_string(), WorkerMessage::Set(1)));
            other.into_iter().for_each(|other| drop(store.send(worker, WorkerMessage::Introduce(other))));
        }
        match draw(1, 6) {
            0 => disk.fail_at(disk.calls() + draw(2, 20), Fault::Full),
            1 => drop(store.send(worker, WorkerMessage::HangAndWait)),
            2 => drop(store.send(worker, WorkerMessage::Over)),
            3 => drop(runtime.terminate(worker.pid())),
            4 => clock.advance(2 * rest),
            _ => {}
        }
    }
    disk.heal();
    let mut last = begin(&store, rounds);
    // The call that fails before `heal` can lose the commit of this process, too.
    advance_until("it is on disk", &clock, PAUSE, || match last.wait(Duration::ZERO) {
        Ok(()) => true,
        Err(StoreError::Lost) => {
            last = begin(&store, rounds);
            false
        }
        Err(StoreError::Wait(_)) => false,
        Err(other) => panic!("{other}"),
    });
    until("each message is counted once", || is_counted(&runtime));
    end((store, runtime));
}
