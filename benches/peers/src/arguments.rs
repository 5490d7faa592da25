//! The command line.

#[path = "../../../examples/arguments/mod.rs"]
pub(crate) mod command_line;

use std::fmt::Write as _;
use std::path::PathBuf;

use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};

use crate::arguments::command_line::number;
use crate::registry::{Group, Peer, Row, groups, peers};
use crate::savina::problems::queens::Board;

/// The runs that a command line requests.
pub(crate) enum Asked {
    Rounds(Options),
    Single(Single),
}

/// All requested peers and workloads, in rounds.
pub(crate) struct Options {
    pub(crate) peers: Vec<Peer>,
    pub(crate) groups: Vec<Group>,
    pub(crate) runs: u64,
    pub(crate) workers: usize,
    pub(crate) n: Option<u64>,
    pub(crate) smoke: bool,
    pub(crate) out: PathBuf,
}

impl Options {
    /// The count for a workload.
    pub(crate) fn count(&self, row: &Row) -> u64 {
        self.n.unwrap_or(if self.smoke { row.smoke } else { row.n })
    }
}

/// One peer and workload, in this process.
pub(crate) struct Single {
    pub(crate) peer: String,
    pub(crate) workload: String,
    pub(crate) n: u64,
    pub(crate) workers: usize,
}

/// The arguments of a child of this program: see `Single`.
pub(crate) fn of_single(peer: &str, workload: &str, n: u64, workers: usize) -> [String; 7] {
    let (n, workers) = (n.to_string(), workers.to_string());
    ["--single", peer, workload, "--n", &n, "--workers", &workers].map(String::from)
}

/// Reads the arguments. Returns `None` if they request help.
pub(crate) fn parse(arguments: &mut Parser) -> Result<Option<Asked>, lexopt::Error> {
    let mut options = Options {
        peers: peers(),
        groups: groups(),
        runs: 5,
        workers: 2,
        n: None,
        smoke: false,
        out: PathBuf::from("target/peers"),
    };
    let (mut chosen, mut workloads, mut others, mut runs, mut single) = (Vec::new(), Vec::new(), false, None, None);
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("peer") => chosen.push(known("peer", arguments.value()?.string()?, &names_of_peers(&options))?),
            Long("workload") => {
                workloads.push(known("workload", arguments.value()?.string()?, &names_of_workloads(&options))?);
            }
            Long("runs") => runs = Some(number(arguments, "--runs", 1..=1_000)?),
            Long("workers") => options.workers = number(arguments, "--workers", 1..=1_024)?,
            Long("n") => options.n = Some(number(arguments, "--n", 1..=u64::MAX)?),
            Long("out") => options.out = PathBuf::from(arguments.value()?),
            Long("smoke") => options.smoke = true,
            Long("others") => others = true,
            Long("single") => single = Some((arguments.value()?.string()?, arguments.value()?.string()?)),
            other => return Err(other.unexpected()),
        }
    }
    if let Some((peer, workload)) = single {
        let n = options.n.ok_or("--single needs --n")?;
        return Ok(Some(Asked::Single(Single { peer, workload, n, workers: options.workers })));
    }
    options.runs = runs.unwrap_or(if options.smoke { 1 } else { options.runs });
    let all_peers = chosen.is_empty();
    options.peers.retain(|peer| {
        let is_chosen = if all_peers { !peer.is_script() } else { chosen.iter().any(|name| name == peer.name) };
        is_chosen || others && peer.is_script()
    });
    if !workloads.is_empty() {
        for group in &mut options.groups {
            let whole = workloads.iter().any(|name| name == group.name);
            group.rows.retain(|row| whole || workloads.iter().any(|name| name == row.workload));
        }
        options.groups.retain(|group| !group.rows.is_empty());
    }
    for row in options.groups.iter().flat_map(|group| &group.rows) {
        let n = options.count(row);
        if row.workload == "skynet" && !(n >= 10 && 10_u64.pow(n.ilog10()) == n) {
            return Err(format!("--n is {n}; for skynet allowed are powers of 10, from 10 upwards").into());
        }
        if row.workload == "NQueens" {
            Board::empty(n).map_err(|problem| format!("--n is too much for NQueens: {problem}"))?;
        }
    }
    Ok(Some(Asked::Rounds(options)))
}

fn names_of_peers(options: &Options) -> Vec<&'static str> {
    options.peers.iter().map(|peer| peer.name).collect()
}

/// A group's name stands for all of its workloads.
fn names_of_workloads(options: &Options) -> Vec<&'static str> {
    let rows = options.groups.iter().flat_map(|group| &group.rows).map(|row| row.workload);
    rows.chain(options.groups.iter().map(|group| group.name)).collect()
}

fn known(what: &str, name: String, allowed: &[&str]) -> Result<String, String> {
    if allowed.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(format!("unknown {what} {name:?}; allowed are {}", allowed.join(", ")))
}

pub(crate) fn usage() -> String {
    let mut help = String::from(
        "usage: cargo run --release --manifest-path benches/peers/Cargo.toml -- [OPTION...]\n\n\
         Runs workloads with Procession and with other libraries, each in a process of its own, \
         round after round with the\n\
         peers taking turns, and writes runs.jsonl, table.md and chart.svg.\n\n\
         Options:\n  \
         --peer P      this peer, may be repeated; without it all that are written in Rust\n  \
         --workload W  this workload, or all of this group, may be repeated; without it all\n  \
         --others      also those that are not written in Rust, as far as their tools are installed\n  \
         --runs N      rounds, 1 to 1000; without it 5, or 1 with --smoke\n  \
         --workers W   worker threads, or what comes nearest to that, 1 to 1024; without it 2\n  \
         --n N         how much each workload does, instead of its usual count\n  \
         --out DIR     where to write; without it target/peers\n  \
         --smoke       small counts, to see that everything works\n  \
         --help        this\n\n\
         Peers: ",
    );
    let peers: Vec<_> = peers().iter().map(|peer| peer.name).collect();
    let _ = writeln!(help, "{}\n", peers.join(", "));
    for group in groups() {
        let head = "with what is counted, how much of it (with --smoke), and what an operation is";
        let _ = writeln!(help, "Workloads of the group {}, {head}:", group.name);
        let width = group.rows.iter().map(|row| row.workload.len()).max().unwrap_or_default();
        for Row { workload, counts, n, smoke, op, .. } in &group.rows {
            let _ = writeln!(help, "  {workload:<width$}  {counts}: {n} ({smoke}); {op}");
        }
    }
    help.push_str(
        "\nThe exit code is 1 if a result was wrong or a run failed, 2 if the arguments were wrong, \
         130 after Ctrl-C.\n",
    );
    help
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::{Asked, Options, parse};

    fn options(line: &str) -> Options {
        match parse(&mut Parser::from_args(line.split_whitespace())) {
            Ok(Some(Asked::Rounds(options))) => options,
            Ok(_) => panic!("{line:?} asks for something else"),
            Err(problem) => panic!("{line:?}: {problem}"),
        }
    }

    fn problem(line: &str) -> String {
        let problem = parse(&mut Parser::from_args(line.split_whitespace())).err();
        problem.map(|problem| problem.to_string()).unwrap_or_default()
    }

    #[test]
    fn nothing_asked_is_every_peer_in_rust_and_every_workload() {
        let options = options("");
        assert!(options.peers.iter().all(|peer| !peer.is_script()));
        assert_eq!(options.peers.len(), 9);
        assert_eq!(options.groups[0].rows.len(), 9);
        assert_eq!((options.runs, options.workers), (5, 2));
    }

    #[test]
    fn what_is_named_is_what_runs() {
        let options =
            options("--peer tokio --peer procession --workload big --workload ring --others --smoke --runs 3");
        let peers: Vec<_> = options.peers.iter().map(|peer| peer.name).collect();
        assert_eq!(peers, ["procession", "tokio", "erlang", "go", "caf"]);
        let rows: Vec<_> = options.groups.iter().flat_map(|group| &group.rows).collect();
        assert_eq!(rows.iter().map(|row| row.workload).collect::<Vec<_>>(), ["ring", "big"]);
        assert_eq!(options.count(rows[0]), 20_000);
        assert_eq!(options.runs, 3);
    }

    #[test]
    fn the_name_of_a_group_stands_for_its_workloads() {
        let rows = |line: &str| {
            let groups = options(line).groups;
            groups.iter().map(|group| (group.name, group.rows.len())).collect::<Vec<_>>()
        };
        let all = [("workloads", 9), ("savina", 12), ("jobs", 8), ("general", 11), ("bridge", 5)];
        assert_eq!(rows(""), all);
        assert_eq!(rows("--workload workloads"), [("workloads", 9)]);
        assert_eq!(rows("--workload savina"), [("savina", 12)]);
        assert_eq!(rows("--workload general"), [("general", 11)]);
        assert_eq!(rows("--workload bridge"), [("bridge", 5)]);
        assert_eq!(rows("--workload savina --workload ring"), [("workloads", 1), ("savina", 12)]);
    }

    #[test]
    fn a_problem_says_what_is_allowed() {
        assert!(problem("--peer tokyo").contains("allowed are procession, tokio"));
        assert!(problem("--workload bog").contains("skynet"));
        assert!(problem("--runs 0").contains("1 to 1000"));
        assert!(problem("--n 25").contains("powers of 10"));
        assert!(problem("--workload savina --n 100").contains("1 to"));
        assert!(problem("--out").contains("--out"));
        assert!(problem("--fast").contains("--fast"));
    }
}
