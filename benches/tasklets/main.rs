//! The cost of the steps of a loop, in time and in allocations.
//!
//! The benchmark counts allocations and checks them: a home step makes none once the loop is warm. Otherwise the
//! benchmark fails. The times are only printed. They hold for this machine at this moment.
//!
//! The counting allocator is the only `unsafe` code of the repository. It is in this program and not in the library.
//! It only counts, and then calls the system's allocator.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::tasklet::{Directive, Loop, TaskletContext, TurnOutcome, ready};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A measurement: the number of operations, their time, and their allocations.
struct Measured {
    name: &'static str,
    ops: u64,
    nanoseconds: f64,
    allocations: u64,
    /// The most allocations that are allowed.
    allowed: Option<u64>,
}

const USAGE: &str = "\
What the steps of a loop cost.

usage: cargo bench --bench tasklets -- [--smoke] [--json]

  --smoke  small counts, to see that everything works
  --json   one line of JSON for each measurement";

struct Options {
    json: bool,
    smoke: bool,
}

impl Options {
    fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options { json: false, smoke: cfg!(debug_assertions) };
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("json") => options.json = true,
                Long("smoke") => options.smoke = true,
                // Cargo passes this option to every benchmark.
                Long("bench") => {}
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(options))
    }
}

fn main() -> ExitCode {
    let Options { json, smoke } = match arguments::read("tasklets", USAGE, Options::parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let n = if smoke { 10_000 } else { 1_000_000 };
    // The measurement with a pool comes last, because its threads allocate when they end.
    let all = [steps(n, 1), steps(n, 1_000), resumptions(n / 10), births(n / 10), round_trips(n / 100)];
    if !json {
        println!("| | times | ns each | allocations each |\n|---|---|---|---|");
    }
    let mut is_right = true;
    for Measured { name, ops, nanoseconds, allocations, allowed } in all {
        let (each, allocated) = (nanoseconds / ops as f64, allocations as f64 / ops as f64);
        if json {
            println!(r#"{{"name":"{name}","n":{ops},"ns":{each:.1},"allocations":{allocated:.3}}}"#);
        } else {
            println!("| {name} | {ops} | {each:.1} | {allocated:.3} |");
        }
        if allowed.is_some_and(|most| allocations > most) {
            eprintln!("tasklets: {name}: {allocations} allocations in {ops} steps");
            is_right = false;
        }
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(name: &'static str, ops: u64, allowed: Option<u64>, run: impl FnOnce()) -> Measured {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let began = Instant::now();
    run();
    let nanoseconds = began.elapsed().as_nanos() as f64;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    Measured { name, ops, nanoseconds, allocations, allowed }
}

/// Runs `n` home steps of tasklets that always return `Home`.
fn steps(n: u64, tasklets: u64) -> Measured {
    let mut home = Loop::new(0_u64);
    for _ in 0..tasklets {
        let counts = ready::from_fn(|count: &mut u64, _| {
            *count += 1;
            Directive::Home
        });
        home.schedule(counts, Directive::Home).expect("the loop is open");
    }
    let warm = 10 * tasklets;
    assert_eq!(home.turn(warm as usize), TurnOutcome::Ran(warm as usize));
    let name = if tasklets == 1 { "a home step, of one tasklet" } else { "a home step, of a thousand tasklets" };
    let measured = measure(name, n, Some(0), || assert_eq!(home.turn(n as usize), TurnOutcome::Ran(n as usize)));
    assert_eq!(*home.get(), n + warm, "all steps were taken");
    measured
}

/// Tasklets that are scheduled and end at their first step.
fn births(n: u64) -> Measured {
    let mut home = Loop::new(());
    let measured = measure("a tasklet, scheduled and done", n, None, || {
        for _ in 0..n {
            home.schedule(ready::done(), Directive::Home).expect("the loop is open");
            let _ = home.turn(1);
        }
    });
    assert_eq!(home.take_report().finished, n);
    measured
}

/// Steps from home to the pool and back.
fn round_trips(n: u64) -> Measured {
    let mut home = Loop::new(0_u64);
    let goes = ready::from_fns(
        move |count: &mut u64, _: &mut TaskletContext<'_, u64>| {
            *count += 1;
            if *count > n { Directive::Done } else { Directive::Pool }
        },
        |_: &mut TaskletContext<'_, u64>| Directive::Home,
    );
    home.schedule(goes, Directive::Home).expect("the loop is open");
    measure("home to the pool and back", n, None, || {
        let report = home.run().expect("nothing stops it");
        assert_eq!(report.pool_steps, n);
    })
}

/// Tasklets that suspend, are resumed by the same step, and are stepped again.
fn resumptions(n: u64) -> Measured {
    let mut home = Loop::new(0_u64);
    let waits = ready::from_fn(move |count: &mut u64, cx| {
        *count += 1;
        if *count > n + 10 {
            return Directive::Done;
        }
        cx.suspend().resume(Directive::Home);
        Directive::Wait
    });
    home.schedule(waits, Directive::Home).expect("the loop is open");
    let _ = home.turn(10);
    measure("suspended, resumed and stepped again", n, Some(0), || {
        assert_eq!(home.turn(n as usize), TurnOutcome::Ran(n as usize));
    })
}
