//! Unique names on a node that votes alone, with real workers and a manual clock.

use std::time::Duration;

use super::Node;
use super::net::{Actor, Order, Seen};
use crate::clock::ManualClock;
use crate::cluster::lives::Life;
use crate::cluster::unique::UniqueClaimEnd;
use crate::cluster::wire::Wire;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason};
use crate::primitives::{Arc, lock};
use crate::process::{Step, StepOutput};
use crate::runtime::{Handle, Runtime};
use crate::wait::until;

const SECOND: Duration = Duration::from_secs(1);

struct Alone {
    clock: ManualClock,
    runtime: Runtime,
    node: Arc<Node>,
}

impl Alone {
    fn new() -> Alone {
        let clock = ManualClock::new();
        let runtime = Runtime::builder().clock(clock.clock()).workers(1).start().unwrap();
        let (wire, voters) = (Wire::new().message::<Order>(), ["a".to_string()]);
        let node = Arc::new(Node::with_voters(Life::Node(1), ("a", &voters), wire, runtime.core()).unwrap());
        assert!(runtime.core().road.nodes.set(node.clone()).is_ok());
        clock.advance(5 * SECOND);
        Alone { clock, runtime, node }
    }

    fn spawn(&self) -> (Handle<Actor>, Seen) {
        let seen = Seen::default();
        (self.runtime.spawn(Actor { seen: seen.clone(), recovers: true, kept: Vec::new() }).unwrap(), seen)
    }
}

#[test]
fn a_process_has_the_name_when_the_step_that_it_is_in_is_over() {
    let alone = Alone::new();
    let Alone { runtime, node, .. } = &alone;
    let (process, _) = alone.spawn();
    let (begun, go_on) = (Latch::new(), Latch::new());
    let waits = (begun.clone(), go_on.clone());
    let job = move |_: &mut _| {
        let _ = waits.0.set(());
        waits.1.wait();
        Ok(Step::Idle)
    };
    runtime.send(&process, Order::Do(Box::new(job))).unwrap();
    begun.wait();
    let claim = node.unique().claim(runtime.core(), "n", process.pid()).unwrap();
    // The voter has granted, and the worker has the body.
    assert_eq!((claim.token(), claim.end(), node.groups().unique_holder("n")), (None, None, None));
    let _ = go_on.set(());
    until("it has the name", || claim.token().is_some());
    assert_eq!(node.groups().unique_holder("n"), Some(process.pid()));
    assert_eq!(node.unique().claim(runtime.core(), "n", process.pid()).unwrap().token(), claim.token());
    runtime.terminate(&process).unwrap();
    until("the claim ends", || claim.end() == Some(UniqueClaimEnd::Released));
    assert_eq!(node.groups().unique_holder("n"), None);
}

#[test]
fn a_process_that_has_lost_its_name_is_not_stepped_though_not_told() {
    let alone = Alone::new();
    let Alone { clock, runtime, node } = &alone;
    let (process, seen) = alone.spawn();
    let (other, other_seen) = alone.spawn();
    let claim = node.unique().claim(runtime.core(), "n", process.pid()).unwrap();
    until("it has the name", || claim.token().is_some());
    // Nothing renews the lease, and nothing terminates the process.
    let _timers = runtime.core().timers.halt();
    clock.advance(SECOND);
    runtime.send(&process, Order::Note(1)).unwrap();
    until("the lease is good", || lock(&seen).len() == 1);
    clock.advance(60 * SECOND);
    runtime.send(&process, Order::Note(2)).unwrap();
    let exit = process.join_timeout(Duration::MAX).unwrap();
    assert!(matches!(exit, Exit::Terminated(Reason::NameLost)), "{exit}");
    assert_eq!(*lock(&seen), ["note 1"]);
    runtime.send(&other, Order::Note(3)).unwrap();
    until("the other one has no name to lose", || *lock(&other_seen) == ["note 3"]);
}

#[test]
fn a_state_machine_that_replaces_another_has_its_lease() {
    let alone = Alone::new();
    let Alone { clock, runtime, node } = &alone;
    let (process, seen) = alone.spawn();
    let claim = node.unique().claim(runtime.core(), "n", process.pid()).unwrap();
    until("it has the name", || claim.token().is_some());
    let _timers = runtime.core().timers.halt();
    let moves = clock.clone();
    let fails = move |_: &mut _| {
        moves.advance(60 * SECOND);
        Err("it fails, and recovers".into())
    };
    runtime.send(&process, Order::Do(Box::new(fails))).unwrap();
    runtime.send(&process, Order::Note(1)).unwrap();
    let exit = process.join_timeout(Duration::MAX).unwrap();
    assert!(matches!(exit, Exit::Terminated(Reason::NameLost)), "{exit}");
    assert!(lock(&seen).is_empty());
}

#[test]
fn a_future_of_a_step_that_has_outlasted_the_lease_is_not_polled() {
    let alone = Alone::new();
    let Alone { clock, runtime, node } = &alone;
    let (process, _) = alone.spawn();
    let claim = node.unique().claim(runtime.core(), "n", process.pid()).unwrap();
    until("it has the name", || claim.token().is_some());
    let _timers = runtime.core().timers.halt();
    let (moves, polled) = (clock.clone(), Latch::new());
    let poll = polled.clone();
    let lasts = move |out: &mut StepOutput| {
        moves.advance(60 * SECOND);
        out.future(async move { poll.set(()).is_ok() });
        Ok(Step::Idle)
    };
    runtime.send(&process, Order::Do(Box::new(lasts))).unwrap();
    let exit = process.join_timeout(Duration::MAX).unwrap();
    assert!(matches!(exit, Exit::Terminated(Reason::NameLost)), "{exit}");
    assert!(!polled.is_set());
}

#[test]
fn a_node_has_a_limit_of_claims_and_none_is_left_behind() {
    let alone = Alone::new();
    let Alone { runtime, node, .. } = &alone;
    let (process, _) = alone.spawn();
    let claim = |name: usize| node.unique().claim(runtime.core(), &name.to_string(), process.pid());
    let claims: Vec<_> = (0..1_024).map(|name| claim(name).unwrap()).collect();
    let refused = claim(1_024).unwrap_err();
    let limit = "this node has 1024 claims to unique names, which is the limit: release one, or claim on another node";
    assert_eq!(refused.to_string(), limit);
    until("it has all names", || claims.iter().all(|claim| claim.token().is_some()));
    runtime.terminate(&process).unwrap();
    until("all claims end", || claims.iter().all(|claim| claim.end().is_some()));
    let (process, _) = alone.spawn();
    let claim = node.unique().claim(runtime.core(), "0", process.pid()).unwrap();
    until("it has the name", || claim.token().is_some());
    node.unique().left();
    assert_eq!(claim.end(), Some(UniqueClaimEnd::Released));
    assert!(node.unique().claim(runtime.core(), "0", process.pid()).is_err());
}
