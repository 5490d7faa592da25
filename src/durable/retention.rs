//! Removes what is kept no longer: processes that have ended, with their ids and outputs, and dead letters.

use std::collections::HashSet;
use std::time::Duration;

use super::core::{Found, StoreCore};
use super::journal::{Change, JournalError};
use super::rows::{self, DEAD, IDS, KEPT, OLD_KEYS};
use super::tail::{Fate, Life};
use crate::outcome::tell_log;
use crate::primitives::{Arc, Ordering, lock};
use crate::runtime::{Core, Timed};

/// How many entries are looked at in one reading.
const AT_ONCE: usize = 10_000;

/// The pause before the next look, at least.
const PAUSE: Duration = Duration::from_secs(1);

/// No timer is set.
pub(super) const NONE: usize = 0;
/// A timer is set, or a look goes on.
const SET: usize = 1;
/// As `SET`, and something was added since the last look began.
const AGAIN: usize = 2;

impl StoreCore {
    /// Has things removed when their time is over. Something was added that is kept for the time of the store.
    pub(super) fn keep_for_now(&self) {
        if self.sweeps.load(Ordering::Acquire) != AGAIN
            && self.sweeps.swap(AGAIN, Ordering::AcqRel) == NONE
            && let Some(core) = self.core()
        {
            self.sweep_in(&core, Duration::from_millis(self.keep));
        }
    }

    fn sweep_in(&self, core: &Arc<Core>, delay: Duration) {
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        let sweep = move || {
            let Some(core) = weak.upgrade() else { return };
            let Some(me) = me.upgrade() else { return };
            let sweeps = me.clone();
            me.in_pool(&core, move || sweeps.sweep());
        };
        drop(core.timers.after(0, delay.max(PAUSE), Timed::Run(Box::new(sweep))).map(|key| key.map(drop)));
    }

    /// Removes what is kept no longer, and looks again when the next thing is over.
    ///
    /// The tables show what was removed until the records of that are on disk. So a look waits for those of the last
    /// one. Otherwise it might remove something twice, and with it the id of a process that was begun again.
    pub(super) fn sweep(&self) {
        let Some(core) = self.core() else { return };
        let swept = *lock(&self.swept);
        if let Some((life, position)) =
            swept.filter(|(life, at)| *life == self.tail.life() && *at > self.tail.released())
        {
            let (me, weak) = (self.me.clone(), Arc::downgrade(&core));
            let sweep = move |fate| {
                if let (Some(me), Some(core)) = (me.upgrade().filter(|_| fate != Fate::Unknown), weak.upgrade()) {
                    me.clone().in_pool(&core, move || me.sweep());
                }
            };
            return self.tail.when_released(life, position, sweep);
        }
        // Before the look: the tables may not have yet what is added from now on.
        self.sweeps.store(SET, Ordering::Release);
        match self.remove_all(self.wall_millis()) {
            Ok(Some(next)) => {
                let delay = Duration::from_millis(next.saturating_sub(self.wall_millis()));
                self.sweep_in(&core, delay);
            }
            Ok(None) => {
                let ended = self.sweeps.compare_exchange(SET, NONE, Ordering::AcqRel, Ordering::Acquire);
                if ended.is_err() {
                    self.sweep_in(&core, Duration::from_millis(self.keep));
                }
            }
            Err(error) => {
                tell_log(|| tracing::error!(%error, "what a store keeps no longer cannot be removed now"));
                self.sweep_in(&core, PAUSE);
            }
        }
    }

    /// Removes everything that is over. Returns the time at which the next thing is.
    fn remove_all(&self, now: u64) -> Result<Option<u64>, JournalError> {
        // Nothing is removed behind a rewind that was read before it.
        let life = self.tail.life();
        self.apply()?;
        let (mut from, mut limit) = (1, AT_ONCE);
        // Two pages may have the same entries.
        let mut removed = HashSet::new();
        loop {
            let (page, changes) = {
                let mut tables = lock(&self.tables);
                let Some((_, reader)) = tables.as_mut() else { return Err(JournalError::Broken) };
                let page = reader.due(from, now, limit)?;
                let mut changes = Vec::new();
                for (_, serial, class, number) in &page {
                    if is_kept(*class) && !removed.insert((*serial, *class, *number)) {
                        continue;
                    }
                    match *class {
                        DEAD => changes.push(vec![rows::answered(*serial, DEAD, *number)]),
                        OLD_KEYS => {
                            let found = reader.of_class(OLD_KEYS, (*serial, number.saturating_sub(1)), 1)?;
                            let found = found.iter().filter(|(_, found, _)| found == number);
                            changes.extend(found.map(|(_, number, row)| rows::old_key(*number, row)));
                        }
                        KEPT => {
                            let loaded = reader.load(*serial);
                            let found = match loaded.and_then(|stored| Found::of(*serial, Life::FIRST, stored)) {
                                // A damaged process stays, and keeps no other.
                                Err(JournalError::Damaged(_)) => continue,
                                found => found?,
                            };
                            changes
                                .push(found.map_or(vec![rows::answered(*serial, KEPT, *number)], |found| gone(&found)));
                        }
                        _ => {}
                    }
                }
                (page, changes)
            };
            for change in changes {
                self.forget_kept(&change);
                self.remove_in(life, change);
            }
            match page.last() {
                Some((last, ..)) if page.len() == limit && *last == from => limit *= 2,
                Some((last, ..)) if page.len() == limit => from = *last,
                _ => break,
            }
        }
        if !removed.is_empty() {
            *lock(&self.swept) = Some(self.tail.end());
        }
        self.next_of_all(now + 1)
    }

    /// An id that was removed can be begun again.
    fn forget_kept(&self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Name { class: IDS, name, .. } => drop(lock(&self.ids).remove(name)),
                Change::Name { name, .. } => self.keys.forget(name),
                _ => {}
            }
        }
    }

    /// When the next thing is over, at this time or later.
    fn next_of_all(&self, from: u64) -> Result<Option<u64>, JournalError> {
        let mut tables = lock(&self.tables);
        let Some((_, reader)) = tables.as_mut() else { return Err(JournalError::Broken) };
        let page = reader.due(from.max(1), i64::MAX as u64, AT_ONCE)?;
        let next = page.iter().find(|(_, _, class, _)| is_kept(*class));
        // If there are so many timers before it, the look is repeated behind them.
        let last = page.last().filter(|_| page.len() == AT_ONCE);
        Ok(next.or(last).map(|(at, ..)| *at))
    }
}

/// Whether entries of this class are removed when they are due.
fn is_kept(class: u8) -> bool {
    matches!(class, DEAD | KEPT | OLD_KEYS)
}

/// The rows of a process that has ended are removed, with its id.
fn gone(found: &Found) -> Vec<Change> {
    let serial = found.serial;
    let mut changes = vec![Change::Process { serial, row: None }];
    changes.extend(found.head.id.clone().map(|name| Change::Name { class: IDS, name, row: None }));
    changes.extend(found.entries.iter().map(|(class, number)| rows::answered(serial, *class, *number)));
    changes
}
