//! I. Pacing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::pool::{JobError, JobStatus, Pacer, PacerError, Pool, PoolStatus};
use procession::{CancelToken, Reason};

use crate::support::*;

struct Paced {
    pool: Pool,
    manual: ManualClock,
    pacer: Pacer,
    begun: Arc<Mutex<Vec<Instant>>>,
}

/// A pool and a pacer by the same clock, with an interval of 300 ms.
fn paced(workers: usize) -> Paced {
    let (pool, manual) = by_hand(workers);
    let pacer = Pacer::with_clock(Duration::from_millis(300), manual.clock());
    Paced { pool, manual, pacer, begun: Arc::default() }
}

impl Paced {
    /// Submits jobs that write down when they begin.
    fn submit(&self, jobs: usize) {
        for _ in 0..jobs {
            let (begun, clock) = (self.begun.clone(), self.manual.clock());
            self.pacer.execute(&self.pool, move || begun.lock().unwrap().push(clock.now())).unwrap();
        }
    }

    fn begun(&self) -> usize {
        self.begun.lock().unwrap().len()
    }

    fn until_begun(&self, jobs: usize) {
        until("so many have begun", || self.begun() == jobs && self.pool.stats().unfinished() == 0);
    }
}

#[test]
fn ten_paced_jobs_take_nine_intervals() {
    let paced = paced(4);
    let began = paced.manual.now();
    paced.submit(10);
    for n in 1..=10 {
        paced.until_begun(n);
        paced.manual.advance(Duration::from_millis(299));
        assert_eq!((paced.pacer.stats().started, paced.pool.stats().submitted), (n as u64, n as u64), "not yet");
        paced.manual.advance(Duration::from_millis(1));
    }
    let begun = paced.begun.lock().unwrap();
    assert_eq!(begun[9] - began, Duration::from_millis(2_700));
    for pair in begun.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(300));
    }
}

#[test]
fn a_job_that_waits_for_a_worker_keeps_the_next_at_its_distance() {
    let paced = paced(1);
    let held = hold(&paced.pool);
    paced.submit(3);
    paced.manual.advance(SECOND * 10);
    assert_eq!((paced.pacer.stats().waiting, paced.pool.stats().waiting), (2, 1), "one has the turn, and two wait");
    drop(held);
    paced.until_begun(1);
    paced.manual.advance(Duration::from_millis(299));
    assert_eq!(paced.begun(), 1, "the interval counts from when it began");
    paced.manual.advance(Duration::from_millis(1));
    paced.until_begun(2);
}

#[test]
fn waiting_for_its_turn_a_job_holds_no_worker() {
    let paced = paced(1);
    paced.submit(5);
    paced.until_begun(1);
    assert_eq!(paced.pacer.stats().waiting, 4);
    assert_eq!(paced.pool.run(|| 7).unwrap(), 7, "the only worker is free");
    assert_eq!((paced.pool.stats().running, paced.pool.stats().waiting), (0, 0));
}

#[test]
fn several_pacers_on_one_pool_do_not_slow_each_other() {
    let (pool, manual) = by_hand(3);
    let pacers: Vec<Pacer> = (1..=3).map(|n| Pacer::with_clock(SECOND * n, manual.clock())).collect();
    let counts: Vec<Arc<AtomicUsize>> = (0..3).map(|_| Arc::default()).collect();
    for (pacer, count) in pacers.iter().zip(&counts) {
        for _ in 0..20 {
            let count = count.clone();
            pacer.execute(&pool, move || add(&count)).unwrap();
        }
    }
    for second in 0..12 {
        let expected = [second + 1, second / 2 + 1, second / 3 + 1];
        until("each has its own pace", || {
            counts.iter().zip(expected).all(|(count, expected)| count.load(Ordering::SeqCst) == expected)
        });
        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        manual.advance(SECOND);
    }
}

#[test]
fn a_pacer_paces_threads_and_jobs_in_one_line() {
    let paced = paced(1);
    let passed = Arc::new(AtomicUsize::new(0));
    paced.submit(1);
    paced.until_begun(1);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (pacer, passed) = (paced.pacer.clone(), passed.clone());
            std::thread::spawn(move || {
                pacer.wait(&CancelToken::new()).unwrap();
                add(&passed);
            })
        })
        .collect();
    until("they wait", || paced.pacer.stats().waiting == 3);
    paced.submit(1);
    for n in 1..=3 {
        paced.manual.advance(Duration::from_millis(300));
        until("one more has passed", || passed.load(Ordering::SeqCst) == n);
        assert_eq!(paced.begun(), 1, "the job came last");
    }
    paced.manual.advance(Duration::from_millis(300));
    paced.until_begun(2);
    threads.into_iter().for_each(|thread| wait(thread).unwrap());
}

#[test]
fn a_wait_ends_when_its_token_is_cancelled_and_leaves_no_trace() {
    let paced = paced(1);
    paced.submit(1);
    let token = CancelToken::new();
    let waits = std::thread::spawn({
        let (pacer, token) = (paced.pacer.clone(), token.clone());
        move || pacer.wait(&token)
    });
    until("it waits", || paced.pacer.stats().waiting == 1);
    token.cancel("enough");
    assert_eq!(wait(waits).unwrap(), Err(PacerError::Cancelled(Reason::from("enough"))));
    assert_eq!(paced.pacer.wait(&token), Err(PacerError::Cancelled(Reason::from("enough"))), "at once");
    assert_eq!(paced.pacer.stats().waiting, 0);
}

#[test]
fn a_pacer_is_paused_and_resumed_and_says_so() {
    let paced = paced(1);
    assert!(!paced.pacer.is_paused());
    paced.pacer.pause();
    assert!(paced.pacer.is_paused());
    paced.submit(3);
    paced.manual.advance(SECOND * 100);
    assert_eq!((paced.pacer.stats().waiting, paced.pool.stats().submitted), (3, 0));
    paced.pacer.resume();
    assert!(!paced.pacer.is_paused());
    paced.until_begun(1);
    paced.pacer.pause();
    paced.manual.advance(SECOND);
    assert_eq!(paced.begun(), 1, "also when a timer was set");
    paced.pacer.resume();
    paced.until_begun(2);
    paced.manual.advance(Duration::from_millis(300));
    paced.until_begun(3);
}

#[test]
fn stopping_a_pacer_releases_all_who_wait_with_an_error() {
    let paced = paced(1);
    paced.submit(1);
    paced.until_begun(1);
    let token = Arc::new(());
    let kept = token.clone();
    let job = paced.pacer.spawn(&paced.pool, move || drop(kept)).unwrap();
    let waits = std::thread::spawn({
        let pacer = paced.pacer.clone();
        move || pacer.wait(&CancelToken::new())
    });
    until("both wait", || paced.pacer.stats().waiting == 2);
    paced.pacer.pause();
    assert_eq!(paced.pacer.stop(), 2);
    assert_eq!(wait(waits).unwrap(), Err(PacerError::Stopped));
    assert_eq!(Arc::strong_count(&token), 1);
    assert!(matches!(wait(job), Err(JobError::Abandoned)));
    let stats = paced.pacer.stats();
    assert_eq!((stats.waiting, stats.started, stats.given_up), (0, 1, 1));
    let refused = paced.pacer.execute(&paced.pool, || ()).unwrap_err();
    assert_eq!(refused.to_string(), "the pacer has been stopped");
    refused.into_inner()();
    assert_eq!(paced.pacer.wait(&CancelToken::new()), Err(PacerError::Stopped));
    assert_eq!(paced.pacer.stop(), 0);
    assert_eq!(paced.pool.run(|| 1).unwrap(), 1, "the pool goes on");
}

#[test]
fn a_paced_job_of_a_stopped_pool_is_refused_and_the_others_go_on() {
    let paced = paced(1);
    let other = pool(1);
    other.stop().unwrap();
    let refused = paced.pacer.execute(&other, || ()).unwrap_err();
    assert_eq!(*refused.reason(), PacerError::Pool(PoolStatus::Stopped));

    let (ends, gone) = (pool(1), pool(1));
    paced.submit(1);
    paced.until_begun(1);
    let jobs = [paced.pacer.spawn(&ends, || 1).unwrap(), paced.pacer.spawn(&gone, || 2).unwrap()];
    paced.submit(1);
    ends.stop().unwrap();
    drop(gone);
    paced.manual.advance(Duration::from_millis(300));
    paced.until_begun(2);
    for job in jobs {
        assert!(matches!(wait(job), Err(JobError::Abandoned)));
    }
    assert_eq!((paced.pacer.stats().given_up, paced.pacer.stats().waiting), (2, 0));
}

#[test]
fn a_destructor_of_a_job_whose_pool_has_gone_holds_up_no_other() {
    let paced = paced(1);
    let (ends, blocker) = (pool(1), Blocker::new());
    paced.submit(1);
    paced.until_begun(1);
    let blocks = BlocksInDrop(blocker.blocked());
    let job = paced.pacer.spawn(&ends, move || drop(blocks)).unwrap();
    paced.submit(1);
    ends.stop().unwrap();
    paced.manual.advance(Duration::from_millis(300));
    paced.until_begun(2);
    blocker.wait_begun();
    blocker.release();
    assert!(matches!(wait(job), Err(JobError::Abandoned)));
}

#[test]
fn a_job_with_the_turn_that_its_pool_drops_gives_the_turn_on() {
    let paced = paced(1);
    let busy = pool(1);
    let held = hold(&busy);
    let job = paced.pacer.spawn(&busy, || 1).unwrap();
    assert_eq!((busy.stats().waiting, paced.pacer.stats().waiting), (1, 0), "it has the turn");
    paced.submit(1);
    let _ = busy.stop_timeout(Duration::ZERO);
    paced.until_begun(1);
    assert!(wait(job).is_err());
    held.release();
}

#[test]
fn a_paced_job_can_be_cancelled_in_either_place() {
    let paced = paced(1);
    let held = hold(&paced.pool);
    let with_turn = paced.pacer.spawn(&paced.pool, || 1).unwrap();
    let waits = paced.pacer.spawn(&paced.pool, || 2).unwrap();
    paced.submit(1);
    assert_eq!((with_turn.status(), paced.pool.stats().waiting), (JobStatus::Waiting, 1));
    assert!(waits.cancel() && !waits.cancel());
    assert!(with_turn.cancel());
    assert!(matches!(wait(with_turn), Err(JobError::Cancelled)));
    assert!(matches!(wait(waits), Err(JobError::Cancelled)));
    drop(held);
    paced.until_begun(1);
}

#[test]
fn a_job_cannot_wait_for_a_paced_job_of_its_own_pool() {
    let paced = paced(1);
    let (inner, pacer) = (paced.pool.clone(), paced.pacer.clone());
    let results = paced.pool.run(move || {
        let jobs: Vec<_> = (0..3).map(|n| pacer.spawn(&inner, move || n).unwrap()).collect();
        let limited = pacer.spawn(&inner, || 3).unwrap().wait_timeout(Duration::ZERO).is_err();
        (jobs.into_iter().map(|job| job.wait().unwrap_err().to_string()).collect::<Vec<_>>(), limited)
    });
    let (errors, limited) = results.unwrap();
    assert_eq!(errors, ["a job cannot wait for itself, or for the turn of a paced job of its own pool"; 3]);
    assert!(limited);
    advance_until("the jobs go on by themselves", &paced.manual, Duration::from_millis(300), || {
        paced.pacer.stats().started == 4
    });
    assert!(paced.pool.wait_idle_timeout(LIMIT).is_ok());
    ended(&paced.pool);
}

#[test]
fn the_least_and_the_greatest_interval() {
    let pool = builder(1).queue(procession::pool::QueuePolicy::Reject(0)).build().unwrap();
    let pacer = Pacer::new(Duration::ZERO);
    let jobs: Vec<_> = (0..1_000).map(|n| pacer.spawn(&pool, move || n).unwrap()).collect();
    let sum: u64 = jobs.into_iter().map(|job| wait(job).unwrap()).sum();
    assert_eq!(sum, 499_500, "also where the queue has no room: one at a time has the turn");
    (0..10).for_each(|_| pacer.wait(&CancelToken::new()).unwrap());

    let pacer = Pacer::new(Duration::MAX);
    assert_eq!(pacer.every(), Duration::MAX);
    pacer.wait(&CancelToken::new()).unwrap();
    let never = pacer.spawn(&pool, || ()).unwrap();
    assert_eq!(pacer.stats().waiting, 1);
    drop(pacer);
    assert!(matches!(wait(never), Err(JobError::Abandoned)), "dropped with its last handle, it stops");
}

#[test]
fn a_thread_cannot_wait_behind_paced_jobs_of_its_own_pool() {
    // Whether they stand in line here, or one has its turn and waits for a worker, and however many workers there are.
    for (workers, interval, jobs) in [(1, Duration::ZERO, 1), (1, SECOND, 5), (3, SECOND, 5)] {
        let (pool, manual) = by_hand(workers);
        let pacer = Pacer::with_clock(interval, manual.clock());
        let (inner, paces) = (pool.clone(), pacer.clone());
        let (first, behind) = pool
            .run(move || {
                let first = paces.wait(&CancelToken::new());
                (0..jobs).for_each(|_| paces.execute(&inner, || ()).unwrap());
                (first, paces.wait(&CancelToken::new()))
            })
            .unwrap();
        assert_eq!(first, Ok(()), "nobody was before it");
        assert_eq!(behind, Err(PacerError::Inside));
        advance_until("the jobs go on by themselves", &manual, SECOND, || pacer.stats().started == jobs + 1);
        assert_eq!(pacer.stats().waiting, 0);
        ended(&pool);
    }
}

#[test]
fn a_thread_waits_behind_paced_jobs_of_other_pools() {
    let paced = paced(1);
    let (other, held) = (pool(1), hold(&paced.pool));
    paced.submit(1);
    let (pacer, passed) = (paced.pacer.clone(), Arc::new(AtomicUsize::new(0)));
    let count = passed.clone();
    let waits = other.spawn(move || pacer.wait(&CancelToken::new()).map(|()| add(&count))).unwrap();
    until("it waits", || paced.pacer.stats().waiting == 1);
    let behind = paced.pacer.spawn(&other, || 1).unwrap();
    held.release();
    paced.until_begun(1);
    paced.manual.advance(Duration::from_millis(300));
    assert_eq!(wait(waits).unwrap(), Ok(()));
    paced.manual.advance(Duration::from_millis(300));
    assert_eq!((wait(behind).unwrap(), passed.load(Ordering::SeqCst)), (1, 1));
}
