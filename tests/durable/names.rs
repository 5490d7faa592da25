//! Names and groups of durable processes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, until};
use crate::worker::{asked, end, kill};

/// Gives itself names, and notes the answers.
#[derive(Default, Serialize, Deserialize)]
struct Citizen {
    named: Vec<(String, Tag<()>)>,
    freed: Vec<Tag<Option<Pid>>>,
    left: Vec<Tag<bool>>,
    notes: Vec<String>,
    /// The names that it should have, if each command was answered.
    names: BTreeSet<String>,
    /// The names that it still takes or gives back, one after the other.
    in_a_row: Vec<(String, bool)>,
}

#[derive(Serialize, Deserialize)]
enum CitizenMessage {
    Register(String),
    Unregister(String),
    Join(String),
    Leave(String),
    /// Registers a name, and fails.
    RegisterAndFail(String),
    /// Registers a name, and sends more than a record can have.
    RegisterTooMuch(String, Address<CitizenMessage>),
    Load(String),
    /// Registers or unregisters these names, one after the other.
    InARow(Vec<(String, bool)>),
    /// Sends a note to the process with this name.
    Greet(String),
    Greeting,
    Look(Reply<(Vec<String>, BTreeSet<String>)>),
    Over,
}

impl Citizen {
    fn register(&mut self, name: String, out: &mut StepOutput) {
        self.named.push((name.clone(), out.register(name, out.pid())));
    }

    fn next(&mut self, out: &mut StepOutput) {
        match self.in_a_row.pop() {
            Some((name, true)) => self.register(name, out),
            Some((name, false)) => {
                self.names.remove(&name);
                self.freed.push(out.unregister(name));
            }
            None => {}
        }
    }

    fn note(&mut self, note: String, out: &mut StepOutput) {
        self.notes.push(note);
        self.next(out);
    }
}

impl Process for Citizen {
    type Message = CitizenMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, CitizenMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(CitizenMessage::Register(name)) => self.register(name, out),
                Event::Message(CitizenMessage::Unregister(name)) => self.freed.push(out.unregister(name)),
                Event::Message(CitizenMessage::Join(group)) => {
                    self.named.push((group.clone(), out.join_group(group, out.pid())));
                }
                Event::Message(CitizenMessage::Leave(group)) => self.left.push(out.leave_group(group, out.pid())),
                Event::Message(CitizenMessage::RegisterAndFail(name)) => {
                    self.register(name, out);
                    return Err("on purpose".into());
                }
                Event::Message(CitizenMessage::RegisterTooMuch(name, to)) => {
                    self.register(name, out);
                    (0..10).for_each(|_| out.send(to, CitizenMessage::Load("x".repeat(1 << 20))));
                }
                Event::Message(CitizenMessage::Load(_)) => {}
                Event::Message(CitizenMessage::InARow(names)) => {
                    self.in_a_row = names;
                    self.next(out);
                }
                Event::Message(CitizenMessage::Greet(name)) => out.send(&name, CitizenMessage::Greeting),
                Event::Message(CitizenMessage::Greeting) => self.notes.push("greeting".into()),
                Event::Message(CitizenMessage::Look(reply)) => {
                    out.reply(reply, (self.notes.clone(), self.names.clone()));
                }
                Event::Message(CitizenMessage::Over) => return Ok(Step::Done(())),
                Event::Completed(done) => {
                    if let Some(place) = self.named.iter().position(|(_, tag)| done.is(*tag)) {
                        let (name, tag) = self.named.remove(place);
                        let answer = done.take(tag).ok_or("no answer")?;
                        if answer.is_ok() {
                            self.names.insert(name.clone());
                        }
                        let answer = answer.map_or_else(|_| "refused", |()| "named");
                        self.note(format!("{name}: {answer}"), out);
                    } else if let Some(place) = self.freed.iter().position(|tag| done.is(*tag)) {
                        let holder = done.take(self.freed.remove(place)).ok_or("no answer")??;
                        self.note(format!("freed: {}", holder == Some(out.pid())), out);
                    } else if let Some(place) = self.left.iter().position(|tag| done.is(*tag)) {
                        let was_there = done.take(self.left.remove(place)).ok_or("no answer")??;
                        self.note(format!("left: {was_there}"), out);
                    } else {
                        self.notes.push("an answer without a command".into());
                    }
                }
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Citizen {
    const NAME: &str = "citizen";
}

fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> (Store, Runtime) {
    store_in(journal).kind::<Citizen>().start(builder.workers(2)).unwrap()
}

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    start(MemoryJournal::new(disk), Runtime::builder())
}

fn begin(store: &Store, id: &str) -> Address<CitizenMessage> {
    let begun = store.begin(id, Citizen::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    begun.address()
}

fn look(runtime: &Runtime, of: Address<CitizenMessage>) -> Option<(Vec<String>, BTreeSet<String>)> {
    runtime.ask(of, CitizenMessage::Look, LIMIT).wait().ok()
}

fn notes(runtime: &Runtime, of: Address<CitizenMessage>) -> Vec<String> {
    look(runtime, of).unwrap().0
}

#[test]
fn a_process_that_sleeps_is_found_by_its_name_and_in_its_group() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let (one, other) = (begin(&store, "one"), begin(&store, "other"));
    for message in ["bank", "bench"].map(|name| CitizenMessage::Register(name.into())) {
        store.send(one, message).unwrap();
    }
    (0..2).for_each(|_| drop(store.send(one, CitizenMessage::Join("trade".into())).unwrap()));
    store.send(other, CitizenMessage::Join("trade".into())).unwrap();
    until("it has its names", || notes(&runtime, one).len() == 4);
    until("both are in the group", || runtime.group_members("trade").len() == 3);
    end((store, runtime));

    let (store, runtime) = open(&disk);
    assert_eq!((runtime.whereis("bank"), runtime.whereis("bench")), (Some(one.pid()), Some(one.pid())));
    let mut members = vec![one.pid(), one.pid(), other.pid()];
    members.sort_unstable();
    assert_eq!(runtime.group_members("trade"), members);
    assert_eq!(runtime.processes().len(), 0, "they sleep");
    assert_eq!(notes(&runtime, one), ["bank: named", "bench: named", "trade: named", "trade: named"]);
    // A message by name is one to the process, and is stored.
    store.send(other, CitizenMessage::Greet("bank".into())).unwrap();
    until("the greeting has come", || notes(&runtime, one).len() == 5);
    store.send(other, CitizenMessage::Register("bank".into())).unwrap();
    until("the name is refused", || notes(&runtime, other) == ["trade: named", "bank: refused"]);
    store.send(one, CitizenMessage::Leave("trade".into())).unwrap();
    store.send(one, CitizenMessage::Unregister("bench".into())).unwrap();
    until("both are answered", || notes(&runtime, one).len() == 7);
    let mut last = notes(&runtime, one).split_off(5);
    last.sort_unstable();
    assert_eq!(last, ["freed: true", "left: true"]);
    end((store, runtime));

    let (store, runtime) = open(&disk);
    assert_eq!((runtime.whereis("bank"), runtime.whereis("bench")), (Some(one.pid()), None));
    members.retain(|pid| *pid == other.pid());
    members.push(one.pid());
    members.sort_unstable();
    assert_eq!(runtime.group_members("trade"), members);
    end((store, runtime));
}

#[test]
fn when_a_process_has_ended_its_names_are_free_in_every_run() {
    for restarts in [false, true] {
        let disk = MemoryDisk::new();
        let (mut store, mut runtime) = open(&disk);
        let (one, other) = (begin(&store, "one"), begin(&store, "other"));
        store.send(one, CitizenMessage::Register("bank".into())).unwrap();
        store.send(one, CitizenMessage::Join("trade".into())).unwrap();
        until("it has its name", || notes(&runtime, one).len() == 2);
        store.send(one, CitizenMessage::Over).unwrap().wait(LIMIT).unwrap();
        store.result::<Citizen>("one").unwrap().wait(LIMIT).unwrap();
        until("the name is free", || runtime.whereis("bank").is_none() && runtime.group_members("trade").is_empty());
        if restarts {
            end((store, runtime));
            (store, runtime) = open(&disk);
            assert_eq!((runtime.whereis("bank"), runtime.groups().len()), (None, 0));
        }
        store.send(other, CitizenMessage::Register("bank".into())).unwrap();
        until("the other one has it", || notes(&runtime, other) == ["bank: named"]);
        end((store, runtime));
    }
}

#[test]
fn a_step_that_fails_gives_no_name() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let (one, other) = (begin(&store, "one"), begin(&store, "other"));
    store.send(one, CitizenMessage::RegisterAndFail("bank".into())).unwrap();
    // Its record cannot be stored.
    store.send(other, CitizenMessage::RegisterTooMuch("bench".into(), one)).unwrap();
    for _ in 0..10 {
        until("the steps have failed, or wait", || runtime.is_idle());
        assert_eq!((runtime.whereis("bank"), runtime.whereis("bench")), (None, None));
        clock.advance(Duration::from_secs(60));
    }
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn the_names_of_a_step_that_is_lost_are_as_before() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let one = begin(&store, "one");
    store.send(one, CitizenMessage::Register("bank".into())).unwrap();
    until("it has its name", || notes(&runtime, one).len() == 1);
    gate.close();
    runtime.send(one, CitizenMessage::Register("bench".into())).unwrap();
    runtime.send(one, CitizenMessage::Unregister("bank".into())).unwrap();
    until("the step is made", || runtime.whereis("bench").is_some() && runtime.whereis("bank").is_none());
    until("it is being written", || gate.arrivals() > 0);
    disk.crash();
    gate.open();
    until("it is lost", || runtime.whereis("bench").is_none() && runtime.whereis("bank") == Some(one.pid()));
    assert_eq!(asked(|| look(&runtime, one)).0, ["bank: named"]);
    end((store, runtime));
}

#[test]
fn a_kill_at_any_call_leaves_each_name_with_its_answer() {
    for call in 0..counts("calls", 25, 100) {
        let disk = MemoryDisk::with_seed(call);
        let (store, runtime) = open(&disk);
        let one = begin(&store, "one");
        let first = disk.calls() + call;
        (first..first + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
        drop(runtime.send(one, CitizenMessage::Join("trade".into())));
        drop(runtime.send(one, CitizenMessage::Register("bank".into())));
        until("nothing is left to be done", || runtime.is_idle());
        kill(&disk, (store, runtime));

        let (store, runtime) = open(&disk);
        // Its messages may be on disk, and their steps not.
        let is_told = |name: &str, has_it: bool| {
            let notes = asked(|| look(&runtime, one)).0;
            has_it == notes.contains(&format!("{name}: named"))
        };
        until("what it has is what it was told", || {
            is_told("bank", runtime.whereis("bank") == Some(one.pid()))
                && is_told("trade", runtime.group_members("trade") == [one.pid()])
        });
        until("nothing is left to be done", || runtime.is_idle());
        let (notes, _) = asked(|| look(&runtime, one));
        for name in ["bank", "trade"] {
            assert!(notes.iter().filter(|note| note.starts_with(name)).count() <= 1, "call {call}: {notes:?}");
        }
        assert!(notes.iter().all(|note| note.contains(": ")), "call {call}: {notes:?}");
        end((store, runtime));
    }
}

/// Names to take, some of which are given back.
fn row(seed: u64) -> (Vec<(String, bool)>, BTreeSet<String>) {
    let (mut row, mut left) = (Vec::new(), BTreeSet::new());
    for n in 0..40 {
        let name = format!("name {n}");
        row.push((name.clone(), true));
        left.insert(name);
        if draw(seed, n, 5, 3) == 0 {
            let name = format!("name {}", draw(seed, n, 6, n + 1));
            if left.remove(&name) {
                row.push((name, false));
            }
        }
    }
    row.reverse();
    (row, left)
}

/// Whether the process has taken all names. Then it has them, and was told so once.
fn has_all(runtime: &Runtime, one: Address<CitizenMessage>, (steps, left): (usize, &BTreeSet<String>)) -> bool {
    let Some((notes, names)) = look(runtime, one) else { return false };
    if notes.len() < steps {
        return false;
    }
    assert_eq!((notes.len(), &names), (steps, left), "each command is answered once: {notes:?}");
    assert!(notes.iter().all(|note| note.ends_with("named") || note.ends_with("true")), "{notes:?}");
    for n in 0..40 {
        let name = format!("name {n}");
        let holder = left.contains(&name).then_some(one.pid());
        until("the name is as it was said", || runtime.whereis(&name) == holder);
    }
    true
}

#[test]
fn names_are_given_once_though_the_disk_loses_its_power() {
    until_the_disk_crashes(counts("seeds", 4, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let one = begin(&store, "one");
        let (names, left) = row(seed);
        let steps = names.len();
        store.send(one, CitizenMessage::InARow(names)).unwrap().wait(LIMIT).unwrap();
        let (mut crashes, mut calls, deadline) = (0, 0, Instant::now() + LIMIT);
        while !has_all(&runtime, one, (steps, &left)) {
            assert!(Instant::now() < deadline, "seed {seed}: nobody is stuck: {store:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 10 + draw(seed, crashes, 1, 30) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        end((store, runtime));
        let (store, runtime) = open(&disk);
        assert!(has_all(&runtime, one, (steps, &left)));
        end((store, runtime));
        crashes
    });
}

#[test]
fn names_are_given_once_though_the_program_is_killed() {
    let mut kills = 0;
    for seed in 0..counts("seeds", 3, 100) {
        let disk = MemoryDisk::with_seed(seed);
        let (names, left) = row(seed);
        let steps = names.len();
        let mut one = None;
        for run in 0.. {
            assert!(run < 1_000, "seed {seed}: nobody is stuck");
            let (store, runtime) = open(&disk);
            let one = *one.get_or_insert_with(|| {
                let one = begin(&store, "one");
                store.send(one, CitizenMessage::InARow(names.clone())).unwrap().wait(LIMIT).unwrap();
                one
            });
            let enough = disk.calls() + draw(seed, run, 2, 60);
            let mut is_done = false;
            until("something is written", || {
                is_done = has_all(&runtime, one, (steps, &left));
                is_done || disk.calls() > enough
            });
            // The first run is killed in any case.
            if run > 0 && is_done {
                end((store, runtime));
                break;
            }
            kill(&disk, (store, runtime));
            kills += 1;
        }
    }
    assert!(kills > 0, "the program was killed");
}
