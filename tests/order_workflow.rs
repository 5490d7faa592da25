//! The example `order_workflow` as a program: the table depends on the seed, and on nothing else.

#[path = "common/example.rs"]
mod example;
#[path = "common/wait.rs"]
mod wait;

use crate::example::Example;

static PROGRAM: Example = Example::new("order_workflow");

/// The table of a run that must end well.
fn table(options: &[&str]) -> String {
    let output = PROGRAM.run(options);
    let table = String::from_utf8(output.stdout).expect("text");
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?} ended with {}: {problems}\n{table}", output.status);
    table
}

/// The second column of the table, by the first.
fn count(table: &str, outcome: &str) -> usize {
    let line =
        table.lines().find(|line| line.starts_with(outcome)).unwrap_or_else(|| panic!("no {outcome} in {table}"));
    let count = line[outcome.len()..].split_whitespace().next().and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("no number in {line:?}"))
}

const OUTCOMES: [&str; 6] = ["shipped", "refused", "given up", "too late", "cancelled", "needs attention"];

#[test]
fn the_same_seed_gives_the_same_table_with_any_number_of_workers() {
    let options = ["--orders", "400", "--seed", "11"];
    let first = table(&options);
    assert_eq!(OUTCOMES.iter().map(|outcome| count(&first, outcome)).sum::<usize>(), 400, "{first}");
    assert_eq!(count(&first, "all"), 400);
    assert!(count(&first, "shipped") > 300 && count(&first, "refused") > 10, "{first}");
    assert_eq!(table(&options), first);
    for workers in ["1", "2", "7"] {
        assert_eq!(table(&[&options[..], &["--workers", workers]].concat()), first, "with {workers} workers");
    }
}

#[test]
fn another_seed_gives_another_table() {
    let (one, two) = (table(&["--orders", "400", "--seed", "11"]), table(&["--orders", "400", "--seed", "12"]));
    // Not for the seed in the title.
    let rows = |table: &str| table.lines().skip(1).map(String::from).collect::<Vec<_>>();
    assert_ne!(rows(&one), rows(&two));
}

#[test]
fn bad_options_are_explained_and_end_with_2() {
    PROGRAM.assert_explains(&[
        &["--orders", "many"],
        &["--orders", "0"],
        &["--seed"],
        &["--workers", "0"],
        &["--colour", "red"],
    ]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_in_order_with_a_table_that_adds_up() {
    use crate::example::{Ended, line};

    let mut running = PROGRAM.start(&["--orders", "50000"]);
    assert_eq!(line(&mut running.errors), "50000 orders\n");
    let Ended { code, out: table, errors: rest } = running.interrupt();
    assert_eq!(code, Some(130), "{rest}{table}");
    assert!(count(&table, "cancelled") > 0, "{table}");
    assert_eq!(OUTCOMES.iter().map(|outcome| count(&table, outcome)).sum::<usize>(), 50_000, "{table}");
    assert!(table.contains("The books agree"), "{table}");
}
