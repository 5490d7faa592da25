//! The timers of one process, by their tags. They are needed to cancel a timer, and at the end of the process.

use std::time::Instant;

use crate::timer::TimerKey;

/// As many timers are recorded before any is looked at again.
const FEW: usize = 4;

/// The pending timers of a process, and some that have gone.
///
/// A process gives its tags out in ascending order, so the records are sorted.
#[derive(Default)]
pub(crate) struct TimerRecords {
    all: Vec<Record>,
    /// The number of records at which to remove those of timers that have gone.
    full: usize,
}

struct Record {
    tag: u64,
    timer: Recorded,
}

enum Recorded {
    Cancelled,
    /// It is never due.
    Never,
    /// It may have fired.
    At(TimerKey),
}

impl TimerRecords {
    /// Records a timer that was set. A timer that is never due has no key. Now and then the timers that are due are
    /// removed.
    ///
    /// So a process that sets timers for ever does not record them for ever. The cost for each timer is constant.
    pub(crate) fn note(&mut self, tag: u64, key: Option<TimerKey>, now: impl FnOnce() -> Instant) {
        if self.all.len() >= self.full {
            self.forget_due(now);
        }
        self.all.push(Record { tag, timer: key.map_or(Recorded::Never, Recorded::At) });
    }

    #[inline(never)]
    fn forget_due(&mut self, now: impl FnOnce() -> Instant) {
        if !self.all.is_empty() {
            let now = now();
            self.all.retain(|record| match record.timer {
                Recorded::Cancelled => false,
                Recorded::Never => true,
                Recorded::At(key) => key.moment() > now,
            });
        }
        self.full = (2 * self.all.len()).max(FEW);
        self.all.shrink_to(self.full);
    }

    /// Removes the record of a timer that is to be cancelled. It may have fired.
    pub(crate) fn remove(&mut self, tag: u64) -> Option<Option<TimerKey>> {
        let place = self.all.binary_search_by_key(&tag, |record| record.tag).ok()?;
        let found = std::mem::replace(&mut self.all.get_mut(place)?.timer, Recorded::Cancelled);
        // Most timers that are cancelled are the newest.
        while self.all.pop_if(|last| matches!(last.timer, Recorded::Cancelled)).is_some() {}
        match found {
            Recorded::Cancelled => None,
            Recorded::Never => Some(None),
            Recorded::At(key) => Some(Some(key)),
        }
    }

    /// The number of timers that are not due yet.
    pub(crate) fn pending(&self, now: Instant) -> usize {
        let is_pending = |record: &&Record| match record.timer {
            Recorded::Cancelled => false,
            Recorded::Never => true,
            Recorded::At(key) => key.moment() > now,
        };
        self.all.iter().filter(is_pending).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes out all that may be pending.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = TimerKey> {
        std::mem::take(self).all.into_iter().filter_map(|record| match record.timer {
            Recorded::At(key) => Some(key),
            Recorded::Cancelled | Recorded::Never => None,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
