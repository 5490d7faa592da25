//! Every journal passes these tests.

use procession::durable::journal::{
    Batch, Change, EncodedRecord, EntryRow, JournalError, LARGEST_RECORD, Opened, Position, ProcessRow, Record,
    RecordError, Status, StoredProcess,
};

use crate::places::places;
use crate::script::{batch, check, commit, read_tables, tables_at};
use crate::wait::wait;

const SEED: u64 = 7;

#[test]
fn committed_records_are_there_after_a_crash() {
    for place in places() {
        let mut last = Position::START;
        for round in 0..6 {
            let mut journal = place.journal();
            let mut opened = journal.open().unwrap();
            assert_eq!(opened.recovered.last, last, "{place:?}");
            if round % 2 == 1 {
                check(SEED, &mut opened);
            }
            for count in [1, 2, 17] {
                last = commit(&mut *opened.log, SEED, last, count).unwrap();
            }
            drop((opened, journal));
            place.crash();
        }
        check(SEED, &mut place.journal().open().unwrap());
    }
}

#[test]
fn the_tables_have_what_was_applied_and_nothing_else() {
    for place in places() {
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        let last = commit(&mut *opened.log, SEED, Position::START, 20).unwrap();
        let last = commit(&mut *opened.log, SEED, last, 20).unwrap();
        let mut reader = opened.tables.reader().unwrap();
        // Also in the middle of a batch, and backwards.
        for (through, applied) in [(0, 0), (7, 7), (3, 7), (20, 20), (33, 33), (1_000, 40)] {
            assert_eq!(opened.tables.apply(Position(through)).unwrap(), Position(applied), "{place:?}");
            assert_eq!(read_tables(&mut *reader).unwrap(), tables_at(SEED, Position(applied)), "{place:?}");
        }
        drop((reader, opened, journal));
        place.crash();
        let opened = place.journal().open().unwrap();
        assert_eq!((opened.recovered.last, opened.recovered.applied), (last, last));
    }
}

#[test]
fn trimming_removes_only_what_the_tables_have() {
    for place in places() {
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        let mut last = Position::START;
        for _ in 0..40 {
            last = commit(&mut *opened.log, SEED, last, 3).unwrap();
        }
        opened.tables.apply(Position(100)).unwrap();
        // More than what is applied is not removed.
        while opened.log.trim(last).unwrap() {}
        last = commit(&mut *opened.log, SEED, last, 3).unwrap();
        drop((opened, journal));
        place.crash();
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        assert_eq!((opened.recovered.last, opened.recovered.applied), (last, Position(100)), "{place:?}");
        check(SEED, &mut opened);
        // A log without records goes on after the tables.
        while opened.log.trim(last).unwrap() {}
        drop((opened, journal));
        place.crash();
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        assert_eq!(opened.recovered.last, last);
        commit(&mut *opened.log, SEED, last, 1).unwrap();
    }
}

#[test]
fn a_batch_at_the_wrong_place_is_refused_and_breaks_the_log() {
    for place in places() {
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        commit(&mut *opened.log, SEED, Position::START, 2).unwrap();
        for wrong in [Position(1), Position(4)] {
            let error = opened.log.commit(&batch(SEED, wrong, 1)).unwrap_err();
            assert!(matches!(error, JournalError::Order { last: Position(2), .. }), "{error}");
            assert!(matches!(commit(&mut *opened.log, SEED, Position(2), 1), Err(JournalError::Broken)));
            assert!(matches!(opened.log.trim(Position(2)), Err(JournalError::Broken)));
            opened = journal.open().unwrap();
            assert_eq!(opened.recovered.last, Position(2), "{place:?}");
        }
        opened.log.commit(&Batch::new(Position(9))).expect("a batch without records is nothing");
        opened.log.commit(&Batch::new(Position::START)).expect("a batch without records is nothing");
        assert_eq!(
            [Position::START, Position(9)].map(|first| Batch::new(first).last()),
            [Position::START, Position(8)]
        );
        commit(&mut *opened.log, SEED, Position(2), 1).unwrap();
    }
}

#[test]
fn parts_of_an_earlier_opening_are_broken() {
    for place in places() {
        let mut journal = place.journal();
        let mut old = journal.open().unwrap();
        let mut reader = old.tables.reader().unwrap();
        let last = commit(&mut *old.log, SEED, Position::START, 2).unwrap();
        let mut new = journal.open().unwrap();
        assert!(matches!(commit(&mut *old.log, SEED, last, 1), Err(JournalError::Broken)), "{place:?}");
        assert!(matches!(old.log.trim(last), Err(JournalError::Broken)));
        assert!(matches!(old.tables.apply(last), Err(JournalError::Broken)));
        assert!(matches!(reader.process(1), Err(JournalError::Broken)));
        commit(&mut *new.log, SEED, last, 1).unwrap();
        check(SEED, &mut journal.open().unwrap());
    }
}

#[test]
fn a_store_that_is_open_is_refused_with_its_holder() {
    for place in places() {
        let mut first = place.journal();
        let opened = first.open().unwrap();
        for _ in 0..3 {
            let error = place.journal().open().unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, JournalError::InUse { holder: Some(id) } if id == std::process::id()), "{text}");
            assert!(text.contains(&std::process::id().to_string()));
        }
        drop(opened);
        assert!(place.journal().open().is_err(), "a journal holds its store");
        let opened = first.open().unwrap();
        drop(first);
        assert!(place.journal().open().is_err(), "the parts hold it, too");
        drop(opened);
        place.journal().open().expect("nobody has it");
    }
}

#[test]
fn rows_come_back_as_they_were_written() {
    for place in places() {
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        let edge = i64::MAX as u64;
        let process = ProcessRow {
            status: Status::Ready,
            kind: String::from("ä \0 'kind'"),
            version: u32::MAX,
            state: (0..=255).collect(),
            head: Vec::new(),
        };
        let entry = EntryRow { due: Some(edge), body: vec![0; 3] };
        let changes = vec![
            Change::Process { serial: edge, row: Some(process.clone()) },
            Change::Entry { serial: edge, class: 255, number: edge, row: Some(entry.clone()) },
        ];
        let mut batch = Batch::new(Position(1));
        batch.push(&EncodedRecord::new(&Record { changes }).unwrap()).unwrap();
        opened.log.commit(&batch).unwrap();
        opened.tables.apply(Position(1)).unwrap();
        let mut reader = opened.tables.reader().unwrap();
        assert_eq!(reader.process(edge).unwrap(), Some(process), "{place:?}");
        assert_eq!(reader.entry(edge, 255, edge).unwrap().as_ref(), Some(&entry));
        assert_eq!((reader.entry(edge, 254, edge).unwrap(), reader.entry(edge, 255, 1).unwrap()), (None, None));
        assert_eq!(reader.entries(edge).unwrap(), [(255, edge, entry)]);
        assert_eq!(reader.with_status(Some(Status::Ready), 0, 10).unwrap(), [edge]);
        assert_eq!(reader.due(edge, edge, 10).unwrap(), [(edge, edge, 255, edge)]);
        assert_eq!((reader.process(1).unwrap(), reader.name(1, "nobody").unwrap()), (None, None));
        assert_eq!(opened.tables.check().unwrap(), []);
    }
}

/// The tables are changed in several transactions then.
#[test]
fn an_application_of_many_rows_has_all_of_them() {
    const PROCESSES: u64 = 9_000;
    for place in places() {
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        let row = |serial: u64| ProcessRow {
            status: Status::Sleeping,
            kind: String::from("many"),
            version: 1,
            state: serial.to_le_bytes().to_vec(),
            head: Vec::new(),
        };
        let changes = (1..=PROCESSES).map(|serial| Change::Process { serial, row: Some(row(serial)) }).collect();
        let mut batch = Batch::new(Position(1));
        batch.push(&EncodedRecord::new(&Record { changes }).unwrap()).unwrap();
        opened.log.commit(&batch).unwrap();
        assert_eq!(opened.tables.apply(Position(1)).unwrap(), Position(1));
        let mut reader = opened.tables.reader().unwrap();
        let listed = reader.with_status(Some(Status::Sleeping), 0, usize::MAX).unwrap();
        assert!(listed.into_iter().eq(1..=PROCESSES));
        assert_eq!(reader.process(PROCESSES).unwrap(), Some(row(PROCESSES)));
        assert_eq!(journal.open().unwrap().recovered.applied, Position(1));
    }
}

/// The row and the entries of a process change in each record, to the position of the record.
#[test]
fn a_load_sees_the_row_and_the_entries_of_one_position() {
    const RECORDS: u64 = 150;
    for place in places() {
        let mut journal = place.journal();
        let Opened { mut log, mut tables, .. } = journal.open().unwrap();
        let mut batch = Batch::new(Position(1));
        for position in 1..=RECORDS {
            let state = position.to_le_bytes().to_vec();
            let entry = EntryRow { due: None, body: state.clone() };
            let row = ProcessRow { status: Status::Ready, kind: "one".into(), version: 1, state, head: Vec::new() };
            let entry = |class| Change::Entry { serial: 1, class, number: position % 3, row: Some(entry.clone()) };
            let changes = vec![Change::Process { serial: 1, row: Some(row) }, entry(1), entry(2)];
            batch.push(&EncodedRecord::new(&Record { changes }).unwrap()).unwrap();
        }
        log.commit(&batch).unwrap();
        let mut reader = tables.reader().unwrap();
        assert_eq!(reader.load(1).unwrap(), StoredProcess::default(), "{place:?}");
        let applies = std::thread::spawn(move || {
            (1..=RECORDS)
                .for_each(|position| assert_eq!(tables.apply(Position(position)).unwrap(), Position(position)));
        });
        loop {
            let loaded = reader.load(1).unwrap();
            let Some(row) = loaded.row else { continue };
            let position = u64::from_le_bytes(row.state.clone().try_into().unwrap());
            let keys: Vec<_> = loaded.entries.iter().map(|(class, number, _)| (*class, *number)).collect();
            let newest = loaded.entries.iter().filter(|(.., entry)| entry.body == row.state);
            let newest: Vec<_> = newest.map(|(class, number, _)| (*class, *number)).collect();
            assert_eq!(newest, [(1, position % 3), (2, position % 3)], "{place:?}: {keys:?} at {position}");
            assert!(keys.is_sorted());
            if position == RECORDS {
                break;
            }
        }
        wait(applies).unwrap();
    }
}

/// A record whose encoding has about so many bytes.
fn large(bytes: usize) -> Record {
    let row = EntryRow { due: None, body: vec![7; bytes] };
    Record { changes: vec![Change::Entry { serial: 1, class: 1, number: 1, row: Some(row) }] }
}

#[test]
fn a_record_of_the_largest_size_is_stored() {
    let frame = EncodedRecord::new(&large(LARGEST_RECORD / 2)).unwrap().size() - LARGEST_RECORD / 2;
    let largest = EncodedRecord::new(&large(LARGEST_RECORD - frame)).unwrap();
    assert_eq!(largest.size(), LARGEST_RECORD);
    let error = EncodedRecord::new(&large(LARGEST_RECORD - frame + 1)).unwrap_err();
    assert_eq!(error, RecordError::TooLarge { size: LARGEST_RECORD + 1 });
    for place in places() {
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        let mut batch = Batch::new(Position(1));
        assert_eq!(batch.push(&largest), Some(Position(1)));
        assert_eq!(batch.push(&EncodedRecord::new(&Record::default()).unwrap()), None, "the batch is full");
        opened.log.commit(&batch).unwrap();
        drop((opened, journal));
        place.crash();
        let mut journal = place.journal();
        let mut opened = journal.open().unwrap();
        assert_eq!(opened.tables.apply(Position(1)).unwrap(), Position(1), "{place:?}");
        let entries = opened.tables.reader().unwrap().entries(1).unwrap();
        assert_eq!(entries[0].2.body.len(), LARGEST_RECORD - frame);
    }
}

#[test]
fn a_number_that_the_tables_cannot_hold_is_refused() {
    let over = i64::MAX as u64 + 1;
    let row = || Some(EntryRow { due: None, body: Vec::new() });
    for change in [
        Change::Process { serial: over, row: None },
        Change::Entry { serial: over, class: 1, number: 1, row: row() },
        Change::Entry { serial: 1, class: 1, number: over, row: row() },
        Change::Entry { serial: 1, class: 1, number: 1, row: Some(EntryRow { due: Some(over), body: Vec::new() }) },
    ] {
        let key = change.key();
        assert_eq!(EncodedRecord::new(&Record { changes: vec![change] }).unwrap_err(), RecordError::Number(key));
    }
}
