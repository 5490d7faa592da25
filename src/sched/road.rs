//! Everything that workers, senders and the shutdown share, and the executor, which gives turns.

use std::time::Instant;

use super::counters::{Count, Counters};
use super::queue::Queues;
use super::sleep::Sleep;
use super::stuck_steps::StuckSteps;
use super::table::Table;
pub(crate) use super::worker_view::WorkerView;
use crate::clock::Clock;
use crate::gate::Gate;
use crate::latch::Latch;
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, AtomicBool, AtomicUsize, Mutex, OnceLock, Ordering, Weak};
use crate::process::{DeadLetter, Observer, Pid, StepActivity};
use crate::sched::body::Ready;

/// Everything that workers, senders and the shutdown share.
pub(crate) struct Road {
    pub(crate) table: Table,
    pub(crate) queues: Queues,
    pub(crate) sleep: Sleep,
    /// Of the workers, and behind them of the spares.
    pub(crate) views: Box<[Arc<WorkerView>]>,
    /// How many workers there are without spares.
    pub(crate) workers: usize,
    /// For the watchdog, if there is one.
    pub(crate) stuck_steps: Option<StuckSteps>,
    /// Counts of all threads that are not workers.
    pub(crate) outside: Counters,
    pub(crate) hook: Option<Arc<dyn Observer>>,
    pub(crate) clock: Clock,
    /// When the runtime was started.
    pub(crate) start: Instant,
    /// Processes that are to be ended and have not been told: while there are none, nobody looks for them.
    pub(crate) dooms: AtomicUsize,
    /// Closed when no process may begin any more, except spawns that have begun.
    pub(crate) door: Gate,
    /// The shutdown has begun to look through the table: from here on nobody may begin.
    pub(crate) roll_called: AtomicBool,
    pub(crate) roll: Roll,
    /// Held while it is decided whether an ask is part of a cycle.
    pub(crate) ask_cycles: Mutex<()>,
    /// The workers are to leave.
    pub(crate) stopped: AtomicBool,
    /// Ends processes that become ready after the workers have left.
    pub(crate) reaper: OnceLock<Weak<dyn Reaper>>,
    /// The most new events for one step.
    pub(crate) budget: u32,
    /// Vacancies that a worker may keep for itself.
    pub(crate) stock: usize,
    /// Whether the start of each step is noted, or only that of every so many.
    pub(crate) exact_times: bool,
}

/// Ends everything that is in the queues.
pub(crate) trait Reaper: Send + Sync {
    fn reap(&self);
}

/// How many processes a shutdown still waits for.
pub(crate) struct Roll {
    // One more than the processes, as long as they are being counted.
    left: AtomicUsize,
    pub(crate) empty: Latch<()>,
}

impl Roll {
    pub(crate) fn new() -> Roll {
        Roll { left: AtomicUsize::new(1), empty: Latch::new() }
    }

    pub(crate) fn add(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// How many have not ended.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    /// A process has ended; or, the last call of the count, all have been counted.
    pub(crate) fn strike(&self) {
        // Ordering: AcqRel, so that a thread that sees the roll empty sees all that the processes did.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.empty.set(());
        }
    }
}

/// Where bodies go that become ready: a worker has places of its own, everybody else has the global queue.
pub(crate) trait Executor {
    /// Steps in a row that a process may have while it has events.
    const STEPS_IN_A_ROW: u32;

    fn counters(&self) -> &Counters;

    /// Adds to one of the counts.
    fn count(&self, which: impl FnOnce(&Counters) -> &Count, by: u64) {
        let counters = self.counters();
        counters.add(which(counters), by);
    }

    /// Messages were put into a mailbox, where now so many wait.
    fn posted(&mut self, queued: u32) {
        let _ = queued;
    }

    /// The turns that a process lets pass whose step said `Continue`, because it has outrun a receiver or woken
    /// another process.
    fn turns_to_pass(&mut self) -> u8 {
        0
    }

    /// A process was woken.
    fn woken(&mut self, ready: Ready);

    /// A process was spawned.
    fn spawned(&mut self, ready: Ready);

    /// The process that is to be stepped next, because the one in hand has woken it. It cannot be at rest.
    fn next(&self) -> Option<Pid> {
        None
    }

    /// Nothing else is ready for this worker: a process that continues need not make room.
    fn is_alone(&mut self) -> bool;

    /// The process in hand is stepped on at once: what its last step has made ready is told of, for this worker will
    /// not take it now.
    fn goes_on(&mut self) {}

    /// User code is about to run that may take long: what is ready must be where others find it.
    fn let_go(&mut self);

    /// A step begins.
    fn begins(&mut self, pid: Pid);

    /// The worker does this for the step from now on.
    #[inline]
    fn shows(&mut self, activity: StepActivity) {
        let _ = activity;
    }

    /// Now the step itself.
    #[inline]
    fn before_step(&mut self, body: &mut Ready) {
        let _ = body;
    }

    /// The step has returned; what follows belongs to it until the next begins, or the turn is over.
    #[inline]
    fn after_step(&mut self, body: &mut Ready) {
        let _ = body;
    }

    /// Microseconds since the start of the runtime, not necessarily to the last step.
    fn about_now(&self) -> u64;
}

impl Road {
    /// A road with this many workers, which are not started here. Nobody observes it, and no watchdog watches it.
    pub(crate) fn new(table: Table, queues: Queues, workers: usize, clock: Clock, budget: u32) -> Road {
        Road {
            table,
            queues,
            sleep: Sleep::new(workers),
            views: std::iter::repeat_with(|| Arc::new(WorkerView::new())).take(workers).collect(),
            workers,
            stuck_steps: None,
            outside: Counters::shared(),
            hook: None,
            start: clock.now(),
            clock,
            dooms: AtomicUsize::new(0),
            door: Gate::new(),
            roll_called: AtomicBool::new(false),
            roll: Roll::new(),
            ask_cycles: Mutex::new(()),
            stopped: AtomicBool::new(false),
            reaper: OnceLock::new(),
            budget,
            stock: 0,
            exact_times: false,
        }
    }

    /// Puts a ready process behind all others, from outside the workers.
    pub(crate) fn inject(&self, ready: Ready) {
        self.queues.push(ready);
        if self.sleep.work_added() {
            self.outside.add(&self.outside.woke_others, 1);
        }
        // Somebody who was held up between two lines may come when the workers have left. Both sides have a fence
        // between what they write and what they read (`work_added` here, `end_workers` there), so one of them sees
        // the other.
        if self.stopped.load(Ordering::SeqCst)
            && let Some(reaper) = self.reaper.get().and_then(Weak::upgrade)
        {
            reaper.reap();
        }
    }

    /// Wakes spares that are too many, so that they leave.
    pub(crate) fn dismiss_surplus(&self) {
        if let Some(stuck_steps) = &self.stuck_steps {
            stuck_steps.dismiss_surplus(|spare| self.sleep.wake(spare));
        }
    }

    pub(crate) fn is_roll_called(&self) -> bool {
        self.roll_called.load(Ordering::SeqCst)
    }

    /// Microseconds since the start of the runtime.
    pub(crate) fn now_micros(&self) -> u64 {
        self.clock.now().saturating_duration_since(self.start).as_micros() as u64
    }

    pub(crate) fn now_nanos(&self) -> u64 {
        self.clock.now().saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Reports a message that will not be stepped.
    pub(crate) fn dead_letter(&self, counters: &Counters, letter: &DeadLetter<'_>) {
        counters.dead(letter.reason, 1);
        if tracing::level_enabled!(tracing::Level::DEBUG) {
            tell_log(|| {
                tracing::debug!(
                    to = %letter.to,
                    name = letter.name,
                    from = letter.from.map(tracing::field::display),
                    reason = %letter.reason,
                    message = letter.type_name,
                    takes = letter.takes,
                    "dead letter"
                );
            });
        }
        self.tell_hook(|hook| hook.dead_letter(letter));
    }

    /// Calls the hook, if there is one, and contains its panics.
    pub(crate) fn tell_hook(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Some(hook) = &self.hook
            && let Err(panic) = contain(|| tell(&**hook))
        {
            tell_log(|| tracing::error!(%panic, "a hook panicked"));
        }
    }
}

/// For threads that are not workers: everything goes to the global queue at once.
pub(crate) struct OutsideExecutor<'a> {
    pub(crate) road: &'a Road,
}

impl Executor for OutsideExecutor<'_> {
    const STEPS_IN_A_ROW: u32 = 1;

    fn counters(&self) -> &Counters {
        &self.road.outside
    }

    fn woken(&mut self, ready: Ready) {
        self.road.inject(ready);
    }

    fn spawned(&mut self, ready: Ready) {
        self.road.inject(ready);
    }

    fn is_alone(&mut self) -> bool {
        false
    }

    fn let_go(&mut self) {}

    fn begins(&mut self, _: Pid) {}

    fn about_now(&self) -> u64 {
        self.road.now_micros()
    }
}
