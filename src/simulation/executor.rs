//! The executor of a world: a turn is one step, and what it wakes is an entry of the world.

use super::decision::{Choose as _, Odds, Place};
use super::entries::Entry;
use super::recorder::{fold_yields, took};
use super::shared::Shared;
use super::trace_formatter::TraceFormatter;
use crate::outcome::{Exit, Panic, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::Answer;
use crate::process::step_activity::Sight;
use crate::runtime::dispatch::Core;
use crate::runtime::simulated::INJECTED;
use crate::sched::body::{Ready, StepOutput, Stepped, Verdict};
use crate::sched::counters::Counters;
use crate::sched::road::{Executor, count_step};
use crate::sched::step_waits::StepWaits;

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
    /// The number of messages that wait for this step.
    waiting: usize,
    /// How messages are shown, if the turn is recorded.
    formatter: Option<Arc<TraceFormatter>>,
    /// The messages that waited for this step, if the turn is recorded.
    before: Vec<(Option<Pid>, String)>,
    /// The marks of messages whose waits are measured.
    waits: StepWaits,
}

impl<'a> WorldExecutor<'a> {
    pub(super) fn new(shared: &'a Shared, runtime: usize, core: &'a Core, (pid, nth): (Pid, u32)) -> Self {
        WorldExecutor {
            shared,
            runtime,
            core,
            pid,
            nth,
            yields: 0,
            spoils: false,
            waiting: 0,
            formatter: None,
            before: Vec::new(),
            waits: StepWaits::default(),
        }
    }

    /// Prepares the step of the turn. `formatter` shows its messages, if the turn is recorded.
    pub(super) fn begins_step(&mut self, body: &Ready, formatter: Option<Arc<TraceFormatter>>) {
        self.waiting = body.machine.held();
        self.formatter = formatter;
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

    fn begins(&mut self, _: Pid, body: &mut Ready) {
        self.core.road.prepare_span(body);
        self.waits.begin(&self.core.road, body);
    }

    fn given(&mut self, body: &mut Ready) {
        self.waits.take(&self.core.road, body);
    }

    fn not_stepped(&mut self, body: &mut Ready) {
        self.waits.put_back(body);
    }

    fn counts_step(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) {
        self.core.road.finish_span(body, out);
        count_step(self, body, out, stepped);
        if let Some(figures) = &self.core.road.outside.figures
            && self.waits.has_marks()
        {
            self.waits.returned((figures, None), body, stepped);
        }
    }

    fn sight(&self) -> Option<&Sight> {
        Some(&self.shared.sight)
    }

    fn about_now(&self) -> u64 {
        self.core.road.now_micros()
    }

    fn allow(&mut self, body: &Ready, budget: u32) -> u32 {
        if let Some(formatter) = &self.formatter {
            self.before = formatter.waiting(body);
        }
        let most = self.waiting.min(budget as usize) as u64;
        if most < 2 {
            return budget;
        }
        let state = &mut *self.shared.state();
        let place = Place::Events { of: self.pid, nth: self.nth };
        let events = if state.is_ending { 0 } else { state.chooser.decide(place, Odds::Below(most)) };
        if events == 0 { budget } else { events as u32 }
    }

    fn started(&mut self, out: &StepOutput) {
        fold_yields(&mut self.shared.state().fold, out);
        if let Some(formatter) = &self.formatter {
            let yields = formatter.yields(out);
            self.shared.state().recorder.shows(self.pid, Vec::new(), yields);
        }
    }

    fn not_begun(&mut self, body: &Ready, out: &StepOutput) {
        if let Some(Exit::Panicked(panic)) = &out.failure {
            self.shared.panicked(format!(
                "`init` or `start` of {} {} {panic}",
                self.pid,
                (body.machine.kind().process)()
            ));
        }
    }

    fn polled(&mut self, _: &Ready, answer: &Answer) {
        self.shared.may_have_panicked("a future", self.pid, answer);
    }

    fn stepped(&mut self, body: &mut Ready, out: &mut StepOutput, mut stepped: Stepped) -> Stepped {
        if std::mem::take(&mut self.spoils) && stepped.verdict != Verdict::Broken {
            drop_contained(out.successor.take());
            out.failure = Some(Exit::Panicked(Panic::new(Box::new(INJECTED))));
            stepped.verdict = Verdict::Broken;
        } else if let (Verdict::Broken, Some(Exit::Panicked(panic))) = (stepped.verdict, &out.failure) {
            let kind = (body.machine.kind().process)();
            self.shared.panicked(format!("{} {kind} {panic}", self.pid));
        }
        {
            let state = &mut *self.shared.state();
            let to = (&mut state.fold, &mut state.order, &mut state.recorder);
            took(to, &self.shared.sight, self.pid, &stepped, out);
        }
        if let Some(formatter) = &self.formatter {
            let taken = formatter.taken(std::mem::take(&mut self.before), body);
            let yields = if stepped.verdict == Verdict::Broken { Vec::new() } else { formatter.yields(out) };
            self.shared.state().recorder.shows(self.pid, taken, yields);
        }
        if matches!(stepped.verdict, Verdict::Done | Verdict::Broken) {
            // It may be about to end.
            self.shared.deliver_held(|pair| (pair.0, pair.1) == (self.runtime, self.pid));
        }
        stepped
    }

    fn pause(&mut self) {
        let index = self.yields;
        self.yields += 1;
        (self.shared.pause)(self.shared, self.pid, self.nth, index);
    }
}
