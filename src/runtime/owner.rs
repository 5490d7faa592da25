//! The end of a runtime, in order: the door, the processes and the work they leave, the timers, the pool, the workers.
//!
//! Code of the user's may block for ever, wherever it is called: everything here waits for it with a limit.

use std::time::Duration;

use super::dispatch::Core;
use super::report::{ShutdownError, ShutdownReport};
use super::staff::Staff;
use super::tree::{Insight, Tree};
use super::watchdog::Patrol;
use crate::cancel::CancelCallback;
use crate::clock::{Clock, Deadline};
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Reason, contain, drop_contained, tell_log};
use crate::process::{CancelRequest, Pid};
use crate::shutdown::JobGuard;
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, ThreadId, fence, lock, thread};
use crate::threads;

/// How long each stage of a shutdown waits, after the limit, for what is being run to return.
const GRACE: Duration = Duration::from_millis(250);

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
    pub(super) staff: Arc<Staff>,
    patrol: Option<Arc<Patrol>>,
    /// Threads that are spawning from outside: `init` may be running on them.
    entering: Arc<Mutex<Vec<ThreadId>>>,
    shutdown: Shutdown,
    /// None: somebody has taken over, and says how far the end has come.
    tree: Mutex<Option<Arc<Tree>>>,
    /// Keeps the callback that obeys it.
    asked: Mutex<Option<CancelCallback>>,
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

impl Owner {
    pub(super) fn new(core: Arc<Core>, staff: Arc<Staff>, patrol: Option<Arc<Patrol>>) -> Arc<Owner> {
        let entering = Arc::new(Mutex::default());
        // Not of the owner, which may have been dropped, or taken over, and be ending the runtime.
        let (lives, works, enters) = (Arc::downgrade(&core), Arc::downgrade(&staff), entering.clone());
        let working = staff.inside.clone();
        let insight = Insight {
            inside: Box::new(move || {
                let here = lives.upgrade().zip(works.upgrade());
                here.is_some_and(|(core, staff)| is_inside(&core, &staff, &enters))
            }),
            workers: Box::new(move || working.inside()),
        };
        Arc::new(Owner {
            tree: Mutex::new(Some(Arc::new(Tree::declare(&core, insight)))),
            core,
            staff,
            patrol,
            entering,
            shutdown: Shutdown::new(),
            asked: Mutex::default(),
        })
    }

    /// An owner of the same runtime, for another thread, which ends it. Dropped before that, it does nothing: that is the
    /// end of a thread that could not be started, still on the thread of the one that had the last handle.
    fn taken_over(from: &mut Owner) -> Owner {
        Owner {
            tree: Mutex::new(lock(&from.tree).take()),
            core: from.core.clone(),
            staff: from.staff.clone(),
            patrol: from.patrol.clone(),
            entering: Arc::default(),
            shutdown: Shutdown { begun: AtomicBool::new(true), report: Latch::new() },
            asked: Mutex::default(),
        }
    }

    /// The tree's request is a shutdown with this limit. On a thread of its own, for whoever asks does not wait; but if none can
    /// be had, on this one.
    pub(super) fn obey_tree(self: &Arc<Owner>, limit: Duration) {
        let Some(tree) = self.tree() else { return };
        let owner = Arc::downgrade(self);
        let asked = tree.processes.end().on_cancel(move |_| {
            // Without an owner the runtime is being dropped, which ends it.
            let Some(owner) = owner.upgrade() else { return };
            threads::on_helper_thread("procession-shutdown", move || {
                // Only if no thread can be had, and this one works for a runtime, nobody can do it.
                if let (Err(error), Some(tree)) = (owner.shut_down(limit), owner.tree()) {
                    tree.processes.fail(error);
                }
            });
        });
        *lock(&self.asked) = Some(asked);
    }

    pub(super) fn tree(&self) -> Option<Arc<Tree>> {
        lock(&self.tree).clone()
    }

    fn part_is_over(&self, tail: fn(&Tree) -> &JobGuard) {
        if let Some(tree) = self.tree() {
            tail(&tree).over(None);
        }
    }

    pub(super) fn entering(&self) -> Entering<'_> {
        lock(&self.entering).push(thread::current().id());
        Entering { owner: self }
    }
}

impl Owner {
    pub(super) fn shut_down(&self, limit: Duration) -> Result<Arc<ShutdownReport>, ShutdownError> {
        if is_step() {
            return Err(ShutdownError::InsideStep);
        }
        if self.is_inside() {
            return Err(ShutdownError::Inside);
        }
        if self.shutdown.is_mine() {
            // Whatever happens, those who wait for the report get one.
            let report = Arc::new(contain(|| self.end(limit)).unwrap_or_else(|panic| {
                tell_log(|| tracing::error!(%panic, "the shutdown panicked"));
                ShutdownReport {
                    stuck: self.core.processes(),
                    ending: self.core.road.roll.left(),
                    ..Default::default()
                }
            }));
            if report.is_clean() {
                tell_log(|| tracing::info!(%report, "runtime shut down"));
            } else {
                tell_log(|| tracing::warn!(%report, "runtime shut down by force"));
            }
            let _ = self.shutdown.report.set(report);
        }
        Ok(self.shutdown.report.wait())
    }

    /// Whether the calling thread works for this runtime: then it cannot wait for its end.
    pub(super) fn is_inside(&self) -> bool {
        is_inside(&self.core, &self.staff, &self.entering)
    }

    fn end(&self, limit: Duration) -> ShutdownReport {
        let (core, road) = (&self.core, &self.core.road);
        tell_log(|| tracing::info!(?limit, node = road.table.node(), "runtime shuts down"));
        let began = road.clock.now();
        let deadline = road.clock.deadline(limit);
        // Who is half-way through a spawn from outside finds the roll called; the rest finds the door closed.
        road.door.close();
        let lived = self.ask_all_to_stop(deadline);
        let in_time = road.roll.empty.wait_until(&road.clock, deadline);
        let (mut forced, mut half_ended) = (Vec::new(), 0);
        if in_time {
            // What they have yielded with their last steps has the limit, too.
            core.pool.drain_until(&road.clock, deadline);
        } else {
            half_ended = self.half_ended(road.table.cells().filter(|(_, cell)| cell.look().is_some()).count());
            forced = self.terminate_all();
            road.roll.empty.wait_until(&Clock::system(), grace());
        }
        road.door.empty().wait_until(&road.clock, deadline);
        self.part_is_over(|tree| &tree.processes);
        // Work of processes that are done has had the limit; what still runs is asked to stop.
        let asked = core.over.cancel_one_by_one(Reason::Shutdown).map(threads::work_off);
        let mut report = ShutdownReport::default();
        let mut threads = self.end_timers_and_jobs(asked, &mut report);
        if !in_time {
            // Steps that were still waiting for the pool have been given back to the workers, to be ended.
            road.roll.empty.wait_until(&Clock::system(), grace());
        }
        self.end_workers(&mut threads, in_time.then_some(deadline));
        if !in_time {
            report.stuck = core.processes();
        }
        let late = self.half_ended(report.stuck.len());
        report.ending = late.max(self.ended_by_workers(&report));
        report.spawning = road.door.inside();
        report.terminated = forced.iter().filter(|pid| report.stuck.iter().all(|stuck| stuck.pid != **pid)).count();
        // Of those who are half-way through their end now, the forced ones were not when the limit was over.
        let by_themselves = late.min(half_ended);
        report.ended = lived.saturating_sub(report.terminated + report.stuck.len() + by_themselves);
        report.took = road.clock.now().saturating_duration_since(began);
        if let Some(tree) = self.tree() {
            tree.over(&report);
        }
        report
    }

    /// How many have left the table, where there are so many, and are still being ended.
    fn half_ended(&self, in_table: usize) -> usize {
        self.core.road.roll.left().saturating_sub(in_table)
    }

    /// How many have left the table, and are still being ended by workers, which also those may be that had left it before
    /// the others were asked to stop.
    fn ended_by_workers(&self, report: &ShutdownReport) -> usize {
        let seats = self.core.road.seats.iter();
        let steps = seats.filter_map(|seat| Pid::from_word(seat.current.load(Ordering::Acquire)));
        steps.filter(|pid| report.stuck.iter().all(|stuck| stuck.pid != *pid)).count()
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

    /// Ends what is in the queues, elsewhere: `close` and destructors may take as long as they like, and the shutdown may
    /// not. Set when all is ended.
    fn reap(&self) -> Latch<()> {
        if !self.core.road.queues.has_work() {
            let over = Latch::new();
            let _ = over.set(());
            return over;
        }
        let core = self.core.clone();
        threads::work_off(move || core.reap_one())
    }

    /// Stops the timers and the pool, whose jobs are being `asked` to stop. The threads of both that have done all of ours, to
    /// be joined.
    fn end_timers_and_jobs(&self, asked: Option<Latch<()>>, report: &mut ShutdownReport) -> Vec<JoinHandle<()>> {
        let until = grace();
        let (mut dropped, timer) = self.core.timers.halt();
        let abandoned = self.core.pool.abandon();
        self.part_is_over(|tree| &tree.timers);
        report.jobs_abandoned = abandoned.len();
        dropped.extend(abandoned);
        // Dropping them answers questions and commands: wakers and destructors of the user's.
        let dropped = (!dropped.is_empty()).then(|| {
            let heap = Mutex::new(dropped.into_iter());
            threads::work_off(move || {
                let next = lock(&heap).next();
                next.map(drop_contained).is_some()
            })
        });
        let (running, mut threads) = self.core.pool.leave_until(&Clock::system(), until);
        report.jobs_running = running;
        for told in asked.into_iter().chain(dropped) {
            told.wait_until(&Clock::system(), until);
        }
        self.part_is_over(|tree| &tree.pool);
        // The last one, for it may be stuck in a timer's action.
        threads.extend(timer);
        threads
    }

    /// Has the workers leave, and joins all threads that do. When no process is left, a worker may still be half-way through
    /// the end of one, for which it has until the deadline.
    fn end_workers(&self, others: &mut Vec<JoinHandle<()>>, none_left_until: Option<Deadline>) {
        let road = &self.core.road;
        road.stopped.store(true, Ordering::SeqCst);
        road.sleep.wake_all();
        self.staff.inside.close();
        if let Some(deadline) = none_left_until {
            self.staff.inside.empty().wait_until(&road.clock, deadline);
        }
        // A worker that is stuck in a step leaves when the step returns, and nobody waits for it.
        self.staff.inside.empty().wait_until(&Clock::system(), grace());
        let (left, stuck): (Vec<_>, Vec<_>) = self.staff.take().into_iter().partition(|worker| worker.left.is_set());
        if !stuck.is_empty() {
            tell_log(|| tracing::warn!(workers = stuck.len(), "workers are stuck in a step and were left behind"));
        }
        others.extend(self.patrol.as_ref().and_then(|patrol| patrol.teller()));
        // See `Road::inject`.
        fence(Ordering::SeqCst);
        let until = grace();
        let reaped = self.reap();
        let joined = threads::join_all(left.into_iter().map(|worker| worker.handle).chain(others.drain(..)).collect());
        reaped.wait_until(&Clock::system(), until);
        joined.wait_until(&Clock::system(), until);
    }
}

/// Whether the calling thread works for this runtime.
fn is_inside(core: &Core, staff: &Staff, entering: &Mutex<Vec<ThreadId>>) -> bool {
    let me = thread::current().id();
    staff.is_current() || core.pool.is_inside() || core.timers.is_current() || lock(entering).contains(&me)
}

/// Until when a stage of the end waits. By the system's clock: with a manual one nobody might move it any more.
fn grace() -> Deadline {
    Clock::system().deadline(GRACE)
}

/// The last handle is gone: what is left is ended by force.
impl Drop for Owner {
    fn drop(&mut self) {
        if !self.shutdown.is_mine() {
            return;
        }
        if !self.is_inside() && !is_step() {
            self.end(Duration::ZERO);
            return;
        }
        // A process had the last handle, of this runtime or another. Its worker must not wait, so another thread does.
        let owner = Owner::taken_over(self);
        let ends = move || drop(owner.end(Duration::ZERO));
        if let Err(error) = threads::start(String::from("procession-shutdown"), ends) {
            tell_log(|| tracing::error!(%error, "no thread to shut the runtime down; its processes are left"));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::{CommandError, Event, Events, Process, Step, StepOutput, StepResult};
    use crate::runtime::Runtime;
    use crate::wait::wait;
    use crate::{Exit, Handle};

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
    fn a_runtime_is_shut_down_through_its_state_also_when_no_thread_can_be_had() {
        // Nobody waits for that to pass.
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

    #[test]
    fn blocking_work_for_which_there_is_no_thread_says_so_and_not_that_the_runtime_shuts_down() {
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
