//! Trapezoidal: a master gives each worker a share of the pieces, and adds up their areas.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::trapezoid::{Share, WORKERS, check};
use super::runtime::{done, finish};

/// Ends with the area.
struct Master {
    pieces: u64,
    to_come: u64,
    area: f64,
}

struct Area(f64);

impl Process for Master {
    type Message = Area;
    type Output = f64;

    fn step(&mut self, events: &mut Events<Area>, out: &mut StepOutput) -> StepResult<f64> {
        if self.to_come == 0 {
            for number in 0..WORKERS {
                let worker = out.spawn(Worker { master: out.pid().typed() })?;
                out.send(worker, Share::of(number, self.pieces));
            }
            self.to_come = WORKERS;
        }
        for event in events {
            match event {
                Event::Message(Area(area)) => {
                    self.area += area;
                    self.to_come -= 1;
                    if self.to_come == 0 {
                        return Ok(Step::Done(self.area));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.area)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Ends with the area of its share.
struct Worker {
    master: Address<Area>,
}

impl Process for Worker {
    type Message = Share;
    type Output = ();

    fn step(&mut self, events: &mut Events<Share>, out: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(share)) => out.send(self.master, Area(share.area())),
            Some(_) => {}
            None => return Ok(Step::Idle),
        }
        Ok(Step::Done(()))
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let area = done(&runtime.spawn(Master { pieces: setting.n, to_come: 0, area: 0.0 })?)?;
    let measured = Measured::since(began, setting.n);
    check(area, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
