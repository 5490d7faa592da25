//! A bug of timers: an elapsed timer is taken for another one.

use std::time::{Duration, Instant};

use procession::command::TimerFired;
use procession::simulation::{Simulation, ensure};
use procession::{Address, Completion, Event, Events, Process, Step, StepOutput, StepResult, Tag};

use super::{PlantedBug, Version, start};
use crate::programs::SECOND;

/// Statement 39. A session cancels its timer at each ping, and sets another one. The old one may have elapsed already.
/// The corrected session looks at the newest tag alone.
pub(super) const TIMER_AFTER_CANCEL: PlantedBug =
    PlantedBug { system: timer_after_cancel, breaks: "no session expires early", seeds: 1_000 };

#[test]
fn a_timer_that_elapsed_before_its_cancel_is_found() {
    TIMER_AFTER_CANCEL.is_found_in_each_batch();
}

#[test]
fn no_session_expires_early_if_tags_are_compared() {
    TIMER_AFTER_CANCEL.is_not_found_when_corrected();
}

/// How long a session lives without a ping.
const IDLE: Duration = Duration::from_secs(10);

/// How long before that a client sends a ping. If all have their turns in order, no ping is late.
const MARGIN: Duration = Duration::from_micros(20);

#[derive(Debug)]
struct Ping;

struct Session {
    version: Version,
    /// The timers that it has set, the newest last.
    timers: Vec<Tag<TimerFired>>,
    pinged: Option<Instant>,
    /// How long after the last ping it has expired.
    expired: Option<Duration>,
}

impl Session {
    /// Whether this is the answer of a timer that was not cancelled in time.
    fn has_fired(&self, done: &Completion) -> bool {
        let known = if self.version.is_corrected() { 1 } else { self.timers.len() };
        self.timers.iter().rev().take(known).any(|timer| matches!(done.take(*timer), Some(Ok(TimerFired))))
    }
}

impl Process for Session {
    type Message = Ping;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ping>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Ping) if self.expired.is_none() => {
                    self.timers.last().into_iter().for_each(|timer| out.cancel_timer(*timer));
                    self.timers.push(out.after(IDLE));
                    self.pinged = Some(out.now());
                }
                Event::Completed(done) if self.has_fired(&done) => {
                    let idle = self.pinged.map_or(IDLE, |pinged| out.now() - pinged);
                    self.expired.get_or_insert(idle);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Pings a session shortly before it expires.
struct Client {
    session: Address<Ping>,
    pings: u32,
    timer: Option<Tag<TimerFired>>,
}

impl Process for Client {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => self.timer = None,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.timer.is_none() {
            if self.pings == 0 {
                return Ok(Step::Done(()));
            }
            self.pings -= 1;
            out.send(self.session, Ping);
            self.timer = Some(out.after(IDLE - MARGIN));
        }
        Ok(Step::Idle)
    }
}

fn timer_after_cancel(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        for _ in 0..2 {
            let session = Session { version, timers: Vec::new(), pinged: None, expired: None };
            let session = runtime.spawn(session)?.address();
            runtime.spawn(Client { session, pings: 3, timer: None })?;
        }
        world.invariant("no session expires early", |state| {
            let early =
                state.processes::<Session>().find(|(_, session)| session.expired.is_some_and(|idle| idle < IDLE));
            ensure(early.is_none(), || format!("{:?}", early.map(|(pid, session)| (pid, session.expired))))
        });
        world.run_for(60 * SECOND)
    })
    .show::<Ping>()
    .show::<String>()
}
