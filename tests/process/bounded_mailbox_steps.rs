//! Section C: mailboxes with a bound, and steps that leave messages in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use procession::observe::{DeadLetter, DeadLetterReason, Observer, WaitedForNothing};
use procession::spawn::Overflow;
use procession::{
    Address, CommandError, EntryArgs, Event, Events, Exit, InitResult, Pid, Process, Reply, SendError, SpawnOptions,
    Step, StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;
use crate::puppet::*;

/// Writes down which messages are dead, and why.
#[derive(Clone)]
struct Dead(Log<(u32, DeadLetterReason)>);

impl Observer for Dead {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.0.push((*letter.message::<u32>().unwrap(), letter.reason));
    }
}

#[test]
fn a_full_mailbox_drops_the_oldest_message_wherever_it_waits() {
    let dead = Log::new();
    let runtime = builder().workers(1).step_events(SHARE).observer(Dead(dead.clone())).start().unwrap();
    let mut rig = Rig::new(runtime, SpawnOptions::new().mailbox(4, Overflow::DropOldest));
    (0..4).for_each(|_| rig.send());
    assert!(rig.declines());
    assert!(rig.does(Do::PassOver, Say::Idle), "two are behind what it was given");
    assert!(!rig.declines());
    // Two were passed over, and two were left. One more pushes out the first.
    rig.send();
    rig.is_stepped();
    assert_eq!(dead.take(), [(0, DeadLetterReason::DroppedOldest)]);
    // Two more come while the step runs, and push out the other that was passed over, and the first that was left.
    (0..2).for_each(|_| rig.send());
    assert!(dead.take().is_empty(), "the step may take them yet");
    assert!(rig.declines());
    assert_eq!(dead.take(), [(1, DeadLetterReason::DroppedOldest), (2, DeadLetterReason::DroppedOldest)]);
    assert_eq!(rig.runtime.process(rig.puppet.pid()).unwrap().mailbox, 4);
    rig.takes_all();
    assert_eq!(rig.taken.take(), [3, 4, 5, 6]);
    assert!(dead.take().is_empty());
    assert_accounted(&rig.runtime);
}

#[test]
fn what_a_step_takes_is_not_pushed_out_by_what_comes_meanwhile() {
    let dead = Log::new();
    let runtime = builder().workers(1).step_events(SHARE).observer(Dead(dead.clone())).start().unwrap();
    let mut rig = Rig::new(runtime, SpawnOptions::new().mailbox(3, Overflow::DropOldest));
    (0..3).for_each(|_| rig.send());
    assert!(rig.declines());
    (0..2).for_each(|_| rig.send());
    assert!(rig.does(Do::Take(usize::MAX), Say::Idle));
    assert_eq!((rig.taken.to_vec(), dead.len()), (vec![0, 1], 0));
    rig.takes_all();
    assert_eq!((rig.taken.take(), dead.len()), (vec![0, 1, 2, 3, 4], 0));
    assert_accounted(&rig.runtime);
}

#[test]
fn a_step_after_wait_is_given_no_messages_and_makes_no_room() {
    let mut rig = Rig::new(small_steps(), SpawnOptions::new().mailbox(2, Overflow::Refuse));
    let pid = rig.puppet.pid();
    (0..2).for_each(|_| rig.send());
    let is_full = |rig: &Rig| {
        let refused = rig.runtime.send(rig.puppet.address(), 99).unwrap_err();
        assert_eq!(refused.reason(), &SendError::Full { pid, limit: 2 });
    };
    is_full(&rig);
    assert!(!rig.does(Do::Nothing, Say::Wait), "messages do not wake it");
    is_full(&rig);
    for _ in 0..2 {
        rig.signal();
        rig.is_stepped();
        is_full(&rig);
        assert!(!rig.does(Do::Take(usize::MAX), Say::Wait), "the signal was all that it was given");
        is_full(&rig);
    }
    rig.signal();
    rig.is_stepped();
    is_full(&rig);
    assert!(rig.does(Do::Take(usize::MAX), Say::Idle), "now it is given the messages");
    rig.send();
    rig.takes_all();
    assert_eq!(rig.taken.take(), [SIGNAL, SIGNAL, SIGNAL, 0, 1, 2]);
    assert_accounted(&rig.runtime);
}

/// The answer comes while the process is ready, so it is given to the process with the share for its next step.
#[test]
fn a_wait_after_the_last_answer_between_steps_is_an_error() {
    let runtime = runtime(1);
    let (replies, go) = (Log::new(), procession::sync::Latch::new());
    let (keep, gate) = (replies.clone(), go.clone());
    let keeper = runtime.spawn(script(move |events: &mut Events<'_, Reply<u32>>, _: &mut StepOutput| {
        let Some(Event::Message(reply)) = events.next() else { return Ok(Step::Idle) };
        keep.push(reply);
        // The only worker, so the asker, which is ready, is not stepped before.
        wait(&gate);
        Ok(Step::Done(()))
    }));
    let keeper = keeper.unwrap().address();
    until("it rests", || runtime.is_idle());
    let (mut tag, seen) = (None::<Tag<u32>>, Log::new());
    let log = seen.clone();
    let asker = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let Some(asked) = tag else {
            tag = Some(out.ask(keeper, |reply| reply, Duration::MAX));
            return Ok(Step::Continue);
        };
        for event in events {
            if let Event::Completed(done) = event {
                log.push(done.take(asked).and_then(|answer: Result<u32, CommandError>| answer.ok()));
            }
        }
        Ok(Step::<()>::Wait)
    });
    let asker = runtime.spawn_with(asker, SpawnOptions::new().mailbox(3, Overflow::Refuse)).unwrap();
    until("it has asked", || replies.len() == 1);
    assert!(replies.take().remove(0).send(7));
    go.set(()).unwrap();
    let Exit::Failed(failure) = join(&asker) else { panic!("it waits for nothing") };
    assert!(failure.error().downcast_ref::<WaitedForNothing>().is_some(), "{failure}");
    assert_eq!(seen.take(), [Some(7)]);
}

/// Is held up in `init`, and then takes its messages.
struct HeldUp {
    blocked: Blocked,
    taken: Log<u32>,
}

impl Process for HeldUp {
    type Message = u32;
    type Output = ();

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        self.blocked.wait();
        entry.method("main", |(): ()| Ok(())).finish()
    }

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(message) = event {
                self.taken.push(message);
            }
        }
        Ok(Step::Idle)
    }
}

/// Passes over its messages. With the second one it is replaced: it asks for that, or it fails.
struct PassesOver {
    fails: bool,
    next: Option<HeldUp>,
}

impl Process for PassesOver {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        let mut passed = 0;
        let passes = |_: &u32| {
            passed += 1;
            false
        };
        assert!(events.select(passes).is_none());
        match self.next.take_if(|_| passed == 2 && !self.fails) {
            Some(next) => Ok(Step::Upgrade(Upgrade::to(next))),
            None if passed == 2 => Err("it is to be replaced".into()),
            None => Ok(Step::Idle),
        }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.next.take().map(Upgrade::to)
    }
}

#[test]
fn passed_over_messages_keep_their_room_until_a_successor_steps() {
    for fails in [false, true] {
        let (runtime, blocker, taken) = (runtime(1), Blocker::new(), Log::new());
        let next = HeldUp { blocked: blocker.blocked(), taken: taken.clone() };
        let options = SpawnOptions::new().mailbox(2, Overflow::Refuse);
        let process = runtime.spawn_with(PassesOver { fails, next: Some(next) }, options).unwrap();
        (0..2).for_each(|number| runtime.send(process.address(), number).unwrap());
        blocker.wait_begun();
        let refused = runtime.send(process.address(), 99).unwrap_err();
        assert_eq!(refused.reason(), &SendError::Full { pid: process.pid(), limit: 2 }, "fails: {fails}");
        blocker.release();
        until("it has taken both", || taken.len() == 2);
        assert_eq!(taken.take(), [0, 1]);
    }
}

/// Monitors another process, takes one event a step, and may be replaced by a machine of its own type.
struct Renewed {
    of: Option<Pid>,
    begun: Sender<()>,
    is_renewed: Arc<Mutex<Receiver<bool>>>,
    taken: Log<u32>,
}

impl Process for Renewed {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(of) = self.of.take() {
            out.monitor(of);
        }
        for event in events {
            self.taken.push(if let Event::Message(number) = event { number } else { SIGNAL });
        }
        let _ = self.begun.send(());
        match self.is_renewed.lock().unwrap().recv() {
            Ok(false) => Ok(Step::Idle),
            Ok(true) => {
                let (begun, taken) = (self.begun.clone(), self.taken.clone());
                let is_renewed = Arc::clone(&self.is_renewed);
                Ok(Step::Upgrade(Upgrade::to(Renewed { of: None, begun, is_renewed, taken })))
            }
            // The test is over.
            Err(_) => Ok(Step::Done(())),
        }
    }
}

/// Sends a last message, and is done.
struct Leaves {
    to: Log<Address<u32>>,
}

impl Process for Leaves {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if events.next().is_none() {
            return Ok(Step::Idle);
        }
        self.to.take().into_iter().for_each(|to| out.send(to, 900));
        Ok(Step::Done(()))
    }
}

#[test]
fn an_end_does_not_wait_for_a_dropped_message_after_an_upgrade() {
    for is_renewed in [false, true] {
        let runtime = builder().workers(2).start().unwrap();
        let (to, taken) = (Log::new(), Log::new());
        let leaves = runtime.spawn(Leaves { to: to.clone() }).unwrap();
        let ((begun, begins), (go, orders)) = (channel(), channel());
        let orders = Arc::new(Mutex::new(orders));
        let renewed = Renewed { of: Some(leaves.pid()), begun, is_renewed: orders, taken: taken.clone() };
        let options = SpawnOptions::new().mailbox(3, Overflow::DropOldest).step_events(1);
        let receiver = runtime.spawn_with(renewed, options).unwrap();
        let send = |number| runtime.send(receiver.address(), number).unwrap();
        let begins = || begins.recv_timeout(LIMIT).expect("a step of the receiver begins");
        begins();
        // The monitor begins when this step has returned.
        go.send(false).unwrap();
        send(10);
        begins();
        send(11);
        to.push(receiver.address());
        runtime.send(leaves.address(), ()).unwrap();
        assert!(wait(&leaves).is_done());
        go.send(false).unwrap();
        // This step has taken 11. The end waits behind the message 900, which these push out.
        begins();
        (21..=24).for_each(send);
        go.send(is_renewed).unwrap();
        (0..6).for_each(|_| go.send(false).unwrap());
        until("all events are taken", || taken.len() == 6);
        assert_eq!(taken.to_vec(), [10, 11, SIGNAL, 22, 23, 24], "renewed: {is_renewed}");
        // Steps that are still to come find the channel closed.
        drop(go);
    }
}

#[test]
fn an_answer_comes_after_messages_that_have_stayed_in_the_mailbox() {
    let runtime = builder().workers(1).start().unwrap();
    let (takes, taken, mut open) = (Arc::new(AtomicBool::new(false)), Log::new(), None);
    let answers = script(move |events: &mut Events<'_, Option<Reply<()>>>, out: &mut StepOutput| -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Some(reply)) => open = Some(reply),
                Event::Message(None) => open.take().into_iter().for_each(|reply| out.reply(reply, ())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    let answers = runtime.spawn(answers).unwrap().address();
    let (may_take, log, mut asked) = (takes.clone(), taken.clone(), false);
    let asks = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| -> StepResult<()> {
        if !asked {
            asked = true;
            events.next();
            out.ask(answers, Some, LIMIT);
        } else if may_take.load(Ordering::SeqCst) {
            for event in events {
                match event {
                    Event::Message(number) => log.push(number.to_string()),
                    Event::Completed(_) => log.push("answer".into()),
                    _ => {}
                }
            }
        }
        Ok(Step::Idle)
    });
    let options = SpawnOptions::new().mailbox(3, Overflow::Refuse).step_events(1);
    let asks = runtime.spawn_with(asks, options).unwrap().address();
    for number in 0..3 {
        runtime.send(asks, number).unwrap();
        runtime.wait_idle().unwrap();
    }
    // The process is at rest. Message 1 was given to it and left, and message 2 is in its mailbox.
    runtime.send(answers, None).unwrap();
    runtime.wait_idle().unwrap();
    takes.store(true, Ordering::SeqCst);
    runtime.send(asks, 3).unwrap();
    runtime.wait_idle().unwrap();
    assert_eq!(taken.take(), ["1", "2", "answer", "3"]);
}
