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
        let due = match lock(&self.tables).as_mut() {
            Some((_, reader)) => reader.due(1, i64::MAX as u64, TIMERS_AT_ONCE),
            None => Err(JournalError::Broken),
        };
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                tell_log(|| tracing::error!(%error, "the timers of a store cannot be read, and are read again"));
                return self.watch_at(&core, core.road.clock.now() + WATCH_AGAIN);
            }
        };
        // Before the look at the wall clock: if time passes in between, the next look comes too early, not too late.
        let begin = core.road.clock.now();
        let now = self.wall_millis();
        let is_full = due.len() == TIMERS_AT_ONCE;
        let last = due.last().map(|(at, ..)| *at).filter(|_| is_full);
        // A resident has set its timers itself.
        let mut sleepers =
            due.into_iter().filter(|(_, serial, class, _)| is_timer(*class) && !self.residency.is_in_memory(*serial));
        let next = sleepers.find_map(|(at, serial, ..)| {
            if at <= now {
                self.wake(&core, serial);
            }
            (at > now).then_some(at)
        });
        if let Some(at) = next.or(last) {
            // If so many are overdue, their processes are parked, or about to take them.
            let delay = Duration::from_millis(at.saturating_sub(now));
            let delay = if delay.is_zero() { WATCH_AGAIN } else { delay };
            if let Some(at) = begin.checked_add(delay) {
                self.watch_at(&core, at);
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
        let (life, now, mut next) = (self.tail.life(), self.wall_millis(), None);
        let (mut unread, mut failed) = (Vec::new(), None);
        for serial in serials {
            match self.next_due(serial) {
                Ok(Some(due)) if due <= now => self.wake(&core, serial),
                Ok(due) => next = next.into_iter().chain(due).min(),
                // A load of it says so.
                Err(JournalError::Damaged(_)) => self.wake(&core, serial),
                Err(error) => {
                    unread.push(serial);
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed {
            self.tail.reopen(life, &error);
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
        let mut tables = lock(&self.tables);
        let Some((tables, reader)) = tables.as_mut() else { return Err(JournalError::Broken) };
        // Records of this run may be only in the log.
        let applied = tables.apply(self.tail.released())?;
        self.note_applied(applied);
        let entries = reader.entries(serial)?;
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
        let mut serials = Vec::new();
        {
            let mut tables = lock(&self.tables);
            let Some((_, reader)) = tables.as_mut() else { return Err(JournalError::Broken) };
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
            serials
                .extend(reader.due(0, self.wall_millis(), usize::MAX >> 1)?.into_iter().map(|(_, serial, ..)| serial));
        }
        serials.sort_unstable();
        serials.dedup();
        serials.into_iter().for_each(|serial| self.wake(&core, serial));
        self.watch_timers();
        self.sweep();
        Ok(())
    }
}

/// Whether a process is loaded when an entry of this class is due.
fn is_timer(class: u8) -> bool {
    matches!(class, rows::TIMERS | rows::COMMANDS | rows::REQUESTS)
}
