//! Processes that make the attempts of the driven process's retries. Each is driven by an engine of its own. Their
//! messages and commands are recorded with those of the driven process.

use super::engine::TestEngine;
use super::notes::{Handed, Notes};
use crate::clock::ManualClock;
use crate::outcome::Reason;
use crate::primitives::{Arc, lock};
use crate::sched::body::{Ready, StepOutput};
use crate::sched::cell::Birth;
use crate::sched::turn::{After, turn};

/// The helpers of one driven process.
#[derive(Default)]
pub(super) struct Helpers {
    all: Vec<Helper>,
    /// The number of helpers so far.
    count: u64,
}

struct Helper {
    engine: Arc<TestEngine>,
    out: StepOutput,
    notes: Notes,
    /// The part of its notes that the driver has.
    handed: Handed,
}

/// The tags of a helper begin at a multiple of this number. So they differ from all others that a test sees.
const TAGS: u64 = 1 << 32;

impl Helpers {
    /// Takes the helpers over that the driven process has spawned, and steps all helpers that are ready. `options` are
    /// the most events of a step, and the seed.
    pub(super) fn run(&mut self, notes: &mut Notes, clock: &ManualClock, options: (u32, u64)) {
        for mut body in notes.helpers.drain(..) {
            self.count += 1;
            body.head.tags = self.count * TAGS;
            self.all.push(Helper::new(body, clock, options));
        }
        self.all.retain_mut(|helper| helper.run(notes));
    }
}

impl Helper {
    fn new(body: Ready, clock: &ManualClock, (step_events, seed): (u32, u64)) -> Helper {
        let pid = body.head.pid;
        let engine = TestEngine::new(clock, pid, step_events, seed);
        engine.cell().install(pid.generation(), body.machine.kind(), Birth::default(), 0, || false);
        engine.road.inject(body);
        Helper { out: StepOutput::new(engine.clone()), engine, notes: Notes::default(), handed: Handed::default() }
    }

    /// Steps the helper while it is ready. Returns whether it lives.
    fn run(&mut self, of_driver: &mut Notes) -> bool {
        while !self.engine.road.queues.is_outside_empty() {
            let Some(body) = self.engine.take_body() else { break };
            std::mem::swap(&mut self.notes, &mut lock(&self.engine.notes));
            let after = turn(&*self.engine, &mut self.engine.executor(), &mut self.out, body);
            std::mem::swap(&mut self.notes, &mut lock(&self.engine.notes));
            // They are those of another process than the driven one.
            self.out.counted.clear();
            if let After::Ready(body) = after {
                self.engine.road.inject(body);
            }
        }
        self.handed.add(of_driver.take_over(&mut self.notes));
        let lives = self.engine.cell().look().is_some();
        if !lives {
            self.handed.give_up();
            self.engine.cancel_token().cancel(Reason::Ended);
        }
        lives
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // As in the drop of the driver: these break cycles through timers and questions.
        drop(self.engine.timers.stop());
        drop(self.engine.take_body());
    }
}
