//! A snapshot as OpenMetrics text.

use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::histogram::Histogram;
use super::inspect::{ExitCounts, WorkerStats};
use super::snapshot::{Snapshot, TypeFigures};

/// The bounds of the buckets of a histogram are powers of two of nanoseconds, from about a microsecond to four seconds.
/// With the infinite one there are 24.
const BOUNDS: RangeInclusive<u32> = 10..=32;

/// The text of a metric family after the other.
struct Text {
    text: String,
    family: &'static str,
}

impl Text {
    /// Begins a family.
    fn family(&mut self, name: &'static str, kind: &str, unit: &str, help: &str) {
        self.family = name;
        _ = writeln!(self.text, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        _ = writeln!(self.text, "# HELP {name} {help}");
    }

    /// Writes a sample of the family. The values of labels are escaped.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        _ = write!(self.text, "{}{suffix}", self.family);
        for (place, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            _ = write!(self.text, "{}{label}=\"{value}\"", if place == 0 { '{' } else { ',' });
        }
        _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn gauge(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, "gauge", "", help);
        self.sample("", &[], value);
    }

    fn counter(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, "counter", "", help);
        self.sample("_total", &[], value);
    }

    /// Writes a counter by kind of exit.
    fn exits(&mut self, labels: &[(&str, &str)], ended: ExitCounts) {
        let ExitCounts { done, failed, panicked, terminated } = ended;
        for (how, count) in [("done", done), ("failed", failed), ("panicked", panicked), ("terminated", terminated)] {
            self.sample("_total", &[labels, &[("how", how)]].concat(), count);
        }
    }

    fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        // A bound is in its bucket. So it is the last nanosecond before the power.
        for bound in BOUNDS.map(|power| Duration::from_nanos((1 << power) - 1)) {
            let at_most = histogram.at_most(bound);
            self.sample("_bucket", &[labels, &[("le", &seconds(bound))]].concat(), at_most);
        }
        self.sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), histogram.count);
        self.sample("_count", labels, histogram.count);
        self.sample("_sum", labels, seconds(histogram.sum));
    }

    fn workers<T: Display>(
        &mut self,
        (name, kind, unit, help): (&'static str, &str, &str, &str),
        workers: &[WorkerStats],
        value: impl Fn(&WorkerStats) -> T,
    ) {
        self.family(name, kind, unit, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        for (number, worker) in workers.iter().enumerate() {
            self.sample(suffix, &[("worker", &number.to_string())], value(worker));
        }
    }

    fn types(
        &mut self,
        (name, kind, help): (&'static str, &str, &str),
        types: &[TypeFigures],
        value: impl Fn(&TypeFigures) -> u64,
    ) {
        self.family(name, kind, "", help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        types.iter().for_each(|figures| self.sample(suffix, &[("type", &figures.type_name)], value(figures)));
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
        let mut text = Text { text: String::new(), family: "" };
        self.write_runtime(&mut text);
        self.write_workers(&mut text);
        if !self.types.is_empty() {
            self.write_types(&mut text);
        }
        text.text.push_str("# EOF\n");
        text.text
    }

    fn write_runtime(&self, text: &mut Text) {
        let stats = &self.stats;
        text.family("procession_uptime_seconds", "gauge", "seconds", "Time since the runtime was started.");
        text.sample("", &[], seconds(self.uptime));
        text.gauge("procession_processes", "Living processes.", stats.processes);
        text.counter("procession_spawned", "Processes that were spawned.", stats.spawned);
        text.family("procession_ended", "counter", "", "Processes that have ended.");
        text.exits(&[], stats.ended);
        text.counter("procession_messages", "Messages that successful steps have taken.", stats.messages.stepped);
        text.gauge("procession_messages_waiting", "Messages in mailboxes.", stats.messages.queued);
        text.family("procession_dead_letters", "counter", "", "Messages that no step took.");
        let mut dead: Vec<_> = stats.messages.dead_by_reason.iter().collect();
        dead.sort_by_key(|(reason, _)| reason.label());
        for (reason, count) in dead {
            text.sample("_total", &[("reason", &reason.label())], count);
        }
        let discarded = "Answers whose process no longer waited.";
        text.counter("procession_discarded_answers", discarded, stats.discarded_answers);
        text.counter("procession_late_replies", "Replies that came too late.", stats.late_replies);
        text.gauge("procession_timers", "Pending timers.", stats.timers);
        text.gauge("procession_global_queue", "Ready processes in the global queue.", stats.global_queue);
        text.gauge("procession_blocking_queue", "Blocking work that waits for a thread.", stats.blocking_queue);
        text.gauge("procession_spare_workers", "Spare workers that run.", stats.spare_workers);
        text.counter("procession_steps_elsewhere", "Steps that no worker ran.", stats.steps_elsewhere);
        text.counter("procession_stuck_steps", "Steps that were found stuck.", stats.stuck_steps);
        text.gauge("procession_stuck_now", "Steps that are stuck now.", self.stuck.len());
    }

    fn write_workers(&self, text: &mut Text) {
        let workers = &self.stats.workers[..];
        text.workers(("procession_worker_steps", "counter", "", "Steps."), workers, |worker| worker.steps);
        let messages = ("procession_worker_messages", "counter", "", "Messages that its successful steps have taken.");
        text.workers(messages, workers, |worker| worker.messages);
        text.workers(("procession_worker_stolen", "counter", "", "Steals."), workers, |worker| worker.stolen);
        text.workers(("procession_worker_parked", "counter", "", "Times it slept."), workers, |worker| worker.parked);
        text.workers(("procession_worker_queue", "gauge", "", "Ready processes."), workers, |worker| worker.queue);
        if workers.iter().any(|worker| worker.busy.is_some()) {
            let of = |time: Option<Duration>| seconds(time.unwrap_or_default());
            let busy = ("procession_worker_busy_seconds", "counter", "seconds", "Time in which it has not slept.");
            text.workers(busy, workers, |worker| of(worker.busy));
            let asleep = ("procession_worker_asleep_seconds", "counter", "seconds", "Time in which it has slept.");
            text.workers(asleep, workers, |worker| of(worker.asleep));
        }
    }

    fn write_types(&self, text: &mut Text) {
        let types = &self.types[..];
        text.types(("procession_type_processes", "gauge", "Living processes."), types, |one| one.living);
        text.types(("procession_type_spawned", "counter", "Spawned processes."), types, |one| one.spawned);
        text.family("procession_type_ended", "counter", "", "Processes that have ended.");
        types.iter().for_each(|one| text.exits(&[("type", &one.type_name)], one.ended));
        text.types(("procession_type_recovered", "counter", "Restarts in place."), types, |one| one.recovered);
        text.types(("procession_type_became", "counter", "Processes from other types."), types, |one| one.became);
        text.types(("procession_type_left", "counter", "Processes that left for other types."), types, |one| one.left);
        text.types(("procession_type_steps", "counter", "Steps."), types, |one| one.steps);
        let messages = ("procession_type_messages", "counter", "Messages that successful steps have taken.");
        text.types(messages, types, |one| one.messages);
        text.types(("procession_type_dead_letters", "counter", "Dead letters, by receiver."), types, |one| one.dead);
        text.types(("procession_type_messages_waiting", "gauge", "Messages in mailboxes."), types, |one| one.waiting);
        text.types(("procession_type_longest_mailbox", "gauge", "Messages in the longest mailbox."), types, |one| {
            one.longest.map_or(0, |longest| longest.messages)
        });
        text.family("procession_type_step_seconds", "histogram", "seconds", "Times of some steps.");
        types.iter().for_each(|one| text.histogram(&[("type", &one.type_name)], &one.step_times));
        text.family("procession_type_counted", "counter", "", "Counts of the program, by name.");
        for one in types {
            for (name, count) in &one.counted {
                text.sample("_total", &[("type", &one.type_name), ("name", name)], count);
            }
        }
    }
}
