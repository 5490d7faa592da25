//! How long processes in memory have rested, and how many there may be.

use std::time::{Duration, Instant};

use super::look_flag::LookFlag;
use crate::primitives::{Arc, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering, lock};
use crate::runtime::{Core, Timed};
use crate::timer::TimerId;

/// How many processes may be in memory, unless the program says otherwise.
const MAX_RESIDENT: usize = 100_000;

/// A time that does not come. As a `limit`: the process stays in memory. As `asked`: it was not asked to leave yet.
const NEVER: u64 = u64::MAX;

/// When processes leave memory, as the program has said.
#[derive(Clone, Debug)]
pub(super) struct MemoryLimits {
    /// Processes that have rested for so long leave. `None` if they stay.
    pub(super) sleep_after: Option<Duration>,
    pub(super) max_resident: usize,
    /// The shortest time of a kind.
    shortest: Option<Duration>,
}

impl Default for MemoryLimits {
    fn default() -> MemoryLimits {
        MemoryLimits { sleep_after: None, max_resident: MAX_RESIDENT, shortest: None }
    }
}

impl MemoryLimits {
    /// Notes the time of a kind.
    pub(super) fn note_kind(&mut self, sleep_after: Option<Duration>) {
        self.shortest = self.shortest.into_iter().chain(sleep_after).min();
    }
}

/// How long a process in memory has rested. Times are microseconds since the store was started.
pub(super) struct Rest {
    /// When it did something last.
    since: AtomicU64,
    /// The value of `since` for which it was asked to leave.
    asked: AtomicU64,
    /// For how long it rests before it is asked.
    limit: AtomicU64,
}

impl Default for Rest {
    fn default() -> Rest {
        Rest { since: AtomicU64::new(0), asked: AtomicU64::new(NEVER), limit: AtomicU64::new(NEVER) }
    }
}

impl Rest {
    /// The process comes into memory.
    pub(super) fn set_limit(&self, limit: Option<Duration>) {
        // Ordering: Relaxed: under the lock of the residence, which every reader takes.
        self.limit.store(limit.map_or(NEVER, micros), Ordering::Relaxed);
    }

    fn has_limit(&self) -> bool {
        self.limit.load(Ordering::Relaxed) < NEVER
    }

    /// Since when it has rested, unless it was asked to leave since then.
    pub(super) fn since(&self) -> Option<u64> {
        // Ordering: Relaxed: the mark of the look orders it, see `Keeper::active`.
        let since = self.since.load(Ordering::Relaxed);
        (self.asked.load(Ordering::Relaxed) != since).then_some(since)
    }

    /// It is asked to leave, because it has rested since this time.
    pub(super) fn note_asked(&self, since: u64) {
        self.asked.store(since, Ordering::Relaxed);
    }

    /// Since when it has rested, and when it is to be asked to leave, if it rests until then.
    pub(super) fn due(&self) -> Option<(u64, u64)> {
        let limit = self.limit.load(Ordering::Relaxed);
        let since = self.since().filter(|_| limit < NEVER)?;
        Some((since, since.saturating_add(limit)))
    }
}

/// A process that leaves memory to sleep.
pub(super) struct Sleeper {
    /// Whether it has entries that are due at some time.
    pub(super) has_times: bool,
}

/// Counts the processes in memory, and says when to look for those that may leave.
pub(super) struct Keeper {
    pub(super) limits: MemoryLimits,
    start: OnceLock<Instant>,
    residents: AtomicUsize,
    /// Processes that have left memory since the runtime began to shut down, and have not ended.
    at_end: AtomicUsize,
    /// How often a process has come into memory.
    stays: AtomicU64,
    idle_look: LookFlag,
    room_look: LookFlag,
    /// Processes that have fallen asleep, and whose timers were not looked at since.
    pub(super) asleep: Mutex<Vec<u64>>,
}

impl Keeper {
    pub(super) fn new(mut limits: MemoryLimits) -> Keeper {
        limits.note_kind(limits.sleep_after);
        Keeper {
            limits,
            start: OnceLock::new(),
            residents: AtomicUsize::new(0),
            at_end: AtomicUsize::new(0),
            stays: AtomicU64::new(0),
            idle_look: LookFlag::new(),
            room_look: LookFlag::new(),
            asleep: Mutex::default(),
        }
    }

    /// The time of this moment, in microseconds.
    pub(super) fn now(&self, core: &Core) -> u64 {
        let now = core.road.clock.now();
        micros(now.saturating_duration_since(*self.start.get_or_init(|| now)))
    }

    /// A process has come into memory.
    pub(super) fn came(&self) {
        // Ordering: Relaxed: it is a count.
        self.residents.fetch_add(1, Ordering::Relaxed);
        self.stays.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of processes in memory.
    pub(super) fn residents(&self) -> usize {
        self.residents.load(Ordering::Relaxed)
    }

    pub(super) fn stays(&self) -> u64 {
        self.stays.load(Ordering::Relaxed)
    }

    /// A process is out of memory.
    pub(super) fn left(&self) {
        self.residents.fetch_sub(1, Ordering::Relaxed);
    }

    /// A process has left memory because the runtime shuts down.
    pub(super) fn left_at_end(&self) {
        self.at_end.fetch_add(1, Ordering::Relaxed);
    }

    /// How many have. The processes have ended, which orders it.
    pub(super) fn asleep_at_end(&self) -> usize {
        self.at_end.load(Ordering::Relaxed)
    }

    /// A process did something. Returns the time until the next look for those that have rested long enough, if this
    /// thread is to set it.
    pub(super) fn active(&self, rest: &Rest, now: u64) -> Option<Duration> {
        rest.since.store(now, Ordering::Relaxed);
        // Ordering: `set` is AcqRel, with the swap of `begin_idle_look`. If that one comes later, its look finds this
        // time. If it comes first, this thread finds that no look is set.
        let is_first = rest.has_limit() && self.idle_look.set();
        is_first.then_some(self.limits.shortest).flatten()
    }

    /// A look begins. Processes that do something from now on set the next one.
    pub(super) fn begin_idle_look(&self) {
        self.idle_look.clear();
    }

    /// Whether this thread is to set the next look.
    pub(super) fn sets_idle_look(&self) -> bool {
        self.idle_look.set()
    }

    /// Whether there are too many processes, and this thread is to look for some that may leave.
    pub(super) fn looks_for_room(&self) -> bool {
        // Ordering: Relaxed: each process that does something asks.
        self.residents.load(Ordering::Relaxed) > self.limits.max_resident && self.room_look.request()
    }

    pub(super) fn begin_room_look(&self) {
        self.room_look.begin();
    }

    /// A look is over. Returns whether there is to be another one.
    pub(super) fn end_room_look(&self) -> bool {
        self.room_look.end()
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(NEVER)
}

/// A timer of the runtime that is set for the earliest of all the times that were asked for.
#[derive(Default)]
pub(super) struct Earliest {
    set: Mutex<SetTimer>,
}

#[derive(Default)]
struct SetTimer {
    /// How many timers were set.
    number: u64,
    /// The last one, until it rings.
    last: Option<(Instant, Option<TimerId>)>,
}

impl Earliest {
    /// Has `run` called at this time, or at an earlier one. It is given the number of the timer.
    pub(super) fn at(&self, core: &Arc<Core>, at: Instant, run: impl FnOnce(u64) + Send + 'static) {
        let mut set = lock(&self.set);
        if set.last.is_some_and(|(earlier, _)| earlier <= at) {
            return;
        }
        set.number += 1;
        let number = set.number;
        // Without timers the runtime is shutting down.
        let key = core.timers.at(0, at, Timed::Run(Box::new(move || run(number)))).map_err(drop);
        let before = set.last.replace((at, key.ok().map(|key| key.id())));
        drop(set);
        if let Some(timer) = before.and_then(|(_, timer)| timer) {
            drop(core.timers.cancel(timer));
        }
    }

    /// The timer with this number has rung. Returns whether it is the last one that was set.
    pub(super) fn rings(&self, number: u64) -> bool {
        let mut set = lock(&self.set);
        let is_last = set.number == number;
        if is_last {
            set.last = None;
        }
        is_last
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Fails if the look reads the times first, or if a process looks for the mark first.
    #[test]
    fn a_process_that_does_something_during_a_look_has_another_look_set() {
        loom::model(|| {
            let limits = MemoryLimits { sleep_after: Some(Duration::from_micros(5)), ..MemoryLimits::default() };
            let both = Arc::new((Keeper::new(limits), Rest::default()));
            both.1.set_limit(Some(Duration::from_micros(5)));
            // The look of time 8 is set.
            assert!(both.0.active(&both.1, 3).is_some());
            let active = both.clone();
            let active = loom::thread::spawn(move || active.0.active(&active.1, 7).is_some());
            both.0.begin_idle_look();
            let looks_again = match both.1.due() {
                Some((since, due)) if due <= 8 => {
                    both.1.note_asked(since);
                    false
                }
                due => due.is_some() && both.0.sets_idle_look(),
            };
            let has_set = active.join().unwrap();
            assert!(looks_again || has_set, "it is asked when it has rested since 7");
            assert_eq!(both.1.due(), Some((7, 12)));
        });
    }
}
