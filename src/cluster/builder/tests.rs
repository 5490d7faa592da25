//! Nodes with their threads, on a network in memory.

use std::collections::BTreeSet;
use std::future::Future as _;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};

use serde::{Deserialize, Serialize};

use super::*;
use crate::clock::ManualClock;
use crate::cluster::ClusterNameError;
use crate::cluster::events::NodeEvent;
use crate::cluster::link::Upward as _;
use crate::cluster::node::echo::{Echo, Message, Notes};
use crate::cluster::peer::DownReason;
use crate::pid::{Address, Pid};
use crate::process::{
    CommandError, DeadLetter, DeadLetterReason, Events, NodeError, Observer, Process, Reply, SendError, Step,
    StepOutput, StepResult,
};
use crate::runtime::{Handle, RuntimeBuilder};
use crate::wait::until;

pub(super) const LIMIT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3_600);

/// Notes the dead letters of a runtime.
#[derive(Clone, Default)]
pub(super) struct Graves(pub(super) Arc<Mutex<Vec<(Pid, DeadLetterReason)>>>);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        lock(&self.0).push((letter.to, letter.reason));
    }
}

pub(super) struct Member {
    pub(super) runtime: Runtime,
    pub(super) cluster: Cluster,
    pub(super) graves: Graves,
}

fn member_with(name: &str, network: &MemoryNetwork, builder: RuntimeBuilder) -> Member {
    let graves = Graves::default();
    let runtime = builder.workers(1).observer(graves.clone()).start().unwrap();
    let cluster = Cluster::named(name, wire()).memory(network).start(&runtime).unwrap();
    Member { runtime, cluster, graves }
}

pub(super) fn member(name: &str, network: &MemoryNetwork) -> Member {
    member_with(name, network, Runtime::builder())
}

pub(super) fn wire() -> Wire {
    Wire::new().message::<Message>().message::<Slow>()
}

/// Two nodes that are connected, `a` and `b`.
pub(super) fn two(network: &MemoryNetwork) -> [Member; 2] {
    let two = ["a", "b"].map(|name| member(name, network));
    two[0].cluster.wait_for("b", LIMIT).unwrap();
    two[1].cluster.wait_for("a", LIMIT).unwrap();
    two
}

impl Member {
    pub(super) fn echo(&self) -> (Handle<Echo>, Notes) {
        let notes = Notes::default();
        let echo = Echo { notes: notes.clone(), kept: Vec::new(), begin: Vec::new() };
        (self.runtime.spawn(echo).unwrap(), notes)
    }

    /// The address here of a process of another node.
    pub(super) fn far<M>(&self, other: &Member, address: Address<M>) -> Address<M> {
        let (number, pid) = (self.cluster.number_of(other.cluster.here.incarnation()), address.pid());
        Pid::new(number, pid.slot(), pid.generation()).unwrap().typed()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.cluster.nodes().iter().map(|node| node.name().to_string()).collect()
    }
}

pub(super) fn is_down(answer: &Result<u64, CommandError>) -> bool {
    matches!(answer, Err(CommandError::Node { why: NodeError::NodeDown, .. }))
}

#[test]
fn messages_and_answers_travel_between_the_threads_of_two_nodes() {
    let [a, b] = two(&MemoryNetwork::new());
    let (echo, notes) = b.echo();
    let far = a.far(&b, echo.address());
    for number in 0..10_000 {
        let mut message = Message::Note(number);
        // There may be no room for a moment.
        while let Err(refused) = a.runtime.send(far, message) {
            assert!(matches!(refused.reason(), SendError::Node { why: NodeError::Busy, .. }), "{refused}");
            message = refused.into_inner();
            std::thread::yield_now();
        }
    }
    assert_eq!(a.runtime.ask(far, Message::Ask, LIMIT).wait().unwrap(), 7);
    assert_eq!(*lock(&notes), (0..10_000).collect::<Vec<_>>());
    let (near, _) = a.echo();
    a.runtime.send(far, Message::Ball(100, near.address())).unwrap();
    until("the last ball has come", || lock(&notes).last() == Some(&2));
    assert!(lock(&a.graves.0).is_empty() && lock(&b.graves.0).is_empty());
}

#[test]
fn all_nodes_of_a_network_see_each_other_and_one_that_ends_has_left() {
    let network = MemoryNetwork::new();
    let names = ["a", "b", "c", "d", "e"];
    let mut members: Vec<_> = names.iter().map(|name| member(name, &network)).collect();
    for (at, member) in members.iter().enumerate() {
        names.iter().filter(|name| **name != names[at]).for_each(|name| member.cluster.wait_for(name, LIMIT).unwrap());
        assert_eq!(member.cluster.nodes().len(), 4, "{:?}", member.cluster);
    }
    let mut events: Vec<_> = members.iter().map(|member| member.cluster.events()).collect();
    let first = members.remove(0);
    let identity = first.cluster.here().clone();
    assert!(first.runtime.shutdown(LIMIT).unwrap().is_clean());
    assert_eq!(first.cluster.nodes(), []);
    for events in events.iter_mut().skip(1) {
        let snapshot: BTreeSet<_> = (0..4).map(|_| events.recv_timeout(LIMIT).unwrap().unwrap()).collect();
        assert_eq!(snapshot.len(), 4);
        assert!(snapshot.iter().all(|event| matches!(event, NodeEvent::Up(_))), "{snapshot:?}");
        let left = NodeEvent::Down(identity.clone(), DownReason::Left);
        assert_eq!(events.recv_timeout(LIMIT).unwrap(), Some(left));
    }
    // The events of a node end when it leaves.
    let of_first = std::iter::from_fn(|| events[0].recv_timeout(LIMIT).unwrap()).last();
    assert!(matches!(of_first, Some(NodeEvent::Down(_, DownReason::Left))), "{of_first:?}");
    assert!(first.cluster.events().recv() == Ok(None));
    assert_eq!(first.cluster.wait_for("b", LIMIT).unwrap_err().to_string(), "the limit was over");
}

#[test]
fn a_node_that_leaves_loses_no_message_that_its_processes_have_sent() {
    let [a, b] = two(&MemoryNetwork::new());
    let (echo, notes) = b.echo();
    let far = a.far(&b, echo.address());
    a.runtime
        .spawn(Echo {
            notes: Notes::default(),
            kept: vec![],
            begin: vec![Box::new(move |out| {
                (0..1_000).for_each(|number| out.send(far, Message::Note(number)));
            })],
        })
        .unwrap();
    let open = b.runtime.ask(b.far(&a, a.echo().0.address()), Message::Keep, LONG);
    a.runtime.wait_idle().unwrap();
    assert!(a.runtime.shutdown(LIMIT).unwrap().is_clean());
    until("all have come", || lock(&notes).len() == 1_000);
    assert!(lock(&notes).is_sorted());
    assert_eq!(*lock(&a.graves.0), [], "the peer has confirmed all of them");
    assert!(open.wait().is_err());
    until("the node is down", || b.names().is_empty());
}

/// Ends when it gets a message, and not when it is asked to.
struct Stays;

impl Process for Stays {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_told = events.any(|event| matches!(event, crate::Event::Message(())));
        Ok(if is_told { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn a_node_that_shuts_down_claims_no_unique_names_and_keeps_those_it_holds() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let builder = Cluster::named("a", wire()).voters(["a"]).memory(&MemoryNetwork::new());
    let cluster = builder.start(&runtime).unwrap();
    let (holder, waits) = (runtime.spawn(Stays).unwrap(), runtime.spawn(Stays).unwrap());
    let held = cluster.claim_unique("one", &holder).unwrap();
    held.wait_timeout(LIMIT).unwrap().unwrap();
    let waiting = cluster.claim_unique("one", &waits).unwrap();
    assert_eq!(waiting.end(), None);
    let shuts = runtime.clone();
    let shutdown = crate::primitives::thread::spawn(move || shuts.shutdown(LIMIT).unwrap().is_clean());
    until("the claim that waits has ended", || waiting.end().is_some());
    let late = cluster.claim_unique("two", &holder);
    assert!(matches!(late, Err(ClusterNameError::Left)), "{late:?}");
    assert_eq!((held.end(), cluster.unique_holder("one")), (None, Some(holder.pid())));
    [&holder, &waits].into_iter().for_each(|stays| runtime.send(stays, ()).unwrap());
    assert!(crate::wait::wait(shutdown).unwrap());
}

#[test]
fn a_runtime_that_is_dropped_leaves_the_cluster() {
    let [a, b] = two(&MemoryNetwork::new());
    let mut events = b.cluster.events();
    let Member { runtime, cluster, .. } = a;
    drop(cluster);
    drop(runtime);
    assert!(matches!(events.recv_timeout(LIMIT).unwrap(), Some(NodeEvent::Up(_))));
    assert!(matches!(events.recv_timeout(LIMIT).unwrap(), Some(NodeEvent::Down(_, DownReason::Left))));
}

#[test]
fn a_node_that_is_started_again_under_its_name_is_another_one() {
    let network = MemoryNetwork::new();
    let [a, b] = two(&network);
    let mut events = a.cluster.events();
    let (echo, _) = b.echo();
    let far = a.far(&b, echo.address());
    let first = b.cluster.here().clone();
    b.runtime.shutdown(LIMIT).unwrap();
    let again = member("b", &network);
    let expected = [
        NodeEvent::Up(first.clone()),
        NodeEvent::Down(first, DownReason::Left),
        NodeEvent::Up(again.cluster.here().clone()),
    ];
    assert_eq!(expected.each_ref().map(|_| events.recv_timeout(LIMIT).unwrap().unwrap()), expected);
    assert!(is_down(&a.runtime.ask(far, Message::Ask, LIMIT).wait()));
    let (echo, _) = again.echo();
    assert_eq!(a.runtime.ask(a.far(&again, echo.address()), Message::Ask, LIMIT).wait().unwrap(), 7);
}

#[test]
fn a_cut_is_a_down_and_a_heal_an_up_by_the_clock_of_the_runtimes() {
    let (network, clock) = (MemoryNetwork::new(), ManualClock::new());
    let [a, b] = ["a", "b"].map(|name| member_with(name, &network, Runtime::builder().clock(clock.clock())));
    let step = Duration::from_millis(50);
    let passes_until = |what: &str, mut is_so: Box<dyn FnMut() -> bool + '_>| {
        until(what, || {
            clock.advance(step);
            is_so()
        });
    };
    passes_until("both are up", Box::new(|| a.names() == ["b"] && b.names() == ["a"]));
    let (echo, notes) = b.echo();
    let far = a.far(&b, echo.address());
    let open = a.runtime.ask(far, Message::Keep, LONG);
    let mut events = a.cluster.events();
    network.cut_one_way("b", "a");
    passes_until("both are down", Box::new(|| a.names().is_empty() && b.names().is_empty()));
    assert!(is_down(&open.wait()));
    network.heal("a", "b");
    passes_until("both are up again", Box::new(|| a.names() == ["b"] && b.names() == ["a"]));
    // The time passes faster than on a real clock, so a busy machine may take a node for silent once more.
    let sends = || a.runtime.send(far, Message::Note(2)).is_ok() && lock(&notes).last() == Some(&2);
    passes_until("the second one has come", Box::new(sends));
    let b = b.cluster.here().clone();
    let expected = [NodeEvent::Up(b.clone()), NodeEvent::Down(b.clone(), DownReason::Silent), NodeEvent::Up(b)];
    assert_eq!(expected.each_ref().map(|_| events.recv_timeout(LONG).unwrap().unwrap()), expected);
}

#[test]
fn nodes_that_differ_are_an_event_that_names_the_difference() {
    let network = MemoryNetwork::new();
    let a = member("a", &network);
    let mut events = a.cluster.events();
    let other = Runtime::builder().workers(1).start().unwrap();
    let _other = Cluster::named("b", wire()).cluster("orders").memory(&network).start(&other).unwrap();
    let Some(NodeEvent::Refused { name, why }) = events.recv_timeout(LIMIT).unwrap() else { panic!("no refusal") };
    assert_eq!(name, "b");
    assert!(
        why.contains("cluster") && why.contains("\"procession\" here") && why.contains("\"orders\" there"),
        "{why}"
    );
    // A second node of a name is refused, too.
    let twin = member("a", &network);
    let mut events = twin.cluster.events();
    let is_of_twin = |event| matches!(event, Some(NodeEvent::Refused { name, .. }) if name == "a");
    until("the twin is told of the difference", || is_of_twin(events.recv_timeout(LIMIT).unwrap()));
    assert_eq!(a.names(), [""; 0]);
}

#[test]
fn the_options_of_a_node_are_checked() {
    let (network, runtime) = (MemoryNetwork::new(), Runtime::builder().workers(1).start().unwrap());
    let start = |name: &str| Cluster::named(name, Wire::new()).memory(&network).start(&runtime);
    for name in ["", "a b", "a/b", "ä", &"a".repeat(65)] {
        assert!(matches!(start(name), Err(ClusterError::BadName(bad)) if bad == name));
        let in_cluster = Cluster::named("a", Wire::new()).cluster(name).memory(&network).start(&runtime);
        assert!(matches!(in_cluster, Err(ClusterError::BadName(bad)) if bad == name));
    }
    assert!(matches!(Cluster::named("a", Wire::new()).start(&runtime), Err(ClusterError::NoLink)));
    let same = Wire::new().message::<Message>().message::<SameName>();
    assert!(matches!(Cluster::named("a", same).memory(&network).start(&runtime), Err(ClusterError::Wire(_))));
    let node = start("a-B_3.c").unwrap();
    assert_eq!(node.here().name(), "a-B_3.c");
    assert!(matches!(start("b"), Err(ClusterError::IsNode)));
    let ended = Runtime::builder().workers(1).start().unwrap();
    ended.shutdown(LIMIT).unwrap();
    let late = Cluster::named("b", Wire::new()).memory(&network).start(&ended);
    assert!(matches!(late, Err(ClusterError::ShutDown)), "{late:?}");
}

#[derive(Serialize, Deserialize)]
struct SameName(u8);

crate::remote!(SameName, "test::Message", 1);

/// Its decoder waits for the test.
#[derive(Serialize)]
struct Slow;

crate::remote!(Slow, "test::Slow", 1);

/// Each decoder says that it has begun, and waits for a sign.
static DECODERS: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = Mutex::new(None);

impl<'a> Deserialize<'a> for Slow {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<Slow, D::Error> {
        <()>::deserialize(from)?;
        if let Some((begun, goes_on)) = lock(&DECODERS).take() {
            begun.send(()).unwrap();
            goes_on.recv_timeout(LIMIT).unwrap();
        }
        Ok(Slow)
    }
}

struct Taker(mpsc::Sender<()>);

impl Process for Taker {
    type Message = Slow;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Slow>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(|_| self.0.send(()).unwrap());
        Ok(Step::Idle)
    }
}

#[test]
fn a_link_that_comes_back_while_a_decoder_runs_waits_for_it() {
    let network = MemoryNetwork::new();
    let [a, b] = two(&network);
    let (takes, taken) = mpsc::channel();
    let taker = b.runtime.spawn(Taker(takes)).unwrap();
    let far = a.far(&b, taker.address());
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    *lock(&DECODERS) = Some((begun, goes_on));
    a.runtime.send(far, Slow).unwrap();
    has_begun.recv_timeout(LIMIT).unwrap();
    let mut events = b.cluster.events();
    // The link loses sight of the peer, and sees it again, several times.
    let (name, incarnation) = ("a", a.cluster.here().incarnation());
    let upward = &b.cluster.members;
    for _ in 0..10 {
        upward.gone(name, incarnation);
        upward.seen(name, incarnation);
    }
    go_on.send(()).unwrap();
    taken.recv_timeout(LIMIT).unwrap();
    let up = NodeEvent::Up(a.cluster.here().clone());
    let expected = [up.clone(), NodeEvent::Down(a.cluster.here().clone(), DownReason::Closed), up];
    assert_eq!(expected.each_ref().map(|_| events.recv_timeout(LIMIT).unwrap().unwrap()), expected);
    let (echo, _) = b.echo();
    let far = a.far(&b, echo.address());
    until("the first node is up again, too", || a.runtime.ask(far, Message::Ask, LIMIT).wait().is_ok());
}

#[test]
fn a_node_stays_though_the_ends_of_many_earlier_ones_are_reported_late() {
    let network = MemoryNetwork::new();
    let b = member("b", &network);
    (1..=16).for_each(|earlier| b.cluster.members.seen("a", earlier));
    let a = member("a", &network);
    b.cluster.wait_for("a", LIMIT).unwrap();
    (1..=16).for_each(|earlier| b.cluster.members.gone("a", earlier));
    a.cluster.wait_for("b", LIMIT).unwrap();
    let (echo, _) = b.echo();
    assert_eq!(a.runtime.ask(a.far(&b, echo.address()), Message::Ask, LIMIT).wait().unwrap(), 7);
    assert_eq!(b.names(), ["a"]);
}

#[test]
fn a_frame_that_comes_after_the_end_starts_no_thread() {
    let [a, b] = two(&MemoryNetwork::new());
    assert!(a.cluster.members.runs("b"));
    a.runtime.shutdown(LIMIT).unwrap();
    a.cluster.members.frame("b", vec![0; 40]);
    a.cluster.members.seen("b", b.cluster.here().incarnation());
    assert!(!a.cluster.members.runs("b"));
}

#[test]
fn a_connection_without_threads_is_tried_again() {
    let [a, b] = two(&MemoryNetwork::new());
    let mut events = b.cluster.events();
    let (name, incarnation) = ("a", a.cluster.here().incarnation());
    b.cluster.members.gone(name, incarnation);
    crate::threads::refuse(true);
    b.cluster.members.seen(name, incarnation);
    crate::threads::refuse(false);
    let up = NodeEvent::Up(a.cluster.here().clone());
    let expected = [up.clone(), NodeEvent::Down(a.cluster.here().clone(), DownReason::Closed), up];
    assert_eq!(expected.each_ref().map(|_| events.recv_timeout(LIMIT).unwrap().unwrap()), expected);
}

#[test]
fn a_process_of_another_node_is_found_by_its_name() {
    let [a, b] = two(&MemoryNetwork::new());
    let (echo, _) = b.echo();
    b.runtime.register("echo", &echo).unwrap();
    let found: Address<Message> = a.cluster.whereis("b", "echo", LIMIT).wait().unwrap().typed();
    assert_eq!(found, a.far(&b, echo.address()));
    assert_eq!(a.runtime.ask(found, Message::Ask, LIMIT).wait().unwrap(), 7);
    let error = a.cluster.whereis("b", "nobody", LIMIT).wait().unwrap_err();
    assert!(matches!(&error, CommandError::NoSuchProcess(why) if why.to_string().contains("nobody")), "{error}");
    assert!(is_down(&a.cluster.whereis("c", "echo", LIMIT).wait().map(|_| 0)));
    b.runtime.shutdown(LIMIT).unwrap();
    until("the node is down", || a.names().is_empty());
    assert!(is_down(&a.cluster.whereis("b", "echo", LIMIT).wait().map(|_| 0)));
    let late = b.cluster.whereis("a", "echo", LIMIT).wait();
    assert!(late.is_err(), "{late:?}");
}

/// Subscribes from inside of a step.
struct Subscriber(Cluster, Option<mpsc::Sender<String>>);

impl Process for Subscriber {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let Subscriber(cluster, tell) = self;
        let refused = cluster.events().recv().expect_err("it would block a worker");
        tell.take().unwrap().send(refused.to_string()).unwrap();
        Ok(Step::Done(()))
    }
}

#[test]
fn a_step_does_not_wait_for_events() {
    let a = member("a", &MemoryNetwork::new());
    let (tell, told) = mpsc::channel();
    a.runtime.spawn(Subscriber(a.cluster.clone(), Some(tell))).unwrap();
    assert!(told.recv_timeout(LIMIT).unwrap().contains("a step cannot wait"));
    let mut events = a.cluster.events();
    a.runtime.shutdown(LIMIT).unwrap();
    assert_eq!(events.recv(), Ok(None));
}

#[test]
fn a_node_leaves_though_its_peer_stands_still() {
    let network = MemoryNetwork::new();
    let [a, b] = two(&network);
    let (echo, _) = b.echo();
    let far = a.far(&b, echo.address());
    network.cut("a", "b");
    a.runtime.send(far, Message::Note(1)).unwrap();
    // Nobody acknowledges it.
    a.runtime.shutdown(LIMIT).unwrap();
    assert_eq!(*lock(&a.graves.0), [(far.pid(), DeadLetterReason::NodeDown)]);
    assert_eq!(a.names(), [""; 0]);
}

#[test]
fn a_node_with_a_silent_peer_and_a_short_limit_does_not_hang() {
    let network = MemoryNetwork::new();
    let [a, b] = two(&network);
    let (echo, _) = b.echo();
    let far = a.far(&b, echo.address());
    network.cut("a", "b");
    a.runtime.send(far, Message::Note(1)).unwrap();
    let report = a.runtime.shutdown(Duration::from_millis(50)).unwrap();
    assert!(report.hangs.is_none(), "{report}");
}

/// Notes the nodes that are up when it is woken.
struct Looks(Cluster, mpsc::Sender<Vec<String>>);

impl Wake for Looks {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = self.1.send(self.0.nodes().iter().map(|node| node.name().to_string()).collect());
    }
}

#[test]
fn a_node_has_left_before_a_shutdown_wakes_futures_and_drops_timers() {
    let network = MemoryNetwork::new();
    let [a, b] = two(&network);
    let mut events = b.cluster.events();
    let (tell, told) = mpsc::channel();
    let (echo, _) = a.echo();
    let waker = Waker::from(std::sync::Arc::new(Looks(a.cluster.clone(), tell)));
    // Nobody drops this reply, so the question is open until the timers are dropped.
    let mut kept = None;
    let mut asking = pin!(a.runtime.ask(
        echo.address(),
        |reply: Reply<u64>| {
            kept = Some(reply);
            Message::Note(1)
        },
        LONG
    ));
    assert!(asking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    a.runtime.shutdown(LIMIT).unwrap();
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), [""; 0]);
    assert!(matches!(events.recv_timeout(LIMIT), Ok(Some(NodeEvent::Up(_)))));
    let left = events.recv_timeout(LIMIT).unwrap();
    assert!(matches!(left, Some(NodeEvent::Down(_, DownReason::Left))), "{left:?}");
}

/// Counts the ups and downs that come as messages.
#[cfg(feature = "stream")]
struct Counter(Option<Cluster>, mpsc::Sender<NodeEvent>);

#[cfg(feature = "stream")]
impl Process for Counter {
    type Message = NodeEvent;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, NodeEvent>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(cluster) = self.0.take() {
            out.stream(4, cluster.events());
        }
        for event in events {
            if let crate::process::Event::Message(event) = event {
                self.1.send(event).unwrap();
            }
        }
        Ok(Step::Idle)
    }
}

#[cfg(feature = "stream")]
#[test]
fn a_process_takes_the_events_as_a_stream() {
    let network = MemoryNetwork::new();
    let a = member("a", &network);
    let (tell, told) = mpsc::channel();
    let _counter = a.runtime.spawn(Counter(Some(a.cluster.clone()), tell)).unwrap();
    for _ in 0..5 {
        let b = member("b", &network);
        let identity = b.cluster.here().clone();
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), NodeEvent::Up(identity.clone()));
        b.runtime.shutdown(LIMIT).unwrap();
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), NodeEvent::Down(identity, DownReason::Left));
    }
}
