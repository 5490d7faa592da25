//! Figures for a recorder of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use procession::clock::ManualClock;
use procession::observe::MetricsPublisher;

use crate::helpers::*;
use crate::node::*;
use crate::openmetrics::program;
use crate::parser::Metrics;
use crate::parts::add_parts;
use crate::wait::Mutex;

type Values = Arc<Mutex<BTreeMap<String, Vec<f64>>>>;

/// Keeps all values, by series.
#[derive(Clone, Default)]
struct Keeper(Values);

/// A series of the keeper.
struct Series(Values, String);

impl Series {
    fn set(&self, value: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), vec![value]);
    }
}

impl CounterFn for Series {
    fn increment(&self, _: u64) {
        panic!("counts are absolute")
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, _: f64) {
        panic!("gauges are set")
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are set")
    }

    fn set(&self, value: f64) {
        Series::set(self, value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().entry(self.1.clone()).or_default().push(value);
    }
}

/// The name of a series, with its labels in order.
fn series(name: &str, labels: BTreeMap<&str, &str>) -> String {
    let labels: Vec<_> = labels.into_iter().map(|(label, value)| format!("{label}={value}")).collect();
    format!("{name} {}", labels.join(","))
}

impl Keeper {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key.labels().map(|label| (label.key(), label.value())).collect();
        Arc::new(Series(self.0.clone(), series(key.name(), labels)))
    }

    #[track_caller]
    fn values(&self, series: &str) -> Vec<f64> {
        let values = self.0.lock().unwrap().get(series).cloned();
        values.unwrap_or_else(|| panic!("there is no {series:?}"))
    }
}

impl Recorder for Keeper {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

#[test]
fn the_figures_arrive_in_a_recorder_as_absolute_counts() {
    let manual = ManualClock::new();
    let runtime = measured().workers(1).clock(manual.clock()).start().unwrap();
    let node = runtime.spawn(Node::<0> { recovers: true }).unwrap();
    let (keeper, mut publisher) = (Keeper::default(), MetricsPublisher::new());
    for round in 1..=3 {
        (0..5).for_each(|_| runtime.send(node.address(), Order::Count(2)).unwrap());
        until("all is stepped", || runtime.is_idle());
        manual.advance(Duration::from_millis(250));
        let snapshot = quiet(&runtime);
        assert!(metrics::with_local_recorder(&keeper, || publisher.publish(&snapshot)));
        let value = |series| keeper.values(series);
        let rounds = f64::from(round);
        assert_eq!(value("procession_type_messages type=node 0"), [5.0 * rounds]);
        assert_eq!(value("procession_type_counted name=orders,type=node 0"), [10.0 * rounds]);
        assert_eq!(value("procession_processes "), [1.0]);
        assert_eq!(value("procession_uptime_seconds "), [0.25 * rounds]);
        assert_eq!(value("procession_worker_asleep_seconds worker=0"), [0.25 * rounds]);
        // Each time is recorded once.
        let steps = snapshot.types[0].steps as usize;
        assert_eq!(value("procession_type_step_seconds type=node 0"), vec![0.0; steps]);
        assert_eq!(value("procession_type_wait_seconds type=node 0"), vec![0.0; 5 * round as usize]);
    }
}

#[test]
fn each_figure_of_the_text_arrives_in_a_recorder() {
    let (runtime, _manual) = program();
    let snapshot = add_parts(quiet(&runtime));
    let keeper = Keeper::default();
    assert!(metrics::with_local_recorder(&keeper, || MetricsPublisher::new().publish(&snapshot)));
    let mut arrived = std::mem::take(&mut *keeper.0.lock().unwrap());
    for (name, family) in Metrics::parse(&snapshot.to_openmetrics()).0 {
        for sample in family.samples {
            let labels = sample.labels.iter().map(|(label, value)| (&label[..], &value[..]));
            let key = series(&name, labels.filter(|(label, _)| *label != "le").collect());
            if family.kind == "histogram" {
                if sample.name.ends_with("_count") {
                    let times = arrived.remove(&key).map_or(0, |times| times.len());
                    assert_eq!(times.to_string(), sample.value, "{key}");
                }
                continue;
            }
            let value = arrived.remove(&key).unwrap_or_else(|| panic!("there is no {key}"));
            let expected: f64 = sample.value.parse().unwrap();
            assert!(value.len() == 1 && (value[0] - expected).abs() < 1e-9, "{key}: {value:?}, {expected} in the text");
        }
    }
    assert!(arrived.is_empty(), "not in the text: {arrived:?}");
}

/// Panics at each value.
struct Bomb;

impl Recorder for Bomb {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        panic!("no counters")
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("no gauges")
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("no histograms")
    }
}

#[test]
fn a_recorder_that_panics_is_contained() {
    let runtime = measured().workers(1).start().unwrap();
    let node = runtime.spawn(Node::<0> { recovers: false }).unwrap();
    let mut publisher = MetricsPublisher::new();
    let snapshot = quiet(&runtime);
    // The panic hook is silent for threads of the library's names only.
    let bombed = std::thread::Builder::new().name("procession-test".into()).spawn(move || {
        let bombed = metrics::with_local_recorder(&Bomb, || publisher.publish(&snapshot));
        (bombed, metrics::with_local_recorder(&Keeper::default(), || publisher.publish(&snapshot)))
    });
    assert_eq!(wait(bombed.unwrap()).unwrap(), (false, true));
    assert!(runtime.is_alive(&node));
}
