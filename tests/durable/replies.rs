//! Replies that the states of durable processes keep, for later steps and in later runs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal, Status};
use procession::durable::{Durable, Query, Store};
use procession::{Address, CommandError, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, advance_until, until};
use crate::worker::{answer_of, end, stepped};

/// Keeps questions until it is told to answer them.
#[derive(Default, Serialize, Deserialize)]
struct Clerk {
    open: Vec<Reply<u64>>,
    count: u64,
}

#[derive(Serialize, Deserialize)]
enum ClerkMessage {
    Keep(Reply<u64>),
    /// Answers the oldest question with this number.
    Answer(u64),
    /// As `Answer`, and fails as often as the static counter says.
    AnswerAndFail(u64),
    Drop,
    Nothing,
    /// Fails each time.
    Fail,
    Discard(Reply<u64>),
    /// Has another clerk discard the oldest question.
    PassOn(Address<ClerkMessage>),
    /// Has an ordinary process answer the oldest question.
    HandOn(Address<Reply<u64>>),
    Over,
}

static FAILURES: AtomicU32 = AtomicU32::new(0);

impl Process for Clerk {
    type Message = ClerkMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ClerkMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let Event::Message(message) = event else { continue };
            self.count += 1;
            match message {
                ClerkMessage::Keep(reply) => self.open.push(reply),
                ClerkMessage::Answer(value) => out.reply(self.open.remove(0), value),
                ClerkMessage::AnswerAndFail(value) => {
                    out.reply(self.open.remove(0), value);
                    if FAILURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                        return Err("on purpose".into());
                    }
                }
                ClerkMessage::Drop => drop(self.open.remove(0)),
                ClerkMessage::Nothing => {}
                ClerkMessage::Fail => return Err("on purpose".into()),
                ClerkMessage::Discard(reply) => drop(reply),
                ClerkMessage::PassOn(to) => out.send(to, ClerkMessage::Discard(self.open.remove(0))),
                ClerkMessage::HandOn(to) => out.send(to, self.open.remove(0)),
                ClerkMessage::Over => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Clerk {
    const NAME: &str = "clerk";
}

/// Answers the first question with its number, and drops all others.
#[derive(Default)]
struct Once(u64);

impl Process for Once {
    type Message = Reply<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<u64>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) if self.0 == 0 => {
                    self.0 = 1;
                    out.reply(reply, 77);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn open(journal: impl Journal + 'static) -> (Store, Runtime, Address<ClerkMessage>) {
    let (store, runtime) = store_in(journal).kind::<Clerk>().start(Runtime::builder().workers(2)).unwrap();
    let clerk = store.begin("a", Clerk::default()).unwrap().address();
    (store, runtime, clerk)
}

/// Waits until the state on disk has this many questions.
fn kept(store: &Store, clerk: Pid, questions: usize) {
    until("they are kept", || {
        let shown = store.show(clerk);
        shown.is_ok_and(|shown| shown.state["open"].as_array().map_or(0, Vec::len) == questions)
    });
}

#[test]
fn a_kept_reply_is_answered_when_the_record_of_its_step_is_on_disk() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime, clerk) = open(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let mut asked: Vec<_> = (0..2).map(|_| Some(runtime.ask(clerk, ClerkMessage::Keep, LIMIT))).collect();
    kept(&store, clerk.pid(), 2);
    store.send(clerk, ClerkMessage::Answer(1)).unwrap().wait(LIMIT).unwrap();
    assert_eq!(asked[0].take().unwrap().wait().unwrap(), 1);
    gate.close();
    let receipt = store.send(clerk, ClerkMessage::Answer(2)).unwrap();
    stepped(&runtime);
    assert!(answer_of(&mut asked[1], || unreachable!()).is_none(), "its record is not on disk");
    gate.open();
    receipt.wait(LIMIT).unwrap();
    assert_eq!(asked[1].take().unwrap().wait().unwrap(), 2);
    end((store, runtime));
}

#[test]
fn a_reply_of_an_earlier_run_is_late_and_harms_nobody() {
    let disk = MemoryDisk::new();
    let open = || {
        let (store, runtime, clerk) = open(MemoryJournal::new(&disk));
        // A run that ends before takes no question.
        until("its first step is on disk", || store.count(&Query::all().status(Status::Sleeping)).unwrap() == 1);
        (store, runtime, clerk)
    };
    let (store, runtime, clerk) = open();
    let asked = runtime.ask(clerk, ClerkMessage::Keep, LIMIT);
    kept(&store, clerk.pid(), 1);
    end((store, runtime));
    let answer = asked.wait();
    assert!(answer.is_err(), "the asker of the first run waits no longer: {answer:?}");

    // It is kept over a run in which nobody answers.
    let (store, runtime, clerk) = open();
    let asked = runtime.ask(clerk, ClerkMessage::Keep, LIMIT);
    kept(&store, clerk.pid(), 2);
    end((store, runtime));
    assert!(asked.wait().is_err());

    let (store, runtime, clerk) = open();
    let asked = runtime.ask(clerk, ClerkMessage::Keep, LIMIT);
    for (value, late) in [(1, 1), (2, 2), (3, 2)] {
        store.send(clerk, ClerkMessage::Answer(value)).unwrap().wait(LIMIT).unwrap();
        until("it is counted", || runtime.stats().late_replies == late);
    }
    assert_eq!(asked.wait().unwrap(), 3, "the question of this run gets its own answer");
    end((store, runtime));
}

#[test]
fn a_step_that_fails_leaves_the_replies_of_its_state() {
    let disk = MemoryDisk::new();
    let (store, runtime, clerk) = open(MemoryJournal::new(&disk));
    let asked = runtime.ask(clerk, ClerkMessage::Keep, LIMIT);
    kept(&store, clerk.pid(), 1);
    FAILURES.store(1, Ordering::SeqCst);
    store.send(clerk, ClerkMessage::AnswerAndFail(5)).unwrap();
    assert_eq!(asked.wait().unwrap(), 5);
    assert_eq!(FAILURES.load(Ordering::SeqCst), 0);
    end((store, runtime));
}

#[test]
fn a_kept_reply_outlives_an_error_of_the_disk() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime, clerk) = open(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let mut asked = [(), ()].map(|()| Some(runtime.ask(clerk, ClerkMessage::Keep, LIMIT)));
    kept(&store, clerk.pid(), 2);
    store.send(clerk, ClerkMessage::Answer(1)).unwrap().wait(LIMIT).unwrap();
    let mut first = asked[0].take();
    until("the first has its answer", || answer_of(&mut first, || unreachable!()).is_some());
    let mut told = false;
    // Both of its ends are lost: the answer, and the drop.
    for lost in [ClerkMessage::Answer(2), ClerkMessage::Drop] {
        gate.close();
        drop(store.send(clerk, lost).unwrap());
        stepped(&runtime);
        disk.crash();
        gate.open();
        until("the process is there again", || {
            told |= answer_of(&mut asked[1], || unreachable!()).is_some();
            store.send(clerk, ClerkMessage::Nothing).is_ok_and(|receipt| receipt.wait(LIMIT).is_ok())
        });
    }
    store.send(clerk, ClerkMessage::Answer(3)).unwrap();
    assert!(!told, "what is lost tells nobody");
    assert_eq!(asked[1].take().unwrap().wait().unwrap(), 3);
    end((store, runtime));
}

#[test]
fn a_kept_reply_that_is_dropped_or_whose_process_ends_tells_its_asker() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime, clerk) = open(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let mut asked = [(), ()].map(|()| Some(runtime.ask(clerk, ClerkMessage::Keep, LIMIT)));
    kept(&store, clerk.pid(), 2);
    gate.close();
    let receipt = store.send(clerk, ClerkMessage::Drop).unwrap();
    stepped(&runtime);
    assert!(answer_of(&mut asked[0], || unreachable!()).is_none(), "its record is not on disk");
    gate.open();
    receipt.wait(LIMIT).unwrap();
    let answer = asked[0].take().unwrap().wait();
    assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
    gate.close();
    let receipt = store.send(clerk, ClerkMessage::Over).unwrap();
    stepped(&runtime);
    assert!(answer_of(&mut asked[1], || unreachable!()).is_none(), "its end is not on disk");
    gate.open();
    receipt.wait(LIMIT).unwrap();
    let answer = asked[1].take().unwrap().wait();
    assert!(matches!(answer, Err(CommandError::Ended(pid)) if pid == clerk.pid()), "{answer:?}");
    end((store, runtime));
}

#[test]
fn a_kept_reply_that_is_passed_on_within_the_store_is_not_forgotten() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime, clerk) = open(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let other = store.begin("b", Clerk::default()).unwrap().address();
    let asked = runtime.ask(clerk, ClerkMessage::Keep, LIMIT);
    kept(&store, clerk.pid(), 1);
    gate.close();
    store.send(clerk, ClerkMessage::PassOn(other)).unwrap();
    stepped(&runtime);
    gate.open();
    let answer = asked.wait();
    assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
    end((store, runtime));
}

#[test]
fn the_replies_of_a_parked_process_wait_for_its_repair() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Clerk>();
    let (store, runtime) = store.start(builder).unwrap();
    for id in ["retried", "replaced", "terminated"] {
        let clerk = store.begin(id, Clerk::default()).unwrap();
        let mut asked = Some(runtime.ask(clerk.address(), ClerkMessage::Keep, Duration::MAX));
        kept(&store, clerk.pid(), 1);
        store.send(clerk.address(), ClerkMessage::Fail).unwrap().wait(LIMIT).unwrap();
        let is_parked = || store.list(&Query::all().parked()).unwrap().iter().any(|one| one.pid == clerk.pid());
        advance_until(&format!("{id} is parked"), &clock, Duration::from_secs(1), is_parked);
        // It is read from the disk, as after any error.
        disk.crash();
        advance_until("the store is open again", &clock, Duration::from_secs(1), || {
            store.send(clerk.address(), ClerkMessage::Nothing).is_ok_and(|receipt| receipt.wait(LIMIT).is_ok())
        });
        let early = answer_of(&mut asked, || unreachable!());
        assert!(early.is_none(), "{id}: {early:?}");
        match id {
            "retried" => {
                store.skip(clerk.pid()).unwrap();
                store.send(clerk.address(), ClerkMessage::Answer(8)).unwrap();
            }
            "replaced" => store.replace(clerk.pid(), r#"{"open":[],"count":0}"#).unwrap(),
            _ => store.terminate(clerk.pid()).unwrap(),
        }
        let mut answer = None;
        advance_until(id, &clock, Duration::from_secs(1), || {
            answer = answer_of(&mut asked, || unreachable!());
            answer.is_some()
        });
        match (id, answer.unwrap()) {
            ("retried", Ok(8)) | ("replaced", Err(CommandError::Dropped)) => {}
            ("terminated", Err(CommandError::Ended(_))) => {}
            (_, answer) => panic!("{id}: {answer:?}"),
        }
    }
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_kept_reply_outlives_the_sleep_of_its_process() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Clerk>().sleep_after(Duration::from_secs(60));
    let (store, runtime) = store.start(builder).unwrap();
    let clerk = store.begin("a", Clerk::default()).unwrap().address();
    let mut asked = Some(runtime.ask(clerk, ClerkMessage::Keep, Duration::MAX));
    kept(&store, clerk.pid(), 1);
    advance_until("it sleeps", &clock, Duration::from_secs(60), || runtime.processes().is_empty());
    assert!(answer_of(&mut asked, || unreachable!()).is_none(), "a sleep is no end");
    store.send(clerk, ClerkMessage::Answer(6)).unwrap();
    let mut answer = None;
    advance_until("it is answered", &clock, Duration::from_secs(1), || {
        answer = answer_of(&mut asked, || unreachable!());
        answer.is_some()
    });
    assert_eq!(answer.unwrap().unwrap(), 6);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_kept_reply_that_is_handed_on_is_no_longer_kept() {
    let disk = MemoryDisk::new();
    let (store, runtime, clerk) = open(MemoryJournal::new(&disk));
    let once = runtime.spawn(Once::default()).unwrap();
    let asked = [(), ()].map(|()| runtime.ask(clerk, ClerkMessage::Keep, LIMIT));
    kept(&store, clerk.pid(), 2);
    for _ in 0..2 {
        store.send(clerk, ClerkMessage::HandOn(once.address())).unwrap();
    }
    let [first, second] = asked;
    assert_eq!(first.wait().unwrap(), 77);
    let answer = second.wait();
    assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
    end((store, runtime));
}
