//! The support that the suites share does what its documentation says.

#[path = "common/blocker.rs"]
mod blocker;
#[path = "common/panics.rs"]
mod panics;
#[path = "common/script.rs"]
mod script;
#[path = "common/wait.rs"]
mod wait;

use procession::pool::Pool;
use procession::sync::Latch;
use procession::{Events, Runtime, Step, StepOutput};

use crate::blocker::Blocker;
use crate::panics::{ON_PURPOSE, quiet_panics};
use crate::script::{SharedList, script};
use crate::wait::wait;

#[test]
fn a_blocker_holds_a_job_until_it_is_released() {
    let pool = Pool::new(1).unwrap();
    let (blocker, list) = (Blocker::new(), SharedList::new());
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
