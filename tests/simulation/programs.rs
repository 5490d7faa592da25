//! Small programs that the tests simulate.

use std::time::Duration;

use procession::{Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

pub const SECOND: Duration = Duration::from_secs(1);

/// Whether the full numbers of seeds are to be tried.
pub fn is_full() -> bool {
    std::env::var_os("PROCESSION_FULL").is_some()
}

/// Counts what it is sent.
#[derive(Default)]
pub struct Counter {
    pub total: u64,
}

pub enum CounterMessage {
    Add(u64),
    Read(Reply<u64>),
}

impl Process for Counter {
    type Message = CounterMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, CounterMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(CounterMessage::Add(n)) => self.total += n,
                Event::Message(CounterMessage::Read(reply)) => out.reply(reply, self.total),
                Event::Cancel(_) => return Ok(Step::Done(self.total)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Adds to a counter, in steps: at once, after a time, and after a blocking closure.
pub struct Adder {
    pub to: procession::Address<CounterMessage>,
    pub left: u32,
    pub tag: Option<Tag<u64>>,
}

impl Process for Adder {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let (Event::Completed(done), Some(tag)) = (event, self.tag)
                && let Some(number) = done.take(tag)
            {
                out.send(self.to, CounterMessage::Add(number?));
                self.left -= 1;
                self.tag = None;
            }
        }
        if self.left == 0 {
            return Ok(Step::Done(()));
        }
        if self.tag.is_none() {
            let delay = Duration::from_millis(out.random() % 10);
            out.after(delay);
            self.tag = Some(out.blocking(|| 1));
        }
        Ok(Step::Idle)
    }
}

/// A register that is read and written by questions.
#[derive(Default)]
pub struct Register(pub u64);

#[derive(Debug)]
pub enum RegisterMessage {
    Read(Reply<u64>),
    Write(u64),
}

impl Process for Register {
    type Message = RegisterMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, RegisterMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(RegisterMessage::Read(reply)) => out.reply(reply, self.0),
                Event::Message(RegisterMessage::Write(value)) => self.0 = value,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Reads the register, and writes one more. Two of them may lose an update.
pub struct Incrementer {
    pub register: procession::Address<RegisterMessage>,
    pub read: Option<Tag<u64>>,
}

impl Process for Incrementer {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let read = *self.read.get_or_insert_with(|| out.ask(self.register, RegisterMessage::Read, SECOND));
        for event in events {
            if let Event::Completed(done) = event
                && let Some(value) = done.take(read)
            {
                out.send(self.register, RegisterMessage::Write(value? + 1));
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Wait)
    }
}
