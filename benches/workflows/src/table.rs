//! The report: the medians of all rounds, and our ratios.

use std::fmt::Write as _;

use crate::load::Measured;
use crate::{Peer, Round};

/// A line of the table.
struct Row {
    name: &'static str,
    value: fn(&Measured) -> f64,
    /// Whether more is better.
    is_rate: bool,
}

const ROWS: [Row; 3] = [
    Row { name: "an order by itself, median, µs", value: |measured| micros(measured.p50), is_rate: false },
    Row { name: "an order by itself, 99 of 100, µs", value: |measured| micros(measured.p99), is_rate: false },
    Row { name: "at once, orders a second", value: |measured| measured.orders_a_second, is_rate: true },
];

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// The value in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The table. A ratio above 1 means that ours is faster.
pub(crate) fn report(peers: &[Peer], rounds: &[Round]) -> String {
    let mut text = String::from("| medians |");
    peers.iter().for_each(|peer| _ = write!(text, " {} |", peer.name()));
    text.push_str(" how many times as fast ours is |\n|---|");
    (0..=peers.len()).for_each(|_| text.push_str("---|"));
    for row in &ROWS {
        let of = |peer: Peer| {
            let runs = rounds.iter().flat_map(|round| &round.runs).filter(|(of, _)| *of == peer);
            median(runs.map(|(_, measured)| (row.value)(measured)))
        };
        let _ = write!(text, "\n| {} |", row.name);
        for peer in peers {
            let _ = write!(text, " {:.0} |", of(*peer).unwrap_or_default());
        }
        let ratio = |peer: &Peer| {
            let (ours, theirs) = (of(Peer::Ours)?, of(*peer)?);
            let ratio = if row.is_rate { ours / theirs } else { theirs / ours };
            Some(format!("{} {ratio:.2}", peer.name()))
        };
        let others = peers.iter().filter(|peer| **peer != Peer::Ours);
        let _ = write!(text, " {} |", others.filter_map(ratio).collect::<Vec<_>>().join("; "));
    }
    let fdatasync = median(rounds.iter().map(|round| micros(round.fdatasync))).unwrap_or_default();
    let _ = write!(text, "\n\nA plain fdatasync: {fdatasync:.0} µs, the median of the rounds.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_means_that_ours_is_faster() {
        let measured = |p50, orders_a_second| Measured { p50, p99: p50, orders_a_second };
        let runs = vec![(Peer::Ours, measured(1_000, 800.0)), (Peer::ALL[1], measured(4_000, 100.0))];
        let text = report(&Peer::ALL[..2], &[Round { fdatasync: 500, runs }]);
        let row = |name: &str| text.lines().find(|line| line.contains(name)).map(String::from).unwrap();
        assert!(row("median, µs").ends_with("| 1 | 4 | durare, FULL 4.00 |"), "{text}");
        assert!(row("at once").ends_with("| 800 | 100 | durare, FULL 8.00 |"), "{text}");
    }
}
