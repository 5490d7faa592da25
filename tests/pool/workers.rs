//! E. Workers: reuse and idling out.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::DEFAULT_IDLE_PERIOD;

use crate::support::*;

#[test]
fn jobs_that_follow_each_other_need_one_worker_in_all() {
    for _ in 0..50 {
        let pool = pool(4);
        for n in 0..10 {
            assert_eq!(pool.spawn(move || n).unwrap().wait_timeout(LIMIT).ok().unwrap().unwrap(), n);
        }
        assert_eq!(pool.stats().workers, 1);
    }
}

/// Workers end never too soon, and one after the other. The exact rule (of twenty, nineteen are left after two and a
/// half periods and eighteen after three and a half) is shown in `src/pool/rules.rs`, where nothing depends on when a
/// thread wakes.
#[test]
fn idle_workers_end_one_a_period_and_never_sooner() {
    let (pool, manual) = by_hand(20);
    rested(&pool, 20);
    let mut before = 20;
    for period in 1..400 {
        manual.advance(SECOND);
        std::thread::yield_now();
        let now = pool.stats().workers;
        assert!(now <= before && 20 - now < period, "{now} are left after {period} periods");
        before = now;
    }
    advance_until("the others go", &manual, SECOND, || pool.stats().workers == 0);
}

#[test]
fn with_minimum_zero_a_pool_shrinks_to_nothing_and_grows_again() {
    let (pool, manual) = by_hand(3);
    rested(&pool, 3);
    advance_until("all have gone", &manual, SECOND, || pool.stats().workers == 0);
    assert_eq!(pool.run(|| 7).unwrap(), 7);
    assert_eq!(pool.stats().workers, 1);
}

#[test]
fn the_minimum_is_kept_and_who_has_ended_is_not_started_again() {
    let manual = procession::clock::ManualClock::new();
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let pool = builder(5)
        .min(2)
        .idle_period(Some(SECOND))
        .clock(manual.clock())
        .on_start(move || add(&count))
        .build()
        .unwrap();
    rested(&pool, 5);
    until("the surplus has gone", || {
        manual.advance(SECOND);
        assert!(pool.stats().workers >= 2);
        pool.stats().workers == 2
    });
    for _ in 0..1_000 {
        manual.advance(SECOND);
        std::thread::yield_now();
    }
    assert_eq!((pool.stats().workers, started.load(Ordering::SeqCst)), (2, 5));
}

#[test]
fn a_busy_worker_is_not_ended_and_a_paused_one_neither() {
    let (pool, manual) = by_hand(2);
    let held = hold_all(&pool, 2);
    manual.advance(SECOND * 100);
    assert_eq!(pool.stats().workers, 2);
    drop(held);
    let pause = pool.pause().unwrap();
    for _ in 0..100 {
        manual.advance(SECOND);
        std::thread::yield_now();
    }
    assert_eq!(pool.stats().workers, 2, "in a pause nobody ages");
    drop(pause);
    advance_until("they age again", &manual, SECOND, || pool.stats().workers == 0);
}

#[test]
fn without_an_idle_period_all_are_there_after_hours() {
    let manual = procession::clock::ManualClock::new();
    let pool = builder(20).idle_period(None).clock(manual.clock()).build().unwrap();
    rested(&pool, 20);
    for _ in 0..100 {
        manual.advance(Duration::from_secs(3_600));
        std::thread::yield_now();
    }
    assert_eq!(pool.stats().workers, 20);
}

#[test]
fn an_idle_period_of_zero_is_the_default() {
    let text = format!("{:?}", builder(1).idle_period(Some(Duration::ZERO)));
    assert!(text.contains(&format!("idle_period: Some({DEFAULT_IDLE_PERIOD:?})")), "{text}");
    let manual = procession::clock::ManualClock::new();
    let pool = builder(1).idle_period(Some(Duration::ZERO)).clock(manual.clock()).build().unwrap();
    rested(&pool, 1);
    for _ in 0..19 {
        manual.advance(DEFAULT_IDLE_PERIOD / 10);
        std::thread::yield_now();
    }
    assert_eq!(pool.stats().workers, 1, "one period only marks");
    advance_until("it ends", &manual, DEFAULT_IDLE_PERIOD, || pool.stats().workers == 0);
    // And the greatest period is never.
    let pool = builder(1).idle_period(Some(Duration::MAX)).clock(manual.clock()).build().unwrap();
    rested(&pool, 1);
    manual.advance(Duration::from_secs(1 << 30));
    assert_eq!(pool.stats().workers, 1);
}

#[test]
fn after_a_stop_no_thread_is_left_nor_of_those_that_left_before() {
    thread_local!(static LAST: RefCell<Option<Farewell>> = const { RefCell::new(None) });
    struct Farewell(Arc<AtomicUsize>);
    impl Drop for Farewell {
        fn drop(&mut self) {
            add(&self.0);
        }
    }
    let (pool, manual) = by_hand(4);
    let (started, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // So many rounds, for of a pool that goes on the last eight are waited for, and in each round one may go.
    for round in 0..8 {
        let together = Arc::new(Barrier::new(4));
        let results = pool.run_all((0..4).map(|_| {
            let (together, started, ended) = (together.clone(), started.clone(), ended.clone());
            move || {
                wait(&together);
                LAST.with(|last| {
                    if last.borrow().is_none() {
                        add(&started);
                        *last.borrow_mut() = Some(Farewell(ended));
                    }
                });
            }
        }));
        assert!(results.into_iter().all(|result| result.is_ok()), "{round}");
        // Some go, and are ending when the stop comes.
        manual.advance(SECOND);
        manual.advance(SECOND);
    }
    together(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                pool.stop_timeout(LIMIT).unwrap();
                // The destructors of the thread-locals are the very last that a thread does.
                assert_eq!(ended.load(Ordering::SeqCst), started.load(Ordering::SeqCst));
            });
        }
    });
    assert!(started.load(Ordering::SeqCst) >= 4);
}

#[test]
fn a_thread_local_may_end_the_pool_that_its_thread_has_left() {
    thread_local!(static LAST: RefCell<Option<Ends>> = const { RefCell::new(None) });
    struct Ends(procession::pool::Pool, Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.drain().unwrap();
            self.0.stop().unwrap();
            add(&self.1);
        }
    }
    for waits in [true, false] {
        let (pool, ended, together) = (pool(3), Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(3)));
        let results = pool.run_all((0..3).map(|_| {
            let (ends, together) = (Ends(pool.clone(), ended.clone()), together.clone());
            move || {
                wait(&together);
                LAST.with(|last| *last.borrow_mut() = Some(ends));
            }
        }));
        assert!(results.into_iter().all(|result| result.is_ok()));
        if waits {
            // On a thread of its own, for it might wait for ever.
            let (drains, over) = (pool.clone(), procession::sync::Latch::new());
            let set = over.clone();
            std::thread::spawn(move || set.set(drains.drain_timeout(LIMIT).is_ok()).unwrap());
            until("the drain has returned", || over.is_set());
            assert_eq!((wait(&over), ended.load(Ordering::SeqCst)), (true, 3), "it has waited for them");
        } else {
            pool.close();
        }
        until("they do not wait for themselves, nor for each other", || ended.load(Ordering::SeqCst) == 3);
    }
}

/// Says when it is dropped, after a while.
struct Slow(Arc<AtomicUsize>);

impl Drop for Slow {
    fn drop(&mut self) {
        (0..500).for_each(|_| std::thread::yield_now());
        add(&self.0);
    }
}

thread_local!(static SLOW: std::cell::RefCell<Option<Slow>> = const { std::cell::RefCell::new(None) });

#[test]
fn a_drain_waits_for_a_thread_that_leaves_before_its_spawner() {
    for _ in 0..100 {
        let (pool, gone, begun) = (pool(1), Arc::new(AtomicUsize::new(0)), procession::sync::Latch::new());
        let (submits, slow, set) = (pool.clone(), Slow(gone.clone()), begun.clone());
        let spawner = std::thread::spawn(move || {
            let job = move || {
                SLOW.with(|place| *place.borrow_mut() = Some(slow));
                let _ = set.set(());
            };
            submits.execute(job).unwrap();
        });
        wait(&begun);
        pool.drain_timeout(LIMIT).unwrap();
        assert_eq!(gone.load(Ordering::SeqCst), 1);
        wait(spawner).unwrap();
    }
}

#[test]
fn a_stop_joins_all_threads_that_leave_with_it() {
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    /// The first to go is the last to have gone, by far.
    struct Last(Arc<AtomicUsize>, Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
                until("the others have gone", || self.1.load(Ordering::SeqCst) == 19);
                (0..500).for_each(|_| std::thread::yield_now());
            }
            add(&self.1);
        }
    }
    for drains in [true, false] {
        let (pool, together) = (pool(20), Arc::new(Barrier::new(20)));
        let (going, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let results = pool.run_all((0..20).map(|_| {
            let (last, together) = (Last(going.clone(), gone.clone()), together.clone());
            move || {
                wait(&together);
                LAST.with(|place| *place.borrow_mut() = Some(last));
            }
        }));
        assert!(results.into_iter().all(|result| result.is_ok()));
        let ended = if drains { pool.drain_timeout(LIMIT) } else { pool.stop_timeout(LIMIT) };
        assert_eq!((ended.is_ok(), gone.load(Ordering::SeqCst)), (true, 20));
    }
}

#[test]
fn a_start_hook_that_takes_long_holds_up_no_job() {
    let (starts, go) = (Arc::new(AtomicUsize::new(0)), procession::sync::Latch::new());
    let (count, gate) = (starts.clone(), go.clone());
    let pool = builder(2).on_start(move || {
        if count.fetch_add(1, Ordering::SeqCst) == 1 {
            wait(&gate);
        }
    });
    let pool = pool.build().unwrap();
    let pause = pool.pause().unwrap();
    let jobs = [pool.spawn(|| ()).unwrap(), pool.spawn(|| ()).unwrap()];
    drop(pause);
    until("the second thread is in its hook", || starts.load(Ordering::SeqCst) == 2);
    jobs.into_iter().for_each(|job| wait(job).unwrap());
    wait(pool.spawn(|| ()).unwrap()).unwrap();
    go.set(()).unwrap();
}

/// The worker frees its pool's memory when its main function returns. Then the destructors of its thread-locals run.
#[test]
fn a_thread_local_that_makes_a_pool_is_not_inside_that_pool() {
    thread_local!(static LAST: RefCell<Option<MakesPools>> = const { RefCell::new(None) });
    struct MakesPools(procession::sync::Latch<usize>);
    impl Drop for MakesPools {
        fn drop(&mut self) {
            let pools: Vec<_> = (0..64).map(|_| pool(1)).collect();
            let inside = pools.iter().filter(|pool| pool.is_inside()).count();
            let _ = self.0.set(inside);
        }
    }
    for _ in 0..20 {
        let (go, inside) = (procession::sync::Latch::new(), procession::sync::Latch::new());
        let (gate, pool, makes) = (go.clone(), pool(1), MakesPools(inside.clone()));
        let last = pool.clone();
        pool.execute(move || {
            wait(&gate);
            drop(last);
            LAST.with(|place| *place.borrow_mut() = Some(makes));
        })
        .unwrap();
        drop(pool);
        go.set(()).unwrap();
        assert_eq!(wait(&inside), 0);
    }
}
