//! An observer of a runtime with durable processes.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::observe::{DeadLetter, Observer, ProcessIdentity};
use procession::{Exit, Runtime};

use crate::places::store_in;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{Worker, WorkerMessage, end, look, stepped};

const MINUTE: Duration = Duration::from_secs(60);

/// The calls of an observer, as texts.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Told {
    fn spawned(&self, _: &ProcessIdentity) {
        self.note("spawned".into());
    }

    fn exited(&self, _: &ProcessIdentity, exit: &Exit) {
        self.note(exit.to_string());
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.note(format!("{:?}", letter.reason));
    }
}

#[test]
fn an_observer_gets_departures_ends_and_dead_letters() {
    let (disk, clock, told) = (MemoryDisk::new(), ManualClock::new(), Told::default());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().sleep_after(MINUTE);
    let builder = Runtime::builder().workers(2).clock(clock.clock()).observer(told.clone());
    let (store, runtime) = store.start(builder).unwrap();
    let begun = store.begin("it", Worker::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    stepped(&runtime);
    assert_eq!(told.take(), ["spawned"]);
    until("it is asleep", || {
        clock.advance(MINUTE);
        store.stats().in_memory == 0
    });
    assert_eq!(told.take(), ["done"]);
    assert_eq!(look(&runtime, begun.address()).2, 1);
    assert_eq!(told.take(), ["spawned"]);
    store.send(begun.address(), WorkerMessage::Over).unwrap().wait(LIMIT).unwrap();
    assert_eq!(store.result::<Worker>("it").unwrap().wait(LIMIT).unwrap(), 0);
    stepped(&runtime);
    assert_eq!(told.take(), ["done"]);
    let other = store.begin("other", Worker::default()).unwrap().address();
    store.send(other, WorkerMessage::Introduce(begun.address())).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    assert_eq!(told.take(), ["spawned", "Ended"]);
    end((store, runtime));
}
