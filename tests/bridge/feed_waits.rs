//! How puts wait for room, and which of them are woken. Statements 11 and 14.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use procession::feed::{Feed, PutFuture};
use procession::testing::{Driver, Status};
use procession::{Events, Process, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::puppet_future::*;

/// Counts the wakes of one put.
#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Wakes>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A put with a waker of its own.
struct Waiting {
    put: PutFuture<u32>,
    wakes: Arc<Wakes>,
}

impl Waiting {
    fn new(feed: &Feed<u32>) -> Waiting {
        Waiting { put: feed.put(0), wakes: Arc::default() }
    }

    /// Polls once. Returns whether the put is ready.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(self.wakes.clone());
        match Pin::new(&mut self.put).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(put) => put.map(|()| true).unwrap(),
            Poll::Pending => false,
        }
    }

    fn wakes(&self) -> u32 {
        self.wakes.0.load(Ordering::SeqCst)
    }
}

/// A process that makes a feed with this limit, and takes all items.
struct Fed {
    limit: usize,
    given: Log<Feed<u32>>,
}

impl Process for Fed {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        if self.limit > 0 {
            self.given.push(out.feed(std::mem::take(&mut self.limit)));
        }
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

/// A driven process and its feed, which is full.
fn full(limit: usize) -> (Driver<Fed>, Feed<u32>) {
    let given = Log::new();
    let mut driver = Driver::new(Fed { limit, given: given.clone() });
    driver.run();
    let feed = given.take().remove(0);
    (0..limit).for_each(|_| feed.try_put(0).unwrap());
    (driver, feed)
}

/// A put is polled for another reason, as in a `select!`, and is ready. It is not dropped.
#[test]
fn a_put_that_is_ready_takes_no_wake_from_another() {
    let (mut driver, feed) = full(1);
    let (mut first, mut second) = (Waiting::new(&feed), Waiting::new(&feed));
    assert!(!first.poll() && !second.poll());
    driver.run();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    assert!(second.poll(), "there is room");
    assert!(!first.poll(), "there is no room");
    driver.run();
    assert_eq!((first.wakes(), second.wakes()), (2, 0), "it waits, and the feed is empty");
    assert!(first.poll());
}

#[test]
fn a_put_that_is_polled_again_keeps_its_turn() {
    let (mut driver, feed) = full(1);
    let (mut first, mut second) = (Waiting::new(&feed), Waiting::new(&feed));
    assert!(!first.poll() && !second.poll());
    assert!(!first.poll());
    driver.run();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    // Another one takes the room.
    feed.try_put(0).unwrap();
    assert!(!first.poll());
    driver.run();
    assert_eq!((first.wakes(), second.wakes()), (2, 0));
}

#[test]
fn a_put_that_is_polled_again_is_woken_by_its_last_waker() {
    let (mut driver, feed) = full(1);
    let mut put = Waiting::new(&feed);
    assert!(!put.poll());
    let old = std::mem::take(&mut put.wakes);
    assert!(!put.poll());
    driver.run();
    assert_eq!((old.0.load(Ordering::SeqCst), put.wakes()), (0, 1));
    assert_eq!(Arc::strong_count(&old), 1, "the feed has dropped the old waker");
}

#[test]
fn a_step_wakes_as_many_puts_as_it_makes_room_for() {
    let (mut driver, feed) = full(3);
    let mut puts: Vec<_> = (0..4).map(|_| Waiting::new(&feed)).collect();
    assert!(puts.iter_mut().all(|put| !put.poll()));
    driver.run();
    let wakes: Vec<_> = puts.iter().map(Waiting::wakes).collect();
    assert_eq!(wakes, [1, 1, 1, 0]);
}

/// The step that makes the feed gives it away. The puts are polled before it has returned.
#[test]
fn a_put_that_waits_for_its_feed_to_open_is_woken() {
    let given = Log::new();
    let (puts, mut is_first) = (given.clone(), true);
    let mut driver = Driver::new(script(move |_: &mut Events<'_, u32>, out: &mut StepOutput| {
        if std::mem::take(&mut is_first) {
            let feed = out.feed(2);
            for _ in 0..3 {
                let mut put = Waiting::new(&feed);
                assert!(!put.poll(), "the step is not over");
                puts.push(put);
            }
        }
        Ok(Step::<()>::Idle)
    }));
    driver.run();
    let wakes: Vec<_> = given.take().iter().map(Waiting::wakes).collect();
    assert_eq!(wakes, [1, 1, 0]);
}

/// A turn begins, because its future is woken. The future is not ready, and the item waits.
#[test]
fn an_item_does_not_step_a_process_that_waits_for_answers() {
    let (given, strings, mut is_first) = (Log::new(), Strings::default(), true);
    let (feeds, future) = (given.clone(), strings.clone());
    let mut driver = Driver::new(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        events.for_each(drop);
        if std::mem::take(&mut is_first) {
            feeds.push(out.feed(2));
            out.future(future.future());
            return Ok(Step::Wait);
        }
        Ok(Step::<()>::Idle)
    }));
    driver.run();
    let feed: Feed<u32> = given.take().remove(0);
    feed.try_put(0).unwrap();
    strings.wake();
    assert_eq!((driver.run(), driver.steps(), strings.polls()), (Status::Blocked, 1, 2));
    strings.finish();
    // One for the answer, and one for the item.
    assert_eq!((driver.run(), driver.steps()), (Status::Idle, 3));
}
