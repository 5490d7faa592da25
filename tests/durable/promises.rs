//! The promises of a store to durable processes, one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::Responder;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Query, StoreError};
use procession::{Event, Events, Exit, Process, Runtime, Step, StepOutput, StepResult, Upgrade};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::script::counts;
use crate::wait::{Barrier, LIMIT, Mutex, advance_until, until, wait};
use crate::worker::{CLOSURES, Charge, FAILURES, Worker, WorkerMessage, end, look, open, start, stepped};

/// Notes the numbers that it gets.
pub(crate) struct Sink(pub(crate) Arc<Mutex<Vec<u64>>>);

impl Process for Sink {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(number) => self.0.lock().unwrap().push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn nothing_leaves_the_store_before_its_record_is_on_disk() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let charged = Arc::new(AtomicUsize::new(0));
    let charges = charged.clone();
    let builder = Runtime::builder().handler(move |_: Charge, done: Responder<u64>| {
        charges.fetch_add(1, Ordering::SeqCst);
        done.ok(7);
        Ok(())
    });
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), builder);
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = runtime.spawn(Sink(told.clone())).unwrap();
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();

    gate.close();
    let receipt = store.send(worker.address(), WorkerMessage::Set(3)).unwrap();
    runtime.send(worker.address(), WorkerMessage::Tell(sink.address(), 1)).unwrap();
    runtime.send(worker.address(), WorkerMessage::Charge(4)).unwrap();
    runtime.send(worker.address(), WorkerMessage::Closures).unwrap();
    let begun = || CLOSURES.each_ref().map(|begun| begun.load(Ordering::SeqCst));
    let mut look = runtime.ask(worker.address(), WorkerMessage::Look, LIMIT);
    // Everything is stepped, and waits for the disk.
    stepped(&runtime);
    assert!(matches!(receipt.wait(Duration::ZERO), Err(StoreError::Wait(_))));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut look).poll(&mut context).is_pending(), "no reply has left");
    assert_eq!((charged.load(Ordering::SeqCst), told.lock().unwrap().len()), (0, 0));
    assert_eq!(begun(), [0, 0], "no future is polled, and no closure called");
    gate.open();
    receipt.wait(LIMIT).unwrap();
    assert_eq!(look.wait().unwrap().0, 4);
    runtime.wait_idle_timeout(LIMIT).unwrap();
    assert_eq!((charged.load(Ordering::SeqCst), told.lock().unwrap().clone()), (1, vec![1]));
    until("both are called", || begun() == [1, 1]);
    end((store, runtime));
}

#[test]
fn each_step_leaves_the_store_when_its_own_record_is_on_disk() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = runtime.spawn(Sink(told.clone())).unwrap();
    let [worker, other] = ["a", "b"].map(|id| store.begin(id, Worker::default()).unwrap());
    assert_eq!((look(&runtime, worker.address()).0, look(&runtime, other.address()).0), (0, 0));
    gate.close();
    let tell = |number| drop(store.send(worker.address(), WorkerMessage::Tell(sink.address(), number)).unwrap());
    // While a commit waits, all that follows comes into the next one.
    store.send(other.address(), WorkerMessage::Set(1)).unwrap();
    until("a commit waits for the disk", || gate.arrivals() == 1);
    stepped(&runtime);
    tell(1);
    stepped(&runtime);
    gate.let_one_pass();
    until("the first step waits", || gate.arrivals() == 2);
    tell(2);
    stepped(&runtime);
    gate.let_one_pass();
    until("the first has left", || !told.lock().unwrap().is_empty());
    stepped(&runtime);
    assert_eq!(*told.lock().unwrap(), [1], "the step of the second is not on disk");
    gate.open();
    until("all have left", || *told.lock().unwrap() == [1, 2]);
    end((store, runtime));
}

#[test]
fn processes_wait_for_the_disk_when_too_much_is_not_on_it() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let builder = Runtime::builder().step_events(1);
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), builder);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    gate.close();
    // Each makes a record of 800,000 bytes, and there is room for 64 MiB.
    for n in 0..100 {
        runtime.send(worker.address(), WorkerMessage::Grow(800_000 + n)).unwrap();
    }
    runtime.wait_idle_timeout(LIMIT).unwrap();
    let waiting = runtime.process(runtime.processes()[0].pid).unwrap().mailbox;
    assert!((5..30).contains(&waiting), "{waiting} messages wait");
    // Others go on.
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = runtime.spawn(Sink(told.clone())).unwrap();
    sink.send(1).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    assert_eq!(*told.lock().unwrap(), [1]);
    gate.open();
    assert_eq!(look(&runtime, worker.address()).0, 0);
    until("all are counted", || runtime.stats().messages.queued == 0);
    end((store, runtime));
}

#[test]
fn a_question_that_changes_nothing_writes_nothing() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, worker.address()).0, 0);
    let calls = disk.calls();
    let questions = counts("questions to a process at rest", 1_000, 100_000);
    (0..questions).for_each(|_| assert_eq!(look(&runtime, worker.address()).0, 0));
    assert_eq!(disk.calls(), calls);
    end((store, runtime));
}

#[test]
fn a_step_that_fails_is_repeated_and_then_parked() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let worker = store.begin("a", Worker::default()).unwrap();
    let idle = || runtime.wait_idle().unwrap();
    // A step may wait for the disk, so an idle runtime may not have come to it.
    let left = |left| {
        until("the step has failed", || FAILURES.load(Ordering::SeqCst) == left);
        idle();
    };
    // It succeeds at the third attempt, and has taken each message once.
    FAILURES.store(2, Ordering::SeqCst);
    store.send(worker.address(), WorkerMessage::Fail(1)).unwrap();
    left(1);
    clock.advance(Duration::from_secs(1));
    left(0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(runtime.ask(worker.address(), WorkerMessage::Look, Duration::MAX).wait().unwrap().0, 1);

    FAILURES.store(100, Ordering::SeqCst);
    store.send(worker.address(), WorkerMessage::Fail(2)).unwrap();
    store.send(worker.address(), WorkerMessage::Set(3)).unwrap();
    left(99);
    for (pause, failures) in [(1, 98), (2, 97), (4, 96), (8, 95)] {
        clock.advance(Duration::from_secs(pause));
        left(failures);
    }
    for pause in [16, 32, 64] {
        clock.advance(Duration::from_secs(pause));
        idle();
    }
    assert_eq!(FAILURES.load(Ordering::SeqCst), 95, "there are five attempts");
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
    drop((store, runtime));

    // It stays parked in a program with the same version, with its last good state and its messages.
    let (store, runtime) = open(&disk);
    runtime.wait_idle_timeout(LIMIT).unwrap();
    assert_eq!(FAILURES.load(Ordering::SeqCst), 95);
    assert!(store.find::<Worker>("a").is_ok());
    end((store, runtime));
}

/// How often the process below was asked for a recovery, and how often its step has failed.
static RECOVERY: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Fails once, and has a recovery that is done at once.
#[derive(Default, Serialize, Deserialize)]
struct Recovering {
    taken: Vec<u64>,
}

impl Process for Recovering {
    type Message = u64;
    type Output = Vec<u64>;

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<Vec<u64>> {
        for event in events {
            if let Event::Message(number) = event {
                self.taken.push(number);
                if RECOVERY[1].fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err("on purpose".into());
                }
            }
        }
        Ok(if self.taken.len() == 2 { Step::Done(self.taken.clone()) } else { Step::Idle })
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<Vec<u64>>> {
        RECOVERY[0].fetch_add(1, Ordering::SeqCst);
        Some(Upgrade::to(Recovering { taken: vec![0, 0] }))
    }
}

impl Durable for Recovering {
    const NAME: &str = "recovering";
}

#[test]
fn a_durable_process_is_not_asked_for_a_recovery() {
    let clock = ManualClock::new();
    let store = store_in(MemoryJournal::new(&MemoryDisk::new())).kind::<Recovering>();
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let one = store.begin("a", Recovering::default()).unwrap().address();
    store.send(one, 1).unwrap();
    until("its step has failed", || RECOVERY[1].load(Ordering::SeqCst) == 1);
    runtime.wait_idle().unwrap();
    store.send(one, 2).unwrap();
    advance_until("it is done", &clock, Duration::from_secs(1), || runtime.processes().is_empty());
    let output = store.result::<Recovering>("a").unwrap().wait(Duration::MAX).unwrap();
    assert_eq!(output, [1, 2], "the same kind takes the same messages again");
    assert_eq!(RECOVERY[0].load(Ordering::SeqCst), 0);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn of_all_that_begin_an_id_one_begins_it_in_whatever_run() {
    const IDS: usize = 100;
    let disk = MemoryDisk::new();
    let mut pids = vec![Vec::new(); IDS];
    for run in 0..3 {
        let (store, runtime) = open(&disk);
        for (id, pids) in pids.iter_mut().enumerate() {
            let (barrier, id) = (Barrier::new(8), id.to_string());
            let begin = || {
                wait(&barrier);
                store.begin(&id, Worker::default()).unwrap()
            };
            let begun = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| wait(thread).unwrap()).collect::<Vec<_>>()
            });
            let new = begun.iter().filter(|begun| !begun.was_there()).count();
            assert_eq!(new, usize::from(run == 0), "id {id}");
            pids.extend(begun.iter().map(|begun| begun.pid()));
        }
        end((store, runtime));
    }
    assert!(pids.iter().all(|of_id| of_id.iter().all(|pid| *pid == of_id[0])), "{pids:?}");
}

#[test]
fn a_state_above_the_limit_fails_its_step() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Grow(2 << 20)).unwrap();
    runtime.wait_idle().unwrap();
    let mut look = runtime.ask(worker, WorkerMessage::Look, Duration::MAX);
    runtime.wait_idle().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut look).poll(&mut context).is_pending(), "the process pauses");
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn the_program_sets_the_largest_state() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().largest_state(1_000);
    let (store, runtime) = store.start(Runtime::builder().clock(clock.clock())).unwrap();
    let mut too_large = Worker::default();
    too_large.filling = "x".repeat(1_000);
    let size = serde_json::to_vec(&too_large).unwrap().len();
    let said = format!("the state has {size} bytes, and the limit is 1000");
    let refused = store.begin("a", too_large).unwrap_err().to_string();
    assert!(refused.contains(&said), "{refused}");
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Grow(900)).unwrap();
    assert_eq!(look(&runtime, worker).0, 0);
    store.send(worker, WorkerMessage::Grow(1_000)).unwrap();
    let mut parked = Vec::new();
    until("it is parked", || {
        clock.advance(Duration::from_secs(60));
        parked = store.list(&Query::all().error(&said)).unwrap();
        !parked.is_empty()
    });
    assert_eq!(parked[0].pid, worker.pid());
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_terminated_process_has_ended_in_every_run() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    let watch = runtime.watch(worker.pid());
    assert!(runtime.terminate(worker.pid()).unwrap());
    let result = store.result::<Worker>("a").unwrap();
    assert!(matches!(result.wait(LIMIT), Err(StoreError::Terminated)));
    drop(watch);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    let result = store.result::<Worker>("a").unwrap();
    assert!(matches!(result.wait(LIMIT), Err(StoreError::Terminated)));
    // Nobody is there for this message.
    runtime.send(worker.address(), WorkerMessage::Set(1)).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    end((store, runtime));
}

#[test]
fn an_id_of_another_kind_is_refused_with_its_holder() {
    #[derive(Serialize, Deserialize)]
    struct Other;
    impl Process for Other {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }
    impl Durable for Other {
        const NAME: &str = "other";
    }

    let disk = MemoryDisk::new();
    for _ in 0..2 {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().kind::<Other>();
        let (store, runtime) = store.start(Runtime::builder().workers(1)).unwrap();
        store.begin("a", Worker::default()).unwrap();
        let refused = store.begin("a", Other);
        assert!(
            matches!(refused.as_ref().unwrap_err().reason(), StoreError::OtherKind { holder, .. } if holder == "worker")
        );
        assert!(matches!(store.find::<Other>("a"), Err(StoreError::OtherKind { .. })));
        end((store, runtime));
    }
    let twice = store_in(MemoryJournal::new(&disk)).kind::<Other>().kind::<Other>();
    assert!(matches!(twice.start(Runtime::builder()), Err(StoreError::SameName("other"))));
}
