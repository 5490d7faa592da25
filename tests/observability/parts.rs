//! The figures of pools, tasks, the shutdown tree, a store and a node in the snapshot of a runtime.

use std::time::Duration;

use procession::observe::{ClusterStats, PeerStats, ShutdownStats, Snapshot, StoreStats};
use procession::pool::Pool;
use procession::shutdown::{Phase, ShutdownNode};
use procession::task::TaskScheduler;

use crate::helpers::*;
use crate::node::*;
use crate::parser::Metrics;

/// A snapshot with all parts.
fn with_parts() -> Snapshot {
    let runtime = measured().workers(1).start().unwrap();
    add_parts(quiet(&runtime))
}

/// Adds all parts. Each count of the store and of the node is another number.
pub fn add_parts(snapshot: Snapshot) -> Snapshot {
    let (images, mails) = (Pool::builder().max(2).build().unwrap(), Pool::builder().max(1).build().unwrap());
    (0..5).for_each(|_| images.run(|| ()).unwrap());
    mails.run(|| ()).unwrap();
    let tasks = TaskScheduler::on(&images);
    (0..3).for_each(|_| drop(tasks.submit(|_| Ok::<_, String>(1)).unwrap().wait()));
    until("the jobs have been counted", || images.stats().unfinished() == 0 && mails.stats().unfinished() == 0);
    let (below, guard) = ShutdownNode::job([]);
    let (tree, _above) = ShutdownNode::job([below]);
    guard.done();
    let mut store = StoreStats::default();
    (store.in_memory, store.loaded, store.parked, store.stored) = (11, 12, Some(13), 14);
    (store.unstored, store.unapplied, store.unapplied_bytes) = (15, 16, 17);
    (store.unstored_bytes, store.commits, store.commit_bytes) = (31, 32, 33);
    (store.commit_time, store.rewinds) = (Duration::from_secs(34), 35);
    let mut peer = PeerStats::default();
    (peer.name, peer.is_up, peer.frames_sent, peer.bytes_sent) = ("b".into(), true, 21, 22);
    (peer.frames_received, peer.bytes_received) = (23, 24);
    let mut cluster = ClusterStats::default();
    (cluster.held_processes, cluster.waiting_sends, cluster.peers) = (25, 26, vec![peer, PeerStats::default()]);
    (cluster.refused_lives, cluster.refused_relations) = (27, 28);
    let snapshot = snapshot.with_pool("images", images.stats()).with_pool("mails", mails.stats());
    let snapshot = snapshot.with_tasks("jobs", tasks.stats()).with_shutdown(&tree.report());
    snapshot.with_store(store).with_cluster(cluster)
}

#[test]
fn pools_tasks_the_shutdown_tree_a_store_and_a_node_are_in_the_text() {
    let snapshot = with_parts();
    let metrics = Metrics::parse(&snapshot.to_openmetrics());
    let of = |name: &str, label: &str, of: &str| metrics.value(name, &[(label, of)]) as u64;
    let (images, mails) = (snapshot.pools["images"], snapshot.pools["mails"]);
    // Five jobs, and those of the tasks.
    assert_eq!((images.submitted, mails.submitted), (8, 1));
    for (name, pool) in &snapshot.pools {
        let value = |figure: &str| of(&format!("procession_pool_{figure}"), "pool", name);
        assert_eq!((value("workers"), value("idle")), (pool.workers as u64, pool.idle as u64), "{name}");
        assert_eq!((value("running"), value("waiting")), (pool.running as u64, pool.waiting as u64), "{name}");
        assert_eq!((value("submitted_total"), value("finished_total")), (pool.submitted, pool.finished), "{name}");
        assert_eq!((value("panicked_total"), value("abandoned_total"), value("withdrawn_total")), (0, 0, 0), "{name}");
    }
    assert!(snapshot.pools.contains_key("blocking"));
    let tasks = |figure: &str| of(&format!("procession_tasks_{figure}"), "scheduler", "jobs");
    assert_eq!((tasks("submitted_total"), tasks("completed_total"), tasks("cancelled_total")), (3, 3, 0));
    assert_eq!((tasks("scheduled"), tasks("running"), tasks("timed_out_total"), tasks("stopped_total")), (0, 0, 0, 0));
    assert_eq!((tasks("records"), tasks("abandoned")), (snapshot.tasks["jobs"].records as u64, 0));
    let nodes = |phase| of("procession_shutdown_nodes", "phase", phase);
    assert_eq!((nodes("running"), nodes("done")), (1, 1));
    assert_eq!((nodes("closing"), nodes("told"), nodes("cancelled"), nodes("given_up")), (0, 0, 0, 0));
    let store = |figure: &str| metrics.value(&format!("procession_store_{figure}"), &[]) as u64;
    assert_eq!((store("in_memory"), store("loaded_total"), store("parked"), store("stored_total")), (11, 12, 13, 14));
    assert_eq!((store("unstored"), store("unapplied"), store("unapplied_bytes")), (15, 16, 17));
    assert_eq!((store("unstored_bytes"), store("commits_total"), store("commit_bytes_total")), (31, 32, 33));
    assert_eq!((store("commit_seconds_total"), store("rewinds_total")), (34, 35));
    let mut unread = snapshot.store.unwrap();
    unread.parked = None;
    let unread = snapshot.clone().with_store(unread).to_openmetrics();
    assert!(
        !unread.contains("store_parked") && unread.contains("store_unstored"),
        "a count that is not known is missing"
    );
    let peer = |figure: &str| of(&format!("procession_peer_{figure}"), "peer", "b");
    assert_eq!((peer("up"), peer("frames_sent_total"), peer("bytes_sent_total")), (1, 21, 22));
    assert_eq!((peer("frames_received_total"), peer("bytes_received_total")), (23, 24));
    assert_eq!(of("procession_peer_up", "peer", ""), 0);
    assert_eq!(
        (metrics.value("procession_held_processes", &[]), metrics.value("procession_waiting_sends", &[])),
        (25.0, 26.0)
    );
    let refused = |what: &str| metrics.value(&format!("procession_refused_{what}_total"), &[]) as u64;
    assert_eq!((refused("lives"), refused("relations")), (27, 28));
}

#[test]
fn parts_that_were_not_added_are_not_in_the_text() {
    let runtime = measured().workers(1).start().unwrap();
    let text = quiet(&runtime).to_openmetrics();
    let named = |prefix: &str| text.contains(prefix);
    assert!(named("procession_pool_workers{pool=\"blocking\"}"));
    for prefix in ["procession_tasks", "procession_shutdown", "procession_store", "procession_peer", "procession_held"]
    {
        assert!(!named(prefix), "{prefix} in {text}");
    }
}

#[test]
fn the_phases_of_a_shutdown_tree_are_counted() {
    let (first, first_guard) = ShutdownNode::job([]);
    let (second, _second_guard) = ShutdownNode::job([]);
    let (tree, _guard) = ShutdownNode::job([first, second]);
    assert!(tree.shutdown_timeout(Duration::ZERO).is_err());
    first_guard.done();
    until("the first has ended", || tree.report().count(Phase::Done) == 1);
    let stats = ShutdownStats::from(&tree.report());
    assert_eq!((stats.done, stats.told, stats.closing, stats.running), (1, 1, 1, 0));
}

#[cfg(feature = "durable")]
#[test]
fn parts_go_to_json_and_back_unchanged() {
    let snapshot = with_parts();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    let older = serde_json::from_str::<Snapshot>("{}").unwrap();
    assert_eq!((older.pools.len(), older.store), (0, None));
}
