//! The files of the SQLite journal: cut off, damaged, of another format, and their sizes.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use procession::durable::journal::{
    Batch, Change, Damage, EncodedRecord, EntryRow, Journal, JournalError, Position, Record, SqliteJournal,
};

use crate::blocker::Blocker;
use crate::places::Directory;
use crate::script::{add, check, commit, counts, draw, read_tables, tables_at};
use crate::wait::wait;

const SEED: u64 = 11;

const FILES: [&str; 3] = ["log.db", "log.db-wal", "tables.db"];

/// The size of the head of a WAL, and that of each of its frames.
const WAL_HEAD: usize = 32;
const WAL_FRAME: usize = 24 + 4096;

fn size(path: &Path) -> usize {
    fs::metadata(path).map_or(0, |file| file.len() as usize)
}

/// The content of the files, in the order of [`FILES`].
fn contents(directory: &Directory) -> Vec<Vec<u8>> {
    FILES.iter().map(|name| fs::read(directory.path().join(name)).unwrap_or_default()).collect()
}

/// A directory with these files.
fn with_files(contents: &[impl AsRef<[u8]>]) -> Directory {
    let directory = Directory::new();
    fs::create_dir_all(directory.path()).unwrap();
    for (name, content) in FILES.iter().zip(contents) {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

#[test]
fn every_cut_of_the_wal_opens_with_all_that_was_acknowledged() {
    let commits = counts("commits in the WAL", 40, 150);
    let cuts = counts("cuts of the WAL", 120, 1_500);
    let directory = Directory::new();
    let mut journal = SqliteJournal::new(directory.path());
    let mut opened = journal.open().unwrap();
    // How long the WAL was when each batch was acknowledged.
    let mut acknowledged = vec![(0, Position::START)];
    for number in 0..commits {
        let last = acknowledged[number as usize].1;
        let last = commit(&mut *opened.log, SEED, last, 1 + draw(SEED, number, 50, 12)).unwrap();
        acknowledged.push((size(&directory.path().join("log.db-wal")), last));
    }
    let files = contents(&directory);
    let frames = (files[1].len() - WAL_HEAD) / WAL_FRAME;
    assert!(frames > commits as usize);
    let ends = (0..=frames).map(|frame| WAL_HEAD + frame * WAL_FRAME);
    let within = (0..).map(|number| draw(SEED, number, 51, files[1].len() as u64) as usize);
    let ends: Vec<usize> = ends.chain(within).take(cuts.max(frames as u64 + 20) as usize).collect();
    for (number, cut) in ends.into_iter().enumerate() {
        let place = with_files(&[&files[0], &files[1][..cut], &files[2]]);
        let mut opened = SqliteJournal::new(place.path()).open().unwrap();
        let expected = acknowledged.iter().rev().find(|(size, _)| *size <= cut).unwrap().1;
        assert_eq!(opened.recovered.last, expected, "cut at {cut}");
        if number % 10 == 0 {
            check(SEED, &mut opened);
        }
    }
}

/// Returns the files of a store whose log has a WAL with these commits. Also returns the length of the WAL and the last
/// acknowledged record: at first, and after each commit.
fn with_wal(commits: &[u64]) -> (Vec<Vec<u8>>, Vec<(usize, Position)>) {
    let directory = Directory::new();
    let mut opened = SqliteJournal::new(directory.path()).open().unwrap();
    let mut acknowledged = vec![(0, Position::START)];
    for (number, records) in commits.iter().enumerate() {
        let last = commit(&mut *opened.log, SEED, acknowledged[number].1, *records).unwrap();
        acknowledged.push((size(&directory.path().join("log.db-wal")), last));
    }
    (contents(&directory), acknowledged)
}

fn flipped(files: &[Vec<u8>], bit: usize) -> Directory {
    let mut files = files.to_vec();
    files[1][bit / 8] ^= 1 << (bit % 8);
    with_files(&files)
}

/// Whether the error is that of a damaged WAL, and says which file it is and what to do.
fn is_damage(error: &JournalError, directory: &Directory) -> bool {
    let begin = format!("{} is damaged near byte", directory.path().join(FILES[1]).display());
    matches!(error, JournalError::Damaged(Damage::File(text)) if text.starts_with(&begin) && text.contains("backup"))
}

#[test]
fn a_flipped_bit_of_the_wal_is_reported_but_for_its_last_batches() {
    let flips = counts("flipped bits of the WAL", 150, 10_000);
    let (files, acknowledged) = with_wal(&[3; 30]);
    let (end, all) = (acknowledged[28].0, acknowledged[30].1);
    let (mut reported, mut torn) = (0, 0);
    for flip in 0..flips {
        let bit = draw(SEED, flip, 62, 8 * files[1].len() as u64) as usize;
        let directory = flipped(&files, bit);
        let opened = SqliteJournal::new(directory.path()).open();
        match opened {
            Err(error) => {
                assert!(is_damage(&error, &directory), "bit {bit}: {error}");
                // It is not changed by the first try.
                let again = SqliteJournal::new(directory.path()).open().unwrap_err();
                assert_eq!(again.to_string(), error.to_string());
                reported += 1;
            }
            Ok(mut opened) if opened.recovered.last == all => check(SEED, &mut opened),
            Ok(opened) => {
                assert!(bit / 8 >= end, "bit {bit} of {}: {:?}", files[1].len(), opened.recovered.last);
                torn += 1;
            }
        }
    }
    assert!(reported > torn && torn > 0, "{reported} reported, {torn} like torn writes");
}

#[test]
fn a_flipped_bit_of_the_head_of_the_wal_is_reported() {
    let (files, acknowledged) = with_wal(&[3; 4]);
    // This bit of the counter is the one that has just changed.
    let ambiguous = 8 * 15;
    for bit in (0..8 * WAL_HEAD).filter(|bit| *bit != ambiguous) {
        let directory = flipped(&files, bit);
        let error = SqliteJournal::new(directory.path()).open().unwrap_err();
        assert!(is_damage(&error, &directory), "bit {bit}: {error}");
    }
    assert_eq!(SqliteJournal::new(with_files(&files).path()).open().unwrap().recovered.last, acknowledged[4].1);
}

/// The last batch takes many frames, and was not acknowledged when one of them was lost.
#[test]
fn a_torn_batch_of_many_frames_is_no_damage() {
    let (files, acknowledged) = with_wal(&[3, 3, 3_000]);
    let frames = acknowledged[2].0..acknowledged[3].0;
    assert!(frames.len() > 10 * WAL_FRAME, "{frames:?}");
    for byte in frames.step_by(WAL_FRAME) {
        for at in [byte + 17, byte + 500] {
            let opened = SqliteJournal::new(flipped(&files, 8 * at).path()).open().unwrap();
            assert_eq!(opened.recovered.last, acknowledged[2].1);
        }
    }
}

/// A store whose log has applied and unapplied records. All of it is in the main files.
fn store() -> Directory {
    let directory = Directory::new();
    let mut journal = SqliteJournal::new(directory.path());
    let mut opened = journal.open().unwrap();
    (0..6).fold(Position::START, |last, _| commit(&mut *opened.log, SEED, last, 8).unwrap());
    opened.tables.apply(Position(20)).unwrap();
    opened.log.trim(Position(20)).unwrap();
    let opened = journal.open().unwrap();
    assert_eq!((opened.recovered.applied, opened.recovered.last), (Position(20), Position(48)));
    directory
}

#[test]
fn each_flipped_bit_of_the_files_is_reported_or_without_effect() {
    let flips = counts("flipped bits", 200, 10_000);
    let files = contents(&store());
    assert_eq!(files[1].len(), 0, "nothing is in the WAL");
    let (mut reported, mut harmless) = (0, 0);
    for flip in 0..flips {
        let mut files = files.clone();
        let number = 2 * draw(SEED, flip, 60, 2) as usize;
        let file = &mut files[number];
        let bit = draw(SEED, flip, 61, 8 * file.len() as u64);
        file[bit as usize / 8] ^= 1 << (bit % 8);
        let place = with_files(&files);
        let mut opened = match SqliteJournal::new(place.path()).open() {
            Ok(opened) => opened,
            Err(JournalError::Damaged(_) | JournalError::Format { .. } | JournalError::Io { .. }) => {
                reported += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let damage = opened.tables.check().unwrap();
        if damage.is_empty() {
            check(SEED, &mut opened);
            assert_eq!(opened.recovered.last, Position(48), "bit {bit} of {}", FILES[number]);
            harmless += 1;
        } else {
            reported += 1;
        }
    }
    assert!(reported > 0 && harmless > 0, "{reported} reported, {harmless} harmless");
}

/// Finds a text in the file of the log or of the tables, and flips a bit of it.
fn flip_text(files: &mut [Vec<u8>], file: usize, text: &str) {
    let at = files[file].windows(text.len()).position(|window| window == text.as_bytes());
    files[file][at.expect("the text is there")] ^= 1;
}

#[test]
fn a_damaged_record_refuses_the_opening_and_is_named() {
    let mut files = contents(&store());
    flip_text(&mut files, 0, &format!("37-{SEED}"));
    let place = with_files(&files);
    let error = SqliteJournal::new(place.path()).open().unwrap_err();
    assert!(matches!(error, JournalError::Damaged(Damage::Record(Position(37)))), "{error}");
    assert_eq!(error.to_string(), "the store is damaged: record 37 cannot be read");
}

#[test]
fn a_damaged_state_is_reported_and_others_can_be_read() {
    let mut files = contents(&store());
    let tables = tables_at(SEED, Position(20));
    let damaged = tables.values().find_map(|change| match change {
        Change::Process { serial, row: Some(row) } if row.state.len() > 40 => Some((*serial, row.state.clone())),
        _ => None,
    });
    let (damaged, state) = damaged.unwrap();
    flip_text(&mut files, 2, std::str::from_utf8(&state).unwrap());
    let place = with_files(&files);
    let mut opened = SqliteJournal::new(place.path()).open().unwrap();
    let mut reader = opened.tables.reader().unwrap();
    assert!(matches!(reader.process(damaged), Err(JournalError::Damaged(Damage::Row(_)))));
    assert!(read_tables(&mut *reader).is_err());
    for change in tables.into_values() {
        if let Change::Process { serial, row } = change
            && serial != damaged
        {
            assert_eq!(reader.process(serial).unwrap(), row);
        }
    }
    assert_eq!(opened.tables.check().unwrap().len(), 1);
}

/// The top bit of a count makes it negative. No query may pass over such a batch.
#[test]
fn a_damaged_count_of_a_batch_refuses_the_opening_and_is_named() {
    for first in [17, 33, 41] {
        let place = store();
        let log = rusqlite::Connection::open(place.path().join(FILES[0])).unwrap();
        assert_eq!(log.execute("UPDATE log SET count = count - 128 WHERE position = ?1", [first]).unwrap(), 1);
        drop(log);
        let error = SqliteJournal::new(place.path()).open().unwrap_err();
        let JournalError::Damaged(Damage::Record(at)) = error else { panic!("{first}: {error}") };
        assert!(at == Position(first) || first == 17 && at == Position(21), "{first}: {at:?}");
    }
}

/// SQLite makes tables of its own then.
#[test]
fn a_store_that_an_operator_has_analyzed_opens_and_is_sound() {
    let directory = store();
    for file in [FILES[0], FILES[2]] {
        let outside = rusqlite::Connection::open(directory.path().join(file)).unwrap();
        outside.execute_batch("ANALYZE").unwrap();
        let statistics = |name| outside.table_exists(None, name).unwrap();
        assert!(statistics("sqlite_stat1"));
    }
    let mut opened = SqliteJournal::new(directory.path()).open().unwrap();
    assert_eq!(opened.recovered.last, Position(48));
    check(SEED, &mut opened);
}

/// A reader of another program needs pages of the WAL.
#[test]
fn a_reader_with_an_old_snapshot_keeps_no_journal_from_being_opened() {
    let directory = store();
    let mut journal = SqliteJournal::new(directory.path());
    let mut last = Position(48);
    let wals = ["log.db-wal", "tables.db-wal"].map(|name| directory.path().join(name));
    let outside = [FILES[0], FILES[2]].map(|file| {
        let mut opened = journal.open().unwrap();
        last = commit(&mut *opened.log, SEED, last, 5).unwrap();
        opened.tables.apply(last).unwrap();
        let outside = rusqlite::Connection::open(directory.path().join(file)).unwrap();
        let _: i64 = outside
            .execute_batch("BEGIN")
            .and_then(|()| outside.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)))
            .unwrap();
        outside
    });
    for _ in 0..3 {
        let mut opened = journal.open().unwrap();
        assert_eq!(opened.recovered.last, last);
        last = commit(&mut *opened.log, SEED, last, 5).unwrap();
        check(SEED, &mut opened);
        last = commit(&mut *opened.log, SEED, last, 5).unwrap();
    }
    assert!(wals.iter().all(|wal| size(wal) > 0), "the reader needs them");
    drop(outside);
    check(SEED, &mut journal.open().unwrap());
    let mut opened = journal.open().unwrap();
    assert_eq!((opened.recovered.last, opened.recovered.applied), (last, last));
    assert!(wals.iter().all(|wal| size(wal) == 0), "nobody needs them");
    check(SEED, &mut opened);
}

/// Has a snapshot of the log, so that its WAL stays as it is.
fn pin(directory: &Directory) -> rusqlite::Connection {
    let outside = rusqlite::Connection::open(directory.path().join(FILES[0])).unwrap();
    let read = |_: &rusqlite::Row<'_>| Ok(());
    outside.execute_batch("BEGIN").and_then(|()| outside.query_row("SELECT * FROM sqlite_master", [], read)).unwrap();
    outside
}

/// Returns the WAL of this store after one more batch. Nothing of the WAL is removed before the batch.
fn with_batch(files: &[Vec<u8>], last: Position, records: u64) -> Vec<u8> {
    let directory = with_files(files);
    let _outside = pin(&directory);
    let mut opened = SqliteJournal::new(directory.path()).open().unwrap();
    assert_eq!(opened.recovered.last, last);
    commit(&mut *opened.log, SEED, last, records).unwrap();
    contents(&directory)[1].clone()
}

/// A reader has kept the rest of a torn batch when the store was opened. The next batch has fewer frames, and the loss
/// of power leaves half of the head of its last one: the mark of the end is new, and the check sum is old.
#[test]
fn a_batch_that_is_torn_before_the_rest_of_another_one_is_no_damage() {
    let (mut files, acknowledged) = with_wal(&[3, 3]);
    let (end, last) = acknowledged[2];
    files[1] = with_batch(&files, last, 3_000);
    files[1][end + 100] ^= 1;
    let frames = (files[1].len() - end) / WAL_FRAME;
    let directory = with_files(&files);
    let _outside = pin(&directory);
    let mut opened = SqliteJournal::new(directory.path()).open().unwrap();
    assert_eq!(opened.recovered.last, last, "the batch was torn");
    let before = contents(&directory)[1].clone();
    commit(&mut *opened.log, SEED, last, 3).unwrap();
    let mut after = contents(&directory)[1].clone();
    let is_last = |frame: &usize| after[end + frame * WAL_FRAME + 4..][..4] != [0; 4];
    let torn = (0..frames).find(is_last).expect("the batch was written");
    assert!(torn + 1 < frames, "{torn} of {frames}");
    let torn = end + torn * WAL_FRAME + 8;
    let mut old = before.get(torn..).unwrap_or_default().to_vec();
    old.resize(WAL_FRAME - 8, 0);
    after[torn..torn + old.len()].copy_from_slice(&old);
    files[1] = after;
    let opened = SqliteJournal::new(with_files(&files).path()).open().unwrap();
    assert_eq!(opened.recovered.last, last);
}

/// The sync of a batch has failed, so it was never there for a reader. It is lost, and must stay lost.
#[test]
fn a_batch_that_an_opening_has_not_found_does_not_come_back() {
    let (mut files, acknowledged) = with_wal(&[3, 3]);
    let (end, last) = acknowledged[2];
    let directory = with_files(&files);
    let _outside = pin(&directory);
    drop(SqliteJournal::new(directory.path()).open().unwrap());
    // Written behind the back of SQLite, as by a write without its sync.
    let failed = with_batch(&files, last, 3);
    assert!(failed.len() > end);
    fs::write(directory.path().join(FILES[1]), failed).unwrap();
    let opened = SqliteJournal::new(directory.path()).open().unwrap();
    assert_eq!(opened.recovered.last, last);
    files = contents(&directory);
    let opened = SqliteJournal::new(with_files(&files).path()).open().unwrap();
    assert_eq!(opened.recovered.last, last, "it was told to be lost");
}

/// The checkpoint of another connection, which waits for the lock of writers, and has that of checkpoints.
static CHECKPOINT: LazyLock<Blocker> = LazyLock::new(Blocker::new);

/// Then SQLite does not say how many frames the WAL has, and none may be cut off.
#[test]
fn an_opening_beside_a_checkpoint_of_another_connection_cuts_nothing_off() {
    let (files, acknowledged) = with_wal(&[3, 3]);
    let directory = with_files(&files);
    let connect = || rusqlite::Connection::open(directory.path().join(FILES[0])).unwrap();
    let (writer, mut other) = (connect(), connect());
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let checkpoint = std::thread::spawn(move || {
        let waits = |_| {
            CHECKPOINT.blocked().wait();
            false
        };
        other.busy_handler(Some(waits)).unwrap();
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)).unwrap()
    });
    CHECKPOINT.wait_begun();
    writer.execute_batch("ROLLBACK").unwrap();
    let opened = SqliteJournal::new(directory.path()).open().unwrap();
    assert_eq!(opened.recovered.last, acknowledged[2].1);
    let kept = contents(&directory);
    assert_eq!(kept[1].len(), acknowledged[2].0, "all frames are there");
    CHECKPOINT.release();
    wait(checkpoint).unwrap();
    drop(opened);
    assert_eq!(SqliteJournal::new(with_files(&kept).path()).open().unwrap().recovered.last, acknowledged[2].1);
}

/// The log would have no keys then, and SQLite would find nothing wrong.
#[test]
fn a_damaged_text_of_a_table_is_reported() {
    let mut files = contents(&store());
    flip_text(&mut files, 0, "PRIMARY KEY");
    let error = SqliteJournal::new(with_files(&files).path()).open().unwrap_err();
    assert!(matches!(error, JournalError::Damaged(Damage::File(_))), "{error}");
}

#[test]
fn a_store_of_another_format_is_refused_with_both_formats() {
    for file in [0, 2] {
        let mut files = contents(&store());
        // SQLite keeps `user_version` at this offset.
        files[file][60..64].copy_from_slice(&7_u32.to_be_bytes());
        let place = with_files(&files);
        let error = SqliteJournal::new(place.path()).open().unwrap_err();
        assert!(matches!(error, JournalError::Format { found: 7, expected: 1 }), "{error}");
        assert_eq!(contents(&place)[file], files[file], "nothing is changed");
    }
}

/// Records of 1 MiB, so that few are enough.
#[test]
fn the_files_keep_their_bounds_while_much_is_written() {
    let mebibytes = counts("MiB written", 96, 1_024);
    let directory = Directory::new();
    let mut journal = SqliteJournal::new(directory.path());
    let mut opened = journal.open().unwrap();
    let (mut largest, mut model) = ([0; 4], Default::default());
    let names = ["log.db", "log.db-wal", "tables.db", "tables.db-wal"];
    for position in 1..=mebibytes {
        let row = EntryRow { due: None, body: vec![position as u8; 1 << 20] };
        let change = Change::Entry { serial: position % 4, class: 1, number: position % 24, row: Some(row) };
        let record = Record { changes: vec![change] };
        let mut batch = Batch::new(Position(position));
        batch.push(&EncodedRecord::new(&record).unwrap()).unwrap();
        add(&mut model, record);
        opened.log.commit(&batch).unwrap();
        if position % 16 == 0 {
            let applied = opened.tables.apply(Position(position)).unwrap();
            while opened.log.trim(applied).unwrap() {}
        }
        for (largest, name) in largest.iter_mut().zip(names) {
            *largest = size(&directory.path().join(name)).max(*largest);
        }
    }
    println!("{names:?}: {largest:?}");
    assert!(largest.iter().all(|size| *size < 64 << 20), "{names:?}: {largest:?}");
    let mut reader = opened.tables.reader().unwrap();
    let rows = (0..4).map(|serial| reader.entries(serial).unwrap().len()).sum::<usize>();
    assert_eq!(rows, model.len());
}

/// A reader with an old snapshot keeps a WAL from beginning anew.
#[test]
fn a_wal_that_a_reader_has_made_long_becomes_short_again() {
    const BOUND: usize = 64 << 20;
    let directory = Directory::new();
    let mut opened = SqliteJournal::new(directory.path()).open().unwrap();
    let wal = directory.path().join("log.db-wal");
    let mut last = Position::START;
    let mut write = |bytes: usize| {
        let row = EntryRow { due: None, body: vec![7; bytes] };
        let changes = vec![Change::Entry { serial: 1, class: 1, number: 1, row: Some(row) }];
        let mut batch = Batch::new(Position(last.0 + 1));
        last = batch.push(&EncodedRecord::new(&Record { changes }).unwrap()).unwrap();
        opened.log.commit(&batch).unwrap();
        opened.tables.apply(last).unwrap();
        while opened.log.trim(last).unwrap() {}
        size(&wal)
    };
    write(1);
    let reader = rusqlite::Connection::open(directory.path().join("log.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM sqlite_master;").unwrap();
    let most = (0..12).map(|_| write(7 << 20)).max().unwrap();
    assert!(most > BOUND, "it is long: {most}");
    drop(reader);
    // Pages are copied when 16 MiB were written. The commit after that begins the WAL anew.
    let left = (0..12).map(|_| write(7 << 20)).find(|size| *size <= BOUND);
    assert!(left.is_some(), "it stays long");
}
