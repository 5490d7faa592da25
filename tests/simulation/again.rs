//! Failures that are repeated by their command lines, in another program. Statements 1, 26 and 27.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::golden::without_time;

/// The environment variable that lets the failing tests of this file run.
const FAILS: &str = "PROCESSION_TEST_FAILS";

/// The planted bug is not there if this variable is set.
const REPAIRED: &str = "PROCESSION_TEST_REPAIRED";

/// It fails, by the will of the tests of this file, which run it in another program.
#[test]
fn it_fails_if_it_is_asked_to() {
    if std::env::var_os(FAILS).is_some() {
        crate::bugs::back_from_the_dead(std::env::var_os(REPAIRED).is_some()).check();
    }
}

/// It fails in the run without deviations.
#[test]
fn it_fails_in_order_if_it_is_asked_to() {
    if std::env::var_os(FAILS).is_some() {
        procession::simulation::Simulation::new(|world| {
            let runtime = world.start(procession::Runtime::builder())?;
            runtime.spawn(crate::programs::Counter::default())?;
            world.run()?;
            Err("nothing happens".into())
        })
        .faults(procession::simulation::Faults::none().panic::<crate::programs::Counter>(0.9))
        .check();
    }
}

/// It prints the hashes of three systems.
#[test]
fn it_prints_hashes_if_it_is_asked_to() {
    if std::env::var_os(FAILS).is_some() {
        println!("hashes {:?}", crate::bugs::hashes());
    }
}

/// It simulates nothing, with seeds far from the first.
#[test]
fn it_passes_with_late_seeds_if_it_is_asked_to() {
    if std::env::var_os(FAILS).is_some() {
        procession::simulation::Simulation::new(|world| world.run()).seeds(1_000..1_002).check();
    }
}

/// A package folder of this test, without files.
fn package(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulation-again").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a test of this program in a program of its own. Returns whether it has succeeded, and what it has printed.
fn run_in_child(test: &str, package: &Path, set: &[(&str, &str)]) -> (bool, String) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("again::{test}"), "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    child.env("CARGO_MANIFEST_DIR", package).env(FAILS, "1").env_remove("RUST_BACKTRACE");
    child.env_remove("PROCESSION_SEED").env_remove("PROCESSION_TRACE").envs(set.iter().copied());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// The report in what a program has printed, without the time.
fn report_in(text: &str) -> String {
    let from = text.find("simulation `").unwrap_or_else(|| panic!("no report in {text}"));
    without_time(&text[from..])
}

/// The lines of a report from this beginning to the empty line after the table.
fn table(report: &str) -> Vec<&str> {
    let lines = report.lines().skip_while(|line| !line.trim_start().starts_with("turn "));
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn the_lines_of_a_report_repeat_the_failure_in_another_program() {
    let (has_passed, text) = run_in_child("it_fails_if_it_is_asked_to", &package("repeat"), &[]);
    assert!(!has_passed, "{text}");
    let report = report_in(&text);
    for begin in ["again:   ", "shrunk:  "] {
        let line = report.lines().find_map(|line| line.strip_prefix(begin)).unwrap_or_else(|| panic!("{report}"));
        let (seed, command) = line.split_once(' ').unwrap();
        assert_eq!(command, "cargo test again::it_fails_if_it_is_asked_to");
        let (name, seed) = seed.split_once('=').unwrap();
        // The folder has no regression file, so the variable alone repeats it.
        let (has_passed, text) = run_in_child("it_fails_if_it_is_asked_to", &package(begin.trim()), &[(name, seed)]);
        assert!(!has_passed, "{line} passes: {text}");
        let again = report_in(&text);
        assert_eq!(table(&again), table(&report), "{line}");
        assert_eq!(again.lines().nth(1), report.lines().nth(1), "{line}");
    }
}

#[test]
fn a_failing_seed_is_kept_tried_first_and_said_to_pass_again() {
    let package = package("kept");
    let (has_passed, first) = run_in_child("it_fails_if_it_is_asked_to", &package, &[]);
    let file = package.join("simulation-regressions/again.it_fails_if_it_is_asked_to.txt");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(!has_passed && kept.lines().count() == 3, "{kept}");

    let (has_passed, second) = run_in_child("it_fails_if_it_is_asked_to", &package, &[]);
    let second = report_in(&second);
    assert!(!has_passed && second.contains("replayed"), "the line of the file is tried first: {second}");
    assert_eq!(table(&second), table(&report_in(&first)));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), kept, "it is kept once");

    let (has_passed, repaired) = run_in_child("it_fails_if_it_is_asked_to", &package, &[(REPAIRED, "1")]);
    assert!(has_passed && repaired.contains("passes again"), "{repaired}");
}

#[test]
fn a_failure_of_the_run_without_deviations_is_kept() {
    let package = package("in-order");
    let (has_passed, text) = run_in_child("it_fails_in_order_if_it_is_asked_to", &package, &[]);
    assert!(!has_passed && text.contains("(the run without deviations, 0 faults; "), "{text}");
    let file = package.join("simulation-regressions/again.it_fails_in_order_if_it_is_asked_to.txt");
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(kept.lines().any(|line| line.starts_with("0:") && line.contains("\"the scenario succeeds\"")), "{kept}");
}

#[test]
fn a_seed_below_the_range_can_be_run_again() {
    let test = "it_passes_with_late_seeds_if_it_is_asked_to";
    let (has_passed, text) = run_in_child(test, &package("below"), &[("PROCESSION_SEED", "5")]);
    assert!(has_passed, "{text}");
}

#[test]
fn the_whole_trace_is_shown_if_the_variable_says_so() {
    let folded = run_in_child("it_fails_if_it_is_asked_to", &package("folded"), &[]).1;
    assert!(folded.contains("PROCESSION_TRACE=full shows them"), "{folded}");
    let full = run_in_child("it_fails_if_it_is_asked_to", &package("full"), &[("PROCESSION_TRACE", "full")]).1;
    let report = report_in(&full);
    let turns = report.lines().find_map(|line| line.strip_prefix("shrunk to ")?.split(' ').next());
    let turns: usize = turns.and_then(|turns| turns.parse().ok()).unwrap_or_else(|| panic!("{report}"));
    let has_number =
        |line: &&&str| line.trim_start_matches(['!', 'x', ' ']).starts_with(|one: char| one.is_ascii_digit());
    assert_eq!(table(&report).iter().filter(has_number).count(), turns, "{report}");
    assert!(report.contains("timer"), "{report}");
}

#[test]
fn the_hash_of_a_run_is_the_same_in_another_program() {
    let text = run_in_child("it_prints_hashes_if_it_is_asked_to", &package("hashes"), &[]).1;
    for _ in 0..2 {
        assert!(text.contains(&format!("hashes {:?}", crate::bugs::hashes())), "{text}");
    }
}
