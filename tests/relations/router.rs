//! Routers: messages that are spread over supervised children. Beyond the statements of the bridge.

use std::time::Duration;

use procession::config::RuntimeBuilder;
use procession::observe::DeadLetterReason;
use procession::router::Router;
use procession::spawn::Overflow;
use procession::supervisor::{Shutdown, SupervisorError};
use procession::testing::Driver;
use procession::{
    BoxError, CommandError, Event, Events, Exit, Handle, Process, Reason, Reply, Runtime, SpawnOptions, Step,
    StepOutput, StepResult,
};

use crate::helpers::*;

/// A message that a child has taken: the index of the child, the number of its start, and the number of the message.
type Taken = (usize, usize, u32);

enum Job {
    /// The key, and a number.
    Do(u64, u32),
    Who(u64, Reply<usize>),
    Fail(u64),
    Finish(u64),
    /// Blocks the child until it is released.
    Block(u64, Blocked),
}

impl Job {
    fn key(&self) -> u64 {
        match self {
            Job::Do(key, _) | Job::Who(key, _) | Job::Fail(key) | Job::Finish(key) | Job::Block(key, _) => *key,
        }
    }
}

struct Child {
    index: usize,
    start: usize,
    shared: Shared,
}

/// The state that the children of a test share.
#[derive(Clone, Default)]
struct Shared {
    taken: Log<Taken>,
    starts: Log<usize>,
    ends: Log<usize>,
}

impl Shared {
    /// Makes the child with this index.
    fn child(&self) -> impl Fn(usize) -> Child + Send + Sync + use<> {
        let shared = self.clone();
        move |index| {
            let start = shared.starts.to_vec().iter().filter(|started| **started == index).count();
            shared.starts.push(index);
            Child { index, start, shared: shared.clone() }
        }
    }

    fn wait_taken(&self, count: usize) -> Vec<Taken> {
        until("the children have taken the messages", || self.taken.len() >= count);
        self.taken.to_vec()
    }
}

impl Process for Child {
    type Message = Job;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Job>, out: &mut StepOutput) -> StepResult<()> {
        // One a step, so that a failure takes no other message with it.
        match events.next() {
            Some(Event::Message(Job::Do(_, number))) => self.shared.taken.push((self.index, self.start, number)),
            Some(Event::Message(Job::Who(_, reply))) => out.reply(reply, self.index),
            Some(Event::Message(Job::Fail(_))) => return Err("as it was told".into()),
            Some(Event::Message(Job::Finish(_))) => return Ok(Step::Done(())),
            Some(Event::Message(Job::Block(_, blocked))) => blocked.wait(),
            Some(Event::Cancel(_)) => return Ok(Step::Done(())),
            _ => {}
        }
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        self.shared.ends.push(self.index);
    }
}

fn by_key(n: usize, shared: &Shared) -> Router<Job> {
    Router::by_key(n, Job::key, shared.child()).supervise(|builder| builder.intensity(1_000, Duration::from_secs(5)))
}

fn in_turn(n: usize, shared: &Shared) -> Router<Job> {
    Router::in_turn(n, shared.child()).supervise(|builder| builder.intensity(1_000, Duration::from_secs(5)))
}

fn who(runtime: &Runtime, router: &Handle<Router<Job>>, key: u64) -> usize {
    block_on(runtime.ask(router, |reply| Job::Who(key, reply), Duration::MAX)).unwrap()
}

/// Asks the router to stop, and waits for it.
fn stop(runtime: &Runtime, router: &Handle<Router<Job>>) {
    runtime.cancel(router, "enough").unwrap();
    output(router);
    assert_eq!(runtime.stats().processes, 0, "the children end before their router");
    assert_accounted(runtime);
}

#[test]
fn messages_with_one_key_go_to_one_child_in_order() {
    const KEYS: u64 = 100;
    let (runtime, shared) = (runtime(2), Shared::default());
    let router = runtime.spawn(by_key(4, &shared)).unwrap();
    for number in 0..20 {
        (0..KEYS).for_each(|key| router.send(Job::Do(key, number * KEYS as u32 + key as u32)).unwrap());
    }
    let taken = shared.wait_taken(2_000);
    let of_key = |key: u32| taken.iter().filter(move |(_, _, number)| number % KEYS as u32 == key);
    for key in 0..KEYS as u32 {
        let numbers: Vec<u32> = of_key(key).map(|(_, _, number)| *number).collect();
        assert_eq!(numbers, (0..20).map(|n| n * KEYS as u32 + key).collect::<Vec<_>>());
        let index = of_key(key).next().unwrap().0;
        assert!(of_key(key).all(|(other, _, _)| *other == index), "key {key} has one child");
        assert_eq!(who(&runtime, &router, key.into()), index, "the reply comes from that child");
    }
    for index in 0..4 {
        let keys = (0..KEYS as u32).filter(|key| of_key(*key).next().unwrap().0 == index).count();
        assert!((10..=40).contains(&keys), "child {index} has {keys} keys");
    }
    stop(&runtime, &router);
    let mut ends = shared.ends.take();
    assert_eq!(ends, [3, 2, 1, 0], "in the reverse order of their start");
    ends.clear();
}

#[test]
fn messages_go_to_the_children_in_turn() {
    let (runtime, shared) = (runtime(1), Shared::default());
    let router = runtime.spawn(in_turn(3, &shared)).unwrap();
    (0..9).for_each(|number| router.send(Job::Do(0, number)).unwrap());
    let mut taken = shared.wait_taken(9);
    taken.sort_by_key(|(_, _, number)| *number);
    assert_eq!(taken.iter().map(|(index, _, _)| *index).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    stop(&runtime, &router);
}

#[test]
fn messages_wait_until_all_children_have_started() {
    struct Slow(Child, Blocked);
    impl Process for Slow {
        type Message = Job;
        type Output = ();
        fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
            self.1.wait();
            Ok(())
        }
        fn step(&mut self, events: &mut Events<'_, Job>, out: &mut StepOutput) -> StepResult<()> {
            self.0.step(events, out)
        }
    }
    // Some are there before the first step of the router, and some come while the child starts.
    for (before, meanwhile) in [(300, 0), (300, 300)] {
        let (runtime, shared, blocker) = (runtime(1), Shared::default(), Blocker::new());
        let (make, blocked) = (shared.child(), blocker.blocked());
        let (holder, held) = hold_up(&runtime);
        let router = runtime.spawn(Router::in_turn(1, move |index| Slow(make(index), blocked.clone()))).unwrap();
        (0..before).for_each(|number| router.send(Job::Do(0, number)).unwrap());
        held.release();
        blocker.wait_begun();
        (before..before + meanwhile).for_each(|number| router.send(Job::Do(0, number)).unwrap());
        assert_eq!(shared.taken.len(), 0);
        blocker.release();
        let all = before + meanwhile;
        let numbers: Vec<u32> = shared.wait_taken(all as usize).iter().map(|(_, _, number)| *number).collect();
        assert_eq!(numbers, (0..all).collect::<Vec<_>>());
        runtime.cancel(&router, "enough").unwrap();
        output(&router);
        output(&holder);
    }
}

#[test]
fn a_child_that_fails_keeps_its_keys_and_its_messages() {
    let (runtime, shared) = (runtime(2), Shared::default());
    let router = runtime.spawn(by_key(3, &shared)).unwrap();
    let before: Vec<usize> = (0..30).map(|key| who(&runtime, &router, key)).collect();
    let index = before[0];
    let blocker = Blocker::new();
    router.send(Job::Block(0, blocker.blocked())).unwrap();
    blocker.wait_begun();
    // All of these wait in the mailbox of the child, also over its two failures.
    router.send(Job::Do(0, 1)).unwrap();
    router.send(Job::Fail(0)).unwrap();
    router.send(Job::Do(0, 2)).unwrap();
    router.send(Job::Fail(0)).unwrap();
    router.send(Job::Do(0, 3)).unwrap();
    blocker.release();
    assert_eq!(shared.wait_taken(3), [(index, 0, 1), (index, 1, 2), (index, 2, 3)]);
    let after: Vec<usize> = (0..30).map(|key| who(&runtime, &router, key)).collect();
    assert_eq!(before, after);
    stop(&runtime, &router);
    let dead = runtime.stats().messages;
    assert_eq!(dead.dead(), 2, "the two messages at which the child has failed");
}

#[test]
fn a_child_that_is_done_is_replaced_under_its_index() {
    let watcher = Watcher::new();
    let (runtime, shared) = (builder().workers(1).observer(watcher.clone()).start().unwrap(), Shared::default());
    let router = runtime.spawn(by_key(3, &shared)).unwrap();
    let index = who(&runtime, &router, 0);
    router.send(Job::Finish(0)).unwrap();
    until("the next process is there", || runtime.is_idle() && shared.starts.len() == 4);
    assert_eq!(who(&runtime, &router, 0), index);
    router.send(Job::Do(0, 1)).unwrap();
    assert_eq!(shared.wait_taken(1), [(index, 1, 1)]);
    assert_eq!(watcher.dead.len(), 0);
    stop(&runtime, &router);
}

/// The only child that is left takes all messages, while the next process of the other one waits for its delay.
#[test]
fn a_child_without_a_process_has_no_turn() {
    use procession::supervisor::Backoff;
    let clock = procession::clock::ManualClock::new();
    let watcher = Watcher::new();
    let options = |builder: RuntimeBuilder| builder.workers(1).clock(clock.clock()).observer(watcher.clone());
    let (runtime, shared) = (options(builder()).start().unwrap(), Shared::default());
    let hour = Duration::from_secs(3_600);
    let delayed = |router: Router<Job>| {
        router.supervise(move |builder| builder.backoff(Backoff::exponential(hour, hour).jitter(0.0)))
    };
    let router = runtime.spawn(delayed(Router::in_turn(2, shared.child()))).unwrap();
    assert_eq!(who(&runtime, &router, 0), 0);
    assert_eq!(who(&runtime, &router, 0), 1);
    router.send(Job::Finish(0)).unwrap();
    until("it has ended", || runtime.is_idle() && shared.ends.len() == 1);
    (0..4).for_each(|number| router.send(Job::Do(0, number)).unwrap());
    assert!(shared.wait_taken(4).iter().all(|(index, _, _)| *index == 1));
    clock.advance(hour);
    until("the next process is there", || runtime.is_idle() && shared.starts.len() == 3);
    let mut turns = [0, 1].map(|_| who(&runtime, &router, 0));
    turns.sort_unstable();
    assert_eq!(turns, [0, 1]);
    // By key there is no other child, so these are dead letters.
    let keyed = runtime.spawn(delayed(Router::by_key(1, Job::key, shared.child()))).unwrap();
    assert_eq!(who(&runtime, &keyed, 0), 0);
    keyed.send(Job::Finish(0)).unwrap();
    until("it has ended", || runtime.is_idle() && shared.ends.len() == 2);
    keyed.send(Job::Do(0, 9)).unwrap();
    let asked = block_on(runtime.ask(&keyed, |reply| Job::Who(0, reply), Duration::MAX));
    assert!(matches!(asked, Err(CommandError::Dropped)), "{asked:?}");
    let dead: Vec<_> = watcher.dead.take().into_iter().map(|(_, from, reason)| (from, reason)).collect();
    assert_eq!(dead, [(Some(keyed.pid()), DeadLetterReason::NoSuchName); 2]);
    runtime.cancel(&keyed, "enough").unwrap();
    output(&keyed);
    stop(&runtime, &router);
}

#[test]
fn a_full_child_loses_its_own_messages_only() {
    let watcher = Watcher::new();
    let (runtime, shared) = (builder().workers(2).observer(watcher.clone()).start().unwrap(), Shared::default());
    let router = in_turn(2, &shared).options(|_| SpawnOptions::new().mailbox(4, Overflow::Refuse));
    let router = runtime.spawn(router).unwrap();
    let blocker = Blocker::new();
    router.send(Job::Block(0, blocker.blocked())).unwrap();
    blocker.wait_begun();
    // The first child has room for four of its ten. The other one takes all of its ten, one after the other.
    for number in 0..10 {
        router.send(Job::Do(0, 2 * number)).unwrap();
        router.send(Job::Do(0, 2 * number + 1)).unwrap();
        until("the free child has taken it", || shared.taken.len() == number as usize + 1);
    }
    until("the rest is refused", || watcher.dead.len() == 6);
    blocker.release();
    shared.wait_taken(14);
    assert!(
        watcher
            .dead
            .take()
            .iter()
            .all(|(_, from, reason)| { (*from, *reason) == (Some(router.pid()), DeadLetterReason::Full) })
    );
    stop(&runtime, &router);
}

#[test]
fn a_router_whose_supervisor_gives_up_fails_with_its_error() {
    let (runtime, shared) = (runtime(1), Shared::default());
    let router = Router::in_turn(2, shared.child()).supervise(|builder| builder.intensity(1, Duration::from_secs(5)));
    let router = runtime.spawn(router).unwrap();
    (0..2).for_each(|_| router.send(Job::Fail(0)).unwrap());
    let Exit::Failed(failure) = join(&router) else { panic!("it fails") };
    assert!(failure.to_string().contains("too many restarts"), "{failure}");
    until("the children are gone", || runtime.stats().processes == 0);
    let none = runtime.spawn(Router::in_turn(0, shared.child())).unwrap();
    let Exit::Failed(failure) = join(&none) else { panic!("it fails") };
    assert!(failure.to_string().contains("a router with 0 children"), "{failure}");
    assert!(!SupervisorError::TooManyRestarts { restarts: vec![] }.to_string().is_empty());
}

#[test]
fn the_children_of_a_router_end_with_it_however_it_ends() {
    let (runtime, shared) = (runtime(2), Shared::default());
    let router = runtime.spawn(by_key(3, &shared).shutdown(Shutdown::AtOnce)).unwrap();
    who(&runtime, &router, 0);
    assert!(runtime.terminate(&router).unwrap());
    assert!(matches!(join(&router), Exit::Terminated(Reason::Terminated)));
    until("the children are gone", || runtime.stats().processes == 0);
    assert_eq!(shared.ends.len(), 3);
    // The process to which it is linked fails.
    let router = Log::new();
    let (spawned, child) = (router.clone(), shared.child());
    let mut child = Some(child);
    let parent = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(child) = child.take() {
            let options = SpawnOptions::new().link();
            spawned.push(out.spawn_with(Router::in_turn(2, child), options)?.pid());
        }
        if events.any(|event| matches!(event, Event::Message(()))) {
            return Err("as it was told".into());
        }
        Ok(Step::<()>::Idle)
    });
    let parent = runtime.spawn(parent).unwrap();
    until("the router is up", || runtime.is_idle() && runtime.stats().processes == 5);
    let watcher = runtime.watch(router.take()[0]);
    parent.send(()).unwrap();
    assert!(matches!(wait(watcher).exit, Exit::Failed(_)));
    until("all are gone", || runtime.stats().processes == 0);
}

#[test]
fn a_router_that_is_asked_to_stop_while_it_starts_stops() {
    for _ in 0..50 {
        let (runtime, shared) = (runtime(2), Shared::default());
        let router = runtime.spawn(by_key(5, &shared)).unwrap();
        (0..10).for_each(|number| router.send(Job::Do(number, 1)).unwrap());
        stop(&runtime, &router);
        assert_eq!(shared.starts.len(), shared.ends.len());
    }
}

/// Otherwise each message would make it look at all the messages before, which it will not pass on.
#[test]
fn a_router_that_ends_is_not_stepped_for_messages() {
    let shared = Shared::default();
    let mut driver = Driver::builder().step_events(1).build(by_key(2, &shared));
    driver.run();
    driver.cancel("enough").run();
    let before = driver.steps();
    (0..100).for_each(|number| _ = driver.message(Job::Do(number, 1)).run());
    assert_eq!(driver.steps(), before);
}

/// The children of the failed router end, and the next router has its own.
#[test]
fn a_router_is_restarted_in_place_with_new_children() {
    use procession::supervisor::{ChildSpec, Supervisor};
    let (runtime, shared) = (runtime(2), Shared::default());
    let make = shared.clone();
    let spec = ChildSpec::in_place("router", move || {
        let key = |job: &Job| if let Job::Do(_, 0) = job { panic!("on purpose") } else { job.key() };
        Router::by_key(3, key, make.child())
    });
    let supervisor = Supervisor::builder().child(spec.options(|| SpawnOptions::new().name("router"))).build().unwrap();
    let supervisor = runtime.spawn(supervisor).unwrap();
    until("the router is up", || runtime.is_idle() && runtime.stats().processes == 6);
    let pid = runtime.whereis("router");
    runtime.send("router", Job::Do(1, 0)).unwrap();
    runtime.send("router", Job::Do(1, 1)).unwrap();
    assert_eq!(shared.wait_taken(1).len(), 1);
    until("the old children have ended", || runtime.is_idle() && runtime.stats().processes == 6);
    assert_eq!(runtime.whereis("router"), pid);
    assert_eq!((shared.starts.len(), shared.ends.len()), (6, 3));
    runtime.cancel(&supervisor, "enough").unwrap();
    join(&supervisor);
    assert_eq!(runtime.stats().processes, 0);
}
