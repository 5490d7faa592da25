//! Stored questions between durable processes.

use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::{Address, Runtime};

use crate::clerk::*;
use crate::gate::{Gate, GatedJournal, SlowLoads};
use crate::places::{goes_ahead, store_in};
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, advance_until, until};
use crate::worker::{asked, end, kill, stepped};

const HOUR: Duration = Duration::from_secs(3_600);

const WAYS: [(How, &str); 6] = [
    (How::Now, "q: 7"),
    (How::Send, "q: 7"),
    (How::Keep, "q: 5"),
    (How::Discard, "q: dropped without an answer"),
    (How::End, "q: ended"),
    (How::AnswerAndEnd, "q: 7"),
];

#[test]
fn a_question_has_one_answer_of_each_kind() {
    for (how, told) in WAYS {
        let disk = MemoryDisk::new();
        let (store, runtime) = open(&disk);
        let [asker, other] = begin(&store);
        tell(&store, asker, question(other, how));
        stepped(&runtime);
        if how == How::Keep {
            assert_eq!(look(&runtime, asker).unwrap(), [""; 0], "it waits");
            tell(&store, other, ClerkMessage::Answer(5));
        }
        until("it is told", || look(&runtime, asker).unwrap() == [told]);
        end((store, runtime));
        is_told(&disk, asker, &[told]);
    }
}

#[test]
fn a_question_to_a_process_that_has_ended_is_told_so() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, one, two] = begin(&store);
    for other in [one, two] {
        tell(&store, other, ClerkMessage::Over);
    }
    for id in ["1", "2"] {
        store.result::<Clerk>(id).unwrap().wait(LIMIT).unwrap();
    }
    tell(&store, asker, question(one, How::Now));
    until("it is told", || look(&runtime, asker).unwrap() == ["q: ended"]);
    end((store, runtime));
    // In this run nobody has looked for it yet.
    let (store, runtime) = open(&disk);
    tell(&store, asker, question(two, How::Now));
    until("it is told", || look(&runtime, asker).unwrap() == ["q: ended"; 2]);
    end((store, runtime));
    is_told(&disk, asker, &["q: ended"; 2]);
}

/// The second question comes when the end of the first one is not on disk.
#[test]
fn a_process_that_has_ended_is_asked_twice_and_each_question_is_dead_once() {
    if !goes_ahead() {
        return;
    }
    let (disk, loads, commits) = (MemoryDisk::new(), Gate::default(), Gate::default());
    let (store, runtime) = open(&disk);
    let [other, one, two] = begin(&store);
    tell(&store, other, ClerkMessage::Over);
    store.result::<Clerk>("0").unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    let journal = GatedJournal(MemoryJournal::new(&disk), commits.clone());
    let (store, runtime) = start(SlowLoads(journal, loads.clone()), Runtime::builder());
    [one, two].into_iter().for_each(|asker| assert_eq!(look(&runtime, asker).unwrap(), [""; 0]));
    loads.close();
    tell(&store, one, question(other, How::Now));
    until("it is read", || loads.arrivals() > 0);
    tell(&store, one, ClerkMessage::Nothing);
    commits.close();
    loads.open();
    commits.wait_for(1);
    drop(store.send(two, question(other, How::Now)).unwrap());
    stepped(&runtime);
    commits.open();
    [one, two].into_iter().for_each(|asker| until("it is told", || look(&runtime, asker).unwrap() == ["q: ended"]));
    tell(&store, one, ClerkMessage::Nothing);
    tell(&store, two, ClerkMessage::Nothing);
    stepped(&runtime);
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(store.mail_counts().unwrap().dead_letters, 2);
    end((store, runtime));
    [one, two].into_iter().for_each(|asker| is_told(&disk, asker, &["q: ended"]));
}

/// A run in which a question to a process that has ended is on disk, and in which this process is about to be read.
fn dead_question(gate: &Gate) -> (MemoryDisk, Opened, Address<ClerkMessage>) {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, other] = begin(&store);
    tell(&store, other, ClerkMessage::Over);
    store.result::<Clerk>("1").unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    let (store, runtime) = start(SlowLoads(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    assert_eq!(look(&runtime, asker).unwrap(), [""; 0]);
    gate.close();
    tell(&store, asker, question(other, How::Now));
    until("it is read", || gate.arrivals() > 0);
    tell(&store, asker, ClerkMessage::Nothing);
    (disk, (store, runtime), asker)
}

#[test]
fn a_question_that_is_dead_on_disk_is_told_in_the_next_run() {
    let gate = Gate::default();
    let (disk, opened, asker) = dead_question(&gate);
    // Nothing else reaches the disk.
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    gate.open();
    kill(&disk, opened);
    is_told(&disk, asker, &["q: ended"]);
}

#[test]
fn a_question_that_is_dead_on_disk_is_told_though_calls_of_the_disk_fail() {
    for (call, fault) in (0..6).flat_map(|call| [(call, Fault::Error), (call, Fault::Crash)]) {
        let gate = Gate::default();
        let (disk, (store, runtime), asker) = dead_question(&gate);
        disk.fail_at(disk.calls() + call, fault);
        gate.open();
        until("it is told", || look(&runtime, asker).is_some_and(|notes| notes == ["q: ended"]));
        disk.heal();
        end((store, runtime));
        is_told(&disk, asker, &["q: ended"]);
    }
}

#[test]
fn the_limit_of_a_question_outlives_the_program() {
    for (runs, is_down) in [(1, false), (2, false), (2, true)] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
        let (mut store, mut runtime) = by_clock(&disk, &clock);
        let [asker, other] = begin(&store);
        tell(&store, asker, limited(other, How::Keep, Some(3_600)));
        stepped(&runtime);
        if runs > 1 {
            shut((store, runtime));
            if is_down {
                clock.advance(HOUR);
            }
            (store, runtime) = by_clock(&disk, &clock);
        }
        if !is_down {
            clock.advance(HOUR - Duration::from_secs(1));
            stepped(&runtime);
            assert_eq!(notes(&runtime, asker), [""; 0]);
            clock.advance(Duration::from_secs(1));
        }
        until("it is told", || notes(&runtime, asker) == ["q: timed out"]);
        // The answer comes too late, and harms nobody.
        tell(&store, other, ClerkMessage::Answer(5));
        until("it is counted", || runtime.stats().late_replies == 1);
        stepped(&runtime);
        assert_eq!(notes(&runtime, asker), ["q: timed out"]);
        shut((store, runtime));
        is_told(&disk, asker, &["q: timed out"]);
    }
}

#[test]
fn a_late_answer_to_an_asker_that_is_not_in_memory_is_removed() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = by_clock(&disk, &clock);
    let [asker, ended, other] = begin(&store);
    for asker in [asker, ended] {
        tell(&store, asker, limited(other, How::Keep, Some(3_600)));
    }
    stepped(&runtime);
    clock.advance(HOUR);
    until("they are told", || [asker, ended].iter().all(|asker| notes(&runtime, *asker) == ["q: timed out"]));
    tell(&store, ended, ClerkMessage::Over);
    stepped(&runtime);
    shut((store, runtime));
    // Both askers are on disk only.
    let (store, runtime) = open(&disk);
    for _ in 0..2 {
        tell(&store, other, ClerkMessage::Answer(5));
    }
    until("they are counted", || runtime.stats().late_replies == 2);
    end((store, runtime));
    is_told(&disk, asker, &["q: timed out"]);
}

#[test]
fn a_question_waits_while_both_sleep() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Clerk>().answers::<Price>("price");
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let (store, runtime) = store.sleep_after(Duration::from_secs(60)).start(builder).unwrap();
    let [asker, other, third] = begin(&store);
    let sleep = || advance_until("all sleep", &clock, Duration::from_secs(60), || runtime.processes().is_empty());
    sleep();
    // The asked process sleeps when the question comes.
    tell(&store, asker, question(other, How::Keep));
    stepped(&runtime);
    sleep();
    assert_eq!(notes(&runtime, asker), [""; 0]);
    sleep();
    tell(&store, other, ClerkMessage::Answer(5));
    // Nobody sends to the asker: the answer wakes it.
    until("it is told", || runtime.processes().len() == 2);
    assert_eq!(notes(&runtime, asker), ["q: 5"]);
    // So does the limit.
    tell(&store, asker, limited(third, How::Keep, Some(1_000_000)));
    stepped(&runtime);
    sleep();
    clock.advance(Duration::from_secs(1_000_000));
    until("it is told", || !runtime.processes().is_empty());
    until("it is told", || notes(&runtime, asker) == ["q: 5", "q: timed out"]);
    shut((store, runtime));
}

#[test]
fn an_asker_that_waits_for_completions_is_answered_in_the_next_run() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [asker, other] = begin(&store);
    tell(&store, asker, ClerkMessage::AskAndWait(other, How::Keep));
    stepped(&runtime);
    // Its answer waits until the question is on disk.
    assert!(look(&runtime, other).is_some());
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    let asked = runtime.ask(asker, ClerkMessage::Look, LIMIT);
    tell(&store, other, ClerkMessage::Answer(5));
    assert_eq!(asked.wait().unwrap(), ["q: 5"], "the answer comes before the message");
    end((store, runtime));
}

#[test]
fn an_answer_that_is_lost_with_the_disk_is_given_again() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let [asker, other] = begin(&store);
    tell(&store, asker, question(other, How::Keep));
    stepped(&runtime);
    for lost in [ClerkMessage::Answer(1), ClerkMessage::Drop, ClerkMessage::Over] {
        gate.close();
        drop(store.send(other, lost).unwrap());
        stepped(&runtime);
        disk.crash();
        gate.open();
        let is_there = || store.send(other, ClerkMessage::Nothing).is_ok_and(|receipt| receipt.wait(LIMIT).is_ok());
        until("the process is there again", is_there);
    }
    assert_eq!(asked(|| look(&runtime, asker)), [""; 0], "what is lost tells nobody");
    tell(&store, other, ClerkMessage::Answer(3));
    until("it is told", || look(&runtime, asker).is_some_and(|notes| notes == ["q: 3"]));
    end((store, runtime));
    is_told(&disk, asker, &["q: 3"]);
}

const OTHERS: usize = 20;

#[test]
fn each_question_is_answered_once_though_the_disk_loses_its_power() {
    until_the_disk_crashes(counts("seeds", 4, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let [asker, others @ ..] = begin::<{ OTHERS + 1 }>(&store);
        tell(&store, asker, ClerkMessage::InARow(others.to_vec(), false));
        let (mut crashes, mut calls, deadline) = (0, 0, Instant::now() + LIMIT);
        while look(&runtime, asker).is_none_or(|notes| notes.len() < OTHERS) {
            assert!(Instant::now() < deadline, "seed {seed}: nobody is stuck: {store:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 5 + draw(seed, crashes, 1, 20) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        stepped(&runtime);
        assert_eq!(asked(|| look(&runtime, asker)), in_a_row(OTHERS, false), "seed {seed}");
        end((store, runtime));
        crashes
    });
}

#[test]
fn each_question_is_answered_once_though_the_program_is_killed() {
    let mut kills = 0;
    for seed in 0..counts("seeds", 3, 100) {
        let disk = MemoryDisk::with_seed(seed);
        let mut asker = None;
        for run in 0.. {
            assert!(run < 1_000, "seed {seed}: nobody is stuck");
            let (store, runtime) = open(&disk);
            let asker = *asker.get_or_insert_with(|| {
                let [asker, others @ ..] = begin::<{ OTHERS + 1 }>(&store);
                tell(&store, asker, ClerkMessage::InARow(others.to_vec(), false));
                asker
            });
            let enough = disk.calls() + draw(seed, run, 2, 40);
            let is_done = || look(&runtime, asker).is_some_and(|notes| notes.len() >= OTHERS);
            until("something is written", || disk.calls() > enough || is_done());
            // The first run is killed in any case.
            if run > 0 && is_done() {
                assert_eq!(look(&runtime, asker).unwrap(), in_a_row(OTHERS, false), "seed {seed}");
                end((store, runtime));
                break;
            }
            kill(&disk, (store, runtime));
            kills += 1;
        }
    }
    assert!(kills > 0, "the program was killed");
}
