//! The log of a scheduler of tasks, in a program of its own: the subscriber that all threads log to can only be the
//! global one.

#![allow(unreachable_pub, dead_code)]

#[path = "common/log.rs"]
mod log;
#[path = "common/wait.rs"]
mod wait;

use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::task::TaskScheduler;
use tracing::Level;

use crate::log::Recorder;
use crate::wait::Mutex;

/// Submits tasks that all run until the scheduler is stopped.
fn fill(tasks: &TaskScheduler, count: usize) {
    for _ in 0..count {
        drop(tasks.submit(|cancel| Err::<(), _>(cancel.wait())).unwrap());
    }
}

/// Until so many tasks run, each on a thread of its own.
fn until_running(tasks: &TaskScheduler, count: u64) {
    let began = Instant::now();
    while tasks.stats().running < count {
        // A bound for broken code only.
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", tasks.stats());
        std::thread::yield_now();
    }
}

#[test]
fn an_unlimited_scheduler_warns_once_at_1_000_threads() {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder { level: Level::WARN, records: warnings.clone(), check: |_| () };
    tracing::subscriber::set_global_default(recorder).unwrap();
    let limited = TaskScheduler::with_limit(4);
    fill(&limited, 2_000);
    let free = TaskScheduler::new();
    fill(&free, 999);
    until_running(&free, 999);
    assert_eq!(*warnings.lock().unwrap(), [""; 0]);
    fill(&free, 60);
    until_running(&free, 1_059);
    until_running(&limited, 4);
    let logged = warnings.lock().unwrap().clone();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].starts_with("WARN") && logged[0].contains("threads=1000"), "{logged:?}");
    assert_eq!((limited.stats().running, limited.stats().scheduled), (4, 1_996));
    free.stop();
    limited.stop();
}
