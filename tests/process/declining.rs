//! A. Steps that say `Idle`: which of them are followed by another step at once, case by case.

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::testing::{Driver, Status};
use procession::{Events, SendError, SpawnOptions, Step, StepOutput};

use crate::helpers::*;
use crate::puppet::*;

/// An arrival while the step in question runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comes {
    Nothing,
    Message,
    Signal,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    bounded: bool,
    /// A message was passed over before.
    kept: bool,
    /// The step in question is one after `Wait`, woken by a signal.
    after_wait: bool,
    /// A signal waits for it, whatever has woken it.
    signal: bool,
    /// So many messages wait for it.
    waiting: usize,
    order: Do,
    comes: Comes,
}

impl Case {
    fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for flags in 0..16 {
            let [bounded, kept, after_wait, signal] = [1, 2, 4, 8].map(|flag| flags & flag != 0);
            for waiting in [0, 1, SHARE + 2] {
                for order in [Do::Nothing, Do::Take(1), Do::Take(usize::MAX), Do::PassOver] {
                    for comes in [Comes::Nothing, Comes::Message, Comes::Signal] {
                        all.push(Case { bounded, kept, after_wait, signal, waiting, order, comes });
                    }
                }
            }
        }
        all
    }

    /// Brings a new puppet into the step in question. How many signals are there for it.
    fn reach(self) -> (Rig, usize) {
        let options = SpawnOptions::new();
        let options = if self.bounded { options.mailbox(100, Overflow::Refuse) } else { options };
        let mut rig = Rig::new(small_steps(), options);
        let mut last = Do::Nothing;
        if self.kept {
            rig.send();
            assert!(rig.declines(), "something has come");
            assert!(!rig.does(Do::PassOver, Say::Idle), "what is passed over wakes nobody");
            rig.send();
            rig.is_stepped();
            last = Do::Pick(1);
        }
        (0..self.waiting).for_each(|_| rig.send());
        if self.signal {
            rig.signal();
        }
        let say = if self.after_wait { Say::Wait } else { Say::Idle };
        if rig.does(last, say) {
            return (rig, usize::from(self.signal));
        }
        rig.signal();
        rig.is_stepped();
        (rig, 1)
    }

    /// The number of events that there are for the step in question, whether or not it is offered them.
    fn has(self, signals: usize) -> usize {
        usize::from(self.kept) + self.waiting + signals
    }

    /// Whether the table at the head of `src/sched/cell.rs` says that another step follows the step in question at
    /// once.
    fn is_stepped_again(self, signals: usize) -> bool {
        let (kept, messages) = if self.after_wait { (0, 0) } else { (usize::from(self.kept), self.waiting) };
        let is_there = kept + messages + signals > 0;
        // Signals come first, then the one that was kept, then the others.
        let (touches, dealt_with) = match self.order {
            Do::Nothing => (false, 0),
            Do::Take(1) => (is_there, usize::from(is_there)),
            _ => (is_there, signals + kept + messages.min(SHARE)),
        };
        let (left, comes) = (self.has(signals) - dealt_with, self.comes != Comes::Nothing);
        comes || left > 0 && (touches || self.after_wait)
    }

    fn check(self) {
        let (mut rig, signals) = self.reach();
        match self.comes {
            Comes::Nothing => {}
            Comes::Message => rig.send(),
            Comes::Signal => rig.signal(),
        }
        let mut again = rig.does(self.order, Say::Idle);
        assert_eq!(again, self.is_stepped_again(signals), "{self:?}");
        // One more step is shown the new event. Or the event is behind those that it is shown, and is then no longer
        // new.
        for _ in 0..2 {
            again = again && rig.declines();
        }
        assert!(!again, "it is stepped though nothing has come: {self:?}");
        rig.send();
        rig.is_stepped();
        rig.takes_all();
        let (mut taken, mut sent) = (rig.taken.take(), rig.sent.clone());
        taken.retain(|one| *one != SIGNAL);
        if self.kept {
            // Picked out of its order.
            assert_eq!((taken.remove(0), sent.remove(1)), (1, 1));
        }
        assert_eq!(taken, sent, "{self:?}");
        assert_accounted(&rig.runtime);
    }
}

#[test]
fn after_a_step_that_says_idle_the_next_one_comes_as_the_table_says() {
    let all = Case::all();
    assert_eq!(all.len(), 576);
    all.into_iter().for_each(Case::check);
}

#[test]
fn a_process_that_takes_nothing_is_stepped_once_per_message() {
    for options in [SpawnOptions::new(), SpawnOptions::new().mailbox(100, Overflow::Refuse)] {
        let mut rig = Rig::new(small_steps(), options);
        assert!(!rig.declines());
        for _ in 0..10 {
            rig.send();
            rig.is_stepped();
            assert!(!rig.declines());
        }
        assert_eq!(rig.runtime.process(rig.puppet.pid()).unwrap().steps, 11);
        assert_eq!(rig.runtime.process(rig.puppet.pid()).unwrap().mailbox, 10);
        rig.signal();
        rig.is_stepped();
        rig.takes_all();
        assert_eq!(rig.taken.take(), [&[SIGNAL], &rig.sent[..]].concat());
    }
}

#[test]
fn only_a_message_that_a_full_mailbox_keeps_brings_a_new_step() {
    for overflow in [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest] {
        let watcher = Watcher::new();
        let runtime = builder().workers(1).step_events(SHARE).observer(watcher.clone()).start().unwrap();
        let mut rig = Rig::new(runtime, SpawnOptions::new().mailbox(3, overflow));
        (0..3).for_each(|_| rig.send());
        assert!(rig.declines(), "they have come");
        assert!(!rig.declines());
        rig.signal();
        rig.is_stepped();
        // Two are in the hands of the step, and it leaves them.
        let sent = rig.runtime.send(rig.puppet.address(), 3);
        match overflow {
            Overflow::Refuse => {
                assert_eq!(sent.unwrap_err().reason(), &SendError::Full { pid: rig.puppet.pid(), limit: 3 });
                assert!(!rig.declines());
            }
            Overflow::DropNewest => {
                assert!(!rig.declines());
                assert_eq!(watcher.dead.take(), [(rig.puppet.pid(), None, DeadLetterReason::DroppedNewest)]);
            }
            Overflow::DropOldest => {
                assert!(rig.declines(), "it has come");
                assert!(!rig.declines());
                assert_eq!(watcher.dead.take(), [(rig.puppet.pid(), None, DeadLetterReason::DroppedOldest)]);
                rig.sent = vec![1, 2, 3];
            }
        }
        rig.signal();
        rig.is_stepped();
        rig.takes_all();
        assert_eq!(rig.taken.take(), [&[SIGNAL, SIGNAL], &rig.sent[..]].concat(), "{overflow:?}");
        assert_accounted(&rig.runtime);
    }
}

#[test]
fn a_first_step_that_takes_nothing_is_followed_by_a_second() {
    for messages in [1, 2, 5] {
        let runtime = builder().workers(1).step_events(SHARE).start().unwrap();
        let (_holder, blocker) = hold_up(&runtime);
        let (begun, steps) = (Log::new(), Log::new());
        let (begins, counts) = (begun.clone(), steps.clone());
        let sets_up = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            begins.push(());
            // The second step takes nothing either, and so the third comes with something new only.
            counts.push(if begins.len() > 2 { events.count() } else { 0 });
            Ok::<Step<()>, procession::BoxError>(Step::Idle)
        });
        let process = runtime.spawn(sets_up).unwrap();
        (0..messages).for_each(|n| runtime.send(process.address(), n).unwrap());
        blocker.release();
        until("all is at rest", || runtime.is_idle());
        assert_eq!(steps.take(), [0, 0], "with {messages} messages");
        runtime.send(process.address(), messages).unwrap();
        until("all is at rest", || runtime.is_idle());
        assert_eq!(steps.take().iter().sum::<usize>(), messages as usize + 1);
    }
}

#[test]
fn a_driven_process_that_takes_nothing_rests_until_something_comes() {
    let mut steps = 0;
    let mut driver = Driver::new(script(move |events: &mut Events<'_, bool>, _: &mut StepOutput| {
        steps += 1;
        let taken = if steps > 2 { events.count() } else { 0 };
        Ok(if taken > 0 { Step::Done(taken) } else { Step::Idle })
    }));
    driver.message(true);
    // The first step may only set up.
    assert_eq!((driver.step(), driver.steps()), (Status::Ready, 1));
    assert_eq!((driver.run(), driver.steps()), (Status::Idle, 2));
    assert_eq!((driver.run(), driver.steps()), (Status::Idle, 2));
    driver.cancel("something new");
    assert_eq!((driver.run(), driver.steps()), (Status::Ended, 3));
    assert_eq!(driver.exit().unwrap().output(), Some(&std::sync::Arc::new(2)));
}
