//! Races that a review of durable processes found: one test for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal, Status};
use procession::durable::{Durable, Query, Request, Store, Which};
use procession::observe::{DeadLetter, Observer};
use procession::sync::Latch;
use procession::{Address, Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Deserializer, Serialize};

use crate::guest::{Guest, GuestMessage};
use crate::places::store_in;
use crate::wait::{LIMIT, Mutex, until, wait};
use crate::worker::{end, stepped};

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

/// A process that ends with its first message.
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

static BEGUN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Blocks the decoding of a child of this test, once.
static DECODING: Mutex<Option<(Latch<()>, Latch<()>)>> = Mutex::new(None);

fn held_up<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let value = u64::deserialize(from)?;
    let stop = if value == 3 { DECODING.lock().unwrap().take() } else { None };
    if let Some((arrived, goes_on)) = stop {
        arrived.set(()).unwrap();
        wait(&goes_on);
    }
    Ok(value)
}

/// A process that ends with message 0, and counts other messages. It records that it begins.
#[derive(Serialize, Deserialize)]
struct Child {
    #[serde(deserialize_with = "held_up")]
    test: u64,
    count: u64,
}

impl Process for Child {
    type Message = u64;
    type Output = u64;

    fn init(&mut self, _: procession::EntryArgs) -> Result<(), procession::BoxError> {
        BEGUN.lock().unwrap().push(self.test);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(0) => return Ok(Step::Done(self.count)),
                Event::Message(_) => self.count += 1,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Child {
    const NAME: &str = "child";
    const SLEEP_AFTER: Option<Duration> = Some(Duration::from_secs(1));
}

fn begun(test: u64) -> usize {
    BEGUN.lock().unwrap().iter().filter(|of| **of == test).count()
}

/// Runs a child, and sends a message to another process.
#[derive(Serialize, Deserialize)]
struct Parent(u64);

impl Process for Parent {
    type Message = Address<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Address<u64>>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(Event::Message(to)) = events.next() {
            out.run(Child { test: self.0, count: 0 });
            out.send(to, 1);
        }
        Ok(Step::Idle)
    }
}

impl Durable for Parent {
    const NAME: &str = "parent";
}

/// A store in which a child is on disk, and the thread of its parent has not brought it into memory.
fn child_on_disk(test: u64, clock: &ManualClock) -> (Store, Runtime, Address<u64>, Latch<()>) {
    let (parent, arrived, goes_on) = (Arc::new(Mutex::new(None)), Latch::new(), Latch::new());
    let observer = Stops(parent.clone(), arrived.clone(), goes_on.clone());
    let store = store_in(MemoryJournal::new(&MemoryDisk::new()));
    let store = store.kind::<Parent>().kind::<First>().kind::<Child>().kind::<Guest>();
    let builder = Runtime::builder().workers(3).clock(clock.clock()).observer(observer);
    let (store, runtime) = store.start(builder).unwrap();
    let first = store.begin("first", First).unwrap();
    let ended = runtime.watch(first.pid());
    store.send(first.address(), 1).unwrap().wait(Duration::MAX).unwrap();
    // Its result may be there while it still leaves. Then the message of the parent is its thread's dead letter.
    ended.wait_timeout(LIMIT).unwrap();
    let begun = store.begin("parent", Parent(test)).unwrap();
    begun.wait(Duration::MAX).unwrap();
    *parent.lock().unwrap() = Some(begun.pid());
    store.send(begun.address(), first.address()).unwrap().wait(Duration::MAX).unwrap();
    wait(&arrived);
    let children = || store.list(&Query::all().parent(begun.pid())).unwrap();
    until("it is on disk", || children().len() == 1);
    let child = children()[0].pid.typed();
    (store, runtime, child, goes_on)
}

/// The residence of the child is removed when the tables have its end.
#[test]
fn a_child_that_has_ended_on_disk_while_it_begins_does_not_begin_again() {
    let clock = ManualClock::new();
    let (store, runtime, child, goes_on) = child_on_disk(1, &clock);
    store.send(child, 0).unwrap().wait(Duration::MAX).unwrap();
    until("its end is on disk", || store.show(child.pid()).unwrap().listed.status == Status::Ended);
    // The tables have it now, and the next application forgets that.
    until("the residence is forgotten", || {
        store.begin(&format!("{}", draw()), First).unwrap().wait(Duration::MAX).unwrap();
        store.list(&Query::all()).unwrap();
        draw() > 20
    });
    goes_on.set(()).unwrap();
    stepped(&runtime);
    assert_eq!(begun(1), 1, "it begins once");
    assert_eq!(store.show(child.pid()).unwrap().listed.status, Status::Ended);
    end((store, runtime));
}

fn draw() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

/// The child has been in memory, and sleeps.
#[test]
fn a_child_that_sleeps_while_it_begins_does_not_begin_again() {
    let clock = ManualClock::new();
    let (store, runtime, child, goes_on) = child_on_disk(2, &clock);
    store.send(child, 1).unwrap().wait(Duration::MAX).unwrap();
    until("it has begun", || begun(2) == 1);
    let has_slept = || {
        clock.advance(Duration::from_secs(1));
        runtime.processes().iter().all(|one| one.pid != child.pid() && !format!("{one:?}").contains("Child"))
    };
    until("it sleeps", has_slept);
    goes_on.set(()).unwrap();
    stepped(&runtime);
    assert_eq!(begun(2), 1, "it begins once");
    store.send(child, 0).unwrap().wait(Duration::MAX).unwrap();
    until("its end is on disk", || store.show(child.pid()).unwrap().listed.status == Status::Ended);
    assert_eq!(store.show(child.pid()).unwrap().output, Some(1.into()), "it has counted the message");
    end((store, runtime));
}

/// The thread of its parent comes after a later record for it.
#[test]
fn a_child_that_is_watched_while_it_begins_notifies_its_watcher() {
    let clock = ManualClock::new();
    let (store, runtime, child, goes_on) = child_on_disk(3, &clock);
    let guest = store.begin("guest", Guest::new(1_003, 1)).unwrap();
    guest.wait(Duration::MAX).unwrap();
    let stop = (Latch::new(), Latch::new());
    *DECODING.lock().unwrap() = Some(stop.clone());
    store.send(child, 1).unwrap().wait(Duration::MAX).unwrap();
    // A load has read the rows.
    wait(&stop.0);
    store.send(guest.address(), GuestMessage::Watch(child.pid())).unwrap().wait(Duration::MAX).unwrap();
    let notes = || runtime.ask(guest.address(), GuestMessage::Look, Duration::MAX).wait().unwrap().1;
    assert_eq!(notes(), [""; 0]);
    goes_on.set(()).unwrap();
    // Its parent has a step more.
    let parent = store.find::<Parent>("parent").unwrap();
    store.send(parent, store.find::<First>("first").unwrap()).unwrap().wait(Duration::MAX).unwrap();
    until("the parent has begun another child", || begun(3) == 1);
    stop.1.set(()).unwrap();
    until("it has begun", || begun(3) == 2);
    store.send(child, 0).unwrap().wait(Duration::MAX).unwrap();
    until("its end is on disk", || store.show(child.pid()).unwrap().listed.status == Status::Ended);
    let mut looks = 0;
    until("its watcher knows", || {
        looks += 1;
        !notes().is_empty() || looks > 1_000
    });
    assert_eq!(notes(), ["down: done"]);
    end((store, runtime));
}

static DROPS: Mutex<Option<Store>> = Mutex::new(None);
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// Has another thread use the store when it is dropped, if a test says so.
#[derive(Serialize, Deserialize)]
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        let Some(store) = DROPS.lock().unwrap().take() else { return };
        let (told, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(store.find::<First>("first"));
            let _ = told.send(());
            drop(store);
        });
        let is_blocked = found.recv_timeout(Duration::from_secs(5)).is_err();
        BLOCKED.store(if is_blocked { 2 } else { 1 }, Ordering::SeqCst);
    }
}

impl Process for Dropped {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

impl Durable for Dropped {
    const NAME: &str = "dropped";
}

/// The memory has no room for the process.
#[test]
fn a_process_that_finds_no_room_is_dropped_without_a_lock() {
    let store = store_in(MemoryJournal::new(&MemoryDisk::new())).kind::<First>().kind::<Dropped>();
    let (store, runtime) = store.start(Runtime::builder().workers(2).max_processes(1)).unwrap();
    store.begin("first", First).unwrap().wait(LIMIT).unwrap();
    *DROPS.lock().unwrap() = Some(store.clone());
    store.begin("dropped", Dropped).unwrap().wait(LIMIT).unwrap();
    until("it is dropped", || BLOCKED.load(Ordering::SeqCst) > 0);
    assert_eq!(BLOCKED.load(Ordering::SeqCst), 1, "the ids are locked");
    end((store, runtime));
}

/// Two latches: a message is being dropped, and its drop goes on.
static LETTERS: Mutex<Option<(Latch<()>, Latch<()>)>> = Mutex::new(None);

#[derive(Serialize, Deserialize)]
struct Letter;

impl Drop for Letter {
    fn drop(&mut self) {
        let stop = LETTERS.lock().unwrap().take();
        if let Some((arrived, goes_on)) = stop {
            arrived.set(()).unwrap();
            wait(&goes_on);
        }
    }
}

/// A process that takes letters.
#[derive(Serialize, Deserialize)]
struct LetterBox;

impl Process for LetterBox {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

impl Durable for LetterBox {
    const NAME: &str = "box";
}

/// The journal is opened anew twice while a sender drops its message, which was there.
#[test]
fn a_message_on_disk_is_not_called_lost_by_a_sender_that_is_slow() {
    let disk = MemoryDisk::new();
    let store = store_in(MemoryJournal::new(&disk)).kind::<LetterBox>().kind::<First>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let to = store.begin("box", LetterBox).unwrap().address();
    store.send_once(to, "key", Letter).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    let stop = (Latch::new(), Latch::new());
    *LETTERS.lock().unwrap() = Some(stop.clone());
    let sender = store.clone();
    let sends = std::thread::spawn(move || {
        let again = sender.send_once(to, "key", Letter).unwrap();
        assert!(again.was_there());
        again.wait(LIMIT).map_err(|why| why.to_string())
    });
    wait(&stop.0);
    for n in 0..2 {
        let mut tries = 0;
        // The call that fails may be one of another thread.
        until("a beginning is lost", || {
            tries += 1;
            disk.fail_at(disk.calls(), Fault::Full);
            store.begin(&format!("lost {n}, {tries}"), First).map_or(true, |begun| begun.wait(LIMIT).is_err())
        });
        let is_begun = || store.begin(&format!("first {n}"), First).is_ok_and(|begun| begun.wait(LIMIT).is_ok());
        until("the store goes on", is_begun);
    }
    stop.1.set(()).unwrap();
    assert_eq!(wait(sends).unwrap(), Ok(()));
    end((store, runtime));
}

/// As for `retry_all`.
#[test]
fn a_request_to_stop_to_all_passes_over_a_damaged_process() {
    use crate::worker::{Worker, start};

    let disk = MemoryDisk::new();
    let run = || start(MemoryJournal::new(&disk), Runtime::builder());
    let (store, runtime) = run();
    let mut damaged = Worker::default();
    damaged.filling = "x".repeat(100_000);
    store.begin("damaged", damaged).unwrap().wait(LIMIT).unwrap();
    store.begin("sound", Worker::default()).unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    // A step may have been left to a later run, which has put it into the log.
    until("the tables have everything", || {
        end(run());
        disk.log_size() < 10_000
    });
    assert!(disk.flip(8 * (disk.log_size() as u64 + 60_000)));
    let (store, runtime) = run();
    let asked = store.operate(&Request::Cancel(Which::All(Query::all()))).map_err(|why| why.to_string());
    end((store, runtime));
    assert_eq!(asked, Ok(1.into()));
}

/// An operator whose order is refused counts as a waiter once.
#[test]
fn an_order_to_a_store_that_closes_takes_no_waiter_away() {
    use crate::gate::{Gate, GatedJournal};
    use crate::worker::{Worker, WorkerMessage, start};

    let gate = Gate::default();
    let (store, runtime) =
        start(GatedJournal(MemoryJournal::new(&MemoryDisk::new()), gate.clone()), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    stepped(&runtime);
    let result = store.result::<Worker>("a").unwrap();
    gate.close();
    store.send(worker.address(), WorkerMessage::Set(1)).unwrap();
    gate.wait_for(1);
    let closes = {
        let store = store.clone();
        std::thread::spawn(move || drop(store.close()))
    };
    until("the store closes", || store.send(worker.address(), WorkerMessage::Set(1)).is_err());
    assert!(store.terminate(worker.pid()).is_err());
    gate.open();
    wait(closes).unwrap();
    let told = result.wait(Duration::from_secs(5)).map_err(|why| why.to_string());
    drop(runtime.shutdown(LIMIT));
    assert_eq!(told, Err(procession::durable::StoreError::Unknown.to_string()));
}

/// Processes end while a start still wakes others. Before the mend, two timers for old entries were set then, and both
/// went on.
#[test]
fn a_process_that_is_begun_again_keeps_its_id_though_a_sink_is_slow() {
    use std::sync::atomic::AtomicBool;

    use crate::worker::{Worker, WorkerMessage, kill};

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const OTHERS: usize = 3_000;
    let (disk, clock, stop) = (MemoryDisk::new(), ManualClock::new(), (Latch::new(), Latch::new()));
    let is_first = Arc::new(AtomicBool::new(true));
    let run = || {
        let (stop, is_first) = (stop.clone(), is_first.clone());
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(HOUR).sink(move |shown| {
            if shown.listed.id.as_deref() == Some("x") && is_first.swap(false, Ordering::SeqCst) {
                stop.0.set(()).unwrap();
                wait(&stop.1);
            }
            Ok(())
        });
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = run();
    let ids = || std::iter::once("x".to_owned()).chain((0..OTHERS).map(|n| n.to_string()));
    for id in ids() {
        let worker = store.begin(&id, Worker::default()).unwrap().address();
        store.send(worker, WorkerMessage::HangAndWait).unwrap();
        store.send(worker, WorkerMessage::Over).unwrap();
    }
    store.begin("last", Worker::default()).unwrap().wait(Duration::MAX).unwrap();
    stepped_or_waits(&runtime);
    store.begin("later", Worker::default()).unwrap().wait(Duration::MAX).unwrap();
    kill(&disk, (store, runtime));
    // Each of them is answered, and ends.
    let (store, runtime) = run();
    ids().for_each(|id| _ = store.result::<Worker>(&id).unwrap().wait(Duration::MAX).unwrap());
    clock.advance(2 * HOUR);
    wait(&stop.0);
    // One thread is in the sink. No other removes anything meanwhile.
    let mut looks = 0;
    until("it is removed by another thread", || {
        looks += 1;
        clock.advance(Duration::from_secs(1));
        store.find::<Worker>("x").is_err() || looks > 2_000
    });
    let is_removed = store.find::<Worker>("x").is_err();
    let again = is_removed.then(|| {
        let begun = store.begin("x", Worker::default()).unwrap();
        begun.wait(Duration::MAX).unwrap();
        begun.pid()
    });
    stop.1.set(()).unwrap();
    let mut found = again;
    for n in 0..100 {
        store.begin(&format!("new {n}"), Worker::default()).unwrap().wait(Duration::MAX).unwrap();
        store.list(&Query::all().limit(1)).unwrap();
        clock.advance(Duration::from_secs(1));
        if again.is_some() {
            found = store.find::<Worker>("x").ok().map(|to| to.pid());
        }
        if found != again {
            break;
        }
    }
    end((store, runtime));
    assert_eq!(found, again, "the id is still that of the process");
    assert!(!is_removed, "two threads were in the sink at once");
}

fn stepped_or_waits(runtime: &Runtime) {
    until("all wait", || runtime.is_idle());
}

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Blocks the decoding of a process that is asked, once.
static READING: Mutex<Option<(Latch<()>, Latch<()>)>> = Mutex::new(None);

fn held_up_once<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let value = u64::deserialize(from)?;
    let stop = READING.lock().unwrap().take();
    if let Some((arrived, goes_on)) = stop {
        arrived.set(()).unwrap();
        wait(&goes_on);
    }
    Ok(value)
}

/// A process that counts its questions.
#[derive(Serialize, Deserialize)]
struct Asked {
    #[serde(deserialize_with = "held_up_once")]
    count: u64,
}

#[derive(Serialize, Deserialize)]
enum Question {
    Count(procession::Reply<u64>),
}

impl Process for Asked {
    type Message = Question;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Question>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Question::Count(reply)) = event {
                self.count += 1;
                ASKED.fetch_add(1, Ordering::SeqCst);
                out.reply(reply, self.count);
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Asked {
    const NAME: &str = "asked";
}

/// A process that passes questions on.
#[derive(Serialize, Deserialize)]
struct Passer(u64);

#[derive(Serialize, Deserialize)]
enum Pass {
    On(Address<Question>, procession::Reply<u64>),
}

impl Process for Passer {
    type Message = Pass;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Pass>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Pass::On(to, reply)) = event {
                self.0 += 1;
                out.send(to, Question::Count(reply));
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Passer {
    const NAME: &str = "passer";
}

/// The step of the asker is lost while the process that it asks is loaded.
#[test]
fn a_question_of_a_step_that_is_lost_is_not_taken() {
    use crate::gate::{Gate, GatedJournal};
    use crate::places::goes_ahead;

    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let run = || {
        let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
        let store = store_in(journal).kind::<Asked>().kind::<Passer>().kind::<First>();
        store.start(Runtime::builder().workers(2)).unwrap()
    };
    let (store, runtime) = run();
    let asked = store.begin("asked", Asked { count: 0 }).unwrap().address();
    let passer = store.begin("passer", Passer(0)).unwrap().address();
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = run();
    store.begin("first", First).unwrap().wait(LIMIT).unwrap();
    let stop = (Latch::new(), Latch::new());
    *READING.lock().unwrap() = Some(stop.clone());
    gate.close();
    let lost = runtime.ask(passer, |reply| Pass::On(asked, reply), Duration::MAX);
    // The passer has stepped, and the asked one is loaded.
    wait(&stop.0);
    disk.fail_at(disk.calls(), Fault::Full);
    gate.open();
    let is_begun = || store.begin("another", First).is_ok_and(|begun| begun.wait(LIMIT).is_ok());
    until("the store goes on", is_begun);
    stop.1.set(()).unwrap();
    let answer = runtime.ask(asked, Question::Count, Duration::from_secs(20)).wait();
    drop(lost);
    end((store, runtime));
    assert_eq!(answer.map_err(|why| why.to_string()), Ok(1), "only this question was asked");
    assert_eq!(ASKED.load(Ordering::SeqCst), 1);
}
