//! Wakers of async processes that others hold, processes that nobody wakes, and contexts in wrong places. Statements
//! 8, 25 and 26.

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use procession::async_process::Context;
use procession::observe::DeadLetterReason;
use procession::testing::{Driver, Status};
use procession::{CommandError, Exit, WaitError, async_process};

use crate::async_support::*;
use crate::helpers::*;
use crate::puppet_future::*;

/// A future that others make ready.
#[derive(Clone, Default)]
struct Flag(Arc<Mutex<(bool, Option<Waker>)>>);

impl Flag {
    async fn wait(&self) {
        poll_fn(|context| {
            let mut flag = self.0.lock().unwrap();
            if std::mem::take(&mut flag.0) {
                return Poll::Ready(());
            }
            flag.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn set(&self) {
        let waker = {
            let mut flag = self.0.lock().unwrap();
            flag.0 = true;
            flag.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn is_waited_for(&self) -> bool {
        self.0.lock().unwrap().1.is_some()
    }
}

/// Each of two async processes wakes the other from its polls, and a thread wakes both.
#[test]
fn no_wake_of_others_is_lost() {
    const ROUNDS: usize = 20_000;
    let runtime = runtime(2);
    let flags = [Flag::default(), Flag::default(), Flag::default()];
    let play = |own: &Flag, other: &Flag| {
        let (own, other) = (own.clone(), other.clone());
        async_process(async move |_: Context<()>| {
            for _ in 0..ROUNDS {
                own.wait().await;
                other.set();
            }
            Ok(())
        })
    };
    let first = runtime.spawn(play(&flags[0], &flags[1])).unwrap();
    let second = runtime.spawn(play(&flags[1], &flags[2])).unwrap();
    // The third is this thread, which spins for its flag.
    for _ in 0..ROUNDS {
        flags[0].set();
        until("the wakes have gone round", || std::mem::take(&mut flags[2].0.lock().unwrap().0));
    }
    output(&first);
    output(&second);
}

#[test]
fn a_wake_beside_messages_and_answers_is_not_lost() {
    let runtime = runtime(2);
    let flag = Flag::default();
    let waited = flag.clone();
    let handle = runtime.spawn(async_process(async move |context: Context<u32>| {
        let (mut messages, mut wakes, mut timers) = (0, 0, 0);
        while messages < 10_000 || wakes < 1_000 {
            match race(race(waited.wait(), context.next()), context.sleep(Duration::ZERO)).await {
                Either::First(Either::First(())) => wakes += 1,
                Either::First(Either::Second(_)) => messages += 1,
                Either::Second(_) => timers += 1,
            }
        }
        Ok(timers)
    }));
    let handle = handle.unwrap();
    let (to, sent) = (handle.address(), &runtime);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..10_000).for_each(|n| sent.send(to, n).unwrap()));
        while !handle.is_finished() {
            flag.set();
            std::thread::yield_now();
        }
    });
    output(&handle);
    assert_accounted(&runtime);
}

#[test]
fn a_waker_may_outlive_its_async_process_and_its_runtime() {
    let runtime = runtime(1);
    let (strings, held) = (Strings::default(), Strings::default());
    let (puppet, other) = (strings.future(), held.future());
    let handle = runtime.spawn(async_process(async move |_: Context<()>| {
        race(puppet, other).await;
        Ok(())
    }));
    let handle = handle.unwrap();
    until("it waits", || held.waker().is_some());
    strings.finish();
    output(&handle);
    assert_eq!((strings.drops(), held.drops()), (1, 1));
    held.wake();
    let waker = held.waker().unwrap();
    drop((handle, runtime));
    waker.wake();
}

#[test]
fn a_process_that_nothing_can_wake_fails_in_that_turn() {
    let runtime = runtime(1);
    let handle = runtime.spawn(async_process(async |_: Context<()>| {
        pending::<()>().await;
        Ok(())
    }));
    let Exit::Failed(failure) = join(&handle.unwrap()) else { panic!("it has not failed") };
    assert!(failure.to_string().contains("Step::Wait"), "{failure}");
    // With a command outstanding it waits, until that is answered.
    let mut driver = Driver::new(async_process(async |context: Context<()>| {
        context.out(|out| out.after(Duration::from_secs(1)));
        pending::<()>().await;
        Ok(())
    }));
    assert_eq!(driver.run(), Status::Blocked);
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.run(), Status::Ended);
    assert!(matches!(driver.exit(), Some(Exit::Failed(_))));
}

/// The waker was held, and is not held any more when the process waits again.
#[test]
fn a_process_whose_waker_was_given_back_fails_when_it_waits_for_nothing() {
    let flag = Flag::default();
    let waited = flag.clone();
    let mut driver = Driver::new(async_process(async move |context: Context<()>| {
        let first = race(waited.wait(), context.next()).await;
        assert_eq!(first, Either::Second(Some(())));
        waited.0.lock().unwrap().1 = None;
        pending::<()>().await;
        Ok(())
    }));
    assert_eq!(driver.run(), Status::Idle);
    assert!(flag.is_waited_for());
    assert_eq!(driver.outstanding().len(), 1, "the listener");
    driver.message(());
    assert_eq!(driver.run(), Status::Ended);
    assert!(matches!(driver.exit(), Some(Exit::Failed(_))));
}

/// The listener is taken back while the process waits for an answer. That is no failure of the process.
#[test]
fn a_process_whose_waker_was_given_back_goes_on_with_its_answers() {
    const PAUSE: Duration = Duration::from_secs(1);
    let flag = Flag::default();
    let waited = flag.clone();
    let mut driver = Driver::new(async_process(async move |context: Context<()>| {
        let first = race(waited.wait(), context.sleep(PAUSE)).await;
        assert!(matches!(first, Either::Second(Ok(_))));
        waited.0.lock().unwrap().1 = None;
        context.sleep(PAUSE).await?;
        context.sleep(PAUSE).await?;
        Ok(())
    }));
    driver.run();
    assert_eq!(driver.outstanding().len(), 2, "the timer and the listener");
    driver.advance(PAUSE).run();
    assert_eq!(driver.outstanding().len(), 1, "the timer");
    driver.advance(PAUSE).run();
    driver.advance(PAUSE).run();
    assert!(driver.exit().is_some_and(|exit| exit.is_done()));
}

/// A context that others have does not keep what only the process could have taken.
#[test]
fn what_an_ended_process_has_kept_is_dropped_before_its_context() {
    let (left, probe) = (Arc::new(Mutex::new(None)), Arc::new(()));
    let (leaves, answer) = (left.clone(), probe.clone());
    let mut driver = Driver::new(async_process(async move |context: Context<()>| {
        // Nobody waits for this answer. It comes while the process sleeps.
        context.out(|out| _ = out.future(async move { answer }));
        context.sleep(Duration::from_secs(1)).await?;
        *leaves.lock().unwrap() = Some(context);
        Ok(())
    }));
    assert_eq!((driver.run(), Arc::strong_count(&probe)), (Status::Blocked, 2));
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.run(), Status::Ended);
    assert!(left.lock().unwrap().is_some());
    assert_eq!(Arc::strong_count(&probe), 1);
}

/// As long as nobody but the process has its waker, no listener is needed.
#[test]
fn waits_of_the_context_need_no_listener() {
    let mut driver = Driver::new(async_process(async |context: Context<()>| {
        race(context.next(), context.sleep(Duration::from_secs(1))).await;
        Ok(())
    }));
    driver.run();
    assert_eq!(driver.outstanding().len(), 1);
}

#[test]
fn polls_of_an_async_process_are_in_the_context_of_the_builder() {
    thread_local!(static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    let context = |poll: &mut dyn FnMut()| {
        INSIDE.set(true);
        poll();
        INSIDE.set(false);
    };
    let runtime = builder().workers(1).in_context(context).start().unwrap();
    let handle = runtime.spawn(async_process(async |context: Context<()>| {
        let mut inside = Vec::new();
        for _ in 0..3 {
            inside.push(INSIDE.get());
            context.sleep(Duration::ZERO).await?;
            yield_once().await;
        }
        Ok(inside)
    }));
    assert_eq!(*output(&handle.unwrap()), [true; 3]);
    let runtime = builder().workers(1).in_context(|_| ()).start().unwrap();
    let handle = runtime.spawn(async_process(async |_: Context<()>| Ok(())));
    assert!(matches!(join(&handle.unwrap()), Exit::Failed(_)), "its poll was not called");
}

/// A context that has come out of its process.
/// A question that is decided before it could be asked answers no command of the process.
#[test]
fn a_question_outside_of_a_step_does_not_answer_another_command() {
    let runtime = builder().workers(2).start().unwrap();
    let receiver = runtime.spawn(sink::<u32>()).unwrap();
    let to = receiver.address();
    let place: Arc<Mutex<Option<Context<u32>>>> = Arc::default();
    let put = place.clone();
    let handle = runtime.spawn(async_process(async move |context: Context<u32>| {
        *put.lock().unwrap() = Some(context.clone());
        Ok(context.sleep(LIMIT).await.is_err())
    }));
    let handle = handle.unwrap();
    until("it sleeps", || place.lock().unwrap().is_some() && runtime.is_idle());
    let context = place.lock().unwrap().take().unwrap();
    let dropped = context.ask(to, |_: procession::Reply<()>| 1_u32, LIMIT);
    assert!(matches!(poll_once(dropped), Some(Err(CommandError::Dropped))));
    let sends = |reply: procession::Reply<()>| u32::from(reply.send(()));
    assert!(matches!(poll_once(context.ask(to, sends, LIMIT)), Some(Err(CommandError::Dropped))));
    runtime.cancel(&handle, "enough").unwrap();
    assert!(*output(&handle), "the sleep ends with the request to stop");
}

#[test]
fn a_context_outside_of_a_step_does_nothing() {
    let watcher = Watcher::new();
    let runtime = builder().workers(2).observer(watcher.clone()).start().unwrap();
    let seen = Log::new();
    let receiver = runtime.spawn(recorder::<u32>(&seen)).unwrap();
    let to = receiver.address();
    let place: Arc<Mutex<Option<Context<u32>>>> = Arc::default();
    let put = place.clone();
    let handle = runtime.spawn(async_process(async move |context: Context<u32>| {
        *put.lock().unwrap() = Some(context.clone());
        Ok(context.next().await)
    }));
    let handle = handle.unwrap();
    until("it waits", || place.lock().unwrap().is_some() && runtime.is_idle());
    let context = place.lock().unwrap().take().unwrap();
    for has_ended in [false, true] {
        assert_eq!((context.pid(), context.address()), (handle.pid(), handle.address()));
        assert_eq!(context.sender(), None);
        context.send(to, 1);
        context.out(|out| {
            out.send(to, 2);
            out.send("nobody", 3_u32);
            out.monitor(to);
            let _ = out.spawn(sink::<()>());
            let _: procession::Tag<()> = out.ask(to.pid().typed(), |_: procession::Reply<()>| 4_u32, LIMIT);
        });
        let ready = poll_once(context.next());
        assert!(matches!(ready, Some(None)), "{ready:?}");
        assert!(poll_once(context.receive()).is_none());
        assert!(matches!(poll_once(context.select(|_| true)), Some(Err(CommandError::Dropped))));
        assert!(matches!(poll_once(context.sleep(LIMIT)), Some(Err(CommandError::Dropped))));
        let asked = context.ask(to, |_: procession::Reply<()>| 5_u32, LIMIT);
        assert!(matches!(poll_once(asked), Some(Err(CommandError::Dropped))));
        if !has_ended {
            runtime.send(&handle, 7).unwrap();
            assert_eq!(*output(&handle), Some(7), "what was done elsewhere has taken nothing");
        }
    }
    runtime.cancel(&receiver, "enough").unwrap();
    join(&receiver);
    assert_eq!(seen.len(), 0);
    let from = Some(handle.pid());
    let dead: Vec<_> = watcher.dead.take();
    assert_eq!(dead.len(), 10, "{dead:?}");
    assert!(dead.iter().all(|letter| letter.1 == from && letter.2 == DeadLetterReason::OutsideStep));
    assert_accounted(&runtime);
    drop(context);
    assert_eq!(runtime.stats().processes, 0, "nothing was spawned");
}

/// Within a call of `out`, the context is not in its step either: the call has the output.
#[test]
fn a_context_within_its_own_output_does_nothing() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let inner = context.out(|out| {
            out.send(out.pid(), 1_u32);
            context.send(context.pid(), 2_u32);
            context.sleep(LIMIT)
        });
        assert!(matches!(inner.await, Err(CommandError::Dropped)));
        Ok(())
    }));
    driver.run();
    assert!(driver.exit().unwrap().is_done());
    assert_eq!(driver.sent::<u32>().unwrap().1, 1);
    assert_eq!(driver.unread(), 0);
}

/// Another thread polls a wait of the process, and neither disturbs its polls nor takes its messages.
#[test]
fn another_thread_takes_nothing_from_a_process_that_is_stepped() {
    let runtime = runtime(2);
    let place: Arc<Mutex<Option<Context<u32>>>> = Arc::default();
    let put = place.clone();
    let handle = runtime.spawn(async_process(async move |context: Context<u32>| {
        *put.lock().unwrap() = Some(context.clone());
        for expected in 0..20_000 {
            if context.next().await != Some(expected) {
                return Err("a message is missing".into());
            }
        }
        Ok(())
    }));
    let handle = handle.unwrap();
    let to = handle.address();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20_000).for_each(|n| runtime.send(to, n).unwrap()));
        while !handle.is_finished() {
            let context = place.lock().unwrap().clone();
            if let Some(context) = context {
                assert!(matches!(poll_once(context.next()), Some(None)));
                assert!(poll_once(context.receive()).is_none());
            }
            std::thread::yield_now();
        }
    });
    output(&handle);
    assert_accounted(&runtime);
}

#[test]
fn an_async_process_must_not_block_its_worker() {
    let runtime = runtime(1);
    let other = runtime.spawn(sink::<()>()).unwrap();
    let waits = async move |_: Context<()>| Ok(other.join().map(|_| ()));
    let handle = runtime.spawn(async_process(waits)).unwrap();
    assert_eq!(*output(&handle), Err(WaitError::InsideStep));
}

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Its locals are dropped before others are told of its end, however it ends.
#[test]
fn the_future_is_dropped_once_before_join_returns() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let runtime = runtime(2);
    for way in 0..4 {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Counted(drops.clone());
        let handle = runtime.spawn(async_process(async move |context: Context<()>| {
            let _counted = counted;
            context.next().await;
            match way {
                0 => return Err("on purpose".into()),
                1 => panic!("on purpose"),
                _ => {}
            }
            Ok(())
        }));
        let handle = handle.unwrap();
        if way == 3 {
            runtime.terminate(&handle).unwrap();
        } else {
            runtime.send(&handle, ()).unwrap();
        }
        join(&handle);
        assert_eq!(drops.load(Ordering::SeqCst), 1, "way {way}");
    }
}

/// The waker of a library that is broken.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Broken>) {
        panic!("on purpose: a waker")
    }
}

/// The panic of a waker is contained, also if it is called while a predicate unwinds.
#[test]
fn a_waker_that_panics_does_not_fail_an_async_process() {
    async fn work(context: Context<u32>, panics: bool) -> Result<u32, procession::BoxError> {
        let mut work = std::pin::pin!(context.blocking(|| 7));
        assert!(work.as_mut().poll(&mut std::task::Context::from_waker(&Waker::from(Arc::new(Broken)))).is_pending());
        let selected = context.select(|n| if panics { panic!("on purpose: message {n}") } else { *n == 1 }).await?;
        Ok(work.await? + selected)
    }
    for panics in [false, true] {
        let mut driver = Driver::new(async_process(move |context| work(context, panics)));
        driver.run();
        assert!(driver.answer_blocking(Ok(7_u32)));
        driver.message(1).run();
        match driver.exit().expect("it has ended") {
            Exit::Done(output) => assert_eq!((panics, *output), (false, 8)),
            exit => assert!(panics && exit.to_string().contains("on purpose: message 1"), "{exit}"),
        }
    }
}
