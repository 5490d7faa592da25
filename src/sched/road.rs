//! The state that workers, senders and the shutdown share, and the trait of executors, which give turns.

use std::time::Instant;

use super::counters::{Count, Counters};
use super::figures::Directory;
use super::handed::Handed;
#[cfg(feature = "cluster")]
use super::lease::Lease;
use super::non_local::NonLocal;
use super::queue::Queues;
use super::sleep::Sleep;
use super::stuck_steps::StuckSteps;
pub(crate) use super::stuck_steps::WorkerView;
use super::table::Table;
use super::visit::Visit;
use super::wait_sampler::{SinceStart, WaitSampler};
use crate::clock::Clock;
use crate::gate::Gate;
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, AtomicBool, AtomicUsize, Mutex, OnceLock, Ordering};
use crate::process::propagation::Propagator;
use crate::process::step_activity::Sight;
use crate::process::{Answer, DeadLetter, Observer, Pid, StepActivity};
use crate::sched::body::{BodyRecorder, Ready, StepOutput, Stepped, Verdict};
use crate::sched::mailbox::AnyMailbox;

/// The state that workers, senders and the shutdown share.
pub(crate) struct Road {
    pub(crate) table: Table,
    pub(crate) queues: Queues,
    pub(crate) sleep: Sleep,
    /// The views of the workers, followed by those of the spares.
    pub(crate) views: Box<[Arc<WorkerView>]>,
    /// The number of workers without spares.
    pub(crate) workers: usize,
    /// The state of the watchdog, if there is one.
    pub(crate) stuck_steps: Option<StuckSteps>,
    /// The counts of all threads that are not workers.
    pub(crate) outside: Counters,
    /// The places of the figures by type, if the runtime has such figures.
    pub(crate) directory: Option<Arc<Directory>>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Whether there is an observer, or there are figures by type.
    pub(crate) is_observed: bool,
    /// The recorder of processes. If there is one, there is an observer.
    pub(crate) recorder: Option<Arc<dyn BodyRecorder>>,
    /// Finds the traces of messages, if the runtime propagates traces.
    pub(crate) propagator: Option<Arc<dyn Propagator>>,
    pub(crate) clock: Clock,
    /// When the runtime was started.
    pub(crate) start: Instant,
    /// The number of processes that are to be ended and have not noticed. While it is zero, workers need not look for
    /// them.
    pub(crate) dooms: AtomicUsize,
    /// Closed when no process may begin any longer, except spawns that have begun.
    pub(crate) door: Gate,
    /// The shutdown has begun to look through the table. From now on no process may begin.
    pub(crate) roll_called: AtomicBool,
    /// The processes that the shutdown waits for. Closed when all have been counted.
    pub(crate) roll: Gate,
    /// Held during the decision whether an ask is part of a cycle.
    pub(crate) ask_cycles: Mutex<()>,
    /// The workers are to exit.
    pub(crate) stopped: AtomicBool,
    /// Ends everything that is in the queues. Called for processes that become ready after the workers have exited.
    pub(crate) reap: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Reaches the processes that live elsewhere, if there are any.
    pub(crate) non_local: OnceLock<Arc<dyn NonLocal>>,
    /// Reaches the processes of other nodes.
    #[cfg(feature = "cluster")]
    pub(crate) nodes: OnceLock<Arc<dyn NonLocal>>,
    /// The visits that no process has received yet.
    pub(crate) visits: Handed<Visit>,
    /// The leases that processes have not taken yet.
    #[cfg(feature = "cluster")]
    pub(crate) new_leases: Handed<Arc<Lease>>,
    /// The most new events that one step is given.
    pub(crate) budget: u32,
    /// The number of vacancies that a worker may keep for itself.
    pub(crate) stock: usize,
    /// Whether the start of every step is recorded, and not only at intervals.
    pub(crate) exact_times: bool,
}

/// Gives turns, and takes bodies that become ready. A worker has places of its own, and other threads use the global
/// queue.
pub(crate) trait Executor {
    /// The most steps in a row of a process that has events.
    const STEPS_IN_A_ROW: u32;

    fn counters(&self) -> &Counters;

    /// The number of the worker. Other threads have that of the first.
    fn number(&self) -> usize {
        0
    }

    /// Adds to one of the counts.
    fn count(&self, which: impl FnOnce(&Counters) -> &Count, by: u64) {
        let counters = self.counters();
        counters.add(which(counters), by);
    }

    /// Records that messages were put into a mailbox, and how many wait there now.
    fn posted(&mut self, queued: u32) {
        let _ = queued;
    }

    /// Returns how many turns a process passes whose step said `Continue`. It passes turns if it has outrun a
    /// receiver or woken another process.
    fn turns_to_pass(&mut self) -> u8 {
        0
    }

    /// Takes a process that was woken.
    fn woken(&mut self, ready: Ready);

    /// Begins a slice of the yields of a step. Processes that the slice wakes may be held back to its end.
    fn hold_back(&mut self) {}

    /// Ends the last slice.
    fn release(&mut self) {}

    /// Takes a process that was spawned.
    fn spawned(&mut self, ready: Ready);

    /// Returns the process that is stepped next because the one in hand has woken it. It cannot be at rest.
    fn next(&self) -> Option<Pid> {
        None
    }

    /// Whether the process in hand is stepped again at once. It `may` be, unless it has woken the next process. It also
    /// is if nothing else is ready, because then it need not make room. Its last step may have made others ready:
    /// other workers are notified of them, because this worker will not take them now.
    fn goes_on(&mut self, may: bool) -> bool {
        may
    }

    /// User code that may take long is about to run after the step. Ready processes must be where other workers find
    /// them.
    fn let_go(&mut self);

    /// Records that a step of this process begins, and shows [`StepActivity::Step`].
    fn begins(&mut self, pid: Pid, body: &mut Ready);

    /// The place where the activity of a step is shown, if a watchdog looks at it.
    #[inline]
    fn sight(&self) -> Option<&Sight> {
        None
    }

    /// Shows the activity of the worker from now on.
    #[inline]
    fn shows(&self, activity: StepActivity) {
        let _ = activity;
    }

    /// Microseconds since the start of the runtime, possibly some steps old.
    fn about_now(&self) -> u64;

    /// Returns how many new events the next step of this process is given, at most `budget`. A simulation may choose.
    #[inline(always)]
    fn allow(&mut self, body: &Ready, budget: u32) -> u32 {
        let _ = body;
        budget
    }

    /// Called when events have come into the mailbox of the body since its step began, and before the machine is
    /// stepped.
    #[inline(always)]
    fn given(&mut self, body: &mut Ready) {
        let _ = body;
    }

    /// Called when the step that has begun does not take place after all.
    #[inline(always)]
    fn not_stepped(&mut self, body: &mut Ready) {
        let _ = body;
    }

    /// Called when a `start` that yields has returned, before its yields are performed.
    #[inline(always)]
    fn started(&mut self, out: &StepOutput) {
        let _ = out;
    }

    /// Called when `init` or `start` has failed. `out` has the failure.
    #[inline(always)]
    fn not_begun(&mut self, body: &Ready, out: &StepOutput) {
        let _ = (body, out);
    }

    /// Called when a future of the process in hand is ready, with its answer.
    #[inline(always)]
    fn polled(&mut self, body: &Ready, answer: &Answer) {
        let _ = (body, answer);
    }

    /// Called when a step has returned, before its yields are performed. A simulation may let the step fail.
    #[inline(always)]
    fn stepped(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) -> Stepped {
        let _ = (body, out);
        stepped
    }

    /// Counts a step that has returned, before its yields are performed, and shows [`StepActivity::AfterStep`].
    fn counts_step(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped);

    /// Called before each yield of a step is performed. In a simulation others may have their turns meanwhile, as on
    /// other workers.
    #[inline(always)]
    fn pause(&mut self) {}
}

impl Road {
    /// Makes a road for this many workers, which are not started here. It has no observer and no watchdog.
    pub(crate) fn new(table: Table, queues: Queues, workers: usize, clock: Clock, budget: u32) -> Road {
        Road {
            table,
            queues,
            sleep: Sleep::new(workers),
            views: std::iter::repeat_with(|| Arc::new(WorkerView::default())).take(workers).collect(),
            workers,
            stuck_steps: None,
            outside: Counters::shared(),
            directory: None,
            observer: None,
            is_observed: false,
            recorder: None,
            propagator: None,
            start: clock.now(),
            clock,
            dooms: AtomicUsize::new(0),
            door: Gate::new(),
            roll_called: AtomicBool::new(false),
            roll: Gate::new(),
            ask_cycles: Mutex::new(()),
            stopped: AtomicBool::new(false),
            reap: OnceLock::new(),
            non_local: OnceLock::new(),
            #[cfg(feature = "cluster")]
            nodes: OnceLock::new(),
            visits: Handed::default(),
            #[cfg(feature = "cluster")]
            new_leases: Handed::default(),
            budget,
            stock: 0,
            exact_times: false,
        }
    }

    /// Gives all counters figures by type. One step in so many is timed, and one message in so many is measured.
    pub(crate) fn with_figures(mut self, one_in: (u32, u32)) -> Road {
        let directory = Arc::new(Directory::new(self.views.len(), one_in));
        let views = self.views.iter_mut().filter_map(Arc::get_mut);
        views
            .map(|view| &mut view.counters)
            .chain([&mut self.outside])
            .for_each(|counters| counters.add_figures(&directory));
        self.directory = Some(directory);
        self.is_observed = true;
        self
    }

    /// Puts a ready process behind all others, from outside the workers.
    pub(crate) fn inject(&self, ready: Ready) {
        self.queues.push(ready);
        self.injected();
    }

    /// Notifies a worker of a process that was put into the global queue, from outside the workers.
    pub(crate) fn injected(&self) {
        if self.sleep.work_added() {
            self.outside.add(&self.outside.woke_others, 1);
        }
        // A thread that was delayed between two lines may come after the workers have exited. Both sides have a fence
        // between their write and their read (`work_added` here, `end_workers` there). So one of them sees the other.
        if self.stopped.load(Ordering::SeqCst)
            && let Some(reap) = self.reap.get()
        {
            reap();
        }
    }

    /// Wakes surplus spares, so that they exit.
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
        #[cfg(all(test, not(loom)))]
        crate::primitives::locks::count_clock_reading();
        self.clock.now().saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Decides which messages of a thread that gives turns are measured, if the waits of messages are.
    pub(crate) fn wait_sampler(&self) -> Option<WaitSampler> {
        let directory = self.directory.as_ref()?;
        let number = directory.next_sampler()?;
        Some(WaitSampler::new(directory.wait_one_in, number, self.since_start()))
    }

    /// The time of this runtime.
    pub(crate) fn since_start(&self) -> SinceStart {
        SinceStart::new(self.clock.clone(), self.start)
    }

    /// Whether the wait of the next message from outside is to be measured.
    #[inline]
    pub(crate) fn is_next_measured(&self) -> bool {
        self.outside.figures.as_ref().is_some_and(|figures| figures.is_next_measured())
    }

    /// Marks the last message of an open mailbox, if it is measured. Its wait begins now, when the caller has the lock.
    #[inline]
    pub(crate) fn mark_wait(&self, mailbox: &mut dyn AnyMailbox, is_measured: bool) {
        if is_measured {
            mailbox.mark_wait(0, self.now_nanos());
        }
    }

    /// Reports a message that no step will get.
    pub(crate) fn dead_letter(&self, counters: &Counters, letter: &DeadLetter<'_>) {
        counters.dead(letter.reason, 1);
        if let Some(figures) = &counters.figures
            && let Some(kind) = self.table.cell(letter.to).and_then(|cell| cell.kind_of(letter.to))
        {
            figures.dead(kind, 1);
        }
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
        self.tell_observer(|observer| observer.dead_letter(letter));
        if let Some(tell) = letter.tell_trace {
            tell(letter);
        }
    }

    /// Calls the observer, if there is one, and contains its panics.
    pub(crate) fn tell_observer(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer
            && let Err(panic) = contain(|| tell(&**observer))
        {
            tell_log(|| tracing::error!(%panic, "an observer panicked"));
        }
    }
}

/// Counts a step that has returned, on a thread that is no worker.
pub(crate) fn count_step<H: Executor>(executor: &H, body: &Ready, out: &mut StepOutput, stepped: Stepped) {
    executor.shows(StepActivity::AfterStep);
    executor.count(|counters| &counters.steps, 1);
    executor.count(|counters| &counters.stepped, u64::from(stepped.messages()));
    if let Some(figures) = &executor.counters().figures {
        figures.stepped(None, body.machine.kind(), out, stepped);
    } else if stepped.verdict == Verdict::Broken {
        // In the driver of a test, a step may have counts although there are no figures.
        out.counted.clear();
    }
}

/// The executor of threads that are not workers. Everything goes to the global queue at once.
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

    fn let_go(&mut self) {}

    fn begins(&mut self, _: Pid, body: &mut Ready) {
        self.road.prepare_span(body);
    }

    fn counts_step(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) {
        self.road.finish_span(body, out);
        count_step(self, body, out, stepped);
    }

    fn about_now(&self) -> u64 {
        self.road.now_micros()
    }
}
