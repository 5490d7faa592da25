//! The example `health_check` as a program: real checks, a summary and an exit code.

mod common;
#[path = "common/wait.rs"]
mod wait;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::wait::wait;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| common::example("health_check"));

fn check(options: &[&str]) -> Output {
    Command::new(&*PROGRAM).args(options).output().expect("the example can be started")
}

#[test]
fn the_failure_of_the_critical_check_is_summed_up() {
    // A machine may be busy for longer than the two seconds that are meant.
    let output = check(&["--limit", "60"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let problems = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}{problems}");
    assert!(text.contains("database   FAILED     down for maintenance"), "{text}");
    // Two never end by themselves. The others have a seventh of a second, which may be too little: where the clock is
    // moved by hand (`examples/health_check/tests.rs`) they pass.
    let why = "Cancelled  the database check did not pass";
    for never in ["mirror", "backup"] {
        assert!(text.contains(&format!("{never:<10} {why}")), "{text}");
    }
    let cancelled = text.matches(why).count();
    let summary = format!("{} passed, 1 failed, {cancelled} cancelled, 0 timed out", 4 - cancelled);
    assert_eq!((text.lines().count(), text.lines().last()), (6, Some(&*summary)), "{text}");
    assert_eq!(text.matches(" passed     ").count(), 4 - cancelled, "{text}");
    assert_eq!(problems, "");
}

#[test]
fn bad_options_are_explained_and_end_with_2() {
    for bad in [&["--limit"][..], &["--limit", "0"], &["--limit", "soon"], &["--colour"]] {
        let output = check(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(output.stdout.is_empty());
        let problems = String::from_utf8_lossy(&output.stderr);
        assert!(problems.contains(bad[0]) && problems.contains("usage:"), "{bad:?}: {problems}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_it_and_pending_checks_are_counted_as_stopped() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::Stdio;

    let mut running = Command::new(&*PROGRAM)
        .args(["--healthy", "--limit", "3600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example can be started");
    let mut lines = BufReader::new(running.stdout.take().expect("piped"));
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).expect("text");
        assert!(line.contains("passed"), "{line}");
    }
    // By the shell, for the standard library has no word for it.
    let told = Command::new("sh").args(["-c", &format!("kill -INT {}", running.id())]).status();
    assert!(told.is_ok_and(|status| status.success()));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    let mut problems = String::new();
    running.stderr.take().expect("piped").read_to_string(&mut problems).expect("text");
    assert_eq!(wait(&mut running).code(), Some(130), "{rest}{problems}");
    let summary = "3 passed, 0 failed, 0 cancelled, 0 timed out, 2 stopped";
    assert_eq!((rest.lines().count(), rest.lines().last()), (3, Some(summary)), "{rest}");
    assert_eq!(rest.matches("Stopped    shutdown").count(), 2, "{rest}");
}
