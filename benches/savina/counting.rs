//! CountingActor: a producer sends to a counter without waiting. At the end it asks the counter for the number of
//! messages.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, check};
use super::problems::BATCH;
use super::runtime::{done, finish};

struct Counter {
    count: u64,
}

enum CounterMessage {
    Increment,
    Report(Address<Count>),
}

struct Count(u64);

impl Process for Counter {
    type Message = CounterMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<CounterMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(CounterMessage::Increment) => self.count += 1,
                Event::Message(CounterMessage::Report(to)) => out.send(to, Count(self.count)),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Ends with the count that the counter has reported.
struct Producer {
    counter: Address<CounterMessage>,
    left: u64,
}

impl Process for Producer {
    type Message = Count;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Count>, out: &mut StepOutput) -> StepResult<u64> {
        match events.next() {
            Some(Event::Message(Count(count))) => return Ok(Step::Done(count)),
            Some(_) => return Ok(Step::Done(0)),
            None => {}
        }
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            out.send(self.counter, CounterMessage::Increment);
        }
        self.left -= batch;
        if self.left > 0 {
            return Ok(Step::Continue);
        }
        out.send(self.counter, CounterMessage::Report(out.pid().typed()));
        Ok(Step::Idle)
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let counter = runtime.spawn(Counter { count: 0 })?.address();
    let count = done(&runtime.spawn(Producer { counter, left: setting.n })?)?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", count, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
