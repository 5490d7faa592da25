//! A set of timers: their thread, their clock, and the values that are due.
//!
//! The timers are in *shards*, one a worker, so that workers do not wait for each other. Each shard has a lock, which
//! is held for a moment only. One thread sleeps until the earliest timer is due. With a manual clock there is no such
//! thread, and one shard. The thread that moves the clock fires the timers that became due. If a timer is due when it
//! is set, the thread that sets it fires it.
//!
//! **No recursion.** By a manual clock, a timer that fires may set a timer that is due already. The thread that fires
//! records that timer and fires it next. So timers that set each other need one frame of the stack, however many there
//! are. (If a timer that fires moves the clock itself, the timers that become due fire inside that call of `advance`.)
//!
//! # Waking the thread
//!
//! **State.** Under the lock of each shard: its timers, and `noted`, a moment or never. Under the lock of the set:
//! `sleeps`, the moment until which the thread sleeps, or never. There is no such moment while the thread is awake. A
//! thread that needs both locks takes that of the set first.
//!
//! **The thread**, when nothing is due:
//!
//! 1. takes the lock of the set;
//! 2. takes the lock of each shard in turn, and sets `noted` to the earliest timer of that shard. If the old `noted` is
//!    earlier and still to come, it stays;
//! 3. sets `sleeps` to the earliest of all `noted`, and waits. The wait releases the lock of the set.
//!
//! **A thread that sets a timer** for the moment `at`:
//!
//! 1. takes the lock of a shard, adds the timer, and is done if `noted <= at`. Otherwise it sets `noted` to `at`;
//! 2. releases it, and takes the lock of the set. If `sleeps > at`, it sets `sleeps` to `at` and notifies the thread.
//!
//! **Why no timer is late.** Take a timer, and the last time that the thread noted its shard. There are three cases:
//!
//! - The timer was there already. Then the thread saw it.
//! - It was added afterwards, and `noted` was later than `at`. The setter takes the lock of the set. At that moment the
//!   thread waits, and is notified if it would wait too long. Or it is awake, and notes the shard again.
//! - It was added afterwards, and `noted` was `at` or earlier. If the thread has set that `noted`, it sleeps until then
//!   at the latest. Otherwise another setter has. That setter is in the second case, with an earlier moment.
//!
//! Each step is one critical section, so there is no fourth case.
//!
//! **Why it rarely wakes in vain.** A timer that is not the earliest of its shard does not notify the thread. If the
//! earliest is cancelled, `noted` stays, and the thread wakes at that moment once. For the same reason the thread, when
//! it notes a shard, only makes a `noted` earlier that is still to come, and never later. Otherwise a timer that is set
//! and cancelled again and again would notify the thread each time.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::store::TimerStore;
use crate::clock::{Clock, ClockWatch, Deadline};
use crate::outcome::{contain, drop_contained, tell_log};
use crate::primitives::{Arc, Brief, BriefGuard, Condvar, Mutex, Ordering, StaticCounter, ThreadId, Weak};
use crate::primitives::{enter, lock, thread};
use crate::threads;

/// The most shards of a set. With more workers than that, some share one.
const MOST_SHARDS: usize = 16;

/// Orders are this far apart from one shard to the next. So two timers of the program have different orders, unless a
/// shard has had more timers than this.
const ORDERS: u64 = 1 << 40;

/// Counts the shards of all sets, so that a set does not take the timer of another one for its own.
static NEXT_SHARD: StaticCounter = StaticCounter::new(0);

/// Identifies one pending timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    at: Instant,
    id: TimerId,
}

impl TimerKey {
    #[inline]
    pub(crate) fn id(self) -> TimerId {
        self.id
    }

    /// Returns the moment when the timer is due.
    pub fn moment(self) -> Instant {
        self.at
    }
}

/// Identifies a timer, also one that is never due. No other timer has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerId {
    /// Never zero.
    pub(crate) order: u64,
    pub(crate) place: Place,
}

/// Where the timer is: the shard, and the slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    shard: u32,
    slot: u32,
}

impl Place {
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_word(word: u64) -> Place {
        Place { shard: (word >> 32) as u32, slot: word as u32 }
    }
}

/// A set of timers with values. A timer that is due gives its value to the function of the set.
///
/// Dropping the set stops the timers.
pub(crate) struct TimerSet<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    watch: Option<ClockWatch>,
}

struct Shared<T> {
    clock: Clock,
    name: String,
    fire: Box<dyn Fn(T) + Send + Sync>,
    shards: Box<[Padded<T>]>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Shards are written by different processors.
#[repr(align(128))]
struct Padded<T>(Brief<Shard<T>>);

struct Shard<T> {
    store: TimerStore<T>,
    /// Whether timers may be set here: their thread has been started, and they have not been stopped.
    is_open: bool,
    /// The thread wakes at this moment at the latest, or is about to look. Never, if it is `None`.
    noted: Option<Instant>,
    fired: u64,
}

#[derive(Default)]
struct State {
    stopped: bool,
    /// The moment until which the thread sleeps, if it does.
    sleeps: Option<Deadline>,
    #[cfg(test)]
    rounds: usize,
    // The thread starts with the first timer, so a set that is never used has no thread.
    thread: Option<thread::JoinHandle<()>>,
    // Known even after another thread has taken the handle to join it.
    thread_id: Option<ThreadId>,
    // With a manual clock: the threads that fire timers. A thread is listed once for each nested run.
    firing: Vec<Firing>,
}

/// A thread that fires timers by a manual clock.
struct Firing {
    thread: ThreadId,
    // Timers that were set meanwhile and were due already, to fire next. `None` if the thread fires all due timers.
    set: Option<VecDeque<TimerId>>,
}

/// The values of timers that were stopped, and the thread, if it is to be joined.
pub(crate) type Halted<T> = (Vec<T>, Option<thread::JoinHandle<()>>);

impl<T: Send + 'static> TimerSet<T> {
    /// Makes a set of timers that uses `clock`, with so many shards. `fire` gets the values of timers that are due.
    ///
    /// The thread starts when it is first needed, and is called `name`.
    pub(crate) fn new(
        clock: Clock,
        name: impl Into<String>,
        shards: usize,
        fire: impl Fn(T) + Send + Sync + 'static,
    ) -> TimerSet<T> {
        // With one shard, timers for the same moment fire in the order in which they were set.
        let shards = if clock.is_manual() { 1 } else { shards.clamp(1, MOST_SHARDS) };
        // Ordering: Relaxed: the numbers only have to differ.
        let first = NEXT_SHARD.fetch_add(shards as u64, Ordering::Relaxed);
        let shard = |number: u64| Padded(Brief::new(Shard::new(number.wrapping_mul(ORDERS))));
        let shared = Arc::new(Shared {
            clock,
            name: name.into(),
            fire: Box::new(fire),
            shards: (first..).take(shards).map(shard).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let watch = shared.clock.is_manual().then(|| {
            let weak: Weak<Shared<T>> = Arc::downgrade(&shared);
            let (due, fires) = (weak.clone(), weak.clone());
            shared.clock.watch_due(
                move || {
                    if let Some(shared) = weak.upgrade() {
                        shared.expire_by_manual_clock();
                    }
                },
                move || due.upgrade()?.look(),
                move || {
                    if let Some(shared) = fires.upgrade() {
                        shared.fire_earliest();
                    }
                },
            )
        });
        TimerSet { shared, watch }
    }

    /// Sets a timer that is due after `delay`. If no `Instant` can express that moment, the value is dropped, and the
    /// result is `Ok(None)`.
    ///
    /// Threads that often set timers should each use a `shard` of their own.
    #[inline]
    pub(crate) fn after(&self, shard: usize, delay: Duration, value: T) -> Result<Option<TimerKey>, T> {
        match self.shared.clock.deadline(delay) {
            Deadline(Some(at)) => self.at(shard, at, value).map(Some),
            Deadline(None) => Ok(None),
        }
    }

    /// Sets a timer that is due at this moment. If the moment has passed, it fires at once.
    ///
    /// # Errors
    /// Returns the value if the timers have been stopped, or if their thread could not be started.
    #[inline]
    pub(crate) fn at(&self, shard: usize, at: Instant, value: T) -> Result<TimerKey, T> {
        let shared = &self.shared;
        let number = shared.number(shard);
        let mut shard = shared.shard(number);
        if !shard.is_open {
            shard = match shared.open(shard, number) {
                Some(shard) => shard,
                None => return Err(value),
            };
        }
        // Asked before other threads can see the timer. From then on the thread that moves the clock fires it.
        if shared.clock.is_manual() && at <= shared.clock.now() && !shared.clock.is_driven() {
            drop(shard);
            return shared.does_at_once(at, value).map(|id| TimerKey { at, id });
        }
        let id = shard.set(number, Some(at), value);
        let is_news = shard.noted.is_none_or(|noted| at < noted);
        if is_news {
            shard.noted = Some(at);
        }
        drop(shard);
        if is_news {
            shared.tell(at);
        }
        Ok(TimerKey { at, id })
    }

    /// As [`at`](Self::at), but also keeps a value that is never due. Stopping returns it.
    pub(crate) fn at_or_never(&self, deadline: Deadline, value: T) -> Result<TimerId, T> {
        if let Deadline(Some(at)) = deadline {
            return self.at(0, at, value).map(TimerKey::id);
        }
        // It needs no thread. The lock is held, so that it is not stopped meanwhile.
        let state = lock(&self.shared.state);
        if state.stopped { Err(value) } else { Ok(self.shared.shard(0).set(0, None, value)) }
    }

    /// As [`after`](Self::after), but also keeps a value that is never due. Stopping returns it.
    pub(crate) fn after_or_never(&self, delay: Duration, value: T) -> Result<TimerId, T> {
        self.at_or_never(self.shared.clock.deadline(delay), value)
    }

    /// Takes a timer out. Returns `None` if it has fired, is firing, or was taken out before.
    #[inline]
    pub(crate) fn cancel(&self, id: TimerId) -> Option<T> {
        let TimerId { order, place: Place { shard, slot } } = id;
        let shard = self.shared.shards.get(shard as usize)?;
        enter(&shard.0).store.remove(order, slot)
    }

    /// Starts the thread, if there is none yet. Afterwards no timer is refused for lack of a thread.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        if state.stopped { Ok(()) } else { self.shared.ensure_thread(&mut state) }
    }

    /// Whether the timers have been stopped. If not, a timer was refused for lack of a thread.
    pub(crate) fn are_stopped(&self) -> bool {
        lock(&self.shared.state).stopped
    }

    /// Whether the calling thread is the timers' thread.
    pub(crate) fn is_current(&self) -> bool {
        lock(&self.shared.state).thread_id == Some(thread::current().id())
    }

    /// Returns the number of pending timers. Those that are never due do not count.
    pub(crate) fn pending(&self) -> usize {
        self.shared.shards.iter().map(|shard| enter(&shard.0).store.pending()).sum()
    }

    /// Returns the number of timers that have fired.
    pub(crate) fn fired(&self) -> u64 {
        self.shared.shards.iter().map(|shard| enter(&shard.0).fired).sum()
    }

    /// The name of the thread.
    pub(crate) fn name(&self) -> &str {
        &self.shared.name
    }

    /// Stops the timers. Returns the values of pending timers in the order of their moments, then those that are never
    /// due. Also returns the thread. The caller joins it with a limit, because a timer that fires may take long.
    pub(crate) fn halt(&self) -> Halted<T> {
        let (mut all, thread) = {
            let mut state = lock(&self.shared.state);
            state.stopped = true;
            let mut all = Vec::new();
            for number in 0..self.shared.shards.len() {
                let mut shard = self.shared.shard(number);
                shard.is_open = false;
                all.append(&mut shard.store.take_all());
            }
            (all, state.thread.take())
        };
        self.shared.changed.notify_all();
        all.sort_by_key(|(at, order, _)| (at.is_none(), *at, *order));
        (all.into_iter().map(|(_, _, value)| value).collect(), thread)
    }

    /// As `halt`. When the call returns, the thread has ended, unless it makes the call itself.
    pub(crate) fn stop(&self) -> Vec<T> {
        let (pending, thread) = self.halt();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // Panics of timers are contained, so the thread does not panic.
            let _ = thread.join();
        }
        pending
    }
}

impl<T: Send + 'static> Drop for TimerSet<T> {
    fn drop(&mut self) {
        self.watch.take();
        for value in self.stop() {
            drop_contained(value);
        }
    }
}

impl<T> Shard<T> {
    fn new(last: u64) -> Shard<T> {
        Shard { store: TimerStore::new(last), is_open: false, noted: None, fired: 0 }
    }

    #[inline]
    fn set(&mut self, number: usize, at: Option<Instant>, value: T) -> TimerId {
        let (order, slot) = self.store.set(at, value);
        TimerId { order, place: Place { shard: number as u32, slot } }
    }

    /// Takes a timer out to fire it.
    fn take(&mut self, id: TimerId) -> Option<T> {
        let value = self.store.remove(id.order, id.place.slot)?;
        self.fired += 1;
        Some(value)
    }

    /// Takes the earliest timer out to fire it, if it is due.
    fn pop_due(&mut self, now: Instant) -> Option<T> {
        let value = self.store.pop_due(now)?;
        self.fired += 1;
        Some(value)
    }
}

impl<T: Send + 'static> Shared<T> {
    /// The number of the shard for this caller.
    #[inline]
    fn number(&self, shard: usize) -> usize {
        if shard < self.shards.len() { shard } else { shard % self.shards.len() }
    }

    #[inline]
    fn shard(&self, number: usize) -> BriefGuard<'_, Shard<T>> {
        enter(&self.shards[number].0)
    }

    /// Opens a shard. Returns `None` if the timers have been stopped, or if there is no thread.
    #[cold]
    fn open<'a>(
        self: &'a Arc<Shared<T>>,
        shard: BriefGuard<'a, Shard<T>>,
        number: usize,
    ) -> Option<BriefGuard<'a, Shard<T>>> {
        drop(shard);
        let mut state = lock(&self.state);
        if state.stopped {
            return None;
        }
        if let Err(error) = self.ensure_thread(&mut state) {
            // A subscriber of the log is user code.
            drop(state);
            tell_log(|| tracing::error!(%error, name = self.name, "the timers' thread cannot be started"));
            return None;
        }
        let mut shard = self.shard(number);
        shard.is_open = true;
        Some(shard)
    }

    fn ensure_thread(self: &Arc<Shared<T>>, state: &mut State) -> io::Result<()> {
        if state.thread.is_none() && !self.clock.is_manual() {
            let shared = self.clone();
            let thread = threads::start(self.name.clone(), move || shared.run())?;
            state.thread_id = Some(thread.thread().id());
            state.thread = Some(thread);
        }
        Ok(())
    }

    /// Notes the earliest timer by a manual clock. Returns its moment.
    fn look(&self) -> Option<Instant> {
        let shard = &mut *self.shard(0);
        shard.noted = shard.store.earliest();
        shard.noted
    }

    /// Notifies the thread of a timer, if it would sleep too long, or the clock of a simulation.
    #[cold]
    fn tell(&self, at: Instant) {
        self.clock.timer_set(at);
        let mut state = lock(&self.state);
        if state.sleeps.is_some_and(|Deadline(until)| until.is_none_or(|until| at < until)) {
            // No other thread need notify it of anything later.
            state.sleeps = Some(Deadline(Some(at)));
            drop(state);
            self.changed.notify_one();
        }
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
            let until = self.note(self.clock.now());
            if !until.has_passed(&self.clock) {
                state.sleeps = Some(until);
                state = self.clock.wait(&self.changed, state, until);
                state.sleeps = None;
            }
        }
    }

    /// Notes the earliest timer of each shard. Returns the moment of the earliest of all. The caller has the lock of
    /// the state.
    fn note(&self, now: Instant) -> Deadline {
        let noted = self.shards.iter().filter_map(|shard| {
            let shard = &mut *enter(&shard.0);
            let still_to_come = shard.noted.filter(|noted| *noted > now);
            shard.noted = shard.store.earliest().into_iter().chain(still_to_come).min();
            shard.noted
        });
        Deadline(noted.min())
    }

    /// Fires every timer that is due by the system's clock, one by one, in the order of their moments.
    fn expire(&self) {
        let now = self.clock.now();
        // A timer that is set from now on waits for the next round, if it becomes the earliest of its shard.
        let mut earliest: Vec<_> = (0..self.shards.len()).map(|number| self.shard(number).store.earliest()).collect();
        while let Some((at, number)) = earliest.iter().zip(0..).filter_map(|(at, number)| Some(((*at)?, number))).min()
            && at <= now
        {
            let due = {
                let shard = &mut *self.shard(number);
                let due = shard.pop_due(now);
                earliest[number] = shard.store.earliest();
                due
            };
            due.into_iter().for_each(|value| self.fire(value));
        }
    }

    /// Fires every timer that is due by a manual clock, one by one.
    fn expire_by_manual_clock(&self) {
        lock(&self.state).begin_firing(None);
        loop {
            // A timer that has fired may have moved the clock, and set timers that are due since then.
            let now = self.clock.now();
            let Some(value) = self.shard(0).pop_due(now) else { break };
            self.fire(value);
        }
        lock(&self.state).end_firing();
    }

    /// Fires the earliest timer, if it is due. In a simulation each timer fires by itself.
    fn fire_earliest(&self) {
        let due = self.shard(0).pop_due(self.clock.now());
        due.into_iter().for_each(|value| self.fire(value));
    }

    /// Handles a timer that is due when it is set, with a manual clock.
    ///
    /// Timers of other threads are not fired here, unless this thread is firing. The thread that has moved the clock
    /// fires them before its call returns.
    fn does_at_once(&self, at: Instant, value: T) -> Result<TimerId, T> {
        let mut state = lock(&self.state);
        if state.stopped {
            return Err(value);
        }
        if let Some(firing) = state.firing() {
            let id = self.shard(0).set(0, Some(at), value);
            firing.set.iter_mut().for_each(|set| set.push_back(id));
            return Ok(id);
        }
        state.begin_firing(Some(VecDeque::new()));
        drop(state);
        let (id, mut next) = {
            // No other thread sees this timer.
            let shard = &mut *self.shard(0);
            let id = shard.set(0, Some(at), value);
            (id, shard.take(id))
        };
        while let Some(value) = next {
            self.fire(value);
            next = self.next_set();
        }
        lock(&self.state).end_firing();
        Ok(id)
    }

    /// Returns the next timer that a timer fired by the calling thread has set. Skips timers that were cancelled or
    /// that another thread has fired.
    fn next_set(&self) -> Option<T> {
        let mut state = lock(&self.state);
        let set = state.firing()?.set.as_mut()?;
        std::iter::from_fn(|| set.pop_front()).find_map(|id| self.shard(0).take(id))
    }

    /// Gives a value to the function of the set. No lock is held.
    fn fire(&self, value: T) {
        if let Err(panic) = contain(|| (self.fire)(value)) {
            tell_log(|| tracing::error!(%panic, "a timer's action panicked"));
        }
    }
}

/// State for a manual clock.
impl State {
    fn begin_firing(&mut self, set: Option<VecDeque<TimerId>>) {
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
}

#[cfg(all(test, not(loom)))]
impl<T: Send + 'static> TimerSet<T> {
    /// How often the thread has looked.
    pub(crate) fn rounds(&self) -> usize {
        lock(&self.shared.state).rounds
    }

    /// Until when the thread sleeps, if it does.
    pub(crate) fn sleeps_until(&self) -> Option<Option<Instant>> {
        lock(&self.shared.state).sleeps.map(|Deadline(until)| until)
    }

    /// How many runs by a manual clock have not ended.
    pub(crate) fn firing(&self) -> usize {
        lock(&self.shared.state).firing.len()
    }
}

#[cfg(all(test, loom))]
impl<T: Send + 'static> TimerSet<T> {
    /// Whether the thread is awake, or wakes at this moment at the latest.
    pub(super) fn wakes_by(&self, at: Instant) -> bool {
        lock(&self.shared.state).sleeps.is_none_or(|Deadline(until)| until.is_some_and(|until| until <= at))
    }
}
