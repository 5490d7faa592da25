//! The limit of stored messages that wait for one process.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Query, Store, WhyDead};
use procession::observe::DeadLetterReason;
use procession::{
    Address, CommandError, Event, Events, Process, Reply, Runtime, SendError, Step, StepOutput, StepResult,
};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::store_in;
use crate::wait::{LIMIT, advance_until, until};
use crate::worker::{Worker, WorkerMessage, end, stepped};

/// Takes messages, or waits, or fails.
#[derive(Default, Serialize, Deserialize)]
struct Taker {
    taken: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
enum TakerMessage {
    Take(u64),
    /// Sends so many to another one, in one step.
    Send(Address<TakerMessage>, u64),
    /// Waits for a future that is never ready.
    Wait,
    Fail,
    Load(String),
    Read(Reply<Vec<u64>>),
}

impl Process for Taker {
    type Message = TakerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, TakerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(TakerMessage::Take(number)) => self.taken.push(number),
                Event::Message(TakerMessage::Send(to, count)) => {
                    (0..count).for_each(|number| out.send(to, TakerMessage::Take(number)));
                }
                Event::Message(TakerMessage::Wait) => {
                    out.future(std::future::pending::<()>());
                    return Ok(Step::Wait);
                }
                Event::Message(TakerMessage::Fail) => return Err("on purpose".into()),
                Event::Message(TakerMessage::Read(reply)) => out.reply(reply, self.taken.clone()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Taker {
    const NAME: &str = "taker";
}

fn open(disk: &MemoryDisk, clock: &ManualClock, limit: usize) -> (Store, Runtime) {
    let store = store_in(MemoryJournal::new(disk)).kind::<Taker>().mailbox_limit(limit);
    store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
}

/// Sends until a message is refused. Returns how many were not.
fn fill(store: &Store, taker: Address<TakerMessage>, limit: usize) -> u64 {
    for number in 0.. {
        match store.send(taker, TakerMessage::Take(number)) {
            Ok(receipt) => receipt.wait(LIMIT).unwrap(),
            Err(refused) => {
                let (message, why) = refused.into_parts();
                assert!(matches!(message, TakerMessage::Take(back) if back == number), "it comes back");
                assert!(matches!(why, SendError::Full { pid, limit: of } if (pid, of) == (taker.pid(), limit)));
                return number;
            }
        }
    }
    unreachable!()
}

#[test]
fn a_full_process_refuses_messages_until_it_takes_some() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock, 5);
    let taker = store.begin("a", Taker::default()).unwrap().address();
    store.send(taker, TakerMessage::Wait).unwrap().wait(LIMIT).unwrap();
    until("it waits", || runtime.is_idle());
    assert_eq!(fill(&store, taker, 5), 5);
    let asked = runtime.ask(taker, TakerMessage::Read, LIMIT).wait();
    assert!(matches!(asked, Err(CommandError::Full(pid)) if pid == taker.pid()), "{asked:?}");
    end((store, runtime));
    // Its future is interrupted, and it takes all.
    let (store, runtime) = open(&disk, &clock, 5);
    let read = || runtime.ask(taker, TakerMessage::Read, LIMIT).wait().ok();
    until("it has taken its mail", || read() == Some(vec![0, 1, 2, 3, 4]));
    (5..20).for_each(|number| {
        store.send(taker, TakerMessage::Take(number)).unwrap();
        stepped(&runtime);
    });
    assert_eq!(read(), Some((0..20).collect()));
    end((store, runtime));
}

#[test]
fn a_parked_process_refuses_messages_when_it_is_full() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock, 5);
    let taker = store.begin("a", Taker::default()).unwrap().address();
    store.send(taker, TakerMessage::Fail).unwrap().wait(LIMIT).unwrap();
    let count = |store: &Store| store.count(&Query::all().parked()).unwrap();
    advance_until("it is parked", &clock, Duration::from_secs(1), || count(&store) == 1);
    assert_eq!(fill(&store, taker, 5), 4, "the message that fails waits, too");
    end((store, runtime));
    // It stays on disk, and its messages are counted there.
    let (store, runtime) = open(&disk, &clock, 7);
    let asked = runtime.ask(taker, TakerMessage::Read, LIMIT).wait();
    assert!(matches!(asked, Err(CommandError::Dropped | CommandError::Full(_))), "{asked:?}");
    assert_eq!(fill(&store, taker, 7), 2);
    store.skip(taker.pid()).unwrap();
    let read = || runtime.ask(taker, TakerMessage::Read, LIMIT).wait().ok();
    until("it has taken its mail", || read() == Some(vec![0, 1, 2, 3, 0, 1]));
    end((store, runtime));
}

#[test]
fn a_message_of_a_durable_process_to_a_full_one_is_a_dead_letter() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock, 5);
    let [taker, sender] = ["a", "b"].map(|id| store.begin(id, Taker::default()).unwrap().address());
    store.send(taker, TakerMessage::Wait).unwrap().wait(LIMIT).unwrap();
    until("it waits", || runtime.is_idle());
    store.send(sender, TakerMessage::Send(taker, 8)).unwrap().wait(LIMIT).unwrap();
    until("all are sent", || runtime.is_idle());
    assert_eq!(runtime.stats().messages.dead_by_reason[&DeadLetterReason::Full], 3);
    end((store, runtime));
    let (store, runtime) = open(&disk, &clock, 5);
    let dead = store.dead_letters(None, 10).unwrap();
    let dead: Vec<_> = dead.iter().map(|dead| (dead.to, dead.from, dead.why, dead.message.to_string())).collect();
    let full = |number| (taker.pid(), Some(sender.pid()), WhyDead::Full, format!("{{\"Take\":{number}}}"));
    assert_eq!(dead, [full(5), full(6), full(7)]);
    let read = || runtime.ask(taker, TakerMessage::Read, LIMIT).wait().ok();
    until("it has taken its mail", || read() == Some(vec![0, 1, 2, 3, 4]));
    end((store, runtime));
}

/// Full receivers, dead letters that are sent again, and ends with more mail than is stored.
#[test]
fn messages_with_every_outcome_are_counted_over_all_runs() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let counts = |store: &Store| {
        let counts = store.mail_counts().unwrap();
        [counts.accepted, counts.stepped, counts.dead_letters, counts.queued]
    };
    let (store, runtime) = open(&disk, &clock, 5);
    assert_eq!(counts(&store), [0; 4]);
    let [taker, sender] = ["a", "b"].map(|id| store.begin(id, Taker::default()).unwrap().address());
    store.send(taker, TakerMessage::Wait).unwrap().wait(LIMIT).unwrap();
    until("it waits", || runtime.is_idle());
    store.send(sender, TakerMessage::Send(taker, 8)).unwrap().wait(LIMIT).unwrap();
    until("three have found it full", || counts(&store) == [10, 2, 3, 5]);
    end((store, runtime));
    let (store, runtime) = open(&disk, &clock, 5);
    until("it has taken its mail", || counts(&store) == [10, 7, 3, 0]);
    store.resend(&store.dead_letters(None, 1).unwrap()[0]).unwrap();
    until("one is taken at last", || counts(&store) == [11, 8, 3, 0]);
    store.send(taker, TakerMessage::Wait).unwrap().wait(LIMIT).unwrap();
    until("it waits", || counts(&store) == [12, 9, 3, 0]);
    (0..2).for_each(|_| store.send(taker, TakerMessage::Load("x".repeat(700_000))).unwrap().wait(LIMIT).unwrap());
    assert_eq!(counts(&store), [14, 9, 3, 2]);
    store.terminate(taker.pid()).unwrap();
    assert_eq!(counts(&store), [14, 9, 5, 0]);
    assert_eq!(store.dead_letters(None, 10).unwrap().len(), 3, "the last one found no room in the record of the end");
    assert_eq!(store.check().unwrap(), []);
    end((store, runtime));
}

/// Its mailbox is empty when it falls asleep. The messages that it has taken since its load must not be counted.
#[test]
fn a_process_that_sleeps_with_an_empty_mailbox_is_not_full() {
    const REST: Duration = Duration::from_secs(10);
    let (disk, gate, clock) = (MemoryDisk::new(), Gate::default(), ManualClock::new());
    let start = || {
        let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
        let store = store_in(journal).kind::<Worker>().mailbox_limit(3).sleep_after(REST);
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = start();
    let [full, other] = ["a", "b"].map(|id| store.begin(id, Worker::default()).unwrap().address());
    store.send(full, WorkerMessage::HangAndWait).unwrap().wait(Duration::MAX).unwrap();
    stepped(&runtime);
    for _ in 0..3 {
        store.send(full, WorkerMessage::Who).unwrap().wait(Duration::MAX).unwrap();
    }
    assert!(store.send(full, WorkerMessage::Who).is_err());
    end((store, runtime));
    // The next run loads it with its mail.
    let (store, runtime) = start();
    let seen = || runtime.ask(full, WorkerMessage::Look, Duration::MAX).wait();
    until("it has taken its mail", || seen().is_ok_and(|seen| seen.1.len() == 4));
    stepped(&runtime);
    gate.close();
    // The record of the other one is not on disk, so the residence of the sleeper stays.
    store.send(other, WorkerMessage::Set(1)).unwrap();
    until("both are in memory", || runtime.processes().len() == 2);
    advance_until("it sleeps", &clock, REST, || runtime.processes().len() == 1);
    let sent = store.send(full, WorkerMessage::Set(1));
    gate.open();
    assert!(sent.is_ok(), "{sent:?}");
    end((store, runtime));
}
