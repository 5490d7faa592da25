//! Sieve: numbers go through a row of filters, which grows at its end.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::BATCH;
use super::problems::sieve::{Filter, Sifted, candidates, check};
use super::runtime::{done, finish};

enum FilterMessage {
    Number(u64),
    /// No more numbers follow. Holds the number of primes of the filters so far.
    End(u64),
}

/// Ends after the last number.
struct Sifter {
    filter: Filter,
    next: Option<Address<FilterMessage>>,
    source: Address<Primes>,
}

impl Process for Sifter {
    type Message = FilterMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<FilterMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(FilterMessage::Number(number)) => match (self.filter.sift(number), self.next) {
                    (Sifted::Divided | Sifted::Kept, _) => {}
                    (Sifted::Passed, Some(next)) => out.send(next, FilterMessage::Number(number)),
                    (Sifted::Passed, None) => {
                        let next = Sifter { filter: Filter::new(number), next: None, source: self.source };
                        self.next = Some(out.spawn(next)?);
                    }
                },
                Event::Message(FilterMessage::End(before)) => {
                    let primes = before + self.filter.primes();
                    match self.next {
                        Some(next) => out.send(next, FilterMessage::End(primes)),
                        None => out.send(self.source, Primes(primes)),
                    }
                    return Ok(Step::Done(()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The number of primes that the filters have together.
struct Primes(u64);

/// The source of the numbers. It ends when the last filter has reported the number of primes.
struct Source<I> {
    candidates: I,
    first: Option<Address<FilterMessage>>,
}

impl<I: Iterator<Item = u64> + Send + 'static> Process for Source<I> {
    type Message = Primes;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Primes>, out: &mut StepOutput) -> StepResult<u64> {
        match events.next() {
            Some(Event::Message(Primes(primes))) => return Ok(Step::Done(primes)),
            Some(_) => return Ok(Step::Done(0)),
            None => {}
        }
        let first = match self.first {
            Some(first) => first,
            None => out.spawn(Sifter { filter: Filter::new(2), next: None, source: out.pid().typed() })?,
        };
        self.first = Some(first);
        for _ in 0..BATCH {
            let Some(number) = self.candidates.next() else {
                out.send(first, FilterMessage::End(0));
                return Ok(Step::Idle);
            };
            out.send(first, FilterMessage::Number(number));
        }
        Ok(Step::Continue)
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let primes = done(&runtime.spawn(Source { candidates: candidates(setting.n), first: None })?)?;
    let measured = Measured::since(began, setting.n);
    check(primes, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
