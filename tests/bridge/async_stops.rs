//! Requests to stop an async process. Statement 24.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use procession::async_process::Context;
use procession::names::GroupChange;
use procession::testing::{Driver, Status};
use procession::{BoxError, CommandError, Event, Pid, Reply, async_process};

use crate::async_support::*;
use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);

/// Runs to the first wait, asks to stop, and returns what came of it.
fn stopped<F, Fut>(begin: F) -> String
where
    F: FnOnce(Context<u32>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
{
    let mut driver = Driver::new(async_process(begin));
    driver.run();
    driver.message(1).cancel("enough").run();
    driver.advance(SECOND).run();
    (**driver.exit().expect("it has ended").output().unwrap()).clone()
}

#[test]
fn a_request_to_stop_ends_each_kind_of_wait_once() {
    let rest = async |context: &Context<u32>| {
        // Later waits are as before.
        context.sleep(SECOND).await?;
        Ok::<_, BoxError>(())
    };
    let next = stopped(async move |context| {
        context.select(|n| *n > 1).await.unwrap_err();
        rest(&context).await?;
        Ok(format!("{:?}", context.next().await))
    });
    assert_eq!(next, "Some(1)");
    let none = stopped(async move |context: Context<u32>| {
        // A step is given a request to stop before all messages.
        let first = context.answer(context.out(|out| out.after(Duration::from_secs(9)))).await;
        rest(&context).await?;
        Ok(format!("{first:?}, {:?}", context.next().await))
    });
    assert_eq!(none, "Err(Cancelled(Other(\"enough\"))), Some(1)");
}

#[test]
fn next_gives_nothing_receive_the_event_and_others_the_reason() {
    fn is_enough<T: std::fmt::Debug>(result: Result<T, CommandError>) -> bool {
        matches!(result, Err(CommandError::Cancelled(reason)) if reason.to_string() == "enough")
    }
    let runtime = runtime(1);
    type Wait = fn(Context<()>) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>>;
    let waits: [Wait; 7] = [
        |context| Box::pin(async move { context.next().await.is_none() }),
        |context| {
            Box::pin(async move {
                matches!(context.receive().await, Event::Cancel(request) if request.reason.to_string() == "enough")
            })
        },
        |context| Box::pin(async move { is_enough(context.select(|_| true).await) }),
        |context| Box::pin(async move { is_enough(context.sleep(Duration::MAX).await) }),
        |context| {
            Box::pin(async move {
                // It keeps the reply.
                let keeper = async_process(async |context: Context<Reply<()>>| {
                    let _kept = context.next().await;
                    context.next().await;
                    Ok(())
                });
                let keeper = context.out(|out| out.spawn(keeper)).unwrap();
                is_enough(context.ask(keeper, |reply| reply, LIMIT).await)
            })
        },
        |context| {
            Box::pin(async move {
                let tag = context.out(|out| out.future(std::future::pending::<()>()));
                is_enough(context.answer(tag).await)
            })
        },
        |context| {
            Box::pin(async move {
                let (one, other) = both(context.sleep(Duration::MAX), context.next()).await;
                is_enough(one) && other.is_none()
            })
        },
    ];
    for wait in waits {
        let process = async move |context: Context<()>| {
            let is_right = wait(context.clone()).await;
            // Once: later waits are as before.
            context.sleep(Duration::ZERO).await?;
            Ok(is_right)
        };
        let handle = runtime.spawn(async_process(process)).unwrap();
        runtime.cancel(&handle, "enough").unwrap();
        assert!(*output(&handle));
    }
    until("the timers are gone", || runtime.stats().timers == 0);
}

/// The first wait of the context is ended by a request that came before it.
#[test]
fn a_request_to_stop_that_came_early_ends_the_first_wait() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        yield_once().await;
        let none = context.next().await;
        Ok((none, context.next().await))
    }));
    driver.message(1).cancel("enough").run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (None, Some(1)));
}

#[test]
fn a_second_request_to_stop_ends_a_wait_again() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let mut ended = 0;
        while ended < 2 {
            ended += usize::from(context.next().await.is_none());
        }
        Ok(ended)
    }));
    driver.run();
    driver.cancel("enough");
    assert_eq!(driver.run(), Status::Idle);
    driver.cancel("now").run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), 2);
}

#[test]
fn ends_and_group_events_wait_for_the_next_receive_in_order() {
    let runtime = runtime(1);
    let ended: Vec<_> = (0..3).map(|_| runtime.spawn(sink::<()>()).unwrap()).collect();
    let pids: Vec<Pid> = ended.iter().map(|handle| handle.pid()).collect();
    let monitored = pids.clone();
    let watcher = async move |context: Context<()>| {
        context.out(|out| {
            monitored.iter().for_each(|pid| _ = out.monitor(*pid));
            out.subscribe("group");
        });
        assert!(context.select(|()| true).await.is_err(), "it is asked to stop");
        // No message makes it run, and no signal is lost.
        let answer = context.out(|out| out.future(std::future::poll_fn(|_| std::task::Poll::Ready(()))));
        context.answer(answer).await?;
        let mut told = Vec::new();
        while told.len() < 4 {
            told.push(match context.receive().await {
                Event::Down(down) => format!("{}", down.pid),
                Event::Group(_) => "group".into(),
                other => format!("{other:?}"),
            });
        }
        Ok(told)
    };
    let handle = runtime.spawn(async_process(watcher)).unwrap();
    let idle = || runtime.processes().iter().all(|info| info.state == procession::observe::ProcessState::Idle);
    until("it monitors", || idle() && runtime.is_idle());
    for one in &ended {
        runtime.cancel(one, "enough").unwrap();
        join(one);
    }
    runtime.cancel(&handle, "enough").unwrap();
    let mut expected: Vec<_> = pids.iter().map(|pid| pid.to_string()).collect();
    expected.insert(0, "group".into());
    assert_eq!(*output(&handle), expected);
}

#[test]
fn a_shutdown_ends_async_processes_that_wait_for_messages() {
    let runtime = runtime(2);
    let process = async |context: Context<()>| {
        while context.next().await.is_some() {}
        Ok(())
    };
    let handles: Vec<_> = (0..100).map(|_| runtime.spawn(async_process(process)).unwrap()).collect();
    let report = runtime.shutdown(LIMIT).unwrap();
    assert!(report.stuck.is_empty(), "{report}");
    assert!(handles.iter().all(|handle| join(handle).is_done()));
}

/// A signal that arrives together with the request wakes the waits first. The request still ends all of them.
#[test]
fn a_request_that_comes_after_a_signal_ends_all_waits() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        context.out(|out| out.subscribe("group"));
        Ok(both(context.next(), context.next()).await)
    }));
    driver.run();
    let peer = driver.pid();
    driver.group_changed("group", &GroupChange::Joined(peer)).cancel("enough").run();
    let exit = driver.exit().expect("both waits have ended");
    assert_eq!(**exit.output().unwrap(), (None, None));
}

/// Both end at once, and the process drops the wait of the context. The request is not lost with it.
#[test]
fn a_request_whose_wait_is_dropped_ends_the_next_wait() {
    let is_over = Arc::new(AtomicBool::new(false));
    let other = is_over.clone();
    let mut driver = Driver::new(async_process(async move |context: Context<u32>| {
        let others = std::future::poll_fn(|_| if other.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending });
        let first = race(others, context.next()).await;
        Ok((first, context.next().await, context.next().await))
    }));
    driver.run();
    is_over.store(true, SeqCst);
    driver.cancel("enough").message(1).run();
    let exit = driver.exit().expect("the next wait has ended");
    assert_eq!(**exit.output().unwrap(), (Either::First(()), None, Some(1)));
}

/// The answer and the request come together. The answer is not lost, and the request ends the next wait.
#[test]
fn an_answer_that_has_come_is_given_before_a_request_to_stop() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let kept = context.out(|out| {
            let timer = out.after(Duration::MAX);
            out.cancel_timer(timer);
            timer
        });
        let first = context.blocking(|| 5).await?;
        // It has come before this wait begins.
        let second = context.answer(kept).await;
        assert!(matches!(second, Err(CommandError::Cancelled(reason)) if reason.to_string() != "enough"));
        Ok((first, context.next().await, context.next().await))
    }));
    driver.run();
    assert!(driver.answer_blocking(Ok(5)));
    driver.cancel("enough").message(1).run();
    let exit = driver.exit().expect("the next wait has ended");
    assert_eq!(**exit.output().unwrap(), (5, None, Some(1)));
}

/// A wait that begins after the request ends, too, if it is polled before the waits that the request ends.
#[test]
fn a_request_ends_a_new_wait_that_is_polled_before_the_old() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let (mut old, mut new) = (std::pin::pin!(context.sleep(Duration::MAX)), None);
        let ended = std::future::poll_fn(|task| {
            if new.is_none() {
                assert!(old.as_mut().poll(task).is_pending());
                new = Some(Box::pin(context.next()));
                return Poll::Pending;
            }
            let is_new_ended = new.as_mut().is_some_and(|new| new.as_mut().poll(task).is_ready());
            Poll::Ready((is_new_ended, old.as_mut().poll(task).is_ready()))
        });
        let ended = ended.await;
        drop(new);
        Ok((ended, context.next().await))
    }));
    driver.run();
    driver.cancel("enough").message(1).run();
    let exit = driver.exit().expect("both waits have ended");
    assert_eq!(**exit.output().unwrap(), ((true, true), Some(1)));
}
