//! Backups of a store that is open, while others write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use procession::Runtime;
use procession::durable::journal::{
    Batch, Change, EncodedRecord, Journal, Position, ProcessRow, Record, SqliteJournal, Status,
};

use crate::places::{Directory, store_in};
use crate::script::counts;
use crate::wait::{LIMIT, until, wait};
use crate::worker::{Worker, WorkerMessage, end, look, start};

#[test]
fn a_backup_has_all_that_was_on_disk_when_it_began() {
    let (directory, copies) = (Directory::new(), Directory::new());
    std::fs::create_dir(copies.path()).unwrap();
    let (store, runtime) = start(SqliteJournal::new(directory.path()), Runtime::builder());
    let workers: Vec<_> =
        (0..4).map(|n| store.begin(&format!("worker-{n}"), Worker::default()).unwrap().address()).collect();
    let is_over = AtomicBool::new(false);
    // The last number of each worker that is known to be on disk. A worker has them in order.
    let acknowledged: Vec<AtomicU64> = workers.iter().map(|_| AtomicU64::new(0)).collect();
    let backups = counts("backups", 5, 100);
    std::thread::scope(|scope| {
        for (worker, acknowledged) in workers.iter().zip(&acknowledged) {
            let (store, runtime, is_over) = (&store, &runtime, &is_over);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::SeqCst) {
                    number += 1;
                    store.send(*worker, WorkerMessage::Set(number)).unwrap().wait(LIMIT).unwrap();
                    // Its answer says that the step is on disk, too.
                    assert!(look(runtime, *worker).0 >= number);
                    acknowledged.store(number, Ordering::SeqCst);
                }
            });
        }
        for backup in 0..backups {
            let first: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
            until("each worker has gone on", || {
                first.iter().zip(&acknowledged).all(|(first, now)| now.load(Ordering::SeqCst) > *first)
            });
            let known: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
            let copy = copies.path().join(backup.to_string());
            store.backup(&copy).unwrap();
            let (copied, of_copy) = start(SqliteJournal::new(&copy), Runtime::builder());
            assert_eq!(copied.check().unwrap(), []);
            for (n, known) in known.into_iter().enumerate() {
                let worker = copied.find::<Worker>(&format!("worker-{n}")).unwrap();
                let there = look(&of_copy, worker).0;
                assert!(there >= known, "backup {backup}, worker {n}: {there} and not {known}");
            }
            end((copied, of_copy));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(store.backup(directory.path()).is_err(), "a folder that is there is not written");
    end((store, runtime));
}

#[test]
fn a_backup_is_a_store_that_goes_on_by_itself() {
    let (directory, copy) = (Directory::new(), Directory::new());
    let (store, runtime) = start(SqliteJournal::new(directory.path()), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap();
    store.send(worker.address(), WorkerMessage::Set(1)).unwrap();
    assert_eq!(look(&runtime, worker.address()).0, 1);
    store.backup(copy.path()).unwrap();
    store.send(worker.address(), WorkerMessage::Set(2)).unwrap();
    assert_eq!(look(&runtime, worker.address()).0, 2);
    end((store, runtime));
    // Later messages are not in the copy, and it takes messages of its own.
    for expected in [1, 3] {
        let store = store_in(SqliteJournal::new(copy.path())).kind::<Worker>();
        let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
        let worker = store.find::<Worker>("a").unwrap();
        assert_eq!(look(&runtime, worker).0, expected);
        store.send(worker, WorkerMessage::Set(3)).unwrap().wait(LIMIT).unwrap();
        assert_eq!(look(&runtime, worker).0, 3);
        end((store, runtime));
    }
}

/// An application of many rows is several transactions of the tables. `Store::backup` copies without the lock of the
/// tables, so an application may go on meanwhile.
#[test]
fn a_copy_beside_an_application_is_a_state_that_has_been() {
    const PROCESSES: u64 = 20_000;
    let (directory, copies) = (Directory::new(), Directory::new());
    std::fs::create_dir(copies.path()).unwrap();
    let mut journal = SqliteJournal::new(directory.path());
    let mut opened = journal.open().unwrap();
    // Each record is about all processes.
    for position in 1..=2 {
        let row = |value: u64| ProcessRow {
            status: Status::Sleeping,
            kind: "kind".into(),
            version: 1,
            state: value.to_le_bytes().to_vec(),
            head: Vec::new(),
        };
        let changes = (0..PROCESSES).map(|serial| Change::Process { serial, row: Some(row(position)) }).collect();
        let mut batch = Batch::new(Position(position));
        batch.push(&EncodedRecord::new(&Record { changes }).unwrap());
        opened.log.commit(&batch).unwrap();
        if position == 1 {
            opened.tables.apply(Position(1)).unwrap();
        }
    }
    // As `Store::backup` has it when it has given the lock back.
    let later: Vec<_> = (0..200).map(|_| opened.tables.copy().unwrap()).collect();
    let mut tables = opened.tables;
    let applies = std::thread::spawn(move || {
        tables.apply(Position(2)).unwrap();
    });
    let mut wrong = Vec::new();
    for (number, copy) in later.into_iter().enumerate() {
        let folder = copies.path().join(number.to_string());
        copy(&folder).unwrap();
        let tables = rusqlite::Connection::open(folder.join("tables.db")).unwrap();
        let count = |text: &str| tables.query_row(text, [], |row| row.get::<_, u64>(0)).unwrap();
        let (mark, newer) =
            (count("SELECT position FROM mark"), count("SELECT count(*) FROM processes WHERE position = 2"));
        if newer != 0 && newer != PROCESSES {
            wrong.push((number, mark, newer));
        }
        if mark == 2 {
            break;
        }
    }
    wait(applies).unwrap();
    assert_eq!(wrong, [], "the copies, their marks, and how many of their rows are of the second record");
}
