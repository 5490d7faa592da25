//! Prints the figures of a small program as OpenMetrics text, as a handler for `/metrics` would return them.
//!
//! Run it with `cargo run --example figures`. A shop takes orders, and fails at some of them. Its figures say so.

use std::time::Duration;

use procession::observe::{ClusterStats, MetricsOptions, PeerStats, StoreStats};
use procession::pool::Pool;
use procession::task::TaskScheduler;
use procession::{BoxError, Event, Events, Exit, Process, Runtime, Step, StepOutput, StepResult, Upgrade};

const LIMIT: Duration = Duration::from_secs(60);

/// Takes orders: a number of pieces each.
struct Shop;

impl Process for Shop {
    type Message = u64;
    type Output = ();

    fn type_name() -> &'static str {
        "shop"
    }

    /// A shop that has failed opens again.
    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Shop))
    }

    fn step(&mut self, events: &mut Events<u64>, out: &mut StepOutput) -> StepResult<()> {
        // One order for each step, so that an order that fails takes no other one with it.
        match events.next() {
            Some(Event::Message(0)) => Err("an order of nothing".into()),
            Some(Event::Message(pieces)) => {
                out.count("orders", 1);
                out.count("pieces", pieces);
                Ok(Step::Idle)
            }
            Some(Event::Cancel(_)) => Ok(Step::Done(())),
            _ => Ok(Step::Idle),
        }
    }
}

/// A process whose type has a name that OpenMetrics escapes.
struct Odd;

impl Process for Odd {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        "odd \"type\",\nwith a \\ in it"
    }

    fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

/// The figures of a store and of a node, which this program does not have. A program takes them from `Store::stats`
/// and `Cluster::stats`.
fn store_and_node() -> (StoreStats, ClusterStats) {
    let (mut peer, mut cluster) = (PeerStats::default(), ClusterStats::default());
    (peer.name, peer.is_up) = ("east".into(), true);
    cluster.peers.push(peer);
    (StoreStats::default(), cluster)
}

fn main() -> Result<(), BoxError> {
    let runtime = Runtime::builder().metrics(MetricsOptions::new()).start()?;
    let shops: Vec<_> = (0..10).map(|_| runtime.spawn(Shop)).collect::<Result<_, _>>()?;
    for order in 0..10_000 {
        runtime.send(&shops[order % shops.len()], order as u64 % 100)?;
    }
    runtime.spawn(Odd)?;
    runtime.wait_idle_timeout(LIMIT)?;
    let images = Pool::builder().max(2).build()?;
    let mails = TaskScheduler::on(&images);
    let sent = mails.submit(|_| Ok::<_, BoxError>(())).map_err(|_| "the pool takes no task")?;
    sent.wait().map_err(|_| "the task has failed")?;
    let (store, node) = store_and_node();
    let snapshot = runtime.snapshot().with_shutdown(&runtime.shutdown_node().report());
    let snapshot = snapshot.with_pool("images", images.stats()).with_tasks("mails", mails.stats());
    let snapshot = snapshot.with_store(store).with_cluster(node);
    print!("{}", snapshot.to_openmetrics());
    runtime.shutdown(LIMIT)?;
    Ok(())
}
