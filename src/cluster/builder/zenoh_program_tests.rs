//! Many nodes over TCP of this machine, a program that is killed, and one with an older version of the protocol.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use super::tests::{LIMIT, Member, wire};
use super::zenoh_tests::{endpoints, member};
use super::*;
use crate::clock::Clock;
use crate::cluster::events::NodeEvent;
use crate::cluster::node::echo::Message;
use crate::cluster::peer::{DownReason, PROTOCOL};
use crate::wait::until;

/// The number of nodes in guarantee 59.
const NODES: usize = 32;

/// The number of frames that were sent to each peer of each node.
fn frames(members: &[Member]) -> BTreeMap<(usize, String), u64> {
    let peers = members.iter().map(|member| member.cluster.stats().peers).enumerate();
    peers.flat_map(|(at, peers)| peers.into_iter().map(move |peer| ((at, peer.name), peer.frames_sent))).collect()
}

/// The processor time of this program so far, where the system says so.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<u64> = stat.rsplit_once(')')?.1.split(' ').skip(12).take(2).flat_map(str::parse).collect();
    Some(Duration::from_millis(10 * fields.iter().sum::<u64>()))
}

/// `PROCESSION_FULL=1` has all nodes, and rests for ten seconds.
#[test]
fn many_nodes_over_tcp_form_a_mesh_and_send_only_heartbeats_at_rest() {
    let is_full = std::env::var_os("PROCESSION_FULL").is_some();
    let (count, beats) = if is_full { (NODES, 40) } else { (6, 8) };
    println!("nodes: {count} instead of {NODES}");
    let endpoints = &endpoints::<NODES>()[..count];
    let clock = Clock::system();
    let begins = clock.now();
    let start = |at: usize| {
        let seed = if at > 0 { &endpoints[..1] } else { &[] };
        let join: Vec<&str> = seed.iter().map(|endpoint| &**endpoint).collect();
        member(&format!("n{at:02}"), &endpoints[at], &join).unwrap()
    };
    let members: Vec<Member> = (0..count).map(start).collect();
    until("each node sees all others", || members.iter().all(|member| member.cluster.nodes().len() == count - 1));
    println!("{count} nodes are a mesh after {:?}", clock.now().saturating_duration_since(begins));
    let (begins, before, processor) = (clock.now(), frames(&members), processor_time());
    let grown = || -> Vec<u64> {
        let now = frames(&members);
        before.iter().map(|(pair, before)| now.get(pair).map_or(0, |now| now.saturating_sub(*before))).collect()
    };
    until("all have sent heartbeats", || grown().iter().all(|grown| *grown >= beats));
    let (most, time) = (*grown().iter().max().unwrap(), clock.now().saturating_duration_since(begins));
    // Four more are allowed, for the last acknowledgements of the start.
    let heartbeats = (time.as_millis() / 250) as u64 + 4;
    assert!(most <= heartbeats, "{most} frames to one peer in {time:?}");
    if let Some((before, now)) = processor.zip(processor_time()) {
        let share = 100.0 * (now - before).as_secs_f64() / time.as_secs_f64() / count as f64;
        println!("a node at rest with {} peers takes {share:.2} % of a core", count - 1);
    }
    assert!(members.iter().all(|member| member.cluster.nodes().len() == count - 1));
}

/// The environment variable with the endpoint of the program that is the seed.
const SEED: &str = "PROCESSION_TEST_SEED";

/// Starts this test program again, with the test of this name only. The variable tells the program to be a node.
fn program(test: &str, variable: &str, value: String) -> Child {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let test = format!("cluster::builder::zenoh_program_tests::{test}");
    program.args(["--exact", &test, "--nocapture", "--quiet"]).env(variable, value);
    program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// The program that is the seed. Without the variable this test does nothing.
#[test]
fn seed_program() {
    let Ok(endpoint) = std::env::var(SEED) else { return };
    let _seed = member("seed", &endpoint, &[]).unwrap();
    // The test kills this program. If the test ends before, the pipe closes, and this program ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn nodes_stay_a_mesh_when_their_seed_is_killed_and_a_late_one_sees_all() {
    let [one, two, three, four] = endpoints();
    let mut seed = program("seed_program", SEED, one.clone());
    let (b, c) = (member("b", &two, &[&one]).unwrap(), member("c", &three, &[&one]).unwrap());
    for (member, others) in [(&b, ["seed", "c"]), (&c, ["seed", "b"])] {
        others.iter().for_each(|other| member.cluster.wait_for(other, LIMIT).unwrap());
    }
    let mut events = [&b, &c].map(|member| member.cluster.events());
    seed.kill().unwrap();
    for events in &mut events {
        until("the seed is down, and has not left", || match events.recv_timeout(LIMIT).unwrap().unwrap() {
            NodeEvent::Down(node, why) => {
                assert!(node.name() == "seed" && why != DownReason::Left, "{node} is down: {why:?}");
                true
            }
            _ => false,
        });
    }
    assert!(!seed.wait().unwrap().success());
    let both_ways = [(&b, &c), (&c, &b)].map(|(from, to)| {
        let (echo, notes) = to.echo();
        let far = from.far(to, echo.address());
        (0..1_000).for_each(|number| from.runtime.send(far, Message::Note(number)).unwrap());
        assert_eq!(from.runtime.ask(far, Message::Ask, LIMIT).wait().unwrap(), 7);
        lock(&notes).clone()
    });
    assert_eq!(both_ways, [(0..1_000).collect::<Vec<_>>(), (0..1_000).collect()]);
    // This node knows the dead seed and a live node.
    let d = member("d", &four, &[&one, &two]).unwrap();
    ["b", "c"].iter().for_each(|other| d.cluster.wait_for(other, LIMIT).unwrap());
    [&b, &c].iter().for_each(|member| member.cluster.wait_for("d", LIMIT).unwrap());
    for events in &mut events {
        let next = events.recv_timeout(LIMIT).unwrap();
        assert!(
            matches!(&next, Some(NodeEvent::Up(node)) if node.name() == "d"),
            "{next:?} after the down of the seed"
        );
    }
    assert!([&b, &c].iter().all(|member| lock(&member.graves.0).is_empty()));
}

/// The variable that has the two endpoints of the older program: its own, and that of the newer one.
const OLDER: &str = "PROCESSION_TEST_OLDER";

/// The test program as an older node. Without the variable this is no test.
#[test]
fn older_program() {
    let Ok(endpoints) = std::env::var(OLDER) else { return };
    let (listen, join) = endpoints.split_once(' ').unwrap();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let node = Cluster::named("older", wire()).protocol(PROTOCOL - 1).listen(listen).join(join);
    let cluster = node.security(Security::TrustedNetwork).start(&runtime).unwrap();
    let older = Member { runtime, cluster, graves: Default::default() };
    let (echo, _) = older.echo();
    older.runtime.register("echo", &echo).unwrap();
    // The newer program closes the standard input when this node is to leave.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    older.runtime.shutdown(LIMIT).unwrap();
}

#[test]
fn programs_of_two_versions_speak_the_older_one() {
    let [one, two] = endpoints();
    let newer = member("newer", &one, &[]).unwrap();
    let mut older = program("older_program", OLDER, format!("{two} {one}"));
    newer.cluster.wait_for("older", LIMIT).unwrap();
    assert_eq!(newer.cluster.protocols(), [PROTOCOL - 1]);
    let mut far = None;
    until("the process of the older program has its name", || {
        far = newer.cluster.whereis("older", "echo", LIMIT).wait().ok();
        far.is_some()
    });
    let far = far.unwrap().typed::<Message>();
    (0..1_000).for_each(|number| newer.runtime.send(far, Message::Note(number)).unwrap());
    assert_eq!(newer.runtime.ask(far, Message::Ask, LIMIT).wait().unwrap(), 7);
    let (near, notes) = newer.echo();
    newer.runtime.send(far, Message::Ball(10, near.address())).unwrap();
    until("the last ball has come", || lock(&notes).last() == Some(&1));
    let (mut events, watched) = (newer.cluster.events(), newer.runtime.watch(far.pid()));
    newer.runtime.send(far, Message::Stop).unwrap();
    assert!(watched.wait_timeout(LIMIT).unwrap().exit.is_done());
    drop(older.stdin.take());
    until("the older program leaves", || {
        let event = events.recv_timeout(LIMIT).unwrap();
        matches!(event, Some(NodeEvent::Down(node, DownReason::Left)) if node.name() == "older")
    });
    assert!(older.wait().unwrap().success());
    assert!(lock(&newer.graves.0).is_empty());
}
