//! `Snapshot::to_openmetrics`.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::{ExitCounts, Snapshot};
use procession::{BoxError, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::node::*;
use crate::parser::Metrics;

/// Its name needs escapes. Each step takes some time.
struct Odd(ManualClock);

impl Process for Odd {
    type Message = u64;
    type Output = ();

    fn type_name() -> &'static str {
        "odd \"type\",\nwith a \\ in it}"
    }

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(procession::Event::Message(nanos)) = events.next() {
            self.0.advance(Duration::from_nanos(nanos));
            out.count("odd \"name\"", 5);
        }
        Ok(Step::Idle)
    }
}

/// A program that has done a little of everything.
pub fn program() -> (Runtime, ManualClock) {
    let manual = ManualClock::new();
    let runtime = measured().workers(2).clock(manual.clock()).start().unwrap();
    let odd = runtime.spawn(Odd(manual.clone())).unwrap();
    for nanos in [500, 1_023, 1_024, 1_000_000, 3_000_000_000, 20_000_000_000] {
        runtime.send(odd.address(), nanos).unwrap();
        until("it is done", || runtime.is_idle());
    }
    let node = runtime.spawn(Node::<1> { recovers: true }).unwrap();
    let nobody = "<0.900.1>".parse().unwrap();
    for order in
        [Order::Fail, Order::Become, Order::Count(9), Order::Tell(nobody, Box::new(Order::Nothing)), Order::Rest]
    {
        runtime.send(node.address(), order).unwrap();
        until("it is done", || runtime.is_idle());
    }
    (0..3).for_each(|_| runtime.send(node.address(), Order::Nothing).unwrap());
    let fails = script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Err::<Step<()>, BoxError>("it fails".into()));
    join(&runtime.spawn(fails).unwrap());
    manual.advance(Duration::from_millis(1_500));
    (runtime, manual)
}

fn assert_exits(metrics: &Metrics, name: &str, labels: &[(&str, &str)], ended: ExitCounts) {
    let ExitCounts { done, failed, panicked, terminated } = ended;
    for (how, count) in [("done", done), ("failed", failed), ("panicked", panicked), ("terminated", terminated)] {
        assert_eq!(metrics.value(name, &[labels, &[("how", how)]].concat()), count as f64);
    }
}

fn is_about(value: f64, duration: Duration) -> bool {
    (value - duration.as_secs_f64()).abs() < 1e-9
}

#[test]
fn a_parser_reads_the_text_back_figure_for_figure() {
    let (runtime, _manual) = program();
    let snapshot = quiet(&runtime);
    let metrics = Metrics::parse(&snapshot.to_openmetrics());
    let Snapshot { stats, types, uptime, .. } = &snapshot;
    let plain = |name, value: u64| assert_eq!(metrics.value(name, &[]), value as f64, "{name}");
    assert!(is_about(metrics.value("procession_uptime_seconds", &[]), *uptime));
    plain("procession_processes", stats.processes);
    plain("procession_spawned_total", stats.spawned);
    assert_exits(&metrics, "procession_ended_total", &[], stats.ended);
    plain("procession_messages_total", stats.messages.stepped);
    plain("procession_messages_waiting", stats.messages.queued);
    let dead = |reason| metrics.value("procession_dead_letters_total", &[("reason", reason)]);
    assert_eq!((dead("no_such_process"), dead("step_failed"), dead("ended")), (1.0, 1.0, 0.0));
    plain("procession_discarded_answers_total", stats.discarded_answers);
    plain("procession_late_replies_total", stats.late_replies);
    plain("procession_timers", stats.timers as u64);
    plain("procession_global_queue", stats.global_queue as u64);
    plain("procession_blocking_queue", stats.blocking_queue as u64);
    plain("procession_spare_workers", 0);
    plain("procession_steps_elsewhere_total", stats.steps_elsewhere);
    plain("procession_stuck_steps_total", 0);
    plain("procession_stuck_now", 0);
    for (number, worker) in stats.workers.iter().enumerate() {
        let number = number.to_string();
        let value = |name| metrics.value(name, &[("worker", &number)]);
        assert_eq!(value("procession_worker_steps_total"), worker.steps as f64);
        assert_eq!(value("procession_worker_messages_total"), worker.messages as f64);
        assert_eq!(value("procession_worker_stolen_total"), worker.stolen as f64);
        assert_eq!(value("procession_worker_parked_total"), worker.parked as f64);
        assert_eq!(value("procession_worker_queue"), worker.queue as f64);
        assert!(is_about(value("procession_worker_busy_seconds_total"), worker.busy.unwrap()));
        assert!(is_about(value("procession_worker_asleep_seconds_total"), worker.asleep.unwrap()));
    }
    assert_eq!(types.len(), 4);
    for one in types {
        let labels = [("type", &one.type_name[..])];
        let value = |name| metrics.value(name, &labels);
        assert_eq!(value("procession_type_processes"), one.living as f64);
        assert_eq!(value("procession_type_spawned_total"), one.spawned as f64);
        assert_exits(&metrics, "procession_type_ended_total", &labels, one.ended);
        assert_eq!(value("procession_type_recovered_total"), one.recovered as f64);
        assert_eq!(value("procession_type_became_total"), one.became as f64);
        assert_eq!(value("procession_type_left_total"), one.left as f64);
        assert_eq!(value("procession_type_steps_total"), one.steps as f64);
        assert_eq!(value("procession_type_messages_total"), one.messages as f64);
        assert_eq!(value("procession_type_dead_letters_total"), one.dead as f64);
        assert_eq!(value("procession_type_messages_waiting"), one.waiting as f64);
        let longest = one.longest.map_or(0, |longest| longest.messages);
        assert_eq!(value("procession_type_longest_mailbox"), longest as f64);
        assert_eq!(value("procession_type_step_seconds_count"), one.step_times.count as f64);
        assert!(is_about(value("procession_type_step_seconds_sum"), one.step_times.sum));
        assert_eq!(value("procession_type_wait_seconds_count"), one.wait_times.count as f64);
        assert!(is_about(value("procession_type_wait_seconds_sum"), one.wait_times.sum));
        for (name, count) in &one.counted {
            let labels = [("type", &one.type_name[..]), ("name", name)];
            assert_eq!(metrics.value("procession_type_counted_total", &labels), *count as f64);
        }
    }
    assert_eq!(metrics.0["procession_type_counted"].samples.len(), 2);
}

#[test]
fn a_histogram_has_at_most_24_buckets_and_its_bounds_are_exact() {
    let (runtime, _manual) = program();
    let metrics = Metrics::parse(&quiet(&runtime).to_openmetrics());
    let family = &metrics.0["procession_type_step_seconds"];
    let of_odd =
        |sample: &&crate::parser::Sample| sample.name.ends_with("_bucket") && sample.labels["type"] == Odd::type_name();
    let buckets: Vec<(f64, u64)> = family
        .samples
        .iter()
        .filter(of_odd)
        .map(|sample| (sample.labels["le"].replace('+', "").parse().unwrap(), sample.value.parse().unwrap()))
        .collect();
    assert_eq!(buckets.len(), 24);
    assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1));
    // The first step takes no time. Each of the others is in the first bucket whose bound is not less.
    let mut times =
        [0_u64, 500, 1_023, 1_024, 1_000_000, 3_000_000_000, 20_000_000_000].map(|nanos| nanos as f64 / 1e9);
    times.sort_by(f64::total_cmp);
    for (bound, count) in buckets {
        assert_eq!(times.iter().filter(|time| **time <= bound).count() as u64, count, "{bound}");
    }
}
