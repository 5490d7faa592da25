//! Workloads of actors: those of messages, with actors instead of processes that are written by hand.

use std::time::{Duration, Instant};

use procession::actor::{Actions, Actor, actor};
use procession::{Address, BoxError, Event, Events, Process, Reply, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Workload, check};
use super::runtime::{done, finish};
use super::shape::{BATCH, last_hop};

/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(120);

/// The workloads of actors.
pub(crate) const ACTORS: [Workload; 3] = [
    Workload {
        name: "actor_pingpong",
        counts: "messages between 2 actors",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pingpong,
    },
    Workload {
        name: "actor_counting",
        counts: "messages from 1 process to an actor, 1 a step",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: counting::<1>,
    },
    Workload {
        name: "actor_counting_100",
        counts: "the same, 100 a step",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: counting::<100>,
    },
];

/// A token, with the number of hops that are left.
enum Token {
    Hop(u64),
    /// The other actor.
    Meet(Address<Token>),
}

/// Passes the token on.
struct Hopper {
    next: Option<Address<Token>>,
    had: u64,
}

impl Actor for Hopper {
    type Message = Token;
    type Output = u64;

    fn receive(&mut self, token: Token, out: &mut Actions<Self>) -> Result<(), BoxError> {
        match token {
            Token::Hop(left) => {
                self.had += 1;
                match self.next {
                    Some(next) if left > 0 => out.send(next, Token::Hop(left - 1)),
                    _ => out.stop(),
                }
            }
            Token::Meet(next) => self.next = Some(next),
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<u64, BoxError> {
        Ok(self.had)
    }
}

fn pingpong(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let hopper = || runtime.spawn(actor(Hopper { next: None, had: 0 }));
    let hoppers = [hopper()?, hopper()?];
    runtime.send(&hoppers[0], Token::Meet(hoppers[1].address()))?;
    runtime.send(&hoppers[1], Token::Meet(hoppers[0].address()))?;
    let began = Instant::now();
    runtime.send(&hoppers[0], Token::Hop(setting.n - 1))?;
    done(&hoppers[last_hop(setting.n, 2)])?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    check("hops", done(&hoppers[0])? + done(&hoppers[1])?, setting.n)?;
    Ok(measured)
}

struct Counter<const STEP: usize> {
    total: u64,
}

enum CounterMessage {
    Add(u64),
    Read(Reply<u64>),
}

impl<const STEP: usize> Actor for Counter<STEP> {
    type Message = CounterMessage;
    type Output = ();

    const MESSAGES_A_STEP: usize = STEP;

    fn receive(&mut self, message: CounterMessage, out: &mut Actions<Self>) -> Result<(), BoxError> {
        match message {
            CounterMessage::Add(n) => self.total += n,
            CounterMessage::Read(reply) => out.reply(reply, self.total),
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Sends without waiting, a batch in each step.
struct Producer {
    to: Address<CounterMessage>,
    left: u64,
}

impl Process for Producer {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(Event::Cancel(_)) = events.next() {
            return Ok(Step::Done(()));
        }
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            out.send(self.to, CounterMessage::Add(1));
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

fn counting<const STEP: usize>(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let counter = runtime.spawn(actor(Counter::<STEP> { total: 0 }))?;
    let began = Instant::now();
    done(&runtime.spawn(Producer { to: counter.address(), left: setting.n })?)?;
    let total = runtime.ask(&counter, CounterMessage::Read, LIMIT).wait()?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
