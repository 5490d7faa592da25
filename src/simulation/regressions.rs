//! Regression files: the seeds that have failed once. They are tried first in each later run of a check.
//!
//! A check has one file, `simulation-regressions/NAME.txt`, and each line is one failure: the seed with its tape, the
//! check that failed, and the version of the crate.
//!
//! ```text
//! 4711:16111...zj4 "money is conserved" 0.1.0
//! ```
//!
//! The file belongs into version control, so it may be edited and merged. Empty lines and lines that begin with `#` are
//! passed over. Tests in several threads and programs may write to one file at once: each takes the lock of the file,
//! and adds whole lines.

use std::fmt;
use std::fs::{File, OpenOptions, create_dir_all, read};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::replay_seed::ReplaySeed;

/// The folder of the files, in the folder of the package.
pub(crate) const FOLDER: &str = "simulation-regressions";

/// The beginning of a new file.
const HEAD: &str = "\
# Seeds with which this simulation has failed. They are tried first. Keep this file in version control.
# Each line has a seed, the check that failed, and the version of the crate.
";

/// A failure that is known from an earlier run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regression {
    pub(crate) seed: ReplaySeed,
    pub(crate) check: String,
    pub(crate) version: String,
}

/// The error when a regression file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegressionsError {
    #[error("cannot {action} the regression file {path:?}: {error}")]
    Io { action: &'static str, path: PathBuf, error: std::io::Error },
    #[error("line {line} of the regression file {path:?} cannot be read: {reason}; repair the line, or remove it")]
    Line { path: PathBuf, line: usize, reason: String },
}

/// The regression file of one check.
#[derive(Clone, Debug)]
pub(crate) struct Regressions {
    path: PathBuf,
    entries: Vec<Regression>,
}

impl Regressions {
    /// Reads the file of the check with this name, in the folder of a package. No file stands for no failures.
    pub(crate) fn load(package: &Path, name: &str) -> Result<Regressions, RegressionsError> {
        let path = package.join(FOLDER).join(file_name(name));
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(RegressionsError::Io { action: "read", path, error }),
        };
        let entries = parse(&path, &text)?;
        Ok(Regressions { path, entries })
    }

    /// The failures in the order of the file, each once.
    pub(crate) fn entries(&self) -> &[Regression] {
        &self.entries
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a failure to the file, unless the file has a line with its seed. Returns whether it was added.
    pub(crate) fn add(&mut self, regression: Regression) -> Result<bool, RegressionsError> {
        let io = |action, error| RegressionsError::Io { action, path: self.path.clone(), error };
        if let Some(folder) = self.path.parent() {
            create_dir_all(folder).map_err(|error| io("create the folder of", error))?;
        }
        let open = || OpenOptions::new().read(true).append(true).create(true).open(&self.path);
        let mut file = open().map_err(|error| io("open", error))?;
        // The lock is released when the file is closed. Where there is no such lock, lines are still added whole.
        match file.lock() {
            Err(error) if error.kind() != ErrorKind::Unsupported => return Err(io("lock", error)),
            _ => {}
        }
        let text = whole_text(&mut file).map_err(|error| io("read", error))?;
        // Others may have added to it since it was read.
        let mut entries = parse(&self.path, &text)?;
        let is_new = entries.iter().all(|one| one.seed != regression.seed);
        if is_new {
            let head = if text.is_empty() { HEAD } else { "" };
            let end = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
            let added = format!("{end}{head}{regression}\n");
            file.write_all(added.as_bytes()).map_err(|error| io("write to", error))?;
            entries.push(regression);
        }
        self.entries = entries;
        Ok(is_new)
    }

    /// Returns the line that says that a failure of the file has not happened again.
    pub(crate) fn passes_again(&self, regression: &Regression) -> String {
        let Regression { seed, check, version } = regression;
        format!(
            "seed {seed} of {} passes again: {check:?} failed with it in version {version}; if the fault is repaired, \
             the line can stay or go",
            self.path.display()
        )
    }
}

fn whole_text(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// Returns the name of the file for a check. All file systems allow it. Different names have different files, unless
/// they differ in case alone and the file system does not tell them apart.
///
/// A path of modules has dots: `bank::tests::sum` is `bank.tests.sum.txt`.
fn file_name(name: &str) -> String {
    let mut file = String::new();
    for (number, module) in name.split("::").enumerate() {
        file.push_str(if number == 0 { "" } else { "." });
        for byte in module.bytes() {
            if byte.is_ascii_alphanumeric() || b"_-".contains(&byte) {
                file.push(char::from(byte));
            } else {
                file.push_str(&format!("%{byte:02x}"));
            }
        }
    }
    file + ".txt"
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"", self.seed)?;
        for character in self.check.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                _ => write!(f, "{character}")?,
            }
        }
        write!(f, "\" {}", self.version)
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<Vec<Regression>, RegressionsError> {
    let mut entries: Vec<Regression> = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |reason| RegressionsError::Line { path: path.into(), line: number + 1, reason };
        let line = str::from_utf8(line).map_err(|_| wrong("it is not UTF-8".into()))?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = parse_line(line).map_err(wrong)?;
        // A merge of two branches may bring the same line twice.
        if entries.iter().all(|one| one.seed != entry.seed) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn parse_line(line: &str) -> Result<Regression, String> {
    let expected = || format!("expected a seed, a check in quotes and a version, found {line:?}");
    let (seed, rest) = line.split_once(' ').ok_or_else(expected)?;
    let seed = seed.parse().map_err(|error: super::replay_seed::ReplaySeedError| error.to_string())?;
    let mut rest = rest.trim_start().strip_prefix('"').ok_or_else(expected)?.chars();
    let mut check = String::new();
    loop {
        match rest.next().ok_or_else(expected)? {
            '"' => break,
            '\\' => check.push(match rest.next().ok_or_else(expected)? {
                'n' => '\n',
                'r' => '\r',
                character => character,
            }),
            character => check.push(character),
        }
    }
    let version = rest.as_str().trim();
    if version.is_empty() || version.contains(char::is_whitespace) {
        return Err(expected());
    }
    Ok(Regression { seed, check, version: version.into() })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait::wait;
    use std::collections::BTreeSet;
    use std::fs;
    use std::sync::mpsc;

    /// A folder for one test, which is removed at its end.
    struct Package(PathBuf);

    impl Package {
        fn new(test: &str) -> Package {
            let path = std::env::temp_dir().join(format!("procession-regressions-{}-{test}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Package(path)
        }

        fn load(&self) -> Result<Regressions, RegressionsError> {
            Regressions::load(&self.0, "a::b")
        }

        fn write(&self, text: &[u8]) {
            fs::create_dir_all(self.0.join(FOLDER)).unwrap();
            fs::write(self.0.join(FOLDER).join("a.b.txt"), text).unwrap();
        }

        fn text(&self) -> String {
            fs::read_to_string(self.0.join(FOLDER).join("a.b.txt")).unwrap()
        }
    }

    impl Drop for Package {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn failure(seed: u64, check: &str) -> Regression {
        let seed = ReplaySeed { seed, tape: None };
        Regression { seed, check: check.into(), version: String::from("0.1.0") }
    }

    #[test]
    fn a_failure_is_kept_once_and_read_again() {
        let package = Package::new("kept");
        let mut file = package.load().unwrap();
        assert!(file.entries().is_empty());
        assert!(!file.path().exists(), "a check that passes leaves no file");
        let all = [failure(7, "money is conserved"), failure(3, "a \"b\" \\ c\nd\r # e"), failure(9, "")];
        for one in &all {
            assert!(file.add(one.clone()).unwrap());
            assert!(!file.add(one.clone()).unwrap());
        }
        assert_eq!(file.entries(), all);
        assert_eq!(package.load().unwrap().entries(), all);
        assert!(
            package.text().ends_with(
                "\n7 \"money is conserved\" 0.1.0\n3 \"a \\\"b\\\" \\\\ c\\nd\\r # e\" 0.1.0\n9 \"\" 0.1.0\n"
            )
        );
        let said = file.passes_again(&all[0]);
        assert!(
            said.starts_with("seed 7 of ") && said.contains("a.b.txt passes again: \"money is conserved\""),
            "{said}"
        );
    }

    #[test]
    fn a_file_may_be_edited_and_merged() {
        let package = Package::new("edited");
        package.write("# A remark.\r\n\r\n  7   \"a\"   0.1.0  \r\n7 \"a\" 0.1.0\n\n8 \"b\" 0.2.0-rc.1".as_bytes());
        let mut file = package.load().unwrap();
        assert_eq!(file.entries().iter().map(|one| one.seed.seed).collect::<Vec<_>>(), [7, 8]);
        // The last line has no end.
        file.add(failure(9, "c")).unwrap();
        assert!(package.text().ends_with("8 \"b\" 0.2.0-rc.1\n9 \"c\" 0.1.0\n"));
    }

    #[test]
    fn a_bad_file_is_an_error_that_names_the_line() {
        let package = Package::new("bad");
        for (line, reason) in [
            (&b"x \"a\" 0.1.0"[..], "\"x\" is not a seed"),
            (b"7:zzzzzz \"a\" 0.1.0", "its checksum differs"),
            (b"7", "expected a seed, a check in quotes and a version, found \"7\""),
            (b"7 a 0.1.0", "expected a seed, a check in quotes"),
            (b"7 \"a 0.1.0", "expected a seed, a check in quotes"),
            (b"7 \"a\\", "expected a seed, a check in quotes"),
            (b"7 \"a\"", "expected a seed, a check in quotes"),
            (b"<<<<<<< HEAD", "is not a seed"),
            (b"7 \"\xff\" 0.1.0", "it is not UTF-8"),
        ] {
            package.write(&[b"# Head.\n1 \"a\" 0.1.0\n", line, b"\n2 \"a\" 0.1.0\n"].concat());
            let before = fs::read(package.0.join(FOLDER).join("a.b.txt")).unwrap();
            let error = package.load().unwrap_err().to_string();
            assert!(error.starts_with("line 3 of the regression file "), "{error}");
            assert!(error.contains(reason) && error.ends_with("repair the line, or remove it"), "{error}");
            let mut file = Regressions { path: package.0.join(FOLDER).join("a.b.txt"), entries: Vec::new() };
            assert!(file.add(failure(5, "x")).is_err());
            assert_eq!(fs::read(file.path()).unwrap(), before, "nothing is added to a file that cannot be read");
        }
        let folder = Package::new("folder");
        fs::create_dir_all(folder.0.join(FOLDER).join("a.b.txt")).unwrap();
        assert!(folder.load().unwrap_err().to_string().starts_with("cannot read the regression file "));
    }

    /// Eight threads with a file each of their own handle add 25 failures each, half of them the same.
    #[test]
    fn tests_that_run_at_once_write_whole_lines() {
        let package = Package::new("threads");
        let (done, all_done) = mpsc::channel();
        for thread in 0..8 {
            let (folder, done) = (package.0.clone(), done.clone());
            std::thread::spawn(move || {
                let mut file = Regressions::load(&folder, "a::b").unwrap();
                for number in 0..25 {
                    let seed = if number % 2 == 0 { number } else { 1_000 * (thread + 1) + number };
                    file.add(failure(seed, &"long ".repeat(50))).unwrap();
                }
                done.send(()).unwrap();
            });
        }
        (0..8).for_each(|_| wait(&all_done).unwrap());
        let file = package.load().unwrap();
        let seeds: BTreeSet<u64> = file.entries().iter().map(|one| one.seed.seed).collect();
        assert_eq!((seeds.len(), file.entries().len()), (13 + 8 * 12, 13 + 8 * 12));
        assert_eq!(package.text().lines().count(), 2 + 13 + 8 * 12);
    }

    #[test]
    fn each_name_has_a_file_of_its_own() {
        assert_eq!(file_name("bank::tests::the_sum-1"), "bank.tests.the_sum-1.txt");
        assert_eq!(file_name("../../etc/x y"), "%2e%2e%2f%2e%2e%2fetc%2fx%20y.txt");
        let names = ["a::b", "a.b", "a:b", "a::::b", "a%b", "a%25b", "ab", "a/b", "ä", ""];
        let files: BTreeSet<_> = names.iter().map(|name| file_name(name)).collect();
        assert_eq!(files.len(), names.len());
    }
}
