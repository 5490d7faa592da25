//! For tests: whether a group of threads is idle for good.
//!
//! A runtime, a pool or a loop that is idle costs nothing if each of its threads waits until it is notified, and that
//! wait has no limit. A test makes a [`Crowd`]. The threads that it starts from then on, and those that they start,
//! belong to it. [`Crowd::until_idle`] returns when at one moment all of them wait without a limit, and none of them
//! has been notified. As no other thread notifies them, none of them would ever run again. A thread that looks for
//! work now and then, however seldom, keeps this from returning. So a test shows that nothing happens, and no time
//! passes for it.

use std::time::Duration;

use crate::clock::Clock;
pub(crate) use crate::primitives::Crowd;
use crate::primitives::{Seen, thread};

/// The limit of a wait. A longer wait is a hang, so only broken code reaches it.
const LIMIT: Duration = Duration::from_secs(60);

impl Crowd {
    /// Returns when all threads wait without a limit, and none has been notified.
    pub(crate) fn until_idle(&self) {
        self.until("all of them wait without a limit", |thread| thread.waits_with_limit == Some(false));
    }

    /// Returns when all threads wait, and none has been notified. The result is the number of waits with a limit.
    pub(crate) fn until_all_wait(&self) -> usize {
        let all = self.until("all of them wait", |thread| thread.waits_with_limit.is_some());
        all.iter().filter(|thread| thread.waits_with_limit == Some(true)).count()
    }

    /// Returns when no thread is left.
    pub(crate) fn until_gone(&self) {
        self.until("none is left", |_| false);
    }

    fn until(&self, what: &str, is_so: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let clock = Clock::system();
        let hang = clock.deadline(LIMIT);
        loop {
            let all = self.seen();
            if all.iter().all(&is_so) {
                return all;
            }
            assert!(!hang.has_passed(&clock), "after {LIMIT:?} it is not so that {what}: {all:#?}");
            self.nudge();
            thread::yield_now();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::latch::Latch;
    use crate::primitives::{Arc, Condvar, Mutex, lock, wait_for};
    use crate::threads;

    #[test]
    fn threads_that_wait_without_limit_are_idle_and_others_are_not() {
        let crowd = Crowd::new();
        let (go, limit, stop) = (Latch::new(), ManualClock::new(), Latch::new());
        let (waits, ends) = (go.clone(), stop.clone());
        let start = |name: &str, main: Box<dyn FnOnce() + Send>| threads::start(String::from(name), main).unwrap();
        let one = start("one", Box::new(move || waits.wait()));
        crowd.until_idle();
        assert_eq!((crowd.seen()[0].name.as_str(), crowd.seen().len(), crowd.wakes()), ("one", 1, 0));
        let (clock, deadline) = (limit.clock(), limit.clock().deadline(Duration::from_secs(1)));
        let two = start("two", Box::new(move || assert!(ends.wait_until(&clock, deadline))));
        assert_eq!(crowd.until_all_wait(), 1, "also by a clock that stands still");
        stop.set(()).unwrap();
        crate::wait::wait(two).unwrap();
        crowd.until_idle();
        let before = crowd.wakes();
        assert!(before >= 1, "the waits of a thread that has ended count");
        go.set(()).unwrap();
        crate::wait::wait(one).unwrap();
        crowd.until_gone();
        assert!(crowd.wakes() > before);
    }

    #[test]
    fn a_polling_loop_is_never_seen_waiting_without_a_limit() {
        let crowd = Crowd::new();
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let looks = shared.clone();
        let main = move || {
            let mut ends = lock(&looks.0);
            while !*ends {
                ends = wait_for(&looks.1, ends, Duration::from_millis(1));
            }
        };
        let poller = threads::start(String::from("poller"), main).unwrap();
        let mut last = 0;
        while last < 10 {
            last = crowd.wakes();
            assert!(crowd.seen().iter().all(|thread| thread.waits_with_limit != Some(false)));
        }
        *lock(&shared.0) = true;
        crate::wait::wait(poller).unwrap();
        crowd.until_gone();
    }
}
