//! Removes entries whose retention is over: ended processes with their ids and outputs, dead letters, and keys of
//! messages.

use std::collections::HashSet;
use std::time::Duration;

use super::core::{Found, StoreCore};
use super::journal::{Change, JournalError};
use super::rows::{self, DEAD, IDS, KEPT, OLD_KEYS};
use super::tail::{Fate, Life};
use crate::outcome::tell_log;
use crate::primitives::{Arc, lock};
use crate::runtime::{Core, Timed};

/// The number of entries that one read of the tables returns, at most. The lock of the tables is held meanwhile.
const AT_ONCE: usize = 10_000;

/// The shortest pause before the next look. So entries that become due one by one are removed together.
const PAUSE: Duration = Duration::from_secs(1);

impl StoreCore {
    /// Sets the timer that removes old entries, if none is set. Call it when an entry with a retention was added.
    pub(super) fn keep_for_now(&self) {
        if self.sweeps.request()
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

    /// Removes entries whose retention is over, and looks again when the next one is due.
    ///
    /// The tables show a removed entry until the record of the removal is on disk. So a look waits for the records of
    /// the last look. Otherwise it might remove an entry twice, and with it the id of a process that was begun again.
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
        // Before the look: the tables may not have yet the entries that are added from now on.
        self.sweeps.begin();
        match self.remove_all(self.wall_millis()) {
            Ok(Some(next)) => {
                let delay = Duration::from_millis(next.saturating_sub(self.wall_millis()));
                self.sweep_in(&core, delay);
            }
            Ok(None) => {
                if self.sweeps.end() {
                    self.sweep_in(&core, Duration::from_millis(self.keep));
                }
            }
            Err(error) => {
                tell_log(|| tracing::error!(%error, "old entries of a store cannot be removed now"));
                self.sweep_in(&core, PAUSE);
            }
        }
    }

    /// Removes all entries that are due now. Returns the time at which the next one is due.
    fn remove_all(&self, now: u64) -> Result<Option<u64>, JournalError> {
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
                self.remove(change);
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

    /// When the next entry is due, at this time or later.
    fn next_of_all(&self, from: u64) -> Result<Option<u64>, JournalError> {
        let mut tables = lock(&self.tables);
        let Some((_, reader)) = tables.as_mut() else { return Err(JournalError::Broken) };
        let page = reader.due(from.max(1), i64::MAX as u64, AT_ONCE)?;
        let next = page.iter().find(|(_, _, class, _)| is_kept(*class));
        // If there are so many timers before it, the look is repeated after them.
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
