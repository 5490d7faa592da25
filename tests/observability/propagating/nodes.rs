//! Messages to other nodes within traces.

use procession::cluster::{Cluster, MemoryNetwork, Wire};
use procession::observe::DeadLetterReason;
use procession::{Address, Handle, Pid, StepResult};
use serde::{Deserialize, Serialize};

use super::*;

const LIMIT: Duration = Duration::from_secs(600);

#[derive(Clone, Serialize, Deserialize)]
enum Parcel {
    /// To be sent on to the first of these, with the others.
    Route(Vec<Address<Parcel>>),
    /// Sends a question to this one.
    Ask(Address<Parcel>),
    Nothing,
    #[serde(skip)]
    Local,
}

#[derive(Serialize, Deserialize)]
struct Question(Reply<u32>);

/// Cannot be decoded.
#[derive(Serialize)]
struct Spoilt;

impl<'a> Deserialize<'a> for Spoilt {
    fn deserialize<D: serde::Deserializer<'a>>(_: D) -> Result<Spoilt, D::Error> {
        Err(serde::de::Error::custom("on purpose"))
    }
}

procession::remote!(Parcel, "test::Parcel", 1);
procession::remote!(Question, "test::Question", 1);
procession::remote!(Spoilt, "test::Spoilt", 1);

/// Sends parcels on.
struct Post(Pid);

impl Process for Post {
    type Message = Parcel;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Parcel>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Parcel::Route(mut route)) if !route.is_empty() => {
                    let next = route.remove(0);
                    out.send(next, Parcel::Route(route));
                }
                Event::Message(Parcel::Ask(_)) => _ = out.ask(self.0.typed(), Question, LIMIT),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A node with a process that sends parcels on, and one that answers questions.
struct Node {
    runtime: Runtime,
    cluster: Cluster,
    post: Handle<Post>,
    echo: Pid,
}

fn answers() -> impl Process<Message = Question, Output = ()> {
    script(|events: &mut Events<'_, Question>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Question(reply)) => out.reply(reply, 7),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// Two nodes. The second one follows traces if `both` do. Each has the name of its processes at the other one.
fn two(traces: [Option<&Traces>; 2]) -> [Node; 2] {
    let network = MemoryNetwork::new();
    let start = |name: &str, traces: Option<&Traces>| {
        let builder = builder().workers(1);
        let builder = traces.into_iter().fold(builder, |builder, traces| builder.propagate(traces.clone()));
        let runtime = builder.start().unwrap();
        let wire = Wire::new().message::<Parcel>().message::<Question>().message::<Spoilt>();
        let cluster = Cluster::named(name, wire).memory(&network).start(&runtime).unwrap();
        let echo = runtime.spawn(answers()).unwrap();
        runtime.register("echo", echo.pid()).unwrap();
        (runtime, cluster)
    };
    let [one, other] = [("one", traces[0]), ("other", traces[1])].map(|(name, traces)| start(name, traces));
    let found = |cluster: &Cluster, node: &str, name: &str| {
        cluster.wait_for(node, LIMIT).unwrap();
        cluster.whereis(node, name, LIMIT).wait().unwrap()
    };
    let pairs = [(one, "other"), (other, "one")];
    pairs.map(|((runtime, cluster), there)| {
        let echo = found(&cluster, there, "echo");
        let post = runtime.spawn(Post(echo)).unwrap();
        runtime.register("post", post.pid()).unwrap();
        Node { runtime, cluster, post, echo }
    })
}

impl Node {
    /// The address here of the process that sends parcels on at the other node.
    fn far_post(&self, other: &str) -> Address<Parcel> {
        self.cluster.whereis(other, "post", LIMIT).wait().unwrap().typed()
    }
}

fn close_both([one, other]: [Node; 2], traces: &Traces) {
    for Node { runtime, cluster, post, .. } in [one, other] {
        runtime.shutdown(60 * SECOND).unwrap();
        drop((runtime, cluster, post));
    }
    until("all contexts are gone", || traces.contexts() == 0);
    assert!(traces.spans().iter().all(|span| span.parent.is_none() || !span.end.is_empty()), "{:?}", traces.spans());
}

#[test]
fn a_trace_goes_on_at_another_node_and_comes_back() {
    let traces = Traces::new();
    let nodes = two([Some(&traces), Some(&traces)]);
    let [one, other] = &nodes;
    let (near, far) = (one.post.address(), one.far_post("other"));
    // Six hops: from here to there, and back.
    let route = vec![far, near, far, near, far];
    let root = traces.root(|| one.runtime.send(near, Parcel::Route(route)).unwrap());
    let mut parent = root;
    for hop in 0..6 {
        until("the next hop has ended", || traces.children(parent).iter().any(|span| !span.end.is_empty()));
        let span = only_child(&traces, parent);
        let at = if hop % 2 == 0 { &one.post } else { &other.post };
        assert_eq!((span.pid, span.event.contains("Parcel")), (Some(at.pid()), true), "{span:?}");
        parent = span.number;
    }
    assert_eq!(traces.spans().len(), 7, "{:?}", traces.spans());
    // From outside, straight to the other node.
    let root = traces.root(|| one.runtime.send(far, Parcel::Nothing).unwrap());
    until("it was stepped", || !traces.children(root).is_empty());
    // A message from outside of any trace stays outside.
    let before = traces.spans().len();
    one.runtime.send(far, Parcel::Nothing).unwrap();
    assert_eq!(one.runtime.ask(one.echo.typed(), Question, LIMIT).wait().unwrap(), 7);
    assert_eq!(traces.spans().len(), before, "{:?}", traces.spans());
    close_both(nodes, &traces);
}

#[test]
fn a_question_to_another_node_and_its_answer_are_in_the_trace() {
    let traces = Traces::new();
    let nodes = two([Some(&traces), Some(&traces)]);
    let [one, _] = &nodes;
    let near = one.post.address();
    let root = traces.root(|| one.runtime.send(near, Parcel::Ask(near)).unwrap());
    let asks = || traces.children(root).first().map(|span| span.number);
    until("it has the answer", || {
        let below = asks().map_or(Vec::new(), |number| traces.children(number));
        below.len() == 2 && below.iter().all(|span| !span.end.is_empty())
    });
    let mut below = traces.children(asks().unwrap());
    below.sort_by_key(|span| span.pid == Some(near.pid()));
    assert!(below[0].event.contains("Question"), "{below:?}");
    assert!(below[1].event.starts_with("command") && below[1].pid == Some(near.pid()), "{below:?}");
    // The question of a thread of the program.
    let mut asked = None;
    let root = traces.root(|| asked = Some(one.runtime.ask(one.echo.typed(), Question, LIMIT)));
    assert_eq!(asked.unwrap().wait().unwrap(), 7);
    until("the step of the other node has ended", || traces.children(root).iter().any(|span| !span.end.is_empty()));
    close_both(nodes, &traces);
}

#[test]
fn a_broadcast_carries_its_trace_to_all_nodes() {
    let traces = Traces::new();
    let nodes = two([Some(&traces), Some(&traces)]);
    for node in &nodes {
        node.cluster.join_group("posts", "post", node.post.pid()).unwrap();
    }
    let [one, other] = &nodes;
    until("all know the group", || nodes.iter().all(|node| node.cluster.group_members("posts").len() == 2));
    let root = traces.root(|| assert_eq!(one.cluster.broadcast("posts", Parcel::Nothing), 2));
    until("both have got it", || traces.children(root).len() == 2);
    let mut pids: Vec<_> = traces.children(root).iter().map(|span| span.pid.unwrap()).collect();
    pids.sort();
    let mut all = [one.post.pid(), other.post.pid()];
    all.sort();
    assert_eq!(pids, all);
    close_both(nodes, &traces);
}

#[test]
fn a_dead_letter_between_nodes_is_in_its_trace() {
    let traces = Traces::new();
    let nodes = two([Some(&traces), Some(&traces)]);
    let [one, _] = &nodes;
    let far = one.far_post("other");
    let dead = |reason| move |(_, of): &&(usize, DeadLetterReason)| *of == reason;
    // A message that does not travel, which is found when it is handed over.
    let near = one.post.address();
    let root = traces.root(|| one.runtime.send(far.pid().typed::<Spoilt>(), Spoilt).unwrap());
    until("it is a dead letter there", || !traces.dead().is_empty());
    assert_eq!(traces.dead(), [(root, DeadLetterReason::NotDecoded)]);
    let sends = one.runtime.spawn(sends_to(far)).unwrap();
    let root = traces.root(|| one.runtime.send(sends.address(), ()).unwrap());
    until("it is a dead letter here", || traces.dead().iter().any(|dead| dead.1 == DeadLetterReason::NotSent));
    let step = only_child(&traces, root);
    let sent = traces.dead().iter().find(dead(DeadLetterReason::NotSent)).copied().unwrap();
    assert_eq!(sent.0, step.number);
    assert!(one.runtime.is_alive(near));
    drop(sends);
    close_both(nodes, &traces);
}

/// Sends a message that does not travel.
fn sends_to(far: Address<Parcel>) -> impl Process<Message = (), Output = ()> {
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) => out.send(far, Parcel::Local),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// One of the nodes has no propagator: it neither writes contexts nor reads them.
#[test]
fn a_node_without_a_propagator_takes_traced_messages_and_ends_their_trace() {
    for place in 0..2 {
        let traces = Traces::new();
        let mut of_both = [Some(&traces), Some(&traces)];
        of_both[place] = None;
        let nodes = two(of_both);
        let [one, other] = &nodes;
        let (near, far) = (one.post.address(), one.far_post("other"));
        let root = traces.root(|| one.runtime.send(near, Parcel::Route(vec![far])).unwrap());
        until("both have taken it", || one.runtime.is_idle() && other.runtime.stats().messages.stepped > 0);
        assert_eq!(one.runtime.ask(one.echo.typed(), Question, LIMIT).wait().unwrap(), 7);
        assert_eq!(traces.children(root).len(), 1 - usize::from(place == 0), "{:?}", traces.spans());
        assert_eq!(traces.spans().len(), 2 - usize::from(place == 0), "{:?}", traces.spans());
        close_both(nodes, &traces);
    }
}
