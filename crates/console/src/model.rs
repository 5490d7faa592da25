//! The answers of a program. Fields that are missing have their defaults, and unknown ones are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::text::{Lines, Text};

/// A line of a program. It has the result of one request, or an error, or an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) id: Option<u64>,
    pub(crate) error: Option<Failure>,
    /// The following seven are the answer to the hello.
    pub(crate) hello: Option<u64>,
    pub(crate) program: Text,
    pub(crate) version: Text,
    pub(crate) process_id: u64,
    pub(crate) started: Text,
    pub(crate) actions: bool,
    pub(crate) metrics: bool,
    pub(crate) overview: Option<Overview>,
    pub(crate) types: Option<Types>,
    pub(crate) top: Option<Top>,
    pub(crate) process: Option<Process>,
    pub(crate) tree: Option<Tree>,
    pub(crate) waits: Option<Waits>,
    pub(crate) stuck: Option<Stuck>,
    pub(crate) describe: Option<Description>,
    pub(crate) trace: Option<Tracing>,
    pub(crate) nodes: Option<Nodes>,
    pub(crate) parked: Option<ParkedProcesses>,
    pub(crate) event: Option<Event>,
    pub(crate) traced: Option<Traced>,
    pub(crate) cancel: Option<Done>,
    pub(crate) terminate: Option<Done>,
}

/// The result of an action.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    pub(crate) done: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Failure {
    pub(crate) kind: Text,
    pub(crate) text: Text,
}

/// A time in seconds. It is read from a number, or from an object with `secs` and `nanos`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(from = "Time")]
pub(crate) struct Seconds(pub(crate) f64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Number(f64),
    Parts {
        #[serde(default)]
        secs: u64,
        #[serde(default)]
        nanos: u32,
    },
}

impl From<Time> for Seconds {
    fn from(time: Time) -> Seconds {
        Seconds(match time {
            Time::Number(seconds) => seconds,
            Time::Parts { secs, nanos } => secs as f64 + f64::from(nanos) / 1e9,
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Overview {
    pub(crate) uptime: Seconds,
    pub(crate) stats: Stats,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) stuck: u64,
    pub(crate) shutdown: Text,
    pub(crate) node: Option<NodeSummary>,
    pub(crate) store: Option<StoreSummary>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSummary {
    pub(crate) name: Text,
    pub(crate) peers: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StoreSummary {
    pub(crate) parked: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stats {
    pub(crate) processes: u64,
    pub(crate) spawned: u64,
    pub(crate) ended: ExitCounts,
    pub(crate) messages: MessageCounts,
    pub(crate) timers: u64,
    pub(crate) workers: Vec<Worker>,
    pub(crate) steps_elsewhere: u64,
    pub(crate) messages_elsewhere: u64,
    pub(crate) global_queue: u64,
    pub(crate) blocking_queue: u64,
}

impl Stats {
    pub(crate) fn steps(&self) -> u64 {
        self.workers.iter().fold(self.steps_elsewhere, |sum, worker| sum.saturating_add(worker.steps))
    }

    pub(crate) fn ready(&self) -> u64 {
        self.workers.iter().fold(self.global_queue, |sum, worker| sum.saturating_add(worker.queue))
    }

    /// The times of all workers, if they are measured: working, and in all.
    pub(crate) fn worker_time(&self) -> Option<(f64, f64)> {
        let times: Option<Vec<(f64, f64)>> =
            self.workers.iter().map(|worker| Some((worker.busy?.0, worker.busy?.0 + worker.asleep?.0))).collect();
        let times = times.filter(|times| !times.is_empty())?;
        Some(times.iter().fold((0.0, 0.0), |sum, time| (sum.0 + time.0, sum.1 + time.1)))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExitCounts {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) panicked: u64,
    pub(crate) terminated: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MessageCounts {
    pub(crate) stepped: u64,
    pub(crate) queued: u64,
    pub(crate) dead_by_reason: BTreeMap<Text, u64>,
}

impl MessageCounts {
    pub(crate) fn dead(&self) -> u64 {
        self.dead_by_reason.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) steps: u64,
    pub(crate) queue: u64,
    pub(crate) asleep: Option<Seconds>,
    pub(crate) busy: Option<Seconds>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Mailbox {
    pub(crate) pid: Text,
    pub(crate) name: Option<Text>,
    pub(crate) type_name: Text,
    pub(crate) state: Option<Text>,
    pub(crate) messages: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Types {
    pub(crate) types: Vec<TypeFigures>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TypeFigures {
    pub(crate) type_name: Text,
    pub(crate) living: u64,
    pub(crate) spawned: u64,
    pub(crate) ended: ExitCounts,
    pub(crate) recovered: u64,
    pub(crate) steps: u64,
    pub(crate) messages: u64,
    pub(crate) dead: u64,
    pub(crate) waiting: u64,
    pub(crate) longest: Option<Longest>,
    pub(crate) step_times: Histogram,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Longest {
    pub(crate) pid: Text,
    pub(crate) messages: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Histogram {
    pub(crate) buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Bucket {
    pub(crate) to: Seconds,
    pub(crate) count: u64,
}

impl Histogram {
    /// The upper end of the bucket in which this part of the values ends. `None` if there are no values.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.buckets.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count));
        let wanted = (all as f64 * part).ceil().max(1.0);
        let mut seen = 0.0;
        let mut buckets = self.buckets.iter().filter(|bucket| bucket.count > 0);
        let found = buckets.find(|bucket| {
            seen += bucket.count as f64;
            seen >= wanted
        });
        found.map(|bucket| bucket.to.0)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Top {
    pub(crate) of: u64,
    pub(crate) processes: Vec<Process>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Process {
    pub(crate) pid: Text,
    pub(crate) name: Option<Text>,
    #[serde(rename = "type")]
    pub(crate) type_name: Text,
    pub(crate) state: Text,
    pub(crate) mailbox: u64,
    pub(crate) steps: u64,
    pub(crate) restarts: u64,
    pub(crate) age: Seconds,
    pub(crate) in_step: Option<Seconds>,
    /// Only the answer to `process` has these two.
    pub(crate) monitors: Option<u64>,
    pub(crate) links: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Tree {
    pub(crate) supervisors: Vec<Supervisor>,
    pub(crate) left_out: u64,
}

/// A supervisor at the top: fields of a process, and its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Supervisor {
    pub(crate) pid: Text,
    pub(crate) name: Option<Text>,
    #[serde(rename = "type")]
    pub(crate) type_name: Text,
    pub(crate) state: Text,
    pub(crate) mailbox: u64,
    pub(crate) restarts: u64,
    pub(crate) strategy: Option<Text>,
    pub(crate) children: Vec<Child>,
    pub(crate) no_answer: bool,
    pub(crate) left_out: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Child {
    pub(crate) id: Text,
    pub(crate) restarts: u64,
    pub(crate) state: Text,
    pub(crate) process: Option<Process>,
    /// Only supervisors have the following.
    pub(crate) strategy: Option<Text>,
    pub(crate) children: Vec<Child>,
    pub(crate) no_answer: bool,
    pub(crate) left_out: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waits {
    pub(crate) of: u64,
    pub(crate) waits: Vec<Wait>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wait {
    pub(crate) asker: Text,
    pub(crate) asked: Text,
    pub(crate) since: Seconds,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stuck {
    pub(crate) stuck: Vec<StuckProcess>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StuckProcess {
    pub(crate) pid: Text,
    pub(crate) name: Option<Text>,
    pub(crate) type_name: Text,
    pub(crate) doing: Text,
    pub(crate) running_for: Seconds,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Description {
    pub(crate) text: Lines,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Tracing {
    #[serde(rename = "for")]
    pub(crate) seconds: Seconds,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    pub(crate) at: Seconds,
    pub(crate) what: Text,
    pub(crate) text: Text,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Traced {
    pub(crate) events: u64,
    pub(crate) left_out: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Nodes {
    pub(crate) name: Text,
    pub(crate) peers: Vec<Peer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Peer {
    pub(crate) name: Text,
    pub(crate) state: Text,
    pub(crate) since: Seconds,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ParkedProcesses {
    pub(crate) of: u64,
    pub(crate) parked: Vec<Parked>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Parked {
    pub(crate) pid: Text,
    pub(crate) key: Text,
    pub(crate) reason: Text,
}
