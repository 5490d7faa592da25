//! Groups and shared names over connections whose frames a test carries.

use std::time::Duration;

use super::net::{Local, Net, Order};
use crate::cluster::frame::Head;
use crate::cluster::groups::entries::{Entry, Role};
use crate::cluster::groups::table::Share;
use crate::cluster::groups::{ClaimEnd, ClusterNameError, Shares as _};
use crate::pid::Pid;
use crate::primitives::lock;
use crate::process::NoSuchProcessError;

fn join(net: &Net, local: &Local, label: &str) -> Result<(), ClusterNameError> {
    let (runtime, node) = &net.sides[local.at];
    node.groups().join(runtime.core(), ("g", label), local.handle.pid())
}

fn members(net: &Net, at: usize) -> Vec<(String, Pid)> {
    net.sides[at].1.groups().members("g").into_iter().map(|member| (member.label, member.pid)).collect()
}

#[test]
fn far_members_have_their_pids_here_and_all_nodes_pick_alike() {
    let net = Net::new(3);
    let locals = [net.plain(0), net.plain(1), net.plain(2)];
    for (local, label) in locals.iter().zip(["z", "x", "y"]) {
        join(&net, local, label).unwrap();
    }
    net.carry();
    for at in 0..3 {
        let of = |label: &str, local: usize| (label.to_string(), net.pid(&locals[local], at));
        assert_eq!(members(&net, at), [of("x", 1), of("y", 2), of("z", 0)]);
        for key in 0..100 {
            let place = |at: usize| {
                let picked = net.sides[at].1.groups().pick("g", key);
                (0..3).find(|local| picked == Some(net.pid(&locals[*local], at)))
            };
            assert_eq!(place(at), place(0));
        }
    }
    net.done(&locals[1]);
    net.carry();
    assert_eq!(members(&net, 0).len(), 2);
}

#[test]
fn a_join_is_one_frame_and_an_up_without_entries_is_none() {
    let mut net = Net::new(2);
    assert_eq!((net.on_the_way(0, 1), net.on_the_way(1, 0)), (0, 0));
    let local = net.plain(0);
    join(&net, &local, "l").unwrap();
    join(&net, &local, "l").unwrap();
    assert_eq!((net.on_the_way(0, 1), net.on_the_way(1, 0)), (1, 0));
    net.carry();
    net.cut(0, 1);
    assert!(members(&net, 1).is_empty());
    net.connect(0, 1);
    assert_eq!((net.on_the_way(0, 1), net.on_the_way(1, 0)), (1, 0));
    net.carry();
    assert_eq!(members(&net, 1), [("l".to_string(), net.pid(&local, 1))]);
}

#[test]
fn the_down_of_an_earlier_connection_takes_no_members_of_a_later_one() {
    let mut net = Net::new(2);
    let local = net.plain(0);
    join(&net, &local, "l").unwrap();
    net.carry();
    let earlier = net.ends.remove(&(1, 0)).unwrap();
    net.connect(0, 1);
    net.carry();
    net.sides[1].1.down(&earlier.connection, []);
    assert_eq!(members(&net, 1).len(), 1);
    net.cut(0, 1);
    assert!(members(&net, 1).is_empty());
}

#[test]
fn a_process_that_ends_while_it_joins_is_no_member() {
    let net = Net::new(2);
    for round in 0..200 {
        let local = net.plain(0);
        let label = round.to_string();
        std::thread::scope(|scope| {
            scope.spawn(|| net.sides[0].0.terminate(&local.handle));
            scope.spawn(|| match join(&net, &local, &label) {
                Ok(()) | Err(ClusterNameError::NoSuchProcess(NoSuchProcessError::Pid(_))) => {}
                Err(error) => panic!("{error}"),
            });
        });
        local.handle.join_timeout(Duration::from_secs(60)).unwrap();
    }
    net.rests();
    assert!(members(&net, 0).is_empty());
    net.carry();
    assert!(members(&net, 1).is_empty());
    net.nothing_is_left("joins");
}

#[test]
fn a_broadcast_is_one_frame_for_a_node_and_reaches_each_process_once() {
    let net = Net::new(2);
    let locals = [net.plain(1), net.plain(1), net.plain(1)];
    let mut far: Vec<Pid> = locals.iter().map(|local| net.pid(local, 0)).collect();
    far.sort_unstable();
    let node = &net.sides[0].1;
    assert_eq!(node.broadcast(&far, &Order::Note(7)), 3);
    assert_eq!(net.on_the_way(0, 1), 1);
    let letter = lock(&net.ends[&(0, 1)].wires.items)[0].letter.clone().unwrap();
    assert_eq!((letter.to, letter.more.as_ref().map(|more| &*more.others)), (far[0], Some(&far[1..])));
    net.carry();
    locals.iter().for_each(|local| assert_eq!(local.seen(), ["note 7"]));
    assert_eq!(node.broadcast(&far, &"not of the wire"), 0);
    net.cut(0, 1);
    assert_eq!(node.broadcast(&far, &Order::Note(8)), 0);
}

#[test]
fn a_broadcast_with_many_large_copies_is_several_frames() {
    let net = Net::new(2);
    let locals: Vec<Local> = (0..300).map(|_| net.plain(1)).collect();
    let mut far: Vec<Pid> = locals.iter().map(|local| net.pid(local, 0)).collect();
    far.sort_unstable();
    let text = |size| Order::Text("x".repeat(size));
    assert_eq!(net.sides[0].1.broadcast(&far, &text(50_000)), 300);
    assert_eq!(net.on_the_way(0, 1), 1);
    assert_eq!(net.sides[0].1.broadcast(&far, &text(60_000)), 300);
    assert_eq!(net.on_the_way(0, 1), 3);
    net.carry();
    locals.iter().for_each(|local| assert_eq!(local.seen(), ["text of 50000", "text of 60000"]));
    assert_eq!(net.sides[0].1.broadcast(&far[..2], &text(17 << 20)), 0);
}

#[test]
fn a_broadcast_that_makes_too_many_copies_ends_the_connection() {
    let net = Net::new(2);
    let local = net.plain(1);
    let far = net.pid(&local, 0);
    let receives = |to: Vec<Pid>, bytes: usize| {
        let connection = &net.ends[&(0, 1)].connection;
        connection.send_head(0, &Head::Broadcast { to, from: None, kind: 0 });
        let mut item = lock(&net.ends[&(0, 1)].wires.items).pop().unwrap();
        // The value is in front of the lengths of the two tables.
        let tables = item.bytes.split_off(item.bytes.len() - 4);
        item.bytes.extend(vec![0; bytes]);
        item.bytes.extend(tables);
        net.ends[&(1, 0)].connection.receive(&item.bytes).is_ok()
    };
    let others = |count: u32| (0..count).filter_map(|slot| Pid::new(far.node(), slot, 1)).collect::<Vec<Pid>>();
    assert!(receives(vec![far], 1_000));
    assert!(!receives(others(17_000), 1_000));
    // Each copy costs more than its bytes.
    assert!(!receives(others(270_000), 0));
    // One process gets one copy.
    assert!(receives(others(2), 10));
    assert!(!receives(vec![far, far], 10));
    assert!(!receives(others(2).into_iter().rev().collect(), 10));
}

#[test]
fn a_node_that_has_left_ends_its_claims_and_takes_no_new_entries() {
    let net = Net::new(2);
    let local = net.plain(0);
    let (runtime, node) = &net.sides[0];
    let mut events = node.groups().subscribe("g");
    let claim = || node.groups().claim(runtime.core(), "name", (local.handle.pid(), 7));
    let held = claim().unwrap();
    assert_eq!((held.end(), claim().unwrap().end()), (None, None), "the same claim");
    node.groups().left();
    assert_eq!(held.end(), Some(ClaimEnd::Released));
    assert_eq!(join(&net, &local, "l"), Err(ClusterNameError::Left));
    assert_eq!(claim().unwrap_err(), ClusterNameError::Left);
    assert_eq!(events.recv_timeout(Duration::ZERO), Ok(None));
    assert_eq!(node.groups().subscribe("g").recv_timeout(Duration::ZERO), Ok(None));
    net.carry();
    net.nothing_is_left("left");
}

#[test]
fn a_share_about_a_process_of_a_third_node_ends_the_connection() {
    let net = Net::new(3);
    let (third, near) = (net.plain(2), net.plain(0));
    let connection = &net.ends[&(0, 1)].connection;
    let is_refused = |pid: Pid, name: &str| {
        let entry = Entry { name: name.into(), role: Role::Member { label: "l".into() }, pid };
        let shares = [
            Share::Changed { entry: entry.clone(), is_there: true },
            Share::Whole { entries: vec![entry], is_last: true },
        ];
        shares.map(|share| {
            connection.share(&share);
            let item = lock(&net.ends[&(0, 1)].wires.items).pop().unwrap();
            net.ends[&(1, 0)].connection.receive(&item.bytes).is_err()
        })
    };
    assert_eq!(is_refused(near.handle.pid(), "g"), [false; 2]);
    assert_eq!(is_refused(net.pid(&third, 0), "g"), [true; 2]);
    assert_eq!(is_refused(near.handle.pid(), &"g".repeat(256)), [true; 2]);
}
