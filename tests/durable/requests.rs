//! Requests to processes that sleep, are loaded, or are parked: to stop, to end, and deadlines.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal, Status};
use procession::durable::{BeginOptions, Durable, Query, Store, StoreError, Traced};
use procession::sync::Latch;
use procession::{Event, Events, Exit, Process, Reason, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Deserializer, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::store_in;
use crate::wait::{LIMIT, until, wait};
use crate::worker::{DAY, Worker, WorkerMessage, end, look, open, start, stepped};

/// Begins a worker, and ends the run.
fn sleeper(disk: &MemoryDisk) -> procession::Address<WorkerMessage> {
    let (store, runtime) = open(disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    stepped(&runtime);
    end((store, runtime));
    worker.address()
}

#[test]
fn a_request_to_stop_reaches_a_process_that_sleeps_once() {
    let disk = MemoryDisk::new();
    let worker = sleeper(&disk);
    let (store, runtime) = open(&disk);
    assert!(runtime.cancel(worker.pid(), "enough").unwrap());
    until("it is asked", || look(&runtime, worker).1 == ["cancel: enough"]);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    assert_eq!(look(&runtime, worker).1, ["cancel: enough"]);
    let trail = store.show(worker.pid()).unwrap().trail;
    let traced: Vec<Traced> = trail.iter().map(|step| step.what).collect();
    let asked: Vec<usize> = (0..traced.len()).filter(|at| traced[*at] == Traced::Cancelled).collect();
    assert_eq!(asked.len(), 1, "{traced:?}");
    assert_eq!(traced.get(asked[0] + 1), Some(&Traced::Idle), "{traced:?}");
    end((store, runtime));
}

#[test]
fn a_process_that_sleeps_or_whose_kind_is_unknown_is_terminated() {
    let disk = MemoryDisk::new();
    let worker = sleeper(&disk);
    // This program cannot load it.
    let (store, runtime) = store_in(MemoryJournal::new(&disk)).start(Runtime::builder()).unwrap();
    assert!(runtime.terminate(worker.pid()).unwrap());
    runtime.wait_idle_timeout(LIMIT).unwrap();
    end((store, runtime));
    let (store, runtime) = open(&disk);
    let result = store.result::<Worker>("a").unwrap();
    assert!(matches!(result.wait(LIMIT), Err(StoreError::Terminated)));
    end((store, runtime));

    let other = MemoryDisk::new();
    let worker = sleeper(&other);
    let (store, runtime) = open(&other);
    let result = store.result::<Worker>("a").unwrap();
    assert!(runtime.terminate(worker.pid()).unwrap());
    assert!(matches!(result.wait(LIMIT), Err(StoreError::Terminated)));
    assert!(!runtime.terminate(worker.pid()).unwrap(), "it has ended");
    end((store, runtime));
}

#[test]
fn a_request_that_is_lost_ends_nobody() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let worker = sleeper(&disk);
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    assert_eq!(look(&runtime, worker).0, 0);
    let result = store.result::<Worker>("a").unwrap();
    gate.close();
    assert!(runtime.terminate(worker.pid()).unwrap());
    until("it has ended, and that is not on disk", || runtime.is_idle());
    disk.crash();
    gate.open();
    until("it lives", || runtime.ask(worker, WorkerMessage::Look, LIMIT).wait().is_ok());
    assert!(matches!(result.wait(Duration::ZERO), Err(StoreError::Wait(_))));
    end((store, runtime));
}

/// A place at which a step or a load of a [`Slow`] waits.
type Pause = crate::wait::Mutex<Option<(Sender<()>, Latch<()>)>>;

fn pause_at(pause: &Pause) {
    let there = pause.lock().unwrap().take();
    there.into_iter().for_each(|(begun, latch)| {
        begun.send(()).unwrap();
        latch.wait_timeout(LIMIT);
    });
}

static LOAD: Pause = crate::wait::Mutex::new(None);
static STEP: Pause = crate::wait::Mutex::new(None);

/// Notes numbers, and 0 for each request to stop. Its loads and steps can be held up.
#[derive(Serialize)]
struct Slow {
    numbers: Vec<u64>,
}

impl<'a> Deserialize<'a> for Slow {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Slow, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            numbers: Vec<u64>,
        }
        let Read { numbers } = Read::deserialize(from)?;
        pause_at(&LOAD);
        Ok(Slow { numbers })
    }
}

#[derive(Serialize, Deserialize)]
enum SlowMessage {
    Number(u64),
    Hold,
    Fail,
    Look(Reply<Vec<u64>>),
}

impl Process for Slow {
    type Message = SlowMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, SlowMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(SlowMessage::Number(number)) => self.numbers.push(number),
                Event::Message(SlowMessage::Hold) => pause_at(&STEP),
                Event::Message(SlowMessage::Fail) => return Err("on purpose".into()),
                Event::Message(SlowMessage::Look(reply)) => out.reply(reply, self.numbers.clone()),
                Event::Cancel(_) => self.numbers.push(0),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Slow {
    const NAME: &str = "slow";
}

fn slow(disk: &MemoryDisk, clock: &ManualClock) -> (Store, Runtime) {
    let store = store_in(MemoryJournal::new(disk)).kind::<Slow>();
    store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
}

fn close((store, runtime): (Store, Runtime)) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    drop(store.close());
}

#[test]
fn a_request_to_stop_survives_a_kill_and_overtakes_mail_also_of_a_load() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = slow(&disk, &clock);
    let process = store.begin("a", Slow { numbers: Vec::new() }).unwrap().address();
    runtime.wait_idle().unwrap();
    let (begun, begins) = channel();
    let latch = Latch::new();
    *STEP.lock().unwrap() = Some((begun.clone(), latch.clone()));
    store.send(process, SlowMessage::Hold).unwrap();
    wait(&begins).unwrap();
    // While the step is held up.
    store.send(process, SlowMessage::Number(1)).unwrap();
    assert!(runtime.cancel(process.pid(), "enough").unwrap());
    store.send(process, SlowMessage::Number(2)).unwrap().wait(Duration::MAX).unwrap();
    // Nothing reaches the disk any more, as after a kill.
    (disk.calls()..disk.calls() + 1_000).for_each(|call| disk.fail_at(call, Fault::Error));
    latch.set(()).unwrap();
    close((store, runtime));
    disk.crash();
    disk.heal();

    let seen = |runtime: &Runtime| runtime.ask(process, SlowMessage::Look, Duration::MAX).wait().unwrap();
    for _ in 0..2 {
        let (store, runtime) = slow(&disk, &clock);
        assert_eq!(seen(&runtime), [0, 1, 2]);
        close((store, runtime));
    }

    // Another one comes while a load is held up.
    let (store, runtime) = slow(&disk, &clock);
    let latch = Latch::new();
    *LOAD.lock().unwrap() = Some((begun, latch.clone()));
    store.send(process, SlowMessage::Number(3)).unwrap();
    wait(&begins).unwrap();
    assert!(runtime.cancel(process.pid(), "enough").unwrap());
    latch.set(()).unwrap();
    assert_eq!(seen(&runtime), [0, 1, 2, 0, 3]);
    close((store, runtime));
    let (store, runtime) = slow(&disk, &clock);
    assert_eq!(seen(&runtime), [0, 1, 2, 0, 3]);
    close((store, runtime));
}

#[test]
fn a_process_that_an_earlier_run_has_parked_is_terminated_with_its_mail() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = slow(&disk, &clock);
    let process = store.begin("a", Slow { numbers: Vec::new() }).unwrap().address();
    store.send(process, SlowMessage::Fail).unwrap();
    until("it is parked", || {
        runtime.wait_idle().unwrap();
        clock.advance(Duration::from_secs(60));
        store.count(&Query::all().status(Status::Parked)).unwrap() == 1
    });
    close((store, runtime));
    for run in 0..2 {
        let (store, runtime) = slow(&disk, &clock);
        runtime.wait_idle().unwrap();
        assert_eq!(runtime.processes().len(), 0);
        let watcher = runtime.watch(process.pid());
        let result = store.result::<Slow>("a").unwrap();
        if run == 0 {
            assert!(runtime.terminate(process.pid()).unwrap());
        }
        assert!(matches!(result.wait(Duration::MAX), Err(StoreError::Terminated)));
        assert!(matches!(wait(watcher).exit, Exit::Terminated(Reason::Terminated)));
        close((store, runtime));
    }
}

#[test]
fn a_deadline_asks_its_process_to_stop_once_in_whatever_run() {
    for days_at_once in [1, 10] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
        let run = || start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
        let (store, runtime) = run();
        let options = BeginOptions::new().deadline(DAY * 3);
        let worker = store.begin_with("a", Worker::default(), &options).unwrap().address();
        stepped(&runtime);
        close((store, runtime));
        let mut notes = Vec::new();
        for day in 1..10 {
            let (store, runtime) = run();
            stepped(&runtime);
            if days_at_once == 1 || day == 3 {
                // Stored times are whole milliseconds.
                clock.advance(DAY * days_at_once + Duration::from_millis(1));
            }
            stepped(&runtime);
            if day == 3 {
                until("the store has woken it", || runtime.processes().len() == 1);
            }
            if day == 2 || day > 3 {
                (_, notes, _) = runtime.ask(worker, WorkerMessage::Look, Duration::MAX).wait().unwrap();
                assert_eq!(notes.len(), usize::from(day > 3), "day {day}: {notes:?}");
            }
            close((store, runtime));
        }
        assert_eq!(notes, ["cancel: timed out"]);
    }
}

#[test]
fn the_deadline_of_a_process_in_memory_is_not_given_twice() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let options = BeginOptions::new().deadline(DAY);
    let worker = store.begin_with("a", Worker::default(), &options).unwrap().address();
    stepped(&runtime);
    // It returns into memory, which sets the timer again.
    assert!(runtime.terminate(runtime.processes()[0].pid).unwrap());
    stepped(&runtime);
    clock.advance(DAY * 2);
    stepped(&runtime);
    let notes = runtime.ask(worker, WorkerMessage::Look, Duration::MAX).wait().unwrap().1;
    assert_eq!(notes, ["cancel: timed out"]);
    close((store, runtime));
}

#[test]
fn a_watcher_of_a_sleeper_is_told_of_its_end_and_not_of_its_sleep() {
    let disk = MemoryDisk::new();
    let worker = sleeper(&disk);
    let (store, runtime) = open(&disk);
    let watcher = runtime.watch(worker.pid());
    runtime.wait_idle_timeout(LIMIT).unwrap();
    assert_eq!(runtime.processes().len(), 0, "it sleeps");
    assert_eq!(look(&runtime, worker).0, 0);
    runtime.send(worker, WorkerMessage::Over).unwrap();
    assert!(matches!(wait(watcher).exit, Exit::Done(())));
    end((store, runtime));
    let (store, runtime) = open(&disk);
    assert!(matches!(wait(runtime.watch(worker.pid())).exit, Exit::Done(())), "it has ended in the run before");
    end((store, runtime));
}
