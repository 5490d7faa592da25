//! The example `order_workflow` as a program: the table depends on the seed, and on nothing else.

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

/// A folder for a store, which is removed at the end.
#[cfg(feature = "sqlite")]
struct Folder(std::path::PathBuf);

#[cfg(feature = "sqlite")]
impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("procession-orders-{name}-{}", std::process::id())))
    }

    fn options<'a>(&'a self, orders: &'a str) -> [&'a str; 4] {
        ["--orders", orders, "--store", self.0.to_str().expect("text")]
    }

    /// The number of calls in the books of the partners.
    fn calls(&self) -> usize {
        std::fs::read_to_string(self.0.join("books")).map_or(0, |books| books.lines().count())
    }
}

#[cfg(feature = "sqlite")]
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn the_books_agree_though_the_program_is_killed_again_and_again() {
    let folder = Folder::new("killed");
    let options = folder.options("300");
    // All orders make about 1,200 calls. The first kill comes while they begin.
    for (kill, calls) in [1, 100, 300, 500, 700, 900].into_iter().enumerate() {
        let running = PROGRAM.start(&options);
        crate::wait::until(&format!("the program makes its calls before kill {kill}"), || folder.calls() >= calls);
        running.kill();
    }
    let table = table(&options);
    assert_eq!(OUTCOMES.iter().map(|outcome| count(&table, outcome)).sum::<usize>(), 300, "{table}");
    assert_eq!(count(&table, "cancelled"), 0, "{table}");
    assert!(table.contains("The books agree"), "{table}");
    let calls = folder.calls();
    assert_eq!(self::table(&options), table, "the orders are over");
    assert_eq!(folder.calls(), calls, "and nothing is done twice");
}

#[cfg(all(unix, feature = "sqlite"))]
#[test]
fn ctrl_c_stops_a_program_with_a_store_and_no_order() {
    use crate::example::{Ended, line};

    let folder = Folder::new("interrupted");
    let options = folder.options("200");
    let mut running = PROGRAM.start(&options);
    assert_eq!(line(&mut running.errors), "200 orders\n");
    let Ended { code, out, errors } = running.interrupt();
    assert_eq!((code, &*out), (Some(130), ""), "{errors}");
    let table = table(&options);
    assert_eq!((count(&table, "all"), count(&table, "cancelled")), (200, 0), "{table}");

    let other = PROGRAM.run(&folder.options("100"));
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("200 orders, seed 1"));
}

#[cfg(not(feature = "sqlite"))]
#[test]
fn a_program_without_stores_says_which_feature_has_them() {
    let output = PROGRAM.run(&["--store", "somewhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--features sqlite"));
}
