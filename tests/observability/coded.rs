//! A snapshot as JSON.

use procession::observe::{DeadLetterReason, Snapshot};

use crate::helpers::*;
use crate::node::*;

#[test]
fn a_snapshot_goes_to_json_and_back_unchanged() {
    let runtime = measured().workers(2).start().unwrap();
    let node = runtime.spawn(Node::<0> { recovers: true }).unwrap();
    for order in [Order::Fail, Order::Count(4), Order::Spawn, Order::Rest] {
        runtime.send(node.address(), order).unwrap();
        until("it is done", || runtime.is_idle());
    }
    (0..3).for_each(|_| runtime.send(node.address(), Order::Nothing).unwrap());
    let (_, blocker) = hold_up(&runtime);
    let snapshot = runtime.snapshot();
    blocker.release();
    assert!(snapshot.types.len() == 3 && !snapshot.mailboxes.is_empty());
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
}

#[test]
fn a_reader_ignores_unknown_fields_and_takes_defaults_for_missing_ones() {
    let text = r#"{
        "stats": {
            "spawned": 7,
            "news": [1, 2],
            "messages": { "stepped": 3, "dead_by_reason": { "full": 2, "eaten": 9 } },
            "workers": [{ "steps": 5, "mood": "good" }]
        },
        "types": [{ "type_name": "node", "living": 4, "weight": 1.5 }],
        "mailboxes": [{ "pid": "<0.1.1>", "state": "Dreaming", "mood": 1 }],
        "stuck": [{ "pid": "<0.2.1>" }],
        "weather": null
    }"#;
    let snapshot: Snapshot = serde_json::from_str(text).unwrap();
    assert_eq!((snapshot.stats.spawned, snapshot.stats.messages.stepped, snapshot.stats.workers[0].steps), (7, 3, 5));
    assert_eq!(snapshot.stats.messages.dead_by_reason, [(DeadLetterReason::Full, 2)].into());
    assert_eq!((&snapshot.types[0].type_name[..], snapshot.types[0].living), ("node", 4));
    assert_eq!((snapshot.mailboxes[0].pid.to_string(), snapshot.mailboxes[0].state), ("<0.1.1>".into(), None));
    assert_eq!(snapshot.stuck[0].pid.to_string(), "<0.2.1>");
}
