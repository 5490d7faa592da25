//! Feeds: how items come, and how those who put them wait. Statements 11 to 14.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::feed::{Feed, PutFuture};
use procession::spawn::Overflow;
use procession::testing::{Driver, Status};
use procession::{
    Event, Events, Exit, Handle, Process, Runtime, SendError, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

type Put = (usize, usize);

/// Makes a feed with this limit, gives it to the test, and calls `take` with each item. It ends with the number of its
/// items when `take` says so.
struct Fed<T> {
    limit: usize,
    given: Log<Feed<Put>>,
    take: T,
    items: usize,
}

impl<T: FnMut(Put) -> bool + Send + 'static> Process for Fed<T> {
    type Message = Put;
    type Output = usize;

    fn step(&mut self, events: &mut Events<'_, Put>, out: &mut StepOutput) -> StepResult<usize> {
        if self.limit > 0 {
            self.given.push(out.feed(std::mem::take(&mut self.limit)));
        }
        for event in events {
            match event {
                Event::Message(item) => {
                    self.items += 1;
                    if (self.take)(item) {
                        return Ok(Step::Done(self.items));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.items)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn fed<T>(runtime: &Runtime, limit: usize, take: T) -> (Handle<Fed<T>>, Feed<Put>)
where
    T: FnMut(Put) -> bool + Send + 'static,
{
    let given = Log::new();
    let handle = runtime.spawn(Fed { limit, given: given.clone(), take, items: 0 }).unwrap();
    until("there is a feed", || given.len() == 1);
    // A feed takes items when its step is over.
    until("its step is over", || runtime.process(handle.pid()).is_some_and(|process| process.steps > 0));
    (handle, given.take().remove(0))
}

/// Polls a put once.
fn poll(put: &mut PutFuture<Put>) -> Poll<Result<(), SendError>> {
    let polled = std::pin::Pin::new(put).poll(&mut Context::from_waker(Waker::noop()));
    polled.map(|put| put.map_err(|rejected| rejected.into_parts().1))
}

#[test]
fn items_come_in_the_order_of_each_putter_and_none_is_lost() {
    const EACH: usize = 5_000;
    const PUTTERS: usize = 8;
    let runtime = runtime(2);
    let (mut next, mut items) = (HashMap::new(), 0);
    let (handle, feed) = fed(&runtime, 16, move |(putter, n)| {
        let next = next.entry(putter).or_insert(0);
        assert_eq!(*next, n, "of putter {putter}");
        *next += 1;
        items += 1;
        items == PUTTERS * EACH
    });
    let putters: Vec<_> = (0..PUTTERS)
        .map(|putter| {
            let feed = feed.clone();
            std::thread::spawn(move || (0..EACH).for_each(|n| block_on(feed.put((putter, n))).unwrap()))
        })
        .collect();
    assert_eq!(*output(&handle), PUTTERS * EACH);
    putters.into_iter().for_each(|putter| wait(putter).unwrap());
    assert_accounted(&runtime);
}

#[test]
fn a_put_waits_while_the_limit_is_reached() {
    const LIMIT: usize = 4;
    let (runtime, taken, put) = (runtime(2), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, begun) = (taken.clone(), put.clone());
    let (handle, feed) = fed(&runtime, LIMIT, move |(_, n)| {
        let taken = counted.fetch_add(1, Ordering::SeqCst);
        // An item counts until its step is over, so the step may see some more.
        let begun = begun.load(Ordering::SeqCst);
        assert!(begun <= taken + 2 * LIMIT + 2, "{begun} were put, and {taken} were taken");
        n == 9_999
    });
    for n in 0..10_000 {
        put.fetch_add(1, Ordering::SeqCst);
        block_on(feed.put((0, n))).unwrap();
    }
    output(&handle);
    assert_eq!(taken.load(Ordering::SeqCst), 10_000);
}

#[test]
fn a_full_feed_takes_no_more_until_a_step_has_taken_some() {
    let given = Log::new();
    let mut driver = Driver::new(Fed { limit: 2, given: given.clone(), take: |_| false, items: 0 });
    driver.run();
    let feed = given.take().remove(0);
    assert_eq!((feed.limit(), feed.pid()), (2, driver.pid()));
    assert_eq!(driver.status(), Status::Idle);
    (0..2).for_each(|n| feed.try_put((0, n)).unwrap());
    assert_eq!(driver.status(), Status::Ready);
    let full = feed.try_put((0, 2)).unwrap_err();
    assert!(matches!(full.reason(), SendError::Full { limit: 2, .. }));
    assert_eq!(full.into_inner(), (0, 2));
    let (mut first, mut second) = (feed.put((0, 2)), feed.put((0, 3)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    driver.run();
    assert!(poll(&mut first).is_ready() && poll(&mut second).is_ready());
    driver.run();
    assert_eq!(driver.steps(), 3);
}

/// It was woken, and is dropped instead of polled. The next one must not wait for ever.
#[test]
fn a_put_that_is_dropped_gives_its_room_to_the_next() {
    let given = Log::new();
    let mut driver = Driver::new(Fed { limit: 1, given: given.clone(), take: |_| false, items: 0 });
    driver.run();
    let feed = given.take().remove(0);
    feed.try_put((0, 0)).unwrap();
    let woken = Arc::new(Woken::default());
    let (mut first, mut second) = (feed.put((0, 1)), Box::pin(feed.put((0, 2))));
    assert!(poll(&mut first).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&woken.clone().into())).is_pending());
    driver.run();
    assert!(!woken.0.load(Ordering::SeqCst), "there is room for the first one only");
    drop(first);
    assert!(woken.0.load(Ordering::SeqCst));
    drop(second);
    assert_eq!(driver.run(), Status::Idle);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_item_of_another_type_comes_back() {
    let (runtime, given) = (runtime(1), Log::new());
    let feed = given.clone();
    let process = script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        feed.push(out.feed::<String>(4));
        Ok(Step::<()>::Wait)
    });
    // It waits for nothing, and so it ends.
    let process = runtime.spawn(process).unwrap();
    join(&process);
    let feed = given.take().remove(0);
    let rejected = block_on(feed.put("item".into())).unwrap_err();
    assert!(matches!(rejected.reason(), SendError::WrongType { takes: "u64", .. }), "{rejected:?}");
    assert_eq!(rejected.into_inner(), "item");
}

#[test]
fn an_item_comes_back_when_the_process_has_ended() {
    let (runtime, dead) = (builder().workers(1).observer(Watcher::new()).start().unwrap(), 2);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let (handle, feed) = fed(&runtime, 3, move |_| {
        blocked.wait();
        true
    });
    (0..3).for_each(|n| feed.try_put((0, n)).unwrap());
    blocker.wait_begun();
    let mut waiting = feed.put((0, 3));
    assert!(poll(&mut waiting).is_pending());
    let waiter = std::thread::spawn({
        let feed = feed.clone();
        move || block_on(feed.put((0, 4))).unwrap_err().into_inner()
    });
    blocker.release();
    output(&handle);
    assert_eq!(wait(waiter).unwrap(), (0, 4));
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(SendError::NoSuchProcess(_)))));
    assert_eq!(feed.try_put((0, 5)).unwrap_err().into_inner(), (0, 5));
    let messages = runtime.stats().messages;
    assert_eq!((messages.accepted, messages.stepped, messages.dead()), (3, 1, dead));
    assert_accounted(&runtime);
}

#[test]
fn a_feed_of_a_failed_step_takes_nothing() {
    let (runtime, given) = (runtime(1), Log::new());
    let feed = given.clone();
    let process = script(move |_: &mut Events<'_, Put>, out: &mut StepOutput| {
        let made = out.feed::<Put>(4);
        assert!(matches!(made.try_put((0, 0)).unwrap_err().reason(), SendError::Full { .. }), "too early");
        feed.push(made);
        Err::<Step<()>, _>("on purpose".into())
    });
    join(&runtime.spawn(process).unwrap());
    let feed = given.take().remove(0);
    assert!(matches!(block_on(feed.put((0, 1))).unwrap_err().reason(), SendError::NoSuchProcess(_)));
}

#[test]
fn the_items_of_a_dropped_feed_still_come() {
    let given = Log::new();
    let mut driver = Driver::new(Fed { limit: 8, given: given.clone(), take: |(_, n)| n == 4, items: 0 });
    driver.run();
    let feed = given.take().remove(0);
    let other = feed.clone();
    (0..3).for_each(|n| feed.try_put((0, n)).unwrap());
    drop(feed);
    (3..5).for_each(|n| other.try_put((0, n)).unwrap());
    drop(other);
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), 5);
}

/// Processes end at any moment, in any way, while several threads put items.
#[test]
fn every_item_is_accounted_for() {
    let runtime = runtime(2);
    for round in 0..60 {
        let mut items = 0;
        let (handle, feed) = fed(&runtime, 5, move |_| {
            items += 1;
            assert!(round % 3 != 0 || items < 50, "on purpose");
            round % 3 == 1 && items == 50
        });
        let putters: Vec<_> = (0..3)
            .map(|putter| {
                let (feed, runtime, handle) = (feed.clone(), runtime.clone(), handle.address());
                std::thread::spawn(move || {
                    for n in 0..200 {
                        let _ = runtime.send(handle, (putter, n));
                        if block_on(feed.put((putter, n))).is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        if round % 3 == 2 {
            let _ = runtime.terminate(handle.pid());
        }
        drop(feed);
        join(&handle);
        putters.into_iter().for_each(|putter| wait(putter).unwrap());
    }
    assert_accounted(&runtime);
    assert_eq!(runtime.stats().messages.queued, 0);
}

/// Messages have a zero in front, items the number of their feed.
struct Order {
    feeds: Log<Feed<Put>>,
    seen: Log<Put>,
    events: usize,
    first: bool,
}

impl Process for Order {
    type Message = Put;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Put>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.first) {
            (0..2).for_each(|_| self.feeds.push(out.feed(100)));
            out.after(Duration::from_secs(1));
            return Ok(Step::Wait);
        }
        for _ in 0..self.events {
            match events.next() {
                Some(Event::Message(item)) => self.seen.push(item),
                Some(Event::Cancel(_)) => self.seen.push((9, 9)),
                Some(Event::Completed(_)) => self.seen.push((8, 8)),
                _ => break,
            }
        }
        Ok(Step::Idle)
    }
}

fn order(events: usize) -> (Driver<Order>, Vec<Feed<Put>>, Log<Put>) {
    let (feeds, seen) = (Log::new(), Log::new());
    let process = Order { feeds: feeds.clone(), seen: seen.clone(), events, first: true };
    let mut driver = Driver::builder().step_events(events).build(process);
    assert_eq!(driver.run(), Status::Blocked);
    (driver, feeds.take(), seen)
}

#[test]
fn mailbox_and_feeds_come_in_turns() {
    for events in [1, 3, 100] {
        let (mut driver, feeds, seen) = order(events);
        for n in 0..20 {
            driver.message((0, n));
            feeds[0].try_put((1, n)).unwrap();
            feeds[1].try_put((2, n)).unwrap();
        }
        assert_eq!(driver.run(), Status::Blocked, "a process that waits for answers is given no item");
        assert_eq!(seen.len(), 0);
        driver.advance(Duration::from_secs(1)).cancel("on purpose");
        driver.run();
        let seen = seen.take();
        assert_eq!(seen.len(), 62);
        assert_eq!(seen[0], (9, 9), "control signals overtake both");
        let both = &seen[2..40];
        for four in both.windows(4) {
            let messages = four.iter().filter(|(from, _)| *from == 0).count();
            assert!((1..=3).contains(&messages), "{four:?} of {both:?}");
        }
        for from in 0..3 {
            let numbers: Vec<usize> = seen.iter().filter(|(of, _)| *of == from).map(|(_, n)| *n).collect();
            assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "of {from}");
        }
    }
}

#[test]
fn select_passes_items_over_like_messages() {
    let (given, seen) = (Log::new(), Log::new());
    let (feeds, log, mut steps) = (given.clone(), seen.clone(), 0);
    let process = script(move |events: &mut Events<'_, Put>, out: &mut StepOutput| {
        steps += 1;
        if steps == 1 {
            feeds.push(out.feed(100));
        } else if steps == 2 {
            while let Some(Event::Message(item)) = events.select(|(_, n)| n % 2 == 1) {
                log.push(item);
            }
        } else {
            for event in events {
                if let Event::Message(item) = event {
                    log.push(item);
                }
            }
        }
        Ok(Step::<()>::Idle)
    });
    let mut driver = Driver::new(process);
    driver.run();
    let feed: Feed<Put> = given.take().remove(0);
    for n in 0..6 {
        driver.message((0, n));
        feed.try_put((1, n)).unwrap();
    }
    assert_eq!((driver.run(), driver.steps()), (Status::Idle, 2), "what was passed over causes no step");
    let mut odd = seen.take();
    odd.sort_unstable();
    assert_eq!(odd, [(0, 1), (0, 3), (0, 5), (1, 1), (1, 3), (1, 5)]);
    feed.try_put((1, 6)).unwrap();
    driver.run();
    let seen = seen.take();
    let of = |from| seen.iter().filter(|(of, _)| *of == from).map(|(_, n)| *n).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec![0, 2, 4], vec![0, 2, 4, 6]));
}

/// A step is given one new event. Items that earlier steps have passed over are not new.
#[test]
fn items_that_were_passed_over_hide_nothing() {
    let (given, seen) = (Log::new(), Log::new());
    let (feeds, log, mut is_first) = (given.clone(), seen.clone(), true);
    let process = script(move |events: &mut Events<'_, Put>, out: &mut StepOutput| {
        if std::mem::take(&mut is_first) {
            (0..2).for_each(|_| feeds.push(out.feed(100)));
            out.after(Duration::from_secs(1));
        }
        while let Some(event) = events.select(|(_, n)| *n == 7) {
            match event {
                Event::Message(item) => log.push(item),
                Event::Completed(_) => log.push((8, 8)),
                _ => {}
            }
        }
        Ok(Step::<()>::Idle)
    });
    let mut driver = Driver::builder().step_events(1).build(process);
    driver.run();
    let feeds: Vec<Feed<Put>> = given.take();
    for n in [0, 1, 2, 7, 3] {
        feeds[0].try_put((1, n)).unwrap();
        feeds[1].try_put((2, n)).unwrap();
    }
    driver.advance(Duration::from_secs(1)).message((0, 7));
    assert_eq!(driver.run(), Status::Idle, "it rests when it has passed over the others");
    let mut came = seen.take();
    came.sort_unstable();
    assert_eq!(came, [(0, 7), (1, 7), (2, 7), (8, 8)]);
    feeds[0].try_put((1, 7)).unwrap();
    driver.run();
    assert_eq!(seen.take(), [(1, 7)]);
}

#[test]
fn an_item_that_was_left_is_given_again_with_the_next() {
    let (given, mut steps) = (Log::new(), 0);
    let feeds = given.clone();
    let process = script(move |events: &mut Events<'_, Put>, out: &mut StepOutput| {
        steps += 1;
        match steps {
            1 => feeds.push(out.feed(100)),
            2 => {}
            _ => {
                let items = events.filter(|event| matches!(event, Event::Message(_))).count();
                return Ok(Step::Done(items));
            }
        }
        Ok(Step::Idle)
    });
    let mut driver = Driver::new(process);
    driver.run();
    let feed: Feed<Put> = given.take().remove(0);
    feed.try_put((0, 0)).unwrap();
    assert_eq!((driver.run(), driver.steps()), (Status::Idle, 2));
    feed.try_put((0, 1)).unwrap();
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), 2);
}

/// A state machine that is replaced by one that takes messages of the same type, or of another.
struct Replaced {
    feed: Option<Log<Feed<u64>>>,
    seen: Log<u64>,
}

impl Process for Replaced {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(log) = self.feed.take() {
            log.push(out.feed(4));
        }
        for event in events {
            match event {
                Event::Message(0) => return Err("on purpose".into()),
                Event::Message(1) => return Ok(Step::Upgrade(Upgrade::to(self.again()))),
                Event::Message(2) => {
                    return Ok(Step::Upgrade(Upgrade::to(script(|_: &mut Events<'_, String>, _: &mut StepOutput| {
                        Ok(Step::Idle)
                    }))));
                }
                Event::Message(n) => self.seen.push(n),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(self.again()))
    }
}

impl Replaced {
    fn again(&self) -> Replaced {
        Replaced { feed: None, seen: self.seen.clone() }
    }
}

#[test]
fn a_feed_stays_when_the_state_machine_is_replaced() {
    let (runtime, feeds, seen) = (runtime(1), Log::new(), Log::new());
    let handle = runtime.spawn(Replaced { feed: Some(feeds.clone()), seen: seen.clone() }).unwrap();
    until("there is a feed", || feeds.len() == 1);
    let feed = feeds.take().remove(0);
    for (n, how) in [(10, 0), (20, 1)] {
        block_on(feed.put(n)).unwrap();
        block_on(feed.put(how)).unwrap();
        // Those that wait in the feed at that moment come, too.
        (1..9).for_each(|more| block_on(feed.put(n + more)).unwrap());
    }
    until("all items came", || seen.len() == 18);
    assert_eq!(seen.take(), (10..19).chain(20..29).collect::<Vec<_>>());
    // The next state machine takes messages of another type.
    block_on(feed.put(2)).unwrap();
    let refused = (0..100).find_map(|n| block_on(feed.put(30 + n)).err()).expect("the type has changed");
    assert!(matches!(refused.reason(), SendError::WrongType { .. }));
    runtime.terminate(handle.pid()).unwrap();
    join(&handle);
    assert_accounted(&runtime);
    assert_eq!(runtime.stats().messages.queued, 0);
}

#[test]
fn a_feed_may_outlive_its_runtime() {
    let runtime = runtime(1);
    let (_, feed) = fed(&runtime, 1, |_| false);
    block_on(feed.put((0, 0))).unwrap();
    runtime.shutdown(Duration::ZERO).unwrap();
    drop(runtime);
    let rejected = block_on(feed.put((0, 1))).unwrap_err();
    assert!(matches!(rejected.reason(), SendError::NoSuchProcess(_)));
}

/// A step takes one event, and messages come meanwhile. In the end all are taken.
#[test]
fn items_that_a_step_was_not_shown_cause_the_next() {
    for options in [SpawnOptions::new(), SpawnOptions::new().mailbox(10, Overflow::Refuse)] {
        let (runtime, given) = (builder().workers(1).step_events(1).start().unwrap(), Log::new());
        let (feeds, mut begun, mut items) = (given.clone(), false, 0);
        let process = script(move |events: &mut Events<'_, Put>, out: &mut StepOutput| {
            if !std::mem::replace(&mut begun, true) {
                feeds.push(out.feed(100));
            }
            if let Some(Event::Message((from, n))) = events.next() {
                items += from;
                if n == 1 {
                    // It arrives during the step.
                    let me = out.pid();
                    out.send(me, (0, 0));
                }
            }
            Ok(if items == 50 { Step::Done(()) } else { Step::Idle })
        });
        let handle = runtime.spawn_with(process, options).unwrap();
        until("there is a feed", || given.len() == 1);
        let feed: Feed<Put> = given.take().remove(0);
        let (holder, blocker) = hold_up(&runtime);
        (0..50).for_each(|n| feed.try_put((1, n % 2)).unwrap());
        blocker.release();
        output(&holder);
        output(&handle);
    }
}
