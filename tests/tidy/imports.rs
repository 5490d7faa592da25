//! The order of the files of `src`, and the direction of their imports.

use std::collections::{BTreeMap, BTreeSet};

use super::order::ORDER;
use super::{files, name_in, read};

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
