//! Ends of durable processes that are made or removed while the disk is slow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Query, Shown, Store, Traced};
use procession::spawn::ParentEndPolicy;
use procession::{Address, Event, Events, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal, SlowLoads};
use crate::monitors::Ordinary;
use crate::places::store_in;
use crate::wait::{Barrier, LIMIT, Mutex, until, wait};
use crate::worker::{Worker, WorkerMessage, end, kill, open, start, stepped};

/// A kind of which nothing is known but that it is another one.
#[derive(Serialize, Deserialize)]
struct Other;

impl Process for Other {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.any(|event| matches!(event, Event::Message(()))) { Step::Done(()) } else { Step::Idle })
    }
}

impl Durable for Other {
    const NAME: &str = "other";
}

#[test]
fn mail_to_an_ended_process_is_dead_in_the_next_run_though_a_kill_comes() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Over).unwrap();
    store.result::<Worker>("a").unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    let (store, runtime) = start(SlowLoads(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    gate.close();
    let sent: Vec<_> = (0..3).map(|n| store.send(worker, WorkerMessage::Set(n)).unwrap()).collect();
    sent.iter().for_each(|receipt| assert!(receipt.wait(LIMIT).is_ok()));
    until("it is read", || gate.arrivals() > 0);
    // The dead letters do not reach the disk.
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    gate.open();
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    until("they are dead letters", || store.mail_counts().is_ok_and(|counts| counts.dead_letters == 3));
    let counts = store.mail_counts().unwrap();
    assert_eq!((counts.accepted, counts.stepped, counts.queued), (4, 1, 0));
    assert_eq!(store.dead_letters(None, 10).unwrap().len(), 3);
    end((store, runtime));
}

#[test]
fn mail_of_an_unread_process_is_dead_once_and_when_its_end_is_stored() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    // It waits for ever, so its mail stays.
    for message in [WorkerMessage::HangAndWait, WorkerMessage::Set(1), WorkerMessage::Set(2)] {
        store.send(worker, message).unwrap().wait(LIMIT).unwrap();
    }
    until("it waits", || runtime.is_idle());
    end((store, runtime));
    // This program does not know its kind.
    let store = store_in(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Other>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let other = store.begin("b", Other).unwrap();
    // The record of its first step must not be the one that passes below.
    let is_idle = |shown: Shown| shown.trail.last().is_some_and(|step| step.what == Traced::Idle);
    until("its first step is on disk", || store.show(other.pid()).is_ok_and(is_idle));
    gate.close();
    runtime.terminate(worker.pid()).unwrap();
    // The request is stored, and the end is not.
    gate.let_pass(1);
    gate.wait_for(2);
    let dead = || runtime.stats().messages.dead();
    assert_eq!(dead(), 0, "it has not ended yet");
    disk.crash();
    gate.open();
    until("it ends", || dead() > 0 && store.count(&Query::all().kind("worker")).is_ok());
    until("both are dead", || dead() == 2);
    stepped(&runtime);
    assert_eq!(store.dead_letters(None, 10).unwrap().len(), 2);
    assert_eq!(dead(), 2);
    end((store, runtime));
}

#[test]
fn what_is_kept_no_longer_is_removed_once_though_the_disk_is_slow() {
    const KEEP: Duration = Duration::from_secs(60 * 60);
    let (disk, gate, clock) = (MemoryDisk::new(), Gate::default(), ManualClock::new());
    let store = store_in(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Other>().keep(KEEP);
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let other = store.begin("a", Other).unwrap();
    store.send(other.address(), ()).unwrap();
    store.result::<Other>("a").unwrap().wait(Duration::MAX).unwrap();
    stepped(&runtime);
    gate.close();
    clock.advance(KEEP * 2);
    gate.wait_for(1);
    // More looks, while its removal is not on disk.
    let mut looks = 0;
    until("others had time to look", || {
        clock.advance(KEEP);
        looks += 1;
        looks > 200
    });
    gate.let_one_pass();
    until("it is removed", || store.find::<Other>("a").is_err());
    let mut looks = 0;
    until("another removal had time to come", || {
        looks += 1;
        looks > 200
    });
    assert_eq!(gate.arrivals(), 1, "it is removed once");
    gate.open();
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

/// Called when a loud value is dropped.
type Hook = Option<Arc<dyn Fn() + Send + Sync>>;

static HOOK: Mutex<Hook> = Mutex::new(None);

/// A value whose destructor calls the hook.
#[derive(Serialize, Deserialize)]
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        let hook = HOOK.lock().unwrap().clone();
        hook.into_iter().for_each(|hook| hook());
    }
}

static CHILD: Mutex<Option<Address<LoudMessage>>> = Mutex::new(None);

/// Where the child waits in its last step: it arrives, and it goes on.
static MEET: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

/// Takes loud values, and leaves one.
#[derive(Default, Serialize, Deserialize)]
struct Crier {
    is_child: bool,
    taken: u64,
}

#[derive(Serialize, Deserialize)]
enum LoudMessage {
    Run,
    Carry(Loud),
    Nothing,
    Look(Reply<u64>),
    Over,
    MeetAndOver,
}

impl Process for Crier {
    type Message = LoudMessage;
    type Output = Loud;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), procession::BoxError> {
        if self.is_child {
            *CHILD.lock().unwrap() = Some(out.pid().typed());
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, LoudMessage>, out: &mut StepOutput) -> StepResult<Loud> {
        for event in events {
            match event {
                Event::Message(LoudMessage::Run) => {
                    let options = SpawnOptions::new().parent_end(ParentEndPolicy::Leave);
                    out.run_with(Crier { is_child: true, taken: 0 }, options);
                }
                Event::Message(LoudMessage::Carry(_)) => self.taken += 1,
                Event::Message(LoudMessage::Look(reply)) => out.reply(reply, self.taken),
                Event::Message(LoudMessage::Over) => return Ok(Step::Done(Loud)),
                Event::Message(LoudMessage::MeetAndOver) => {
                    wait(&*MEET);
                    wait(&*MEET);
                    return Ok(Step::Done(Loud));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Crier {
    const NAME: &str = "crier";
}

#[test]
fn destructors_of_messages_and_answers_may_send_to_their_process() {
    let disk = MemoryDisk::new();
    let start = |builder: RuntimeBuilder| {
        store_in(MemoryJournal::new(&disk)).kind::<Crier>().start(builder.workers(2)).unwrap()
    };
    let has_rung = Arc::new(AtomicUsize::new(0));
    let rings_to = |store: &Store, to: Address<LoudMessage>| {
        let (store, has_rung) = (store.clone(), has_rung.clone());
        *HOOK.lock().unwrap() = Some(Arc::new(move || {
            drop(store.send(to, LoudMessage::Nothing));
            has_rung.fetch_add(1, Ordering::SeqCst);
        }));
    };
    // The answer of a child that nobody wants any more: its parent ends during the last step of the child.
    let (store, runtime) = start(Runtime::builder());
    let parent = store.begin("a", Crier::default()).unwrap().address();
    store.send(parent, LoudMessage::Run).unwrap();
    until("the child is there", || CHILD.lock().unwrap().is_some());
    let child = CHILD.lock().unwrap().unwrap();
    store.send(child, LoudMessage::MeetAndOver).unwrap();
    wait(&*MEET);
    store.send(parent, LoudMessage::Over).unwrap();
    drop(store.result::<Crier>("a").unwrap().wait(LIMIT).unwrap());
    let watcher = runtime.watch(child.pid());
    rings_to(&store, child);
    wait(&*MEET);
    assert!(wait(watcher).exit.is_done());
    until("the output is dropped, and the answer", || has_rung.load(Ordering::SeqCst) >= 2);
    // A message that is in memory twice when its receiver is loaded.
    *HOOK.lock().unwrap() = None;
    let sleeper = store.begin("b", Crier::default()).unwrap();
    sleeper.wait(LIMIT).unwrap();
    assert_eq!(runtime.ask(sleeper.address(), LoudMessage::Look, LIMIT).wait().unwrap(), 0);
    end((store, runtime));
    let (store, runtime) = start(Runtime::builder().max_processes(1));
    let ordinary = runtime.spawn(Ordinary).unwrap();
    rings_to(&store, sleeper.address());
    let before = has_rung.load(Ordering::SeqCst);
    store.send(sleeper.address(), LoudMessage::Carry(Loud)).unwrap().wait(LIMIT).unwrap();
    until("its load has read the message", || has_rung.load(Ordering::SeqCst) > before);
    runtime.terminate(ordinary.pid()).unwrap();
    until("it takes the message", || {
        runtime.ask(sleeper.address(), LoudMessage::Look, LIMIT).wait().is_ok_and(|taken| taken == 1)
    });
    *HOOK.lock().unwrap() = None;
    end((store, runtime));
}
