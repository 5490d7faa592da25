//! Subscriptions of durable processes to groups.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal, Position};
use procession::durable::{Durable, Encoded, Query, Store};
use procession::names::{GroupChange, Subscription};
use procession::sync::Latch;
use procession::{
    Address, BoxError, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Upgrade,
};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::guest::all_asleep;
use crate::places::{goes_ahead, store_in};
use crate::script::counts;
use crate::wait::{LIMIT, Mutex, until, wait};
use crate::worker::{asked, end, kill, stepped};

const GROUP: &str = "guests";
const MINUTE: Duration = Duration::from_secs(60);

/// How often the steps of a host are still to fail, by the numbers of the tests.
static FAILURES: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

fn fail_next(test: u64, failures: u32) {
    FAILURES.lock().unwrap().insert(test, failures);
}

fn left(test: u64) -> u32 {
    FAILURES.lock().unwrap().get(&test).copied().unwrap_or(0)
}

/// A step has begun, and it goes on.
static STOP: LazyLock<(Latch<()>, Latch<()>)> = LazyLock::new(Default::default);

/// Notes the changes of a group.
#[derive(Default, Serialize, Deserialize)]
struct Host {
    test: u64,
    subscription: Option<Subscription>,
    guests: usize,
    /// How often it has got the members.
    snapshots: u32,
    changes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Subscribe,
    Unsubscribe,
    /// Unsubscribes when the test says so. One test does.
    UnsubscribeLater,
    /// Goes on as a hall.
    Upgrade,
    Look(Reply<(usize, u32)>),
    Changes(Reply<Vec<String>>),
    IsSubscribed(Reply<bool>),
    Over,
}

impl Host {
    fn of(test: u64) -> Host {
        Host { test, ..Host::default() }
    }

    fn note(&mut self, change: &GroupChange) {
        let note = match change {
            GroupChange::Members(members) => {
                (self.guests, self.snapshots) = (members.len(), self.snapshots + 1);
                format!("{} members", members.len())
            }
            GroupChange::Joined(pid) => {
                self.guests += 1;
                joined(*pid)
            }
            GroupChange::Left(pid) => {
                self.guests -= 1;
                format!("{pid} has left")
            }
            other => format!("{other:?}"),
        };
        self.changes.push(note);
    }
}

fn joined(pid: Pid) -> String {
    format!("{pid} has joined")
}

impl Process for Host {
    type Message = Ask;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ask>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Ask::Subscribe) => self.subscription = Some(out.subscribe(GROUP)),
                Event::Message(Ask::Unsubscribe) => {
                    self.subscription.take().into_iter().for_each(|one| out.unsubscribe(one));
                }
                Event::Message(Ask::UnsubscribeLater) => {
                    STOP.0.set(()).unwrap();
                    wait(&STOP.1);
                    self.subscription.take().into_iter().for_each(|one| out.unsubscribe(one));
                }
                Event::Message(Ask::Upgrade) => {
                    return Ok(Step::Upgrade(Upgrade::to(Hall(std::mem::take(self)))));
                }
                Event::Message(Ask::Look(reply)) => out.reply(reply, (self.guests, self.snapshots)),
                Event::Message(Ask::Changes(reply)) => out.reply(reply, self.changes.clone()),
                Event::Message(Ask::IsSubscribed(reply)) => out.reply(reply, self.subscription.is_some()),
                Event::Message(Ask::Over) => return Ok(Step::Done(())),
                Event::Group(event) if Some(&event.subscription) == self.subscription.as_ref() => {
                    self.note(&event.change);
                }
                Event::Group(_) => self.changes.push("a change of another subscription".into()),
                _ => {}
            }
            // The events behind this one were not taken.
            let left = left(self.test);
            if left > 0 {
                fail_next(self.test, left - 1);
                return Err("on purpose".into());
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Host {
    const NAME: &str = "host";
}

/// A host of another kind.
#[derive(Serialize, Deserialize)]
struct Hall(Host);

/// A host of a later version of the program.
#[derive(Serialize, Deserialize)]
struct Landlord {
    host: Host,
}

impl Process for Hall {
    type Message = Ask;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ask>, out: &mut StepOutput) -> StepResult<()> {
        self.0.step(events, out)
    }
}

impl Durable for Hall {
    const NAME: &str = "hall";
}

impl Process for Landlord {
    type Message = Ask;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ask>, out: &mut StepOutput) -> StepResult<()> {
        self.host.step(events, out)
    }
}

impl Durable for Landlord {
    const NAME: &str = "host";
    const VERSION: u32 = 2;

    fn migrate(_: u32, old: Encoded<'_>) -> Result<Landlord, BoxError> {
        Ok(Landlord { host: old.decode()? })
    }
}

/// An ordinary process that waits for its end.
struct Guest;

impl Process for Guest {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_over = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_over { Step::Done(()) } else { Step::Idle })
    }
}

fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> (Store, Runtime) {
    let store = store_in(journal).kind::<Host>().kind::<Hall>().sleep_after(MINUTE);
    store.start(builder.workers(2)).unwrap()
}

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    start(MemoryJournal::new(disk), Runtime::builder())
}

fn open_by(clock: &ManualClock) -> (Store, Runtime) {
    start(MemoryJournal::new(&MemoryDisk::new()), Runtime::builder().clock(clock.clock()))
}

/// As [`end`], of a runtime with a manual clock.
fn end_now((store, runtime): (Store, Runtime)) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

fn begin(store: &Store, host: Host) -> Address<Ask> {
    let begun = store.begin("a", host).unwrap();
    begun.wait(LIMIT).unwrap();
    begun.address()
}

fn tell((store, runtime): (&Store, &Runtime), host: Address<Ask>, ask: Ask) {
    store.send(host, ask).unwrap().wait(LIMIT).unwrap();
    stepped(runtime);
}

fn come(runtime: &Runtime) -> Pid {
    let guest = runtime.spawn(Guest).unwrap();
    runtime.join_group(GROUP, guest.pid()).unwrap();
    guest.pid()
}

fn look(runtime: &Runtime, host: Address<Ask>) -> (usize, u32) {
    runtime.ask(host, Ask::Look, LIMIT).wait().unwrap_or_default()
}

/// Waits without a limit of the runtime's clock.
fn changes(runtime: &Runtime, host: Address<Ask>) -> Vec<String> {
    runtime.ask(host, Ask::Changes, Duration::MAX).wait().unwrap()
}

/// Waits until it has noted these changes. A subscription begins when it is on disk.
fn until_told<const N: usize>(runtime: &Runtime, host: Address<Ask>, told: [&str; N]) {
    until("it is told", || changes(runtime, host) == told);
}

/// Calls `trigger`, and lets the clock go on through all failed attempts of the step that it causes.
fn park((store, runtime): (&Store, &Runtime), clock: &ManualClock, trigger: impl FnOnce()) {
    trigger();
    for pause in [1, 2, 4, 8] {
        runtime.wait_idle().unwrap();
        clock.advance(Duration::from_secs(pause));
    }
    until("it is parked", || store.count(&Query::all().parked()).unwrap() == 1);
    runtime.wait_idle().unwrap();
}

#[test]
fn a_subscription_begins_again_with_the_members_in_each_run() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store, Host::default());
    come(&runtime);
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (1, 1));
    come(&runtime);
    until("it is told", || look(&runtime, host) == (2, 1));
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    // Nothing else wakes it.
    until("it is in memory", || store.stats().in_memory == 1);
    come(&runtime);
    until("the guests of the earlier run have left", || look(&runtime, host) == (1, 2));
    end((store, runtime));
}

#[test]
fn a_subscription_that_has_ended_does_not_come_back() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store, Host::default());
    tell((&store, &runtime), host, Ask::Subscribe);
    tell((&store, &runtime), host, Ask::Unsubscribe);
    let before = look(&runtime, host);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    come(&runtime);
    stepped(&runtime);
    assert_eq!(store.stats().in_memory, 0, "nothing wakes it");
    assert_eq!(look(&runtime, host), before);
    end((store, runtime));
}

#[test]
fn a_subscription_of_a_process_that_is_loaded_again_holds() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store, Host::default());
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (0, 1));
    runtime.wait_idle_timeout(LIMIT).unwrap();
    disk.fail_at(disk.calls(), Fault::Error);
    until("the files are opened anew", || {
        drop(store.begin("another", Host::default()));
        store.stats().rewinds == 1
    });
    until("it has the members again", || look(&runtime, host).1 == 2);
    come(&runtime);
    until("it is told once", || look(&runtime, host) == (1, 2));
    tell((&store, &runtime), host, Ask::Unsubscribe);
    end((store, runtime));
}

#[test]
fn changes_that_failed_steps_have_taken_are_told_again_in_order() {
    const TEST: u64 = 1;
    let clock = ManualClock::new();
    let (store, runtime) = open_by(&clock);
    let host = begin(&store, Host::of(TEST));
    tell((&store, &runtime), host, Ask::Subscribe);
    until_told(&runtime, host, ["0 members"]);
    fail_next(TEST, 2);
    let one = come(&runtime);
    until("the first attempt has failed", || left(TEST) == 1 && runtime.is_idle());
    let two = come(&runtime);
    assert!(runtime.leave_group(GROUP, one));
    runtime.wait_idle().unwrap();
    clock.advance(Duration::from_secs(1));
    until("the second attempt has failed", || left(TEST) == 0 && runtime.is_idle());
    clock.advance(Duration::from_secs(2));
    until_told(&runtime, host, ["0 members", &joined(one), &joined(two), &format!("{one} has left")]);
    end_now((store, runtime));
}

#[test]
fn a_failed_step_neither_subscribes_nor_unsubscribes() {
    const TEST: u64 = 2;
    let clock = ManualClock::new();
    let (store, runtime) = open_by(&clock);
    let host = begin(&store, Host::of(TEST));
    let fails = |ask| {
        fail_next(TEST, 1);
        store.send(host, ask).unwrap().wait(LIMIT).unwrap();
        until("the step has failed", || left(TEST) == 0 && runtime.is_idle());
    };
    fails(Ask::Subscribe);
    let one = come(&runtime);
    clock.advance(Duration::from_secs(1));
    until_told(&runtime, host, ["1 members"]);
    fails(Ask::Unsubscribe);
    let two = come(&runtime);
    clock.advance(Duration::from_secs(1));
    until_told(&runtime, host, ["1 members", &joined(two)]);
    assert!(runtime.leave_group(GROUP, one));
    runtime.wait_idle().unwrap();
    assert_eq!(changes(&runtime, host).len(), 2, "it has unsubscribed");
    end_now((store, runtime));
}

/// Each event that waits has a reference to the name of the group. So the references count the events.
#[test]
fn changes_do_not_pile_up_for_a_parked_process() {
    const TEST: u64 = 3;
    let (clock, group) = (ManualClock::new(), Arc::<str>::from(GROUP));
    let (store, runtime) = open_by(&clock);
    let host = begin(&store, Host::of(TEST));
    let guest = runtime.spawn(Guest).unwrap();
    runtime.join_group(group.clone(), guest.pid()).unwrap();
    tell((&store, &runtime), host, Ask::Subscribe);
    until_told(&runtime, host, ["1 members"]);
    fail_next(TEST, 5);
    park((&store, &runtime), &clock, || _ = come(&runtime));
    for _ in 0..10_000 {
        runtime.join_group(group.clone(), guest.pid()).unwrap();
        assert!(runtime.leave_group(GROUP, guest.pid()));
    }
    runtime.wait_idle().unwrap();
    let names = Arc::strong_count(&group);
    assert!(names < 10, "{names} events wait");
    store.retry(host.pid()).unwrap();
    until_told(&runtime, host, ["1 members", "2 members"]);
    let last = come(&runtime);
    runtime.wait_idle().unwrap();
    assert_eq!(changes(&runtime, host).last(), Some(&joined(last)));
    end_now((store, runtime));
}

#[test]
fn a_process_sleeps_only_when_it_has_unsubscribed() {
    let clock = ManualClock::new();
    let (store, runtime) = open_by(&clock);
    let host = begin(&store, Host::default());
    tell((&store, &runtime), host, Ask::Subscribe);
    until_told(&runtime, host, ["0 members"]);
    for _ in 0..10 {
        clock.advance(MINUTE);
        stepped(&runtime);
    }
    assert_eq!(store.stats().in_memory, 1, "it subscribes");
    tell((&store, &runtime), host, Ask::Unsubscribe);
    all_asleep(&runtime, || clock.advance(MINUTE));
    come(&runtime);
    runtime.wait_idle().unwrap();
    assert_eq!(store.stats().in_memory, 0, "it is told nothing");
    assert_eq!(changes(&runtime, host), ["0 members"]);
    end_now((store, runtime));
}

/// The record that unsubscribes is not on disk yet. The second time, the record that subscribes is not either.
#[test]
fn no_step_after_the_one_that_unsubscribes_is_told() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()), Runtime::builder());
    let host = begin(&store, Host::default());
    let send = |ask| {
        drop(store.send(host, ask).unwrap());
        stepped(&runtime);
    };
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (0, 1));
    gate.close();
    drop(store.send(host, Ask::UnsubscribeLater).unwrap());
    gate.wait_for(1);
    wait(&STOP.0);
    // One comes during the step, and one after it.
    come(&runtime);
    STOP.1.set(()).unwrap();
    stepped(&runtime);
    come(&runtime);
    stepped(&runtime);
    send(Ask::Subscribe);
    gate.let_one_pass();
    // This commit has the step that subscribes.
    gate.wait_for(2);
    send(Ask::Unsubscribe);
    gate.let_one_pass();
    gate.wait_for(3);
    stepped(&runtime);
    gate.open();
    assert_eq!(changes(&runtime, host), ["0 members"]);
    end((store, runtime));
}

#[test]
fn a_subscription_holds_when_the_state_is_replaced_and_migrated() {
    const TEST: u64 = 4;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let by_clock = || Runtime::builder().workers(2).clock(clock.clock());
    let (store, runtime) = start(MemoryJournal::new(&disk), by_clock());
    let host = begin(&store, Host::of(TEST));
    tell((&store, &runtime), host, Ask::Subscribe);
    until_told(&runtime, host, ["0 members"]);
    // Another state.
    fail_next(TEST, 5);
    park((&store, &runtime), &clock, || _ = come(&runtime));
    let mut state = store.show(host.pid()).unwrap().state;
    state["changes"] = serde_json::json!(["replaced"]);
    store.replace(host.pid(), &state.to_string()).unwrap();
    until_told(&runtime, host, ["replaced", "1 members"]);
    end_now((store, runtime));
    // Another version.
    let next = store_in(MemoryJournal::new(&disk)).kind::<Landlord>();
    let (store, runtime) = next.start(by_clock()).unwrap();
    let one = come(&runtime);
    runtime.wait_idle().unwrap();
    let told = changes(&runtime, host);
    // The guest may come before the process is loaded.
    assert!(told[2..] == ["1 members"] || told[2..] == ["0 members".into(), joined(one)], "{told:?}");
    end_now((store, runtime));
}

#[test]
fn a_process_of_another_kind_has_the_subscriptions_of_the_one_before() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store, Host::default());
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (0, 1));
    tell((&store, &runtime), host, Ask::Upgrade);
    until("it has the members again", || look(&runtime, host) == (0, 2));
    come(&runtime);
    until("it is told", || look(&runtime, host) == (1, 2));
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    until("it has the members in the next run", || look(&runtime, host) == (0, 3));
    end((store, runtime));
}

#[test]
fn the_end_of_a_subscriber_leaves_nothing_behind() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store, Host::default());
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (0, 1));
    tell((&store, &runtime), host, Ask::Over);
    store.result::<Host>("a").unwrap().wait(LIMIT).unwrap();
    come(&runtime);
    end((store, runtime));
    let mut tables = MemoryJournal::new(&disk).open().unwrap().tables;
    tables.apply(Position(u64::MAX)).unwrap();
    // A subscription is due at each start.
    let due = tables.reader().unwrap().due(0, 0, 10).unwrap();
    assert_eq!(due, []);
}

#[test]
fn a_kill_at_any_call_leaves_the_state_and_the_subscription_as_one() {
    for call in 0..counts("calls", 25, 100) {
        let disk = MemoryDisk::with_seed(call);
        let (store, runtime) = open(&disk);
        let host = begin(&store, Host::default());
        let first = disk.calls() + call;
        (first..first + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
        for ask in [Ask::Subscribe, Ask::Unsubscribe, Ask::Subscribe] {
            drop(runtime.send(host, ask));
            come(&runtime);
        }
        until("nothing is left to be done", || runtime.is_idle());
        kill(&disk, (store, runtime));

        let (store, runtime) = open(&disk);
        // Its messages may be on disk, and their steps not.
        stepped(&runtime);
        let subscribes = asked(|| runtime.ask(host, Ask::IsSubscribed, LIMIT).wait().ok());
        let before = asked(|| runtime.ask(host, Ask::Changes, LIMIT).wait().ok());
        come(&runtime);
        stepped(&runtime);
        if subscribes {
            until("it is told", || asked(|| runtime.ask(host, Ask::Look, LIMIT).wait().ok()).0 == 1);
        }
        let told = asked(|| runtime.ask(host, Ask::Changes, LIMIT).wait().ok());
        assert_eq!(told != before, subscribes, "call {call}: {told:?}");
        assert!(!told.iter().any(|told| told.contains("another")), "call {call}: {told:?}");
        end((store, runtime));

        let (store, runtime) = open(&disk);
        stepped(&runtime);
        until("a start loads a subscriber", || store.stats().in_memory == usize::from(subscribes));
        let after = asked(|| runtime.ask(host, Ask::Changes, LIMIT).wait().ok());
        assert_eq!(
            after.len(),
            told.len() + usize::from(subscribes),
            "call {call}: it has the members once: {after:?}"
        );
        end((store, runtime));
    }
}
