//! Backups of a store that is open, while others write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use procession::Runtime;
use procession::durable::journal::SqliteJournal;

use crate::places::{Directory, store_in};
use crate::script::counts;
use crate::wait::{LIMIT, until};
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
