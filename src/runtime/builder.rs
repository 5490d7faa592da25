//! The options of a runtime, and its start.

use std::any::{TypeId, type_name};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::{SysRng, Xoshiro256PlusPlus};
use rand::{RngExt as _, SeedableRng as _, TryRng as _};

use super::access::Access;
use super::dispatch::Core;
use super::metrics_options::{MetricsOptions, TIME_ONE_IN_RANGE, WAIT_ONE_IN_RANGE};
use super::shutdown::Shutdown;
use super::simulated::SimulationHost;
use super::system::{Owner, Runtime};
use super::timed::Timed;
use super::watchdog::{Watchdog, WatchdogTimer};
use super::worker_threads::{Spare, WorkerThreads};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::groups::Groups;
use crate::name_table::Names;
use crate::outcome::{BoxError, tell_log};
use crate::pool::{DEFAULT_IDLE_PERIOD, Pool, PoolBuildError, PoolBuilder};
use crate::primitives::{Arc, AtomicU64, Mutex};
use crate::process::{self, AnyHandler, AsyncHandler, Command, Observer, Pid, Propagator, Responder};
use crate::recording::Recorder;
use crate::relations::Relations;
use crate::sched::body::StepOutput;
use crate::sched::counters::Counters;
use crate::sched::polling::PollContext;
use crate::sched::queue::{Queues, WorkerQueues};
use crate::sched::road::Road;
use crate::sched::stuck_steps::StuckSteps;
use crate::sched::table::{MOST_PROCESSES, Table};
use crate::sched::worker::Worker;
use crate::threads;
use crate::timer::TimerSet;

/// The default maximum of new events that one step is given.
pub const DEFAULT_STEP_EVENTS: usize = 128;

/// The default maximum of processes: 16,777,216.
pub const DEFAULT_MAX_PROCESSES: usize = 1 << 24;

/// The default maximum of threads for blocking work.
pub const DEFAULT_BLOCKING_THREADS: usize = 512;

/// The default limit of a shutdown through the runtime's shutdown node.
pub const DEFAULT_SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// The default maximum of processes in a simulation.
const SIMULATED_PROCESSES: usize = 1 << 16;

const MOST_WORKERS: usize = 1024;
const MOST_SPARE_WORKERS: usize = 1024;
const MOST_STEP_EVENTS: usize = 1 << 20;
const MOST_BLOCKING_THREADS: usize = 1 << 16;

/// The numbers from which the node is chosen at random if none is given.
const RANDOM_NODES: RangeInclusive<u32> = 1..=Pid::MAX_NODE;

/// The maximum number of vacant slots that a worker keeps for future processes.
const STOCK: usize = 256;

/// Options of a [`Runtime`]. Each option has a default. [`start`](Self::start) refuses values out of range.
///
/// ```
/// use procession::Runtime;
/// use std::time::Duration;
///
/// let runtime = Runtime::builder().workers(2).max_processes(10_000).start()?;
/// runtime.shutdown(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `start` is called"]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    thread_name: String,
    stack_size: Option<usize>,
    node: Option<u32>,
    seed: Option<u64>,
    max_processes: Option<usize>,
    step_events: usize,
    blocking_threads: usize,
    blocking_idle: Option<Duration>,
    clock: Clock,
    shutdown_limit: Duration,
    exact_step_times: bool,
    watchdog: Option<Watchdog>,
    observer: Option<Arc<dyn Observer>>,
    metrics: Option<MetricsOptions>,
    recorder: Option<Recorder>,
    propagator: Option<Arc<dyn Propagator>>,
    handlers: HashMap<TypeId, AnyHandler>,
    /// The command of the newest handler that makes futures.
    newest_async: Option<TypeId>,
    /// Why a limit of such a handler was refused.
    bad_limit: Option<BuildError>,
    context: Option<PollContext>,
    twice: Option<&'static str>,
    simulation: Option<Arc<dyn SimulationHost>>,
}

impl Runtime {
    /// Returns the options, with their defaults.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder {
            workers: None,
            thread_name: String::from("procession"),
            stack_size: None,
            node: None,
            seed: None,
            max_processes: None,
            step_events: DEFAULT_STEP_EVENTS,
            blocking_threads: DEFAULT_BLOCKING_THREADS,
            blocking_idle: Some(DEFAULT_IDLE_PERIOD),
            clock: Clock::system(),
            shutdown_limit: DEFAULT_SHUTDOWN_LIMIT,
            exact_step_times: false,
            watchdog: None,
            observer: None,
            metrics: None,
            recorder: None,
            propagator: None,
            handlers: HashMap::new(),
            newest_async: None,
            bad_limit: None,
            context: None,
            twice: None,
            simulation: None,
        }
    }

    /// Starts a runtime with the defaults.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start() -> Result<Runtime, BuildError> {
        Runtime::builder().start()
    }
}

impl RuntimeBuilder {
    /// Sets the number of workers: 1 to 1,024. A worker is a thread that steps processes. The default is the number of
    /// processors.
    pub fn workers(mut self, workers: usize) -> RuntimeBuilder {
        self.workers = Some(workers);
        self
    }

    /// Sets the first part of the names of the threads. The default is `procession`. The names are `NAME-worker-0`,
    /// `NAME-blocking-1`, `NAME-timers`, `NAME-spare-0` and `NAME-watchdog`.
    pub fn thread_name(mut self, name: impl Into<String>) -> RuntimeBuilder {
        self.thread_name = name.into();
        self
    }

    /// Sets the stack size, in bytes, of each thread that runs steps or blocking work. The operating system may give
    /// more, and rounds up a size that is too small. The default is that of the standard library's threads: 2 MiB,
    /// unless the environment's `RUST_MIN_STACK` says otherwise.
    ///
    /// If a step needs a larger stack, the program aborts, as on any thread. Send large messages in a `Box`.
    pub fn stack_size(mut self, bytes: usize) -> RuntimeBuilder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the node, which is the first number of every PID: 0 to 16,383. The default is a random number from 1 to
    /// 16,383. So two runtimes almost certainly have different nodes. A runtime recognises a PID with another node as
    /// foreign.
    pub fn node(mut self, node: u32) -> RuntimeBuilder {
        self.node = Some(node);
        self
    }

    /// Sets the seed of all random decisions of the runtime. These are its node, the workers from which idle workers
    /// steal processes, the numbers that processes [draw](crate::StepOutput::random), and the jitter of supervisors.
    /// The default comes from the operating system.
    pub fn seed(mut self, seed: u64) -> RuntimeBuilder {
        self.seed = Some(seed);
        self
    }

    /// Sets the maximum number of living processes: 1 to 67,108,864. A limit that is set here is exact. The default is
    /// [`DEFAULT_MAX_PROCESSES`]. The default is not exact: each worker may reserve up to 256 of these places.
    pub fn max_processes(mut self, limit: usize) -> RuntimeBuilder {
        self.max_processes = Some(limit);
        self
    }

    /// Sets the maximum number of new events that one step is given: 1 to 1,048,576. The default is
    /// [`DEFAULT_STEP_EVENTS`]. Control signals, and messages that earlier steps have passed over, are not counted.
    pub fn step_events(mut self, events: usize) -> RuntimeBuilder {
        self.step_events = events;
        self
    }

    /// Sets the maximum number of threads for blocking work: 1 to 65,536. The default is [`DEFAULT_BLOCKING_THREADS`].
    /// The threads start on demand. If all of them are busy, further work waits.
    pub fn blocking_threads(mut self, threads: usize) -> RuntimeBuilder {
        self.blocking_threads = threads;
        self
    }

    /// Sets the idle period of the threads for blocking work. After a whole period without such work, each further
    /// period ends one thread. With `None` these threads do not end before the runtime. The default is
    /// [`DEFAULT_IDLE_PERIOD`].
    pub fn blocking_idle(mut self, period: Option<Duration>) -> RuntimeBuilder {
        self.blocking_idle = period;
        self
    }

    /// Sets the clock for timers, limits and times. The default is the system's clock. Tests use a
    /// [`ManualClock`](crate::clock::ManualClock).
    pub fn clock(mut self, clock: Clock) -> RuntimeBuilder {
        self.clock = clock;
        self
    }

    /// Makes each worker read the clock before every step. So
    /// [`ProcessInfo::in_step`](crate::observe::ProcessInfo::in_step) is exact. Without this option, a worker reads
    /// the clock once in 32 steps, which is much cheaper. Then `in_step` may include up to 31 steps before the current
    /// one.
    pub fn exact_step_times(mut self) -> RuntimeBuilder {
        self.exact_step_times = true;
        self
    }

    /// Adds a watchdog, which reports steps that run too long. It may also start spare workers in the places of stuck
    /// workers. Without a watchdog, steps are not watched.
    pub fn watchdog(mut self, watchdog: Watchdog) -> RuntimeBuilder {
        self.watchdog = Some(watchdog);
        self
    }

    /// Sets the observer, which is notified of spawns, exits, restarts in place, dead letters and stuck steps.
    pub fn observer(mut self, observer: impl Observer) -> RuntimeBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Collects figures by type of process, the times of steps, and the times in which workers sleep, for
    /// [`Runtime::snapshot`]. Without this option they are not collected, and cost nothing. With it, a step costs some
    /// nanoseconds more.
    pub fn metrics(mut self, options: MetricsOptions) -> RuntimeBuilder {
        self.metrics = Some(options);
        self
    }

    /// Propagates traces along messages, answers, timers, futures, blocking closures and handlers. See
    /// [`Propagator`].
    ///
    /// A message that is sent within a trace is stepped within it. It has a step of its own, with a span. All yields of
    /// this step are within the trace, too. Messages from outside of any trace stay outside. The order of messages does
    /// not change. A process that gets many traced messages makes more steps, because each of them takes one traced
    /// message. A spawned process begins outside of the trace. A message to a durable process or to another node
    /// carries the trace if [`TraceContext::encode`](crate::observe::TraceContext::encode) can write its context.
    ///
    /// Without this option, a message carries nothing for a trace.
    pub fn propagate(mut self, propagator: impl Propagator) -> RuntimeBuilder {
        self.propagator = Some(Arc::new(propagator));
        self
    }

    /// Records the processes of some types, so that their steps can be replayed. See [`recording`](crate::recording).
    ///
    /// Processes that are not recorded pay nothing for it on the way of a message.
    pub fn recorder(mut self, recorder: Recorder) -> RuntimeBuilder {
        self.recorder = Some(recorder);
        self
    }

    /// Registers the handler for a type of command. Workers call it, so it must not block. It should only start the
    /// action. The [`Responder`] may answer later, from any thread or async runtime. If the handler returns an error,
    /// panics, or drops the responder without an answer, the command is answered with an error.
    pub fn handler<C, F>(self, handler: F) -> RuntimeBuilder
    where
        C: Command,
        F: Fn(C, Responder<C::Output>) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.add_handler::<C>(AnyHandler::Call(process::handler(handler)))
    }

    /// Registers the handler for a type of command, which answers with the output of a future.
    ///
    /// The handler makes a future from each command. That future is a
    /// [future of the process](crate::StepOutput::future) that has yielded the command. So no executor is needed:
    ///
    /// - The thread that has the process calls the handler and polls the future. Both run in the
    ///   [context](Self::in_context) of polls. They must not block.
    /// - The answer is the output of the future. If the handler or a poll panics, the answer is
    ///   [`CommandError::Panicked`](crate::CommandError::Panicked).
    /// - The future is dropped when a step [cancels](crate::StepOutput::cancel_command) the command, when the
    ///   [limit](crate::StepOutput::command_timeout) of the command is over, when the process ends, and when its state
    ///   machine has failed. A command that is yielded with [`Step::Done`](crate::Step::Done) is not performed.
    ///
    /// [`at_most`](Self::at_most) limits the number of futures that run at once.
    ///
    /// ```
    /// use procession::command::Command;
    /// use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
    ///
    /// struct Fetch(u32);
    ///
    /// impl Command for Fetch {
    ///     type Output = String;
    /// }
    ///
    /// # async fn get(page: u32) -> std::io::Result<String> {
    /// #     Ok(format!("page {page}"))
    /// # }
    /// struct Reader { page: Option<Tag<String>> }
    ///
    /// impl Process for Reader {
    ///     type Message = ();
    ///     type Output = String;
    ///
    ///     fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<String> {
    ///         let page = *self.page.get_or_insert_with(|| out.command(Fetch(7)));
    ///         for event in events {
    ///             if let Event::Completed(done) = event && let Some(page) = done.take(page) {
    ///                 return Ok(Step::Done(page?));
    ///             }
    ///         }
    ///         Ok(Step::Wait)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder()
    ///     .handler_async(|Fetch(page)| async move { Ok(get(page).await?) })
    ///     .at_most(8)
    ///     .start()?;
    /// assert_eq!(**runtime.spawn(Reader { page: None })?.join()?.output().unwrap(), "page 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handler_async<C, F, T>(mut self, handler: F) -> RuntimeBuilder
    where
        C: Command,
        F: Fn(C) -> T + Send + Sync + 'static,
        T: Future<Output = Result<C::Output, BoxError>> + Send + 'static,
    {
        self.newest_async = Some(TypeId::of::<C>());
        self.add_handler::<C>(AnyHandler::Async(Arc::new(AsyncHandler::new(handler))))
    }

    /// Limits the handler that [`handler_async`](Self::handler_async) has registered last: at most so many of its
    /// futures run at once, in the whole runtime. The minimum is 1. Without a call there is no limit.
    ///
    /// Further commands wait. Their futures begin in the order in which the commands were performed. A command that
    /// waits is a command at work: its [limit](crate::StepOutput::command_timeout) counts from the yield, it can be
    /// [cancelled](crate::StepOutput::cancel_command), and its process's end takes it out of the queue. However a
    /// future ends, the next one may begin as soon as it is dropped.
    ///
    /// The next future begins when its process is not in a step. So a step that takes long keeps a place that others
    /// could use.
    pub fn at_most(mut self, most: usize) -> RuntimeBuilder {
        let handler = self.newest_async.and_then(|newest| self.handlers.get_mut(&newest));
        match handler {
            Some(AnyHandler::Async(handler)) if most > 0 => {
                // No other reference exists before the start.
                Arc::get_mut(handler).into_iter().for_each(|handler| handler.limit(most));
            }
            Some(_) => {
                let allowed = 1..=usize::MAX;
                self.bad_limit = Some(BuildError::OutOfRange { option: "at_most", given: most, allowed });
            }
            None => self.bad_limit = Some(BuildError::NothingToLimit),
        }
        self
    }

    fn add_handler<C: Command>(mut self, handler: AnyHandler) -> RuntimeBuilder {
        if self.handlers.insert(TypeId::of::<C>(), handler).is_some() {
            self.twice = Some(type_name::<C>());
        }
        self
    }

    /// Surrounds each poll of a [future](crate::StepOutput::future), and each
    /// [blocking closure](crate::StepOutput::blocking), with this code. The destructors of futures and of
    /// [async processes](mod@crate::async_process) that have begun run in it, too. It must call its argument once. So
    /// futures can use an async runtime that expects to be entered:
    ///
    /// ```text
    /// let handle = tokio::runtime::Handle::current();
    /// let runtime = Runtime::builder().in_context(move |poll| { let _entered = handle.enter(); poll() }).start()?;
    /// ```
    ///
    /// The code runs on the thread that polls, or runs the closure. If it panics, the command is answered with
    /// [`CommandError::Panicked`](crate::CommandError::Panicked). If it does not call its argument, the command is
    /// answered with [`CommandError::Dropped`](crate::CommandError::Dropped). In both cases, a future that was to be
    /// dropped is dropped outside of it. A later call replaces an earlier one.
    pub fn in_context(mut self, context: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> RuntimeBuilder {
        self.context = Some(Arc::new(context));
        self
    }

    /// Sets the limit of a shutdown through the [shutdown node](Runtime::shutdown_node). A request to the node has no
    /// limit of its own. The default is [`DEFAULT_SHUTDOWN_LIMIT`].
    pub fn shutdown_limit(mut self, limit: Duration) -> RuntimeBuilder {
        self.shutdown_limit = limit;
        self
    }

    /// Starts the runtime and its workers.
    ///
    /// # Errors
    /// The runtime is not started if one of these holds:
    ///
    /// - An option is out of range.
    /// - The name of the threads contains a NUL byte.
    /// - The stack size of the threads is larger than any memory.
    /// - Two handlers were registered for one command.
    /// - [`at_most`](Self::at_most) was called without a handler that it could limit.
    /// - The operating system refuses a thread.
    pub fn start(self) -> Result<Runtime, BuildError> {
        let name = self.thread_name.clone();
        let (runtime, queues, seed) = self.assemble()?;
        let (core, shutdown) = (runtime.core(), &runtime.owner.shutdown);
        let workers = core.road.workers;
        for (index, queues) in queues.into_iter().enumerate() {
            // If a thread cannot be started, the drop of the runtime ends the threads that were started before.
            let thread = format!("{name}-worker-{index}");
            let mut worker = new_worker(core, index, queues, seed);
            if index < workers {
                // The worker keeps the timer, because it may be stuck when the last handle of the runtime is dropped.
                // The end of the stuck step is still reported.
                let watchdog_timer = shutdown.watchdog_timer.clone();
                let works = move || {
                    worker.run();
                    drop(watchdog_timer);
                };
                shutdown.worker_threads.start(thread, works).map_err(BuildError::Start)?;
            } else {
                shutdown.worker_threads.add_spare(Spare { name: format!("{name}-spare-{}", index - workers), worker });
            }
        }
        tell_log(|| tracing::debug!(node = core.road.table.node(), workers, "runtime started"));
        Ok(runtime)
    }

    /// Replaces the observer by one that passes everything on to it.
    pub(crate) fn wrap_observer(
        mut self,
        wrap: impl FnOnce(Option<Arc<dyn Observer>>) -> Arc<dyn Observer>,
    ) -> RuntimeBuilder {
        self.observer = Some(wrap(self.observer.take()));
        self
    }

    /// Starts the runtime in a simulation, which has its only thread. `node` and `seed` count if the program has not
    /// chosen any. The watchdog watches threads, so there is none.
    pub(crate) fn start_simulated(
        mut self,
        simulation: Arc<dyn SimulationHost>,
        clock: Clock,
        (node, seed): (u32, u64),
    ) -> Result<(Runtime, Arc<Core>), BuildError> {
        self.node.get_or_insert(node);
        self.seed.get_or_insert(seed);
        self.max_processes.get_or_insert(SIMULATED_PROCESSES);
        (self.clock, self.simulation, self.watchdog) = (clock, Some(simulation), None);
        let (runtime, ..) = RuntimeBuilder { workers: Some(1), ..self }.assemble()?;
        let core = runtime.core().clone();
        Ok((runtime, core))
    }

    /// Makes a runtime without threads. Also returns the queues of each worker, followed by those of each spare, and
    /// the seed.
    fn assemble(self) -> Result<(Runtime, Vec<WorkerQueues>, u64), BuildError> {
        // To ask for the number of processors takes several system calls.
        let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let workers = in_range("workers", self.workers.unwrap_or_else(processors), 1..=MOST_WORKERS)?;
        let limit = self.max_processes.unwrap_or(DEFAULT_MAX_PROCESSES);
        let limit = in_range("max_processes", limit, 1..=MOST_PROCESSES as usize)?;
        let budget = in_range("step_events", self.step_events, 1..=MOST_STEP_EVENTS)?;
        let blocking = in_range("blocking_threads", self.blocking_threads, 1..=MOST_BLOCKING_THREADS)?;
        let one_in = self.metrics.as_ref().map(|metrics| {
            let steps = in_range("time_one_in", metrics.time_one_in, TIME_ONE_IN_RANGE)?;
            Ok((steps as u32, in_range("wait_one_in", metrics.wait_one_in, WAIT_ONE_IN_RANGE)? as u32))
        });
        let one_in = one_in.transpose()?;
        if self.watchdog.is_some_and(|watchdog| watchdog.limit.is_zero()) {
            return Err(BuildError::NoLimit);
        }
        let spares = self.watchdog.map_or(0, |watchdog| watchdog.spares);
        in_range("spare_workers", spares, 0..=MOST_SPARE_WORKERS)?;
        // A limit that never passes is no limit.
        let watchdog = self.watchdog.and_then(|watchdog| Some((watchdog, watchdog.limit_nanos()?)));
        let spares = if watchdog.is_some() { spares } else { 0 };
        if !threads::is_name(&self.thread_name) {
            return Err(BuildError::ThreadName { given: self.thread_name });
        }
        if let Some(error) = self.bad_limit {
            return Err(error);
        }
        if let Some(command) = self.twice {
            return Err(BuildError::TwoHandlers { command });
        }
        let seed = match self.seed {
            Some(seed) => seed,
            None => SysRng.try_next_u64().map_err(|error| BuildError::Start(io::Error::other(error)))?,
        };
        let node = self.node.unwrap_or_else(|| Xoshiro256PlusPlus::seed_from_u64(seed).random_range(RANDOM_NODES));
        let out_of_range =
            || BuildError::OutOfRange { option: "node", given: node as usize, allowed: 0..=Pid::MAX_NODE as usize };
        let table = match &self.simulation {
            None => Table::new(node, limit as u32),
            // A simulation is started very often, and none of them wears its slots out.
            Some(_) => Table::of_simulation(node, limit as u32),
        };
        let table = table.ok_or_else(out_of_range)?;
        let name = &self.thread_name;
        let pool = Pool::builder_of(blocking)
            .idle_period(self.blocking_idle)
            .name(format!("{name}-blocking"))
            .clock(self.clock.clone());
        let pool =
            self.stack_size.into_iter().fold(pool, PoolBuilder::stack_size).build().map_err(|error| match error {
                PoolBuildError::StackSize { given } => BuildError::StackSize { given },
                error => BuildError::Start(io::Error::other(error)),
            })?;
        let (queues, own_queues) = Queues::new(workers + spares);
        let has_recorder = self.recorder.is_some();
        // A simulation has one thread.
        let outside = if self.simulation.is_some() { Counters::default() } else { Counters::shared() };
        let observer = self.observer.or_else(|| has_recorder.then(|| Arc::new(NoObserver) as _));
        let road = Road {
            workers,
            stuck_steps: watchdog.map(|(_, limit)| StuckSteps::new(workers, spares, limit)),
            is_observed: observer.is_some(),
            observer,
            recorder: self.recorder.map(|recorder| Arc::new(recorder.for_runtime()) as _),
            propagator: self.propagator,
            stock: if self.max_processes.is_some() { 0 } else { STOCK },
            exact_times: self.exact_step_times,
            outside,
            ..Road::new(table, queues, workers + spares, self.clock.clone(), budget as u32)
        };
        let road = Arc::new(match one_in {
            Some(one_in) => road.with_figures(one_in),
            None => road,
        });
        let core = Arc::new_cyclic(|me| Core {
            road: road.clone(),
            over: CancelToken::with_clock(self.clock.clone()),
            timers: TimerSet::new(self.clock, format!("{name}-timers"), workers, {
                let road = road.clone();
                move |timed: Timed| timed.fire(&road)
            }),
            pool,
            names: Names::default(),
            relations: Relations::new(),
            groups: Groups::default(),
            seed,
            monitors: AtomicU64::new(0),
            handlers: self.handlers,
            context: self.context,
            pool_steps: Mutex::default(),
            for_pool: Mutex::default(),
            simulation: self.simulation,
            me: me.clone(),
        });
        let reaper = core.me.clone();
        road.reap.get_or_init(|| Box::new(move || reaper.upgrade().into_iter().for_each(|core| core.reap(drop))));
        let worker_threads = Arc::new(WorkerThreads::new(self.stack_size));
        let watchdog_timer = watchdog
            .map(|(watchdog, _)| WatchdogTimer::new(watchdog, &core, &worker_threads, format!("{name}-watchdog")));
        let shutdown = Shutdown::new(core.clone(), worker_threads, watchdog_timer, self.shutdown_limit);
        let access = Arc::new(Access { host: Arc::new(core.clone()), core: core.clone() });
        let runtime = Runtime { owner: Arc::new(Owner { core, access, shutdown }) };
        Ok((runtime, own_queues, seed))
    }
}

fn new_worker(core: &Arc<Core>, index: usize, queues: WorkerQueues, seed: u64) -> Worker<Core> {
    Worker::new(core.clone(), core.road.clone(), index, queues, StepOutput::new(core.clone()), seed)
}

#[cfg(all(test, not(loom)))]
impl RuntimeBuilder {
    /// Makes a runtime whose workers have no threads. The test runs the workers.
    pub(crate) fn by_hand(self) -> (Runtime, Vec<Worker<Core>>) {
        let (runtime, queues, seed) = self.assemble().unwrap();
        let core = runtime.core();
        let workers =
            queues.into_iter().enumerate().map(|(index, queues)| new_worker(core, index, queues, seed)).collect();
        (runtime, workers)
    }
}

impl std::fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("workers", &self.workers)
            .field("max_processes", &self.max_processes)
            .field("step_events", &self.step_events)
            .field("blocking_threads", &self.blocking_threads)
            .field("handlers", &self.handlers.len())
            .finish_non_exhaustive()
    }
}

/// Observes nothing. The branches for an observer are those for a recorder, too.
struct NoObserver;

impl Observer for NoObserver {}

fn in_range(option: &'static str, given: usize, allowed: RangeInclusive<usize>) -> Result<usize, BuildError> {
    if allowed.contains(&given) { Ok(given) } else { Err(BuildError::OutOfRange { option, given, allowed }) }
}

/// Why a runtime was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An option is out of range.
    #[error("`{option}` is {given}; allowed is {} to {}", allowed.start(), allowed.end())]
    OutOfRange {
        /// The method of the builder that sets the option.
        option: &'static str,
        /// The value that was given.
        given: usize,
        /// The values that are allowed.
        allowed: RangeInclusive<usize>,
    },
    /// Two handlers were registered for one type of command.
    #[error("two handlers were registered for the command {command}; there can be one")]
    TwoHandlers {
        /// The type of the command.
        command: &'static str,
    },
    /// [`RuntimeBuilder::at_most`] was called before [`RuntimeBuilder::handler_async`].
    #[error("`at_most` limits the handler that was registered last with `handler_async`, and there is none")]
    NothingToLimit,
    /// The [`Watchdog`] has a limit of zero.
    #[error("a watchdog has to allow a step some time, and this one allows none")]
    NoLimit,
    /// The name of the threads contains a NUL byte.
    #[error("no thread can be called {given:?}")]
    ThreadName {
        /// The name that was given.
        given: String,
    },
    /// The stack size is larger than any memory.
    #[error("no thread can have a stack of {given} bytes")]
    StackSize {
        /// The size that was given.
        given: usize,
    },
    /// The operating system refused a thread, or random numbers for the seed.
    #[error("the runtime cannot be started: {0}")]
    Start(#[source] io::Error),
}
