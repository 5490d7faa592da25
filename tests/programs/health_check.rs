//! The example `health_check` as a program: real checks, a summary and an exit code.

use crate::example::Example;

static PROGRAM: Example = Example::new("health_check");

#[test]
fn the_failure_of_the_critical_check_is_summed_up() {
    // A machine may be busy for longer than the two seconds that are meant.
    let output = PROGRAM.run(&["--limit", "60"]);
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
    PROGRAM.assert_explains(&[&["--limit"], &["--limit", "0"], &["--limit", "soon"], &["--colour"]]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_it_and_pending_checks_are_counted_as_stopped() {
    use crate::example::{Ended, line};

    let mut running = PROGRAM.start(&["--healthy", "--limit", "3600"]);
    for _ in 0..3 {
        let line = line(&mut running.out);
        assert!(line.contains("passed"), "{line}");
    }
    let Ended { code, out: rest, errors: problems } = running.interrupt();
    assert_eq!(code, Some(130), "{rest}{problems}");
    let summary = "3 passed, 0 failed, 0 cancelled, 0 timed out, 2 stopped";
    assert_eq!((rest.lines().count(), rest.lines().last()), (3, Some(summary)), "{rest}");
    assert_eq!(rest.matches("Stopped    shutdown").count(), 2, "{rest}");
}
