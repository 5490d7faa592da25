//! The report: the medians of all rounds, and our ratios beside the bars.

use std::fmt::Write as _;

use crate::load::Measured;
use crate::peers::{OURS, Peer};
use crate::rounds::{IdleRun, Run};

/// A line of the table.
struct Row {
    name: &'static str,
    value: fn(&Measured) -> Option<f64>,
    /// The digits behind the point.
    digits: usize,
    /// The bars: a peer, and the least or the greatest ratio of ours to it.
    bars: &'static [(&'static str, Bar)],
}

#[derive(Clone, Copy)]
enum Bar {
    Least(f64),
    Most(f64),
}

const ROWS: [Row; 9] = [
    Row {
        name: "one way, messages a second",
        value: |measured| Some(measured.messages_a_second()),
        digits: 0,
        bars: &[("erlang", Bar::Least(3.0)), ("ractor", Bar::Least(4.0)), ("kameo", Bar::Least(30.0))],
    },
    Row { name: "lost, of 1,000", value: |measured| Some(measured.lost()), digits: 1, bars: &[] },
    Row {
        name: "ask, median, µs",
        value: |measured| Some(micros(measured.ask_p50)),
        digits: 1,
        bars: &[("erlang", Bar::Most(3.0)), ("kameo", Bar::Most(1.0))],
    },
    Row { name: "ask, 99 of 100, µs", value: |measured| Some(micros(measured.ask_p99)), digits: 1, bars: &[] },
    Row {
        name: "64 in flight, asks a second",
        value: |measured| Some(measured.asks_a_second()),
        digits: 0,
        bars: &[("erlang", Bar::Least(3.0)), ("ractor", Bar::Least(2.0))],
    },
    Row {
        name: "ask beside 64 MiB, median, µs",
        value: |measured| measured.beside_p50.map(micros),
        digits: 1,
        bars: &[],
    },
    Row {
        name: "ask beside 64 MiB, 99 of 100, µs",
        value: |measured| measured.beside_p99.map(micros),
        digits: 1,
        bars: &[("erlang", Bar::Most(0.25))],
    },
    Row {
        name: "beside 64 MiB, the longest time without a frame, ms",
        value: |measured| measured.beside_silence.map(|time| micros(time) / 1e3),
        digits: 1,
        bars: &[],
    },
    Row { name: "64 MiB, ms", value: |measured| measured.large.map(|time| micros(time) / 1e3), digits: 1, bars: &[] },
];

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl Measured {
    /// The messages that were lost, of 1,000.
    fn lost(&self) -> f64 {
        (self.sent - self.arrived.min(self.sent)) as f64 * 1e3 / self.sent.max(1) as f64
    }
}

/// The value in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The table, and our ratios.
pub(crate) fn report(peers: &[Peer], runs: &[Run]) -> String {
    let value = |row: &Row, peer: &str| {
        median(runs.iter().filter(|run| run.peer == peer).filter_map(|run| (row.value)(&run.measured)).collect())
    };
    let mut text = String::from("| medians |");
    peers.iter().for_each(|peer| _ = write!(text, " {} |", peer.name));
    text.push_str(" our ratio (bar) |\n|---|");
    (0..=peers.len()).for_each(|_| text.push_str("---|"));
    for row in &ROWS {
        let _ = write!(text, "\n| {} |", row.name);
        for peer in peers {
            let shown = value(row, peer.name).map_or(String::from("–"), |value| format!("{value:.*}", row.digits));
            let _ = write!(text, " {shown} |");
        }
        let ours = value(row, OURS);
        let ratios = row.bars.iter().filter_map(|(peer, bar)| {
            let ratio = ours? / value(row, peer)?;
            let (sign, limit, is_met) = match *bar {
                Bar::Least(limit) => ("≥", limit, ratio >= limit),
                Bar::Most(limit) => ("≤", limit, ratio <= limit),
            };
            Some(format!("{peer} {ratio:.2} ({sign} {limit}: {})", if is_met { "met" } else { "missed" }))
        });
        let _ = write!(text, " {} |", ratios.collect::<Vec<_>>().join(", "));
    }
    text.push('\n');
    text
}

/// The cost of an idle peer: a node with one, less a node without one.
pub(crate) fn idle(runs: &[IdleRun]) -> String {
    type Value = fn(&crate::idle::Idle) -> f64;
    let rows: [(&str, Value); 7] = [
        ("threads", |idle| idle.threads as f64),
        ("processor, % of a core", |idle| share(idle.processor, idle.nanos)),
        ("wake-ups a second", |idle| idle.wakes as f64 * 1e9 / idle.nanos.max(1) as f64),
        ("threads of ours", |idle| idle.our_threads as f64),
        ("processor of ours, % of a core", |idle| share(idle.our_processor, idle.nanos)),
        ("wake-ups of ours a second", |idle| idle.our_wakes as f64 * 1e9 / idle.nanos.max(1) as f64),
        ("memory, KiB", |idle| idle.memory as f64 / 1024.0),
    ];
    let mut text = String::from(
        "| medians | node alone | with a peer | engine alone | with a peer | the peer, beside its engine |",
    );
    text.push_str("\n|---|---|---|---|---|---|");
    for (name, value) in rows {
        let of = |idle: fn(&IdleRun) -> crate::idle::Idle| median(runs.iter().map(|run| value(&idle(run))).collect());
        let columns =
            [of(|run| run.alone), of(|run| run.connected), of(|run| run.engine_alone), of(|run| run.engine_connected)];
        let [alone, connected, engine_alone, engine_connected] = columns.map(Option::unwrap_or_default);
        let beside = connected - alone - (engine_connected - engine_alone);
        let _ = write!(
            text,
            "\n| {name} | {alone:.3} | {connected:.3} | {engine_alone:.3} | {engine_connected:.3} | {beside:.3} |"
        );
    }
    text.push('\n');
    text
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;

    fn run(peer: &str, one_way: u64) -> Run {
        let measured = Measured { sent: 1_000, arrived: 1_000, one_way, ask_p50: 2_000, ..Measured::default() };
        Run { peer: peer.to_string(), round: 0, measured }
    }

    #[test]
    fn a_ratio_stands_beside_its_bar() {
        let runs = [run("procession", 1_000_000), run("procession", 9_000_000), run("procession", 1_000_000)];
        let erlang = [run("erlang", 4_000_000), run("erlang", 2_000_000)];
        let text = report(&peers::all(), &[runs.as_slice(), &erlang].concat());
        let row = text.lines().find(|line| line.contains("one way")).unwrap();
        assert!(row.contains("1000000"), "{row}");
        assert!(row.contains("erlang 2.00 (≥ 3: missed)"), "{row}");
        assert!(text.contains("erlang 1.00 (≤ 3: met)"), "{text}");
    }

    #[test]
    fn a_median_of_nothing_is_none() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    }
}
