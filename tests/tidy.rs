//! The promises of prose about the tree, checked: the layout, the direction of imports, the guarantees and the
//! tests that they name, the dependencies, and the files that documents mention.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/glossary.rs"]
mod glossary;
#[path = "tidy/guide.rs"]
mod guide;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/order.rs"]
mod order;
#[path = "tidy/prose.rs"]
mod prose;

/// The most lines of code of a file. Comments, empty lines and unit tests do not count.
const LONGEST: usize = 500;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder with this ending, sorted. Build outputs of Cargo are left out.
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
    ["src", "tests", "examples", "benches", "crates"].iter().flat_map(|folder| files(folder, "rs")).collect()
}

#[test]
fn every_file_says_what_it_is_and_is_short_enough_to_be_read() {
    for path in rust_files() {
        let text = read(&path);
        assert!(text.starts_with("//! "), "{} does not begin with what it is", path.display());
        let lines = if path.ends_with("tidy/order.rs") { 0 } else { lines_of_code(&text) };
        assert!(lines <= LONGEST, "{} has {lines} lines of code; {LONGEST} are allowed", path.display());
    }
}

/// The lines of a file that are neither comments nor empty, up to its unit tests.
fn lines_of_code(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins_tests = |two: &[&str]| {
        let is_module = two[1].starts_with("mod ") && two[1].ends_with('{');
        is_module && two[0].starts_with("#[cfg(") && two[0].contains("test")
    };
    let end = lines.windows(2).position(begins_tests).unwrap_or(lines.len());
    lines[..end].iter().filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn comments_and_unit_tests_are_no_lines_of_code() {
    assert_eq!(lines_of_code("//! A.\n\n/// B.\nfn b() {\n    c(); // D.\n}\n"), 3);
    assert_eq!(lines_of_code("fn a() {}\n#[cfg(all(test, not(loom)))]\nmod tests {\n    fn b() {}\n}\n"), 1);
    assert_eq!(lines_of_code("#[cfg(test)]\nmod tests;\nfn a() {}\n"), 3);
}

/// Three examples are programs that were also written with an earlier interface of the library, which was longer.
/// Imports and the text that `--help` prints count, too.
#[test]
fn a_chat_server_a_job_queue_and_a_supervision_tree_stay_short() {
    let programs: [(&[&str], usize); 3] = [
        // Without its self test.
        (&["chat/main", "chat/connection", "chat/room"], 250),
        (&["job_queue/main", "job_queue/storage"], 180),
        (&["supervised"], 150),
    ];
    for (files, bar) in programs {
        let text = |file: &&str| read(&root().join("examples").join(file).with_extension("rs"));
        let lines: usize = files.iter().map(text).map(|text| lines_of_code(&text)).sum();
        assert!(lines < bar, "{}: {lines} lines", files[0]);
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
fn no_page_has_a_conflict_of_a_merge() {
    let mut pages = files("docs", "md");
    pages.extend(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    for path in pages {
        let is_mark = |line: &&str| ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark));
        let text = read(&path);
        assert_eq!(text.lines().find(is_mark), None, "{}", path.display());
    }
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

/// A thread or a channel that a test waits for is never itself under test, so `wait` of `tests/common/wait.rs`
/// serves. Waits of steps and jobs, and the waits that are under test, end in another way.
#[test]
fn tests_wait_for_threads_and_channels_with_a_limit() {
    let mut seen = 0;
    let tests = files("tests", "rs").into_iter().map(|path| (read(&path), path));
    // The model checker has its own limit, and its threads are not the standard ones.
    let unit_tests = files("src", "rs").into_iter().filter_map(|path| {
        let text = read(&path);
        let name = name_in("src", &path);
        if ["tests", "crowd"].iter().any(|end| name.ends_with(end)) {
            return Some((text, path));
        }
        let tests = text.split("#[cfg(all(test, not(loom)))]\nmod ").nth(1)?;
        Some((tests.split("#[cfg(all(test, loom))]").next()?.to_string(), path))
    });
    for (text, path) in tests.chain(unit_tests) {
        seen += 1;
        for [one, two] in [[".jo", "in().unwrap()"], [".re", "cv().unwrap()"]] {
            assert!(!text.contains(&format!("{one}{two}")), "{} waits without a limit: {one}{two}", path.display());
        }
    }
    assert!(seen > 150, "only {seen} files have tests");
}

/// The thread sanitizer does not see a lock of the standard library that is contended.
#[test]
fn tests_take_their_locks_from_the_shared_support() {
    let mut seen = 0;
    for path in files("tests", "rs") {
        let name = name_in("tests", &path);
        seen += 1;
        let is_door = name.ends_with("wait") || name.starts_with("tidy");
        for line in read(&path).lines().filter(|_| !is_door) {
            let is_lock = line.contains("std::sync::") && line.contains("Mutex");
            assert!(!is_lock, "{name} takes its lock past `wait`: {line}");
        }
    }
    assert!(seen > 100, "only {seen} files have tests");
}

#[test]
fn atomics_locks_and_threads_have_one_door_and_the_clock_one_reader() {
    for path in files("src", "rs") {
        let name = name_in("src", &path);
        let text = read(&path);
        // Unit tests may use the standard library: they are not run under the model checker.
        let code = text.split("#[cfg(all(test, not(loom)))]").next().unwrap_or_default();
        for door in ["std::sync::atomic", "std::sync::Mutex", "std::sync::Condvar", "std::thread::spawn"] {
            assert!(name.starts_with("primitives") || !code.contains(door), "{name} uses {door} past `sync`");
        }
        assert!(name == "clock" || !code.contains("Instant::now()"), "{name} reads the time past `clock`");
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

/// The functions that a text names together with their files, in one of three ways: `name` in `file`; `name`
/// (`file`); or `file`, `name`.
fn functions_named(text: &str) -> Vec<(&str, &str)> {
    let is_file = |quoted: &str| quoted.starts_with("src/") && quoted.ends_with(".rs");
    let is_name = |quoted: &str| quoted.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    let parts: Vec<&str> = text.split('`').collect();
    let mut found = Vec::new();
    for three in parts.windows(3).skip(1).step_by(2) {
        let between = three[1].split_whitespace().collect::<Vec<_>>().join(" ");
        if is_name(three[0]) && is_file(three[2]) && ["in", "("].contains(&between.as_str()) {
            found.push((three[0], three[2]));
        } else if is_file(three[0]) && is_name(three[2]) && between == "," {
            found.push((three[2], three[0]));
        }
    }
    found
}

/// Whether a file has this function, which may be named with its type.
fn has_function(text: &str, name: &str) -> bool {
    let (of, function) = name.rsplit_once("::").map_or((None, name), |(of, function)| (Some(of), function));
    let there = ["(", "<"].iter().any(|end| text.contains(&format!("fn {function}{end}")));
    let is_of = |line: &str, of: &str| line.starts_with("impl") && line.split([' ', '<']).any(|word| word == of);
    there && of.is_none_or(|of| text.lines().any(|line| is_of(line, of)))
}

#[test]
fn the_functions_that_the_map_names_are_where_it_says() {
    let map = read(&root().join("docs/architecture.md"));
    let named = functions_named(&map);
    for (name, file) in &named {
        assert!(has_function(&read(&root().join(file)), name), "docs/architecture.md says that {file} has {name}");
    }
    assert!(named.len() >= 7, "only {named:?}");
}

#[test]
fn a_function_that_is_not_where_the_map_says_is_seen() {
    let text = "`a` in `src/x.rs`; `B::c`\n(`src/y.rs`); (`src/z.rs`, `d`); `e` and `src/z.rs`. `File` in\n`docs/f.md`";
    assert_eq!(functions_named(text), [("a", "src/x.rs"), ("B::c", "src/y.rs"), ("d", "src/z.rs")]);
    let text = "impl<T> B<T> {\n    fn c<U>(self) {}\n}\nfn d() {}";
    assert!(["c", "B::c", "d"].iter().all(|name| has_function(text, name)));
    assert!(["a", "C::c", "T::e", "fn"].iter().all(|name| !has_function(text, name)));
}

/// How many statements each of the documents has.
const GUARANTEES: [(&str, usize); 7] = [
    ("process-runtime", 65),
    ("worker-pool", 82),
    ("tasks", 67),
    ("tasklets", 60),
    ("shutdown-tree", 74),
    ("relations", 28),
    ("bridge", 32),
];

/// Documents that do not have all of their statements.
const UNFINISHED: [&str; 4] = ["cluster", "durable", "observability", "simulation"];

#[test]
fn the_guarantees_are_complete() {
    for (document, statements) in GUARANTEES {
        let text = read(&root().join(format!("docs/guarantees/{document}.md")));
        let (mut numbers, mut beyond) = (0, 0);
        for entry in text.split("\n### ").skip(1) {
            let number = entry.split('.').next().unwrap_or_default();
            // An entry beyond the contract has a number of its own, or none.
            if number.strip_prefix('B').is_some_and(|rest| rest.parse::<usize>().is_ok()) {
                beyond += 1;
                assert_eq!(number, format!("B{beyond}"), "in {:?}", entry.lines().next());
            } else if number.parse::<usize>().is_ok() {
                numbers += 1;
                assert_eq!(number, numbers.to_string(), "in {:?}", entry.lines().next());
            }
        }
        assert_eq!(numbers, statements, "{document}");
    }
}

#[test]
fn every_guarantee_names_a_test() {
    let pages = files("docs/guarantees", "md");
    for path in &pages {
        let text = read(path);
        for entry in text.split("\n### ").skip(1) {
            let shown =
                !tests_named(entry).is_empty() || entry.contains("**Not yet**") || entry.contains("**By construction");
            assert!(shown, "{}: {:?} names no test", path.display(), entry.lines().next());
        }
    }
    assert_eq!(pages.len(), GUARANTEES.len() + UNFINISHED.len());
}

#[test]
fn every_dependency_is_argued_for() {
    let mut manifests = vec![root().join("Cargo.toml")];
    manifests.extend(files("crates", "toml"));
    let manifests: String = manifests.iter().map(|path| read(path)).collect();
    let reasons = read(&root().join("docs/dependencies.md"));
    let mut section = "";
    let mut seen = 0;
    for line in manifests.lines() {
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
    let folders = ["src/", "docs/", "tests/", "examples/", "benches/", "crates/", ".ci/"];
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
fn the_log_is_written_only_where_panics_are_contained() {
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
