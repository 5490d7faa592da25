//! The context of polls and blocking closures, and what a watchdog sees of a poll. Statement 8.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::async_process::{Context, async_process};
use procession::config::Watchdog;
use procession::observe::{Observer, StepActivity, StuckStep};
use procession::{CommandError, Completion, StepOutput, Tag};

use crate::helpers::*;
use crate::puppet_future::*;

thread_local! {
    static ENTERED: Cell<bool> = const { Cell::new(false) };
}

/// The answers of a process that yields two futures and a blocking closure. Each returns whether its thread has entered
/// the context.
fn answers(context: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Vec<Result<u32, CommandError>> {
    let runtime = builder().workers(1).in_context(context).start().unwrap();
    let answers = Log::new();
    let taken = answers.clone();
    let entered = || u32::from(ENTERED.get());
    let yields = move |out: &mut StepOutput| {
        let mut polls = 0;
        let later = poll_fn(move |context| {
            polls += entered();
            context.waker().wake_by_ref();
            if polls == 3 { Poll::Ready(polls) } else { Poll::Pending }
        });
        vec![out.future(async move { entered() }), out.future_timeout(Duration::MAX, later), out.blocking(entered)]
    };
    let take = move |tags: &[Tag<u32>], done: Completion| {
        let place = tags.iter().position(|tag| done.is(*tag)).unwrap();
        taken.push((place, done.take(tags[place]).unwrap()));
        taken.len() == 3
    };
    output(&runtime.spawn(awaiting(yields, take)).unwrap());
    let mut answers = answers.take();
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[test]
fn polls_and_blocking_closures_run_in_the_context() {
    let context = |run: &mut dyn FnMut()| {
        ENTERED.set(true);
        run();
        // A second call does nothing.
        run();
        ENTERED.set(false);
    };
    let answers = answers(context);
    assert!(matches!(answers[..], [Ok(1), Ok(3), Ok(1)]), "{answers:?}");
}

#[test]
fn a_context_that_panics_or_does_not_call_is_the_answer() {
    let panicked = answers(|_| panic!("on purpose"));
    assert!(panicked.iter().all(|answer| matches!(answer, Err(CommandError::Panicked(_)))), "{panicked:?}");
    let panicked = answers(|run| {
        run();
        panic!("on purpose");
    });
    assert!(panicked.iter().all(|answer| matches!(answer, Err(CommandError::Panicked(_)))), "{panicked:?}");
    let uncalled = answers(|_| ());
    assert!(uncalled.iter().all(|answer| matches!(answer, Err(CommandError::Dropped))), "{uncalled:?}");
}

/// Enters the context for the time of a call. It leaves when this is dropped.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.set(false);
    }
}

fn enter(run: &mut dyn FnMut()) {
    ENTERED.set(true);
    let _entered = Entered;
    run();
}

/// Records whether its destructor runs in the context.
struct Guard(Log<(&'static str, bool)>, &'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.push((self.1, ENTERED.get()));
    }
}

/// A guard of a connection, for example, spawns a task of an async runtime in its destructor.
#[test]
fn destructors_of_futures_run_in_the_context() {
    let runtime = builder().workers(1).in_context(enter).start().unwrap();
    let seen = Log::new();
    let log = seen.clone();
    let yields = move |out: &mut StepOutput| {
        let held = |name: &'static str| {
            let guard = Guard(log.clone(), name);
            poll_fn(move |_| {
                let _guard = &guard;
                assert!(name != "panicked", "on purpose");
                if name == "ready" { Poll::Ready(7) } else { Poll::Pending }
            })
        };
        let cancelled = out.future(held("cancelled"));
        out.cancel_future(cancelled);
        let over = out.future_timeout(Duration::from_millis(1), held("over"));
        let all = vec![out.future(held("ready")), out.future(held("panicked")), cancelled, over];
        out.future(held("left"));
        all
    };
    let mut answers = 0;
    let take = move |tags: &[Tag<u32>], _: Completion| {
        answers += 1;
        answers == tags.len()
    };
    output(&runtime.spawn(awaiting(yields, take)).unwrap());
    for way in ["done", "terminated"] {
        let guard = Guard(seen.clone(), way);
        let process = runtime.spawn(async_process(async move |context: Context<()>| {
            let _guard = &guard;
            context.next().await;
            Ok(())
        }));
        let process = process.unwrap();
        match way {
            "done" => runtime.send(&process, ()).unwrap(),
            _ => {
                until("it waits", || runtime.is_idle());
                assert!(runtime.terminate(&process).unwrap());
            }
        }
        join(&process);
    }
    let mut seen = seen.take();
    seen.sort_unstable();
    let names = ["cancelled", "done", "left", "over", "panicked", "ready", "terminated"];
    assert_eq!(seen, names.map(|name| (name, true)));
}

/// A context that fails does not keep a future alive, and the end of its process is reported.
#[test]
fn futures_are_dropped_if_the_context_fails() {
    let contexts: [fn(&mut dyn FnMut()); 2] = [|_| (), |_| panic!("on purpose")];
    for context in contexts {
        let (runtime, strings) = (builder().workers(1).in_context(context).start().unwrap(), Strings::default());
        let future = strings.future();
        let (process, _) = awaiting_one(move |out| out.future(future));
        output(&runtime.spawn(process).unwrap());
        assert_eq!((strings.polls(), strings.drops()), (0, 1));
        let guard = strings.future();
        let process = runtime.spawn(async_process(async move |_: Context<()>| Ok(guard.await)));
        join(&process.unwrap());
        assert_eq!((strings.polls(), strings.drops()), (0, 2));
    }
}

struct Stuck(Log<StepActivity>);

impl Observer for Stuck {
    fn stuck(&self, step: &StuckStep) {
        self.0.push(step.doing);
    }
}

#[test]
fn a_watchdog_sees_a_poll_that_hangs() {
    for is_woken in [false, true] {
        let (seen, blocker, strings) = (Log::new(), Blocker::new(), Strings::default());
        let watchdog = Watchdog::after(Duration::from_millis(50));
        let runtime = builder().workers(1).watchdog(watchdog).observer(Stuck(seen.clone())).start().unwrap();
        let (blocked, mut future) = (blocker.blocked(), Box::pin(strings.future()));
        let (process, answer) = awaiting_one(move |out| {
            out.future(poll_fn(move |context| {
                let polled = future.as_mut().poll(context);
                if polled.is_ready() || !is_woken {
                    blocked.wait();
                    return Poll::Ready(7);
                }
                polled
            }))
        });
        let handle = runtime.spawn(process).unwrap();
        until("the future was polled", || strings.polls() == 1);
        strings.finish();
        until("the poll was reported", || seen.len() > 0);
        blocker.release();
        output(&handle);
        assert_eq!(answer.take(), [Ok(7)]);
        assert!(matches!(seen.take()[..], [StepActivity::Poll { tag: 1 }, ..]));
    }
}

/// A process that was woken by the step before must not wait for the poll after it.
#[test]
fn a_poll_that_hangs_holds_up_no_other_process() {
    let (runtime, blocker, told) = (runtime(2), Blocker::new(), Log::new());
    let (blocked, recorder) = (blocker.blocked(), runtime.spawn(recorder::<()>(&told)).unwrap());
    let (process, _) = awaiting_one({
        let recorder = recorder.address();
        move |out| {
            out.send(recorder, ());
            out.future(poll_fn(move |_| {
                blocked.wait();
                Poll::Ready(7)
            }))
        }
    });
    let handle = runtime.spawn(process).unwrap();
    blocker.wait_begun();
    until("the other process was stepped", || told.len() == 1);
    blocker.release();
    output(&handle);
}

#[test]
fn the_context_of_a_runtime_goes_with_it() {
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let context = move |run: &mut dyn FnMut()| {
        let _held = &held;
        run();
    };
    let runtime = builder().workers(1).in_context(context).start().unwrap();
    runtime.shutdown(Duration::ZERO).unwrap();
    drop(runtime);
    // The threads of the runtime may be about to exit.
    until("the context was dropped", || weak.upgrade().is_none());
}
