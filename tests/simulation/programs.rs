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
