//! Tasklets: the three-phase call. Read at home, work on the pool, write at home.
//!
//! The example lists the longest files below a folder. Only the home thread draws the table, which is in a state that
//! is not `Send` (an `Rc`). The pool reads files, several at a time. Neither waits for the other. Each folder and
//! each file is a tasklet. It carries its data from home to the pool, and returns with the result.
//!
//! ```text
//! cargo run --example tasklet -- [FOLDER]
//! cargo test --example tasklet
//! ```
//!
//! Ctrl-C stops the example. It then shows the files that were found, and exits with 130. The exit code is 1 if
//! something could not be read, and 2 if the arguments are wrong.

#[path = "arguments/mod.rs"]
mod arguments;

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;
use procession::tasklet::{Directive, Interruption, Loop, Report, Tasklet, TaskletContext, ready};
use procession::{BoxError, CancelToken, Reason};

const USAGE: &str = "\
Lists the longest files below a folder.

usage: tasklet [FOLDER]";

/// The number of files that are shown.
const SHOWN: usize = 10;

fn main() -> ExitCode {
    let folder = match arguments::read("tasklet", USAGE, parse) {
        Ok(folder) => folder,
        Err(code) => return code,
    };
    let stop = CancelToken::new();
    let interrupts = stop.clone();
    if let Err(error) = ctrlc::set_handler(move || {
        interrupts.cancel(Reason::from("interrupted"));
    }) {
        eprintln!("tasklet: Ctrl-C will end this at once: {error}");
    }
    match list(&folder, &stop).and_then(|outcome| Ok((outcome.show(&mut io::stdout().lock())?, outcome))) {
        Ok((_, outcome)) if outcome.interrupted => ExitCode::from(130),
        Ok((_, outcome)) if outcome.problems.is_empty() && outcome.report.is_clean() => ExitCode::SUCCESS,
        Ok((_, outcome)) => {
            outcome.problems.iter().for_each(|problem| eprintln!("tasklet: {problem}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tasklet: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder from the command line, or the current one. `None` if help was requested.
fn parse(arguments: &mut Parser) -> Result<Option<PathBuf>, lexopt::Error> {
    let mut folder = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(path) if folder.is_none() => folder = Some(PathBuf::from(path)),
            Value(more) => return Err(format!("only one FOLDER can be listed, and {more:?} is a second one").into()),
            option => return Err(option.unexpected()),
        }
    }
    Ok(Some(folder.unwrap_or_else(|| PathBuf::from("."))))
}

/// The home thread's state. No other thread can access it.
type Desk = Rc<RefCell<Table>>;

#[derive(Default)]
struct Table {
    /// The longest files, beginning with the longest.
    longest: Vec<(u64, PathBuf)>,
    files: u64,
    lines: u64,
    problems: Vec<String>,
}

impl Table {
    fn enter(&mut self, path: PathBuf, lines: u64) {
        self.files += 1;
        self.lines += lines;
        let place = self.longest.partition_point(|(other, name)| (*other, &path) > (lines, name));
        self.longest.insert(place, (lines, path));
        self.longest.truncate(SHOWN);
    }
}

/// The result of a run.
struct Outcome {
    table: Vec<(u64, PathBuf)>,
    files: u64,
    lines: u64,
    problems: Vec<String>,
    interrupted: bool,
    report: Report,
}

impl Outcome {
    fn show(&self, to: &mut impl Write) -> io::Result<()> {
        for (lines, path) in &self.table {
            writeln!(to, "{lines:>8}  {}", path.display())?;
        }
        writeln!(to, "{:>8}  lines in {} files", self.lines, self.files)?;
        if self.interrupted {
            writeln!(to, "interrupted: there may be more")?;
        }
        writeln!(to, "{}", self.report)
    }
}

/// Runs a loop over everything below `folder`, until it is finished or `stop` is cancelled.
fn list(folder: &Path, stop: &CancelToken) -> Result<Outcome, BoxError> {
    let desk = Desk::default();
    let mut home = Loop::new(desk.clone());
    home.schedule(Folder { path: folder.to_owned(), found: None }, Directive::Home)?;
    let (report, interrupted) = match home.run_until(stop) {
        Ok(report) => (report, false),
        Err(cut) if matches!(cut.why(), Interruption::Cancelled(_)) => (cut.report().clone(), true),
        Err(cut) => return Err(cut.into()),
    };
    // If the run was interrupted, this drops the remaining tasklets.
    drop(home);
    let Table { longest, files, lines, problems } = std::mem::take(&mut *desk.borrow_mut());
    Ok(Outcome { table: longest, files, lines, problems, interrupted, report })
}

/// A folder. It asks the pool for its entries, and schedules them at home.
struct Folder {
    path: PathBuf,
    found: Option<io::Result<Vec<PathBuf>>>,
}

impl Tasklet<Desk> for Folder {
    fn home(&mut self, desk: &mut Desk, cx: &mut TaskletContext<'_, Desk>) -> Directive {
        // In phase 1 the entries are not known yet. In phase 3 the pool has returned them.
        let Some(found) = self.found.take() else { return Directive::Pool };
        match found {
            Err(error) => desk.borrow_mut().problems.push(format!("{}: {error}", self.path.display())),
            Ok(paths) => {
                for path in paths {
                    if let Err(refused) = schedule(path, cx) {
                        desk.borrow_mut().problems.push(refused.to_string());
                    }
                }
            }
        }
        Directive::Done
    }

    fn pool(&mut self, _: &mut TaskletContext<'_, Desk>) -> Directive {
        // Phase 2, where blocking is allowed.
        let read = || std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.path())).collect();
        self.found = Some(read());
        Directive::Home
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        self.path.display().to_string().into()
    }
}

/// Schedules a path. A folder is a tasklet of a type, and a file is one of three closures.
fn schedule(path: PathBuf, cx: &TaskletContext<'_, Desk>) -> Result<(), BoxError> {
    if path.is_symlink() {
        return Ok(());
    }
    if path.is_dir() {
        cx.schedule(Folder { path, found: None }, Directive::Home)?;
        return Ok(());
    }
    let reads = path.clone();
    let file = ready::call_blocking(move || std::fs::read(&reads)).then(|desk: &mut Desk, bytes| match bytes {
        Ok(bytes) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            desk.borrow_mut().enter(path, lines);
        }
        Err(error) => desk.borrow_mut().problems.push(format!("{}: {error}", path.display())),
    });
    cx.schedule(file, Directive::Home)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A folder of its own, which is removed at the end of the test.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, usize)]) -> Tree {
            let root = std::env::temp_dir().join(format!("procession-tasklet-{name}-{}", std::process::id()));
            for (path, lines) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "line\n".repeat(*lines)).unwrap();
            }
            Tree(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn every_file_is_counted_once_and_the_longest_are_shown_in_order() {
        let files: Vec<(String, usize)> = (0..30).map(|n| (format!("{}/{}/f{n}", n % 3, n % 5), n)).collect();
        let files: Vec<(&str, usize)> = files.iter().map(|(path, lines)| (path.as_str(), *lines)).collect();
        let tree = Tree::new("counts", &files);
        let outcome = list(&tree.0, &CancelToken::new()).unwrap();
        assert_eq!((outcome.files, outcome.lines), (30, (0..30).sum()));
        assert_eq!(
            outcome.table.iter().map(|(lines, _)| *lines).collect::<Vec<_>>(),
            (20..30).rev().collect::<Vec<_>>()
        );
        assert!(outcome.problems.is_empty() && outcome.report.is_clean() && !outcome.interrupted);
        // Each file and each folder (the root, 3, and 15 in them) runs at home, on the pool, and at home again.
        let tasklets = 30 + 1 + 3 + 15;
        assert_eq!((outcome.report.finished, outcome.report.pool_steps), (tasklets, tasklets));
        assert_eq!(outcome.report.home_steps, 2 * tasklets);
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_problem_and_not_a_hang() {
        let outcome = list(Path::new("/no/such/folder"), &CancelToken::new()).unwrap();
        assert_eq!((outcome.files, outcome.problems.len()), (0, 1));
        assert!(outcome.problems[0].contains("/no/such/folder"), "{:?}", outcome.problems);
    }

    #[test]
    fn an_interrupted_run_shows_what_it_has() {
        let tree = Tree::new("interrupted", &[("a", 1), ("b", 2)]);
        let stop = CancelToken::new();
        stop.cancel(Reason::from("interrupted"));
        let outcome = list(&tree.0, &stop).unwrap();
        assert!(outcome.interrupted && outcome.files == 0);
        let mut shown = Vec::new();
        outcome.show(&mut shown).unwrap();
        assert!(String::from_utf8(shown).unwrap().contains("interrupted"));
    }

    #[test]
    fn arguments_are_one_folder_at_most() {
        let read = |words: &[&str]| parse(&mut Parser::from_args(words));
        assert_eq!(read(&[]).unwrap(), Some(PathBuf::from(".")));
        assert_eq!(read(&["src"]).unwrap(), Some(PathBuf::from("src")));
        assert_eq!(read(&["-h"]).unwrap(), None);
        assert!(read(&["--colour"]).is_err() && read(&["a", "b"]).is_err());
    }

    #[test]
    fn files_of_the_same_length_are_shown_by_name() {
        let mut table = Table::default();
        for name in ["b", "a", "c"] {
            table.enter(PathBuf::from(name), 7);
        }
        let order: BTreeMap<_, _> = table.longest.iter().map(|(_, path)| path).zip(0..).collect();
        assert_eq!(order.values().copied().collect::<Vec<_>>(), [0, 1, 2], "{order:?}");
    }
}
