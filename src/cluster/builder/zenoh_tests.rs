//! Nodes with sessions of their own, over TCP of this machine.

use std::net::TcpListener;

use super::tests::{Graves, LIMIT, Member, is_down, wire};
use super::*;
use crate::cluster::events::NodeEvent;
use crate::cluster::node::echo::Message;
use crate::cluster::peer::{DownReason, LONGEST_FRAME};
use crate::cluster::security::Certificates;
use crate::wait::until;
use zenoh::Wait as _;
use zenoh::qos::CongestionControl;
use zenoh::sample::Locality;

/// Endpoints that are free at this moment.
pub(super) fn endpoints<const N: usize>() -> [String; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| format!("tcp/{}", listener.local_addr().unwrap()))
}

pub(super) fn member(name: &str, listen: &str, join: &[&str]) -> Result<Member, ClusterError> {
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
    for (endpoint, text) in [
        ("tls/127.0.0.1:0", "use `quic/`, which has the same certificates"),
        ("quic/127.0.0.1:0", "needs `Security::Certificates`"),
        ("127.0.0.1:0", "use `quic/` with certificates"),
        ("", "use `quic/` with certificates"),
    ] {
        let why = why(node(endpoint).security(Security::TrustedNetwork));
        assert!(why.contains(text), "{endpoint}: {why}");
    }
    let secured = |endpoint| node(endpoint).security(certificates("a", &["b"]));
    assert!(why(secured("tcp/127.0.0.1:0")).contains("TrustedNetwork"));
    assert!(why(secured("tls/127.0.0.1:0")).contains("use `quic/`"));
    assert!(
        why(node("quic/127.0.0.1:0").security(certificates("a", &["b c"]))).contains("\"b c\" is not a valid name")
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp/{}", taken.local_addr().unwrap());
    let error = node(&endpoint).security(Security::TrustedNetwork).start(&runtime).unwrap_err();
    assert!(matches!(error, ClusterError::Link(_)), "{error}");
    assert!(error.to_string().contains(&taken.local_addr().unwrap().port().to_string()), "{error}");
}

/// The certificates of the tests.
fn certificates(file: &str, nodes: &[&str]) -> Security {
    let place = |name: String| format!("{}/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"));
    let [authority, certificate, key] = ["authority.pem".into(), format!("{file}.pem"), format!("{file}.key")];
    Security::Certificates(Certificates::new(place(authority), place(certificate), place(key)).nodes(nodes.to_vec()))
}

/// A node with the certificate of this file.
fn secured(name: &str, file: &str, nodes: &[&str], (listen, join): (&str, &[&str])) -> Result<Member, ClusterError> {
    let graves = Graves::default();
    let runtime = Runtime::builder().workers(1).observer(graves.clone()).start().unwrap();
    let node = Cluster::named(name, wire()).listen(listen).security(certificates(file, nodes));
    let cluster = join.iter().fold(node, |node, seed| node.join(*seed)).start(&runtime)?;
    Ok(Member { runtime, cluster, graves })
}

fn quic_endpoints<const N: usize>() -> [String; N] {
    let sockets = [(); N].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| format!("quic/{}", socket.local_addr().unwrap()))
}

#[test]
fn nodes_with_certificates_are_connected() {
    let [one, two, three] = quic_endpoints();
    let a = secured("a", "a", &["b", "c"], (&one, &[])).unwrap();
    let b = secured("b", "b", &["a", "c"], (&two, &[&one])).unwrap();
    let c = secured("c", "c", &["a", "b"], (&three, &[&one])).unwrap();
    for (member, others) in [(&a, ["b", "c"]), (&b, ["a", "c"]), (&c, ["a", "b"])] {
        others.iter().for_each(|other| member.cluster.wait_for(other, LIMIT).unwrap());
    }
    let (echo, notes) = c.echo();
    let far = b.far(&c, echo.address());
    (0..1_000).for_each(|number| b.runtime.send(far, Message::Note(number)).unwrap());
    assert_eq!(b.runtime.ask(far, Message::Ask, LIMIT).wait().unwrap(), 7);
    assert_eq!(*lock(&notes), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn without_a_valid_certificate_of_its_name_a_node_gets_nothing_through() {
    let [one, two, three, four, five, six] = quic_endpoints();
    let a = secured("a", "a", &["b", "c"], (&one, &[])).unwrap();
    // Another authority, an expired one, one of another node, and one of a node that is not in the list of the others.
    let bad = [
        secured("b", "foreign", &["a"], (&two, &[&one])),
        secured("b", "expired", &["a"], (&three, &[&one])),
        secured("b", "c", &["a"], (&four, &[&one])),
        secured("a", "c", &["b"], (&five, &[&one])),
    ];
    // They have had the time in which a good one is connected, twice.
    let good = secured("c", "c", &["a", "b"], (&six, &[&one])).unwrap();
    a.cluster.wait_for("c", LIMIT).unwrap();
    good.runtime.shutdown(LIMIT).unwrap();
    until("it has left", || a.names().is_empty());
    let [six] = quic_endpoints();
    let good = secured("c", "c", &["a", "b"], (&six, &[&one])).unwrap();
    a.cluster.wait_for("c", LIMIT).unwrap();
    assert_eq!(a.names(), ["c"]);
    for member in bad.into_iter().flatten() {
        assert_eq!(member.names(), [""; 0], "{:?}", member.cluster.here());
    }
    drop(good);
}

/// A program that uses the engine itself. It has this certificate, if one is given.
fn intruder(certificate: Option<&str>, join: &[&str]) -> zenoh::Session {
    let place = |name: String| format!("{}/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut tls =
        serde_json::json!({ "root_ca_certificate": place("authority.pem".into()), "verify_name_on_connect": false });
    if let Some(file) = certificate {
        tls["connect_certificate"] = place(format!("{file}.pem")).into();
        tls["connect_private_key"] = place(format!("{file}.key")).into();
        tls["enable_mtls"] = true.into();
    }
    let mut config = zenoh::Config::default();
    let settings = [
        ("mode", serde_json::json!("peer")),
        ("connect/endpoints", serde_json::json!(join)),
        ("connect/exit_on_failure", serde_json::json!(false)),
        ("connect/timeout_ms", serde_json::json!(-1)),
        ("scouting/multicast/enabled", serde_json::json!(false)),
        ("transport/link/tls", tls),
    ];
    settings.iter().for_each(|(key, value)| config.insert_json5(key, &value.to_string()).unwrap());
    zenoh::open(config).wait().unwrap()
}

/// The keys that a session has heard of, in order.
type Heard = Arc<Mutex<Vec<String>>>;

/// Notes what arrives under this key.
fn listen(session: &zenoh::Session, key: &'static str, is_alive: bool) -> Heard {
    let heard = Heard::default();
    let noted = heard.clone();
    let note = move |sample: zenoh::sample::Sample| lock(&noted).push(sample.key_expr().to_string());
    if is_alive {
        session.liveliness().declare_subscriber(key).callback(note).background().wait().unwrap();
    } else {
        let subscriber = session.declare_subscriber(key).callback(note);
        subscriber.allowed_origin(Locality::Remote).background().wait().unwrap();
    }
    heard
}

#[test]
fn a_program_hears_and_says_only_what_its_certificate_allows() {
    let [one] = quic_endpoints();
    let security = Some(certificates("a", &["b", "c"]));
    let endpoints = Endpoints { listen: vec![one.clone()], join: Vec::new(), security };
    let here = zenoh::open(ZenohLink::new(("x", "a"), 7, endpoints).config().unwrap()).wait().unwrap();
    let (frames, tokens) = (listen(&here, "procession/to/**", false), listen(&here, "procession/alive/**", true));
    // One without a certificate has no connection. One with that of `c` has.
    let sessions = [None, Some("c")].map(|certificate| intruder(certificate, &[&one]));
    until("it is connected", || sessions[1].info().peers_zid().wait().count() == 1);
    let heard = sessions.each_ref().map(|session| {
        let all = listen(session, "procession/to/**", false);
        for name in ["b", "c"] {
            let token = format!("procession/alive/x/{name}/0000000000000007");
            std::mem::forget(session.liveliness().declare_token(token).wait().unwrap());
            session.put(format!("procession/to/x/a/{name}"), "a frame").wait().unwrap();
        }
        (all, listen(session, "procession/to/x/c/*", false))
    });
    until("the allowed frame is there", || !lock(&frames).is_empty());
    until("the allowed token is there", || !lock(&tokens).is_empty());
    assert_eq!(*lock(&frames), ["procession/to/x/a/c"]);
    assert_eq!(*lock(&tokens), ["procession/alive/x/c/0000000000000007"]);
    until("the allowed frame is heard", || {
        here.put("procession/to/x/b/a", "a frame").wait().unwrap();
        here.put("procession/to/x/c/a", "a frame").wait().unwrap();
        !lock(&heard[1].1).is_empty()
    });
    assert!(lock(&heard[1].1).iter().all(|key| key == "procession/to/x/c/a"));
    // A frame that is heard at all reaches the other subscriber of the session, too.
    assert!(lock(&heard[1].0).iter().all(|key| key == "procession/to/x/c/a"), "{:?}", lock(&heard[1].0));
    assert!(lock(&heard[0].0).is_empty() && lock(&heard[0].1).is_empty());
}

#[test]
fn the_engine_drops_a_message_that_is_longer_than_a_frame() {
    let [one, other] = endpoints();
    let open = |name, listen: &String, join: &[&String]| {
        let join = join.iter().map(|seed| seed.to_string()).collect();
        let endpoints = Endpoints { listen: vec![listen.clone()], join, security: Some(Security::TrustedNetwork) };
        zenoh::open(ZenohLink::new(("x", name), 7, endpoints).config().unwrap()).wait().unwrap()
    };
    let here = open("a", &one, &[]);
    let frames = listen(&here, "procession/to/x/a/*", false);
    let there = open("b", &other, &[&one]);
    let put = |from: &str, bytes: usize| {
        let put = there.put(format!("procession/to/x/a/{from}"), vec![7; bytes]);
        put.congestion_control(CongestionControl::Block).wait().unwrap();
        let key = format!("procession/to/x/a/{from}");
        lock(&frames).contains(&key)
    };
    until("the longest frame arrives", || put("b", LONGEST_FRAME));
    put("long", 2 * LONGEST_FRAME);
    until("a later frame arrives", || put("last", 1));
    assert!(!lock(&frames).contains(&String::from("procession/to/x/a/long")));
}

#[test]
fn a_file_of_a_certificate_that_is_missing_is_named() {
    let [one] = quic_endpoints();
    let error = secured("a", "missing", &[], (&one, &[])).err().unwrap().to_string();
    assert!(error.contains("missing.pem"), "{error}");
}
