//! The example `tasklet` as a program: what it prints, and how it ends.

use std::process::Output;

use crate::example::Example;

static PROGRAM: Example = Example::new("tasklet");

fn tasklet(arguments: &[&str]) -> Output {
    PROGRAM
        .command()
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .expect("the example can be started")
}

#[test]
fn it_lists_the_longest_files_and_says_how_a_failure_ends() {
    let good = tasklet(&["src/tasklet"]);
    let text = String::from_utf8(good.stdout).expect("text");
    assert!(good.status.success(), "{}\n{text}", String::from_utf8_lossy(&good.stderr));
    let lines: Vec<u64> = text.lines().map_while(|line| line.split_whitespace().next()?.parse().ok()).collect();
    // Ten files, the longest first, then the sum of all.
    assert_eq!(lines.len(), 12, "{text}");
    assert!(lines[..10].is_sorted_by(|one, next| one >= next), "{text}");
    assert!(text.contains(" tasklets finished"), "{text}");

    assert_eq!(tasklet(&["no/such/folder"]).status.code(), Some(1));
    let misused = tasklet(&["--colour"]);
    assert_eq!(misused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&misused.stderr).contains("--colour"));
    assert!(tasklet(&["--help"]).status.success());
}
