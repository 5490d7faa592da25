//! The table that Procession's own benchmarks print.

use super::measure::{Measured, Setting, megabytes};

/// The head of the table.
pub(crate) fn head() -> String {
    line(["workload", "n", "secs", "ns/op", "peak MB", "bytes/process", "op"])
}

/// One row: the workload, its count, and the operation by which the time is divided.
pub(crate) fn row(workload: &str, op: &str, setting: &Setting, measured: &Measured) -> String {
    let or_dash = |number: Option<f64>| number.map_or(String::from("-"), |number| format!("{number:.1}"));
    line([
        workload,
        &setting.n.to_string(),
        &format!("{:.3}", measured.took.as_secs_f64()),
        &format!("{:.1}", measured.ns_per_op()),
        &or_dash(measured.peak.map(megabytes)),
        &or_dash(measured.bytes_per_actor),
        op,
    ])
}

fn line([workload, n, secs, ns, peak, bytes, op]: [&str; 7]) -> String {
    format!("{workload:<24}{n:>10}{secs:>9}{ns:>10}{peak:>10}{bytes:>15}  {op}")
}
