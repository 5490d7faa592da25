//! Orders of operators to processes with parents, children, watchers and answers, and to those that cannot be loaded.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal, Status};
use procession::durable::{Durable, Encoded, Query, Store, StoreError};
use procession::{
    Address, BoxError, Event, Events, Monitor, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag,
};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::store_in;
use crate::wait::{LIMIT, until};

/// Runs a child, watches others, and notes what it is told.
#[derive(Default, Serialize, Deserialize)]
struct Boss {
    child: Option<Tag<u64>>,
    monitors: Vec<Monitor>,
    notes: Vec<String>,
    fails: bool,
}

#[derive(Serialize, Deserialize)]
enum BossMessage {
    Run,
    /// Waits for the answer, and fails when it takes it.
    RunAndFail,
    Watch(Pid),
    /// Begins a future that is never ready.
    Hang,
    Fail,
    Fill(String),
    Look(Reply<Vec<String>>),
    Over,
}

impl Process for Boss {
    type Message = BossMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, BossMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(BossMessage::Run) => self.child = Some(out.run(Child::default())),
                Event::Message(BossMessage::RunAndFail) => {
                    self.child = Some(out.run(Child::default()));
                    self.fails = true;
                    return Ok(Step::Wait);
                }
                Event::Message(BossMessage::Watch(pid)) => self.monitors.push(out.monitor(pid)),
                Event::Message(BossMessage::Hang) => drop(out.future(std::future::pending::<()>())),
                Event::Message(BossMessage::Fail) => return Err("on purpose".into()),
                Event::Message(BossMessage::Fill(_)) => {}
                Event::Message(BossMessage::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Message(BossMessage::Over) => return Ok(Step::Done(())),
                Event::Down(down) => self.notes.push(format!("down: {}", down.exit)),
                Event::Completed(_) if self.fails => return Err("on purpose".into()),
                Event::Completed(_) => self.notes.push("answer".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Boss {
    const NAME: &str = "boss";
}

#[derive(Default, Serialize, Deserialize)]
struct Child {}

#[derive(Serialize, Deserialize)]
enum ChildMessage {
    Fail,
    Over,
}

impl Process for Child {
    type Message = ChildMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ChildMessage>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(ChildMessage::Fail) => return Err("on purpose".into()),
                Event::Message(ChildMessage::Over) => return Ok(Step::Done(7)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Child {
    const NAME: &str = "child";
}

struct Office {
    store: Store,
    runtime: Runtime,
    clock: ManualClock,
}

impl Office {
    fn open(disk: &MemoryDisk) -> Office {
        let clock = ManualClock::new();
        let store = store_in(MemoryJournal::new(disk)).kind::<Boss>().kind::<Child>();
        let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
        Office { store, runtime, clock }
    }

    fn begin(&self, id: &str) -> Address<BossMessage> {
        let boss = self.store.begin(id, Boss::default()).unwrap();
        boss.wait(LIMIT).unwrap();
        boss.address()
    }

    fn send<M: Send + 'static>(&self, to: Address<M>, message: M) {
        self.store.send(to, message).unwrap().wait(LIMIT).unwrap();
        // A message that cannot be taken waits.
        until("its step is over", || self.runtime.is_idle());
    }

    fn count(&self, status: Status) -> u64 {
        self.store.count(&Query::all().status(status)).unwrap()
    }

    /// The child, when it is on disk.
    fn child(&self) -> Address<ChildMessage> {
        let mut children = Vec::new();
        until("the child is on disk", || {
            children = self.store.list(&Query::all().kind("child")).unwrap();
            !children.is_empty()
        });
        children[0].pid.typed()
    }

    /// Lets the pauses of one failing process pass, until it is parked on disk.
    fn park(&self) {
        until("it is parked", || {
            self.clock.advance(Duration::from_secs(16));
            until("its step is over", || self.runtime.is_idle());
            self.count(Status::Parked) == 1
        });
    }

    fn look(&self, boss: Address<BossMessage>) -> Vec<String> {
        self.runtime.ask(boss, BossMessage::Look, Duration::MAX).wait().unwrap()
    }

    fn end(self) {
        assert!(self.runtime.shutdown(Duration::MAX).unwrap().is_clean());
        self.store.close().unwrap();
    }

    /// A boss with a child that is parked since the last run.
    fn with_a_parked_child(disk: &MemoryDisk) -> (Office, Address<BossMessage>, Pid) {
        let office = Office::open(disk);
        let boss = office.begin("boss");
        office.send(boss, BossMessage::Run);
        let child = office.child();
        office.send(child, ChildMessage::Fail);
        office.park();
        office.end();
        (Office::open(disk), boss, child.pid())
    }
}

#[test]
fn a_child_that_is_parked_since_an_earlier_run_ends_and_answers() {
    let disk = MemoryDisk::new();
    let (office, boss, child) = Office::with_a_parked_child(&disk);
    office.store.terminate(child).unwrap();
    until("its parent is answered", || office.look(boss) == ["answer"]);
    office.end();
}

#[test]
fn a_child_that_is_parked_since_an_earlier_run_ends_with_its_parent() {
    let disk = MemoryDisk::new();
    let (office, boss, _) = Office::with_a_parked_child(&disk);
    office.send(boss, BossMessage::Over);
    until("both have ended", || office.count(Status::Ended) == 2);
    office.end();
}

#[test]
fn the_end_of_an_unknown_kind_is_told_to_its_relatives() {
    let disk = MemoryDisk::new();
    let office = Office::open(&disk);
    let [boss, watcher] = ["boss", "watcher"].map(|id| office.begin(id));
    office.send(boss, BossMessage::Run);
    let child = office.child();
    office.send(watcher, BossMessage::Watch(child.pid()));
    assert!(office.look(watcher).is_empty());
    office.end();
    // This program knows no children.
    let store = store_in(MemoryJournal::new(&disk)).kind::<Boss>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    store.terminate(child.pid()).unwrap();
    let look = |boss| runtime.ask(boss, BossMessage::Look, LIMIT).wait().unwrap_or_default();
    until("its watcher is told", || look(watcher).iter().any(|note| note.starts_with("down: terminated")));
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
    drop((store, runtime));
    // The answer to its parent is on disk. A program that does not know its kind cannot read it.
    let office = Office::open(&disk);
    until("its parent is answered", || office.look(boss) == ["answer"]);
    assert_eq!(office.look(watcher).len(), 1, "the end is told once");
    office.end();
}

#[test]
fn much_mail_keeps_no_parked_process_from_ending() {
    let disk = MemoryDisk::new();
    let office = Office::open(&disk);
    let boss = office.begin("boss");
    office.send(boss, BossMessage::Fail);
    office.park();
    office.end();
    // A program that does not know its kind ends it on disk, in one record.
    let store = store_in(MemoryJournal::new(&disk)).kind::<Boss>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    for _ in 0..20 {
        store.send(boss, BossMessage::Fill("x".repeat(500_000))).unwrap().wait(LIMIT).unwrap();
    }
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
    let store = store_in(MemoryJournal::new(&disk)).kind::<Child>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    store.terminate(boss.pid()).unwrap();
    let dead = store.dead_letters(None, 100).unwrap().len();
    assert!((1..5).contains(&dead), "{dead} dead letters");
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn an_order_whose_request_is_lost_says_so() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let store = store_in(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Boss>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let boss = store.begin("boss", Boss::default()).unwrap();
    boss.wait(LIMIT).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    store.show(boss.pid()).unwrap();
    gate.close();
    let waiting = std::thread::spawn({
        let (store, pid) = (store.clone(), boss.pid());
        move || store.terminate(pid)
    });
    gate.wait_for(1);
    disk.crash();
    gate.open();
    let result = crate::wait::wait(waiting).unwrap();
    assert!(matches!(result, Err(StoreError::Lost | StoreError::NotRepaired(_))), "{result:?}");
    until("it lives", || runtime.ask(boss.address(), BossMessage::Look, LIMIT).wait().is_ok());
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
    assert!(store.terminate(boss.pid()).is_err());
    assert!(store.retry(boss.pid()).is_err());
}

#[test]
fn orders_to_all_disturb_no_process_that_runs() {
    let disk = MemoryDisk::new();
    let office = Office::open(&disk);
    let boss = office.begin("boss");
    office.send(boss, BossMessage::Hang);
    assert_eq!(office.store.retry_all(&Query::all()).unwrap(), 0);
    assert!(office.look(boss).is_empty(), "its future goes on");
    office.end();
}

#[test]
fn a_process_that_goes_on_without_an_answer_waits_no_longer() {
    let disk = MemoryDisk::new();
    let office = Office::open(&disk);
    let boss = office.begin("boss");
    office.send(boss, BossMessage::RunAndFail);
    office.send(office.child(), ChildMessage::Over);
    office.park();
    office.store.skip(boss.pid()).unwrap();
    assert!(office.look(boss).is_empty());
    office.end();
}

#[test]
fn a_process_that_pauses_before_it_has_begun_is_terminated() {
    /// Does not begin.
    #[derive(Serialize, Deserialize)]
    struct Never {}

    impl Process for Never {
        type Message = ();
        type Output = ();

        fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
            Err("on purpose".into())
        }

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    impl Durable for Never {
        const NAME: &str = "never";
    }

    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Never>();
    let (store, runtime) = store.start(Runtime::builder().clock(clock.clock())).unwrap();
    let never = store.begin("never", Never {}).unwrap();
    never.wait(LIMIT).unwrap();
    runtime.wait_idle().unwrap();
    store.terminate(never.pid()).unwrap();
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn a_new_state_is_of_the_version_of_the_program() {
    /// The kind in an earlier program.
    #[derive(Serialize, Deserialize)]
    struct Old {
        old: u64,
    }

    #[derive(Serialize, Deserialize)]
    struct New {
        new: u64,
    }

    impl Process for Old {
        type Message = Reply<u64>;
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, Reply<u64>>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    impl Process for New {
        type Message = Reply<u64>;
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, Reply<u64>>, out: &mut StepOutput) -> StepResult<()> {
            for event in events {
                if let Event::Message(reply) = event {
                    out.reply(reply, self.new);
                }
            }
            Ok(Step::Idle)
        }
    }

    impl Durable for Old {
        const NAME: &str = "changed";
    }

    impl Durable for New {
        const NAME: &str = "changed";
        const VERSION: u32 = 2;

        fn migrate(_: u32, state: Encoded<'_>) -> Result<New, BoxError> {
            let Old { old } = state.decode()?;
            Err(format!("{old} cannot be migrated").into())
        }
    }

    let disk = MemoryDisk::new();
    let store = store_in(MemoryJournal::new(&disk)).kind::<Old>();
    let (store, runtime) = store.start(Runtime::builder()).unwrap();
    let pid = {
        let begun = store.begin("a", Old { old: 13 }).unwrap();
        begun.wait(LIMIT).unwrap();
        begun.address()
    };
    runtime.wait_idle_timeout(LIMIT).unwrap();
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
    drop((store, runtime));
    let store = store_in(MemoryJournal::new(&disk)).kind::<New>();
    let (store, runtime) = store.start(Runtime::builder()).unwrap();
    // It is loaded, and its migration fails.
    drop(runtime.ask(pid, |reply| reply, LIMIT).wait());
    until("it is parked", || store.count(&Query::all().parked()).unwrap() == 1);
    store.replace(pid.pid(), "{\"new\": 14}").unwrap();
    assert_eq!(runtime.ask(pid, |reply| reply, LIMIT).wait().unwrap(), 14);
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
}
