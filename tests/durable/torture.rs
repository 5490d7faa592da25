//! Programs that have a store and are killed.
//!
//! The test program starts itself: the test `child_program` is the program that is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use procession::durable::journal::{Journal, JournalError, Opened, Position, SqliteJournal};

use crate::places::Directory;
use crate::script::{Tables, add, commit, counts, draw, read_tables, record};
use crate::wait::{LIMIT, wait};

const SEED: u64 = 23;

/// The variable that tells a test program to be the program that is killed. It has the directory of the store.
const STORE: &str = "PROCESSION_TORTURED_STORE";

/// The variable with the number of records after which the program ends by itself.
const RECORDS: &str = "PROCESSION_TORTURED_RECORDS";

/// How often a program finds the disk full before there is room.
pub(crate) const ROUNDS_WITHOUT_ROOM: u64 = 4;

/// Starts the program. It prints what is acknowledged.
pub(crate) fn start(directory: &Directory, records: Option<u64>, variables: &[(&str, String)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "torture::child_program", "--nocapture", "--quiet"]);
    command.env(STORE, directory.path()).envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(records) = records {
        command.env(RECORDS, records.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The program that is killed. Without the variable this is no test.
#[test]
fn child_program() {
    let Some(directory) = std::env::var_os(STORE) else { return };
    let records = std::env::var(RECORDS).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let mut journal = SqliteJournal::new(Path::new(&directory));
    let mut failures = 0;
    loop {
        match journal.open().and_then(|opened| write(opened, records)) {
            Ok(()) => break,
            Err(error) => {
                failures += 1;
                say(&format!("failed {error:?}"));
                if failures == ROUNDS_WITHOUT_ROOM {
                    // The library that lets calls fail as on a full disk waits for it.
                    let _ = std::fs::write(Path::new(&directory).join("heal"), "there is room");
                }
                assert!(failures < 20 && !matches!(error, JournalError::Damaged(_)), "{error:?}");
            }
        }
    }
    say("done");
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{text}").and_then(|()| out.flush());
}

/// Commits in this thread, and applies in another one.
fn write(opened: Opened, records: u64) -> Result<(), JournalError> {
    let Opened { recovered, mut log, mut tables } = opened;
    say(&format!("opened {}", recovered.last.0));
    let (mut last, mut number) = (recovered.last, recovered.last.0);
    let (orders, to_apply) = channel();
    let (results, applications) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for through in to_apply {
                if results.send(tables.apply(through)).is_err() {
                    break;
                }
            }
        });
        while last.0 < records {
            last = commit(&mut *log, SEED, last, 1 + draw(SEED, number, 70, 20))?;
            say(&format!("acknowledged {}", last.0));
            number += 1;
            if draw(SEED, number, 71, 5) == 0 {
                let _ = orders.send(last);
            }
            // A program that ends by itself makes the same calls in each run.
            let application =
                if records < u64::MAX { applications.try_recv().ok() } else { applications.try_iter().next() };
            if let Some(application) = application {
                log.trim(application?)?;
            }
        }
        drop(orders);
        wait(&applications).map_or(Ok(()), |result| result.map(drop)).and_then(|()| log.trim(last).map(drop))
    })
}

/// The lines that a program prints.
pub(crate) fn lines(child: &mut Child) -> Receiver<String> {
    let (to, lines) = channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
    lines
}

/// Reads the lines of a program until it ends, and returns the last number behind a word. Fails if the program does not
/// end within the limit.
#[track_caller]
pub(crate) fn last_number(child: &mut Child, lines: &Receiver<String>, word: &str, what: &str) -> Option<u64> {
    let (end, mut last) = (Instant::now() + LIMIT, None);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            // A program that goes on and on has no end either.
            Ok(line) if !left.is_zero() => last = number_behind(word, &line).or(last),
            Err(RecvTimeoutError::Disconnected) => return last,
            _ => {
                // It would outlive this test.
                let _ = child.kill();
                panic!("{what}: the program has not ended within {LIMIT:?}");
            }
        }
    }
}

/// The number that a line says after a word.
pub(crate) fn number_behind(word: &str, line: &str) -> Option<u64> {
    line.strip_prefix(word)?.strip_prefix(' ')?.parse().ok()
}

/// The tables after a growing number of records.
#[derive(Default)]
pub(crate) struct Model {
    last: u64,
    tables: Tables,
}

impl Model {
    /// Checks a store after its program has ended. Returns its last record.
    #[track_caller]
    pub(crate) fn check(&mut self, directory: &Directory, acknowledged: u64) -> Position {
        let mut opened = SqliteJournal::new(directory.path()).open().unwrap();
        let last = opened.recovered.last;
        assert!(last.0 >= acknowledged, "{acknowledged} were acknowledged, and {} are there", last.0);
        (self.last + 1..=last.0).for_each(|position| add(&mut self.tables, record(SEED, position)));
        self.last = last.0;
        opened.tables.apply(last).unwrap();
        assert_eq!(read_tables(&mut *opened.tables.reader().unwrap()).unwrap(), self.tables);
        last
    }
}

#[test]
fn a_program_that_is_killed_at_any_instant_loses_nothing_acknowledged() {
    let kills = counts("kills", 25, 2_000);
    let directory = Directory::new();
    let mut model = Model::default();
    let mut acknowledged = 0;
    for kill in 0..kills {
        let mut child = start(&directory, None, &[]);
        let lines = lines(&mut child);
        let opened =
            std::iter::from_fn(|| lines.recv_timeout(LIMIT).ok()).find_map(|line| number_behind("opened", &line));
        assert_eq!(opened, Some(model.last), "it opens at once, with what was there");
        let end = Instant::now() + Duration::from_micros(draw(SEED, kill, 72, 50_000));
        loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => acknowledged = number_behind("acknowledged", &line).unwrap_or(acknowledged),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => panic!("it runs until it is killed"),
            }
        }
        child.kill().unwrap();
        wait(&mut child);
        for line in lines {
            acknowledged = number_behind("acknowledged", &line).unwrap_or(acknowledged);
        }
        model.check(&directory, acknowledged);
    }
    println!("{kills} kills, {acknowledged} records");
    assert!(acknowledged > kills);
}

#[test]
fn a_store_of_another_program_is_refused_with_its_number() {
    let directory = Directory::new();
    let mut child = start(&directory, None, &[]);
    let lines = lines(&mut child);
    std::iter::from_fn(|| lines.recv_timeout(LIMIT).ok()).find(|line| line.starts_with("acknowledged")).unwrap();
    let error = SqliteJournal::new(directory.path()).open().unwrap_err();
    assert!(matches!(error, JournalError::InUse { holder: Some(id) } if id == child.id()), "{error}");
    child.kill().unwrap();
    wait(&mut child);
    SqliteJournal::new(directory.path()).open().expect("it opens at once");
}
