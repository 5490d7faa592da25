//! Times of steps and of workers.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::BuildError;
use procession::observe::MetricsOptions;
use procession::{Event, Events, Process, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::node::*;

/// Each message moves the clock.
struct Mover(ManualClock);

impl Process for Mover {
    type Message = Duration;
    type Output = ();

    fn type_name() -> &'static str {
        "mover"
    }

    fn step(&mut self, events: &mut Events<'_, Duration>, _: &mut StepOutput) -> StepResult<()> {
        if let Some(Event::Message(by)) = events.next() {
            self.0.advance(by);
        }
        Ok(Step::Idle)
    }
}

#[test]
fn with_every_step_timed_and_a_manual_clock_the_buckets_are_exact() {
    let manual = ManualClock::new();
    let runtime = measured().workers(1).clock(manual.clock()).start().unwrap();
    let mover = runtime.spawn(Mover(manual)).unwrap();
    until("its first step is over", || runtime.is_idle());
    let times = [3, 100, 100, 1_000_000, 1_000_000, 1_000_000, 7_000_000_000].map(Duration::from_nanos);
    for time in times {
        runtime.send(mover.address(), time).unwrap();
        until("the step is over", || runtime.is_idle());
    }
    let snapshot = quiet(&runtime);
    let histogram = &of_type(&snapshot, "mover").step_times;
    // Its first step had no message.
    assert_eq!((histogram.count, histogram.sum), (8, times.iter().sum()));
    let counts: Vec<u64> = histogram.buckets.iter().map(|bucket| bucket.count).collect();
    assert_eq!(counts, [1, 1, 2, 3, 1]);
    for (bucket, time) in histogram.buckets.iter().zip([0, 3, 100, 1_000_000, 7_000_000_000]) {
        let time = Duration::from_nanos(time);
        assert!(bucket.from <= time && time <= bucket.to, "{time:?} is in {bucket:?}");
    }
    assert_eq!(histogram.quantile(0.25), Some(Duration::from_nanos(3)));
    let longest = histogram.quantile(1.0).unwrap().as_secs_f64();
    assert!((longest / 7.0 - 1.0).abs() < 0.15, "{longest}");
}

#[test]
fn by_default_about_one_step_in_16_is_timed() {
    let runtime = builder().workers(1).metrics(MetricsOptions::new()).start().unwrap();
    let node = runtime.spawn(Node::<0> { recovers: false }).unwrap();
    for _ in 0..200 {
        (0..20).for_each(|_| runtime.send(node.address(), Order::Become).unwrap());
        until("all are stepped", || runtime.is_idle());
    }
    let snapshot = quiet(&runtime);
    let steps: u64 = snapshot.types.iter().map(|one| one.steps).sum();
    let timed: u64 = snapshot.types.iter().map(|one| one.step_times.count).sum();
    assert!(steps > 4_000, "{steps}");
    assert!((steps / 20..steps / 13).contains(&timed), "{timed} of {steps}");
}

#[test]
fn the_work_and_the_sleep_of_a_worker_add_up_to_its_life() {
    let manual = ManualClock::new();
    let runtime = measured().workers(2).clock(manual.clock()).start().unwrap();
    let all_sleep = || until("all sleep", || runtime.is_idle());
    all_sleep();
    manual.advance(Duration::from_secs(10));
    let times = || {
        let snapshot = runtime.snapshot();
        let workers = snapshot.stats.workers.iter();
        let mut times: Vec<_> = workers.map(|worker| (worker.busy.unwrap(), worker.asleep.unwrap())).collect();
        assert!(times.iter().all(|(busy, asleep)| *busy + *asleep == snapshot.uptime), "{times:?}");
        times.sort_unstable();
        times.into_iter().map(|(busy, asleep)| (busy.as_secs(), asleep.as_secs())).collect::<Vec<_>>()
    };
    assert_eq!(times(), [(0, 10), (0, 10)]);
    let mover = runtime.spawn(Mover(manual.clone())).unwrap();
    all_sleep();
    runtime.send(mover.address(), Duration::from_secs(3)).unwrap();
    all_sleep();
    assert_eq!(times(), [(0, 13), (3, 10)]);
    // The sleep that lasts is shown.
    manual.advance(Duration::from_secs(5));
    assert_eq!(times(), [(0, 18), (3, 15)]);
}

#[test]
fn a_number_of_steps_out_of_range_is_refused() {
    for steps in [0, (1 << 20) + 1] {
        let refused = builder().metrics(MetricsOptions::new().time_one_in(steps)).start();
        assert!(matches!(refused, Err(BuildError::OutOfRange { option: "time_one_in", given, .. }) if given == steps));
    }
}
