//! One shutdown, with the timers of its limits.

use crate::clock::Clock;
use crate::primitives::{Mutex, lock};
use crate::timer::Timers;

/// One shutdown with the timers for the limits of jobs. There is one set of timers for each clock, and mostly one
/// clock.
#[derive(Default)]
pub(super) struct Closing {
    timers: Mutex<Vec<(Clock, Timers)>>,
}

impl Closing {
    pub(super) fn timers(&self, clock: &Clock) -> Timers {
        let mut all = lock(&self.timers);
        if let Some((_, timers)) = all.iter().find(|(other, _)| other.is_same(clock)) {
            return timers.clone();
        }
        let timers = Timers::new(clock.clone(), "procession-limits");
        all.push((clock.clone(), timers.clone()));
        timers
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Their thread may run a callback of a job, which is user code. So this does not wait for that thread.
        let all = std::mem::take(&mut *lock(&self.timers));
        all.iter().for_each(|(_, timers)| drop(timers.halt()));
    }
}
