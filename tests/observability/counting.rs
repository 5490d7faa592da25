//! `StepOutput::count`.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use procession::command::Retry;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::testing::Driver;
use procession::{BoxError, Events, Process, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::node::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Counts, and then fails if the message says so.
struct Till;

impl Process for Till {
    type Message = bool;
    type Output = ();

    fn type_name() -> &'static str {
        "till"
    }

    fn step(&mut self, events: &mut Events<'_, bool>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let procession::Event::Message(fails) = event {
                out.count("sold", 2);
                out.count("visits", 1);
                if fails {
                    return Err("the drawer is stuck".into());
                }
            }
        }
        Ok(Step::Idle)
    }
}

fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(name, count)| ((*name).to_string(), *count)).collect()
}

#[test]
fn a_step_that_succeeds_counts_and_a_step_that_fails_does_not() {
    let runtime = measured().workers(2).start().unwrap();
    let tills: Vec<_> = (0..4).map(|_| runtime.spawn(Till).unwrap()).collect();
    tills.iter().for_each(|till| (0..5).for_each(|_| runtime.send(till.address(), false).unwrap()));
    until("all are stepped", || runtime.is_idle());
    tills.iter().for_each(|till| runtime.send(till.address(), true).unwrap());
    tills.iter().for_each(|till| drop(join(till)));
    let node = runtime.spawn(Node::<0> { recovers: false }).unwrap();
    runtime.send(node.address(), Order::Count(7)).unwrap();
    let snapshot = quiet(&runtime);
    assert_eq!(of_type(&snapshot, "till").counted, counts(&[("sold", 40), ("visits", 20)]));
    assert_eq!(of_type(&snapshot, "node 0").counted, counts(&[("orders", 7)]));
}

/// Counts in `start`, which may fail.
struct Starts(bool);

impl Process for Starts {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        "starts"
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.count("started", 1);
        if self.0 { Err("it cannot start".into()) } else { Ok(()) }
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Err("the step fails".into())
    }
}

#[test]
fn a_start_that_succeeds_counts_even_if_the_first_step_fails() {
    let runtime = measured().workers(1).start().unwrap();
    for fails in [false, true, true, false] {
        join(&runtime.spawn(Starts(fails)).unwrap());
    }
    assert_eq!(of_type(&quiet(&runtime), "starts").counted, counts(&[("started", 2)]));
}

#[test]
fn very_large_counts_of_two_threads_wrap_and_do_no_harm() {
    let runtime = measured().workers(1).start().unwrap();
    let node = runtime.spawn(Node::<0> { recovers: false }).unwrap();
    // The first step runs on the worker. The last one runs on the pool, and so has another row.
    for order in [Order::Count(u64::MAX), Order::Block, Order::Count(8)] {
        runtime.send(node.address(), order).unwrap();
    }
    let snapshot = quiet(&runtime);
    assert!(snapshot.stats.steps_elsewhere > 0);
    assert_eq!(of_type(&snapshot, "node 0").counted, counts(&[("orders", 7)]));
}

#[test]
fn names_beyond_256_count_together() {
    let runtime = measured().workers(1).start().unwrap();
    // A static, where a leak sanitizer finds them.
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| (0..300).map(|n| format!("name {n}")).collect());
    let counts = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        NAMES.iter().for_each(|name| out.count(name, 1));
        Ok::<Step<()>, BoxError>(Step::Idle)
    });
    runtime.spawn(counts).unwrap();
    let snapshot = quiet(&runtime);
    assert_eq!(snapshot.types.len(), 1);
    let counted = &snapshot.types[0].counted;
    assert_eq!((counted.len(), counted["name 0"], counted["name 255"], counted["other"]), (257, 1, 1, 44));
}

#[test]
fn supervisors_count_their_restarts() {
    let runtime = measured().workers(1).start().unwrap();
    let child = || {
        let mut steps = 0;
        script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            steps += 1;
            if steps == 1 {
                out.after(Duration::ZERO);
                return Ok(Step::Idle);
            }
            Err::<Step<()>, _>("it fails".into())
        })
    };
    let supervisor = Supervisor::builder().intensity(3, HOUR).child(ChildSpec::new("child", child)).build().unwrap();
    let supervisor = runtime.spawn(supervisor).unwrap();
    join(&supervisor);
    let snapshot = quiet(&runtime);
    let restarts: Vec<_> = snapshot.types.iter().filter_map(|one| one.counted.get("restarts")).collect();
    assert_eq!(restarts, [&3], "the fourth failure ends the supervisor");
}

#[test]
fn a_test_of_a_process_sees_its_counts() {
    let mut till = Driver::new(Till);
    till.message(false).message(false);
    till.run();
    assert_eq!((till.counted("sold"), till.counted("visits"), till.counted("returned")), (4, 2, 0));
    till.message(true);
    till.run();
    assert_eq!(till.counted("sold"), 4, "the step has failed");
}

/// Counts in its only step, and in each attempt of a command.
struct Once;

impl Process for Once {
    type Message = bool;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, bool>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let procession::Event::Message(tries) = event {
                out.count("steps", 1);
                if !tries {
                    return Ok(Step::Done(()));
                }
                out.retry(Retry::new().attempts(2), |out, _| {
                    out.count("attempts", 1);
                    out.blocking(|| ())
                });
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_test_sees_the_counts_of_a_last_step_and_not_those_of_attempts() {
    let mut once = Driver::new(Once);
    once.message(true);
    once.run();
    once.advance(HOUR);
    once.run();
    once.message(false);
    once.run();
    assert_eq!((once.counted("steps"), once.counted("attempts")), (2, 0));
}
