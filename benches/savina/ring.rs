//! ThreadRing: a token goes round a ring, until it has made its hops.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, check};
use super::problems::RING;
use super::runtime::{done, finish};

enum RingMessage {
    /// The next actor of the ring.
    Meet(Address<RingMessage>),
    /// The token, with the number of hops that are left.
    Token(u64),
}

struct Hopper {
    next: Option<Address<RingMessage>>,
    had: u64,
}

impl Process for Hopper {
    type Message = RingMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<RingMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(RingMessage::Token(left)) => {
                    self.had += 1;
                    match self.next {
                        Some(next) if left > 0 => out.send(next, RingMessage::Token(left - 1)),
                        _ => return Ok(Step::Done(self.had)),
                    }
                }
                Event::Message(RingMessage::Meet(next)) => self.next = Some(next),
                Event::Cancel(_) => return Ok(Step::Done(self.had)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let mut hoppers = Vec::new();
    for _ in 0..RING {
        hoppers.push(runtime.spawn(Hopper { next: None, had: 0 })?);
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        runtime.send(one.address(), RingMessage::Meet(next.address()))?;
    }
    runtime.send(hoppers[0].address(), RingMessage::Token(setting.n - 1))?;
    done(&hoppers[((setting.n - 1) % RING) as usize])?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    let mut had = 0;
    for hopper in &hoppers {
        had += done(hopper)?;
    }
    check("hops", had, setting.n)?;
    Ok(measured)
}
