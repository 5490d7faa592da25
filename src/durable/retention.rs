//! Removes entries whose retention is over: ended processes with their ids and outputs, dead letters, and keys of
//! messages.

use std::collections::HashSet;
use std::time::Duration;

use super::core::{Found, StoreCore};
use super::journal::{Change, JournalError, Position};
use super::query::Sink;
use super::rows::{self, DEAD, IDS, KEPT, OLD_KEYS};
use super::tail::{Fate, Life};
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, lock};
use crate::runtime::{Core, Timed};

/// The number of entries that one read of the tables returns, at most. The lock of the tables is held meanwhile.
const AT_ONCE: usize = 10_000;

/// The shortest pause before the next look. So entries that become due one by one are removed together.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause before a process is given to the sink again that the sink has not taken.
const SINK_PAUSE: Duration = Duration::from_secs(60);

/// Why something is not removed that is over.
enum NotRemoved {
    /// The tables cannot be read.
    Tables(JournalError),
    /// The sink has not taken it, or its messages become dead letters now.
    Later,
}

impl From<JournalError> for NotRemoved {
    fn from(error: JournalError) -> NotRemoved {
        NotRemoved::Tables(error)
    }
}

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
        // Before the look: the tables may not have yet the entries that are added from now on, or are not on disk.
        self.sweeps.begin();
        let has_newer = self.tail.end().1 > self.tail.released();
        match self.remove_all(self.wall_millis()) {
            Ok(Some(next)) => {
                // An earlier run may have kept more for longer.
                let delay = Duration::from_millis(next.saturating_sub(self.wall_millis()).min(self.keep));
                self.sweep_in(&core, delay);
            }
            Ok(None) => {
                if has_newer || self.sweeps.end() {
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
        // Nothing is removed after a rewind that was read before it.
        let life = self.tail.life();
        self.apply()?;
        let (mut from, mut limit, mut is_left) = (1, AT_ONCE, false);
        // Two pages may have the same entries.
        let mut removed = HashSet::new();
        loop {
            let page = self.with_tables(|_, reader| reader.due(from, now, limit))?;
            for (_, serial, class, number) in &page {
                if is_kept(*class) && !removed.insert((*serial, *class, *number)) {
                    continue;
                }
                match self.removal((*serial, *class, *number)) {
                    Ok(Some(change)) => {
                        self.forget_kept(&change);
                        self.remove_in(life, change);
                    }
                    Ok(None) => {}
                    Err(NotRemoved::Tables(error)) => return Err(error),
                    Err(NotRemoved::Later) => is_left = true,
                }
            }
            match page.last() {
                Some((last, ..)) if page.len() == limit && *last == from => limit *= 2,
                Some((last, ..)) if page.len() == limit => from = *last,
                _ => break,
            }
        }
        if !removed.is_empty() {
            let (life, position) = self.tail.end();
            *lock(&self.swept) = Some((life, position));
            self.apply_later(life, position);
        }
        let next = self.next_of_all(now + 1)?;
        let again = is_left.then(|| now.saturating_add(SINK_PAUSE.as_millis() as u64));
        Ok(next.into_iter().chain(again).min())
    }

    /// Brings the tables up to the log when this record is on disk. So ids and keys that it removes are free.
    fn apply_later(&self, life: Life, position: Position) {
        let me = self.me.clone();
        self.tail.when_released(life, position, move |fate| {
            let me = me.upgrade().filter(|_| fate == Fate::Released);
            if let Some((me, core)) = me.and_then(|me| Some((me.clone(), me.core()?))) {
                me.clone().in_pool(&core, move || drop(me.apply()));
            }
        });
    }

    /// The changes that remove something that is over. `None` if it stays, or is removed already.
    fn removal(&self, (serial, class, number): (u64, u8, u64)) -> Result<Option<Vec<Change>>, NotRemoved> {
        if class == DEAD {
            return Ok(Some(vec![rows::answered(serial, DEAD, number)]));
        }
        if class == OLD_KEYS {
            return match self.with_tables(|_, reader| reader.entry(serial, class, number)) {
                // A damaged one stays, and keeps no other.
                Err(JournalError::Damaged(_)) => Ok(None),
                found => Ok(found?.map(|row| rows::old_key(number, &row))),
            };
        }
        if class != KEPT {
            return Ok(None);
        }
        // So that no message is counted twice.
        let buried = self.residency.buries(serial);
        let stored = self.with_tables(|_, reader| reader.load(serial));
        let found = match stored.and_then(|stored| Found::of(serial, Life::FIRST, stored)) {
            // As above.
            Err(JournalError::Damaged(_)) => return Ok(None),
            found => found?,
        };
        let Some(found) = found else { return Ok(Some(vec![rows::answered(serial, KEPT, number)])) };
        let changes = gone(&found);
        let has_mail = found.entries.iter().any(|(class, _)| *class == rows::MAIL);
        if has_mail && (buried || self.residency.buries(serial)) {
            return Err(NotRemoved::Later);
        }
        match &self.sink {
            Some(sink) if !self.gives(sink, found) => Err(NotRemoved::Later),
            _ => Ok(Some(changes)),
        }
    }

    /// Gives a process that is about to be removed to the sink. Returns whether the sink has it.
    fn gives(&self, sink: &Sink, found: Found) -> bool {
        let shown = match self.viewer().shown(found) {
            Ok(shown) => shown,
            Err(error) => {
                tell_log(|| tracing::error!(%error, "a process that is kept no longer cannot be shown to the sink"));
                return false;
            }
        };
        let pid = shown.listed.pid;
        let result = contain(|| sink(&shown)).unwrap_or_else(|panic| Err(Box::new(panic)));
        if let Err(error) = &result {
            tell_log(|| tracing::error!(%pid, %error, "the sink has not taken a process, which stays"));
        }
        result.is_ok()
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
        let page = self.with_tables(|_, reader| reader.due(from.max(1), i64::MAX as u64, AT_ONCE))?;
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

/// The rows of a process that has ended are removed, with its id. Its dead letters and the keys of its messages have
/// times of their own.
fn gone(found: &Found) -> Vec<Change> {
    let serial = found.serial;
    let mut changes = vec![Change::Process { serial, row: None }];
    changes.extend(found.head.id.clone().map(|name| Change::Name { class: IDS, name, row: None }));
    let entries = found.entries.iter().filter(|(class, _)| !matches!(*class, DEAD | OLD_KEYS));
    changes.extend(entries.map(|(class, number)| rows::answered(serial, *class, *number)));
    // No run has made dead letters of them.
    let mail = found.entries.iter().filter(|(class, _)| *class == rows::MAIL);
    changes.extend(mail.map(|(_, number)| rows::unstored(serial, *number)));
    changes
}
