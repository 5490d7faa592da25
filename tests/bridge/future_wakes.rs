//! Wakes of futures: from wherever they come, none is lost and none is too many. Statements 2, 6 and 7.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::{CommandError, Event, Events, Reason, Runtime, Step, StepOutput};

use crate::helpers::*;
use crate::puppet_future::*;

/// Polls 50,000 times, each after a wake from one of eight threads or from the poll itself. The threads wake while the
/// process is stepped, polled, comes to rest and rests.
#[test]
fn no_wake_is_lost_from_eight_threads_polls_and_steps() {
    const EACH: usize = 2_000;
    const THREADS: usize = 8;
    let runtime = runtime(2);
    // Each future counts the items that its thread has put, and is ready when it has seen them all.
    struct Source {
        put: AtomicUsize,
        waker: Mutex<Option<Waker>>,
    }
    let sources: Vec<_> =
        (0..THREADS).map(|_| Arc::new(Source { put: AtomicUsize::new(0), waker: Mutex::new(None) })).collect();
    let (mine, mut tags, mut left) = (sources.clone(), Vec::new(), THREADS);
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if tags.is_empty() {
            for source in mine.clone() {
                let mut seen = 0;
                tags.push(out.future(poll_fn(move |context| {
                    *source.waker.lock().unwrap() = Some(context.waker().clone());
                    let put = source.put.load(Ordering::SeqCst);
                    if put > seen {
                        seen = put;
                        context.waker().wake_by_ref();
                    }
                    if seen == EACH { Poll::Ready(()) } else { Poll::Pending }
                })));
            }
        }
        for event in events {
            match event {
                // A wake in a step.
                Event::Message(()) => mine.iter().for_each(|source| {
                    source.waker.lock().unwrap().iter().for_each(Waker::wake_by_ref);
                }),
                Event::Completed(done) => left -= usize::from(done.take(tags[0]).is_some() || !done.is(tags[0])),
                _ => {}
            }
        }
        Ok(if left == 0 { Step::Done(()) } else { Step::Idle })
    });
    let handle = runtime.spawn(process).unwrap();
    let threads = sources.into_iter().enumerate().map(|(number, source)| {
        let (runtime, address) = (runtime.clone(), handle.address());
        std::thread::spawn(move || {
            for n in 0..EACH {
                source.put.fetch_add(1, Ordering::SeqCst);
                let waker = source.waker.lock().unwrap().clone();
                waker.into_iter().for_each(Waker::wake);
                if n % 100 == number {
                    let _ = runtime.send(address, ());
                }
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| wait(thread).unwrap());
    output(&handle);
    assert_accounted(&runtime);
}

#[test]
fn a_future_that_is_woken_twice_is_polled_once() {
    let (runtime, strings) = (runtime(1), Strings::default());
    let (process, _) = awaiting_one({
        let strings = strings.clone();
        move |out| out.future(strings.future())
    });
    let handle = runtime.spawn(process).unwrap();
    until("the future was polled", || strings.polls() == 1);
    let (holder, blocker) = hold_up(&runtime);
    (0..10).for_each(|_| strings.wake());
    blocker.release();
    output(&holder);
    until("the future was polled", || strings.polls() == 2);
    // Another process, behind it in the queue, has had its turns by then.
    output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    assert_eq!(strings.polls(), 2);
    strings.finish();
    output(&handle);
    assert_eq!(strings.polls(), 3);
}

/// More futures than a turn polls always wake themselves.
#[test]
fn a_new_future_is_polled_beside_many_that_wake_themselves() {
    let (answers, mut tag) = (Log::new(), None);
    let log = answers.clone();
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if tag.is_none() {
            for _ in 0..200 {
                out.future(poll_fn(|context| {
                    context.waker().wake_by_ref();
                    Poll::<()>::Pending
                }));
            }
        }
        for event in events {
            match event {
                Event::Message(()) => tag = Some(out.future(std::future::ready(5))),
                Event::Completed(done) => {
                    log.push(done.take(tag).unwrap().unwrap());
                    return Ok(Step::Done(()));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    let runtime = runtime(1);
    let handle = runtime.spawn(process).unwrap();
    handle.send(()).unwrap();
    output(&handle);
    assert_eq!(answers.take(), [5]);
}

#[test]
fn a_waker_may_outlive_its_future_its_process_and_its_runtime() {
    let (runtime, strings) = (runtime(1), Strings::default());
    let future = strings.clone();
    let process = awaiting(move |out: &mut StepOutput| vec![out.future(future.future())], |_, _| false);
    let handle = runtime.spawn(process).unwrap();
    until("the future was polled", || strings.polls() == 1);
    strings.finish();
    until("the process has its answer", || runtime.process(handle.pid()).is_some_and(|process| process.steps == 2));
    strings.wake();
    assert_eq!((strings.polls(), strings.drops()), (2, 1), "the future is over");
    runtime.terminate(handle.pid()).unwrap();
    join(&handle);
    // Another process in the same slot.
    let other = runtime.spawn(sink::<()>()).unwrap();
    strings.wake();
    output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    assert_eq!(runtime.process(other.pid()).unwrap().steps, 1);
    let waker = strings.waker().unwrap();
    let weak = {
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        // Held by the runtime alone.
        runtime
            .spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                let _alive = &alive;
                Ok(Step::<()>::Idle)
            }))
            .unwrap();
        weak
    };
    assert!(runtime.shutdown(Duration::ZERO).is_ok());
    drop(runtime);
    assert!(weak.upgrade().is_none(), "the waker keeps nothing alive");
    waker.wake();
    strings.wake();
    assert_eq!(strings.polls(), 2);
}

/// A runtime with a clock that the test moves.
fn timed() -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    (builder().workers(1).clock(clock.clock()).start().unwrap(), clock)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_future_ends_when_its_limit_is_over_and_never_before() {
    let ((runtime, clock), strings) = (timed(), Strings::default());
    let future = strings.clone();
    let (process, answer) = awaiting_one(move |out| out.future_timeout(SECOND, future.future()));
    let handle = runtime.spawn(process).unwrap();
    until("the future was polled", || strings.polls() == 1);
    clock.advance(SECOND - Duration::from_nanos(1));
    strings.wake();
    until("the future was polled", || strings.polls() == 2);
    clock.advance(Duration::from_nanos(1));
    output(&handle);
    assert_eq!(answer.take(), [Err(CommandError::TimedOut.to_string())]);
    assert_eq!((strings.polls(), strings.drops()), (2, 1));
    strings.wake();
    assert_eq!(strings.polls(), 2);
}

#[test]
fn a_future_that_is_ready_in_time_leaves_no_timer() {
    let ((runtime, _clock), strings) = (timed(), Strings::default());
    let future = strings.clone();
    let (process, answer) = awaiting_one(move |out| {
        strings.finish();
        out.future_timeout(SECOND, future.future())
    });
    output(&runtime.spawn(process).unwrap());
    assert_eq!(answer.take(), [Ok(7)]);
    assert_eq!(runtime.stats().timers, 0);
}

#[test]
fn a_cancelled_future_is_dropped_and_answered() {
    let ((runtime, clock), strings) = (timed(), [Strings::default(), Strings::default()]);
    let (answers, futures) = (Log::new(), strings.clone());
    let (log, mut tags) = (answers.clone(), Vec::new());
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if tags.is_empty() {
            tags = futures.iter().map(|one| out.future_timeout(SECOND, one.future())).collect();
            // At once: it is never polled.
            out.cancel_future(tags[1]);
        }
        for event in events {
            match event {
                Event::Message(()) => out.cancel_future(tags[0]),
                Event::Completed(done) => {
                    let place = tags.iter().position(|tag| done.is(*tag)).unwrap();
                    let error = done.take(tags[place]).unwrap().unwrap_err();
                    log.push((place, matches!(error, CommandError::Cancelled(Reason::Cancelled))));
                    // Again, and in vain.
                    out.cancel_future(tags[place]);
                }
                _ => {}
            }
        }
        Ok(if log.len() == 2 { Step::Done(()) } else { Step::Idle })
    });
    let handle = runtime.spawn(process).unwrap();
    until("the first future was polled", || strings[0].polls() == 1);
    until("the second one was answered", || answers.len() == 1);
    assert_eq!((strings[1].polls(), strings[1].drops()), (0, 1));
    runtime.send(handle.address(), ()).unwrap();
    output(&handle);
    assert_eq!(answers.take(), [(1, true), (0, true)]);
    assert_eq!((strings[0].polls(), strings[0].drops()), (1, 1));
    assert_eq!(runtime.stats().timers, 0);
    strings[0].wake();
    clock.advance(SECOND);
    assert_eq!(strings[0].polls(), 1);
}

/// One worker. The futures are woken in each of their polls.
#[test]
fn futures_that_always_wake_themselves_leave_room_for_others() {
    const FUTURES: usize = 1_000;
    let (runtime, polls, most) = (runtime(1), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, begun) = (polls.clone(), AtomicBool::new(false));
    let busy = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        if !begun.swap(true, Ordering::Relaxed) {
            for _ in 0..FUTURES {
                let polls = counted.clone();
                out.future(poll_fn::<(), _>(move |context| {
                    polls.fetch_add(1, Ordering::SeqCst);
                    context.waker().wake_by_ref();
                    Poll::Pending
                }));
            }
        }
        Ok(Step::<()>::Idle)
    });
    let busy = runtime.spawn(busy).unwrap();
    until("all futures were polled", || polls.load(Ordering::SeqCst) >= FUTURES);
    let (seen, widest, mut before, mut steps) = (polls.clone(), most.clone(), None, 0);
    let unrelated = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        let now = seen.load(Ordering::SeqCst);
        if let Some(before) = before.replace(now) {
            widest.fetch_max(now - before, Ordering::SeqCst);
        }
        steps += 1;
        Ok(if steps == 1_000 { Step::Done(()) } else { Step::Continue })
    });
    output(&runtime.spawn(unrelated).unwrap());
    // Between two of its steps the other process has at most a few turns.
    let most = most.load(Ordering::SeqCst);
    assert!((1..=64 * 4).contains(&most), "{most} polls between two steps");
    runtime.terminate(busy.pid()).unwrap();
    join(&busy);
}

/// A ready process and a woken one take turns, however many messages come.
#[test]
fn a_flood_of_messages_does_not_keep_a_woken_future_waiting() {
    let (runtime, strings) = (runtime(1), Strings::default());
    let (future, mut tag, mut messages) = (strings.clone(), None, 0_u64);
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let tag = *tag.get_or_insert_with(|| out.future(future.future()));
        for event in events {
            match event {
                Event::Message(()) => messages += 1,
                Event::Completed(done) => return Ok(Step::Done((messages, done.take(tag).unwrap().unwrap()))),
                _ => {}
            }
        }
        // It always has a message.
        let me = out.pid();
        out.send(me, ());
        if messages == 1_000 {
            future.finish();
        }
        Ok(Step::Idle)
    });
    let (messages, answer) = *output(&runtime.spawn(process).unwrap());
    assert_eq!(answer, 7);
    assert!(messages < 1_100, "{messages}");
}
