//! Monitors of durable processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{
    Address, Event, Events, Monitor, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult,
};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal, SlowLoads};
use crate::places::store_in;
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, until, wait};
use crate::worker::{Worker, answer_of, asked, end, kill, stepped};

const MINUTE: Duration = Duration::from_secs(60);

/// Watches others, and notes what it gets.
#[derive(Default, Serialize, Deserialize)]
struct Guard {
    monitors: Vec<Monitor>,
    notes: Vec<String>,
    /// Those that it still watches, one after the other.
    in_a_row: Vec<Address<GuardMessage>>,
}

#[derive(Serialize, Deserialize)]
enum GuardMessage {
    Watch(Pid),
    /// Waits for a minute. Its mail waits, too.
    Rest,
    /// As `Watch` and `Rest`.
    WatchAndRest(Pid),
    /// Watches a process, and fails as often as the static counter says.
    WatchAndFail(Pid),
    /// Spawns an ordinary process of the name `child`, and watches it.
    Spawn,
    /// Ends the first monitor.
    Unwatch,
    /// Watches these, one after the other, and ends each.
    InARow(Vec<Address<GuardMessage>>),
    /// Sends so many greetings to another one, and ends.
    GreetAndEnd(u32, Address<GuardMessage>),
    Greeting,
    Look(Reply<Vec<String>>),
    Over,
}

static FAILURES: AtomicU32 = AtomicU32::new(0);

/// The mail waits until the timer has fired.
fn rest(out: &mut StepOutput) -> Step<()> {
    out.after(MINUTE);
    Step::Wait
}

impl Guard {
    fn next(&mut self, out: &mut StepOutput) {
        if let Some(next) = self.in_a_row.pop() {
            self.monitors.push(out.monitor(next.pid()));
            out.send(next, GuardMessage::Over);
        }
    }
}

impl Process for Guard {
    type Message = GuardMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, GuardMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(GuardMessage::Watch(pid)) => self.monitors.push(out.monitor(pid)),
                Event::Message(GuardMessage::Rest) => return Ok(rest(out)),
                Event::Message(GuardMessage::WatchAndRest(pid)) => {
                    self.monitors.push(out.monitor(pid));
                    return Ok(rest(out));
                }
                Event::Completed(_) => {}
                Event::Message(GuardMessage::WatchAndFail(pid)) => {
                    self.monitors.push(out.monitor(pid));
                    if FAILURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                        return Err("on purpose".into());
                    }
                }
                Event::Message(GuardMessage::Spawn) => {
                    let options = SpawnOptions::new().name("child").monitor();
                    let spawned = out.spawn_with(Ordinary, options).map_err(|refused| refused.into_parts().1)?;
                    self.monitors.extend(spawned.monitor);
                }
                Event::Message(GuardMessage::Unwatch) => out.demonitor(self.monitors.remove(0)),
                Event::Message(GuardMessage::InARow(others)) => {
                    self.in_a_row = others;
                    self.next(out);
                }
                Event::Message(GuardMessage::GreetAndEnd(times, to)) => {
                    (0..times).for_each(|_| out.send(to, GuardMessage::Greeting));
                    return Ok(Step::Done(()));
                }
                Event::Message(GuardMessage::Greeting) => self.notes.push("greeting".into()),
                Event::Message(GuardMessage::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Message(GuardMessage::Over) => return Ok(Step::Done(())),
                Event::Down(down) => {
                    let place = self.monitors.iter().position(|monitor| *monitor == down.monitor);
                    self.monitors.remove(place.ok_or("an event without a monitor")?);
                    self.notes.push(down.exit.to_string());
                    self.next(out);
                }
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Guard {
    const NAME: &str = "guard";
}

/// An ordinary process, which ends when it is asked to stop.
pub(crate) struct Ordinary;

impl Process for Ordinary {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.any(|event| matches!(event, Event::Cancel(_))) { Step::Done(()) } else { Step::Idle })
    }
}

fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> (Store, Runtime) {
    store_in(journal).kind::<Guard>().start(builder.workers(2)).unwrap()
}

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    start(MemoryJournal::new(disk), Runtime::builder())
}

fn begin<const N: usize>(store: &Store) -> [Address<GuardMessage>; N] {
    let address = |n: usize| {
        let begun = store.begin(&n.to_string(), Guard::default()).unwrap();
        begun.wait(LIMIT).unwrap();
        begun.address()
    };
    std::array::from_fn(address)
}

fn tell(store: &Store, to: Address<GuardMessage>, message: GuardMessage) {
    store.send(to, message).unwrap().wait(LIMIT).unwrap();
}

fn look(runtime: &Runtime, of: Address<GuardMessage>) -> Option<Vec<String>> {
    runtime.ask(of, GuardMessage::Look, LIMIT).wait().ok()
}

#[test]
fn the_end_of_a_process_is_told_once_and_after_what_it_had_sent() {
    for sleeps in [false, true] {
        let disk = MemoryDisk::new();
        let (mut store, mut runtime) = open(&disk);
        let [guard, other] = begin(&store);
        tell(&store, guard, GuardMessage::Watch(other.pid()));
        assert_eq!(look(&runtime, guard).unwrap(), [""; 0]);
        if sleeps {
            end((store, runtime));
            (store, runtime) = open(&disk);
            assert_eq!(runtime.processes().len(), 0, "both sleep");
        }
        tell(&store, other, GuardMessage::GreetAndEnd(3, guard));
        until("it is told", || look(&runtime, guard).unwrap().len() == 4);
        end((store, runtime));
        for _ in 0..2 {
            let (store, runtime) = open(&disk);
            assert_eq!(look(&runtime, guard).unwrap(), ["greeting", "greeting", "greeting", "done"]);
            end((store, runtime));
        }
    }
}

#[test]
fn the_monitor_of_a_process_that_a_step_spawns_is_stored_as_any() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let sleepy = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Guard>().sleep_after(MINUTE);
        store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap()
    };
    let notes = |runtime: &Runtime, guard| runtime.ask(guard, GuardMessage::Look, Duration::MAX).wait().unwrap();
    let (store, runtime) = sleepy();
    let [guard] = begin(&store);
    let spawn = || {
        tell(&store, guard, GuardMessage::Spawn);
        until("it has a child", || runtime.whereis("child").is_some());
        (0..5).for_each(|_| {
            clock.advance(MINUTE);
            stepped(&runtime);
        });
        runtime.whereis("child").unwrap()
    };
    runtime.terminate(spawn()).unwrap();
    until("it is told", || notes(&runtime, guard) == ["terminated (terminated)"]);
    let child = spawn();
    tell(&store, guard, GuardMessage::Unwatch);
    stepped(&runtime);
    runtime.terminate(child).unwrap();
    until("it has ended", || runtime.whereis("child").is_none());
    stepped(&runtime);
    assert_eq!(notes(&runtime, guard).len(), 1, "it watches no more");
    spawn();
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();

    let (store, runtime) = sleepy();
    until("it is told in the next run", || notes(&runtime, guard)[1..] == ["terminated (shutdown)"]);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn an_end_that_is_on_disk_is_told_in_the_next_run() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = open(&disk);
    let [guard, other] = begin(&store);
    tell(&store, guard, GuardMessage::Watch(other.pid()));
    assert_eq!(look(&runtime, guard).unwrap(), [""; 0]);
    end((store, runtime));
    // The guard is not loaded in this run.
    let (store, runtime) = start(SlowLoads(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    assert_eq!(look(&runtime, other).unwrap(), [""; 0]);
    gate.close();
    tell(&store, other, GuardMessage::Over);
    until("the guard is read", || gate.arrivals() > 0);
    // Nothing that the guard does reaches the disk.
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    gate.open();
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    until("it is told", || look(&runtime, guard).unwrap() == ["done"]);
    end((store, runtime));
}

#[test]
fn an_end_that_is_not_on_disk_yet_is_told_to_a_watcher_that_sleeps() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = open(&disk);
    let [guard, other] = begin(&store);
    tell(&store, guard, GuardMessage::Watch(other.pid()));
    assert_eq!(look(&runtime, guard).unwrap(), [""; 0]);
    end((store, runtime));
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    assert_eq!(look(&runtime, other).unwrap(), [""; 0]);
    gate.close();
    runtime.send(other, GuardMessage::GreetAndEnd(2, guard)).unwrap();
    until("it is being written", || gate.arrivals() > 0);
    gate.open();
    until("it is told", || look(&runtime, guard).unwrap() == ["greeting", "greeting", "done"]);
    end((store, runtime));
}

#[test]
fn a_process_that_has_ended_before_is_down_at_once() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [guard, one, two] = begin(&store);
    for other in [one, two] {
        tell(&store, other, GuardMessage::Over);
    }
    for id in ["1", "2"] {
        store.result::<Guard>(id).unwrap().wait(LIMIT).unwrap();
    }
    tell(&store, guard, GuardMessage::Watch(one.pid()));
    let nobody = "terminated (no such process)";
    until("it is told", || look(&runtime, guard).unwrap() == [nobody]);
    end((store, runtime));
    // In this run nobody has looked for it yet.
    let (store, runtime) = open(&disk);
    tell(&store, guard, GuardMessage::Watch(two.pid()));
    until("it is told", || look(&runtime, guard).unwrap() == [nobody, nobody]);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    assert_eq!(look(&runtime, guard).unwrap(), [nobody, nobody]);
    end((store, runtime));
}

#[test]
fn an_end_that_a_late_monitor_finds_is_told_after_what_was_sent() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let [guard, other] = begin(&store);
    tell(&store, guard, GuardMessage::Rest);
    stepped(&runtime);
    // The monitor begins when the other one has ended. Its greetings wait behind the message that begins the monitor.
    tell(&store, guard, GuardMessage::WatchAndRest(other.pid()));
    tell(&store, other, GuardMessage::GreetAndEnd(3, guard));
    store.result::<Guard>("1").unwrap().wait(Duration::MAX).unwrap();
    clock.advance(MINUTE);
    until("the monitor has begun, and the greetings wait", || {
        runtime.stats().messages.queued == 3 && runtime.is_idle()
    });
    clock.advance(MINUTE);
    let notes = || runtime.ask(guard, GuardMessage::Look, Duration::MAX).wait().unwrap();
    until("it is told", || notes().len() == 4);
    assert_eq!(notes(), ["greeting", "greeting", "greeting", "terminated (no such process)"]);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn an_ordinary_process_is_down_in_the_next_run_and_that_is_told_once() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [guard] = begin(&store);
    let [lives, ends] = [(); 2].map(|()| runtime.spawn(Ordinary).unwrap());
    tell(&store, guard, GuardMessage::Watch(lives.pid()));
    tell(&store, guard, GuardMessage::Watch(ends.pid()));
    assert_eq!(look(&runtime, guard).unwrap(), [""; 0]);
    runtime.wait_idle_timeout(LIMIT).unwrap();
    runtime.terminate(ends.pid()).unwrap();
    until("one has ended", || look(&runtime, guard).unwrap() == ["terminated (terminated)"]);
    stepped(&runtime);
    kill(&disk, (store, runtime));
    for _ in 0..2 {
        let (store, runtime) = open(&disk);
        // An event whose step was not on disk at the kill comes again.
        until("the other one has ended, too", || look(&runtime, guard).unwrap().len() == 2);
        assert_eq!(look(&runtime, guard).unwrap().last().unwrap(), "terminated (shutdown)");
        end((store, runtime));
    }
}

#[test]
fn a_monitor_that_was_ended_or_that_a_step_did_not_set_tells_nothing() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let [guard, one, two] = std::array::from_fn(|n| store.begin(&n.to_string(), Guard::default()).unwrap().address());
    let ask = || runtime.ask(guard, GuardMessage::Look, Duration::MAX).wait();
    store.send(guard, GuardMessage::Watch(one.pid())).unwrap();
    // In two steps.
    assert_eq!(ask().unwrap(), [""; 0]);
    store.send(guard, GuardMessage::Unwatch).unwrap();
    FAILURES.store(2, Ordering::SeqCst);
    store.send(guard, GuardMessage::WatchAndFail(two.pid())).unwrap();
    let mut asked = None;
    until("it watches the second one", || {
        clock.advance(Duration::from_secs(60));
        let answer = answer_of(&mut asked, || runtime.ask(guard, GuardMessage::Look, Duration::MAX));
        FAILURES.load(Ordering::SeqCst) == 0 && answer.is_some_and(|answer| answer.is_ok())
    });
    for other in [one, two] {
        store.send(other, GuardMessage::Over).unwrap();
    }
    until("one end is told", || ask().unwrap() == ["done"]);
    stepped(&runtime);
    assert_eq!(ask().unwrap(), ["done"]);
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
    let (store, runtime) = open(&disk);
    assert_eq!(look(&runtime, guard).unwrap(), ["done"]);
    end((store, runtime));
}

#[test]
fn the_end_of_a_process_that_sleeps_is_told_to_an_ordinary_watcher() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [one] = begin(&store);
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    let watcher = runtime.watch(one.pid());
    assert_eq!(runtime.processes().len(), 0, "it sleeps");
    assert!(watcher.down().is_none(), "its sleep is no end");
    tell(&store, one, GuardMessage::Over);
    assert!(wait(watcher).exit.is_done());
    end((store, runtime));
}

const OTHERS: usize = 20;

#[test]
fn each_end_is_told_once_though_the_disk_loses_its_power() {
    until_the_disk_crashes(counts("seeds", 4, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let [guard, others @ ..] = begin::<{ OTHERS + 1 }>(&store);
        tell(&store, guard, GuardMessage::InARow(others.to_vec()));
        let (mut crashes, mut calls, deadline) = (0, 0, Instant::now() + LIMIT);
        while look(&runtime, guard).is_none_or(|notes| notes.len() < OTHERS) {
            assert!(Instant::now() < deadline, "seed {seed}: nobody is stuck: {store:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 5 + draw(seed, crashes, 1, 20) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        stepped(&runtime);
        assert_eq!(asked(|| look(&runtime, guard)), ["done"; OTHERS], "seed {seed}");
        end((store, runtime));
        crashes
    });
}

#[test]
fn each_end_is_told_once_though_the_program_is_killed() {
    let mut kills = 0;
    for seed in 0..counts("seeds", 3, 100) {
        let disk = MemoryDisk::with_seed(seed);
        let mut guard = None;
        for run in 0.. {
            assert!(run < 1_000, "seed {seed}: nobody is stuck");
            let (store, runtime) = open(&disk);
            let guard = *guard.get_or_insert_with(|| {
                let [guard, others @ ..] = begin::<{ OTHERS + 1 }>(&store);
                tell(&store, guard, GuardMessage::InARow(others.to_vec()));
                guard
            });
            let enough = disk.calls() + draw(seed, run, 2, 40);
            let is_done = || look(&runtime, guard).is_some_and(|notes| notes.len() >= OTHERS);
            until("something is written", || disk.calls() > enough || is_done());
            // The first run is killed in any case.
            if run > 0 && is_done() {
                assert_eq!(look(&runtime, guard).unwrap(), ["done"; OTHERS], "seed {seed}");
                end((store, runtime));
                break;
            }
            kill(&disk, (store, runtime));
            kills += 1;
        }
    }
    assert!(kills > 0, "the program was killed");
}

#[test]
fn a_watch_that_comes_while_an_unread_process_ends_is_told() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let store = store_in(MemoryJournal::new(&disk)).kind::<Guard>().kind::<Worker>();
    let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
    let [guard] = begin(&store);
    let worker = store.begin("worker", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    end((store, runtime));
    // This program does not know the kind of the other one.
    let (store, runtime) = start(SlowLoads(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    assert_eq!(look(&runtime, guard).unwrap(), [""; 0]);
    gate.close();
    runtime.terminate(worker.pid()).unwrap();
    until("its rows are read", || gate.arrivals() > 0);
    tell(&store, guard, GuardMessage::Watch(worker.pid()));
    assert_eq!(look(&runtime, guard).unwrap(), [""; 0]);
    gate.open();
    // It is read anew, which drops a question that is open.
    until("it is told", || look(&runtime, guard).is_some_and(|notes| notes == ["terminated (terminated)"]));
    stepped(&runtime);
    assert_eq!(look(&runtime, guard).unwrap().len(), 1);
    end((store, runtime));
}
