//! Records that follow from their positions, and the tables that they lead to.

use std::collections::BTreeMap;

use procession::durable::journal::{
    Batch, Change, EncodedRecord, EntryRow, JournalError, Log, NameRow, Opened, Position, ProcessRow, Reader, Record,
    Recovered, RowKey, Status,
};

/// How many processes the records are about.
const PROCESSES: u64 = 12;

const STATUSES: [Status; 4] = [Status::Sleeping, Status::Ready, Status::Parked, Status::Ended];

/// The counts of a test: the small one, or the full one with `PROCESSION_FULL=1`.
pub(crate) fn counts(name: &str, small: u64, full: u64) -> u64 {
    if std::env::var_os("PROCESSION_FULL").is_some_and(|value| value == "1") {
        return full;
    }
    println!("{name}: {small} instead of {full}");
    small
}

/// Runs a test with each seed, and with further seeds until the disk has lost its power once. `run` returns how often
/// the disk did. On a busy machine, all steps of a seed may be over before the thread of the test looks.
pub(crate) fn until_the_disk_crashes(seeds: u64, mut run: impl FnMut(u64) -> u64) {
    let mut crashes: u64 = (0..seeds).map(&mut run).sum();
    for seed in seeds..seeds + 1_000 {
        if crashes > 0 {
            return;
        }
        crashes += run(seed);
    }
    assert!(crashes > 0, "the disk has lost its power");
}

/// A number that follows from others.
pub(crate) fn draw(seed: u64, position: u64, of: u64, below: u64) -> u64 {
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ position.wrapping_mul(0xd1b5_4a32_d192_ed03) ^ of << 32;
    for _ in 0..2 {
        bits = (bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits ^= bits >> 32;
    }
    bits % below
}

/// The record at a position.
pub(crate) fn record(seed: u64, position: u64) -> Record {
    let serial = draw(seed, position, 0, PROCESSES);
    let other = draw(seed, position, 1, PROCESSES);
    let text = |length: u64| format!("{position}-{seed} ").repeat(length as usize).into_bytes();
    let status = STATUSES[draw(seed, position, 2, 4) as usize];
    let row = ProcessRow {
        status,
        kind: String::from("order"),
        version: 1,
        state: text(draw(seed, position, 3, 60)),
        head: text(1),
    };
    let mut changes = vec![Change::Process { serial, row: (draw(seed, position, 4, 10) > 0).then_some(row) }];
    // Mail of another process, a timer, and one that is taken.
    changes.push(entry(other, 1, position % 7, Some(EntryRow { due: None, body: text(2) })));
    let due = draw(seed, position, 5, 1_000);
    changes.push(entry(serial, 2, position % 3, Some(EntryRow { due: Some(due), body: Vec::new() })));
    changes.push(entry(serial, 1, draw(seed, position, 6, 7), None));
    let name = format!("name {}", draw(seed, position, 7, 9));
    let row = NameRow { serial, body: text(1) };
    changes.push(Change::Name { class: 3, name, row: (draw(seed, position, 8, 3) > 0).then_some(row) });
    Record { changes }
}

fn entry(serial: u64, class: u8, number: u64, row: Option<EntryRow>) -> Change {
    Change::Entry { serial, class, number, row }
}

/// Commits records after the last one, in one batch. Returns the new last one.
pub(crate) fn commit(log: &mut dyn Log, seed: u64, last: Position, count: u64) -> Result<Position, JournalError> {
    let batch = batch(seed, last, count);
    log.commit(&batch)?;
    Ok(batch.last())
}

/// The batch of the records after this one.
pub(crate) fn batch(seed: u64, last: Position, count: u64) -> Batch {
    let mut batch = Batch::new(last.next());
    for position in last.0 + 1..=last.0 + count {
        let encoded = EncodedRecord::new(&record(seed, position)).expect("it is small");
        assert_eq!(batch.push(&encoded), Some(Position(position)));
    }
    batch
}

/// All rows, by their keys.
pub(crate) type Tables = BTreeMap<RowKey, Change>;

/// The tables after the record at a position.
pub(crate) fn tables_at(seed: u64, last: Position) -> Tables {
    let mut tables = Tables::new();
    (1..=last.0).for_each(|position| add(&mut tables, record(seed, position)));
    tables
}

/// Adds the changes of one record.
pub(crate) fn add(tables: &mut Tables, record: Record) {
    record.changes.into_iter().for_each(|change| put(tables, change));
}

fn put(tables: &mut Tables, change: Change) {
    if change.removes() {
        tables.remove(&change.key());
    } else {
        tables.insert(change.key(), change);
    }
}

/// The tables that a reader sees.
pub(crate) fn read_tables(reader: &mut dyn Reader) -> Result<Tables, JournalError> {
    let mut tables = Tables::new();
    let mut of_status = BTreeMap::new();
    let mut due = Vec::new();
    for serial in 0..PROCESSES {
        if let Some(row) = reader.process(serial)? {
            of_status.entry(row.status).or_insert_with(Vec::new).push(serial);
            put(&mut tables, Change::Process { serial, row: Some(row) });
        }
        for (class, number, row) in reader.entries(serial)? {
            due.extend(row.due.map(|due| (due, serial, class, number)));
            put(&mut tables, entry(serial, class, number, Some(row)));
        }
    }
    for number in 0..9 {
        let name = format!("name {number}");
        if let Some(row) = reader.name(3, &name)? {
            put(&mut tables, Change::Name { class: 3, name, row: Some(row) });
        }
    }
    // The counts of the journal itself can be read.
    reader.name(u8::MAX, "entries")?;
    // The indexes show the same rows.
    for status in STATUSES {
        let mut listed = Vec::new();
        // Serial number 0 is after no number.
        if reader.process(0)?.is_some_and(|row| row.status == status) {
            listed.push(0);
        }
        while let page = reader.with_status(Some(status), listed.last().copied().unwrap_or(0), 2)?
            && !page.is_empty()
        {
            listed.extend(page);
        }
        assert_eq!(listed, of_status.remove(&status).unwrap_or_default(), "{status:?}");
    }
    due.sort_unstable();
    assert_eq!(reader.due(0, u64::MAX, usize::MAX)?, due);
    due.retain(|(at, ..)| *at <= 500);
    due.truncate(3);
    assert_eq!(reader.due(0, 500, 3)?, due);
    Ok(tables)
}

/// Checks that an opened journal has exactly the records up to its last one. Returns their tables.
#[track_caller]
pub(crate) fn check(seed: u64, opened: &mut Opened) {
    let Recovered { last, applied } = &opened.recovered;
    assert!(applied <= last);
    let mut reader = opened.tables.reader().expect("there is a reader");
    assert_eq!(opened.tables.apply(*last).expect("it is applied"), *last);
    assert_eq!(read_tables(&mut *reader).expect("the tables can be read"), tables_at(seed, *last), "at {last:?}");
    assert_eq!(opened.tables.check().expect("it is checked"), []);
}
