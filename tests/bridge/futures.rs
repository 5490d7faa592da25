//! Futures as commands: when they are polled, and how they are answered. Statements 1, 3, 4 and 9.

use std::future::{self, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use procession::{BoxError, CommandError, Event, Events, Exit, Step, StepOutput};

use crate::helpers::*;
use crate::puppet_future::*;

#[test]
fn a_future_is_polled_when_its_step_has_returned() {
    let (order, first) = (Log::new(), AtomicBool::new(true));
    let log = order.clone();
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if first.swap(false, Ordering::Relaxed) {
            let polled = log.clone();
            out.future(async move { polled.push("poll") });
            log.push("yielded");
            return Ok(Step::Wait);
        }
        log.push("answer");
        assert!(matches!(events.next(), Some(Event::Completed(_))));
        assert!(events.next().is_none(), "there is one answer");
        Ok(Step::Done(()))
    });
    output(&runtime(1).spawn(process).unwrap());
    assert_eq!(order.take(), ["yielded", "poll", "answer"]);
}

#[test]
fn a_future_of_a_failed_step_is_dropped_without_a_poll() {
    type End = fn() -> Result<(), BoxError>;
    let ends: [End; 2] = [|| Err("on purpose".into()), || panic!("on purpose")];
    let runtime = runtime(1);
    for end in ends {
        let strings = Strings::default();
        let future = strings.clone();
        let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.future(future.future());
            end()?;
            Ok(Step::<()>::Idle)
        });
        let exit = join(&runtime.spawn(process).unwrap());
        assert!(matches!(exit, Exit::Failed(_) | Exit::Panicked(_)));
        assert_eq!((strings.polls(), strings.drops()), (0, 1));
    }
}

#[test]
fn a_future_of_the_last_step_is_dropped_without_a_poll() {
    let strings = Strings::default();
    let future = strings.clone();
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.future(future.future());
        Ok(Step::Done(()))
    });
    output(&runtime(1).spawn(process).unwrap());
    assert_eq!((strings.polls(), strings.drops()), (0, 1));
}

/// A future that always wakes itself, and a flood of messages, on several workers.
#[test]
fn a_future_is_never_polled_beside_a_step() {
    const MESSAGES: usize = 20_000;
    let (inside, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let alone = |inside: &AtomicBool| {
        assert!(!inside.swap(true, Ordering::SeqCst), "a poll and a step ran at once");
        std::thread::yield_now();
        inside.store(false, Ordering::SeqCst);
    };
    let runtime = runtime(4);
    let (in_step, polled, mut taken) = (inside.clone(), polls.clone(), 0);
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        alone(&in_step);
        if taken == 0 {
            let (inside, polls) = (in_step.clone(), polled.clone());
            out.future(poll_fn::<(), _>(move |context| {
                alone(&inside);
                polls.fetch_add(1, Ordering::SeqCst);
                context.waker().wake_by_ref();
                Poll::Pending
            }));
            taken = 1;
        }
        taken += events.count();
        Ok(if taken > MESSAGES { Step::Done(()) } else { Step::Idle })
    });
    let handle = runtime.spawn(process).unwrap();
    until("the future was polled", || polls.load(Ordering::SeqCst) > 0);
    (0..MESSAGES).for_each(|_| runtime.send(handle.address(), ()).unwrap());
    output(&handle);
    assert!(polls.load(Ordering::SeqCst) > 1);
}

#[test]
fn polls_without_a_result_are_no_steps() {
    const POLLS: usize = 1_000;
    for waits in [true, false] {
        let (runtime, strings) = (runtime(1), Strings::default());
        let future = strings.clone();
        let process = awaiting(move |out: &mut StepOutput| vec![out.future(future.future())], |_, _| true);
        let handle = runtime.spawn(Awaiting { waits, ..process }).unwrap();
        for polls in 1..=POLLS {
            until("the future was polled", || strings.polls() == polls);
            strings.wake();
        }
        until("the future was polled", || strings.polls() == POLLS + 1);
        let is_idle = || runtime.process(handle.pid()).is_some_and(|process| process.steps == 1);
        until("the process was stepped once", is_idle);
        strings.finish();
        assert_eq!(*output(&handle), 2, "the second step is that with the answer");
        assert_eq!((strings.polls(), strings.drops()), (POLLS + 2, 1));
    }
}

#[test]
fn a_process_waits_for_nothing_but_a_future() {
    let (runtime, strings) = (runtime(1), Strings::default());
    let future = strings.clone();
    let process = awaiting(move |out: &mut StepOutput| vec![out.future(future.future())], |_, _| true);
    let handle = runtime.spawn(Awaiting { waits: true, ..process }).unwrap();
    until("the future was polled", || strings.polls() == 1);
    runtime.send(handle.address(), ()).unwrap();
    strings.wake();
    until("the future was polled", || strings.polls() == 2);
    assert!(runtime.is_alive(handle.pid()));
    strings.finish();
    assert_eq!(*output(&handle), 2, "the message waits");
    assert_accounted(&runtime);
}

#[test]
fn a_panic_in_a_poll_is_the_answer_of_that_future_alone() {
    let (runtime, other) = (runtime(1), Strings::default());
    let (future, answers) = (other.clone(), Log::new());
    let taken = answers.clone();
    let yields = move |out: &mut StepOutput| {
        let broken = out.future(async { panic!("on purpose") });
        let broken_later = out.future(poll_fn({
            let mut polls = 0;
            move |context| {
                polls += 1;
                context.waker().wake_by_ref();
                if polls == 3 { panic!("on purpose, later") } else { Poll::Pending }
            }
        }));
        vec![broken, broken_later, out.future(future.future())]
    };
    let take = move |tags: &[_], done: procession::Completion| {
        let place = tags.iter().position(|tag| done.is(*tag)).unwrap();
        let answer = done.take(tags[place]).unwrap();
        taken.push((place, answer.map_err(|error| matches!(error, CommandError::Panicked(_)))));
        place == 2
    };
    let handle = runtime.spawn(awaiting(yields, take)).unwrap();
    until("both panics were answered", || answers.len() == 2);
    other.finish();
    output(&handle);
    assert_eq!(answers.take(), [(0, Err(true)), (1, Err(true)), (2, Ok(7))]);
}

/// The future itself, and its output.
#[test]
fn destructors_of_futures_that_panic_are_contained() {
    struct Fragile;
    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let (runtime, strings) = (runtime(1), Strings::default());
    let future = strings.future_with(|| panic!("on purpose"));
    let (process, answer) = awaiting_one(move |out| {
        out.future(async {
            let _fragile = Fragile;
            future::pending::<()>().await;
        });
        out.future(future)
    });
    // The tags are not compared, so only the answer of the second future may come.
    let _ = &answer;
    let handle = runtime.spawn(process).unwrap();
    until("the future was polled", || strings.polls() == 1);
    strings.finish();
    assert!(matches!(join(&handle), Exit::Done(_)));
    assert_eq!(answer.take(), [Ok(7)], "the value is there all the same");
}

#[test]
fn ready_futures_are_answered_in_order_and_without_another_turn() {
    let answers = Log::new();
    let taken = answers.clone();
    let yields = |out: &mut StepOutput| (0..10).map(|n| out.future(future::ready(n))).collect();
    let take = move |tags: &[_], done: procession::Completion| {
        let place = tags.iter().position(|tag| done.is(*tag)).unwrap();
        taken.push(done.take(tags[place]).unwrap().unwrap());
        place == 9
    };
    assert_eq!(*output(&runtime(1).spawn(awaiting(yields, take)).unwrap()), 2);
    assert_eq!(answers.take(), (0..10).collect::<Vec<_>>());
}

#[test]
fn an_error_of_a_future_is_an_answer_or_a_failure() {
    #[derive(Debug, PartialEq)]
    struct Busy;
    impl std::fmt::Display for Busy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("busy")
        }
    }
    impl std::error::Error for Busy {}

    let mut tags = None;
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let (value, failure, success) = *tags.get_or_insert_with(|| {
            let value = out.future(async { Err::<u32, _>(Busy) });
            (value, out.try_future(async { Err::<u32, _>(Busy) }), out.try_future(async { Ok::<_, Busy>(7) }))
        });
        for event in events {
            let Event::Completed(done) = event else { continue };
            if let Some(value) = done.take(value) {
                assert_eq!(value?, Err(Busy));
            } else if let Some(failure) = done.take(failure) {
                let error = failure.unwrap_err();
                let CommandError::Failed(failure) = &error else { panic!("{error}") };
                assert_eq!(failure.error().downcast_ref(), Some(&Busy));
            } else if let Some(success) = done.take(success) {
                return Ok(Step::Done(success?));
            }
        }
        Ok(Step::Idle)
    });
    assert_eq!(*output(&runtime(1).spawn(process).unwrap()), 7);
}
