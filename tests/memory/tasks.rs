//! The memory that tasks leave behind.

use std::sync::Arc;
use std::time::Duration;

use procession::pool::Pool;
use procession::task::{TaskOptions, TaskScheduler};

use crate::helpers::*;
use crate::resident::*;

/// Submits one of many, whose handle is dropped: half of them have timers, and a tenth is cancelled.
fn submit(tasks: &TaskScheduler, n: u64) {
    let options = if n.is_multiple_of(2) { TaskOptions::new() } else { TaskOptions::new().timeout(LIMIT) };
    let task = tasks.submit_with(options.name("one of many"), move |_| Ok::<_, String>([n; 16])).unwrap();
    if n.is_multiple_of(10) {
        task.cancel();
    }
}

fn until_all_are_over(tasks: &TaskScheduler) {
    until("all are over", || {
        let stats = tasks.stats();
        // A timer is cleared away a moment after its task is over, by the thread that has ended that.
        stats.scheduled + stats.running == 0 && stats.abandoned == 0 && (stats.records, stats.timers) == (0, 0)
    });
}

/// The most tasks at a time on a pool that starts as many threads as there are tasks.
const WAVE: u64 = 50;

#[test]
fn a_million_tasks_with_dropped_handles_leave_no_memory_behind() {
    alone(|| {
        let pool = Pool::builder().max(2).build().unwrap();
        let (own, shared) = (TaskScheduler::new(), TaskScheduler::on(&pool));
        // How many are there at the same time is no matter of chance, or what is kept for so many would be one, too.
        let waves = |waves: u64| {
            for _ in 0..waves {
                (0..WAVE).for_each(|n| submit(&own, n));
                until_all_are_over(&own);
            }
        };
        let heaps = |heaps: u64| {
            for _ in 0..heaps {
                let pause = pool.pause().unwrap();
                (0..50_000).for_each(|n| submit(&shared, n));
                drop(pause);
                until_all_are_over(&shared);
            }
        };
        // All that is kept from now on: as many threads, and as many records, as there will ever be.
        let together = Arc::new(Barrier::new(WAVE as usize));
        for _ in 0..WAVE {
            let together = together.clone();
            drop(own.submit(move |_| Ok::<_, String>(wait(&together))).unwrap());
        }
        until_all_are_over(&own);
        waves(1_000);
        heaps(1);
        let before = resident_kib();
        waves(9_000);
        heaps(9);
        assert_grown_by_at_most(16 * 1024, before);
        for (tasks, submitted) in [(&own, 10_000 * WAVE + WAVE), (&shared, 500_000)] {
            let stats = tasks.stats();
            assert_eq!((stats.submitted, stats.records, stats.timers), (submitted, 0, 0));
            assert!(tasks.list().is_empty());
        }
    });
}

#[test]
fn ten_thousand_timeouts_cost_one_thread_together() {
    alone(|| {
        let pool = Pool::builder().max(4).build().unwrap();
        let tasks = TaskScheduler::on(&pool);
        let before = system("Threads:");
        let options = || TaskOptions::new().timeout(Duration::from_secs(3600)).start_timeout(Duration::from_secs(3600));
        let all: Vec<_> =
            (0..10_000).map(|_| tasks.submit_with(options(), |cancel| Err::<(), _>(cancel.wait())).unwrap()).collect();
        // One whose closure begins swaps one timer for the other, in two steps.
        until("as many run as can", || (tasks.stats().running, tasks.stats().timers) == (4, 10_000));
        let threads = system("Threads:");
        // The pool's, the timers', and whatever the test harness has started meanwhile.
        assert!(threads < before + 20, "{before} threads before, {threads} now");
        assert_eq!(all.iter().filter(|task| task.cancel()).count(), 10_000);
        // A timer that a worker has made for a task that is over by then is cleared away by that worker.
        until("the timers are cleared away", || tasks.stats().timers == 0);
        tasks.stop_and_join(LIMIT).unwrap();
    });
}
