//! Two threads at one moment: one has looked, and has not acted yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, CommandKey, Responder, Retry};
use procession::durable::journal::{
    Batch, Journal, JournalError, Log, MemoryDisk, MemoryJournal, Opened, Position, Status,
};
use procession::durable::{BeginOptions, Durable, DurableCommand, ErrorText, Query, Store};
use procession::observe::{DeadLetter, Observer};
use procession::sync::Latch;
use procession::{Address, Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::guest::{Decide, Guest, GuestMessage, start, stays};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, Mutex, until, wait};
use crate::worker::{end, stepped};

/// If its residence were forgotten, the next message would have it loaded from the record before its end.
#[test]
fn a_refused_answer_does_not_bring_an_ended_process_back() {
    if !goes_ahead() {
        return;
    }
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 901;
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = start(journal, Runtime::builder(), |store| store, &KEYS);
    let guest = store.begin("1", Guest::new(TEST, 1)).unwrap().address();
    store.send(guest, GuestMessage::Later).unwrap().wait(LIMIT).unwrap();
    until("it is handed out", || KEYS.lock().unwrap().len() == 1);
    stepped(&runtime);
    gate.close();
    store.send(guest, GuestMessage::Over).unwrap();
    // Its end waits for the disk.
    stepped(&runtime);
    let key = KEYS.lock().unwrap()[0];
    assert!(store.answer::<Decide>(key, Ok(5)).is_err(), "it has ended");
    let sent = store.send(guest, GuestMessage::Ring(0)).unwrap();
    gate.open();
    sent.wait(LIMIT).unwrap();
    until("no step takes it", || store.mail_counts().is_ok_and(|counts| counts.dead_letters == 1));
    end((store, runtime));
}

/// A disk that tells of an error after a commit.
struct ErrorBehind(MemoryJournal, Arc<AtomicBool>);

#[derive(Debug)]
struct ErrorBehindLog(Box<dyn Log>, Arc<AtomicBool>);

impl Journal for ErrorBehind {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let opened = self.0.open()?;
        Ok(Opened { log: Box::new(ErrorBehindLog(opened.log, self.1.clone())), ..opened })
    }
}

impl Log for ErrorBehindLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.0.commit(batch)?;
        match self.1.swap(false, Ordering::SeqCst) {
            true => Err(JournalError::Full),
            false => Ok(()),
        }
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.0.trim(applied)
    }
}

/// Ends with a message to another process.
#[derive(Serialize, Deserialize)]
struct Parting;

impl Process for Parting {
    type Message = Address<u64>;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Address<u64>>, out: &mut StepOutput) -> StepResult<u64> {
        match events.next() {
            Some(Event::Message(to)) => {
                out.send(to, 1);
                Ok(Step::Done(7))
            }
            _ => Ok(Step::Idle),
        }
    }
}

impl Durable for Parting {
    const NAME: &str = "parting";
}

/// Is done with the first message.
#[derive(Serialize, Deserialize)]
struct First;

impl Process for First {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    }
}

impl Durable for First {
    const NAME: &str = "first";
}

/// Stops a thread at a dead letter of this process.
struct Stops(Arc<Mutex<Option<Pid>>>, Latch<()>, Latch<()>);

impl Observer for Stops {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let is_it = letter.from.is_some() && letter.from == *self.0.lock().unwrap();
        if is_it {
            let _ = self.1.set(());
            wait(&self.2);
        }
    }
}

/// Its thread asks for the fate of the record when the journal was opened anew. The record is on disk.
#[test]
fn an_end_on_disk_is_told_though_its_process_asks_after_a_rewind() {
    let (disk, fails) = (MemoryDisk::new(), Arc::new(AtomicBool::new(false)));
    let (parting, arrived, goes_on) = (Arc::new(Mutex::new(None)), Latch::new(), Latch::new());
    let observer = Stops(parting.clone(), arrived.clone(), goes_on.clone());
    let store = store_in(ErrorBehind(MemoryJournal::new(&disk), fails.clone())).kind::<Parting>().kind::<First>();
    let (store, runtime) = store.start(Runtime::builder().workers(2).observer(observer)).unwrap();
    let first = store.begin("first", First).unwrap();
    store.send(first.address(), 1).unwrap().wait(LIMIT).unwrap();
    store.result::<First>("first").unwrap().wait(LIMIT).unwrap();
    let begun = store.begin("parting", Parting).unwrap();
    begun.wait(LIMIT).unwrap();
    let result = store.result::<Parting>("parting").unwrap();
    *parting.lock().unwrap() = Some(begun.pid());
    store.send(begun.address(), first.address()).unwrap().wait(LIMIT).unwrap();
    // Its end is appended.
    wait(&arrived);
    fails.store(true, Ordering::SeqCst);
    // The record of the end may be the one whose commit fails. Then nothing is begun for a while.
    until("another one is on disk", || store.begin("another", First).is_ok_and(|begun| begun.wait(LIMIT).is_ok()));
    assert!(!fails.load(Ordering::SeqCst), "the journal was opened anew");
    goes_on.set(()).unwrap();
    assert_eq!(result.wait(Duration::from_secs(20)).map_err(|why| why.to_string()), Ok(7));
    end((store, runtime));
}

/// It has taken the messages that its load has counted.
#[test]
fn a_process_that_falls_asleep_is_not_full() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 902;
    const MINUTE: Duration = Duration::from_secs(60);
    let (disk, clock, gate) = (MemoryDisk::new(), ManualClock::new(), Gate::default());
    let run = || {
        let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
        let builder = Runtime::builder().clock(clock.clock());
        start(journal, builder, |store| store.sleep_after(MINUTE).mailbox_limit(2), &KEYS)
    };
    let (store, runtime) = run();
    let guest = store.begin("1", Guest::new(TEST, 1)).unwrap().address();
    store.send(guest, GuestMessage::SecondsAndWait(10)).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    (0..2).for_each(|_| store.send(guest, GuestMessage::Ring(0)).unwrap().wait(LIMIT).unwrap());
    end((store, runtime));

    let (store, runtime) = run();
    let other = store.begin("2", Guest::new(TEST, 2)).unwrap().address();
    let of = || stays(TEST).into_iter().find(|stays| stays.resumes > 0);
    until("it is loaded", || of().is_some());
    clock.advance(Duration::from_secs(10));
    until("it has taken the messages", || {
        runtime.ask(guest, GuestMessage::Look, Duration::MAX).wait().is_ok_and(|(rings, _)| rings == 2)
    });
    stepped(&runtime);
    // All of this process is on disk, and something of another one is not.
    store.begin("3", Guest::new(TEST, 3)).unwrap().wait(LIMIT).unwrap();
    gate.close();
    store.send(other, GuestMessage::Ring(0)).unwrap();
    until("it falls asleep", || {
        clock.advance(MINUTE);
        of().is_some_and(|stays| !stays.is_here)
    });
    let sent = store.send(guest, GuestMessage::Ring(0)).map(drop);
    gate.open();
    assert!(sent.is_ok(), "{sent:?}");
    end((store, runtime));
}

static CHILDREN: AtomicUsize = AtomicUsize::new(0);

/// Is done with the first message. Counts how often it begins.
#[derive(Serialize, Deserialize)]
struct Child;

impl Process for Child {
    type Message = u64;
    type Output = ();

    fn init(&mut self, _: procession::EntryArgs) -> Result<(), procession::BoxError> {
        CHILDREN.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    }
}

impl Durable for Child {
    const NAME: &str = "child";
}

/// Runs a child, and sends a message to another process.
#[derive(Serialize, Deserialize)]
struct Parent;

impl Process for Parent {
    type Message = Address<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Address<u64>>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(Event::Message(to)) = events.next() {
            out.run(Child);
            out.send(to, 1);
        }
        Ok(Step::Idle)
    }
}

impl Durable for Parent {
    const NAME: &str = "parent";
}

/// A thread finds its record on disk before the thread that has appended it has brought it into memory.
#[test]
fn a_child_that_is_found_on_disk_while_it_begins_is_in_memory_once() {
    let (parent, arrived, goes_on) = (Arc::new(Mutex::new(None)), Latch::new(), Latch::new());
    let observer = Stops(parent.clone(), arrived.clone(), goes_on.clone());
    let store = store_in(MemoryJournal::new(&MemoryDisk::new())).kind::<Parent>().kind::<First>().kind::<Child>();
    let (store, runtime) = store.start(Runtime::builder().workers(2).observer(observer)).unwrap();
    let first = store.begin("first", First).unwrap();
    store.send(first.address(), 1).unwrap().wait(LIMIT).unwrap();
    store.result::<First>("first").unwrap().wait(LIMIT).unwrap();
    let begun = store.begin("parent", Parent).unwrap();
    begun.wait(LIMIT).unwrap();
    *parent.lock().unwrap() = Some(begun.pid());
    store.send(begun.address(), first.address()).unwrap().wait(LIMIT).unwrap();
    wait(&arrived);
    // The row of the child is on disk, and its parent has not brought it into memory.
    let children = || store.list(&Query::all().parent(begun.pid())).unwrap();
    until("it is on disk", || children().len() == 1);
    let child: Address<u64> = children()[0].pid.typed();
    store.send(child, 1).unwrap().wait(LIMIT).unwrap();
    // A message to it may be refused, or be taken and be a dead letter: that depends on how much was applied.
    let has_ended = || children()[0].status == Status::Ended;
    until("it has ended", has_ended);
    goes_on.set(()).unwrap();
    until("the step is over", || runtime.is_idle());
    assert_eq!(CHILDREN.load(Ordering::SeqCst), 1, "it begins once");
    assert!(has_ended() && children().len() == 1, "it has ended");
    end((store, runtime));
}

#[test]
fn a_deadline_that_is_over_at_once_is_given() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 903;
    let (store, runtime) = start(MemoryJournal::new(&MemoryDisk::new()), Runtime::builder(), |store| store, &KEYS);
    let at_once = BeginOptions::new().deadline(Duration::ZERO);
    let guests: Vec<_> =
        (0..300).map(|n| store.begin_with(&n.to_string(), Guest::new(TEST, n), &at_once).unwrap().address()).collect();
    for guest in guests {
        let notes = || runtime.ask(guest, GuestMessage::Look, Duration::MAX).wait().unwrap().1;
        until("it is asked to stop", || notes() == ["cancel: timed out"]);
    }
    end((store, runtime));
}

/// Asked by a command for its attempts, if a test says so. Returns whether another thread could send.
static PLANS: Mutex<Option<(Store, Address<u64>)>> = Mutex::new(None);
static BLOCKED: AtomicBool = AtomicBool::new(false);

#[derive(Serialize, Deserialize)]
struct Planned;

impl Command for Planned {
    type Output = u64;
}

impl DurableCommand for Planned {
    const NAME: &str = "planned";
    type Error = ErrorText;

    fn retry(&self) -> Retry {
        let asked = PLANS.lock().unwrap().take();
        if let Some((store, to)) = asked {
            let (told, sent) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                drop(store.send(to, 1));
                drop(store);
                let _ = told.send(());
            });
            BLOCKED.store(sent.recv_timeout(Duration::from_secs(10)).is_err(), Ordering::SeqCst);
        }
        Retry::new()
    }
}

/// Begins a command with each message.
#[derive(Serialize, Deserialize)]
struct Planner;

impl Process for Planner {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(0) = event {
                out.command(Planned);
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Planner {
    const NAME: &str = "planner";
}

#[test]
fn a_command_that_is_asked_for_its_attempts_may_use_its_process() {
    let disk = MemoryDisk::new();
    let run = || {
        let builder = Runtime::builder().workers(2).handler(|_: Planned, done: Responder<u64>| {
            done.later();
            Ok(())
        });
        store_in(MemoryJournal::new(&disk)).kind::<Planner>().command::<Planned>().start(builder).unwrap()
    };
    let (store, runtime) = run();
    let planner = store.begin("planner", Planner).unwrap().address();
    store.send(planner, 0).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    end((store, runtime));
    // It is asked by a load.
    let (store, runtime) = run();
    *PLANS.lock().unwrap() = Some((store.clone(), planner));
    store.send(planner, 2).unwrap().wait(LIMIT).unwrap();
    until("it is asked", || PLANS.lock().unwrap().is_none());
    stepped(&runtime);
    end((store, runtime));
    assert!(!BLOCKED.load(Ordering::SeqCst), "its residence was locked");
}

/// An ordinary process that monitors another one, and notes its end.
struct Watcher(Pid, Arc<Mutex<Vec<String>>>, Latch<()>);

impl Process for Watcher {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), procession::BoxError> {
        out.monitor(self.0);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Down(down) => self.1.lock().unwrap().push(down.exit.to_string()),
                Event::Message(()) => _ = self.2.set(()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The end may be lost, and then the process lives.
#[test]
fn an_ordinary_process_learns_of_an_end_when_it_is_on_disk() {
    if !goes_ahead() {
        return;
    }
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 904;
    for is_lost in [true, false] {
        let (disk, gate) = (MemoryDisk::new(), Gate::default());
        let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
        let (store, runtime) = start(journal, Runtime::builder(), |store| store, &KEYS);
        let guest = store.begin("1", Guest::new(TEST, 1)).unwrap();
        guest.wait(LIMIT).unwrap();
        stepped(&runtime);
        gate.close();
        store.send(guest.address(), GuestMessage::Over).unwrap();
        // Its end waits for the disk.
        stepped(&runtime);
        let (notes, asked) = (Arc::new(Mutex::new(Vec::new())), Latch::new());
        let watcher = runtime.spawn(Watcher(guest.pid(), notes.clone(), asked.clone())).unwrap();
        runtime.send(watcher.address(), ()).unwrap();
        wait(&asked);
        assert_eq!(notes.lock().unwrap().len(), 0, "its end is not on disk");
        if is_lost {
            disk.crash();
            gate.open();
            until("it lives", || {
                runtime.ask(guest.address(), GuestMessage::Look, LIMIT).wait().is_ok_and(|(rings, _)| rings == 0)
            });
            assert_eq!(notes.lock().unwrap().len(), 0, "it lives");
            store.send(guest.address(), GuestMessage::Over).unwrap();
        } else {
            gate.open();
        }
        until("it is told", || !notes.lock().unwrap().is_empty());
        assert_eq!(*notes.lock().unwrap(), ["done"]);
        end((store, runtime));
    }
}
