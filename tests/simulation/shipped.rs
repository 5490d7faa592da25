//! A world runs the parts of a runtime as they ship. It has no second version of them. Statement 6.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The imports of a world from the parts of a runtime. An addition here needs a reason.
const IMPORTS: &[(&str, &[&str])] = &[
    // A world is an executor and an engine of the turn that ships.
    ("sched::turn", &["After", "Engine", "body_lost", "turn"]),
    ("sched::road", &["Executor", "Road", "count_step"]),
    ("sched::body", &["Head", "Host", "Ready", "Stage", "StepOutput", "Stepped", "Verdict", "Yield"]),
    ("sched::counters", &["Counters"]),
    // It measures how long messages wait, as a worker does.
    ("sched::step_waits", &["StepWaits"]),
    // It looks at these, and holds messages in a lane.
    ("sched::cell::view", &["CellView"]),
    ("sched::mailbox", &["Unwanted"]),
    ("sched::orders", &["Order"]),
    ("sched::outbox", &["Lane", "Outbox"]),
    ("sched::residents", &["AnyFuture", "BoxedFuture"]),
    // It starts the runtime of the program, and does the work of its threads.
    ("runtime", &["BuildError", "Runtime", "RuntimeBuilder"]),
    ("runtime::dispatch", &["Core", "give_back"]),
    ("runtime::simulated", &["BlockingFate", "INJECTED", "Job", "SimulationHost"]),
];

/// The parts of a runtime of which a world has no version. A type, a trait, a module or a function that is called like
/// one of them would be one.
const PARTS: &[&str] = &[
    "actor",
    "ask",
    "cell",
    "group",
    "inbox",
    "link",
    "mailbox",
    "monitor",
    "name",
    "outbox",
    "queue",
    "relation",
    "reply",
    "router",
    "signal",
    "supervisor",
    "table",
];

/// Items that have the name of a part, and are none: invariants are asked, and a simulation has a name.
const HARMLESS: &[&str] = &["test_name", "ask", "ask_invariants", "name", "file_name", "name_of_yield", "shown_name"];

/// The sources of the simulation without their tests, by file.
fn sources() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // The folders have tests.
    let files = entries.filter(|path| path.is_file());
    files
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(all(test").next().unwrap_or_default().to_owned();
            (path.file_stem().unwrap().to_string_lossy().into_owned(), code)
        })
        .filter(|(name, _)| name != "small_world")
        .collect()
}

/// The imports of a source from the parts of a runtime, by module.
fn imports(code: &str) -> Vec<(String, String)> {
    let uses = code.lines().filter_map(|line| line.strip_prefix("use crate::")?.strip_suffix(';'));
    let parts = ["sched", "runtime", "relations", "groups", "name_table", "supervisor", "router", "actor"];
    uses.filter(|path| parts.contains(&path.split("::").next().unwrap_or_default()))
        .flat_map(|path| {
            let (module, names) = path.rsplit_once("::").unwrap_or((path, ""));
            let (module, names) = path.split_once("::{").map_or((module, names), |(module, names)| (module, names));
            let names = names.trim_end_matches('}').split(", ");
            names.map(|name| (module.to_owned(), name.trim_end_matches(" as _").to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

/// The names of the items that a source defines, in small letters, with words apart.
fn items(code: &str) -> Vec<String> {
    let kinds = ["struct ", "enum ", "trait ", "mod ", "type ", "fn "];
    let starts =
        code.lines().map(|line| line.trim_start().trim_start_matches("pub(super) ").trim_start_matches("pub "));
    let names = starts.filter_map(|line| kinds.iter().find_map(|kind| line.strip_prefix(kind)));
    names
        .map(|name| {
            let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let spaced = name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain([c]));
            spaced.collect::<String>().to_lowercase().trim_start_matches('_').to_owned()
        })
        .collect()
}

fn is_a_part(item: &str) -> bool {
    let words = item.split('_').map(|word| word.strip_suffix('s').unwrap_or(word));
    !HARMLESS.contains(&item) && words.into_iter().any(|word| PARTS.contains(&word))
}

#[test]
fn a_world_imports_the_parts_of_a_runtime_and_has_none_of_its_own() {
    let sources = sources();
    let imported: BTreeSet<_> = sources.values().flat_map(|code| imports(code)).collect();
    let allowed = |module: &str, names: &[&str]| -> Vec<_> {
        names.iter().map(|name| (module.to_owned(), (*name).to_owned())).collect()
    };
    let expected: BTreeSet<_> = IMPORTS.iter().flat_map(|(module, names)| allowed(module, names)).collect();
    assert_eq!(imported, expected);
    let of_file = |(file, code): (&String, &String)| items(code).into_iter().chain([file.clone()]).collect::<Vec<_>>();
    let own: Vec<_> = sources.iter().flat_map(of_file).filter(|item| is_a_part(item)).collect();
    assert!(own.is_empty(), "a world defines {own:?}");
    // A turn is given by one function, which is the runtime's.
    let turns: usize = sources.values().map(|code| code.matches("turn(engine, ").count()).sum();
    let executors: usize = sources.values().map(|code| code.matches("impl Executor for").count()).sum();
    assert_eq!((turns, executors), (1, 1));
}

#[test]
fn a_world_does_not_sleep_and_starts_no_thread() {
    let calls = ["sleep(", "park(", "park_timeout(", "yield_now(", ".wait_timeout(", ".recv_timeout(", ".spawn("];
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let calls_of = |text: &str| -> Vec<&str> {
        let lines: Vec<_> = text.lines().filter(code).collect();
        calls.into_iter().filter(|call| lines.iter().any(|line| line.contains(call))).collect()
    };
    for (file, text) in sources() {
        // A check has a thread for each processor, and each of them runs whole worlds.
        let expected: &[&str] = if file == "simulation" { &[".spawn("] } else { &[] };
        assert_eq!(calls_of(&text), expected, "in {file}.rs");
    }
}

#[test]
fn a_second_version_of_a_part_would_be_found() {
    for code in ["struct WorldMailbox {", "pub(super) enum Signals {", "fn deliver_signal(", "mod name_table;"] {
        assert!(items(code).iter().any(|item| is_a_part(item)), "{code}");
    }
    assert!(!items("struct HeldMessages {").iter().any(|item| is_a_part(item)));
    let found = imports("use crate::sched::cell::{Cell, Settled};\nuse crate::clock::Clock;\n");
    let cell = |name: &str| ("sched::cell".to_owned(), name.to_owned());
    assert_eq!(found, [cell("Cell"), cell("Settled")]);
}
