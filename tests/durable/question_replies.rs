//! The replies to stored questions: kept, given up, refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal, Status};
use procession::durable::{Query, StoreError};
use procession::{CommandError, Runtime};

use crate::clerk::*;
use crate::places::store_in;
use crate::wait::{LIMIT, advance_until, until, wait};
use crate::worker::{Worker, answer_of, end, kill, stepped};

#[test]
fn a_kept_reply_is_answered_in_a_later_run_or_given_up() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, other, third] = begin(&store);
    for n in 0..4 {
        let name = n.to_string();
        tell(&store, asker, ClerkMessage::Ask { to: other, how: How::Keep, name, limit: None });
    }
    stepped(&runtime);
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    tell(&store, other, ClerkMessage::Answer(5));
    tell(&store, other, ClerkMessage::Drop);
    tell(&store, other, ClerkMessage::PassOn(third, How::Keep));
    stepped(&runtime);
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    until("two are told", || look(&runtime, asker).unwrap() == ["0: 5", "1: dropped without an answer"]);
    tell(&store, other, ClerkMessage::Over);
    until("three are told", || look(&runtime, asker).unwrap().last().unwrap() == "3: ended");
    tell(&store, third, ClerkMessage::Answer(9));
    until("all are told", || look(&runtime, asker).unwrap().last().unwrap() == "2: 9");
    end((store, runtime));
    is_told(&disk, asker, &["0: 5", "1: dropped without an answer", "3: ended", "2: 9"]);
}

#[test]
fn a_reply_that_is_moved_out_of_the_store_is_given_up() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, other] = begin(&store);
    let (told, answers) = std::sync::mpsc::channel();
    let stranger = runtime.spawn(Stranger(told)).unwrap();
    tell(&store, asker, question(other, How::Keep));
    stepped(&runtime);
    tell(&store, other, ClerkMessage::HandOn(stranger.address()));
    assert!(!wait(&answers).unwrap(), "its answer is too late");
    until("it is told", || look(&runtime, asker).unwrap() == ["q: dropped without an answer"]);
    end((store, runtime));
    is_told(&disk, asker, &["q: dropped without an answer"]);
}

#[test]
fn steps_that_fail_ask_and_answer_once() {
    for (how, told) in [(How::AnswerAndFail, "q: 7"), (How::DiscardAndFail, "q: dropped without an answer")] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
        let (store, runtime) = by_clock(&disk, &clock);
        let [asker, other] = begin(&store);
        FAILURES.store(2, Ordering::SeqCst);
        store.send(asker, question(other, how)).unwrap();
        advance_until("it is told", &clock, Duration::from_secs(1), || {
            FAILURES.load(Ordering::SeqCst) == 0 && notes(&runtime, asker) == [told]
        });
        FAILURES.store(2, Ordering::SeqCst);
        store.send(asker, ClerkMessage::AskAndFail(other)).unwrap();
        let mut seen = None;
        advance_until("it is told", &clock, Duration::from_secs(1), || {
            let ask = || runtime.ask(asker, ClerkMessage::Look, Duration::MAX);
            let answer = answer_of(&mut seen, ask);
            answer.is_some_and(|answer| answer.is_ok_and(|notes| notes == [told, "q: 7"]))
        });
        stepped(&runtime);
        assert_eq!(notes(&runtime, asker), [told, "q: 7"]);
        shut((store, runtime));
        is_told(&disk, asker, &[told, "q: 7"]);
    }
}

#[test]
fn an_operator_who_repairs_the_asked_process_leaves_no_asker_waiting() {
    let told = |id| match id {
        "skipped" | "replaced" => "q: dropped without an answer",
        "retried" => "q: 5",
        _ => "q: ended",
    };
    for id in ["skipped", "retried", "replaced", "terminated"] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
        let (store, runtime) = by_clock(&disk, &clock);
        let [asker, other] = begin(&store);
        if id == "skipped" {
            tell(&store, asker, question(other, How::AnswerAndAlwaysFail));
        } else {
            tell(&store, asker, question(other, How::Keep));
            stepped(&runtime);
            tell(&store, other, ClerkMessage::Fail);
        }
        let is_parked = || !store.list(&Query::all().parked()).unwrap().is_empty();
        advance_until("it is parked", &clock, Duration::from_secs(1), is_parked);
        assert_eq!(notes(&runtime, asker), [""; 0]);
        match id {
            "skipped" => store.skip(other.pid()).unwrap(),
            "retried" => {
                store.skip(other.pid()).unwrap();
                tell(&store, other, ClerkMessage::Answer(5));
            }
            "replaced" => {
                let state =
                    r#"{"asked":[],"notes":[],"open":[],"prices":[],"in_a_row":[],"has_limits":false,"waits":false}"#;
                store.replace(other.pid(), state).unwrap();
            }
            _ => store.terminate(other.pid()).unwrap(),
        }
        // The asker is loaded again, which drops a question that is open.
        advance_until(id, &clock, Duration::from_secs(1), || {
            runtime.ask(asker, ClerkMessage::Look, Duration::MAX).wait().is_ok_and(|notes| notes == [told(id)])
        });
        shut((store, runtime));
        if id != "replaced" {
            is_told(&disk, asker, &[told(id)]);
        }
    }
}

#[test]
fn the_end_of_a_process_of_an_unknown_kind_answers_its_questions() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, other, third] = begin(&store);
    // One is in its state, and one in a message that it has not read.
    tell(&store, asker, question(other, How::Keep));
    stepped(&runtime);
    tell(&store, other, ClerkMessage::AskAndWait(third, How::Keep));
    stepped(&runtime);
    tell(&store, asker, question(other, How::Now));
    until("the question waits", || runtime.stats().messages.queued == 1);
    // The question is on disk, too.
    tell(&store, asker, ClerkMessage::Nothing);
    kill(&disk, (store, runtime));
    let other_kind = || store_in(MemoryJournal::new(&disk)).kind::<Worker>();
    let (store, runtime) = other_kind().start(Runtime::builder().workers(2)).unwrap();
    runtime.terminate(other.pid()).unwrap();
    until("it has ended", || store.show(other.pid()).is_ok_and(|shown| shown.listed.status == Status::Ended));
    end((store, runtime));
    is_told(&disk, asker, &["q: ended"; 2]);
}

#[test]
fn a_question_that_was_never_read_is_answered_by_the_end() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, other, third] = begin(&store);
    tell(&store, other, ClerkMessage::AskAndWait(third, How::Keep));
    stepped(&runtime);
    tell(&store, asker, question(other, How::Now));
    until("the question waits", || runtime.stats().messages.queued == 1);
    assert_eq!(look(&runtime, asker).unwrap(), [""; 0]);
    runtime.terminate(other.pid()).unwrap();
    until("it is told", || look(&runtime, asker).unwrap() == ["q: ended"]);
    // The reply to a question of a process that has ended.
    tell(&store, third, ClerkMessage::Answer(5));
    until("it is counted", || runtime.stats().late_replies == 1);
    end((store, runtime));
    is_told(&disk, asker, &["q: ended"]);
}

#[test]
fn a_question_and_a_later_message_keep_their_order() {
    for is_killed in [false, true] {
        let disk = MemoryDisk::new();
        let (mut store, mut runtime) = open(&disk);
        let [asker, other, third] = begin(&store);
        tell(&store, other, ClerkMessage::AskAndWait(third, How::Keep));
        stepped(&runtime);
        tell(&store, asker, ClerkMessage::AskAndEnd(other));
        until("both wait", || runtime.stats().messages.queued == 2);
        if is_killed {
            tell(&store, asker, ClerkMessage::Nothing);
            kill(&disk, (store, runtime));
            (store, runtime) = open(&disk);
        }
        tell(&store, third, ClerkMessage::Answer(5));
        until("it is told", || look(&runtime, asker).is_some_and(|notes| notes == ["q: 7"]));
        end((store, runtime));
        is_told(&disk, asker, &["q: 7"]);
    }
}

/// The type of the answer has no name, so the question ends with the run.
#[test]
fn a_question_in_memory_and_a_later_message_keep_their_order() {
    for sleeps in [false, true] {
        let disk = MemoryDisk::new();
        let run = || store_in(MemoryJournal::new(&disk)).kind::<Clerk>().start(Runtime::builder().workers(2)).unwrap();
        let (mut store, mut runtime) = run();
        let [asker, other] = begin(&store);
        if sleeps {
            tell(&store, other, ClerkMessage::Nothing);
            stepped(&runtime);
            end((store, runtime));
            (store, runtime) = run();
        }
        tell(&store, asker, ClerkMessage::AskAndEnd(other));
        until("it is told", || look(&runtime, asker).is_some_and(|notes| notes == ["q: 7"]));
        end((store, runtime));
    }
}

#[test]
fn a_question_of_another_type_is_refused() {
    let disk = MemoryDisk::new();
    let run = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Clerk>().kind::<Worker>().answers::<Price>("price");
        store.start(Runtime::builder().workers(2)).unwrap()
    };
    let (store, runtime) = run();
    let [asker] = begin(&store);
    let worker = store.begin("worker", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    tell(&store, asker, question(worker.pid().typed(), How::Now));
    until("it is told", || look(&runtime, asker).unwrap() == ["q: wrong type"]);
    end((store, runtime));
    // Its type is not known while it sleeps.
    let (store, runtime) = run();
    tell(&store, asker, question(worker.pid().typed(), How::Now));
    until("it is told", || look(&runtime, asker).unwrap() == ["q: wrong type"; 2]);
    end((store, runtime));
    is_told(&disk, asker, &["q: wrong type"; 2]);
}

#[test]
fn a_full_process_refuses_a_question() {
    let disk = MemoryDisk::new();
    let store = store_in(MemoryJournal::new(&disk)).kind::<Clerk>().answers::<Price>("price").mailbox_limit(1);
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let [asker, other, third] = begin(&store);
    tell(&store, other, ClerkMessage::AskAndWait(third, How::Keep));
    stepped(&runtime);
    tell(&store, other, ClerkMessage::Nothing);
    tell(&store, asker, question(other, How::Now));
    // It may be full itself.
    until("it is told", || look(&runtime, asker).is_some_and(|notes| notes == ["q: full"]));
    tell(&store, third, ClerkMessage::Answer(5));
    end((store, runtime));
    is_told(&disk, asker, &["q: full"]);
}

#[test]
fn a_question_whose_answer_the_store_does_not_know_is_in_memory_only() {
    let disk = MemoryDisk::new();
    let run = || store_in(MemoryJournal::new(&disk)).kind::<Clerk>().start(Runtime::builder().workers(2)).unwrap();
    let (store, runtime) = run();
    let [asker, other] = begin(&store);
    tell(&store, asker, question(other, How::Now));
    until("it is told", || look(&runtime, asker).unwrap() == ["q: 7"]);
    tell(&store, asker, question(other, How::Keep));
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = run();
    until("it is told", || look(&runtime, asker).unwrap().len() == 2);
    let told = look(&runtime, asker).unwrap();
    assert_eq!(told[1], format!("q: {}", CommandError::Interrupted));
    end((store, runtime));
}

#[test]
fn a_process_that_answers_with_a_type_that_is_not_named_is_parked() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = by_clock(&disk, &clock);
    let [asker, other] = begin(&store);
    tell(&store, asker, question(other, How::Keep));
    stepped(&runtime);
    shut((store, runtime));
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let (store, runtime) = store_in(MemoryJournal::new(&disk)).kind::<Clerk>().start(builder).unwrap();
    tell(&store, other, ClerkMessage::Answer(5));
    let parked = || store.list(&Query::all().parked()).unwrap();
    advance_until("it is parked", &clock, Duration::from_secs(1), || parked().len() == 1);
    let error = parked().remove(0).error.unwrap();
    assert!(error.contains("StoreBuilder::answers"), "{error}");
    shut((store, runtime));
    let (store, runtime) = open(&disk);
    store.retry(other.pid()).unwrap();
    until("it is told", || look(&runtime, asker).unwrap() == ["q: 5"]);
    end((store, runtime));
    is_told(&disk, asker, &["q: 5"]);
}

#[test]
fn two_types_of_answers_have_two_names() {
    let store = store_in(MemoryJournal::new(&MemoryDisk::new()));
    let started = store.kind::<Clerk>().answers::<Price>("a").answers::<u64>("a").start(Runtime::builder());
    assert!(matches!(started, Err(StoreError::SameName("a"))));
}
