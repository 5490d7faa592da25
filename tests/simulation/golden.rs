//! Reports that are checked in.

use std::path::Path;

use procession::simulation::FailedRun;

/// Compares the report with the file `tests/simulation/traces/NAME.txt`. `PROCESSION_BLESS=1` writes the file.
///
/// The time of shrinking, the version of the crate and the name of the test are left out of the file.
pub fn compare_report(name: &str, failed: &FailedRun) {
    let command = |line: &str| match line.split_once(" cargo test ") {
        Some((seed, _)) => format!("{seed} cargo test NAME\n"),
        None => format!("{line}\n"),
    };
    let text: String = without_time(failed.report()).lines().map(command).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/traces").join(format!("{name}.txt"));
    if std::env::var_os("PROCESSION_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "the report differs from {path:?}; it is\n{text}\nPROCESSION_BLESS=1 writes the file");
}

/// The report without the time of shrinking, and without the version.
pub fn without_time(report: &str) -> String {
    let version = format!("; version {}", env!("CARGO_PKG_VERSION"));
    let mut text = String::new();
    for line in report.replace(&version, "").lines() {
        match line.strip_suffix(" s):").and_then(|line| line.rsplit_once(", ")) {
            Some((line, _)) => text += &format!("{line}):\n"),
            None => text += &format!("{line}\n"),
        }
    }
    text
}
