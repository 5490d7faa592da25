//! Timers, commands and futures that are outstanding at the end of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::durable::journal::{
    Batch, Change, EncodedRecord, EntryRow, Journal, MemoryDisk, MemoryJournal, Reader, Record,
};
use procession::durable::{Durable, Query, Store};
use procession::{CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::blocker::{Blocked, Blocker};
use crate::places::store_in;
use crate::wait::{LIMIT, Mutex, advance_until, until, wait};
use crate::worker::{Charge, DAY, Worker, WorkerMessage, end, kill, look, open, start, stepped};

/// Begins a future, a blocking closure and a command that is not stored, and notes their answers.
#[derive(Default, Serialize, Deserialize)]
struct Busy {
    /// Whether it waits for the first answer.
    waits: bool,
    begun: Option<(Tag<()>, Tag<()>, Tag<u64>)>,
    notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum BusyMessage {
    Begin,
    Look(Reply<Vec<String>>),
}

/// A command that the store does not know.
struct Ring;

impl Command for Ring {
    type Output = u64;
}

/// How often the future, the closure and the handler have begun.
static CALLS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// The closure waits here.
static HELD: Mutex<Option<Blocked>> = Mutex::new(None);

fn calls() -> [usize; 3] {
    [0, 1, 2].map(|of| CALLS[of].load(Ordering::SeqCst))
}

fn note_call(of: usize) {
    CALLS[of].fetch_add(1, Ordering::SeqCst);
}

impl Process for Busy {
    type Message = BusyMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, BusyMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(BusyMessage::Begin) => {
                    let future = out.future(async {
                        note_call(0);
                        std::future::pending::<()>().await;
                    });
                    let held = HELD.lock().unwrap().clone();
                    let closure = out.blocking(move || {
                        note_call(1);
                        held.into_iter().for_each(|held| held.wait());
                    });
                    self.begun = Some((future, closure, out.command(Ring)));
                    if self.waits {
                        return Ok(Step::Wait);
                    }
                }
                Event::Message(BusyMessage::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Completed(done) => {
                    let Some((future, closure, command)) = self.begun else { continue };
                    let future = done.take(future).map(|answer| ("future", answer.err()));
                    let closure = done.take(closure).map(|answer| ("closure", answer.err()));
                    let command = done.take(command).map(|answer| ("command", answer.err()));
                    let answer = future.or(closure).or(command);
                    self.notes.extend(answer.map(|(of, error)| format!("{of}: {error:?}")));
                }
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Busy {
    const NAME: &str = "busy";
}

#[test]
fn what_was_outstanding_is_interrupted_once_in_the_next_run() {
    let never_answered = Arc::new(Mutex::new(Vec::new()));
    for (waits, kills) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = MemoryDisk::new();
        let open = || {
            let kept = never_answered.clone();
            let builder = Runtime::builder().workers(2).handler(move |_: Ring, done: Responder<u64>| {
                note_call(2);
                kept.lock().unwrap().push(done);
                Ok(())
            });
            store_in(MemoryJournal::new(&disk)).kind::<Busy>().start(builder).unwrap()
        };
        let (before, blocker) = (calls(), Blocker::new());
        *HELD.lock().unwrap() = Some(blocker.blocked());
        let (store, runtime) = open();
        let busy = store.begin("a", Busy { waits, ..Busy::default() }).unwrap().address();
        store.send(busy, BusyMessage::Begin).unwrap();
        let begun = before.map(|calls| calls + 1);
        until("all three have begun", || calls() == begun);
        let looks = runtime.clone();
        std::thread::scope(|scope| {
            let over = scope.spawn(|| over(&disk, (store, runtime), kills));
            // The shutdown waits for the closure, whose answer comes too late.
            until("the process has left memory", || looks.processes().is_empty());
            blocker.release();
            wait(over).unwrap();
        });
        drop(looks);
        for _ in 0..2 {
            let (store, runtime) = open();
            let mut notes = runtime.ask(busy, BusyMessage::Look, LIMIT).wait().unwrap();
            notes.sort();
            // The shutdown was no event of it.
            let interrupted = ["closure", "command", "future"].map(|of| format!("{of}: Some(Interrupted)"));
            assert_eq!(notes, interrupted, "waits: {waits}, kills: {kills}");
            end((store, runtime));
        }
        assert_eq!(calls(), begun, "none of them runs again");
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// Starts a run, moves its clock day by day, and returns how often a timer has fired by then.
fn fired(disk: &MemoryDisk, clock: &ManualClock, days: u32, kills: bool) -> usize {
    let (store, runtime) = start(MemoryJournal::new(disk), Runtime::builder().clock(clock.clock()));
    for _ in 0..days {
        clock.advance(DAY);
        stepped(&runtime);
    }
    // Stored times are whole milliseconds.
    let fired = fired_after(&store, &runtime, clock, MILLISECOND);
    over(disk, (store, runtime), kills);
    fired
}

/// Moves the clock of a run, and returns how often a timer has fired by then.
fn fired_after(store: &Store, runtime: &Runtime, clock: &ManualClock, passes: Duration) -> usize {
    clock.advance(passes);
    stepped(runtime);
    let worker = store.find::<Worker>("a").unwrap();
    runtime.ask(worker, WorkerMessage::Look, Duration::MAX).wait().unwrap().1.len()
}

/// Ends a run in order, or by a kill.
fn over(disk: &MemoryDisk, (store, runtime): (Store, Runtime), kills: bool) {
    if kills {
        return kill(disk, (store, runtime));
    }
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_timer_fires_once_in_whatever_run_and_not_before_its_time() {
    for (passes_between_runs, kills) in [(false, false), (false, true), (true, false), (true, true)] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
        let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
        let worker = store.begin("a", Worker::default()).unwrap().address();
        store.send(worker, WorkerMessage::Days(30)).unwrap();
        // The answer rests on the step that sets the timer.
        assert_eq!(runtime.ask(worker, WorkerMessage::Look, Duration::MAX).wait().unwrap().0, 0);
        over(&disk, (store, runtime), kills);

        let fired = |days| fired(&disk, &clock, days, kills);
        assert_eq!(fired(10), 0);
        assert_eq!(fired(19), 0, "a day is missing");
        if passes_between_runs {
            clock.advance(DAY * 100);
            assert_eq!(fired(0), 1, "it fires at the start");
        } else {
            // Each of the two runs was a millisecond longer than its days.
            let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
            assert_eq!(fired_after(&store, &runtime, &clock, DAY - 3 * MILLISECOND), 0, "a millisecond is missing");
            assert_eq!(fired_after(&store, &runtime, &clock, 2 * MILLISECOND), 1, "a millisecond after its time");
            over(&disk, (store, runtime), kills);
        }
        assert_eq!(fired(100), 1, "it fires once");
    }
}

#[test]
fn a_timer_that_was_cancelled_does_not_come_back() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Days(30)).unwrap();
    store.send(worker, WorkerMessage::CancelTimer).unwrap();
    stepped(&runtime);
    over(&disk, (store, runtime), false);
    assert_eq!(fired(&disk, &clock, 40, false), 1, "only the answer that it was cancelled");
}

#[test]
fn the_timers_of_a_process_that_sleeps_wake_it() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    for n in 1..20 {
        let worker = store.begin(&n.to_string(), Worker::default()).unwrap().address();
        store.send(worker, WorkerMessage::Days(n)).unwrap();
    }
    stepped(&runtime);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
    drop((store, runtime));

    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    assert_eq!(runtime.processes().len(), 0, "all of them sleep");
    for day in 1..20 {
        // Stored times are whole milliseconds.
        clock.advance(DAY + Duration::from_millis(1));
        until("the next one is in memory", || runtime.processes().len() == day);
    }
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_stored_command_is_handed_out_in_each_run_until_it_is_answered() {
    let disk = MemoryDisk::new();
    let start = |answers: bool| {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let kept = calls.clone();
        let builder = Runtime::builder().workers(2).handler(move |_: Charge, done: Responder<u64>| {
            let mut kept = kept.lock().unwrap();
            kept.push(None);
            match answers {
                true => done.ok(7),
                // It never answers.
                false => kept.push(Some(done)),
            }
            Ok(())
        });
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().command::<Charge>();
        (store.start(builder).unwrap(), calls)
    };
    let ((store, runtime), calls) = start(false);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Charge(5)).unwrap();
    until("the handler is called", || !calls.lock().unwrap().is_empty());
    end((store, runtime));

    let ((store, runtime), calls) = start(true);
    until("it is answered", || look(&runtime, worker).1.len() == 1);
    assert_eq!((calls.lock().unwrap().len(), look(&runtime, worker).0), (1, 5));
    end((store, runtime));

    let ((store, runtime), calls) = start(true);
    assert_eq!(look(&runtime, worker).1, ["answer"], "it gets one answer");
    assert_eq!(calls.lock().unwrap().len(), 0);
    end((store, runtime));

    // A program that does not know the command leaves the process as it is.
    let ((store, runtime), _) = start(false);
    store.send(worker, WorkerMessage::Charge(6)).unwrap();
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    let answer = runtime.ask(worker, WorkerMessage::Look, LIMIT).wait();
    assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
    end((store, runtime));
}

/// A class of entries that no program knows.
const UNKNOWN: u8 = 200;

/// The tables of a store that is not open, after these changes.
fn tables(disk: &MemoryDisk, changes: Vec<Change>) -> Box<dyn Reader> {
    let mut opened = MemoryJournal::new(disk).open().unwrap();
    let mut batch = Batch::new(opened.recovered.last.next());
    batch.push(&EncodedRecord::new(&Record { changes }).unwrap());
    opened.log.commit(&batch).unwrap();
    opened.tables.apply(batch.last()).unwrap();
    opened.tables.reader().unwrap()
}

#[test]
fn an_entry_of_a_class_that_no_program_knows_goes_with_its_process() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let calls = Arc::new(Mutex::new(Vec::new()));
    let run = || {
        let calls = calls.clone();
        let builder = Runtime::builder().workers(2).clock(clock.clock());
        let builder = builder.handler(move |_: Charge, done: Responder<u64>| {
            calls.lock().unwrap().push(done);
            Ok(())
        });
        store_in(MemoryJournal::new(&disk)).kind::<Worker>().command::<Charge>().keep(DAY).start(builder).unwrap()
    };
    let (store, runtime) = run();
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Charge(5)).unwrap();
    store.send(worker, WorkerMessage::Days(1)).unwrap();
    until("the handler is called", || calls.lock().unwrap().len() == 1);
    over(&disk, (store, runtime), false);
    let [serial] = tables(&disk, Vec::new()).with_status(None, 0, 10).unwrap()[..] else { panic!("one process") };
    let row = EntryRow { due: None, body: b"of a later program".to_vec() };
    let unknown = || tables(&disk, Vec::new()).entry(serial, UNKNOWN, 1).unwrap();
    tables(&disk, vec![Change::Entry { serial, class: UNKNOWN, number: 1, row: Some(row.clone()) }]);

    let (store, runtime) = run();
    until("the handler is called again", || calls.lock().unwrap().len() == 2);
    calls.lock().unwrap().pop().unwrap().ok(7);
    clock.advance(DAY + Duration::from_millis(1));
    let look = || runtime.ask(worker, WorkerMessage::Look, Duration::MAX).wait().unwrap();
    until("the command is answered and the timer fires", || look().1.len() == 2);
    over(&disk, (store, runtime), false);
    assert_eq!(unknown(), Some(row), "it is as it was");

    let (store, runtime) = run();
    store.send(worker, WorkerMessage::Over).unwrap();
    assert_eq!(store.result::<Worker>("a").unwrap().wait(Duration::MAX).unwrap(), 5);
    let count = || store.count(&Query::all()).unwrap();
    advance_until("the process is removed", &clock, DAY, || count() == 0);
    over(&disk, (store, runtime), false);
    assert_eq!(unknown(), None);
}
