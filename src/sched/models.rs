//! Models of the races of waking, and of asks that form a cycle. They use the real cell and the real body, and no
//! queue.

use super::ask_cycles::{LONGEST, closes_cycle, give_up};
use super::cell::{Birth, Cell, Settled};
use crate::outcome::Reason;
use crate::primitives::{Arc, Mutex, thread};
use crate::process::{
    Ask, CancelRequest, Clerk, CommandError, Completion, Decided, Events, Pid, Process, Reply, SpawnOptions, Step,
    StepOutput, StepResult, described_body,
};
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sched::bounded_mailbox::WaitingSender;
use crate::sched::mailbox::{Control, Envelope, Mailbox, Overflow, Signal};
use crate::sched::open_asks::{OpenAsks, SpareAsks};
use crate::sched::turn::take_share;
use crate::sched::waiting_send::{LimitedSend, Told, WaitingSend};

struct Anybody;

impl Process for Anybody {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// A live process with its body in hand.
pub(super) fn in_hand() -> (Arc<Cell>, Ready) {
    in_hand_with(SpawnOptions::new())
}

fn in_hand_with(options: SpawnOptions) -> (Arc<Cell>, Ready) {
    let (cell, bound) = (Arc::new(Cell::new()), options.bound);
    let body: Ready = described_body(Anybody, Pid::FIRST, options, None);
    assert!(cell.install(1, body.machine.kind(), Birth { bound, ..Birth::default() }, 0, || false));
    (cell, body)
}

/// A live process at rest.
fn at_rest() -> Arc<Cell> {
    let (cell, body) = in_hand();
    assert!(matches!(settled(&cell, body, Verdict::Idle), Settled::Resting));
    cell
}

fn send(cell: &Cell, message: u32) -> Option<Ready> {
    let envelope = Envelope { from: None, message };
    cell.post(Pid::FIRST, |mailbox, bounds| {
        let mailbox = (mailbox as &mut dyn std::any::Any).downcast_mut::<Mailbox<u32>>().unwrap();
        match bounds {
            None => mailbox.messages.push(envelope),
            Some(bounds) => {
                assert!(bounds.admit(1, mailbox.messages.len()));
                mailbox.messages.push(envelope);
            }
        }
        Some(1)
    })
    .unwrap()
    .0
}

/// Puts a process to rest after a step with this verdict, which has left nothing.
fn settled(cell: &Cell, body: Ready, verdict: Verdict) -> Settled {
    cell.settle(body, Stepped { verdict, unseen: false, signals: false, taken: 0 })
}

pub(super) fn settle(cell: &Cell, body: Ready, verdict: Verdict) -> Option<Ready> {
    match settled(cell, body, verdict) {
        Settled::Again(body) | Settled::Ends(body) => Some(body),
        Settled::Resting | Settled::Asking(_) => None,
    }
}

/// Fails if `settle` does not look into the inbox before it puts the body to rest.
#[test]
fn a_process_is_woken_while_it_is_about_to_rest() {
    loom::model(|| {
        let (cell, body) = in_hand();
        let sender = loom::thread::spawn({
            let cell = cell.clone();
            move || send(&cell, 7)
        });
        let kept = settle(&cell, body, Verdict::Idle);
        let woken = sender.join().unwrap();
        let mut awake: Vec<Ready> = kept.into_iter().chain(woken).collect();
        assert_eq!(awake.len(), 1, "somebody has the body, and nobody else");
        assert_eq!(awake[0].machine.mailbox().messages(), 1, "and the message is with it");
    });
}

/// A step that has taken nothing comes to rest while a new event arrives. Fails if the inbox is not looked at, or if
/// its contents are taken for events that the step has seen.
#[test]
fn a_new_message_wakes_a_process_that_took_nothing() {
    loom::model(|| {
        let (cell, mut body) = in_hand();
        assert!(send(&cell, 1).is_none());
        drop(cell.hand_over(&mut body));
        let sender = loom::thread::spawn({
            let cell = cell.clone();
            move || send(&cell, 2)
        });
        let kept = settle(&cell, body, Verdict::Declined);
        let woken = sender.join().unwrap();
        let mut awake: Vec<Ready> = kept.into_iter().chain(woken).collect();
        assert_eq!(awake.len(), 1, "somebody has the body, and nobody else");
        assert_eq!(awake[0].machine.mailbox().messages(), 2, "and both messages are with it");
        assert!(settle(&cell, awake.remove(0), Verdict::Declined).is_none(), "nothing is new twice");
    });
}

/// The same under a bound, where a step is given its share under the lock. Fails if the mark is not set with the
/// message, or if it is cleared after the step.
#[test]
fn a_process_with_a_bound_that_took_nothing_is_woken_by_what_is_new() {
    loom::model(|| {
        let options = SpawnOptions::new().mailbox(10, Overflow::Refuse);
        let (cell, body) = in_hand_with(options);
        assert!(send(&cell, 1).is_none());
        let sender = loom::thread::spawn({
            let cell = cell.clone();
            move || send(&cell, 2)
        });
        let step = |mut body: Ready| {
            drop(cell.fill(&mut body, 2));
            drop(cell.hold(&mut body));
            settle(&cell, body, Verdict::Declined)
        };
        let kept = step(body).and_then(step);
        let woken = sender.join().unwrap();
        assert!(kept.is_none(), "nothing is new twice");
        assert!(woken.and_then(step).is_none());
        // Only a look at the process.
        let control = Control::Cancel(CancelRequest { reason: Reason::Cancelled, deadline: None });
        let mut body = cell.signal(Pid::FIRST, Signal::Control(control)).ok().flatten().expect("it is at rest");
        assert_eq!(body.machine.mailbox().messages(), 2, "a step was given both");
    });
}

/// Fails if a sender leaves the body at rest for the other to take.
#[test]
fn two_senders_and_one_body() {
    loom::model(|| {
        let cell = at_rest();
        let sender = loom::thread::spawn({
            let cell = cell.clone();
            move || send(&cell, 1)
        });
        let mine = send(&cell, 2);
        let theirs = sender.join().unwrap();
        let mut awake: Vec<Ready> = mine.into_iter().chain(theirs).collect();
        assert_eq!(awake.len(), 1, "one of the two has woken the process");
        let mut body = awake.pop().unwrap();
        let first = body.machine.take_mailbox().messages();
        assert!(first > 0, "who wakes it brings a message");
        let mut body = settle(&cell, body, Verdict::Continue).unwrap();
        assert_eq!(first + body.machine.mailbox().messages(), 2, "and none is lost");
    });
}

/// A process that waits only for answers is woken by the answer, and not by the message. The order does not matter.
#[test]
fn an_answer_wakes_who_waits_and_a_message_does_not() {
    loom::model(|| {
        let (cell, mut body) = in_hand();
        body.head.outstanding = 1;
        let sender = loom::thread::spawn({
            let cell = cell.clone();
            move || assert!(send(&cell, 7).is_none())
        });
        let answerer = loom::thread::spawn({
            let cell = cell.clone();
            move || {
                let answer = Signal::Completed(Completion::from(None, 1, Ok(Box::new(()))));
                cell.signal(Pid::FIRST, answer).ok().unwrap()
            }
        });
        let kept = settle(&cell, body, Verdict::Wait);
        let woken = answerer.join().unwrap();
        sender.join().unwrap();
        let mut awake: Vec<Ready> = kept.into_iter().chain(woken).collect();
        assert_eq!(awake.len(), 1);
        assert!(awake[0].machine.mailbox().has_signals());
        assert_eq!(awake[0].head.outstanding, 0);
    });
}

/// Exactly one thread has the body of a doomed process and ends it.
#[test]
fn a_process_is_terminated_while_it_is_about_to_rest() {
    loom::model(|| {
        let (cell, body) = in_hand();
        let other = loom::thread::spawn({
            let cell = cell.clone();
            move || cell.doom(Pid::FIRST, 0).expect("nobody else dooms it")
        });
        let kept = settle(&cell, body, Verdict::Idle);
        let woken = other.join().unwrap();
        assert_eq!(kept.into_iter().chain(woken).count(), 1);
        assert_eq!(cell.doomed(), Some(Reason::Terminated));
        let control = Control::Cancel(CancelRequest { reason: Reason::Cancelled, deadline: None });
        assert!(cell.signal(Pid::FIRST, Signal::Control(control)).is_err(), "nothing reaches it any more");
    });
}

/// A lease comes while a turn that began with polls ends. Fails if a lease that is added is not counted.
#[cfg(feature = "cluster")]
#[test]
fn a_lease_is_taken_in_this_turn_or_the_next_one() {
    use super::handed::Handed;
    use super::lease::Lease;
    use super::polling::polls_are_due;
    use crate::clock::Clock;
    loom::model(|| {
        let (cell, mut body) = in_hand();
        body.head.request_poll(true);
        let leases = Arc::new(Handed::default());
        let giver = loom::thread::spawn({
            let (cell, leases) = (cell.clone(), leases.clone());
            move || {
                leases.add(Pid::FIRST, Lease::new(Clock::system().now(), || {}), |_| false, |_, _| true);
                cell.request_poll(Pid::FIRST)
            }
        });
        assert!(polls_are_due(&cell, &body));
        body.head.rare().poll_requested = false;
        let first = leases.take(Pid::FIRST).len();
        let kept = settle(&cell, body, Verdict::Idle);
        let woken = giver.join().unwrap();
        let mut awake: Vec<Ready> = kept.into_iter().chain(woken).collect();
        if first == 0 {
            let body = awake.pop().expect("there is another turn");
            assert!(polls_are_due(&cell, &body));
            assert_eq!(leases.take(Pid::FIRST).len(), 1);
        }
        assert!(awake.len() <= first);
    });
}

/// Processes that ask each other.
struct Ring {
    cells: Vec<Cell>,
    decisions: Mutex<()>,
}

impl Ring {
    /// Makes this many processes with their bodies in hand. Each has asked the given ones.
    fn new(whom: &[&[u32]]) -> (Arc<Ring>, Vec<(Ready, Vec<Arc<Ask>>)>) {
        Ring::with(whom, SpawnOptions::new)
    }

    fn with(whom: &[&[u32]], options: impl Fn() -> SpawnOptions) -> (Arc<Ring>, Vec<(Ready, Vec<Arc<Ask>>)>) {
        let mut ring = Ring { cells: Vec::new(), decisions: Mutex::new(()) };
        let mut bodies = Vec::new();
        for (slot, whom) in whom.iter().enumerate() {
            let (cell, me) = (Cell::new(), pid(slot as u32));
            let (options, bound) = (options(), options().bound);
            let mut body: Ready = described_body(Anybody, me, options, None);
            assert!(cell.install(1, body.machine.kind(), Birth { bound, ..Birth::default() }, 0, || false));
            let ask =
                |(tag, to): (usize, &u32)| Arc::new(Ask::of_process::<()>(Clerk::counted(), me, tag as u64, pid(*to)));
            let asks: Vec<_> = whom.iter().enumerate().map(ask).collect();
            asks.iter().for_each(|ask| body.head.rare().asked.note(ask.clone()));
            body.head.outstanding = asks.len() as u32;
            ring.cells.push(cell);
            bodies.push((body, asks));
        }
        (Arc::new(ring), bodies)
    }

    fn find(&self, pid: Pid) -> Option<&Cell> {
        self.cells.get(pid.slot() as usize)
    }

    /// Puts a process to rest, and looks for a cycle. Returns whether its ask was given up.
    fn rest(&self, slot: u32, body: Ready) -> bool {
        match settled(&self.cells[slot as usize], body, Verdict::Wait) {
            Settled::Asking(asked) => self.is_given_up(slot, asked),
            _ => false,
        }
    }

    /// A step that takes the answers and waits for more. Returns whether the ask of the process was given up, and its
    /// body if it is to be stepped again.
    fn step(&self, slot: u32, mut body: Ready) -> (bool, Option<Ready>) {
        let cell = &self.cells[slot as usize];
        drop(take_share(cell, &mut body, 1, &mut SpareAsks::default()));
        body.machine.mailbox().drop_signals();
        match settled(cell, body, Verdict::Wait) {
            Settled::Again(body) => (false, Some(body)),
            Settled::Asking(asked) => (self.is_given_up(slot, asked), None),
            Settled::Resting | Settled::Ends(_) => (false, None),
        }
    }

    fn is_given_up(&self, slot: u32, asked: Pid) -> bool {
        let closed = closes_cycle(&|pid| self.find(pid), &self.decisions, pid(slot), asked);
        matches!(closed, Some((_, Decided::Deliver { .. })))
    }

    /// Answers an open ask. Returns the asker's body, if that woke it.
    fn answer(&self, ask: &Ask) -> Option<Ready> {
        let Decided::Deliver { to, completion } = ask.decide(CommandError::Dropped) else { panic!("it is open") };
        self.find(to)?.signal(to, Signal::Completed(completion)).ok()?
    }
}

fn pid(slot: u32) -> Pid {
    Pid::new(0, slot, 1).unwrap()
}

/// Fails if there is no second look before an ask is given up.
#[test]
fn two_that_close_a_cycle_at_once_give_one_error() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (ring, mut bodies) = Ring::new(&[&[1], &[0]]);
        let (two, _asks_of_two) = bodies.pop().unwrap();
        let (one, _asks_of_one) = bodies.pop().unwrap();
        let other = loom::thread::spawn({
            let ring = ring.clone();
            move || ring.rest(1, two)
        });
        let mine = ring.rest(0, one);
        assert!(mine != other.join().unwrap(), "one of the two is told, and not both");
    });
}

#[test]
fn three_that_close_a_cycle_at_once_give_one_error() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (ring, bodies) = Ring::new(&[&[1], &[2], &[0]]);
        let mut asks = Vec::new();
        let mut threads = Vec::new();
        for (slot, (body, asked)) in bodies.into_iter().enumerate() {
            asks.push(asked);
            let ring = ring.clone();
            threads.push(loom::thread::spawn(move || ring.rest(slot as u32, body)));
        }
        let told = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|told| *told).count();
        assert_eq!(told, 1);
    });
}

/// The arrows lead back, but not all of them at the same moment. Fails if there is no second look, or if it does not
/// check whether a process is still in the same rest.
#[test]
fn arrows_that_were_never_there_at_the_same_moment_are_no_cycle() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        // The first has asked the second, and rests. The second answers it, and asks the third, which asks the first.
        let (ring, mut bodies) = Ring::new(&[&[1], &[2], &[0]]);
        let (three, _asks_of_three) = bodies.pop().unwrap();
        let (two, _asks_of_two) = bodies.pop().unwrap();
        let (one, asks_of_one) = bodies.pop().unwrap();
        assert!(!ring.rest(0, one));
        let other = loom::thread::spawn({
            let ring = ring.clone();
            move || {
                let mut first = ring.answer(&asks_of_one[0]).expect("it was at rest");
                let two_is_told = ring.rest(1, two);
                // The first is stepped, and asks a process that does not ask.
                first.machine.mailbox().drop_signals();
                first.head.outstanding = 1;
                let ask = Arc::new(Ask::of_process::<()>(Clerk::counted(), pid(0), 9, pid(9)));
                first.head.rare().asked = OpenAsks::default();
                first.head.rare().asked.note(ask);
                two_is_told || ring.rest(0, first)
            }
        });
        let settled = settled(&ring.cells[2], three, Verdict::Wait);
        assert!(matches!(settled, Settled::Asking(_)));
        // Step 2 of the protocol only saves the lock. It could be deceived earlier, so the search begins with step 3
        // here.
        let given_up = give_up(&|pid| ring.find(pid), &ring.decisions, pid(2));
        let mine = matches!(given_up, Some((_, Decided::Deliver { .. })));
        assert!(!mine && !other.join().unwrap(), "the first could go on at any time");
    });
}

/// Fails if the second look does not check whether an ask was handed on.
#[test]
fn an_ask_that_is_handed_on_before_the_cycle_is_closed_is_never_given_up() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (ring, mut bodies) = Ring::new(&[&[1], &[0]]);
        let (two, _asks_of_two) = bodies.pop().unwrap();
        let (one, asks_of_one) = bodies.pop().unwrap();
        let other = loom::thread::spawn({
            let (ring, ask) = (ring.clone(), asks_of_one[0].clone());
            move || {
                // A step of the second, which then rests.
                let reply = Reply::<()>::new(ask).delegate();
                (ring.rest(1, two), reply)
            }
        });
        let mine = ring.rest(0, one);
        let (other, reply) = other.join().unwrap();
        assert!(!mine && !other, "somebody else answers the first");
        std::mem::forget(reply);
    });
}

/// Fails if a process that also waits for something else is taken for one that waits for one answer.
#[test]
fn a_process_that_waits_for_two_answers_is_part_of_no_cycle() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        // The first two wait for each other, and the first one for the third as well, which does not rest, and answers.
        let (ring, mut bodies) = Ring::new(&[&[2, 1], &[0], &[]]);
        let (_third, _) = bodies.pop().unwrap();
        let (two, _asks_of_two) = bodies.pop().unwrap();
        let (one, asks_of_one) = bodies.pop().unwrap();
        let other = loom::thread::spawn({
            let ring = ring.clone();
            move || ring.rest(1, two)
        });
        let third = loom::thread::spawn({
            let (ring, ask) = (ring.clone(), asks_of_one[0].clone());
            move || ring.answer(&ask)
        });
        let mine = ring.rest(0, one);
        assert!(!mine && !other.join().unwrap(), "the first can go on with the answer of the third");
        let _woken = third.join().unwrap();
    });
}

/// A process with a bound has asked two others. The second one answers at any moment, also while the process is given
/// its share. Fails if the questions that are decided are forgotten before that.
#[test]
fn a_cycle_is_found_whenever_an_answer_comes_to_a_bounded_member() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let bounded = || SpawnOptions::new().mailbox(1, Overflow::Refuse);
        let (ring, mut bodies) = Ring::with(&[&[1, 2], &[0], &[]], bounded);
        let (_third, _) = bodies.pop().unwrap();
        let (two, _asks_of_two) = bodies.pop().unwrap();
        let (one, asks_of_one) = bodies.pop().unwrap();
        let third = loom::thread::spawn({
            let (ring, ask) = (ring.clone(), asks_of_one[1].clone());
            move || ring.answer(&ask)
        });
        let step_all = |mut body: Option<Ready>| {
            while let Some(ready) = body {
                body = ring.step(0, ready).1;
            }
        };
        step_all(Some(one));
        step_all(third.join().unwrap());
        assert!(ring.step(1, two).0, "the last to rest closes the cycle");
    });
}

#[test]
fn a_cycle_of_as_many_as_are_looked_at_is_found_and_a_longer_one_is_not() {
    loom::model(|| {
        for length in [LONGEST, LONGEST + 1] {
            let whom: Vec<[u32; 1]> = (1..=length).map(|next| [(next % length) as u32]).collect();
            let (ring, bodies) = Ring::new(&whom.iter().map(|whom| &whom[..]).collect::<Vec<_>>());
            let told = bodies.into_iter().enumerate();
            let told = told.map(|(slot, (body, _))| ring.rest(slot as u32, body)).collect::<Vec<_>>();
            assert_eq!(told.iter().filter(|told| **told).count(), usize::from(length == LONGEST));
            assert_eq!(told.last(), Some(&(length == LONGEST)), "the last to rest closes the cycle");
        }
    });
}

/// A process with a bound of one and one message, with its body in hand. And messages that are to wait for room.
fn full_with(senders: u32) -> (Arc<Cell>, Ready, Vec<Arc<WaitingSend<u32>>>) {
    let (cell, body) = in_hand_with(SpawnOptions::new().mailbox(1, Overflow::Refuse));
    assert!(send(&cell, 0).is_none());
    (cell, body, (1..=senders).map(|message| Arc::new(WaitingSend::new(Pid::FIRST, message, None))).collect())
}

/// Registers a message, as its sender does.
fn register(cell: &Cell, send: &Arc<WaitingSend<u32>>) {
    let sender: Arc<dyn WaitingSender> = send.clone();
    if cell.register(Pid::FIRST, &sender).unwrap().is_none() {
        fill_places(cell, vec![sender]);
    }
}

/// Fills the places of messages, and then those of others that have a turn, as an executor does.
fn fill_places(cell: &Cell, mut granted: Vec<Arc<dyn WaitingSender>>) {
    while !granted.is_empty() {
        cell.fill_each(Pid::FIRST, granted, |_| (), |_| ());
        granted = cell.let_messages_in(Pid::FIRST).0.granted;
    }
}

/// Gives the next step its share, as its executor does, and fills the places. Returns the messages in the body.
fn share(cell: &Cell, body: &mut Ready) -> Vec<u32> {
    fill_places(cell, cell.fill(body, 8).told.granted);
    let mailbox = body.machine.mailbox() as &mut dyn std::any::Any;
    let mailbox = mailbox.downcast_mut::<Mailbox<u32>>().unwrap();
    std::iter::from_fn(|| mailbox.pop_message()).map(|envelope| envelope.message).collect()
}

/// Fails if a sender registers without a look for room, or if the thread that gives places does not look again.
#[test]
fn no_message_waits_beside_room() {
    loom::model(|| {
        let (cell, mut body, sends) = full_with(2);
        let registers = {
            let (cell, sends) = (cell.clone(), sends.clone());
            thread::spawn(move || sends.iter().for_each(|send| register(&cell, send)))
        };
        let mut taken = share(&cell, &mut body);
        registers.join().unwrap();
        while taken.len() < 3 {
            let more = share(&cell, &mut body);
            assert!(!more.is_empty(), "after {taken:?} there is room, and a message waits");
            taken.extend(more);
        }
        assert_eq!(taken, [0, 1, 2], "in the order of the registrations");
        assert!(sends.iter().all(|send| send.told().get() == Some(Told::Sent) && send.take_back().is_none()));
    });
}

/// Fails if the end of a limit and the filling of a place do not decide under the lock of the slot.
#[test]
fn a_message_that_gets_room_at_its_limit_is_sent_or_comes_back() {
    loom::model(|| {
        let (cell, mut body, sends) = full_with(1);
        let send = &sends[0];
        register(&cell, send);
        let times_out = {
            let send = send.clone();
            thread::spawn(move || {
                send.give_up(Told::TimedOut);
                // The sender waits for the news, and takes the message back.
                (send.told().wait(), send.take_back())
            })
        };
        let mut taken = share(&cell, &mut body);
        taken.extend(share(&cell, &mut body));
        match times_out.join().unwrap() {
            (Told::Sent, None) => assert_eq!(taken, [0, 1]),
            (Told::TimedOut, Some(1)) => assert_eq!(taken, [0]),
            told => panic!("{told:?} and {taken:?}"),
        }
        // The place of a message that has come back is free.
        assert!(send_to_room(&cell));
    });
}

/// Whether there is room for a message.
fn send_to_room(cell: &Cell) -> bool {
    let send = Arc::new(WaitingSend::new(Pid::FIRST, 9, None));
    register(cell, &send);
    send.told().get() == Some(Told::Sent)
}
