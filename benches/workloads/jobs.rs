//! Workloads of jobs: empty closures, submitted to a pool of threads.

use std::time::Instant;

use procession::pool::Pool;

use super::measure::{Measured, Outcome, PATIENCE, Setting, Tally, check};

/// The number of reports: one of each job.
static REPORTS: Tally = Tally::new();

/// One thread submits all jobs as fast as it can. The run ends when the last job has run.
pub(crate) fn pool_execute<const THREADS: usize>(setting: &Setting) -> Outcome<Measured> {
    let pool = Pool::builder().max(THREADS).build()?;
    // The threads are started before the time is measured.
    pool.run_all((0..THREADS).map(|_| || ()));
    REPORTS.expect(setting.n);
    let began = Instant::now();
    for _ in 0..setting.n {
        pool.execute(|| REPORTS.strike())?;
    }
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    finish(&pool, setting.n + THREADS as u64)?;
    Ok(measured)
}

/// One thread submits jobs and waits for each before the next.
pub(crate) fn pool_run(setting: &Setting) -> Outcome<Measured> {
    let pool = Pool::builder().max(setting.workers).build()?;
    let began = Instant::now();
    let mut sum = 0;
    for number in 0..setting.n {
        sum += pool.run(move || number)?;
    }
    let measured = Measured::since(began, setting.n);
    check("sum of what the jobs return", sum, setting.n * (setting.n - 1) / 2)?;
    finish(&pool, setting.n)?;
    Ok(measured)
}

/// Ends the pool. Every job must have been run.
fn finish(pool: &Pool, jobs: u64) -> Outcome<()> {
    pool.drain_timeout(PATIENCE)?;
    check("jobs finished", pool.stats().finished, jobs)
}
