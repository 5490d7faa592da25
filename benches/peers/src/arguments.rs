//! The command line.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::registry::{Group, Peer, Row, groups, peers};
use crate::savina::problems::queens::Board;

const MOST_RUNS: u64 = 1_000;
const MOST_WORKERS: u64 = 1_024;

/// What the command line asks for.
pub(crate) enum Asked {
    Help,
    Rounds(Options),
    Single(Single),
}

/// All peers and workloads that were asked for, in rounds.
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
    /// How much is to be done of a workload.
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

/// What a child of this program is called with: see `Single`.
pub(crate) fn of_single(peer: &str, workload: &str, n: u64, workers: usize) -> [String; 7] {
    let (n, workers) = (n.to_string(), workers.to_string());
    ["--single", peer, workload, "--n", &n, "--workers", &workers].map(String::from)
}

/// Reads the arguments; the problem with them, in words, if there is one.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
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
    while let Some(argument) = arguments.next() {
        let mut given = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--peer" => chosen.push(known("peer", given()?, &names_of_peers(&options))?),
            "--workload" => workloads.push(known("workload", given()?, &names_of_workloads(&options))?),
            "--runs" => runs = Some(number("--runs", &given()?, MOST_RUNS)?),
            "--workers" => options.workers = number("--workers", &given()?, MOST_WORKERS)? as usize,
            "--n" => options.n = Some(number("--n", &given()?, u64::MAX)?),
            "--out" => options.out = PathBuf::from(given()?),
            "--smoke" => options.smoke = true,
            "--others" => others = true,
            "--single" => single = Some((given()?, given()?)),
            other => return Err(format!("unknown argument {other:?}; --help lists what there is")),
        }
    }
    if let Some((peer, workload)) = single {
        let n = options.n.ok_or("--single needs --n")?;
        return Ok(Asked::Single(Single { peer, workload, n, workers: options.workers }));
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
            return Err(format!("--n is {n}; for skynet allowed are powers of 10, from 10 upwards"));
        }
        if row.workload == "NQueens" {
            Board::empty(n).map_err(|problem| format!("--n is too much for NQueens: {problem}"))?;
        }
    }
    Ok(Asked::Rounds(options))
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

fn number(option: &str, given: &str, most: u64) -> Result<u64, String> {
    let allowed = if most == u64::MAX { String::from("1 or more") } else { format!("1 to {most}") };
    match given.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("{option} was given {given:?}; allowed is a number: {allowed}")),
    }
}

pub(crate) fn help() -> String {
    let mut help = String::from(
        "Usage: cargo run --release --manifest-path benches/peers/Cargo.toml -- [OPTION...]\n\n\
         Runs workloads with Procession and with other libraries, each in a process of its own, round after round with the\n\
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
        "\nThe exit code is 1 if a result was wrong or a run failed, 2 if the arguments were wrong, 130 after Ctrl-C.\n",
    );
    help
}

#[cfg(test)]
mod tests {
    use super::{Asked, Options, parse};

    fn options(line: &str) -> Options {
        match parse(line.split_whitespace().map(String::from)) {
            Ok(Asked::Rounds(options)) => options,
            Ok(_) => panic!("{line:?} asks for something else"),
            Err(problem) => panic!("{line:?}: {problem}"),
        }
    }

    fn problem(line: &str) -> String {
        parse(line.split_whitespace().map(String::from)).err().unwrap_or_default()
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
        assert_eq!(rows(""), [("workloads", 9), ("savina", 12), ("jobs", 8)]);
        assert_eq!(rows("--workload workloads"), [("workloads", 9)]);
        assert_eq!(rows("--workload savina"), [("savina", 12)]);
        assert_eq!(rows("--workload savina --workload ring"), [("workloads", 1), ("savina", 12)]);
    }

    #[test]
    fn a_problem_says_what_is_allowed() {
        assert!(problem("--peer tokyo").contains("allowed are procession, tokio"));
        assert!(problem("--workload bog").contains("skynet"));
        assert!(problem("--runs 0").contains("1 to 1000"));
        assert!(problem("--n 25").contains("powers of 10"));
        assert!(problem("--workload savina --n 100").contains("1 to"));
        assert!(problem("--out").contains("needs a value"));
        assert!(problem("--fast").contains("--help"));
    }
}
