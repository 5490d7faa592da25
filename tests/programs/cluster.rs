//! The example `cluster` as several programs.

use std::net::{TcpListener, UdpSocket};

use crate::example::{Ended, Example, Running, line};

static PROGRAM: Example = Example::new("cluster");

/// Endpoints that are free at this moment.
fn endpoints() -> [String; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("there is a free port"));
    listeners.map(|listener| format!("tcp/{}", listener.local_addr().expect("it is bound")))
}

fn node(name: &str, listen: &str, join: &str) -> Running {
    let mut node = PROGRAM.start(&["--node", name, "--listen", listen, "--join", join, "--questions", "100"]);
    assert!(line(&mut node.out).starts_with(&format!("{name} (")), "it has started");
    node
}

/// Reads until both lines have come.
fn expect(node: &mut Running, mut starts: Vec<&str>) {
    while !starts.is_empty() {
        let said = line(&mut node.out);
        assert!(!said.is_empty(), "the program has ended, and {starts:?} has not come");
        starts.retain(|start| !said.starts_with(start));
    }
}

/// Reads until the shards have been described with all of these texts.
fn expect_shards(node: &mut Running, texts: &[&str]) {
    loop {
        let said = line(&mut node.out);
        assert!(!said.is_empty(), "the program has ended, and the shards were not {texts:?}");
        if said.starts_with("shards:") && texts.iter().all(|text| said.contains(text)) {
            return;
        }
    }
}

#[cfg(unix)]
#[test]
fn the_keys_of_a_counter_move_when_a_node_comes_and_when_it_dies() {
    let [one, two] = endpoints();
    let mut a = node("a", &one, &two);
    expect_shards(&mut a, &["a/0 has 100 keys"]);
    let mut b = node("b", &two, &one);
    // The labels and the keys decide which has which.
    expect_shards(&mut a, &["a/0 has 52 keys", "b/0 has 48 keys"]);
    expect_shards(&mut b, &["a/0 has 52 keys", "b/0 has 48 keys"]);
    b.kill();
    expect_shards(&mut a, &["shards: a/0 has 100 keys"]);
    assert_eq!(a.interrupt().code, Some(130));
}

#[cfg(unix)]
#[test]
fn programs_find_each_other_answer_and_see_a_kill_and_an_end() {
    let [one, two] = endpoints();
    let (mut a, mut b) = (node("a", &one, &two), node("b", &two, &one));
    expect(&mut a, vec!["b is up", "b answers in"]);
    expect(&mut b, vec!["a is up", "a answers in"]);
    b.kill();
    expect(&mut a, vec!["b is down: "]);
    let mut b = node("b", &two, &one);
    expect(&mut a, vec!["b is up", "b answers in"]);
    expect(&mut b, vec!["a answers in"]);
    let Ended { code, out, errors } = b.interrupt();
    assert_eq!((code, errors.as_str()), (Some(130), ""), "{out}");
    assert!(out.contains("100 questions were answered"), "{out}");
    expect(&mut a, vec!["b is down: Left"]);
    let Ended { code, out, errors } = a.interrupt();
    assert_eq!((code, errors.as_str()), (Some(130), ""), "{out}");
    assert!(out.contains("200 questions were answered"), "{out}");
}

/// Endpoints of QUIC that are free at this moment.
fn endpoints_of_quic() -> [String; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("there is a free port"));
    sockets.map(|socket| format!("quic/{}", socket.local_addr().expect("it is bound")))
}

#[cfg(unix)]
#[test]
fn programs_with_certificates_find_each_other_and_see_a_kill_and_an_end() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates");
    let [one, two] = endpoints_of_quic();
    let node = |name, listen: &str, join: &str, peer| {
        let mut node = PROGRAM.start(
            &[
                &["--node", name, "--listen", listen, "--join", join, "--questions", "100"][..],
                &["--certificates", folder, "--peer", peer][..],
            ]
            .concat(),
        );
        assert!(line(&mut node.out).starts_with(&format!("{name} (")), "it has started");
        node
    };
    let (mut a, mut b) = (node("a", &one, &two, "b"), node("b", &two, &one, "a"));
    expect(&mut a, vec!["b is up", "b answers in"]);
    expect(&mut b, vec!["a is up", "a answers in"]);
    b.kill();
    expect(&mut a, vec!["b is down: "]);
    let mut b = node("b", &two, &one, "a");
    expect(&mut a, vec!["b is up", "b answers in"]);
    expect(&mut b, vec!["a answers in"]);
    assert_eq!(b.interrupt().code, Some(130));
    expect(&mut a, vec!["b is down: Left"]);
    let Ended { code, out, errors } = a.interrupt();
    assert_eq!((code, errors.as_str()), (Some(130), ""), "{out}");
    assert!(out.contains("200 questions were answered"), "{out}");
}

#[test]
fn bad_options_are_explained_and_end_with_2() {
    PROGRAM.assert_explains(&[&["--questions", "0"], &["--colour", "red"], &["--node"], &["--listen"]]);
}
