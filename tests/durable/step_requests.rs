//! Requests of a step to processes of the store: to stop, and to end.

use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store, StoreError};
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, until};
use crate::worker::{asked, end, kill, stepped};

/// Asks others to stop, and notes its answers and what it is asked.
#[derive(Default, Serialize, Deserialize)]
struct Boss {
    /// How many requests it has made.
    made: u32,
    open: Vec<Tag<bool>>,
    notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum BossMessage {
    Stop(Pid),
    End(Pid),
    /// Asks another one to stop, and is done.
    StopAndOver(Pid),
    Look(Reply<(u32, Vec<String>)>),
}

impl Process for Boss {
    type Message = BossMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, BossMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(BossMessage::Stop(pid)) => {
                    self.made += 1;
                    self.open.push(out.cancel(pid, "enough"));
                }
                Event::Message(BossMessage::End(pid)) => {
                    self.made += 1;
                    self.open.push(out.terminate(pid));
                }
                Event::Message(BossMessage::StopAndOver(pid)) => {
                    out.cancel(pid, "enough");
                    return Ok(Step::Done(()));
                }
                Event::Message(BossMessage::Look(reply)) => out.reply(reply, (self.made, self.notes.clone())),
                Event::Completed(done) => {
                    let place = self.open.iter().position(|tag| tag.id() == done.tag());
                    let tag = self.open.remove(place.ok_or("an answer to nothing")?);
                    let answer = done.take(tag).ok_or("an answer of another type")?;
                    self.notes.push(answer.map_or_else(|why| why.to_string(), |lived| lived.to_string()));
                }
                Event::Cancel(request) => self.notes.push(format!("cancel: {}", request.reason)),
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Boss {
    const NAME: &str = "boss";
}

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    store_in(MemoryJournal::new(disk)).kind::<Boss>().start(Runtime::builder().workers(2)).unwrap()
}

fn begin(store: &Store, id: &str) -> Address<BossMessage> {
    let begun = store.begin(id, Boss::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    begun.address()
}

fn look(runtime: &Runtime, of: Address<BossMessage>) -> (u32, Vec<String>) {
    asked(|| runtime.ask(of, BossMessage::Look, LIMIT).wait().ok())
}

fn has_ended(store: &Store, id: &str) -> bool {
    matches!(store.result::<Boss>(id).unwrap().wait(std::time::Duration::ZERO), Err(StoreError::Terminated))
}

/// Without the request in the record, a kill behind the commit would lose it, and the answer would be an error.
#[test]
fn a_kill_at_any_call_leaves_each_step_with_its_requests() {
    for call in 0..counts("calls", 20, 60) {
        let disk = MemoryDisk::with_seed(call);
        let (store, runtime) = open(&disk);
        let [boss, other, third] = ["boss", "other", "third"].map(|id| begin(&store, id));
        let first = disk.calls() + call;
        (first..first + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
        drop(runtime.send(boss, BossMessage::Stop(other.pid())));
        until("one is made", || runtime.is_idle());
        drop(runtime.send(boss, BossMessage::End(third.pid())));
        until("nothing is left to be done", || runtime.is_idle());
        kill(&disk, (store, runtime));

        for _ in 0..2 {
            let (store, runtime) = open(&disk);
            stepped(&runtime);
            let (made, notes) = look(&runtime, boss);
            until("each request has its answer", || look(&runtime, boss).1.len() == made as usize);
            assert!(look(&runtime, boss).1.iter().all(|note| note == "true"), "call {call}: {notes:?}");
            let stops = if made == 0 { 0 } else { 1 };
            until("it is asked to stop", || look(&runtime, other).1 == vec!["cancel: enough"; stops]);
            until("it has ended", || has_ended(&store, "third") == (made == 2));
            end((store, runtime));
        }
    }
}

#[test]
fn a_request_of_a_last_step_reaches_one_that_sleeps() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [boss, other] = ["boss", "other"].map(|id| begin(&store, id));
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    assert_eq!(runtime.processes().len(), 0, "both sleep");
    store.send(boss, BossMessage::StopAndOver(other.pid())).unwrap().wait(LIMIT).unwrap();
    store.result::<Boss>("boss").unwrap().wait(LIMIT).unwrap();
    kill(&disk, (store, runtime));
    for _ in 0..2 {
        let (store, runtime) = open(&disk);
        stepped(&runtime);
        until("it is asked", || look(&runtime, other).1 == ["cancel: enough"]);
        end((store, runtime));
    }
}

#[test]
fn a_request_to_itself_and_one_to_an_ended_process_are_answered() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [boss, other] = ["boss", "other"].map(|id| begin(&store, id));
    store.terminate(other.pid()).unwrap();
    let expected = ["cancel: enough", "true"];
    store.send(boss, BossMessage::Stop(boss.pid())).unwrap();
    let sorted = || {
        let mut notes = look(&runtime, boss).1;
        notes.sort();
        notes
    };
    until("it is asked and answered", || sorted() == expected);
    until("the end of the other one is on disk", || has_ended(&store, "other"));
    store.send(boss, BossMessage::Stop(other.pid())).unwrap();
    until("it is answered", || look(&runtime, boss).1.len() == 3);
    stepped(&runtime);
    assert_eq!(look(&runtime, boss).1.pop().as_deref(), Some("false"));
    store.send(boss, BossMessage::End(boss.pid())).unwrap();
    assert!(matches!(store.result::<Boss>("boss").unwrap().wait(LIMIT), Err(StoreError::Terminated)));
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    stepped(&runtime);
    assert_eq!(runtime.processes().len(), 0);
    assert!(store.check().unwrap().is_empty());
    end((store, runtime));
}

#[test]
fn each_request_comes_once_though_the_disk_loses_its_power() {
    const TIMES: usize = 30;
    until_the_disk_crashes(counts("seeds", 3, 50), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let [boss, other] = ["boss", "other"].map(|id| begin(&store, id));
        let (mut crashes, mut calls, mut sent) = (0, 0, 0);
        let is_done = || {
            let notes = |of| runtime.ask(of, BossMessage::Look, LIMIT).wait().map_or(0, |(_, notes)| notes.len());
            notes(other) >= TIMES && notes(boss) >= TIMES
        };
        until("all requests are made", || {
            if sent < TIMES
                && let Ok(receipt) = store.send_once(boss, &sent.to_string(), BossMessage::Stop(other.pid()))
                && receipt.wait(LIMIT).is_ok()
            {
                sent += 1;
            }
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 5 + draw(seed, crashes, 1, 20) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
            sent == TIMES && is_done()
        });
        stepped(&runtime);
        let (made, notes) = look(&runtime, boss);
        assert_eq!((made as usize, notes), (TIMES, vec!["true".to_string(); TIMES]), "seed {seed}");
        assert_eq!(look(&runtime, other).1, ["cancel: enough"; TIMES], "seed {seed}");
        end((store, runtime));
        crashes
    });
}
