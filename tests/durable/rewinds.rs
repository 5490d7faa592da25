//! The yields of steps whose records are on disk, when the journal is opened anew.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::sync::Latch;
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::live_questions::Outside;
use crate::payer::{self, Calls, Pay, PayerMessage};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, Mutex, advance_until, until, wait};
use crate::worker::{asked, end, stepped};

/// Keeps the only worker busy until the second latch is set.
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
    /// Its step waits for the test with this number.
    Wait(usize),
    Ask(Reply<()>),
}

/// The latches of such a step, for each test that has one.
static WAITS: [Mutex<Option<[Latch<()>; 2]>>; 2] = [const { Mutex::new(None) }; 2];

impl Process for Teller {
    type Message = TellerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, TellerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(TellerMessage::Tell(to, number)) => out.send(to, number),
                Event::Message(TellerMessage::Wait(test)) => {
                    // A later run of the step does not wait.
                    let latches = WAITS[test].lock().unwrap().take();
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

/// A run with a teller, and a process to which the teller has sent 1 in a step. The record of this step waits.
struct Run {
    disk: MemoryDisk,
    gate: Gate,
    both: (Store, Runtime),
    teller: Address<TellerMessage>,
    other: Address<u64>,
    notes: Arc<Mutex<Vec<u64>>>,
}

impl Run {
    fn new(builder: RuntimeBuilder) -> Run {
        let (disk, gate) = (MemoryDisk::new(), Gate::default());
        let store = store_in(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Teller>();
        let (store, runtime) = store.start(builder.workers(1)).unwrap();
        let teller = store.begin("a", Teller).unwrap();
        teller.wait(LIMIT).unwrap();
        stepped(&runtime);
        let (teller, notes) = (teller.address(), Arc::<Mutex<Vec<u64>>>::default());
        let other = runtime.spawn(Outside(notes.clone())).unwrap().address();
        gate.close();
        let run = Run { disk, gate, both: (store, runtime), teller, other, notes };
        // Another commit goes first, so that all records of the teller are in the next one.
        run.both.0.begin("first", Teller).unwrap();
        run.gate.wait_for(1);
        run.tells(1);
        stepped(&run.both.1);
        run.gate.let_pass(1);
        run.gate.wait_for(2);
        run
    }

    fn tells(&self, number: u64) {
        self.both.0.send(self.teller, TellerMessage::Tell(self.other, number)).unwrap();
    }

    /// Has the teller begin a step that waits. Returns the latch that ends the wait.
    fn waits(&self, test: usize) -> Latch<()> {
        let (begun, goes_on) = (Latch::new(), Latch::new());
        *WAITS[test].lock().unwrap() = Some([begun.clone(), goes_on.clone()]);
        self.both.0.send(self.teller, TellerMessage::Wait(test)).unwrap();
        wait(&begun);
        goes_on
    }

    /// Waits until the store and the teller go on, and ends the run. Returns what the other process has got.
    fn end(self) -> Vec<u64> {
        let Run { both: (store, runtime), teller, notes, .. } = self;
        asked(|| runtime.ask(teller, TellerMessage::Ask, LIMIT).wait().ok());
        stepped(&runtime);
        end((store, runtime));
        let notes = notes.lock().unwrap();
        notes.clone()
    }
}

/// The record of the step is released while its process has no turn. Then the record of the next step is lost. `block`
/// is called before the release, and returns the latch that ends the wait of the process.
fn loses(block: impl FnOnce(&Run) -> Latch<()>) -> Vec<u64> {
    let run = Run::new(Runtime::builder());
    run.tells(2);
    stepped(&run.both.1);
    let goes_on = block(&run);
    run.gate.let_pass(2);
    run.gate.wait_for(3);
    run.disk.crash();
    run.gate.open();
    until("the store is open again", || {
        let another = run.both.0.begin("b", Teller);
        another.is_ok_and(|another| another.wait(Duration::from_secs(1)).is_ok())
    });
    goes_on.set(()).unwrap();
    run.end()
}

#[test]
fn what_a_stored_step_has_sent_leaves_though_a_later_record_is_lost() {
    if !goes_ahead() {
        return;
    }
    let notes = loses(|run| {
        let (begun, goes_on) = (Latch::new(), Latch::new());
        run.both.1.spawn(Blocks(begun.clone(), goes_on.clone())).unwrap();
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
    assert_eq!(loses(|run| run.waits(0)).first(), Some(&1));
}

/// The commit of the record has failed, and the record is on disk nevertheless.
#[test]
fn what_a_step_has_sent_leaves_if_its_record_is_found_on_disk() {
    if !goes_ahead() {
        return;
    }
    let run = Run::new(Runtime::builder());
    // A commit is a write and a sync.
    run.disk.fail_at(run.disk.calls() + 1, Fault::CrashBehind);
    run.gate.open();
    assert_eq!(run.end(), [1]);
}

/// As before, and a step is refused before the journal is open again.
#[test]
fn a_process_with_a_refused_step_waits_for_the_fate_of_its_records() {
    if !goes_ahead() {
        return;
    }
    let clock = ManualClock::new();
    let run = Run::new(Runtime::builder().clock(clock.clock()));
    let goes_on = run.waits(1);
    run.disk.fail_at(run.disk.calls() + 1, Fault::CrashBehind);
    run.gate.open();
    // The writer pauses, by the clock.
    let mut ids = 0_u64..;
    until("the store refuses", || run.both.0.begin(&ids.next().unwrap().to_string(), Teller).is_err());
    goes_on.set(()).unwrap();
    until("the step is refused", || run.both.1.is_idle());
    advance_until("it goes on", &clock, Duration::from_millis(100), || run.notes.lock().unwrap().len() == 1);
    assert_eq!(run.end(), [1]);
}

/// The process leaves memory, and its next load hands the command out.
#[test]
fn a_command_of_a_step_that_is_found_on_disk_is_handed_out_once() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate, calls) = (MemoryDisk::new(), Gate::default(), Calls::default());
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = payer::start(journal, calls.handled_by(|_, done| Some(done)));
    let payer = payer::begin(&store);
    payer::on_disk(&store, &runtime, payer);
    gate.close();
    // Another commit goes first, so that all records of the command are in the next one.
    store.send(payer, PayerMessage::Mark).unwrap();
    gate.wait_for(1);
    store.send(payer, PayerMessage::Pay(Pay::once(1))).unwrap();
    stepped(&runtime);
    gate.let_pass(1);
    gate.wait_for(2);
    disk.fail_at(disk.calls() + 1, Fault::CrashBehind);
    gate.open();
    asked(|| runtime.ask(payer, PayerMessage::Look, LIMIT).wait().ok());
    until("it is handed out", || calls.count() > 0);
    stepped(&runtime);
    // The first one is stored with the step, and may have been handed out.
    assert_eq!((calls.numbers(), store.stats().rewinds), (vec![2], 1));
    end((store, runtime));
}
