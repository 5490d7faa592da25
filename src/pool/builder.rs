//! Options of a pool.

use std::fmt;
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

/// The default of [`PoolBuilder::idle_period`].
pub const DEFAULT_IDLE_PERIOD: Duration = Duration::from_secs(2);

/// The default of [`PoolBuilder::max`], unless there are more processors.
pub const DEFAULT_MAX: usize = 4;

/// Options of a [`Pool`], in any order.
#[derive(Clone)]
pub struct PoolBuilder {
    min: usize,
    max: usize,
    queue: QueuePolicy,
    idle_period: Option<Duration>,
    name: String,
    stack_size: Option<usize>,
    hooks: Hooks,
    clock: Clock,
    shutdown_limit: Option<Duration>,
}

impl Pool {
    /// Makes a builder with the defaults.
    ///
    /// No workers are kept. There are at most as many as processors, but at least [`DEFAULT_MAX`]. The queue has no bound. Idle
    /// workers end after [`DEFAULT_IDLE_PERIOD`]. Threads are called `pool-N`, and have the stack of the standard library. There are
    /// no hooks. The clock is the system's. A shutdown has no limit.
    pub fn builder() -> PoolBuilder {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        PoolBuilder {
            min: 0,
            max: processors.max(DEFAULT_MAX),
            queue: QueuePolicy::Unbounded,
            idle_period: Some(DEFAULT_IDLE_PERIOD),
            name: String::from("pool"),
            stack_size: None,
            hooks: Hooks::default(),
            clock: Clock::system(),
            shutdown_limit: None,
        }
    }
}

impl PoolBuilder {
    /// The fewest workers that are kept. They are started on demand like all others, and then stay.
    pub fn min(mut self, threads: usize) -> PoolBuilder {
        self.min = threads;
        self
    }

    /// The most threads there may be.
    pub fn max(mut self, threads: usize) -> PoolBuilder {
        self.max = threads;
        self
    }

    /// How many jobs may wait, and what happens to one more.
    pub fn queue(mut self, queue: QueuePolicy) -> PoolBuilder {
        self.queue = queue;
        self
    }

    /// How long the pool may be idle before it shrinks.
    ///
    /// After a whole period without a job, each further period ends one worker. With `None` the pool never shrinks. Zero is the
    /// default.
    pub fn idle_period(mut self, period: Option<Duration>) -> PoolBuilder {
        self.idle_period = period.map(|period| if period.is_zero() { DEFAULT_IDLE_PERIOD } else { period });
        self
    }

    /// The name of the threads, before their number.
    pub fn name(mut self, name: impl Into<String>) -> PoolBuilder {
        self.name = name.into();
        self
    }

    /// How many bytes the stack of each thread has. The operating system may give more, and rounds up what is too little.
    pub fn stack_size(mut self, bytes: usize) -> PoolBuilder {
        self.stack_size = Some(bytes);
        self
    }

    /// Called by each thread before its first job. A panic in it is contained.
    pub fn on_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> PoolBuilder {
        self.hooks.start = Some(Arc::new(hook));
        self
    }

    /// Called by each thread after its last job; a drain or stop waits for it. A panic in it is contained.
    pub fn on_end(mut self, hook: impl Fn() + Send + Sync + 'static) -> PoolBuilder {
        self.hooks.end = Some(Arc::new(hook));
        self
    }

    /// Called when a job has panicked, by its thread, before its handle is told. A panic in it is contained.
    pub fn on_panic(mut self, hook: impl Fn(&Panic) + Send + Sync + 'static) -> PoolBuilder {
        self.hooks.panic = Some(Arc::new(hook));
        self
    }

    /// The clock for idle periods and limits.
    pub fn clock(mut self, clock: Clock) -> PoolBuilder {
        self.clock = clock;
        self
    }

    /// How long the jobs have when the pool is shut down through its [node](Pool::shutdown_node).
    ///
    /// When the limit is over, the waiting jobs are dropped. [`SHUTDOWN_GRACE`](super::SHUTDOWN_GRACE) later, jobs that still run
    /// are not waited for any longer.
    pub fn shutdown_limit(mut self, limit: Duration) -> PoolBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Makes the pool. No thread is started before there is a job.
    ///
    /// # Errors
    /// The maximum is zero or below the minimum, the name has a NUL in it, or the stack is larger than any memory.
    pub fn build(self) -> Result<Pool, PoolBuildError> {
        check_size(self.min, self.max)?;
        check_thread(&self.name, self.stack_size)?;
        let limits = Limits { min: self.min, max: self.max, queue: self.queue, idle_period: self.idle_period };
        let shared = Shared {
            ledger: Mutex::new(Ledger::new(limits, self.clock.now())),
            threads: PoolThreads::new(self.name, self.stack_size),
            clock: self.clock,
            hooks: self.hooks,
            hint: AtomicBool::new(false),
            pause_tokens: Mutex::default(),
            joined: Mutex::default(),
            reported: Mutex::default(),
            part: Part::new(self.shutdown_limit),
        };
        Ok(Pool { owner: Arc::new(Owner { shared: Arc::new(shared) }) })
    }
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("min", &self.min)
            .field("max", &self.max)
            .field("queue", &self.queue)
            .field("idle_period", &self.idle_period)
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .field("shutdown_limit", &self.shutdown_limit)
            .finish_non_exhaustive()
    }
}
