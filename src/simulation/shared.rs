//! The loop of a world: what is next, and what happens around each turn.
//!
//! A world has one thread, the one that runs the scenario. Wherever that thread would wait, it *drives* the world
//! instead ([`Shared::drive`]): it lets one thing after the other happen until the wait is over. The things that can
//! happen next are [`Entries`]; a [`Choose`] decides among them.
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
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::checks::Checks;
use super::coverage::PartialOrder;
use super::decider::Decider;
use super::decision::{Candidate, Choose as _, Odds, Place};
use super::entries::{Entries, Entry};
use super::executor::WorldExecutor;
use super::failure::Failure;
use super::faults::{Faults, Rule, What};
use super::fold::Fold;
use super::recorder::{Injected, Recorder};
use super::state::WorldState;
use super::trace::FindingKind;
use crate::clock::{Deadline, Drive, ManualClock};
use crate::inside::as_step;
use crate::outcome::contain;
use crate::pid::Pid;
use crate::primitives::{Arc, Brief, BriefGuard, Mutex, ThreadId, Weak, enter, lock, thread};
use crate::process::Duty;
use crate::process::step_activity::Sight;
use crate::runtime::dispatch::{Core, give_back};
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

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most turns.
    pub(super) turns: u32,
    /// The most virtual time.
    pub(super) time: Duration,
}

/// A world, which its runtimes and the scenario share.
pub(super) struct Shared {
    thread: ThreadId,
    pub(super) clock: ManualClock,
    pub(super) start: Instant,
    faults: Faults,
    limits: Limits,
    /// The names of the checks that are switched off.
    without: Vec<String>,
    pub(super) sight: Sight,
    pub(super) checks: Mutex<Checks>,
    state: Brief<State>,
}

/// The state of a world.
pub(super) struct State {
    pub(super) cores: Vec<Arc<Core>>,
    /// Outputs of steps, by runtime, which are used again.
    outputs: Vec<Vec<StepOutput>>,
    pub(super) entries: Entries,
    pub(super) helpers: VecDeque<Job>,
    pub(super) chooser: Decider,
    /// The processes in hand, the innermost last.
    in_hand: Vec<(Pid, usize, Option<TypeId>)>,
    /// How many jobs and parts of shutdowns run inside each other.
    pub(super) in_job: u32,
    /// Whether there are invariants.
    pub(super) has_checks: bool,
    /// Whether an invariant runs.
    pub(super) is_asking: bool,
    pub(super) turns: u32,
    /// Numbers for the draws of the scenario and of faults.
    pub(super) values: u32,
    pub(super) injected: u32,
    /// When the last fault was injected.
    pub(super) last_fault: Instant,
    /// Commands that handlers have not answered, with the names of their types.
    pub(super) open: BTreeMap<(Pid, u64), &'static str>,
    /// Commands that are never answered.
    pub(super) withheld: Vec<Arc<Duty>>,
    /// Whether the scenario has returned, and the runtimes are being ended.
    pub(super) is_ending: bool,
    pub(super) failure: Option<Failure>,
    given_up: u32,
    pub(super) fold: Fold,
    pub(super) recorder: Recorder,
    /// The partial order of the run.
    pub(super) order: PartialOrder,
    /// How often each rule was asked about each process.
    asked: BTreeMap<(u32, Pid), u32>,
}

impl State {
    /// The number of the next decision of this rule about this process.
    pub(super) fn next_asked(&mut self, rule: u32, of: Pid) -> u32 {
        let asked = self.asked.entry((rule, of)).or_default();
        *asked += 1;
        *asked
    }
}

/// What a call of [`Shared::advance`] has done.
enum Advanced {
    Moved,
    /// Nothing can happen any more.
    Rests,
}

impl Shared {
    pub(super) fn new(
        start: Instant,
        chooser: Decider,
        (faults, limits, without): (Faults, Limits, Vec<String>),
        recorder: Recorder,
    ) -> Arc<Shared> {
        Arc::new_cyclic(|me: &Weak<Shared>| {
            let driver: Weak<Shared> = me.clone();
            let state = State {
                cores: Vec::new(),
                outputs: Vec::new(),
                entries: Entries::default(),
                helpers: VecDeque::new(),
                chooser,
                in_hand: Vec::new(),
                in_job: 0,
                has_checks: false,
                is_asking: false,
                turns: 0,
                values: 0,
                injected: 0,
                last_fault: start,
                open: BTreeMap::new(),
                withheld: Vec::new(),
                is_ending: false,
                failure: None,
                given_up: 0,
                fold: Fold::default(),
                recorder,
                order: PartialOrder::default(),
                asked: BTreeMap::new(),
            };
            Shared {
                thread: thread::current().id(),
                clock: ManualClock::driven(start, driver as _),
                start,
                faults,
                limits,
                without,
                sight: Sight::with_log(),
                checks: Mutex::new(Checks::default()),
                state: Brief::new(state),
            }
        })
    }

    pub(super) fn state(&self) -> BriefGuard<'_, State> {
        enter(&self.state)
    }

    /// Whether the calling thread is the one of the world.
    pub(super) fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    /// The virtual time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// Records the first failure of the run.
    pub(super) fn fail(&self, check: &str, what: impl Into<String>) {
        self.fail_as(check, FindingKind::Failed, what.into());
    }

    fn fail_as(&self, check: &str, kind: FindingKind, what: String) {
        if self.without.iter().any(|other| other == check) {
            return;
        }
        let at = self.elapsed();
        let state = &mut *self.state();
        if state.failure.is_none() && !state.is_ending {
            state.failure = Some(Failure { check: check.to_owned(), kind, what, turn: state.turns, at });
        }
    }

    /// Records that something came from outside of the world.
    pub(super) fn left_world(&self, what: String) {
        self.fail("no thread outside of the simulation", what);
    }

    /// Adds an entry, which happens after this delay at the earliest.
    pub(super) fn push_after(&self, delay: Duration, entry: Entry) {
        let at = self.clock.now() + delay;
        let mut state = self.state();
        if delay.is_zero() { state.entries.push(entry) } else { state.entries.push_later(at, entry) }
    }

    /// Adds a runtime. Returns its number.
    pub(super) fn add(self: &Arc<Shared>, core: Arc<Core>) {
        let weak = Arc::downgrade(self);
        core.road.sleep.watch(move || {
            if let Some(shared) = weak.upgrade().filter(|shared| !shared.is_here()) {
                let thread = thread::current();
                let name = thread.name().unwrap_or("without a name");
                shared.left_world(format!("the thread {name:?}, which is outside of the simulation, woke a process"));
            }
        });
        let state = &mut *self.state();
        state.cores.push(core);
        state.outputs.push(Vec::new());
    }

    /// The type of the process in hand.
    pub(super) fn type_in_hand(&self, of: Pid, runtime: usize) -> Option<TypeId> {
        let state = self.state();
        state.in_hand.iter().rev().find(|(pid, number, _)| *pid == of && *number == runtime)?.2
    }

    /// Decides whether a fault is injected, by the rules that are `wanted`.
    pub(super) fn inject(&self, of: Pid, wanted: impl Fn(&Rule) -> bool) -> Option<What> {
        if self.faults.rules.is_empty() {
            return None;
        }
        let now = self.clock.now();
        let state = &mut *self.state();
        let is_over = self.faults.until.is_some_and(|until| now >= self.start + until)
            || self.faults.at_most.is_some_and(|most| state.injected >= most)
            || state.is_ending
            || state.failure.is_some();
        if is_over {
            return None;
        }
        for (rule, number) in self.faults.rules.iter().zip(0..) {
            if !wanted(rule) {
                continue;
            }
            let place = Place::Fault { rule: number, of, nth: state.next_asked(number, of) };
            if state.chooser.decide(place, Odds::Chance(rule.chance)) == 1 {
                state.injected += 1;
                state.last_fault = now;
                state.fold.add(&[u64::from(number), of.to_word(), 0xfa]);
                state.recorder.injected(Injected { of, what: rule.what });
                return Some(rule.what);
            }
        }
        None
    }

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
        if let Some(What::Stall(most)) = fault {
            let delay = self.draw_time(pid, most);
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
    pub(super) fn pause(&self, of: Pid, nth: u32, index: u32) {
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

    /// Asks the invariants. `is_end` says that nothing more will happen.
    pub(super) fn ask_checks(&self, is_end: bool) {
        let mut checks = std::mem::take(&mut *lock(&self.checks));
        if !checks.is_empty() {
            self.look(|state, last_fault| {
                if let Err((check, kind, what)) = checks.ask(state, last_fault, is_end) {
                    self.fail_as(&check, kind, what);
                }
            });
        }
        let added = std::mem::replace(&mut *lock(&self.checks), checks);
        lock(&self.checks).append(added);
    }

    /// Shows the state of the world to `look`.
    pub(super) fn look<R>(&self, look: impl FnOnce(&WorldState<'_>, Duration) -> R) -> R {
        let (cores, entries, last_fault) = {
            let state = &mut *self.state();
            state.is_asking = true;
            (std::mem::take(&mut state.cores), std::mem::take(&mut state.entries), state.last_fault)
        };
        let seen = WorldState::new(&cores, &entries, (self.start, self.clock.now()));
        let result = look(&seen, last_fault.saturating_duration_since(self.start));
        drop(seen);
        let state = &mut *self.state();
        state.entries = entries;
        state.cores = cores;
        state.is_asking = false;
        result
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

    /// Drops what is left of the runtimes.
    pub(super) fn clear(&self) {
        let (cores, outputs, withheld) = {
            let state = &mut *self.state();
            (std::mem::take(&mut state.cores), std::mem::take(&mut state.outputs), std::mem::take(&mut state.withheld))
        };
        for (core, outputs) in cores.iter().zip(outputs) {
            outputs.into_iter().for_each(|mut out| give_back(core, &mut out));
        }
        drop(withheld);
        *lock(&self.checks) = Checks::default();
        let entries = std::mem::take(&mut self.state().entries);
        drop(entries);
        drop(cores);
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
    /// Names what is open and can be answered by nothing inside.
    pub(super) fn describe_open(&self) -> String {
        let state = self.state();
        let open: Vec<String> = state.open.iter().map(|((pid, _), name)| format!("command {name} of {pid}")).collect();
        if open.is_empty() { String::new() } else { format!("; open: {}", open.join(", ")) }
    }
}

impl Shared {
    /// Records a panic of a step that was not injected.
    pub(super) fn panicked(&self, what: String) {
        self.fail("no step panics", what);
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
