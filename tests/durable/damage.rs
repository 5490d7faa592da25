//! Rows that the disk has damaged, in a store that runs.

#[cfg(feature = "sqlite")]
use std::time::Duration;

use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal, Status};
use procession::durable::{Durable, Query, Store, StoreError, WhyDead};
use procession::{Address, Events, Exit, Process, Reason, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, until, wait};
use crate::worker::{Worker, WorkerMessage, end, look, start, stepped};

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

    use crate::places::Directory;

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
    // A step may have been left to a later run, which has put it into the log.
    until("the tables have everything", || {
        end(run());
        disk.log_size() < 10_000
    });
    assert!(disk.flip(8 * (disk.log_size() as u64 + 60_000)));
    let (store, runtime) = run();
    assert_eq!(store.retry_all(&Query::all()).unwrap(), 0);
    end((store, runtime));
}

/// Checks that a damaged process has ended in this run, and that nothing of the damage is left.
fn has_ended(store: &Store, damaged: Address<WorkerMessage>) {
    assert!(matches!(store.result::<Worker>("damaged").unwrap().wait(LIMIT), Err(StoreError::Terminated)));
    let listed = store.list(&Query::all().status(Status::Ended)).unwrap();
    let [one] = &*listed else { panic!("{listed:?}") };
    assert_eq!((one.pid, one.id.as_deref()), (damaged.pid(), Some("damaged")));
    assert_eq!(store.count(&Query::all().status(Status::Sleeping)).unwrap(), 1);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_damaged_process_is_terminated_with_its_mail() {
    for by_store in [false, true] {
        let disk = MemoryDisk::new();
        let run = || start(MemoryJournal::new(&disk), Runtime::builder());
        let (store, runtime) = run();
        let damaged = store.begin("damaged", marked()).unwrap().address();
        store.begin("sound", Worker::default()).unwrap().wait(LIMIT).unwrap();
        stepped(&runtime);
        end((store, runtime));
        // A step may have been left to a later run, which has put it into the log.
        until("the tables have everything", || {
            end(run());
            disk.log_size() < 10_000
        });
        assert!(disk.flip(8 * (disk.log_size() as u64 + 60_000)));
        let (store, runtime) = run();
        let watcher = runtime.watch(damaged.pid());
        store.send(damaged, WorkerMessage::Set(7)).unwrap().wait(LIMIT).unwrap();
        if by_store {
            store.terminate(damaged.pid()).unwrap();
        } else {
            assert!(runtime.terminate(damaged.pid()).unwrap());
        }
        assert!(matches!(wait(watcher).exit, Exit::Terminated(Reason::Terminated)));
        has_ended(&store, damaged);
        let dead = store.dead_letters(None, 10).unwrap();
        assert_eq!(dead.iter().map(|dead| (dead.to, dead.why)).collect::<Vec<_>>(), [(damaged.pid(), WhyDead::Ended)]);
        end((store, runtime));
        let (store, runtime) = run();
        has_ended(&store, damaged);
        end((store, runtime));
    }
}

#[test]
fn a_state_that_is_none_of_its_kind_keeps_no_process_from_ending() {
    for by_store in [false, true] {
        let disk = MemoryDisk::new();
        let run = || start(MemoryJournal::new(&disk), Runtime::builder());
        let (store, runtime) =
            store_in(MemoryJournal::new(&disk)).kind::<Impostor>().start(Runtime::builder()).unwrap();
        let other = store.begin("damaged", Impostor(7)).unwrap().address();
        stepped(&runtime);
        end((store, runtime));
        let (store, runtime) = run();
        store.begin("sound", Worker::default()).unwrap().wait(LIMIT).unwrap();
        let damaged = other.pid().typed();
        // That loads it, and parks it.
        assert!(runtime.cancel(damaged.pid(), "enough").unwrap());
        until("it is parked", || store.count(&Query::all().status(Status::Parked)).unwrap() == 1);
        if by_store {
            store.terminate(damaged.pid()).unwrap();
        } else {
            assert!(runtime.terminate(damaged.pid()).unwrap());
        }
        stepped(&runtime);
        has_ended(&store, damaged);
        end((store, runtime));
        let (store, runtime) = run();
        has_ended(&store, damaged);
        end((store, runtime));
    }
}

/// A process of the name of a worker, with another state.
#[derive(Serialize, Deserialize)]
struct Impostor(u64);

impl Process for Impostor {
    type Message = ();
    type Output = u64;

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u64> {
        Ok(Step::Idle)
    }
}

impl Durable for Impostor {
    const NAME: &str = "worker";
}

/// A child whose row cannot be read answers its parent, and a message that cannot be read goes.
#[cfg(feature = "sqlite")]
#[test]
fn a_damaged_child_in_files_ends_and_answers_its_parent() {
    use procession::durable::journal::SqliteJournal;
    use procession::durable::{Request, Which, operate};

    use crate::guest::{self, Guest, GuestMessage};
    use crate::places::Directory;

    for is_open in [false, true] {
        let directory = Directory::new();
        static KEYS: crate::wait::Mutex<Vec<procession::command::CommandKey>> = crate::wait::Mutex::new(Vec::new());
        let test = 7_100 + u64::from(is_open);
        let run = || guest::start(SqliteJournal::new(directory.path()), Runtime::builder(), |store| store, &KEYS);
        let (store, runtime) = run();
        let parent = store.begin("parent", Guest::new(test, 1)).unwrap().address();
        store.send(parent, GuestMessage::Run(2)).unwrap().wait(LIMIT).unwrap();
        until("the child has begun", || guest::address((test, 2)).is_some());
        let child = guest::address((test, 2)).unwrap();
        stepped(&runtime);
        end((store, runtime));
        end(run());
        let tables = rusqlite::Connection::open(directory.path().join("tables.db")).unwrap();
        let text = "UPDATE processes SET version = 77 WHERE serial = (SELECT max(serial) FROM processes)";
        assert_eq!(tables.execute(text, []).unwrap(), 1);
        drop(tables);
        let terminate = Request::Terminate(Which::One(child.pid().to_string()));
        if !is_open {
            assert_eq!(operate(directory.path(), &terminate).unwrap(), 1);
        }
        let (store, runtime) = run();
        if is_open {
            store.send(child, GuestMessage::Ring(1)).unwrap().wait(LIMIT).unwrap();
            end((store, runtime));
            end(run());
            let tables = rusqlite::Connection::open(directory.path().join("tables.db")).unwrap();
            assert_eq!(tables.execute("UPDATE entries SET due = 1 WHERE class = 1", []).unwrap(), 1);
            drop(tables);
            let (store, runtime) = run();
            assert_eq!(store.operate(&terminate).unwrap(), 1);
            answers(&runtime, parent);
            assert_eq!(store.check().unwrap(), []);
            end((store, runtime));
        } else {
            answers(&runtime, parent);
            assert_eq!(store.check().unwrap(), []);
            end((store, runtime));
        }
    }

    fn answers(runtime: &Runtime, parent: Address<GuestMessage>) {
        let seen = || runtime.ask(parent, GuestMessage::Look, LIMIT).wait();
        until("the parent has its answer", || seen().is_ok_and(|(_, notes)| notes == ["answer"]));
        stepped(runtime);
        assert_eq!(seen().unwrap().1, ["answer"]);
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn an_answer_to_a_damaged_process_names_the_damage() {
    use procession::durable::journal::{JournalError, SqliteJournal};
    use procession::durable::{Request, operate};

    use crate::guest::{self, Guest, GuestMessage};
    use crate::places::Directory;

    static KEYS: crate::wait::Mutex<Vec<procession::command::CommandKey>> = crate::wait::Mutex::new(Vec::new());
    let directory = Directory::new();
    let run = || guest::start(SqliteJournal::new(directory.path()), Runtime::builder(), |store| store, &KEYS);
    let (store, runtime) = run();
    let guest = store.begin("guest", Guest::new(940, 1)).unwrap().address();
    store.send(guest, GuestMessage::Later).unwrap().wait(LIMIT).unwrap();
    until("the command is handed out", || !KEYS.lock().unwrap().is_empty());
    stepped(&runtime);
    end((store, runtime));
    end(run());
    let tables = rusqlite::Connection::open(directory.path().join("tables.db")).unwrap();
    assert_eq!(tables.execute("UPDATE processes SET version = 77", []).unwrap(), 1);
    drop(tables);
    let key = KEYS.lock().unwrap()[0].to_string();
    let answer = |key| operate(directory.path(), &Request::Answer { key, json: "1".into(), is_error: false });
    let answered = answer(key.clone());
    assert!(matches!(answered, Err(StoreError::Journal(JournalError::Damaged(_)))), "{answered:?}");
    // A command of another store, whose process has the same number.
    let answered = answer(format!("{:016x}{}", 1, &key[16..]));
    assert!(matches!(answered, Err(StoreError::NoSuchCommand(_))), "{answered:?}");
}
