//! The end of a runtime, in order: the door, the processes, the timers, the blocking work, the workers.

use std::fmt;
use std::io;
use std::time::Duration;

use super::dispatch::Core;
use super::inspect::ProcessInfo;
use crate::clock::{Clock, Deadline};
use crate::gate::{Gate, Inside};
use crate::latch::Latch;
use crate::outcome::{Reason, contain, drop_contained};
use crate::process::{CancelRequest, Pid};
use crate::sched::road::Reaper;
use crate::sched::worker::Worker;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, ThreadId, fence, lock, thread};

/// How long a shutdown waits, after its limit, for steps and jobs that are being run to return. By the system's clock:
/// with a manual one nobody might move it any more.
const GRACE: Duration = Duration::from_millis(250);

/// How a runtime ended.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Processes that lived when the shutdown began, and ended by themselves within the limit.
    pub ended: usize,
    /// Processes that had to be terminated.
    pub terminated: usize,
    /// Processes that could not be ended, because a step did not return. When it does, they are closed.
    pub stuck: Vec<ProcessInfo>,
    /// Jobs on the pool (blocking closures) that had not returned.
    pub jobs_running: usize,
    /// How long it took.
    pub took: Duration,
}

impl ShutdownReport {
    /// Whether nothing had to be forced, and nothing is left.
    pub fn is_clean(&self) -> bool {
        self.terminated == 0 && self.stuck.is_empty() && self.jobs_running == 0
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended, {} terminated, {} stuck", self.ended, self.terminated, self.stuck.len())?;
        for process in &self.stuck {
            write!(f, "; {} {}", process.pid, process.type_name)?;
            if let Some(name) = &process.name {
                write!(f, " {name:?}")?;
            }
            write!(f, " ({})", process.state)?;
        }
        if self.jobs_running > 0 {
            write!(f, "; {} blocking jobs still run", self.jobs_running)?;
        }
        Ok(())
    }
}

/// Why a shutdown was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShutdownError {
    /// It was called from inside a step, an `init` or a job of the same runtime, and would have waited for its own caller.
    #[error("a step, `init` or job of this runtime cannot wait for its shutdown: request it from another thread")]
    Inside,
}

/// Whose turn it is to shut down. The first who asks does it, the others wait for the report.
pub(super) struct Shutdown {
    begun: AtomicBool,
    report: Latch<Arc<ShutdownReport>>,
}

impl Shutdown {
    pub(super) fn new() -> Shutdown {
        Shutdown { begun: AtomicBool::new(false), report: Latch::new() }
    }

    fn is_mine(&self) -> bool {
        // Ordering: Relaxed: one exchange wins; what the winner does travels through the latch.
        !self.begun.swap(true, Ordering::Relaxed)
    }
}

/// What ends with the last handle.
pub(super) struct Owner {
    pub(super) core: Arc<Core>,
    workers: Mutex<Vec<WorkerThread>>,
    /// The workers are inside as long as they run.
    inside: Gate,
    /// Threads that are spawning from outside: `init` may be running on them.
    entering: Mutex<Vec<ThreadId>>,
    shutdown: Shutdown,
}

/// Notes that a thread is spawning, as long as it is.
pub(super) struct Entering<'a> {
    owner: &'a Owner,
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        let me = thread::current().id();
        let mut entering = lock(&self.owner.entering);
        if let Some(place) = entering.iter().rposition(|thread| *thread == me) {
            entering.swap_remove(place);
        }
    }
}

struct WorkerThread {
    handle: thread::JoinHandle<()>,
    left: Latch<()>,
}

impl Owner {
    pub(super) fn new(core: Arc<Core>) -> Owner {
        Owner {
            core,
            workers: Mutex::default(),
            inside: Gate::new(),
            entering: Mutex::default(),
            shutdown: Shutdown::new(),
        }
    }

    /// An owner of the same runtime, for another thread to drop.
    fn taken_over(from: &mut Owner) -> Owner {
        Owner {
            core: from.core.clone(),
            workers: Mutex::new(std::mem::take(&mut *lock(&from.workers))),
            inside: from.inside.clone(),
            entering: Mutex::default(),
            shutdown: Shutdown::new(),
        }
    }

    pub(super) fn start_worker(&self, name: String, mut worker: Worker<Core>) -> io::Result<()> {
        let left = Latch::new();
        let inside: Option<Inside> = self.inside.enter();
        let leaves = left.clone();
        let handle = thread::Builder::new().name(name).spawn(move || {
            // All user code is contained. Should a panic come through all the same, one process is the price, not the worker.
            while let Err(panic) = contain(|| worker.run()) {
                tracing::error!(%panic, "a worker panicked, and goes on");
            }
            let _ = leaves.set(());
            drop(inside);
        })?;
        lock(&self.workers).push(WorkerThread { handle, left });
        Ok(())
    }

    pub(super) fn entering(&self) -> Entering<'_> {
        lock(&self.entering).push(thread::current().id());
        Entering { owner: self }
    }

    /// Whether the calling thread is one of the workers.
    pub(super) fn is_worker(&self) -> bool {
        let me = thread::current().id();
        lock(&self.workers).iter().any(|worker| worker.handle.thread().id() == me)
    }
}

impl WorkerThread {
    fn has_left(&self) -> bool {
        self.left.is_set()
    }

    fn join(self) {
        // All user code is contained, so a worker does not panic.
        if self.handle.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

impl Owner {
    pub(super) fn shut_down(&self, limit: Duration) -> Result<Arc<ShutdownReport>, ShutdownError> {
        if self.is_inside() {
            return Err(ShutdownError::Inside);
        }
        if self.shutdown.is_mine() {
            // Whatever happens, those who wait for the report get one.
            let report = Arc::new(contain(|| self.end(limit)).unwrap_or_else(|panic| {
                tracing::error!(%panic, "the shutdown panicked");
                ShutdownReport::default()
            }));
            if report.is_clean() {
                tracing::info!(%report, "runtime shut down");
            } else {
                tracing::warn!(%report, "runtime shut down by force");
            }
            let _ = self.shutdown.report.set(report);
        }
        Ok(self.shutdown.report.wait())
    }

    /// Whether the calling thread works for this runtime: then it cannot wait for its end.
    pub(super) fn is_inside(&self) -> bool {
        let me = thread::current().id();
        self.is_worker() || self.core.pool.is_inside() || lock(&self.entering).contains(&me)
    }

    fn end(&self, limit: Duration) -> ShutdownReport {
        let (core, road) = (&self.core, &self.core.road);
        tracing::info!(?limit, node = road.table.node(), "runtime shuts down");
        let began = road.clock.now();
        let deadline = road.clock.deadline(limit);
        // Those who are half-way through a spawn from outside are waited for; the rest finds the door closed.
        road.door.close();
        road.door.empty().wait_until(&road.clock, deadline);
        let lived = self.ask_all_to_stop(deadline);
        let mut report = ShutdownReport::default();
        let in_time = road.roll.empty.wait_until(&road.clock, deadline);
        let grace = || road.roll.empty.wait_until(&Clock::system(), Clock::system().deadline(GRACE));
        let mut forced = Vec::new();
        if !in_time {
            forced = self.terminate_all();
            grace();
        }
        core.timers.stop().into_iter().for_each(drop_contained);
        report.jobs_running = core.pool.stop(Some(GRACE)).err().map_or(0, |still| still.running);
        if !in_time {
            // Steps that were still waiting for the pool have been given back to the workers, to be ended.
            grace();
        }
        self.end_workers();
        if !in_time {
            report.stuck = core.processes();
        }
        report.terminated = forced.iter().filter(|pid| report.stuck.iter().all(|stuck| stuck.pid != **pid)).count();
        report.ended = lived.saturating_sub(report.terminated + report.stuck.len());
        report.took = road.clock.now().saturating_duration_since(began);
        report
    }

    /// Sends every process a cancel event. How many there were.
    fn ask_all_to_stop(&self, deadline: Deadline) -> usize {
        let road = &self.core.road;
        let request = CancelRequest { reason: Reason::Shutdown, deadline: deadline.0 };
        road.roll_called.store(true, Ordering::SeqCst);
        let mut lived = 0;
        for (_, cell) in road.table.cells() {
            let watched = || {
                lived += 1;
                road.roll.add();
            };
            if let Some(ready) = cell.cancel_and_watch(&request, watched) {
                road.inject(ready);
            }
        }
        road.roll.strike();
        lived
    }

    /// Terminates every process that is left, and ends those that no worker comes to because all are stuck. Those that
    /// were not being ended already.
    fn terminate_all(&self) -> Vec<Pid> {
        let (core, road) = (&self.core, &self.core.road);
        let mut forced = Vec::new();
        for (slot, cell) in road.table.cells() {
            let Some(pid) = cell.look().and_then(|look| road.table.pid(slot, look.generation)) else { continue };
            if core.terminate(&mut core.hands(), pid, true).unwrap_or(false) {
                forced.push(pid);
            }
        }
        self.reap();
        forced
    }

    /// Ends what is in the queues, on a thread of its own: `close` and destructors may take as long as they like, and the
    /// shutdown may not. Set when it is through.
    fn reap(&self) -> Latch<()> {
        let (core, over) = (self.core.clone(), Latch::new());
        if !core.road.queues.has_work() {
            let _ = over.set(());
            return over;
        }
        let through = over.clone();
        let reaper = thread::Builder::new().name(String::from("procession-reaper")).spawn(move || {
            core.reap();
            let _ = through.set(());
        });
        if let Err(error) = reaper {
            tracing::error!(%error, "no thread to end what is left");
            self.core.reap();
            let _ = over.set(());
        }
        over
    }

    /// Has the workers leave, and joins those that do.
    fn end_workers(&self) {
        let road = &self.core.road;
        road.stopped.store(true, Ordering::SeqCst);
        road.sleep.wake_all();
        self.inside.close();
        // A worker that is stuck in a step leaves when the step returns, and nobody waits for it.
        self.inside.empty().wait_until(&Clock::system(), Clock::system().deadline(GRACE));
        let (left, stuck): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *lock(&self.workers)).into_iter().partition(|worker| worker.has_left());
        for worker in left {
            worker.join();
        }
        // See `Road::inject`.
        fence(Ordering::SeqCst);
        self.reap().wait_until(&Clock::system(), Clock::system().deadline(GRACE));
        if !stuck.is_empty() {
            tracing::warn!(workers = stuck.len(), "workers are stuck in a step and were left behind");
        }
    }
}

/// The last handle is gone: what is left is ended by force.
impl Drop for Owner {
    fn drop(&mut self) {
        if !self.shutdown.is_mine() {
            return;
        }
        if !self.is_inside() {
            self.end(Duration::ZERO);
            return;
        }
        // A process had the last handle. Its thread cannot wait for itself, so somebody else does.
        let owner = Owner::taken_over(self);
        let name = String::from("procession-shutdown");
        if let Err(error) = thread::Builder::new().name(name).spawn(move || drop(owner)) {
            tracing::error!(%error, "no thread to shut the runtime down; its processes are left as they are");
        }
    }
}
