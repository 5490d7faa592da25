//! H: values.

use procession::ShutdownNode;
use procession::shutdown::{JobGuard, Key};

use crate::support::job;
use crate::wait::Mutex;

#[derive(PartialEq, Eq)]
struct Port(&'static str);

impl Key for Port {
    type Value = u16;
}

fn port(name: &'static str, number: u16, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
    ShutdownNode::value(Port(name), number, children)
}

fn get(state: &ShutdownNode, name: &'static str) -> Option<u16> {
    state.get(&Port(name)).as_deref().copied()
}

#[test]
fn a_value_is_found_from_every_ancestor_through_any_kind_of_node() {
    let state = port("http", 80, []);
    let (state, _job) = ShutdownNode::job([state]);
    let (state, _counter) = ShutdownNode::counted([state]);
    let (state, _ready) = ShutdownNode::readiness([state]);
    let (state, _errors) = ShutdownNode::errors([state]);
    let (state, _group) = ShutdownNode::group([ShutdownNode::error("broken", [state])]);
    let state = ShutdownNode::merge([ShutdownNode::empty(), state.annotate("name")]);
    let below = ShutdownNode::empty().depends_on([state]);
    assert_eq!(get(&below.depends_on([]), "http"), Some(80));
}

#[test]
fn a_key_that_is_nowhere_gives_nothing() {
    let state = port("http", 80, []);
    assert_eq!(get(&state, "ssh"), None);
    assert_eq!(get(&ShutdownNode::empty(), "http"), None);
}

#[test]
fn the_search_goes_from_the_top_and_then_from_the_left() {
    let one = || port("http", 1, []);
    let two = || port("http", 2, []);
    assert_eq!(get(&port("http", 0, [one()]), "http"), Some(0), "the own value before those of children");
    assert_eq!(get(&port("ssh", 0, [one()]), "http"), Some(1), "but only under the same key");
    assert_eq!(get(&one().depends_on([two()]), "http"), Some(1), "the parent of a dependency before its children");
    let deep = ShutdownNode::merge([ShutdownNode::merge([one()])]);
    assert_eq!(get(&ShutdownNode::merge([deep, two()]), "http"), Some(1), "the left one, even if deeper");
    assert_eq!(get(&ShutdownNode::merge([ShutdownNode::merge([]), two(), one()]), "http"), Some(2));
}

#[test]
fn keys_of_different_types_do_not_collide() {
    mod other {
        #[derive(PartialEq, Eq)]
        pub(super) struct Port(pub(super) &'static str);
        impl procession::shutdown::Key for Port {
            type Value = String;
        }
    }
    let state = port("http", 80, [ShutdownNode::value(other::Port("http"), String::from("eighty"), [])]);
    assert_eq!(get(&state, "http"), Some(80));
    assert_eq!(state.get(&other::Port("http")).unwrap().as_str(), "eighty");
}

/// A kind of state of our own: a place for a fatal error. A constructor reuses the one that its children have.
struct Fatality(Mutex<Option<String>>);

#[derive(PartialEq, Eq)]
struct FatalityKey;

impl Key for FatalityKey {
    type Value = Fatality;
}

fn with_fatality(children: Vec<ShutdownNode>) -> (ShutdownNode, std::sync::Arc<Fatality>) {
    let all = ShutdownNode::merge(children);
    if let Some(there) = all.get(&FatalityKey) {
        return (all, there);
    }
    let all = ShutdownNode::value(FatalityKey, Fatality(Mutex::new(None)), [all]);
    let made = all.get(&FatalityKey).unwrap();
    (all, made)
}

#[test]
fn kinds_of_ones_own_can_be_made_from_values_alone() {
    let (server, _tail): (ShutdownNode, JobGuard) = job();
    let (server, fatality) = with_fatality(vec![server]);
    let (all, same) = with_fatality(vec![ShutdownNode::empty(), server.annotate("server")]);
    assert!(std::sync::Arc::ptr_eq(&fatality, &same));
    *fatality.0.lock().unwrap() = Some(String::from("fire"));
    let found = all.get(&FatalityKey).unwrap();
    assert_eq!(found.0.lock().unwrap().as_deref(), Some("fire"));
}
