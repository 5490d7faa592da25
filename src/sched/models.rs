//! The races of waking, under the model checker: the real cell, the real body, no queue.

use super::cell::{Birth, Cell, Doomed, Settled, Want};
use crate::outcome::Reason;
use crate::process::body::{Ready, Stepped, Verdict};
use crate::process::mailbox::{Control, Envelope, Mailbox, Signal};
use crate::process::outbox::Opened;
use crate::process::{
    CancelRequest, Completed, Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult, described_body,
};
use crate::sync::Arc;

struct Anybody;

impl Process for Anybody {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

const NOTHING_LEFT: Stepped = Stepped { verdict: Verdict::Idle, unseen: false, signals: false, taken: 0 };

/// A live process with its body in hand.
fn in_hand() -> (Arc<Cell>, Ready) {
    let cell = Arc::new(Cell::new());
    let body: Ready = described_body(Anybody, Pid::FIRST, SpawnOptions::new(), None);
    assert!(cell.install(1, body.machine.kind(), Birth::default(), 0, || false));
    (cell, body)
}

/// A live process at rest.
fn at_rest() -> Arc<Cell> {
    let (cell, body) = in_hand();
    assert!(matches!(cell.settle(body, Want::AnyEvent, NOTHING_LEFT), Settled::Resting));
    cell
}

fn send(cell: &Cell, message: u32) -> Option<Ready> {
    cell.post(Pid::FIRST, |opened| {
        let Opened::Free(mailbox) = opened else { panic!("it has no bound") };
        let mailbox = (mailbox as &mut dyn std::any::Any).downcast_mut::<Mailbox<u32>>().unwrap();
        mailbox.messages.push(Envelope { from: None, message });
        Some(1)
    })
    .unwrap()
    .0
}

fn settle(cell: &Cell, body: Ready, want: Want) -> Option<Ready> {
    match cell.settle(body, want, NOTHING_LEFT) {
        Settled::Again(body) | Settled::Doomed(body) => Some(body),
        Settled::Resting => None,
        Settled::WaitsForNothing(_) => panic!("it waits for an answer"),
    }
}

/// Breaks when `settle` does not look into the inbox before it puts the body to rest.
#[test]
fn a_process_is_woken_while_it_is_about_to_rest() {
    loom::model(|| {
        let (cell, body) = in_hand();
        let sender = loom::thread::spawn({
            let cell = cell.clone();
            move || send(&cell, 7)
        });
        let kept = settle(&cell, body, Want::AnyEvent);
        let woken = sender.join().unwrap();
        let mut awake: Vec<Ready> = kept.into_iter().chain(woken).collect();
        assert_eq!(awake.len(), 1, "somebody has the body, and nobody else");
        assert_eq!(awake[0].machine.mailbox().messages(), 1, "and the message is with it");
    });
}

/// Breaks when a sender leaves the body at rest for the other to take.
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
        let mut body = settle(&cell, body, Want::Again).unwrap();
        assert_eq!(first + body.machine.mailbox().messages(), 2, "and none is lost");
    });
}

/// A process that waits for answers only is woken by the answer and not by the message, whatever comes first.
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
                let answer = Signal::Completed(Completed::new(1, Ok(Box::new(()))));
                cell.signal(Pid::FIRST, answer).ok().unwrap()
            }
        });
        let kept = settle(&cell, body, Want::Signal);
        let woken = answerer.join().unwrap();
        sender.join().unwrap();
        let mut awake: Vec<Ready> = kept.into_iter().chain(woken).collect();
        assert_eq!(awake.len(), 1);
        assert!(awake[0].machine.mailbox().has_signals());
        assert_eq!(awake[0].head.outstanding, 0);
    });
}

/// Whoever has the body of a doomed process sees to its end, and there is exactly one who does.
#[test]
fn a_process_is_terminated_while_it_is_about_to_rest() {
    loom::model(|| {
        let (cell, body) = in_hand();
        let other = loom::thread::spawn({
            let cell = cell.clone();
            move || match cell.doom(Pid::FIRST, false).unwrap() {
                Doomed::Woken(body) => Some(body),
                Doomed::Noted => None,
                Doomed::Already => panic!("nobody else dooms it"),
            }
        });
        let kept = settle(&cell, body, Want::AnyEvent);
        let woken = other.join().unwrap();
        assert_eq!(kept.into_iter().chain(woken).count(), 1);
        assert_eq!(cell.doomed(), Some(Reason::Terminated));
        let control = Control::Cancel(CancelRequest { reason: Reason::Cancelled, deadline: None });
        assert!(cell.signal(Pid::FIRST, Signal::Control(control)).is_err(), "nothing reaches it any more");
    });
}
