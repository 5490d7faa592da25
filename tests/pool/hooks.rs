//! Hooks at the start and the end of a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;

#[test]
fn hooks_run_before_the_first_job_and_after_the_last() {
    thread_local!(static STARTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let (starts, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (start, end) = (starts.clone(), ends.clone());
    let pool = builder(3)
        .on_start(move || {
            STARTED.set(STARTED.get() + 1);
            add(&start);
        })
        .on_end(move || {
            assert_eq!(STARTED.get(), 1);
            add(&end);
        })
        .build()
        .unwrap();
    let together = Arc::new(Barrier::new(3));
    let results = pool.run_all((0..3).map(|_| {
        let together = together.clone();
        move || {
            wait(&together);
            STARTED.get()
        }
    }));
    assert!(results.into_iter().all(|started| started.unwrap() == 1));
    assert_eq!(ends.load(Ordering::SeqCst), 0);
    pool.stop().unwrap();
    assert_eq!((starts.load(Ordering::SeqCst), ends.load(Ordering::SeqCst)), (3, 3), "before the stop returned");
}

#[test]
fn a_job_that_comes_during_an_end_hook_has_another_worker() {
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let manual = procession::clock::ManualClock::new();
    let pool =
        builder(1).idle_period(Some(SECOND)).clock(manual.clock()).on_end(move || blocked.wait()).build().unwrap();
    pool.run(|| ()).unwrap();
    advance_until("it leaves", &manual, SECOND, || blocker.has_begun());
    let job = pool.spawn(|| 7).unwrap();
    assert_eq!((pool.stats().workers, pool.stats().waiting), (1, 1), "there may not be two");
    blocker.release();
    assert_eq!(wait(job).unwrap(), 7);
    assert_eq!(pool.stats().workers, 1);
}

#[test]
fn hooks_may_use_the_pool_that_they_belong_to() {
    let slot: Arc<Mutex<Option<procession::pool::Pool>>> = Arc::default();
    let (from_start, from_panic) = (slot.clone(), slot.clone());
    let pool = builder(1)
        .on_start(move || {
            let pool = from_start.lock().unwrap().clone().unwrap();
            assert!(pool.is_inside());
            pool.execute(|| ()).unwrap();
        })
        .on_panic(move |_| {
            let pool = from_panic.lock().unwrap().clone().unwrap();
            assert_eq!(pool.run(|| 1).unwrap(), 1);
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(pool.clone());
    pool.execute(|| panic!("on purpose")).unwrap();
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!((pool.stats().finished, pool.stats().panicked), (3, 1));
    slot.lock().unwrap().take();
    ended(&pool);
}
