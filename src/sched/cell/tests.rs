//! Tests of the cell, together with what a turn does around it.

use std::any::Any;

use super::{Birth, BodyState, Cell, Settled};
use crate::primitives::enter;
use crate::process::{Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult, described_body};
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sched::mailbox::{Envelope, Mailbox, Overflow, Queue};

struct Anybody;

impl Process for Anybody {
    type Message = u64;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn a_mailbox_with_a_bound_keeps_no_large_buffer_at_rest() {
    const BURST: u32 = 1_000;
    let options = SpawnOptions::new().mailbox(BURST as usize, Overflow::Refuse);
    let (cell, bound) = (Cell::new(), options.bound);
    let mut body: Ready = described_body(Anybody, Pid::FIRST, options, None);
    let birth = Birth { bound, ..Birth::default() };
    assert!(cell.install(1, body.machine.kind(), birth, 0, || false));
    for message in 0..u64::from(BURST) {
        let posted = cell.post(Pid::FIRST, |mailbox, bounds| {
            let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<u64>>()?;
            assert!(bounds.expect("it has a bound").offer(mailbox, Envelope { from: None, message }).is_none());
            Some(1)
        });
        assert!(posted.is_ok_and(|(woken, _)| woken.is_none()));
    }
    assert!(cell.fill(&mut body, BURST).told.is_empty());
    // The step takes them all. Settling exchanges the two empty queues, and the grown one comes into the cell.
    let mailbox = (body.machine.mailbox() as &mut dyn Any).downcast_mut::<Mailbox<u64>>().unwrap();
    assert_eq!(std::iter::from_fn(|| mailbox.pop_message()).count(), BURST as usize);
    let stepped = Stepped { verdict: Verdict::Idle, unseen: false, signals: false, taken: BURST };
    assert!(matches!(cell.settle(body, stepped), Settled::Resting));
    let inner = enter(&cell.inner);
    let BodyState::Resting(body) = &inner.body else { panic!("it rests") };
    let bounded = body.head.rare.as_ref().unwrap().bounded.as_ref().unwrap();
    let mailbox = (&*bounded.mailbox as &dyn Any).downcast_ref::<Mailbox<u64>>().unwrap();
    assert!(!matches!(mailbox.messages, Queue::Many(_)));
}
