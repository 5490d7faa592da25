//! The figures of a snapshot one after the other, for all formats.

use std::time::Duration;

use super::histogram::Histogram;
use super::inspect::{ExitCounts, WorkerStats};
use super::part_stats::{ClusterStats, PeerStats, ShutdownStats, StoreStats};
use super::snapshot::{Snapshot, TypeFigures};
use crate::pool::PoolStats;
use crate::task::TaskStats;

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
    write_parts(snapshot, to);
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
    let waits = "Times for which messages have waited in mailboxes. Only some are measured.";
    to.family(Family { name: "procession_type_wait_seconds", kind: FigureKind::Histogram, help: waits });
    types.iter().for_each(|one| to.value(&[("type", &one.type_name)], Value::Times(&one.wait_times)));
    to.family(counter("procession_type_counted", "Counts of the program, by name."));
    for one in types {
        for (name, count) in &one.counted {
            to.value(&[("type", &one.type_name), ("name", name)], Value::Number(*count));
        }
    }
}

/// Writes the figures that were added to the snapshot.
fn write_parts(snapshot: &Snapshot, to: &mut dyn Sink) {
    write_named("pool", snapshot.pools.iter(), POOL, to);
    write_named("scheduler", snapshot.tasks.iter(), TASKS, to);
    if let Some(stats) = &snapshot.shutdown {
        to.family(gauge("procession_shutdown_nodes", "Nodes of the shutdown tree."));
        let ShutdownStats { running, closing, told, cancelled, given_up, done } = *stats;
        let phases = [("running", running), ("closing", closing), ("told", told), ("cancelled", cancelled)];
        for (phase, count) in phases.into_iter().chain([("given_up", given_up), ("done", done)]) {
            to.value(&[("phase", phase)], Value::Number(count as u64));
        }
    }
    if let Some(stats) = &snapshot.store {
        write_each(STORE, &[(&[], stats)], to);
        to.family(counter("procession_store_commit_seconds", "Time of all commits."));
        to.value(&[], Value::Time(stats.commit_time));
        if stats.parked.is_some() {
            write_each(PARKED, &[(&[], stats)], to);
        }
    }
    if let Some(stats) = &snapshot.cluster {
        write_each(CLUSTER, &[(&[], stats)], to);
        write_named("peer", stats.peers.iter().map(|peer| (&peer.name, peer)), PEER, to);
    }
}

/// A figure of one of several parts: its name, whether it only grows, its help, and its value.
type Figure<T> = (&'static str, bool, &'static str, fn(&T) -> u64);

const POOL: &[Figure<PoolStats>] = &[
    ("procession_pool_workers", false, "Threads of the pool.", |pool| pool.workers as u64),
    ("procession_pool_idle", false, "Threads that run no job.", |pool| pool.idle as u64),
    ("procession_pool_running", false, "Jobs that run.", |pool| (pool.running + pool.nested) as u64),
    ("procession_pool_waiting", false, "Jobs in the queue.", |pool| pool.waiting as u64),
    ("procession_pool_submitted", true, "Jobs that were accepted.", |pool| pool.submitted),
    ("procession_pool_finished", true, "Jobs that have returned or panicked.", |pool| pool.finished),
    ("procession_pool_panicked", true, "Jobs that have panicked.", |pool| pool.panicked),
    ("procession_pool_abandoned", true, "Jobs that never began.", |pool| pool.abandoned),
    ("procession_pool_withdrawn", true, "Jobs that were cancelled in the queue.", |pool| pool.withdrawn),
];

const TASKS: &[Figure<TaskStats>] = &[
    ("procession_tasks_scheduled", false, "Tasks that have not begun.", |tasks| tasks.scheduled),
    ("procession_tasks_running", false, "Tasks that run.", |tasks| tasks.running),
    ("procession_tasks_abandoned", false, "Closures that outlive their tasks.", |tasks| tasks.abandoned as u64),
    ("procession_tasks_records", false, "Tasks that can be looked up.", |tasks| tasks.records as u64),
    ("procession_tasks_submitted", true, "Tasks that were accepted.", |tasks| tasks.submitted),
    ("procession_tasks_completed", true, "Tasks whose closure has ended.", |tasks| tasks.completed),
    ("procession_tasks_cancelled", true, "Tasks that were cancelled.", |tasks| tasks.cancelled),
    ("procession_tasks_timed_out", true, "Tasks that timed out.", |tasks| tasks.timed_out),
    ("procession_tasks_stopped", true, "Tasks that were stopped with the scheduler.", |tasks| tasks.stopped),
];

const STORE: &[Figure<StoreStats>] = &[
    ("procession_store_in_memory", false, "Durable processes in memory.", |store| store.in_memory as u64),
    ("procession_store_loaded", true, "Durable processes that came into memory.", |store| store.loaded),
    ("procession_store_stored", true, "Records that were stored.", |store| store.stored),
    ("procession_store_unstored", false, "Records that wait to be stored.", |store| store.unstored),
    ("procession_store_unstored_bytes", false, "Bytes of records that wait to be stored.", |store| {
        store.unstored_bytes
    }),
    ("procession_store_commits", true, "Commits of records.", |store| store.commits),
    ("procession_store_commit_bytes", true, "Bytes of all commits.", |store| store.commit_bytes),
    ("procession_store_rewinds", true, "Times that the files were opened anew.", |store| store.rewinds),
    ("procession_store_unapplied", false, "Records that the tables do not have.", |store| store.unapplied),
    ("procession_store_unapplied_bytes", false, "Bytes of records that the tables do not have.", |store| {
        store.unapplied_bytes
    }),
];

/// Left out if it is not known.
const PARKED: &[Figure<StoreStats>] =
    &[("procession_store_parked", false, "Durable processes that are parked.", |store| {
        store.parked.unwrap_or_default()
    })];

const CLUSTER: &[Figure<ClusterStats>] = &[
    ("procession_held_processes", false, "Processes that wait for room at a node.", |node| node.held_processes as u64),
    ("procession_waiting_sends", false, "Sends from outside that wait for room.", |node| node.waiting_sends as u64),
    ("procession_refused_lives", true, "PIDs of too many nodes and stores.", |node| node.refused_lives),
    ("procession_refused_relations", true, "Monitors and links beyond a limit.", |node| node.refused_relations),
];

const PEER: &[Figure<PeerStats>] = &[
    ("procession_peer_up", false, "Whether the peer is connected: 1 or 0.", |peer| u64::from(peer.is_up)),
    ("procession_peer_frames_sent", true, "Frames to the peer.", |peer| peer.frames_sent),
    ("procession_peer_bytes_sent", true, "Bytes of frames to the peer.", |peer| peer.bytes_sent),
    ("procession_peer_frames_received", true, "Frames from the peer.", |peer| peer.frames_received),
    ("procession_peer_bytes_received", true, "Bytes of frames from the peer.", |peer| peer.bytes_received),
];

fn write_named<'a, T: 'a>(
    label: &'static str,
    parts: impl Iterator<Item = (&'a String, &'a T)>,
    figures: &[Figure<T>],
    to: &mut dyn Sink,
) {
    let parts: Vec<([(&'static str, &str); 1], &T)> =
        parts.map(|(name, stats)| ([(label, name.as_str())], stats)).collect();
    let parts: Vec<(&Labels<'_>, &T)> = parts.iter().map(|(labels, stats)| (&labels[..], *stats)).collect();
    write_each(figures, &parts, to);
}

/// Writes each figure for all parts. A figure of no part is left out.
fn write_each<T>(figures: &[Figure<T>], parts: &[(&Labels<'_>, &T)], to: &mut dyn Sink) {
    if parts.is_empty() {
        return;
    }
    for (name, grows, help, value) in figures {
        to.family(if *grows { counter(name, help) } else { gauge(name, help) });
        parts.iter().for_each(|(labels, stats)| to.value(labels, Value::Number(value(stats))));
    }
}
