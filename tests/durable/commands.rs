//! Stored commands: their keys, attempts, plans and limits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use procession::Reason;
use procession::clock::ManualClock;
use procession::command::Responder;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal, Position};
use procession::durable::{Store, StoreError};

use crate::gate::{Gate, GatedJournal};
use crate::payer::{
    Calls, FAILURES, Pay, PayError, Payer, PayerMessage, begin, busy, fail_all, kill, notes, on_disk, start,
};
use crate::places::goes_ahead;
use crate::wait::{LIMIT, until};
use crate::worker::{end, stepped};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: u64 = 60 * 60;

/// Moves the clock, a millisecond further than the time, because stored times are whole milliseconds.
fn pass(clock: &ManualClock, seconds: u64) {
    clock.advance(SECOND * seconds as u32 + Duration::from_millis(1));
}

#[test]
fn each_attempt_of_a_command_has_its_key_and_the_next_number() {
    let (disk, calls) = (MemoryDisk::new(), Calls::default());
    for run in 1..=4 {
        // It never answers.
        let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(|_, done| Some(done)));
        let payer = begin(&store);
        if run == 1 {
            store.send(payer, PayerMessage::Pay(Pay::once(1))).unwrap();
            store.send(payer, PayerMessage::Pay(Pay::once(2))).unwrap();
        }
        // Nothing but the start of the store has the commands handed out.
        until("both are handed out", || calls.count() == 2 * run);
        if run % 2 == 0 { kill((store, runtime), &disk) } else { end((store, runtime)) }
    }
    assert_eq!(calls.numbers(), [1, 1, 2, 2, 3, 3, 4, 4]);
    let keys = calls.keys();
    assert_ne!(keys[0], keys[1]);
    assert!(keys.chunks(2).all(|of_run| of_run == &keys[..2] || *of_run == [keys[1], keys[0]]), "{keys:?}");
    // Another store has other keys.
    let other = Calls::default();
    let (store, runtime) = start(MemoryJournal::new(&MemoryDisk::new()), other.handled_by(|_, done| Some(done)));
    store.send(begin(&store), PayerMessage::Pay(Pay::once(1))).unwrap();
    until("it is handed out", || other.count() == 1);
    assert_ne!(other.keys()[0], keys[0]);
    end((store, runtime));
}

#[test]
fn a_failed_command_is_attempted_again_and_only_its_last_error_counts() {
    let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
    let builder = calls.handled_by(|pay, done| {
        let why = if pay.amount == 404 { PayError::NoSuchAccount } else { PayError::Busy(done.attempt()) };
        match (pay.amount, done.attempt()) {
            (5, 3) => done.ok(5),
            (6, 2) => panic!("on purpose"),
            (6, 3) => drop(done),
            _ => done.fail(why),
        }
        None
    });
    let (store, runtime) = start(MemoryJournal::new(&disk), builder.clock(clock.clock()));
    let payer = begin(&store);
    for amount in [404, 4, 5, 6] {
        store.send(payer, PayerMessage::Pay(Pay::with(amount, 3, 10))).unwrap();
    }
    until("each has had an attempt", || calls.count() == 4);
    until("the final one is answered", || notes(&runtime, payer) == ["NoSuchAccount"]);
    stepped(&runtime);
    clock.advance(SECOND * 10 - Duration::from_nanos(1));
    stepped(&runtime);
    assert_eq!(calls.count(), 4);
    pass(&clock, 0);
    until("three have had a second attempt", || calls.count() == 7);
    stepped(&runtime);
    pass(&clock, 19);
    stepped(&runtime);
    assert_eq!(calls.count(), 7, "the second pause is twice as long");
    pass(&clock, 1);
    until("all are answered", || notes(&runtime, payer).len() == 4);
    let mut notes = notes(&runtime, payer);
    notes.sort();
    assert_eq!(notes, ["5", "Busy(3)", "NoSuchAccount", "dropped without an answer"]);
    assert_eq!(calls.count(), 10);
    end((store, runtime));
}

#[test]
fn the_time_of_the_next_attempt_outlives_the_program() {
    for is_killed in [false, true] {
        let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
        let run = || {
            let builder = calls.handled_by(|_, done| {
                if done.attempt() == 3 {
                    done.ok(7);
                } else {
                    busy(done);
                }
                None
            });
            start(MemoryJournal::new(&disk), builder.clock(clock.clock()))
        };
        let stop = |run| if is_killed { kill(run, &disk) } else { end(run) };
        let (store, runtime) = run();
        let payer = begin(&store);
        store.send(payer, PayerMessage::Pay(Pay::with(1, 3, HOUR))).unwrap();
        until("it is handed out", || calls.count() == 1);
        on_disk(&store, &runtime, payer);
        stop((store, runtime));

        let (store, runtime) = run();
        pass(&clock, HOUR / 2);
        stepped(&runtime);
        assert_eq!(calls.count(), 1, "it still pauses");
        pass(&clock, HOUR / 2);
        until("it is handed out again", || calls.count() == 2);
        on_disk(&store, &runtime, payer);
        // This run has not seen the first failure, and doubles the pause after it.
        pass(&clock, HOUR);
        stepped(&runtime);
        assert_eq!(calls.count(), 2, "the second pause is twice as long");
        stop((store, runtime));

        let (store, runtime) = run();
        stepped(&runtime);
        assert_eq!(calls.count(), 2, "it still pauses");
        pass(&clock, HOUR);
        until("it is handed out once more", || calls.count() == 3);
        until("it is answered", || notes(&runtime, payer) == ["7"]);
        assert_eq!(calls.numbers(), [1, 2, 3]);
        stop((store, runtime));
    }
}

/// The minutes that a command waits before each further attempt. The fourth attempt fails with a final error.
fn minutes_of_pauses(is_killed: bool) -> Vec<u64> {
    let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
    let run = || {
        let builder = calls.handled_by(|_, done| {
            match done.attempt() {
                4 => done.fail(PayError::NoSuchAccount),
                _ => busy(done),
            }
            None
        });
        start(MemoryJournal::new(&disk), builder.seed(7).clock(clock.clock()))
    };
    let (mut store, mut runtime) = run();
    let payer = begin(&store);
    let pay = Pay { longest: Some(HOUR), jitter: 0.5, ..Pay::with(1, 9, HOUR / 2) };
    store.send(payer, PayerMessage::Pay(pay)).unwrap();
    let mut pauses = Vec::new();
    for attempt in 1..=3 {
        let shown = |store: &Store| store.show(payer.pid()).ok()?.commands.into_iter().next();
        until("it pauses, on disk", || {
            shown(&store).is_some_and(|command| (command.attempt, command.phase) == (attempt, "pausing"))
        });
        let mut minutes = 0;
        // The next attempt is on disk before it is handed out.
        while shown(&store).is_some_and(|command| command.attempt == attempt) {
            assert!(minutes <= 120, "{pauses:?}: no attempt follows attempt {attempt}");
            if is_killed && minutes == 10 {
                kill((store, runtime), &disk);
                (store, runtime) = run();
            }
            pass(&clock, 60);
            on_disk(&store, &runtime, payer);
            minutes += 1;
        }
        pauses.push(minutes);
    }
    until("it has failed", || notes(&runtime, payer) == ["NoSuchAccount"]);
    assert_eq!(calls.numbers(), [1, 2, 3, 4], "the plan has nine attempts, and the error is final");
    end((store, runtime));
    pauses
}

/// The jitter of two runtimes with one seed is the same.
#[test]
fn the_cap_jitter_and_final_errors_of_a_plan_outlive_kills() {
    let [pauses, without_kills] = [true, false].map(minutes_of_pauses);
    println!("minutes: {pauses:?} and {without_kills:?}");
    // Without jitter these are 30, 60, and 60 minutes, because of the cap. The time of a kill is rounded.
    for ((pause, without_kill), full) in pauses.iter().zip(&without_kills).zip([30, 60, 60]) {
        assert!(pause.abs_diff(*without_kill) <= 1, "{pauses:?} and {without_kills:?}");
        assert!((full / 2..=full).contains(pause), "{pauses:?}");
    }
    assert!(pauses.iter().sum::<u64>() < 145, "jitter takes something off: {pauses:?}");
}

#[test]
fn a_kill_during_an_attempt_exceeds_the_plan_by_at_most_one() {
    let (disk, calls) = (MemoryDisk::new(), Calls::default());
    for run in 1..=4 {
        let builder = calls.handled_by(move |_, done| {
            if run < 4 {
                return Some(done);
            }
            busy(done);
            None
        });
        let (store, runtime) = start(MemoryJournal::new(&disk), builder);
        let payer = begin(&store);
        if run == 1 {
            store.send(payer, PayerMessage::Pay(Pay::with(1, 2, 0))).unwrap();
        }
        until("it is handed out", || calls.count() == run);
        if run < 4 {
            kill((store, runtime), &disk);
            continue;
        }
        // Two attempts, and one more for each kill but the first.
        until("it is answered", || notes(&runtime, payer) == ["Busy(4)"]);
        stepped(&runtime);
        assert_eq!(calls.numbers(), [1, 2, 3, 4]);
        end((store, runtime));
    }
}

#[test]
fn a_command_out_of_time_fails_with_its_last_error_in_whatever_run() {
    for is_down in [false, true] {
        let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
        let run = || {
            let builder = calls.handled_by(|pay, done| {
                if pay.amount == 1 {
                    return Some(done);
                }
                busy(done);
                None
            });
            start(MemoryJournal::new(&disk), builder.clock(clock.clock()))
        };
        let (mut store, mut runtime) = run();
        let payer = begin(&store);
        for (amount, pause) in [(1, 1), (2, 50), (3, 200)] {
            let pay = Pay { total: Some(100), ..Pay::with(amount, 9, pause) };
            store.send(payer, PayerMessage::Pay(pay)).unwrap();
        }
        until("each has had an attempt", || calls.count() == 3);
        // There is no time for the second attempt of the last one.
        until("the last one is answered", || notes(&runtime, payer) == ["Busy(1)"]);
        on_disk(&store, &runtime, payer);
        if is_down {
            kill((store, runtime), &disk);
            clock.advance(SECOND * 101);
            (store, runtime) = run();
            until("all are answered", || notes(&runtime, payer).len() == 3);
            // An attempt was interrupted, and there is no time for another one.
            assert_eq!(notes(&runtime, payer), ["Busy(1)", "timed out", "Busy(1)"]);
            assert_eq!(calls.count(), 3);
        } else {
            pass(&clock, 50);
            until("the second one has had another attempt", || notes(&runtime, payer).len() == 2);
            pass(&clock, 50);
            until("all are answered", || notes(&runtime, payer).len() == 3);
            assert_eq!(notes(&runtime, payer), ["Busy(1)", "Busy(2)", "timed out"]);
            assert_eq!(calls.count(), 4);
        }
        assert_eq!(calls.0.lock().unwrap().iter().filter(|(.., kept)| kept.is_some()).count(), 1);
        end((store, runtime));
    }
}

#[test]
fn the_limit_of_a_stored_command_outlives_the_program() {
    for is_down in [false, true] {
        let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
        let run = || start(MemoryJournal::new(&disk), calls.handled_by(|_, done| Some(done)).clock(clock.clock()));
        let (store, runtime) = run();
        let payer = begin(&store);
        store.send(payer, PayerMessage::PayWithin(Pay::once(1), HOUR)).unwrap();
        until("it is handed out", || calls.count() == 1);
        on_disk(&store, &runtime, payer);
        kill((store, runtime), &disk);

        clock.advance(SECOND * (HOUR / 2) as u32);
        if is_down {
            pass(&clock, HOUR / 2);
        }
        let (store, runtime) = run();
        if !is_down {
            until("it is handed out again", || calls.count() == 2);
            stepped(&runtime);
            assert_eq!(notes(&runtime, payer).len(), 0);
            pass(&clock, HOUR / 2);
        }
        until("it is answered", || notes(&runtime, payer) == ["timed out"]);
        stepped(&runtime);
        let last = calls.0.lock().unwrap().last_mut().and_then(|(.., kept)| kept.take()).unwrap();
        assert!(is_down || last.cancel().check() == Err(Reason::TimedOut), "what is at work sees that");
        end((store, runtime));
    }
}

#[test]
fn a_step_that_fails_is_offered_the_same_answer_again() {
    let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
    let builder = calls.handled_by(|pay, done| {
        done.ok(pay.amount);
        None
    });
    let (store, runtime) = start(MemoryJournal::new(&disk), builder.clock(clock.clock()));
    let payer = begin(&store);
    FAILURES.store(2, Ordering::SeqCst);
    store.send(payer, PayerMessage::Pay(Pay::once(13))).unwrap();
    for failures in [1, 0] {
        until("the step has failed", || FAILURES.load(Ordering::SeqCst) == failures);
        stepped(&runtime);
        clock.advance(SECOND * 2);
    }
    until("the answer is taken", || notes(&runtime, payer) == ["13"]);
    assert_eq!(calls.count(), 1);
    end((store, runtime));
}

#[test]
fn a_process_that_ends_cancels_its_commands() {
    let (disk, calls) = (MemoryDisk::new(), Calls::default());
    let run = || start(MemoryJournal::new(&disk), calls.handled_by(|_, done| Some(done)));
    let (store, runtime) = run();
    let payer = begin(&store);
    store.send(payer, PayerMessage::Pay(Pay::once(1))).unwrap();
    store.send(payer, PayerMessage::Pay(Pay::once(2))).unwrap();
    until("both are handed out", || calls.count() == 2);
    // One more that is yielded by the step that ends it would be lost with it.
    store.send(payer, PayerMessage::Over).unwrap();
    store.result::<Payer>("payer").unwrap().wait(LIMIT).unwrap();
    let is_cancelled = |done: &Responder<u64>| done.cancel().check() == Err(Reason::Ended);
    let are_cancelled = || calls.0.lock().unwrap().iter().all(|(.., kept)| kept.as_ref().is_some_and(is_cancelled));
    until("what is at work sees it", are_cancelled);
    let key = calls.keys()[0];
    assert!(
        matches!(store.answer::<Pay>(key, Ok(1)), Err(why) if matches!(why.reason(), StoreError::NoSuchCommand(_)))
    );
    kill((store, runtime), &disk);

    let (store, runtime) = run();
    stepped(&runtime);
    assert_eq!((calls.count(), runtime.processes().len()), (2, 0), "none is handed out again");
    assert!(
        matches!(store.answer::<Pay>(key, Ok(1)), Err(why) if matches!(why.reason(), StoreError::NoSuchCommand(_)))
    );
    end((store, runtime));
}

#[test]
fn a_cancelled_command_is_answered_once_and_its_handler_sees_it() {
    let (disk, calls) = (MemoryDisk::new(), Calls::default());
    let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(|_, done| Some(done)));
    let payer = begin(&store);
    store.send(payer, PayerMessage::Pay(Pay::once(1))).unwrap();
    until("it is handed out", || calls.count() == 1);
    store.send(payer, PayerMessage::Cancel).unwrap();
    until("it is answered", || notes(&runtime, payer) == ["cancelled (cancelled)"]);
    let late = calls.0.lock().unwrap()[0].2.take().unwrap();
    assert_eq!(late.cancel().check(), Err(Reason::Cancelled));
    late.ok(1);
    end((store, runtime));
    let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(|_, done| Some(done)));
    assert_eq!(notes(&runtime, payer).len(), 1);
    assert_eq!(calls.count(), 1);
    end((store, runtime));
}

#[test]
fn a_command_that_a_stored_step_has_cancelled_is_not_handed_out_again() {
    if !goes_ahead() {
        return;
    }
    for is_at_once in [false, true] {
        let (disk, calls, gate) = (MemoryDisk::new(), Calls::default(), Gate::default());
        let run =
            || start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), calls.handled_by(|_, done| Some(done)));
        let (store, runtime) = run();
        let payer = begin(&store);
        if !is_at_once {
            store.send(payer, PayerMessage::Pay(Pay::once(1))).unwrap();
            until("it is handed out", || calls.count() == 1);
        }
        on_disk(&store, &runtime, payer);
        let other = store.begin("other", Payer::default()).unwrap();
        on_disk(&store, &runtime, other.address());
        // The message and the step that takes it are on disk together, and the step that takes the answer is not.
        gate.close();
        store.send(other.address(), PayerMessage::Mark).unwrap();
        gate.wait_for(1);
        let cancels = if is_at_once { PayerMessage::PayAndCancel(Pay::once(1)) } else { PayerMessage::Cancel };
        store.send(payer, cancels).unwrap();
        stepped(&runtime);
        gate.let_pass(1);
        gate.let_pass(2);
        // The third commit has the answer.
        gate.wait_for(3);
        fail_all(&disk);
        gate.open();
        kill((store, runtime), &disk);

        let (store, runtime) = run();
        until("it is answered", || notes(&runtime, payer) == ["cancelled (cancelled)"]);
        on_disk(&store, &runtime, payer);
        assert_eq!(calls.count(), usize::from(!is_at_once));
        end((store, runtime));
    }
}

#[test]
fn no_attempt_is_handed_out_before_its_number_is_on_disk() {
    let (disk, calls, clock, gate) = (MemoryDisk::new(), Calls::default(), ManualClock::new(), Gate::default());
    let builder = calls.handled_by(|_, done| {
        busy(done);
        None
    });
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = start(journal, builder.clock(clock.clock()));
    let payer = begin(&store);
    store.send(payer, PayerMessage::Pay(Pay::with(1, 2, 1))).unwrap();
    until("it is handed out", || calls.count() == 1);
    on_disk(&store, &runtime, payer);
    gate.close();
    pass(&clock, 1);
    stepped(&runtime);
    assert_eq!(calls.count(), 1);
    gate.open();
    until("it is answered", || notes(&runtime, payer) == ["Busy(2)"]);
    end((store, runtime));
}

#[test]
fn a_limit_ends_the_wait_for_a_later_answer_though_the_process_sleeps() {
    let (disk, calls, clock) = (MemoryDisk::new(), Calls::default(), ManualClock::new());
    let run = || {
        let builder = calls.handled_by(|_, done| {
            done.later();
            None
        });
        start(MemoryJournal::new(&disk), builder.clock(clock.clock()))
    };
    let (store, runtime) = run();
    let payer = begin(&store);
    // The limit of all attempts does not count, because there is no further attempt.
    let pay = Pay { total: Some(1), ..Pay::once(1) };
    store.send(payer, PayerMessage::PayWithin(pay, HOUR)).unwrap();
    until("it is handed out", || calls.count() == 1);
    on_disk(&store, &runtime, payer);
    pass(&clock, 2);
    stepped(&runtime);
    assert_eq!(notes(&runtime, payer).len(), 0);
    end((store, runtime));

    let (store, runtime) = run();
    assert_eq!(runtime.processes().len(), 0, "it sleeps");
    pass(&clock, HOUR);
    until("it is in memory", || runtime.processes().len() == 1);
    until("it is answered", || notes(&runtime, payer) == ["timed out"]);
    assert_eq!(calls.count(), 1);
    end((store, runtime));
}

/// The class of the entries by which processes that have ended are removed.
const KEPT: u8 = 21;

#[test]
fn no_attempt_begins_after_the_end_of_its_process() {
    if !goes_ahead() {
        return;
    }
    let (disk, calls, clock, gate) = (MemoryDisk::new(), Calls::default(), ManualClock::new(), Gate::default());
    let run = || {
        let builder = calls.handled_by(|_, done| {
            busy(done);
            None
        });
        start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), builder.clock(clock.clock()))
    };
    let (store, runtime) = run();
    let payer = begin(&store);
    store.send(payer, PayerMessage::Pay(Pay::with(1, 9, 1))).unwrap();
    until("it is handed out", || calls.count() == 1);
    on_disk(&store, &runtime, payer);
    gate.close();
    store.send(payer, PayerMessage::Over).unwrap();
    stepped(&runtime);
    // It has ended, and its end is not on disk.
    pass(&clock, 1);
    stepped(&runtime);
    gate.open();
    store.result::<Payer>("payer").unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    assert_eq!(calls.count(), 1);
    end((store, runtime));
    // No row of the command is left.
    let mut tables = MemoryJournal::new(&disk).open().unwrap().tables;
    tables.apply(Position(u64::MAX)).unwrap();
    let mut due = tables.reader().unwrap().due(0, i64::MAX as u64, 10).unwrap();
    // The process itself is kept for some time.
    due.retain(|(_, _, class, _)| *class != KEPT);
    assert_eq!(due, []);
}
