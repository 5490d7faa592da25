//! tokio: the elastic pool for blocking work, beside a runtime of one thread.

use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::check_sum;
use crate::ours::measure::{Measured, Outcome, PATIENCE, Setting};
use crate::peers::REPORTS;
use crate::registry::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("pool_execute_1", execute::<1>),
    Program::new("pool_execute_2", execute::<2>),
    Program::new("pool_execute_16", execute::<16>),
    Program::new("pool_execute_64", execute::<64>),
    Program::new("pool_execute_1024", execute::<1024>),
    Program::new("pool_run", run),
    Program::new("task_submit", submit),
    Program::new("task_timeout", submit_with_timeout),
];

fn runtime(threads: usize) -> Outcome<Runtime> {
    Ok(Builder::new_current_thread().enable_time().max_blocking_threads(threads).build()?)
}

fn execute<const THREADS: usize>(setting: &Setting) -> Outcome<Measured> {
    let runtime = runtime(THREADS)?;
    REPORTS.expect(setting.n);
    let began = Instant::now();
    for _ in 0..setting.n {
        drop(runtime.spawn_blocking(|| REPORTS.strike()));
    }
    REPORTS.wait()?;
    Ok(Measured::since(began, setting.n))
}

fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = runtime(setting.workers)?;
    let began = Instant::now();
    let mut sum = 0;
    for number in 0..setting.n {
        sum += runtime.block_on(runtime.spawn_blocking(move || number))?;
    }
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}

fn submit(setting: &Setting) -> Outcome<Measured> {
    let runtime = runtime(setting.workers)?;
    let began = Instant::now();
    let handles: Vec<_> = (0..setting.n).map(|number| runtime.spawn_blocking(move || number)).collect();
    let sum = runtime.block_on(async {
        let mut sum = 0;
        for handle in handles {
            sum += handle.await?;
        }
        Outcome::Ok(sum)
    })?;
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}

/// A timeout is a timer around the handle. It begins when the handle is first waited for. It does not affect the job
/// itself.
fn submit_with_timeout(setting: &Setting) -> Outcome<Measured> {
    let runtime = runtime(setting.workers)?;
    let began = Instant::now();
    let sum = runtime.block_on(async {
        let jobs = (0..setting.n).map(|number| timeout(PATIENCE, runtime.spawn_blocking(move || number)));
        let handles: Vec<_> = jobs.collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.await??;
        }
        Outcome::Ok(sum)
    })?;
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}
