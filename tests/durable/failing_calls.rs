//! Calls of the operating system that fail, or in front of which the program is killed.
//!
//! A library in C, which the program is started with, stands between SQLite and the system. The compiler that builds
//! SQLite builds it.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::places::Directory;
use crate::script::counts;
use crate::torture::{Model, ROUNDS_WITHOUT_ROOM, lines, number_behind, start};
use crate::wait::{LIMIT, wait};

/// How many records the program writes.
const RECORDS: u64 = 120;

/// Builds the library in a directory.
pub(crate) fn library(directory: &Directory) -> PathBuf {
    std::fs::create_dir_all(directory.path()).unwrap();
    let library = directory.path().join("failing_calls.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/durable/failing_calls.c");
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let mut build = Command::new(compiler);
    build.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args([source, "-ldl"]);
    assert!(build.status().expect("there is a C compiler").success());
    library
}

/// A program whose calls fail.
struct Run {
    status: ExitStatus,
    /// The call that has failed first, and its file. `None` if the program did not come to it.
    failed: Option<(String, String)>,
    /// The last record that the program was told to be on disk.
    acknowledged: u64,
    /// The errors of the journal.
    errors: Vec<String>,
    /// The output of the library.
    text: String,
}

impl Run {
    fn is_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Whether the program must have met the error of the first call that has failed.
    ///
    /// The number in the lock file is for the eyes of people. SQLite ignores a failed sync of the directory.
    fn must_show(&self) -> bool {
        self.failed.as_ref().is_some_and(|(_, file)| file != "/lock" && !file.is_empty())
    }
}

fn run(store: &Directory, library: &Path, how: &str, at: u64, count: u64, disk: Option<&Directory>) -> Run {
    let path = |directory: &Directory| directory.path().to_string_lossy().into_owned();
    let variables = [
        ("LD_PRELOAD", library.to_string_lossy().into_owned()),
        ("PROCESSION_FAILING_IN", path(store)),
        ("PROCESSION_FAILING_HOW", how.into()),
        ("PROCESSION_FAILING_AT", at.to_string()),
        ("PROCESSION_FAILING_FOR", count.to_string()),
        ("PROCESSION_FAILING_DISK", disk.map_or(String::new(), path)),
    ];
    let mut child = start(store, Some(RECORDS), &variables);
    let lines = lines(&mut child);
    let (mut acknowledged, mut errors) = (0, Vec::new());
    while let Ok(line) = lines.recv_timeout(LIMIT) {
        // An opening acknowledges what it finds.
        let number = number_behind("acknowledged", &line).or(number_behind("opened", &line));
        assert!(number.is_none_or(|number| number >= acknowledged), "{line} behind {acknowledged}: {errors:?}");
        acknowledged = number.unwrap_or(acknowledged);
        errors.extend(line.strip_prefix("failed ").map(String::from));
    }
    let status = wait(&mut child);
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    let failed = text.lines().find_map(|line| line.strip_prefix("a call fails: ")?.split_once(' '));
    let failed = failed.map(|(call, file)| (call.into(), file.into()));
    let run = Run { status, failed, acknowledged, errors, text };
    assert!(run.status.success() || run.is_killed(), "{how} at {at}: {:?} {}", run.errors, run.text);
    run
}

/// Lets calls fail, from each call on, and checks the store each time.
fn at_each_call(how: &str, count: u64, check: impl Fn(&Run)) {
    let tools = Directory::new();
    let library = library(&tools);
    // The calls that open a store are those of every run. Later ones resemble each other.
    let step = counts("calls for each one that fails", 9, 1);
    let mut at = 0;
    loop {
        let store = Directory::new();
        let run = run(&store, &library, how, at, count, None);
        if run.failed.is_none() {
            assert!(at > 60, "only {at} calls");
            break;
        }
        check(&run);
        let last = Model::default().check(&store, run.acknowledged);
        assert!(how == "kill" || last.0 >= RECORDS, "it goes on");
        at += step;
    }
    println!("{how}: {at} calls");
}

#[test]
fn a_kill_at_each_call_loses_nothing_acknowledged() {
    at_each_call("kill", 1, |run| assert!(run.is_killed() && run.errors.is_empty(), "{:?}", run.errors));
}

#[test]
fn an_error_of_each_call_loses_nothing_acknowledged() {
    at_each_call("error", 1, |run| {
        let errors = &run.errors;
        assert!(errors.iter().all(|error| error.starts_with("Io")), "{:?}: {errors:?}", run.failed);
        assert!(errors.len() == 1 || errors.is_empty() && !run.must_show(), "{:?}: {errors:?}", run.failed);
    });
}

#[test]
fn an_error_that_lasts_for_some_calls_loses_nothing_acknowledged() {
    at_each_call("torn", 8, |run| {
        let errors = &run.errors;
        assert!(errors.iter().all(|error| error.starts_with("Io")), "{:?}: {errors:?}", run.failed);
        assert!(!errors.is_empty() || !run.must_show(), "{:?}", run.failed);
    });
}

/// Each write fails, also one of the shared memory of SQLite, and each sync. The system may say it there, too.
#[test]
fn a_full_disk_is_an_error_of_its_own() {
    at_each_call("full", 0, |run| {
        let (errors, is_last) = (&run.errors, run.acknowledged == RECORDS);
        assert!(errors.iter().all(|error| error == "Full"), "{:?}: {errors:?}", run.failed);
        assert!(
            errors.len() as u64 == ROUNDS_WITHOUT_ROOM || is_last && errors.is_empty(),
            "{:?}: {errors:?}",
            run.failed
        );
    });
}

/// The system takes the bytes of a failed sync for written, but a loss of power takes them. Also while the journal is
/// opened anew, and after that.
#[test]
fn a_loss_of_power_after_a_failed_sync_loses_nothing_acknowledged() {
    let tools = Directory::new();
    let library = library(&tools);
    let step = counts("calls for each one that is the last after a failed sync", 13, 1);
    let (mut sync, mut losses) = (0, 0);
    loop {
        let (mut call, mut is_reached) = (1 + sync % step, false);
        // An opening makes fewer calls.
        while call < 60 {
            let (store, disk) = (Directory::new(), Directory::new());
            std::fs::create_dir_all(disk.path()).unwrap();
            let run = run(&store, &library, "power", sync, call, Some(&disk));
            is_reached |= run.text.contains("a call fails");
            if !run.is_killed() {
                break;
            }
            losses += 1;
            println!("sync {sync}, call {call}: {:?}", run.errors);
            Model::default().check(&disk, run.acknowledged);
            call += step;
        }
        if !is_reached {
            break;
        }
        sync += 1;
    }
    println!("{sync} syncs, {losses} losses of power");
    assert!(sync > 20 && losses > sync, "{sync} syncs, {losses} losses");
}

/// A kill does not show whether a batch was synced, because the system has its bytes.
#[test]
fn a_batch_is_synced_before_it_is_acknowledged() {
    let (tools, store) = (Directory::new(), Directory::new());
    let run = run(&store, &library(&tools), "trace", 0, 0, None);
    let (mut synced, mut acknowledged, mut trimmed) = (false, 0, false);
    for line in run.text.lines() {
        match line.split_once(' ') {
            Some((call, "/log.db-wal")) => synced = call == "fsync" || call == "fdatasync",
            Some((_, "/tables.db-wal")) => trimmed = true,
            Some(("acknowledged", _)) => {
                assert!(synced, "{}", run.text);
                (synced, acknowledged) = (false, acknowledged + 1);
            }
            _ => {}
        }
    }
    assert!(acknowledged > 5 && trimmed, "{acknowledged} batches: {}", run.text);
}
