//! The trait of tasklets, the context of their steps, and the handle of a loop.

use std::any::Any;
use std::borrow::Cow;
use std::cell::OnceCell;
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
use crate::outcome::{Exit, Panic, Reason, Rejected, contain, drop_contained};
use crate::primitives::{Arc, Weak, lock};

/// Work in several steps. Each step says where the next one runs.
///
/// A tasklet is moved into its loop, and only one thread at a time has it. So its fields need no lock, even if its
/// steps run on several threads. And it cannot be scheduled twice.
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
/// A pool step has no access to the state, because it gets no reference to it:
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
/// Nor can a home step keep a reference for it, because a tasklet can hold neither a borrow nor a value that is not
/// `Send`:
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
    /// Runs a step on the home thread, with the loop's state.
    ///
    /// The step should not block, because the loop runs no other home step in the meantime.
    fn home(&mut self, state: &mut S, cx: &mut TaskletContext<'_, S>) -> Directive;

    /// Runs a step on a thread of the pool. The step may block.
    ///
    /// The default implementation only returns [`Directive::Home`].
    fn pool(&mut self, cx: &mut TaskletContext<'_, S>) -> Directive {
        let _ = cx;
        Directive::Home
    }

    /// Returns the tasklet's name for reports. The default is the name of its type.
    ///
    /// The loop calls this once, when the tasklet is scheduled.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(std::any::type_name::<Self>())
    }
}

/// A tasklet of any type. It can be scheduled like any other one.
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
    fn step_elsewhere(&mut self, shared: &Arc<Common<S>>, id: TaskletId, timed_out: bool) -> Result<Directive, Panic> {
        let _entered = current::enter(shared.clone());
        let before = current::set_builder(lock(&shared.builder).clone());
        let outcome = contain(|| (**self).pool(&mut TaskletContext::new(shared, id, timed_out)));
        drop_contained(current::set_builder(before));
        outcome
    }
}

/// The context of a step, which gives access to the step's loop and tasklet.
pub struct TaskletContext<'a, S: 'static> {
    shared: &'a Arc<Common<S>>,
    id: TaskletId,
    timed_out: bool,
    cancel: OnceCell<CancelToken>,
}

impl<'a, S: 'static> TaskletContext<'a, S> {
    #[inline]
    pub(super) fn new(shared: &'a Arc<Common<S>>, id: TaskletId, timed_out: bool) -> TaskletContext<'a, S> {
        TaskletContext { shared, id, timed_out, cancel: OnceCell::new() }
    }

    /// Returns the id of this tasklet.
    pub fn id(&self) -> TaskletId {
        self.id
    }

    /// Returns a handle of the loop, which other threads can use.
    pub fn handle(&self) -> LoopHandle<S> {
        LoopHandle { shared: self.shared.clone() }
    }

    /// Schedules another tasklet.
    ///
    /// The call only queues the tasklet. Its first home step runs after this step has returned, if this is a home step.
    ///
    /// # Errors
    /// As [`LoopHandle::schedule`].
    pub fn schedule<T: Tasklet<S>>(
        &self,
        tasklet: T,
        directive: Directive,
    ) -> Result<TaskletId, Rejected<T, ScheduleError>> {
        schedule(self.shared, tasklet.name(), None, tasklet, directive)
    }

    /// Returns an object that resumes this tasklet from any thread.
    ///
    /// The step must then return [`Directive::Wait`].
    ///
    /// If the step does not wait, the suspension stays open until a later step does. Several suspensions of one step
    /// belong to the same wait. The first one that is resumed ends the wait.
    pub fn suspend(&self) -> Resume {
        let ticket = lock(&self.shared.slots).suspend(self.id);
        let of: Weak<Common<S>> = Arc::downgrade(self.shared);
        Resume { of: Some(of), ticket }
    }

    /// As [`suspend`](Self::suspend), with a limit by the loop's clock.
    ///
    /// If the tasklet is not resumed within the limit, it gets `directive`. In its next step,
    /// [`timed_out`](Self::timed_out) returns `true`.
    pub fn suspend_for(&self, limit: Duration, directive: Directive) -> Resume {
        let resume = self.suspend();
        self.shared.set_deadline(resume.ticket, limit, directive);
        resume
    }

    /// Whether the last wait ended because of its limit.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Returns this tasklet's token, which is cancelled with the tasklet.
    ///
    /// A [`close`](LoopHandle::close) of the loop cancels all its tasklets.
    pub fn cancelled(&self) -> &CancelToken {
        self.cancel.get_or_init(|| {
            let (token, doomed) = lock(&self.shared.slots).token(self.id);
            if let Some(reason) = doomed {
                token.cancel(reason);
            }
            token
        })
    }
}

impl<S: 'static> fmt::Debug for TaskletContext<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskletContext").field("id", &self.id).field("timed_out", &self.timed_out).finish()
    }
}

/// A handle of a loop, for any thread. It schedules tasklets and lists them.
///
/// Clones refer to the same loop, and handles of the same loop are equal.
///
/// A handle does not keep the loop alive. Dropping the [`Loop`](super::Loop) closes it.
pub struct LoopHandle<S: 'static> {
    pub(super) shared: Arc<Common<S>>,
}

impl<S: 'static> LoopHandle<S> {
    /// Returns the innermost loop that the calling thread is in.
    ///
    /// In a step, at home or on the pool, this is the step's loop. In the destructor of a tasklet it is the tasklet's
    /// loop. The result is `None` outside any loop, or if the innermost loop has another type of state.
    pub fn current() -> Option<LoopHandle<S>> {
        current::current().map(|shared| LoopHandle { shared })
    }

    /// Schedules a tasklet.
    ///
    /// The call only queues the tasklet, even on an automatic loop. It runs no step. A sleeping home thread is woken.
    ///
    /// # Errors
    /// The tasklet is handed back in three cases. The directive is [`Directive::Pool`], no thread runs the loop, and
    /// the loop has no wake-up hook ([`ScheduleError::NotRunning`]). The loop is closed. The pool refuses the step.
    pub fn schedule<T: Tasklet<S>>(
        &self,
        tasklet: T,
        directive: Directive,
    ) -> Result<TaskletHandle, Rejected<T, ScheduleError>> {
        let (name, ended) = (tasklet.name(), Latch::new());
        let id = schedule(&self.shared, name.clone(), Some(ended.clone()), tasklet, directive)?;
        let of: Weak<Common<S>> = Arc::downgrade(&self.shared);
        Ok(TaskletHandle { id, name, ended, clock: self.shared.clock.clone(), of })
    }

    /// Schedules a tasklet that promises a value.
    ///
    /// `make` gets the promise and returns the tasklet, which should store the promise.
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
        let tasklet = make(Promise { value: value.clone() });
        let handle = self.schedule(tasklet, directive)?;
        Ok(TaskletFuture::new(handle, value))
    }

    /// Cancels a tasklet. Returns whether this call cancelled it.
    ///
    /// The tasklet's [token](TaskletContext::cancelled) is cancelled. If the tasklet is queued or waits, the calling
    /// thread drops it at once. (If destructors of tasklets cancel other tasklets, such calls may nest. A call that is
    /// nested too deeply drops its tasklet when the innermost destructor has returned.) If the tasklet is in a step, it
    /// is dropped when the step returns, unless the step returns [`Directive::Done`].
    pub fn cancel(&self, id: TaskletId, reason: impl Into<Reason>) -> bool {
        self.shared.clone().cancel(id, reason.into())
    }

    /// Gives a tasklet another directive. Returns whether the loop has the tasklet.
    ///
    /// A queued tasklet is removed from its queue. With [`Directive::Wait`] it then waits. With [`Directive::Done`] it
    /// ends without a step. A waiting tasklet is resumed. If the tasklet is in a step, the directive takes effect when
    /// the step returns [`Directive::Wait`]. The directive [`Directive::Done`] takes effect whatever the step returns.
    ///
    /// # Errors
    /// The tasklet is queued, the directive is [`Directive::Pool`], no thread runs the loop, and the loop has no
    /// wake-up hook. The tasklet stays queued.
    pub fn redirect(&self, id: TaskletId, directive: Directive) -> Result<bool, ScheduleError> {
        self.shared.clone().redirect(id, directive)
    }

    /// Lists the tasklets that have not ended, in the order of their scheduling.
    pub fn tasklets(&self) -> Vec<TaskletInfo> {
        lock(&self.shared.slots).tasklets()
    }

    /// Lists the tasklets whose directive has not changed for this long, by the loop's clock.
    pub fn stuck(&self, after: Duration) -> Vec<TaskletInfo> {
        let mut holding = lock(&self.shared.slots).tasklets();
        holding.retain(|holding| holding.since >= after);
        holding
    }

    /// Closes the loop, and cancels all its tasklets with [`Reason::Shutdown`].
    ///
    /// The loop accepts no more tasklets. Tasklets that are queued or wait are dropped at once. The call waits for
    /// tasklets in a step, up to `limit` by the loop's clock. A thread in [`run`](super::Loop::run) finds the loop
    /// empty and returns. The returned report has all work that was not yet reported.
    ///
    /// To let tasklets finish first, call [`run_for`](super::Loop::run_for) before this.
    ///
    /// In a step of the loop, the call does not wait, because it would wait for itself. For the same reason it does not
    /// wait in the destructor, a callback or the panic handler of one of the loop's tasklets. Destructors and callbacks
    /// run on the calling thread. If one of them hangs, it blocks that thread.
    ///
    /// # Errors
    /// The limit passed before the last step had returned, or the call did not wait and a step has not returned. (A
    /// call by a step of a process does not wait either.) The error names the tasklets that are still in a step. Each
    /// of them is dropped when its step returns.
    pub fn close(&self, limit: Duration) -> Result<Report, InterruptedError> {
        self.shared.close(&Reason::Shutdown);
        self.shared.wait_until_empty(limit)
    }

    /// Whether the loop is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.shared.slots).closed
    }
}

/// Schedules a tasklet. The latch is set at its end.
pub(super) fn schedule<S: 'static, T: Tasklet<S>>(
    shared: &Arc<Common<S>>,
    name: Cow<'static, str>,
    ended: Option<Latch<Exit>>,
    tasklet: T,
    directive: Directive,
) -> Result<TaskletId, Rejected<T, ScheduleError>> {
    shared.schedule(name, ended, Box::new(tasklet), directive).map_err(|(body, why)| Rejected::new(unboxed(body), why))
}

/// Returns the tasklet from the body that was made of it.
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
