//! The races of the tail, as the model checker runs them, with the writer and the journal in memory that ship.

use super::{Fate, Tail};
use crate::durable::journal::{
    Change, EncodedRecord, Fault, Journal, MemoryDisk, MemoryJournal, NameRow, Position, Record,
};
use crate::durable::writer::write;
use crate::primitives::{Arc, Mutex, lock};

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(check);
}

/// The record of one thread.
fn record(by: u64) -> EncodedRecord {
    let row = NameRow { serial: by, body: Vec::new() };
    let change = Change::Name { class: 1, name: by.to_string(), row: Some(row) };
    EncodedRecord::new(&Record { changes: vec![change] }).unwrap()
}

/// Whether the record of a thread is on disk.
fn is_stored(disk: &MemoryDisk, by: u64) -> bool {
    disk.crash();
    let mut opened = MemoryJournal::new(disk).open().unwrap();
    opened.tables.apply(opened.recovered.last).unwrap();
    opened.tables.reader().unwrap().name(1, &by.to_string()).unwrap().is_some()
}

/// The fates that waiters were told.
type Fates = Arc<Mutex<Vec<(u64, Fate)>>>;

fn tells(fates: &Fates, by: u64) -> Box<dyn FnOnce(Fate) + Send> {
    let fates = fates.clone();
    Box::new(move |fate| lock(&fates).push((by, fate)))
}

/// Two threads append while the writer commits, and one of them closes. `fault` is that of one call of the disk.
fn run(fault: Option<(u64, Fault)>) {
    let disk = MemoryDisk::new();
    let mut journal = MemoryJournal::new(&disk);
    let opened = journal.open().unwrap();
    if let Some((call, fault)) = fault {
        disk.fail_at(disk.calls() + call, fault);
    }
    let tail = Arc::new(Tail::new(opened.recovered.last));
    let fates: Fates = Arc::default();
    let life = tail.life();
    let writer = {
        let tail = tail.clone();
        loom::thread::spawn(move || {
            write(&tail, &mut journal, opened.log, |opened| (opened.log, Ok(())), || ()).is_ok()
        })
    };
    let appender = {
        let (tail, fates) = (tail.clone(), fates.clone());
        loom::thread::spawn(move || tail.append(life, &record(1), Some(tells(&fates, 1))).is_ok())
    };
    let second = tail.append(life, &record(2), Some(tells(&fates, 2))).is_ok();
    let first = appender.join().unwrap();
    tail.close();
    assert!(writer.join().unwrap(), "one fault ends no writer");

    let mut fates = std::mem::take(&mut *lock(&fates));
    fates.sort_unstable_by_key(|(by, _)| *by);
    let appended: Vec<u64> = [(1, first), (2, second)].into_iter().filter(|(_, is)| *is).map(|(by, _)| by).collect();
    let told: Vec<u64> = fates.iter().map(|(by, _)| *by).collect();
    assert_eq!(told, appended, "each accepted record has one fate, and no other");
    for (by, fate) in fates {
        assert_eq!(is_stored(&disk, by), fate == Fate::Released, "{by}: {fate:?}");
        assert!(fault.is_some() || fate == Fate::Released);
    }
    assert!(fault.is_some() || first && second);
    assert!(tail.append(tail.life(), &record(3), None).is_err(), "it is closed");
}

/// Fails if the writer decides to wait outside of the lock, and if it ends before the last record.
#[test]
fn each_record_that_is_appended_is_on_disk_when_its_waiter_is_told() {
    model(|| run(None));
}

/// Fails if a rewind leaves a waiter, or takes a record of the life before.
#[test]
fn a_failed_commit_leaves_each_record_with_one_true_fate() {
    // The write and the sync of the first batch.
    for call in [0, 1] {
        for fault in [Fault::Error, Fault::Full] {
            model(move || run(Some((call, fault))));
        }
    }
}

/// Fails if a waiter compares outside of the lock.
#[test]
fn a_waiter_that_comes_late_is_told() {
    model(|| {
        let disk = MemoryDisk::new();
        let mut journal = MemoryJournal::new(&disk);
        let opened = journal.open().unwrap();
        let tail = Arc::new(Tail::new(opened.recovered.last));
        let fates: Fates = Arc::default();
        let life = tail.life();
        let writer = {
            let tail = tail.clone();
            loom::thread::spawn(move || {
                write(&tail, &mut journal, opened.log, |opened| (opened.log, Ok(())), || ()).is_ok()
            })
        };
        let position = tail.append(life, &record(1), None).unwrap();
        tail.when_released(life, position, tells(&fates, 1));
        tail.close();
        assert!(writer.join().unwrap());
        assert_eq!(*lock(&fates), [(1, Fate::Released)]);
        assert_eq!(tail.released(), Position(1));
    });
}

/// Fails if a waiter for room is added outside of the lock.
#[test]
fn a_waiter_for_room_is_told() {
    model(|| {
        let disk = MemoryDisk::new();
        let mut journal = MemoryJournal::new(&disk);
        let opened = journal.open().unwrap();
        let tail = Arc::new(Tail::with_bound(opened.recovered.last, 1));
        let told: Arc<Mutex<u32>> = Arc::default();
        tail.append(tail.life(), &record(1), None).unwrap();
        tail.close();
        let writer = {
            let tail = tail.clone();
            loom::thread::spawn(move || {
                write(&tail, &mut journal, opened.log, |opened| (opened.log, Ok(())), || ()).is_ok()
            })
        };
        let of_waiter = told.clone();
        let has_room = tail.has_room(move || *lock(&of_waiter) += 1);
        assert!(writer.join().unwrap());
        assert_eq!(*lock(&told), u32::from(!has_room), "it is told once, or it need not wait");
    });
}
