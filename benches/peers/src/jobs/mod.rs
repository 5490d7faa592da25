//! Jobs and tasks on pools of threads that others have made. Every program does what ours does: so many empty closures,
//! each of them counted, or each waited for.
//!
//! Elastic are ours, tokio's and `blocking`'s: their threads come when there is something to do, and go. Those of
//! `rayon` and `threadpool` are there from the beginning to the end, and those of `rayon` are not meant to block.

pub(crate) mod with_rayon;
pub(crate) mod with_threadpool;
pub(crate) mod with_blocking;
pub(crate) mod with_tokio;

use crate::ours::measure::{Outcome, Setting, check};

/// The sum that the jobs return if each returns its number.
fn check_sum(sum: u64, setting: &Setting) -> Outcome<()> {
    check("sum of what the jobs return", sum, setting.n * (setting.n - 1) / 2)
}
