//! The example `ordered_shutdown` as a program: nothing is lost, whenever it is told to end.

mod common;
#[path = "common/wait.rs"]
mod wait;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::wait::wait;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| common::example("ordered_shutdown"));

fn run(options: &[&str]) -> Output {
    Command::new(&*PROGRAM).args(options).output().expect("the example can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn all_items_are_stored_and_the_tree_closes_in_its_order() {
    let output = run(&["--items", "20000", "--limit-ms", "600000"]);
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {errors}{out}", output.status);
    assert_eq!(out, "taken 20000\nstored 20000\nlost 0\nevery item is there, once\n");
    for name in ["store", "processor-0", "processor-1", "consumer"] {
        assert!(errors.contains(&format!("{name} (job): done")), "{errors}");
    }
}

#[test]
fn what_does_not_end_is_named() {
    // Time enough for all that do end.
    let output = run(&["--items", "100", "--freeze", "--limit-ms", "3000"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the shutdown is stuck: processors: processor-0: timeout expired"), "{errors}");
    assert!(errors.contains("store (job): running"), "{errors}");
    assert!(errors.contains("consumer (job): done"), "{errors}");
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_write_is_an_error_and_nobody_waits_for_it() {
    // No file may be longer than a few blocks; the limit is long, for nothing should come near it.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --forever --limit-ms 3600000";
    let output = Command::new("sh").args(["-c", limited]).arg(&*PROGRAM).output().expect("the example can be started");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("ordered_shutdown: store: "), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn bad_options_are_explained_and_end_with_2() {
    for bad in [&["--items", "many"][..], &["--items", "0"], &["--limit-ms"], &["--colour"]] {
        let output = run(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(output.stdout.is_empty());
        let errors = text(&output.stderr);
        assert!(errors.contains(bad[0]) && errors.contains("usage:"), "{bad:?}: {errors}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_at_any_moment_loses_nothing() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::Stdio;

    for _ in 0..3 {
        let mut running = Command::new(&*PROGRAM)
            .args(["--forever", "--limit-ms", "600000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the example can be started");
        let mut errors = BufReader::new(running.stderr.take().expect("piped"));
        let mut begun = String::new();
        errors.read_line(&mut begun).expect("it says that it runs");
        assert_eq!(begun, "running\n");
        // By the shell, for the standard library has no word for it.
        let told = Command::new("sh").args(["-c", &format!("kill -INT {}", running.id())]).status();
        assert!(told.is_ok_and(|status| status.success()));

        let (mut out, mut rest) = (String::new(), String::new());
        running.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        errors.read_to_string(&mut rest).expect("text");
        assert_eq!(wait(&mut running).code(), Some(130), "{rest}{out}");
        assert!(out.contains("lost 0\nevery item is there, once\n"), "{out}");
    }
}
