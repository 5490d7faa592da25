//! A snapshot as OpenMetrics text.

use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::figure_list::{Family, FigureKind, Labels, Sink, Value, write};
use super::histogram::Histogram;
use super::snapshot::Snapshot;

/// The bounds of the buckets of a histogram are powers of two of nanoseconds, from about a microsecond to four seconds.
/// With the infinite one there are 24.
const BOUNDS: RangeInclusive<u32> = 10..=32;

/// The text so far, and the family that is being written.
struct Text {
    text: String,
    family: &'static str,
    /// The end of the name of each value of the family.
    suffix: &'static str,
}

impl Sink for Text {
    fn family(&mut self, Family { name, kind, help }: Family) {
        let (kind, suffix) = match kind {
            FigureKind::Counter => ("counter", "_total"),
            FigureKind::Gauge => ("gauge", ""),
            FigureKind::Histogram => ("histogram", ""),
        };
        (self.family, self.suffix) = (name, suffix);
        _ = writeln!(self.text, "# TYPE {name} {kind}");
        if name.ends_with("_seconds") {
            _ = writeln!(self.text, "# UNIT {name} seconds");
        }
        _ = writeln!(self.text, "# HELP {name} {help}");
    }

    fn value(&mut self, labels: &Labels<'_>, value: Value<'_>) {
        match value {
            Value::Number(number) => self.sample(self.suffix, labels, number),
            Value::Time(time) => self.sample(self.suffix, labels, seconds(time)),
            Value::Times(histogram) => self.histogram(labels, histogram),
        }
    }
}

impl Text {
    /// Writes a line. The values of labels are escaped.
    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, value: impl Display) {
        _ = write!(self.text, "{}{suffix}", self.family);
        for (place, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            _ = write!(self.text, "{}{label}=\"{value}\"", if place == 0 { '{' } else { ',' });
        }
        _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn histogram(&mut self, labels: &Labels<'_>, histogram: &Histogram) {
        // A bound is in its bucket. So it is the last nanosecond before the power.
        for bound in BOUNDS.map(|power| Duration::from_nanos((1 << power) - 1)) {
            let at_most = histogram.at_most(bound);
            self.sample("_bucket", &[labels, &[("le", &seconds(bound))]].concat(), at_most);
        }
        self.sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), histogram.count);
        self.sample("_count", labels, histogram.count);
        self.sample("_sum", labels, seconds(histogram.sum));
    }
}

/// Exact, as a decimal number.
fn seconds(duration: Duration) -> String {
    format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos())
}

impl Snapshot {
    /// The figures as OpenMetrics text, which Prometheus and others read. Return it from a handler for `/metrics`, with
    /// the content type `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// The labels are the type of the process, the number of the worker, the reason, the kind of exit, and the name of
    /// a count. PIDs and names of processes are no labels. So the number of series is limited.
    pub fn to_openmetrics(&self) -> String {
        let mut text = Text { text: String::new(), family: "", suffix: "" };
        write(self, &mut text);
        text.text.push_str("# EOF\n");
        text.text
    }
}
