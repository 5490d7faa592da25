//! Programs with durable processes that are killed.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use procession::durable::journal::SqliteJournal;

use crate::crashes::{begin, greet, open, rounds_of};
use crate::places::Directory;
use crate::script::{counts, draw};
use crate::torture::{last_number, lines, number_behind};
use crate::wait::{LIMIT, until, wait};

/// The variable that tells a test program to be the program that is killed. It has the directory of the store.
const STORE: &str = "PROCESSION_KILLED_STORE";

/// The number of processes. Each one greets all of them, also itself. So in a full run they send 10,000 greetings
/// between two acknowledgements.
fn peers() -> u32 {
    counts("processes", 8, 100) as u32
}

/// The program that is killed. Without the variable this is no test.
#[test]
fn child_program() {
    let Some(directory) = std::env::var_os(STORE) else { return };
    let (store, _runtime) = open(SqliteJournal::new(Path::new(&directory)));
    let peers = begin(&store, peers());
    for rounds in 1.. {
        greet(&store, &peers, 1);
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nacknowledged {rounds}").and_then(|()| out.flush()).unwrap();
    }
}

#[test]
fn messages_arrive_once_and_in_order_though_the_program_is_killed() {
    let (kills, least) = (counts("kills", 15, 200), counts("stepped messages", 500, 1_000_000));
    let directory = Directory::new();
    let (mut greeted, mut stepped) = (0, 0);
    for kill in 0..kills {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::child_program", "--nocapture", "--quiet"]).env(STORE, directory.path());
        // A backtrace takes so long that a kill would come before the status of a panic.
        command.env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = lines(&mut child);
        // Some are killed while they open the store.
        let mut acknowledged = 0;
        if draw(5, kill, 1, 4) > 0 {
            let first = std::iter::from_fn(|| lines.recv_timeout(LIMIT).ok());
            acknowledged = first.filter_map(|line| number_behind("acknowledged", &line)).next().unwrap();
        }
        let end = Instant::now() + Duration::from_micros(draw(5, kill, 2, 50_000));
        while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            acknowledged = number_behind("acknowledged", &line).unwrap_or(acknowledged);
        }
        child.kill().unwrap();
        let status = wait(&mut child);
        // A program that has panicked before has another status.
        assert_eq!(status.signal(), Some(9), "kill {kill}: it runs until it is killed: {status}");
        acknowledged = last_number(&mut child, &lines, "acknowledged", &format!("kill {kill}")).unwrap_or(acknowledged);

        let (store, runtime) = open(SqliteJournal::new(directory.path()));
        let peers = begin(&store, peers());
        let mut now = None;
        until("all greetings have arrived", || {
            now = rounds_of(&runtime, &peers);
            now.is_some()
        });
        let now = now.unwrap();
        assert!(
            now >= greeted + acknowledged,
            "{acknowledged} more than {greeted} were acknowledged, and {now} are there"
        );
        greeted = now;
        let counts = store.mail_counts().unwrap();
        stepped = counts.stepped;
        assert_eq!((counts.accepted, counts.dead_letters, counts.queued), (stepped, 0, 0));
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        store.close().unwrap();
    }
    println!("{stepped} messages were stepped across {kills} kills");
    // In a full run 154 programs are killed after their first round. So there are 1,540,000 greetings at least.
    assert!(stepped >= least, "only {stepped} messages were stepped");
}
