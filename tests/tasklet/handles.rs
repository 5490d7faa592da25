//! The ends and the values of tasklets, and tasklets made of closures.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::Exit;
use procession::clock::ManualClock;
use procession::sync::Latch;
use procession::tasklet::{Directive, Loop, NoValueError, Promise, TaskletFuture, TurnOutcome, ready};

use crate::support::*;

#[test]
fn the_end_of_a_tasklet_can_be_waited_for_and_awaited() {
    let mut home = Loop::new(());
    let tasklet = home.handle().schedule(ready::done(), Directive::Home).unwrap();
    assert!(!tasklet.is_finished() && tasklet.exit().is_none());
    let wakes = Arc::new(WakeCounter::default());
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(tasklet.clone().into_future());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    let other = std::thread::spawn({
        let tasklet = tasklet.clone();
        move || tasklet.wait()
    });
    home.run().unwrap();
    assert!(matches!(wait(other).unwrap(), Ok(Exit::Done(()))));
    assert_eq!(wakes.times(), 1);
    assert!(matches!(future.as_mut().poll(&mut cx), Poll::Ready(Exit::Done(()))));
    assert!(matches!(pin!(tasklet.clone().into_future()).poll(&mut cx), Poll::Ready(Exit::Done(()))));
}

#[test]
fn waiting_for_a_tasklet_ends_by_the_clock_of_the_loop() {
    let manual = ManualClock::new();
    let home = Loop::<()>::builder().clock(manual.clock()).build(());
    let waits = home.handle().schedule(ready::wait(), Directive::Wait).unwrap();
    let other = std::thread::spawn(move || waits.wait_timeout(Duration::from_secs(5)).is_err());
    advance_until("the limit is over", &manual, Duration::from_secs(1), || other.is_finished());
    assert!(wait(other).unwrap());
}

#[test]
fn a_tasklet_leaves_the_value_that_it_has_promised() {
    let mut home = Loop::new(20);
    let handle = home.handle();
    let keeps = |promise: Promise<u32>| {
        let mut promise = Some(promise);
        ready::from_fn(move |state: &mut u32, _| {
            if let Some(promise) = promise.take() {
                promise.fulfill(*state + 1);
            }
            Directive::Done
        })
    };
    let answer: TaskletFuture<u32> = handle.schedule_with(keeps, Directive::Home).unwrap();
    let other = std::thread::spawn(move || answer.wait().unwrap().into_result().unwrap());
    home.run().unwrap();
    assert_eq!(wait(other).unwrap(), 21);

    let awaited = handle.schedule_with(keeps, Directive::Home).unwrap();
    let answer = awaited.wait_timeout(Duration::ZERO).unwrap_err().into_inner();
    let waker = Waker::from(Arc::new(WakeCounter::default()));
    let mut future = pin!(answer);
    let mut cx = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut cx).is_pending());
    home.run().unwrap();
    assert!(matches!(future.as_mut().poll(&mut cx), Poll::Ready(Exit::Done(21))));
}

#[test]
fn an_answer_says_why_there_is_no_value() {
    let mut home = Loop::new(());
    let handle = home.handle();
    let forgets = handle.schedule_with(|_: Promise<u32>| ready::done(), Directive::Home).unwrap();
    let panics = handle.schedule_with(|_: Promise<u32>| bomb(), Directive::Home).unwrap();
    let cancelled = handle.schedule_with(|_: Promise<u32>| ready::wait(), Directive::Home).unwrap();
    cancelled.handle().cancel("no longer");
    home.run().unwrap();
    let Exit::Failed(failure) = wait(forgets) else { panic!("it was done without a value") };
    assert_eq!(failure.error().downcast_ref::<NoValueError>(), Some(&NoValueError));
    assert!(matches!(wait(panics), Exit::Panicked(panic) if panic.message() == ON_PURPOSE));
    assert!(matches!(wait(cancelled), Exit::Terminated(_)));
    // Of a loop that is gone.
    let lost = handle.schedule_with(|_: Promise<u32>| ready::done(), Directive::Home).unwrap();
    drop(home);
    assert!(matches!(wait(lost), Exit::Terminated(_)));
}

#[test]
fn phases_run_where_they_belong_whatever_their_first_directive() {
    let mut home = Loop::new(Vec::new());
    let handle = home.handle();
    let home_thread = me();
    let begin = || {
        ready::begin()
            .then(|seen: &mut Vec<ThreadId>, ()| seen.push(me()))
            .then(|seen, ()| seen.push(me()))
            .then_blocking(|()| me())
            .then_blocking(move |there| {
                assert!(there != home_thread && me() != home_thread);
                there
            })
            .then(|seen, there| {
                seen.push(me());
                there
            })
    };
    let answer = handle.call(begin()).unwrap();
    let report = home.run().unwrap();
    assert_eq!((report.home_steps, report.pool_steps), (3, 2));
    assert!(wait(answer).into_result().unwrap() != me());
    assert_eq!(home.get(), &[me(), me(), me()]);
    // Scheduled for the pool, it finds out that it begins at home.
    let mut phases = Some(begin());
    let starts = ready::from_fn(move |_: &mut Vec<ThreadId>, cx| {
        cx.schedule(phases.take().unwrap(), Directive::Pool).unwrap();
        Directive::Done
    });
    assert_eq!(home.schedule(starts, Directive::Home).unwrap().run().unwrap().finished, 2);
    assert_eq!(home.get().len(), 6);
}

#[test]
fn a_blocking_call_brings_its_result_home() {
    let mut home = Loop::new(Vec::new());
    let (sender, receiver) = std::sync::mpsc::channel();
    let call = ready::call_blocking(move || wait(&receiver).unwrap()).then(|seen: &mut Vec<u32>, n: u32| {
        seen.push(n);
        seen.len()
    });
    let length = home.handle().call(call).unwrap();
    assert_eq!(home.run_until_idle(), TurnOutcome::Ran(1));
    assert!(home.get().is_empty());
    sender.send(9).unwrap();
    home.run().unwrap();
    assert_eq!((home.get().as_slice(), wait(length).into_result().unwrap()), ([9].as_slice(), 1));
}

#[test]
fn a_phase_that_panics_is_the_end_of_its_call() {
    quiet_panics();
    let mut home = Loop::new(0);
    let after = Latch::new();
    let set = after.clone();
    let call = ready::call_blocking(|| -> u32 { panic!("on purpose") }).then(move |_: &mut u32, n| {
        let _ = set.set(());
        n
    });
    let answer = home.handle().call(call).unwrap();
    assert_eq!(home.run().unwrap().panicked, 1);
    assert!(matches!(wait(answer), Exit::Panicked(_)));
    assert!(!after.is_set());
}

#[test]
fn a_handle_does_nothing_to_a_loop_that_is_gone() {
    let home = Loop::new(());
    let handle = home.handle();
    let waits = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    drop(home);
    drop(handle);
    assert!(!waits.cancel("late"));
    assert!(!waits.redirect(Directive::Home).unwrap());
    assert!(matches!(wait(&waits), Exit::Terminated(_)));
    assert!(format!("{waits:?}").contains("Terminated"));
}
