//! The answers of a program. Fields that are missing have their defaults, and unknown ones are ignored.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

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

/// The most entries of a list that are kept. A program lists at most 1,000 processes, and 1,025 types.
pub(crate) const MOST_LISTED: usize = 1_100;

/// The beginning of a list.
#[derive(Clone, Debug)]
pub(crate) struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T: Deserialize<'a>> Deserialize<'a> for List<T> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<List<T>, D::Error> {
        from.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'a, T: Deserialize<'a>> Visitor<'a> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut entries: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while list.len() < MOST_LISTED {
            let Some(entry) = entries.next_element()? else { return Ok(List(list)) };
            list.push(entry);
        }
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(List(list))
    }
}

/// The sum of the counts of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(pub(crate) u64);

impl<'a> Deserialize<'a> for Sum {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Sum, D::Error> {
        from.deserialize_map(SumVisitor)
    }
}

struct SumVisitor;

impl<'a> Visitor<'a> for SumVisitor {
    type Value = Sum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of counts")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut counts: A) -> Result<Sum, A::Error> {
        let mut sum = 0_u64;
        while let Some((IgnoredAny, count)) = counts.next_entry::<IgnoredAny, u64>()? {
            sum = sum.saturating_add(count);
        }
        Ok(Sum(sum))
    }
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
    pub(crate) mailboxes: List<Mailbox>,
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
    pub(crate) workers: List<Worker>,
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
    pub(crate) dead_by_reason: Sum,
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
    pub(crate) types: List<TypeFigures>,
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
    pub(crate) wait_times: Histogram,
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
    pub(crate) buckets: List<Bucket>,
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
    pub(crate) processes: List<Process>,
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
    pub(crate) supervisors: List<Supervisor>,
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
    pub(crate) children: List<Child>,
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
    pub(crate) children: List<Child>,
    pub(crate) no_answer: bool,
    pub(crate) left_out: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waits {
    pub(crate) of: u64,
    pub(crate) waits: List<Wait>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wait {
    pub(crate) asker: Text,
    pub(crate) asked: Text,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stuck {
    pub(crate) stuck: List<StuckProcess>,
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
    pub(crate) peers: List<Peer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Peer {
    pub(crate) name: Text,
    pub(crate) state: Text,
    pub(crate) bytes_sent: Option<u64>,
    pub(crate) bytes_received: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ParkedProcesses {
    pub(crate) of: u64,
    pub(crate) parked: List<Parked>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Parked {
    pub(crate) pid: Text,
    pub(crate) key: Text,
    pub(crate) reason: Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_up_to_its_limit_and_the_rest_is_still_read() {
        let many = vec!["{}"; MOST_LISTED + 5].join(",");
        let answer: Answer = serde_json::from_str(&format!("{{\"top\":{{\"processes\":[{many}],\"of\":7}}}}")).unwrap();
        let top = answer.top.unwrap();
        assert_eq!((top.processes.len(), top.of), (MOST_LISTED, 7));
        assert!(serde_json::from_str::<Answer>(&format!("{{\"top\":{{\"processes\":[{many},]}}}}")).is_err());
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let text =
            r#"{"buckets":[{"to":1,"count":50},{"to":{"secs":2},"count":49},{"to":9,"count":0},{"to":4,"count":1}]}"#;
        let histogram: Histogram = serde_json::from_str(text).unwrap();
        assert_eq!([0.5, 0.51, 0.99, 1.0].map(|part| histogram.quantile(part)), [1.0, 2.0, 2.0, 4.0].map(Some));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
