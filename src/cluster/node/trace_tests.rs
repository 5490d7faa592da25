//! Traces of messages between nodes whose frames a test carries.

use std::any::Any;
use std::time::Duration;

use super::net::{Local, Net, Order, Seen};
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::process::propagation::{Propagator, StepSpan, TraceContext, TracedStep};
use crate::process::{DeadLetter, DeadLetterReason, Recipient};
use crate::traces::{Span, Traces};
use crate::wait::until;

const LONG: Duration = Duration::from_secs(600);

/// How contexts are written and read.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    Right,
    /// With as many bytes as there may be.
    Longest,
    TooLong,
    Empty,
    NoContext,
    NotWritten,
    PanicsWriting,
    PanicsReading,
}

/// Traces whose contexts are written in another way.
#[derive(Clone)]
struct Odd {
    traces: Traces,
    shape: Arc<Mutex<Shape>>,
    /// How often bytes were read.
    reads: Arc<AtomicUsize>,
}

struct OddContext(Arc<dyn TraceContext>, Arc<Mutex<Shape>>);

impl Odd {
    fn wrap(&self, context: Arc<dyn TraceContext>) -> Arc<dyn TraceContext> {
        Arc::new(OddContext(context, self.shape.clone()))
    }
}

impl Propagator for Odd {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        Some(self.wrap(self.traces.current()?))
    }

    fn decode(&self, bytes: &[u8]) -> Option<Arc<dyn TraceContext>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        assert!(*lock(&self.shape) != Shape::PanicsReading, "on purpose: it reads no context");
        Some(self.wrap(self.traces.decode(bytes.trim_ascii_end())?))
    }
}

impl TraceContext for OddContext {
    fn begin_step(&self, step: &TracedStep<'_>) -> Box<dyn StepSpan> {
        self.0.begin_step(step)
    }

    fn enter(&self) -> Box<dyn Any> {
        self.0.enter()
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.0.dead_letter(letter);
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let padded = |length| {
            let mut bytes = self.0.encode()?;
            bytes.resize(length, b' ');
            Some(bytes)
        };
        match *lock(&self.1) {
            Shape::Right | Shape::PanicsReading => self.0.encode(),
            Shape::Longest => padded(1_024),
            Shape::TooLong => padded(1_025),
            Shape::Empty => Some(Vec::new()),
            Shape::NoContext => Some(b"no context".into()),
            Shape::NotWritten => None,
            Shape::PanicsWriting => panic!("on purpose: it writes no context"),
        }
    }
}

/// Two nodes, and a process of the second one with its PID at the first one.
fn two(traces: &Traces) -> (Net, Local, Pid) {
    let net = Net::traced(traces.clone());
    // Both nodes number their processes in the same way, so this one has another number than the first one there.
    let [_, far] = [net.plain(1), net.plain(1)];
    let pid = net.pid(&far, 0);
    (net, far, pid)
}

fn close(net: Net, traces: &Traces) {
    drop(net);
    until("all contexts are gone", || traces.contexts() == 0);
}

/// The only span below this one, which is of this process.
#[track_caller]
fn only_child(traces: &Traces, parent: usize, of: &Local) -> Span {
    let mut children = traces.children(parent);
    assert!(children.len() == 1 && children[0].pid == Some(of.handle.pid()), "{children:?}");
    children.remove(0)
}

#[test]
fn a_message_of_a_process_that_is_held_is_in_its_trace() {
    let traces = Traces::new();
    let (net, far, pid) = two(&traces);
    let near = net.plain(0);
    net.fill(0, 1, true);
    let root = traces.root(|| net.does(&near, move |out| out.send(pid.typed(), Order::Note(1))));
    assert_eq!(net.on_the_way(0, 1), 1, "it is taken, and its sender is held");
    net.carry();
    let sent = only_child(&traces, root, &near);
    only_child(&traces, sent.number, &far);
    // The process goes on outside of the trace.
    net.fill(0, 1, false);
    net.does(&near, move |out| out.send(pid.typed(), Order::Note(2)));
    net.carry();
    assert_eq!((far.seen(), traces.spans().len()), (vec!["note 1".into(), "note 2".into()], 3));
    close(net, &traces);
}

/// From outside, with a conversion and without.
#[test]
fn a_message_that_waits_for_room_at_another_node_is_in_its_trace() {
    let traces = Traces::new();
    let (net, far, pid) = two(&traces);
    let runtime = &net.sides[0].0;
    let recipient: Recipient<u64> = pid.typed::<Order>().map(Order::Note);
    net.fill(0, 1, true);
    let mut waits = (None, None);
    let plain = traces.root(|| waits.0 = Some(runtime.send_timeout(pid.typed(), Order::Note(1), LONG)));
    let converted = traces.root(|| waits.1 = Some(runtime.send_timeout(&recipient, 2, LONG)));
    assert_eq!(net.on_the_way(0, 1), 0);
    net.fill(0, 1, false);
    net.carry();
    for root in [plain, converted] {
        only_child(&traces, root, &far);
    }
    // Nothing is left of the contexts though the senders have not looked yet.
    until("all contexts are gone", || traces.contexts() == 0);
    waits.0.unwrap().wait().unwrap();
    waits.1.unwrap().wait().unwrap();
    assert_eq!(far.seen(), ["note 1", "note 2"]);
    close(net, &traces);
}

#[test]
fn a_message_that_a_recipient_converts_for_another_node_is_in_its_trace() {
    let traces = Traces::new();
    let (net, far, pid) = two(&traces);
    let near = net.plain(0);
    let recipient: Recipient<u64> = pid.typed::<Order>().map(Order::Note);
    let root = traces.root(|| net.sides[0].0.send(&recipient, 1).unwrap());
    net.carry();
    only_child(&traces, root, &far);
    // Those of a process, with a limit and without. With a limit it has an answer, too.
    for with_limit in [false, true] {
        let recipient = recipient.clone();
        let root = traces.root(|| {
            net.does(&near, move |out| match with_limit {
                false => out.send(&recipient, 2),
                true => _ = out.send_timeout(&recipient, 3, LONG),
            });
        });
        net.carry();
        let sent = only_child(&traces, root, &near);
        let below = traces.children(sent.number);
        let of_far = below.iter().filter(|span| span.pid == Some(far.handle.pid())).count();
        assert_eq!((of_far, below.len()), (1, 1 + usize::from(with_limit)), "{below:?}");
    }
    assert_eq!(far.seen(), ["note 1", "note 2", "note 3"]);
    close(net, &traces);
}

/// Also the copies of a broadcast.
#[test]
fn messages_that_are_lost_with_a_connection_are_events_in_their_traces() {
    let traces = Traces::new();
    let (net, _far, pid) = two(&traces);
    let near = net.plain(0);
    let other = net.pid(&net.plain(1), 0);
    net.sides[0].0.send(pid.typed(), Order::Note(1)).unwrap();
    let plain = traces.root(|| net.sides[0].0.send(pid.typed(), Order::Note(2)).unwrap());
    let root = traces.root(|| net.does(&near, move |out| out.send(pid.typed(), Order::Note(3))));
    let sent = only_child(&traces, root, &near).number;
    let copies = traces.root(|| assert_eq!(net.sides[0].1.broadcast(&[pid, other], &Order::Note(4)), 2));
    assert_eq!(traces.contexts(), 0, "a message on its way keeps its bytes alone");
    net.cut(0, 1);
    let dead: Vec<_> = traces.dead();
    let expected = [plain, sent, copies, copies].map(|span| (span, DeadLetterReason::NodeDown));
    assert_eq!(dead, expected);
    assert_eq!(net.sides[0].0.stats().messages.dead_by_reason[&DeadLetterReason::NodeDown], 5);
    close(net, &traces);
}

/// Reads a context after a process was notified that the node is down.
#[derive(Clone)]
struct ReadsLate {
    traces: Traces,
    near: Arc<Mutex<Option<Seen>>>,
}

impl Propagator for ReadsLate {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        self.traces.current()
    }

    fn decode(&self, bytes: &[u8]) -> Option<Arc<dyn TraceContext>> {
        let near = lock(&self.near).clone().unwrap();
        until("it was told", || lock(&near).iter().any(|seen| seen.starts_with("down")));
        self.traces.decode(bytes)
    }
}

/// Fails if traces are notified of the dead letters before monitors are notified of the down.
#[test]
fn monitors_of_a_lost_node_do_not_wait_until_traces_are_told() {
    let propagator = ReadsLate { traces: Traces::new(), near: Arc::default() };
    let net = Net::traced(propagator.clone());
    let [near, far] = [net.plain(0), net.plain(1)];
    *lock(&propagator.near) = Some(near.seen.clone());
    net.monitor(&near, &far);
    net.carry();
    let pid = net.pid(&far, 0);
    let root = propagator.traces.root(|| net.sides[0].0.send(pid.typed(), Order::Note(1)).unwrap());
    net.cut(0, 1);
    assert_eq!(propagator.traces.dead(), [(root, DeadLetterReason::NodeDown)]);
    close(net, &propagator.traces);
}

#[test]
fn a_broadcast_is_in_its_trace_at_each_receiver() {
    let traces = Traces::new();
    let (net, far, pid) = two(&traces);
    let another = net.plain(1);
    let to = [pid, net.pid(&another, 0)];
    let root = traces.root(|| assert_eq!(net.sides[0].1.broadcast(&to, &Order::Note(1)), 2));
    net.carry();
    assert_eq!((far.seen(), another.seen()), (vec!["note 1".into()], vec!["note 1".into()]));
    assert_eq!(traces.children(root).len(), 2, "{:?}", traces.spans());
    close(net, &traces);
}

#[test]
fn a_context_that_cannot_travel_costs_no_message_and_no_connection() {
    let odd = Odd { traces: Traces::new(), shape: Arc::new(Mutex::new(Shape::Right)), reads: Arc::default() };
    let net = Net::traced(odd.clone());
    let far = net.plain(1);
    let pid = net.pid(&far, 0);
    let (mut number, mut reads) = (0, 0);
    for (shape, travels, is_read) in [
        (Shape::Right, true, true),
        (Shape::Longest, true, true),
        (Shape::TooLong, false, false),
        (Shape::Empty, false, false),
        (Shape::NoContext, false, true),
        (Shape::NotWritten, false, false),
        (Shape::PanicsWriting, false, false),
        (Shape::PanicsReading, false, true),
        (Shape::Right, true, true),
    ] {
        *lock(&odd.shape) = shape;
        let root = odd.traces.root(|| {
            net.sides[0].0.send(pid.typed(), Order::Note(number)).unwrap();
            assert_eq!(net.sides[0].1.broadcast(&[pid], &Order::Note(number)), 1);
        });
        net.carry();
        reads += if is_read { 2 } else { 0 };
        assert_eq!(far.seen(), [format!("note {number}"), format!("note {number}")], "{shape:?}");
        assert_eq!(odd.traces.children(root).len(), if travels { 2 } else { 0 }, "{shape:?}");
        assert_eq!(odd.reads.load(Ordering::SeqCst), reads, "{shape:?}");
        number += 1;
    }
    let traces = odd.traces.clone();
    drop_contained(odd);
    close(net, &traces);
}
