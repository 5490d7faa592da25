//! Models of wakes of futures, and of feeds, with the real turn and the real cell. `src/sched/resident_waker.rs` and
//! `src/sched/feeds.rs` have the protocols.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use super::{Driver, Status};
use crate::primitives::{Arc, AtomicBool, Mutex, Ordering, lock, thread};
use crate::process::{Event, Events, Feed, Process, Step, StepOutput, StepResult, Tag};

/// A future that is ready when it was told so. The test has its waker.
#[derive(Default)]
struct Told {
    is_ready: AtomicBool,
    polls: Mutex<u32>,
    waker: Mutex<Option<Waker>>,
}

impl Told {
    fn waker(&self) -> Waker {
        lock(&self.waker).clone().expect("the future was polled")
    }

    /// Returns a function that makes the future ready and wakes it. It takes no lock of the test.
    fn teller(self: &Arc<Told>) -> impl FnOnce() + use<> {
        let (told, waker) = (self.clone(), self.waker());
        move || {
            // Ordering: Relaxed: the wake itself must make this visible to the next poll.
            told.is_ready.store(true, Ordering::Relaxed);
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<u32> {
        // First, because the locks would make it visible, too.
        let is_ready = self.is_ready.load(Ordering::Relaxed);
        *lock(&self.polls) += 1;
        *lock(&self.waker) = Some(waker.clone());
        if is_ready { Poll::Ready(7) } else { Poll::Pending }
    }
}

/// Yields a future for each that it is given, and ends when all are ready.
struct Awaiting {
    futures: Vec<Arc<Told>>,
    tags: Vec<Tag<u32>>,
    ready: usize,
    waits: bool,
}

impl Awaiting {
    fn driven(futures: &[Arc<Told>]) -> Driver<Awaiting> {
        Driver::new(Awaiting { futures: futures.to_vec(), tags: Vec::new(), ready: 0, waits: false })
    }
}

impl Process for Awaiting {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for told in self.futures.drain(..) {
            self.tags.push(out.future(poll_fn(move |context| told.poll(context.waker()))));
        }
        for event in events {
            if let Event::Completed(done) = event {
                self.ready += self.tags.iter().filter(|tag| matches!(done.take(**tag), Some(Ok(7)))).count();
            }
        }
        let rests = if self.waits { Step::Wait } else { Step::Idle };
        Ok(if self.ready == self.tags.len() { Step::Done(()) } else { rests })
    }
}

fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(check);
}

/// Fails if `settle` does not look at the request before it puts the body to rest.
#[test]
fn a_future_is_woken_while_its_process_comes_to_rest() {
    model(3, || {
        let told = Arc::new(Told::default());
        let mut driver = Awaiting::driven(&[told.clone()]);
        assert_eq!(driver.run(), Status::Idle);
        driver.message(());
        let teller = thread::spawn(told.teller());
        driver.step();
        teller.join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the wake was lost");
    });
}

/// The same, for a process that waits for answers only. Another process asks it to stop meanwhile.
#[test]
fn a_future_is_woken_while_its_process_comes_to_wait() {
    model(3, || {
        let told = Arc::new(Told::default());
        let process = Awaiting { futures: vec![told.clone()], tags: Vec::new(), ready: 0, waits: true };
        let mut driver = Driver::new(process);
        assert_eq!(driver.run(), Status::Blocked);
        driver.cancel("a test");
        let teller = thread::spawn(told.teller());
        driver.step();
        teller.join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the wake was lost");
    });
}

/// Fails if *woken* is cleared after the poll, or without the order that a wake and (c) have.
#[test]
fn a_future_is_woken_while_it_is_polled() {
    model(3, || {
        let told = Arc::new(Told::default());
        let mut driver = Awaiting::driven(&[told.clone()]);
        assert_eq!(driver.run(), Status::Idle);
        // A wake in vain. The next poll runs beside the true wake.
        told.waker().wake();
        let teller = thread::spawn(told.teller());
        driver.step();
        teller.join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the wake was lost");
    });
}

/// Fails if the request is taken back after the list was taken.
#[test]
fn a_future_is_woken_while_the_polls_of_a_turn_begin() {
    model(3, || {
        let told = [Arc::new(Told::default()), Arc::new(Told::default())];
        let mut driver = Awaiting::driven(&told);
        assert_eq!(driver.run(), Status::Idle);
        let [one, two] = told;
        one.teller()();
        let teller = thread::spawn(two.teller());
        driver.step();
        teller.join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the wake was lost");
    });
}

/// Fails if a thread that finds the list filled does not leave the request to the thread that has filled it, or if
/// neither makes it.
#[test]
fn two_futures_of_a_process_at_rest_are_woken_at_once() {
    model(2, || {
        let told = [Arc::new(Told::default()), Arc::new(Told::default())];
        let mut driver = Awaiting::driven(&told);
        assert_eq!(driver.run(), Status::Idle);
        let [one, two] = told;
        let tellers = [thread::spawn(one.teller()), thread::spawn(two.teller())];
        driver.run();
        tellers.into_iter().for_each(|teller| teller.join().unwrap());
        assert_eq!(driver.run(), Status::Ended, "a wake was lost");
    });
}

/// Fails if a future that has ended can still be listed, or if its waker reaches the next process of the slot.
#[test]
fn a_waker_outlives_its_future_and_its_process() {
    model(3, || {
        let told = Arc::new(Told::default());
        let mut driver = Awaiting::driven(&[told.clone()]);
        assert_eq!(driver.run(), Status::Idle);
        let teller = thread::spawn(told.teller());
        driver.terminate();
        let ended = driver.status();
        drop(driver);
        teller.join().unwrap();
        assert_eq!(ended, Status::Ended);
        assert!(*lock(&told.polls) <= 2, "it was polled after the end");
        told.waker().wake();
    });
}

/// Makes a feed with a limit of one, gives it to the test, and ends with the second item.
struct Fed {
    feed: Arc<Mutex<Option<Feed<()>>>>,
    has_begun: bool,
    items: usize,
}

impl Fed {
    fn driven() -> (Driver<Fed>, Feed<()>) {
        let feed = Arc::new(Mutex::new(None));
        let mut driver = Driver::new(Fed { feed: feed.clone(), has_begun: false, items: 0 });
        assert_eq!(driver.step(), Status::Idle);
        let feed = lock(&feed).take().expect("the first step has made it");
        (driver, feed)
    }
}

impl Process for Fed {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            *lock(&self.feed) = Some(out.feed(1));
        }
        self.items += events.count();
        Ok(if self.items == 2 { Step::Done(()) } else { Step::Idle })
    }
}

/// Fails if the cell is not told of an item, or if the request is taken back after the list of feeds was taken.
#[test]
fn an_item_is_put_while_its_process_comes_to_rest() {
    model(3, || {
        let (mut driver, feed) = Fed::driven();
        // The drop of the last handle would make a request of its own.
        let other = feed.clone();
        let putter = thread::spawn(move || assert!(other.try_put(()).is_ok()));
        driver.message(());
        driver.step();
        putter.join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the item was lost");
    });
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Fails if one that waits for room is not woken, or if it does not look again before it waits.
#[test]
fn room_is_made_while_a_put_begins_to_wait() {
    model(3, || {
        let (mut driver, feed) = Fed::driven();
        assert!(feed.try_put(()).is_ok());
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let mut put = feed.put(());
        let putter = thread::spawn(move || {
            let is_put = Pin::new(&mut put).poll(&mut Context::from_waker(&waker)).is_ready();
            (put, is_put)
        });
        driver.run();
        let (put, is_put) = putter.join().unwrap();
        assert!(is_put || woken.0.load(Ordering::Relaxed), "it waits for ever");
        drop(put);
    });
}

/// The item comes back, or it is a dead letter. Fails if the feed is ended before the cell is vacated.
#[test]
fn an_item_is_put_while_its_process_ends() {
    model(3, || {
        let (mut driver, feed) = Fed::driven();
        let other = feed.clone();
        let putter = thread::spawn(move || other.try_put(()).is_ok());
        driver.terminate();
        let is_accepted = putter.join().unwrap();
        assert!(feed.try_put(()).is_err());
        let dead = driver.dead_letters();
        assert_eq!(dead, u64::from(is_accepted));
    });
}
