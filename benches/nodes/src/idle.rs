//! The cost of a peer that is connected and does nothing: threads, time of processors, wake-ups and memory of a node,
//! beside a node without a peer. The engine below is measured in the same way by itself. Linux only.

use std::sync::mpsc::channel;
use std::time::Duration;

use procession::Runtime;
use procession::cluster::{Cluster, Security, Wire};
use serde::{Deserialize, Serialize};
use zenoh::Wait as _;
use zenoh::sample::Sample;

use crate::load::{LIMIT, Outcome, nanos};

/// The kinds of a node.
pub(crate) const NODE: &str = "node";
pub(crate) const ENGINE: &str = "engine";

/// After its start, a node is busy for a while.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// The cost of a node that does nothing for a while.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Idle {
    pub(crate) nanos: u64,
    pub(crate) threads: u64,
    /// Of all threads, in nanoseconds.
    pub(crate) processor: u64,
    pub(crate) wakes: u64,
    /// Those of our own threads alone.
    pub(crate) our_threads: u64,
    pub(crate) our_processor: u64,
    pub(crate) our_wakes: u64,
    /// In bytes.
    pub(crate) memory: u64,
}

/// Runs a node: its kind, its name, the port where it listens, and that of the only other node, or 0.
pub(crate) fn run(kind: &str, name: &str, (listen, join): (u16, u16), time: Duration) -> Outcome<Idle> {
    let endpoint = |port: u16| format!("tcp/127.0.0.1:{port}");
    match kind {
        NODE => {
            let runtime = Runtime::builder().workers(2).start()?;
            let mut builder =
                Cluster::named(name, Wire::new()).listen(endpoint(listen)).security(Security::TrustedNetwork);
            if join != 0 {
                builder = builder.join(endpoint(join));
            }
            let cluster = builder.start(&runtime)?;
            if join != 0 {
                cluster.wait_for(if name == "a" { "b" } else { "a" }, LIMIT)?;
            }
            measure(time)
        }
        ENGINE => {
            let joins = if join == 0 { Vec::new() } else { vec![endpoint(join)] };
            let mut config = zenoh::Config::default();
            for (key, value) in [
                ("mode", serde_json::json!("peer")),
                ("listen/endpoints", serde_json::json!([endpoint(listen)])),
                ("connect/endpoints", serde_json::json!(joins)),
                ("connect/exit_on_failure", serde_json::json!(false)),
                ("connect/timeout_ms", serde_json::json!(-1)),
                ("scouting/multicast/enabled", serde_json::json!(false)),
            ] {
                config.insert_json5(key, &value.to_string())?;
            }
            let session = zenoh::open(config).wait()?;
            let (tell, told) = channel();
            let seen = move |sample: Sample| drop(tell.send(sample.key_expr().to_string()));
            let subscriber = session.liveliness().declare_subscriber("nodes/*").history(true).callback(seen);
            subscriber.background().wait()?;
            let _frames = session.declare_subscriber(format!("to/{name}/*")).callback(|_| {}).wait()?;
            let _token = session.liveliness().declare_token(format!("nodes/{name}")).wait()?;
            let own = format!("nodes/{name}");
            while join != 0 && told.recv_timeout(LIMIT)? == own {}
            measure(time)
        }
        _ => Err(format!("there is no kind {kind:?}").into()),
    }
}

/// Waits, and returns the cost of the time in between.
fn measure(time: Duration) -> Outcome<Idle> {
    rest(SETTLED);
    let before = now()?;
    rest(time);
    let after = now()?;
    Ok(Idle {
        nanos: nanos(time),
        processor: after.processor - before.processor,
        wakes: after.wakes - before.wakes,
        our_processor: after.our_processor - before.our_processor,
        our_wakes: after.our_wakes - before.our_wakes,
        ..after
    })
}

/// Lets some time pass, without a wake-up in between.
pub(crate) fn rest(time: Duration) {
    let (_never, nothing) = channel::<()>();
    let _ = nothing.recv_timeout(time);
}

/// The counters of this program.
pub(crate) fn now() -> Outcome<Idle> {
    let mut idle = Idle { memory: 1024 * field("/proc/self/status", "RssAnon:")?, ..Idle::default() };
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let read = |name: &str| std::fs::read_to_string(task.join(name));
        // A thread may exit meanwhile.
        let (Ok(times), Ok(status), Ok(name)) = (read("schedstat"), read("status"), read("comm")) else { continue };
        let processor: u64 = times.split(' ').next().unwrap_or_default().parse()?;
        let wakes = number(&status, "voluntary_ctxt_switches:").ok_or("a thread has no count of its wake-ups")?;
        idle.threads += 1;
        idle.processor += processor;
        idle.wakes += wakes;
        if name.starts_with("procession") {
            idle.our_threads += 1;
            idle.our_processor += processor;
            idle.our_wakes += wakes;
        }
    }
    Ok(idle)
}

/// A number from a file of the kernel.
pub(crate) fn field(file: &str, name: &str) -> Outcome<u64> {
    let text = std::fs::read_to_string(file)?;
    number(&text, name).ok_or_else(|| format!("{file} has no {name}").into())
}

/// The number in the line that begins with this name.
fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
