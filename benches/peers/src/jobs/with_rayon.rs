//! rayon: a fixed pool of threads for computations.

use std::time::Instant;

use rayon::{ThreadPool, ThreadPoolBuilder};

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
];

fn pool(threads: usize) -> Outcome<ThreadPool> {
    Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
}

fn execute<const THREADS: usize>(setting: &Setting) -> Outcome<Measured> {
    let pool = pool(THREADS)?;
    REPORTS.expect(setting.n);
    let began = Instant::now();
    for _ in 0..setting.n {
        pool.spawn(|| REPORTS.strike());
    }
    REPORTS.wait()?;
    Ok(Measured::since(began, setting.n))
}

fn run(setting: &Setting) -> Outcome<Measured> {
    let pool = pool(setting.workers)?;
    let began = Instant::now();
    let sum = (0..setting.n).map(|number| pool.install(move || number)).sum();
    let measured = Measured::since(began, setting.n);
    check_sum(sum, setting)?;
    Ok(measured)
}
