//! Timers of many processes: each sets one after the other. They fire, or they are cancelled long before.

use std::time::{Duration, Instant};

use procession::command::TimerFired;
use procession::{Event, Events, Process, Step, StepOutput, StepResult, Tag};

use super::measure::{Measured, Outcome, Setting, Tally, check};
use super::runtime::{done, finish};
use super::shape::{TIMERS_EACH, Walk};

/// The processes whose timers are all answered.
static REPORTS: Tally = Tally::new();

/// The delay of a timer that is cancelled. It never passes.
const LONG: Duration = Duration::from_secs(3_600);

struct Begin;

/// Sleeps for several random durations.
struct Sleeper {
    walk: Walk,
    left: u64,
    timer: Option<Tag<TimerFired>>,
    fired: u64,
}

impl Sleeper {
    fn sleep(&mut self, out: &mut StepOutput) -> Step<u64> {
        if self.left == 0 {
            REPORTS.strike();
            return Step::Done(self.fired);
        }
        self.left -= 1;
        self.timer = Some(out.after(self.walk.delay()));
        Step::Idle
    }
}

impl Process for Sleeper {
    type Message = Begin;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Begin>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Begin) => return Ok(self.sleep(out)),
                Event::Completed(done) => {
                    if let Some(answer) = done.take(self.timer) {
                        answer?;
                        self.fired += 1;
                        return Ok(self.sleep(out));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.fired)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sets a timer in each step, and cancels it in the next one, as for a time limit that is rarely reached.
struct Busy {
    begun: bool,
    of: u64,
    left: u64,
    timer: Option<Tag<TimerFired>>,
    cancelled: u64,
}

impl Process for Busy {
    type Message = Begin;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Begin>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Begin) => self.begun = true,
                Event::Completed(done) if done.is(self.timer) => return Err("the time limit was reached".into()),
                // An earlier timer, which was cancelled.
                Event::Completed(_) => self.cancelled += 1,
                Event::Cancel(_) => return Ok(Step::Done(self.cancelled)),
                _ => {}
            }
        }
        if !self.begun {
            return Ok(Step::Idle);
        }
        if let Some(timer) = self.timer.take() {
            out.cancel_timer(timer);
        }
        if self.left > 0 {
            self.left -= 1;
            self.timer = Some(out.after(LONG));
            return Ok(Step::Continue);
        }
        if self.cancelled < self.of {
            return Ok(Step::Idle);
        }
        REPORTS.strike();
        Ok(Step::Done(self.cancelled))
    }
}

pub(crate) fn fired(setting: &Setting) -> Outcome<Measured> {
    set_timers(setting, |process, left| Sleeper { walk: Walk::new(process), left, timer: None, fired: 0 })
}

pub(crate) fn cancelled(setting: &Setting) -> Outcome<Measured> {
    set_timers(setting, |_, of| Busy { begun: false, of, left: of, timer: None, cancelled: 0 })
}

/// Runs processes that set timers. `process` makes the one with this number, which sets so many.
fn set_timers<P: Process<Message = Begin, Output = u64>>(
    setting: &Setting,
    process: impl Fn(u64, u64) -> P,
) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let processes = (setting.n / TIMERS_EACH).max(1);
    let mut handles = Vec::new();
    for one in 0..processes {
        handles.push(runtime.spawn(process(one, setting.share(one, processes)))?);
    }
    REPORTS.expect(processes);
    let began = Instant::now();
    for handle in &handles {
        runtime.send(handle.address(), Begin)?;
    }
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    let mut answered = 0;
    for handle in &handles {
        answered += done(handle)?;
    }
    check("timers answered", answered, setting.n)?;
    Ok(measured)
}
