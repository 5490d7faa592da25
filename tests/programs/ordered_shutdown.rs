//! The example `ordered_shutdown` as a program: nothing is lost, whenever it is told to end.

use crate::example::Example;

static PROGRAM: Example = Example::new("ordered_shutdown");

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn all_items_are_stored_and_the_tree_closes_in_its_order() {
    let output = PROGRAM.run(&["--items", "20000", "--limit-ms", "600000"]);
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
    let output = PROGRAM.run(&["--items", "100", "--freeze", "--limit-ms", "3000"]);
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
    let output = std::process::Command::new("sh")
        .args(["-c", limited])
        .arg(PROGRAM.path())
        .output()
        .expect("the example can be started");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("ordered_shutdown: store: "), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn bad_options_are_explained_and_end_with_2() {
    PROGRAM.assert_explains(&[&["--items", "many"], &["--items", "0"], &["--limit-ms"], &["--colour"]]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_at_any_moment_loses_nothing() {
    use crate::example::{Ended, line};

    for _ in 0..3 {
        let mut running = PROGRAM.start(&["--forever", "--limit-ms", "600000"]);
        assert_eq!(line(&mut running.errors), "running\n");
        let Ended { code, out, errors: rest } = running.interrupt();
        assert_eq!(code, Some(130), "{rest}{out}");
        assert!(out.contains("lost 0\nevery item is there, once\n"), "{out}");
    }
}
