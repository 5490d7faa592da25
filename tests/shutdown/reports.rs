//! Beyond the original: the whole tree at a glance.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::ShutdownNode;
use procession::clock::ManualClock;
use procession::shutdown::{Kind, Phase};

use crate::support::{ZERO, timed};

#[test]
fn a_report_has_every_node_with_its_phase_and_for_how_long() {
    let clock = ManualClock::new();
    let (store, store_tail) = timed("store", &clock);
    let (counted, counter) = ShutdownNode::counted([store]);
    let (unready, _ready) = ShutdownNode::readiness([counted]);
    let (server, server_tail) = ShutdownNode::builder().name("server").children([unready]).job();
    let all = server.annotate("all");
    let guard = counter.add();
    clock.advance(Duration::from_secs(7));

    let report = all.report();
    let kinds: Vec<_> = report.nodes().iter().map(|node| node.kind).collect();
    assert_eq!(kinds, [Kind::Annotation, Kind::Job, Kind::Readiness, Kind::Counted, Kind::Job]);
    assert_eq!(report.count(Phase::Running), 5);
    let depths: Vec<_> = report.nodes().iter().map(|node| (node.depth, node.above)).collect();
    assert_eq!(depths, [(0, None), (1, Some(0)), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
    assert!(report.nodes().iter().all(|node| node.for_time == Duration::from_secs(7)));
    assert!(!report.nodes()[2].is_ready && report.nodes()[3].count == 1);

    all.request_shutdown();
    clock.advance(Duration::from_secs(2));
    let report = all.report();
    let store = report.find("store").unwrap();
    assert_eq!((store.phase, store.for_time, store.ending_took), (Phase::Told, Duration::from_secs(2), None));
    assert_eq!(report.find("server").unwrap().phase, Phase::Closing);

    store_tail.fail("no disk");
    store_tail.done();
    clock.advance(Duration::from_secs(3));
    let report = all.report();
    let store = report.find("store").unwrap();
    assert_eq!((store.phase, store.for_time), (Phase::Done, Duration::from_secs(3)));
    assert_eq!(store.ending_took, Some(Duration::from_secs(2)));
    assert_eq!(store.error.as_ref().unwrap().to_string(), "no disk");
    assert_eq!(report.find("server").unwrap().phase, Phase::Told);
    let text = report.to_string();
    assert!(text.contains("        store (job): done for 3s, ended in 2s, error: no disk"), "{text}");
    assert!(text.contains("(counted): done for 3s, count 1"), "{text}");
    assert!(text.contains("(readiness): done for 3s, not ready"), "{text}");
    drop((guard, server_tail));
    assert_eq!(all.report().count(Phase::Done), 5);
}

#[test]
fn a_node_says_what_it_waits_for_as_long_as_it_hangs() {
    let waiting = Arc::new(AtomicUsize::new(3));
    let left = waiting.clone();
    let detail = move || match left.load(Ordering::SeqCst) {
        0 => None,
        1 => std::panic::resume_unwind(Box::new("while it counted")),
        left => Some(format!("{left} requests")),
    };
    let (server, tail) = ShutdownNode::builder().name("server").detail(detail).job();
    assert_eq!(server.report().nodes()[0].detail, None, "nobody waits for it yet");
    let error = server.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "server: timeout expired (3 requests)");
    assert_eq!(error.open()[0].detail(), Some("3 requests"));
    assert!(server.report().to_string().ends_with(", 3 requests"), "{}", server.report());
    waiting.store(1, Ordering::SeqCst);
    let error = server.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "server: timeout expired (panicked: while it counted)");
    waiting.store(0, Ordering::SeqCst);
    assert_eq!(server.shutdown_timeout(ZERO).unwrap_err().to_string(), "server: timeout expired");
    waiting.store(2, Ordering::SeqCst);
    tail.done();
    assert_eq!(server.report().nodes()[0].detail, None);
}

#[test]
fn a_manual_clock_below_is_the_clock_of_all_above() {
    let clock = ManualClock::new();
    let (store, _tail) = timed("store", &clock);
    let all = ShutdownNode::merge([ShutdownNode::empty(), store]).annotate("all");
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(all.report().nodes()[0].for_time, Duration::from_secs(3_600));
}

#[test]
fn the_report_of_a_diamond_lists_each_node_once_where_it_is_seen_first() {
    let (leaf, _leaf) = ShutdownNode::builder().name("leaf").job();
    let (left, _left) = ShutdownNode::builder().name("left").children([leaf.clone()]).job();
    let (right, _right) = ShutdownNode::builder().name("right").children([leaf]).job();
    let (top, _top) = ShutdownNode::builder().name("top").children([left, right]).job();
    let report = top.report();
    let names: Vec<_> = report.nodes().iter().map(|node| node.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["top", "left", "leaf", "right"]);
}
