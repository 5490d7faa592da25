//! Workloads of tasks: empty closures, submitted to a scheduler on a pool of threads. Their handles are kept and
//! waited for.

use std::time::Instant;

use procession::pool::Pool;
use procession::task::{TaskHandle, TaskOptions, TaskScheduler};

use super::measure::{Measured, Outcome, PATIENCE, Setting, check};

/// One thread submits all tasks as fast as it can, and then takes each result.
pub(crate) fn task_submit(setting: &Setting) -> Outcome<Measured> {
    submit(setting, &TaskOptions::new())
}

/// As `task_submit`, with a timeout for each task, which never passes.
pub(crate) fn task_timeout(setting: &Setting) -> Outcome<Measured> {
    submit(setting, &TaskOptions::new().timeout(PATIENCE))
}

fn submit(setting: &Setting, options: &TaskOptions) -> Outcome<Measured> {
    let pool = Pool::builder().max(setting.workers).build()?;
    // The threads are started before the time is measured.
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
    // A result is there before the task's timer is removed.
    pool.drain_timeout(PATIENCE)?;
    let stats = tasks.stats();
    check("tasks completed", stats.completed, setting.n)?;
    check("records and timers left", (stats.records + stats.timers) as u64, 0)?;
    Ok(measured)
}
