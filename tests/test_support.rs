//! The support that the suites share does what its documentation says.

#[path = "common/blocker.rs"]
mod blocker;
#[path = "common/panics.rs"]
mod panics;
#[path = "common/script.rs"]
mod script;
#[path = "common/wait.rs"]
mod wait;
#[path = "common/waker.rs"]
mod waker;

use std::sync::Arc;
use std::task::Waker;

use procession::pool::Pool;
use procession::sync::Latch;
use procession::{Events, Runtime, Step, StepOutput};

use crate::blocker::{Blocker, BlocksInDrop, hold};
use crate::panics::{ON_PURPOSE, is_on_purpose, quiet_panics};
use crate::script::{Log, script};
use crate::wait::wait;
use crate::waker::WakeCounter;

#[test]
fn a_blocker_holds_a_job_until_it_is_released() {
    let pool = Pool::new(1).unwrap();
    let (blocker, list) = (Blocker::new(), Log::new());
    let (blocked, entries) = (blocker.blocked(), list.clone());
    assert!(!blocker.has_begun());
    let job = pool.spawn(move || {
        blocked.wait();
        entries.push("released");
    });
    blocker.wait_begun();
    assert!(blocker.has_begun() && list.len() == 0);
    blocker.release();
    wait(job.unwrap()).unwrap();
    assert_eq!(list.to_vec(), ["released"]);
    assert_eq!(list.take(), ["released"]);
    assert_eq!(list.len(), 0);
}

#[test]
fn a_dropped_blocker_releases_a_step() {
    quiet_panics();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::Done(7))
    });
    let process = runtime.spawn(process).unwrap();
    blocker.wait_begun();
    drop(blocker);
    assert_eq!(**wait(&process).output().unwrap(), 7);
}

#[test]
fn a_held_worker_runs_no_job_until_it_is_released() {
    let pool = Pool::new(1).unwrap();
    let blocker = hold(&pool);
    assert!(blocker.has_begun() && blocker.begun().is_set());
    let job = pool.spawn(|| 7).unwrap();
    assert_eq!((pool.stats().running, pool.stats().waiting), (1, 1));
    blocker.release();
    assert_eq!(wait(job).unwrap(), 7);
}

#[test]
fn wakers_and_destructors_block_until_they_are_released() {
    for wakes in [true, false] {
        let blocker = Blocker::new();
        let (waker, value) = (blocker.waker(), BlocksInDrop(blocker.blocked()));
        let thread = std::thread::spawn(move || {
            if wakes {
                waker.wake();
            }
            // It returns at once if its blocker has been released.
            drop(value);
        });
        blocker.wait_begun();
        for _ in 0..1_000 {
            assert!(!thread.is_finished());
            std::thread::yield_now();
        }
        blocker.release();
        wait(thread).unwrap();
    }
}

#[test]
fn a_wake_counter_counts_and_is_let_go_with_its_waker() {
    let counter = Arc::new(WakeCounter::default());
    let waker = Waker::from(counter.clone());
    waker.wake_by_ref();
    waker.wake();
    assert_eq!((counter.times(), Arc::strong_count(&counter)), (2, 1));
}

#[test]
fn an_expected_panic_is_contained_and_not_printed() {
    quiet_panics();
    let pool = Pool::new(1).unwrap();
    let ran = Latch::new();
    let runs = ran.clone();
    let job = pool.spawn(move || {
        runs.set(()).unwrap();
        panic!("{ON_PURPOSE}");
    });
    assert!(wait(job.unwrap()).is_err() && ran.is_set());
}

#[test]
fn the_report_of_a_failure_that_quotes_an_expected_panic_is_printed() {
    assert!(is_on_purpose(ON_PURPOSE) && is_on_purpose(&format!("{ON_PURPOSE}, in the handler")));
    assert!(!is_on_purpose(&format!("law 4: <1.2.1> panicked: {ON_PURPOSE}, and its messages arrived")));
}
