//! Random steps that take, pass over and leave events, against a plain list of the messages that are left.

use std::sync::Arc;
use std::time::Duration;

use procession::feed::Feed;
use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, Event, Events, Exit, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

/// The mailbox, and the feeds.
const SOURCES: usize = 3;

/// The most messages that the process sends to itself in one run.
const OWN_MESSAGES: u64 = 30;

/// How a step has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Says {
    #[default]
    Idle,
    Wait,
    /// Another step follows in any case.
    Again,
}

/// The last step, and the messages that no step has taken.
#[derive(Debug, Default)]
struct Record {
    /// The numbers of the messages and items, in the order in which they were accepted.
    left: [Vec<u64>; SOURCES],
    feeds: Vec<Feed<Letter>>,
    numbers: u64,
    own: u64,
    /// From now on each step takes all that it is given.
    drains: bool,
    is_faulty: bool,
    is_first: bool,
    steps: u64,
    /// The most steps that there can be a reason for.
    reasons: u64,
    said: Says,
    /// Whether the last step was not offered the messages.
    is_after_wait: bool,
    touched: bool,
    /// How many of those that are left the last step was shown.
    shown: [usize; SOURCES],
    /// The newest number that any step was shown.
    newest: [Option<u64>; SOURCES],
}

type Shared = Arc<Mutex<Record>>;

/// A message. If it is dropped without being taken, it is no longer left.
struct Letter {
    source: usize,
    number: u64,
    record: Shared,
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.source, self.number)
    }
}

impl Letter {
    /// A message that is about to be sent.
    fn new(record: &Shared, source: usize) -> Letter {
        let mut inner = record.lock().unwrap();
        inner.numbers += 1;
        inner.reasons += 2;
        let number = inner.numbers;
        inner.left[source].push(number);
        Letter { source, number, record: record.clone() }
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.record.lock().unwrap().left[self.source].retain(|number| *number != self.number);
    }
}

impl Record {
    fn begin_step(&mut self) -> u64 {
        self.steps += 1;
        self.is_after_wait = self.said == Says::Wait;
        (self.touched, self.shown) = (false, [0; SOURCES]);
        if self.drains { u64::MAX } else { 0 }
    }

    /// A message is shown. Returns whether it is wanted, and takes it off the list then.
    fn show(&mut self, letter: &Letter, wants: bool) -> bool {
        let Letter { source, number, .. } = *letter;
        let place = self.shown[source];
        // In order, and none is left out.
        self.is_faulty |= self.left[source].get(place) != Some(&number) || self.is_after_wait;
        self.touched = true;
        if self.newest[source] < Some(number) {
            self.newest[source] = Some(number);
            self.reasons += 1;
        }
        if wants {
            self.left[source].remove(place);
            self.reasons += 1;
        } else {
            self.shown[source] += 1;
        }
        wants
    }

    /// The fault, if the process rests now.
    fn fault_at_rest(&self) -> Option<&'static str> {
        let left: usize = self.left.iter().map(Vec::len).sum();
        if self.is_faulty {
            Some("a step was not shown the oldest messages in order")
        } else if self.said != Says::Idle {
            Some("it rests although it did not say so")
        } else if self.touched && self.shown != [0, 1, 2].map(|source| self.left[source].len()) {
            Some("it rests although the last step has left messages that it was not shown")
        } else if self.is_after_wait && left > 0 {
            Some("it rests although the last step was not offered the messages")
        } else if self.drains && left > 0 {
            Some("messages are left at the end")
        } else if self.steps > self.reasons {
            Some("it was stepped although nothing had come")
        } else {
            None
        }
    }
}

/// Does in each step what random numbers say.
struct Selecting(Shared);

impl Process for Selecting {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        let record = &self.0;
        let (drains, is_first) = {
            let mut inner = record.lock().unwrap();
            inner.begin_step();
            (inner.drains, std::mem::take(&mut inner.is_first))
        };
        if is_first {
            let feeds = (1..SOURCES).map(|_| out.feed(3)).collect();
            record.lock().unwrap().feeds = feeds;
        }
        let acts = if drains { u64::MAX } else { out.random_range(0..5) };
        for _ in 0..acts {
            // A message is of one of three kinds. Nothing is of the fourth kind.
            let kind = out.random_range(0..6);
            let takes_next = drains || kind > 3;
            let event = if takes_next && out.random_range(0..2) == 0 {
                let event = events.next();
                if let Some(Event::Message(letter)) = &event {
                    record.lock().unwrap().show(letter, true);
                }
                event
            } else {
                events.select(|letter| record.lock().unwrap().show(letter, takes_next || letter.number % 3 == kind))
            };
            match event {
                None if drains => break,
                None => {}
                Some(Event::Message(_)) => {}
                Some(_) => record.lock().unwrap().touched = true,
            }
        }
        let says = if drains { 0 } else { out.random_range(0..12) };
        let (to_itself, delay) = (out.random_range(0..3) == 0, Duration::from_millis(out.random_range(0..3)));
        let mut inner = record.lock().unwrap();
        if to_itself && !drains && inner.own < OWN_MESSAGES && says != 11 {
            inner.own += 1;
            drop(inner);
            let me: Address<Letter> = out.pid().typed();
            out.send(me, Letter::new(record, 0));
            inner = record.lock().unwrap();
        }
        if says == 7 {
            inner.reasons += 2;
            out.after(delay);
        }
        inner.reasons += u64::from(says > 7) * 2;
        inner.said = match says {
            0..=7 => Says::Idle,
            8 => Says::Wait,
            _ => Says::Again,
        };
        drop(inner);
        match says {
            0..=7 => Ok(Step::Idle),
            8 => {
                out.after(delay);
                Ok(Step::Wait)
            }
            9 => Ok(Step::Continue),
            10 => Ok(Step::Upgrade(Upgrade::to(Selecting(record.clone())))),
            _ => Err("by chance".into()),
        }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Selecting(self.0.clone())).even_if_stopping())
    }
}

fn check_at_rest(record: &Shared) -> Result<(), String> {
    let record = record.lock().unwrap();
    record.fault_at_rest().map_or(Ok(()), |fault| Err(format!("{fault}: {record:?}")))
}

fn scenario(world: &World) -> Result<(), BoxError> {
    let runtime: Runtime = world.start(builder().step_events(world.random(1..5) as usize))?;
    let record = Shared::default();
    (record.lock().unwrap().reasons, record.lock().unwrap().is_first) = (2, true);
    let limit = world.random(1..6) as usize;
    let options = match world.random(0..5) {
        0 => SpawnOptions::new().mailbox(limit, Overflow::Refuse),
        1 => SpawnOptions::new().mailbox(limit, Overflow::DropOldest),
        2 => SpawnOptions::new().mailbox(limit, Overflow::DropNewest),
        _ => SpawnOptions::new(),
    };
    let process = runtime.spawn_with(Selecting(record.clone()), options)?;
    for _ in 0..world.random(1..12) {
        for _ in 0..world.random(0..6) {
            let feeds = record.lock().unwrap().feeds.clone();
            let source = world.random(0..SOURCES as u64) as usize;
            // A letter that is refused is dropped.
            if source == 0 {
                drop(runtime.send(&process, Letter::new(&record, 0)));
            } else if let Some(feed) = feeds.get(source - 1) {
                drop(feed.try_put(Letter::new(&record, source)));
            }
        }
        if world.random(0..4) == 0 {
            record.lock().unwrap().reasons += 2;
            runtime.cancel(process.pid(), "something new")?;
        }
        if world.random(0..3) == 0 {
            world.run_for(Duration::from_micros(world.random(0..3_000)))?;
        } else {
            world.run()?;
            check_at_rest(&record)?;
        }
    }
    world.run()?;
    check_at_rest(&record)?;
    record.lock().unwrap().drains = true;
    record.lock().unwrap().reasons += 2;
    runtime.cancel(process.pid(), "the last event")?;
    world.run()?;
    check_at_rest(&record)?;
    let messages = runtime.stats().messages;
    let is_accounted = messages.queued == 0 && messages.accepted == messages.stepped + messages.dead();
    ensure(is_accounted, || format!("{messages:?}"))?;
    record.lock().unwrap().feeds.clear();
    Ok(())
}

#[test]
fn random_steps_are_shown_all_messages_in_order_and_rest_only_then() {
    let seeds = if std::env::var_os("PROCESSION_FULL").is_some() { 50_000 } else { 1_000 };
    println!("{seeds} seeds. `PROCESSION_FULL=1` runs 50,000.");
    Simulation::new(scenario).name("random steps that select").seeds(0..seeds).max_turns(5_000).check();
}
