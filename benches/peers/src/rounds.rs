//! The rounds: every peer runs a workload before the next workload begins. In each round another peer goes first.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{Options, of_single};
use crate::child::{Ended, Keeper};
use crate::jobs::with_blocking;
use crate::machine;
use crate::others;
use crate::ours::measure::Outcome;
use crate::registry::{Peer, Row};
use crate::results::{Failure, Report, Run};

/// The time after which a run counts as hung. It is longer than the programs' own limit, so that they can report what
/// hangs.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Complete,
    Interrupted,
}

/// Runs all programs. The figures are written to the disk after each run.
pub(crate) fn run(options: &Options) -> Outcome<Report> {
    let mut keeper = Keeper::new()?;
    let mut lines = BufWriter::new(File::create(options.out.join("runs.jsonl"))?);
    let mut report = Report::new(machine::versions(&options.peers));
    let mut peers: Vec<&Peer> = options.peers.iter().collect();
    if peers.iter().any(|peer| peer.is_script()) {
        match others::prepare(&mut keeper)? {
            Some(there) => {
                peers.retain(|peer| !peer.is_script() || there.iter().any(|(name, _)| name == peer.name));
                report
                    .versions
                    .extend(there.into_iter().filter(|(name, _)| peers.iter().any(|peer| peer.name == name)));
            }
            None => report.ending = Ending::Interrupted,
        }
    }
    let plan = plan(options, &peers);
    let bar = progress(plan.len());
    for (round, row, peer) in plan {
        // A run that has failed once would fail again, perhaps at the time limit.
        if report.ending == Ending::Interrupted || report.has_failed(peer.name, row.workload) {
            bar.inc(1);
            continue;
        }
        bar.set_message(format!("round {round}: {} {}", row.workload, peer.name));
        let n = options.count(row);
        let mut command = command(peer, row, n, options.workers)?;
        let problem = match keeper.run(&mut command, LIMIT) {
            Ended::Well(output) => match Run::read(&output, round, options.workers, (peer.name, row.workload, n)) {
                Ok(run) => {
                    writeln!(lines, "{}", serde_json::to_string(&run)?)?;
                    lines.flush()?;
                    report.runs.push(run);
                    None
                }
                Err(problem) => Some(problem),
            },
            Ended::Badly(problem) => Some(problem),
            Ended::Interrupted => {
                report.ending = Ending::Interrupted;
                None
            }
        };
        if let Some(problem) = problem {
            report.failures.push(Failure { peer: peer.name, workload: row.workload, problem });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report)
}

/// The runs in their order: by round, then by workload, then by peer. Peers without the workload are left out.
fn plan<'a>(options: &'a Options, peers: &[&'a Peer]) -> Vec<(u64, &'a Row, &'a Peer)> {
    let mut plan = Vec::new();
    for round in 1..=options.runs {
        for row in options.groups.iter().flat_map(|group| &group.rows) {
            let mut those: Vec<_> = peers.iter().copied().filter(|peer| peer.has(row.workload)).collect();
            let places = those.len().max(1);
            those.rotate_left((round - 1) as usize % places);
            plan.extend(those.into_iter().map(|peer| (round, row, peer)));
        }
    }
    plan
}

fn command(peer: &Peer, row: &Row, n: u64, workers: usize) -> Outcome<Command> {
    if peer.is_script() {
        return Ok(others::command(peer.name, row.workload, n, workers));
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(of_single(peer.name, row.workload, n, workers));
    let threads = row.workload.strip_prefix("pool_execute_").map_or(workers.to_string(), String::from);
    command.env(with_blocking::THREADS, threads);
    Ok(command)
}

/// A progress bar, on a terminal only.
fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {elapsed} of {duration}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::plan;
    use crate::arguments::{Asked, parse};

    #[test]
    fn another_peer_goes_first_in_each_round() {
        let line = "--peer procession --peer tokio --peer xtra --workload ring --workload big --runs 2";
        let Ok(Some(Asked::Rounds(options))) = parse(&mut lexopt::Parser::from_args(line.split(' '))) else {
            panic!("{line}")
        };
        let peers: Vec<_> = options.peers.iter().collect();
        let order: Vec<_> = plan(&options, &peers).iter().map(|(_, row, peer)| (row.workload, peer.name)).collect();
        let [us, tokio, xtra] = ["procession", "tokio", "xtra"];
        let first = [("ring", us), ("ring", tokio), ("ring", xtra), ("big", us), ("big", tokio), ("big", xtra)];
        let second = [("ring", tokio), ("ring", xtra), ("ring", us), ("big", tokio), ("big", xtra), ("big", us)];
        assert_eq!(order, [first, second].concat());
    }
}
