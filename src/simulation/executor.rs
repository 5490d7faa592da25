//! The executor of a world: a turn is one step, and what it wakes is an entry of the world.

use super::decision::{Choose as _, Odds, Place};
use super::entries::Entry;
use super::recorder::took;
use super::shared::Shared;
use crate::outcome::{Exit, Panic, drop_contained};
use crate::pid::Pid;
use crate::process::step_activity::Sight;
use crate::runtime::dispatch::Core;
use crate::sched::body::{Head, Ready, StepOutput, Stepped, Verdict};
use crate::sched::counters::Counters;
use crate::sched::road::Executor;

/// Gives one turn in a world.
pub(super) struct WorldExecutor<'a> {
    shared: &'a Shared,
    runtime: usize,
    core: &'a Core,
    pid: Pid,
    /// The number of the turn of this process, from zero.
    nth: u32,
    /// The number of yields that were performed.
    yields: u32,
    /// Whether the step panics at its end.
    pub(super) spoils: bool,
    /// The messages that wait for this step.
    waiting: usize,
}

impl<'a> WorldExecutor<'a> {
    pub(super) fn new(shared: &'a Shared, runtime: usize, core: &'a Core, (pid, nth): (Pid, u32)) -> Self {
        WorldExecutor { shared, runtime, core, pid, nth, yields: 0, spoils: false, waiting: 0 }
    }

    /// Records the beginning of the turn.
    pub(super) fn begin_turn(&mut self, body: &Ready) {
        let mut waiting = 0;
        body.machine.show_messages(&mut |_, _| waiting += 1);
        self.waiting = waiting;
        let elapsed = self.shared.elapsed();
        let state = &mut *self.shared.state();
        state.fold.add(&[6, self.pid.to_word(), u64::from(self.nth)]);
        let hash = state.fold.value();
        state.recorder.begin(self.pid, body, (elapsed, hash));
    }
}

impl Executor for WorldExecutor<'_> {
    const STEPS_IN_A_ROW: u32 = 1;

    fn counters(&self) -> &Counters {
        &self.core.road.outside
    }

    fn woken(&mut self, ready: Ready) {
        self.shared.state().entries.push(Entry::Turn(ready, self.runtime));
    }

    fn spawned(&mut self, ready: Ready) {
        self.shared.state().entries.push(Entry::Turn(ready, self.runtime));
    }

    /// Every other process is ready for another worker at once.
    fn goes_on(&mut self, _: bool) -> bool {
        false
    }

    fn let_go(&mut self) {}

    fn begins(&mut self, _: Pid) {}

    fn sight(&self) -> Option<&Sight> {
        Some(&self.shared.sight)
    }

    fn about_now(&self) -> u64 {
        self.core.road.now_micros()
    }

    fn allow(&mut self, _: &Head, budget: u32) -> u32 {
        let most = self.waiting.min(budget as usize) as u64;
        if most < 2 {
            return budget;
        }
        let state = &mut *self.shared.state();
        let place = Place::Events { of: self.pid, nth: self.nth };
        let events = if state.is_ending { 0 } else { state.chooser.decide(place, Odds::Below(most)) };
        if events == 0 { budget } else { events as u32 }
    }

    fn stepped(&mut self, body: &mut Ready, out: &mut StepOutput, mut stepped: Stepped) -> Stepped {
        if std::mem::take(&mut self.spoils) && stepped.verdict != Verdict::Broken {
            drop_contained(out.successor.take());
            out.failure = Some(Exit::Panicked(Panic::new(Box::new("injected by the simulation"))));
            stepped.verdict = Verdict::Broken;
        } else if let (Verdict::Broken, Some(Exit::Panicked(panic))) = (stepped.verdict, &out.failure) {
            let kind = (body.machine.kind().process)();
            self.shared.panicked(format!("{} {kind} panicked: {panic}", self.pid));
        }
        let state = &mut *self.shared.state();
        let to = (&mut state.fold, &mut state.order, &mut state.recorder);
        took(to, &self.shared.sight, self.pid, &stepped, out);
        stepped
    }

    fn pause(&mut self) {
        let index = self.yields;
        self.yields += 1;
        (self.shared.pause)(self.shared, self.pid, self.nth, index);
    }
}
