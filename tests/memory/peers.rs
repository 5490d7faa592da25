//! The memory and the threads that connected nodes take.

use procession::Runtime;
use procession::cluster::{Cluster, MemoryNetwork, Wire};

use crate::helpers::*;
use crate::resident::*;

const NODES: u64 = 32;

#[test]
fn a_node_with_thirty_one_peers_takes_little_for_each() {
    alone(|| {
        let runtimes: Vec<Runtime> = (0..NODES).map(|_| runtime(1)).collect();
        let (before, threads) = (resident_kib(), system("Threads:"));
        let network = MemoryNetwork::new();
        let start = |(number, runtime): (usize, &Runtime)| {
            Cluster::named(format!("n{number}"), Wire::new()).memory(&network).start(runtime).unwrap()
        };
        let nodes: Vec<Cluster> = runtimes.iter().enumerate().map(start).collect();
        until("each node sees all others", || nodes.iter().all(|node| node.nodes().len() as u64 == NODES - 1));
        // Each node has its end of each connection.
        let ends = NODES * (NODES - 1);
        let threads = system("Threads:") - threads;
        assert!(threads <= 2 * ends, "{threads} threads for {ends} ends of connections");
        let grown = before.zip(resident_kib()).map(|(before, after)| after.saturating_sub(before) / ends);
        println!("{threads} threads, {grown:?} KiB for each of {ends} ends of connections");
        assert!(grown.is_none_or(|grown| grown <= 128), "{grown:?} KiB for each peer");
    });
}
