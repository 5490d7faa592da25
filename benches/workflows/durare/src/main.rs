//! The orders as workflows of durare: <https://docs.rs/durare>.
//!
//! An activity is a step, whose output durare commits before the workflow goes on. The pool of connections is that of
//! `SqliteProvider::connect`, with `synchronous=FULL` if that is asked for. With the `NORMAL` of `connect`, a commit
//! survives a kill of the program, but maybe no loss of power.
//!
//! Arguments: the folder, the number of orders one after the other, that of orders at once, and `full` or `normal`.

#![forbid(unsafe_code)]

// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../src/load.rs"]
mod load;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use durare::{DurableContext, DurableEngine, Error, SqliteProvider, WorkflowOptions};
use load::{Activity, Counts, Measured, Outcome, Receipt, Request, carry_out};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

#[durare::step]
async fn charge(ctx: &DurableContext, number: u64) -> durare::Result<String> {
    carry_out(number, Activity::Charge).map_err(Error::app)
}

#[durare::step]
async fn reserve(ctx: &DurableContext, number: u64) -> durare::Result<String> {
    carry_out(number, Activity::Reserve).map_err(Error::app)
}

#[durare::step]
async fn ship(ctx: &DurableContext, number: u64) -> durare::Result<String> {
    carry_out(number, Activity::Ship).map_err(Error::app)
}

#[durare::workflow]
async fn order(ctx: DurableContext, request: Request) -> durare::Result<Receipt> {
    let charge = charge(&ctx, request.number).await?;
    let reservation = reserve(&ctx, request.number).await?;
    let parcel = ship(&ctx, request.number).await?;
    Ok(Receipt { charge, reservation, parcel })
}

/// Begins an order, and waits for its output.
async fn run(engine: &DurableEngine, number: u64) -> Outcome<()> {
    let request = Request::new(number);
    let options = WorkflowOptions::with_id(request.id());
    let handle = engine.start_with(Order, request, options).await?;
    load::check(number, &handle.await?)
}

async fn measure(folder: &str, counts: Counts, synchronous: SqliteSynchronous) -> Outcome<Measured> {
    std::fs::create_dir_all(folder)?;
    let options = SqliteConnectOptions::new()
        .filename(format!("{folder}/durare.db"))
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(5).connect_with(options).await?;
    let engine = Arc::new(DurableEngine::new(Arc::new(SqliteProvider::from_pool(pool))).await?);
    let (singly, together) = counts.numbers();
    let mut times = Vec::new();
    for number in singly {
        let begin = Instant::now();
        run(&engine, number).await?;
        times.push(begin.elapsed());
    }
    let begin = Instant::now();
    let tasks = together.map(|number| {
        let engine = engine.clone();
        tokio::spawn(async move { run(&engine, number).await.map_err(|problem| problem.to_string()) })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let took = begin.elapsed();
    load::check_all(counts)?;
    engine.shutdown(load::LIMIT).await?;
    Ok(Measured::new(times, counts.together, took))
}

fn main() -> ExitCode {
    load::end_with_the_other();
    let result = || -> Outcome<()> {
        let mut arguments = std::env::args().skip(1);
        let mut next = || arguments.next().ok_or("an argument is missing");
        let folder = next()?;
        let counts = Counts { singly: next()?.parse()?, together: next()?.parse()? };
        let synchronous = match next()?.as_str() {
            "full" => SqliteSynchronous::Full,
            "normal" => SqliteSynchronous::Normal,
            other => return Err(format!("unknown argument {other:?}").into()),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let measured = runtime.block_on(measure(&folder, counts, synchronous))?;
        println!("{}", serde_json::to_string(&measured)?);
        Ok(())
    };
    match result() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("durare: {problem}");
            ExitCode::FAILURE
        }
    }
}
