//! Models of a message that waits for room. They use the real cell, body and outbox, and no queue.

use std::any::Any;

use super::*;
use crate::primitives::{Mutex, lock, thread};
use crate::process::{
    Clerk, DeadLetter, Events, Overflow, Process, SpawnOptions, Step, StepOutput, StepResult, described_body,
};
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sched::cell::{Birth, Cell, Settled};
use crate::sched::mailbox::Mailbox;
use crate::sched::outbox::Outbox;
use crate::timer::Place;

const SENDER: Pid = Pid::FIRST;

struct Anybody;

impl Process for Anybody {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// A receiver with room for one message.
struct Receiver {
    cell: Cell,
    /// The messages that its steps have taken.
    taken: Mutex<Vec<u32>>,
    /// The messages whose wait has ended, and whether they were accepted.
    told: Mutex<Vec<(u32, bool)>>,
}

impl Receiver {
    /// A receiver whose body is in hand, and whose mailbox is full with message 1.
    fn full() -> (Arc<Receiver>, Ready) {
        let options = SpawnOptions::new().mailbox(1, Overflow::Refuse);
        let (cell, bound) = (Cell::new(), options.bound);
        let body: Ready = described_body(Anybody, Pid::FIRST, options, None);
        assert!(cell.install(1, body.machine.kind(), Birth { bound, ..Birth::default() }, 0, || false));
        let receiver = Arc::new(Receiver { cell, taken: Mutex::default(), told: Mutex::default() });
        assert!(receiver.offers(1, 1).is_none());
        (receiver, body)
    }

    /// Sends a message with a limit.
    fn offers(&self, tag: u64, message: u32) -> Option<Ready> {
        let (mut send, mut placed) = (Some(QueuedSend::of_process(Pid::FIRST, tag, message)), None);
        let posted = self.cell.post(Pid::FIRST, |mailbox, bounds| {
            let (grown, end) = put(send.take()?, SENDER, true, mailbox, bounds);
            placed = end;
            grown
        });
        if let Some(Placed { send, end, .. }) = placed {
            self.ends(vec![(send, end)], message);
        }
        posted.unwrap().0
    }

    /// Sends a message without a limit. Returns whether it became a dead letter at once.
    fn plain(&self, message: u32) -> (Option<Ready>, bool) {
        let mut outbox = Outbox::default();
        let lane = outbox.push(message);
        let fill = |mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>| {
            outbox.lane(lane).fill(1, Some(Pid::FIRST), mailbox, bounds)
        };
        let woken = self.cell.post(Pid::FIRST, fill).unwrap().0;
        let mut dead = false;
        outbox.lane(lane).bury(0, &DeadLetter::new(Pid::FIRST, DeadLetterReason::Full), &mut |_| dead = true);
        (woken, dead)
    }

    fn ends(&self, ended: Vec<(QueuedSend, SendEnd)>, accepted: u32) {
        for (mut send, end) in ended {
            let is_accepted = matches!(end, SendEnd::Accepted);
            let message = send.take_message().unwrap_or(accepted);
            lock(&self.told).push((message, is_accepted));
            let _ = send.end(Pid::FIRST, end, &mut |_| ());
        }
    }

    /// Gives up the message with this tag.
    fn withdraws(&self, tag: u64) -> Option<Ready> {
        let (told, woken) = self.cell.withdraw(Pid::FIRST, SENDER, tag);
        self.ends(told.ended, 0);
        woken
    }

    /// Steps the process until it rests. Each step takes all that it is given.
    fn steps(&self, body: Ready) {
        let mut next = Some(body);
        while let Some(mut body) = next.take() {
            let freed = self.cell.fill(&mut body, 8);
            self.ends(freed.told.ended, 0);
            let mailbox = (body.machine.mailbox() as &mut dyn Any).downcast_mut::<Mailbox<u32>>().unwrap();
            let given: Vec<u32> = std::iter::from_fn(|| mailbox.pop_message()).map(|one| one.message).collect();
            let taken = given.len() as u32;
            lock(&self.taken).extend(given);
            let freed = self.cell.hold(&mut body);
            self.ends(freed.told.ended, 0);
            let stepped = Stepped { verdict: Verdict::Idle, unseen: false, signals: false, taken };
            next = match self.cell.settle(body, stepped) {
                Settled::Again(body) | Settled::Ends(body) => Some(body),
                Settled::Resting | Settled::Asking(_) => None,
            };
        }
    }

    fn taken(&self) -> Vec<u32> {
        lock(&self.taken).clone()
    }
}

/// A message begins to wait while the receiver makes room and comes to rest. Fails if neither `fill` nor `hold` lets it
/// in, or if it begins to wait although there is room.
#[test]
fn a_message_begins_to_wait_while_its_receiver_comes_to_rest() {
    loom::model(|| {
        let (receiver, body) = Receiver::full();
        let sender = thread::spawn({
            let receiver = receiver.clone();
            move || receiver.offers(2, 2)
        });
        receiver.steps(body);
        sender.join().unwrap().into_iter().for_each(|body| receiver.steps(body));
        assert_eq!(receiver.taken(), [1, 2], "a message that waits, or is there, while the receiver rests");
    });
}

/// The limit of a message is over while the receiver makes room. Fails if both take the message, or if one that
/// is taken out is not told.
#[test]
fn a_message_that_is_let_in_while_its_limit_is_over_ends_once() {
    loom::model(|| {
        let (receiver, body) = Receiver::full();
        assert!(receiver.offers(2, 2).is_none());
        let timer = thread::spawn({
            let receiver = receiver.clone();
            move || receiver.withdraws(2)
        });
        receiver.steps(body);
        timer.join().unwrap().into_iter().for_each(|body| receiver.steps(body));
        let accepted = receiver.taken() == [1, 2];
        assert!(accepted || receiver.taken() == [1]);
        let told: Vec<_> = lock(&receiver.told).iter().map(|(_, accepted)| *accepted).collect();
        assert_eq!(told, [true, accepted], "one end for each message");
    });
}

/// A plain message is sent after one that waits, while the receiver makes room and the limit is over. Fails if one of
/// them is lost or comes twice, for example because the one that is taken out is not told.
#[test]
fn a_plain_message_stays_behind_and_does_not_stay_for_ever() {
    loom::model(|| {
        let (receiver, body) = Receiver::full();
        assert!(receiver.offers(2, 2).is_none());
        let sender = thread::spawn({
            let receiver = receiver.clone();
            move || receiver.plain(3)
        });
        let timer = thread::spawn({
            let receiver = receiver.clone();
            move || receiver.withdraws(2)
        });
        receiver.steps(body);
        let (woken, dead) = sender.join().unwrap();
        woken.into_iter().chain(timer.join().unwrap()).for_each(|body| receiver.steps(body));
        let taken = receiver.taken();
        assert!(taken.is_sorted(), "{taken:?}");
        let told = lock(&receiver.told).clone();
        let refused = told.contains(&(3, false));
        assert_eq!([taken.contains(&3), refused, dead].map(usize::from).iter().sum::<usize>(), 1, "{taken:?} {told:?}");
        assert_eq!(taken.contains(&2), !told.contains(&(2, false)));
    });
}

/// The timer of a limit is noted while the message is let in. Fails if the timer is left behind: if it is noted with a
/// message that is in already, or if the end of the wait does not cancel it.
#[test]
fn the_timer_of_a_message_goes_with_its_wait() {
    loom::model(|| {
        let (receiver, body) = Receiver::full();
        let (clerk, timer) =
            (Arc::new(Clerk::default()), crate::timer::TimerId { order: 7, place: Place::from_word(3) });
        let sender = thread::spawn({
            let (receiver, clerk) = (receiver.clone(), clerk.clone());
            move || {
                let woken = receiver.offers(2, 2);
                if !receiver.cell.note_send_timer(Pid::FIRST, Pid::FIRST, 2, clerk.clone(), timer) {
                    clerk.forget_timer(timer);
                }
                woken
            }
        });
        receiver.steps(body);
        sender.join().unwrap().into_iter().for_each(|body| receiver.steps(body));
        assert_eq!(receiver.taken(), [1, 2]);
        assert_eq!(*lock(&clerk.taken_back), [timer]);
    });
}

/// The state machine of the receiver is replaced while a plain message is sent after one that waits. Fails if the
/// messages that wait are not in the new mailbox in the same critical section, if the plain message does not look
/// whether its sender waits, or if `hold` lets none in afterwards.
#[test]
fn a_plain_message_does_not_overtake_while_the_receiver_is_replaced() {
    loom::model(|| {
        let (receiver, mut body) = Receiver::full();
        assert!(receiver.offers(2, 2).is_none());
        let sender = thread::spawn({
            let receiver = receiver.clone();
            move || receiver.plain(3)
        });
        let inbox = receiver.cell.upgrade(&mut body, 0).unwrap();
        let mut old = inbox.mailbox;
        body.machine.mailbox().absorb(&mut *old, usize::MAX);
        let freed = receiver.cell.hold(&mut body);
        receiver.ends(freed.told.ended, 0);
        receiver.steps(body);
        let (woken, _) = sender.join().unwrap();
        woken.into_iter().for_each(|body| receiver.steps(body));
        let taken = receiver.taken();
        assert!(taken.is_sorted() && taken.starts_with(&[1, 2]), "{taken:?}");
    });
}
