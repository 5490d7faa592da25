//! What tasks leave behind, in a program of its own: what other tests hold at the same time would count as well.

#![cfg(target_os = "linux")]
#![allow(unreachable_pub, dead_code)]

#[path = "process/helpers.rs"]
mod helpers;

use std::time::Duration;

use procession::pool::Pool;
use procession::task::{TaskOptions, Tasks};

use crate::helpers::*;

/// A number from what the system knows of this program.
fn system(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// One after the other: each of them measures the whole program.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_million_submissions_with_dropped_handles_leave_the_memory_where_it_was() {
    let _alone = ALONE.lock();
    let pool = Pool::builder().max(2).build().unwrap();
    let (own, shared) = (Tasks::new(), Tasks::on(&pool));
    let round = |tasks: &Tasks, n: u64| {
        for n in 0..n {
            // Half of them with timers, and a tenth is cancelled.
            let options =
                if n % 2 == 0 { TaskOptions::new() } else { TaskOptions::new().timeout(Duration::from_secs(60)) };
            let task = tasks.submit_with(options.name("one of many"), move |_| Ok::<_, String>([n; 16])).unwrap();
            if n % 10 == 0 {
                task.cancel();
            }
        }
        until("all are over", || {
            let stats = tasks.stats();
            // A timer is cleared away a moment after its task is over, by the thread that has ended that.
            stats.scheduled + stats.running == 0 && stats.abandoned == 0 && (stats.records, stats.timers) == (0, 0)
        });
    };
    // In the greatest heaps that come, so that what is kept is kept from now on.
    round(&own, 50_000);
    round(&shared, 50_000);
    let before = system("VmRSS:");
    (0..9).for_each(|_| round(&own, 50_000));
    (0..9).for_each(|_| round(&shared, 50_000));
    let after = system("VmRSS:");
    for tasks in [&own, &shared] {
        let stats = tasks.stats();
        assert_eq!((stats.submitted, stats.records, stats.timers), (500_000, 0, 0));
        assert!(tasks.list().is_empty());
    }
    assert!(after < before + 16 * 1024, "{before} KiB before, {after} KiB after");
}

#[test]
fn ten_thousand_timeouts_cost_one_thread_together() {
    let _alone = ALONE.lock();
    let pool = Pool::builder().max(4).build().unwrap();
    let tasks = Tasks::on(&pool);
    let before = system("Threads:");
    let options = || TaskOptions::new().timeout(Duration::from_secs(3600)).start_within(Duration::from_secs(3600));
    let all: Vec<_> =
        (0..10_000).map(|_| tasks.submit_with(options(), |cancel| Err::<(), _>(cancel.wait())).unwrap()).collect();
    until("as many run as can", || tasks.stats().running == 4);
    assert_eq!(tasks.stats().timers, 10_000);
    let threads = system("Threads:");
    // The pool's, the timers', and whatever the test harness has started meanwhile.
    assert!(threads < before + 20, "{before} threads before, {threads} now");
    assert_eq!(all.iter().filter(|task| task.cancel()).count(), 10_000);
    assert_eq!(tasks.stats().timers, 0);
    tasks.stop_and_join(LIMIT).unwrap();
}
