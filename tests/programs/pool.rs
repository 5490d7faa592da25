//! The example `pool` as a program: what it prints, and with which code it ends.

use crate::example::Example;

static PROGRAM: Example = Example::new("pool");

#[test]
fn every_act_says_what_came_of_it_and_the_end_adds_up() {
    let output = PROGRAM.run(&["--jobs", "10", "--millis", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    let begins: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(begins, ["submitted", "resized", "paused:", "paced:", "\"the", "drained:"], "{text}");
    assert!(text.contains("drained: 50 submitted") && text.ends_with("0 left\n"), "{text}");
    assert!(output.stderr.is_empty(), "no display without a terminal");
}

#[test]
fn options_that_make_no_sense_are_explained_and_end_with_2() {
    for bad in [&["--jobs", "none"][..], &["--jobs", "0"], &["--millis", "1001"], &["--colour", "red"]] {
        let output = PROGRAM.run(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: pool"), "{bad:?}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_drains_and_ends_with_130() {
    use crate::example::{Ended, line};

    let mut running = PROGRAM.start(&["--jobs", "12", "--millis", "1000"]);
    // The first act is over, and the others take ten seconds. Which of them the signal comes in is a matter of chance.
    let first = line(&mut running.out);
    assert!(first.starts_with("submitted 12 jobs"), "{first}");
    let Ended { code, out: rest, errors } = running.interrupt();
    assert_eq!(code, Some(130), "{rest}{errors}");
    assert!(rest.lines().last().is_some_and(|last| last.starts_with("drained:")), "{rest}");
    assert!(rest.ends_with("0 left\n") && !rest.contains("\"the"), "not all acts are played: {rest}");
}
