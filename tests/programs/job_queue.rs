//! The example `job_queue` as a program: its list, its failures, and its end.

use std::path::PathBuf;

use crate::example::{self, Example};

static PROGRAM: Example = Example::new("job_queue");

/// A list that no other test writes.
struct List(PathBuf);

impl List {
    fn new(name: &str) -> List {
        List(std::env::temp_dir().join(format!("procession-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a temporary path is text")
    }
}

impl Drop for List {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn every_job_writes_its_line_whatever_fails() {
    let list = List::new("list");
    let output = PROGRAM.run(&["--jobs", "500", "--fail", "10", "--deadline", "3600", "Cargo.toml", list.path()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, "500 jobs\n500 done, 0 failed, 0 not done\n");
    assert!(output.stderr.is_empty(), "no bar without a terminal");
    let lines = std::fs::read_to_string(&list.0).unwrap();
    assert_eq!(lines.lines().filter(|line| u64::from_str_radix(line, 16).is_ok_and(|hash| hash > 0)).count(), 500);
}

#[test]
fn wrong_options_and_files_are_explained() {
    PROGRAM.assert_explains(&[&["--jobs", "0"], &["--fail", "101"], &["--deadline"], &["--colour"]]);
    let nothing = PROGRAM.run(&["Cargo.toml"]);
    assert_eq!(nothing.status.code(), Some(2));
    let same = PROGRAM.run(&["Cargo.toml", "./Cargo.toml"]);
    assert_eq!((same.status.code(), &*same.stderr), (Some(1), &b"job_queue: the LIST is the FILE\n"[..]));
    let list = List::new("no-file");
    let missing = PROGRAM.run(&["there-is-no-such-file", list.path()]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).starts_with("job_queue: there-is-no-such-file: "));
}

#[cfg(unix)]
#[test]
fn ctrl_c_reports_the_jobs_that_are_done() {
    let list = List::new("interrupted");
    // No call works, and a job has 20 attempts, with pauses of seconds in all.
    let options = ["--fail", "100", "--jobs", "1000000", "--deadline", "3600", "Cargo.toml", list.path()];
    let mut running = PROGRAM.start(&options);
    assert_eq!(example::line(&mut running.out), "1000000 jobs\n");
    let ended = running.interrupt();
    assert_eq!(ended.code, Some(130), "{}{}", ended.out, ended.errors);
    assert!(ended.out.starts_with("0 done, ") && ended.out.ends_with("stopped: interrupted\n"), "{}", ended.out);
}
