//! Workloads of tasks: empty closures, handed to a scheduler on a pool of threads, whose handles are kept and waited
//! for.

use std::time::Instant;

use procession::pool::Pool;
use procession::task::{TaskHandle, TaskOptions, TaskScheduler};

use super::measure::{Measured, Outcome, PATIENCE, Setting, check};

/// As many tasks as are asked for are submitted by one thread, as fast as it can; then each result is had.
pub(crate) fn task_submit(setting: &Setting) -> Outcome<Measured> {
    submit(setting, &TaskOptions::new())
}

/// The same with a timeout for each, which is never over.
pub(crate) fn task_timeout(setting: &Setting) -> Outcome<Measured> {
    submit(setting, &TaskOptions::new().timeout(PATIENCE))
}

fn submit(setting: &Setting, options: &TaskOptions) -> Outcome<Measured> {
    let pool = Pool::builder().max(setting.workers).build()?;
    // The threads are there before the time begins to count.
    pool.run_all((0..setting.workers).map(|_| || ()));
    let tasks = TaskScheduler::on(&pool);
    let began = Instant::now();
    let mut handles: Vec<TaskHandle<u64, String>> = Vec::new();
    for number in 0..setting.n {
        handles.push(tasks.submit_with(options.clone(), move |_| Ok(number))?);
    }
    let mut sum = 0;
    for handle in handles {
        sum += handle.wait()?.into_result()?;
    }
    let measured = Measured::since(began, setting.n);
    check("sum of what the tasks return", sum, setting.n * (setting.n - 1) / 2)?;
    let stats = tasks.stats();
    check("tasks completed", stats.completed, setting.n)?;
    check("records and timers left", (stats.records + stats.timers) as u64, 0)?;
    pool.drain_timeout(PATIENCE)?;
    Ok(measured)
}
