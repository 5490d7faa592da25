//! Findings of a review.

use std::time::Duration;

use procession::Runtime;
use procession::clock::ManualClock;
use procession::command::Responder;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Query, StoreError};

use crate::places::store_in;
use crate::wait::LIMIT;
use crate::worker::{Charge, Worker, WorkerMessage, end, open, start, stepped};

const SHORT: Duration = Duration::from_secs(3);

fn fill(disk: &MemoryDisk) {
    (disk.calls()..disk.calls() + 100_000).for_each(|call| disk.fail_at(call, Fault::Full));
}

/// The journal is being opened anew, and that fails until the disk has room.
#[test]
fn a_message_and_a_process_that_are_on_disk_are_not_called_lost_in_a_rewind() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    store.send_once(worker.address(), "1", WorkerMessage::Who).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    fill(&disk);
    while store.send(worker.address(), WorkerMessage::Who).is_ok() {
        std::thread::yield_now();
    }
    let again = store.send_once(worker.address(), "1", WorkerMessage::Who).unwrap();
    assert!(again.was_there());
    let again = again.wait(SHORT);
    let begun = store.begin("a", Worker::default()).map(|begun| (begun.was_there(), begun.wait(SHORT)));
    disk.heal();
    println!("send_once: {again:?}, begin: {begun:?}");
    assert!(!matches!(again, Err(StoreError::Lost)), "it is on disk");
    assert!(!matches!(begun, Ok((true, Err(StoreError::Lost)))), "it is on disk");
    drop(runtime.shutdown(LIMIT));
    drop(store.close());
}

/// The same behind the end of a writer that has given up.
#[test]
fn a_message_that_is_on_disk_is_not_called_lost_when_the_store_has_closed_after_errors() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    store.send_once(worker.address(), "1", WorkerMessage::Who).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    (disk.calls()..disk.calls() + 100_000).for_each(|call| disk.fail_at(call, Fault::Error));
    drop(store.send(worker.address(), WorkerMessage::Who));
    drop(runtime.shutdown(LIMIT));
    assert!(store.close().is_err());
    let again = store.send_once(worker.address(), "1", WorkerMessage::Who);
    println!("{again:?} {:?}", again.as_ref().map(|receipt| receipt.wait(SHORT)));
    if let Ok(again) = again {
        assert!(!matches!(again.wait(SHORT), Err(StoreError::Lost)), "it is on disk");
    }
}

#[test]
fn the_receipt_of_a_message_with_a_reply_is_told_something() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    let mut receipt = None;
    let question = |reply| match store.send(worker, WorkerMessage::Look(reply)) {
        Ok(sent) => {
            receipt = Some(sent);
            WorkerMessage::Who
        }
        Err(refused) => refused.into_inner(),
    };
    runtime.ask(worker, question, LIMIT).wait().unwrap();
    let told = receipt.map(|receipt| receipt.wait(SHORT));
    println!("{told:?}");
    assert!(!matches!(told, Some(Err(StoreError::Wait(_)))), "it waits for ever");
    end((store, runtime));
}

#[test]
fn an_operator_can_list_again_behind_one_error_of_the_tables() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    store.begin("a", Worker::default()).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    disk.fail_at(disk.calls(), Fault::Error);
    assert!(store.list(&Query::all()).is_err());
    disk.heal();
    let mut last = None;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        last = store.list(&Query::all()).err();
        if last.is_none() {
            break;
        }
    }
    assert!(last.is_none(), "{}", last.unwrap());
    end((store, runtime));
}

#[test]
fn a_command_can_be_answered_behind_one_error_of_the_tables() {
    let disk = MemoryDisk::new();
    let (keys, key) = std::sync::mpsc::channel();
    let run = |keys: std::sync::mpsc::Sender<_>| {
        let later = move |_: Charge, done: Responder<u64>| {
            keys.send(done.key().unwrap()).unwrap();
            done.later();
            Ok(())
        };
        let builder = Runtime::builder().workers(2).handler(later);
        store_in(MemoryJournal::new(&disk)).kind::<Worker>().command::<Charge>().start(builder).unwrap()
    };
    let (store, runtime) = run(keys.clone());
    let worker = store.begin("a", Worker::default()).unwrap();
    store.send(worker.address(), WorkerMessage::Charge(7)).unwrap().wait(LIMIT).unwrap();
    let key = key.recv_timeout(LIMIT).unwrap();
    end((store, runtime));
    let (store, runtime) = run(keys);
    store.begin("b", Worker::default()).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    disk.fail_at(disk.calls(), Fault::Error);
    let first = store.answer::<Charge>(key, Ok(1)).map(|receipt| receipt.wait(LIMIT));
    assert!(first.is_err(), "the call of the disk has failed");
    disk.heal();
    let mut last = None;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        last = store.answer::<Charge>(key, Ok(1)).err();
        if last.is_none() {
            break;
        }
    }
    assert!(last.is_none(), "{}", last.unwrap());
    end((store, runtime));
}

#[test]
fn a_store_may_keep_everything_for_ever() {
    let disk = MemoryDisk::new();
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(Duration::MAX);
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send_once(worker, "1", WorkerMessage::Who).unwrap().wait(LIMIT).unwrap();
    store.send(worker, WorkerMessage::Over).unwrap();
    store.result::<Worker>("a").unwrap().wait(LIMIT).unwrap();
    assert!(store.send_once(worker, "1", WorkerMessage::Who).unwrap().was_there());
    end((store, runtime));
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(Duration::MAX);
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    assert!(store.send_once(worker, "1", WorkerMessage::Who).unwrap().was_there());
    store.result::<Worker>("a").unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
}

/// Takes nothing.
struct Ordinary;

impl procession::Process for Ordinary {
    type Message = WorkerMessage;
    type Output = ();

    fn step(
        &mut self,
        _: &mut procession::Events<'_, WorkerMessage>,
        _: &mut procession::StepOutput,
    ) -> procession::StepResult<()> {
        Ok(procession::Step::Idle)
    }
}

#[test]
fn a_message_to_an_ordinary_process_is_refused_with_the_reason() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let ordinary = runtime.spawn(Ordinary).unwrap();
    let refused = store.send(ordinary.address(), WorkerMessage::Who).unwrap_err();
    let keyed = store.send_once(ordinary.address(), "1", WorkerMessage::Who).unwrap_err();
    println!("{refused} / {keyed}");
    assert!(!refused.to_string().contains("runtime has ended"), "{refused}");
    drop(ordinary);
    drop(runtime.shutdown(Duration::from_millis(100)));
    store.close().unwrap();
}

#[test]
fn the_calls_of_a_closed_store_say_that_it_is_closed() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap().address();
    store.send(worker, WorkerMessage::Who).unwrap().wait(LIMIT).unwrap();
    end((store.clone(), runtime));
    let said = [
        store.send_once(worker, "1", WorkerMessage::Who).unwrap_err().to_string(),
        store.send(worker, WorkerMessage::Who).unwrap_err().to_string(),
        store.find::<Worker>("b").unwrap_err().to_string(),
        store.begin("b", Worker::default()).unwrap_err().to_string(),
        store.list(&Query::all()).unwrap_err().to_string(),
        store.retry(worker.pid()).unwrap_err().to_string(),
        store.terminate(worker.pid()).unwrap_err().to_string(),
    ];
    println!("{said:#?}");
    assert!(said.iter().all(|one| one.contains("close")), "{said:#?}");
}

#[test]
fn one_that_waits_for_a_result_is_told_when_the_store_closes() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    store.begin("a", Worker::default()).unwrap().wait(LIMIT).unwrap();
    let result = store.result::<Worker>("a").unwrap();
    let waits = std::thread::spawn(move || result.wait(SHORT));
    end((store, runtime));
    let told = waits.join().unwrap();
    println!("{told:?}");
    assert!(!matches!(told, Err(StoreError::Wait(_))), "{told:?}");
}

/// The clock of the test stands still, so that nothing is removed.
#[test]
fn an_error_of_a_sweep_is_mended() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().keep(Duration::from_secs(60));
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(Duration::MAX).unwrap();
    let send = || store.send_once(worker.address(), "1", WorkerMessage::Who).unwrap();
    send().wait(Duration::MAX).unwrap();
    stepped(&runtime);
    if std::env::var_os("CONTROL").is_none() {
        disk.fail_at(disk.calls(), Fault::Error);
    }
    clock.advance(Duration::from_secs(61));
    crate::wait::until("the sweep has failed", || disk.calls() > 0 && store.find::<Worker>("none").is_err());
    std::thread::sleep(Duration::from_millis(300));
    disk.heal();
    let mut is_free = false;
    for _ in 0..200 {
        clock.advance(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(20));
        let sent = store.send_once(worker.address(), "1", WorkerMessage::Who);
        is_free = sent.is_ok_and(|sent| !sent.was_there());
        if is_free {
            break;
        }
    }
    assert!(is_free, "the key is kept for ever");
    end((store, runtime));
}

#[test]
fn keys_may_be_empty_or_strange() {
    let disk = MemoryDisk::new();
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder());
    let worker = store.begin("a", Worker::default()).unwrap().address();
    let huge = "x".repeat(9 << 20);
    for key in ["", "a\0b", "a", "a/b", "ä€", &"y".repeat(3 << 20)] {
        let sent = store.send_once(worker, key, WorkerMessage::Who).unwrap();
        assert!(!sent.was_there());
        sent.wait(LIMIT).unwrap();
        assert!(store.send_once(worker, key, WorkerMessage::Who).unwrap().was_there());
    }
    println!("{}", store.send_once(worker, &huge, WorkerMessage::Who).unwrap_err());
    end((store, runtime));
}

/// Its mailbox is empty when it falls asleep.
#[test]
fn a_process_that_sleeps_with_an_empty_mailbox_is_not_full() {
    let (disk, gate) = (MemoryDisk::new(), crate::gate::Gate::default());
    let clock = ManualClock::new();
    let journal = || crate::gate::GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let start = || {
        let store = store_in(journal()).kind::<Worker>().mailbox_limit(3).sleep_after(Duration::from_secs(10));
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = start();
    let a = store.begin("a", Worker::default()).unwrap().address();
    store.begin("b", Worker::default()).unwrap().wait(Duration::MAX).unwrap();
    store.send(a, WorkerMessage::HangAndWait).unwrap().wait(Duration::MAX).unwrap();
    stepped(&runtime);
    for _ in 0..3 {
        store.send(a, WorkerMessage::Who).unwrap().wait(Duration::MAX).unwrap();
    }
    assert!(store.send(a, WorkerMessage::Who).is_err());
    end((store, runtime));
    // The next run loads it with its mail.
    let (store, runtime) = start();
    let b = store.find::<Worker>("b").unwrap();
    let seen = || runtime.ask(a, WorkerMessage::Look, Duration::MAX).wait();
    crate::wait::until("it has taken its mail", || seen().is_ok_and(|seen| seen.1.len() == 4));
    stepped(&runtime);
    gate.close();
    // Its record is not on disk, so the residence of the sleeper stays.
    store.send(b, WorkerMessage::Set(1)).unwrap();
    crate::wait::until("both are in memory", || runtime.processes().len() == 2);
    crate::wait::until("it sleeps", || {
        clock.advance(Duration::from_secs(10));
        runtime.processes().len() == 1
    });
    let sent = store.send(a, WorkerMessage::Set(1)).map(drop).map_err(|refused| refused.to_string());
    gate.open();
    end((store, runtime));
    assert_eq!(sent, Ok(()));
}

/// Timers of parked processes are overdue, and stay so.
#[test]
fn a_timer_wakes_a_sleeper_though_many_timers_of_parked_processes_are_overdue() {
    // A control: with few of them it is woken.
    wakes_with_so_many_parked(100);
    wakes_with_so_many_parked(10_001);
}

fn wakes_with_so_many_parked(parked: usize) {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let begin = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>();
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = begin();
    let sleeper = store.begin("sleeper", Worker::default()).unwrap().address();
    store.send(sleeper, WorkerMessage::Days(2)).unwrap().wait(Duration::MAX).unwrap();
    crate::worker::FAILURES.store(u32::MAX, std::sync::atomic::Ordering::SeqCst);
    let all: Vec<_> = (0..parked)
        .map(|n| {
            let one = store.begin(&n.to_string(), Worker::default()).unwrap().address();
            store.send(one, WorkerMessage::Days(1)).unwrap();
            one
        })
        .collect();
    stepped(&runtime);
    all.iter().for_each(|one| drop(store.send(*one, WorkerMessage::Fail(1)).unwrap()));
    crate::wait::until("all are parked", || {
        clock.advance(Duration::from_secs(60));
        store.count(&Query::all().parked()).unwrap() == parked as u64
    });
    crate::worker::FAILURES.store(0, std::sync::atomic::Ordering::SeqCst);
    end((store, runtime));
    let (store, runtime) = begin();
    // All are read, and stay on disk.
    std::thread::sleep(Duration::from_millis(500 + parked as u64));
    // Two days pass, an hour at a time.
    for _ in 0..60 {
        clock.advance(Duration::from_secs(60 * 60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let fires = std::time::Instant::now();
    while !store.show(sleeper.pid()).unwrap().timers.is_empty() && fires.elapsed() < Duration::from_secs(10) {
        clock.advance(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = store.show(sleeper.pid()).unwrap();
    println!("{:?}", shown.timers);
    assert!(shown.timers.is_empty(), "with {parked} parked, its timer has not fired");
    end((store, runtime));
}

/// Notes the numbers that it is told.
#[derive(serde::Serialize, serde::Deserialize)]
struct Notes(Vec<u32>);

#[derive(serde::Serialize, serde::Deserialize)]
enum NotesMessage {
    Note(u32),
    Look(procession::Reply<Vec<u32>>),
}

impl procession::Process for Notes {
    type Message = NotesMessage;
    type Output = ();

    fn step(
        &mut self,
        events: &mut procession::Events<'_, NotesMessage>,
        out: &mut procession::StepOutput,
    ) -> procession::StepResult<()> {
        for event in events {
            match event {
                procession::Event::Message(NotesMessage::Note(number)) => self.0.push(number),
                procession::Event::Message(NotesMessage::Look(reply)) => out.reply(reply, self.0.clone()),
                _ => {}
            }
        }
        Ok(procession::Step::Idle)
    }
}

impl procession::durable::Durable for Notes {
    const NAME: &str = "notes";
}

const KEYS: u32 = 12;

fn send_all(
    world: &procession::simulation::World,
    disk: &MemoryDisk,
    told: &std::cell::RefCell<std::collections::BTreeSet<(usize, u32)>>,
) -> Result<(), procession::BoxError> {
    let retry = || {
        world.run_for(Duration::from_secs(1)).unwrap();
    };
    let mut tries = 0;
    let (store, runtime) = loop {
        let store = store_in(MemoryJournal::new(disk)).kind::<Notes>().sleep_after(Duration::from_millis(300));
        match world.start_store(store, Runtime::builder()) {
            Ok(both) => break both,
            Err(_) if tries < 20 => tries += 1,
            Err(_) => world.kill(),
        }
        retry();
    };
    let mut both = Vec::new();
    for id in ["a", "b"] {
        let mut tries = 0;
        both.push(loop {
            if let Ok(begun) = store.begin(id, Notes(Vec::new()))
                && begun.wait(LIMIT).is_ok()
            {
                break begun.address();
            }
            tries += 1;
            if tries > 20 {
                world.kill();
            }
            retry();
        });
    }
    for number in 0..KEYS {
        for (place, to) in both.iter().enumerate() {
            let mut tries = 0;
            loop {
                let key = format!("{number}");
                let was_told = told.borrow().contains(&(place, number));
                let sent = store.send_once(*to, &key, NotesMessage::Note(number));
                let second = store.send_once(*to, &key, NotesMessage::Note(number));
                if was_told && sent.as_ref().is_ok_and(|sent| !sent.was_there()) {
                    return Err(format!("{number} was told to {place}, and was sent again").into());
                }
                if sent.is_ok() && second.as_ref().is_ok_and(|second| !second.was_there()) {
                    return Err(format!("{number} was sent twice to {place}").into());
                }
                let waited = sent.map(|sent| sent.wait(LIMIT));
                if matches!(waited, Ok(Err(StoreError::Wait(_)))) {
                    return Err(format!("the receipt of {number} to {place} is told nothing").into());
                }
                if matches!(waited, Ok(Ok(()))) {
                    told.borrow_mut().insert((place, number));
                    break;
                }
                tries += 1;
                if tries > 20 {
                    world.kill();
                }
                retry();
            }
            if world.seed() % 3 == 0 {
                world.run_for(Duration::from_millis(400))?;
            }
        }
    }
    for to in both {
        let mut tries = 0;
        let mut seen = loop {
            match runtime.ask(to, NotesMessage::Look, LIMIT).wait() {
                Ok(seen) => break seen,
                Err(_) if tries < 20 => tries += 1,
                Err(_) => world.kill(),
            }
            retry();
        };
        let before = seen.clone();
        seen.sort_unstable();
        if seen != (0..KEYS).collect::<Vec<_>>() {
            return Err(format!("not each once: {before:?}").into());
        }
    }
    Ok(())
}

#[test]
fn keyed_messages_are_taken_once_in_worlds_that_kill_and_whose_disks_fail() {
    use procession::simulation::{Faults, Simulation};
    let seeds: u64 = std::env::var("SEEDS").map_or(300, |seeds| seeds.parse().unwrap());
    let faults = Faults::none()
        .kill(0.01)
        .disk(Fault::Error, 0.02)
        .disk(Fault::Full, 0.02)
        .disk(Fault::Crash, 0.01)
        .disk(Fault::CrashBehind, 0.01)
        .at_most(15);
    let report = Simulation::new(|world| {
        let (disk, told) = (MemoryDisk::with_seed(world.seed()), std::cell::RefCell::default());
        world.program(|_| send_all(world, &disk, &told))
    })
    .faults(faults)
    .seeds(0..seeds)
    .run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

/// The store is not closed, and the process lives.
#[test]
fn a_request_in_a_rewind_is_refused_with_the_reason() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    stepped(&runtime);
    fill(&disk);
    while store.send(worker.address(), WorkerMessage::Who).is_ok() {
        std::thread::yield_now();
    }
    let said = [
        format!("{:?}", runtime.terminate(worker.pid()).map_err(|why| why.to_string())),
        format!("{:?}", runtime.cancel(worker.pid(), "stop").map_err(|why| why.to_string())),
        format!("{:?}", store.terminate(worker.pid()).map_err(|why| why.to_string())),
        format!("{:?}", store.retry(worker.pid()).map_err(|why| why.to_string())),
        format!("{:?}", runtime.send(worker.address(), WorkerMessage::Who).map_err(|why| why.to_string())),
        format!(
            "{:?}",
            runtime
                .ask(worker.address(), WorkerMessage::Look, Duration::from_millis(300))
                .wait()
                .map_err(|why| why.to_string())
        ),
        format!("{:?}", store.find::<Worker>("zzz").map_err(|why| why.to_string())),
    ];
    println!("{said:#?}");
    disk.heal();
    drop(runtime.shutdown(LIMIT));
    drop(store.close());
    assert!(said[..2].iter().all(|one| !one.contains("no such process") && !one.contains("no process")), "{said:#?}");
}

/// Four senders try all keys, while calls of the disk fail again and again.
#[test]
fn of_senders_on_a_disk_that_fails_one_sends_each_key() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    const COUNT: u32 = 4_000;
    let disk = MemoryDisk::new();
    let store = store_in(MemoryJournal::new(&disk)).kind::<Notes>().sleep_after(Duration::from_millis(5));
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let notes = store.begin("a", Notes(Vec::new())).unwrap();
    notes.wait(LIMIT).unwrap();
    let (to, over, lies) = (notes.address(), AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged = std::sync::Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4_u32)
            .map(|sender| {
                let (store, lies, acknowledged) = (&store, &lies, &acknowledged);
                scope.spawn(move || {
                    for n in 0..COUNT {
                        let number = if sender % 2 == 0 { n } else { (n + 1) % COUNT };
                        loop {
                            let was_acknowledged = acknowledged.lock().unwrap().contains(&number);
                            let sent = store.send_once(to, &number.to_string(), NotesMessage::Note(number));
                            let Ok(sent) = sent else {
                                std::thread::sleep(Duration::from_millis(1));
                                continue;
                            };
                            assert!(!was_acknowledged || sent.was_there(), "{number} is sent twice");
                            match sent.wait(Duration::from_secs(20)) {
                                Ok(()) => {
                                    acknowledged.lock().unwrap().insert(number);
                                    break;
                                }
                                Err(StoreError::Lost) => {
                                    lies.fetch_add(usize::from(was_acknowledged), Ordering::SeqCst);
                                    std::thread::sleep(Duration::from_millis(1));
                                }
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                })
            })
            .collect();
        let over = &over;
        let disk = &disk;
        scope.spawn(move || {
            let mut random = 0x2545_f491_4f6c_dd1d_u64;
            while !over.load(Ordering::SeqCst) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let fault = [Fault::Full, Fault::Full, Fault::Full, Fault::Error][(random % 4) as usize];
                disk.fail_at(disk.calls() + random % 40, fault);
                std::thread::sleep(Duration::from_millis(100 + (random >> 8 & 255)));
            }
        });
        let results: Vec<_> = senders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
    disk.heal();
    let mut seen = crate::worker::asked(|| runtime.ask(to, NotesMessage::Look, LIMIT).wait().ok());
    println!("{} calls said Lost of what was acknowledged", lies.load(Ordering::SeqCst));
    seen.sort_unstable();
    assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    stepped(&runtime);
    let counts = runtime.stats().messages;
    end((store, runtime));
    println!("{counts:?}");
    assert_eq!(counts.accepted, counts.stepped + counts.dead() + counts.queued, "{counts:?}");
}

/// An order to all processes, of which one is damaged.
#[test]
fn an_order_to_all_passes_over_a_damaged_process() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let mut marked = Worker::default();
    marked.filling = "marker".repeat(20_000);
    store.begin("damaged", marked).unwrap().wait(LIMIT).unwrap();
    store.begin("sound", Worker::default()).unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    end(open(&disk));
    assert!(disk.flip(8 * (disk.log_size() as u64 + 60_000)));
    let (store, runtime) = open(&disk);
    let (told, answer) = std::sync::mpsc::channel();
    let all = store.clone();
    let asks = std::thread::spawn(move || drop(told.send(all.retry_all(&Query::all()))));
    let answer = answer.recv_timeout(Duration::from_secs(5));
    println!("{answer:?}");
    let is_told = answer.is_ok();
    drop(runtime.shutdown(LIMIT));
    drop(store.close());
    drop(asks);
    assert!(is_told, "the order waits, and its process is read again and again");
}

/// Ends at once, with its number.
#[derive(serde::Serialize, serde::Deserialize)]
struct Once(u32);

impl procession::Process for Once {
    type Message = ();
    type Output = u32;

    fn step(
        &mut self,
        _: &mut procession::Events<'_, ()>,
        _: &mut procession::StepOutput,
    ) -> procession::StepResult<u32> {
        Ok(procession::Step::Done(self.0))
    }
}

impl procession::durable::Durable for Once {
    const NAME: &str = "once";
}

/// What the world outside knows of the last id and the last key: when it was acknowledged, and the number.
#[derive(Default)]
struct Known {
    id: Option<(Duration, u32)>,
    key: Option<(Duration, u32)>,
    round: u32,
}

const KEEP: Duration = Duration::from_secs(8);

fn sweeps(
    world: &procession::simulation::World,
    disk: &MemoryDisk,
    known: &std::cell::RefCell<Known>,
) -> Result<(), procession::BoxError> {
    let mut tries = 0;
    let (store, _runtime) = loop {
        let store = store_in(MemoryJournal::new(disk)).kind::<Notes>().kind::<Once>().keep(KEEP);
        match world.start_store(store, Runtime::builder()) {
            Ok(both) => break both,
            Err(_) if tries < 20 => tries += 1,
            Err(_) => world.kill(),
        }
        world.run_for(Duration::from_secs(1))?;
    };
    let mut tries = 0;
    while known.borrow().round < 40 {
        tries += 1;
        if tries > 200 {
            world.kill();
        }
        known.borrow_mut().round += 1;
        let round = known.borrow().round;
        world.run_for(Duration::from_millis(700))?;
        let is_young =
            |of: Option<(Duration, u32)>| of.filter(|(at, _)| world.now() < *at + KEEP - Duration::from_secs(1));
        let old = is_young(known.borrow().id);
        let begins = world.now();
        if let Ok(begun) = store.begin("x", Once(round))
            && begun.wait(LIMIT).is_ok()
        {
            match old {
                Some((at, number)) if !begun.was_there() && world.now() < at + KEEP - Duration::from_secs(1) => {
                    return Err(format!("the id of {number} is gone before its time").into());
                }
                _ => {}
            }
            if !begun.was_there() {
                known.borrow_mut().id = Some((begins, round));
            }
            let number = known.borrow().id.map(|(_, number)| number);
            if let Ok(result) = store.result::<Once>("x")
                && let Ok(output) = result.wait(Duration::from_secs(2))
                && begun.was_there()
                && is_young(known.borrow().id).is_some()
                && Some(output) != number
            {
                return Err(format!("the output of {output} instead of {number:?}").into());
            }
        }
        let old = is_young(known.borrow().key);
        let Ok(notes) = store.begin("notes", Notes(Vec::new())) else { continue };
        let begins = world.now();
        if let Ok(sent) = store.send_once(notes.address(), "k", NotesMessage::Note(round))
            && sent.wait(LIMIT).is_ok()
            && !sent.was_there()
        {
            if let Some((at, number)) = old
                && begins < at + KEEP - Duration::from_secs(1)
            {
                return Err(format!("the key of {number} is gone before its time, in round {round}").into());
            }
            known.borrow_mut().key = Some((begins, round));
        }
    }
    Ok(())
}

#[test]
fn ids_and_keys_are_kept_for_their_time_in_worlds_whose_disks_fail() {
    use procession::simulation::{Faults, Simulation};
    let seeds: u64 = std::env::var("SEEDS").map_or(200, |seeds| seeds.parse().unwrap());
    let faults = Faults::none()
        .kill(0.005)
        .disk(Fault::Error, 0.02)
        .disk(Fault::Full, 0.02)
        .disk(Fault::Crash, 0.01)
        .disk(Fault::CrashBehind, 0.01)
        .at_most(20);
    let report = Simulation::new(|world| {
        let (disk, known) = (MemoryDisk::with_seed(world.seed()), std::cell::RefCell::default());
        world.program(|_| sweeps(world, &disk, &known))
    })
    .faults(faults)
    .seeds(0..seeds)
    .run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

/// The beginning of its process is lost.
#[test]
fn one_that_waits_for_the_result_of_a_lost_process_is_told() {
    let (disk, gate) = (MemoryDisk::new(), crate::gate::Gate::default());
    let journal = crate::gate::GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let (store, runtime) = start(journal, Runtime::builder());
    store.begin("first", Worker::default()).unwrap().wait(LIMIT).unwrap();
    gate.close();
    let begun = store.begin("a", Worker::default()).unwrap();
    gate.wait_for(1);
    let result = store.result::<Worker>("a").unwrap();
    disk.fail_at(disk.calls(), Fault::Full);
    gate.open();
    assert!(matches!(begun.wait(LIMIT), Err(StoreError::Lost)));
    let told = result.wait(SHORT);
    println!("{told:?}");
    assert!(!matches!(told, Err(StoreError::Wait(_))), "it waits for ever");
    end((store, runtime));
}

/// Others look at the store while it is closed.
#[cfg(feature = "sqlite")]
#[test]
fn a_closed_store_can_be_opened_at_once_though_an_operator_looks_at_it() {
    use procession::durable::journal::SqliteJournal;
    use std::sync::atomic::{AtomicBool, Ordering};
    let directory = crate::places::Directory::new();
    for round in 0..10 {
        let started =
            store_in(SqliteJournal::new(directory.path())).kind::<Worker>().start(Runtime::builder().workers(2));
        let (store, runtime) = started.unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round == 0 {
            for n in 0..300 {
                store.begin(&n.to_string(), Worker::default()).unwrap();
            }
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = || {
                while !over.load(Ordering::SeqCst) {
                    drop(store.list(&Query::all()));
                }
            };
            scope.spawn(looks);
            scope.spawn(looks);
            std::thread::sleep(Duration::from_millis(50));
            assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
            store.close().unwrap();
            let again = SqliteJournal::new(directory.path());
            let opened = {
                let mut again = again;
                procession::durable::journal::Journal::open(&mut again).map(drop)
            };
            over.store(true, Ordering::SeqCst);
            opened.unwrap_or_else(|error| panic!("round {round}: {error}"));
        });
    }
}

/// Looks for a process of the store when one is begun. Observers are called with no lock.
struct Looks(std::sync::Arc<std::sync::OnceLock<procession::durable::Store>>);

impl procession::observe::Observer for Looks {
    fn spawned(&self, _: &procession::observe::ProcessIdentity) {
        if let Some(store) = self.0.get() {
            drop(store.find::<Worker>("a"));
        }
    }
}

#[test]
fn an_observer_may_call_the_store_when_a_process_is_begun() {
    let cell = std::sync::Arc::new(std::sync::OnceLock::new());
    let builder = Runtime::builder().observer(Looks(cell.clone()));
    let (store, runtime) = start(MemoryJournal::new(&MemoryDisk::new()), builder);
    assert!(cell.set(store.clone()).is_ok());
    let (told, begun) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(store.begin("a", Worker::default()));
        let _ = told.send(());
    });
    let begun = begun.recv_timeout(Duration::from_secs(10));
    assert!(begun.is_ok(), "`begin` never returns");
    drop(runtime);
}

/// Messages to a process that is parked, full, terminated and unreadable, while calls of the disk fail.
#[test]
fn messages_are_counted_once_whatever_becomes_of_them() {
    let disk = MemoryDisk::new();
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().mailbox_limit(20);
    let store = store.sleep_after(Duration::from_millis(5));
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |count: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % count
    };
    for round in 0..150_u64 {
        let id = (round / 4).to_string();
        let Ok(worker) = store.begin(&id, Worker::default()) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let other = store.find::<Worker>("0").ok();
        for _ in 0..draw(30) {
            drop(store.send(worker.address(), WorkerMessage::Who));
            drop(store.send_once(worker.address(), &draw(10).to_string(), WorkerMessage::Set(1)));
            if let Some(other) = other {
                drop(store.send(worker.address(), WorkerMessage::Introduce(other)));
            }
        }
        match draw(6) {
            0 => disk.fail_at(disk.calls() + draw(20), Fault::Full),
            1 => drop(store.send(worker.address(), WorkerMessage::HangAndWait)),
            2 => drop(store.send(worker.address(), WorkerMessage::Over)),
            3 => drop(runtime.terminate(worker.pid())),
            4 => std::thread::sleep(Duration::from_millis(12)),
            _ => {}
        }
    }
    disk.heal();
    std::thread::sleep(Duration::from_millis(500));
    let is_right = || {
        let counts = runtime.stats().messages;
        counts.accepted == counts.stepped + counts.dead() + counts.queued
    };
    let begin = std::time::Instant::now();
    while !is_right() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let counts = runtime.stats().messages;
    println!("{counts:?}");
    drop(runtime.shutdown(LIMIT));
    store.close().unwrap();
    assert_eq!(counts.accepted, counts.stepped + counts.dead() + counts.queued, "{counts:?}");
}
