//! E. Ending: of one process, by itself, on request, or by force.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::names::NoSuchProcessError;
use procession::observe::ProcessState;
use procession::sync::Latch;
use procession::{Event, Events, Exit, Process, Reason, Reply, Step, StepOutput, Tag};

use crate::helpers::*;

#[test]
fn a_cancel_request_has_its_reason_and_deadline_and_the_process_decides() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let log = Log::new();
    let seen = log.clone();
    let stubborn = script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        for event in events {
            if let Event::Cancel(request) = event {
                seen.push((request.reason.clone(), request.deadline));
            }
        }
        Ok(if seen.len() == 2 { Step::Done(()) } else { Step::Idle })
    });
    let stubborn = runtime.spawn(stubborn).unwrap();
    assert!(runtime.cancel(stubborn.pid(), "please").unwrap());
    until("it is told", || log.len() == 1);
    assert!(!stubborn.is_finished());
    assert!(runtime.cancel_timeout(stubborn.pid(), Reason::TimedOut, Duration::from_secs(3)).unwrap());
    output(&stubborn);
    let deadline = manual.now() + Duration::from_secs(3);
    assert_eq!(log.take(), [(Reason::from("please"), None), (Reason::TimedOut, Some(deadline))]);
}

/// The states in which a process can be terminated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum In {
    Ready,
    Running,
    Blocked,
    Idle,
    BlockingStep,
}

/// Comes into that state, with or without a command whose answer has not come, and counts its steps.
fn comes_into(
    state: In,
    outstanding: bool,
    steps: &Arc<AtomicUsize>,
    blocker: &Blocker,
) -> impl Process<Message = (), Output = ()> {
    let (steps, blocked) = (steps.clone(), blocker.blocked());
    script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let first = steps.fetch_add(1, Ordering::SeqCst) == 0;
        if first && outstanding {
            out.after(Duration::from_secs(3_600));
        }
        Ok(match state {
            In::Ready | In::Idle => Step::Idle,
            In::Blocked => Step::Wait,
            In::Running if first => Step::Continue,
            In::BlockingStep if first => Step::Blocking,
            In::Running | In::BlockingStep => {
                blocked.wait();
                Step::Continue
            }
        })
    })
}

#[test]
fn a_terminated_process_is_not_stepped_again_in_whatever_state_it_was() {
    for (state, outstanding) in [
        (In::Ready, false),
        (In::Ready, true),
        (In::Running, false),
        (In::Running, true),
        (In::Blocked, true),
        (In::Idle, false),
        (In::Idle, true),
        (In::BlockingStep, false),
        (In::BlockingStep, true),
    ] {
        let runtime = runtime(1);
        let (steps, blocker) = (Arc::new(AtomicUsize::new(0)), Blocker::new());
        let process = runtime.spawn(comes_into(state, outstanding, &steps, &blocker)).unwrap();
        let (pid, mut held_up) = (process.pid(), None);
        let expected = match state {
            In::Ready => {
                until("it rests", || runtime.is_idle());
                held_up = Some(hold_up(&runtime));
                runtime.send(process.address(), ()).unwrap();
                ProcessState::Ready
            }
            In::Running | In::BlockingStep => {
                blocker.wait_begun();
                ProcessState::Running
            }
            In::Blocked => ProcessState::Blocked,
            In::Idle => ProcessState::Idle,
        };
        until("it is in that state", || runtime.process_state(pid) == Some(expected));
        let before = steps.load(Ordering::SeqCst);
        assert_eq!(before, if expected == ProcessState::Running { 2 } else { 1 });
        assert!(runtime.terminate(pid).unwrap());
        assert!(runtime.send(process.address(), ()).is_err());
        // A step that it was in goes on to its end, and is the last.
        blocker.release();
        held_up.into_iter().for_each(|(_, blocker)| blocker.release());
        let Exit::Terminated(reason) = join(&process) else { panic!("it was terminated") };
        assert_eq!(reason, Reason::Terminated);
        assert_eq!(steps.load(Ordering::SeqCst), before, "{state:?}, {outstanding}");
        assert_eq!(runtime.process_state(pid), Some(ProcessState::Complete));
        assert_eq!(runtime.stats().timers, 0);
    }
}

#[test]
fn a_ready_process_that_is_terminated_before_its_turn_is_never_stepped() {
    let runtime = runtime(1);
    let (_, blocker) = hold_up(&runtime);
    let stepped = Arc::new(AtomicBool::new(false));
    let step = stepped.clone();
    let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        step.store(true, Ordering::Relaxed);
        Ok(Step::Done(()))
    });
    let process = runtime.spawn(process).unwrap();
    assert!(runtime.terminate(process.pid()).unwrap());
    assert!(!runtime.terminate(process.pid()).unwrap(), "it is being ended already");
    blocker.release();
    assert!(matches!(join(&process), Exit::Terminated(Reason::Terminated)));
    assert!(!stepped.load(Ordering::Relaxed));
}

#[test]
fn cancel_and_terminate_fail_only_on_an_unknown_pid() {
    let runtime = runtime(1);
    let gone = runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap();
    output(&gone);
    assert_eq!(runtime.cancel(gone.pid(), "late"), Ok(false));
    assert_eq!(runtime.terminate(gone.pid()), Ok(false));
    assert!(join(&gone).is_done());
    let pid = "<0.1.1>".parse().unwrap();
    assert_eq!(runtime.cancel(pid, "who"), Err(NoSuchProcessError::Pid(pid)));
    assert_eq!(runtime.terminate(pid), Err(NoSuchProcessError::Pid(pid)));
    let text = NoSuchProcessError::Pid(pid).to_string();
    assert!(text.contains("<0.1.1>"), "{text}");
}

#[test]
fn several_may_wait_for_the_end_and_a_dropped_handle_ends_nothing() {
    let runtime = runtime(1);
    let process = runtime.spawn(sink::<u32>()).unwrap();
    let address = process.address();
    let waiters: Vec<_> = (0..4)
        .map(|n| {
            let handle = process.clone();
            std::thread::spawn(move || if n % 2 == 0 { handle.join() } else { handle.join_timeout(LIMIT) })
        })
        .collect();
    assert!(process.join_timeout(Duration::ZERO).is_err());
    drop(process);
    runtime.send(address, 1).unwrap();
    until("it is stepped", || runtime.stats().messages.stepped == 1);
    runtime.cancel(address.pid(), "enough").unwrap();
    for waiter in waiters {
        assert_eq!(**wait(waiter).unwrap().unwrap().output().unwrap(), 1);
    }
}

#[test]
fn a_handle_is_a_future_of_the_exit() {
    use std::task::{Context, Poll, Waker};
    let runtime = runtime(1);
    let process = runtime.spawn(sink::<u32>()).unwrap();
    let mut future = Box::pin(process.clone());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    runtime.cancel(process.pid(), "enough").unwrap();
    output(&process);
    let Poll::Ready(Exit::Done(seen)) = future.as_mut().poll(&mut cx) else { panic!("it is over") };
    assert_eq!(*seen, 0);
}

#[test]
fn a_joiner_finds_the_process_closed_dropped_and_counted() {
    struct Closing(Arc<AtomicUsize>);
    impl Process for Closing {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> procession::StepResult<()> {
            Ok(Step::Done(()))
        }

        fn close(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Drop for Closing {
        fn drop(&mut self) {
            self.0.fetch_add(10, Ordering::SeqCst);
        }
    }
    let runtime = runtime(2);
    for n in 1..=500 {
        let traces = Arc::new(AtomicUsize::new(0));
        output(&runtime.spawn(Closing(traces.clone())).unwrap());
        assert_eq!(traces.load(Ordering::SeqCst), 11);
        assert_eq!(runtime.stats().ended.done, n);
    }
}

#[test]
fn what_an_ended_process_had_kept_is_answered_and_its_work_is_told() {
    // It keeps a question, has a timer and a blocking closure: all of that ends with it.
    let runtime = runtime(1);
    let (told, begun) = (Latch::new(), Latch::new());
    let (tell, begin) = (told.clone(), begun.clone());
    let mut kept = Vec::new();
    let mut tags: Option<Tag<()>> = None;
    let keeper = script(move |events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
        for event in events {
            if let Event::Message(reply) = event {
                kept.push(reply);
            }
        }
        if tags.is_none() {
            let (tell, begin) = (tell.clone(), begin.clone());
            tags = Some(out.blocking_with(move |cancel| {
                let _ = begin.set(());
                let _ = tell.set(cancel.wait());
            }));
            out.after(Duration::from_secs(3_600));
        }
        Ok::<Step<()>, procession::BoxError>(Step::Idle)
    });
    let keeper = runtime.spawn(keeper).unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| runtime.ask(keeper.address(), |reply| reply, LIMIT).wait());
        wait(&begun);
        until("it keeps the question", || runtime.stats().messages.stepped == 1);
        runtime.terminate(keeper.pid()).unwrap();
        assert!(wait(asking).unwrap().unwrap_err().to_string().contains("ended before it replied"));
    });
    assert_eq!(wait(&told), Reason::Ended);
    assert_eq!(runtime.stats().timers, 0);
}
