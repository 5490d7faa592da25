//! Timers, commands and futures that are outstanding at the end of a run.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::Responder;
use procession::durable::Store;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::{CommandError, Runtime};

use crate::places::store_in;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{Charge, DAY, Worker, WorkerMessage, end, kill, look, open, start, stepped};

#[test]
fn what_was_outstanding_is_interrupted_once_in_the_next_run() {
    for message in [WorkerMessage::Hang, WorkerMessage::HangAndWait] {
        let disk = MemoryDisk::new();
        let (store, runtime) = open(&disk);
        let worker = store.begin("a", Worker::default()).unwrap().address();
        store.send(worker, message).unwrap();
        stepped(&runtime);
        end((store, runtime));
        for _ in 0..2 {
            let (store, runtime) = open(&disk);
            // The shutdown was no event of it.
            assert_eq!(look(&runtime, worker), (0, vec!["answer".to_owned()], 1));
            end((store, runtime));
        }
    }
}

/// Starts a run, moves its clock day by day, and returns how often a timer has fired by then.
fn fired(disk: &MemoryDisk, clock: &ManualClock, days: u32, kills: bool) -> usize {
    let (store, runtime) = start(MemoryJournal::new(disk), Runtime::builder().clock(clock.clock()));
    for _ in 0..days {
        clock.advance(DAY);
        stepped(&runtime);
    }
    // Stored times are whole milliseconds.
    clock.advance(Duration::from_millis(1));
    stepped(&runtime);
    let worker = store.find::<Worker>("a").unwrap();
    let notes = runtime.ask(worker, WorkerMessage::Look, Duration::MAX).wait().unwrap().1.len();
    over(disk, (store, runtime), kills);
    notes
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
            assert_eq!(fired(1), 1);
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
