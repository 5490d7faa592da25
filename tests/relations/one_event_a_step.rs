//! The order of events for a process that takes one event a step.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use procession::spawn::Overflow;
use procession::{
    Address, Event, Events, Handle, Monitor, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult,
    Upgrade,
};

use crate::helpers::*;

/// An order to a step. The step carries out orders until one says how to end.
enum Do {
    /// Takes one event.
    Take,
    /// Passes over all messages.
    PassOver,
    Monitor(Pid),
    /// The monitor with this number, counted from the first.
    Demonitor(usize),
    /// Yields a command that is never answered.
    Timer,
    /// Yields a command that is answered at once.
    Command,
    Ask(Address<Reply<()>>),
    // How it ends.
    Idle,
    Wait,
    Continue,
    /// Is replaced by one of its kind.
    Upgrade,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Saw {
    Message(u32),
    Completed,
    Cancel,
    Down(Pid),
    Nothing,
}

struct Sipper {
    begun: Sender<()>,
    orders: Option<Receiver<Do>>,
    seen: Log<Saw>,
    monitors: Vec<Monitor>,
}

impl Process for Sipper {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        let _ = self.begun.send(());
        let Some(orders) = &self.orders else { return Ok(Step::Done(())) };
        loop {
            match orders.recv() {
                Ok(Do::Take) => self.seen.push(match events.next() {
                    Some(Event::Message(message)) => Saw::Message(message),
                    Some(Event::Completed(_)) => Saw::Completed,
                    Some(Event::Cancel(_)) => Saw::Cancel,
                    Some(Event::Down(down)) => Saw::Down(down.pid),
                    _ => Saw::Nothing,
                }),
                Ok(Do::PassOver) => assert!(events.select(|_| false).is_none()),
                Ok(Do::Monitor(pid)) => self.monitors.push(out.monitor(pid)),
                Ok(Do::Demonitor(number)) => out.demonitor(self.monitors[number]),
                Ok(Do::Timer) => drop(out.after(Duration::MAX)),
                Ok(Do::Command) => drop(out.unregister("nobody")),
                Ok(Do::Ask(to)) => drop(out.ask(to, |reply| reply, Duration::MAX)),
                Ok(Do::Idle) => return Ok(Step::Idle),
                Ok(Do::Wait) => return Ok(Step::Wait),
                Ok(Do::Continue) => return Ok(Step::Continue),
                Ok(Do::Upgrade) => {
                    let (begun, seen) = (self.begun.clone(), self.seen.clone());
                    let monitors = std::mem::take(&mut self.monitors);
                    return Ok(Step::Upgrade(Upgrade::to(Sipper {
                        begun,
                        orders: self.orders.take(),
                        seen,
                        monitors,
                    })));
                }
                // The test is over.
                Err(_) => return Ok(Step::Done(())),
            }
        }
    }
}

struct Rig {
    orders: Sender<Do>,
    begun: Receiver<()>,
    sipper: Address<u32>,
    runtime: Runtime,
    seen: Log<Saw>,
}

impl Rig {
    fn new(runtime: Runtime, spawn: impl FnOnce(&Runtime, Sipper) -> Address<u32>) -> Rig {
        let ((begin, begun), (orders, order), seen) = (channel(), channel(), Log::new());
        let sipper = Sipper { begun: begin, orders: Some(order), seen: seen.clone(), monitors: Vec::new() };
        let sipper = spawn(&runtime, sipper);
        let rig = Rig { orders, begun, sipper, runtime, seen };
        rig.is_stepped();
        rig
    }

    /// One with a bound, and one without, each in its first step.
    fn both() -> [Rig; 2] {
        free_and_bounded().map(|options| {
            Rig::new(runtime(2), |runtime, sipper| runtime.spawn_with(sipper, options).unwrap().address())
        })
    }

    /// Comes back when the next step has begun.
    fn is_stepped(&self) {
        wait(&self.begun).expect("there is something that it waits for");
    }

    fn does(&self, orders: impl IntoIterator<Item = Do>) {
        orders.into_iter().for_each(|order| self.orders.send(order).unwrap());
    }

    /// Returns what so many steps see that take one event each, the step in progress first. After the last one all is
    /// at rest.
    fn sees(&self, steps: usize) -> Vec<Saw> {
        for step in 1..=steps {
            self.does([Do::Take, Do::Idle]);
            if step < steps {
                self.is_stepped();
            }
        }
        until("it is at rest", || self.runtime.is_idle());
        assert!(self.begun.try_recv().is_err(), "a step more than there are events: {:?}", self.seen.to_vec());
        self.seen.take()
    }

    fn cancel(&self) {
        assert!(self.runtime.cancel(self.sipper.pid(), "a signal").unwrap());
    }

    /// A process that sends this number, or nothing, and ends, when it is told to.
    fn sender(&self, number: Option<u32>) -> Handle<impl Process<Message = (), Output = ()>> {
        let to = self.sipper;
        let sender = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if events.next().is_none() {
                return Ok(Step::Idle);
            }
            number.into_iter().for_each(|number| out.send(to, number));
            Ok(Step::Done(()))
        });
        self.runtime.spawn(sender).unwrap()
    }

    /// Has the sipper ask twice, and brings the replies.
    fn asks_twice(&self) -> Vec<Reply<()>> {
        let replies = Log::new();
        let keep = replies.clone();
        let keeper = script(move |events: &mut Events<'_, Reply<()>>, _: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(reply) => keep.push(reply),
                    _ => return Ok(Step::Done(())),
                }
            }
            Ok(Step::Idle)
        });
        let keeper = self.runtime.spawn(keeper).unwrap().address();
        self.does([Do::Ask(keeper), Do::Ask(keeper), Do::Continue]);
        self.is_stepped();
        until("it has asked", || replies.len() == 2);
        replies.take()
    }

    fn send(&self, number: u32) {
        self.runtime.send(self.sipper, number).unwrap();
    }

    /// Has it send and end, and comes back when those who monitor it were told.
    fn ends(&self, sender: &Handle<impl Process<Message = ()>>) {
        self.runtime.send(sender.address(), ()).unwrap();
        join(sender);
        // A later watch is told later.
        wait(self.runtime.watch(sender.pid()));
    }
}

fn free_and_bounded() -> [SpawnOptions; 2] {
    [SpawnOptions::new(), SpawnOptions::new().mailbox(100, Overflow::Refuse)]
}

#[test]
fn signals_that_came_before_the_first_step_are_all_taken_one_a_step() {
    for options in free_and_bounded() {
        let rig = Rig::new(runtime(1), |runtime, sipper| {
            let mut spawns = Some((sipper, options));
            let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                let (sipper, options) = spawns.take().ok_or("it is spawned once")?;
                let child = out.spawn_with(sipper, options)?.address;
                (0..3).for_each(|_| _ = out.cancel(child.pid(), "a signal"));
                Ok(Step::Done(child))
            }));
            *output(&parent.unwrap())
        });
        assert_eq!(rig.sees(3), [Saw::Cancel; 3]);
    }
}

#[test]
fn signals_that_come_during_a_step_are_all_taken_one_a_step() {
    for rig in Rig::both() {
        let (one, two) = (rig.sender(None), rig.sender(None));
        rig.does([Do::Monitor(one.pid()), Do::Monitor(two.pid()), Do::Continue]);
        rig.is_stepped();
        rig.ends(&one);
        rig.ends(&two);
        (0..2).for_each(|_| rig.cancel());
        rig.does([Do::Command, Do::Command, Do::Idle]);
        rig.is_stepped();
        let (one, two) = (Saw::Down(one.pid()), Saw::Down(two.pid()));
        assert_eq!(rig.sees(6), [one, two, Saw::Cancel, Saw::Cancel, Saw::Completed, Saw::Completed]);
    }
}

#[test]
fn after_wait_a_down_that_is_left_comes_after_the_message_of_its_process() {
    for rig in Rig::both() {
        let (one, two) = (rig.sender(Some(1)), rig.sender(Some(2)));
        rig.does([Do::Monitor(one.pid()), Do::Monitor(two.pid()), Do::Timer, Do::Continue]);
        rig.is_stepped();
        rig.ends(&one);
        rig.ends(&two);
        // Both wait for the step that follows, which is given no messages, and takes one.
        rig.does([Do::Wait]);
        rig.is_stepped();
        let expected = [Saw::Down(one.pid()), Saw::Message(1), Saw::Message(2), Saw::Down(two.pid())];
        assert_eq!(rig.sees(4), expected);
    }
}

#[test]
fn after_a_demonitor_a_down_follows_the_message_of_its_process() {
    // How many of those that have ended are not to be told of.
    for forgotten in 1..=3 {
        for rig in Rig::both() {
            let silent: Vec<_> = (0..3).map(|_| rig.sender(None)).collect();
            let last = rig.sender(Some(7));
            rig.does(silent.iter().map(|one| Do::Monitor(one.pid())));
            rig.does([Do::Monitor(last.pid()), Do::Continue]);
            rig.is_stepped();
            rig.cancel();
            silent.iter().for_each(|one| rig.ends(one));
            rig.does([Do::Idle]);
            rig.is_stepped();
            // It takes the first signal, so it is known which of the others need not wait behind messages.
            rig.does([Do::Take]);
            until("it is taken", || rig.seen.len() == 1);
            rig.ends(&last);
            rig.does((0..forgotten).map(Do::Demonitor));
            rig.does([Do::Idle]);
            let told = silent.iter().skip(forgotten).map(|one| Saw::Down(one.pid()));
            let expected: Vec<_> =
                [Saw::Cancel].into_iter().chain(told).chain([Saw::Message(7), Saw::Down(last.pid())]).collect();
            rig.is_stepped();
            assert_eq!(rig.sees(expected.len() - 1), expected);
        }
    }
}

#[test]
fn after_an_upgrade_a_completion_follows_earlier_messages() {
    for rig in Rig::both() {
        let mut replies = rig.asks_twice();
        // One is taken, and two are passed over.
        (1..=3).for_each(|number| rig.send(number));
        rig.does([Do::Idle]);
        rig.is_stepped();
        rig.does([Do::Take, Do::PassOver, Do::Idle]);
        // A message, and an answer after it, wait for the step that says that it is to be replaced. The same happens
        // once more, in the step itself.
        rig.send(4);
        rig.is_stepped();
        assert!(replies.remove(0).send(()));
        rig.send(5);
        rig.does([Do::Continue]);
        rig.is_stepped();
        assert!(replies.remove(0).send(()));
        rig.send(6);
        rig.does([Do::Upgrade]);
        rig.is_stepped();
        let message = Saw::Message;
        let expected = [message(1), message(2), message(3), message(4), Saw::Completed];
        let expected: Vec<_> = expected.into_iter().chain([message(5), Saw::Completed, message(6)]).collect();
        assert_eq!(rig.sees(7), expected);
    }
}

#[test]
fn an_upgrade_keeps_the_number_of_messages_before_a_completion() {
    for rig in Rig::both() {
        let mut replies = rig.asks_twice();
        (1..=3).for_each(|number| rig.send(number));
        assert!(replies.remove(0).send(()));
        rig.send(4);
        rig.does([Do::Idle]);
        rig.is_stepped();
        // One of the three messages that it comes after is taken by the one that is replaced.
        rig.does([Do::Take, Do::Upgrade]);
        rig.is_stepped();
        let message = Saw::Message;
        assert_eq!(rig.sees(4), [message(1), message(2), message(3), Saw::Completed, message(4)]);
        drop(replies);
    }
}
