//! The pages of the guide: each is a module of the documentation, and its links work in both places.

use std::collections::BTreeSet;

use super::{files, name_in, read, root};

/// The definitions of links in a text: the label, and where it leads.
fn definitions(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    lines.map(|(label, to)| (label, to.trim())).collect()
}

/// The links of a page that name a file in the text. They lead nowhere in the documentation of the crate.
fn inline_links(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|to| to.ends_with(".md") || to.contains(".md#")).collect()
}

/// The wrong links of a page. `modules` are the links to modules that `src/guide/links.md` defines.
fn wrong_links(text: &str, modules: &BTreeSet<&str>) -> Vec<String> {
    let inline = inline_links(text).into_iter().map(|to| format!("a link to {to} in the text"));
    let wrong = definitions(text).into_iter().filter(|(label, to)| *to != format!("{label}.md"));
    let unknown = definitions(text).into_iter().filter(|(label, _)| !modules.contains(label));
    let wrong = wrong.map(|(label, to)| format!("[{label}] leads to {to}"));
    let unknown = unknown.map(|(label, _)| format!("[{label}] is not in src/guide/links.md"));
    let used = |label: &str| text.contains(&format!("[{label}]\n")) || text.matches(&format!("[{label}]")).count() > 1;
    let unused = definitions(text).into_iter().filter(|(label, _)| !used(label));
    inline.chain(wrong).chain(unknown).chain(unused.map(|(label, _)| format!("[{label}] is not used"))).collect()
}

#[test]
fn each_page_of_the_guide_is_a_module_and_is_in_its_list() {
    let (modules, list) = (read(&root().join("src/guide.rs")), read(&root().join("docs/guide/README.md")));
    let links = read(&root().join("src/guide/links.md"));
    let mut pages = BTreeSet::new();
    for path in files("docs/guide", "md") {
        let page = name_in("docs/guide", &path);
        let include = format!("include_str!(\"../docs/guide/{page}.md\")");
        assert!(modules.contains(&include), "src/guide.rs does not have the page {page}");
        if page != "README" {
            assert!(list.contains(&format!("][{page}]")), "docs/guide/README.md does not list the page {page}");
            pages.insert(page);
        }
    }
    let defined: BTreeSet<String> = definitions(&links).iter().map(|(label, _)| (*label).into()).collect();
    assert_eq!(defined, pages, "the links of src/guide/links.md are not the pages");
}

#[test]
fn the_links_of_the_guide_work_as_files_and_as_modules() {
    let links = read(&root().join("src/guide/links.md"));
    let modules = definitions(&links).into_iter().map(|(label, _)| label).collect();
    for path in files("docs/guide", "md") {
        let wrong = wrong_links(&read(&path), &modules);
        assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
    }
}

#[test]
fn a_wrong_link_of_a_page_is_seen() {
    let modules = BTreeSet::from(["time", "tasks"]);
    assert_eq!(
        wrong_links("See [time], [the\ntasks][tasks].\n\n[time]: time.md\n[tasks]: tasks.md\n", &modules),
        [""; 0]
    );
    for wrong in ["See [time](time.md).", "[time]\n\n[time]: tasks.md", "[x]\n\n[x]: x.md", "[time]: time.md"] {
        assert_eq!(wrong_links(wrong, &modules).len(), 1, "{wrong}");
    }
}
