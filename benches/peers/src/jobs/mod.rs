//! Jobs and tasks on the thread pools of other libraries. Every program does the same as Procession's: it runs empty
//! closures, and counts each or waits for each.
//!
//! The pools of Procession, tokio and `blocking` are elastic: their threads start on demand and end when idle. The
//! pools of `rayon` and `threadpool` have a fixed number of threads. Those of `rayon` are not meant to block.

pub(crate) mod with_rayon;
pub(crate) mod with_threadpool;
pub(crate) mod with_blocking;
pub(crate) mod with_tokio;

use crate::ours::measure::{Outcome, Setting, check};

/// Checks the sum of the results of jobs that each return their number.
fn check_sum(sum: u64, setting: &Setting) -> Outcome<()> {
    check("sum of what the jobs return", sum, setting.n * (setting.n - 1) / 2)
}
