//! threadpool: a fixed pool of threads behind one channel.

use std::sync::mpsc::channel;
use std::time::Instant;

use threadpool::ThreadPool;

use super::check_sum;
use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::{REPORTS, report};
use crate::registry::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("pool_execute_1", execute::<1>),
    Program::new("pool_execute_2", execute::<2>),
    Program::new("pool_execute_16", execute::<16>),
    Program::new("pool_execute_64", execute::<64>),
    Program::new("pool_execute_1024", execute::<1024>),
    Program::new("pool_run", run),
];

fn execute<const THREADS: usize>(setting: &Setting) -> Outcome<Measured> {
    let pool = ThreadPool::new(THREADS);
    REPORTS.expect(setting.n);
    let began = Instant::now();
    for _ in 0..setting.n {
        pool.execute(|| REPORTS.strike());
    }
    REPORTS.wait()?;
    Ok(Measured::since(began, setting.n))
}

/// The pool returns no results. A channel brings each result, as in the pool's documentation.
fn run(setting: &Setting) -> Outcome<Measured> {
    let pool = ThreadPool::new(setting.workers);
    let (teller, results) = channel();
    let began = Instant::now();
    let mut sum = 0;
    for number in 0..setting.n {
        let teller = teller.clone();
        pool.execute(move || {
            // If the receiver is gone, the run has already failed.
            let _ = teller.send(number);
        });
        sum += report(&results)?;
    }
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}
