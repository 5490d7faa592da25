//! The journal in memory while its disk fails.

use procession::durable::journal::{Damage, Fault, Journal, JournalError, MemoryDisk, MemoryJournal, Opened, Position};

use crate::script::{check, commit, counts, draw, read_tables};

/// Opens a journal until the disk lets it. Checks that nothing acknowledged is missing.
fn open(disk: &MemoryDisk, journal: &mut MemoryJournal, acknowledged: Position) -> Opened {
    for _ in 0..100 {
        match journal.open() {
            Ok(opened) => {
                assert!(opened.recovered.last >= acknowledged, "{acknowledged:?}: {:?}", opened.recovered);
                return opened;
            }
            // A crash has taken the disk from this journal.
            Err(JournalError::InUse { .. }) => panic!("nobody else has it: {disk:?}"),
            Err(JournalError::Damaged(damage)) => panic!("{damage}: {disk:?}"),
            Err(_) => {}
        }
    }
    panic!("the disk has a few faults only: {disk:?}");
}

/// Commits, applies and trims until so many records are on disk, and opens anew after each error. Returns how many
/// calls have failed.
fn run(disk: &MemoryDisk, seed: u64, records: u64) -> u64 {
    let (mut acknowledged, mut failures) = (Position::START, 0);
    let mut journal = MemoryJournal::new(disk);
    while acknowledged.0 < records {
        let mut opened = open(disk, &mut journal, acknowledged);
        acknowledged = opened.recovered.last;
        let result = write(&mut opened, seed, records, &mut acknowledged);
        failures += u64::from(result.is_err());
    }
    failures
}

fn write(opened: &mut Opened, seed: u64, records: u64, acknowledged: &mut Position) -> Result<(), JournalError> {
    let mut applied = opened.recovered.applied;
    while acknowledged.0 < records {
        let at = acknowledged.0;
        *acknowledged = commit(&mut *opened.log, seed, *acknowledged, 1 + draw(seed, at, 20, 4))?;
        if draw(seed, at, 21, 4) == 0 {
            applied = opened.tables.apply(Position(applied.0 + draw(seed, at, 22, 12)))?;
        }
        if draw(seed, at, 23, 4) == 0 {
            opened.log.trim(applied)?;
        }
    }
    Ok(())
}

#[test]
fn a_fault_of_any_one_call_loses_nothing_acknowledged() {
    for fault in [Fault::Full, Fault::Error, Fault::Crash, Fault::CrashBehind] {
        let mut call = 0;
        loop {
            let disk = MemoryDisk::with_seed(call);
            disk.fail_at(call, fault);
            run(&disk, 1, 30);
            let is_reached = disk.calls() > call;
            disk.heal();
            disk.crash();
            check(1, &mut MemoryJournal::new(&disk).open().unwrap());
            if !is_reached {
                break;
            }
            call += 1;
        }
        assert!(call > 60, "only {call} calls have failed");
    }
}

/// An opening acknowledges the records that it finds, also those whose commit has failed. `open` checks that they stay.
#[test]
fn a_crash_while_the_journal_is_opened_after_an_error_loses_nothing() {
    let seeds = counts("seeds of crashes of an opening", 1, 100);
    let mut crashes = 0;
    for (seed, fault) in (0..seeds).flat_map(|seed| [(seed, Fault::Crash), (seed, Fault::CrashBehind)]) {
        for (error, behind) in (0..30).flat_map(|error| (1..6).map(move |behind| (error, behind))) {
            let disk = MemoryDisk::with_seed(seed);
            disk.fail_at(error, Fault::Error);
            disk.fail_at(error + behind, fault);
            run(&disk, seed, 30);
            crashes += u64::from(disk.calls() > error + behind);
            disk.heal();
            disk.crash();
            let opened = &mut MemoryJournal::new(&disk).open().unwrap();
            assert!(opened.recovered.last >= Position(30));
            check(seed, opened);
        }
    }
    assert!(crashes > 200 * seeds, "only {crashes} crashes");
}

#[test]
fn faults_of_every_kind_lose_nothing_acknowledged() {
    let seeds = counts("seeds of faults", 60, 10_000);
    let mut failures = 0;
    for seed in 0..seeds {
        let disk = MemoryDisk::with_seed(seed);
        let kinds = [Fault::Full, Fault::Error, Fault::Error, Fault::Crash, Fault::CrashBehind];
        for number in 0..12 {
            disk.fail_at(draw(seed, number, 30, 200), kinds[draw(seed, number, 31, 5) as usize]);
        }
        failures += run(&disk, seed, 80);
        disk.crash();
        let mut journal = MemoryJournal::new(&disk);
        let opened = open(&disk, &mut journal, Position(80));
        drop(opened);
        disk.heal();
        check(seed, &mut journal.open().unwrap());
    }
    assert!(failures > seeds, "only {failures} calls have failed");
}

/// The crash comes after each record, and after each of its calls.
#[test]
fn a_crash_after_each_record_leaves_all_of_it() {
    for seed in 0..counts("seeds of crashes", 20, 1_000) {
        let disk = MemoryDisk::with_seed(seed);
        let mut last = Position::START;
        for _ in 0..30 {
            let mut journal = MemoryJournal::new(&disk);
            let mut opened = journal.open().unwrap();
            assert_eq!(opened.recovered.last, last);
            last = commit(&mut *opened.log, seed, last, 1).unwrap();
            disk.crash();
            assert!(matches!(commit(&mut *opened.log, seed, last, 1), Err(JournalError::Broken)));
        }
        check(seed, &mut MemoryJournal::new(&disk).open().unwrap());
    }
}

/// After a failed fsync the system shows a batch that is not on the disk. If it were left so, a later crash would take
/// it, and with it the batches after it.
#[test]
fn a_batch_of_a_failed_fsync_is_written_again_or_is_gone() {
    let mut shown = 0;
    for seed in 0..50 {
        let disk = MemoryDisk::with_seed(seed);
        let mut journal = MemoryJournal::new(&disk);
        let mut opened = journal.open().unwrap();
        disk.fail_at(disk.calls() + 1, Fault::Error);
        assert!(commit(&mut *opened.log, seed, Position::START, 3).is_err());
        let mut opened = journal.open().unwrap();
        let last = opened.recovered.last;
        shown += u64::from(last == Position(3));
        let last = commit(&mut *opened.log, seed, last, 1).unwrap();
        disk.crash();
        let mut opened = MemoryJournal::new(&disk).open().unwrap();
        assert_eq!(opened.recovered.last, last);
        check(seed, &mut opened);
    }
    assert!(shown > 0);
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let disk = MemoryDisk::new();
    let mut journal = MemoryJournal::new(&disk);
    let mut acknowledged = Position::START;
    for round in 1..=100 {
        disk.set_room(Some(disk.size() + 1_000));
        let error = loop {
            let mut opened = journal.open().unwrap();
            assert_eq!(opened.recovered.last, acknowledged);
            match commit(&mut *opened.log, 3, acknowledged, 1) {
                Ok(last) => acknowledged = last,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, JournalError::Full), "{error}");
        disk.set_room(None);
        let mut opened = journal.open().unwrap();
        acknowledged = commit(&mut *opened.log, 3, acknowledged, 1).unwrap();
        opened.tables.apply(acknowledged).unwrap();
        opened.log.trim(acknowledged).unwrap();
        assert!(acknowledged.0 >= round);
    }
    check(3, &mut journal.open().unwrap());
}

/// Every bit is reported, or is one of the last batch, which may have been torn.
#[test]
fn each_flipped_bit_is_reported_or_without_effect() {
    let flips = counts("flipped bits", 500, 10_000);
    let build = |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let mut opened = MemoryJournal::new(&disk).open().unwrap();
        (0..8).fold(Position::START, |last, _| commit(&mut *opened.log, seed, last, 4).unwrap());
        opened.tables.apply(Position(14)).unwrap();
        disk
    };
    let (mut reported, mut torn) = (0, 0);
    for flip in 0..flips {
        let disk = build(flip % 5);
        let bits = 8 * disk.size() as u64;
        let bit = draw(flip, 0, 40, bits);
        let is_last = disk.is_in_last_batch(bit);
        assert!(disk.flip(bit));
        disk.crash();
        let mut journal = MemoryJournal::new(&disk);
        match journal.open() {
            Err(JournalError::Damaged(Damage::Record(_) | Damage::Missing(_))) => reported += 1,
            Err(error) => panic!("{error}"),
            Ok(opened) if is_last => {
                assert_eq!(opened.recovered.last, Position(28));
                torn += 1;
            }
            Ok(mut opened) => {
                assert_ne!(opened.tables.check().unwrap(), [], "the check finds bit {bit}");
                let error = read_tables(&mut *opened.tables.reader().unwrap()).unwrap_err();
                assert!(matches!(error, JournalError::Damaged(Damage::Row(_))), "{error}");
                reported += 1;
            }
        }
    }
    assert!(reported > flips / 2 && torn > 0, "{reported} reported, {torn} torn");
}

#[test]
fn a_missing_batch_refuses_the_opening_and_is_named() {
    for number in 0..2 {
        let disk = MemoryDisk::new();
        let mut opened = MemoryJournal::new(&disk).open().unwrap();
        (0..3).fold(Position::START, |last, _| commit(&mut *opened.log, 1, last, 4).unwrap());
        disk.crash();
        assert!(disk.lose_batch(number) && !disk.lose_batch(2));
        let Err(error) = MemoryJournal::new(&disk).open() else { panic!("batch {number} is missing") };
        let missing = Position(4 * number as u64 + 1);
        assert!(matches!(error, JournalError::Damaged(Damage::Missing(at)) if at == missing), "{error}");
    }
}
