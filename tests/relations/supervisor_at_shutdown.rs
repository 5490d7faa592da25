//! Supervisors while the runtime ends, and a supervisor that fails.

use std::time::Duration;

use procession::exit::Failure;
use procession::supervisor::{ChildSpec, ChildState, Supervisor, SupervisorMessage};
use procession::testing::{Driver, Status, question};
use procession::{BoxError, Exit, Pid, Reason};

use crate::helpers::*;
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

/// A supervisor of two, the second of which is a supervisor if that is wanted; driven until it has started them.
fn driven(branch: bool) -> (Driver<Supervisor>, [Pid; 2]) {
    let second = if branch {
        ChildSpec::supervisor("b", || Supervisor::builder().build().unwrap())
    } else {
        ChildSpec::new("b", sink::<()>)
    };
    let builder = Supervisor::builder().intensity(0, SECOND).child(ChildSpec::new("a", sink::<()>)).child(second);
    let mut driver = Driver::new(builder.build().unwrap());
    assert_eq!(driver.run(), Status::Idle);
    let pids = [(); 2].map(|()| driver.spawned().unwrap().0);
    (driver, pids)
}

fn failed() -> Exit {
    Exit::Failed(Failure::from(BoxError::from("it failed")))
}

/// All processes are asked to stop at once. So a supervisor may be told of its children's ends before it is asked
/// itself.
#[test]
fn a_child_that_ends_with_the_runtime_is_no_failure_and_is_not_restarted() {
    let (mut driver, [a, b]) = driven(false);
    driver.shuts_down().ended(b, &Exit::Done(())).run();
    assert!(driver.exit().is_none() && driver.spawned().is_none());
    assert_eq!(driver.cancelled().iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [a], "the others are stopped");
    driver.ended(a, &failed());
    assert_eq!(driver.run(), Status::Ended);
    assert!(driver.exit().unwrap().is_done());
}

/// The runtime began to shut down in the middle of the step in which the supervisor started it.
#[test]
fn a_child_not_begun_at_shutdown_does_not_fail_its_supervisor() {
    let (mut driver, [a, b]) = driven(true);
    driver.shuts_down().ended(b, &Exit::Terminated(Reason::NoSuchProcess)).run();
    assert!(driver.exit().is_none());
    driver.ended(a, &Exit::Done(())).run();
    assert!(driver.exit().unwrap().is_done());
}

#[test]
fn a_supervisor_asked_to_stop_after_its_children_is_done() {
    const MANY: usize = 1_000;
    for _ in 0..10 {
        let runtime = runtime(2);
        // The lowest slot is asked first. The children get the slots of processes that have ended, so the supervisor
        // is asked last.
        let before: Vec<_> = (0..MANY).map(|_| runtime.spawn(sink::<()>()).unwrap()).collect();
        let boss = supervise(&runtime, Supervisor::builder().intensity(0, SECOND).build().unwrap());
        for process in before {
            runtime.terminate(process.pid()).unwrap();
            join(&process);
        }
        for n in 0..MANY {
            boss.add(ChildSpec::new(n.to_string(), sink::<()>)).unwrap();
        }
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        assert!(join(&boss.handle).is_done(), "{}", join(&boss.handle));
    }
}

/// An answer that is given in the step in which the last child ends is sent, though the supervisor then fails.
#[test]
fn who_asks_a_supervisor_at_the_moment_at_which_it_fails_is_answered() {
    let (mut driver, [a, b]) = driven(false);
    let (children, asked) = question();
    driver.message(SupervisorMessage::children(children)).ended(a, &failed()).run();
    let told = asked.answer().unwrap().unwrap();
    assert_eq!(told.iter().map(|info| info.state).collect::<Vec<_>>(), [ChildState::ToStop]);
    let (stop, stopped) = question();
    let (late, never) = question();
    driver.message(SupervisorMessage::stop("b")(stop)).ended(b, &Exit::Done(()));
    assert_eq!(driver.step(), Status::Ready);
    stopped.answer().unwrap().unwrap().unwrap_err();
    driver.message(SupervisorMessage::children(late));
    assert_eq!(driver.run(), Status::Ended);
    assert!(never.answer().unwrap().is_err());
    let exit = driver.exit().unwrap().without_output();
    assert!(exit.to_string().starts_with("failed: too many restarts: a"), "{exit}");
}
