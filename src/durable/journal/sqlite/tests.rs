//! Tests of the SQLite journal that need its parts.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;

use super::checkpoints::Checkpoints;
use super::connection::{Guarded, Held, checkpoint, open, open_reader};
use super::lock_file::LockFile;
use super::tables::{SqliteTables, TABLES, read_mark};
use super::{SqliteJournal, log};
use crate::clock::Clock;
use crate::durable::journal::{
    Batch, COUNTS, Change, EncodedRecord, EntryCounts, EntryRow, Journal, JournalError, MESSAGES, NameRow, Position,
    ProcessRow, Record, Status, StoredProcess, Tables,
};
use crate::primitives::{Arc, AtomicU64, Ordering};
use crate::wait::wait;

/// A directory of its own, which is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("procession-sqlite-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn held(directory: &Directory) -> Arc<Held> {
    Arc::new(Held::new(LockFile::lock(&directory.file("lock")).unwrap()))
}

/// Locks a file as another program does that writes it.
fn locked(file: &Path) -> Connection {
    let outside = Connection::open(file).unwrap();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    outside
}

/// The journal is opened anew while a transaction waits for the lock of the file.
#[test]
fn a_transaction_of_an_earlier_opening_is_refused_when_it_gets_the_lock() {
    let directory = Directory::new();
    let (held, path) = (held(&directory), directory.file("tables.db"));
    let opening = held.begin_opening();
    let mut connection = open(&path, TABLES).unwrap();
    let (outside, opens) = (locked(&path), held.clone());
    let waits = move |_| {
        opens.begin_opening();
        outside.execute_batch("COMMIT").unwrap();
        true
    };
    connection.busy_handler(Some(waits)).unwrap();
    let mut file = Guarded::new(connection, opening, &held);
    let result: Result<(), _> = file.write("a test", |_| panic!("it has the lock of a later opening"));
    assert!(matches!(result, Err(JournalError::Broken)), "{result:?}");
}

/// The next opening may have trimmed the log that the part reads. That is no damage.
#[test]
fn an_error_of_an_earlier_opening_says_that_the_part_is_broken() {
    let directory = Directory::new();
    let held = held(&directory);
    let opening = held.begin_opening();
    let mut file = Guarded::new(open(&directory.file("tables.db"), TABLES).unwrap(), opening, &held);
    let opens = held.clone();
    let result: Result<(), _> = file.call(|_| {
        opens.begin_opening();
        Err(JournalError::Full)
    });
    assert!(matches!(result, Err(JournalError::Broken)), "{result:?}");
}

/// A log of any size takes little memory when it is applied.
#[test]
fn a_log_is_applied_in_pieces() {
    let directory = Directory::new();
    let mut opened = SqliteJournal::new(&directory.0).open().unwrap();
    let row = |serial| NameRow { serial, body: vec![0; 400] };
    for serial in 1..=12 {
        let mut batch = Batch::new(Position(serial));
        let changes = vec![
            Change::Name { class: 1, name: serial.to_string(), row: Some(row(serial)) },
            Change::Name { class: 1, name: "last".into(), row: Some(row(serial)) },
            Change::Entry { serial, class: MESSAGES, number: serial, row: None },
        ];
        batch.push(&EncodedRecord::new(&Record { changes }).unwrap());
        opened.log.commit(&batch).unwrap();
    }
    let other = Directory::new();
    let applied = held(&other);
    let tables = Guarded::new(open(&directory.file("tables.db"), TABLES).unwrap(), applied.begin_opening(), &applied);
    let log = open_reader(&directory.file("log.db")).unwrap();
    let mut tables = SqliteTables::new(tables, log, directory.file("tables.db"));
    // Each piece has two of these batches.
    assert_eq!(tables.apply_piece(Position(1)).unwrap(), Position(1));
    assert_eq!(tables.apply_piece(Position(100)).unwrap(), Position(3));
    let mut reader = tables.reader().unwrap();
    assert_eq!(reader.name(1, "last").unwrap(), Some(row(3)));
    assert_eq!((reader.name(1, "3").unwrap(), reader.name(1, "4").unwrap()), (Some(row(3)), None));
    assert_eq!(tables.apply(Position(9)).unwrap(), Position(9));
    assert_eq!(reader.name(1, "last").unwrap(), Some(row(9)));
    assert_eq!(tables.apply(Position(100)).unwrap(), Position(12));
    let counts = reader.name(COUNTS.0, COUNTS.1).unwrap().and_then(|row| EntryCounts::read(&row, Position(12)));
    assert_eq!(counts.unwrap().of(MESSAGES).removed, 12, "each one is counted once");
}

#[test]
fn an_old_application_moves_nothing_back() {
    let directory = Directory::new();
    let (held, path) = (held(&directory), directory.file("tables.db"));
    let opening = held.begin_opening();
    let tables = Guarded::new(open(&path, TABLES).unwrap(), opening, &held);
    drop(open(&directory.file("log.db"), log::TABLES).unwrap());
    let mut tables = SqliteTables::new(tables, open_reader(&directory.file("log.db")).unwrap(), path.clone());
    let process = |version| ProcessRow {
        status: Status::Ready,
        kind: "new".into(),
        version,
        state: Vec::new(),
        head: Vec::new(),
    };
    let entry = |due| EntryRow { due: Some(due), body: Vec::new() };
    let name = |serial| NameRow { serial, body: Vec::new() };
    let write = |tables: &mut SqliteTables, position: u64, changes: &[Change]| {
        let slice: Vec<_> = changes.iter().map(|change| (Position(position), Cow::Borrowed(change))).collect();
        tables.apply_slice(&slice, 0, Some((Position(position), &EntryCounts::default()))).unwrap();
        held.set_applied(Position(position));
    };
    let of = |at| {
        [
            Change::Process { serial: 1, row: Some(process(at)) },
            Change::Entry { serial: 1, class: 1, number: 1, row: Some(entry(at.into())) },
            Change::Name { class: 1, name: "a".into(), row: Some(name(at.into())) },
        ]
    };
    let none = [
        Change::Process { serial: 1, row: None },
        Change::Entry { serial: 1, class: 1, number: 1, row: None },
        Change::Name { class: 1, name: "a".into(), row: None },
    ];
    write(&mut tables, 10, &of(10));
    write(&mut tables, 5, &of(5));
    write(&mut tables, 6, &none);
    let mut reader = tables.reader().unwrap();
    let expected = StoredProcess { row: Some(process(10)), entries: vec![(1, 1, entry(10))] };
    assert_eq!((reader.load(1).unwrap(), reader.name(1, "a").unwrap()), (expected, Some(name(10))));
    assert_eq!(read_mark(&open_reader(&path).unwrap()).unwrap(), Position(10));
    assert_eq!(held.applied(), Position(10));
    write(&mut tables, 11, &none);
    assert_eq!((reader.load(1).unwrap(), reader.name(1, "a").unwrap()), (StoredProcess::default(), None));
}

#[test]
fn a_file_that_another_program_has_locked_is_an_error_of_its_own() {
    let directory = Directory::new();
    let mut journal = SqliteJournal::new(&directory.0);
    drop(journal.open().unwrap());
    for name in ["log.db", "tables.db"] {
        let file = directory.file(name);
        let outside = locked(&file);
        let error = journal.open().unwrap_err();
        assert!(matches!(&error, JournalError::Busy { file: named } if *named == file), "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
        drop(outside);
        journal.open().expect("it is unlocked");
    }
}

/// A program that another thread is starting has all open files for a moment, until its own code runs.
#[test]
fn a_copy_of_the_lock_in_a_program_that_starts_keeps_no_store_locked() {
    let directory = Directory::new();
    let path = directory.file("lock");
    let held = LockFile::lock(&path).unwrap();
    let inherited = held.copy();
    assert!(matches!(LockFile::lock(&path), Err(JournalError::InUse { .. })));
    drop(held);
    let next = LockFile::lock(&path).expect("it is unlocked, though the copy is open");
    // The copy goes with its program, and takes nothing from the next one.
    drop(inherited);
    assert!(matches!(LockFile::lock(&path), Err(JournalError::InUse { .. })));
    drop(next);
}

/// A predecessor was killed, and the next process has not written its number yet.
#[cfg(target_os = "linux")]
#[test]
fn the_number_of_a_process_that_has_ended_is_not_shown() {
    let directory = Directory::new();
    let path = directory.file("lock");
    let mut child = Command::new("true").spawn().unwrap();
    let ended = child.id();
    wait(&mut child);
    fs::write(&path, ended.to_string()).unwrap();
    let next = File::open(&path).unwrap();
    next.try_lock().unwrap();
    let error = LockFile::lock(&path).unwrap_err();
    assert!(matches!(error, JournalError::InUse { holder: None }), "{error}");
    drop(next);
    let lock = LockFile::lock(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), std::process::id().to_string());
    drop(lock);
    assert_eq!(fs::read_to_string(&path).unwrap(), "", "the next process begins without a number");
}

/// A checkpoint copies all pages, unless a reader has an older snapshot.
#[test]
fn a_checkpoint_says_how_far_readers_have_let_it_come() {
    let directory = Directory::new();
    let path = directory.file("tables.db");
    let file = open(&path, TABLES).unwrap();
    let write = |position: u64| {
        let text = "UPDATE mark SET position = ?1";
        assert_eq!(file.execute(text, [position as i64]).unwrap(), 1);
    };
    write(1);
    let reader = open_reader(&path).unwrap();
    let snapshot = reader.unchecked_transaction().unwrap();
    let seen: i64 = snapshot.query_row("SELECT position FROM mark", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 1);
    write(2);
    let first = checkpoint(&file, "PASSIVE").unwrap();
    assert!(first.copied < first.pages, "{first:?}");
    write(3);
    let second = checkpoint(&file, "PASSIVE").unwrap();
    assert_eq!(second.copied, first.copied, "the reader is the same");
    assert!(second.pages > first.pages);
    drop(snapshot);
    let third = checkpoint(&file, "PASSIVE").unwrap();
    assert_eq!((third.pages, third.copied), (second.pages, second.pages));
    assert_eq!(checkpoint(&file, "TRUNCATE").unwrap().pages, 0);
}

/// Counts the warnings of its thread.
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn the_log_has_a_warning_of_a_reader_that_holds_a_snapshot() {
    let directory = Directory::new();
    let (path, held) = (directory.file("tables.db"), held(&directory));
    let mut file = Guarded::new(open(&path, TABLES).unwrap(), held.begin_opening(), &held);
    let (warnings, mut checkpoints, start) = (Arc::default(), Checkpoints::default(), Clock::system().now());
    let mut look = |seconds| {
        let text = "UPDATE mark SET position = position + 1";
        assert_eq!(file.call(|file| Ok(file.execute(text, []).unwrap())).unwrap(), 1);
        checkpoints.add(17 << 20);
        let now = start + Duration::from_secs(seconds);
        tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
            checkpoints.make_at(&mut file, "tables.db", now).unwrap();
        });
        warnings.load(Ordering::SeqCst)
    };
    assert_eq!(look(0), 0);
    let reader = open_reader(&path).unwrap();
    let snapshot = reader.unchecked_transaction().unwrap();
    let _: i64 = snapshot.query_row("SELECT position FROM mark", [], |row| row.get(0)).unwrap();
    // The first checkpoint behind the snapshot finds it.
    assert_eq!([look(1), look(10), look(11), look(60)], [0, 0, 1, 1]);
    drop(snapshot);
    assert_eq!(look(61), 1);
}
