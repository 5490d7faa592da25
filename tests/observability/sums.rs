//! Sums at a quiet moment.

use std::sync::Arc;

use procession::config::Watchdog;
use procession::observe::{Observer, ProcessIdentity, Snapshot};
use procession::{Events, Exit, Pid, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use crate::common_sums::sums_agree;
use crate::helpers::*;
use crate::node::*;
use crate::traces::Traces;

/// Compares the sums.
#[track_caller]
fn assert_sums_agree(runtime: &Runtime, snapshot: &Snapshot) {
    sums_agree(runtime, snapshot).unwrap();
}

fn random_order(random: &mut Xoshiro256PlusPlus, pids: &[Pid]) -> Order {
    match random.random_range(0..24) {
        0 => Order::Fail,
        1 => Order::Panic,
        2 => Order::Finish,
        3 | 4 => Order::Become,
        5 => Order::Block,
        6 | 7 => Order::Count(3),
        8 | 9 => Order::Spawn,
        10 => Order::Rest,
        11..=14 => {
            let to = pids[random.random_range(0..pids.len())];
            Order::Tell(to, Box::new(random_order(random, pids)))
        }
        _ => Order::Nothing,
    }
}

#[test]
fn at_a_quiet_moment_all_sums_agree_in_total_by_type_and_by_worker() {
    let (mut dead, mut waiting, mut elsewhere) = (0, 0, 0);
    for seed in 0..25 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let runtime = measured().workers(2).start().unwrap();
        let mut pids: Vec<Pid> = vec!["<0.7.7>".parse().unwrap()];
        for n in 0..400 {
            if n % 20 == 0 {
                let recovers = random.random_range(0..2) == 0;
                let options = SpawnOptions::new();
                pids.push(match random.random_range(0..2) {
                    0 => runtime.spawn_with(Node::<0> { recovers }, options).unwrap().pid(),
                    _ => runtime.spawn_with(Node::<1> { recovers }, options).unwrap().pid(),
                });
            }
            let to = pids[random.random_range(0..pids.len())];
            match random.random_range(0..60) {
                0 => drop(runtime.terminate(to)),
                _ => drop(runtime.send(to, random_order(&mut random, &pids))),
            }
        }
        let snapshot = quiet(&runtime);
        assert_sums_agree(&runtime, &snapshot);
        dead += snapshot.types.iter().map(|one| one.dead).sum::<u64>();
        waiting += snapshot.stats.messages.queued;
        elsewhere += snapshot.stats.steps_elsewhere;
        runtime.shutdown(LIMIT).unwrap();
        assert_sums_agree(&runtime, &runtime.snapshot());
    }
    assert!(dead > 50 && waiting > 50 && elsewhere > 10, "{dead} dead, {waiting} wait, {elsewhere} steps elsewhere");
}

/// Whether a step on the pool takes a message because of this order.
fn blocks(order: &Order) -> bool {
    match order {
        Order::Block => true,
        Order::Tell(_, order) => blocks(order),
        _ => false,
    }
}

#[test]
fn of_each_message_that_a_worker_takes_the_wait_is_measured() {
    let mut measured_in_all = 0;
    for seed in 0..16 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let builder = match seed % 4 {
            1 => measured().watchdog(Watchdog::after(LIMIT)),
            3 => measured().propagate(Traces::beginning_one_in(3)),
            _ => measured(),
        };
        let runtime = builder.workers(2).start().unwrap();
        let recovers = seed / 4 % 2 == 0;
        let mut pids: Vec<Pid> = (0..10).map(|_| runtime.spawn(Node::<0> { recovers }).unwrap().pid()).collect();
        pids.extend((0..10).map(|_| runtime.spawn(Node::<1> { recovers }).unwrap().pid()));
        for _ in 0..400 {
            let (to, order) = (pids[random.random_range(0..pids.len())], random_order(&mut random, &pids));
            match random.random_range(0..30) {
                0 => drop(runtime.terminate(to)),
                _ if blocks(&order) => {}
                _ => drop(runtime.send(to, order)),
            }
        }
        let snapshot = quiet(&runtime);
        for one in &snapshot.types {
            assert_eq!(one.wait_times.count, one.messages, "{}, seed {seed}", one.type_name);
            measured_in_all += one.wait_times.count;
        }
    }
    assert!(measured_in_all > 500, "{measured_in_all}");
}

#[test]
fn spawns_of_several_threads_are_all_counted() {
    let runtime = measured().workers(1).start().unwrap();
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, barrier) = (runtime.clone(), barrier.clone());
            std::thread::spawn(move || {
                wait(&barrier);
                (0..5_000).for_each(|_| drop(runtime.spawn(Idler).unwrap()));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| wait(thread).unwrap());
    let snapshot = quiet(&runtime);
    assert_eq!(of_type(&snapshot, "idler").spawned, 20_000);
    assert_sums_agree(&runtime, &snapshot);
}

#[test]
fn dead_letters_count_for_the_type_of_their_receiver() {
    let runtime = measured().workers(1).start().unwrap();
    let fails = runtime.spawn(Node::<0> { recovers: false }).unwrap();
    runtime.send(fails.address(), Order::Fail).unwrap();
    join(&fails);
    let rests = runtime.spawn(Node::<1> { recovers: false }).unwrap();
    (0..4).for_each(|_| runtime.send(rests.address(), Order::Rest).unwrap());
    until("it rests", || runtime.is_idle());
    let waiting = runtime.process(&rests).unwrap().mailbox as u64;
    runtime.terminate(&rests).unwrap();
    join(&rests);
    // A PID that no process has had.
    let tells = runtime.spawn(Node::<1> { recovers: false }).unwrap();
    let nobody = "<0.900.1>".parse().unwrap();
    runtime.send(tells.address(), Order::Tell(nobody, Box::new(Order::Nothing))).unwrap();
    let snapshot = quiet(&runtime);
    assert_eq!(of_type(&snapshot, "node 0").dead, 1, "the failed step had taken it");
    assert_eq!(of_type(&snapshot, "node 1").dead, waiting);
    assert_eq!(snapshot.dead_without_type, 1);
    assert_sums_agree(&runtime, &snapshot);
}

/// Notes restarts in place.
struct Restarts(Log<(Pid, &'static str, String)>);

impl Observer for Restarts {
    fn restarted(&self, process: &ProcessIdentity, exit: &Exit) {
        self.0.push((process.pid, process.type_name, exit.to_string()));
    }
}

#[test]
fn a_restart_in_place_is_counted_and_told_and_may_change_the_type() {
    let told = Log::new();
    let runtime = measured().workers(1).observer(Restarts(told.clone())).start().unwrap();
    let node = runtime.spawn(Node::<0> { recovers: true }).unwrap();
    for order in [Order::Fail, Order::Panic, Order::Fail, Order::Become] {
        runtime.send(node.address(), order).unwrap();
        until("it is done", || runtime.is_idle());
    }
    let snapshot = quiet(&runtime);
    let (zero, one) = (of_type(&snapshot, "node 0"), of_type(&snapshot, "node 1"));
    assert_eq!((zero.recovered, one.recovered), (2, 1));
    assert_eq!((zero.spawned, zero.became, zero.left, zero.living), (1, 2, 2, 1));
    assert_eq!((one.spawned, one.became, one.left, one.living), (0, 2, 2, 0));
    assert_eq!(runtime.process(&node).unwrap().restarts, 3, "an upgrade is no restart");
    let told: Vec<_> =
        told.take().into_iter().map(|(pid, type_name, exit)| (pid == node.pid(), type_name, exit)).collect();
    let failed = |to| (true, to, String::from("failed: told to fail"));
    assert_eq!(told, [failed("node 1"), (true, "node 0", String::from("panicked: told to panic")), failed("node 1")]);
    assert_sums_agree(&runtime, &snapshot);
}

/// Does nothing.
struct Idler;

impl Process for Idler {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        "idler"
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.count() > 0 { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn many_named_processes_make_no_series() {
    let runtime = measured().workers(2).start().unwrap();
    let spawn = |n: usize| drop(runtime.spawn_with(Idler, SpawnOptions::new().name(format!("idler {n}"))).unwrap());
    spawn(0);
    let before = quiet(&runtime).to_openmetrics().lines().count();
    (1..100_000).for_each(spawn);
    let snapshot = quiet(&runtime);
    assert_eq!(of_type(&snapshot, "idler").living, 100_000);
    let text = snapshot.to_openmetrics();
    assert_eq!(text.lines().count(), before);
    assert!(!text.contains("idler 1"));
}

#[test]
fn without_the_option_there_are_no_figures_by_type_and_the_rest_is_there() {
    let runtime = runtime(1);
    let rests = runtime.spawn_with(resting(), SpawnOptions::new().name("rests")).unwrap();
    until("it rests", || runtime.is_idle());
    (0..3).for_each(|n| runtime.send(rests.address(), n).unwrap());
    let snapshot = runtime.snapshot();
    assert!(snapshot.types.is_empty());
    assert_eq!((snapshot.stats.workers[0].busy, snapshot.stats.workers[0].asleep), (None, None));
    assert_eq!((snapshot.stats.messages.queued, snapshot.mailboxes.len()), (3, 1));
    let largest = &snapshot.mailboxes[0];
    assert_eq!((largest.pid, largest.name.as_deref(), largest.messages), (rests.pid(), Some("rests"), 3));
}
