//! The state of a world, which its runtimes and the scenario share.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
#[cfg(feature = "cluster")]
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use super::coverage::PartialOrder;
use super::decider::Decider;
use super::decision::{Choose as _, Odds, Place};
use super::delivery::{Delivery, HeldMessages};
use super::entries::{Entries, Entry};
use super::failure::Failure;
use super::faults::{Faults, Rule, What};
use super::fold::Fold;
#[cfg(feature = "cluster")]
use super::frames::Network;
use super::invariants::{Asked, Invariants};
use super::kills::Kills;
#[cfg(feature = "cluster")]
use super::pauses::Pauses;
use super::recorder::{Injected, Recorder};
use super::state::WorldState;
use super::trace::FindingKind;
use crate::clock::ManualClock;
use crate::pid::Pid;
#[cfg(feature = "cluster")]
use crate::primitives::Mutex;
use crate::primitives::{Arc, AtomicBool, Brief, BriefGuard, ThreadId, Weak, enter, lock, thread, while_looking};
use crate::process::step_activity::Sight;
use crate::process::{Answer, CommandError, Duty};
use crate::runtime::dispatch::{Core, give_back};
use crate::runtime::simulated::{INJECTED, Job};
use crate::sched::body::StepOutput;

/// The name of the check that no invariant changes the world.
pub(super) const INVARIANTS_CHANGE_NOTHING: &str = "invariants change nothing";

/// The most open commands that a failure names.
const MOST_NAMED: usize = 10;

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most turns.
    pub(super) turns: u32,
    /// The most virtual time.
    pub(super) time: Duration,
}

/// Lets others have turns before a yield with this index, of the turn with this number of a process.
pub(super) type Pause = fn(&Shared, of: Pid, nth: u32, index: u32);

/// A world, which its runtimes and the scenario share.
pub(super) struct Shared {
    pub(super) me: Weak<Shared>,
    pub(super) thread: ThreadId,
    pub(super) clock: ManualClock,
    pub(super) start: Instant,
    faults: Faults,
    pub(super) limits: Limits,
    pub(super) delivery: Delivery,
    /// Whether turns are recorded, for a trace.
    pub(super) is_recorded: bool,
    /// The moment after which the run has taken too long.
    pub(super) end: Option<Instant>,
    /// The names of the checks that are switched off.
    without: Vec<String>,
    pub(super) sight: Sight,
    /// Lets others have turns before the next yield of a step, perhaps.
    pub(super) pause: Pause,
    #[cfg(feature = "cluster")]
    pub(super) network: Mutex<Network>,
    /// Whether the world has had a program that can be killed.
    pub(super) can_kill: AtomicBool,
    state: Brief<State>,
}

/// Performs the yields of the processes of one runtime in a world: see `engine`.
pub(super) struct WorldEngine {
    pub(super) core: Arc<Core>,
    pub(super) runtime: usize,
    pub(super) shared: Weak<Shared>,
    pub(super) delivery: Delivery,
}

/// The context of a turn: the engine of its runtime, and the output of its step.
pub(super) struct TurnContext {
    pub(super) engine: WorldEngine,
    pub(super) out: StepOutput,
}

/// The state of a world.
pub(super) struct State {
    pub(super) cores: Vec<Arc<Core>>,
    /// The numbers of the watchers of the clock that are those of a runtime's timers.
    #[cfg(feature = "cluster")]
    pub(super) timers: Vec<Range<u64>>,
    #[cfg(feature = "cluster")]
    pub(super) pauses: Pauses,
    /// Contexts that turns no longer need, by runtime. A context is large, so turns use them again.
    #[allow(clippy::vec_box)]
    pub(super) spare_contexts: Vec<Vec<Box<TurnContext>>>,
    pub(super) entries: Entries,
    /// The parts of shutdowns, with the numbers of their runtimes.
    pub(super) helpers: VecDeque<(usize, Job)>,
    /// The runtimes of which a part of a shutdown has run.
    pub(super) helped: BTreeSet<usize>,
    pub(super) held: HeldMessages,
    pub(super) chooser: Decider,
    /// The processes in hand, the innermost last.
    pub(super) in_hand: Vec<(Pid, usize, Option<TypeId>)>,
    /// How many jobs and parts of shutdowns run inside each other.
    pub(super) in_job: u32,
    /// The invariants. They are not here while they are asked.
    pub(super) invariants: Invariants,
    /// How many waits of the scenario, of steps and of jobs are in progress, inside each other.
    pub(super) waits: u32,
    /// Whether an invariant runs.
    pub(super) is_asking: bool,
    pub(super) turns: u32,
    /// Numbers for the draws of the scenario and of faults.
    pub(super) values: u32,
    pub(super) injected: u32,
    /// When the last fault was injected, or when its effect ends if that is later.
    pub(super) last_fault: Instant,
    /// When something else than a connection has last done anything, or is about to: a cut ends, or a late frame comes.
    pub(super) busy_at: Instant,
    /// Commands that handlers have not answered, with the names of their types.
    pub(super) open: BTreeMap<(Pid, u64), &'static str>,
    /// Commands that are never answered.
    pub(super) withheld: Vec<Arc<Duty>>,
    /// Whether the scenario has returned, and the runtimes are being ended.
    pub(super) is_ending: bool,
    pub(super) kills: Kills,
    pub(super) failure: Option<Failure>,
    pub(super) given_up: u32,
    pub(super) fold: Fold,
    pub(super) recorder: Recorder,
    /// The partial order of the run.
    pub(super) order: PartialOrder,
    /// How often each rule was asked about each process.
    asked: BTreeMap<(u32, Pid), u32>,
}

impl State {
    /// Whether a runtime is paused.
    pub(super) fn has_pauses(&self) -> bool {
        #[cfg(feature = "cluster")]
        return !self.pauses.is_empty();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// Something else than a connection does something at this moment.
    pub(super) fn is_busy_until(&mut self, moment: Instant) {
        self.busy_at = self.busy_at.max(moment);
    }

    /// Notes that a fault is injected whose effect ends at this moment.
    pub(super) fn has_fault_until(&mut self, moment: Instant) {
        self.last_fault = self.last_fault.max(moment);
    }

    /// The number of the next decision of this rule about this process.
    pub(super) fn next_asked(&mut self, rule: u32, of: Pid) -> u32 {
        let asked = self.asked.entry((rule, of)).or_default();
        *asked += 1;
        *asked
    }
}

impl Shared {
    pub(super) fn new(
        start: Instant,
        chooser: Decider,
        (faults, limits, delivery, without): (Faults, Limits, Delivery, Vec<String>),
        (recorder, pause): (Recorder, Pause),
    ) -> Arc<Shared> {
        Arc::new_cyclic(|me: &Weak<Shared>| {
            let driver: Weak<Shared> = me.clone();
            let is_recorded = recorder.is_recording();
            let state = State {
                cores: Vec::new(),
                #[cfg(feature = "cluster")]
                timers: Vec::new(),
                #[cfg(feature = "cluster")]
                pauses: Pauses::default(),
                spare_contexts: Vec::new(),
                entries: Entries::default(),
                helpers: VecDeque::new(),
                helped: BTreeSet::new(),
                held: HeldMessages::default(),
                chooser,
                in_hand: Vec::new(),
                in_job: 0,
                waits: 0,
                invariants: Invariants::default(),
                is_asking: false,
                turns: 0,
                values: 0,
                injected: 0,
                last_fault: start,
                busy_at: start,
                open: BTreeMap::new(),
                withheld: Vec::new(),
                is_ending: false,
                kills: Kills::default(),
                failure: None,
                given_up: 0,
                fold: Fold::default(),
                recorder,
                order: PartialOrder::default(),
                asked: BTreeMap::new(),
            };
            Shared {
                me: me.clone(),
                thread: thread::current().id(),
                clock: ManualClock::driven(start, driver as _),
                start,
                faults,
                limits,
                delivery,
                is_recorded,
                end: start.checked_add(limits.time),
                without,
                sight: Sight::with_log(),
                pause,
                #[cfg(feature = "cluster")]
                network: Mutex::default(),
                can_kill: AtomicBool::new(false),
                state: Brief::new(state),
            }
        })
    }

    /// Makes the context of a turn of this runtime.
    pub(super) fn new_context(&self, runtime: usize, core: &Arc<Core>) -> Box<TurnContext> {
        let engine = WorldEngine { core: core.clone(), runtime, shared: self.me.clone(), delivery: self.delivery };
        Box::new(TurnContext { engine, out: StepOutput::new(core.clone()) })
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

    /// The moment that lies this time ahead. The longest times are half a million years.
    pub(super) fn moment_in(&self, time: Duration) -> Instant {
        self.clock.now() + time.min(Duration::from_micros(u64::MAX))
    }

    /// Says which process has had the most turns, for a run that does not end.
    pub(super) fn goes_on_most(&self) -> String {
        let name = || {
            let ((core, slot, generation), turns) = {
                let state = self.state();
                let (runtime, slot, generation, turns) = state.entries.busiest()?;
                ((state.cores.get(runtime)?.clone(), slot, generation), turns)
            };
            let pid = Pid::new(core.road.table.node(), slot, generation)?;
            let kind = core.road.table.cell(pid)?.kind_of(pid)?;
            Some(format!(", and {turns} of its turns were those of {pid} {}", (kind.process)()))
        };
        name().unwrap_or_default()
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
        // A program that was killed has failed in no other way.
        if state.failure.is_none() && !state.is_ending && !state.kills.is_killed {
            state.failure = Some(Failure { check: check.to_owned(), kind, what, turn: state.turns, at });
        }
    }

    /// Records that something came from outside of the world.
    pub(super) fn left_world(&self, what: String) {
        self.fail("no thread outside of the simulation", what);
    }

    /// Adds an entry, which happens after this delay at the earliest.
    pub(super) fn push_after(&self, delay: Duration, entry: Entry) {
        let at = self.moment_in(delay);
        let mut state = self.state();
        if state.in_hand.is_empty() && state.in_job == 0 {
            // The scenario has done something.
            state.is_busy_until(self.clock.now());
        }
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
        state.spare_contexts.push(Vec::new());
    }

    /// The type of the process in hand.
    pub(super) fn type_in_hand(&self, of: Pid, runtime: usize) -> Option<TypeId> {
        let state = self.state();
        state.in_hand.iter().rev().find(|(pid, number, _)| *pid == of && *number == runtime)?.2
    }

    /// Whether faults may be injected.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.rules.is_empty()
    }

    /// Decides whether a fault is injected, by the rules that are `wanted`.
    pub(super) fn inject(&self, of: Pid, wanted: impl Fn(&Rule) -> bool) -> Option<What> {
        if !self.has_faults() {
            return None;
        }
        let now = self.clock.now();
        let state = &mut *self.state();
        let is_over = self.faults.until.is_some_and(|until| now.saturating_duration_since(self.start) >= until)
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
            // A certain fault is a part of the scenario, and no decision.
            if rule.chance >= 1.0 || state.chooser.decide(place, Odds::Chance(rule.chance)) == 1 {
                state.injected += 1;
                state.has_fault_until(now);
                state.fold.add(&[u64::from(number), of.to_word(), 0xfa]);
                // Other processes may have had turns since the turn of the process in hand began.
                let in_hand = state.in_hand.last().map(|(pid, ..)| *pid).filter(|pid| *pid == of);
                state.recorder.injected(in_hand, Injected { of, what: rule.what });
                return Some(rule.what);
            }
        }
        None
    }

    /// Asks the invariants.
    pub(super) fn ask_invariants(&self, asked: Asked) {
        let mut invariants = std::mem::take(&mut self.state().invariants);
        if !invariants.is_empty() {
            self.look(|state, last_fault| {
                if let Err((check, kind, what)) = invariants.ask(state, last_fault, asked) {
                    self.fail_as(&check, kind, what);
                }
            });
        }
        let state = &mut *self.state();
        let added = std::mem::replace(&mut state.invariants, invariants);
        state.invariants.append(added);
    }

    /// Shows the state of the world to `look`, which must not change it.
    pub(super) fn look<R>(&self, look: impl FnOnce(&WorldState<'_>, Instant) -> R) -> R {
        let (cores, (entries, held), last_fault) = {
            let state = &mut *self.state();
            state.is_asking = true;
            let queues = (std::mem::take(&mut state.entries), std::mem::take(&mut state.held));
            (std::mem::take(&mut state.cores), queues, state.last_fault)
        };
        // A body that waits for a blocking step is in the core, as elsewhere.
        let for_pool: Vec<_> = cores.iter().map(|core| std::mem::take(&mut *lock(&core.for_pool))).collect();
        let counts = || -> u64 {
            let counters = cores.iter().map(|core| &core.road.outside);
            counters.map(|counters| counters.accepted.get() + counters.spawned.get()).sum()
        };
        let before = counts();
        let seen = WorldState::new(&cores, (&entries, &for_pool, &held), (self.start, self.clock.now()));
        let result = catch_unwind(AssertUnwindSafe(|| while_looking(|| look(&seen, last_fault))));
        drop(seen);
        let has_changed = counts() != before;
        cores.iter().zip(for_pool).for_each(|(core, bodies)| *lock(&core.for_pool) = bodies);
        {
            let state = &mut *self.state();
            (state.entries, state.held) = (entries, held);
            state.cores = cores;
            state.is_asking = false;
        }
        if has_changed {
            self.fail(INVARIANTS_CHANGE_NOTHING, "an invariant has sent a message, or has spawned a process");
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Drops what is left of the runtimes, and the invariants.
    pub(super) fn clear(&self) {
        self.clear_runtimes();
        let invariants = std::mem::take(&mut self.state().invariants);
        drop(invariants);
    }

    /// Drops what is left of the runtimes.
    pub(super) fn clear_runtimes(&self) {
        #[cfg(feature = "cluster")]
        {
            self.end_pauses(None);
            self.state().timers.clear();
            lock(&self.network).on_the_way.clear();
        }
        let (cores, spare_contexts, withheld) = {
            let state = &mut *self.state();
            (
                std::mem::take(&mut state.cores),
                std::mem::take(&mut state.spare_contexts),
                std::mem::take(&mut state.withheld),
            )
        };
        spare_contexts.into_iter().flatten().for_each(|mut context| give_back(&context.engine.core, &mut context.out));
        drop(withheld);
        let (entries, held, helpers) = {
            let state = &mut *self.state();
            state.open.clear();
            // A program that was killed is started again. Its new runtimes have the same numbers.
            state.helped.clear();
            let held = std::mem::take(&mut state.held);
            (state.entries.take_all(), held, std::mem::take(&mut state.helpers))
        };
        drop((entries, held, helpers));
        drop(cores);
    }
}

impl Shared {
    /// Names what is open and can be answered by nothing inside.
    pub(super) fn describe_open(&self) -> String {
        let state = self.state();
        let named = state.open.iter().take(MOST_NAMED).map(|((pid, _), name)| format!("command {name} of {pid}"));
        let mut open: Vec<String> = named.collect();
        let more = state.open.len() - open.len();
        open.extend((more > 0).then(|| format!("and {more} more")));
        if open.is_empty() { String::new() } else { format!("; open: {}", open.join(", ")) }
    }
}

impl Shared {
    /// Records a panic of a step that was not injected.
    pub(super) fn panicked(&self, what: String) {
        self.fail("no step panics", what);
    }

    /// Records that code which works for a process has panicked, if the answer says so and the panic was not injected.
    pub(super) fn may_have_panicked(&self, code: &str, of: Pid, answer: &Answer) {
        if let Err(CommandError::Panicked(panic)) = answer
            && panic.message() != INJECTED
        {
            self.panicked(format!("{code} for {of} {panic}"));
        }
    }
}
