//! Processes that run while the disk of their store has no room, or only errors.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::StoreError;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::simulation::{Simulation, ensure};
use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

use crate::places::store_in;
use crate::script::counts;
use crate::wait::{LIMIT, until};
use crate::worker::{Worker, WorkerMessage, answer_of, end, look, open, start};

/// By the clock, a load that has failed is tried again. The pauses of the writer do not follow it.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether it is on disk, when the store knows.
fn told(clock: &ManualClock, wait: impl Fn(Duration) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let mut told = Ok(());
    until("the store says whether it is on disk", || {
        clock.advance(PAUSE);
        told = wait(Duration::ZERO);
        !matches!(told, Err(StoreError::Wait(_)))
    });
    told
}

#[test]
fn with_a_full_disk_all_that_was_acknowledged_stays_and_work_goes_on() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(Duration::MAX).unwrap();
    let set = |value| match store.send(worker.address(), WorkerMessage::Set(value)) {
        Ok(receipt) => told(&clock, |limit| receipt.wait(limit)).is_ok(),
        Err(refused) => {
            clock.advance(PAUSE);
            assert!(
                matches!(refused.into_inner(), WorkerMessage::Set(back) if back == value),
                "the message comes back"
            );
            false
        }
    };
    let value = || {
        let (mut answer, mut value) = (None, None);
        until("the worker answers", || {
            clock.advance(PAUSE);
            let ask = || runtime.ask(worker.address(), WorkerMessage::Look, Duration::MAX);
            // A question of a life that is rewound is dropped.
            value = answer_of(&mut answer, ask).and_then(Result::ok);
            value.is_some()
        });
        value.unwrap().0
    };
    let begin = |value| {
        let mut worker = Worker::default();
        worker.value = value;
        store.begin(&format!("number {value}"), worker)
    };
    let (mut next, mut others, mut begun) = (0, 0, Vec::new());
    for round in 0..counts("rounds with a full disk", 20, 100) {
        assert_eq!(value(), next, "round {round}");
        disk.set_room(Some(disk.size() + 1_500));
        // More often in a row than errors of other kinds may come.
        let mut refused = 0;
        while refused < 5 {
            if set(next + 1) {
                (next, refused) = (next + 1, 0);
            } else {
                refused += 1;
            }
        }
        until("a process that cannot begin comes back", || {
            others += 1;
            match begin(others) {
                Ok(one) => {
                    clock.advance(PAUSE);
                    if told(&clock, |limit| one.wait(limit)).is_ok() {
                        begun.push((one.address(), others));
                    }
                    false
                }
                Err(refused) => {
                    clock.advance(PAUSE);
                    assert_eq!(refused.into_inner().value, others);
                    true
                }
            }
        });
        disk.set_room(None);
        until("it is stored again", || set(next + 1));
        next += 1;
    }
    end((store, runtime));
    let (store, runtime) = open(&disk);
    assert_eq!(look(&runtime, worker.address()).0, next);
    assert!(begun.iter().all(|(other, value)| look(&runtime, *other).0 == *value), "{begun:?}");
    end((store, runtime));
}

/// The time is that of the simulated clock, which advances only while all threads wait.
#[test]
fn a_full_disk_that_gets_room_is_written_to_within_two_pauses() {
    let simulation = Simulation::new(|world| {
        let disk = MemoryDisk::new();
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>();
        let (store, runtime) = world.start_store(store, Runtime::builder())?;
        let worker = store.begin("a", Worker::default()).map_err(|why| why.into_parts().1)?;
        worker.wait(LIMIT)?;
        let set = |value| {
            let receipt = store.send(worker.address(), WorkerMessage::Set(value)).ok();
            receipt.is_some_and(|receipt| receipt.wait(LIMIT).is_ok())
        };
        let mut longest = Duration::ZERO;
        for round in 1..=10 {
            disk.set_room(Some(disk.size()));
            // The room comes at any time of a pause.
            for _ in 0..=world.random(0..3) {
                ensure(!set(0), || "there is no room".into())?;
                world.run_for(Duration::from_millis(world.random(0..250)))?;
            }
            let _ = set(0);
            disk.set_room(None);
            let since = world.now();
            while !set(round) {
                world.run_for(Duration::from_millis(1))?;
                ensure(world.now() - since <= 2 * PAUSE, || "a message was refused after two pauses".into())?;
            }
            longest = longest.max(world.now() - since);
            ensure(world.now() - since <= 2 * PAUSE, || format!("it took {:?}", world.now() - since))?;
        }
        ensure(longest >= PAUSE / 4, || format!("no pause was met: {longest:?}"))?;
        let value = runtime.ask(worker.address(), WorkerMessage::Look, LIMIT).wait()?.0;
        ensure(value == 10, || format!("the value is {value}"))?;
        Ok(())
    });
    let report = simulation.seeds(0..counts("worlds with a full disk", 20, 1_000)).run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

/// An ordinary process, which answers with the number of questions so far.
#[derive(Default)]
pub(crate) struct Ordinary(u64);

impl Process for Ordinary {
    type Message = Reply<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<u64>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => {
                    self.0 += 1;
                    out.reply(reply, self.0);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn three_errors_close_the_store_and_ordinary_processes_go_on() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(Duration::MAX).unwrap();
    let ordinary = runtime.spawn(Ordinary::default()).unwrap();
    let asked = || runtime.ask(&ordinary, |reply| reply, LIMIT).wait().unwrap();
    assert_eq!(asked(), 1);
    (disk.calls()..disk.calls() + 1_000).for_each(|call| disk.fail_at(call, Fault::Error));
    let mut refused = None;
    until("the store is closed", || {
        match store.send(worker.address(), WorkerMessage::Set(2)) {
            Ok(receipt) => assert!(told(&clock, |limit| receipt.wait(limit)).is_err(), "it is not on disk"),
            Err(error) => refused = Some(error.into_inner()),
        }
        refused.is_some()
    });
    assert!(matches!(refused, Some(WorkerMessage::Set(2))), "the message comes back");
    assert!(store.close().is_err(), "it says why");
    assert_eq!(asked(), 2);
    let more = runtime.spawn(Ordinary::default()).unwrap();
    assert_eq!(runtime.ask(&more, |reply| reply, LIMIT).wait().unwrap(), 1);
    drop(runtime.shutdown(Duration::MAX).unwrap());
}
