//! What becomes of the yields of a step when a later record is lost.

use std::sync::Arc;
use std::time::Duration;

use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::sync::Latch;
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, Mutex, until, wait};
use crate::worker::{asked, end, stepped};

/// Notes numbers.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<u64>>>);

impl Process for Notes {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(number) => self.0.lock().unwrap().push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Keeps the only worker until it is told.
struct Blocks(Latch<()>, Latch<()>);

impl Process for Blocks {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.0.set(()).unwrap();
        wait(&self.1);
        Ok(Step::Done(()))
    }
}

#[derive(Serialize, Deserialize)]
struct Teller;

#[derive(Serialize, Deserialize)]
enum TellerMessage {
    Tell(Address<u64>, u64),
    /// Its step waits for the test.
    Wait,
    Ask(Reply<()>),
}

static WAIT: Mutex<Option<[Latch<()>; 2]>> = Mutex::new(None);

impl Process for Teller {
    type Message = TellerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, TellerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(TellerMessage::Tell(to, number)) => out.send(to, number),
                Event::Message(TellerMessage::Wait) => {
                    // A later run of the step does not wait.
                    let latches = WAIT.lock().unwrap().take();
                    if let Some([begun, goes_on]) = latches {
                        begun.set(()).unwrap();
                        wait(&goes_on);
                    }
                }
                Event::Message(TellerMessage::Ask(reply)) => out.reply(reply, ()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Teller {
    const NAME: &str = "teller";
}

/// The record of a step that has sent 1 is released while its process has no turn. Then the record of a step that has
/// sent 2 is lost. `block` is called before the release, and returns the latch that ends the wait of the process.
fn loses(block: impl FnOnce(&Store, &Runtime, Address<TellerMessage>) -> Latch<()>) -> Vec<u64> {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let store = store_in(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Teller>();
    let (store, runtime) = store.start(Runtime::builder().workers(1)).unwrap();
    let teller = store.begin("a", Teller).unwrap();
    teller.wait(LIMIT).unwrap();
    stepped(&runtime);
    let (teller, notes) = (teller.address(), Notes::default());
    let other = runtime.spawn(notes.clone()).unwrap().address();

    gate.close();
    store.send(teller, TellerMessage::Tell(other, 1)).unwrap();
    gate.wait_for(1);
    stepped(&runtime);
    // The message is on disk, and the record of the step waits.
    gate.let_pass(1);
    gate.wait_for(2);
    store.send(teller, TellerMessage::Tell(other, 2)).unwrap();
    stepped(&runtime);
    let goes_on = block(&store, &runtime, teller);
    gate.let_pass(2);
    gate.wait_for(3);
    disk.crash();
    gate.open();
    until("the store is open again", || {
        let another = store.begin("b", Teller);
        another.is_ok_and(|another| another.wait(Duration::from_secs(1)).is_ok())
    });
    goes_on.set(()).unwrap();
    asked(|| runtime.ask(teller, TellerMessage::Ask, LIMIT).wait().ok());
    stepped(&runtime);
    end((store, runtime));
    let notes = notes.0.lock().unwrap().clone();
    notes
}

#[test]
fn what_a_stored_step_has_sent_leaves_though_a_later_record_is_lost() {
    if !goes_ahead() {
        return;
    }
    let notes = loses(|_, runtime, _| {
        let (begun, goes_on) = (Latch::new(), Latch::new());
        runtime.spawn(Blocks(begun.clone(), goes_on.clone())).unwrap();
        wait(&begun);
        goes_on
    });
    assert_eq!(notes.first(), Some(&1));
}

#[test]
fn what_a_stored_step_has_sent_leaves_though_a_step_in_between_is_refused() {
    if !goes_ahead() {
        return;
    }
    let notes = loses(|store, _, teller| {
        let (begun, goes_on) = (Latch::new(), Latch::new());
        *WAIT.lock().unwrap() = Some([begun.clone(), goes_on.clone()]);
        store.send(teller, TellerMessage::Wait).unwrap();
        wait(&begun);
        goes_on
    });
    assert_eq!(notes.first(), Some(&1));
}
