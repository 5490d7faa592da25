//! Options of a pool.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::handle::{Owner, Pool};
use super::ledger::Ledger;
use super::limits::{Limits, PoolBuildError, QueuePolicy, check_size, check_thread};
use super::threads::PoolThreads;
use super::worker::{Hooks, Shared};
use crate::clock::Clock;
use crate::outcome::Panic;
use crate::primitives::{Arc, AtomicBool, Mutex};
use crate::shutdown::Part;

/// The default of [`PoolBuilder::idle_period`]: two seconds.
pub const DEFAULT_IDLE_PERIOD: Duration = Duration::from_secs(2);

/// The smallest default of [`PoolBuilder::max`], in threads.
///
/// On a machine with more processors, the default is the number of processors.
pub const DEFAULT_MAX: usize = 4;

/// Builds a [`Pool`]. Options may be set in any order.
#[derive(Clone, Debug)]
pub struct PoolBuilder {
    limits: Limits,
    name: String,
    stack_size: Option<usize>,
    hooks: Hooks,
    clock: Clock,
    shutdown_limit: Option<Duration>,
}

impl Pool {
    /// Returns a builder with the default options.
    ///
    /// The defaults:
    ///
    /// - The minimum is 0, so an idle pool ends all its threads.
    /// - The maximum is the number of processors, but at least [`DEFAULT_MAX`].
    /// - The queue has no bound.
    /// - The idle period is [`DEFAULT_IDLE_PERIOD`].
    /// - Threads are called `pool-N` and have the standard library's stack size.
    /// - There are no hooks, the clock is the system's, and a shutdown has no limit.
    pub fn builder() -> PoolBuilder {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Pool::builder_of(processors.max(DEFAULT_MAX))
    }

    /// As [`builder`](Self::builder), with this maximum. To ask for the number of processors takes several system
    /// calls.
    pub(crate) fn builder_of(max: usize) -> PoolBuilder {
        PoolBuilder {
            limits: Limits { min: 0, max, queue: QueuePolicy::Unbounded, idle_period: Some(DEFAULT_IDLE_PERIOD) },
            name: String::from("pool"),
            stack_size: None,
            hooks: Hooks::default(),
            clock: Clock::system(),
            shutdown_limit: None,
        }
    }
}

impl PoolBuilder {
    /// Sets the number of threads below which the pool does not shrink.
    ///
    /// These threads start on demand like all others.
    pub fn min(mut self, threads: usize) -> PoolBuilder {
        self.limits.min = threads;
        self
    }

    /// Sets the most threads that the pool may have.
    pub fn max(mut self, threads: usize) -> PoolBuilder {
        self.limits.max = threads;
        self
    }

    /// Sets how many jobs may wait, and what happens when the queue is full.
    pub fn queue(mut self, queue: QueuePolicy) -> PoolBuilder {
        self.limits.queue = queue;
        self
    }

    /// Sets how long the pool may be idle before it shrinks.
    ///
    /// If no job arrives during a whole period, each further period without a new job ends one idle worker. With `None`
    /// the pool never shrinks. Zero selects the default.
    pub fn idle_period(mut self, period: Option<Duration>) -> PoolBuilder {
        self.limits.idle_period = period.map(|period| if period.is_zero() { DEFAULT_IDLE_PERIOD } else { period });
        self
    }

    /// Sets the name of the threads. Each thread's number is appended.
    pub fn name(mut self, name: impl Into<String>) -> PoolBuilder {
        self.name = name.into();
        self
    }

    /// Sets the stack size of each thread, in bytes. The operating system may round it up.
    pub fn stack_size(mut self, bytes: usize) -> PoolBuilder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets a hook that each thread calls before its first job.
    ///
    /// A panic in the hook is contained.
    pub fn on_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> PoolBuilder {
        self.hooks.start = Some(Arc::new(hook));
        self
    }

    /// Sets a hook that each thread calls after its last job.
    ///
    /// A drain or stop waits for the hook, but with a limit: see [`SHUTDOWN_GRACE`](super::SHUTDOWN_GRACE). A panic in
    /// the hook is contained.
    pub fn on_end(mut self, hook: impl Fn() + Send + Sync + 'static) -> PoolBuilder {
        self.hooks.end = Some(Arc::new(hook));
        self
    }

    /// Sets a hook that is called when a job has panicked.
    ///
    /// The job's thread calls the hook before it completes the job's handle. A panic in the hook is contained.
    pub fn on_panic(mut self, hook: impl Fn(&Panic) + Send + Sync + 'static) -> PoolBuilder {
        self.hooks.panic = Some(Arc::new(hook));
        self
    }

    /// Sets the clock for idle periods and limits.
    pub fn clock(mut self, clock: Clock) -> PoolBuilder {
        self.clock = clock;
        self
    }

    /// Sets how long the jobs may take when the pool's [node](Pool::shutdown_node) shuts it down.
    ///
    /// When the limit has passed, the pool drops the waiting jobs. After another
    /// [`SHUTDOWN_GRACE`](super::SHUTDOWN_GRACE), the node no longer waits for running jobs.
    pub fn shutdown_limit(mut self, limit: Duration) -> PoolBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Builds the pool. It starts no thread before the first job.
    ///
    /// # Errors
    /// The maximum is zero or below the minimum, the name contains a NUL, or the stack size exceeds `isize::MAX`.
    pub fn build(self) -> Result<Pool, PoolBuildError> {
        check_size(self.limits.min, self.limits.max)?;
        check_thread(&self.name, self.stack_size)?;
        let shared = Shared {
            ledger: Mutex::new(Ledger::new(self.limits, self.clock.now())),
            threads: PoolThreads::new(self.name, self.stack_size),
            clock: self.clock,
            hooks: self.hooks,
            hint: AtomicBool::new(false),
            pause_tokens: Mutex::default(),
            part: Part::new(self.shutdown_limit),
        };
        Ok(Pool { owner: Arc::new(Owner { shared: Arc::new(shared) }) })
    }
}
