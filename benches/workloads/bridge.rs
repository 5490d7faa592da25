//! Workloads of async code: async processes, futures as commands, and feeds.

use std::time::{Duration, Instant};

use procession::async_process::Context;
use procession::{Address, BoxError, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag, async_process};

use super::measure::{Measured, Outcome, Setting, Workload, check};
use super::runtime::{done, finish};
use super::shape::{BATCH, FEED, last_hop};

/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(120);

/// The workloads of async code.
pub(crate) const BRIDGE: [Workload; 4] = [
    Workload {
        name: "async_pingpong",
        counts: "messages between 2 async processes",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pingpong,
    },
    Workload {
        name: "async_counting",
        counts: "messages from 1 process to an async process",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: counting,
    },
    Workload {
        name: "future_ready",
        counts: "futures that are ready, one after the other",
        op: "future",
        n: 1_000_000,
        smoke: 10_000,
        run: future_ready,
    },
    Workload {
        name: "feed",
        counts: "items of a feed with a limit of 64",
        op: "item",
        n: 2_000_000,
        smoke: 20_000,
        run: feed,
    },
];

/// A token, with the number of hops that are left.
enum Token {
    Hop(u64),
    /// The other process.
    Meet(Address<Token>),
}

/// Passes the token on.
async fn hopper(context: Context<Token>) -> Result<u64, BoxError> {
    let (mut other, mut had) = (None, 0);
    while let Some(token) = context.next().await {
        match token {
            Token::Hop(left) => {
                had += 1;
                match other {
                    Some(next) if left > 0 => context.send(next, Token::Hop(left - 1)),
                    _ => return Ok(had),
                }
            }
            Token::Meet(next) => other = Some(next),
        }
    }
    Ok(had)
}

fn pingpong(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let hoppers = [runtime.spawn(async_process(hopper))?, runtime.spawn(async_process(hopper))?];
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

enum CounterMessage {
    Add(u64),
    Read(Reply<u64>),
}

async fn counter(context: Context<CounterMessage>) -> Result<(), BoxError> {
    let mut total = 0;
    while let Some(message) = context.next().await {
        match message {
            CounterMessage::Add(n) => total += n,
            CounterMessage::Read(reply) => context.reply(reply, total),
        }
    }
    Ok(())
}

/// Sends without waiting, a batch in each step.
struct Producer {
    to: Address<CounterMessage>,
    left: u64,
}

impl Process for Producer {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            out.send(self.to, CounterMessage::Add(1));
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

fn counting(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let counter = runtime.spawn(async_process(counter))?;
    let began = Instant::now();
    let producer = runtime.spawn(Producer { to: counter.address(), left: setting.n })?;
    done(&producer)?;
    let total = runtime.ask(&counter, CounterMessage::Read, LIMIT).wait()?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    check("messages", total, setting.n)?;
    Ok(measured)
}

/// Yields a future that is ready, takes its answer, and yields the next one.
struct Futures {
    left: u64,
    sum: u64,
    tag: Option<Tag<u64>>,
}

impl Process for Futures {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            if let Event::Completed(answer) = event
                && let Some(one) = answer.take(self.tag)
            {
                self.sum += one?;
            }
        }
        if self.left == 0 {
            return Ok(Step::Done(self.sum));
        }
        self.left -= 1;
        self.tag = Some(out.future(async { 1 }));
        Ok(Step::Wait)
    }
}

fn future_ready(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let futures = runtime.spawn(Futures { left: setting.n, sum: 0, tag: None })?;
    let sum = done(&futures)?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    check("answers", sum, setting.n)?;
    Ok(measured)
}

/// Takes the items of a feed, which a future of another process puts into it.
struct Fed {
    left: u64,
}

impl Process for Fed {
    type Message = u64;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        let (feed, items) = (out.feed::<u64>(FEED), self.left);
        let putter = async_process(async move |_: Context<()>| {
            for n in 0..items {
                feed.put(n).await?;
            }
            Ok(())
        });
        out.spawn(putter)?;
        Ok(())
    }

    fn step(&mut self, events: &mut Events<u64>, _: &mut StepOutput) -> StepResult<()> {
        self.left -= events.filter(|event| matches!(event, Event::Message(_))).count() as u64;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Idle })
    }
}

fn feed(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let fed = runtime.spawn(Fed { left: setting.n })?;
    done(&fed)?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    Ok(measured)
}
