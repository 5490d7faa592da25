//! The floor: the best times of this machine, with which Procession's figures can be compared.
//!
//! Each measurement repeats one operation in a loop. The least time of all rounds counts, because all else is
//! disturbance.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;

use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use crossbeam_deque::{Injector, Steal, Worker};
use lexopt::Arg::{Long, Short};
use lexopt::Parser;

/// One operation of the machine.
struct Thing {
    name: &'static str,
    /// How often a round repeats the operation.
    times: u64,
    /// Repeats the operation this often. Returns the nanoseconds for one.
    round: fn(u64) -> f64,
}

const THINGS: [Thing; 9] = [
    Thing { name: "an atomic read-modify-write", times: 10_000_000, round: atomic },
    Thing { name: "lock and unlock an uncontended mutex", times: 10_000_000, round: mutex },
    Thing { name: "allocate and free 64 bytes", times: 10_000_000, round: allocation },
    Thing { name: "read the clock", times: 5_000_000, round: clock },
    Thing { name: "push to and pop from a queue of its own", times: 10_000_000, round: queue },
    Thing { name: "push to and pop from a work-stealing deque, by its owner", times: 10_000_000, round: deque },
    Thing { name: "push to and steal from a global queue", times: 10_000_000, round: global },
    Thing { name: "a cache line to another core and back", times: 1_000_000, round: cache_line },
    Thing { name: "wake a thread that sleeps, and be woken by it", times: 20_000, round: wake },
];

const ROUNDS: usize = 7;

const USAGE: &str = "\
What this machine does at best, in nanoseconds.

usage: cargo bench --bench floor -- [--smoke]

  --smoke  small counts, to see that everything works";

fn main() -> ExitCode {
    let smoke = match arguments::read("floor", USAGE, parse) {
        Ok(smoke) => smoke,
        Err(code) => return code,
    };
    println!("| | ns at best | ns in the median round |\n|---|---|---|");
    for thing in &THINGS {
        let times = if smoke { thing.times / 1_000 } else { thing.times };
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| (thing.round)(times)).collect();
        rounds.sort_by(f64::total_cmp);
        println!("| {} | {:.1} | {:.1} |", thing.name, rounds[0], rounds[ROUNDS / 2]);
    }
    ExitCode::SUCCESS
}

/// Whether the counts are small. `None` if help was requested.
fn parse(arguments: &mut Parser) -> Result<Option<bool>, lexopt::Error> {
    let mut smoke = cfg!(debug_assertions);
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("smoke") => smoke = true,
            // Cargo passes this option to every benchmark.
            Long("bench") => {}
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(smoke))
}

/// Nanoseconds for one of `times`.
fn each(times: u64, mut one: impl FnMut(u64)) -> f64 {
    let began = Instant::now();
    for n in 0..times {
        one(n);
    }
    began.elapsed().as_nanos() as f64 / times as f64
}

fn atomic(times: u64) -> f64 {
    let count = AtomicU64::new(0);
    each(times, |_| {
        black_box(&count).fetch_add(1, Ordering::AcqRel);
    })
}

fn mutex(times: u64) -> f64 {
    let count = Mutex::new(0_u64);
    each(times, |n| {
        if let Ok(mut count) = black_box(&count).lock() {
            *count = n;
        }
    })
}

fn allocation(times: u64) -> f64 {
    each(times, |n| drop(black_box(Box::new([n; 8]))))
}

fn clock(times: u64) -> f64 {
    let last = Cell::new(Instant::now());
    each(times, |_| last.set(black_box(Instant::now())))
}

fn queue(times: u64) -> f64 {
    let mut queue = VecDeque::with_capacity(16);
    each(times, |n| {
        black_box(&mut queue).push_back(n);
        black_box(queue.pop_front());
    })
}

fn deque(times: u64) -> f64 {
    let deque = Worker::new_lifo();
    each(times, |n| {
        black_box(&deque).push(n);
        black_box(deque.pop());
    })
}

fn global(times: u64) -> f64 {
    let global = Injector::new();
    each(times, |n| {
        black_box(&global).push(n);
        while matches!(black_box(global.steal()), Steal::Retry) {}
    })
}

/// Two threads count in turns. On a machine with one core the result means nothing.
fn cache_line(times: u64) -> f64 {
    let ball = Arc::new(AtomicU64::new(0));
    let theirs = ball.clone();
    let other = thread::spawn(move || bounce(&theirs, 1, times));
    let began = Instant::now();
    bounce(&ball, 0, times);
    // The thread has no code that could panic.
    let _ = other.join();
    began.elapsed().as_nanos() as f64 / times as f64
}

/// Waits for its turn, which is every second one, and counts on.
fn bounce(ball: &AtomicU64, first: u64, times: u64) {
    for turn in 0..times {
        let mine = turn * 2 + first;
        let mut looks = 0_u32;
        while ball.load(Ordering::Acquire) != mine {
            looks += 1;
            // If both threads are on one core, the other one must be able to run.
            if looks.is_multiple_of(10_000) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        ball.store(mine + 1, Ordering::Release);
    }
}

/// Two threads wake each other in turns.
fn wake(times: u64) -> f64 {
    let turn = Arc::new((Mutex::new(0_u64), Condvar::new()));
    let theirs = turn.clone();
    let other = thread::spawn(move || take_turns(&theirs, 1, times));
    let began = Instant::now();
    take_turns(&turn, 0, times);
    let _ = other.join();
    began.elapsed().as_nanos() as f64 / times as f64
}

fn take_turns((turn, changed): &(Mutex<u64>, Condvar), first: u64, times: u64) {
    for round in 0..times {
        let mine = round * 2 + first;
        let Ok(turn) = turn.lock() else { return };
        let Ok(mut turn) = changed.wait_while(turn, |turn| *turn != mine) else { return };
        *turn = mine + 1;
        changed.notify_one();
    }
}
