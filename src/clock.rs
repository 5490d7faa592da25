//! Clocks: the system's clock, and a manual clock for tests.
//!
//! All timers and limits of this crate are measured by a [`Clock`]. The system's clock runs by itself. A
//! [`ManualClock`] stands still until [`advance`](ManualClock::advance) moves it. When `advance` returns, all timers
//! that became due have fired. So a test of a timeout needs no sleep. Outside tests, no other module of the crate calls
//! `Instant::now`.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use crate::numbered_list::NumberedList;
use crate::primitives::{Arc, Brief, Condvar, MutexGuard, Weak, enter, wait, wait_for, wait_for_clock};

/// The beginning of 2026.
const SIMULATED_EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// The source of time of a runtime, a pool or a timer.
///
/// A clone is cheap, and is the same clock.
///
/// ```
/// use procession::clock::ManualClock;
/// use std::time::Duration;
///
/// let manual = ManualClock::new();
/// let clock = manual.clock();
/// let before = clock.now();
/// manual.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now() - before, Duration::from_secs(3600));
/// ```
#[derive(Clone, Default)]
pub struct Clock {
    manual: Option<Arc<Brief<Manual>>>,
}

impl Clock {
    /// Returns the monotonic clock of the operating system.
    pub fn system() -> Clock {
        Clock { manual: None }
    }

    /// Returns this clock. If it is the system's, and the calling thread runs a simulation, returns the simulation's
    /// clock.
    ///
    /// A latch has no clock, and a token may have the system's. A wait for one of them must drive the simulation
    /// nevertheless: no other thread can end the wait.
    pub(crate) fn here(&self) -> Clock {
        let simulated = if self.manual.is_none() { SIMULATED.with_borrow(Clone::clone) } else { None };
        simulated.unwrap_or_else(|| self.clone())
    }

    /// Marks the calling thread until the guard is dropped: it runs the simulation of this clock.
    pub(crate) fn enter_simulation(self) -> InSimulation {
        InSimulation { before: SIMULATED.replace(Some(self)) }
    }

    /// Returns the present moment.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.manual {
            None => Instant::now(),
            Some(manual) => enter(manual).now,
        }
    }

    /// Whether this clock is that of a [`ManualClock`].
    pub fn is_manual(&self) -> bool {
        self.manual.is_some()
    }

    /// The simulation that this clock belongs to, if it belongs to one.
    pub(crate) fn driver(&self) -> Option<Arc<dyn Drive>> {
        enter(self.manual.as_ref()?).driver.as_ref()?.upgrade()
    }

    /// Whether a simulation decides when each timer fires.
    pub(crate) fn is_driven(&self) -> bool {
        self.manual.as_ref().is_some_and(|manual| enter(manual).driver.is_some())
    }

    /// Tells a simulation that a timer is due at this moment.
    pub(crate) fn timer_set(&self, at: Instant) {
        if let Some(manual) = &self.manual {
            let manual = &mut *enter(manual);
            if manual.driver.is_some() {
                manual.soonest = Some(manual.soonest.map_or(at, |soonest| soonest.min(at)));
            }
        }
    }

    /// The wall-clock time of a simulation, which begins with the year 2026 in each run.
    pub(crate) fn simulated_time(&self) -> Option<SystemTime> {
        let manual = enter(self.manual.as_ref()?);
        manual.driver.as_ref()?;
        Some(SystemTime::UNIX_EPOCH + SIMULATED_EPOCH + manual.now.saturating_duration_since(manual.start))
    }

    /// Whether both are the system's clock, or the same manual clock.
    pub(crate) fn is_same(&self, other: &Clock) -> bool {
        match (&self.manual, &other.manual) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Returns the moment that lies `limit` ahead, or never if no `Instant` can express it.
    pub(crate) fn deadline(&self, limit: Duration) -> Deadline {
        Deadline(self.now().checked_add(limit))
    }

    /// Calls `changed` at each move of a manual clock, until the guard is dropped. The system clock makes no calls: a
    /// wait with it has a limit.
    pub(crate) fn watch(&self, changed: impl Fn() + Send + Sync + 'static) -> ClockWatch {
        self.watch_due(changed, || None, || ())
    }

    /// As `watch`, for a caller that has work at certain moments. `due` returns the next one. A manual clock that
    /// moves stops at each of them. `fire` does the work of the earliest moment, if it has come: a simulation calls it
    /// in the place of `changed`.
    pub(crate) fn watch_due(
        &self,
        changed: impl Fn() + Send + Sync + 'static,
        due: impl Fn() -> Option<Instant> + Send + Sync + 'static,
        fire: impl Fn() + Send + Sync + 'static,
    ) -> ClockWatch {
        ClockWatch {
            entry: self.manual.as_ref().map(|manual| {
                let watcher = Watcher { changed: Arc::new(changed), due: Arc::new(due), fire: Arc::new(fire) };
                let id = enter(manual).watchers.push(watcher);
                (manual.clone(), id)
            }),
        }
    }

    /// Waits on `condvar` until notified, until `deadline`, or until a spurious wakeup. The caller looks again. With
    /// a manual clock the caller must hold a [`ClockWatch`] that locks the same mutex and notifies.
    pub(crate) fn wait<'a, T>(
        &self,
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        deadline: Deadline,
    ) -> MutexGuard<'a, T> {
        match deadline.0 {
            Some(at) if self.manual.is_none() => wait_for(condvar, guard, at.saturating_duration_since(self.now())),
            Some(_) => wait_for_clock(condvar, guard),
            None => wait(condvar, guard),
        }
    }
}

/// A simulation, which goes on while its thread waits.
pub(crate) trait Drive: Send + Sync {
    /// Runs the simulation until `is_over` says so, or until the deadline has passed. Returns whether it is over.
    fn drive(&self, is_over: &mut dyn FnMut() -> bool, deadline: Deadline) -> bool;
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_manual() { "Clock(manual)" } else { "Clock(system)" })
    }
}

thread_local! {
    /// The clock of the simulation that this thread runs.
    static SIMULATED: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// Keeps the calling thread marked as the thread of a simulation, until it is dropped.
pub(crate) struct InSimulation {
    before: Option<Clock>,
}

impl Drop for InSimulation {
    fn drop(&mut self) {
        SIMULATED.set(self.before.take());
    }
}

/// A moment, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(pub(crate) Option<Instant>);

impl Deadline {
    pub(crate) const NEVER: Deadline = Deadline(None);

    pub(crate) fn has_passed(self, clock: &Clock) -> bool {
        self.0.is_some_and(|at| at <= clock.now())
    }
}

/// A clock that the program moves. Clones are the same clock.
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<Brief<Manual>>,
}

impl ManualClock {
    /// Makes a clock that stands at the moment of this call.
    pub fn new() -> ManualClock {
        ManualClock::default()
    }

    /// Returns the clock to pass to a builder.
    pub fn clock(&self) -> Clock {
        Clock { manual: Some(self.shared.clone()) }
    }

    /// Returns the moment at which the clock stands.
    pub fn now(&self) -> Instant {
        enter(&self.shared).now
    }

    /// Moves the clock forward, from one due moment to the next.
    ///
    /// When the call returns, timers that became due have run on this thread, in the order of their moments. Threads
    /// whose limit has passed have been woken. If the clock would pass the greatest `Instant`, it does not move.
    pub fn advance(&self, by: Duration) {
        let Some(end) = self.now().checked_add(by) else { return };
        while let Some(due) = self.next_due().filter(|due| *due < end) {
            self.move_to(due);
        }
        self.move_to(end);
    }

    /// Returns the next moment at which a timer of this clock is due, if any.
    pub fn next_due(&self) -> Option<Instant> {
        self.watchers().iter().filter_map(|watcher| (watcher.due)()).min()
    }

    /// Makes a clock that stands at `now`, and that this simulation drives.
    pub(crate) fn driven(now: Instant, driver: Weak<dyn Drive>) -> ManualClock {
        let driver = Some(driver);
        let manual = Manual { start: now, now, watchers: NumberedList::new(), driver, soonest: None, held: Vec::new() };
        ManualClock { shared: Arc::new(Brief::new(manual)) }
    }

    /// As [`next_due`](Self::next_due), for the thread of a simulation. It must hold no lock of a timer.
    pub(crate) fn next_due_here(&self) -> Option<Instant> {
        enter(&self.shared).next_due()
    }

    /// The number of the next watcher of this clock.
    #[cfg(feature = "cluster")]
    pub(crate) fn next_watcher(&self) -> u64 {
        enter(&self.shared).watchers.next_number()
    }

    /// In a simulation, lets no timer of these watchers be due before this moment.
    #[cfg(feature = "cluster")]
    pub(crate) fn hold(&self, watchers: Range<u64>, until: Instant) {
        let manual = &mut *enter(&self.shared);
        let now = manual.now;
        manual.held.retain(|held| held.until > now);
        manual.held.push(Held { watchers, until });
    }

    /// Ends all holds of these watchers.
    #[cfg(feature = "cluster")]
    pub(crate) fn release(&self, watchers: &Range<u64>) {
        let manual = &mut *enter(&self.shared);
        manual.held.retain(|held| held.watchers != *watchers);
        // One of them may be due.
        manual.soonest = manual.soonest.map(|soonest| soonest.min(manual.now));
    }

    /// The time of a simulation, and whether a timer is due. The calling thread must hold no lock of a timer.
    pub(crate) fn look(&self) -> (Instant, bool) {
        let manual = &mut *enter(&self.shared);
        let now = manual.now;
        let may_be_due = manual.soonest.is_some_and(|soonest| soonest <= now);
        (now, may_be_due && manual.next_due().is_some_and(|due| due <= now))
    }

    /// Moves the time of a simulation to this moment, unless it is past it. Nothing fires.
    pub(crate) fn pass_to(&self, moment: Instant) {
        let manual = &mut *enter(&self.shared);
        manual.now = manual.now.max(moment);
    }

    /// Moves the time of a simulation, and returns it. Nothing fires.
    pub(crate) fn pass(&self, by: Duration) -> Instant {
        let manual = &mut *enter(&self.shared);
        manual.now += by;
        manual.now
    }

    /// Does the work of the earliest moment that has come. Of equal moments the one that was registered first is
    /// earlier.
    pub(crate) fn fire_earliest(&self) {
        let (watchers, held) = {
            let manual = enter(&self.shared);
            let watchers: Vec<_> = manual.watchers.numbered().map(|(number, it)| (number, it.clone())).collect();
            (watchers, manual.held.clone())
        };
        let due = |(number, watcher): &(u64, Watcher)| Some(held_until((watcher.due)()?, *number, &held));
        let earliest = watchers.iter().filter_map(|entry| Some((due(entry)?, &entry.1))).min_by_key(|(due, _)| *due);
        earliest.filter(|(due, _)| *due <= self.now()).into_iter().for_each(|(_, watcher)| (watcher.fire)());
    }

    fn watchers(&self) -> Vec<Watcher> {
        enter(&self.shared).watchers.iter().cloned().collect()
    }

    fn move_to(&self, moment: Instant) {
        {
            let mut state = enter(&self.shared);
            // Another thread may have moved the clock further in the meantime.
            state.now = state.now.max(moment);
        }
        for watcher in self.watchers() {
            (watcher.changed)();
        }
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish()
    }
}

#[derive(Clone)]
struct Watcher {
    changed: Arc<dyn Fn() + Send + Sync>,
    due: Arc<dyn Fn() -> Option<Instant> + Send + Sync>,
    fire: Arc<dyn Fn() + Send + Sync>,
}

struct Manual {
    start: Instant,
    now: Instant,
    watchers: NumberedList<Watcher>,
    driver: Option<Weak<dyn Drive>>,
    /// In a simulation, no timer is due before this moment. `None`: there is none.
    soonest: Option<Instant>,
    /// In a simulation, the watchers whose timers are held up.
    held: Vec<Held>,
}

/// Watchers whose timers are not due before a moment.
#[derive(Clone)]
struct Held {
    watchers: Range<u64>,
    until: Instant,
}

/// The moment at which a timer of this watcher is due, which may be held up.
fn held_until(due: Instant, number: u64, held: &[Held]) -> Instant {
    let ends = held.iter().filter(|held| held.watchers.contains(&number)).map(|held| held.until);
    ends.fold(due, Instant::max)
}

impl Manual {
    /// The next moment at which a timer of a simulation is due, if any.
    fn next_due(&mut self) -> Option<Instant> {
        self.soonest?;
        let dues = self.watchers.numbered().filter_map(|(number, watcher)| Some((number, (watcher.due)()?)));
        self.soonest = dues.map(|(number, due)| held_until(due, number, &self.held)).min();
        self.soonest
    }
}

impl Default for Manual {
    fn default() -> Manual {
        let now = Instant::now();
        Manual { start: now, now, watchers: NumberedList::new(), driver: None, soonest: None, held: Vec::new() }
    }
}

/// Keeps a watcher of a manual clock registered.
pub(crate) struct ClockWatch {
    entry: Option<(Arc<Brief<Manual>>, u64)>,
}

impl Drop for ClockWatch {
    fn drop(&mut self) {
        if let Some((manual, id)) = self.entry.take() {
            let gone = enter(&manual).watchers.remove(id);
            drop(gone);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_manual_clock_stands_still_until_it_is_moved() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let before = clock.now();
        assert_eq!(clock.now(), before);
        manual.advance(Duration::from_millis(7));
        assert_eq!(clock.now(), before + Duration::from_millis(7));
    }

    #[test]
    fn watchers_hear_each_move_and_nothing_after_they_are_dropped() {
        let manual = ManualClock::new();
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let watch = manual.clock().watch(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        manual.advance(Duration::from_secs(1));
        manual.advance(Duration::from_secs(1));
        drop(watch);
        manual.advance(Duration::from_secs(1));
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_greatest_limit_is_never_and_does_not_overflow() {
        let clock = Clock::system();
        assert_eq!(clock.deadline(Duration::MAX), Deadline::NEVER);
        let manual = ManualClock::new();
        let before = manual.now();
        manual.advance(Duration::MAX);
        assert_eq!(manual.now(), before);
    }

    #[test]
    fn a_deadline_passes_at_its_moment_and_not_before() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let deadline = clock.deadline(Duration::from_secs(2));
        manual.advance(Duration::from_millis(1999));
        assert!(!deadline.has_passed(&clock));
        manual.advance(Duration::from_millis(1));
        assert!(deadline.has_passed(&clock));
    }
}
