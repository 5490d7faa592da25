//! Senders that wait for room at another node.

use std::time::Duration;

use super::net::{Local, Net, Order};
use crate::Rejected;
use crate::cluster::peer::Bound;
use crate::cluster::room::Waiting;
use crate::latch::Latch;
use crate::outcome::contain;
use crate::pid::{Address, Pid};
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{
    DeadLetterReason, Event, Events, NodeError, Overflow, Process, Reply, SendError, SpawnOptions, Step, StepOutput,
    StepResult,
};
use crate::runtime::SendFuture;
use crate::sched::non_local::{NonLocal, Waiter, WaitingOutside};
use crate::sched::waiting_send::WaitingSend;
use crate::wait::{until, wait};

pub(super) const LONG: Duration = Duration::from_secs(600);

fn note(number: u64) -> Order {
    Order::Note(number)
}

impl Net {
    pub(super) fn far(&self, of: &Local, at: usize) -> Address<Order> {
        self.pid(of, at).typed()
    }

    /// The numbers of senders outside and of processes that wait on a node.
    pub(super) fn waiting(&self, at: usize) -> (usize, usize) {
        let waiting = &self.sides[at].1.waiting;
        // Those that still wait are among those that are listed.
        let (listed, counts) = (waiting.len(), self.sides[at].1.waiting_counts());
        assert!(counts.0 <= listed.0 && counts.1 <= listed.1, "{counts:?} of {listed:?}");
        listed
    }

    pub(super) fn send_outside(&self, to: Address<Order>, number: u64, limit: Duration) -> SendFuture<Order> {
        self.sides[0].0.send_timeout(to, note(number), limit)
    }

    /// Has a process of the first node send a number to another one.
    fn sends(&self, who: &Local, to: Address<Order>, number: u64) {
        self.does(who, move |out| out.send(to, note(number)));
    }

    /// The number of dead letters on the first node with the reason `Busy`.
    fn busy(&self) -> u64 {
        let dead = self.sides[0].0.stats().messages.dead_by_reason;
        dead.get(&DeadLetterReason::Busy).copied().unwrap_or(0)
    }
}

fn back(result: Result<(), Rejected<Order, SendError>>) -> (u64, NodeError) {
    let (message, why) = result.unwrap_err().into_parts();
    match (message, why) {
        (Order::Note(number), SendError::Node { why, .. }) => (number, why),
        (_, why) => panic!("another error: {why}"),
    }
}

#[test]
fn a_message_from_outside_waits_for_room_and_nobody_need_poll_it() {
    let net = Net::new(2);
    let reader = net.plain(1);
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    let three = [1, 2, 3].map(|number| net.send_outside(far, number, LONG));
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (0, (3, 0)));
    let [one, two, three] = three;
    drop(two);
    net.fill(0, 1, false);
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (2, (0, 0)));
    one.wait().unwrap();
    three.wait().unwrap();
    net.carry();
    assert_eq!(reader.seen(), ["note 1", "note 3"]);
    net.nothing_is_left("after all were sent");
}

#[test]
fn messages_from_outside_do_not_overtake_those_that_wait() {
    let net = Net::new(2);
    let reader = net.plain(1);
    let (far, end) = (net.far(&reader, 0), &net.ends[&(0, 1)]);
    net.fill(0, 1, true);
    let one = net.send_outside(far, 1, LONG);
    // There is room, but nobody was told of it yet.
    *lock(&end.wires.is_full) = false;
    assert_eq!(back(net.send_outside(far, 2, Duration::ZERO).wait()), (2, NodeError::Busy));
    let three = net.send_outside(far, 3, LONG);
    one.wait().unwrap();
    three.wait().unwrap();
    net.carry();
    assert_eq!((reader.seen(), net.waiting(0)), (vec!["note 1".into(), "note 3".into()], (0, 0)));
    net.send_outside(far, 4, Duration::ZERO).wait().unwrap();
}

/// The small messages that wait are sent between a refusal and the look for room. No `Room` follows for that.
#[test]
fn senders_of_small_messages_go_on_though_large_ones_have_no_room() {
    let net = Net::new(2);
    let (reader, small, large) = (net.plain(1), net.plain(0), net.plain(0));
    let (far, node, wires) = (net.far(&reader, 0), &net.sides[0].1, &net.ends[&(0, 1)].wires);
    net.fill(0, 1, true);
    net.does(&large, move |out| out.send(far, Order::Text("x".repeat(100_000))));
    net.sends(&small, far, 1);
    *lock(&wires.is_full_for_large) = true;
    *lock(&wires.is_full) = false;
    let outside: Arc<dyn WaitingOutside> = Arc::new(WaitingSend::new(far.pid(), note(2), None));
    node.wait_for_room(far.pid(), Waiter::Outside(Arc::downgrade(&outside)));
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (3, (0, 1)), "one process waits");
    for process in [&small, &large] {
        net.sends(process, far, 3);
    }
    assert_eq!(net.on_the_way(0, 1), 4, "that with the large message is not stepped");
    *lock(&wires.is_full_for_large) = false;
    net.fill(0, 1, false);
    net.carry();
    assert_eq!(reader.seen(), ["text of 100000", "note 1", "note 2", "note 3", "note 3"]);
}

#[test]
fn a_message_from_outside_comes_back_at_its_limit_or_if_its_node_is_down() {
    let net = Net::new(2);
    let far = net.far(&net.plain(1), 0);
    net.fill(0, 1, true);
    assert_eq!(back(net.send_outside(far, 1, Duration::ZERO).wait()), (1, NodeError::Busy));
    assert_eq!(back(net.send_outside(far, 2, Duration::from_millis(1)).wait()), (2, NodeError::Busy));
    let waits = net.send_outside(far, 3, LONG);
    assert_eq!(net.waiting(0), (1, 0), "the one before is forgotten");
    net.cut(0, 1);
    assert_eq!(back(waits.wait()), (3, NodeError::NodeDown));
    assert_eq!(back(net.send_outside(far, 4, LONG).wait()), (4, NodeError::NodeDown));
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (0, (0, 0)));
}

#[test]
fn a_process_that_has_sent_to_a_node_without_room_is_held() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    net.does(&sender, move |out| {
        out.send(far, note(1));
        out.send(far, note(2));
    });
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (2, (0, 1)), "what the step has sent is taken");
    for number in 3..6 {
        net.sends(&sender, far, number);
        assert_eq!(net.on_the_way(0, 1), 2, "it is not stepped");
    }
    net.fill(0, 1, false);
    net.carry();
    assert_eq!(reader.seen(), [1, 2, 3, 4, 5].map(|number| format!("note {number}")));
    assert_eq!((net.waiting(0), net.busy()), ((0, 0), 0));
    net.sends(&sender, far, 6);
    net.carry();
    assert_eq!(reader.seen(), ["note 6"]);
}

#[test]
fn a_process_that_is_held_goes_on_when_the_node_is_down() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    net.sends(&sender, far, 1);
    net.does(&sender, |out| _ = out.monitor(Pid::FIRST));
    assert_eq!(sender.seen(), [""; 0]);
    net.cut(0, 1);
    net.rests();
    assert_eq!(sender.seen().len(), 1);
    assert_eq!(net.waiting(0), (0, 0));
}

#[test]
fn a_process_that_is_held_is_stepped_for_a_signal_and_ended_at_once() {
    let net = Net::new(2);
    let (reader, other) = (net.plain(1), net.plain(0));
    let senders: [Local; 3] = std::array::from_fn(|_| net.plain(0));
    let far = net.far(&reader, 0);
    net.link(&senders[2], &other);
    net.fill(0, 1, true);
    for sender in &senders {
        net.sends(sender, far, 1);
        net.sends(sender, far, 2);
    }
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (3, (0, 3)));
    net.sides[0].0.cancel(senders[0].handle.pid(), "enough").unwrap();
    net.rests();
    assert_eq!(senders[0].seen(), ["cancel enough"]);
    assert_eq!(net.on_the_way(0, 1), 4, "with the signal it got the message that waited");
    net.sends(&senders[0], far, 3);
    assert_eq!(net.on_the_way(0, 1), 4, "and is held again");
    net.sides[0].0.terminate(senders[1].handle.pid()).unwrap();
    assert!(!wait(&senders[1].handle).is_done());
    net.sides[0].0.terminate(other.handle.pid()).unwrap();
    assert!(!wait(&senders[2].handle).is_done(), "its link has ended it");
    net.fill(0, 1, false);
    net.carry();
    assert_eq!((reader.seen().len(), net.waiting(0)), (5, (0, 0)));
}

#[test]
fn an_answer_does_not_step_a_process_that_is_held() {
    let net = Net::new(2);
    let (reader, sender, dies) = (net.plain(1), net.plain(0), net.plain(0));
    let (far, dies) = (net.far(&reader, 0), dies.handle.pid());
    net.fill(0, 1, true);
    net.does(&sender, move |out| {
        out.send(far, note(1));
        out.terminate(dies);
    });
    assert_eq!(sender.seen(), [""; 0]);
    net.fill(0, 1, false);
    net.rests();
    assert_eq!(sender.seen(), ["lived Some(true)"]);
}

#[test]
fn a_process_is_held_as_long_as_one_of_two_nodes_has_no_room() {
    let net = Net::new(3);
    let sender = net.plain(0);
    let far = [1, 2].map(|at| net.far(&net.plain(at), 0));
    net.fill(0, 1, true);
    net.fill(0, 2, true);
    net.does(&sender, move |out| far.iter().for_each(|far| out.send(*far, note(1))));
    net.sends(&sender, far[1], 2);
    for _ in 0..2 {
        net.fill(0, 1, false);
        net.rests();
        assert_eq!(net.on_the_way(0, 2), 1, "the other one has no room");
    }
    net.fill(0, 2, false);
    net.rests();
    assert_eq!((net.on_the_way(0, 2), net.waiting(0)), (2, (0, 0)));
}

#[test]
fn a_process_that_is_never_held_goes_on_and_its_messages_are_dead() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.spawn(0, false, SpawnOptions::new().never_held()));
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    for number in 0..3 {
        net.sends(&sender, far, number);
        assert_eq!(net.busy(), number + 1);
    }
    net.does(&sender, move |out| {
        out.ask(far, |_: Reply<()>| note(3), LONG);
        out.send_timeout(far, note(4), LONG);
    });
    let seen = sender.seen();
    assert_eq!(seen.len(), 2, "the question and the message have come back: {seen:?}");
    assert_eq!((net.on_the_way(0, 1), net.waiting(0)), (0, (0, 0)));
}

/// So many messages wait that those of held processes are refused, too.
#[test]
fn a_process_whose_messages_are_refused_is_held_all_the_same() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    *lock(&net.ends[&(0, 1)].wires.is_full_for_all) = true;
    net.fill(0, 1, true);
    net.does(&sender, move |out| (0..3).for_each(|number| out.send(far, note(number))));
    assert_eq!((net.busy(), net.on_the_way(0, 1), net.waiting(0)), (3, 0, (0, 1)));
    net.sends(&sender, far, 3);
    assert_eq!(net.busy(), 3, "it is not stepped");
    net.fill(0, 1, false);
    net.carry();
    assert_eq!((reader.seen(), net.busy(), net.waiting(0)), (vec!["note 3".into()], 3, (0, 0)));
}

#[test]
fn what_the_last_step_of_a_process_has_sent_is_taken() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    net.tell(&sender, move |out| {
        out.send(far, note(1));
        Ok(Step::Done(()))
    });
    assert!(wait(&sender.handle).is_done());
    assert_eq!((net.busy(), net.on_the_way(0, 1)), (0, 1));
    net.fill(0, 1, false);
    net.carry();
    assert_eq!((reader.seen(), net.waiting(0)), (vec!["note 1".into()], (0, 0)));
}

#[test]
fn processes_go_on_though_messages_from_outside_take_all_room() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    net.sends(&sender, far, 1);
    net.sends(&sender, far, 2);
    let outside: Vec<_> = (0..20).map(|number| net.send_outside(far, number, LONG)).collect();
    assert_eq!(net.waiting(0), (20, 1));
    // Room for one message at a time.
    for _ in 0..2 {
        *lock(&net.ends[&(0, 1)].wires.room) = Some(1);
        net.fill(0, 1, false);
        net.fill(0, 1, true);
        net.rests();
    }
    let notes = net.on_the_way(0, 1);
    net.carry();
    assert!(reader.seen().contains(&"note 2".to_string()), "the process was stepped again: {notes}");
    drop(outside);
}

/// The room is there before it is told of. Those who send without a wait would fill it again and again.
#[test]
fn callers_that_try_again_do_not_keep_a_process_from_going_on() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    net.fill(0, 1, true);
    net.sends(&sender, far, 1);
    *lock(&net.ends[&(0, 1)].wires.is_full) = false;
    let tries = |number| net.sides[0].0.send(far, note(number));
    assert_eq!(back(tries(2)), (2, NodeError::Busy));
    assert_eq!(net.sides[0].1.broadcast(&[far.pid()], &note(2)), 0);
    // A message that waits for its turn has the process go on.
    net.send_outside(far, 3, LONG).wait().unwrap();
    tries(4).unwrap();
    net.carry();
    assert_eq!((reader.seen(), net.waiting(0)), ([1, 3, 4].map(|number| format!("note {number}")).to_vec(), (0, 0)));
}

/// Takes one event in each step, and sends a note for it.
struct OneByOne(Address<Order>, Latch<()>, Latch<()>);

impl Process for OneByOne {
    type Message = Order;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        let Some(event) = events.next() else { return Ok(Step::Idle) };
        if let Event::Message(_) = event {
            let _ = self.1.set(());
            wait(&self.2);
        }
        out.send(self.0, note(1));
        Ok(Step::Idle)
    }
}

#[test]
fn a_process_that_has_a_signal_to_take_is_not_held() {
    let net = Net::new(2);
    let (far, runtime) = (net.far(&net.plain(1), 0), &net.sides[0].0);
    let (steps, goes_on) = (Latch::new(), Latch::new());
    let sender = runtime.spawn(OneByOne(far, steps.clone(), goes_on.clone())).unwrap();
    net.fill(0, 1, true);
    runtime.send(sender.address(), note(0)).unwrap();
    wait(&steps);
    for _ in 0..3 {
        runtime.cancel(sender.pid(), "enough").unwrap();
    }
    let _ = goes_on.set(());
    until("each signal has its step", || net.on_the_way(0, 1) == 4);
    net.rests();
    assert_eq!(net.waiting(0), (0, 1), "then it is held");
}

#[test]
fn messages_that_waited_at_a_down_come_back_though_the_node_is_up_again() {
    let mut net = Net::new(2);
    let far = net.far(&net.plain(1), 0);
    net.fill(0, 1, true);
    let [one, two] = [1, 2].map(|number| net.send_outside(far, number, LONG));
    net.cut(0, 1);
    net.connect(0, 1);
    net.send_outside(far, 3, LONG).wait().unwrap();
    for (number, waits) in [(2, two), (1, one)] {
        assert_eq!(back(waits.wait()), (number, NodeError::NodeDown), "it is not sent behind a later one");
    }
}

/// Says what it is told, and counts its other events.
struct Obeys(Arc<Mutex<u64>>);

impl Process for Obeys {
    type Message = Order;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Order::Do(job)) = event {
                return job(out);
            }
            *lock(&self.0) += 1;
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_process_that_is_held_goes_on_as_its_step_has_said() {
    let net = Net::new(2);
    let reader = net.plain(1);
    let far = net.far(&reader, 0);
    let says: [fn() -> Step<()>; 4] = [|| Step::Idle, || Step::Continue, || Step::Wait, || Step::Blocking];
    let options = [SpawnOptions::new, || SpawnOptions::new().mailbox(10, Overflow::Refuse)];
    for (says, options) in says.iter().flat_map(|says| options.iter().map(move |options| (*says, options))) {
        let (count, runtime, dies) = (Arc::default(), &net.sides[0].0, net.far(&net.plain(1), 0));
        let sender = runtime.spawn_with(Obeys(Arc::clone(&count)), options()).unwrap();
        net.fill(0, 1, true);
        let job = move |out: &mut StepOutput| {
            out.send(far, note(1));
            out.terminate(dies);
            Ok(says())
        };
        runtime.send(sender.address(), Order::Do(Box::new(job))).unwrap();
        net.rests();
        runtime.send(sender.address(), note(3)).unwrap();
        // The answer comes, too.
        net.carry();
        assert_eq!((*lock(&count), net.waiting(0)), (0, (0, 1)));
        net.fill(0, 1, false);
        net.rests();
        until("it has taken the answer and the message", || *lock(&count) == 2);
    }
    net.carry();
    assert_eq!(reader.seen().len(), 8);
}

#[test]
fn a_process_that_sends_with_a_limit_is_held_like_any_other() {
    let net = Net::new(2);
    let (reader, sender) = (net.plain(1), net.plain(0));
    let far = net.far(&reader, 0);
    let sends = |number, limit| net.does(&sender, move |out| _ = out.send_timeout(far, note(number), limit));
    sends(1, LONG);
    assert_eq!(sender.seen().len(), 1, "it is accepted at once");
    net.fill(0, 1, true);
    sends(2, Duration::ZERO);
    assert_eq!((sender.seen().len(), net.waiting(0)), (1, (0, 0)), "it is handed back");
    sends(3, LONG);
    assert_eq!((sender.seen().len(), net.waiting(0)), (0, (0, 1)));
    net.fill(0, 1, false);
    net.carry();
    assert_eq!((sender.seen().len(), reader.seen()), (1, vec!["note 1".into(), "note 3".into()]));
    net.cut(0, 1);
    sends(4, LONG);
    assert_eq!(sender.seen().len(), 1);
}

#[test]
fn a_process_waits_once_for_each_node_and_size() {
    let (waiting, all) = (Waiting::default(), [(1, Bound::Small), (2, Bound::Small), (1, Bound::Large)]);
    for (node, size) in all.into_iter().chain(all) {
        waiting.push_process(node, size, Pid::FIRST);
    }
    for (node, size) in &all[..2] {
        assert_eq!((waiting.take_processes(*node, *size), waiting.len()), (vec![], (0, 1)));
    }
    assert!(waiting.has_processes(1, Bound::Large) && !waiting.has_processes(1, Bound::Small));
    assert_eq!((waiting.take_processes(1, Bound::Large), waiting.len()), (vec![Pid::FIRST], (0, 0)));
    assert!(waiting.take_processes(1, Bound::Large).is_empty());
}

/// A sender whose value cannot be dropped. The panic is on purpose.
struct Panics;

impl WaitingOutside for Panics {
    fn offer(&self, _: &dyn NonLocal) -> bool {
        false
    }

    fn node_down(&self) {}

    fn waits(&self) -> bool {
        true
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("on purpose: in the destructor of a message");
    }
}

#[test]
fn a_panic_while_a_message_is_offered_stops_no_later_offer() {
    let waiting = Waiting::default();
    for offer_panics in [false, true] {
        let first: Arc<dyn WaitingOutside> = match offer_panics {
            true => Arc::new(WaitingSend::new(Pid::FIRST, note(1), None)),
            false => Arc::new(Panics),
        };
        waiting.push_outside(1, Arc::downgrade(&first) as _);
        let first = std::cell::Cell::new(Some(first));
        let offered = contain(|| {
            waiting.offer_outside(1, |_| {
                // Its future is dropped meanwhile. So the offer has the last reference.
                drop(first.take());
                assert!(!offer_panics, "on purpose: in an offer");
                false
            })
        });
        assert_eq!(offered.is_err(), offer_panics);
        let second: Arc<dyn WaitingOutside> = Arc::new(WaitingSend::new(Pid::FIRST, note(1), None));
        waiting.push_outside(1, Arc::downgrade(&second) as _);
        let mut count = 0;
        assert!(!waiting.offer_outside(1, |_| {
            count += 1;
            false
        }));
        assert_eq!((count, waiting.len()), (1, (0, 0)));
    }
}
