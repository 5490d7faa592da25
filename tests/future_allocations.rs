//! The allocations of futures, in a program of its own, because those of other tests would be counted as well.
//!
//! The counting allocator only counts, and then calls the system's.

#![allow(unreachable_pub)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::future;
use std::sync::atomic::{AtomicU64, Ordering};

use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};

#[path = "common/wait.rs"]
mod wait;

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
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let exit = wait::wait(&runtime.spawn(OneByOne::default()).unwrap());
    let [(allocations, bytes), (allocations_after, bytes_after)] = **exit.output().unwrap();
    let each = (allocations_after - allocations) as f64 / FUTURES as f64;
    assert!(each <= 6.0, "{each} allocations a future");
    // Threads that have just been started may still allocate.
    assert!(bytes_after < bytes + 64 * 1024, "{bytes} bytes before, {bytes_after} bytes after");
}
