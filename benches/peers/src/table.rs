//! The report as Markdown: a section for each group, with a table of the figures and one of the memory.

use std::fmt::Write as _;

use crate::registry::{Against, Bar, Figure, Group, Limit, Peer, Row, US, peers};
use crate::results::{Report, Spread};
use crate::rounds::Ending;

/// The whole report. It begins with `machine`.
pub(crate) fn report(machine: &str, groups: &[Group], report: &Report) -> String {
    let peers = peers();
    let mut text = format!("# Side by side\n\n{machine}\n");
    if report.ending == Ending::Interrupted {
        text.push_str("**Interrupted: what is here is what had been measured by then.**\n\n");
    }
    text.push_str(
        "A cell is the median with the least and the most, and how many times ours it is: above 1 × the peer takes \
         longer, or needs more. The last column is our median divided by that of the fastest, with the bar that is set \
         for it. \
         \"—\" means that a peer has no program for it, or did not take part.\n",
    );
    for group in groups {
        let columns: Vec<&Peer> = peers.iter().filter(|peer| takes_part(peer, group, report)).collect();
        let _ = write!(text, "\n## {}\n\n", group.title);
        figures(&mut text, group, &columns, report, &peers);
        let _ = write!(text, "\nPeak of resident memory of the whole process, MB:\n\n");
        memory(&mut text, group, &columns, report);
        for peer in &columns {
            for (workload, note) in
                peer.notes.iter().filter(|(name, _)| group.rows.iter().any(|row| row.workload == *name))
            {
                let _ = write!(text, "\n{}, `{workload}`: {note}.\n", peer.name);
            }
        }
    }
    for failure in &report.failures {
        let _ = writeln!(text, "\n**Failed:** {} `{}`: {}", failure.peer, failure.workload, failure.problem);
    }
    text
}

fn takes_part(peer: &Peer, group: &Group, report: &Report) -> bool {
    let tried = |row: &Row| report.spread(peer.name, row).is_some() || report.has_failed(peer.name, row.workload);
    group.rows.iter().any(tried)
}

fn head(text: &mut String, columns: &[&Peer], last: &str) {
    let names: Vec<_> = columns.iter().map(|peer| peer.name).collect();
    let _ = writeln!(text, "| workload | {} | {last} |", names.join(" | "));
    let _ = writeln!(text, "|---|{}---|", "---|".repeat(columns.len()));
}

fn figures(text: &mut String, group: &Group, columns: &[&Peer], report: &Report, peers: &[Peer]) {
    head(text, columns, "ours / fastest");
    for row in &group.rows {
        let unit = match row.figure {
            Figure::Time => format!("ns per {}", row.op),
            Figure::Bytes => format!("bytes per {}", row.op),
        };
        let cells: Vec<_> = columns.iter().map(|peer| cell(peer, row, report)).collect();
        let _ =
            writeln!(text, "| `{}`, {unit} | {} | {} |", row.workload, cells.join(" | "), verdicts(row, report, peers));
    }
}

fn cell(peer: &Peer, row: &Row, report: &Report) -> String {
    let Some(Spread { median, min, max }) = report.spread(peer.name, row) else {
        return String::from(if report.has_failed(peer.name, row.workload) { "failed" } else { "—" });
    };
    let mut cell = rounded(median);
    if min < max {
        let _ = write!(cell, " ({}–{})", rounded(min), rounded(max));
    }
    if let (Some(ratio), true) = (report.ratio(peer.name, row), peer.name != US) {
        let _ = write!(cell, " {ratio:.2} ×");
    }
    cell
}

/// Procession's ratio to the fastest peer, for each bar that is set. If none is set, the ratio is to the fastest of
/// all.
fn verdicts(row: &Row, report: &Report, peers: &[Peer]) -> String {
    let no_bar = [Bar { against: Against::All, limit: Limit::AtMost(f64::INFINITY) }];
    let bars = if row.bars.is_empty() { &no_bar[..] } else { &row.bars };
    let texts: Vec<_> = bars.iter().map(|bar| verdict(bar, row, report, peers)).collect();
    texts.join("; ")
}

fn verdict(bar: &Bar, row: &Row, report: &Report, peers: &[Peer]) -> String {
    let expected = match bar.limit {
        Limit::AtMost(most) if most.is_infinite() => String::from("no bar"),
        Limit::AtMost(most) => format!("≤ {most}"),
        Limit::Below(bound) => format!("< {bound}"),
    };
    let among = match bar.against {
        Against::All => String::new(),
        Against::Rust => String::from(" in Rust"),
        Against::One(name) => format!(" of {name}"),
        Against::Ourselves(workload) => format!(" of our {workload}"),
    };
    let Some(verdict) = report.verdict(bar, row, peers) else { return format!("{expected}{among}: not measured") };
    let is_met = match bar.limit {
        Limit::AtMost(most) if most.is_infinite() => "",
        _ if verdict.is_met => ": met",
        _ => ": **not met**",
    };
    format!("{:.2} of {} ({expected}{among}{is_met})", verdict.ratio, verdict.fastest)
}

fn memory(text: &mut String, group: &Group, columns: &[&Peer], report: &Report) {
    head(text, columns, "limit for us");
    for row in &group.rows {
        let peak = |peer: &&Peer| report.peak(peer.name, row).map_or(String::from("—"), |peak| rounded(peak.median));
        let cells: Vec<_> = columns.iter().map(peak).collect();
        let limit = match (row.peak_limit, report.peak(US, row)) {
            (None, _) => String::new(),
            (Some(limit), None) => format!("{limit}: not measured"),
            (Some(limit), Some(peak)) if peak.max < limit => format!("{limit}: met"),
            (Some(limit), Some(peak)) => format!("{limit}: **not met**, {} at most", rounded(peak.max)),
        };
        let _ = writeln!(text, "| `{}` | {} | {limit} |", row.workload, cells.join(" | "));
    }
}

/// A number in readable form. Small numbers have a decimal place, and large ones have separated thousands.
fn rounded(number: f64) -> String {
    if number < 10.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{report, rounded};
    use crate::registry::groups;
    use crate::results::{Failure, Report, Run};

    fn run(peer: &str, workload: &str, ns_per_op: f64) -> Run {
        let (peer, workload) = (peer.to_string(), workload.to_string());
        Run {
            peer,
            workload,
            n: 1,
            workers: 2,
            round: 1,
            secs: 1.0,
            ns_per_op,
            rss_mb: Some(120.0),
            bytes_per_actor: None,
        }
    }

    #[test]
    fn numbers_are_rounded_for_reading() {
        assert_eq!(
            [4.04, 9.99, 58.4, 999.6, 35_249.0, 1_234_567.0].map(rounded).join(" "),
            "4.0 10.0 58 1,000 35,249 1,234,567"
        );
    }

    #[test]
    fn a_bar_may_be_about_another_workload_of_ours() {
        let mut measured = Report::new(Vec::new());
        measured.runs.push(run("procession", "senders_10000", 50.0));
        let not_measured = report("A machine.", &groups(), &measured);
        assert!(not_measured.contains("| ≤ 3 of our senders_100: not measured |"), "{not_measured}");
        measured.runs.push(run("procession", "senders_100", 10.0));
        let text = report("A machine.", &groups(), &measured);
        assert!(text.contains("| 5.00 of senders_100 (≤ 3 of our senders_100: **not met**) |"), "{text}");
    }

    #[test]
    fn the_table_says_the_median_the_ratio_and_whether_the_bar_is_met() {
        let mut measured = Report::new(Vec::new());
        for ns in [50.0, 40.0, 60.0] {
            measured.runs.push(run("procession", "counting", ns));
            measured.runs.push(run("tokio", "counting", ns * 5.0));
            measured.runs.push(run("go", "counting", ns / 2.0));
        }
        measured.failures.push(Failure { peer: "xtra", workload: "ring", problem: String::from("hung") });
        let text = report("A machine.", &groups(), &measured);
        assert!(text.contains("| workload | procession | tokio | xtra | go | ours / fastest |"), "{text}");
        let row = "| `counting`, ns per message | 50 (40–60) | 250 (200–300) 5.00 × | — | 25 (20–30) 0.50 × \
                   | 0.20 of tokio (≤ 0.25 in Rust: met); 2.00 of go (< 1 of go: **not met**) |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| `counting` | 120 | 120 | — | 120 | 100: **not met**, 120 at most |"), "{text}");
        assert!(text.contains("go, `counting`: the channel is bounded"), "{text}");
        assert!(text.contains("**Failed:** xtra `ring`: hung"), "{text}");
    }
}
