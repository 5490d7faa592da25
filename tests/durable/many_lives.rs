//! Many processes that begin and end, in runs that are killed.

use std::collections::HashSet;
use std::time::Duration;

use procession::Runtime;
use procession::durable::StoreError;
use procession::durable::journal::{MemoryDisk, MemoryJournal};

use crate::payer::kill;
use crate::places::store_in;
use crate::script::counts;
use crate::wait::LIMIT;
use crate::worker::{Worker, WorkerMessage};

/// How long processes that have ended are kept. They are removed while others begin.
const KEEP: Duration = Duration::from_millis(100);

#[test]
fn no_pid_is_given_twice_in_many_runs_that_are_killed() {
    let runs = counts("runs that are killed", 6, 100);
    let in_run = counts("processes of a run", 400, 100_000);
    let (disk, mut pids) = (MemoryDisk::new(), HashSet::new());
    for run in 0..runs {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(KEEP);
        let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
        let stays = store.begin("stays", Worker::default()).unwrap();
        assert_eq!(pids.insert(stays.pid()), run == 0, "it has one PID in all runs");
        stays.wait(LIMIT).unwrap();
        for number in 0..in_run {
            let begun = store.begin(&format!("{run}/{number}"), Worker::default()).unwrap();
            assert!(pids.insert(begun.pid()), "{} was given twice", begun.pid());
            store.send(begun.address(), WorkerMessage::Over).unwrap();
        }
        // The others are at all stages when the run is killed.
        // One that was removed has ended.
        match store.result::<Worker>(&format!("{run}/{}", in_run / 2)) {
            Ok(half) => assert!(matches!(half.wait(LIMIT), Ok(0) | Err(StoreError::NoSuchId(_)))),
            Err(why) => assert!(matches!(why, StoreError::NoSuchId(_)), "{why}"),
        }
        kill((store, runtime), &disk);
    }
    assert_eq!(pids.len() as u64, 1 + runs * in_run);
}
