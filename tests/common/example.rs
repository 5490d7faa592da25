//! The examples as programs, and signals to programs.

// No suite uses all of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

use crate::wait::wait;

/// An example as a program, which is built when it is first used.
pub(crate) struct Example {
    name: &'static str,
    path: OnceLock<PathBuf>,
}

impl Example {
    pub(crate) const fn new(name: &'static str) -> Example {
        Example { name, path: OnceLock::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.get_or_init(|| built(self.name))
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(self.path())
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, options: &[&str]) -> Output {
        self.command().args(options).output().expect("the example can be started")
    }

    /// Starts it. Its output is for the test.
    pub(crate) fn start(&self, options: &[&str]) -> Running {
        let mut command = self.command();
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example can be started");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        Running { child, out, errors }
    }

    /// Asserts that it explains each of these options, of which the first word is wrong, and ends with code 2.
    #[track_caller]
    pub(crate) fn assert_explains(&self, all: &[&[&str]]) {
        for bad in all {
            let output = self.run(bad);
            assert_eq!(output.status.code(), Some(2), "{bad:?}");
            assert!(output.stdout.is_empty());
            let problems = String::from_utf8_lossy(&output.stderr);
            assert!(problems.contains(bad[0]) && problems.contains("usage:"), "{bad:?}: {problems}");
        }
    }
}

/// A program that runs.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: BufReader<ChildStdout>,
    pub(crate) errors: BufReader<ChildStderr>,
}

/// The end of a program, and the output that the test had not read before.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Running {
    /// Kills the program. On Unix no code of it runs any more.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        wait(&mut self.child);
    }

    /// Interrupts the program as Ctrl-C does, and waits for its end.
    pub(crate) fn interrupt(mut self) -> Ended {
        signal(&self.child, "INT");
        let (mut out, mut errors) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("text");
        self.errors.read_to_string(&mut errors).expect("text");
        Ended { code: wait(&mut self.child).code(), out, errors }
    }
}

/// The next line of an output, with its end.
pub(crate) fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("text");
    line
}

/// Sends a signal, as `INT`, to a program.
#[track_caller]
pub(crate) fn signal(child: &Child, signal: &str) {
    // By the shell, because the standard library has no function for it.
    let told = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status();
    assert!(told.is_ok_and(|status| status.success()));
}

/// The program of an example, as it is in the sources now. Cargo does not make it for a test: of an example with
/// `test = true` it makes the unit tests only. So it is asked to here, which costs nothing if all is fresh.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile_folder = test.parent().and_then(|deps| deps.parent()).expect("a test is in `PROFILE/deps`");
    let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "test",
        Some(other) => other,
    };
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--example", name, "--profile", profile]);
    // The same features as the test's, so that the library is built once.
    let features = [
        ("signals", cfg!(feature = "signals")),
        ("stream", cfg!(feature = "stream")),
        ("serde", cfg!(feature = "serde")),
        ("durable", cfg!(feature = "durable")),
        ("sqlite", cfg!(feature = "sqlite")),
        ("cluster", cfg!(feature = "cluster")),
        ("zenoh", cfg!(feature = "zenoh")),
    ];
    for (feature, _) in features.iter().filter(|(_, is_on)| *is_on) {
        build.args(["--features", feature]);
    }
    // The same folder as the test's, so that what is made already is used: `TARGET/PROFILE`, or `TARGET/TRIPLE/PROFILE`
    // where a target was named.
    let folder = profile_folder.parent().expect("a profile's folder is in a target's");
    let name_of_folder = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match folder.parent().filter(|_| name_of_folder.starts_with(&format!("{}-", std::env::consts::ARCH))) {
        Some(above) => build.arg("--target-dir").arg(above).args(["--target", name_of_folder]),
        None => build.arg("--target-dir").arg(folder),
    };
    let status = build.status().expect("cargo can be started");
    assert!(status.success(), "the example {name} cannot be built");
    profile_folder.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}
