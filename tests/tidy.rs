//! What prose promises about the tree, read by a test: the layout, the direction of imports, the guarantees and the
//! tests that they name, the dependencies, and the files that documents mention.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of `src` in the order in which they build on each other. Each imports only from those above it.
const ORDER: &[&str] = &[
    "sync/parked",
    "sync/watched",
    "sync",
    "clock",
    "crowd",
    "process/pid",
    "outcome",
    "inside",
    "latch/line",
    "latch",
    "latch/tests",
    "latch/models",
    "threads",
    "gate",
    "cancel",
    "timer",
    "timer/tests",
    "state/roll",
    "state/key",
    "state/error",
    "state/face",
    "state/parts",
    "state/node",
    "state/node/adding",
    "state/walk",
    "state/drive",
    "state/handle",
    "state/tail",
    "state/wait",
    "state/report",
    "state/build",
    "state/part",
    "state/signals",
    "state/mod",
    "state/models",
    "state/tests",
    "pool/line",
    "pool/seat",
    "pool/pauses",
    "pool/words",
    "pool/ledger",
    "pool/news",
    "pool/work",
    "pool/crew",
    "pool/thread",
    "pool/owner",
    "pool/help",
    "pool/builder",
    "pool/desk",
    "pool/handle",
    "pool/pause",
    "pool/end",
    "pool/tree",
    "pool/turn",
    "pool/pacer",
    "pool/rules",
    "pool/chance",
    "pool/models",
    "pool/mod",
    "task/status",
    "task/options",
    "task/record",
    "task/table",
    "task/shared",
    "task/job",
    "task/handle",
    "task/set",
    "task/report",
    "task/scheduler",
    "task/repeat",
    "task/tree",
    "task/models",
    "task/mod",
    "tasklet/directive",
    "tasklet/report",
    "tasklet/slot",
    "tasklet/arrows",
    "tasklet/slot/tests",
    "tasklet/current",
    "tasklet/shared",
    "tasklet/resume",
    "tasklet/handle",
    "tasklet/context",
    "tasklet/home",
    "tasklet/ready",
    "tasklet/automatic",
    "tasklet/tree",
    "tasklet/models",
    "tasklet/mod",
    "process/naming",
    "process/entry",
    "process/refusal",
    "process/cycle",
    "process/command",
    "process/handler",
    "process/reply",
    "process/asked",
    "process/relation",
    "process/sight",
    "process/signals",
    "process/signals/recovering",
    "process/mailbox",
    "process/bounded",
    "process/told",
    "process/event",
    "process/outbox",
    "process/link",
    "process/pending_names",
    "process/body",
    "process/body/tests",
    "process/contract",
    "process/machine",
    "process/output",
    "process/spawn",
    "process/relating",
    "process/named",
    "process/hook",
    "process/mod",
    "names",
    "sched/answers",
    "sched/cell",
    "sched/cell/asking",
    "sched/cell/related",
    "sched/cell/replacing",
    "sched/cell/tests",
    "sched/table",
    "sched/counters",
    "sched/queue",
    "sched/sleep",
    "sched/search",
    "sched/seat",
    "sched/lookout",
    "sched/lookout/models",
    "sched/road",
    "sched/router",
    "sched/ask_cycles",
    "sched/engine",
    "sched/ending",
    "sched/replacing",
    "sched/turn",
    "sched/worker",
    "sched/find_work",
    "sched/watched",
    "sched/models",
    "sched/mod",
    "relations",
    "relations/recovering",
    "relations/models",
    "groups",
    "runtime/dispatch",
    "runtime/related",
    "runtime/naming",
    "runtime/inspect",
    "runtime/report",
    "runtime/tree",
    "runtime/staff",
    "runtime/watchdog",
    "runtime/owner",
    "runtime/handle",
    "runtime/system",
    "runtime/ask",
    "runtime/watch",
    "runtime/named",
    "runtime/builder",
    "runtime/mod",
    "runtime/tests",
    "sched/worker/tests",
    "supervisor/window",
    "supervisor/contained",
    "supervisor/spec",
    "supervisor/message",
    "supervisor/in_place",
    "supervisor/child",
    "supervisor/config",
    "supervisor/process",
    "supervisor/carrying",
    "supervisor/hearing",
    "supervisor/orders",
    "supervisor/builder",
    "supervisor/tree",
    "supervisor/mod",
    "testing/bench",
    "testing/error",
    "testing/related",
    "testing/driver",
    "testing/builder",
    "testing/driver/recovering",
    "testing/telling",
    "testing/mod",
    "idleness",
    "lib",
];

const LONGEST: usize = 500;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder with this ending, sorted. What Cargo builds is left out.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn name_in(folder: &str, path: &Path) -> String {
    let relative = path.strip_prefix(root().join(folder)).unwrap().with_extension("");
    relative.to_string_lossy().replace('\\', "/")
}

fn rust_files() -> Vec<PathBuf> {
    ["src", "tests", "examples", "benches"].iter().flat_map(|folder| files(folder, "rs")).collect()
}

#[test]
fn every_file_says_what_it_is_and_is_short_enough_to_be_read() {
    for path in rust_files() {
        let text = read(&path);
        assert!(text.starts_with("//! "), "{} does not begin with what it is", path.display());
        let lines = text.lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines; {LONGEST} are allowed", path.display());
    }
}

#[test]
fn nothing_is_left_unfinished_and_nothing_is_unsafe() {
    // Written in two parts, so that this file does not find itself.
    let unfinished = [["FIX", "ME"], ["TO", "DO"], ["todo", "!("], ["unimplemented", "!("], ["XX", "X"]];
    for path in rust_files() {
        let text = read(&path);
        for [one, two] in unfinished {
            assert!(!text.contains(&format!("{one}{two}")), "{} has a {one}{two}", path.display());
        }
    }
    assert!(read(&root().join("src/lib.rs")).contains("#![forbid(unsafe_code)]"));
}

#[test]
fn tests_never_sleep() {
    for path in rust_files() {
        let text = read(&path);
        for [one, two] in [["thread::sl", "eep"], ["time::sl", "eep"]] {
            assert!(!text.contains(&format!("{one}{two}")), "{} sleeps", path.display());
        }
    }
}

#[test]
fn there_is_one_door_to_atomics_locks_and_threads_and_one_reader_of_the_clock() {
    for path in files("src", "rs") {
        let name = name_in("src", &path);
        let text = read(&path);
        // Unit tests may use the standard library: they are not run under the model checker.
        let code = text.split("#[cfg(all(test, not(loom)))]").next().unwrap_or_default();
        for door in ["std::sync::atomic", "std::sync::Mutex", "std::sync::Condvar", "std::thread::spawn"] {
            assert!(name.starts_with("sync") || !code.contains(door), "{name} uses {door} past `sync`");
        }
        assert!(name == "clock" || !code.contains("Instant::now()"), "{name} reads the time past `clock`");
    }
}

#[test]
fn the_order_of_files_is_complete() {
    let there: BTreeSet<String> = files("src", "rs").iter().map(|path| name_in("src", path)).collect();
    let listed: BTreeSet<String> = ORDER.iter().map(|name| (*name).to_string()).collect();
    assert_eq!(there, listed);
}

/// The paths into this crate that a file's code mentions, in `use` lines or elsewhere: `crate::a::b::C` may be the file
/// `a/b`, or the file `a`, or the folder's `a/mod`.
fn imports(name: &str, text: &str) -> Vec<String> {
    let folder = name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{}::", folder.replace('/', "::")));
    let code = text.split("#[cfg(all(test,").next().unwrap_or_default();
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (root, prefix) in [("crate::", ""), ("super::", folder.as_str())] {
            for rest in line.split(root).skip(1) {
                let path = rest.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).next().unwrap_or_default();
                assert!(!path.is_empty(), "{name} imports a group from the root: {line}");
                found.push(format!("{prefix}{}", path.trim_end_matches(':')));
            }
        }
    }
    found
}

fn file_of(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split("::").collect();
    let two = parts.get(..2).map(|parts| parts.join("/"));
    let one = parts.first().copied().unwrap_or_default();
    let candidates = [two, Some(one.to_string()), Some(format!("{one}/mod"))];
    candidates.into_iter().flatten().find_map(|name| ORDER.iter().find(|file| **file == name).copied())
}

#[test]
fn a_file_imports_only_from_files_above_it() {
    let rank = |name: &str| ORDER.iter().position(|other| *other == name);
    let mut arrows = 0;
    for path in files("src", "rs") {
        let name = name_in("src", &path);
        for import in imports(&name, &read(&path)) {
            let Some(file) = file_of(&import) else { continue };
            arrows += 1;
            assert!(rank(file) < rank(&name), "{name} imports {import}, which is in {file}, below it");
        }
    }
    assert!(arrows > 100, "only {arrows} imports were seen");
}

#[test]
fn supervisors_are_written_against_the_public_contract_only() {
    for path in files("src/supervisor", "rs") {
        for line in read(&path).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for rest in line.split("crate::").skip(1) {
                let public = rest.starts_with(char::is_uppercase);
                assert!(public, "{}: {line}: only what everybody can use", path.display());
            }
        }
    }
}

/// The names of all test functions, as `path/of/file.rs::name`.
fn tests_there_are() -> HashSet<String> {
    let mut names = HashSet::new();
    for path in rust_files() {
        let file = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        let text = read(&path);
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let Some(rest) = line.strip_prefix("fn ")
                && std::mem::take(&mut is_test)
            {
                names.insert(format!("{file}::{}", rest.split('(').next().unwrap_or_default()));
            }
        }
    }
    names
}

/// The tests that a text names: everything in backticks of the form `path.rs::name`.
fn tests_named(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains(".rs::") && !quoted.contains(' ')).collect()
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let there = tests_there_are();
    for path in files("docs", "md") {
        for test in tests_named(&read(&path)) {
            assert!(there.contains(test), "{} names {test}, which is not there", path.display());
        }
    }
}

/// How many statements each of the documents has.
const GUARANTEES: [(&str, usize); 6] = [
    ("process-runtime", 65),
    ("worker-pool", 82),
    ("tasks", 67),
    ("tasklets", 60),
    ("shutdown-tree", 74),
    ("relations", 28),
];

#[test]
fn the_guarantees_are_complete() {
    for (document, statements) in GUARANTEES {
        let text = read(&root().join(format!("docs/guarantees/{document}.md")));
        let (mut numbers, mut beyond) = (0, 0);
        for entry in text.split("\n### ").skip(1) {
            let number = entry.split('.').next().unwrap_or_default();
            // What goes beyond the contract is numbered by itself, or has no number.
            if number.strip_prefix('B').is_some_and(|rest| rest.parse::<usize>().is_ok()) {
                beyond += 1;
                assert_eq!(number, format!("B{beyond}"), "in {:?}", entry.lines().next());
            } else if number.parse::<usize>().is_ok() {
                numbers += 1;
                assert_eq!(number, numbers.to_string(), "in {:?}", entry.lines().next());
            }
            let shown =
                !tests_named(entry).is_empty() || entry.contains("**Not yet**") || entry.contains("**By construction");
            assert!(shown, "{document}: {:?} names no test", entry.lines().next());
        }
        assert_eq!(numbers, statements, "{document}");
    }
}

#[test]
fn every_dependency_is_argued_for() {
    let manifest = read(&root().join("Cargo.toml"));
    let reasons = read(&root().join("docs/dependencies.md"));
    let mut section = "";
    let mut seen = 0;
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && line.contains('=') {
            let name = line.split(['=', '.']).next().unwrap_or_default().trim();
            assert!(reasons.contains(&format!("`{name}`")), "docs/dependencies.md does not argue for `{name}`");
            seen += 1;
        }
    }
    assert!(seen >= 6);
}

#[test]
fn the_files_that_documents_mention_exist() {
    let mut documents = files("docs", "md");
    documents.push(root().join("README.md"));
    let folders = ["src/", "docs/", "tests/", "examples/", "benches/", ".ci/"];
    for path in documents {
        let text = read(&path);
        let quoted = text.split('`').skip(1).step_by(2);
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for mention in quoted.chain(linked) {
            let mention = mention.split("::").next().unwrap_or_default().split('#').next().unwrap_or_default();
            let plain = !mention.contains([' ', '*', '<', '{', '\n']);
            if plain && folders.iter().any(|folder| mention.starts_with(folder)) {
                assert!(root().join(mention).exists(), "{} mentions {mention}, which is not there", path.display());
            }
        }
    }
}

#[test]
fn the_log_is_told_where_a_panic_of_whoever_listens_is_contained() {
    for path in files("src", "rs") {
        let text = read(&path);
        let mut contained = false;
        for (number, line) in text.lines().enumerate() {
            // In its own line, in the one before, or in a function that is only called so.
            contained |= line.contains("tell_log(") || line.starts_with("fn tell_exit(");
            let tells =
                ["error", "warn", "info", "debug"].iter().any(|level| line.contains(&format!("tracing::{level}!")));
            assert!(!tells || contained, "{}:{}: the log is told outside of `tell_log`", path.display(), number + 1);
            if line == "}" || line.trim_end().ends_with(");") {
                contained = false;
            }
        }
    }
}
