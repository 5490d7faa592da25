//! Nodes with sessions of their own, over TCP of this machine.

use std::net::TcpListener;

use super::tests::{Graves, LIMIT, Member, is_down, wire};
use super::*;
use crate::cluster::events::NodeEvent;
use crate::cluster::node::echo::Message;
use crate::cluster::peer::DownReason;
use crate::wait::until;

/// Endpoints that are free at this moment.
fn endpoints<const N: usize>() -> [String; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| format!("tcp/{}", listener.local_addr().unwrap()))
}

fn member(name: &str, listen: &str, join: &[&str]) -> Result<Member, ClusterError> {
    let graves = Graves::default();
    let runtime = Runtime::builder().workers(1).observer(graves.clone()).start().unwrap();
    let node = Cluster::named(name, wire()).listen(listen).security(Security::TrustedNetwork);
    let cluster = join.iter().fold(node, |node, seed| node.join(*seed)).start(&runtime)?;
    Ok(Member { runtime, cluster, graves })
}

#[test]
fn nodes_that_know_one_seed_form_a_mesh_that_outlives_the_seed() {
    let [one, two, three] = endpoints();
    // The seed starts last.
    let b = member("b", &two, &[&one]).unwrap();
    let c = member("c", &three, &[&one]).unwrap();
    let a = member("a", &one, &[]).unwrap();
    for (member, others) in [(&a, ["b", "c"]), (&b, ["a", "c"]), (&c, ["a", "b"])] {
        others.iter().for_each(|other| member.cluster.wait_for(other, LIMIT).unwrap());
    }
    let mut events = b.cluster.events();
    a.runtime.shutdown(LIMIT).unwrap();
    until("the seed has left", || {
        let event = events.recv_timeout(LIMIT).unwrap();
        matches!(event, Some(NodeEvent::Down(node, DownReason::Left)) if node.name() == "a")
    });
    let (echo, notes) = c.echo();
    let far = b.far(&c, echo.address());
    for number in 0..1_000 {
        b.runtime.send(far, Message::Note(number)).unwrap();
    }
    assert_eq!(b.runtime.ask(far, Message::Ask, LIMIT).wait().unwrap(), 7);
    assert_eq!(*lock(&notes), (0..1_000).collect::<Vec<_>>());
    assert_eq!(c.names(), ["b"]);
    c.runtime.shutdown(LIMIT).unwrap();
    assert!(is_down(&b.runtime.ask(far, Message::Ask, LIMIT).wait()));
    assert!(lock(&b.graves.0).is_empty());
}

#[test]
fn a_late_node_that_knows_a_dead_and_a_live_address_sees_all() {
    let [one, two, three, dead] = endpoints();
    let a = member("a", &one, &[]).unwrap();
    let b = member("b", &two, &[&one]).unwrap();
    a.cluster.wait_for("b", LIMIT).unwrap();
    let c = member("c", &three, &[&dead, &two]).unwrap();
    c.cluster.wait_for("a", LIMIT).unwrap();
    c.cluster.wait_for("b", LIMIT).unwrap();
    b.cluster.wait_for("c", LIMIT).unwrap();
}

#[test]
fn a_node_starts_inside_of_an_async_runtime_with_one_thread() {
    let [one, two] = endpoints();
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let a = tokio.block_on(async { member("a", &one, &[]) }).unwrap();
    let b = tokio.block_on(async { member("b", &two, &[&one]) }).unwrap();
    a.cluster.wait_for("b", LIMIT).unwrap();
    tokio.block_on(async { b.runtime.shutdown(LIMIT) }).unwrap();
}

#[test]
fn endpoints_are_checked() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let node = |endpoint: &str| Cluster::named("a", wire()).listen(endpoint);
    let why = |node: ClusterBuilder| node.start(&runtime).unwrap_err().to_string();
    assert!(why(node("tcp/127.0.0.1:0")).contains("TrustedNetwork"));
    for endpoint in ["tls/127.0.0.1:0", "quic/127.0.0.1:0", "127.0.0.1:0", ""] {
        let why = why(node(endpoint).security(Security::TrustedNetwork));
        assert!(why.contains("only `tcp/`"), "{endpoint}: {why}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp/{}", taken.local_addr().unwrap());
    let error = node(&endpoint).security(Security::TrustedNetwork).start(&runtime).unwrap_err();
    assert!(matches!(error, ClusterError::Link(_)), "{error}");
    assert!(error.to_string().contains(&taken.local_addr().unwrap().port().to_string()), "{error}");
}
