//! A counter with many keys, which are spread over the nodes.
//!
//! Each node has one *shard*, a member of a group of the whole cluster. Each key belongs to the shard that all nodes
//! pick for it. When a shard comes, the others hand it the keys that it has now. When a node dies, its keys begin at 0
//! on other nodes, and messages that were on their way to it are in doubt.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use procession::cluster::Cluster;
use procession::command::TimerFired;
use procession::observe::{DeadLetter, DeadLetterReason, Observer};
use procession::{
    Address, BoxError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag, remote,
};
use serde::{Deserialize, Serialize};

const GROUP: &str = "counters";
const KEYS: u32 = 100;
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

/// A message to a shard.
#[derive(Serialize, Deserialize)]
pub(crate) enum Count {
    Add(u32, u64),
    /// The number of keys.
    Keys(Reply<u64>),
    /// The shards are others now.
    Rebalance,
}

remote!(Count, "example::Count", 1);

/// Has the counts of some keys.
struct Shard {
    cluster: Cluster,
    counts: BTreeMap<u32, u64>,
}

impl Process for Shard {
    type Message = Count;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Count>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Count::Add(key, count)) => match self.cluster.pick::<Count>(GROUP, &key) {
                    // The sender did not know yet that the key has moved.
                    Some(shard) if shard.pid() != out.pid() => out.send(shard, Count::Add(key, count)),
                    _ => *self.counts.entry(key).or_default() += count,
                },
                Event::Message(Count::Keys(reply)) => out.reply(reply, self.counts.len() as u64),
                Event::Message(Count::Rebalance) => {
                    let (cluster, own) = (&self.cluster, out.pid());
                    self.counts.retain(|key, count| match cluster.pick::<Count>(GROUP, key) {
                        Some(shard) if shard.pid() != own => {
                            out.send(shard, Count::Add(*key, *count));
                            false
                        }
                        _ => true,
                    });
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Counts the messages whose fate nobody knows.
#[derive(Clone, Default)]
pub(crate) struct Doubts(Arc<AtomicU64>);

impl Observer for Doubts {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        if letter.reason == DeadLetterReason::NodeDown {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

/// Starts the shard of this node, a thread that tells it of other shards, and a process that adds to all keys.
pub(crate) fn start(runtime: &Runtime, cluster: &Cluster, doubts: &Doubts) -> Result<(), BoxError> {
    let shard = runtime.spawn(Shard { cluster: cluster.clone(), counts: BTreeMap::new() })?.address();
    let mut changes = cluster.group_events(GROUP);
    cluster.join_group(GROUP, &format!("{}/0", cluster.here().name()), shard.pid())?;
    let weak = runtime.downgrade();
    thread::spawn(move || {
        while let (Ok(Some(_)), Some(runtime)) = (changes.recv(), weak.upgrade()) {
            let _ = runtime.send(shard, Count::Rebalance);
        }
    });
    let (cluster, doubts) = (cluster.clone(), doubts.clone());
    runtime.spawn(Adder {
        cluster,
        doubts,
        asked: Vec::new(),
        timer: None,
        found: String::new(),
        shown: String::new(),
    })?;
    Ok(())
}

/// Adds to all keys again and again, and shows how many each shard has.
struct Adder {
    cluster: Cluster,
    doubts: Doubts,
    timer: Option<Tag<TimerFired>>,
    /// The shards that have not answered.
    asked: Vec<(String, Tag<u64>)>,
    found: String,
    shown: String,
}

impl Adder {
    fn add(&mut self, out: &mut StepOutput) {
        for key in 0..KEYS {
            if let Some(shard) = self.cluster.pick::<Count>(GROUP, &key) {
                out.send(shard, Count::Add(key, 1));
            }
        }
        self.timer = Some(out.after(PAUSE));
        if !self.asked.is_empty() {
            return;
        }
        for member in self.cluster.group_members(GROUP) {
            let shard: Address<Count> = member.pid.typed();
            self.asked.push((member.label, out.ask(shard, Count::Keys, LIMIT)));
        }
    }

    fn found(&mut self, label: &str, keys: u64) {
        let _ = write!(self.found, " {label} has {keys} keys,");
    }

    fn show(&mut self) {
        let found = format!("{} {} messages in doubt", std::mem::take(&mut self.found), self.doubts.0.load(Relaxed));
        if found != self.shown {
            println!("shards:{found}");
            self.shown = found;
        }
    }
}

impl Process for Adder {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.add(out);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => self.add(out),
                Event::Completed(done) => {
                    let Some(at) = self.asked.iter().position(|(_, tag)| done.is(*tag)) else { continue };
                    let (label, tag) = self.asked.remove(at);
                    // One that does not answer is on a node that is down.
                    if let Some(Ok(keys)) = done.take(tag) {
                        self.found(&label, keys);
                    }
                    if self.asked.is_empty() {
                        self.show();
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}
