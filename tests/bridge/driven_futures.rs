//! Futures of a process that a test drives without a runtime. Statement 10.

use std::time::Duration;

use procession::testing::{Driver, Outstanding, Status};
use procession::{CommandError, Events, Step, StepOutput};

use crate::helpers::*;
use crate::puppet_future::*;

#[test]
fn a_driver_polls_the_futures_that_were_woken() {
    let strings = Strings::default();
    let future = strings.clone();
    let (process, answer) = awaiting_one(move |out| out.future(future.future()));
    let mut driver = Driver::new(process);
    assert_eq!(driver.run(), Status::Idle);
    assert_eq!(driver.outstanding(), [Outstanding::Future { tag: 1 }]);
    assert_eq!(strings.polls(), 1);
    driver.message(()).run();
    assert_eq!((strings.polls(), driver.steps()), (1, 2), "it was not woken");
    strings.wake();
    assert_eq!((driver.status(), driver.run()), (Status::Ready, Status::Idle));
    assert_eq!((strings.polls(), driver.steps()), (2, 2), "a poll is no step");
    strings.finish();
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(answer.take(), [Ok(7)]);
    assert!(driver.outstanding().is_empty());
}

#[test]
fn a_driver_answers_a_future_in_its_place() {
    for is_woken in [false, true] {
        let strings = Strings::default();
        let future = strings.clone();
        let (process, answer) = awaiting_one(move |out| out.future(future.future()));
        let mut driver = Driver::new(process);
        assert!(!driver.answer_future::<u32>(1, Ok(3)), "there is none yet");
        assert_eq!(driver.run(), Status::Idle);
        if is_woken {
            strings.finish();
        }
        assert!(driver.answer_future::<u32>(1, Ok(3)));
        assert!(!driver.answer_future::<u32>(1, Ok(4)), "it is over");
        assert_eq!((strings.polls(), strings.drops()), (1, 1));
        assert_eq!(driver.run(), Status::Ended);
        assert_eq!(answer.take(), [Ok(3)]);
        strings.wake();
    }
}

#[test]
fn a_driven_future_times_out_by_the_clock_of_the_driver() {
    let strings = Strings::default();
    let future = strings.clone();
    let (process, answer) = awaiting_one(move |out| out.future_timeout(Duration::from_secs(5), future.future()));
    let mut driver = Driver::new(process);
    driver.run();
    driver.advance(Duration::from_secs(4));
    assert_eq!(driver.run(), Status::Idle);
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(answer.take(), [Err(CommandError::TimedOut.to_string())]);
    assert_eq!((strings.polls(), strings.drops()), (1, 1));
}

#[test]
fn a_driven_process_cancels_a_future() {
    let strings = Strings::default();
    let future = strings.clone();
    let (process, answer) = awaiting_one(move |out| {
        let tag = out.future(future.future());
        out.cancel_future(tag);
        tag
    });
    assert_eq!(Driver::new(process).run(), Status::Ended);
    assert!(matches!(&answer.take()[..], [Err(_)]));
    assert_eq!((strings.polls(), strings.drops()), (0, 1));
}

#[test]
fn a_driven_process_that_ends_drops_its_futures() {
    let strings = Strings::default();
    let future = strings.clone();
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.future(future.future());
        Ok(Step::<()>::Wait)
    });
    let mut driver = Driver::new(process);
    assert_eq!(driver.run(), Status::Blocked);
    driver.terminate();
    assert_eq!((driver.status(), strings.drops()), (Status::Ended, 1));
}
