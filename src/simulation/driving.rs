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

use std::any::TypeId;
use std::time::{Duration, Instant};

use super::decision::{Candidate, Choose as _, LONGEST_TURN, Odds, Place};
use super::delivery::Delivery;
use super::entries::Entry;
use super::executor::WorldExecutor;
use super::faults::What;
use super::invariants::Asked;
use super::shared::{INVARIANTS_CHANGE_NOTHING, Shared, State, TurnContext};
use super::trace_formatter::TraceFormatter;
use crate::clock::{Deadline, Drive};
use crate::inside::as_step;
use crate::outcome::contain;
use crate::pid::Pid;
use crate::primitives::{Arc, BriefGuard, thread};
use crate::process::propagation::beside_step;
use crate::runtime::simulated::Job;
use crate::sched::body::Ready;
use crate::sched::turn::{After, body_lost, turn};

/// The deepest turn inside of others.
const DEEPEST: u32 = 2;

/// The probability that others have a turn before a yield is performed.
const PAUSE: f64 = 0.1;

/// A world with nodes rests when nothing but connections has done anything for so long. A peer that is silent is down
/// by then, and one that was refused has tried again, which takes 5 s.
const QUIET: Duration = Duration::from_secs(6);

/// How often a wait may be given up after the failure of a run. A scenario that still waits is unwound.
const MOST_GIVEN_UP: u32 = 1_000;

/// The result of [`Shared::advance`].
enum Advanced {
    Moved,
    /// Nothing can happen any more.
    Rests,
    /// The run has failed, so the wait is given up.
    Failed,
}

/// Lets others have turns before the next yield of a step, perhaps.
pub(super) fn pause(shared: &Shared, of: Pid, nth: u32, index: u32) {
    shared.pause_at(of, nth, index);
}

impl Shared {
    /// Lets one thing happen, or moves the clock, at most to the deadline.
    fn advance(&self, deadline: Deadline) -> Advanced {
        let (now, is_due) = self.clock.look();
        let mut guard = self.state();
        let state = &mut *guard;
        if state.gives_up() {
            return Advanced::Failed;
        }
        state.collect_woken();
        if deadline == Deadline::NEVER && state.is_quiet(now) && self.clock.next_due_here().is_none() {
            return Advanced::Rests;
        }
        if let Some((runtime, helper)) = state.helpers.pop_front() {
            state.helped.insert(runtime);
            drop(guard);
            self.deliver_held(|pair| pair.0 == runtime);
            self.run_as_job(helper);
            return Advanced::Moved;
        }
        let Some(place) = state.choose_place(now, is_due) else {
            let next_later = state.entries.next_later();
            // The clock asks its watchers.
            drop(guard);
            let next = [self.clock.next_due_here(), next_later, deadline.0];
            let Some(next) = next.into_iter().flatten().min() else { return Advanced::Rests };
            if let Some(end) = self.next_end_of_eventuality(now).filter(|end| *end < next) {
                self.clock.pass_to(end);
                self.ask_invariants(Asked::TimeIsOver);
                return Advanced::Moved;
            }
            self.clock.pass_to(next);
            // A scenario may wait again and again while nothing happens.
            if self.state().is_judged() && self.is_over_time(next) {
                self.fail_over_time();
            }
            return Advanced::Moved;
        };
        let is_plain = !(self.is_recorded || self.has_faults() || state.has_pauses());
        let turn = if is_plain { state.entries.take_turn(place) } else { None };
        let ended = if let Some((body, runtime, nth)) = turn {
            // The usual case: the turn begins in the same critical section.
            state.is_busy_until(now);
            let turn = state.begin_turn(body, (runtime, nth), (None, true));
            drop(guard);
            self.give_turn(turn, (true, true), None)
        } else {
            let Some(chosen) = state.take(place, (now, self.start)) else { return Advanced::Rests };
            drop(guard);
            self.happen_within(chosen, true)
        };
        self.turn_is_over(ended.unwrap_or_else(|| self.state().end_turn()));
        Advanced::Moved
    }

    /// Returns the next moment at which an eventuality is checked although no turn ends. There is none during a turn of
    /// a process.
    fn next_end_of_eventuality(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        if !state.is_judged() || !state.in_hand.is_empty() {
            return None;
        }
        let since_start = |moment: Instant| moment.saturating_duration_since(self.start);
        let end = state.invariants.next_end(since_start(now), since_start(state.last_fault))?;
        self.start.checked_add(end)
    }

    /// Gathers what can happen.
    fn collect(&self) -> BriefGuard<'_, State> {
        let (now, is_due) = self.clock.look();
        let mut state = self.state();
        state.collect(now, is_due);
        state
    }

    /// Lets an entry happen inside of another turn.
    fn happen(&self, chosen: (Entry, Candidate)) {
        self.happen_within(chosen, false);
    }

    /// Lets an entry happen. If it is a turn of a process, and no other turn is around it (`is_outer`), also ends the
    /// turn.
    fn happen_within(&self, (entry, candidate): (Entry, Candidate), is_outer: bool) -> Option<EndedTurn> {
        #[cfg(feature = "cluster")]
        if let Some(until) = self.paused_until(&entry) {
            self.state().entries.push_later(until, entry);
            return None;
        }
        if !matches!(entry, Entry::Connection(..)) {
            self.state().is_busy_until(self.clock.now());
        }
        match entry {
            Entry::Turn(body, runtime) => return self.turn(body, runtime, candidate, (true, is_outer)),
            Entry::BlockingStep(pid, runtime) => {
                let core = self.state().cores[runtime].clone();
                if let Some(body) = core.take_from_pool(pid) {
                    return self.turn(body, runtime, candidate, (false, is_outer));
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
            Entry::Answer(_, job) => {
                self.state().fold.add(&[3]);
                self.run_as_job(job);
            }
            Entry::Delivery(pair) => self.deliver_entry(pair),
            Entry::Store(work) => {
                self.state().fold.add(&[7]);
                self.run_as_job(work.2);
            }
            Entry::Connection(work) => {
                self.state().fold.add(&[8]);
                self.run_as_job(work.1);
                // Other threads do it meanwhile, so it takes the least time.
                return is_outer.then(|| self.state().end_turn_of(0));
            }
        }
        None
    }

    /// Gives a process a turn. In a blocking step it may wait. The turn ends in the same critical section as its step.
    fn turn(
        &self,
        body: Ready,
        runtime: usize,
        candidate: Candidate,
        (is_step, is_outer): (bool, bool),
    ) -> Option<EndedTurn> {
        let (pid, nth) = (body.head.pid, candidate.nth);
        let process = if self.has_faults() { body.machine.process().map(|process| process.type_id()) } else { None };
        if self.is_recorded {
            self.state().recorder.of_process(&body);
        }
        let fault = self.inject(pid, |rule| rule.whom.is_step(pid, process, nth + 1));
        let delay = match fault {
            Some(What::Stall(most)) => Some(self.draw_time(pid, most)),
            Some(What::StallFor(time)) => {
                self.state().has_fault_until(self.moment_in(time));
                Some(time)
            }
            _ => None,
        };
        if let Some(delay) = delay {
            let entry = Entry::Turn(body, runtime);
            self.push_after(delay, entry);
            return None;
        }
        let turn = self.state().begin_turn(body, (runtime, nth), (process, is_step));
        self.give_turn(turn, (is_step, is_outer), fault)
    }

    /// As `turn`, for a turn that has begun.
    fn give_turn(
        &self,
        BegunTurn { body, runtime, nth, context, formatter }: BegunTurn,
        (is_step, is_outer): (bool, bool),
        fault: Option<What>,
    ) -> Option<EndedTurn> {
        let pid = body.head.pid;
        let new_context = || {
            let core = self.state().cores[runtime].clone();
            self.new_context(runtime, &core)
        };
        let mut context = context.unwrap_or_else(new_context);
        let TurnContext { engine, out } = &mut *context;
        let (engine, core) = (&*engine, &engine.core);
        let mut executor = WorldExecutor::new(self, runtime, core, (pid, nth));
        executor.begins_step(&body, formatter);
        if fault == Some(What::Crash) {
            let _ = core.terminate(&mut executor, pid, false);
        }
        let is_doomed = || core.road.table.cell(pid).is_some_and(|cell| cell.doomed().is_some());
        if self.delivery == Delivery::PerPair && is_doomed() {
            self.deliver_held(|pair| (pair.0, pair.1) == (runtime, pid));
        }
        executor.spoils = fault == Some(What::Panic);
        // This thread may be in another step: one that runs a simulation, or one of a world that waits.
        let after = as_step(is_step, || beside_step(|| contain(|| turn(engine, &mut executor, out, body))));
        let after = after.unwrap_or_else(|panic| {
            body_lost(engine, &mut executor, out, pid, panic);
            After::Nothing
        });
        let has_ended = || core.road.table.cell(pid).is_some_and(|cell| cell.check(pid).is_err());
        if self.delivery == Delivery::PerPair && has_ended() {
            self.deliver_held(|pair| (pair.0, pair.1) == (runtime, pid));
        }
        let state = &mut *self.state();
        state.in_hand.pop();
        if !is_step {
            state.in_job -= 1;
        }
        if let After::Ready(body) = after {
            state.entries.push(Entry::Turn(body, runtime));
        }
        state.spare_contexts[runtime].push(context);
        is_outer.then(|| state.end_turn())
    }

    /// Lets others have turns before the next yield of a step, perhaps.
    ///
    /// No job begins here: it may wait for the process of this step, which can go on only when the job has ended.
    fn pause_at(&self, of: Pid, nth: u32, index: u32) {
        let turns;
        {
            let state = &mut *self.state();
            if state.is_ending || state.in_hand.len() > DEEPEST as usize {
                return;
            }
            state.collect_woken();
            if state.entries.has_only_jobs() {
                return;
            }
            turns = state.chooser.decide(Place::Pause { of, nth, index }, Odds::Several(PAUSE));
            if turns == 0 {
                return;
            }
            state.fold.add(&[4, u64::from(index), turns]);
        }
        for _ in 0..turns {
            let (now, is_due) = self.clock.look();
            let chosen = {
                let state = &mut *self.state();
                state.collect_woken();
                state.choose_in_step((now, self.start), is_due)
            };
            let Some(chosen) = chosen else { return };
            self.happen(chosen);
        }
    }

    /// Runs code that another thread would run.
    fn run_as_job(&self, job: Job) {
        self.state().in_job += 1;
        // A panic of the user's code is contained where it is called.
        let _ = as_step(false, || contain(job));
        self.state().in_job -= 1;
    }

    /// Lets time pass. Then the bounds of the run are looked at, and the invariants are asked.
    fn turn_is_over(&self, EndedTurn { by, turns, asks }: EndedTurn) {
        let now = self.clock.pass(Duration::from_micros(by + 1));
        let Some(asks) = asks else { return };
        self.may_be_killed();
        if turns > self.limits.turns {
            let turns = self.limits.turns;
            let hint = "a process that always continues needs a larger `Simulation::max_turns`, or an end";
            let most = self.goes_on_most();
            return self.fail("the run ends", format!("it has not come to rest after {turns} turns{most}: {hint}"));
        }
        if self.is_over_time(now) {
            return self.fail_over_time();
        }
        if asks {
            // Invariants see the bodies that were woken from outside of a turn.
            drop(self.collect());
            self.ask_invariants(Asked::AfterTurn);
        }
    }

    fn is_over_time(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now > end)
    }

    fn fail_over_time(&self) {
        let limit = self.limits.time;
        let hint = "a program with periodic timers never rests, so use `World::run_for`, within `Simulation::max_time`";
        let most = self.goes_on_most();
        self.fail("the run ends", format!("it has not come to rest within {limit:?} of virtual time{most}: {hint}"));
    }

    /// Whether nothing more can happen.
    pub(super) fn rests(&self) -> bool {
        let state = self.collect();
        let has_none = state.entries.is_empty() && state.entries.next_later().is_none();
        (has_none || state.is_quiet(self.clock.now()))
            && state.helpers.is_empty()
            && self.clock.next_due_here().is_none()
    }

    /// Whether nothing can happen without a timer, and no handler has an open command.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.collect();
        let has_none = state.entries.is_empty() && !state.entries.has_late();
        (has_none || state.is_quiet(self.clock.now())) && state.helpers.is_empty() && state.open.is_empty()
    }
}

/// A turn that has begun.
struct BegunTurn {
    body: Ready,
    runtime: usize,
    /// The number of the turn of the process, from zero.
    nth: u32,
    /// `None` if all contexts of the runtime are in use.
    context: Option<Box<TurnContext>>,
    formatter: Option<Arc<TraceFormatter>>,
}

/// A turn that has ended.
struct EndedTurn {
    /// The time that it has taken, in microseconds beyond the first.
    by: u64,
    /// The number of turns so far.
    turns: u32,
    /// Whether the invariants are asked. `None` if the bounds of the run do not count either.
    asks: Option<bool>,
}

impl State {
    /// Begins a turn of a process of the runtime with this number. `is_step` is false for a blocking step, which may
    /// wait.
    #[inline(always)]
    fn begin_turn(
        &mut self,
        body: Ready,
        (runtime, nth): (usize, u32),
        (process, is_step): (Option<TypeId>, bool),
    ) -> BegunTurn {
        let pid = body.head.pid;
        self.in_hand.push((pid, runtime, process));
        self.in_job += u32::from(!is_step);
        self.fold.add(&[6, pid.to_word(), u64::from(nth)]);
        self.recorder.begin(self.fold.value());
        let context = self.spare_contexts[runtime].pop();
        BegunTurn { body, runtime, nth, context, formatter: self.recorder.formatter() }
    }

    /// Ends a turn: decides how long it has taken.
    fn end_turn(&mut self) -> EndedTurn {
        let place = Place::Time { turn: self.turns };
        let by = if self.is_ending { 0 } else { self.chooser.decide(place, Odds::Below(LONGEST_TURN)) };
        self.end_turn_of(by)
    }

    /// Ends a turn that has taken so long, in microseconds beyond the least.
    fn end_turn_of(&mut self, by: u64) -> EndedTurn {
        self.fold.add(&[5, by]);
        let asks = self.is_judged().then_some(self.in_hand.is_empty() && !self.invariants.is_empty());
        EndedTurn { by, turns: self.turns, asks }
    }

    /// Whether the bounds of the run are looked at.
    fn is_judged(&self) -> bool {
        !(self.is_ending || self.failure.is_some() || self.is_asking)
    }

    /// Gathers what can happen: processes that were woken from outside of a turn, late entries, a timer that is due.
    fn collect(&mut self, now: Instant, is_due: bool) {
        self.collect_woken();
        self.bring_due(now, is_due);
    }

    /// Gathers late entries, and a timer that is due.
    fn bring_due(&mut self, now: Instant, is_due: bool) {
        self.entries.bring(now);
        if is_due && !self.entries.has_timer() {
            self.entries.push(Entry::Timer);
        }
    }

    /// Removes the next entry that is no job and returns it. The caller has gathered the processes that were woken from
    /// outside.
    fn choose_in_step(&mut self, (now, start): (Instant, Instant), is_due: bool) -> Option<(Entry, Candidate)> {
        self.bring_due(now, is_due);
        let place = if self.entries.has_job() { self.choose_no_job() } else { self.choose_place(now, is_due) };
        self.take(place?, (now, start))
    }

    /// Chooses the next entry, and counts its turn. Returns its place.
    fn choose_place(&mut self, now: Instant, is_due: bool) -> Option<usize> {
        self.bring_due(now, is_due);
        if self.has_most_waits() && !self.is_ending {
            // As in a pool whose threads all wait.
            return self.choose_no_job();
        }
        if self.entries.is_empty() {
            return None;
        }
        self.turns += 1;
        if self.is_ending {
            self.chooser.count_turn();
            return Some(0);
        }
        Some(self.chooser.next(self.entries.candidates()))
    }

    /// As `choose_place`, if no job may begin. The caller has gathered the entries that are due.
    fn choose_no_job(&mut self) -> Option<usize> {
        let (places, candidates) = self.entries.candidates_without_jobs();
        if places.is_empty() {
            return None;
        }
        self.turns += 1;
        places.get(self.chooser.next(&candidates)).copied()
    }

    /// Removes the chosen entry and returns it.
    fn take(&mut self, place: usize, (now, start): (Instant, Instant)) -> Option<(Entry, Candidate)> {
        let taken = self.entries.take(place);
        debug_assert!(taken.is_some(), "a place beyond the candidates was chosen");
        let taken = taken?;
        if self.recorder.is_recording() {
            let is_late = self.chooser.came_late();
            let elapsed = now.saturating_duration_since(start);
            self.recorder.turn(self.turns, is_late, taken.0.subject(), elapsed);
        }
        Some(taken)
    }

    /// Gathers processes that were woken from outside of a turn.
    fn collect_woken(&mut self) {
        for (core, runtime) in self.cores.iter().zip(0..) {
            while !core.road.queues.is_outside_empty()
                && let Some(ready) = core.road.queues.take_any()
            {
                self.recorder.woken(&ready);
                self.entries.push(Entry::Turn(ready, runtime));
            }
        }
    }

    /// Whether only connections have done anything for some time, and have anything to do.
    fn is_quiet(&self, now: Instant) -> bool {
        // The first condition is usually false.
        self.entries.begins_with_connection()
            && now.saturating_duration_since(self.busy_at) >= QUIET
            && (self.entries.has_late() || !self.entries.is_empty())
            && self.helpers.is_empty()
            && self.entries.has_only_connections()
    }

    /// Whether a wait is given up, because the run has failed. A scenario that waits again and again is unwound.
    fn gives_up(&mut self) -> bool {
        let has_failed = self.failure.is_some() && !self.is_ending;
        self.given_up += u32::from(has_failed);
        // Not while the run ends: the waits of a shutdown drive the world, and nothing catches a panic there.
        if has_failed && self.given_up > MOST_GIVEN_UP && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("the run has failed"));
        }
        has_failed
    }
}

impl Shared {
    /// Whether the calling thread may drive the world. If not, the run fails.
    fn may_drive(&self) -> bool {
        if !self.is_here() {
            let thread = thread::current();
            let name = thread.name().unwrap_or("without a name");
            self.left_world(format!("the thread {name:?}, which is outside of the simulation, waits for it"));
            return false;
        }
        if self.state().is_asking {
            self.fail(INVARIANTS_CHANGE_NOTHING, "an invariant waits");
            return false;
        }
        true
    }

    /// Lets everything happen that can happen, until the world rests or the run has failed.
    pub(super) fn drive_to_rest(&self) {
        if self.may_drive() {
            while !self.unwinds()
                && let Advanced::Moved = self.advance(Deadline::NEVER)
            {}
        }
    }
}

impl Drive for Shared {
    fn drive(&self, is_over: &mut dyn FnMut() -> bool, deadline: Deadline) -> bool {
        if !self.may_drive() {
            return is_over();
        }
        self.state().recorder.scenario_goes_on();
        let Some(_wait) = self.begin_wait() else { return false };
        loop {
            if self.unwinds() {
                return false;
            }
            if is_over() {
                return true;
            }
            if deadline.0.is_some_and(|at| at <= self.clock.now()) {
                return false;
            }
            match self.advance(deadline) {
                Advanced::Moved => {}
                Advanced::Failed => return false,
                Advanced::Rests => {
                    if deadline == Deadline::NEVER && !self.state().is_ending {
                        let open = self.describe_open();
                        let waits =
                            self.look(|state, _| state.waiting()).map_or(String::new(), |pid| format!("; {pid} waits"));
                        let is_inside = self.state().is_inside_turn();
                        let whose = if is_inside { "in a step or in blocking work" } else { "of the scenario" };
                        let earlier = self.describe_waits();
                        let what = format!("a call {whose} waits, and the world rests{waits}{open}{earlier}");
                        self.fail("every wait ends", what);
                    }
                    return false;
                }
            }
        }
    }
}

impl Shared {
    /// Checks what must hold when the scenario has returned.
    pub(super) fn finish(&self) {
        if self.state().failure.is_some() {
            return;
        }
        if !self.rests() {
            return self.ask_invariants(Asked::TimeIsOver);
        }
        self.ask_invariants(Asked::AtRest);
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
