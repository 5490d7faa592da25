//! The watchdog. It looks at the workers while processes are stepped, starts spares in the places of stuck workers,
//! and reports stuck steps.
//!
//! `sched/stuck_steps.rs` decides which steps are stuck, and describes the protocol. This file has the parts that need
//! threads. A look is the action of a timer. Reports to the log and the observer are made on a separate thread, which
//! runs while there are reports. So neither the timers nor a worker wait for user code.

use std::time::Duration;

use super::dispatch::Core;
use super::timed::Timed;
use super::worker_threads::WorkerThreads;
use crate::outcome::tell_log;
use crate::primitives::thread::JoinHandle;
use crate::primitives::{Arc, Mutex, ThreadId, Weak, lock, thread};
use crate::process::Pid;
use crate::sched::body::Kind;
use crate::sched::stuck_steps::{Report, Scene, StepWatcher, StuckSteps};
use crate::threads;

/// The number of looks within a limit. It bounds how late a report may be.
const LOOKS_IN_A_LIMIT: u32 = 4;

/// The shortest interval between looks. It bounds the cost of a short limit.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// The longest interval between looks. It bounds how late a report of a long limit may be.
const MOST_INTERVAL: Duration = Duration::from_secs(1);

/// Watches the steps of a runtime. A step that runs longer than the limit is *stuck*.
///
/// A stuck step is reported once while it runs, and once more when it is over. The reports go to the log (at the level
/// `WARN`) and to the [`Observer`](crate::observe::Observer). [`Runtime::stuck_steps`](crate::Runtime::stuck_steps)
/// lists the steps that are stuck now.
///
/// Other code that the worker calls for the process counts as part of the step. This is `init` and `start` before the
/// first step, and handlers, `close`, destructors and observers after a step. Code that does not run on a worker is
/// not watched, because it may block. This is blocking closures, steps after
/// [`Step::Blocking`](crate::Step::Blocking), and an `init` on the thread that calls
/// [`Runtime::spawn`](crate::Runtime::spawn).
///
/// With [`spare_workers`](Self::spare_workers), spare workers take the places of stuck workers.
///
/// While processes are stepped, a timer looks at all workers four times within the limit. The interval between two
/// looks is at least a millisecond and at most a second. The first look that sees a step notes the time. A later look
/// reports the step if the limit has passed since then. So a report comes a little after the limit. There are no looks
/// while all workers are idle.
///
/// With a watchdog, each step costs some 25 nanoseconds more. Without one, each step costs a few instructions for it.
///
/// ```
/// use procession::Runtime;
/// use procession::config::Watchdog;
/// use std::time::Duration;
///
/// let watchdog = Watchdog::after(Duration::from_millis(500)).spare_workers(2);
/// let runtime = Runtime::builder().workers(2).watchdog(watchdog).start()?;
/// assert!(runtime.stuck_steps().is_empty());
/// # runtime.shutdown(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it watches when a runtime is built with it"]
pub struct Watchdog {
    pub(super) limit: Duration,
    pub(super) spares: usize,
}

impl Watchdog {
    /// Reports steps that run longer than `limit`, by the clock of the runtime. The limit must not be zero. With a
    /// limit of more than some 584 years, steps are not watched.
    pub fn after(limit: Duration) -> Watchdog {
        Watchdog { limit, spares: 0 }
    }

    /// Sets how many spare workers may be started: 0 to 1,024. The default is 0. While workers are stuck and there is
    /// work, spare workers take their places. When the stuck steps have returned, the spare workers that are no longer
    /// needed exit.
    ///
    /// So ready processes are stepped even if all other workers are stuck. If the spare workers are stuck, too, ready
    /// processes wait.
    pub fn spare_workers(mut self, most: usize) -> Watchdog {
        self.spares = most;
        self
    }

    /// The limit in nanoseconds. `None` if it never passes.
    pub(super) fn limit_nanos(self) -> Option<u64> {
        u64::try_from(self.limit.as_nanos()).ok()
    }

    fn interval(self) -> Duration {
        (self.limit / LOOKS_IN_A_LIMIT).clamp(LEAST_INTERVAL, MOST_INTERVAL)
    }
}

/// Looks at the workers on a timer.
pub(super) struct WatchdogTimer {
    core: Weak<Core>,
    worker_threads: Arc<WorkerThreads>,
    interval: Duration,
    /// The name of the thread that reports.
    name: String,
    reporter: Mutex<Reporter>,
    me: Weak<WatchdogTimer>,
}

/// The thread that reports, or the last that did.
#[derive(Default)]
struct Reporter {
    /// Stays when the handle is taken, because the thread may still be in the observer.
    id: Option<ThreadId>,
    handle: Option<JoinHandle<()>>,
}

impl WatchdogTimer {
    pub(super) fn new(
        watchdog: Watchdog,
        core: &Arc<Core>,
        worker_threads: &Arc<WorkerThreads>,
        name: String,
    ) -> Arc<WatchdogTimer> {
        let watchdog_timer = Arc::new_cyclic(|me: &Weak<WatchdogTimer>| WatchdogTimer {
            core: Arc::downgrade(core),
            worker_threads: worker_threads.clone(),
            interval: watchdog.interval(),
            name,
            reporter: Mutex::default(),
            me: me.clone(),
        });
        if let Some(stuck_steps) = &core.road.stuck_steps {
            let step_watcher: Weak<dyn StepWatcher> = watchdog_timer.me.clone();
            stuck_steps.step_watcher.get_or_init(|| step_watcher);
        }
        watchdog_timer
    }

    fn look(&self) {
        let Some(core) = self.core.upgrade() else { return };
        let road = &core.road;
        let Some(stuck_steps) = &road.stuck_steps else { return };
        let looked = stuck_steps.look(&Scene {
            now: road.now_nanos(),
            views: &road.views,
            exact: road.exact_times,
            identify: &|pid| identify(&core, pid),
            work: &|| road.queues.has_work(),
            resting: &|| road.sleep.resting(),
        });
        for _ in 0..looked.spares {
            let started = self.worker_threads.start_spare(self.me.upgrade());
            if !matches!(started, Ok(true)) {
                stuck_steps.spare_failed();
            }
            if let Err(error) = started {
                tell_log(|| tracing::error!(%error, "no thread for a spare worker; the next look tries again"));
            }
        }
        road.dismiss_surplus();
        self.tell();
        if looked.again {
            self.look_later();
        }
    }

    fn tell_all(core: &Core) {
        while let Some(Report { step, over }) = core.road.stuck_steps.as_ref().and_then(StuckSteps::next_report) {
            let step = step.describe();
            let (pid, process, name) = (step.process.pid, step.process.type_name, step.process.name.as_deref());
            let time = step.running_for;
            if over {
                tell_log(|| tracing::warn!(%pid, process, name, took = ?time, "a step that was stuck is over"));
            } else {
                tell_log(
                    || tracing::warn!(%pid, process, name, doing = %step.doing, runs_for = ?time, "a step is stuck"),
                );
            }
            if let Some(recorder) = core.road.recorder.as_ref().filter(|_| !over) {
                recorder.stuck(pid);
            }
            core.road.tell_observer(|observer| if over { observer.unstuck(&step) } else { observer.stuck(&step) });
        }
    }

    /// Whether the calling thread is the thread that reports.
    pub(super) fn is_current(&self) -> bool {
        let me = thread::current().id();
        lock(&self.reporter).id == Some(me)
    }

    /// Takes the thread that reports, for the caller to join.
    pub(super) fn reporter(&self) -> Option<JoinHandle<()>> {
        lock(&self.reporter).handle.take()
    }
}

impl StepWatcher for WatchdogTimer {
    fn look_later(&self) {
        let Some(core) = self.core.upgrade() else { return };
        let me = self.me.clone();
        let look = Box::new(move || {
            if let Some(watchdog_timer) = me.upgrade() {
                watchdog_timer.look();
            }
        });
        if core.timers.after(0, self.interval, Timed::Run(look)).is_err()
            && let Some(stuck_steps) = &core.road.stuck_steps
        {
            stuck_steps.disarm();
        }
    }

    fn tell(&self) {
        let Some(core) = self.core.upgrade() else { return };
        if !core.road.stuck_steps.as_ref().is_some_and(StuckSteps::is_to_tell) {
            return;
        }
        // The thread holds the core, because it may be the last owner.
        let tells = core.clone();
        // Locked before the thread starts. An observer that asks on this thread whether it is the reporter waits until
        // the thread is on record.
        let mut reporter = lock(&self.reporter);
        match threads::start(self.name.clone(), move || WatchdogTimer::tell_all(&tells)) {
            Ok(thread) => *reporter = Reporter { id: Some(thread.thread().id()), handle: Some(thread) },
            Err(error) => {
                drop(reporter);
                tell_log(|| tracing::error!(%error, "no thread to tell of stuck steps: it is done here"));
                WatchdogTimer::tell_all(&core);
            }
        }
    }
}

/// The kind and the name of the process that is being stepped.
fn identify(core: &Core, pid: Pid) -> (Option<&'static Kind>, Option<Arc<str>>) {
    let kind = core.road.table.cell(pid).and_then(|cell| cell.kind_of(pid));
    (kind, core.names.of(pid).first().cloned())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::latch::Latch;
    use crate::process::{Events, Process, Step, StepOutput, StepResult};
    use crate::runtime::Runtime;
    use crate::wait::wait;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Stays in its step until it may go.
    struct Held {
        begun: Latch<()>,
        go: Latch<()>,
    }

    impl Process for Held {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            let _ = self.begun.set(());
            wait(&self.go);
            Ok(Step::Done(()))
        }
    }

    #[test]
    fn a_spare_for_which_there_is_no_thread_is_tried_again_by_the_next_look() {
        let clock = ManualClock::new();
        let watchdog = Watchdog::after(LIMIT).spare_workers(1);
        let runtime = Runtime::builder().workers(1).clock(clock.clock()).watchdog(watchdog).start().unwrap();
        let (begun, go) = (Latch::new(), Latch::new());
        runtime.spawn(Held { begun: begun.clone(), go: go.clone() }).unwrap();
        wait(&begun);
        let waits = runtime.spawn(Held { begun: Latch::new(), go: go.clone() }).unwrap();
        // The thread that moves the clock looks at the workers.
        threads::refuse(true);
        clock.advance(LIMIT * 2);
        assert_eq!((runtime.stuck_steps().len(), runtime.stats().spare_workers), (1, 0));
        assert!(runtime.core().road.stuck_steps.as_ref().unwrap().next_report().is_none(), "it was told here");
        threads::refuse(false);
        clock.advance(LIMIT / LOOKS_IN_A_LIMIT);
        assert_eq!(runtime.stats().spare_workers, 1);
        go.set(()).unwrap();
        assert!(wait(&waits).is_done());
    }

    #[test]
    fn looks_are_neither_too_many_nor_too_few() {
        for (limit, interval) in [(1, 1), (4, 1), (100, 25), (4_000, 1_000), (3_600_000, 1_000)] {
            let watchdog = Watchdog::after(Duration::from_millis(limit));
            assert_eq!(watchdog.interval(), Duration::from_millis(interval));
        }
        assert_eq!(Watchdog::after(Duration::MAX).limit_nanos(), None);
    }
}
