//! The figures, their printing, and the parts that the workloads of all libraries share. This module does not depend
//! on Procession. `benches/peers` measures the other libraries with it.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A result, or an error that says what is wrong with it.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The time after which a workload counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The function that runs a workload.
pub(crate) type Run = fn(&Setting) -> Outcome<Measured>;

/// One of the workloads.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The unit that `n` counts.
    pub(crate) counts: &'static str,
    /// The operation. The time is divided by the number of operations.
    pub(crate) op: &'static str,
    pub(crate) n: u64,
    /// The count for a short run, which only checks that the program works.
    pub(crate) smoke: u64,
    pub(crate) run: Run,
}

/// The parameters of a run.
pub(crate) struct Setting {
    pub(crate) n: u64,
    pub(crate) workers: usize,
    pub(crate) beside: Beside,
}

/// A part of the runtime that the workload does not use.
#[derive(Clone, Copy, PartialEq, Eq)]
// Each build has those of its features.
#[allow(dead_code)]
pub(crate) enum Beside {
    Nothing,
    /// Figures by type of process.
    Metrics,
    /// Traces: each message is within one, and the propagator does nothing.
    Traces,
    /// Traces with spans of `tracing`.
    Spans,
    /// A store of durable processes, which is open.
    Store,
    /// A connection to another node, in this program.
    Node,
}

impl Beside {
    /// The option of the command line.
    pub(crate) fn option(self) -> Option<&'static str> {
        match self {
            // `pingpong_spans` chooses the spans itself.
            Beside::Nothing | Beside::Spans => None,
            Beside::Metrics => Some("--metrics"),
            Beside::Traces => Some("--traces"),
            Beside::Store => Some("--store"),
            Beside::Node => Some("--node"),
        }
    }
}

impl Setting {
    /// The share of number `one`, if `many` together do `n`.
    pub(crate) fn share(&self, one: u64, many: u64) -> u64 {
        self.n / many + u64::from(one < self.n % many)
    }
}

/// The result of a run.
pub(crate) struct Measured {
    pub(crate) took: Duration,
    pub(crate) ops: u64,
    /// The peak of resident memory, in bytes.
    pub(crate) peak: Option<u64>,
    pub(crate) bytes_per_actor: Option<f64>,
}

impl Measured {
    /// The measurement of `ops` operations since `began`. It is taken when the work is done and nothing is yet freed.
    pub(crate) fn since(began: Instant, ops: u64) -> Measured {
        Measured { took: began.elapsed(), ops, peak: memory("VmHWM"), bytes_per_actor: None }
    }

    /// Adds the memory for each of `actors` processes.
    pub(crate) fn with_actors(mut self, before: Option<u64>, after: Option<u64>, actors: u64) -> Measured {
        if let (Some(before), Some(after)) = (before, after) {
            self.bytes_per_actor = Some(after.saturating_sub(before) as f64 / actors as f64);
        }
        self
    }

    pub(crate) fn ns_per_op(&self) -> f64 {
        self.took.as_nanos() as f64 / self.ops as f64
    }

    /// One line of JSON. Nothing in it needs escaping.
    pub(crate) fn json(&self, peer: &str, workload: &str, setting: &Setting) -> String {
        let or_null = |number: Option<f64>| number.map_or(String::from("null"), |number| format!("{number:.1}"));
        format!(
            "{{\"peer\":\"{peer}\",\"workload\":\"{workload}\",\"n\":{},\"secs\":{:.6},\
             \"ns_per_op\":{:.1},\"rss_mb\":{},\"bytes_per_actor\":{}}}",
            setting.n,
            self.took.as_secs_f64(),
            self.ns_per_op(),
            or_null(self.peak.map(megabytes)),
            or_null(self.bytes_per_actor),
        )
    }
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// Resident memory in bytes, now (`VmRSS`) or at its peak (`VmHWM`). `None` except on Linux.
pub(crate) fn memory(which: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Checks that a number is as expected.
pub(crate) fn check(what: &str, is: u64, must_be: u64) -> Outcome<()> {
    if is == must_be { Ok(()) } else { Err(format!("{what}: {is}, and it must be {must_be}").into()) }
}

/// Counts down as processes report, with one atomic subtraction each. The last report wakes the waiting thread. It is
/// kept in a static, so that a process holds nothing for it. Any other library can use it in the same way.
pub(crate) struct Tally {
    left: AtomicU64,
    over: Mutex<bool>,
    woken: Condvar,
}

impl Tally {
    pub(crate) const fn new() -> Tally {
        Tally { left: AtomicU64::new(0), over: Mutex::new(false), woken: Condvar::new() }
    }

    pub(crate) fn expect(&self, reports: u64) {
        self.left.store(reports, Ordering::Relaxed);
    }

    pub(crate) fn strike(&self) {
        // Ordering: Relaxed. Only the number matters. The lock orders the end of the wait.
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.woken.notify_all();
        }
    }

    pub(crate) fn wait(&self) -> Outcome<()> {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let (over, _) = self.woken.wait_timeout_while(over, PATIENCE, |over| !*over).map_err(|_| "poisoned")?;
        if *over {
            return Ok(());
        }
        Err(format!("{} have not reported in {PATIENCE:?}", self.left.load(Ordering::Relaxed)).into())
    }
}
