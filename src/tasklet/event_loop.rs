//! The loop and its home thread.

use std::fmt;
use std::time::Duration;

use super::context::{Body, Common, LoopHandle, Tasklet, TaskletContext, schedule, unboxed};
use super::current::{self, Entered, LoopBuilder};
use super::directive::{Directive, ScheduleError, TaskletId};
use super::report::{InterruptedError, Interruption, PanicPolicy, Report, TaskletInfo, TurnOutcome};
use super::shared::Shared;
use super::slots::{Begun, Presence};
use crate::cancel::CancelToken;
use crate::clock::{Clock, Deadline};
use crate::inside::is_step;
use crate::outcome::{Reason, Rejected, contain, drop_contained};
use crate::pool::Pool;
use crate::primitives::{Arc, Weak, lock};

/// Tasklets, and the state that their home steps share.
///
/// The loop owns the state, which need not be `Send`, and lends it to one step at a time, on the thread that is in
/// [`run`](Self::run) or one of its kind: the *home thread*. Home steps are taken first come, first served; pool steps run
/// on a [pool](crate::pool). `run` returns when no tasklet is left.
///
/// Running takes the loop by exclusive reference. So two threads cannot run it at once,
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
/// and no step can run the loop that it is a step of: a tasklet lives longer than any borrow.
///
/// ```compile_fail,E0521
/// # use procession::tasklet::{Directive, Loop, ready};
/// fn inside(home: &mut Loop<u32>) {
///     let step = ready::from_fn(|_: &mut u32, _| { home.run().unwrap(); Directive::Done });
///     Loop::new(0_u32).schedule(step, Directive::Home).unwrap(); // the borrow would have to be 'static
/// }
/// ```
///
/// Dropping the loop closes it without waiting: tasklets that rest are dropped, those in a pool step when it returns.
pub struct Loop<S: 'static> {
    // Dropped before the state is.
    core: Core<S>,
    state: S,
}

/// The loop without its state.
struct Core<S: 'static> {
    shared: Arc<Common<S>>,
    automatic: bool,
}

/// Until when a run goes on.
struct Rules<'a> {
    most: usize,
    cancel: Option<&'a CancelToken>,
    deadline: Deadline,
    /// Whether the home thread waits for what is elsewhere.
    sleeps: bool,
    /// Whether a panic may stop it.
    stops: bool,
}

/// Why it did not go on.
pub(super) enum Halt {
    Finished,
    Idle,
    Enough,
    Cut(Interruption),
}

impl<S: 'static> Loop<S> {
    /// A loop with this state, made as the calling thread [makes its loops](LoopBuilder::of_thread): if nothing else was
    /// said, with the default options.
    pub fn new(state: S) -> Loop<S> {
        LoopBuilder::of_thread().build(state)
    }

    /// The same, with this pool for pool steps.
    pub fn on(state: S, pool: &Pool) -> Loop<S> {
        LoopBuilder::of_thread().pool(pool).build(state)
    }

    /// A loop that turns by itself whenever something is [scheduled](Self::schedule).
    pub fn automatic(state: S) -> Loop<S> {
        LoopBuilder::of_thread().automatic().build(state)
    }

    /// Options, beginning with what the calling thread [makes its loops with](LoopBuilder::of_thread).
    pub fn builder() -> LoopBuilder {
        LoopBuilder::of_thread()
    }

    /// Schedules a tasklet. It only queues, unless the loop is automatic: then everything that is ready at home has run, on
    /// the calling thread, when this returns.
    ///
    /// # Errors
    /// As [`LoopHandle::schedule`]. On an automatic loop, the tasklet also comes back if one of its steps has asked for the
    /// pool, because no thread would be in the loop when it returns: use [`run`](Self::run), or a [wake-up hook](Self::on_wake).
    pub fn schedule<T: Tasklet<S>>(
        &mut self,
        tasklet: T,
        directive: Directive,
    ) -> Result<&mut Loop<S>, Rejected<T, ScheduleError>> {
        let shared = &self.core.shared;
        let id = schedule(shared, tasklet, directive)?;
        if self.core.automatic {
            let visit = Visit::begin(shared, Presence::Visiting);
            let rules = Rules { stops: false, ..Rules::AT_ONCE };
            drive(shared, &mut self.state, &rules);
            let back = take_held(shared, id);
            drop(visit);
            if let Some(body) = back {
                return Err(Rejected::new(unboxed(body), ScheduleError::NotRunning));
            }
        }
        Ok(self)
    }

    /// Takes the tasklet's first step now, on the calling thread, with this loop as the current one, and then schedules it
    /// with the directive that the step has returned.
    ///
    /// # Errors
    /// The loop is closed, or the step asked for the pool and there is no [wake-up hook](Self::on_wake), so that no
    /// thread would be in the loop when it returns. The tasklet comes back.
    ///
    /// # Panics
    /// If the step does. The tasklet is finished, and the report counts it.
    pub fn with<T: Tasklet<S>>(&mut self, tasklet: T) -> Result<&mut Loop<S>, Rejected<T, ScheduleError>> {
        let shared = &self.core.shared;
        let visit = Visit::begin(shared, Presence::Visiting);
        let name = tasklet.name();
        let admitted = lock(&shared.slots).admit(name, None, &shared.clock);
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
                Ok(directive) => (slots.settle(id, body, directive, &shared.clock), None),
                Err(panic) => (slots.panicked(id, body, panic.clone(), true), Some(panic)),
            }
        };
        shared.carry_out(effects);
        let back = take_held(shared, id);
        drop(visit);
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

    /// Makes the calling thread the home thread, and returns when no tasklet is left: nothing is queued, nothing is on the
    /// pool, nothing waits, and all destructors have run. While it has nothing to do it sleeps.
    ///
    /// The loop can be run again afterwards.
    ///
    /// # Errors
    /// A step panicked, and the policy is [`PanicPolicy::Stop`]. The next run goes on with the rest. Or the caller is a step
    /// of a process ([`Interruption::InsideStep`]): a loop inside of it takes turns, by [`turn`](Self::turn).
    pub fn run(&mut self) -> Result<Report, InterruptedError> {
        self.run_by(None, Deadline::NEVER)
    }

    /// The same until `stop` is cancelled, which is looked at between two steps, and wakes a thread that sleeps.
    ///
    /// # Errors
    /// It was cancelled before the loop was empty, or as [`run`](Self::run).
    pub fn run_until(&mut self, stop: &CancelToken) -> Result<Report, InterruptedError> {
        self.run_by(Some(stop), Deadline::NEVER)
    }

    /// The same for no longer than `limit` by the loop's clock, which is looked at between two steps.
    ///
    /// # Errors
    /// The limit was over before the loop was empty, or as [`run`](Self::run).
    pub fn run_for(&mut self, limit: Duration) -> Result<Report, InterruptedError> {
        let deadline = self.core.shared.clock.deadline(limit);
        self.run_by(None, deadline)
    }

    /// Takes steps at home until none is ready, and never sleeps.
    pub fn run_until_idle(&mut self) -> TurnOutcome {
        self.turn(usize::MAX)
    }

    /// Takes at most `max_steps` steps at home, and never sleeps: for a loop inside of another main loop, that of a window or
    /// a game. Tell the other loop with [`on_wake`](Self::on_wake) when to come back.
    ///
    /// [`take_report`](Self::take_report) says what the turns have done.
    pub fn turn(&mut self, max_steps: usize) -> TurnOutcome {
        let visit = Visit::begin(&self.core.shared, Presence::Inside);
        let rules = Rules { most: max_steps, ..Rules::AT_ONCE };
        let (halt, steps) = drive(&self.core.shared, &mut self.state, &rules);
        drop(visit);
        if matches!(halt, Halt::Finished) && steps > 0 {
            // This turn says that it took steps. A main loop that turns only when told learns by the hook that none is left.
            let wake = lock(&self.core.shared.slots).wake_home();
            self.core.shared.wake(wake);
        }
        match halt {
            Halt::Cut(Interruption::Panicked(panic)) => TurnOutcome::Stopped(panic),
            Halt::Idle if steps == 0 => TurnOutcome::Idle,
            Halt::Finished if steps == 0 => TurnOutcome::Finished,
            _ => TurnOutcome::Ran(steps),
        }
    }

    /// Has `hook` called, from then on, when there is something to do and no thread in the loop: something is ready at home, or
    /// the last tasklet has ended (also in a turn that has just returned [`TurnOutcome::Ran`]). Once, until a thread has been in the loop. It may be called by any thread, also by the
    /// one that leaves a turn, and delays that thread: it should only tell the main loop to make a
    /// [`turn`](Self::turn). A panic in it is contained.
    ///
    /// A loop with a hook is turned sooner or later, so pool steps are accepted at any time.
    pub fn on_wake(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        let before = lock(&self.core.shared.slots).set_hook(Some(Arc::new(hook)));
        drop_contained(before);
        self.core.shared.start_held();
    }

    /// Sets what a panic in a step does, from now on.
    pub fn on_panic(&mut self, policy: PanicPolicy) {
        let before = std::mem::replace(&mut lock(&self.core.shared.slots).policy, policy);
        drop_contained(before);
    }

    /// The loop, for other threads.
    pub fn handle(&self) -> LoopHandle<S> {
        LoopHandle { shared: self.core.shared.clone() }
    }

    /// The state.
    pub fn get(&self) -> &S {
        &self.state
    }

    /// The state, to be changed.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Closes the loop as if it were dropped, and gives the state.
    pub fn into_inner(self) -> S {
        let Loop { core, state } = self;
        drop(core);
        state
    }

    /// The tasklets that hold the loop, in the order in which they were scheduled.
    pub fn tasklets(&self) -> Vec<TaskletInfo> {
        self.core.shared.tasklets()
    }

    /// Takes the report of what the loop has done since the last one. Runs return one; turns, [`with`](Self::with) and automatic loops leave
    /// it here.
    pub fn take_report(&mut self) -> Report {
        std::mem::take(&mut lock(&self.core.shared.slots).report)
    }

    /// Closes the loop: see [`LoopHandle::close`].
    ///
    /// # Errors
    /// The limit was over before the last pool step had returned, or the caller is a step of a process, which does not wait.
    pub fn close(&mut self, limit: Duration) -> Result<Report, InterruptedError> {
        self.handle().close(limit)
    }

    fn run_by(&mut self, cancel: Option<&CancelToken>, deadline: Deadline) -> Result<Report, InterruptedError> {
        let shared = &self.core.shared;
        if is_step() {
            let holding = lock(&shared.slots).tasklets(&shared.clock);
            return Err(InterruptedError::new(Interruption::InsideStep, Report::default(), holding));
        }
        let visit = Visit::begin(shared, Presence::Inside);
        // A cancellation, or a clock that is moved, wakes the home thread, which then looks at both.
        let wake = || {
            let weak = Arc::downgrade(shared);
            move || {
                if let Some(shared) = Weak::upgrade(&weak) {
                    let _slots = lock(&shared.slots);
                    shared.home.notify_all();
                }
            }
        };
        let _registration = cancel.map(|cancel| {
            let wake = wake();
            cancel.on_cancel(move |_| wake())
        });
        let _watch = (deadline != Deadline::NEVER).then(|| shared.clock.watch(wake()));
        let rules = Rules { cancel, deadline, sleeps: true, ..Rules::AT_ONCE };
        let (halt, _) = drive(shared, &mut self.state, &rules);
        let (report, holding) = {
            let mut slots = lock(&shared.slots);
            let left = if matches!(halt, Halt::Cut(_)) { slots.tasklets(&shared.clock) } else { Vec::new() };
            (std::mem::take(&mut slots.report), left)
        };
        drop(visit);
        match halt {
            Halt::Cut(why) => Err(InterruptedError::new(why, report, holding)),
            _ => Ok(report),
        }
    }
}

impl LoopBuilder {
    /// A loop with these options and this state. It does nothing until it is run.
    pub fn build<S: 'static>(self, state: S) -> Loop<S> {
        let automatic = self.automatic;
        Loop { core: Core { shared: Shared::new(self), automatic }, state }
    }
}

/// The calling thread is in the loop as long as this lives.
struct Visit<'a, S: 'static> {
    shared: &'a Arc<Common<S>>,
    _entered: Entered,
}

impl<'a, S: 'static> Visit<'a, S> {
    fn begin(shared: &'a Arc<Common<S>>, presence: Presence) -> Visit<'a, S> {
        let visit = Visit { shared, _entered: current::enter(shared.clone()) };
        shared.set_builder(current::inherited());
        lock(&shared.slots).enter(presence);
        if presence == Presence::Inside {
            shared.start_held();
        }
        visit
    }
}

impl<S: 'static> Drop for Visit<'_, S> {
    fn drop(&mut self) {
        let wake = lock(&self.shared.slots).leave();
        self.shared.wake(wake);
    }
}

/// Takes steps at home, until the rules say that it is enough.
fn drive<S: 'static>(shared: &Arc<Common<S>>, state: &mut S, rules: &Rules<'_>) -> (Halt, usize) {
    let mut steps = 0;
    let mut slots = lock(&shared.slots);
    loop {
        if rules.stops
            && let Some(panic) = slots.take_stop()
        {
            return (Halt::Cut(Interruption::Panicked(panic)), steps);
        }
        if slots.live() == 0 {
            return (Halt::Finished, steps);
        }
        if let Some(cut) = rules.cut(&shared.clock) {
            return (Halt::Cut(cut), steps);
        }
        if steps == rules.most && slots.is_ready() {
            return (Halt::Enough, steps);
        }
        let Some(Begun { id, mut body, timed_out }) = slots.begin_home() else {
            if !rules.sleeps {
                return (Halt::Idle, steps);
            }
            slots.fall_asleep();
            slots = shared.clock.wait(&shared.home, slots, rules.deadline);
            slots.wake_up();
            continue;
        };
        drop(slots);
        let outcome = contain(|| body.home(state, &mut TaskletContext::new(shared, id, timed_out)));
        steps += 1;
        slots = lock(&shared.slots);
        let effects = match outcome {
            Ok(directive) => slots.settle(id, body, directive, &shared.clock),
            Err(panic) => slots.panicked(id, body, panic, false),
        };
        if effects.are_some() {
            drop(slots);
            shared.carry_out(effects);
            slots = lock(&shared.slots);
        }
    }
}

impl Rules<'_> {
    /// Steps that are ready, and no sleep.
    const AT_ONCE: Rules<'static> =
        Rules { most: usize::MAX, cancel: None, deadline: Deadline::NEVER, sleeps: false, stops: true };

    /// Whether the run ends here, although something is left.
    fn cut(&self, clock: &Clock) -> Option<Interruption> {
        if let Some(reason) = self.cancel.filter(|cancel| cancel.is_cancelled()).and_then(CancelToken::reason) {
            return Some(Interruption::Cancelled(reason));
        }
        self.deadline.has_passed(clock).then_some(Interruption::TimedOut)
    }
}

/// Takes a tasklet back that has asked for the pool although no thread would be in the loop when it returns.
fn take_held<S: 'static>(shared: &Arc<Common<S>>, id: TaskletId) -> Option<Body<S>> {
    let body = lock(&shared.slots).take_held(id)?;
    shared.retire(id);
    Some(body)
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

/// A run as it is, but for what the thread knows: the threads of the model checker are all one to the operating system.
#[cfg(all(test, loom))]
pub(super) fn run_for_models<S: 'static>(shared: &Arc<Common<S>>, state: &mut S) -> Report {
    lock(&shared.slots).enter(Presence::Inside);
    let rules = Rules { sleeps: true, ..Rules::AT_ONCE };
    let (halt, _) = drive(shared, state, &rules);
    assert!(matches!(halt, Halt::Finished));
    let mut slots = lock(&shared.slots);
    slots.leave();
    std::mem::take(&mut slots.report)
}

/// One step as it is, settled by `between`.
#[cfg(all(test, loom))]
pub(super) fn step_for_models<S: 'static>(
    shared: &Arc<Common<S>>,
    state: &mut S,
    between: impl FnOnce(Box<dyn FnOnce() + '_>),
) {
    let Some(Begun { id, mut body, timed_out }) = lock(&shared.slots).begin_home() else { return };
    let directive = body.home(state, &mut TaskletContext::new(shared, id, timed_out));
    between(Box::new(|| {
        let effects = lock(&shared.slots).settle(id, body, directive, &shared.clock);
        shared.carry_out(effects);
    }));
}
