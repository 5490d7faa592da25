//! Workloads of a watchdog: messages between processes, beside other steps that are stuck.

use std::time::Duration;

use procession::config::Watchdog;
use procession::sync::Latch;
use procession::{Events, Process, Runtime, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::messages;

/// The limit of the watchdog.
const WATCHED: Duration = Duration::from_millis(10);

fn watched(setting: &Setting) -> Outcome<Runtime> {
    let watchdog = Watchdog::after(WATCHED).spare_workers(setting.workers);
    Ok(Runtime::builder().workers(setting.workers).watchdog(watchdog).start()?)
}

pub(crate) fn pingpong_watched(setting: &Setting) -> Outcome<Measured> {
    messages::circle_in(&watched(setting)?, setting, 2, || ())
}

/// Blocks its worker in its first step.
struct Stuck {
    begun: Latch<()>,
    go: Latch<()>,
}

impl Process for Stuck {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        let _ = self.begun.set(());
        self.go.wait();
        Ok(Step::Done(()))
    }
}

/// All workers are stuck at all times. The measured time includes the time until the watchdog notices this.
pub(crate) fn pingpong_beside_stuck(setting: &Setting) -> Outcome<Measured> {
    let runtime = watched(setting)?;
    let go = Latch::new();
    for _ in 0..setting.workers {
        let begun = Latch::new();
        runtime.spawn(Stuck { begun: begun.clone(), go: go.clone() })?;
        begun.wait();
    }
    messages::circle_in(&runtime, setting, 2, move || {
        let _ = go.set(());
    })
}
