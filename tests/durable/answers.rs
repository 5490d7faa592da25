//! Answers to stored commands that come later, from outside.

use std::time::Duration;

use procession::command::{AnsweredLater, CommandKey, Responder};
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Store, StoreError};
use procession::{BoxError, Runtime};

use crate::gate::{Gate, GatedJournal};
use crate::payer::{Calls, Pay, PayError, PayerMessage, Refund, begin, kill, notes, on_disk, start};
use crate::wait::{LIMIT, until};
use crate::worker::{end, stepped};

/// A handler that says that the answer comes later.
fn later(_: &Pay, done: Responder<u64>) -> Option<Responder<u64>> {
    done.later();
    None
}

/// A command of the process whose answer comes later, on disk.
fn ask_later(store: &Store, runtime: &Runtime, calls: &Calls) -> CommandKey {
    let payer = begin(store);
    let before = calls.count();
    store.send(payer, PayerMessage::Pay(Pay::with(1, 5, 0))).unwrap();
    until("it is handed out", || calls.count() > before);
    on_disk(store, runtime, payer);
    *calls.keys().last().unwrap()
}

/// Why an answer is refused.
fn refused(store: &Store, key: CommandKey) -> StoreError {
    let (answer, why) = store.answer::<Pay>(key, Ok(99)).expect_err("it is refused").into_parts();
    assert_eq!(answer, Ok(99), "it comes back");
    why
}

#[test]
fn a_command_that_is_answered_later_is_handed_out_once_and_answered_once() {
    // Answered in the same run, by a process in memory; in the next run, by one in memory; and by one that sleeps.
    for (runs, is_loaded) in [(0, true), (1, true), (2, false)] {
        let (disk, calls) = (MemoryDisk::new(), Calls::default());
        let run = || start(MemoryJournal::new(&disk), calls.handled_by(later));
        let (mut store, mut runtime) = run();
        let key = ask_later(&store, &runtime, &calls);
        for n in 0..runs {
            if n == 0 {
                kill((store, runtime), &disk)
            } else {
                end((store, runtime))
            }
            (store, runtime) = run();
        }
        let payer = begin(&store);
        stepped(&runtime);
        if is_loaded {
            assert_eq!(notes(&runtime, payer).len(), 0);
            // If there were another attempt, its record would be on disk.
            on_disk(&store, &runtime, payer);
            stepped(&runtime);
        } else {
            assert_eq!(runtime.processes().len(), 0, "it sleeps");
        }
        // A key that was written as text.
        let key = key.to_string().parse().unwrap();
        store.answer::<Pay>(key, Err(PayError::Busy(7))).unwrap().wait(LIMIT).unwrap();
        assert!(matches!(refused(&store, key), StoreError::AlreadyAnswered(_) | StoreError::NoSuchCommand(_)));
        until("it is answered", || notes(&runtime, payer) == ["Busy(7)"]);
        on_disk(&store, &runtime, payer);
        assert!(matches!(refused(&store, key), StoreError::NoSuchCommand(_)));
        end((store, runtime));

        let (store, runtime) = run();
        assert_eq!(notes(&runtime, payer), ["Busy(7)"], "it gets one answer");
        assert!(matches!(refused(&store, key), StoreError::NoSuchCommand(_)));
        assert_eq!(calls.count(), 1, "the handler is called once");
        end((store, runtime));
    }
}

#[test]
fn an_answer_with_a_wrong_key_or_type_is_refused() {
    let (disk, calls) = (MemoryDisk::new(), Calls::default());
    let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(later));
    let key = ask_later(&store, &runtime, &calls);
    let other = |at: usize, by: &str| {
        let mut parts: Vec<String> = key.to_string().split('.').map(String::from).collect();
        parts[at] = by.into();
        parts.join(".").parse().unwrap()
    };
    let refuses_all = |store: &Store| {
        for key in [other(0, "1"), other(1, "7"), other(1, "ffffffffffffffff"), other(1, "3fffffffffff"), other(2, "7")]
        {
            let why = refused(store, key);
            assert!(matches!(why, StoreError::NoSuchCommand(named) if named == key), "{why}");
        }
        let why = store.answer::<Refund>(key, Ok(1)).unwrap_err();
        assert!(matches!(why.reason(), StoreError::OtherCommand { holder, .. } if holder == "pay"), "{why}");
    };
    refuses_all(&store);
    end((store, runtime));
    let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(later));
    refuses_all(&store);
    // None of them has loaded it.
    assert_eq!(runtime.processes().len(), 0);
    store.answer::<Pay>(key, Ok(1)).unwrap();
    until("it is answered", || notes(&runtime, begin(&store)) == ["1"]);
    end((store, runtime));
}

#[test]
fn an_answer_that_is_acknowledged_outlives_a_kill() {
    for is_loaded in [false, true] {
        let (disk, calls, gate) = (MemoryDisk::new(), Calls::default(), Gate::default());
        let run = |gate: &Gate| start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), calls.handled_by(later));
        let (mut store, mut runtime) = run(&gate);
        let key = ask_later(&store, &runtime, &calls);
        if !is_loaded {
            end((store, runtime));
            (store, runtime) = run(&gate);
        }
        gate.close();
        let receipt = store.answer::<Pay>(key, Ok(5)).unwrap();
        assert!(matches!(receipt.wait(Duration::ZERO), Err(StoreError::Wait(_))), "it is not on disk");
        // The process may have taken it: its steps run ahead of the disk.
        let why = refused(&store, key);
        assert!(matches!(why, StoreError::AlreadyAnswered(_) | StoreError::NoSuchCommand(_)), "{why}");
        gate.open();
        receipt.wait(LIMIT).unwrap();
        // Whether or not its process has taken it.
        kill((store, runtime), &disk);
        let (store, runtime) = run(&gate);
        until("it is answered", || notes(&runtime, begin(&store)) == ["5"]);
        assert_eq!(calls.count(), 1);
        end((store, runtime));
    }
}

#[test]
fn an_answer_that_is_lost_with_the_disk_may_be_given_again() {
    let (disk, calls, gate) = (MemoryDisk::new(), Calls::default(), Gate::default());
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = start(journal, calls.handled_by(later));
    let key = ask_later(&store, &runtime, &calls);
    gate.close();
    let receipt = store.answer::<Pay>(key, Ok(5)).unwrap();
    // The next write fails, and all processes are loaded again.
    disk.crash();
    gate.open();
    let is_lost = matches!(receipt.wait(LIMIT), Err(StoreError::Lost));
    if is_lost {
        until("it is taken", || store.answer::<Pay>(key, Ok(6)).is_ok());
    }
    let expected = if is_lost { ["6"] } else { ["5"] };
    until("it is answered", || {
        runtime.ask(begin(&store), PayerMessage::Look, LIMIT).wait().is_ok_and(|notes| notes == expected)
    });
    assert_eq!(calls.count(), 1);
    end((store, runtime));
}

#[test]
fn an_answer_from_outside_and_one_of_the_handler_are_one() {
    let (disk, calls) = (MemoryDisk::new(), Calls::default());
    let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(|_, done| Some(done)));
    let key = ask_later(&store, &runtime, &calls);
    let kept = calls.0.lock().unwrap()[0].2.take().unwrap();
    store.answer::<Pay>(key, Ok(5)).unwrap();
    kept.ok(6);
    until("it is answered", || notes(&runtime, begin(&store)) == ["5"]);
    // The other one is first.
    let key = ask_later(&store, &runtime, &calls);
    calls.0.lock().unwrap()[1].2.take().unwrap().ok(7);
    until("it is answered", || notes(&runtime, begin(&store)).len() == 2);
    assert!(matches!(refused(&store, key), StoreError::NoSuchCommand(_)));
    assert_eq!(notes(&runtime, begin(&store)), ["5", "7"]);
    end((store, runtime));
}

#[test]
fn an_answer_and_the_end_of_its_process_at_once_disturb_nobody() {
    for n in 0..20 {
        let (disk, calls) = (MemoryDisk::new(), Calls::default());
        let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(later));
        let key = ask_later(&store, &runtime, &calls);
        let (payer, answers) = (begin(&store), store.clone());
        let thread = std::thread::spawn(move || {
            (0..n).for_each(|_| std::hint::spin_loop());
            answers.answer::<Pay>(key, Ok(1)).is_ok()
        });
        store.send(payer, PayerMessage::Over).unwrap();
        crate::wait::wait(thread).unwrap();
        store.result::<crate::payer::Payer>("payer").unwrap().wait(LIMIT).unwrap();
        end((store, runtime));
        // Nothing of it is left to be handed out.
        let (store, runtime) = start(MemoryJournal::new(&disk), calls.handled_by(later));
        stepped(&runtime);
        assert_eq!((runtime.processes().len(), calls.count()), (0, 1));
        assert!(matches!(refused(&store, key), StoreError::NoSuchCommand(_)));
        end((store, runtime));
    }
}

#[test]
fn a_future_that_says_later_is_answered_later_too() {
    let disk = MemoryDisk::new();
    let calls = Calls::default();
    let noted = calls.clone();
    let builder = Runtime::builder().workers(2).handler_async(move |pay: Pay| {
        let attempt = pay.attempt.unwrap();
        noted.0.lock().unwrap().push((attempt.key, attempt.number, None));
        async move { Err::<u64, BoxError>(AnsweredLater.into()) }
    });
    let (store, runtime) = start(MemoryJournal::new(&disk), builder);
    let key = ask_later(&store, &runtime, &calls);
    store.answer::<Pay>(key, Ok(5)).unwrap().wait(LIMIT).unwrap();
    until("it is answered", || notes(&runtime, begin(&store)) == ["5"]);
    assert_eq!(calls.numbers(), [1]);
    end((store, runtime));
}
