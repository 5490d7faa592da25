//! The trait of tasklets, the context of their steps, and the handle of a loop.

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::time::Duration;

use super::current;
use super::directive::{Directive, ScheduleError, TaskletId};
use super::handle::{Promise, TaskletFuture, TaskletHandle, ValueCell};
use super::report::{InterruptedError, Report, TaskletInfo};
use super::resume::Resume;
use super::shared::{Control, Elsewhere, Shared};
use crate::cancel::CancelToken;
use crate::latch::Latch;
use crate::outcome::{Reason, Rejected};
use crate::primitives::{Arc, lock};

/// Work in several turns: after each one it says where the next one runs.
///
/// A tasklet is moved into its loop, and only one thread at a time has it. So its fields need no lock, whatever threads
/// its steps run on, and it cannot be scheduled twice.
///
/// ```
/// use procession::tasklet::{TaskletContext, Directive, Loop, Tasklet};
/// use std::rc::Rc;
///
/// /// Reads a file and puts its length on a list that only the home thread may touch.
/// struct Measure { path: &'static str, length: Option<usize> }
///
/// impl Tasklet<Rc<Vec<usize>>> for Measure {
///     fn home(&mut self, lengths: &mut Rc<Vec<usize>>, _: &mut TaskletContext<'_, Rc<Vec<usize>>>) -> Directive {
///         match self.length {
///             None => Directive::Pool,
///             Some(length) => {
///                 Rc::make_mut(lengths).push(length);
///                 Directive::Done
///             }
///         }
///     }
///
///     fn pool(&mut self, _: &mut TaskletContext<'_, Rc<Vec<usize>>>) -> Directive {
///         self.length = std::fs::read(self.path).ok().map(|bytes| bytes.len()).or(Some(0));
///         Directive::Home
///     }
/// }
///
/// let mut home = Loop::new(Rc::new(Vec::new()));
/// home.schedule(Measure { path: "Cargo.toml", length: None }, Directive::Home)?.run()?;
/// assert!(home.get()[0] > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A pool step has no way to the state. It is not given it:
///
/// ```compile_fail,E0425
/// # use procession::tasklet::{TaskletContext, Directive, Tasklet};
/// struct Careless;
///
/// impl Tasklet<Vec<u32>> for Careless {
///     fn home(&mut self, state: &mut Vec<u32>, _: &mut TaskletContext<'_, Vec<u32>>) -> Directive {
///         state.push(1);
///         Directive::Pool
///     }
///
///     fn pool(&mut self, _: &mut TaskletContext<'_, Vec<u32>>) -> Directive {
///         state.push(2); // there is no `state` here
///         Directive::Done
///     }
/// }
/// ```
///
/// and it cannot have been kept from a step at home, for a tasklet can hold neither a borrow nor what is not `Send`:
///
/// ```compile_fail,E0277
/// # use procession::tasklet::{TaskletContext, Directive, Tasklet};
/// # use std::rc::Rc;
/// # use std::cell::Cell;
/// struct Sly { state: Rc<Cell<u32>> }
///
/// impl Tasklet<Rc<Cell<u32>>> for Sly { // `Rc` cannot be sent between threads
///     fn home(&mut self, state: &mut Rc<Cell<u32>>, _: &mut TaskletContext<'_, Rc<Cell<u32>>>) -> Directive {
///         self.state = state.clone();
///         Directive::Pool
///     }
/// }
/// ```
pub trait Tasklet<S>: Any + Send {
    /// A step on the home thread, with the state of the loop. It should not block: no other tasklet is stepped at home
    /// meanwhile.
    fn home(&mut self, state: &mut S, cx: &mut TaskletContext<'_, S>) -> Directive;

    /// A step on a thread of the pool, which may block. Asks for a step at home where nothing else is said.
    fn pool(&mut self, cx: &mut TaskletContext<'_, S>) -> Directive {
        let _ = cx;
        Directive::Home
    }

    /// The name in reports: by default that of its type. Called once, when it is scheduled.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(std::any::type_name::<Self>())
    }
}

/// Any tasklet. It can be scheduled like any other one.
pub(super) type Body<S> = Box<dyn Tasklet<S>>;

impl<S: 'static> Tasklet<S> for Body<S> {
    fn home(&mut self, state: &mut S, cx: &mut TaskletContext<'_, S>) -> Directive {
        (**self).home(state, cx)
    }

    fn pool(&mut self, cx: &mut TaskletContext<'_, S>) -> Directive {
        (**self).pool(cx)
    }

    fn name(&self) -> Cow<'static, str> {
        (**self).name()
    }
}

/// The shared part of a loop with this state.
pub(super) type Common<S> = Shared<Body<S>>;

impl<S: 'static> Elsewhere for Body<S> {
    fn step_elsewhere(&mut self, shared: &Arc<Common<S>>, id: TaskletId, timed_out: bool) -> Directive {
        let _entered = current::enter_with(shared.clone(), shared.builder());
        (**self).pool(&mut TaskletContext::new(shared, id, timed_out))
    }
}

/// The context of a step: its loop, and the tasklet itself.
pub struct TaskletContext<'a, S: 'static> {
    shared: &'a Arc<Common<S>>,
    id: TaskletId,
    timed_out: bool,
    has_suspended: Cell<bool>,
    cancel: OnceCell<CancelToken>,
}

impl<'a, S: 'static> TaskletContext<'a, S> {
    #[inline]
    pub(super) fn new(shared: &'a Arc<Common<S>>, id: TaskletId, timed_out: bool) -> TaskletContext<'a, S> {
        TaskletContext { shared, id, timed_out, has_suspended: Cell::new(false), cancel: OnceCell::new() }
    }

    /// Which tasklet this is.
    pub fn id(&self) -> TaskletId {
        self.id
    }

    /// The loop, for other threads.
    pub fn handle(&self) -> LoopHandle<S> {
        LoopHandle { shared: self.shared.clone() }
    }

    /// Schedules another tasklet. It only queues: no step runs before this one has returned.
    ///
    /// # Errors
    /// As [`LoopHandle::schedule`].
    pub fn schedule<T: Tasklet<S>>(
        &self,
        tasklet: T,
        directive: Directive,
    ) -> Result<TaskletId, Rejected<T, ScheduleError>> {
        schedule(self.shared, tasklet, directive)
    }

    /// Gives an object that can resume this tasklet, from any thread. Return [`Directive::Wait`] after this.
    ///
    /// A suspension that the step does not wait for stays open until a later step waits; several of one step belong to the
    /// same wait, and the first one that is resumed ends it.
    pub fn suspend(&self) -> Resume {
        let first = !self.has_suspended.replace(true);
        let ticket = lock(&self.shared.slots).suspend(self.id, first);
        Resume::new(self.shared, ticket)
    }

    /// The same, with a limit by the loop's clock: if nobody has resumed the tasklet by then, it is given `directive`, and
    /// its next step finds that it has [timed out](Self::timed_out).
    pub fn suspend_for(&self, limit: Duration, directive: Directive) -> Resume {
        let first = !self.has_suspended.replace(true);
        let ticket = lock(&self.shared.slots).suspend(self.id, first);
        self.shared.set_deadline(ticket, limit, directive);
        Resume::new(self.shared, ticket)
    }

    /// Whether the limit of the last wait has ended that wait.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// The token of this tasklet: cancelled when the tasklet or its loop is.
    pub fn cancelled(&self) -> &CancelToken {
        self.cancel.get_or_init(|| self.shared.token(self.id))
    }
}

impl<S: 'static> fmt::Debug for TaskletContext<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskletContext").field("id", &self.id).field("timed_out", &self.timed_out).finish()
    }
}

/// A loop, for any thread: to schedule tasklets on it, and to look after them. Clones are the same loop, and are equal.
///
/// It keeps no loop alive: when the [`Loop`](super::Loop) is dropped, it is closed.
pub struct LoopHandle<S: 'static> {
    pub(super) shared: Arc<Common<S>>,
}

impl<S: 'static> LoopHandle<S> {
    /// The loop that the calling thread is in: in a step, at home or on the pool, it is the one whose step it is, and so it is in
    /// the destructor of a tasklet. Nothing outside of any loop, or if the innermost one has another type of state.
    pub fn current() -> Option<LoopHandle<S>> {
        current::current().map(|shared| LoopHandle { shared })
    }

    /// Schedules a tasklet. It only queues: no step runs in the caller, on an automatic loop neither. A home thread that
    /// sleeps is woken.
    ///
    /// # Errors
    /// The tasklet comes back: if it is to run on the pool and nobody is in the loop ([`ScheduleError::NotRunning`]), if the
    /// loop is closed, or if the pool takes no job.
    pub fn schedule<T: Tasklet<S>>(
        &self,
        tasklet: T,
        directive: Directive,
    ) -> Result<TaskletHandle, Rejected<T, ScheduleError>> {
        let (name, ended) = (tasklet.name(), Latch::new());
        let id = schedule_as(&self.shared, tasklet, directive, name.clone(), Some(ended.clone()))?;
        Ok(TaskletHandle::new(id, name, ended, (self.shared.clock.clone(), &self.shared)))
    }

    /// Schedules a tasklet that promises a value: `make` is given the promise, for the tasklet to keep.
    ///
    /// ```
    /// use procession::tasklet::{Directive, Loop, ready};
    ///
    /// let mut home = Loop::new(Vec::new());
    /// let answer = home.handle().schedule_with(
    ///     |promise| ready::call_blocking(|| 6 * 7).then(move |list: &mut Vec<u32>, n| {
    ///         list.push(n);
    ///         promise.fulfill(list.len());
    ///     }),
    ///     Directive::Home,
    /// )?;
    /// home.run()?;
    /// assert_eq!(answer.wait()?.into_result()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub fn schedule_with<T: Tasklet<S>, U>(
        &self,
        make: impl FnOnce(Promise<U>) -> T,
        directive: Directive,
    ) -> Result<TaskletFuture<U>, Rejected<T, ScheduleError>> {
        let value = ValueCell::default();
        let tasklet = make(Promise::new(value.clone()));
        let handle = self.schedule(tasklet, directive)?;
        Ok(TaskletFuture::new(handle, value))
    }

    /// Cancels a tasklet; whether this call did. Its [token](TaskletContext::cancelled) is cancelled. If it is queued or waits, it is
    /// dropped at once, on this thread (far down in destructors that end other tasklets: when the lowest of them has returned);
    /// if it is in a step, when the step returns, unless that says that it is done.
    pub fn cancel(&self, id: TaskletId, reason: impl Into<Reason>) -> bool {
        self.shared.clone().cancel(id, reason.into())
    }

    /// Gives a tasklet another directive; whether it was there. One that is queued leaves its queue: with
    /// [`Directive::Wait`] it waits, with [`Directive::Done`] it ends without a step. One that waits is resumed. To one that
    /// is in a step this happens when the step waits ([`Directive::Done`]: when it returns).
    ///
    /// # Errors
    /// A queued one was to go to the pool, and nobody is in the loop. It stays where it is.
    pub fn redirect(&self, id: TaskletId, directive: Directive) -> Result<bool, ScheduleError> {
        self.shared.clone().redirect(id, directive)
    }

    /// The tasklets that hold the loop, in the order in which they were scheduled.
    pub fn tasklets(&self) -> Vec<TaskletInfo> {
        self.shared.tasklets()
    }

    /// Those of them that have had their directive for so long already, by the loop's clock.
    pub fn stuck(&self, after: Duration) -> Vec<TaskletInfo> {
        let mut holding = self.shared.tasklets();
        holding.retain(|holding| holding.since >= after);
        holding
    }

    /// Closes the loop: it takes no more tasklets, and those there are are cancelled with [`Reason::Shutdown`]. Tasklets
    /// that are queued or wait are dropped at once; those in a step are waited for, up to `limit` by the loop's clock. A thread that
    /// is in [`run`](super::Loop::run) finds the loop empty, and returns. The report is what the loop had still to tell.
    ///
    /// To let tasklets finish first, [run for a while](super::Loop::run_for) before this.
    ///
    /// It does not wait if a step of the loop itself calls it, or a destructor, a callback or a panic handler at the end of one of
    /// its tasklets: it would wait for itself. Destructors and callbacks run on the calling thread, and one that hangs blocks it.
    ///
    /// # Errors
    /// The limit was over before the last step had returned, or the caller is a step of a process, which does not wait. The
    /// error names the tasklets that are still in a step. Those tasklets are dropped when they return.
    pub fn close(&self, limit: Duration) -> Result<Report, InterruptedError> {
        self.shared.close(&Reason::Shutdown);
        self.shared.wait_until_empty(limit)
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.shared.slots).is_closed()
    }
}

/// Schedules a tasklet without a handle.
pub(super) fn schedule<S: 'static, T: Tasklet<S>>(
    shared: &Arc<Common<S>>,
    tasklet: T,
    directive: Directive,
) -> Result<TaskletId, Rejected<T, ScheduleError>> {
    let name = tasklet.name();
    schedule_as(shared, tasklet, directive, name, None)
}

fn schedule_as<S: 'static, T: Tasklet<S>>(
    shared: &Arc<Common<S>>,
    tasklet: T,
    directive: Directive,
    name: Cow<'static, str>,
    ended: Option<Latch<crate::outcome::Exit>>,
) -> Result<TaskletId, Rejected<T, ScheduleError>> {
    shared.schedule(name, ended, Box::new(tasklet), directive).map_err(|(body, why)| Rejected::new(unboxed(body), why))
}

/// The tasklet itself, from a body that was made of it.
pub(super) fn unboxed<S: 'static, T: Tasklet<S>>(body: Body<S>) -> T {
    let any: Box<dyn Any> = body;
    *any.downcast().expect("it was boxed as this type")
}

impl<S: 'static> Clone for LoopHandle<S> {
    fn clone(&self) -> LoopHandle<S> {
        LoopHandle { shared: self.shared.clone() }
    }
}

impl<S: 'static> PartialEq for LoopHandle<S> {
    fn eq(&self, other: &LoopHandle<S>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<S: 'static> Eq for LoopHandle<S> {}

impl<S: 'static> fmt::Debug for LoopHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle").field("holding", &lock(&self.shared.slots).live()).finish()
    }
}
