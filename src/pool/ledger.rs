//! The pool's book: who works, who rests, what waits. Plain decisions under the pool's one lock; no thread, no clock and
//! no waiting in here, so that each rule can be tested as a function.
//!
//! **Jobs** go to a resting worker, else to a new one while there are fewer than the maximum, else to the end of the
//! queue. **Resting workers** lie on a stack: the last to rest is the first to be woken, so that a surplus sinks to the
//! bottom and ages. Only the one at the bottom watches the time. **Ageing:** a whole idle period without a job marks the
//! pool as quiet; each further quiet period ends one worker.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::line::Line;
use crate::clock::Deadline;
use crate::sync::{Arc, Condvar};

/// Where a pool is in its life. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolStatus {
    /// It takes jobs.
    Running,
    /// It takes none, and does those that wait.
    Draining,
    /// It takes none and starts none.
    Stopped,
}

/// Where a resting worker is woken.
pub(super) type Seat = Arc<Condvar>;

pub(super) struct Ledger<J> {
    pub(super) max: usize,
    idle_period: Option<Duration>,
    line: Line<J>,
    // The number of the next job.
    next: u64,
    resting: Vec<(u64, Seat)>,
    pub(super) workers: usize,
    pub(super) running: usize,
    pub(super) status: PoolStatus,
    quiet: Quiet,
    pub(super) submitted: u64,
    pub(super) finished: u64,
    pub(super) panicked: u64,
    pub(super) abandoned: u64,
    pub(super) withdrawn: u64,
}

/// Since when no job has come, and whether a whole period of that has been seen already.
struct Quiet {
    since: Instant,
    marked: bool,
}

/// What becomes of a job that was accepted.
#[derive(Debug)]
pub(super) enum Placed<J> {
    /// It is in the queue, and this worker must be woken for it.
    Wake(Seat),
    /// A worker must be started with this job.
    StartWith(J),
    /// It is in the queue, and another worker must be started for the queue's sake.
    Start,
    /// It is in the queue; somebody who is busy will come to it.
    Queued,
}

/// What a worker does next.
#[derive(Debug)]
pub(super) enum Next<J> {
    Run(J),
    /// Rest until woken or until the deadline, then ask again.
    Rest(Deadline),
    /// End; if there is a new bottom of the stack, it must be woken so that it watches the time.
    Leave(Option<Seat>),
}

impl<J> Ledger<J> {
    pub(super) fn new(max: usize, idle_period: Option<Duration>, now: Instant) -> Ledger<J> {
        Ledger {
            max,
            idle_period,
            line: Line::new(),
            next: 0,
            resting: Vec::new(),
            workers: 0,
            running: 0,
            status: PoolStatus::Running,
            quiet: Quiet { since: now, marked: false },
            submitted: 0,
            finished: 0,
            panicked: 0,
            abandoned: 0,
            withdrawn: 0,
        }
    }

    /// Takes a job and gives it a number, or hands it back if the pool takes none any more.
    pub(super) fn submit<F>(
        &mut self,
        job: F,
        into_job: impl FnOnce(F) -> J,
        now: Instant,
    ) -> Result<(u64, Placed<F>), F> {
        if self.status != PoolStatus::Running {
            return Err(job);
        }
        self.submitted += 1;
        let number = self.next;
        self.next += 1;
        self.quiet = Quiet { since: now, marked: false };
        if self.workers < self.max && self.resting.is_empty() {
            self.workers += 1;
            if self.line.is_empty() {
                self.running += 1;
                return Ok((number, Placed::StartWith(job)));
            }
            self.line.push(number, into_job(job));
            return Ok((number, Placed::Start));
        }
        self.line.push(number, into_job(job));
        Ok((number, self.resting.pop().map_or(Placed::Queued, |(_, seat)| Placed::Wake(seat))))
    }

    /// Takes a job out that has not begun. Who was woken for it finds something else to do, or nothing.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<J> {
        let job = self.line.take(number)?;
        self.withdrawn += 1;
        Some(job)
    }

    /// A worker that was counted could not be started, perhaps with a job. Whether there is no other (which may be one that
    /// is being started).
    pub(super) fn start_failed(&mut self, with_job: bool) -> bool {
        self.workers -= 1;
        if with_job {
            self.running -= 1;
            self.submitted -= 1;
        }
        self.workers == 0
    }

    /// Has a job wait that no worker could be started with, in its old place. Whom to wake for it, if somebody has come to
    /// rest. It comes back if the pool has been stopped meanwhile.
    pub(super) fn wait_in_line<F>(
        &mut self,
        number: u64,
        job: F,
        into_job: impl FnOnce(F) -> J,
    ) -> Result<Option<Seat>, F> {
        if self.status == PoolStatus::Stopped {
            return Err(job);
        }
        self.submitted += 1;
        self.line.insert(number, into_job(job));
        Ok(self.resting.pop().map(|(_, seat)| seat))
    }

    /// The last worker there was to be could not be started: nobody comes to what waits.
    pub(super) fn give_up(&mut self) -> VecDeque<J> {
        let left = self.line.take_all();
        self.abandoned += left.len() as u64;
        left
    }

    /// Asked by a worker that has nothing in hand.
    pub(super) fn next(&mut self, worker: u64, seat: &Seat, now: Instant) -> Next<J> {
        if let Some(job) = self.line.pop() {
            self.get_up(worker);
            self.running += 1;
            return Next::Run(job);
        }
        if self.status != PoolStatus::Running {
            self.get_up(worker);
            return self.leave();
        }
        let place = self.resting.iter().position(|(id, _)| *id == worker).unwrap_or_else(|| {
            if self.resting.is_empty() {
                // The pool was busy until now, whatever the time of the last submission.
                self.quiet = Quiet { since: now, marked: false };
            }
            self.resting.push((worker, seat.clone()));
            self.resting.len() - 1
        });
        let Some(period) = self.idle_period.filter(|_| place == 0) else { return Next::Rest(Deadline::NEVER) };
        match self.quiet.since.checked_add(period) {
            Some(end) if end <= now => {
                let was_marked = std::mem::replace(&mut self.quiet, Quiet { since: now, marked: true }).marked;
                if was_marked {
                    self.get_up(worker);
                    return self.leave();
                }
                Next::Rest(Deadline(now.checked_add(period)))
            }
            end => Next::Rest(Deadline(end)),
        }
    }

    fn get_up(&mut self, worker: u64) {
        self.resting.retain(|(id, _)| *id != worker);
    }

    fn leave(&mut self) -> Next<J> {
        self.workers -= 1;
        Next::Leave(self.resting.first().map(|(_, seat)| seat.clone()))
    }

    pub(super) fn job_ended(&mut self, panicked: bool) {
        self.running -= 1;
        self.finished += 1;
        self.panicked += u64::from(panicked);
    }

    /// Takes no more jobs; what is queued is still done.
    pub(super) fn drain(&mut self) {
        if self.status == PoolStatus::Running {
            self.status = PoolStatus::Draining;
        }
    }

    /// Takes no more jobs and gives back those that wait.
    pub(super) fn stop(&mut self) -> VecDeque<J> {
        self.status = PoolStatus::Stopped;
        self.give_up()
    }

    /// Everybody who rests, to be woken: they will find out for themselves.
    pub(super) fn wake_all(&mut self) -> Vec<Seat> {
        self.resting.drain(..).map(|(_, seat)| seat).collect()
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    pub(super) fn resting(&self) -> usize {
        self.resting.len()
    }

    /// Nobody works, nobody will: the end of a drain or stop.
    pub(super) fn is_over(&self) -> bool {
        self.status != PoolStatus::Running && self.workers == 0 && self.line.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Bench {
        ledger: Ledger<u32>,
        now: Instant,
        seat: Seat,
    }

    impl Bench {
        fn new(max: usize, idle: Option<Duration>) -> Bench {
            let now = Instant::now();
            Bench { ledger: Ledger::new(max, idle, now), now, seat: Arc::new(Condvar::new()) }
        }

        fn submit(&mut self, job: u32) -> Placed<u32> {
            self.ledger.submit(job, |job| job, self.now).unwrap().1
        }

        fn next(&mut self, worker: u64) -> Next<u32> {
            self.ledger.next(worker, &self.seat.clone(), self.now)
        }

        /// A pool of `n` workers that have all come to rest.
        fn at_rest(n: u64, idle: Option<Duration>) -> Bench {
            let mut bench = Bench::new(n as usize, idle);
            for job in 0..n {
                assert!(matches!(bench.submit(job as u32), Placed::StartWith(_)));
            }
            for worker in 0..n {
                bench.ledger.job_ended(false);
                assert!(matches!(bench.next(worker), Next::Rest(_)));
            }
            bench
        }
    }

    #[test]
    fn a_job_goes_to_a_resting_worker_then_to_a_new_one_then_to_the_queue() {
        let mut bench = Bench::new(2, None);
        assert!(matches!(bench.submit(1), Placed::StartWith(1)));
        assert!(matches!(bench.submit(2), Placed::StartWith(2)));
        assert!(matches!(bench.submit(3), Placed::Queued));
        bench.ledger.job_ended(false);
        assert!(matches!(bench.next(0), Next::Run(3)));
        bench.ledger.job_ended(false);
        assert!(matches!(bench.next(0), Next::Rest(_)));
        assert!(matches!(bench.submit(4), Placed::Wake(_)));
        assert_eq!((bench.ledger.workers, bench.ledger.running, bench.ledger.waiting()), (2, 1, 1));
    }

    #[test]
    fn from_twenty_resting_workers_one_is_ended_per_period_after_the_first() {
        let mut bench = Bench::at_rest(20, Some(SECOND));
        let mut left = vec![];
        for tenths in 1..=35_u32 {
            bench.now += SECOND / 10;
            let bottom = bench.ledger.resting.first().unwrap().0;
            if let Next::Leave(next) = bench.next(bottom) {
                assert!(next.is_some());
            }
            left.push((tenths, bench.ledger.workers));
        }
        assert_eq!(left[24], (25, 19), "after two and a half periods");
        assert_eq!(left[34], (35, 18), "after three and a half");
    }

    #[test]
    fn only_the_bottom_watches_the_time_and_a_job_starts_the_count_anew() {
        let mut bench = Bench::at_rest(2, Some(SECOND));
        assert!(matches!(bench.next(1), Next::Rest(Deadline::NEVER)));
        bench.now += SECOND;
        assert!(matches!(bench.next(0), Next::Rest(Deadline(Some(_)))), "the first period only marks");
        assert!(matches!(bench.submit(9), Placed::Wake(_)));
        assert!(matches!(bench.next(1), Next::Run(9)));
        bench.now += SECOND;
        assert!(matches!(bench.next(0), Next::Rest(Deadline(Some(_)))), "and is marked again after a job");
        assert_eq!(bench.ledger.workers, 2);
    }

    #[test]
    fn without_an_idle_period_nobody_is_ended() {
        let mut bench = Bench::at_rest(20, None);
        bench.now += SECOND * 36_000;
        for worker in 0..20 {
            assert!(matches!(bench.next(worker), Next::Rest(Deadline::NEVER)));
        }
    }

    #[test]
    fn draining_does_what_waits_and_stopping_gives_it_back() {
        let mut bench = Bench::new(1, None);
        let _ = bench.submit(1);
        let _ = bench.submit(2);
        let _ = bench.submit(3);
        bench.ledger.drain();
        assert_eq!(bench.ledger.submit(4, |job| job, bench.now).unwrap_err(), 4);
        bench.ledger.job_ended(true);
        assert!(matches!(bench.next(0), Next::Run(2)));
        assert_eq!(bench.ledger.stop(), [3]);
        assert_eq!(bench.ledger.abandoned, 1);
        bench.ledger.drain();
        assert_eq!(bench.ledger.status, PoolStatus::Stopped, "the status only goes forward");
        bench.ledger.job_ended(false);
        assert!(!bench.ledger.is_over());
        assert!(matches!(bench.next(0), Next::Leave(None)));
        assert!(bench.ledger.is_over());
        assert_eq!((bench.ledger.finished, bench.ledger.panicked), (2, 1));
    }

    #[test]
    fn a_job_whose_worker_could_not_be_started_comes_back_if_the_pool_was_stopped_meanwhile() {
        let mut bench = Bench::new(2, None);
        let _ = bench.submit(1);
        let _ = bench.submit(2);
        assert!(bench.ledger.stop().is_empty());
        assert!(!bench.ledger.start_failed(true));
        assert_eq!(bench.ledger.wait_in_line(1, 2, |job| job).unwrap_err(), 2);
        bench.ledger.job_ended(false);
        assert!(matches!(bench.next(0), Next::Leave(None)), "the other has nothing to come to");
        assert!(bench.ledger.is_over());
        assert_eq!((bench.ledger.submitted, bench.ledger.finished), (1, 1));
    }

    #[test]
    fn a_job_is_withdrawn_once_and_only_before_it_has_begun() {
        let mut bench = Bench::new(1, None);
        (1..=3).for_each(|job| drop(bench.submit(job)));
        assert!(bench.ledger.withdraw(0).is_none(), "it is in a worker's hands");
        assert_eq!((bench.ledger.withdraw(1), bench.ledger.withdraw(1)), (Some(2), None));
        assert_eq!((bench.ledger.waiting(), bench.ledger.withdrawn), (1, 1));
        bench.ledger.job_ended(false);
        assert!(matches!(bench.next(0), Next::Run(3)));
        assert!(bench.ledger.withdraw(2).is_none());
        bench.ledger.job_ended(false);
        assert_eq!(bench.ledger.submitted, bench.ledger.finished + bench.ledger.withdrawn);
    }

    #[test]
    fn a_worker_that_could_not_be_started_leaves_the_counts_as_they_were() {
        let mut bench = Bench::new(1, None);
        let _ = bench.submit(1);
        assert!(bench.ledger.start_failed(true));
        assert_eq!((bench.ledger.workers, bench.ledger.running, bench.ledger.submitted), (0, 0, 0));
    }

    #[test]
    fn a_job_whose_worker_could_not_be_started_waits_for_another_and_is_given_up_with_the_last() {
        let mut bench = Bench::new(2, None);
        assert!(matches!(bench.submit(1), Placed::StartWith(1)));
        assert!(matches!(bench.submit(2), Placed::StartWith(2)));
        assert!(matches!(bench.submit(3), Placed::Queued));
        assert!(!bench.ledger.start_failed(true), "the other may come yet");
        assert!(bench.ledger.wait_in_line(0, 1, |job| job).unwrap().is_none());
        assert!(bench.ledger.start_failed(true), "it does not");
        assert_eq!(bench.ledger.give_up(), [1, 3], "in the order in which they were submitted");
        assert_eq!((bench.ledger.submitted, bench.ledger.abandoned, bench.ledger.running), (2, 2, 0));

        let mut bench = Bench::at_rest(1, None);
        bench.ledger.max = 2;
        assert!(matches!(bench.submit(1), Placed::Wake(_)));
        assert!(matches!(bench.submit(2), Placed::Start));
        assert!(matches!(bench.next(0), Next::Run(1)));
        assert!(!bench.ledger.start_failed(false), "it comes to both");
    }
}
