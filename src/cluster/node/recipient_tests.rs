//! Recipients whose processes are on another node.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::net::{Local, Net, Order};
use crate::Rejected;
use crate::cluster::peer::Bound;
use crate::latch::Latch;
use crate::outcome::contain;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicU64, Mutex, Ordering, lock, thread};
use crate::process::propagation::{StepSpan, TraceContext, TracedStep};
use crate::process::recipient::Route;
use crate::process::{
    CommandError, DeadLetter, DeadLetterReason, Event, Events, NodeError, Process, Recipient, Reply, SendError,
    SpawnOptions, Step, StepOutput, StepResult,
};
use crate::runtime::SendFuture;
use crate::sched::mailbox::AnyMailbox;
use crate::sched::non_local::{NonLocal as _, Waiter, WaitingOutside};
use crate::sched::outbox::Outbox;
use crate::sched::room_queue::QueuedSend;
use crate::sched::waiting_send::{LimitedSend as _, Told, WaitingSend};
use crate::wait::wait;

const LONG: Duration = Duration::from_secs(600);

/// A message that only the conversion knows. It cannot be cloned, so one that comes back is the one that was sent.
#[derive(Debug, PartialEq)]
struct Line(u64);

/// Travels, and only the first node has it.
#[derive(Serialize, Deserialize)]
struct Unlisted(u64);

crate::remote!(Unlisted, "test::Unlisted", 1);

/// A process of the other node, with a recipient for it that counts its conversions.
struct Far {
    reader: Local,
    pid: Pid,
    to: Recipient<Line>,
    converted: Arc<AtomicU64>,
    /// Is called in the next conversion of the number 97.
    meanwhile: Meanwhile,
}

type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

impl Far {
    fn new(net: &Net) -> Far {
        let (reader, converted) = (net.plain(1), Arc::<AtomicU64>::default());
        let (pid, counts, meanwhile) = (net.pid(&reader, 0), converted.clone(), Meanwhile::default());
        let calls = meanwhile.clone();
        let to = pid.typed::<Order>().map(move |Line(number)| {
            counts.fetch_add(1, Ordering::SeqCst);
            match number {
                99 => panic!("on purpose: in a conversion"),
                // More than the limit of a message.
                98 => Order::Text("x".repeat(17 << 20)),
                97 => {
                    let call = lock(&calls).take();
                    call.into_iter().for_each(|call| call());
                    Order::Note(97)
                }
                number => Order::Note(number),
            }
        });
        Far { reader, pid, to, converted, meanwhile }
    }

    fn converted(&self) -> u64 {
        self.converted.load(Ordering::SeqCst)
    }
}

impl Net {
    fn sends_later(&self, far: &Far, number: u64, limit: Duration) -> SendFuture<Line> {
        self.sides[0].0.send_timeout(&far.to, Line(number), limit)
    }

    fn dead(&self) -> Vec<(DeadLetterReason, u64)> {
        self.sides[0].0.stats().messages.dead_by_reason.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

fn back(refused: Result<(), Rejected<Line, SendError>>) -> (u64, NodeError) {
    let (Line(number), why) = refused.unwrap_err().into_parts();
    match why {
        SendError::Node { why, .. } => (number, why),
        other => panic!("another error: {other}"),
    }
}

/// Notes what comes back to it.
struct Sender(Arc<Mutex<Vec<String>>>, Recipient<Line>);

impl Process for Sender {
    type Message = (u64, Duration);
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, (u64, Duration)>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message((number, limit)) => _ = out.send_timeout(&self.1, Line(number), limit),
                Event::Completed(done) => done.look(&mut |answer| {
                    let sent =
                        answer.ok().and_then(|sent| sent.downcast_ref::<Result<(), Rejected<Line, SendError>>>());
                    lock(&self.0).push(match sent {
                        Some(Ok(())) => "sent".into(),
                        Some(Err(refused)) => refused.reason().to_string(),
                        None => "no answer".into(),
                    });
                }),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_recipient_of_another_node_is_a_target_for_every_call() {
    let net = Net::new(2);
    let far = Far::new(&net);
    let (runtime, answers) = (&net.sides[0].0, Arc::default());
    runtime.send(&far.to, Line(1)).unwrap();
    net.sends_later(&far, 2, Duration::ZERO).wait().unwrap();
    net.sends_later(&far, 3, LONG).wait().unwrap();
    let (sender, to) = (net.plain(0), far.to.clone());
    net.does(&sender, move |out| out.send(&to, Line(4)));
    let waits = runtime.spawn(Sender(Arc::clone(&answers), far.to.clone())).unwrap();
    for (number, limit) in [(5, Duration::ZERO), (6, LONG)] {
        runtime.send(&waits, (number, limit)).unwrap();
        net.rests();
    }
    net.carry();
    assert_eq!(far.reader.seen(), (1..7).map(|number| format!("note {number}")).collect::<Vec<_>>());
    assert_eq!(*lock(&answers), ["sent", "sent"]);
    assert!(runtime.is_alive(&far.to));
    assert!(runtime.cancel(&far.to, "enough").unwrap());
    net.carry();
    assert_eq!((far.reader.seen(), far.converted(), net.dead()), (vec!["cancel enough".into()], 6, vec![]));
}

/// As a message to an address, it says why, and comes back. It was not converted.
#[test]
fn a_message_that_another_node_does_not_take_comes_back_unconverted() {
    let is_first = Cell::new(true);
    let net = Net::with(2, |wire| if is_first.replace(false) { wire.message::<Unlisted>() } else { wire });
    let far = Far::new(&net);
    let runtime = &net.sides[0].0;
    let never: Recipient<Line> = far.pid.typed::<u8>().map(|_| panic!("it is not to be converted"));
    let (number, why) = back(runtime.send(&never, Line(1)));
    assert_eq!((number, why.clone()), (1, NodeError::NotRemote { type_name: "u8" }));
    assert_eq!(back(runtime.send_timeout(&never, Line(2), LONG).wait()), (2, why.clone()));
    let unlisted: Recipient<Line> = far.pid.typed::<Unlisted>().map(|_| panic!("it is not to be converted"));
    let (number, not_taken) = back(runtime.send_timeout(&unlisted, Line(6), LONG).wait());
    assert!(matches!(not_taken, NodeError::NotTaken { name: "test::Unlisted", .. }) && number == 6, "{not_taken}");
    let asks: Recipient<Reply<u64>> = far.pid.typed::<u8>().map(|_| panic!("it is not to be converted"));
    let answer = runtime.ask(&asks, |reply| reply, LONG).wait();
    assert!(matches!(&answer, Err(CommandError::Node { why: not, .. }) if *not == why), "{answer:?}");
    let answers = Arc::default();
    let sender = runtime.spawn(Sender(Arc::clone(&answers), never)).unwrap();
    runtime.send(&sender, (3, LONG)).unwrap();
    net.rests();
    let answer = lock(&answers).concat();
    assert!(answer.contains("u8 does not travel"), "{answer}");
    net.cut(0, 1);
    assert_eq!(back(runtime.send(&far.to, Line(4))), (4, NodeError::NodeDown));
    assert_eq!(back(net.sends_later(&far, 5, LONG).wait()), (5, NodeError::NodeDown));
    assert_eq!((far.converted(), net.dead()), (0, vec![]));
}

#[test]
fn a_message_to_a_recipient_of_another_node_waits_for_room_unconverted() {
    let net = Net::new(2);
    let far = Far::new(&net);
    let runtime = &net.sides[0].0;
    net.fill(0, 1, true);
    assert_eq!(back(runtime.send(&far.to, Line(1))), (1, NodeError::Busy));
    assert_eq!(back(net.sends_later(&far, 2, Duration::from_millis(1)).wait()), (2, NodeError::Busy));
    let [three, four, panics, six, large, eight] =
        [3, 4, 99, 6, 98, 8].map(|number| net.sends_later(&far, number, LONG));
    drop(four);
    // Also one without a conversion keeps its turn.
    let nine = runtime.send_timeout(far.pid.typed(), Order::Note(9), LONG);
    assert_eq!((far.converted(), net.on_the_way(0, 1)), (0, 0));
    net.fill(0, 1, false);
    let panics = Mutex::new(Some(panics));
    assert!(contain(|| lock(&panics).take().unwrap().wait()).is_err(), "its sender panics");
    for sent in [three, six, eight] {
        sent.wait().unwrap();
    }
    nine.wait().unwrap();
    net.carry();
    assert_eq!(far.reader.seen(), [3, 6, 8, 9].map(|number| format!("note {number}")));
    // It was converted, so it does not come back. It is a dead letter.
    large.wait().unwrap();
    assert_eq!((far.converted(), net.dead()), (5, vec![(DeadLetterReason::NotSent, 1)]));
    net.fill(0, 1, true);
    let waits = net.sends_later(&far, 10, LONG);
    net.cut(0, 1);
    assert_eq!(back(waits.wait()), (10, NodeError::NodeDown));
    assert_eq!(far.converted(), 5);
}

/// The process is held, as one that sends to an address.
#[test]
fn a_process_that_sends_to_a_recipient_of_a_full_node_is_held() {
    let net = Net::new(2);
    let far = Far::new(&net);
    let (runtime, answers) = (&net.sides[0].0, Arc::default());
    let sender = runtime.spawn(Sender(Arc::clone(&answers), far.to.clone())).unwrap();
    net.fill(0, 1, true);
    runtime.send(&sender, (1, Duration::ZERO)).unwrap();
    net.rests();
    let answer = lock(&answers).concat();
    assert!(answer.contains("too many messages wait"), "{answer}");
    assert_eq!(far.converted(), 0);
    for number in [2, 3] {
        runtime.send(&sender, (number, LONG)).unwrap();
        net.rests();
    }
    assert_eq!((far.converted(), net.on_the_way(0, 1)), (1, 1), "it is held");
    net.fill(0, 1, false);
    net.carry();
    assert_eq!(far.reader.seen(), ["note 2", "note 3"]);
    assert_eq!(net.dead(), vec![]);
}

/// As with an address, a message of such a process comes back. So does one of a process that is held, if messages of
/// those have no room either.
#[test]
fn a_message_of_a_process_that_cannot_be_held_comes_back_unconverted() {
    let net = Net::new(2);
    let far = Far::new(&net);
    let runtime = &net.sides[0].0;
    let spawn = |options| {
        let answers = Arc::default();
        (runtime.spawn_with(Sender(Arc::clone(&answers), far.to.clone()), options).unwrap(), answers)
    };
    let (never_held, is_told) = spawn(SpawnOptions::new().never_held());
    runtime.send(&never_held, (1, LONG)).unwrap();
    net.rests();
    assert_eq!((far.converted(), std::mem::take(&mut *lock(&is_told))), (1, vec!["sent".into()]));
    net.fill(0, 1, true);
    runtime.send(&never_held, (2, LONG)).unwrap();
    let (other, other_told) = spawn(SpawnOptions::new());
    *lock(&net.ends[&(0, 1)].wires.is_full_for_all) = true;
    runtime.send(&other, (3, LONG)).unwrap();
    net.rests();
    for told in [is_told, other_told] {
        let told = lock(&told).concat();
        assert!(told.contains("too many messages wait"), "{told:?}");
    }
    assert_eq!((far.converted(), net.dead(), net.on_the_way(0, 1)), (1, vec![], 1));
}

/// The node is down and up again during a conversion. The message is a dead letter, because a later one was sent since.
#[test]
fn a_message_whose_node_goes_down_while_it_is_converted_is_not_sent_later() {
    let mut net = Net::new(2);
    let far = Far::new(&net);
    net.fill(0, 1, true);
    let waits = net.sends_later(&far, 97, LONG);
    let (begun, goes_on, is_over) = (Latch::new(), Latch::new(), Latch::new());
    let latches = (begun.clone(), goes_on.clone());
    *lock(&far.meanwhile) = Some(Box::new(move || {
        let _ = latches.0.set(());
        wait(&latches.1);
    }));
    *lock(&net.ends[&(0, 1)].wires.is_full) = false;
    let (node, connection) = (net.sides[0].1.clone(), net.ends[&(0, 1)].connection.clone());
    let over = is_over.clone();
    thread::spawn(move || {
        node.has_room(&connection, Bound::Small);
        let _ = over.set(());
    });
    wait(&begun);
    net.cut(0, 1);
    net.connect(0, 1);
    net.sides[0].0.send(&far.to, Line(2)).unwrap();
    let _ = goes_on.set(());
    wait(&is_over);
    waits.wait().unwrap();
    net.carry();
    assert_eq!((far.reader.seen(), net.dead()), (vec!["note 2".into()], vec![(DeadLetterReason::NodeDown, 1)]));
}

/// The node is down and up again before the message is offered on a connection.
#[test]
fn a_message_that_waits_is_not_offered_on_the_next_connection() {
    let mut net = Net::new(2);
    let (far, reader) = (net.pid(&net.plain(1), 0), net.plain(1));
    let later = net.pid(&reader, 0);
    net.fill(0, 1, true);
    let (kinds, is_asked, is_over) = (Latch::new(), Latch::new(), Latch::new());
    let route = Arc::new(Reconnects(is_asked.clone(), kinds.clone()));
    let send = Arc::new(WaitingSend::new(far, Line(1), Some(route as Arc<dyn Route<Line>>)));
    let (node, offered) = (net.sides[0].1.clone(), send.clone());
    node.wait_for_room(far, Waiter::Outside(Arc::downgrade(&(send.clone() as Arc<dyn WaitingOutside>))));
    let connection = net.ends[&(0, 1)].connection.clone();
    *lock(&net.ends[&(0, 1)].wires.is_full) = false;
    let over = is_over.clone();
    thread::spawn(move || {
        node.has_room(&connection, Bound::Small);
        let _ = over.set(());
    });
    wait(&is_asked);
    net.cut(0, 1);
    net.connect(0, 1);
    net.sides[0].0.send(later.typed::<Order>(), Order::Note(2)).unwrap();
    let _ = kinds.set(());
    wait(&is_over);
    assert_eq!((offered.told().get(), offered.take_back()), (Some(Told::NodeDown), Some(Line(1))));
    net.carry();
    assert_eq!(reader.seen(), ["note 2"]);
}

/// A conversion that is never made. `kind` sets the first latch, and returns when the second one is set.
struct Reconnects(Latch<()>, Latch<()>);

impl Route<Line> for Reconnects {
    fn push(&self, _: &mut Outbox, _: Line) -> u32 {
        panic!("it is not to be converted")
    }

    fn is_for(&self, _: &dyn AnyMailbox) -> bool {
        false
    }

    fn plain(&self, _: Pid, _: Line) -> QueuedSend {
        panic!("it is not to be converted")
    }

    fn kind(&self) -> (TypeId, &'static str) {
        let _ = self.0.set(());
        wait(&self.1);
        (TypeId::of::<Order>(), self.type_name())
    }

    fn type_name(&self) -> &'static str {
        "Order"
    }
}

/// Large messages fill their room, and a process is held for it. A converted message might be large, too.
#[test]
fn a_message_is_not_converted_while_a_process_is_held_for_large_ones() {
    let net = Net::new(2);
    let (far, sender) = (Far::new(&net), net.plain(0));
    let (runtime, to) = (&net.sides[0].0, far.pid.typed::<Order>());
    let is_full_for_large = &net.ends[&(0, 1)].wires.is_full_for_large;
    *lock(is_full_for_large) = true;
    runtime.send(&far.to, Line(1)).unwrap();
    net.fill(0, 1, true);
    net.does(&sender, move |out| out.send(to, Order::Text("x".repeat(100_000))));
    *lock(&net.ends[&(0, 1)].wires.is_full) = false;
    assert_eq!(back(runtime.send(&far.to, Line(3))), (3, NodeError::Busy));
    let waits = net.sends_later(&far, 4, LONG);
    assert_eq!(far.converted(), 1);
    *lock(is_full_for_large) = false;
    net.fill(0, 1, false);
    waits.wait().unwrap();
    net.carry();
    assert_eq!(far.reader.seen(), ["note 1", "text of 100000", "note 4"]);
}

#[test]
fn a_message_is_sent_though_its_sender_gives_up_while_it_is_converted() {
    let net = Net::new(2);
    let (far, node) = (Far::new(&net), net.sides[0].1.clone());
    // Its limit is over.
    let send = Arc::new(WaitingSend::new(far.pid, Line(97), Some(far.to.route().clone())));
    let limited = send.clone();
    *lock(&far.meanwhile) = Some(Box::new(move || limited.give_up(Told::TimedOut)));
    assert!(!send.offer(&*node));
    assert_eq!((send.told().get(), send.take_back()), (Some(Told::Sent), None));
    // Its future is dropped.
    net.fill(0, 1, true);
    let waits = Mutex::new(Some(net.sends_later(&far, 97, LONG)));
    *lock(&far.meanwhile) = Some(Box::new(move || drop(lock(&waits).take())));
    net.fill(0, 1, false);
    net.carry();
    assert_eq!((far.reader.seen(), net.dead(), far.converted()), (vec!["note 97".into(); 2], vec![], 2));
}

/// Notes its dead letters. The panic is on purpose.
struct Traced(Arc<Mutex<Vec<Pid>>>);

impl TraceContext for Traced {
    fn begin_step(&self, _: &TracedStep<'_>) -> Box<dyn StepSpan> {
        panic!("no step has this trace")
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(())
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        lock(&self.0).push(letter.to);
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        panic!("on purpose: in the destructor of a trace");
    }
}

#[test]
fn the_dead_letter_of_a_message_that_was_converted_late_has_its_trace() {
    let net = Net::new(2);
    let (far, dead) = (Far::new(&net), Arc::default());
    let send = WaitingSend::new(far.pid, Line(98), Some(far.to.route().clone()));
    let send = Arc::new(send.in_trace(Some(Arc::new(Traced(Arc::clone(&dead))))));
    assert!(!send.offer(&*net.sides[0].1));
    assert_eq!((send.told().get(), net.dead()), (Some(Told::Sent), vec![(DeadLetterReason::NotSent, 1)]));
    assert_eq!(*lock(&dead), [far.pid]);
}
