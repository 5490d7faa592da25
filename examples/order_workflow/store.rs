//! The same orders in a store. The program may be killed at any moment. When it is started again, they go on.
//!
//! The books of the partners are in a file beside the store. They stand for the world outside, which is not killed with
//! the program. The file is not synced, so it survives a kill of the program, but no loss of power.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::Status;
use procession::durable::{Durable, DurableCommand, Query, Store};
use procession::sync::Latch;
use procession::{BoxError, Exit, Runtime};

use crate::gateway::{Account, Charge, Gateway, Problem, Refund, Release, Reserve, Ship, TICK};
use crate::order::Order;
use crate::report::Report;
use crate::{FAR_TOO_LONG, Options, builder, order, progress};

/// The pause between two ticks. So the orders' clock runs fifty times as fast as yours, and the disk keeps up with it.
const PAUSE: Duration = Duration::from_millis(2);

/// The number of ticks between two looks at what is done.
const LOOK: u32 = 50;

impl Durable for Order {
    const NAME: &str = "order";
}

macro_rules! durable_commands {
    ($($command:ty: $name:literal),*) => {
        $(impl DurableCommand for $command {
            const NAME: &str = $name;
            type Error = Problem;
        })*
    };
}

durable_commands!(Reserve: "reserve", Charge: "charge", Ship: "ship", Refund: "refund", Release: "release");

pub(crate) fn run(options: &Options, folder: &Path, interrupted: &Latch<()>) -> Result<ExitCode, BoxError> {
    let clock = ManualClock::new();
    let gateway = Gateway::new(options.seed, options.orders, clock.clock())?;
    open_books(options, folder, &gateway)?;
    let store = Store::open(folder.join("store")).kind::<Order>().command::<Reserve>().command::<Charge>();
    let store = store.command::<Ship>().command::<Refund>().command::<Release>();
    let (store, runtime) = store.start(builder(options, &gateway, clock.clock()))?;
    for id in 0..options.orders {
        store.begin(&id.to_string(), order(options, id))?;
    }
    eprintln!("{} orders", options.orders);

    let is_over = live_through(options, &store, &clock, interrupted)?;
    if is_over {
        report(options, &store, &gateway)?;
    } else {
        eprintln!("stopped; start it again with the same options, and the orders go on");
    }
    end(&store, &runtime)?;
    Ok(if is_over { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

/// Moves the clock until no order is left. Returns whether that is so: the program may be interrupted before.
fn live_through(
    options: &Options,
    store: &Store,
    clock: &ManualClock,
    interrupted: &Latch<()>,
) -> Result<bool, BoxError> {
    let (began, all) = (clock.now(), options.orders as u64);
    let progress = progress(options.orders)?;
    while !interrupted.is_set() {
        let ended = store.count(&Query::all().status(Status::Ended))?;
        if ended == all {
            progress.finish_and_clear();
            return Ok(true);
        }
        let elapsed = clock.now() - began;
        if elapsed > FAR_TOO_LONG {
            return Err(format!("{} orders wait for something that does not come", all - ended).into());
        }
        progress.set_position(ended);
        progress.set_message(format!("{:.0} s", elapsed.as_secs_f64()));
        for _ in 0..LOOK {
            clock.advance(TICK);
            if interrupted.wait_timeout(PAUSE).is_some() {
                break;
            }
        }
    }
    progress.finish_and_clear();
    Ok(false)
}

/// Prints the table. All orders have ended, in this run or an earlier one.
fn report(options: &Options, store: &Store, gateway: &Gateway) -> Result<(), BoxError> {
    let receipt = |id: usize| Ok(Arc::new(store.result::<Order>(&id.to_string())?.wait(FAR_TOO_LONG)?));
    let receipts = (0..options.orders).map(receipt).collect::<Result<Vec<_>, BoxError>>()?;
    let report = Report::new(receipts.into_iter().map(Exit::Done), &gateway.books());
    writeln!(io::stdout().lock(), "{} orders, seed {}\n\n{report}", options.orders, options.seed)?;
    if report.is_right() { Ok(()) } else { Err("the books say something else than the orders".into()) }
}

fn end(store: &Store, runtime: &Runtime) -> Result<(), BoxError> {
    let ended = runtime.shutdown(Duration::from_secs(5))?;
    store.close()?;
    if ended.is_clean() { Ok(()) } else { Err(format!("the runtime did not end in order: {ended}").into()) }
}

/// Reads the partners' books, and has the gateway go on writing them.
fn open_books(options: &Options, folder: &Path, gateway: &Gateway) -> Result<(), BoxError> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join("books");
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
    // Until the end of the program, also if it is killed.
    file.try_lock().map_err(|_| format!("another program has {path:?}"))?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let title = format!("{} orders, seed {}", options.orders, options.seed);
    let mut lines = text.lines();
    match lines.next() {
        Some(there) if there != title => return Err(format!("{path:?} has the books of {there}").into()),
        Some(_) => {}
        None => writeln!(file, "{title}")?,
    }
    for line in lines {
        let (order, account) = read(line).ok_or_else(|| format!("a line of {path:?} is {line:?}"))?;
        gateway.books()[order] = account;
    }
    drop(gateway.file.set(file));
    Ok(())
}

/// The number of the order, and the entries, that a line of the books has.
fn read(line: &str) -> Option<(usize, Account)> {
    let mut words = line.split(' ');
    let order = words.next()?.parse().ok()?;
    let account = Account {
        reserved: words.next()?.parse().ok()?,
        paid: words.next()?.parse().ok()?,
        charges: words.next()?.parse().ok()?,
        shipped: words.next()?.parse().ok()?,
        calls: words.next()?.parse().ok()?,
    };
    Some((order, account))
}
