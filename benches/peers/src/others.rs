//! The peers that are not written in Rust. A script compiles and runs them as far as its tools allow, and reports
//! missing tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::child::{Ended, Keeper};
use crate::ours::measure::Outcome;

/// The time limit of the compilers.
const LIMIT: Duration = Duration::from_secs(600);

fn script() -> Command {
    Command::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("others/run"))
}

/// Compiles the available peers. Returns each with its version, or `None` after Ctrl-C.
pub(crate) fn prepare(keeper: &mut Keeper) -> Outcome<Option<Vec<(String, String)>>> {
    eprintln!("peers: compiling what is not written in Rust");
    match keeper.run(script().arg("build"), LIMIT) {
        Ended::Well(output) => Ok(Some(read(&output))),
        Ended::Badly(problem) => Err(format!("others/run build: {problem}").into()),
        Ended::Interrupted => Ok(None),
    }
}

/// Reads one line for each peer: its name, a tab, its version.
fn read(output: &str) -> Vec<(String, String)> {
    let pairs = output.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(name, version)| (name.to_string(), version.to_string())).collect()
}

pub(crate) fn command(peer: &str, workload: &str, n: u64, workers: usize) -> Command {
    let mut command = script();
    command.args([peer, workload, &n.to_string(), &workers.to_string()]);
    command
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{read, script};
    use crate::registry::{groups, peers};

    #[test]
    fn the_script_tells_names_and_versions() {
        assert_eq!(
            read("go\tgo1.19\nerlang\t25\n"),
            [("go", "go1.19"), ("erlang", "25")].map(|(a, b)| (a.into(), b.into()))
        );
    }

    #[test]
    fn the_script_knows_the_same_peers_and_counts() {
        let text = fs::read_to_string(script().get_program()).unwrap();
        for row in &groups()[0].rows {
            let line = format!("{} {} {}\n", row.workload, row.n, row.smoke);
            assert!(text.contains(&line), "others/run has no line {line:?}");
        }
        for peer in peers().iter().filter(|peer| peer.is_script()) {
            assert!(text.contains(&format!("run_{}()", peer.name)), "others/run does not run {}", peer.name);
        }
    }
}
