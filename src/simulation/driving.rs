//! The loop of a world: what is next, and what happens around each turn.
//!
//! A world has one thread, the one that runs the scenario. Wherever that thread would wait, it *drives* the world
//! instead ([`Shared::drive`]): it lets one thing after the other happen until the wait is over. The things that can
//! happen next are `Entries`; a `Choose` decides among them.
//!
//! ```text
//! drive: until the wait is over, or its deadline has passed:
//!     a part of a shutdown waits     -> it runs
//!     something can happen           -> one of the entries is chosen, and happens
//!     nothing can, but later         -> the clock moves to the next moment: a timer, a late entry, the deadline
//!     nothing ever will              -> the world rests; a wait without a deadline fails the run
//! ```
//!
//! A turn is the runtime's own turn, with an [executor](super::executor) that makes it one step long. Before each yield
//! the executor may let others have turns, *nested* in the first one, as another worker could.
//!
//! The lock of the state is held for moments only, and never while code of a runtime or of the user runs.

use std::time::Duration;

use super::decision::{Candidate, Choose as _, Odds, Place};
use super::entries::Entry;
use super::executor::WorldExecutor;
use super::faults::What;
use super::shared::{Shared, State};
use crate::clock::{Deadline, Drive};
use crate::inside::as_step;
use crate::outcome::contain;
use crate::pid::Pid;
use crate::primitives::thread;
use crate::runtime::simulated::Job;
use crate::sched::body::{Ready, StepOutput};
use crate::sched::turn::{After, body_lost, turn};

/// The deepest turn inside of others.
const DEEPEST: u32 = 2;

/// The probability that others have a turn before a yield is performed.
const PAUSE: f64 = 0.1;

/// The longest time that a turn takes, in microseconds. The least is one.
const LONGEST_TURN: u64 = 100;

/// How often a wait may be given up after the failure of a run. A scenario that still waits is unwound.
const MOST_GIVEN_UP: u32 = 1_000;

/// The result of [`Shared::advance`].
enum Advanced {
    Moved,
    /// Nothing can happen any more.
    Rests,
}

/// Lets others have turns before the next yield of a step, perhaps.
pub(super) fn pause(shared: &Shared, of: Pid, nth: u32, index: u32) {
    shared.pause_at(of, nth, index);
}

impl Shared {
    /// Lets one thing happen, or moves the clock, at most to the deadline.
    fn advance(&self, deadline: Deadline) -> Advanced {
        let helper = self.state().helpers.pop_front();
        if let Some(helper) = helper {
            self.run_as_job(helper);
            return Advanced::Moved;
        }
        self.collect();
        if self.state().entries.is_empty() {
            let next = [self.clock.next_due_here(), self.state().entries.next_later(), deadline.0];
            let Some(next) = next.into_iter().flatten().min() else { return Advanced::Rests };
            self.clock.set_now(next.max(self.clock.now()));
            return Advanced::Moved;
        }
        if self.happens() {
            self.time_passes();
            self.ask();
        }
        Advanced::Moved
    }

    /// Gathers what can happen: processes that were woken from outside of a turn, a timer that is due, late entries.
    fn collect(&self) {
        let now = self.clock.now();
        let is_due = || self.clock.next_due_here().is_some_and(|due| due <= now);
        let has_timer = self.state().entries.has_timer() || !is_due();
        let state = &mut *self.state();
        for (core, runtime) in state.cores.iter().zip(0..) {
            while !core.road.queues.is_outside_empty()
                && let Some(ready) = core.road.queues.take_any()
            {
                state.entries.push(Entry::Turn(ready, runtime));
            }
        }
        state.entries.bring(now);
        if !has_timer {
            state.entries.push(Entry::Timer);
        }
    }

    /// Chooses an entry, and lets it happen. Returns whether something has happened.
    fn happens(&self) -> bool {
        let (entry, candidate) = {
            let state = &mut *self.state();
            let place = if state.is_ending {
                0
            } else {
                let State { entries, chooser, .. } = state;
                chooser.next(entries.candidates())
            };
            let Some(taken) = state.entries.take(place) else { return false };
            state.turns += 1;
            let is_late = state.chooser.came_late();
            state.recorder.turn(state.turns, is_late);
            taken
        };
        match entry {
            Entry::Turn(body, runtime) => self.turn(body, runtime, candidate, true),
            Entry::BlockingStep(pid, runtime) => {
                let core = self.state().cores[runtime].clone();
                if let Some(body) = core.take_from_pool(pid) {
                    self.turn(body, runtime, candidate, false);
                }
            }
            Entry::Timer => {
                self.state().fold.add(&[1]);
                as_step(true, || self.clock.fire_earliest());
            }
            Entry::Job(pid, job) => {
                self.state().fold.add(&[2, pid.to_word()]);
                self.run_as_job(job);
            }
            Entry::Answer(job) => {
                self.state().fold.add(&[3]);
                self.run_as_job(job);
            }
        }
        true
    }

    /// Gives a process a turn. In a blocking step it may wait.
    fn turn(&self, body: Ready, runtime: usize, candidate: Candidate, is_step: bool) {
        let (pid, nth) = (body.head.pid, candidate.nth);
        let process = body.machine.process().map(|process| process.type_id());
        let fault = self.inject(pid, |rule| rule.whom.is_step(pid, process, nth + 1));
        let delay = match fault {
            Some(What::Stall(most)) => Some(self.draw_time(pid, most)),
            Some(What::StallFor(time)) => Some(time),
            _ => None,
        };
        if let Some(delay) = delay {
            let entry = Entry::Turn(body, runtime);
            return self.push_after(delay, entry);
        }
        let (core, out) = {
            let state = &mut *self.state();
            state.in_hand.push((pid, runtime, process));
            if !is_step {
                state.in_job += 1;
            }
            (state.cores[runtime].clone(), state.outputs[runtime].pop())
        };
        let mut out = out.unwrap_or_else(|| StepOutput::new(core.clone()));
        let mut executor = WorldExecutor::new(self, runtime, &core, (pid, nth));
        if fault == Some(What::Crash) {
            let _ = core.terminate(&mut executor, pid, false);
        }
        executor.spoils = fault == Some(What::Panic);
        executor.begin_turn(&body);
        let dead = || core.road.outside.dead.iter().map(|count| count.get()).sum::<u64>();
        let dead_before = dead();
        let after = as_step(is_step, || contain(|| turn(&*core, &mut executor, &mut out, body)));
        let after = after.unwrap_or_else(|panic| {
            body_lost(&*core, &mut executor, &mut out, pid, panic);
            After::Nothing
        });
        let state = &mut *self.state();
        state.in_hand.pop();
        if !is_step {
            state.in_job -= 1;
        }
        if let After::Ready(body) = after {
            state.entries.push(Entry::Turn(body, runtime));
        }
        state.outputs[runtime].push(out);
        if state.recorder.is_recording() {
            if core.road.table.cell(pid).is_some_and(|cell| cell.check(pid).is_err()) {
                state.recorder.note(pid, String::from("ended"));
            }
            match dead() - dead_before {
                0 => {}
                dead => state.recorder.note(pid, format!("{dead} dead letters, also of nested turns")),
            }
        }
    }

    /// Lets others have turns before the next yield of a step, perhaps.
    fn pause_at(&self, of: Pid, nth: u32, index: u32) {
        self.collect();
        {
            let state = &mut *self.state();
            if state.is_ending || state.in_hand.len() > DEEPEST as usize || state.entries.is_empty() {
                return;
            }
            if state.chooser.decide(Place::Pause { of, nth, index }, Odds::Chance(PAUSE)) == 0 {
                return;
            }
            state.fold.add(&[4, u64::from(index)]);
        }
        self.happens();
    }

    /// Runs code that another thread would run.
    fn run_as_job(&self, job: Job) {
        self.state().in_job += 1;
        // A panic of the user's code is contained where it is called.
        let _ = as_step(false, || contain(job));
        self.state().in_job -= 1;
    }

    fn time_passes(&self) {
        let by = {
            let state = &mut *self.state();
            let place = Place::Time { turn: state.turns };
            let by = if state.is_ending { 0 } else { state.chooser.decide(place, Odds::Below(LONGEST_TURN)) };
            state.fold.add(&[5, by]);
            by
        };
        self.clock.set_now(self.clock.now() + Duration::from_micros(by + 1));
    }

    /// Asks the invariants, and the bounds of the run.
    fn ask(&self) {
        let (turns, is_nested, has_checks) = {
            let state = self.state();
            if state.is_ending || state.failure.is_some() || state.is_asking {
                return;
            }
            (state.turns, !state.in_hand.is_empty(), state.has_checks)
        };
        if turns >= self.limits.turns {
            return self.fail("the run ends", format!("it has not come to rest after {turns} turns"));
        }
        if self.elapsed() > self.limits.time {
            let limit = self.limits.time;
            return self.fail("the run ends", format!("it has not come to rest within {limit:?} of virtual time"));
        }
        if !is_nested && has_checks {
            self.ask_checks(false);
        }
    }

    /// Whether nothing more can happen.
    pub(super) fn rests(&self) -> bool {
        self.collect();
        let state = self.state();
        state.entries.is_empty()
            && state.helpers.is_empty()
            && state.entries.next_later().is_none()
            && self.clock.next_due_here().is_none()
    }

    /// Whether nothing can happen without a timer, and no handler has an open command.
    pub(super) fn is_idle(&self) -> bool {
        self.collect();
        let state = self.state();
        state.entries.is_empty() && state.helpers.is_empty() && state.open.is_empty() && !state.entries.has_late()
    }
}

impl Drive for Shared {
    fn drive(&self, is_over: &mut dyn FnMut() -> bool, deadline: Deadline) -> bool {
        if !self.is_here() {
            let thread = thread::current();
            let name = thread.name().unwrap_or("without a name");
            self.left_world(format!("the thread {name:?}, which is outside of the simulation, waits for it"));
            return is_over();
        }
        if self.state().is_asking {
            self.fail("invariants change nothing", "an invariant waits");
            return is_over();
        }
        loop {
            if is_over() {
                return true;
            }
            if deadline.0.is_some_and(|at| at <= self.clock.now()) {
                return false;
            }
            let has_failed = {
                let state = &mut *self.state();
                let has_failed = state.failure.is_some() && !state.is_ending && state.in_job == 0;
                state.given_up += u32::from(has_failed);
                if state.given_up > MOST_GIVEN_UP && !std::thread::panicking() {
                    std::panic::resume_unwind(Box::new("the run has failed"));
                }
                has_failed
            };
            if has_failed {
                return false;
            }
            if let Advanced::Rests = self.advance(deadline) {
                if deadline == Deadline::NEVER && !self.state().is_ending {
                    let open = self.describe_open();
                    self.fail("every wait ends", format!("a call of the scenario waits, and the world rests{open}"));
                }
                return false;
            }
        }
    }
}

impl Shared {
    /// Checks what must hold when the scenario has returned.
    pub(super) fn finish(&self) {
        let has_failed = self.state().failure.is_some();
        if has_failed || !self.rests() {
            return;
        }
        self.ask_checks(true);
        let (stuck, lost) = self.look(|state, _| (state.waiting(), state.unaccounted()));
        if let Some(pid) = stuck {
            let open = self.describe_open();
            let what = format!("{pid} waits for an answer, and the world rests{open}");
            self.fail("no process waits for what cannot come", what);
        }
        if let Some(lost) = lost {
            self.fail("every message is accounted for", lost);
        }
    }
}
