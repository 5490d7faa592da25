//! The loop and its home thread.

use std::fmt;
use std::time::Duration;

use super::context::{Body, Common, LoopHandle, Tasklet, TaskletContext, schedule, unboxed};
use super::current::{self, Entered, LoopBuilder};
use super::directive::{Directive, ScheduleError};
use super::report::{InterruptedError, Interruption, PanicPolicy, Report, TaskletInfo, TurnOutcome};
use super::shared::Shared;
use super::slots::{Begun, Presence};
use crate::cancel::CancelToken;
use crate::clock::{Clock, Deadline};
use crate::inside::is_step;
use crate::outcome::{Reason, Rejected, contain, drop_contained};
use crate::pool::Pool;
use crate::primitives::{Arc, lock};

/// Runs tasklets, and owns the state that their home steps share.
///
/// The state need not be `Send`. The loop lends it to one step at a time, on its *home thread*. The home thread is the
/// thread that is in [`run`](Self::run) or a similar call. Home steps run in the order in which they were queued. Pool
/// steps run on a [pool](crate::pool). `run` returns when no tasklet is left.
///
/// [`run`](Self::run) borrows the loop exclusively. So two threads cannot run a loop at once:
///
/// ```compile_fail,E0499
/// # use procession::tasklet::Loop;
/// let mut home = Loop::new(0_u32);
/// std::thread::scope(|scope| {
///     scope.spawn(|| home.run().unwrap());
///     scope.spawn(|| home.run().unwrap()); // a second exclusive borrow
/// });
/// ```
///
/// A step cannot run its own loop either, because a tasklet outlives any borrow:
///
/// ```compile_fail,E0521
/// # use procession::tasklet::{Directive, Loop, ready};
/// fn inside(home: &mut Loop<u32>) {
///     let step = ready::from_fn(|_: &mut u32, _| { home.run().unwrap(); Directive::Done });
///     Loop::new(0_u32).schedule(step, Directive::Home).unwrap(); // the borrow would have to be 'static
/// }
/// ```
///
/// Dropping the loop closes it without waiting. Tasklets that are queued or wait are dropped at once. Tasklets in a
/// pool step are dropped when the step returns.
pub struct Loop<S: 'static> {
    // The core is dropped before the state.
    core: Core<S>,
    state: S,
}

/// The loop without its state.
struct Core<S: 'static> {
    shared: Arc<Common<S>>,
    automatic: bool,
}

/// The conditions under which a run goes on.
struct Rules<'a> {
    /// Whether this is a run or turn. Only there, tasklets may go to the pool, and a panic may stop the loop.
    presence: Presence,
    most: usize,
    cancel: Option<&'a CancelToken>,
    deadline: Deadline,
    /// Whether the home thread sleeps while all tasklets wait or are on the pool.
    sleeps: bool,
}

/// The reason why a run did not go on.
pub(super) enum Halt {
    Finished,
    Idle,
    Enough,
    Cut(Interruption),
}

impl<S: 'static> Loop<S> {
    /// Makes a loop with this state and the [calling thread's options](LoopBuilder::of_thread).
    ///
    /// If the thread has no options, the loop has the defaults.
    pub fn new(state: S) -> Loop<S> {
        LoopBuilder::of_thread().build(state)
    }

    /// As [`new`](Self::new), with this pool for pool steps.
    pub fn on(state: S, pool: &Pool) -> Loop<S> {
        LoopBuilder::of_thread().pool(pool).build(state)
    }

    /// Makes an automatic loop, which runs whenever a tasklet is [scheduled](Self::schedule).
    pub fn automatic(state: S) -> Loop<S> {
        LoopBuilder::of_thread().automatic().build(state)
    }

    /// Returns a builder with the [calling thread's options](LoopBuilder::of_thread).
    pub fn builder() -> LoopBuilder {
        LoopBuilder::of_thread()
    }

    /// Schedules a tasklet.
    ///
    /// The call only queues the tasklet, unless the loop is automatic. On an automatic loop, the calling thread runs
    /// all ready home steps before the call returns.
    ///
    /// # Errors
    /// As [`LoopHandle::schedule`]. On an automatic loop, the tasklet is also handed back if one of its steps asks for
    /// the pool and there is no [wake-up hook](Self::on_wake). No thread would take the tasklet's later home steps. Use
    /// [`run`](Self::run) or a hook for such a tasklet.
    pub fn schedule<T: Tasklet<S>>(
        &mut self,
        tasklet: T,
        directive: Directive,
    ) -> Result<&mut Loop<S>, Rejected<T, ScheduleError>> {
        let shared = &self.core.shared;
        let id = schedule(shared, tasklet.name(), None, tasklet, directive)?;
        if self.core.automatic {
            let _entered = enter(shared);
            let rules = Rules { presence: Presence::Away, ..Rules::AT_ONCE };
            drive(shared, &mut self.state, &rules);
            if let Some(body) = shared.take_back(id, true) {
                return Err(Rejected::new(unboxed(body), ScheduleError::NotRunning));
            }
        }
        Ok(self)
    }

    /// Runs the tasklet's first step now, and schedules the tasklet with the returned directive.
    ///
    /// The step runs on the calling thread, with this loop as the current one.
    ///
    /// # Errors
    /// The loop is closed, or the step asked for the pool and there is no [wake-up hook](Self::on_wake). In the second
    /// case, no thread would take the tasklet's later home steps. The tasklet is handed back.
    ///
    /// # Panics
    /// The call panics if the step panics. The tasklet then ends, and the report counts it.
    pub fn with<T: Tasklet<S>>(&mut self, tasklet: T) -> Result<&mut Loop<S>, Rejected<T, ScheduleError>> {
        let shared = &self.core.shared;
        let entered = enter(shared);
        let name = tasklet.name();
        let admitted = lock(&shared.slots).admit(name, None);
        let id = match admitted {
            Ok(id) => id,
            Err(why) => return Err(Rejected::new(tasklet, why)),
        };
        let mut body: Body<S> = Box::new(tasklet);
        lock(&shared.slots).report.home_steps += 1;
        let outcome = contain(|| body.home(&mut self.state, &mut TaskletContext::new(shared, id, false)));
        let (effects, panic) = {
            let mut slots = lock(&shared.slots);
            match outcome {
                Ok(directive) => (slots.settle(id, body, Ok(directive)), None),
                Err(panic) => (slots.panicked(id, body, panic.clone(), true), Some(panic)),
            }
        };
        shared.carry_out(effects);
        let back = shared.take_back(id, true);
        drop(entered);
        if let Some(panic) = panic {
            match panic.take_payload() {
                Some(payload) => std::panic::resume_unwind(payload),
                None => std::panic::panic_any(panic.message().to_owned()),
            }
        }
        match back {
            Some(body) => Err(Rejected::new(unboxed(body), ScheduleError::NotRunning)),
            None => Ok(self),
        }
    }

    /// Runs the loop on the calling thread and returns when no tasklet is left.
    ///
    /// When the call returns `Ok`, no tasklet is queued, on the pool, or waiting, and all destructors of tasklets have
    /// run. During the call, the calling thread is the home thread. It sleeps while no home step is ready.
    ///
    /// The loop can be run again afterwards.
    ///
    /// # Errors
    /// A step panicked, and the policy is [`PanicPolicy::Stop`]. The next run continues with the remaining tasklets. Or
    /// the caller is a step of a process ([`Interruption::InsideStep`]). Inside a process, use [`turn`](Self::turn).
    pub fn run(&mut self) -> Result<Report, InterruptedError> {
        self.run_by(None, Deadline::NEVER)
    }

    /// As [`run`](Self::run), but only until `stop` is cancelled.
    ///
    /// The loop checks the token between two steps. If the home thread sleeps, the cancellation wakes it.
    ///
    /// # Errors
    /// The token was cancelled before the loop was empty, or as [`run`](Self::run).
    pub fn run_until(&mut self, stop: &CancelToken) -> Result<Report, InterruptedError> {
        self.run_by(Some(stop), Deadline::NEVER)
    }

    /// As [`run`](Self::run), but for at most `limit` by the loop's clock.
    ///
    /// The loop checks the limit between two steps, so a long step may exceed it.
    ///
    /// # Errors
    /// The limit passed before the loop was empty, or as [`run`](Self::run).
    pub fn run_for(&mut self, limit: Duration) -> Result<Report, InterruptedError> {
        let deadline = self.core.shared.clock.deadline(limit);
        self.run_by(None, deadline)
    }

    /// Runs home steps until none is ready. The call never sleeps.
    pub fn run_until_idle(&mut self) -> TurnOutcome {
        self.turn(usize::MAX)
    }

    /// Runs at most `max_steps` home steps. The call never sleeps.
    ///
    /// Use it to run the loop inside another main loop, such as the main loop of a window or a game. The hook of
    /// [`on_wake`](Self::on_wake) tells the other loop when to call `turn` again.
    ///
    /// [`take_report`](Self::take_report) returns the report of the turns.
    pub fn turn(&mut self, max_steps: usize) -> TurnOutcome {
        let _entered = enter(&self.core.shared);
        let rules = Rules { most: max_steps, ..Rules::AT_ONCE };
        let (halt, steps) = drive(&self.core.shared, &mut self.state, &rules);
        match halt {
            Halt::Cut(Interruption::Panicked(panic)) => TurnOutcome::Stopped(panic),
            Halt::Idle if steps == 0 => TurnOutcome::Idle,
            Halt::Finished if steps == 0 => TurnOutcome::Finished,
            _ => TurnOutcome::Ran(steps),
        }
    }

    /// Sets a hook, which is called when a loop without a thread has work.
    ///
    /// The loop has work if a home step is ready. It also has work if the last tasklet has ended and no run or turn has
    /// reported that ([`TurnOutcome::Finished`]). After one call, the hook is not called again until the next turn or
    /// run. Any thread may call the hook, also the thread that ends a turn. The hook delays that thread, so it should
    /// only notify the main loop to make a [`turn`](Self::turn). A panic in the hook is contained.
    ///
    /// A loop with a hook accepts pool steps at any time, because the main loop will call `turn` again.
    pub fn on_wake(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        let before = lock(&self.core.shared.slots).set_hook(Some(Arc::new(hook)));
        drop_contained(before);
        self.core.shared.start_held();
    }

    /// Sets what happens from now on when a step panics.
    pub fn on_panic(&mut self, policy: PanicPolicy) {
        let before = std::mem::replace(&mut lock(&self.core.shared.slots).policy, policy);
        drop_contained(before);
    }

    /// Returns a handle of the loop, which other threads can use.
    pub fn handle(&self) -> LoopHandle<S> {
        LoopHandle { shared: self.core.shared.clone() }
    }

    /// Returns a reference to the state.
    pub fn get(&self) -> &S {
        &self.state
    }

    /// Returns a mutable reference to the state.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Closes the loop without waiting, as a drop does, and returns the state.
    pub fn into_inner(self) -> S {
        let Loop { core, state } = self;
        drop(core);
        state
    }

    /// Lists the tasklets that have not ended, in the order of their scheduling.
    pub fn tasklets(&self) -> Vec<TaskletInfo> {
        lock(&self.core.shared.slots).tasklets()
    }

    /// Returns the report of the work since the last report.
    ///
    /// A run returns its own report. The work of turns, of [`with`](Self::with) and of automatic loops is in the report
    /// of this call, or of the next run.
    pub fn take_report(&mut self) -> Report {
        std::mem::take(&mut lock(&self.core.shared.slots).report)
    }

    /// Closes the loop: see [`LoopHandle::close`].
    ///
    /// # Errors
    /// The limit passed before the last pool step had returned, or the caller is a step of a process, which does not
    /// wait.
    pub fn close(&mut self, limit: Duration) -> Result<Report, InterruptedError> {
        self.handle().close(limit)
    }

    fn run_by(&mut self, cancel: Option<&CancelToken>, deadline: Deadline) -> Result<Report, InterruptedError> {
        let shared = &self.core.shared;
        if is_step() {
            let holding = lock(&shared.slots).tasklets();
            return Err(InterruptedError::new(Interruption::InsideStep, Report::default(), holding));
        }
        let _entered = enter(shared);
        // A cancelled token or a moved clock wakes the home thread, which then checks both.
        let _registration = cancel.map(|cancel| {
            let wake = shared.waker();
            cancel.on_cancel(move |_| wake())
        });
        let _watch = (deadline != Deadline::NEVER).then(|| shared.clock.watch(shared.waker()));
        let rules = Rules { cancel, deadline, sleeps: true, ..Rules::AT_ONCE };
        let (halt, _) = drive(shared, &mut self.state, &rules);
        let (report, holding) = {
            let mut slots = lock(&shared.slots);
            let left = if matches!(halt, Halt::Cut(_)) { slots.tasklets() } else { Vec::new() };
            (std::mem::take(&mut slots.report), left)
        };
        match halt {
            Halt::Cut(why) => Err(InterruptedError::new(why, report, holding)),
            _ => Ok(report),
        }
    }
}

impl LoopBuilder {
    /// Builds a loop with these options and this state.
    ///
    /// The loop runs no step until a thread runs it.
    pub fn build<S: 'static>(self, state: S) -> Loop<S> {
        let automatic = self.automatic;
        Loop { core: Core { shared: Shared::new(self), automatic }, state }
    }
}

/// Makes the loop the calling thread's current one, until the guard is dropped.
fn enter<S: 'static>(shared: &Arc<Common<S>>) -> Entered {
    let entered = current::enter(shared.clone());
    let before = std::mem::replace(&mut *lock(&shared.builder), current::builder());
    drop_contained(before);
    entered
}

/// Runs home steps until the rules end the run.
fn drive<S: 'static>(shared: &Arc<Common<S>>, state: &mut S, rules: &Rules<'_>) -> (Halt, usize) {
    lock(&shared.slots).enter(rules.presence);
    shared.start_held();
    let mut steps = 0;
    let mut slots = lock(&shared.slots);
    let halt = loop {
        if rules.presence == Presence::Inside
            && let Some(panic) = slots.stopped.take()
        {
            break Halt::Cut(Interruption::Panicked(panic));
        }
        if slots.live() == 0 {
            break Halt::Finished;
        }
        if let Some(cut) = rules.cut(&shared.clock) {
            break Halt::Cut(cut);
        }
        if steps == rules.most && slots.is_ready() {
            break Halt::Enough;
        }
        let Some(Begun { id, mut body, timed_out }) = slots.begin_home() else {
            if !rules.sleeps {
                break Halt::Idle;
            }
            slots.home = Presence::Asleep;
            slots = shared.clock.wait(&shared.home, slots, rules.deadline);
            slots.home = Presence::Inside;
            continue;
        };
        drop(slots);
        let outcome = contain(|| body.home(state, &mut TaskletContext::new(shared, id, timed_out)));
        steps += 1;
        slots = lock(&shared.slots);
        let effects = slots.settle(id, body, outcome);
        if effects.are_some() {
            drop(slots);
            shared.carry_out(effects);
            slots = lock(&shared.slots);
        }
    };
    // A turn that reports steps does not report that they were the last ones.
    let is_end_reported = matches!(halt, Halt::Finished) && (rules.sleeps || steps == 0);
    // No other thread's transition falls between the last look and this.
    let wake = slots.leave(is_end_reported);
    drop(slots);
    shared.wake(wake);
    (halt, steps)
}

impl Rules<'_> {
    /// Run the ready steps, and do not sleep.
    const AT_ONCE: Rules<'static> =
        Rules { presence: Presence::Inside, most: usize::MAX, cancel: None, deadline: Deadline::NEVER, sleeps: false };

    /// The reason to end the run here, although tasklets are left. `None` if it goes on.
    fn cut(&self, clock: &Clock) -> Option<Interruption> {
        if let Some(reason) = self.cancel.filter(|cancel| cancel.is_cancelled()).and_then(CancelToken::reason) {
            return Some(Interruption::Cancelled(reason));
        }
        self.deadline.has_passed(clock).then_some(Interruption::TimedOut)
    }
}

impl<S: 'static> Drop for Core<S> {
    fn drop(&mut self) {
        self.shared.close(&Reason::Shutdown);
        self.shared.end();
    }
}

impl<S: 'static> fmt::Debug for Loop<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop").field("holding", &lock(&self.core.shared.slots).live()).finish()
    }
}

/// A real run, without the thread's own state.
///
/// To the operating system, all threads of the model checker are one.
#[cfg(all(test, loom))]
pub(super) fn run_for_models<S: 'static>(shared: &Arc<Common<S>>, state: &mut S) -> Report {
    let rules = Rules { sleeps: true, ..Rules::AT_ONCE };
    let (halt, _) = drive(shared, state, &rules);
    assert!(matches!(halt, Halt::Finished));
    std::mem::take(&mut lock(&shared.slots).report)
}

/// A real turn. Returns whether it found that no tasklet is left.
#[cfg(all(test, loom))]
pub(super) fn turn_for_models<S: 'static>(shared: &Arc<Common<S>>, state: &mut S) -> bool {
    let (halt, steps) = drive(shared, state, &Rules::AT_ONCE);
    matches!(halt, Halt::Finished) && steps == 0
}

/// One real step, which `between` settles.
#[cfg(all(test, loom))]
pub(super) fn step_for_models<S: 'static>(
    shared: &Arc<Common<S>>,
    state: &mut S,
    between: impl FnOnce(Box<dyn FnOnce() + '_>),
) {
    let Some(Begun { id, mut body, timed_out }) = lock(&shared.slots).begin_home() else { return };
    let directive = body.home(state, &mut TaskletContext::new(shared, id, timed_out));
    between(Box::new(|| {
        let effects = lock(&shared.slots).settle(id, body, Ok(directive));
        shared.carry_out(effects);
    }));
}
