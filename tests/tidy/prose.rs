//! Faults that must not come back in prose: words, sentences, long lines and long names of tests.
//!
//! Files that are still to be rewritten are listed in `still_to_rewrite.txt`, each with the check that it fails. The
//! list may only shrink: a file that has become clean must be taken off it.

use std::collections::BTreeSet;
use std::path::Path;

use super::{files, read, root, rust_files, tests_there_are};

/// The longest line, in characters. It is the width that `rustfmt.toml` gives to code.
const LINE: usize = 120;

/// The longest name of a test, in characters. A longer one states more than one fact.
const TEST_NAME: usize = 70;

/// All documents and all sources, by their paths in the repository.
fn texts() -> Vec<(String, String)> {
    let mut paths = rust_files();
    paths.extend(files("docs", "md"));
    paths.extend(files("benches", "md"));
    paths.extend(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    paths.iter().map(|path| (in_repository(path), read(path))).collect()
}

fn in_repository(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/")
}

/// The files that may still fail each check: lines of a check and a path.
const STILL_TO_REWRITE: &str = include_str!("still_to_rewrite.txt");

/// Fails if an unlisted file has something wrong, or a listed one has nothing wrong any longer.
fn hold(check: &str, wrong: impl Fn(&str, &str) -> Vec<String>) {
    let listed: BTreeSet<&str> =
        STILL_TO_REWRITE.lines().filter_map(|line| line.strip_prefix(check)?.strip_prefix(' ')).collect();
    let (mut found, mut unclean) = (Vec::new(), BTreeSet::new());
    for (name, text) in texts() {
        let wrong = wrong(&name, &text);
        if !listed.contains(name.as_str()) {
            found.extend(wrong.into_iter().map(|wrong| format!("{name}:{wrong}")));
        } else if !wrong.is_empty() {
            unclean.insert(name);
        }
    }
    let clean: Vec<_> = listed.into_iter().filter(|name| !unclean.contains(*name)).collect();
    assert!(clean.is_empty(), "take these off tests/tidy/still_to_rewrite.txt, they pass `{check}`: {clean:#?}");
    assert!(found.is_empty(), "`{check}` fails {} times:\n{}", found.len(), found.join("\n"));
}

/// The text of a line that is prose: a line of a document, or a comment of a source.
fn prose_of(name: &str, line: &str) -> Option<String> {
    let line = line.trim();
    if name.ends_with(".md") {
        return Some(line.into());
    }
    let comment = line.strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim().into())
}

/// The paragraphs of a file's prose with the number of their first line. Fenced code and tables are left out.
fn paragraphs(name: &str, text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let Some(prose) = prose_of(name, line) else {
            (open, fenced) = (false, false);
            continue;
        };
        if prose.starts_with("```") {
            (open, fenced) = (false, !fenced);
        } else if fenced || prose.is_empty() || prose.starts_with('|') {
            open = false;
        } else if open && !starts_item(&prose) {
            let (_, paragraph) = found.last_mut().expect("one is open");
            paragraph.push(' ');
            paragraph.push_str(&prose);
        } else {
            open = !prose.starts_with('#');
            found.push((number + 1, prose));
        }
    }
    found
}

/// Whether a line begins a heading or an entry of a list.
fn starts_item(line: &str) -> bool {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = after_number.len() < line.len() && after_number.starts_with(". ");
    is_numbered || ["- ", "* ", "# ", "## ", "### "].iter().any(|mark| line.starts_with(mark))
}

/// The sentences of a paragraph, each with its full stop.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = paragraph;
    while let Some(end) = [". ", "? ", "! "].iter().filter_map(|end| rest.find(end)).min() {
        found.push(&rest[..=end]);
        rest = rest[end + 1..].trim_start();
    }
    found.push(rest);
    found
}

/// Whether a sentence begins with "Who" or "What" and is no question.
fn is_relative_clause(sentence: &str) -> bool {
    let sentence = sentence.trim_start_matches(|c: char| !c.is_alphanumeric());
    let first = sentence.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    ["Who", "What"].contains(&first) && !sentence.trim_end_matches(['"', ')', '*']).ends_with('?')
}

fn relative_clauses(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, paragraph) in paragraphs(name, text) {
        for sentence in sentences(&paragraph).into_iter().filter(|sentence| is_relative_clause(sentence)) {
            found.push(format!("{number}: {}", sentence.chars().take(60).collect::<String>()));
        }
    }
    found
}

/// Lines over the limit. Fenced code, tables and links of a document, and addresses anywhere, may be longer.
fn long_lines(name: &str, text: &str) -> Vec<String> {
    let is_document = name.ends_with(".md");
    let (mut found, mut fenced) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        fenced ^= is_document && line.trim_start().starts_with("```");
        let may_be_long = is_document && (fenced || line.trim_start().starts_with('|') || line.contains("]("))
            || line.contains("://");
        let length = line.chars().count();
        if length > LINE && !may_be_long {
            found.push(format!("{}: {length} characters", number + 1));
        }
    }
    found
}

/// The word, in two parts, so that this file does not find itself.
fn lines_with_whoever(text: &str) -> Vec<String> {
    let word = ["who", "ever"].concat();
    let lines = text.lines().enumerate().filter(|(_, line)| line.to_lowercase().contains(&word));
    lines.map(|(number, line)| format!("{}: {}", number + 1, line.trim())).collect()
}

#[test]
fn prose_names_its_subjects() {
    hold("whoever", |name, text| if name.starts_with("tests/tidy") { Vec::new() } else { lines_with_whoever(text) });
}

#[test]
fn no_sentence_has_a_relative_clause_as_its_subject() {
    hold("relative-clause", relative_clauses);
}

#[test]
fn lines_are_no_longer_than_the_limit() {
    hold("long-line", long_lines);
}

#[test]
fn names_of_tests_are_no_longer_than_the_limit() {
    let tests = tests_there_are();
    hold("long-test-name", |file, _| {
        let of_file = tests.iter().filter_map(|test| test.strip_prefix(file)?.strip_prefix("::"));
        let mut long: Vec<_> = of_file.filter(|name| name.len() > TEST_NAME).collect();
        long.sort_unstable();
        long.iter().map(|name| format!(" {name} has {} characters", name.len())).collect()
    });
}

#[test]
fn a_relative_clause_as_a_subject_is_seen() {
    let clause = |text: &str| !relative_clauses("a.md", text).is_empty();
    for wrong in
        ["Who asks waits.", "It ends. What it\nleft is lost.", "- What is left", "## 3. Who waits", "*Who* asks."]
    {
        assert!(clause(wrong), "{wrong}");
    }
    for right in
        ["Who asks?", "It says who asks.", "Whole files.", "```text\nWho asks\n```", "| What |", "Ask.\nWhat for?"]
    {
        assert!(!clause(right), "{right}");
    }
    assert!(!relative_clauses("a.rs", "fn f() {}\n    /// It ends. What is left\n    /// is lost.").is_empty());
    assert!(relative_clauses("a.rs", "let what = \"Who asks\";").is_empty());
}

#[test]
fn a_long_line_is_seen() {
    let long = "x".repeat(LINE + 1);
    assert_eq!(long_lines("a.rs", &long).len(), 1);
    assert_eq!(long_lines("a.md", &format!("a\n{long}")), ["2: 121 characters"]);
    for allowed in [format!("| {long} |"), format!("[{long}](x)"), format!("```\n{long}\n```"), "é".repeat(LINE)] {
        assert_eq!(long_lines("a.md", &allowed), [""; 0]);
    }
    assert_eq!(lines_with_whoever(&["a\nW", "hoever"].concat()).len(), 1);
}
