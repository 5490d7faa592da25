//! The types that the glossary names exist.

use super::{files, read, root};

/// Whether a line declares something public with one of these keywords and this name.
fn declares(line: &str, keywords: &[&str], name: &str) -> bool {
    let Some((_, line)) = line.split_once("pub ").filter(|(before, _)| before.bytes().all(|byte| byte == b' ')) else {
        return false;
    };
    keywords.iter().any(|keyword| {
        let rest = line.strip_prefix(keyword).and_then(|rest| rest.strip_prefix(' ')?.strip_prefix(name));
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    })
}

/// The lines of a declaration and of the `impl` blocks of a type, in all files.
fn lines_of<'a>(texts: &'a [String], name: &str) -> Vec<&'a str> {
    let is_of_type = |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
    let is_head =
        |line: &str| declares(line, &["struct", "enum", "trait"], name) || line.starts_with("impl") && is_of_type(line);
    let mut found = Vec::new();
    for text in texts {
        let mut inside = false;
        for line in text.lines() {
            inside = is_head(line) || inside && !line.starts_with('}');
            if inside {
                found.push(line);
            }
        }
    }
    found
}

/// Whether the sources have what a glossary names: `Type`, `Type::Variant` or `Type::method()`.
fn exists(texts: &[String], named: &str) -> bool {
    let (name, member) = named.split_once("::").map_or((named, None), |(name, member)| (name, Some(member)));
    let keywords = ["struct", "enum", "trait", "type", "mod"];
    let is_declared = || texts.iter().flat_map(|text| text.lines()).any(|line| declares(line, &keywords, name));
    let is_member = |line: &&str, member: &str| {
        let line = line.trim_start();
        match member.strip_suffix("()") {
            // A method of a trait has no `pub`.
            Some(method) => {
                let line = line.strip_prefix("pub ").unwrap_or(line);
                let rest = line.strip_prefix("fn ").and_then(|rest| rest.strip_prefix(method));
                rest.is_some_and(|rest| rest.starts_with(['(', '<']))
            }
            None => line.strip_prefix(member).is_some_and(|rest| rest.starts_with([',', '(', ' '])),
        }
    };
    match member {
        None => is_declared(),
        Some(member) => is_declared() && lines_of(texts, name).iter().any(|line| is_member(line, member)),
    }
}

/// The names in the column "type" of the glossary, each with the term of its line.
fn named(glossary: &str) -> Vec<(&str, &str)> {
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells.flat_map(|row| row[3].split('`').skip(1).step_by(2).map(move |name| (row[1], name))).collect()
}

#[test]
fn the_types_of_the_glossary_exist() {
    let sources: Vec<String> = files("src", "rs").iter().map(|path| read(path)).collect();
    let glossary = read(&root().join("docs/glossary.md"));
    let named = named(&glossary);
    assert!(named.len() > 80, "only {} types are named", named.len());
    let missing: Vec<_> = named.iter().filter(|(_, name)| !exists(&sources, name)).collect();
    assert!(missing.is_empty(), "docs/glossary.md names what is not in src: {missing:?}");
}

#[test]
fn each_line_of_the_glossary_has_all_columns() {
    let glossary = read(&root().join("docs/glossary.md"));
    for line in glossary.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(line.split('|').count(), 9, "{line}");
    }
}

#[test]
fn a_type_that_does_not_exist_is_seen() {
    let text = "pub struct Step<T> {\n}\npub enum Exit {\n    Done(u8),\n}\n\
                impl Step<u8> {\n    pub fn go(&self) {}\n}\n\
                pub(crate) struct Hidden;\npub trait Process {\n    fn step(&mut self);\n}\n\
                impl Other {\n    pub fn ask() {}\n}";
    let texts = [String::from(text)];
    for there in ["Step", "Exit::Done", "Step::go()", "Process::step()"] {
        assert!(exists(&texts, there), "{there}");
    }
    for missing in ["Ste", "Hidden", "Other", "Exit::Failed", "Step::ask()", "Process::go()", "Step::Done"] {
        assert!(!exists(&texts, missing), "{missing}");
    }
    let table = "| term | meaning | type |\n|---|---|---|\n| a | b | `C`, `D::e()` | `F` |";
    assert_eq!(named(table), [("a", "C"), ("a", "D::e()")]);
}
