//! Durable processes leave memory when they have rested, and return when something comes.

use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::command::CommandKey;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{BeginOptions, Durable, Query, Store};
use procession::spawn::Overflow;
use procession::{Address, Event, Events, Process, Reason, Runtime, SpawnOptions, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::blocker::{Blocked, Blocker};
use crate::guest::{Decide, Guest, GuestMessage, address, all_asleep, departures, start, stays, stop};
use crate::monitors::Ordinary;
use crate::places::store_in;
use crate::script::{counts, draw};
use crate::wait::{LIMIT, Mutex, advance_until, until, wait};
use crate::worker::{DAY, stepped};

const MINUTE: Duration = Duration::from_secs(60);

/// A store whose processes leave after a minute of rest.
fn open(clock: &ManualClock, disk: &MemoryDisk, keys: &'static Mutex<Vec<CommandKey>>) -> (Store, Runtime) {
    let builder = Runtime::builder().clock(clock.clock());
    start(MemoryJournal::new(disk), builder, |store| store.sleep_after(MINUTE), keys)
}

fn look(runtime: &Runtime, guest: Address<GuestMessage>) -> (u64, Vec<String>) {
    runtime.ask(guest, GuestMessage::Look, Duration::MAX).wait().unwrap()
}

fn end((store, runtime): (Store, Runtime)) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

/// The writer and the thread of the socket wait without a limit. So only timers could wake a thread.
#[test]
fn a_store_that_nobody_uses_sets_no_timer_and_makes_no_call() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    for n in [1, 2] {
        store.begin(&n.to_string(), Guest::new(905, n)).unwrap().wait(Duration::MAX).unwrap();
    }
    until("they are to fall asleep", || clock.next_due().is_some());
    all_asleep(&runtime, || clock.advance(MINUTE));
    advance_until("no timer is set", &clock, MINUTE, || clock.next_due().is_none());
    let calls = disk.calls();
    clock.advance(DAY);
    stepped(&runtime);
    assert_eq!((clock.next_due(), disk.calls()), (None, calls));
    end((store, runtime));
}

/// A question for a description is no reason to load a process, and no rest of it ends.
#[test]
fn a_process_that_is_asleep_is_not_woken_for_a_description() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    let guest = store.begin("1", Guest::new(906, 1)).unwrap().address();
    stepped(&runtime);
    let describe = |pid: procession::Pid| runtime.describe(pid, LIMIT).wait();
    assert_eq!(describe(guest.pid()).unwrap(), "This process gives no description.");
    all_asleep(&runtime, || clock.advance(MINUTE));
    assert_eq!(describe(guest.pid()).unwrap(), "The process is not in the memory of this runtime.");
    assert_eq!(runtime.processes().len(), 0);
    assert_eq!(look(&runtime, guest).0, 0, "it lives");
    end((store, runtime));
}

#[test]
fn a_process_that_has_rested_returns_with_whatever_comes_for_it() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 1;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    let pass = || clock.advance(MINUTE);
    let [guest, other] = [1, 2].map(|n| store.begin(&n.to_string(), Guest::new(TEST, n)).unwrap().address());
    let send = |message| store.send(guest, message).unwrap();
    send(GuestMessage::Ring(0));
    stepped(&runtime);
    assert_eq!(runtime.processes().len(), 2, "they have not rested long enough");
    all_asleep(&runtime, pass);
    // A question, and a message.
    assert_eq!(look(&runtime, guest).0, 1);
    all_asleep(&runtime, pass);
    send(GuestMessage::Ring(0));
    assert_eq!(look(&runtime, guest).0, 2);
    // A request to stop.
    all_asleep(&runtime, pass);
    runtime.cancel(guest.pid(), Reason::Cancelled).unwrap();
    until("it is asked to stop", || look(&runtime, guest).1 == ["cancel: cancelled"]);
    // A timer, also of a process that waits for it.
    send(GuestMessage::Seconds(100_000));
    stepped(&runtime);
    all_asleep(&runtime, pass);
    until("their states are dropped", || stays(TEST).iter().all(|stays| !stays.is_here));
    let before = stays(TEST);
    (0..10).for_each(|_| pass());
    assert_eq!(stays(TEST), before, "it is not time yet");
    clock.advance(Duration::from_secs(100_000));
    until("the timer fires", || look(&runtime, guest).1.len() == 2);
    send(GuestMessage::SecondsAndWait(100_000));
    stepped(&runtime);
    all_asleep(&runtime, pass);
    clock.advance(Duration::from_secs(100_000));
    until("the timer fires", || look(&runtime, guest).1.len() == 3);
    // An answer from outside.
    send(GuestMessage::Later);
    until("it is handed out", || KEYS.lock().unwrap().len() == 1);
    all_asleep(&runtime, pass);
    store.answer::<Decide>(KEYS.lock().unwrap()[0], Ok(5)).unwrap();
    until("it is answered", || look(&runtime, guest).1.len() == 4);
    assert_eq!(KEYS.lock().unwrap().len(), 1, "it is handed out once");
    // The end of another process, and of a child.
    send(GuestMessage::Watch(other.pid()));
    stepped(&runtime);
    all_asleep(&runtime, pass);
    store.send(other, GuestMessage::Over).unwrap();
    until("it is told", || look(&runtime, guest).1.last().unwrap() == "down: done");
    send(GuestMessage::Run(3));
    until("the child is there", || stays(TEST).len() == 3);
    all_asleep(&runtime, pass);
    end((store, runtime));
    departures(TEST);
    assert!(stays(TEST).iter().all(|stays| stays.inits + stays.resumes == stays.closes), "{:?}", stays(TEST));
}

#[test]
fn a_deadline_wakes_a_process_that_sleeps() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    let day = BeginOptions::new().deadline(MINUTE * 60 * 24);
    let guest = store.begin_with("1", Guest::new(2, 1), &day).unwrap().address();
    all_asleep(&runtime, || clock.advance(MINUTE));
    clock.advance(MINUTE * 60 * 24);
    until("it is asked to stop", || look(&runtime, guest).1 == ["cancel: timed out"]);
    end((store, runtime));
}

#[test]
fn a_process_with_work_that_is_only_in_memory_does_not_leave() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    let guests: [_; 2] =
        std::array::from_fn(|n| store.begin(&n.to_string(), Guest::new(3, n as u64)).unwrap().address());
    let ordinary = runtime.spawn(Ordinary).unwrap();
    store.send(guests[0], GuestMessage::Hang).unwrap();
    store.send(guests[1], GuestMessage::Watch(ordinary.pid())).unwrap();
    // An answer comes after all that was yielded before, and that waits for the disk.
    guests.iter().for_each(|guest| drop(look(&runtime, *guest)));
    for _ in 0..20 {
        clock.advance(MINUTE);
        stepped(&runtime);
    }
    assert!(stays(3).iter().all(|stays| stays.closes == 0), "{:?}", stays(3));
    runtime.terminate(ordinary.pid()).unwrap();
    until("it is told", || look(&runtime, guests[1]).1 == ["down: terminated (terminated)"]);
    // Its monitor has ended, so nothing keeps it in memory.
    advance_until("one of them leaves", &clock, MINUTE, || departures(3) == 1);
    end((store, runtime));
}

/// An ordinary process that blocks in its first step.
struct Blocks(Blocked);

impl Process for Blocks {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        if events.next().is_some() {
            self.0.wait();
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_process_that_has_waited_for_room_leaves_afterwards() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let (disk, clock, blocker) = (MemoryDisk::new(), ManualClock::new(), Blocker::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    let guest = store.begin("it", Guest::new(907, 1)).unwrap().address();
    let options = SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let blocks = runtime.spawn_with(Blocks(blocker.blocked()), options).unwrap().address();
    runtime.send(blocks, 0).unwrap();
    blocker.wait_begun();
    runtime.send(blocks, 0).unwrap();
    store.send(guest, GuestMessage::Tell(blocks)).unwrap().wait(LIMIT).unwrap();
    for _ in 0..5 {
        assert_eq!(look(&runtime, guest).1, [""; 0]);
        clock.advance(MINUTE);
    }
    assert_eq!(departures(907), 0);
    blocker.release();
    until("its message is taken", || look(&runtime, guest).1 == ["answer"]);
    advance_until("it leaves", &clock, MINUTE, || departures(907) == 1);
    runtime.terminate(blocks.pid()).unwrap();
    end((store, runtime));
}

#[test]
fn those_that_have_rested_longest_leave_if_there_are_too_many() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let builder = Runtime::builder().clock(clock.clock());
    let (store, runtime) = start(MemoryJournal::new(&disk), builder, |store| store.max_resident(16), &KEYS);
    let begin = |n: u64| {
        let guest = store.begin(&n.to_string(), Guest::new(4, n)).unwrap();
        stepped(&runtime);
        guest.address()
    };
    let guests: Vec<_> = (0..16)
        .map(|n| {
            clock.advance(Duration::from_millis(1));
            begin(n)
        })
        .collect();
    // The first three have done something.
    for guest in &guests[..3] {
        clock.advance(Duration::from_millis(1));
        assert_eq!(look(&runtime, *guest).0, 0);
    }
    clock.advance(Duration::from_millis(1));
    assert_eq!(runtime.processes().len(), 16);
    begin(16);
    let left = || (0..17).filter(|n| crate::guest::change((4, *n), |stays| stays.closes) > 0).collect::<Vec<_>>();
    until("there is room", || {
        clock.advance(Duration::from_millis(200));
        runtime.processes().len() == 14
    });
    assert_eq!(left(), [3, 4, 5]);
    end((store, runtime));
}

#[test]
fn timers_of_those_that_sleep_take_one_timer_of_the_runtime() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    let guests = counts("guests", 300, 1_000_000);
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let builder = Runtime::builder().clock(clock.clock());
    let options = |store: procession::durable::StoreBuilder| store.sleep_after(MINUTE).max_resident(1_000);
    let (store, runtime) = start(MemoryJournal::new(&disk), builder, options, &KEYS);
    // Far apart, because the clock moves on while they fall asleep.
    let apart = 30_000 * 365 * 24 * 60 * 60 / guests;
    for n in 0..guests {
        let guest = store.begin(&n.to_string(), Guest::new(5, n)).unwrap();
        store.send(guest.address(), GuestMessage::Seconds((guests - n) * apart)).unwrap();
    }
    all_asleep(&runtime, || clock.advance(MINUTE));
    // A process that did something while it was asked to leave has set one more look for those that rest. It is over
    // in a minute.
    let one_timer = || runtime.stats().timers == 1;
    advance_until("their timers are looked at", &clock, MINUTE, one_timer);
    // The one with the next timer returns, and nobody else.
    let last = guests - 1;
    for next in [last, last - 1, last - 2] {
        clock.advance(Duration::from_secs(apart));
        until("the next one returns", || crate::guest::change((5, next), |stays| stays.resumes) > 0);
        all_asleep(&runtime, || clock.advance(MINUTE));
        departures(5);
        let has_returned = |n: &u64| crate::guest::change((5, *n), |stays| stays.resumes) > 0;
        assert_eq!((0..guests).filter(has_returned).collect::<Vec<_>>(), (next..guests).collect::<Vec<_>>());
        advance_until("its timer is over", &clock, MINUTE, one_timer);
    }
    end((store, runtime));
}

#[test]
fn a_process_that_is_just_leaving_returns_with_what_comes_for_it() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 6;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    for n in 0..5 {
        let [guest, other] = [n, n + 10].map(|n| store.begin(&n.to_string(), Guest::new(TEST, n)).unwrap().address());
        match n {
            3 => store.send(guest, GuestMessage::Watch(other.pid())).unwrap(),
            _ => store.send(guest, GuestMessage::Later).unwrap(),
        };
        stepped(&runtime);
        let resumed = || crate::guest::change((TEST, n), |stays| stays.resumes);
        let (leaves, goes_on) = stop((TEST, n));
        advance_until("it leaves", &clock, MINUTE, || leaves.is_set());
        let mut asked = None;
        match n {
            0 => drop(store.send(guest, GuestMessage::Ring(0)).unwrap()),
            1 => asked = Some(runtime.ask(guest, GuestMessage::Look, Duration::MAX)),
            2 => drop(runtime.cancel(guest.pid(), Reason::Cancelled).unwrap()),
            3 => {
                store.send(other, GuestMessage::Over).unwrap();
                store.result::<Guest>(&(n + 10).to_string()).unwrap().wait(Duration::MAX).unwrap();
            }
            _ => drop(store.answer::<Decide>(*KEYS.lock().unwrap().last().unwrap(), Ok(1)).unwrap()),
        }
        assert_eq!(resumed(), 0);
        goes_on.set(()).unwrap();
        until("it returns", || resumed() > 0);
        // The answer to a command comes as an event of its own, when the process is back.
        let note = ["", "", "cancel: cancelled", "down: done", "answer"][n as usize];
        until("it gets it", || match n {
            0 => look(&runtime, guest).0 == 1,
            1 => true,
            _ => look(&runtime, guest).1 == [note],
        });
        if let Some(asked) = asked {
            assert!(asked.wait().is_ok());
        }
    }
    end((store, runtime));
    departures(TEST);
}

#[test]
fn a_child_that_is_to_end_does_not_fall_asleep() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    const TEST: u64 = 7;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&clock, &disk, &KEYS);
    let [parent, _] = [0, 1].map(|n| store.begin(&n.to_string(), Guest::new(TEST, n)).unwrap().address());
    store.send(parent, GuestMessage::Run(2)).unwrap();
    until("the child is there", || address((TEST, 2)).is_some());
    let child = address((TEST, 2)).unwrap();
    let (stops, goes_on) = stop((TEST, 2));
    store.send(child, GuestMessage::Stop).unwrap();
    wait(&stops);
    let closes = |n| crate::guest::change((TEST, n), |stays| stays.closes);
    advance_until("they are asked to leave", &clock, MINUTE, || closes(0) > 0 && closes(1) > 0);
    // Its parent ends meanwhile, which ends the child.
    let watcher = runtime.watch(child.pid());
    store.send(parent, GuestMessage::Over).unwrap();
    store.result::<Guest>("0").unwrap().wait(Duration::MAX).unwrap();
    goes_on.set(()).unwrap();
    assert_eq!(wait(watcher).exit.to_string(), "terminated (terminated)");
    end((store, runtime));
}

const GUESTS: u64 = 24;

#[test]
fn processes_leave_and_return_under_load_and_are_in_memory_once() {
    static KEYS: Mutex<Vec<CommandKey>> = Mutex::new(Vec::new());
    for (seed, loses_power) in [(10, false), (11, true)] {
        let enough = counts("departures", 700, 50_000);
        let disk = MemoryDisk::with_seed(seed);
        let options = |store: procession::durable::StoreBuilder| store.sleep_after(Duration::from_micros(50));
        let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder(), options, &KEYS);
        let guests: Vec<_> =
            (0..GUESTS).map(|n| store.begin(&n.to_string(), Guest::new(seed, n)).unwrap().address()).collect();
        for (n, guest) in guests.iter().enumerate() {
            let next = guests[(n + 7) % guests.len()];
            store.send(*guest, GuestMessage::Next(next)).unwrap().wait(LIMIT).unwrap();
        }
        let (mut sent, mut crashes, mut calls) = ([0; 3], 0, 0);
        let (mut seen, mut deadline) = (0, Instant::now() + LIMIT);
        for round in 0.. {
            let now = departures(seed);
            if now >= enough {
                break;
            }
            if now > seen {
                (seen, deadline) = (now, Instant::now() + LIMIT);
            }
            assert!(Instant::now() < deadline, "nobody is stuck: {now} departures, {store:?}");
            let of = |n| guests[draw(seed, round, n, GUESTS) as usize];
            let length = draw(seed, round, 3, 6);
            match store.send(of(1), GuestMessage::Ring(length)) {
                Ok(receipt) if receipt.wait(LIMIT).is_ok() => sent[0] += length + 1,
                _ => assert!(loses_power),
            }
            match store.send(of(5), GuestMessage::Work) {
                // An answer of the child, and the timer.
                Ok(receipt) if receipt.wait(LIMIT).is_ok() => sent[1] += 2,
                _ => assert!(loses_power),
            }
            // A request that is not on disk is lost with the power.
            if !loses_power {
                runtime.cancel(of(6).pid(), Reason::Cancelled).unwrap();
                sent[2] += 1;
            }
            let answer = runtime.ask(of(2), GuestMessage::Look, LIMIT).wait();
            assert!(answer.is_ok() || loses_power, "{answer:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if loses_power && disk.calls() > calls + 20 + draw(seed, crashes, 4, 300) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        assert_eq!(crashes > 0, loses_power, "{crashes} losses of power");
        let mut got = [0; 3];
        until("all has arrived once", || {
            let count = |guest: &Address<_>| runtime.ask(*guest, GuestMessage::Count, LIMIT).wait().ok();
            let add = |all: [u64; 3], one: [u64; 3]| std::array::from_fn(|n| all[n] + one[n]);
            got = guests.iter().filter_map(count).fold([0; 3], add);
            assert!(got.iter().zip(sent).all(|(got, sent)| *got <= sent), "{got:?} of {sent:?}");
            got == sent
        });
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        store.close().unwrap();
        departures(seed);
        assert!(stays(seed).iter().all(|stays| stays.inits + stays.resumes == stays.closes), "{:?}", stays(seed));
    }
}

/// Sets timers, and fails.
#[derive(Serialize, Deserialize)]
struct Alarms;

#[derive(Serialize, Deserialize)]
enum AlarmsMessage {
    /// Sets so many timers. The first one rings after so many days, and the others some milliseconds after each other.
    Set {
        timers: u64,
        days: u32,
        apart: u64,
    },
    Fail,
}

impl Process for Alarms {
    type Message = AlarmsMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, AlarmsMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(AlarmsMessage::Set { timers, days, apart }) => {
                    (0..timers).for_each(|n| _ = out.after(DAY * days + Duration::from_millis(n * apart)));
                }
                Event::Message(AlarmsMessage::Fail) => return Err("on purpose".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Alarms {
    const NAME: &str = "alarms";
}

/// The timers of parked processes become overdue, and stay so. A look at the timers reads 10,000 of them.
#[test]
fn a_timer_wakes_a_sleeper_though_many_of_parked_ones_are_overdue() {
    // At one time, and at many.
    for apart in [0, 1] {
        wakes_a_sleeper(apart);
    }
}

fn wakes_a_sleeper(apart: u64) {
    const PARKED: u64 = 20;
    const TIMERS: u64 = 501;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let run = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Alarms>();
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let (store, runtime) = run();
    let begin = |id: &str| store.begin(id, Alarms).unwrap().address();
    let send = |to, message| store.send(to, message).unwrap();
    let sleeper = begin("sleeper");
    send(sleeper, AlarmsMessage::Set { timers: 1, days: 2_000, apart });
    let parked: Vec<_> = (0..PARKED).map(|n| begin(&n.to_string())).collect();
    for one in &parked {
        send(*one, AlarmsMessage::Set { timers: TIMERS, days: 1_000, apart });
    }
    stepped(&runtime);
    parked.iter().for_each(|one| drop(send(*one, AlarmsMessage::Fail)));
    let count = || store.count(&Query::all().parked()).unwrap();
    advance_until("they are parked", &clock, Duration::from_secs(1), || count() == PARKED);
    end((store, runtime));
    let (store, runtime) = run();
    let left = |of: Address<_>| store.show(of.pid()).unwrap().timers.len() as u64;
    advance_until("the timer wakes the sleeper", &clock, 100 * DAY, || left(sleeper) == 0);
    assert!(parked.iter().all(|one| left(*one) == TIMERS));
    end((store, runtime));
}
