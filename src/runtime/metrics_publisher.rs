//! Figures for the recorder of the crate `metrics`.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit};

use super::figure_list::{Family, FigureKind, Labels, Sink, Value, write};
use super::snapshot::Snapshot;
use crate::outcome::{contain, tell_log};

/// Gives the figures of snapshots to the recorder that is installed for the crate `metrics`.
///
/// Counters are set to their absolute values. A recorder has no histograms with absolute values, so the publisher
/// remembers the times that it has recorded. Each is recorded as the middle of its bucket. So use one publisher for a
/// runtime. Times in which workers sleep and work are gauges, because counters of that crate are whole numbers.
///
/// ```
/// use procession::Runtime;
/// use procession::observe::{MetricsOptions, MetricsPublisher};
///
/// let runtime = Runtime::builder().workers(1).metrics(MetricsOptions::new()).start()?;
/// let mut publisher = MetricsPublisher::new();
/// // For example once in ten seconds.
/// assert!(publisher.publish(&runtime.snapshot()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct MetricsPublisher {
    /// The number of times of each bucket that were recorded.
    recorded: HashMap<(Key, Duration), u64>,
}

impl MetricsPublisher {
    /// A publisher that has published nothing.
    pub fn new() -> MetricsPublisher {
        MetricsPublisher::default()
    }

    /// Gives all figures of the snapshot to the recorder. Returns whether the recorder took them: a panic of it is
    /// contained and logged, and the rest of the figures is left out.
    pub fn publish(&mut self, snapshot: &Snapshot) -> bool {
        let recorded = &mut self.recorded;
        let published = contain(|| {
            metrics::with_recorder(|recorder| write(snapshot, &mut Publishing { recorder, recorded, family: None }))
        });
        if let Err(panic) = &published {
            tell_log(|| tracing::error!(%panic, "a recorder of metrics panicked"));
        }
        published.is_ok()
    }
}

impl fmt::Debug for MetricsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsPublisher").finish_non_exhaustive()
    }
}

/// Where the figures of one snapshot go.
struct Publishing<'a> {
    recorder: &'a dyn Recorder,
    recorded: &'a mut HashMap<(Key, Duration), u64>,
    family: Option<Family>,
}

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

impl Sink for Publishing<'_> {
    fn family(&mut self, family: Family) {
        let (name, help) = (KeyName::from_const_str(family.name), family.help.into());
        let unit = family.name.ends_with("_seconds").then_some(Unit::Seconds);
        match family.kind {
            FigureKind::Counter if unit.is_none() => self.recorder.describe_counter(name, unit, help),
            FigureKind::Counter | FigureKind::Gauge => self.recorder.describe_gauge(name, unit, help),
            FigureKind::Histogram => self.recorder.describe_histogram(name, unit, help),
        }
        self.family = Some(family);
    }

    fn value(&mut self, labels: &Labels<'_>, value: Value<'_>) {
        let Some(family) = &self.family else { return };
        let labels: Vec<Label> = labels.iter().map(|(label, value)| Label::new(*label, (*value).to_string())).collect();
        let key = Key::from_parts(family.name, labels);
        match value {
            Value::Number(number) if family.kind == FigureKind::Counter => {
                self.recorder.register_counter(&key, &METADATA).absolute(number);
            }
            Value::Number(number) => self.recorder.register_gauge(&key, &METADATA).set(number as f64),
            Value::Time(time) => self.recorder.register_gauge(&key, &METADATA).set(time.as_secs_f64()),
            Value::Times(histogram) => {
                let times = self.recorder.register_histogram(&key, &METADATA);
                for bucket in &histogram.buckets {
                    let before = self.recorded.entry((key.clone(), bucket.from)).or_default();
                    let new = bucket.count.saturating_sub(std::mem::replace(before, bucket.count));
                    if new > 0 {
                        times.record_many(bucket.middle().as_secs_f64(), new as usize);
                    }
                }
            }
        }
    }
}
