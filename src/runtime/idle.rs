//! Whether a runtime is idle, and waits for that.

use std::fmt;
use std::time::Duration;

use super::dispatch::Core;
use super::inspect::{ProcessInfo, ProcessState};
use super::system::Runtime;
use crate::clock::Clock;
use crate::inside::{WaitError, refuse_step_timeout};
use crate::latch::Latch;
use crate::primitives::{Ordering, thread};

/// How often a wait looks, and yields its processor, before it pauses between looks.
const LOOKS: u32 = 32;

/// The first pause between two looks. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// The longest pause between two looks. A wait ends so much too late.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The most processes that the text of the error names.
const MAX_NAMED: usize = 8;

/// A wait for an idle runtime has ended before the runtime was idle. The error says what was still going on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotIdleError {
    /// Why the call has not waited longer: the limit was over, or the caller must not wait.
    pub reason: WaitError,
    /// The processes that were ready or in a step.
    pub running: Vec<ProcessInfo>,
    /// The processes at rest with commands that were not answered, and how many each has. Timers and questions do not
    /// count.
    pub waiting: Vec<(ProcessInfo, usize)>,
    /// The number of blocking closures and blocking steps that ran or waited for a thread.
    pub blocking: usize,
}

impl std::error::Error for NotIdleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

impl fmt::Display for NotIdleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runtime is not idle ({}): ", self.reason)?;
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let (running, commands) = (self.running.len(), self.waiting.iter().map(|(_, commands)| commands).sum());
        write!(f, "{running} process{} ready or running", if running == 1 { "" } else { "es" })?;
        let running = self.running.iter().map(|info| format!("{} {}", info.pid, info.type_name));
        name(f, running)?;
        write!(f, ", {commands} command{} not answered", plural(commands))?;
        name(f, self.waiting.iter().map(|(info, n)| format!("{n} of {} {}", info.pid, info.type_name)))?;
        write!(f, ", {} blocking job{}", self.blocking, plural(self.blocking))
    }
}

/// Writes the first few of these in parentheses.
fn name(f: &mut fmt::Formatter<'_>, all: impl ExactSizeIterator<Item = String>) -> fmt::Result {
    let more = all.len().saturating_sub(MAX_NAMED);
    let mut named: Vec<String> = all.take(MAX_NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    if named.is_empty() { Ok(()) } else { write!(f, " ({})", named.join(", ")) }
}

impl Runtime {
    /// Whether the runtime is idle. Then no process is ready or being stepped, and no blocking work waits or runs. The
    /// runtime stays idle until a call from outside gives it work, a timer fires, or the answer of a handler arrives. A
    /// runtime that was shut down is idle when all its processes have ended.
    ///
    /// The disk of a store does not count: a durable process that waits until records are on disk rests meanwhile.
    pub fn is_idle(&self) -> bool {
        self.core().is_idle()
    }

    /// Waits until the runtime is idle and no command is at work. Then no process is ready or being stepped, no
    /// blocking work waits or runs, and the handlers have answered the commands of all living processes.
    ///
    /// Timers do not count. Nor do questions: the process that is to answer may rest. A timer that is due counts. So a
    /// test with a [`ManualClock`](crate::clock::ManualClock) can move the clock, and wait for all that follows.
    ///
    /// Nor does the disk of a store: a durable process that waits until records are on disk rests meanwhile. Wait until
    /// `StoreStats::unstored` is 0, and call this again.
    ///
    /// A call from outside may give the runtime new work at any time, also before this call has returned.
    ///
    /// The calling thread looks again and again, at longer and longer intervals of at most 5 ms by the system's clock.
    /// With commands at work, each look goes over all processes. So the call is for tests and for the ends of programs.
    ///
    /// # Errors
    /// The caller is a step, or blocking work of this runtime.
    ///
    /// ```
    /// # use procession::prelude::*;
    /// # struct Sink;
    /// # impl Process for Sink {
    /// #     type Message = u32;
    /// #     type Output = ();
    /// #     fn step(&mut self, events: &mut Events<u32>, _: &mut StepOutput) -> StepResult<()> {
    /// #         events.for_each(drop);
    /// #         Ok(Step::Idle)
    /// #     }
    /// # }
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let sink = runtime.spawn(Sink)?;
    /// sink.send(1)?;
    /// runtime.wait_idle()?;
    /// assert_eq!(runtime.stats().messages.stepped, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_idle(&self) -> Result<(), NotIdleError> {
        self.wait_idle_timeout(Duration::MAX)
    }

    /// Like [`wait_idle`](Self::wait_idle), but waits no longer than `limit` by the runtime's clock. A limit of zero
    /// looks once.
    ///
    /// # Errors
    /// The errors of [`wait_idle`](Self::wait_idle), or the limit was over first. The error says what was still going
    /// on.
    pub fn wait_idle_timeout(&self, limit: Duration) -> Result<(), NotIdleError> {
        let core = self.core();
        let deadline = core.road.clock.deadline(limit);
        if let Err(reason) = refuse_step_timeout(limit) {
            return Err(core.not_idle(reason));
        }
        if core.pool.is_inside() {
            return Err(core.not_idle(WaitError::Inside));
        }
        if let Some(simulation) = &core.simulation {
            let is_idle = simulation.wait_idle(deadline);
            return if is_idle { Ok(()) } else { Err(core.not_idle(WaitError::TimedOut)) };
        }
        let (system, never, mut pause) = (Clock::system(), Latch::<()>::new(), FIRST_PAUSE);
        for look in 0.. {
            if core.is_done_with_all() {
                return Ok(());
            }
            if deadline.has_passed(&core.road.clock) {
                return Err(core.not_idle(WaitError::TimedOut));
            }
            if look < LOOKS {
                thread::yield_now();
            } else {
                never.wait_until(&system, system.deadline(pause));
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
        Ok(())
    }
}

impl Core {
    /// Whether no process is ready or being stepped, and the pool has nothing to do.
    fn is_idle(&self) -> bool {
        self.is_while_pool_rests(|| self.workers_sleep())
    }

    /// Looks at something while the pool has nothing to do. Returns `false` if the pool has or had something to do.
    fn is_while_pool_rests(&self, look: impl FnOnce() -> bool) -> bool {
        let before = self.pool.stats();
        // If no job was there before, and none is submitted during the look, none runs then.
        before.running == 0 && before.waiting == 0 && look() && self.pool.stats().submitted == before.submitted
    }

    /// Whether all workers sleep. Then no process is stepped. Only a job, a timer or a call from outside could wake one
    /// of them.
    fn workers_sleep(&self) -> bool {
        let road = &self.road;
        let asleep = |all| road.sleep.all_sleep(all, || road.queues.has_work());
        let asleep = match &road.stuck_steps {
            Some(stuck_steps) => stuck_steps.with_all(asleep),
            None => asleep(road.workers),
        };
        // After the end of the runtime, no worker is left that could sleep.
        let is_over = || road.stopped.load(Ordering::Acquire) && road.roll.empty().is_set();
        asleep || is_over()
    }

    /// Whether the runtime is idle and no command is at work.
    ///
    /// An answer that arrives during the look over the processes has its process stepped. So if the runtime is idle
    /// before and after, and no step has run in between, the look was at one moment.
    fn is_done_with_all(&self) -> bool {
        self.is_while_idle(|| self.at_work().next().is_none())
    }

    /// Looks at something while the runtime is idle. Returns `false` if it is not, or was not.
    fn is_while_idle(&self, look: impl FnOnce() -> bool) -> bool {
        let steps = self.steps();
        self.is_idle() && look() && self.is_idle() && self.steps() == steps
    }

    /// The number of steps so far.
    fn steps(&self) -> u64 {
        let on_workers: u64 = self.road.views.iter().map(|view| view.counters.steps.get()).sum();
        on_workers + self.road.outside.steps.get()
    }

    /// The slots of processes at rest with commands at work, and how many each has.
    fn at_work(&self) -> impl Iterator<Item = (u32, usize)> {
        let now = self.road.clock.now();
        let cells = self.road.table.cells();
        cells.map(move |(slot, cell)| (slot, cell.commands_at_work(now))).filter(|(_, commands)| *commands > 0)
    }

    /// Describes what is going on.
    fn not_idle(&self, reason: WaitError) -> NotIdleError {
        let at_work: std::collections::HashMap<u32, usize> = self.at_work().collect();
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        for info in self.processes() {
            match at_work.get(&info.pid.slot()) {
                _ if matches!(info.state, ProcessState::Ready | ProcessState::Running) => running.push(info),
                Some(commands) => waiting.push((info, *commands)),
                None => {}
            }
        }
        let pool = self.pool.stats();
        NotIdleError { reason, running, waiting, blocking: pool.running + pool.waiting }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitives::Arc;
    use crate::process::{Events, Process, Step, StepOutput, StepResult};
    use crate::wait::{until, wait};

    /// Takes messages. If it has gates, it waits for one of them at each step.
    struct Sink(Vec<Arc<Latch<()>>>);

    impl Process for Sink {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            if events.next().is_some()
                && let Some(gate) = self.0.pop()
            {
                wait(&gate);
            }
            Ok(Step::Idle)
        }
    }

    #[test]
    fn a_step_that_begins_or_ends_during_a_look_is_noticed() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let gate = Arc::new(Latch::new());
        let sink = runtime.spawn(Sink(vec![gate.clone()])).unwrap();
        until("the runtime is idle", || runtime.is_idle());
        let begins = || runtime.send(&sink, ()).is_ok();
        assert!(!runtime.core().is_while_idle(begins), "the step has not ended");
        let _ = gate.set(());
        until("the runtime is idle", || runtime.is_idle());
        let begins_and_ends = || {
            runtime.send(&sink, ()).unwrap();
            until("the runtime is idle", || runtime.is_idle());
            true
        };
        assert!(!runtime.core().is_while_idle(begins_and_ends), "the step has ended");
        assert!(runtime.core().is_while_idle(|| true) && !runtime.core().is_while_idle(|| false));
    }

    #[test]
    fn a_job_that_begins_or_ends_during_a_look_is_noticed() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let (core, gate) = (runtime.core(), Arc::new(Latch::new()));
        until("the runtime is idle", || runtime.is_idle());
        let job = |gate: &Arc<Latch<()>>| {
            let gate = gate.clone();
            core.pool.spawn(move || wait(&gate)).unwrap()
        };
        let mut held = Some(job(&gate));
        let mut ends = || {
            let _ = gate.set(());
            held.take().is_some_and(|job| job.wait().is_ok())
        };
        assert!(!core.is_while_pool_rests(&mut ends), "a job was there at the beginning");
        ends();
        until("the pool rests", || core.is_while_pool_rests(|| true));
        let begins_and_ends = || job(&gate).wait().is_ok();
        assert!(!core.is_while_pool_rests(begins_and_ends), "a job came and went");
        until("the pool rests", || core.is_while_pool_rests(|| true));
        assert!(!core.is_while_pool_rests(|| false));
    }
}
