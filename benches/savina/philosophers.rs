//! Philosophers: a hungry philosopher asks the waiter for both forks. If one of them is in use, it asks again.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::philosophers::{PHILOSOPHERS, Table, check};
use super::runtime::{done, finish};

enum WaiterMessage {
    Hungry { seat: usize, philosopher: Address<PhilosopherMessage> },
    Eaten { seat: usize },
    Leaves,
}

/// Ends when all philosophers have left. Returns how often each has eaten.
#[derive(Default)]
struct Waiter {
    table: Table,
    left: usize,
}

impl Process for Waiter {
    type Message = WaiterMessage;
    type Output = [u64; PHILOSOPHERS];

    fn step(&mut self, events: &mut Events<WaiterMessage>, out: &mut StepOutput) -> StepResult<Self::Output> {
        for event in events {
            match event {
                Event::Message(WaiterMessage::Hungry { seat, philosopher }) => {
                    let is_served = self.table.is_served(seat);
                    out.send(philosopher, if is_served { PhilosopherMessage::Eat } else { PhilosopherMessage::Denied });
                }
                Event::Message(WaiterMessage::Eaten { seat }) => self.table.has_eaten(seat),
                Event::Message(WaiterMessage::Leaves) => {
                    self.left += 1;
                    if self.left == PHILOSOPHERS {
                        return Ok(Step::Done(self.table.meals()));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.table.meals())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

enum PhilosopherMessage {
    Begin,
    Eat,
    Denied,
}

struct Philosopher {
    seat: usize,
    waiter: Address<WaiterMessage>,
    left: u64,
}

impl Process for Philosopher {
    type Message = PhilosopherMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<PhilosopherMessage>, out: &mut StepOutput) -> StepResult<()> {
        let seat = self.seat;
        for event in events {
            match event {
                Event::Message(PhilosopherMessage::Begin | PhilosopherMessage::Denied) => {}
                Event::Message(PhilosopherMessage::Eat) => {
                    out.send(self.waiter, WaiterMessage::Eaten { seat });
                    self.left -= 1;
                    if self.left == 0 {
                        out.send(self.waiter, WaiterMessage::Leaves);
                        return Ok(Step::Done(()));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => continue,
            }
            out.send(self.waiter, WaiterMessage::Hungry { seat, philosopher: out.pid().typed() });
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let waiter = runtime.spawn(Waiter::default())?;
    let mut philosophers = Vec::new();
    for seat in 0..PHILOSOPHERS {
        philosophers.push(runtime.spawn(Philosopher { seat, waiter: waiter.address(), left: setting.n })?);
    }
    for philosopher in &philosophers {
        runtime.send(philosopher.address(), PhilosopherMessage::Begin)?;
    }
    let meals = done(&waiter)?;
    let measured = Measured::since(began, setting.n * PHILOSOPHERS as u64);
    check(meals, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
