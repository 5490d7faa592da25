//! One trace over two nodes, and one over a kill and a restart of a store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::{SpanId, SpanKind, TraceState};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
use procession::cluster::{Cluster, MemoryNetwork, Wire};
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use super::helpers::*;

#[derive(Serialize, Deserialize)]
enum Order {
    /// To be asked of this process.
    Price(Address<Order>),
    Ask(Reply<u32>),
}

procession::remote!(Order, "test::Order", 1);

/// Asks for prices, or answers.
struct Shop<const N: usize>;

impl<const N: usize> Process for Shop<N> {
    type Message = Order;
    type Output = ();

    fn type_name() -> &'static str {
        ["till", "catalogue"][N]
    }

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Order::Price(catalogue)) => _ = out.ask(catalogue, Order::Ask, LIMIT),
                Event::Message(Order::Ask(reply)) => out.reply(reply, 7),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn start_node(name: &str, network: &MemoryNetwork, spans: &Spans) -> (Runtime, Cluster) {
    let runtime = spans.start(Runtime::builder().workers(1));
    let cluster = Cluster::named(name, Wire::new().message::<Order>()).memory(network).start(&runtime).unwrap();
    (runtime, cluster)
}

/// The spans with this name that have ended.
fn named(spans: &Spans, name: &str) -> Vec<SpanData> {
    spans.ended().into_iter().filter(|span| span.name == name).collect()
}

#[test]
fn one_trace_goes_over_two_nodes_and_back() {
    // Each node has a provider of its own, as two programs do.
    let (here, there, network) = (Spans::new(), Spans::new(), MemoryNetwork::new());
    let (one, cluster) = start_node("one", &network, &here);
    let (other, _cluster) = start_node("other", &network, &there);
    let catalogue = other.spawn(Shop::<1>).unwrap();
    other.register("catalogue", catalogue.pid()).unwrap();
    cluster.wait_for("other", LIMIT).unwrap();
    let far = cluster.whereis("other", "catalogue", LIMIT).wait().unwrap().typed();
    let till = one.spawn(Shop::<0>).unwrap();
    let root = here.root(|| one.send(till.address(), Order::Price(far)).unwrap());
    until("the till has the answer", || named(&here, "step till").len() == 2);
    until("the step of the catalogue has ended", || named(&there, "step catalogue").len() == 1);

    let asks = here.child(root, "step till");
    let answers = there.child(id(&asks), "step catalogue");
    let answered = here.child(id(&asks), "step till");
    let trace = asks.span_context.trace_id();
    assert_eq!((answers.span_context.trace_id(), answered.span_context.trace_id()), (trace, trace));
    assert!(answers.parent_span_is_remote && !answered.parent_span_is_remote, "{answers:?}, {answered:?}");
    assert_eq!((&answers.span_kind, &answered.span_kind), (&SpanKind::Consumer, &SpanKind::Internal));
    assert_eq!(attribute(&answers, "procession.pid"), Some(catalogue.pid().to_string()));
    assert_eq!((here.ended().len(), there.ended().len()), (3, 1));
}

/// The other node keeps to the decision of the first one.
#[test]
fn a_trace_that_is_not_sampled_is_not_sampled_at_the_other_node() {
    let none = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOff);
    let by_parent = SdkTracerProvider::builder().with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)));
    let (here, there, network) = (Spans::with(none), Spans::with(by_parent), MemoryNetwork::new());
    let (one, cluster) = start_node("one", &network, &here);
    let (other, _cluster) = start_node("other", &network, &there);
    let catalogue = other.spawn(Shop::<1>).unwrap();
    other.register("catalogue", catalogue.pid()).unwrap();
    cluster.wait_for("other", LIMIT).unwrap();
    let far: Address<Order> = cluster.whereis("other", "catalogue", LIMIT).wait().unwrap().typed();
    let mut asked = None;
    here.root(|| asked = Some(one.ask(far, Order::Ask, LIMIT)));
    assert_eq!(asked.unwrap().wait().unwrap(), 7);
    rest(&other);
    assert!(here.ended().is_empty() && there.ended().is_empty(), "{:?}", there.ended());
}

static IS_STUCK: AtomicBool = AtomicBool::new(true);

/// Passes its message on, unless it is stuck.
#[derive(Serialize, Deserialize)]
struct Clerk {
    next: Option<Address<Letter>>,
}

#[derive(Serialize, Deserialize)]
struct Letter;

impl Process for Clerk {
    type Message = Letter;
    type Output = ();

    fn type_name() -> &'static str {
        "clerk"
    }

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Letter) = event {
                if self.next.is_some() && IS_STUCK.load(Ordering::SeqCst) {
                    return Err("on purpose".into());
                }
                self.next.into_iter().for_each(|next| out.send(next, Letter));
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Clerk {
    const NAME: &str = "clerk";
}

fn open(disk: &MemoryDisk, spans: &Spans) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(1).propagate(procession_otel::OtelPropagator::new(spans.tracer.clone()));
    Store::with_journal(MemoryJournal::new(disk)).kind::<Clerk>().start(builder).unwrap()
}

#[test]
fn one_trace_goes_over_a_kill_and_a_restart_of_a_store() {
    // Each run has a provider of its own.
    let (before, after, disk) = (Spans::new(), Spans::new(), MemoryDisk::new());
    let (store, runtime) = open(&disk, &before);
    let second = store.begin("second", Clerk { next: None }).unwrap().address();
    let first = store.begin("first", Clerk { next: Some(second) }).unwrap();
    first.wait(LIMIT).unwrap();
    let mut root = SpanId::INVALID;
    let mut send = || root = before.root(|| store.send(first.address(), Letter).unwrap().wait(LIMIT).unwrap());
    send();
    until("the step has failed", || named(&before, "step clerk").len() == 1);
    let failed = before.child(root, "step clerk");
    assert_eq!(attribute(&failed, "error.type"), Some("failed".into()));
    // Nothing reaches the disk any more. So the store is as a kill leaves it.
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    drop((store.close(), runtime));
    disk.crash();
    disk.heal();

    IS_STUCK.store(false, Ordering::SeqCst);
    let (store, runtime) = open(&disk, &after);
    until("both steps have ended", || named(&after, "step clerk").len() == 2);
    let one = after.child(root, "step clerk");
    let two = after.child(id(&one), "step clerk");
    assert_eq!(attribute(&one, "procession.pid"), Some(first.address().pid().to_string()));
    assert_eq!(attribute(&two, "procession.pid"), Some(second.pid().to_string()));
    assert_eq!(attribute(&two, "procession.sender"), attribute(&one, "procession.pid"));
    let trace = failed.span_context.trace_id();
    assert!([&one, &two].iter().all(|span| span.span_context.trace_id() == trace), "{:#?}", after.ended());
    assert!(one.parent_span_is_remote);
    assert_eq!(one.span_context.trace_state(), &TraceState::default());
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    store.close().unwrap();
}
