//! Durable processes, as processes of other nodes reach them.

use std::time::Duration;

use procession::cluster::{Cluster, MemoryNetwork, Wire};
use procession::durable::Store;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::{Address, CommandError, Runtime};

use crate::links::{Knot, KnotMessage, look as look_at_knot};
use crate::places::store_in;
use crate::wait::{LIMIT, until};
use crate::worker::{Worker, WorkerMessage, end, kill, look, open, stepped};

procession::remote!(WorkerMessage, "test::Worker", 1);

fn node(name: &str, network: &MemoryNetwork, runtime: &Runtime) -> Cluster {
    Cluster::named(name, Wire::new().message::<WorkerMessage>()).memory(network).start(runtime).unwrap()
}

/// The address of a durable process of the node `b`.
fn find(cluster: &Cluster, name: &str) -> Address<WorkerMessage> {
    cluster.wait_for("b", LIMIT).unwrap();
    cluster.whereis("b", name, LIMIT).wait().unwrap().typed()
}

/// Begins a durable process with this id and name.
fn begin(store: &Store, runtime: &Runtime, id: &str) -> Address<WorkerMessage> {
    let begun = store.begin(id, Worker::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    runtime.register(id, begun.address()).unwrap();
    begun.address()
}

fn is_node_down<T: std::fmt::Debug>(answer: &Result<T, CommandError>) -> bool {
    matches!(answer, Err(CommandError::Node { .. }))
}

#[test]
fn a_durable_process_keeps_its_pid_for_other_nodes_over_its_own_restarts() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let (store, b) = open(&disk);
    begin(&store, &b, "worker");
    let second = node("b", &network, &b);
    let far = find(&cluster, "worker");
    a.send(far, WorkerMessage::Set(5)).unwrap();
    assert_eq!(look(&a, far).0, 5);
    let watched = a.watch(far.pid());
    // It knows a process of the first node, which knows it.
    let near = a.spawn(Worker::default()).unwrap().address();
    a.send(far, WorkerMessage::Introduce(near)).unwrap();
    until("the sender is known", || look(&a, near).1 == [format!("Some({:?})", far.pid())]);
    stepped(&b);
    drop(second);
    kill(&disk, (store, b));
    until("its node is down", || cluster.nodes().is_empty());
    assert!(is_node_down(&a.ask(far, WorkerMessage::Look, LIMIT).wait()));
    let told = watched.wait_timeout(LIMIT).unwrap().exit.to_string();
    assert_eq!(told, "terminated (the connection to its node has broken)");
    // The next run is another node, and the same store.
    let (store, b) = open(&disk);
    let _third = node("b", &network, &b);
    cluster.wait_for("b", LIMIT).unwrap();
    assert_eq!(look(&a, far).0, 5);
    let watched = a.watch(far.pid());
    a.send(far, WorkerMessage::Over).unwrap();
    assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), "done");
    until("it has ended", || !b.is_alive(store.find::<Worker>("worker").map_or(far.pid(), |it| it.pid())));
    assert!(matches!(a.ask(far, WorkerMessage::Look, LIMIT).wait(), Err(CommandError::NoSuchProcess(_))));
    end((store, b));
}

#[test]
fn a_durable_process_that_sleeps_is_woken_and_stopped_by_other_nodes() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().sleep_after(Duration::from_micros(50));
    let (store, b) = store.start(Runtime::builder().workers(1)).unwrap();
    let near = ["first", "second"].map(|id| begin(&store, &b, id));
    let _second = node("b", &network, &b);
    let [first, second] = ["first", "second"].map(|id| find(&cluster, id));
    until("they sleep", || b.processes().is_empty());
    let watched = [first, second].map(|far| a.watch(far.pid()));
    assert_eq!(look(&a, first).0, 0, "the question has woken it");
    assert!(a.cancel(first.pid(), "enough").unwrap());
    until("it is asked to stop", || look(&a, first).1 == ["cancel: enough"]);
    until("they sleep", || b.processes().is_empty());
    assert!(a.terminate(second.pid()).unwrap());
    assert_eq!(watched[1].wait_timeout(LIMIT).unwrap().exit.to_string(), "terminated (terminated)");
    assert!(watched[0].down().is_none());
    assert!(b.is_alive(near[0].pid()) && !b.is_alive(near[1].pid()));
    end((store, b));
}

#[test]
fn a_link_to_a_durable_process_of_another_node_is_refused() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let (store, b) = open(&disk);
    let durable = begin(&store, &b, "worker");
    let _second = node("b", &network, &b);
    let far = find(&cluster, "worker");
    let knot = a.spawn(Knot::default()).unwrap().address();
    a.send(knot, KnotMessage::Trap(true)).unwrap();
    a.send(knot, KnotMessage::Link(far.pid())).unwrap();
    until("it is told", || look_at_knot(&a, knot).unwrap() == ["terminated (the connection to its node has broken)"]);
    assert_eq!(look(&a, far).0, 0);
    assert!(b.is_alive(durable.pid()));
    end((store, b));
}
