//! A. Making a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::{DEFAULT_IDLE_PERIOD, DEFAULT_MAX, Pool, PoolBuildError, QueuePolicy};

use crate::support::*;

#[test]
fn a_new_pool_takes_jobs_at_once() {
    assert_eq!(Pool::new(3).unwrap().run(|| 7).unwrap(), 7);
}

#[test]
fn a_pool_with_wrong_numbers_of_workers_is_refused() {
    let error = Pool::new(0).unwrap_err();
    assert_eq!(error.to_string(), "a pool needs at least one thread: `max` is 0");
    let error = Pool::builder().min(5).max(4).build().unwrap_err();
    assert_eq!(error, PoolBuildError::Min { min: 5, max: 4 });
    assert_eq!(error.to_string(), "a pool cannot keep more threads than it may have: `min` is 5, and `max` is 4");
    assert_eq!(Pool::builder().min(0).max(0).build().unwrap_err(), PoolBuildError::Max { given: 0 });
    assert!(Pool::builder().min(4).max(4).build().is_ok());
}

#[test]
fn the_limits_can_be_read_back_and_do_not_change_by_themselves() {
    let pool = builder(5).min(2).build().unwrap();
    rested(&pool, 5);
    let _ = pool.run(|| panic!("on purpose"));
    pool.stop().unwrap();
    assert_eq!((pool.stats().min, pool.stats().max), (2, 5));
}

#[test]
fn options_may_come_in_any_order_and_each_has_one_default() {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let pool = Pool::builder().build().unwrap();
    assert_eq!((pool.stats().min, pool.stats().max), (0, processors.max(DEFAULT_MAX)));
    assert_eq!((DEFAULT_MAX, DEFAULT_IDLE_PERIOD), (4, Duration::from_secs(2)));
    assert_eq!(QueuePolicy::default(), QueuePolicy::Unbounded);
    let text = format!("{:?}", Pool::builder());
    for part in ["min: 0", "queue: Unbounded", "idle_period: Some(2s)", "name: \"pool\"", "stack_size: None"] {
        assert!(text.contains(part), "{text}");
    }

    let one = Pool::builder().max(3).queue(QueuePolicy::Reject(0)).min(1).build().unwrap();
    let two = Pool::builder().min(1).queue(QueuePolicy::Reject(0)).max(3).build().unwrap();
    assert_eq!(one.stats(), two.stats());
}

#[test]
fn a_new_pool_has_started_no_thread() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let pool = builder(4).min(4).on_start(move || add(&count)).build().unwrap();
    assert_eq!((pool.stats().workers, started.load(Ordering::SeqCst)), (0, 0));
    pool.run(|| ()).unwrap();
    assert_eq!((pool.stats().workers, started.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn threads_have_the_name_and_the_stack_that_were_asked_for() {
    let pool = builder(2).name("pool-of-names").stack_size(16 << 20).build().unwrap();
    fn deep(left: usize) -> u8 {
        let room = std::hint::black_box([1_u8; 4096]);
        if left == 0 { room[0] } else { deep(left - 1).max(room[left % 4096]) }
    }
    let (name, one) = pool.run(|| (std::thread::current().name().map(String::from), deep(800))).unwrap();
    assert_eq!((name.as_deref(), one), (Some("pool-of-names-1"), 1), "with more than 3 MiB, where 2 are the rule");

    assert_eq!(Pool::builder().name("a\0b").build().unwrap_err(), PoolBuildError::Name { given: String::from("a\0b") });
    let error = Pool::builder().stack_size(usize::MAX).build().unwrap_err();
    assert_eq!(error, PoolBuildError::StackSize { given: usize::MAX });
    builder(1).stack_size(0).build().unwrap().run(|| ()).unwrap();
    let refused = builder(1).stack_size(isize::MAX as usize).build().unwrap().execute(|| ()).unwrap_err();
    assert!(refused.to_string().starts_with("the pool cannot start a thread"), "{refused}");
}

#[test]
fn run_needs_no_clock_to_go_on() {
    let (pool, manual) = by_hand(2);
    let before = manual.now();
    for n in 0..5_000 {
        assert_eq!(pool.run(move || n).unwrap(), n);
    }
    assert_eq!(manual.now(), before, "it stands still");
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_pool_uses_no_processor_time() {
    let pool = builder(5).idle_period(None).build().unwrap();
    rested(&pool, 5);
    let threads = pool_threads(&pool);
    let looks = || threads.iter().map(|thread| look(thread)).collect::<Vec<_>>();
    let other = Pool::new(1).unwrap();
    // One that sleeps may still be on its way to where it rests. A pool that polls would never be found so.
    until("all rest: state, and times that they went to sleep", || {
        let before = looks();
        for _ in 0..5_000 {
            other.run(|| ()).unwrap();
        }
        before.iter().all(|(state, _)| state == "S") && before == looks()
    });
}

/// The numbers of the threads of a pool, as the operating system has them.
#[cfg(target_os = "linux")]
fn pool_threads(pool: &Pool) -> Vec<String> {
    let workers = pool.stats().workers;
    let together = Arc::new(Barrier::new(workers));
    let jobs = (0..workers).map(|_| {
        let together = together.clone();
        move || {
            wait(&together);
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            link.file_name().unwrap().to_string_lossy().into_owned()
        }
    });
    pool.run_all(jobs).into_iter().map(Result::unwrap).collect()
}

/// Whether a thread sleeps (`S`), and how often it went to sleep by itself.
#[cfg(target_os = "linux")]
fn look(thread: &str) -> (String, String) {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_string()
    };
    (field("State"), field("voluntary_ctxt_switches"))
}
