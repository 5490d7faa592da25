//! Timers, which run actions at given moments.
//!
//! [`Timers`] hold their actions in one ordered map, under one lock. One thread sleeps until the earliest action is
//! due. With a manual clock there is no such thread. The thread that moves the clock runs the actions that became due.
//! If a timer is due when it is set, the thread that sets it runs its action. An entry is removed from the map when its
//! timer fires or is cancelled. So cancelled timers use no memory.
//!
//! **No recursion.** By a manual clock, an action may set a timer that is due already. The thread that runs the action
//! records that timer and fires it when the action has returned. So actions that set each other need one frame of the
//! stack, however many there are. (If an action moves the clock itself, the actions that become due run inside its call
//! of `advance`.)

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::clock::{Clock, ClockWatch, Deadline};
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, Condvar, Mutex, MutexGuard, ThreadId, Weak, lock, thread};
use crate::threads;

/// The action of a timer. It should be short.
///
/// The action runs on the timers' thread. With a manual clock it runs on the thread that moves the clock. If the timer
/// is already due when it is set, the action runs on the thread that sets it.
pub type Action = Box<dyn FnOnce() + Send>;

/// A set of timers with a clock. Clones are the same set.
///
/// Dropping the last clone stops the timers.
#[derive(Clone)]
pub struct Timers {
    owner: Arc<Owner>,
}

/// Identifies one pending timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    at: Instant,
    number: u64,
}

impl TimerKey {
    #[cfg(all(test, loom))]
    pub(crate) fn for_models() -> TimerKey {
        TimerKey { at: Clock::system().now(), number: 1 }
    }

    /// Returns the moment when the timer is due.
    pub fn moment(self) -> Instant {
        self.at
    }
}

struct Owner {
    shared: Arc<Shared>,
    watch: Option<ClockWatch>,
}

struct Shared {
    clock: Clock,
    name: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<TimerKey, Action>,
    next: u64,
    fired: u64,
    stopped: bool,
    // The moment until which the thread sleeps, if it does. It lies before the earliest entry if an earlier one was
    // cancelled. The thread then wakes once for nothing. That is cheaper than to wake it for each timer that is set
    // and cancelled again.
    sleeps: Option<Deadline>,
    // The moment for which the thread was woken last. If that timer is cancelled before the thread has looked, the
    // thread still sleeps until that moment. Otherwise the next similar timer would have to wake it again.
    news: Option<Instant>,
    #[cfg(test)]
    rounds: usize,
    // The thread starts with the first timer, so a set that is never used has no thread.
    thread: Option<thread::JoinHandle<()>>,
    // Known even after another thread has taken the handle to join it.
    thread_id: Option<ThreadId>,
    // Actions that are never due, by number. Stopping returns them. A tree, because it frees memory as it becomes
    // empty.
    kept: BTreeMap<u64, Action>,
    // With a manual clock: the threads that run actions. A thread is listed once for each nested run.
    firing: Vec<Firing>,
}

/// A thread that runs actions by a manual clock.
struct Firing {
    thread: ThreadId,
    // Timers that its actions have set and that were due already, to fire next. `None` if the thread fires all due
    // timers.
    set: Option<VecDeque<TimerKey>>,
}

/// Identifies an action that [`Timers`] hold. The action may never be due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Timer(TimerKey),
    Never(u64),
}

impl Timers {
    /// Makes a set of timers that uses `clock`.
    ///
    /// The timers' thread starts when it is first needed, and is called `name`.
    pub fn new(clock: Clock, name: impl Into<String>) -> Timers {
        let shared = Arc::new(Shared { clock, name: name.into(), state: Mutex::default(), changed: Condvar::new() });
        let watch = shared.clock.is_manual().then(|| {
            let weak: Weak<Shared> = Arc::downgrade(&shared);
            let due = weak.clone();
            shared.clock.watch_due(
                move || {
                    if let Some(shared) = weak.upgrade() {
                        shared.expire();
                    }
                },
                move || due.upgrade()?.earliest(),
            )
        });
        Timers { owner: Arc::new(Owner { shared, watch }) }
    }

    /// Runs `action` after `delay`, and never before.
    ///
    /// Two timers for the same moment fire in the order in which they were set. If no `Instant` can express the end of
    /// the delay, the action is dropped, and the result is `Ok(None)`.
    ///
    /// With a manual clock, a timer that is due when it is set fires before this call returns. If another thread has
    /// just moved the clock and is about to fire other timers, this timer may fire before those. If an action of these
    /// timers sets the timer, the timer fires when that action has returned.
    ///
    /// # Errors
    /// Returns the action if the timers have been stopped, or if their thread could not be started.
    pub fn after(&self, delay: Duration, action: Action) -> Result<Option<TimerKey>, Action> {
        match self.owner.shared.clock.deadline(delay) {
            Deadline(Some(at)) => self.at(at, action).map(Some),
            Deadline(None) => Ok(None),
        }
    }

    /// Runs `action` at the moment `at`, or at once if that moment has passed.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    pub fn at(&self, at: Instant, action: Action) -> Result<TimerKey, Action> {
        let shared = &self.owner.shared;
        let mut state = lock(&shared.state);
        if state.stopped {
            return Err(action);
        }
        if let Err(error) = shared.ensure_thread(&mut state) {
            // A subscriber of the log is user code.
            drop(state);
            tell_log(|| tracing::error!(%error, name = shared.name, "the timers' thread cannot be started"));
            return Err(action);
        }
        state.next += 1;
        let key = TimerKey { at, number: state.next };
        // Asked before other threads can see the timer. From then on the thread that moves the clock fires it.
        if shared.clock.is_manual() && at <= shared.clock.now() {
            shared.does_at_once(state, key, action);
            return Ok(key);
        }
        state.pending.insert(key, action);
        let sleeps_too_long = state.sleeps.is_some_and(|Deadline(until)| until.is_none_or(|until| at < until));
        if sleeps_too_long {
            state.news = Some(at);
            // No other thread need wake it for anything later.
            state.sleeps = Some(Deadline(Some(at)));
        }
        drop(state);
        if sleeps_too_long {
            shared.changed.notify_one();
        }
        Ok(key)
    }

    /// Starts the thread, if there is none yet. Afterwards no action is refused for lack of a thread.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let shared = &self.owner.shared;
        let mut state = lock(&shared.state);
        if state.stopped { Ok(()) } else { shared.ensure_thread(&mut state) }
    }

    /// As [`after`](Self::after), but also keeps an action that is never due. Stopping returns it.
    pub(crate) fn after_or_never(&self, delay: Duration, action: Action) -> Result<Kept, Action> {
        self.at_or_never(self.owner.shared.clock.deadline(delay), action)
    }

    /// As [`at`](Self::at), but also keeps an action that is never due. Stopping returns it.
    pub(crate) fn at_or_never(&self, deadline: Deadline, action: Action) -> Result<Kept, Action> {
        if let Deadline(Some(at)) = deadline {
            return self.at(at, action).map(Kept::Timer);
        }
        let mut state = lock(&self.owner.shared.state);
        if state.stopped {
            return Err(action);
        }
        state.next += 1;
        let number = state.next;
        state.kept.insert(number, action);
        Ok(Kept::Never(number))
    }

    /// Removes an action, if it is still there.
    pub(crate) fn take_back(&self, kept: Kept) -> Option<Action> {
        match kept {
            Kept::Timer(key) => self.cancel(key),
            Kept::Never(number) => lock(&self.owner.shared.state).kept.remove(&number),
        }
    }

    /// Whether the timers have been stopped. If not, an action was refused for lack of a thread.
    pub(crate) fn are_stopped(&self) -> bool {
        lock(&self.owner.shared.state).stopped
    }

    /// Whether the calling thread is the timers' thread.
    pub(crate) fn is_current(&self) -> bool {
        lock(&self.owner.shared.state).thread_id == Some(thread::current().id())
    }

    /// Cancels a pending timer. Returns `None` if it has fired, is firing, or was cancelled before.
    pub fn cancel(&self, key: TimerKey) -> Option<Action> {
        lock(&self.owner.shared.state).pending.remove(&key)
    }

    /// Returns the number of pending timers.
    pub fn pending(&self) -> usize {
        lock(&self.owner.shared.state).pending.len()
    }

    /// Returns the number of timers that have fired.
    pub fn fired(&self) -> u64 {
        lock(&self.owner.shared.state).fired
    }

    /// Stops the timers. Returns the pending actions in the order of their moments.
    ///
    /// After this call, no timer fires. When the call returns, the timers' thread has ended, with two exceptions. The
    /// timers' own thread makes the call. Or an earlier call has stopped the timers and still waits for the thread.
    pub fn stop(&self) -> Vec<Action> {
        self.owner.stop()
    }

    /// As `stop`, but returns the thread, too. The caller joins it with a limit, because an action may take long.
    pub(crate) fn halt(&self) -> (Vec<Action>, Option<thread::JoinHandle<()>>) {
        self.owner.halt()
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("name", &self.owner.shared.name).field("pending", &self.pending()).finish()
    }
}

impl Owner {
    fn halt(&self) -> (Vec<Action>, Option<thread::JoinHandle<()>>) {
        let (pending, kept, thread) = {
            let mut state = lock(&self.shared.state);
            state.stopped = true;
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.kept), state.thread.take())
        };
        self.shared.changed.notify_all();
        (pending.into_values().chain(kept.into_values()).collect(), thread)
    }

    fn stop(&self) -> Vec<Action> {
        let (pending, thread) = self.halt();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // Panics in actions are contained, so the thread does not panic.
            let _ = thread.join();
        }
        pending
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.watch.take();
        for action in self.stop() {
            crate::outcome::drop_contained(action);
        }
    }
}

impl State {
    fn earliest(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(key, _)| key.at)
    }
}

impl Shared {
    fn earliest(&self) -> Option<Instant> {
        lock(&self.state).earliest()
    }

    fn ensure_thread(self: &Arc<Shared>, state: &mut State) -> io::Result<()> {
        if state.thread.is_none() && !self.clock.is_manual() {
            let shared = self.clone();
            let thread = threads::start(self.name.clone(), move || shared.run())?;
            state.thread_id = Some(thread.thread().id());
            state.thread = Some(thread);
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            self.expire();
            let mut state = lock(&self.state);
            if state.stopped {
                return;
            }
            #[cfg(test)]
            {
                state.rounds += 1;
            }
            let now = self.clock.now();
            let news = state.news.filter(|at| *at > now);
            let until = Deadline(state.earliest().or(news));
            if !until.has_passed(&self.clock) {
                state.sleeps = Some(until);
                state = self.clock.wait(&self.changed, state, until);
                state.sleeps = None;
            }
        }
    }

    /// Runs every action that is due, one by one, with no lock held.
    fn expire(&self) {
        let is_manual = self.clock.is_manual();
        let mut now = self.clock.now();
        let mut state = lock(&self.state);
        if is_manual {
            state.begin_firing(None);
        }
        while let Some(entry) = state.pending.first_entry()
            && entry.key().at <= now
        {
            let action = entry.remove();
            state = self.fire(state, action);
            if is_manual {
                // The action may have moved the clock, and set timers that are due since then.
                now = self.clock.now();
            }
        }
        if is_manual {
            state.end_firing();
        }
    }

    /// Handles a timer that is due when it is set, with a manual clock.
    ///
    /// Timers of other threads are not fired here, unless this thread is firing. The thread that has moved the clock
    /// fires them before its call returns.
    fn does_at_once<'a>(&'a self, mut state: MutexGuard<'a, State>, key: TimerKey, action: Action) {
        if let Some(firing) = state.firing() {
            firing.set.iter_mut().for_each(|set| set.push_back(key));
            state.pending.insert(key, action);
            return;
        }
        state.begin_firing(Some(VecDeque::new()));
        let mut next = Some(action);
        while let Some(action) = next {
            state = self.fire(state, action);
            next = state.next_set();
        }
        state.end_firing();
    }

    /// Runs an action with the lock released.
    fn fire<'a>(&'a self, mut state: MutexGuard<'a, State>, action: Action) -> MutexGuard<'a, State> {
        state.fired += 1;
        drop(state);
        if let Err(panic) = contain(action) {
            tell_log(|| tracing::error!(%panic, "a timer's action panicked"));
        }
        lock(&self.state)
    }
}

/// State for a manual clock.
impl State {
    fn begin_firing(&mut self, set: Option<VecDeque<TimerKey>>) {
        self.firing.push(Firing { thread: thread::current().id(), set });
    }

    /// Returns the latest run that the calling thread has begun.
    fn firing(&mut self) -> Option<&mut Firing> {
        let me = thread::current().id();
        self.firing.iter_mut().rfind(|firing| firing.thread == me)
    }

    fn end_firing(&mut self) {
        let me = thread::current().id();
        if let Some(place) = self.firing.iter().rposition(|firing| firing.thread == me) {
            self.firing.remove(place);
        }
    }

    /// Returns the next timer that an action of the calling thread has set. Skips timers that were cancelled or that
    /// another thread has fired.
    fn next_set(&mut self) -> Option<Action> {
        loop {
            let key = self.firing()?.set.as_mut()?.pop_front()?;
            if let Some(action) = self.pending.remove(&key) {
                return Some(action);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
