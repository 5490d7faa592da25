//! A network with nodes of two clusters, and reports that call it.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::cluster::{Cluster, NodeEvent, Wire};
use crate::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn nodes_of_two_clusters_with_one_name_do_not_disturb_each_other() {
    let network = MemoryNetwork::new();
    let start = |name: &str, cluster: &str| {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let node = Cluster::named(name, Wire::new()).cluster(cluster).memory(&network).start(&runtime).unwrap();
        (runtime, node)
    };
    let all = [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")].map(|(name, cluster)| start(name, cluster));
    for ((_, node), other) in all.iter().zip(["b", "a", "b", "a"]) {
        node.wait_for(other, LIMIT).unwrap();
        assert_eq!(node.nodes().len(), 1, "{node:?}");
        assert!(!node.members.has_more_than(1), "a node of another cluster costs no thread");
    }
    let incarnation = |at: usize| all[at].1.here().incarnation();
    assert_eq!(all[0].1.nodes()[0].incarnation(), incarnation(1));
    assert_eq!(all[2].1.nodes()[0].incarnation(), incarnation(3));
    // A name that no node can have is no peer. Each foreign node is told of once, and they are bounded.
    let members = &all[3].1.members;
    ["a/b", ""].iter().for_each(|name| members.seen(name, 1));
    assert!(!members.has_more_than(1));
    let mut events = all[3].1.events();
    (0..10_000).for_each(|number| members.foreign("z", &format!("n{}", number / 2)));
    all[3].0.shutdown(LIMIT).unwrap();
    let refused = std::iter::from_fn(|| events.recv_timeout(LIMIT).unwrap())
        .filter(|event| matches!(event, NodeEvent::Refused { .. }))
        .count();
    assert_eq!(refused, 1_022, "1,024 with the two of the other cluster");
}

/// Calls the network from inside of a report.
struct CallsBack(MemoryNetwork, mpsc::Sender<String>);

impl Upward for CallsBack {
    fn seen(&self, name: &str, _: u64) {
        let CallsBack(network, told) = self;
        let _ = told.send(name.into());
        if name == "b" {
            network.cut("x", "y");
            let link = network.link(("test", "c"), 3);
            link.open(Arc::new(CallsBack(network.clone(), told.clone()))).unwrap();
            link.close();
            panic!("{network:?}");
        }
    }

    fn gone(&self, name: &str, _: u64) {
        let _ = self.1.send(format!("not {name}"));
    }

    fn foreign(&self, _: &str, _: &str) {}

    fn frame(&self, _: &str, _: Vec<u8>) {}
}

#[test]
fn a_report_of_the_network_may_call_the_network() {
    let network = MemoryNetwork::new();
    let (tell, told) = mpsc::channel();
    let main = move || {
        let upward: Arc<dyn Upward> = Arc::new(CallsBack(network.clone(), tell));
        network.link(("test", "a"), 1).open(upward.clone()).unwrap();
        network.link(("test", "b"), 2).open(upward).unwrap();
    };
    crate::threads::start("test-reports".into(), main).unwrap();
    // The second end sees the first one, and both see the third one come and go.
    let reports: Vec<_> = (0..6).map(|_| told.recv_timeout(LIMIT).unwrap()).collect();
    assert_eq!(reports, ["b", "a", "c", "c", "not c", "not c"]);
}
