//! The cost of a peer that breaks the protocol: the processor time and the memory of a node beside it. Linux only.
//!
//! The node is a program of its own, and this program is the peer.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use procession::cluster::{Cluster, Security, Wire};
use procession::{Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult, remote};
use serde::{Deserialize, Serialize};

use crate::bounds::Bound;
use crate::child::Keeper;
use crate::hostile_peer::{CLUSTER, Fault, HostilePeer, NODE};
use crate::idle::{SETTLED, field, now, rest};
use crate::load::Outcome;
use crate::rounds::{START, free_port, own};

/// The option that starts the node.
pub(crate) const HOSTILE: &str = "--hostile";

/// The bytes of a small text of the node.
const SMALL: usize = 64;

/// The bytes of a large text, which travels in fragments.
const LARGE: usize = 1 << 20;

/// The bytes of the largest text. With its length it is the largest message.
const LARGEST: usize = (16 << 20) - 4;

/// The bar for the memory, in MiB.
const MOST_MEMORY: f64 = 32.0;

/// The bar for the processor time, in percent of a core.
const MOST_PROCESSOR: f64 = 1.0;

#[derive(Serialize, Deserialize)]
struct Pids(Vec<Pid>);

#[derive(Serialize, Deserialize)]
struct Text(String);

remote!(Pids, "nodes::Pids", 1);
remote!(Text, "nodes::Text", 1);

/// The cost of a node beside a peer.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Spent {
    /// The processor time of all threads.
    processor: Duration,
    time: Duration,
    /// The peak of the resident memory, less the memory before the peer began, in KiB.
    kib: u64,
}

/// Reports the PIDs that it gets.
struct Reader(Sender<Vec<Pid>>);

impl Process for Reader {
    type Message = Pids;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Pids>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Pids(pids)) = event {
                // The program may be about to end.
                let _ = self.0.send(pids);
            }
        }
        Ok(Step::Idle)
    }
}

/// Runs the node for this time, beside a peer with this fault. First prints the PID of its reader.
pub(crate) fn node(fault: &str, port: u16, time: Duration) -> Outcome<Spent> {
    let runtime = Runtime::builder().workers(2).start()?;
    let node = Cluster::named(NODE, Wire::new().message::<Pids>().message::<Text>()).cluster(CLUSTER);
    let node = node.listen(format!("tcp/127.0.0.1:{port}")).security(Security::TrustedNetwork);
    let _cluster = node.start(&runtime)?;
    let (send, pids) = channel();
    let reader = runtime.spawn(Reader(send))?;
    rest(SETTLED);
    std::fs::write("/proc/self/clear_refs", "5")?;
    let resident = field("/proc/self/status", "VmRSS:")?;
    let before = now()?;
    println!("ready {}", reader.pid());
    std::io::stdout().flush()?;
    let fills = [Fault::NoCredit, Fault::NoCreditForLargest, Fault::NoAcknowledgement];
    if let Some(fault) = fills.into_iter().find(|other| other.name() == fault) {
        let sender = runtime.clone();
        let largest = fault == Fault::NoCreditForLargest;
        // It fills the room for small messages, and then that for large ones.
        thread::spawn(move || {
            let Ok(pids) = pids.recv() else { return };
            let is_taken = |length: usize| sender.send(pids[0].typed(), Text("x".repeat(length))).is_ok();
            // A peer that acknowledges takes small ones for ever.
            let _ = (0..200_000).take_while(|_| is_taken(SMALL)).count();
            // Before the largest one, as much waits as possible.
            let most = if largest { 7 } else { usize::MAX };
            let _ = (0..most).take_while(|_| is_taken(LARGE)).count();
            if largest {
                is_taken(LARGEST);
            }
        });
    }
    rest(time);
    let after = now()?;
    let kib = field("/proc/self/status", "VmHWM:")?.saturating_sub(resident);
    Ok(Spent { processor: Duration::from_nanos(after.processor.saturating_sub(before.processor)), time, kib })
}

/// Measures a node beside a peer with each fault.
pub(crate) fn all(keeper: &mut Keeper, time: Duration) -> Outcome<Vec<Bound>> {
    let mut bounds = Vec::new();
    for fault in Fault::ALL {
        let port = free_port()?;
        let (option, millis) = (format!("{HOSTILE}={}", fault.name()), time.as_millis().to_string());
        let node = keeper.start(own(&[&option, &port.to_string(), &millis])?)?;
        let ready = keeper.line(&node, START)?;
        let pid = ready.strip_prefix("ready ").ok_or_else(|| format!("it said {ready:?}"))?.parse()?;
        let mut peer = HostilePeer::open(&format!("127.0.0.1:{port}"))?;
        peer.begin(pid, fault)?;
        let spent: Spent = serde_json::from_str(&keeper.line(&node, START + time)?)?;
        let announced = peer.counts.announced.load(Ordering::SeqCst);
        drop(peer);
        eprintln!("nodes: a peer that {}: {spent:?}, {announced} nodes announced", fault.name());
        let share = 100.0 * spent.processor.as_secs_f64() / spent.time.as_secs_f64();
        let what = |of: &str| format!("{of} beside a peer that {}", fault.name());
        bounds.push(Bound::at_most(54, what("processor"), (share, "% of a core"), MOST_PROCESSOR));
        bounds.push(Bound::at_most(54, what("memory"), (spent.kib as f64 / 1024.0, "MiB"), MOST_MEMORY));
    }
    Ok(bounds)
}
