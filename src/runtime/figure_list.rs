//! The figures of a snapshot one after the other, for all formats.

use std::time::Duration;

use super::histogram::Histogram;
use super::inspect::{ExitCounts, WorkerStats};
use super::snapshot::{Snapshot, TypeFigures};

/// A figure with all its labels. It becomes a series for each of their values.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: FigureKind,
    pub(super) help: &'static str,
}

/// The kind of a figure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FigureKind {
    Counter,
    Gauge,
    Histogram,
}

/// A value of a figure.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Number(u64),
    Time(Duration),
    Times(&'a Histogram),
}

/// The names of labels and their values.
pub(super) type Labels<'a> = [(&'static str, &'a str)];

/// Writes the figures in a format.
pub(super) trait Sink {
    /// Begins a family.
    fn family(&mut self, family: Family);

    /// Writes a value of the family.
    fn value(&mut self, labels: &Labels<'_>, value: Value<'_>);
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FigureKind::Counter, help }
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FigureKind::Gauge, help }
}

/// Writes all figures of the snapshot.
pub(super) fn write(snapshot: &Snapshot, to: &mut dyn Sink) {
    write_runtime(snapshot, to);
    write_workers(&snapshot.stats.workers, to);
    if !snapshot.types.is_empty() {
        write_types(&snapshot.types, to);
    }
}

fn write_runtime(snapshot: &Snapshot, to: &mut dyn Sink) {
    let stats = &snapshot.stats;
    let mut one = |family, value| {
        to.family(family);
        to.value(&[], value);
    };
    let number = |number: usize| Value::Number(number as u64);
    one(gauge("procession_uptime_seconds", "Time since the runtime was started."), Value::Time(snapshot.uptime));
    one(gauge("procession_processes", "Living processes."), Value::Number(stats.processes));
    one(counter("procession_spawned", "Processes that were spawned."), Value::Number(stats.spawned));
    let stepped = counter("procession_messages", "Messages that successful steps have taken.");
    one(stepped, Value::Number(stats.messages.stepped));
    one(gauge("procession_messages_waiting", "Messages in mailboxes."), Value::Number(stats.messages.queued));
    let discarded = counter("procession_discarded_answers", "Answers whose process no longer waited.");
    one(discarded, Value::Number(stats.discarded_answers));
    one(counter("procession_late_replies", "Replies that came too late."), Value::Number(stats.late_replies));
    one(gauge("procession_timers", "Pending timers."), number(stats.timers));
    one(gauge("procession_global_queue", "Ready processes in the global queue."), number(stats.global_queue));
    one(gauge("procession_blocking_queue", "Blocking work that waits for a thread."), number(stats.blocking_queue));
    one(gauge("procession_spare_workers", "Spare workers that run."), number(stats.spare_workers));
    one(counter("procession_steps_elsewhere", "Steps that no worker ran."), Value::Number(stats.steps_elsewhere));
    one(counter("procession_stuck_steps", "Steps that were found stuck."), Value::Number(stats.stuck_steps));
    one(gauge("procession_stuck_now", "Steps that are stuck now."), number(snapshot.stuck.len()));
    to.family(counter("procession_ended", "Processes that have ended."));
    write_exits(&[], stats.ended, to);
    to.family(counter("procession_dead_letters", "Messages that no step took."));
    let mut dead: Vec<_> =
        stats.messages.dead_by_reason.iter().map(|(reason, count)| (reason.label(), count)).collect();
    dead.sort();
    for (reason, count) in dead {
        to.value(&[("reason", &reason)], Value::Number(*count));
    }
}

fn write_exits(labels: &Labels<'_>, ended: ExitCounts, to: &mut dyn Sink) {
    let ExitCounts { done, failed, panicked, terminated } = ended;
    for (how, count) in [("done", done), ("failed", failed), ("panicked", panicked), ("terminated", terminated)] {
        to.value(&[labels, &[("how", how)]].concat(), Value::Number(count));
    }
}

fn write_workers(workers: &[WorkerStats], to: &mut dyn Sink) {
    let mut each = |family, value: fn(&WorkerStats) -> Value<'static>| {
        to.family(family);
        for (number, worker) in workers.iter().enumerate() {
            to.value(&[("worker", &number.to_string())], value(worker));
        }
    };
    each(counter("procession_worker_steps", "Steps."), |worker| Value::Number(worker.steps));
    let messages = counter("procession_worker_messages", "Messages that its successful steps have taken.");
    each(messages, |worker| Value::Number(worker.messages));
    each(counter("procession_worker_stolen", "Steals."), |worker| Value::Number(worker.stolen));
    each(counter("procession_worker_parked", "Times that it went to sleep."), |worker| Value::Number(worker.parked));
    each(gauge("procession_worker_queue", "Ready processes."), |worker| Value::Number(worker.queue as u64));
    if workers.iter().any(|worker| worker.busy.is_some()) {
        let busy = counter("procession_worker_busy_seconds", "Time in which it has not slept.");
        each(busy, |worker| Value::Time(worker.busy.unwrap_or_default()));
        let asleep = counter("procession_worker_asleep_seconds", "Time in which it has slept.");
        each(asleep, |worker| Value::Time(worker.asleep.unwrap_or_default()));
    }
}

fn write_types(types: &[TypeFigures], to: &mut dyn Sink) {
    let mut each = |family, value: fn(&TypeFigures) -> u64| {
        to.family(family);
        types.iter().for_each(|one| to.value(&[("type", &one.type_name)], Value::Number(value(one))));
    };
    each(gauge("procession_type_processes", "Living processes."), |one| one.living);
    each(counter("procession_type_spawned", "Processes that were spawned."), |one| one.spawned);
    each(counter("procession_type_recovered", "Restarts in place."), |one| one.recovered);
    each(counter("procession_type_became", "Processes that came from other types."), |one| one.became);
    each(counter("procession_type_left", "Processes that left for other types."), |one| one.left);
    each(counter("procession_type_steps", "Steps."), |one| one.steps);
    let messages = counter("procession_type_messages", "Messages that successful steps have taken.");
    each(messages, |one| one.messages);
    each(counter("procession_type_dead_letters", "Dead letters, by the type of the receiver."), |one| one.dead);
    each(gauge("procession_type_messages_waiting", "Messages in mailboxes."), |one| one.waiting);
    let longest = gauge("procession_type_longest_mailbox", "Messages in the longest mailbox.");
    each(longest, |one| one.longest.map_or(0, |longest| longest.messages));
    to.family(counter("procession_type_ended", "Processes that have ended."));
    types.iter().for_each(|one| write_exits(&[("type", &one.type_name)], one.ended, to));
    let times = "Times of steps. Only some are measured.";
    to.family(Family { name: "procession_type_step_seconds", kind: FigureKind::Histogram, help: times });
    types.iter().for_each(|one| to.value(&[("type", &one.type_name)], Value::Times(&one.step_times)));
    to.family(counter("procession_type_counted", "Counts of the program, by name."));
    for one in types {
        for (name, count) in &one.counted {
            to.value(&[("type", &one.type_name), ("name", name)], Value::Number(*count));
        }
    }
}
