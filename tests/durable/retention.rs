//! Processes that have ended and are kept no longer: they go to the sink, and are removed.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Query, Shown, Store};
use procession::{BoxError, Runtime};

use crate::gate::{Gate, GatedJournal};
use crate::places::store_in;
use crate::wait::{Mutex, advance_until, until};
use crate::worker::{Worker, WorkerMessage, end};

const HOUR: Duration = Duration::from_secs(60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

/// The id and the output of a process.
type Ended = (String, Option<u64>);

/// The processes that a sink was given.
#[derive(Clone, Default)]
struct Archive(Arc<Mutex<Vec<Ended>>>);

impl Archive {
    fn note(&self, shown: &Shown) {
        let output = shown.output.as_ref().and_then(serde_json::Value::as_u64);
        self.0.lock().unwrap().push((shown.listed.id.clone().unwrap_or_default(), output));
    }

    fn given(&self) -> Vec<Ended> {
        self.0.lock().unwrap().clone()
    }
}

fn open(
    journal: impl Journal + 'static,
    clock: &ManualClock,
    sink: impl Fn(&Shown) -> Result<(), BoxError> + Send + Sync + 'static,
) -> (Store, Runtime) {
    let store = store_in(journal).kind::<Worker>().keep(HOUR).sink(sink);
    store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
}

/// Begins a process that ends with this number.
fn ended(store: &Store, id: &str, value: u64) {
    let worker = store.begin(id, Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Set(value)).unwrap();
    store.send(worker, WorkerMessage::Over).unwrap();
    assert_eq!(store.result::<Worker>(id).unwrap().wait(Duration::MAX).unwrap(), value);
}

fn count(store: &Store) -> u64 {
    store.count(&Query::all()).unwrap()
}

#[test]
fn the_sink_has_a_process_before_it_is_removed() {
    let (archive, clock) = (Archive::default(), ManualClock::new());
    let sink = archive.clone();
    let sink = move |shown: &Shown| {
        sink.note(shown);
        // It takes others, and this one the third time.
        let tries = sink.given().iter().filter(|(id, _)| id == "bad").count();
        match tries {
            _ if shown.listed.id.as_deref() != Some("bad") => Ok(()),
            1 => Err("no room".into()),
            2 => panic!("on purpose"),
            _ => Ok(()),
        }
    };
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &clock, sink);
    ended(&store, "bad", 1);
    ended(&store, "good", 2);
    let killed = store.begin("killed", Worker::default()).unwrap();
    store.terminate(killed.pid()).unwrap();
    assert!(archive.given().is_empty());
    clock.advance(HOUR);
    advance_until("the others are removed", &clock, Duration::from_secs(1), || count(&store) == 1);
    let mut given = archive.given();
    given.sort();
    assert_eq!(given, [("bad".into(), Some(1)), ("good".into(), Some(2)), ("killed".into(), None)]);
    advance_until("it is given three times", &clock, MINUTE, || archive.given().len() >= 5);
    advance_until("it is removed", &clock, MINUTE, || count(&store) == 0);
    assert_eq!(archive.given().len(), 5, "the sink has it, so it is not given again");
    end((store, runtime));
}

#[test]
fn a_process_whose_removal_is_lost_is_given_to_the_sink_again() {
    let (disk, gate, archive) = (MemoryDisk::new(), Gate::default(), Archive::default());
    let clock = ManualClock::new();
    let sink = |archive: Archive| {
        move |shown: &Shown| {
            archive.note(shown);
            Ok(())
        }
    };
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = open(journal, &clock, sink(archive.clone()));
    ended(&store, "a", 7);
    // So that the tables have it.
    assert_eq!(count(&store), 1);
    gate.close();
    clock.advance(HOUR);
    advance_until("the removal is on its way", &clock, Duration::from_secs(1), || gate.arrivals() > 0);
    disk.crash();
    gate.open();
    drop(runtime.shutdown(Duration::MAX).unwrap());
    drop(store.close());
    let given = archive.given().len();
    assert!(given > 0, "it is given before it is removed");
    let (store, runtime) = open(MemoryJournal::new(&disk), &clock, sink(archive.clone()));
    advance_until("it is removed", &clock, Duration::from_secs(1), || count(&store) == 0);
    assert!(archive.given().len() > given);
    assert!(archive.given().iter().all(|ended| *ended == ("a".into(), Some(7))));
    until("nothing else is removed", || runtime.is_idle());
    end((store, runtime));
}

#[test]
fn a_dead_letter_is_kept_for_its_time_though_its_receiver_is_removed() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let open = || open(MemoryJournal::new(&disk), &clock, |_| Ok(()));
    let dead = |store: &Store| store.dead_letters(None, 10).unwrap().len();
    let (store, runtime) = open();
    ended(&store, "a", 7);
    let address = store.find::<Worker>("a").unwrap();
    end((store, runtime));
    clock.advance(HOUR - MINUTE);
    let (store, runtime) = open();
    // Only the disk knows that the process has ended.
    store.send(address, WorkerMessage::Set(1)).unwrap().wait(Duration::MAX).unwrap();
    until("it is a dead letter", || dead(&store) == 1);
    advance_until("its receiver is removed", &clock, Duration::from_secs(1), || count(&store) == 0);
    assert_eq!((dead(&store), store.check().unwrap()), (1, vec![]));
    clock.advance(HOUR);
    advance_until("it is removed", &clock, Duration::from_secs(1), || dead(&store) == 0);
    let counts = store.mail_counts().unwrap();
    assert_eq!((counts.accepted, counts.stepped + counts.dead_letters), (3, 3), "{counts:?}");
    end((store, runtime));
}

#[cfg(feature = "sqlite")]
#[test]
fn a_store_under_retention_keeps_its_size() {
    use procession::durable::journal::SqliteJournal;

    use crate::places::Directory;
    use crate::script::counts;

    let at_once = counts("processes at once", 500, 100_000);
    let directory = Directory::new();
    // The WALs have a bound of their own, and are larger than the files in a small run.
    let size =
        || ["log.db", "tables.db"].map(|file| directory.path().join(file).metadata().unwrap().len()).iter().sum();
    let clock = ManualClock::new();
    let mut sizes: Vec<u64> = Vec::new();
    for round in 0..10 {
        let store = store_in(SqliteJournal::new(directory.path())).kind::<Worker>().keep(HOUR);
        let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
        let results: Vec<_> = (0..at_once)
            .map(|n| {
                let id = format!("{round}-{n}");
                let worker = store.begin(&id, Worker::default()).unwrap().address();
                store.send(worker, WorkerMessage::Over).unwrap();
                store.result::<Worker>(&id).unwrap()
            })
            .collect();
        results.into_iter().for_each(|result| assert_eq!(result.wait(Duration::MAX).unwrap(), 0));
        assert_eq!(count(&store), at_once, "those of the round before are removed");
        drop(runtime.shutdown(Duration::MAX).unwrap());
        store.close().unwrap();
        sizes.push(size());
        clock.advance(HOUR);
        let store = store_in(SqliteJournal::new(directory.path())).kind::<Worker>().keep(HOUR);
        let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
        advance_until("they are removed", &clock, Duration::from_secs(1), || count(&store) == 0);
        drop(runtime.shutdown(Duration::MAX).unwrap());
        store.close().unwrap();
    }
    println!("bytes after each round: {sizes:?}");
    // A small first round leaves files of a few pages only.
    let first = usize::from(at_once < 100_000);
    assert!(sizes[first + 1..].iter().all(|size| *size < 2 * sizes[first]), "{sizes:?}");
}
