//! The allocations of futures.
//!
//! The counting allocator only counts, and then calls the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future;
use std::sync::atomic::{AtomicU64, Ordering};

use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::resident::alone;
use crate::wait;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

fn allocated(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    LIVE_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

fn freed(bytes: usize) {
    LIVE_BYTES.fetch_sub(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        allocated(size);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The number of allocations of this program so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// The bytes that this program has allocated and not freed.
pub(crate) fn live_bytes() -> u64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// Futures that come first, so that all buffers have their size.
const FIRST: u64 = 1_000;
const FUTURES: u64 = 1_000_000;

/// Awaits one ready future after the other. Its output is the numbers of allocations and of bytes, before and after.
#[derive(Default)]
struct OneByOne {
    answered: u64,
    before: (u64, u64),
}

impl Process for OneByOne {
    type Message = ();
    type Output = [(u64, u64); 2];

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Self::Output> {
        self.answered += events.filter(|event| matches!(event, Event::Completed(_))).count() as u64;
        let now = || (ALLOCATIONS.load(Ordering::Relaxed), LIVE_BYTES.load(Ordering::Relaxed));
        if self.answered == FIRST {
            self.before = now();
        } else if self.answered == FIRST + FUTURES {
            return Ok(Step::Done([self.before, now()]));
        }
        out.future(future::ready(self.answered));
        Ok(Step::Wait)
    }
}

#[test]
fn a_ready_future_costs_six_allocations_and_leaves_none() {
    alone(|| {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let exit = wait::wait(&runtime.spawn(OneByOne::default()).unwrap());
        let [(allocations, bytes), (allocations_after, bytes_after)] = **exit.output().unwrap();
        let each = (allocations_after - allocations) as f64 / FUTURES as f64;
        assert!(each <= 6.0, "{each} allocations a future");
        // Threads that have just been started may still allocate.
        assert!(bytes_after < bytes + 64 * 1024, "{bytes} bytes before, {bytes_after} bytes after");
    });
}

/// Makes one feed after the other, and forgets each when its item has come.
#[derive(Default)]
struct FeedByFeed {
    has_begun: bool,
    taken: u64,
    before: u64,
}

impl Process for FeedByFeed {
    type Message = u64;
    type Output = (u64, u64);

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<Self::Output> {
        let taken = events.filter(|event| matches!(event, Event::Message(_))).count() as u64;
        if taken == 0 && self.has_begun {
            return Ok(Step::Idle);
        }
        self.has_begun = true;
        self.taken += taken;
        let now = LIVE_BYTES.load(Ordering::Relaxed);
        if self.taken == FIRST {
            self.before = now;
        } else if self.taken == FIRST + FEEDS {
            return Ok(Step::Done((self.before, now)));
        }
        let feed = out.feed::<u64>(4);
        out.future(async move { feed.put(1).await.is_ok() });
        Ok(Step::Idle)
    }
}

const FEEDS: u64 = 100_000;

#[test]
fn feeds_that_are_empty_and_dropped_leave_nothing() {
    alone(|| {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let exit = wait::wait(&runtime.spawn(FeedByFeed::default()).unwrap());
        let (bytes, bytes_after) = **exit.output().unwrap();
        assert!(bytes_after < bytes + 64 * 1024, "{bytes} bytes before, {bytes_after} bytes after");
    });
}

/// Takes few items a step.
struct Slow {
    putter: Option<std::sync::mpsc::Sender<procession::feed::Feed<[u8; 256]>>>,
    taken: u64,
    most: u64,
}

impl Process for Slow {
    type Message = [u8; 256];
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, [u8; 256]>, out: &mut StepOutput) -> StepResult<u64> {
        if let Some(putter) = self.putter.take() {
            putter.send(out.feed(16)).map_err(|_| "the test is over")?;
        }
        self.taken += events.filter(|event| matches!(event, Event::Message(_))).count() as u64;
        self.most = self.most.max(LIVE_BYTES.load(Ordering::Relaxed));
        Ok(if self.taken == ITEMS { Step::Done(self.most) } else { Step::Idle })
    }
}

const ITEMS: u64 = 10_000_000 / if cfg!(debug_assertions) { 10 } else { 1 };

/// In a release build these are 10,000,000 items.
#[test]
fn many_items_to_a_slow_process_keep_the_memory_flat() {
    alone(|| {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let (putter, feed) = std::sync::mpsc::channel();
        let before = LIVE_BYTES.load(Ordering::Relaxed);
        let process = runtime.spawn(Slow { putter: Some(putter), taken: 0, most: 0 }).unwrap();
        let feed = wait::wait(&feed).unwrap();
        let putter = std::thread::spawn(move || {
            for _ in 0..ITEMS {
                wait::block_on(feed.put([0; 256])).unwrap();
            }
        });
        let exit = wait::wait(&process);
        wait::wait(putter).unwrap();
        let most = **exit.output().unwrap();
        assert!(most < before + 256 * 1024, "{before} bytes before, {most} bytes at most");
    });
}
