//! A workflow as a state machine. Ten thousand orders at once are each reserved, charged and shipped.
//!
//! It shows:
//!
//! - A workflow is an enum of states. Its step matches on `(state, event)`: `order.rs`.
//! - Its effects are its own commands (`impl Command for Reserve`). Their handlers are registered when the runtime is
//!   built. A handler may answer at once, hand its `Responder` to another thread, or leave the answer to a timer:
//!   `gateway.rs`.
//! - Calls fail, are slow, or get no answer. They are retried, each time after a pause twice as long. An order has a
//!   deadline. Pauses and deadlines are timers.
//! - An order that cannot go on undoes what it has done (or may have done) in reverse: refund, then release. These
//!   calls are retried, too. If they fail too often, the order ends as one that needs attention.
//! - Time is a manual clock, and minutes pass in a moment. The clock is moved only when every order waits, so the
//!   speed of threads does not matter. The same seed gives the same table, with any number of workers, on any
//!   machine.
//! - With `--store`, orders outlive the program: kill it at any moment, and start it again. The workflow is the same:
//!   `store.rs`.
//! - The workflow is simulated under many seeds, with stalls, cancellations, and answers that are late, lost or never
//!   come. The start-up is the one of this program: `simulation.rs`.
//!
//! How to try it:
//!
//! ```text
//! cargo run --release --example order_workflow
//! cargo run --release --example order_workflow -- --orders 100000 --seed 7 --workers 1
//! cargo run --release --features sqlite --example order_workflow -- --store /tmp/orders
//! cargo test --example order_workflow
//! ```
//!
//! Ctrl-C cancels the orders. Those that have begun undo what they have done, and the table is still printed. At the
//! end, the books of the warehouse, the bank and the carrier are compared with the orders. The exit code is 0 if they
//! agree, 1 if not, 2 for invalid options, and 130 after Ctrl-C. With `--store`, Ctrl-C stops the program and no order.

#[path = "../arguments/mod.rs"]
mod arguments;
mod gateway;
mod order;
mod report;
#[cfg(test)]
mod simulation;
#[cfg(feature = "sqlite")]
mod store;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::clock::{Clock, ManualClock};
use procession::config::RuntimeBuilder;
use procession::observe::{ProcessInfo, ProcessState};
use procession::sync::Latch;
use procession::{BoxError, Handle, Runtime};
use rand::RngExt as _;

use self::gateway::{Gateway, TICK};
use self::order::Order;
use self::report::Report;

/// A limit that no order can reach, by the orders' clock. An order that lives longer waits for an event that never
/// comes.
const FAR_TOO_LONG: Duration = Duration::from_secs(1800);

const USAGE: &str = "\
usage: order_workflow [--orders N] [--seed S] [--workers W] [--store DIR]

  --orders N    how many orders, 1 to 1000000 (10000)
  --seed S      decides how every call goes, 0 to 18446744073709551615 (1)
  --workers W   threads that step the orders, 1 to 1024 (as many as there are processors)
  --store DIR   keep the orders in DIR, so that they survive a kill: start it again, and they go on";

#[derive(Debug, PartialEq, Eq)]
struct Options {
    orders: usize,
    seed: u64,
    workers: Option<usize>,
    store: Option<PathBuf>,
}

fn main() -> ExitCode {
    arguments::main("order_workflow", USAGE, Options::parse, |options| run(&options))
}

impl Options {
    fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options { orders: 10_000, seed: 1, workers: None, store: None };
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("orders") => options.orders = arguments::number(arguments, "--orders", 1..=1_000_000)?,
                Long("seed") => options.seed = arguments::number(arguments, "--seed", 0..=u64::MAX)?,
                Long("workers") => options.workers = Some(arguments::number(arguments, "--workers", 1..=1024)?),
                #[cfg(feature = "sqlite")]
                Long("store") => options.store = Some(arguments.value()?.into()),
                #[cfg(not(feature = "sqlite"))]
                Long("store") => return Err("--store needs a program that is built with `--features sqlite`".into()),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(options))
    }
}

fn run(options: &Options) -> Result<ExitCode, BoxError> {
    let interrupted = Latch::new();
    let latch = interrupted.clone();
    ctrlc::set_handler(move || _ = latch.set(()))?;
    #[cfg(feature = "sqlite")]
    if let Some(folder) = &options.store {
        return store::run(options, folder, &interrupted);
    }

    let began = Instant::now();
    let clock = ManualClock::new();
    let gateway = Gateway::new(options.seed, options.orders, clock.clock())?;
    let runtime = builder(options, &gateway, clock.clock()).start()?;
    let orders = begin(&runtime, options)?;
    eprintln!("{} orders", orders.len());

    let was_interrupted = live_through(&runtime, &clock, &gateway, options.orders, &interrupted)?;

    let exits = orders.iter().map(|order| order.join()).collect::<Result<Vec<_>, _>>()?;
    let report = Report::new(exits.into_iter(), &gateway.books());
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{} orders, seed {}\n\n{report}", options.orders, options.seed)?;
    eprintln!(
        "{:.1} s by the orders' clock, {:.1} s by yours",
        report.took().as_secs_f64(),
        began.elapsed().as_secs_f64()
    );

    let ended = runtime.shutdown(Duration::from_secs(5))?;
    if !ended.is_clean() {
        return Err(format!("the runtime did not end in order: {ended}").into());
    }
    if !report.is_right() {
        return Err("the table does not add up, or the books say something else".into());
    }
    Ok(if was_interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// The runtime of the program, before it is started.
fn builder(options: &Options, gateway: &Arc<Gateway>, clock: Clock) -> RuntimeBuilder {
    let builder = gateway.serve(Runtime::builder().clock(clock));
    match options.workers {
        Some(workers) => builder.workers(workers),
        None => builder,
    }
}

/// Begins all orders.
fn begin(runtime: &Runtime, options: &Options) -> Result<Vec<Handle<Order>>, BoxError> {
    (0..options.orders).map(|id| Ok(runtime.spawn(order(options, id))?)).collect()
}

/// The order with this number, before it is begun.
fn order(options: &Options, id: usize) -> Order {
    Order::new(id, gateway::generator(options.seed, [0, id as u64, 0]).random_range(100..=50_000))
}

/// Moves the clock until no order is left. Returns whether the run was interrupted and the orders were cancelled.
///
/// The clock stands still while any process is about to run. So the outcome depends on the seed alone. An idle order
/// stays idle, because only the clock can wake it: all answers and timers fire in this function, inside `advance`. So
/// when one pass has found every order idle, one after the other, then all of them are idle now. The carriers'
/// pending calls are checked afterwards, when no order can add to them.
fn live_through(
    runtime: &Runtime,
    clock: &ManualClock,
    gateway: &Gateway,
    orders: usize,
    interrupted: &Latch<()>,
) -> Result<bool, BoxError> {
    let progress = progress(orders)?;
    let began = clock.now();
    let mut cancelled = false;
    loop {
        let living = runtime.processes();
        if living.is_empty() {
            progress.finish_and_clear();
            return Ok(cancelled);
        }
        if !living.iter().all(is_idle) || !gateway.is_quiet() {
            std::thread::yield_now();
            continue;
        }
        if interrupted.is_set() && !cancelled {
            cancelled = true;
            for order in &living {
                runtime.cancel(order.pid, "Ctrl-C")?;
            }
            continue;
        }
        let elapsed = clock.now() - began;
        if elapsed > FAR_TOO_LONG {
            return Err(format!("{} orders wait for something that does not come", living.len()).into());
        }
        progress.set_position((orders - living.len()) as u64);
        progress.set_message(format!("{:.0} s", elapsed.as_secs_f64()));
        clock.advance(TICK);
    }
}

fn is_idle(order: &ProcessInfo) -> bool {
    matches!(order.state, ProcessState::Blocked | ProcessState::Idle)
}

/// A progress bar, if standard error is a terminal.
fn progress(orders: usize) -> Result<ProgressBar, BoxError> {
    if !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} orders over, after {msg}")?;
    Ok(ProgressBar::new(orders as u64).with_style(style))
}
