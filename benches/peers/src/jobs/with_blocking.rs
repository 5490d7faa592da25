//! blocking: the elastic pool of the smol family. The whole program has one pool. An environment variable, which the
//! parent process has set, limits its threads.

use std::time::Instant;

use blocking::unblock;
use futures_lite::future::block_on;

use super::check_sum;
use crate::ours::measure::{Measured, Outcome, Setting};
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
];

/// The variable that limits the threads of the pool.
pub(crate) const THREADS: &str = "BLOCKING_MAX_THREADS";

fn execute<const AT_MOST: usize>(setting: &Setting) -> Outcome<Measured> {
    has(AT_MOST)?;
    REPORTS.expect(setting.n);
    let began = Instant::now();
    for _ in 0..setting.n {
        unblock(|| REPORTS.strike()).detach();
    }
    REPORTS.wait()?;
    Ok(Measured::since(began, setting.n))
}

fn run(setting: &Setting) -> Outcome<Measured> {
    has(setting.workers)?;
    let began = Instant::now();
    let sum = (0..setting.n).map(|number| block_on(unblock(move || number))).sum();
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}

fn submit(setting: &Setting) -> Outcome<Measured> {
    has(setting.workers)?;
    let began = Instant::now();
    let handles: Vec<_> = (0..setting.n).map(|number| unblock(move || number)).collect();
    let sum = block_on(async {
        let mut sum = 0;
        for handle in handles {
            sum += handle.await;
        }
        sum
    });
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}

/// Checks that the pool has as many threads as the other pools have.
fn has(threads: usize) -> Outcome<()> {
    match std::env::var(THREADS) {
        Ok(given) if given == threads.to_string() => Ok(()),
        _ => Err(format!("{THREADS} must be {threads}").into()),
    }
}
