//! A process that does in each step what a test tells it, while it is in that step.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use procession::{Event, Events, Handle, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::helpers::*;

/// How a step treats its events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Do {
    Nothing,
    /// Takes so many events, or as many as it is given.
    Take(usize),
    /// Passes over all messages that it is given, and takes everything else.
    PassOver,
    /// Takes this message, and passes over what is in front of it.
    Pick(u32),
}

/// How a step returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Say {
    Idle,
    /// With a command outstanding.
    Wait,
}

/// Does in each step what it is told in that step.
pub struct Puppet {
    begun: Sender<()>,
    orders: Receiver<(Do, Say)>,
    taken: Log<u32>,
}

/// Written down for an event that is no message.
pub const SIGNAL: u32 = 1_000;

impl Process for Puppet {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        let _ = self.begun.send(());
        // The channel is closed when the test is over.
        let Ok((order, say)) = self.orders.recv() else { return Ok(Step::Done(())) };
        let note = |event| match event {
            Event::Message(message) => self.taken.push(message),
            _ => self.taken.push(SIGNAL),
        };
        match order {
            Do::Nothing => {}
            Do::Take(most) => events.take(most).for_each(note),
            Do::PassOver => std::iter::from_fn(|| events.select(|_| false)).for_each(note),
            Do::Pick(message) => events.select(|one| *one == message).into_iter().for_each(note),
        }
        if say == Say::Idle {
            return Ok(Step::Idle);
        }
        out.after(Duration::MAX);
        Ok(Step::Wait)
    }
}

/// The most new events that a step is given.
pub const SHARE: usize = 2;

pub struct Rig {
    orders: Sender<(Do, Say)>,
    begun: Receiver<()>,
    pub puppet: Handle<Puppet>,
    pub runtime: Runtime,
    pub taken: Log<u32>,
    pub sent: Vec<u32>,
}

impl Rig {
    /// A puppet in its first step.
    pub fn new(runtime: Runtime, options: SpawnOptions) -> Rig {
        let ((begin, begun), (orders, order), taken) = (channel(), channel(), Log::new());
        let puppet = Puppet { begun: begin, orders: order, taken: taken.clone() };
        let puppet = runtime.spawn_with(puppet, options).unwrap();
        let rig = Rig { orders, begun, puppet, runtime, taken, sent: Vec::new() };
        rig.is_stepped();
        rig
    }

    /// Sends the next number.
    pub fn send(&mut self) {
        let message = self.sent.len() as u32;
        self.runtime.send(self.puppet.address(), message).unwrap();
        self.sent.push(message);
    }

    pub fn signal(&self) {
        assert!(self.runtime.cancel(self.puppet.pid(), "a signal").unwrap());
    }

    /// The puppet is woken by what was just sent.
    pub fn is_stepped(&self) {
        wait(&self.begun).expect("it is stepped");
    }

    /// Has the puppet, which is in a step, do this and say that. Returns whether it is in the next step; if not, all
    /// is at rest.
    pub fn does(&self, order: Do, say: Say) -> bool {
        self.orders.send((order, say)).unwrap();
        let began = std::time::Instant::now();
        loop {
            // Asked for first: if it is at rest, a step that has begun before is in the channel.
            let at_rest = self.runtime.is_idle();
            match self.begun.try_recv() {
                Ok(()) => return true,
                Err(TryRecvError::Empty) if at_rest => return false,
                Err(TryRecvError::Empty) => assert!(began.elapsed() < LIMIT, "neither stepped nor at rest"),
                Err(TryRecvError::Disconnected) => panic!("it has ended"),
            }
            std::thread::yield_now();
        }
    }

    pub fn declines(&self) -> bool {
        self.does(Do::Nothing, Say::Idle)
    }

    /// The puppet, which is in a step, takes all that there is, in this step and those that follow.
    pub fn takes_all(&self) {
        while self.does(Do::Take(usize::MAX), Say::Idle) {}
    }
}

pub fn small_steps() -> Runtime {
    builder().workers(1).step_events(SHARE).start().unwrap()
}
