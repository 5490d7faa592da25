//! ForkJoinThroughput: actors get messages in turn, one in each round. ForkJoinCreate: actors are created, get one
//! message, and end.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Tally, check};
use super::problems::work::square_of_sine;
use super::problems::{BATCH, THROUGHPUT_ACTORS};
use super::runtime::{done, finish};

struct Work;

/// Ends when it has done its share of the work.
struct Worker {
    left: u64,
    done: u64,
}

impl Process for Worker {
    type Message = Work;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Work>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Work) => {
                    square_of_sine();
                    self.done += 1;
                    self.left -= 1;
                }
                Event::Cancel(_) => return Ok(Step::Done(self.done)),
                _ => {}
            }
        }
        Ok(if self.left == 0 { Step::Done(self.done) } else { Step::Idle })
    }
}

/// Sends a message to each worker in a step.
struct Rounds {
    workers: Vec<Address<Work>>,
    left: u64,
}

impl Process for Rounds {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        for worker in &self.workers {
            out.send(*worker, Work);
        }
        self.left -= 1;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

pub(crate) fn throughput(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let mut workers = Vec::new();
    for _ in 0..THROUGHPUT_ACTORS {
        workers.push(runtime.spawn(Worker { left: setting.n, done: 0 })?);
    }
    runtime.spawn(Rounds { workers: workers.iter().map(|worker| worker.address()).collect(), left: setting.n })?;
    let mut messages = 0;
    for worker in &workers {
        messages += done(worker)?;
    }
    let measured = Measured::since(began, setting.n * THROUGHPUT_ACTORS);
    check("messages worked on", messages, setting.n * THROUGHPUT_ACTORS)?;
    finish(&runtime)?;
    Ok(measured)
}

/// The number of workers that have ended.
static ENDED: Tally = Tally::new();

/// Ends with its first message. Its drop shows that it has ended, as with the other libraries.
struct Mayfly;

impl Drop for Mayfly {
    fn drop(&mut self) {
        ENDED.strike();
    }
}

impl Process for Mayfly {
    type Message = Work;
    type Output = ();

    fn step(&mut self, events: &mut Events<Work>, _: &mut StepOutput) -> StepResult<()> {
        if events.next().is_none() {
            return Ok(Step::Idle);
        }
        square_of_sine();
        Ok(Step::Done(()))
    }
}

struct Creator {
    left: u64,
}

impl Process for Creator {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            let mayfly = out.spawn(Mayfly)?;
            out.send(mayfly, Work);
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

pub(crate) fn create(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    ENDED.expect(setting.n);
    let began = Instant::now();
    done(&runtime.spawn(Creator { left: setting.n })?)?;
    ENDED.wait()?;
    let measured = Measured::since(began, setting.n);
    let spawned = runtime.stats().spawned;
    finish(&runtime)?;
    check("processes spawned", spawned, setting.n + 1)?;
    Ok(measured)
}
