//! The events of an async process: their order, and waits that are dropped. Statement 21.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use procession::async_process::Context;
use procession::testing::{Driver, Status};
use procession::{Event, Events, Exit, Pid, SpawnOptions, Step, StepOutput, async_process};

use crate::async_support::*;
use crate::helpers::*;

fn name(event: Event<u32>) -> String {
    match event {
        Event::Message(n) => n.to_string(),
        Event::Completed(done) => format!("answer {}", done.tag()),
        Event::Cancel(_) => "cancel".into(),
        Event::Down(down) => format!("down {}", down.pid),
        other => format!("{other:?}"),
    }
}

/// The same events come to a step and to an async process.
#[test]
fn events_come_in_the_order_of_a_step() {
    fn fill<P: procession::Process<Message = u32>>(driver: &mut Driver<P>) {
        driver.run();
        driver.message(1);
        driver.advance(Duration::from_secs(1));
        driver.message(2).message(3);
        driver.advance(Duration::from_secs(1));
        driver.message(4).cancel("enough");
        driver.run();
    }
    let (plain, own, mut begun) = (Log::new(), Log::new(), false);
    let log = plain.clone();
    fill(&mut Driver::new(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        if !std::mem::replace(&mut begun, true) {
            out.after(Duration::from_secs(1));
            out.after(Duration::from_secs(2));
        }
        events.for_each(|event| log.push(name(event)));
        Ok(Step::<()>::Idle)
    })));
    let log = own.clone();
    fill(&mut Driver::new(async_process(async move |context: Context<u32>| {
        context.out(|out| (out.after(Duration::from_secs(1)), out.after(Duration::from_secs(2))));
        loop {
            log.push(name(context.receive().await));
            if log.len() == 100 {
                return Ok(());
            }
        }
    })));
    let expected = ["cancel", "1", "answer 1", "2", "3", "answer 2", "4"];
    assert_eq!((plain.take(), own.take()), (expected.map(String::from).into(), expected.map(String::from).into()));
}

#[test]
fn select_passes_messages_over_and_gives_them_later_in_order() {
    let runtime = runtime(1);
    let options = SpawnOptions::new().step_events(3);
    let handle = runtime.spawn_with(
        async_process(async |context: Context<u32>| {
            let mut got = Vec::new();
            for wanted in [4, 8, 2] {
                got.push(context.select(|n| *n == wanted).await?);
                // Afterwards it waits for an answer, and is given no messages.
                context.sleep(Duration::ZERO).await?;
            }
            while got.len() < 9 {
                got.extend(context.next().await);
            }
            Ok(got)
        }),
        options,
    );
    let handle = handle.unwrap();
    (1..=9).for_each(|n| runtime.send(&handle, n).unwrap());
    assert_eq!(*output(&handle), [4, 8, 2, 1, 3, 5, 6, 7, 9]);
    assert_accounted(&runtime);
}

/// The predicate panics once, and the process goes on: nothing that it was shown is lost.
#[test]
fn a_predicate_that_panics_loses_no_message() {
    let runtime = runtime(1);
    let handle = runtime.spawn(async_process(async |context: Context<u32>| {
        let mut panics = true;
        let wanted = |n: &u32| if *n == 2 && std::mem::take(&mut panics) { panic!("on purpose") } else { false };
        let mut select = context.select(wanted);
        let caught = std::future::poll_fn(|task| {
            let mut poll = || std::pin::Pin::new(&mut select).poll(task).is_pending();
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut poll)) {
                Ok(_) => std::task::Poll::Pending,
                Err(_) => std::task::Poll::Ready(()),
            }
        });
        caught.await;
        drop(select);
        let mut got = Vec::new();
        while got.len() < 3 {
            got.extend(context.next().await);
        }
        Ok(got)
    }));
    let handle = handle.unwrap();
    (1..=3).for_each(|n| runtime.send(&handle, n).unwrap());
    assert_eq!(*output(&handle), [1, 2, 3]);
}

/// Each wait races against a timer, and is dropped if that is first. Now and then no message comes until a timer was.
#[test]
fn a_hundred_thousand_races_against_a_timer_lose_no_message() {
    const MESSAGES: u32 = 100_000;
    let runtime = runtime(2);
    let timers = Arc::new(AtomicU32::new(0));
    let lost_races = timers.clone();
    let handle = runtime.spawn(async_process(async move |context: Context<u32>| {
        let mut expected = 0;
        while expected < MESSAGES {
            let wait = async {
                match expected % 3 {
                    0 => context.next().await,
                    1 => context.select(|_| true).await.ok(),
                    _ => match context.receive().await {
                        Event::Message(n) => Some(n),
                        _ => None,
                    },
                }
            };
            match race(context.sleep(Duration::ZERO), wait).await {
                Either::First(_) => _ = lost_races.fetch_add(1, SeqCst),
                Either::Second(Some(n)) if n == expected => expected += 1,
                Either::Second(other) => return Err(format!("{other:?} instead of {expected}").into()),
            }
        }
        Ok(())
    }));
    let handle = handle.unwrap();
    for n in 0..MESSAGES {
        if n % 1_000 == 0 {
            let before = timers.load(SeqCst);
            until("a timer was first", || timers.load(SeqCst) > before);
        }
        runtime.send(&handle, n).unwrap();
        if n % 64 == 0 {
            std::thread::yield_now();
        }
    }
    output(&handle);
    assert_accounted(&runtime);
    until("no timer is left", || runtime.stats().timers == 0);
}

#[test]
fn a_wait_that_is_dropped_before_it_is_ready_has_taken_nothing() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let mut first = Box::pin(context.next());
        let pending = race(&mut first, yield_once()).await;
        assert_eq!(pending, Either::Second(()));
        context.sleep(Duration::from_secs(1)).await?;
        drop(first);
        let order = both(context.next(), context.next()).await;
        Ok(order)
    }));
    driver.run();
    driver.message(1).message(2);
    assert_eq!(driver.run(), Status::Blocked, "the wait that nobody polls does not receive");
    driver.advance(Duration::from_secs(1)).run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (Some(1), Some(2)));
}

/// `next` and `select` take messages only. Everything else waits for `receive`, in order.
#[test]
fn next_leaves_other_events_to_receive() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        context.out(|out| (out.after(Duration::from_secs(1)), out.after(Duration::from_secs(2))));
        let mut got = vec![format!("{:?}", context.next().await)];
        for _ in 0..2 {
            got.push(name(context.receive().await));
        }
        Ok(got)
    }));
    driver.run();
    driver.advance(Duration::from_secs(1)).advance(Duration::from_secs(1)).message(7).run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), ["Some(7)", "answer 1", "answer 2"]);
}

/// Each of two waits passes over what the other one wants.
#[test]
fn selects_that_are_polled_together_find_what_the_other_passes_over() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let (odd, even) = both(context.select(|n| n % 2 == 1), context.select(|n| n % 2 == 0)).await;
        Ok((odd?, even?, context.next().await))
    }));
    driver.run();
    driver.message(2).message(4).run();
    driver.message(1).run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (1, 2, Some(4)));
}

/// As above, for an item that comes when both wait already. The first wait is shown it first, each time.
#[test]
fn an_item_of_a_feed_that_one_wait_passes_over_is_for_another() {
    let given = Log::new();
    let feeds = given.clone();
    let mut driver = Driver::new(async_process(async move |context: Context<u32>| {
        feeds.push(context.out(|out| out.feed::<u32>(4)));
        let (odd, even) = both(context.select(|n| n % 2 == 1), context.select(|n| n % 2 == 0)).await;
        Ok((odd?, even?, context.next().await))
    }));
    driver.run();
    let feed = given.take().remove(0);
    feed.try_put(2).unwrap();
    feed.try_put(4).unwrap();
    driver.run();
    feed.try_put(1).unwrap();
    driver.run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (1, 2, Some(4)));
}

#[test]
fn items_of_feeds_come_as_messages_and_are_passed_over() {
    let runtime = runtime(1);
    let handle = runtime.spawn(async_process(async |context: Context<u32>| {
        let feed = context.out(|out| out.feed::<u32>(4));
        context.out(|out| {
            out.future(async move {
                for n in 1..=9 {
                    feed.put(n).await.unwrap()
                }
            })
        });
        let mut got = vec![context.select(|n| *n == 2).await?, context.select(|n| *n == 1).await?];
        while got.len() < 9 {
            got.extend(context.next().await);
        }
        Ok(got)
    }));
    assert_eq!(*output(&handle.unwrap()), [2, 1, 3, 4, 5, 6, 7, 8, 9]);
    assert_accounted(&runtime);
}

/// The end of another process comes after its messages. It does so, too, if the process is stepped in between because
/// it has woken itself.
#[test]
fn an_end_stays_after_its_message_while_a_process_wakes_itself() {
    let peer: Pid = "<0.99.1>".parse().unwrap();
    let mut driver = Driver::new(async_process(async move |context: Context<u32>| {
        context.out(|out| _ = out.monitor(peer));
        yield_once().await;
        yield_once().await;
        Ok([name(context.receive().await), name(context.receive().await)])
    }));
    assert_eq!(driver.step(), Status::Ready);
    driver.message_from(peer, 1).ended(peer, &Exit::Done(()));
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), ["1", "down <0.99.1>"]);
}

/// A step after the wait for an answer is given no messages, and this message is no news.
#[test]
fn a_message_that_was_passed_over_is_there_after_an_answer() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let second = context.select(|n| *n == 2).await?;
        context.sleep(Duration::from_secs(1)).await?;
        Ok((second, context.next().await))
    }));
    driver.message(1).message(2);
    assert_eq!(driver.run(), Status::Blocked);
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (2, Some(1)));
}
