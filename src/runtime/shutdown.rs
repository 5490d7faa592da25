//! The end of a runtime.
//!
//! The whole end runs on one thread, which is started for it: *the thread*, below. These are the stages, in order,
//! with the user code that may run on this thread:
//!
//! 1. `Processes`: the door is closed. Every process is asked to stop. The thread waits until the roll is empty or
//!    the limit is over. The remaining processes are terminated. User code: the log, and wakers of those who wait for
//!    names and groups of the cluster.
//! 2. `Timers`: the timers stop, and pending ones are dropped. User code: wakers, destructors.
//! 3. `Jobs`: jobs that wait are dropped, and jobs that run are asked to stop. User code: destructors, callbacks.
//! 4. `Workers`: the workers exit.
//! 5. `Process`: each process that no worker has ended is ended. User code: `close`, destructors, the observer,
//!    wakers.
//! 6. `Threads`: the threads that have exited are joined. User code: destructors of thread-locals.
//!
//! The thread waits with a limit for code that runs on another thread: a step on a worker, or a job of the pool. It
//! cannot limit user code that runs on itself. So callers wait for the report until the limit is over. Then they wait
//! until the end has made no progress for [`GRACE`]. Progress is that a process was ended, a value was dropped, or a
//! stage was begun. So a large runtime that ends slowly is not taken for one that hangs. Without a limit, a caller
//! first waits until all processes and their jobs have ended. Then the grace begins.
//!
//! | the end | `begin` | the thread has done the last stage | a caller's wait is over |
//! |---|---|---|---|
//! | has not begun | **runs**: notes the deadline, starts the thread | | |
//! | **runs** | nothing: the first deadline counts | **reported** | **reported**, with the stage; the rest is forced |
//! | **reported** | nothing | nothing: the report stays | gets the report |
//!
//! *Begun once, reported once.* The deadline and the report can each be set once. The first call that sets them wins.
//!
//! *No caller waits for user code.* A caller that gives up makes the report itself, from the state of that moment.
//! Then a second thread *forces* the rest. It first does everything that needs no user code. It terminates the
//! processes. It stops the timers, the pool and the workers. It sets the exits of the processes that no worker has
//! ended, so that `join` returns for them. Only then does it run user code, and no other action depends on that. The
//! first thread may go on after all. Then it finds each of these actions done. Each of them may be done twice.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::dispatch::Core;
use super::report::{ShutdownError, ShutdownReport, ShutdownStage};
use super::tree::Tree;
use super::watchdog::WatchdogTimer;
use super::worker_threads::WorkerThreads;
use crate::cancel::CancelCallback;
use crate::clock::{Clock, Deadline};
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Reason, contain, drop_contained, tell_log};
use crate::primitives::{Arc, AtomicU64, Mutex, OnceLock, Ordering, ThreadId, Weak, fence, lock, thread};
use crate::process::{CancelRequest, Pid};
use crate::sched::non_local::Settled;
use crate::shutdown::ShutdownNode;
use crate::threads;

/// The time without progress, after the limit, after which a caller gives up. It is by the system's clock, because a
/// program might not move a manual clock.
const GRACE: Duration = Duration::from_millis(250);

const THREAD: &str = "procession-shutdown";

/// The end of a runtime.
pub(super) struct Shutdown {
    core: Arc<Core>,
    pub(super) worker_threads: Arc<WorkerThreads>,
    pub(super) watchdog_timer: Option<Arc<WatchdogTimer>>,
    /// Declared when its node is requested. Most runtimes are in no tree.
    tree: OnceLock<DeclaredTree>,
    /// The limit of a shutdown that the tree asks for.
    limit: Duration,
    /// Threads that cannot wait for the end. They run an `init` for a spawn from outside, or the end itself.
    inside: Mutex<Vec<ThreadId>>,
    /// Set when the end begins: the time of that moment, and the deadline.
    begun: OnceLock<(Instant, Deadline)>,
    progress: Mutex<Progress>,
    /// Counts the progress of the end; see [`Shutdown::moves`].
    done: AtomicU64,
    /// Set when all processes and their jobs have ended, or when the limit is over.
    settled: Latch<()>,
    report: Latch<Arc<ShutdownReport>>,
}

struct DeclaredTree {
    tree: Tree,
    /// Keeps the callback that shuts the runtime down on a request to its tree.
    _asked: CancelCallback,
}

/// The progress of the end that no other state shows.
#[derive(Default)]
struct Progress {
    stage: ShutdownStage,
    /// How many parts of the tree have ended, in their order.
    parts_over: usize,
    /// Processes that lived when the end began.
    lived: usize,
    /// Processes that were terminated.
    forced: Vec<Pid>,
    /// The number of processes that were partly ended when the limit was over.
    half_ended: usize,
    /// The number of jobs that were never begun.
    abandoned: usize,
    /// The processes elsewhere, when those here had ended.
    elsewhere: Settled,
}

/// While this exists, its thread must not wait for the end.
pub(super) struct Inside<'a> {
    shutdown: &'a Shutdown,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let me = thread::current().id();
        let mut inside = lock(&self.shutdown.inside);
        if let Some(place) = inside.iter().rposition(|thread| *thread == me) {
            inside.swap_remove(place);
        }
    }
}

impl Shutdown {
    /// Makes the end. A request of the tree is a shutdown with this `limit`.
    pub(super) fn new(
        core: Arc<Core>,
        worker_threads: Arc<WorkerThreads>,
        watchdog_timer: Option<Arc<WatchdogTimer>>,
        limit: Duration,
    ) -> Arc<Shutdown> {
        Arc::new(Shutdown {
            core,
            worker_threads,
            watchdog_timer,
            tree: OnceLock::new(),
            limit,
            inside: Mutex::default(),
            begun: OnceLock::new(),
            progress: Mutex::default(),
            done: AtomicU64::new(0),
            settled: Latch::new(),
            report: Latch::new(),
        })
    }

    /// The node above all parts, always the same.
    pub(super) fn node(self: &Arc<Shutdown>) -> ShutdownNode {
        let node = self.tree.get_or_init(|| self.declare_tree()).tree.shutdown_node();
        // Parts may have ended before. The thread of the end may not have seen the tree.
        self.tell_tree();
        node
    }

    fn declare_tree(self: &Arc<Shutdown>) -> DeclaredTree {
        let (me, working) = (Arc::downgrade(self), self.worker_threads.inside.clone());
        let asks: Weak<Shutdown> = me.clone();
        let is_inside = move || me.upgrade().is_some_and(|shutdown| shutdown.is_inside());
        let tree = Tree::declare(&self.core, is_inside, move || working.inside());
        let asked = tree.processes.end().on_cancel(move |_| {
            if let Some(shutdown) = asks.upgrade() {
                let limit = shutdown.limit;
                shutdown.run_elsewhere(limit);
            }
        });
        DeclaredTree { tree, _asked: asked }
    }

    /// Reports the parts that have ended to the tree, if there is one.
    ///
    /// The thread of the end first notes what has ended and then looks for the tree. A thread that requests the node
    /// first declares the tree and then looks at what has ended. So one of the two sees the other. If both do, the
    /// second report changes nothing.
    fn tell_tree(&self) {
        let Some(DeclaredTree { tree, .. }) = self.tree.get() else { return };
        match self.report.get() {
            Some(report) => tree.over(&report),
            None => {
                let count = lock(&self.progress).parts_over;
                tree.parts_over(count);
            }
        }
    }

    /// Notes that this many parts have ended.
    fn parts_over(&self, count: usize) {
        lock(&self.progress).parts_over = count;
        self.tell_tree();
    }

    pub(super) fn enter(&self) -> Inside<'_> {
        lock(&self.inside).push(thread::current().id());
        Inside { shutdown: self }
    }

    /// Whether the calling thread works for this runtime. Such a thread must not wait for the end.
    fn is_inside(&self) -> bool {
        let (me, core) = (thread::current().id(), &self.core);
        self.worker_threads.is_current()
            || core.pool.is_inside()
            || core.simulation.as_ref().is_some_and(|simulation| simulation.is_in_job())
            || core.timers.is_current()
            || self.watchdog_timer.as_ref().is_some_and(|watchdog_timer| watchdog_timer.is_current())
            || lock(&self.inside).contains(&me)
    }

    /// Ends the runtime, and waits for the report.
    pub(super) fn run(self: &Arc<Shutdown>, limit: Duration) -> Result<Arc<ShutdownReport>, ShutdownError> {
        if is_step() {
            return Err(ShutdownError::InsideStep);
        }
        if self.is_inside() {
            return Err(ShutdownError::Inside);
        }
        self.begin(limit);
        Ok(self.wait())
    }

    /// Ends the runtime. The calling thread does not wait.
    fn run_elsewhere(self: Arc<Shutdown>, limit: Duration) {
        // Not on the other thread: if the last handle is dropped next, its drop must find that the end has begun.
        self.begin(limit);
        let shutdown = self.clone();
        self.help(move || {
            shutdown.wait();
        });
    }

    /// Ends the runtime when the last handle was dropped.
    pub(super) fn abandon(self: &Arc<Shutdown>) {
        if self.begun.get().is_some() {
            return;
        }
        if is_step() || self.is_inside() {
            return self.clone().run_elsewhere(Duration::ZERO);
        }
        self.begin(Duration::ZERO);
        self.wait();
    }

    fn begin(self: &Arc<Shutdown>, limit: Duration) {
        let clock = &self.core.road.clock;
        let deadline = clock.deadline(limit);
        if self.begun.set((clock.now(), deadline)).is_ok() {
            let shutdown = self.clone();
            self.help(move || shutdown.end(limit, deadline));
        }
    }

    fn wait(self: &Arc<Shutdown>) -> Arc<ShutdownReport> {
        let deadline = self.begun.get().map_or(Deadline::NEVER, |(_, deadline)| *deadline);
        let clock = &self.core.road.clock;
        let in_time = match deadline {
            Deadline::NEVER => self.settled.wait_until(clock, deadline) && self.report.is_set(),
            _ => self.report.wait_until(clock, deadline),
        };
        if !in_time && self.hangs() {
            let report = Arc::new(self.make_report(true));
            if self.report.set(report.clone()).is_ok() {
                let shutdown = self.clone();
                self.help(move || shutdown.force(&report));
            }
        }
        self.report.wait()
    }

    /// Waits for the report. Returns `true` if the end has made no progress for the grace.
    fn hangs(&self) -> bool {
        let mut seen = self.moves();
        while !self.report.wait_until(&self.patience(), self.within(10)) {
            let now = self.moves();
            if now == seen {
                return true;
            }
            seen = now;
        }
        false
    }

    /// Values of which one changes whenever the end makes progress.
    fn moves(&self) -> (usize, usize, u64) {
        (self.core.road.roll.inside(), self.core.pool.joined(), self.done.load(Ordering::Relaxed))
    }

    /// Runs a part of the end on a thread of its own.
    fn help(&self, part: impl FnOnce() + Send + 'static) {
        match &self.core.simulation {
            None => drop(threads::on_helper_thread(THREAD, part)),
            Some(simulation) => simulation.helper(Box::new(part)),
        }
    }

    /// The clock of the grace. It is the system's, because the time of a manual clock may stand still.
    fn patience(&self) -> Clock {
        if self.core.simulation.is_some() { self.core.road.clock.clone() } else { Clock::system() }
    }

    /// A deadline after this many tenths of the grace.
    fn within(&self, tenths: u32) -> Deadline {
        self.patience().deadline(GRACE * tenths / 10)
    }

    fn note_move(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn stage(&self, stage: ShutdownStage) {
        lock(&self.progress).stage = stage;
        self.note_move();
    }

    /// Drops these values one by one. Each drop is progress.
    fn drop_all(&self, all: impl IntoIterator<Item: Send + 'static>) {
        for one in all {
            drop_contained(one);
            self.note_move();
        }
    }

    /// The main function of the thread of the end.
    fn end(&self, limit: Duration, deadline: Deadline) {
        let _inside = self.enter();
        tell_log(|| tracing::info!(?limit, node = self.core.road.table.node(), "runtime shuts down"));
        let ended = contain(|| self.end_in_order(deadline));
        if let Err(panic) = &ended {
            tell_log(|| tracing::error!(%panic, "the shutdown panicked"));
            // A caller without a limit must not wait for the remaining processes, because no thread will end them.
            let _ = self.settled.set(());
        }
        let report = Arc::new(self.make_report(ended.is_err()));
        self.tell(&report);
        if let Some(simulation) = &self.core.simulation
            && !limit.is_zero()
            && !report.is_clean()
        {
            simulation.was_forced(report.to_string());
        }
        let is_first = self.report.set(report.clone()).is_ok();
        self.tell_tree();
        if is_first && ended.is_err() {
            self.force(&report);
        }
    }

    fn end_in_order(&self, deadline: Deadline) {
        let (core, road) = (&self.core, &self.core.road);
        // A thread that is in the middle of a spawn from outside finds the roll called. A later spawn finds the door
        // closed.
        road.door.close();
        #[cfg(feature = "cluster")]
        let calls = road.close_nodes();
        self.ask_all_to_stop(deadline);
        #[cfg(feature = "cluster")]
        calls.into_iter().for_each(|calls| calls());
        let in_time = road.roll.empty().wait_until(&road.clock, deadline);
        if in_time {
            // The limit also holds for work that the processes have yielded with their last steps.
            match &core.simulation {
                None => core.pool.drain_until(&road.clock, deadline),
                Some(simulation) => simulation.drain(deadline),
            }
            road.door.empty().wait_until(&road.clock, deadline);
        }
        let patience = self.patience();
        let [processes, works, workers] = [6, 7, 8].map(|tenths| self.within(tenths));
        if !in_time {
            let in_table = road.table.cells().filter(|(_, cell)| cell.look().is_some()).count();
            lock(&self.progress).half_ended = self.half_ended(in_table);
            self.terminate_all();
            road.roll.empty().wait_until(&patience, processes);
        }
        // Before any user code runs that may hang.
        #[cfg(feature = "cluster")]
        {
            self.note_move();
            let until = if in_time { deadline } else { road.clock.deadline(Duration::ZERO) };
            road.leave_nodes(&road.clock, until);
            self.note_move();
        }
        let elsewhere = match in_time {
            true => road.settle_elsewhere(&road.clock, deadline),
            false => road.settle_elsewhere(&patience, processes),
        };
        lock(&self.progress).elsewhere = elsewhere;
        self.parts_over(1);
        let _ = self.settled.set(());
        // The other nodes and the store may have taken all of that time.
        let [works, workers] =
            [(works, 1), (workers, 2)].map(|(before, tenths)| Deadline(before.0.max(self.within(tenths).0)));

        self.stage(ShutdownStage::Timers);
        let (pending, timers) = core.timers.halt();
        self.drop_all(pending);
        self.parts_over(2);

        self.stage(ShutdownStage::Jobs);
        let waiting = core.pool.abandon();
        let jobs = core.simulation.as_ref().map_or_else(Vec::new, |simulation| simulation.abandon());
        lock(&self.progress).abandoned = waiting.len() + jobs.len();
        core.over.cancel(Reason::Shutdown);
        self.drop_all(waiting);
        self.drop_all(jobs);
        core.pool.leave_until(&patience, works);
        self.parts_over(3);

        self.stage(ShutdownStage::Workers);
        self.dismiss_workers();
        if in_time {
            // A worker may be in the middle of ending a process. The limit also holds for that.
            self.worker_threads.inside.empty().wait_until(&road.clock, deadline);
        }
        self.worker_threads.inside.empty().wait_until(&patience, workers);
        // Pairs with `Road::inject`.
        fence(Ordering::SeqCst);
        core.reap(|process| self.stage(ShutdownStage::Process(process)));

        self.stage(ShutdownStage::Threads);
        let (left, stuck): (Vec<_>, Vec<_>) =
            self.worker_threads.take().into_iter().partition(|worker| worker.left.is_set());
        if !stuck.is_empty() {
            tell_log(|| tracing::warn!(workers = stuck.len(), "workers are stuck in a step and were left behind"));
        }
        core.pool.join_threads();
        self.note_move();
        let mut threads: Vec<_> = left.into_iter().map(|worker| worker.handle).collect();
        threads.extend(self.watchdog_timer.as_ref().and_then(|watchdog_timer| watchdog_timer.reporter()));
        // The thread of the timers is joined last, because the action of a timer may block it.
        threads.extend(timers);
        let me = thread::current().id();
        for other in threads.into_iter().filter(|other| other.thread().id() != me) {
            // User code is contained, so no thread has panicked.
            let _ = other.join();
            self.note_move();
        }
    }

    /// Does the rest of an end that hangs in user code. The actions without user code come first.
    fn force(&self, report: &ShutdownReport) {
        let _inside = self.enter();
        let (core, road) = (&self.core, &self.core.road);
        road.door.close();
        road.roll_called.store(true, Ordering::SeqCst);
        self.terminate_all();
        let (patience, soon) = (self.patience(), self.within(10));
        road.roll.empty().wait_until(&patience, soon);
        let (pending, _) = core.timers.halt();
        let waiting = core.pool.abandon();
        self.dismiss_workers();
        self.worker_threads.inside.empty().wait_until(&patience, soon);
        fence(Ordering::SeqCst);
        let exits = core.set_exits();
        // From here on user code runs. The tree and the jobs come first, because other threads may wait for them.
        self.tell(report);
        core.over.cancel(Reason::Shutdown);
        exits.into_iter().for_each(|call| drop(contain(call)));
        pending.into_iter().for_each(drop_contained);
        waiting.into_iter().for_each(drop_contained);
        core.reap(drop);
    }

    /// Asks every process to stop.
    fn ask_all_to_stop(&self, deadline: Deadline) {
        let road = &self.core.road;
        let request = CancelRequest { reason: Reason::Shutdown, deadline: deadline.0 };
        road.roll_called.store(true, Ordering::SeqCst);
        let mut lived = 0;
        for (_, cell) in road.table.cells() {
            let watched = || {
                lived += 1;
                road.roll.count_in();
            };
            if let Some(ready) = cell.cancel_and_watch(&request, watched) {
                road.inject(ready);
            }
        }
        lock(&self.progress).lived = lived;
        road.roll.close();
    }

    /// Terminates every remaining process.
    fn terminate_all(&self) {
        let (core, road) = (&self.core, &self.core.road);
        for (slot, cell) in road.table.cells() {
            let Some(pid) = cell.look().and_then(|look| road.table.pid(slot, look.generation)) else { continue };
            if core.terminate(&mut core.executor(), pid, true).unwrap_or(false) {
                lock(&self.progress).forced.push(pid);
            }
        }
    }

    /// Tells the workers to exit when their steps have returned.
    fn dismiss_workers(&self) {
        self.core.road.stopped.store(true, Ordering::SeqCst);
        self.core.road.sleep.wake_all();
        self.worker_threads.inside.close();
    }

    /// The number of processes that are no longer in the table and are still being ended. `in_table` is the number of
    /// processes in the table.
    fn half_ended(&self, in_table: usize) -> usize {
        self.core.road.roll.inside().saturating_sub(in_table)
    }

    /// The report, from the state of the end at this moment.
    fn make_report(&self, hangs: bool) -> ShutdownReport {
        let (core, road) = (&self.core, &self.core.road);
        let stuck = if road.roll.empty().is_set() { Vec::new() } else { core.processes() };
        let is_stuck: HashSet<Pid> = stuck.iter().map(|process| process.pid).collect();
        let progress = lock(&self.progress);
        let late = self.half_ended(stuck.len());
        // Workers may be ending processes that were removed from the table before the others were asked to stop.
        let steps = road.views.iter().filter_map(|view| Pid::from_word(view.current.load(Ordering::Acquire)));
        let by_workers = steps.filter(|pid| !is_stuck.contains(pid)).count();
        let terminated = progress.forced.iter().filter(|pid| !is_stuck.contains(pid)).count();
        // Processes that are partly ended now. The terminated ones among them were not partly ended when the limit was
        // over.
        let by_themselves = late.min(progress.half_ended);
        ShutdownReport {
            ended: progress.lived.saturating_sub(terminated + stuck.len() + by_themselves + progress.elsewhere.asleep),
            asleep: progress.elsewhere.asleep,
            terminated,
            stuck,
            ending: late.max(by_workers),
            spawning: road.door.inside(),
            jobs_running: core.pool.stats().running,
            jobs_abandoned: progress.abandoned,
            hangs: hangs.then(|| progress.stage.clone()),
            unstored: progress.elsewhere.unstored.clone(),
            took: self.begun.get().map_or(Duration::ZERO, |(at, _)| road.clock.now().saturating_duration_since(*at)),
        }
    }

    /// Reports the end to the tree and to the log.
    fn tell(&self, report: &ShutdownReport) {
        if let Some(DeclaredTree { tree, .. }) = self.tree.get() {
            tree.over(report);
        }
        if report.is_clean() {
            tell_log(|| tracing::info!(%report, "runtime shut down"));
        } else {
            tell_log(|| tracing::warn!(%report, "runtime shut down by force"));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::PoolStatus;
    use crate::process::{CommandError, Event, Events, Process, Step, StepOutput, StepResult};
    use crate::runtime::Runtime;
    use crate::wait::{until, wait};
    use crate::{Exit, Handle};
    use std::cell::RefCell;

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the destructor of a bomb");
        }
    }

    /// A process whose step is a closure.
    struct Script<F>(F);

    impl<F, O> Process for Script<F>
    where
        F: FnMut(&mut Events<'_, ()>, &mut StepOutput) -> StepResult<O> + Send + 'static,
        O: Send + Sync + 'static,
    {
        type Message = ();
        type Output = O;

        fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<O> {
            (self.0)(events, out)
        }
    }

    fn spawn<F, O>(runtime: &Runtime, step: F) -> Handle<Script<F>>
    where
        F: FnMut(&mut Events<'_, ()>, &mut StepOutput) -> StepResult<O> + Send + 'static,
        O: Send + Sync + 'static,
    {
        runtime.spawn(Script(step)).unwrap()
    }

    #[test]
    fn a_runtime_shuts_down_by_its_node_even_if_no_thread_starts() {
        // The tests do not wait for this limit to pass.
        const LIMIT: Duration = Duration::from_secs(600);
        let runtime = Runtime::builder().workers(1).shutdown_limit(LIMIT).start().unwrap();
        let process = spawn(&runtime, |events, _| {
            let is_told = events.any(|event| matches!(event, Event::Cancel(_)));
            Ok(if is_told { Step::Done(7) } else { Step::Idle })
        });
        threads::refuse(true);
        let ended = runtime.shutdown_node().shutdown_timeout(LIMIT);
        threads::refuse(false);
        ended.unwrap();
        assert_eq!(wait(&process).output().map(|output| **output), Some(7));
    }

    #[test]
    fn a_node_that_is_requested_late_learns_what_has_ended() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let (begun, go) = (Latch::new(), Latch::new());
        let (begins, gate) = (begun.clone(), go.clone());
        spawn(&runtime, move |_, _| {
            let _ = begins.set(());
            wait(&gate);
            Ok(Step::Done(()))
        });
        wait(&begun);
        let (ends, report) = (runtime.clone(), Latch::new());
        let reported = report.clone();
        std::thread::spawn(move || reported.set(ends.shutdown(Duration::from_secs(600)).unwrap()));
        until("the shutdown has begun", || runtime.core().road.roll_called.load(Ordering::SeqCst));
        let during = runtime.shutdown_node();
        assert!(!during.is_closed(), "a process is in its step");
        go.set(()).unwrap();
        assert!(wait(&report).is_clean());
        assert!(during.is_closed());

        let other = Runtime::builder().workers(1).start().unwrap();
        other.shutdown(Duration::from_secs(600)).unwrap();
        assert!(other.shutdown_node().is_closed(), "it had ended before");
    }

    #[test]
    fn the_last_handle_may_be_dropped_in_a_step_when_no_thread_can_be_had() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let (mut held, go, over) = (Some(runtime.clone()), Latch::new(), Latch::new());
        let (gate, set) = (go.clone(), over.clone());
        spawn(&runtime, move |_, _| {
            wait(&gate);
            threads::refuse(true);
            drop(held.take());
            threads::refuse(false);
            let _ = set.set(());
            Ok(Step::Done(()))
        });
        drop(runtime);
        go.set(()).unwrap();
        wait(&over);
    }

    /// Holds up the end of its thread.
    struct HoldsUp {
        begun: Latch<()>,
        go: Latch<()>,
    }

    impl Drop for HoldsUp {
        fn drop(&mut self) {
            let _ = self.begun.set(());
            wait(&self.go);
        }
    }

    thread_local!(static HELD_UP: RefCell<Option<HoldsUp>> = const { RefCell::new(None) });

    #[test]
    fn each_thread_of_the_pool_that_ends_is_a_move_of_the_end() {
        let runtime = Runtime::builder().workers(1).blocking_threads(2).start().unwrap();
        let threads: [[Latch<()>; 4]; 2] = Default::default();
        for [running, returns, begun, go] in &threads {
            let (runs, gate) = (running.clone(), returns.clone());
            let held_up = HoldsUp { begun: begun.clone(), go: go.clone() };
            let job = move || {
                HELD_UP.set(Some(held_up));
                let _ = runs.set(());
                wait(&gate);
            };
            assert!(runtime.core().pool.execute(job).is_ok());
            wait(running);
        }
        let (ends, report) = (runtime.clone(), Latch::new());
        let reported = report.clone();
        std::thread::spawn(move || reported.set(ends.shutdown(Duration::from_secs(600)).unwrap()));
        // The threads exit in this order, and are joined in this order.
        for [_, returns, begun, _] in &threads {
            let _ = returns.set(());
            until("the runtime shuts down", || runtime.core().pool.status() != PoolStatus::Running);
            wait(begun);
        }
        let shutdown = &runtime.owner.shutdown;
        until("threads are joined", || matches!(lock(&shutdown.progress).stage, ShutdownStage::Threads));
        let before = shutdown.moves();
        let [[_, _, _, first], [_, _, _, second]] = threads;
        first.set(()).unwrap();
        until("the end has come further", || shutdown.moves() != before);
        second.set(()).unwrap();
        assert!(wait(&report).is_clean());
    }

    #[test]
    fn work_without_a_thread_fails_with_the_reason_no_thread() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let mut tag = None;
        let asker = spawn(&runtime, move |events, out| {
            for event in events {
                if let (Event::Completed(done), Some(tag)) = (event, tag) {
                    threads::refuse(false);
                    return Ok(Step::Done(done.take(tag).unwrap().unwrap_err()));
                }
            }
            // The yield is performed on this thread, after the step.
            threads::refuse(true);
            tag = Some(out.blocking(|| ()));
            Ok(Step::Wait)
        });
        let exit = wait(&asker);
        let why = exit.output().unwrap();
        assert!(matches!(**why, CommandError::Cancelled(Reason::NoThread)), "{why}");

        let mut tag = None;
        let asker = spawn(&runtime, move |events, out| {
            for event in events {
                if let (Event::Completed(done), Some(tag)) = (event, tag) {
                    threads::refuse(false);
                    return Ok(Step::Done(done.take(tag).unwrap().unwrap_err()));
                }
            }
            threads::refuse(true);
            let bomb = Bomb;
            tag = Some(out.blocking(move || drop(bomb)));
            Ok(Step::Wait)
        });
        let exit = wait(&asker);
        let why = exit.output().unwrap();
        assert!(matches!(**why, CommandError::Cancelled(Reason::NoThread)), "{why}");

        let stepper = spawn::<_, ()>(&runtime, |_, _| {
            threads::refuse(true);
            Ok(Step::Blocking)
        });
        let exit = wait(&stepper);
        assert!(matches!(exit, Exit::Terminated(Reason::NoThread)), "{exit}");

        let mut tag = None;
        let timed = spawn(&runtime, move |events, out| {
            for event in events {
                if let (Event::Completed(done), Some(tag)) = (event, tag) {
                    threads::refuse(false);
                    return Ok(Step::Done(done.take(tag).unwrap().unwrap_err()));
                }
            }
            threads::refuse(true);
            tag = Some(out.after(Duration::from_secs(1)));
            Ok(Step::Wait)
        });
        let exit = wait(&timed);
        let why = exit.output().unwrap();
        assert!(matches!(**why, CommandError::Cancelled(Reason::NoThread)), "{why}");
    }
}
