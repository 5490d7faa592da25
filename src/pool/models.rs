//! The pool's races under the model checker. The tests run the real pool with its real threads.

use super::{JobError, Pacer, Pool, PoolStatus, QueuePolicy};
use crate::clock::ManualClock;
use crate::latch::Latch;
use crate::primitives::{Arc, AtomicUsize, Ordering};
use std::time::Duration;

/// Checks all interleavings with at most this many preemptions. More would take hours, and these races need one or
/// two.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

fn count() -> (Arc<AtomicUsize>, impl Fn() -> Box<dyn FnOnce() + Send>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let job = move || -> Box<dyn FnOnce() + Send> {
        let counted = counted.clone();
        Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
    };
    (ran, job)
}

/// Fails if `submit` checks the status in one critical section and queues the job in another.
#[test]
fn a_job_is_submitted_while_the_pool_stops() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let (ran, job) = count();
        let submitter = loom::thread::spawn({
            let (pool, job) = (pool.clone(), job());
            move || pool.execute(job).is_ok()
        });
        let ended = pool.stop().unwrap();
        let accepted = submitter.join().unwrap();
        let stats = pool.stats();
        let ran = ran.load(Ordering::SeqCst) as u64;
        assert_eq!((stats.submitted, stats.finished), (u64::from(accepted), ran));
        assert_eq!(stats.submitted, ran + stats.abandoned);
        assert!(stats.abandoned == ended.abandoned && stats.unfinished() == 0 && stats.workers == 0);
    });
}

/// Fails if a drain does not wake parked workers, or if a worker exits without another check of the queue.
#[test]
fn a_job_is_submitted_while_the_pool_drains() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let (ran, job) = count();
        pool.execute(job()).unwrap();
        let submitter = loom::thread::spawn({
            let (pool, job) = (pool.clone(), job());
            move || pool.execute(job).is_ok()
        });
        pool.drain().unwrap();
        let accepted = usize::from(submitter.join().unwrap());
        assert_eq!(ran.load(Ordering::SeqCst), 1 + accepted, "what was accepted was run before the drain returned");
        assert_eq!(pool.status(), PoolStatus::Stopped);
    });
}

/// Fails if `submit` counts on a worker that has decided to exit, or if an exiting worker does not check for new
/// jobs.
#[test]
fn a_job_arrives_while_the_idle_worker_retires() {
    model(2, || {
        let manual = ManualClock::new();
        let second = Duration::from_secs(1);
        let pool = Pool::builder().max(1).idle_period(Some(second)).clock(manual.clock()).build().unwrap();
        let (ran, job) = count();
        pool.execute(job()).unwrap();
        let time = loom::thread::spawn(move || {
            // The first period only marks the pool as quiet. So the worker must check before the second period is
            // over.
            for _ in 0..2 {
                manual.advance(second);
                loom::thread::yield_now();
            }
        });
        loom::thread::yield_now();
        pool.execute(job()).unwrap();
        assert!(pool.wait_idle().is_ok());
        assert_eq!(ran.load(Ordering::SeqCst), 2, "whether by the same worker or by another one");
        time.join().unwrap();
        pool.stop().unwrap();
    });
}

/// Fails if a withdrawn job is removed without the lock under which a worker takes it.
#[test]
fn a_job_is_cancelled_while_it_begins() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let (ran, job) = count();
        pool.execute(job()).unwrap();
        let handle = pool.spawn(job()).unwrap();
        let cancelled = handle.cancel();
        match handle.wait() {
            Ok(()) => assert!(!cancelled),
            Err(JobError::Cancelled) => assert!(cancelled),
            Err(other) => panic!("{other}"),
        }
        pool.drain().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 2 - usize::from(cancelled));
    });
}

/// Fails if the end of a pause wakes no worker for the jobs that the pause held back.
#[test]
fn a_job_is_submitted_while_a_pause_ends() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let (ran, job) = count();
        let pause = pool.pause().unwrap();
        let submitter = loom::thread::spawn({
            let (pool, job) = (pool.clone(), job());
            move || pool.execute(job).unwrap()
        });
        drop(pause);
        submitter.join().unwrap();
        assert!(pool.wait_idle().is_ok());
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        pool.stop().unwrap();
    });
}

/// Fails if a woken worker does not wake the next one while there is a job for it.
#[test]
fn two_jobs_that_need_each_other_find_two_who_rest() {
    model(1, || {
        let pool = Pool::builder().max(2).idle_period(None).build().unwrap();
        let pair = || {
            let (one, two) = (Latch::new(), Latch::new());
            let (first, second) = (one.clone(), two.clone());
            pool.execute(move || {
                first.set(()).unwrap();
                two.wait();
            })
            .unwrap();
            pool.execute(move || {
                second.set(()).unwrap();
                one.wait();
            })
            .unwrap();
            assert!(pool.wait_idle().is_ok());
        };
        pair();
        pair();
        pool.stop().unwrap();
    });
}

/// Fails if the latch is checked before the parker is registered with it, or is not checked again after a call.
#[test]
fn a_wait_for_room_ends_when_its_latch_is_set() {
    model(2, || {
        let pool = Pool::builder().max(1).queue(QueuePolicy::Block(0)).idle_period(None).build().unwrap();
        let (go, over) = (Latch::new(), Latch::new());
        let gate = go.clone();
        pool.execute(move || gate.wait()).unwrap();
        let decider = loom::thread::spawn({
            let over = over.clone();
            move || over.set(()).unwrap()
        });
        let refused = pool.submit_unless(&over, || unreachable!("there is never any room")).is_err();
        assert!(refused && over.is_set());
        decider.join().unwrap();
        go.set(()).unwrap();
        pool.drain().unwrap();
        assert_eq!((pool.stats().submitted, Arc::strong_count(&pool.owner)), (1, 1));
    });
}

/// Fails if one critical section takes the job out of the pacer's queue and only a later one notes its ticket.
#[test]
fn a_paced_job_is_cancelled_while_it_is_handed_over() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let go = Latch::new();
        let gate = go.clone();
        pool.execute(move || gate.wait()).unwrap();
        let pacer = Pacer::with_clock(Duration::ZERO, ManualClock::new().clock());
        let (ran, job) = count();
        pacer.pause();
        let handle = pacer.spawn(&pool, job()).unwrap();
        let resumer = loom::thread::spawn({
            let pacer = pacer.clone();
            move || pacer.resume()
        });
        assert!(handle.cancel(), "the only worker is at something else, so it has not begun");
        resumer.join().unwrap();
        assert_eq!((pool.stats().waiting, pacer.stats().given_up), (0, 1), "nothing of it is left in either line");
        go.set(()).unwrap();
        pool.drain().unwrap();
        assert_eq!((ran.load(Ordering::SeqCst), pool.stats().finished), (0, 1));
    });
}

/// Fails if a job frees its turn when it begins and again when it is dropped.
#[test]
fn a_paced_job_is_cancelled_while_it_begins() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let pacer = Pacer::with_clock(Duration::ZERO, ManualClock::new().clock());
        let (ran, job) = count();
        pacer.execute(&pool, job()).unwrap();
        let handle = pacer.spawn(&pool, job()).unwrap();
        let cancelled = handle.cancel();
        match handle.wait() {
            Ok(()) => assert!(!cancelled),
            Err(JobError::Cancelled) => assert!(cancelled),
            Err(other) => panic!("{other}"),
        }
        assert!(pool.wait_idle().is_ok());
        let (ran, stats) = (ran.load(Ordering::SeqCst), pacer.stats());
        assert_eq!(ran, 2 - usize::from(cancelled));
        assert_eq!((stats.started, stats.given_up), (ran as u64, u64::from(cancelled)));
        pool.drain().unwrap();
    });
}

/// Fails if `shutdown_node` does not check afterwards whether the pool has ended, or if the end does not check
/// afterwards whether there is a node.
#[test]
fn the_state_is_asked_for_while_the_pool_ends() {
    model(3, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let (_, job) = count();
        pool.execute(job()).unwrap();
        let asks = loom::thread::spawn({
            let pool = pool.clone();
            move || pool.shutdown_node()
        });
        pool.stop().unwrap();
        assert!(asks.join().unwrap().is_closed());
    });
}

/// Fails if `shutdown_node` checks whether the pool has ended before it makes the node. This end finds neither threads
/// nor a node, and reports nothing.
#[test]
fn the_state_is_asked_for_while_an_unused_pool_ends() {
    model(3, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        let asks = loom::thread::spawn({
            let pool = pool.clone();
            move || pool.shutdown_node()
        });
        pool.stop().unwrap();
        assert!(asks.join().unwrap().is_closed());
    });
}

/// Fails if a stop takes the waiting jobs in one critical section and counts them as being dropped in another.
#[test]
fn neither_of_two_stops_returns_before_the_abandoned_jobs_are_dropped() {
    model(2, || {
        let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
        // The pause prevents a worker from being started for the job.
        let _pause = pool.begin_pause().unwrap();
        let job = Arc::new(());
        let kept = job.clone();
        pool.execute(move || drop(kept)).unwrap();
        let stops = loom::thread::spawn({
            let (pool, job) = (pool.clone(), job.clone());
            move || {
                pool.stop().unwrap();
                assert_eq!(Arc::strong_count(&job), 2, "of the two threads");
            }
        });
        pool.stop().unwrap();
        assert!(Arc::strong_count(&job) <= 2);
        stops.join().unwrap();
        assert_eq!((Arc::strong_count(&job), pool.stats().abandoned), (1, 1));
    });
}
