//! Options of a driver: the PID, the clock, the entry, and the size of a step.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use super::driver::Driver;
use crate::clock::ManualClock;
use crate::process::{Pid, Process, SpawnOptions};

/// The most new events that one step is given by default. It is the default of a runtime, too.
const STEP_EVENTS: u32 = 128;

/// Options of a [`Driver`], made with [`Driver::builder`].
///
/// Several processes can send to each other in a test. Each has a driver and a PID of its own, and they share a clock.
/// The test carries the messages from one driver to the other:
///
/// ```
/// use procession::clock::ManualClock;
/// use procession::testing::{Driver, Status};
/// use procession::{Address, CommandError, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};
/// use std::time::Duration;
///
/// struct Read(Reply<u64>);
///
/// /// Answers with the time that has passed, in seconds.
/// struct TimeTeller { start: Option<std::time::Instant> }
///
/// impl Process for TimeTeller {
///     type Message = Read;
///     type Output = ();
///
///     fn step(&mut self, events: &mut Events<Read>, out: &mut StepOutput) -> StepResult<()> {
///         let start = *self.start.get_or_insert(out.now());
///         for event in events {
///             if let Event::Message(Read(reply)) = event {
///                 out.reply(reply, (out.now() - start).as_secs());
///             }
///         }
///         Ok(Step::Idle)
///     }
/// }
///
/// /// Asks it, but does not wait for ever.
/// struct Visitor { watch: Address<Read>, asked: Option<Tag<u64>> }
///
/// impl Process for Visitor {
///     type Message = ();
///     type Output = Result<u64, CommandError>;
///
///     fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<Self::Output> {
///         let tag = *self.asked.get_or_insert_with(|| out.ask(self.watch, Read, Duration::from_secs(5)));
///         for event in events {
///             if let Event::Completed(done) = event
///                 && let Some(seconds) = done.take(tag)
///             {
///                 return Ok(Step::Done(seconds));
///             }
///         }
///         Ok(Step::Wait)
///     }
/// }
///
/// let clock = ManualClock::new();
/// let mut watch = Driver::builder().pid("<0.1.1>".parse()?).clock(&clock).build(TimeTeller { start: None });
/// let visitor = Visitor { watch: watch.address(), asked: None };
/// let mut visitor = Driver::builder().pid("<0.2.1>".parse()?).clock(&clock).build(visitor);
///
/// assert_eq!((watch.run(), visitor.run()), (Status::Idle, Status::Blocked));
/// let (to, question) = visitor.sent()?;
/// assert_eq!(to, watch.pid());
/// // The time is the same for both.
/// clock.advance(Duration::from_secs(3));
/// watch.message_from(visitor.pid(), question).run();
/// // The reply has brought the answer to the visitor.
/// assert_eq!(visitor.run(), Status::Ended);
/// assert!(matches!(**visitor.exit().unwrap().output().unwrap(), Ok(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is driven until `build` is called"]
pub struct DriverBuilder<P: Process> {
    pid: Pid,
    clock: ManualClock,
    step_events: u32,
    seed: u64,
    options: SpawnOptions,
    drives: PhantomData<fn(P)>,
}

impl<P: Process> Driver<P> {
    /// Drives a process that begins with the entry method `"main"` and without input.
    ///
    /// `init` and `start` are called before the first step.
    pub fn new(process: P) -> Driver<P> {
        Driver::builder().build(process)
    }

    /// Drives a process that begins with the entry method `method` and with `input`.
    pub fn entering<I: Send + 'static>(process: P, method: impl Into<Cow<'static, str>>, input: I) -> Driver<P> {
        Driver::builder().entry(method, input).build(process)
    }

    /// Returns a builder, for options that [`new`](Self::new) does not set.
    pub fn builder() -> DriverBuilder<P> {
        DriverBuilder {
            pid: Pid::FIRST,
            clock: ManualClock::new(),
            step_events: STEP_EVENTS,
            seed: 0,
            options: SpawnOptions::new(),
            drives: PhantomData,
        }
    }
}

impl<P: Process> DriverBuilder<P> {
    /// Sets the PID of the process. The default is `<0.0.1>`.
    ///
    /// Its children get PIDs of the same node. The children of a process in slot *n* get slots above 1,000 × *n*. If
    /// processes send to each other, give them different slots, and give none of them slot 0.
    pub fn pid(mut self, pid: Pid) -> DriverBuilder<P> {
        self.pid = pid;
        self
    }

    /// Sets the clock of the process. Its timers and time limits use it. By default each driver has its own clock.
    pub fn clock(mut self, clock: &ManualClock) -> DriverBuilder<P> {
        self.clock = clock.clone();
        self
    }

    /// Sets the entry method and its input. `init` is called with them. The default is `"main"` without input.
    pub fn entry<I: Send + 'static>(mut self, method: impl Into<Cow<'static, str>>, input: I) -> DriverBuilder<P> {
        self.options = self.options.entry(method, input);
        self
    }

    /// Limits the new events that each step is given. The limit is at least one. The default is 128.
    pub fn step_events(mut self, events: usize) -> DriverBuilder<P> {
        self.step_events = u32::try_from(events).unwrap_or(u32::MAX).max(1);
        self
    }

    /// Sets the seed of the numbers that the process [draws](crate::StepOutput::random). The default is 0. So a test
    /// always sees the same numbers.
    pub fn seed(mut self, seed: u64) -> DriverBuilder<P> {
        self.seed = seed;
        self
    }

    /// Builds a driver of this process. `init` and `start` are called before the first step.
    pub fn build(self, process: P) -> Driver<P> {
        Driver::with(process, self.options, (self.pid, self.clock, self.step_events, self.seed))
    }
}

impl<P: Process> fmt::Debug for DriverBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DriverBuilder { pid, clock, step_events, seed, .. } = self;
        f.debug_struct("DriverBuilder")
            .field("pid", pid)
            .field("clock", clock)
            .field("step_events", step_events)
            .field("seed", seed)
            .finish_non_exhaustive()
    }
}
