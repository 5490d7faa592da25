//! The watchdog's half of the scheduler: which steps are stuck, spare workers for them, and when no look is needed.
//!
//! At intervals a thread *looks* at the workers. A watched worker has a pulse: a number, odd while a step runs and
//! different for each step. A step is **stuck** if two looks, far enough apart, have found the same number. Looks are
//! all that it takes: for the watchdog, a worker only writes a few numbers in its own cache line.
//!
//! **A stuck step is reported twice**, and everything about it is decided under the one lock of this file:
//!
//! | | by | when | what happens |
//! |---|---|---|---|
//! | stuck | a look | the pulse has stood still for long enough | a record; the first report; the worker is shown so |
//! | over | the worker, when its step is over | it sees that it was shown so | the record goes; the second report |
//! | over | a look | the pulse has moved, and the record is still there | the same |
//!
//! A worker may see late that its step was reported. That does not matter, because the next look finds what it
//! missed.
//!
//! **Looks are made only while a worker works.** `armed` says that there will be another look. The word of
//! `sleep.rs` says how many workers *rest*: look for work, or sleep. All others work.
//!
//! - A worker that begins, or has looked for work and found some (it has left the word): **fence**, reads `armed`. If
//!   there will be no look, and it is the one that changes that (an exchange), it sets the timer for the next look.
//! - A look that finds that all rest, and has no record: takes `armed` back, **fence**, reads the word again. If a
//!   worker works after all, and the look is the one that changes `armed`, it goes on as before.
//!
//! Either the worker left the word before the look read it again: the look goes on. Or its fence comes after that of
//! the look, and it sees that there will be no look. Because of the exchange there are never two next looks.
//!
//! **Spare workers** take the places of stuck workers: as many as are stuck, up to a limit. A look that finds waiting
//! work starts them. When fewer are stuck than spares run, the *surplus* is asked to exit. A flag is set, and as many
//! sleeping spares are woken, off the list of the sleepers, so that each of them looks. A spare that sees the flag
//!
//! 1. has no process in hand. If it looks for work, it stops looking *as one that has found work*: if it was the
//!    last, and there is work, and a worker sleeps, that one is woken;
//! 2. puts the contents of its hand-off slot, its deque and its shard where submissions from outside are, and notifies
//!    others like any thread that adds work;
//! 3. checks, under the lock, whether it is still surplus. If so, it has exited from here on. Otherwise it looks for
//!    work again. If all workers are to exit for good, it skips this check and exits as they do, because it may be
//!    the last thread that visits that queue.
//!
//! **Why no work is left waiting.** A thread that adds work wakes no worker only if a worker looks, or none sleeps.
//! If it relied on a spare that looked, that spare does what is expected of a worker that looks: 1 is `work_found`,
//! and the argument in `docs/scheduling.md` holds unchanged. If no worker slept, all others worked, and each of them
//! looks when its step is over. A spare that exits is not one of the few on which that rests, because it exits only
//! when more spares run than workers are stuck. Then, without it, as many are not stuck as there are workers without
//! spares. (A stuck worker that is not known to be stuck is found by a look.) The spare's own work is in the global
//! queue, as if another thread had sent it. And a worker that goes to sleep while the flag is set sees the flag. It
//! enters the list, and the list is looked through, under one lock. The flag is set before and read after.

use std::collections::VecDeque;
use std::time::Duration;

use super::counters::Counters;
use crate::primitives::{Arc, AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, Weak, fence, lock};
use crate::process::step_activity::Sight;
use crate::process::{Pid, ProcessIdentity, StepActivity, StuckStep};
use crate::sched::body::Kind;

/// The most reports that wait for delivery. If there are more, the observer hangs as well, and further ones are
/// dropped.
const MOST_REPORTS: usize = 1024;

/// A worker, as other threads see it.
#[derive(Default)]
pub(crate) struct WorkerView {
    pub(crate) counters: Counters,
    /// The PID of the process that it steps, in one word, or 0.
    pub(crate) current: AtomicU64,
    /// When the step began, in nanoseconds since the start of the runtime.
    pub(crate) since: AtomicU64,
    /// The pulse: a number that is odd while a step and its follow-up run, and different for each. Only a watched
    /// worker writes this and what follows.
    pub(crate) beat: AtomicU64,
    /// Whether the step with this beat was reported. Then its end is reported, too.
    pub(crate) reported: AtomicBool,
    pub(crate) sight: Sight,
}

pub(crate) struct StuckSteps {
    workers: usize,
    spares: usize,
    /// The longest time that a step may run, in nanoseconds.
    limit: u64,
    /// Whether there will be another look.
    armed: AtomicBool,
    /// Whether more spares run than are needed.
    surplus: AtomicBool,
    state: Mutex<State>,
    /// Set once, before the first worker begins.
    pub(crate) step_watcher: OnceLock<Weak<dyn StepWatcher>>,
}

/// Makes the looks, and reports their findings.
pub(crate) trait StepWatcher: Send + Sync {
    /// Plans a look: a worker works, and there is no next look.
    fn look_later(&self);

    /// Delivers waiting reports.
    fn tell(&self);
}

#[derive(Default)]
struct State {
    /// The findings of the last look, by worker.
    seen: Vec<Seen>,
    /// The number of steps that are stuck now.
    stuck: usize,
    /// The number of steps that ever were stuck.
    ever: u64,
    /// The number of spares that run.
    running: usize,
    reports: VecDeque<Report>,
    telling: bool,
}

#[derive(Clone, Default)]
struct Seen {
    beat: u64,
    /// When it was seen first. If the start of the step is known, that start.
    since: u64,
    record: Option<Box<Record>>,
}

#[derive(Clone)]
struct Record {
    step: FoundStep,
    /// Whether the first report was dropped. Then the second is dropped, too.
    untold: bool,
}

/// A stuck step, as a look has found it. [`describe`](Self::describe) makes the [`StuckStep`].
#[derive(Clone)]
pub(crate) struct FoundStep {
    pid: Pid,
    kind: Option<&'static Kind>,
    name: Option<Arc<str>>,
    doing: StepActivity,
    running_for: Duration,
}

impl FoundStep {
    /// Describes the step. The type of the process is asked for its name, which is user code: no lock may be held.
    pub(crate) fn describe(self) -> StuckStep {
        let FoundStep { pid, kind, name, doing, running_for } = self;
        let type_name = kind.map_or("", |kind| (kind.process)());
        let message_type = kind.map_or("", |kind| (kind.message_name)());
        StuckStep { process: ProcessIdentity { pid, type_name, name }, message_type, doing, running_for }
    }
}

/// A report for the observer.
pub(crate) struct Report {
    pub(crate) step: FoundStep,
    /// Whether the step has ended.
    pub(crate) over: bool,
}

/// The outcome of a look.
#[must_use]
pub(crate) struct Looked {
    /// Whether there is to be another look.
    pub(crate) again: bool,
    /// The number of spares to start. For each that cannot be started, call [`StuckSteps::spare_failed`].
    pub(crate) spares: usize,
}

/// The inputs of a look.
pub(crate) struct Scene<'a> {
    /// Nanoseconds since the start of the runtime.
    pub(crate) now: u64,
    pub(crate) views: &'a [Arc<WorkerView>],
    /// Whether views say exactly when a step began.
    pub(crate) exact: bool,
    /// Returns the kind and the name of a process. Called under the lock, so it must not call user code.
    pub(crate) identify: &'a dyn Fn(Pid) -> (Option<&'static Kind>, Option<Arc<str>>),
    /// Whether work is waiting.
    pub(crate) work: &'a dyn Fn() -> bool,
    /// How many workers look for work or sleep.
    pub(crate) resting: &'a dyn Fn() -> usize,
}

impl StuckSteps {
    pub(crate) fn new(workers: usize, spares: usize, limit: u64) -> StuckSteps {
        let state = State { seen: vec![Seen::default(); workers + spares], ..State::default() };
        StuckSteps {
            workers,
            spares,
            limit,
            armed: AtomicBool::new(false),
            surplus: AtomicBool::new(false),
            state: Mutex::new(state),
            step_watcher: OnceLock::new(),
        }
    }

    /// The views of the spares.
    pub(crate) fn spare_views(&self) -> std::ops::Range<usize> {
        self.workers..self.workers + self.spares
    }

    /// Called when a worker has left those that rest.
    pub(crate) fn works(&self) {
        if self.arms()
            && let Some(step_watcher) = self.step_watcher()
        {
            step_watcher.look_later();
        }
    }

    fn arms(&self) -> bool {
        // Ordering: pairs with the fence of `goes_on`. The worker has left the word before.
        fence(Ordering::SeqCst);
        !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::SeqCst)
    }

    /// Whether there will be another look.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Records that no look can be made. The next worker that works tries again.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }

    /// Whether the thread that has just looked is to look again.
    fn goes_on(&self, all_rest: impl Fn() -> bool) -> bool {
        if !all_rest() {
            return true;
        }
        self.disarm();
        // Ordering: pairs with the fence of `arms`.
        fence(Ordering::SeqCst);
        !all_rest() && !self.armed.swap(true, Ordering::SeqCst)
    }

    /// Looks at all workers.
    pub(crate) fn look(&self, scene: &Scene<'_>) -> Looked {
        let mut state = lock(&self.state);
        for (place, view) in scene.views.iter().enumerate() {
            self.look_at(&mut state, place, view, scene);
        }
        let missing = state.stuck.min(self.spares).saturating_sub(state.running);
        let spares = if missing > 0 && (scene.work)() { missing } else { 0 };
        state.running += spares;
        self.note_surplus(&state);
        let all = self.workers + state.running;
        // Under the lock, so that the number of spares does not change in the meantime. While there is a record there
        // is another look: its worker may rest already, and have missed that its step was reported.
        let again = state.stuck > 0 || self.goes_on(|| (scene.resting)() >= all);
        Looked { again, spares }
    }

    fn look_at(&self, state: &mut State, place: usize, view: &WorkerView, scene: &Scene<'_>) {
        // Ordering: Acquire, so that this look sees what belongs to this step, and nothing older.
        let beat = view.beat.load(Ordering::Acquire);
        if state.seen[place].beat != beat {
            state.over(place, view, scene.now);
            let since = if scene.exact { view.since.load(Ordering::Relaxed) } else { scene.now };
            state.seen[place] = Seen { beat, since, record: None };
        }
        let seen = &state.seen[place];
        let ran = scene.now.saturating_sub(seen.since);
        if beat.is_multiple_of(2) || seen.record.is_some() || ran < self.limit {
            return;
        }
        let pid = Pid::from_word(view.current.load(Ordering::Relaxed));
        let (Some(pid), Some(doing)) = (pid, view.sight.read()) else { return };
        // Set before the last check whether the step runs. A worker whose step ends from there on, however long this
        // takes, knows that there is or will be a record. Ordering: Relaxed: only a hint; a look finds what the
        // worker misses.
        view.reported.store(true, Ordering::Relaxed);
        // Ordering: pairs with the fence that a worker has after each change of its beat. If a value read above is of
        // a later step, that step's beat is seen here. Then this step is over. SeqCst, so that the flag above is not
        // set later than that.
        fence(Ordering::SeqCst);
        if view.beat.load(Ordering::Relaxed) != beat {
            view.reported.store(false, Ordering::Relaxed);
            return;
        }
        let (kind, name) = (scene.identify)(pid);
        let step = FoundStep { pid, kind, name, doing, running_for: Duration::from_nanos(ran) };
        state.stuck += 1;
        state.ever += 1;
        let untold = state.reports.len() >= MOST_REPORTS;
        if !untold {
            state.reports.push_back(Report { step: step.clone(), over: false });
        }
        state.seen[place].record = Some(Box::new(Record { step, untold }));
    }

    /// Handles the end of a worker's step that was reported.
    pub(crate) fn returned(&self, place: usize, view: &WorkerView, now: u64) {
        let mut state = lock(&self.state);
        state.over(place, view, now);
        self.note_surplus(&state);
    }

    fn note_surplus(&self, state: &State) {
        if self.too_many(state) > 0 {
            // Ordering: SeqCst is more than is needed: sleepers are found under the lock of the list, which orders
            // this.
            self.surplus.store(true, Ordering::SeqCst);
        }
    }

    fn too_many(&self, state: &State) -> usize {
        state.running.saturating_sub(state.stuck.min(self.spares))
    }

    /// Wakes surplus spares, so that they exit. `wake` returns whether the spare slept.
    pub(crate) fn dismiss_surplus(&self, wake: impl Fn(usize) -> bool) {
        let mut too_many = if self.has_surplus() { self.too_many(&lock(&self.state)) } else { 0 };
        for spare in self.spare_views() {
            if too_many == 0 {
                return;
            }
            if wake(spare) {
                too_many -= 1;
            }
        }
    }

    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::SeqCst)
    }

    /// Lets a spare exit if it is surplus. It neither looks nor sleeps, and has no work. Returns whether it exits.
    pub(crate) fn leaves(&self) -> bool {
        let mut state = lock(&self.state);
        let leaves = self.too_many(&state) > 0;
        if leaves {
            state.running -= 1;
        }
        if self.too_many(&state) == 0 {
            self.surplus.store(false, Ordering::SeqCst);
        }
        leaves
    }

    /// Records that a spare could not be started.
    pub(crate) fn spare_failed(&self) {
        lock(&self.state).running -= 1;
    }

    /// Returns the number of spares that run.
    pub(crate) fn spares(&self) -> usize {
        lock(&self.state).running
    }

    /// Calls `ask` with the number of all workers and spares, which does not change during the call.
    pub(crate) fn with_all<T>(&self, ask: impl FnOnce(usize) -> T) -> T {
        let state = lock(&self.state);
        ask(self.workers + state.running)
    }

    /// Returns the steps that are stuck now, and how many ever were.
    pub(crate) fn stuck(&self, now: u64) -> (Vec<FoundStep>, u64) {
        let state = lock(&self.state);
        let stuck = state.seen.iter().filter_map(|seen| {
            let step = seen.record.as_ref()?.step.clone();
            Some(FoundStep { running_for: Duration::from_nanos(now.saturating_sub(seen.since)), ..step })
        });
        (stuck.collect(), state.ever)
    }

    /// Whether the caller is to deliver reports, with [`next_report`](Self::next_report), until there is none.
    pub(crate) fn is_to_tell(&self) -> bool {
        let mut state = lock(&self.state);
        let begins = !state.telling && !state.reports.is_empty();
        state.telling |= begins;
        begins
    }

    /// Takes the next report. After `None`, the delivery begins anew when there is one.
    pub(crate) fn next_report(&self) -> Option<Report> {
        let mut state = lock(&self.state);
        let next = state.reports.pop_front();
        state.telling = next.is_some();
        next
    }

    pub(crate) fn step_watcher(&self) -> Option<Arc<dyn StepWatcher>> {
        self.step_watcher.get().and_then(Weak::upgrade)
    }
}

impl State {
    /// Handles the end of a step. If it was stuck, that is reported.
    fn over(&mut self, place: usize, view: &WorkerView, now: u64) {
        let seen = &mut self.seen[place];
        let Some(record) = seen.record.take() else { return };
        view.reported.store(false, Ordering::Relaxed);
        self.stuck -= 1;
        let Record { step, untold } = *record;
        if !untold {
            let running_for = Duration::from_nanos(now.saturating_sub(seen.since));
            self.reports.push_back(Report { step: FoundStep { running_for, ..step }, over: true });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Otherwise only the next look would find that the step is over, and there may be none for long.
    #[test]
    fn a_worker_is_shown_as_reported_while_its_step_is_recorded() {
        let (stuck_steps, views, shown) =
            (StuckSteps::new(1, 0, 1), [Arc::new(WorkerView::default())], Cell::new(false));
        let view = &*views[0];
        view.current.store(Pid::FIRST.to_word(), Ordering::Relaxed);
        view.beat.store(1, Ordering::Relaxed);
        for now in [0, 1] {
            let identify = |_| {
                shown.set(view.reported.load(Ordering::Relaxed));
                (None, None)
            };
            let scene =
                Scene { now, views: &views, exact: false, identify: &identify, work: &|| false, resting: &|| 0 };
            assert!(stuck_steps.look(&scene).again);
            assert_eq!(shown.get(), now == 1);
        }
        assert_eq!(stuck_steps.stuck(1).0.len(), 1);
        view.beat.store(2, Ordering::Relaxed);
        stuck_steps.returned(0, view, 2);
        assert!(stuck_steps.stuck(2).0.is_empty() && !view.reported.load(Ordering::Relaxed));
    }

    #[test]
    fn a_spare_that_is_needed_again_stays_despite_an_old_mark() {
        let stuck_steps = StuckSteps::new(1, 1, 1);
        {
            let mut state = lock(&stuck_steps.state);
            (state.stuck, state.running) = (1, 1);
        }
        stuck_steps.surplus.store(true, Ordering::SeqCst);
        assert!(!stuck_steps.leaves() && !stuck_steps.has_surplus());
        assert_eq!(stuck_steps.spares(), 1);
    }
}

#[cfg(all(test, loom))]
mod models;
