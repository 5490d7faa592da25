//! One process publishes messages, and many get each of them.

use std::sync::Arc;
use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Tally, check};
use super::runtime::{done, finish};
use super::shape::SUBSCRIBERS;

/// The subscribers that have got everything.
static REPORTS: Tally = Tally::new();

/// The group of the subscribers, in the workload that has one.
const GROUP: &str = "subscribers";

struct Bulletin {
    number: u64,
}

/// Gets bulletins, which must be in order.
struct Subscriber {
    had: u64,
    of: u64,
}

impl Process for Subscriber {
    type Message = Arc<Bulletin>;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Arc<Bulletin>>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(bulletin) if bulletin.number == self.had => self.had += 1,
                Event::Message(_) => return Err("a bulletin is missing".into()),
                Event::Cancel(_) => return Ok(Step::Done(self.had)),
                _ => {}
            }
        }
        if self.had < self.of {
            return Ok(Step::Idle);
        }
        REPORTS.strike();
        Ok(Step::Done(self.had))
    }
}

/// The receivers of a publisher.
enum Audience {
    List(Vec<Address<Arc<Bulletin>>>),
    Group,
}

/// Publishes one bulletin in each step.
struct Publisher {
    to: Audience,
    published: u64,
    of: u64,
}

impl Process for Publisher {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let bulletin = Arc::new(Bulletin { number: self.published });
        match &self.to {
            Audience::List(list) => list.iter().for_each(|one| out.send(*one, bulletin.clone())),
            Audience::Group => _ = out.broadcast(GROUP, bulletin),
        }
        self.published += 1;
        Ok(if self.published == self.of { Step::Done(()) } else { Step::Continue })
    }
}

pub(crate) fn pubsub(setting: &Setting) -> Outcome<Measured> {
    publish(setting, |_, list| Ok(Audience::List(list)))
}

pub(crate) fn pubsub_group(setting: &Setting) -> Outcome<Measured> {
    publish(setting, |runtime, list| {
        for one in list {
            runtime.join_group(GROUP, one)?;
        }
        Ok(Audience::Group)
    })
}

fn publish(
    setting: &Setting,
    audience: impl FnOnce(&procession::Runtime, Vec<Address<Arc<Bulletin>>>) -> Outcome<Audience>,
) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let of = (setting.n / SUBSCRIBERS).max(1);
    REPORTS.expect(SUBSCRIBERS);
    let mut subscribers = Vec::new();
    for _ in 0..SUBSCRIBERS {
        subscribers.push(runtime.spawn(Subscriber { had: 0, of })?);
    }
    let to = audience(&runtime, subscribers.iter().map(|subscriber| subscriber.address()).collect())?;
    let began = Instant::now();
    done(&runtime.spawn(Publisher { to, published: 0, of })?)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, of * SUBSCRIBERS);
    finish(&runtime)?;
    for subscriber in &subscribers {
        check("bulletins", done(subscriber)?, of)?;
    }
    Ok(measured)
}
