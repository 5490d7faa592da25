//! The order of the files of `src`, and the direction of their imports.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, name_in, read};

/// The files of `src` in the order in which they build on each other. Each imports only from those above it.
const ORDER: &[&str] = &[
    "primitives/parked",
    "primitives/watched",
    "primitives",
    "numbered_list",
    "clock",
    "crowd",
    "pid",
    "outcome",
    "inside",
    "nesting",
    "random",
    "latch",
    "latch/tests",
    "latch/models",
    "threads",
    "gate",
    "cancel",
    "timer/store",
    "timer/store/tests",
    "timer/set",
    "timer/models",
    "timer",
    "timer/tests",
    "shutdown/key",
    "shutdown/error",
    "shutdown/spec",
    "shutdown/closing",
    "shutdown/node",
    "shutdown/walk",
    "shutdown/cascade",
    "shutdown/guards",
    "shutdown/builder",
    "shutdown/report",
    "shutdown/wait",
    "shutdown/shutdown_node",
    "shutdown/part",
    "shutdown/signals",
    "shutdown/mod",
    "shutdown/models",
    "shutdown/tests",
    "pool/job_queue",
    "pool/parker",
    "pool/stats",
    "pool/limits",
    "pool/ledger",
    "pool/ledger/tests",
    "pool/ledger/random_tests",
    "pool/job",
    "pool/threads",
    "pool/worker",
    "pool/handle",
    "pool/builder",
    "pool/job_handle",
    "pool/pause",
    "pool/shutdown",
    "pool/pacer",
    "pool/models",
    "pool/mod",
    "task/info",
    "task/error",
    "task/options",
    "task/life",
    "task/table",
    "task/shared",
    "task/job",
    "task/handle",
    "task/set",
    "task/scheduler",
    "task/repeat",
    "task/shutdown_node",
    "task/models",
    "task/mod",
    "tasklet/directive",
    "tasklet/report",
    "tasklet/table",
    "tasklet/slots",
    "tasklet/slots/tests",
    "tasklet/current",
    "tasklet/shared",
    "tasklet/resume",
    "tasklet/handle",
    "tasklet/context",
    "tasklet/event_loop",
    "tasklet/ready",
    "tasklet/automatic",
    "tasklet/shutdown_node",
    "tasklet/models",
    "tasklet/mod",
    "process/no_such_process",
    "process/names",
    "process/entry",
    "process/dead_letter",
    "process/cycle",
    "process/command",
    "process/host",
    "process/host/tests",
    "process/duty",
    "process/handler",
    "process/permits",
    "process/reply",
    "sched/open_asks",
    "sched/open_work",
    "sched/timer_records",
    "sched/timer_records/tests",
    "process/output_answer",
    "sched/resident_waker",
    "sched/residents",
    "process/async_handler",
    "process/relation",
    "process/step_activity",
    "sched/signals",
    "sched/mailbox",
    "sched/room_queue",
    "sched/feeds",
    "sched/bounded_mailbox",
    "sched/doorway",
    "process/event_box",
    "process/event/tap",
    "process/event",
    "process/event/lent",
    "sched/orders",
    "sched/outbox",
    "process/recipient",
    "process/target",
    "sched/waiting_send",
    "sched/routed_send",
    "sched/body",
    "process/contract",
    "sched/machine",
    "process/own",
    "process/step_output",
    "process/step_commands",
    "process/step_sends",
    "process/lent_output",
    "process/retry",
    "process/future_output",
    "process/feed",
    "process/stream",
    "process/spawn",
    "process/run",
    "process/retrying",
    "process/observer",
    "process/mod",
    "name_table",
    "sched/marks",
    "sched/cell",
    "sched/cell/asking",
    "sched/cell/polling",
    "sched/cell/related",
    "sched/cell/replacing",
    "sched/cell/room",
    "sched/cell/waiting",
    "sched/cell/tests",
    "sched/table",
    "sched/counters",
    "sched/queue",
    "sched/sleep",
    "sched/search",
    "sched/stuck_steps",
    "sched/stuck_steps/models",
    "sched/road",
    "sched/router",
    "sched/backpressure",
    "sched/ask_cycles",
    "sched/engine",
    "sched/polling",
    "sched/ending",
    "sched/beginning",
    "sched/replacing",
    "sched/turn",
    "sched/worker",
    "sched/find_work",
    "sched/models",
    "sched/doorway/models",
    "sched/mod",
    "relations",
    "relations/recovering",
    "relations/models",
    "groups",
    "recording/silent_host",
    "recording/codec",
    "recording/errors",
    "recording/value",
    "recording/item",
    "recording/digest",
    "recording/ring",
    "recording/log",
    "recording/file",
    "recording/recordings",
    "recording/tap",
    "recording/machine",
    "recording/recorder",
    "recording/script",
    "recording/replay",
    "recording/mod",
    "runtime/timed",
    "runtime/dispatch",
    "runtime/command_work",
    "runtime/send_work",
    "runtime/futures",
    "runtime/related",
    "runtime/inspect",
    "runtime/report",
    "runtime/tree",
    "runtime/worker_threads",
    "runtime/watchdog",
    "runtime/shutdown",
    "runtime/access",
    "runtime/send_future",
    "runtime/ask",
    "runtime/watch",
    "runtime/process_node",
    "runtime/process_ref",
    "runtime/handle",
    "runtime/system",
    "runtime/weak",
    "runtime/calls",
    "runtime/idle",
    "runtime/names",
    "runtime/recordings",
    "runtime/builder",
    "runtime/mod",
    "runtime/tests",
    "sched/worker/tests",
    "command",
    "config",
    "exit",
    "feed",
    "names",
    "observe",
    "spawn",
    "sync",
    "supervisor/intensity",
    "supervisor/contained",
    "supervisor/spec",
    "supervisor/backoff",
    "supervisor/message",
    "supervisor/in_place",
    "supervisor/child",
    "supervisor/process",
    "supervisor/batch",
    "supervisor/starting",
    "supervisor/stopping",
    "supervisor/restart",
    "supervisor/request",
    "supervisor/builder",
    "supervisor/tree",
    "supervisor/mod",
    "router/rendezvous",
    "router/process",
    "router/mod",
    "actor/actions",
    "actor/contract",
    "actor/process",
    "actor/reach",
    "actor/mod",
    "async_process/wake_flag",
    "async_process/state",
    "async_process/context",
    "async_process/waits",
    "async_process/calls",
    "async_process/process",
    "async_process/mod",
    "prelude",
    "testing/notes",
    "testing/engine",
    "testing/question",
    "testing/helpers",
    "testing/driver",
    "testing/builder",
    "testing/models",
    "testing/mod",
    "simulation/decision",
    "simulation/schedule",
    "simulation/tape",
    "simulation/replay_seed",
    "simulation/shrink",
    "simulation/coverage",
    "simulation/regressions",
    "simulation/trace",
    "simulation/report",
    "simulation/progress",
    "simulation/small_world",
    "simulation/mod",
    "async_process/models",
    "guide",
    "idle_tests",
    "lib",
];

/// The files of `src`, by their names as [`ORDER`] has them.
struct Sources {
    texts: BTreeMap<String, String>,
    /// The re-exports of each file: the name that it gives, and the path from the root.
    reexports: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Sources {
    fn new(texts: BTreeMap<String, String>) -> Sources {
        let reexports = texts.iter().map(|(file, text)| (file.clone(), reexports(file, text))).collect();
        Sources { texts, reexports }
    }

    fn of_this_crate() -> Sources {
        Sources::new(files("src", "rs").iter().map(|path| (name_in("src", path), read(path))).collect())
    }

    /// The file of a module: `a/b`, `a/b/mod`, or `lib` for the crate's root.
    fn file_of(&self, module: &[String]) -> Option<String> {
        let name = module.join("/");
        let candidates = [name.clone(), format!("{name}/mod"), String::from("lib")];
        let is_root = module.is_empty();
        candidates.into_iter().find(|file| self.texts.contains_key(file) && (*file == "lib") == is_root)
    }

    /// The file with the definition of what this path from the root names. It follows modules and re-exports, and
    /// stops at the first name that is neither.
    fn defined_in(&self, path: &[String]) -> String {
        let (mut module, mut file) = (Vec::new(), String::from("lib"));
        for (place, name) in path.iter().enumerate() {
            module.push(name.clone());
            if let Some(next) = self.file_of(&module) {
                file = next;
                continue;
            }
            let reexport = self.reexports[&file].get(name).filter(|target| target[..] != path[..=place]);
            let Some(mut target) = reexport.cloned() else { break };
            target.extend_from_slice(&path[place + 1..]);
            return self.defined_in(&target);
        }
        file
    }

    /// The paths from the root that a file's code mentions, in `use` lines or elsewhere. Tests are left out.
    fn imports(&self, file: &str) -> Vec<Vec<String>> {
        let text = &self.texts[file];
        let is_test = |line: &str| line.starts_with("#[cfg(") && line.contains("test");
        let lines: Vec<&str> = text.lines().collect();
        let tests =
            lines.windows(2).position(|two| is_test(two[0]) && two[1].starts_with("mod ") && two[1].ends_with('{'));
        let code: Vec<&str> = lines[..tests.unwrap_or(lines.len())]
            .iter()
            .filter(|line| !line.trim_start().starts_with("//"))
            .copied()
            .collect();
        let code = code.join("\n");
        let mut found = Vec::new();
        for root in ["crate::", "super::"] {
            for (place, _) in code.match_indices(root) {
                let before = &code[..place];
                // A visibility is no import.
                let is_visibility = before.ends_with("(in ");
                if !is_visibility && !before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) {
                    found.extend(leaves(&code[place..]).into_iter().filter_map(|(path, _)| absolute(file, &path)));
                }
            }
        }
        found
    }
}

fn reexports(file: &str, text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for statement in text.split(';') {
        let Some((before, tree)) = statement.split_once("use ") else { continue };
        let line = before.lines().last().unwrap_or_default();
        if line.starts_with("pub") && !line.contains("//") {
            let named = |(path, given): (Vec<_>, _)| absolute(file, &path).map(|path| (given, path));
            found.extend(leaves(tree).into_iter().filter_map(named));
        }
    }
    found
}

/// The path of a file's module.
fn module_of(file: &str) -> Vec<String> {
    let file = file.strip_suffix("/mod").unwrap_or(file);
    if file == "lib" { Vec::new() } else { file.split('/').map(String::from).collect() }
}

/// The same path from the root; nothing for a path into another crate.
fn absolute(file: &str, path: &[String]) -> Option<Vec<String>> {
    let mut module = module_of(file);
    let supers = path.iter().take_while(|name| *name == "super").count();
    let rest = match path.first()?.as_str() {
        "crate" => {
            module.clear();
            &path[1..]
        }
        "self" => &path[1..],
        "super" => {
            module.truncate(module.len().saturating_sub(supers));
            &path[supers..]
        }
        _ => return None,
    };
    Some(module.into_iter().chain(rest.iter().cloned()).collect())
}

/// The paths of a `use` tree, or of a path in code, which may be followed by anything; each with the name that it
/// gives.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let (mut found, mut above, mut path, mut rest) = (Vec::new(), Vec::new(), Vec::new(), tree);
    loop {
        rest = rest.trim_start();
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        path.extend(Some(String::from(&rest[..word])).filter(|word| !word.is_empty()));
        let given = path.last().cloned().unwrap_or_default();
        rest = &rest[word..];
        if let Some(after) = rest.strip_prefix("::") {
            rest = after;
            if let Some(inside) = after.strip_prefix('{') {
                above.push(path.clone());
                rest = inside;
            }
            continue;
        }
        let (renamed, after) = match rest.trim_start().strip_prefix("as ") {
            Some(after) => {
                let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
                (String::from(&after[..end]), &after[end..])
            }
            None => (given, rest),
        };
        if above.last().is_none_or(|above| path.len() > above.len()) {
            found.push((path, renamed));
        }
        rest = after.trim_start().trim_start_matches('*').trim_start();
        while let Some(after) = rest.strip_prefix('}').filter(|_| !above.is_empty()) {
            above.pop();
            rest = after.trim_start();
        }
        match (above.last(), rest.strip_prefix(',')) {
            (Some(above), Some(after)) => (path, rest) = (above.clone(), after),
            _ => return found,
        }
    }
}

/// The first import that points upward, if there is one, and how many were seen.
fn look_at_imports(sources: &Sources, order: &[&str]) -> (Vec<String>, usize) {
    let rank = |name: &str| order.iter().position(|other| *other == name);
    let (mut wrong, mut arrows) = (Vec::new(), 0);
    for name in sources.texts.keys() {
        for import in sources.imports(name) {
            let file = sources.defined_in(&import);
            if file != *name && file != "lib" {
                arrows += 1;
                if rank(&file) >= rank(name) {
                    wrong.push(format!("{name} imports {}, which is in {file}, below it", import.join("::")));
                }
            }
        }
    }
    (wrong, arrows)
}

#[test]
fn the_order_of_files_is_complete() {
    let there: BTreeSet<String> = files("src", "rs").iter().map(|path| name_in("src", path)).collect();
    let listed: BTreeSet<String> = ORDER.iter().map(|name| (*name).to_string()).collect();
    assert_eq!(there, listed);
}

#[test]
fn a_file_imports_only_from_files_above_it() {
    let (wrong, arrows) = look_at_imports(&Sources::of_this_crate(), ORDER);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(arrows > 1_000, "only {arrows} imports were seen");
}

#[test]
fn an_import_that_points_upward_is_seen_whatever_way_it_takes() {
    let order = ["low", "middle/one", "middle/two", "middle/mod", "high", "lib"];
    let look = |place: &str, line: &str| {
        let texts = [
            ("low", "pub struct Low;"),
            ("middle/one", "pub struct One;"),
            ("middle/two", "pub struct Two;\npub(crate) use super::one::One as First;"),
            (
                "middle/mod",
                "mod one;\nmod two;\npub use self::one::One;\npub use self::two::{\n    First,\n    Two,\n};",
            ),
            ("high", "pub struct High;"),
            ("lib", "pub use self::high::High;\npub use self::low::Low;\npub use self::middle::{First, One, Two};"),
        ];
        let text = |name, text| if name == place { format!("{line}\n{text}") } else { String::from(text) };
        let texts = texts.map(|(name, code)| (String::from(name), text(name, code)));
        look_at_imports(&Sources::new(texts.into()), &order).0
    };
    for (place, line) in [
        ("low", "use crate::High;"),
        ("low", "use crate::{\n    First,\n    high::High as Other,\n};"),
        ("low", "use crate::{First};"),
        ("low", "use crate::middle::{self};"),
        ("low", "use super::high::*;"),
        ("low", "fn f() { let _ = crate::High; }"),
        ("low", "fn f() { crate::One::new() }"),
        ("middle/one", "use super::Two;"),
        ("middle/one", "use super::super::{Low, High};"),
        ("middle/one", "use crate::middle::{two::Two};"),
        ("middle/two", "use crate::high::High;"),
    ] {
        assert_eq!(look(place, line).len(), if line.contains("First,") { 2 } else { 1 }, "{place}: {line}");
    }
    for (place, line) in [
        ("low", "// use crate::High;"),
        ("low", "#[cfg(test)]\nmod tests {\nuse crate::High;\n}"),
        ("middle/one", "use crate::Low;"),
        ("middle/two", "use crate::{First, Low, One};"),
        ("middle/two", "use super::{First, One};"),
        ("high", "use crate::{First, Low, One, Two};\nuse crate::middle;"),
    ] {
        assert_eq!(look(place, line), [""; 0], "{place}: {line}");
    }
}

/// Modules that a user of the library can import from.
const PUBLIC_MODULES: [&str; 11] =
    ["supervisor", "router", "actor", "command", "config", "exit", "names", "observe", "spawn", "sync", "prelude"];

#[test]
fn supervisors_and_actors_use_the_public_contract_only() {
    let sources = Sources::of_this_crate();
    for name in sources
        .texts
        .keys()
        .filter(|name| ["supervisor/", "router/", "actor/"].iter().any(|folder| name.starts_with(folder)))
    {
        for path in sources.imports(name) {
            let is_public = PUBLIC_MODULES.contains(&path[0].as_str()) || path[0].starts_with(char::is_uppercase);
            assert!(is_public, "{name}: {}: only what everybody can use", path.join("::"));
        }
    }
}
