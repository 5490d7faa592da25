//! Rows that the disk has damaged, in a store that runs.

#[cfg(feature = "sqlite")]
use std::time::Duration;

use procession::durable::Query;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal, Status};
use procession::{Address, Runtime};

use crate::wait::{LIMIT, until};
use crate::worker::{Worker, WorkerMessage, end, look, start};

/// The state of the process whose row is damaged.
fn marked() -> Worker {
    let mut worker = Worker::default();
    worker.filling = "marker".repeat(20_000);
    worker
}

/// Makes a store, damages a state, runs, takes the damage back, and runs.
fn a_damaged_state_stays<J: Journal + 'static>(journal: impl Fn() -> J, turn_damage: impl Fn()) {
    let run = || start(journal(), Runtime::builder());
    let (store, runtime) = run();
    let damaged = store.begin("damaged", marked()).unwrap().address();
    let sound = store.begin("sound", Worker::default()).unwrap().address();
    assert_eq!((look(&runtime, damaged).0, look(&runtime, sound).0), (0, 0));
    end((store, runtime));
    // Now the tables have everything.
    end(run());

    turn_damage();
    let (store, runtime) = run();
    store.send(damaged, WorkerMessage::Set(7)).unwrap().wait(LIMIT).unwrap();
    store.send(sound, WorkerMessage::Set(8)).unwrap().wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, sound).0, 8);
    let asked = |to: Address<_>| runtime.ask(to, WorkerMessage::Look, LIMIT).wait();
    until("it is known that it cannot be read", || asked(damaged).is_err());
    let listed = store.list(&Query::all()).unwrap();
    let [one, two] = &*listed else { panic!("{listed:?}") };
    assert_eq!((one.pid, one.status, &*two.kind), (damaged.pid(), Status::Parked, "worker"));
    assert!(one.error.as_ref().unwrap().contains("cannot be read"), "{one:?}");
    assert!(store.show(damaged.pid()).unwrap_err().to_string().contains("cannot be read"));
    assert_eq!(store.check().unwrap().len(), 1);
    end((store, runtime));

    turn_damage();
    let (store, runtime) = run();
    assert_eq!(look(&runtime, damaged).0, 7, "its state is there again, and its message was kept");
    assert_eq!(store.check().unwrap().len(), 0);
    end((store, runtime));
}

#[test]
fn a_damaged_state_in_memory_keeps_its_process_and_no_other_from_running() {
    let disk = MemoryDisk::new();
    // Nearly all bytes of the tables are those of this state.
    let flip = || assert!(disk.flip(8 * (disk.log_size() as u64 + 60_000)));
    a_damaged_state_stays(|| MemoryJournal::new(&disk), flip);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_damaged_state_in_files_keeps_its_process_and_no_other_from_running() {
    use procession::durable::journal::SqliteJournal;

    use crate::places::Directory;

    let directory = Directory::new();
    let turn = || {
        let tables = rusqlite::Connection::open(directory.path().join("tables.db")).unwrap();
        let text = "UPDATE processes SET state = CAST(replace(replace(replace(CAST(state AS TEXT), 'marker', '?'), \
                    'market', 'marker'), '?', 'market') AS BLOB) WHERE length(state) > 100000";
        assert_eq!(tables.execute(text, []).unwrap(), 1);
    };
    a_damaged_state_stays(|| SqliteJournal::new(directory.path()), turn);
}

/// A process that has ended and cannot be read stays. Others are removed.
#[cfg(feature = "sqlite")]
#[test]
fn a_damaged_row_keeps_no_other_from_being_removed() {
    use procession::clock::ManualClock;
    use procession::durable::journal::SqliteJournal;

    use crate::places::{Directory, store_in};

    const KEEP: Duration = Duration::from_secs(60);
    let (directory, clock) = (Directory::new(), ManualClock::new());
    let run = || {
        let store = store_in(SqliteJournal::new(directory.path())).kind::<Worker>().keep(KEEP);
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = run();
    for id in ["damaged", "sound"] {
        let worker = store.begin(id, Worker::default()).unwrap().address();
        store.send(worker, WorkerMessage::Over).unwrap();
        store.result::<Worker>(id).unwrap().wait(LIMIT).unwrap();
    }
    end((store, runtime));
    end(run());
    let tables = rusqlite::Connection::open(directory.path().join("tables.db")).unwrap();
    let text = "UPDATE processes SET version = 77 WHERE serial = (SELECT min(serial) FROM processes)";
    assert_eq!(tables.execute(text, []).unwrap(), 1);
    drop(tables);
    clock.advance(2 * KEEP);
    let (store, runtime) = run();
    until("the sound one is removed", || store.count(&Query::all()).unwrap() == 1);
    let listed = store.list(&Query::all()).unwrap();
    assert!(listed[0].error.as_ref().unwrap().contains("cannot be read"), "{listed:?}");
    end((store, runtime));
}

/// Otherwise the order would wait, and the damaged process would be read again and again.
#[test]
fn an_order_to_all_passes_over_a_damaged_process() {
    let disk = MemoryDisk::new();
    let run = || start(MemoryJournal::new(&disk), Runtime::builder());
    let (store, runtime) = run();
    store.begin("damaged", marked()).unwrap().wait(LIMIT).unwrap();
    store.begin("sound", Worker::default()).unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    // Now the tables have everything.
    end(run());
    assert!(disk.flip(8 * (disk.log_size() as u64 + 60_000)));
    let (store, runtime) = run();
    assert_eq!(store.retry_all(&Query::all()).unwrap(), 0);
    end((store, runtime));
}
