//! Processes that ask servers: each has one question open at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use procession::{Address, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

use super::measure::{Measured, Outcome, Setting, check};
use super::runtime::{done, finish};
use super::shape::{ASKERS, SERVERS, Walk, entries_of, server_of, sum_of_answers};

/// The limit of an answer, in the workload that has one.
const LIMIT: Duration = Duration::from_secs(10);

struct Get {
    key: u64,
    reply: Reply<Option<u64>>,
}

/// Answers with the value of a key.
struct Server {
    entries: HashMap<u64, u64>,
}

impl Process for Server {
    type Message = Get;
    type Output = ();

    fn step(&mut self, events: &mut Events<Get>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Get { key, reply }) => out.reply(reply, self.entries.get(&key).copied()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Asks for random keys, one after the other, and adds the values up.
struct Asker {
    servers: Vec<Address<Get>>,
    limit: Duration,
    walk: Walk,
    left: u64,
    question: Option<Tag<Option<u64>>>,
    sum: u64,
}

impl Process for Asker {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Completed(done) => {
                    if let Some(answer) = done.take(self.question) {
                        self.sum += answer?.ok_or("a key has no value")?;
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.sum)),
                _ => {}
            }
        }
        if self.left == 0 {
            return Ok(Step::Done(self.sum));
        }
        self.left -= 1;
        let key = self.walk.key();
        self.question = Some(out.ask(self.servers[server_of(key)], |reply| Get { key, reply }, self.limit));
        Ok(Step::Wait)
    }
}

pub(crate) fn hub(setting: &Setting) -> Outcome<Measured> {
    ask_servers(setting, Duration::MAX)
}

pub(crate) fn hub_limit(setting: &Setting) -> Outcome<Measured> {
    ask_servers(setting, LIMIT)
}

fn ask_servers(setting: &Setting, limit: Duration) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let mut servers = Vec::new();
    for server in 0..SERVERS {
        servers.push(runtime.spawn(Server { entries: entries_of(server) })?.address());
    }
    let began = Instant::now();
    let mut askers = Vec::new();
    for asker in 0..ASKERS {
        let (servers, walk, left) = (servers.clone(), Walk::new(asker), setting.share(asker, ASKERS));
        askers.push(runtime.spawn(Asker { servers, limit, walk, left, question: None, sum: 0 })?);
    }
    let sums = askers.iter().map(done).collect::<Outcome<Vec<_>>>()?;
    let measured = Measured::since(began, setting.n);
    for (asker, sum) in (0..ASKERS).zip(sums) {
        check("sum of the answers", sum, sum_of_answers(asker, setting.share(asker, ASKERS)))?;
    }
    finish(&runtime)?;
    Ok(measured)
}
