//! Loads the processes of a store that have something to do, at the start and when their timers are due.

use std::time::{Duration, Instant};

use super::core::{RELOAD, StoreCore};
use super::journal::{JournalError, Status};
use super::residency::Place;
use super::rows;
use crate::outcome::tell_log;
use crate::primitives::{Arc, lock};
use crate::runtime::{Core, Timed};

/// How many processes are read at once when a store is started.
const PAGE: usize = 1_000;

/// How many timers are looked at, to find the next one of a process that is asleep.
const TIMERS_AT_ONCE: usize = 10_000;

/// The pause before timers that could not be read are read again.
const WATCH_AGAIN: Duration = Duration::from_secs(1);

impl StoreCore {
    /// Loads the processes whose timers are due, and sets a timer for the next one that is asleep.
    pub(super) fn watch_timers(&self) {
        let Some(core) = self.core() else { return };
        // Before the look at the wall clock: if time passes in between, the next look comes too early, not too late.
        let begin = core.road.clock.now();
        let now = self.wall_millis();
        match self.wake_due(&core, now) {
            Ok(Some(next)) => {
                if let Some(at) = begin.checked_add(Duration::from_millis(next.saturating_sub(now))) {
                    self.watch_at(&core, at);
                }
            }
            Ok(None) => {}
            Err(error) => {
                tell_log(|| tracing::error!(%error, "the timers of a store cannot be read, and are read again"));
                self.watch_at(&core, begin + WATCH_AGAIN);
            }
        }
    }

    /// Loads the processes that sleep and whose timers are due. Returns when the next one is due.
    fn wake_due(&self, core: &Arc<Core>, now: u64) -> Result<Option<u64>, JournalError> {
        let (mut from, mut limit) = (1, TIMERS_AT_ONCE);
        loop {
            let page = self.with_tables(|_, reader| reader.due(from, i64::MAX as u64, limit))?;
            // A resident has set its timers itself. A process that is parked takes them when it goes on.
            let mut sleepers =
                page.iter().filter(|(_, serial, class, _)| is_timer(*class) && !self.residency.is_in_memory(*serial));
            let next = sleepers.find_map(|(at, serial, ..)| {
                if *at <= now {
                    self.wake(core, *serial);
                }
                (*at > now).then_some(*at)
            });
            match page.last() {
                _ if next.is_some() => return Ok(next),
                // So many are due at one time that a page has no others.
                Some((last, ..)) if page.len() == limit && *last == from => limit *= 2,
                Some((last, ..)) if page.len() == limit => from = *last,
                _ => return Ok(None),
            }
        }
    }

    /// Has the timers looked at, at this time at the latest.
    fn watch_at(&self, core: &Arc<Core>, at: Instant) {
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        self.next_timer.at(core, at, move |number| {
            let Some(core) = weak.upgrade() else { return };
            let Some(me) = me.upgrade() else { return };
            let watches = me.clone();
            let watch = move || {
                if watches.next_timer.rings(number) {
                    watches.watch_timers();
                }
            };
            me.in_pool(&core, watch);
        });
    }

    /// Looks at the timers of a process that has fallen asleep.
    pub(super) fn watch_timers_of(&self, serial: u64) {
        let Some(core) = self.core() else { return };
        let is_first = {
            let mut asleep = lock(&self.keeper.asleep);
            asleep.push(serial);
            asleep.len() == 1
        };
        if is_first {
            let me = self.me.clone();
            self.in_pool(&core, move || me.upgrade().into_iter().for_each(|me| me.watch_sleepers()));
        }
    }

    /// Looks at the timers of those that have fallen asleep since.
    fn watch_sleepers(&self) {
        let Some(core) = self.core() else { return };
        let serials = std::mem::take(&mut *lock(&self.keeper.asleep));
        let begin = core.road.clock.now();
        let (now, mut next) = (self.wall_millis(), None);
        let mut unread = Vec::new();
        for serial in serials {
            match self.next_due(serial) {
                Ok(Some(due)) if due <= now => self.wake(&core, serial),
                Ok(due) => next = next.into_iter().chain(due).min(),
                // A load of it says so.
                Err(JournalError::Damaged(_)) => self.wake(&core, serial),
                Err(_) => unread.push(serial),
            }
        }
        if !unread.is_empty() {
            self.watch_sleepers_again(&core, unread);
        }
        let delay = next.map(|next| Duration::from_millis(next.saturating_sub(now)));
        if let Some(at) = delay.and_then(|delay| begin.checked_add(delay)) {
            self.watch_at(&core, at);
        }
    }

    /// The tables have failed, and may have timers only in the log. Looks again when the journal was opened anew.
    fn watch_sleepers_again(&self, core: &Arc<Core>, unread: Vec<u64>) {
        lock(&self.keeper.asleep).extend(unread);
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        let again = move || {
            if let (Some(me), Some(core)) = (me.upgrade(), weak.upgrade()) {
                let watches = me.clone();
                me.in_pool(&core, move || watches.watch_sleepers());
            }
        };
        drop(core.timers.after(0, RELOAD, Timed::Run(Box::new(again))).map(|key| key.map(drop)));
    }

    /// When the first entry of a process is due.
    fn next_due(&self, serial: u64) -> Result<Option<u64>, JournalError> {
        // Records of this run may be only in the log.
        let entries = self.with_tables(|tables, reader| {
            self.catch_up(tables)?;
            reader.entries(serial)
        })?;
        let dues = entries.into_iter().filter(|(class, ..)| is_timer(*class)).filter_map(|(_, _, row)| row.due);
        Ok(dues.min())
    }

    /// Loads a process, if it is asleep.
    fn wake(&self, core: &Arc<Core>, serial: u64) {
        let loads = self.residency.enter(serial, |residence| {
            let is_asleep = matches!(residence.place, Place::Asleep);
            if is_asleep {
                residence.place = Place::Loading;
            }
            is_asleep
        });
        if loads {
            self.start_load(core, serial);
        }
    }

    /// Loads all processes that have something to do.
    pub(super) fn load_ready(&self) -> Result<(), JournalError> {
        let Some(core) = self.core() else { return Ok(()) };
        // The sweep below is this one.
        self.sweeps.request();
        let mut serials = self.with_tables(|_, reader| {
            let mut serials = Vec::new();
            loop {
                let after = serials.last().copied().unwrap_or_default();
                let page = reader.with_status(Some(Status::Ready), after, PAGE)?;
                let is_last = page.len() < PAGE;
                serials.extend(page);
                if is_last {
                    break;
                }
            }
            // Messages are due from the beginning.
            let due = reader.due(0, self.wall_millis(), usize::MAX >> 1)?;
            serials.extend(due.into_iter().map(|(_, serial, ..)| serial));
            Ok(serials)
        })?;
        serials.sort_unstable();
        serials.dedup();
        let (processes, last) = (serials.len(), self.tail.released().0);
        tell_log(|| tracing::info!(processes, last, "a store is open, and loads the processes that go on at once"));
        // First, because the loads of many processes have the tables for a long time, and an opening does not wait for
        // that.
        self.watch_timers();
        self.sweep();
        serials.into_iter().for_each(|serial| self.wake(&core, serial));
        Ok(())
    }
}

/// Whether a process is loaded when an entry of this class is due.
fn is_timer(class: u8) -> bool {
    matches!(class, rows::TIMERS | rows::COMMANDS | rows::QUESTIONS | rows::REQUESTS)
}
