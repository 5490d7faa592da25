//! Steps that are stuck until a test releases them, and an observer that notes the reports.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::{RuntimeBuilder, Watchdog};
use procession::observe::{Observer, StuckStep};
use procession::{Address, Event, Events, Handle, Process, Runtime, Step, StepOutput, StepResult};

use crate::helpers::*;

/// For so long a step may run.
pub const LONG: Duration = Duration::from_millis(100);

/// A runtime whose time is moved by hand, and what its watchdog tells.
pub struct Watched {
    pub runtime: Runtime,
    pub clock: ManualClock,
    pub told: Log<(bool, StuckStep)>,
}

struct Told(Log<(bool, StuckStep)>);

impl Observer for Told {
    fn stuck(&self, step: &StuckStep) {
        self.0.push((false, step.clone()));
    }

    fn unstuck(&self, step: &StuckStep) {
        self.0.push((true, step.clone()));
    }
}

pub fn watched(workers: usize, spares: usize) -> Watched {
    watched_with(workers, spares, |builder| builder)
}

pub fn watched_with(workers: usize, spares: usize, more: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Watched {
    let (clock, told) = (ManualClock::new(), Log::new());
    let watchdog = Watchdog::after(LONG).spare_workers(spares);
    let builder = builder().workers(workers).clock(clock.clock()).watchdog(watchdog).observer(Told(told.clone()));
    let runtime = more(builder).start().unwrap();
    // One of the workers that begin sets the timer of the first look, and is through with that.
    until("all workers have begun", || runtime.is_idle());
    Watched { runtime, clock, told }
}

impl Watched {
    /// Long enough for every step that runs now to be reported.
    pub fn pass(&self) {
        self.clock.advance(LONG * 2);
    }

    /// Waits until so much has been told in all, and says what; there must not be more.
    pub fn tells(&self, count: usize) -> Vec<(bool, StuckStep)> {
        until("it is told", || self.told.len() >= count);
        assert_eq!(self.told.len(), count);
        self.told.to_vec()
    }

    /// Keeps so many workers in steps, and lets the time pass.
    pub fn sticks(&self, count: usize) -> Vec<Blocker> {
        let held: Vec<Blocker> = (0..count).map(|_| hold_up(&self.runtime).1).collect();
        // It may be another worker that has looked around and sets the timer, and is not quite there yet.
        until("somebody is going to look", || self.clock.next_due().is_some());
        self.pass();
        assert_eq!(self.runtime.stuck_steps().len(), count);
        held
    }
}

/// One of two that send each other a number until it is zero.
pub struct Player {
    to: Option<Address<Ball>>,
}

pub enum Ball {
    Meet(Address<Ball>),
    Hit(u32),
}

impl Process for Player {
    type Message = Ball;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ball>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match (event, self.to) {
                (Event::Message(Ball::Meet(other)), _) => self.to = Some(other),
                (Event::Message(Ball::Hit(0)) | Event::Cancel(_), _) => return Ok(Step::Done(())),
                (Event::Message(Ball::Hit(left)), Some(other)) => out.send(other, Ball::Hit(left - 1)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Two that play for so many hits, an even number: who is done when the game is over.
pub fn game(runtime: &Runtime, hits: u32) -> Handle<Player> {
    let [one, two] = [(); 2].map(|()| runtime.spawn(Player { to: None }).unwrap());
    runtime.send(one.address(), Ball::Meet(two.address())).unwrap();
    runtime.send(two.address(), Ball::Meet(one.address())).unwrap();
    runtime.send(one.address(), Ball::Hit(hits)).unwrap();
    one
}
