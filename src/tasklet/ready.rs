//! Ready-made tasklets: made of closures or of phases, and two that do nothing.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use super::context::{LoopHandle, Tasklet, TaskletContext};
use super::directive::{Directive, ScheduleError};
use super::handle::{TaskletFuture, ValueCell};
use crate::outcome::Rejected;
use crate::primitives::{Arc, Mutex, lock};

/// Returns a tasklet that ends at its first step.
pub fn done<S: 'static>() -> impl Tasklet<S> {
    named(from_fns(|_: &mut S, _| Directive::Done, |_| Directive::Done), "done")
}

/// Returns a tasklet that only waits.
///
/// [`Loop::run`](super::Loop::run) does not return until the tasklet is cancelled or
/// [redirected](super::LoopHandle::redirect).
pub fn wait<S: 'static>() -> impl Tasklet<S> {
    named(from_fns(|_: &mut S, _| Directive::Wait, |_| Directive::Wait), "wait")
}

/// Returns a tasklet whose home steps call a closure. It has no pool steps.
///
/// ```
/// use procession::tasklet::{Directive, Loop, ready};
///
/// let mut home = Loop::new(0_u32);
/// let mut left = 3;
/// let count = ready::from_fn(move |sum: &mut u32, _| {
///     *sum += left;
///     left -= 1;
///     if left > 0 { Directive::Home } else { Directive::Done }
/// });
/// home.schedule(count, Directive::Home)?.run()?;
/// assert_eq!(home.into_inner(), 3 + 2 + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn from_fn<S: 'static, H>(at_home: H) -> impl Tasklet<S> + use<S, H>
where
    H: FnMut(&mut S, &mut TaskletContext<'_, S>) -> Directive + Send + 'static,
{
    from_fns(at_home, |_| Directive::Home)
}

/// Returns a tasklet whose home steps call one closure and whose pool steps call another.
pub fn from_fns<S: 'static, H, E>(at_home: H, on_pool: E) -> impl Tasklet<S> + use<S, H, E>
where
    H: FnMut(&mut S, &mut TaskletContext<'_, S>) -> Directive + Send + 'static,
    E: FnMut(&mut TaskletContext<'_, S>) -> Directive + Send + 'static,
{
    FromFns { at_home, on_pool }
}

/// Returns the same tasklet with another name.
pub fn named<T>(tasklet: T, name: impl Into<Cow<'static, str>>) -> Renamed<T> {
    Renamed { tasklet, name: name.into() }
}

/// Returns a tasklet that runs `call` on the pool, where it may block.
///
/// The closure of [`then`](Phases::then) gets the result at home.
///
/// ```
/// use procession::tasklet::{Loop, ready};
///
/// let mut home = Loop::new(Vec::new());
/// let length = home.handle().call(
///     ready::call_blocking(|| std::fs::read("Cargo.toml"))
///         .then(|list: &mut Vec<usize>, bytes| list.push(bytes.map_or(0, |bytes| bytes.len()))),
/// )?;
/// home.run()?;
/// assert!(length.wait()?.is_done() && home.get()[0] > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn call_blocking<S: 'static, A: Send + 'static>(call: impl FnOnce() -> A + Send + 'static) -> Phases<S, A> {
    begin().then_blocking(|()| call())
}

/// Begins a tasklet of phases.
///
/// Each phase is a closure that is called once, at home or on the pool. It gets the value that the phase before it
/// returned.
///
/// ```
/// use procession::tasklet::{Loop, ready};
///
/// let mut home = Loop::new(10_u32);
/// let answer = home.handle().call(
///     ready::begin()
///         .then(|state: &mut u32, ()| *state)
///         .then_blocking(|n| n * 2)
///         .then(|state, n| { *state = n; n + 1 }),
/// )?;
/// home.run()?;
/// assert_eq!((answer.wait()?.into_result()?, home.into_inner()), (21, 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn begin<S: 'static>() -> Phases<S, ()> {
    Phases { left: VecDeque::new(), last: Arc::new(Mutex::new(Some(()))) }
}

struct FromFns<H, E> {
    at_home: H,
    on_pool: E,
}

impl<S: 'static, H, E> Tasklet<S> for FromFns<H, E>
where
    H: FnMut(&mut S, &mut TaskletContext<'_, S>) -> Directive + Send + 'static,
    E: FnMut(&mut TaskletContext<'_, S>) -> Directive + Send + 'static,
{
    fn home(&mut self, state: &mut S, cx: &mut TaskletContext<'_, S>) -> Directive {
        (self.at_home)(state, cx)
    }

    fn pool(&mut self, cx: &mut TaskletContext<'_, S>) -> Directive {
        (self.on_pool)(cx)
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(std::any::type_name::<H>())
    }
}

/// A tasklet with another name: see [`named`].
#[derive(Clone, Debug)]
pub struct Renamed<T> {
    tasklet: T,
    name: Cow<'static, str>,
}

impl<T> Renamed<T> {
    /// Returns the tasklet with its own name.
    pub fn into_inner(self) -> T {
        self.tasklet
    }
}

impl<S: 'static, T: Tasklet<S>> Tasklet<S> for Renamed<T> {
    fn home(&mut self, state: &mut S, cx: &mut TaskletContext<'_, S>) -> Directive {
        self.tasklet.home(state, cx)
    }

    fn pool(&mut self, cx: &mut TaskletContext<'_, S>) -> Directive {
        self.tasklet.pool(cx)
    }

    fn name(&self) -> Cow<'static, str> {
        self.name.clone()
    }
}

/// A tasklet of phases: closures that are called once, one after the other.
///
/// The last phase returns an `A`. See [`begin`] and [`call_blocking`].
///
/// Each phase runs at home or on the pool as it was added, even if the tasklet is scheduled with another directive.
#[must_use = "phases do nothing until they are scheduled"]
pub struct Phases<S: 'static, A> {
    left: VecDeque<Phase<S>>,
    // The value that the last phase returns.
    last: ValueCell<A>,
}

enum Phase<S> {
    Home(Box<dyn FnOnce(&mut S) + Send>),
    Pool(Box<dyn FnOnce() + Send>),
}

/// Passes the value of one phase to the next one. No lock is held while it runs.
fn pass<A, B>(before: &ValueCell<A>, next: &ValueCell<B>, phase: impl FnOnce(A) -> B) {
    let value = lock(before).take();
    let value = value.map(phase);
    *lock(next) = value;
}

impl<S: 'static, A: Send + 'static> Phases<S, A> {
    /// Adds a phase that runs at home.
    pub fn then<B: Send + 'static>(self, phase: impl FnOnce(&mut S, A) -> B + Send + 'static) -> Phases<S, B> {
        self.add(|before, next| Phase::Home(Box::new(move |state| pass(&before, &next, |value| phase(state, value)))))
    }

    /// Adds a phase that runs on the pool, where it may block.
    pub fn then_blocking<B: Send + 'static>(self, phase: impl FnOnce(A) -> B + Send + 'static) -> Phases<S, B> {
        self.add(|before, next| Phase::Pool(Box::new(move || pass(&before, &next, phase))))
    }

    fn add<B>(self, phase: impl FnOnce(ValueCell<A>, ValueCell<B>) -> Phase<S>) -> Phases<S, B> {
        let (Phases { mut left, last: before }, last) = (self, ValueCell::default());
        left.push_back(phase(before, last.clone()));
        Phases { left, last }
    }

    fn next(&self) -> Directive {
        match self.left.front() {
            None => Directive::Done,
            Some(Phase::Home(_)) => Directive::Home,
            Some(Phase::Pool(_)) => Directive::Pool,
        }
    }
}

impl<S: 'static, A: Send + 'static> Tasklet<S> for Phases<S, A> {
    fn home(&mut self, state: &mut S, _: &mut TaskletContext<'_, S>) -> Directive {
        if let Some(Phase::Home(phase)) = self.left.pop_front_if(|next| matches!(next, Phase::Home(_))) {
            phase(state);
        }
        self.next()
    }

    fn pool(&mut self, _: &mut TaskletContext<'_, S>) -> Directive {
        if let Some(Phase::Pool(phase)) = self.left.pop_front_if(|next| matches!(next, Phase::Pool(_))) {
            phase();
        }
        self.next()
    }
}

impl<S: 'static> LoopHandle<S> {
    /// Schedules phases. The returned future yields the value of the last phase.
    ///
    /// # Errors
    /// The loop is closed. The phases are handed back.
    pub fn call<A: Send + 'static>(
        &self,
        phases: Phases<S, A>,
    ) -> Result<TaskletFuture<A>, Rejected<Phases<S, A>, ScheduleError>> {
        let last = phases.last.clone();
        // The first directive is `Home`, whatever the first phase is. It is accepted even if no thread runs the loop
        // yet.
        let handle = self.schedule(phases, Directive::Home)?;
        Ok(TaskletFuture::new(handle, last))
    }
}

impl<S: 'static, A> fmt::Debug for Phases<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phases").field("left", &self.left.len()).finish()
    }
}
