//! Tests of the ledger's rules as functions, without threads or a clock.

use std::time::{Duration, Instant};

use super::{Before, Claim, Ledger, Next, Placed, Wanted};
use crate::clock::{Clock, Deadline};
use crate::pool::limits::{Limits, PoolError, QueuePolicy};
use crate::pool::parker::Parker;
use crate::pool::stats::PoolStatus;

const SECOND: Duration = Duration::from_secs(1);

fn limits(min: usize, max: usize) -> Limits {
    Limits { min, max, queue: QueuePolicy::Unbounded, idle_period: None }
}

struct Bench {
    ledger: Ledger<u32>,
    now: Instant,
    parkers: Vec<Parker>,
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        let now = Clock::system().now();
        Bench { ledger: Ledger::new(limits, now), now, parkers: Vec::new() }
    }

    fn submit(&mut self, job: u32) -> Placed<u32> {
        self.ledger.submit(job, Claim::New).ok().unwrap().1
    }

    fn refused(&mut self) -> PoolError {
        self.ledger.submit(0, Claim::New).err().unwrap().1
    }

    fn parker(&mut self, worker: usize) -> Parker {
        while self.parkers.len() <= worker {
            self.parkers.push(Parker::new());
        }
        self.parkers[worker].clone()
    }

    fn next(&mut self, worker: usize) -> Next<u32> {
        let (parker, now) = (self.parker(worker), self.now);
        self.ledger.next(&parker, Before::Park, || now)
    }

    fn runs(&mut self, worker: usize) -> u32 {
        match self.next(worker) {
            Next::Run(job, _) => job,
            _ => panic!("it does not run"),
        }
    }

    fn rests(&mut self, worker: usize) -> Deadline {
        match self.next(worker) {
            Next::Park(deadline, _) => deadline,
            _ => panic!("it does not rest"),
        }
    }

    fn leaves(&mut self, worker: usize) -> Wanted {
        match self.next(worker) {
            Next::Exit(wanted) => {
                assert_eq!((wanted.wake.len(), wanted.start), (0, 0));
                self.ledger.left()
            }
            _ => panic!("it does not leave"),
        }
    }

    /// A pool of `n` workers that are all parked.
    fn at_rest(n: usize, limits: Limits) -> Bench {
        let mut bench = Bench::new(limits);
        for job in 0..n {
            assert!(matches!(bench.submit(job as u32), Placed::Start(Some(_))));
        }
        for worker in 0..n {
            bench.ledger.job_ended(false, false);
            bench.rests(worker);
        }
        bench
    }
}

fn wakes(placed: &Placed<u32>, bench: &mut Bench, worker: usize) -> bool {
    let parker = bench.parker(worker);
    matches!(placed, Placed::Wake(called) if called.is(&parker))
}

#[test]
fn a_job_goes_to_a_parked_worker_then_a_new_one_then_the_queue() {
    let mut bench = Bench::new(limits(0, 2));
    assert!(matches!(bench.submit(1), Placed::Start(Some(1))));
    assert!(matches!(bench.submit(2), Placed::Start(Some(2))));
    assert!(matches!(bench.submit(3), Placed::Queued { .. }));
    bench.ledger.job_ended(false, false);
    assert_eq!(bench.runs(0), 3);
    bench.ledger.job_ended(false, false);
    bench.rests(0);
    let placed = bench.submit(4);
    assert!(wakes(&placed, &mut bench, 0));
    assert_eq!((bench.ledger.counts.workers, bench.ledger.counts.running, bench.ledger.waiting()), (2, 1, 1));
}

#[test]
fn the_last_worker_to_park_is_woken_first_and_none_for_nothing() {
    let mut bench = Bench::at_rest(3, limits(0, 3));
    let placed = bench.submit(1);
    assert!(wakes(&placed, &mut bench, 2));
    assert_eq!(bench.runs(2), 1);
    bench.ledger.job_ended(false, false);
    assert!(matches!(bench.submit(2), Placed::Queued { .. }), "one is awake and will look");
    let placed = bench.submit(3);
    assert!(wakes(&placed, &mut bench, 1), "for the second one, somebody must come");
    assert_eq!((bench.runs(2), bench.runs(1)), (2, 3));
}

#[test]
fn each_worker_wakes_the_next_while_jobs_wait() {
    let mut bench = Bench::at_rest(2, limits(0, 3));
    let placed = bench.submit(1);
    assert!(wakes(&placed, &mut bench, 1));
    for job in 2..=4 {
        assert!(matches!(bench.submit(job), Placed::Queued { .. }), "who comes will see to it");
    }
    let (parker, now) = (bench.parker(1), bench.now);
    let Next::Run(1, wanted) = bench.ledger.next(&parker, Before::Park, || now) else { panic!("it runs") };
    assert!(wanted.wake.len() == 1 && wanted.wake[0].is(&bench.parkers[0]) && wanted.start == 0);
    let parker = bench.parker(0);
    let Next::Run(2, wanted) = bench.ledger.next(&parker, Before::Park, || now) else { panic!("it runs") };
    assert_eq!((wanted.wake.len(), wanted.start), (0, 1), "there is nobody else to be woken");
    let Next::Run(3, wanted) = bench.ledger.next(&Parker::new(), Before::Park, || now) else { panic!("it runs") };
    assert_eq!((wanted.wake.len(), wanted.start), (0, 0), "and then nobody to be started");
    assert_eq!((bench.ledger.counts.workers, bench.ledger.waiting()), (3, 1));
}

#[test]
fn one_worker_spins_and_the_others_park() {
    let mut bench = Bench::new(limits(0, 2));
    let _ = (bench.submit(1), bench.submit(2));
    bench.ledger.job_ended(false, false);
    bench.ledger.job_ended(false, false);
    let (one, two, now) = (bench.parker(0), bench.parker(1), bench.now);
    assert!(matches!(bench.ledger.next(&one, Before::Job, || now), Next::Spin));
    assert!(matches!(bench.ledger.next(&two, Before::Job, || now), Next::Park(..)));
    assert!(matches!(bench.submit(3), Placed::Queued { spin: true }));
    assert!(matches!(bench.ledger.next(&one, Before::Spinning, || now), Next::Run(3, _)));
    bench.ledger.job_ended(false, false);
    assert!(matches!(bench.ledger.next(&one, Before::Job, || now), Next::Spin));
    assert!(matches!(bench.ledger.next(&one, Before::Spinning, || now), Next::Park(..)), "once");
}

#[test]
fn of_twenty_parked_workers_one_ends_per_period_after_the_first() {
    let mut bench = Bench::at_rest(20, Limits { idle_period: Some(SECOND), ..limits(0, 20) });
    let mut left = vec![];
    for tenths in 1..=35_u32 {
        bench.now += SECOND / 10;
        let bottom = bench.ledger.parked()[0].clone();
        let now = bench.now;
        if let Next::Exit(wanted) = bench.ledger.next(&bottom, Before::Park, || now) {
            assert!(wanted.wake.len() == 1 && wanted.wake[0].is(&bench.ledger.parked()[0]), "the next one watches");
            let _ = bench.ledger.left();
        }
        left.push((tenths, bench.ledger.counts.workers));
    }
    assert_eq!(left[24], (25, 19), "after two and a half periods");
    assert_eq!(left[34], (35, 18), "after three and a half");
}

#[test]
fn the_minimum_is_kept_and_nothing_below_it_is_timed() {
    let mut bench = Bench::at_rest(3, Limits { idle_period: Some(SECOND), ..limits(2, 3) });
    bench.now += SECOND;
    assert!(matches!(bench.rests(0), Deadline(Some(_))));
    bench.now += SECOND;
    let bottom = bench.ledger.parked()[0].clone();
    let now = bench.now;
    assert!(matches!(bench.ledger.next(&bottom, Before::Park, || now), Next::Exit(_)));
    let wanted = bench.ledger.left();
    assert!(wanted.wake.is_empty(), "nobody need watch");
    bench.now += SECOND * 1_000;
    assert_eq!((bench.rests(1), bench.rests(2)), (Deadline::NEVER, Deadline::NEVER));
    let wanted = bench.ledger.resize(0, 3);
    assert!(wanted.wake.len() == 1 && wanted.wake[0].is(&bench.parkers[1]), "now somebody must");
}

#[test]
fn only_the_bottom_watches_the_time_and_a_job_restarts_it() {
    let mut bench = Bench::at_rest(2, Limits { idle_period: Some(SECOND), ..limits(0, 2) });
    assert_eq!(bench.rests(1), Deadline::NEVER);
    bench.now += SECOND;
    assert!(matches!(bench.rests(0), Deadline(Some(_))), "the first period only marks");
    let placed = bench.submit(9);
    assert!(wakes(&placed, &mut bench, 1));
    assert_eq!(bench.runs(1), 9);
    bench.now += SECOND;
    assert!(matches!(bench.rests(0), Deadline(Some(_))), "and is marked again after a job");
    assert_eq!(bench.ledger.counts.workers, 2);
}

#[test]
fn without_an_idle_period_no_worker_ends() {
    let mut bench = Bench::at_rest(20, limits(0, 20));
    bench.now += SECOND * 36_000;
    for worker in 0..20 {
        assert_eq!(bench.rests(worker), Deadline::NEVER);
    }
}

#[test]
fn no_worker_ages_in_a_pause_and_the_count_restarts_after_it() {
    let mut bench = Bench::at_rest(2, Limits { idle_period: Some(SECOND), ..limits(0, 2) });
    bench.now += SECOND;
    bench.rests(0);
    let pause = bench.ledger.pause().unwrap();
    bench.now += SECOND * 1_000;
    assert_eq!(bench.rests(0), Deadline::NEVER);
    let wanted = bench.ledger.resume(pause);
    assert!(wanted.wake.len() == 1 && wanted.wake[0].is(&bench.parkers[0]), "the bottom hears that it is over");
    assert_eq!(bench.rests(0), Deadline(Some(bench.now + SECOND)));
    bench.now += SECOND;
    bench.rests(0);
    assert_eq!(bench.ledger.counts.workers, 2, "it had a whole period and is only marked");
}

#[test]
fn draining_does_what_waits_and_stopping_gives_it_back() {
    let mut bench = Bench::new(limits(0, 1));
    (1..=3).for_each(|job| drop(bench.submit(job)));
    let wanted = bench.ledger.drain();
    assert_eq!((wanted.wake.len(), wanted.start), (0, 0));
    assert!(matches!(bench.refused(), PoolError::Stopped(PoolStatus::Draining)));
    bench.ledger.job_ended(true, false);
    assert_eq!(bench.runs(0), 2);
    assert_eq!(bench.ledger.stop(), [3]);
    assert_eq!(bench.ledger.counts.abandoned, 1);
    let _ = bench.ledger.drain();
    assert_eq!(bench.ledger.status, PoolStatus::Stopped, "the status only goes forward");
    bench.ledger.job_ended(false, false);
    assert!(!bench.ledger.is_finished());
    let _ = bench.leaves(0);
    assert!(bench.ledger.is_finished());
    assert_eq!((bench.ledger.counts.finished, bench.ledger.counts.panicked), (2, 1));
}

#[test]
fn a_drain_that_is_over_has_stopped() {
    let mut bench = Bench::new(limits(0, 1));
    let _ = bench.ledger.drain();
    assert_eq!(bench.ledger.status, PoolStatus::Stopped, "at once if nobody is there");
    let mut bench = Bench::at_rest(1, limits(0, 1));
    let wanted = bench.ledger.drain();
    assert_eq!((wanted.wake.len(), bench.ledger.status), (1, PoolStatus::Draining));
    let _ = bench.leaves(0);
    assert_eq!(bench.ledger.status, PoolStatus::Stopped);
}

#[test]
fn a_failed_start_leaves_the_counts_as_they_were() {
    let mut bench = Bench::new(limits(0, 1));
    let Placed::Start(Some(job)) = bench.submit(1) else { panic!("there is no worker") };
    assert_eq!(bench.ledger.start_failed(Some((0, job))), Some(1));
    assert_eq!((bench.ledger.counts.workers, bench.ledger.counts.running, bench.ledger.counts.submitted), (0, 0, 0));
}

#[test]
fn a_job_without_its_worker_waits_and_is_abandoned_with_the_last() {
    let mut bench = Bench::new(limits(0, 2));
    let _ = (bench.submit(1), bench.submit(2), bench.submit(3));
    assert_eq!(bench.ledger.start_failed(Some((0, 1))), None, "the other may come yet");
    assert_eq!(bench.ledger.start_failed(Some((1, 2))), Some(2), "it does not");
    assert_eq!(bench.ledger.give_up(), [1, 3], "in the order in which they were submitted");
    assert_eq!((bench.ledger.counts.submitted, bench.ledger.counts.abandoned, bench.ledger.counts.running), (2, 2, 0));
}

#[test]
fn a_job_without_its_worker_comes_back_from_a_stopped_pool() {
    let mut bench = Bench::new(limits(0, 2));
    let _ = (bench.submit(1), bench.submit(2));
    assert!(bench.ledger.stop().is_empty());
    assert_eq!(bench.ledger.start_failed(Some((1, 2))), Some(2));
    bench.ledger.job_ended(false, false);
    let _ = bench.leaves(0);
    assert!(bench.ledger.is_finished(), "the other had nothing to come to");
    assert_eq!((bench.ledger.counts.submitted, bench.ledger.counts.finished), (1, 1));
}

#[test]
fn a_parked_worker_is_woken_in_place_of_one_that_cannot_start() {
    let mut bench = Bench::new(limits(0, 3));
    let _ = (bench.submit(1), bench.submit(2));
    bench.ledger.job_ended(false, false);
    bench.ledger.job_ended(false, false);
    // One worker is awake when a third is counted on. Three jobs arrive at once while no worker is parked.
    let _ = (bench.submit(3), bench.submit(4));
    assert!(matches!(bench.submit(5), Placed::Start(None)));
    assert_eq!((bench.runs(0), bench.runs(1)), (3, 4));
    bench.ledger.job_ended(false, false);
    assert_eq!(bench.runs(0), 5);
    bench.ledger.job_ended(false, false);
    bench.rests(1);
    assert!(matches!(bench.submit(6), Placed::Queued { .. }), "the third is still counted on");
    assert!(bench.ledger.start_failed(None).is_none());
    let wake = bench.ledger.parked_wanted();
    assert!(wake.len() == 1 && wake[0].is(&bench.parkers[1]));
}

#[test]
fn a_job_is_withdrawn_once_and_only_before_it_has_begun() {
    let mut bench = Bench::new(limits(0, 1));
    (1..=3).for_each(|job| drop(bench.submit(job)));
    assert!(bench.ledger.withdraw(0).is_none(), "it is in a worker's wanted");
    assert_eq!((bench.ledger.withdraw(1), bench.ledger.withdraw(1)), (Some(2), None));
    assert_eq!((bench.ledger.waiting(), bench.ledger.counts.withdrawn), (1, 1));
    bench.ledger.job_ended(false, false);
    assert_eq!(bench.runs(0), 3);
    assert!(bench.ledger.withdraw(2).is_none());
    bench.ledger.job_ended(false, false);
    assert_eq!(bench.ledger.counts.submitted, bench.ledger.counts.finished + bench.ledger.counts.withdrawn);
}

#[test]
fn a_bound_counts_what_nobody_is_free_for() {
    let mut bench = Bench::new(Limits { queue: QueuePolicy::Reject(2), ..limits(0, 1) });
    assert!(matches!(bench.submit(1), Placed::Start(Some(_))));
    let _ = (bench.submit(2), bench.submit(3));
    assert!(matches!(bench.refused(), PoolError::Full));
    bench.ledger.job_ended(false, false);
    let _ = bench.submit(4);
    assert!(matches!(bench.refused(), PoolError::Full), "the worker is free for one");
    bench.ledger.withdraw(1).unwrap();
    let _ = bench.submit(5);

    let mut none = Bench::new(Limits { queue: QueuePolicy::Reject(0), ..limits(0, 2) });
    assert!(matches!(none.submit(1), Placed::Start(Some(_))));
    assert!(matches!(none.submit(2), Placed::Start(Some(_))));
    assert!(matches!(none.refused(), PoolError::Full));
    none.ledger.job_ended(false, false);
    none.rests(0);
    assert!(matches!(none.submit(3), Placed::Wake(_)), "it is handed to who is free");
    assert!(matches!(none.refused(), PoolError::Full));
    let _ = none.ledger.pause().unwrap();
    assert!(matches!(none.refused(), PoolError::Full), "in a pause nobody is free");
}

#[test]
fn a_submitter_that_waits_has_room_before_a_new_one() {
    let mut bench = Bench::new(Limits { queue: QueuePolicy::Block(0), ..limits(0, 1) });
    let _ = bench.submit(1);
    let (first, second) = (Parker::new(), Parker::new());
    bench.ledger.submitters.push_back(first.clone());
    bench.ledger.submitters.push_back(second.clone());
    assert!(bench.ledger.waiters().is_empty());
    bench.ledger.job_ended(false, false);
    assert!(bench.ledger.waiters()[0].is(&first));
    assert!(matches!(bench.refused(), PoolError::Full));
    assert!(bench.ledger.submit(2, Claim::Waited(&second)).is_err());
    assert!(bench.ledger.submit(3, Claim::Waited(&first)).is_ok());
    bench.ledger.submitters.pop_front();
    assert!(bench.ledger.waiters().is_empty(), "the room is taken");
    assert_eq!(bench.runs(0), 3);
    bench.ledger.job_ended(false, false);
    assert!(bench.ledger.waiters()[0].is(&second));
}

#[test]
fn a_smaller_maximum_ends_parked_workers_first() {
    let mut bench = Bench::at_rest(3, limits(0, 3));
    let _ = bench.submit(1);
    assert_eq!(bench.runs(2), 1);
    let wanted = bench.ledger.resize(0, 1);
    assert_eq!((wanted.wake.len(), wanted.start), (2, 0));
    let _ = (bench.leaves(0), bench.leaves(1));
    assert_eq!(bench.ledger.counts.workers, 1);
    let _ = bench.submit(2);
    let wanted = bench.ledger.resize(0, 3);
    assert_eq!((wanted.wake.len(), wanted.start), (0, 1), "one for the job that waits");
}

#[test]
fn a_worker_in_user_code_has_others_run_the_waiting_jobs() {
    let mut bench = Bench::new(limits(0, 2));
    let _ = bench.submit(1);
    bench.ledger.job_ended(false, false);
    assert!(matches!(bench.submit(2), Placed::Queued { .. }), "the worker is awake");
    let wanted = bench.ledger.goes_away();
    assert_eq!(wanted.start, 1);
    assert_eq!(bench.runs(1), 2);
    bench.ledger.is_back();
    bench.rests(0);
}

#[test]
fn a_task_that_counts_on_other_workers_is_woken_when_they_go() {
    let rings = |ledger: &Ledger<u32>, parker: &Parker| ledger.waiters().iter().any(|called| called.is(parker));
    let bell = || Parker::with_waker(std::task::Waker::noop().clone());
    // One worker runs a job and counts on the parked one, which is woken.
    let two = || {
        let (mut bench, parker) = (Bench::at_rest(2, limits(0, 2)), bell());
        let _ = bench.submit(1);
        assert_eq!(bench.runs(1), 1);
        let _ = bench.submit(2);
        assert!(!bench.ledger.has_unattended());
        bench.ledger.watchers.push(parker.clone());
        assert!(!rings(&bench.ledger, &parker));
        (bench, parker)
    };
    let (mut bench, parker) = two();
    let _ = bench.ledger.resize(0, 1);
    let Next::Exit(_) = bench.next(0) else { panic!("it is one too many") };
    assert!(rings(&bench.ledger, &parker), "it is taken away");
    let _ = bench.ledger.left();
    assert!(rings(&bench.ledger, &parker) && bench.ledger.has_unattended(), "and not replaced");

    let (mut bench, parker) = two();
    let _ = bench.ledger.goes_away();
    assert!(rings(&bench.ledger, &parker), "it runs code of the user's");
    bench.ledger.is_back();
    assert!(!rings(&bench.ledger, &parker));
    assert_eq!(bench.runs(0), 2);
    assert!(!rings(&bench.ledger, &parker), "nothing waits");
    bench.ledger.unwatch(&parker);

    // The same with a worker that could not be started.
    let (mut bench, parker) = (Bench::new(limits(0, 2)), bell());
    let _ = (bench.submit(1), bench.submit(2), bench.submit(3));
    bench.ledger.job_ended(false, false);
    bench.ledger.watchers.push(parker.clone());
    assert!(!rings(&bench.ledger, &parker), "one is awake");
    assert!(bench.ledger.start_failed(None).is_none());
    assert!(rings(&bench.ledger, &parker));
}

#[test]
fn room_in_a_pause_is_told_when_a_job_begins() {
    let mut bench = Bench::new(Limits { queue: QueuePolicy::Block(1), ..limits(0, 1) });
    let _ = (bench.submit(1), bench.submit(2));
    // The ledger keeps new jobs. The waiting ones still run, and then there is room for one.
    let _ = bench.ledger.pause().unwrap();
    assert!(matches!(bench.refused(), PoolError::Full));
    let stands = Parker::new();
    bench.ledger.submitters.push_back(stands.clone());
    bench.ledger.job_ended(false, false);
    assert!(bench.ledger.waiters().is_empty(), "the other still waits");
    let (parker, now) = (bench.parker(0), bench.now);
    let Next::Run(2, wanted) = bench.ledger.next(&parker, Before::Park, || now) else { panic!("it runs") };
    assert!(wanted.wake.iter().any(|called| called.is(&stands)), "and may run for ever");
    assert!(bench.ledger.submit(3, Claim::Waited(&stands)).is_ok());
}

/// Otherwise the pool would stop shrinking.
#[test]
fn a_new_bottom_or_surplus_makes_the_bottom_watch_the_time() {
    let idles = |min, max| Limits { idle_period: Some(SECOND), ..limits(min, max) };
    let watcher = |bench: &mut Bench, worker| match bench.next(worker) {
        Next::Park(_, watcher) => watcher,
        _ => panic!("it does not rest"),
    };
    // A worker that was away is back, and is surplus.
    let mut bench = Bench::at_rest(2, idles(1, 2));
    assert!(wakes(&bench.submit(1), &mut bench, 1));
    assert_eq!(bench.runs(1), 1);
    bench.ledger.job_ended(false, false);
    let _ = bench.ledger.goes_away();
    assert_eq!(bench.rests(0), Deadline::NEVER);
    bench.ledger.is_back();
    let bottom = bench.parker(0);
    assert!(watcher(&mut bench, 1).is_some_and(|parker| parker.is(&bottom)));
    assert_ne!(bench.rests(0), Deadline::NEVER);

    // The minimum was higher for a while.
    let _ = bench.ledger.resize(2, 2);
    assert_eq!(bench.rests(0), Deadline::NEVER);
    assert!(bench.ledger.resize(1, 2).wake.iter().any(|parker| parker.is(&bottom)));

    // The bottom, which has the deadline, takes a job that was not meant for it. Another worker becomes the bottom.
    let mut bench = Bench::at_rest(3, idles(1, 3));
    assert_ne!(bench.rests(0), Deadline::NEVER);
    assert!(wakes(&bench.submit(1), &mut bench, 2));
    assert!(matches!(bench.submit(2), Placed::Queued { .. }));
    let Next::Run(1, wanted) = bench.next(0) else { panic!("it does not run") };
    // This happens at once, because the job may take long.
    let bottom = bench.parker(1);
    assert!(wanted.wake.iter().any(|parker| parker.is(&bottom)));
    assert_eq!(bench.runs(2), 2);
    assert_ne!(bench.rests(1), Deadline::NEVER);
}

#[test]
fn a_pause_holds_when_the_jobs_before_it_have_been_run() {
    let mut bench = Bench::new(limits(0, 1));
    let _ = (bench.submit(1), bench.submit(2));
    let first = bench.ledger.pause().unwrap();
    let _ = bench.submit(3);
    let second = bench.ledger.pause().unwrap();
    let _ = bench.submit(4);
    let holds = |bench: &Bench, which| bench.ledger.is_held(which);
    assert_eq!((bench.ledger.open(9), holds(&bench, None)), (1, false));
    bench.ledger.job_ended(false, false);
    assert_eq!((bench.runs(0), holds(&bench, None)), (2, false));
    bench.ledger.job_ended(false, true);
    assert!(!holds(&bench, None), "its handle is not completed");
    bench.ledger.reported();
    assert!(holds(&bench, Some(first)) && holds(&bench, None));
    assert!(!holds(&bench, Some(second)), "the second waits for the first to end");
    assert_eq!(bench.rests(0), Deadline::NEVER);
    let _ = bench.ledger.resume(first);
    assert_eq!((bench.ledger.open(9), holds(&bench, Some(second))), (1, false), "what came between them is run");
    bench.ledger.withdraw(2).unwrap();
    assert!(holds(&bench, Some(second)) && bench.ledger.has_pause(second) && !bench.ledger.has_pause(first));
    assert!(bench.ledger.resume(first).wake.is_empty(), "it has ended before");
    let _ = bench.ledger.drain();
    assert!(!holds(&bench, None) && bench.ledger.open(9) == 1);
}

#[test]
fn no_worker_is_started_for_a_cancelled_job_before_a_pause() {
    let mut bench = Bench::new(limits(0, 64));
    let first = bench.ledger.pause().unwrap();
    (0..34).for_each(|job| drop(bench.submit(job)));
    let second = bench.ledger.pause().unwrap();
    (34..74).for_each(|job| drop(bench.submit(job)));
    (1..34).for_each(|job| assert_eq!(bench.ledger.withdraw(job), Some(job as u32)));
    assert_eq!(bench.ledger.resume(first).start, 1, "one job is left before the second pause");
    assert_eq!((bench.ledger.counts.workers, bench.runs(0)), (1, 0));
    bench.ledger.job_ended(false, false);
    assert!(bench.ledger.is_held(Some(second)));
}

#[test]
fn jobs_before_a_pause_begin_without_a_scan_of_the_queue() {
    let mut bench = Bench::new(limits(0, 1));
    let many = 100_000;
    (0..=many).for_each(|job| drop(bench.submit(job)));
    let pause = bench.ledger.pause().unwrap();
    // A scan for each job would visit 5 * 10^9 places, which takes minutes.
    for job in 1..=many {
        bench.ledger.job_ended(false, false);
        assert_eq!(bench.runs(0), job);
    }
    bench.ledger.job_ended(false, false);
    assert!(bench.ledger.is_held(Some(pause)));
}
