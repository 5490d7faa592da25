//! Tests of the tail and its writer.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::{Fate, Life, Refused, SETTLED, Tail, Work};
use crate::durable::journal::{
    Batch, Change, Damage, EncodedRecord, Fault, Journal, JournalError, Log, MemoryDisk, MemoryJournal, NameRow,
    Opened, Position, Record,
};
use crate::durable::writer::write;
use crate::wait::wait;

fn record(name: u64, bytes: usize) -> EncodedRecord {
    let row = NameRow { serial: name, body: vec![1; bytes] };
    EncodedRecord::new(&Record { changes: vec![Change::Name { class: 1, name: name.to_string(), row: Some(row) }] })
        .unwrap()
}

fn fate() -> (Box<dyn FnOnce(Fate) + Send>, Receiver<Fate>) {
    let (to, fate) = channel();
    (Box::new(move |fate| to.send(fate).unwrap()), fate)
}

/// A tail whose arrows the test takes itself.
fn taken(tail: &Tail) -> Batch {
    match tail.take() {
        Work::Commit(batch) => batch,
        other => panic!("{other:?} instead of a batch"),
    }
}

#[test]
fn a_record_is_released_when_its_batch_is_committed_and_not_before() {
    let tail = Tail::new(Position(7));
    let life = tail.life();
    let ((one, first), (two, second), (three, third)) = (fate(), fate(), fate());
    assert_eq!(tail.append(life, &record(1, 1), Some(one)), Ok(Position(8)));
    assert_eq!(tail.append(life, &record(2, 1), Some(two)), Ok(Position(9)));
    let batch = taken(&tail);
    assert_eq!((batch.first(), batch.count()), (Position(8), 2));
    assert_eq!(tail.append(life, &record(3, 1), Some(three)), Ok(Position(10)));
    assert!(first.try_recv().is_err() && second.try_recv().is_err());
    tail.committed(&batch);
    assert_eq!((first.try_recv(), second.try_recv()), (Ok(Fate::Released), Ok(Fate::Released)));
    assert!(third.try_recv().is_err());
    let (waiter, late) = fate();
    tail.when_released(life, Position(9), waiter);
    assert_eq!(late.try_recv(), Ok(Fate::Released));
    assert_eq!(taken(&tail).first(), Position(10));
}

#[test]
fn records_that_fill_a_batch_are_taken_in_order() {
    let tail = Tail::new(Position::START);
    let life = tail.life();
    for number in 0..20 {
        tail.append(life, &record(number, 1 << 18), None).unwrap();
    }
    let (mut next, mut batches) = (Position(1), 0);
    while next <= Position(20) {
        let batch = taken(&tail);
        assert_eq!(batch.first(), next);
        next = batch.last().next();
        batches += 1;
    }
    assert_eq!(batches, 3, "a batch has room for seven of them");
}

#[test]
fn a_rewind_drops_what_is_not_on_disk_and_refuses_the_life_before() {
    let tail = Tail::new(Position::START);
    let life = tail.life();
    let (waiters, fates): (Vec<_>, Vec<_>) = (0..4).map(|_| fate()).unzip();
    let mut taken_batch = None;
    for (number, waiter) in waiters.into_iter().enumerate() {
        tail.append(life, &record(number as u64, 1), Some(waiter)).unwrap();
        if number == 1 {
            taken_batch = Some(taken(&tail));
        }
    }
    // The commit of the first two fails. Both are on disk all the same.
    assert_eq!(taken_batch.unwrap().count(), 2);
    tail.rewind();
    assert_eq!(tail.append(life, &record(5, 1), None), Err(Refused::Rewound));
    assert_eq!(tail.append(tail.life(), &record(5, 1), None), Err(Refused::Rewound), "nothing is taken meanwhile");
    assert!(fates.iter().all(|fate| fate.try_recv().is_err()), "nobody knows yet");
    let (waiter, of_life_before) = fate();
    tail.when_released(life, Position(1), waiter);
    assert_eq!(of_life_before.try_recv(), Ok(Fate::Lost), "its process is gone, whatever the disk has");
    tail.reopened(Position(2));
    let fates: Vec<_> = fates.iter().map(|fate| fate.try_recv().unwrap()).collect();
    assert_eq!(fates, [Fate::Released, Fate::Released, Fate::Lost, Fate::Lost]);
    assert_eq!(tail.append(life, &record(5, 1), None), Err(Refused::Rewound), "its process is of an earlier life");
    assert_eq!(tail.append(tail.life(), &record(5, 1), None), Ok(Position(3)));
    let batch = taken(&tail);
    assert_eq!((batch.first(), batch.count()), (Position(3), 1), "it has nothing of the life before");
    let (waiter, fate) = fate();
    tail.when_released(life, Position(1), waiter);
    assert_eq!(fate.try_recv(), Ok(Fate::Lost));
}

/// Asks for the fate of a record as one from outside does.
fn settled(tail: &Tail, life: Life, position: u64) -> Receiver<Fate> {
    let (waiter, told) = fate();
    tail.when_settled(life, Position(position), waiter);
    told
}

#[test]
fn one_from_outside_is_told_the_fate_of_a_record_that_a_rewind_has_met() {
    let tail = Tail::new(Position::START);
    let life = tail.life();
    tail.append(life, &record(1, 1), None).unwrap();
    tail.committed(&taken(&tail));
    (2..=3).for_each(|number| assert!(tail.append(life, &record(number, 1), None).is_ok()));
    // The commit of the last two fails. The first of them is on disk all the same.
    drop(taken(&tail));
    tail.rewind();
    assert_eq!(settled(&tail, life, 1).try_recv(), Ok(Fate::Released), "it was on disk before");
    let (second, third) = (settled(&tail, life, 2), settled(&tail, life, 3));
    assert!(second.try_recv().is_err() && third.try_recv().is_err(), "nobody knows yet");
    tail.reopened(Position(2));
    assert_eq!((second.try_recv(), third.try_recv()), (Ok(Fate::Released), Ok(Fate::Lost)));
    let told = [1, 2, 3].map(|position| settled(&tail, life, position).try_recv().unwrap());
    assert_eq!(told, [Fate::Released, Fate::Released, Fate::Lost], "that is known afterwards, too");
    // Another record has the position now.
    assert_eq!(tail.append(tail.life(), &record(4, 1), None), Ok(Position(3)));
    tail.committed(&taken(&tail));
    assert_eq!(settled(&tail, life, 3).try_recv(), Ok(Fate::Lost));
    assert_eq!(settled(&tail, tail.life(), 3).try_recv(), Ok(Fate::Released));
    // Further rewinds forget nothing at first.
    let fates = |tail| [2, 3].map(|position| settled(tail, life, position).try_recv().unwrap());
    for _ in 1..SETTLED {
        tail.rewind();
        tail.reopened(Position(3));
        assert_eq!(fates(&tail), [Fate::Released, Fate::Lost]);
    }
    tail.rewind();
    tail.reopened(Position(3));
    assert_eq!(fates(&tail), [Fate::Lost; 2], "only so many lives are remembered");
}

#[test]
fn a_writer_that_ends_in_a_rewind_leaves_true_fates() {
    let tail = Tail::new(Position::START);
    let life = tail.life();
    tail.append(life, &record(1, 1), None).unwrap();
    tail.committed(&taken(&tail));
    tail.append(life, &record(2, 1), None).unwrap();
    tail.rewind();
    tail.give_up();
    let told = [1, 2].map(|position| settled(&tail, life, position).try_recv().unwrap());
    assert_eq!(told, [Fate::Released, Fate::Unknown]);
}

#[test]
fn a_process_that_is_loaded_while_the_journal_is_opened_is_refused() {
    let tail = Tail::new(Position::START);
    tail.append(tail.life(), &record(1, 1), None).unwrap();
    drop(taken(&tail));
    tail.rewind();
    // It may have been read by a reader of the last opening.
    let loaded = tail.life();
    tail.reopened(Position::START);
    assert_eq!(tail.append(loaded, &record(2, 1), None), Err(Refused::Rewound));
    assert_eq!(tail.append(tail.life(), &record(2, 1), None), Ok(Position(1)));
}

#[test]
fn a_tail_without_room_tells_its_waiters_when_there_is_room() {
    let tail = Tail::with_bound(Position::START, 1_000);
    let life = tail.life();
    let (told, room) = channel();
    let waiter = || {
        let told = told.clone();
        move || told.send(()).unwrap()
    };
    for number in 0..2 {
        assert!(tail.has_room(waiter()));
        tail.append(life, &record(number, 600), None).unwrap();
    }
    assert!(!tail.has_room(waiter()));
    assert!(!tail.has_room(waiter()));
    let batch = taken(&tail);
    assert!(room.try_recv().is_err(), "a batch that is being written takes room");
    tail.committed(&batch);
    assert_eq!(room.try_iter().count(), 2);
    assert!(tail.has_room(waiter()));
    // The sizes that were added are those that are taken away.
    for _ in 0..100 {
        tail.append(life, &record(1, 990), None).unwrap();
        tail.committed(&taken(&tail));
        assert!(tail.has_room(waiter()));
    }
}

#[test]
fn a_commit_tells_of_room_only_if_there_is_some() {
    let tail = Tail::with_bound(Position::START, 1_000);
    let life = tail.life();
    tail.append(life, &record(1, 600), None).unwrap();
    let first = taken(&tail);
    assert_eq!([2, 3].map(|number| tail.append(life, &record(number, 600), None)), [2, 3].map(|at| Ok(Position(at))));
    let (told, room) = channel();
    assert!(!tail.has_room(move || told.send(()).unwrap()));
    tail.committed(&first);
    assert!(room.try_recv().is_err(), "two records are more than the bound");
    tail.committed(&taken(&tail));
    room.try_recv().expect("there is room");
}

#[test]
fn a_writer_that_gives_up_leaves_nobody_waiting() {
    let tail = Tail::with_bound(Position::START, 10);
    let life = tail.life();
    let (waiter, of_append) = fate();
    tail.append(life, &record(1, 100), Some(waiter)).unwrap();
    let (told, room) = channel();
    assert!(!tail.has_room(move || told.send(()).unwrap()));
    tail.give_up();
    assert_eq!(of_append.try_recv(), Ok(Fate::Unknown));
    room.try_recv().expect("nobody waits for room in a tail that is closed");
    assert!(tail.has_room(|| panic!("nobody is told later")));
    let (waiter, late) = fate();
    tail.when_released(life, Position(1), waiter);
    assert_eq!(late.try_recv(), Ok(Fate::Unknown));
    assert_eq!(tail.append(life, &record(2, 1), None), Err(Refused::Closed));
    assert_eq!(tail.take(), Work::End, "nothing is written any more");
}

#[test]
fn a_rewind_makes_room() {
    let tail = Tail::with_bound(Position::START, 10);
    tail.append(tail.life(), &record(1, 100), None).unwrap();
    let (told, room) = channel();
    assert!(!tail.has_room(move || told.send(()).unwrap()));
    tail.rewind();
    tail.reopened(Position::START);
    room.try_recv().expect("it is told");
}

/// A writer on a thread of its own. Returns how it has ended.
fn writer(tail: &Arc<Tail>, disk: &MemoryDisk, pauses: &Arc<Mutex<u64>>) -> JoinHandle<Option<JournalError>> {
    let (tail, disk, pauses) = (tail.clone(), disk.clone(), pauses.clone());
    let mut journal = MemoryJournal::new(&disk);
    let opened = journal.open().unwrap();
    thread::spawn(move || {
        let pause = || {
            *pauses.lock().unwrap() += 1;
            // There is room again after some attempts.
            if *pauses.lock().unwrap() > 5 {
                disk.heal();
                disk.set_room(None);
            }
        };
        write(&tail, &mut journal, opened.log, |opened| (opened.log, Ok(())), pause).err()
    })
}

/// The number of the records that are on disk.
fn stored(disk: &MemoryDisk) -> u64 {
    disk.crash();
    MemoryJournal::new(disk).open().unwrap().recovered.last.0
}

#[test]
fn a_closed_tail_is_on_disk_when_its_writer_ends() {
    let disk = MemoryDisk::new();
    let tail = Arc::new(Tail::new(Position::START));
    let writer = writer(&tail, &disk, &Arc::default());
    for number in 0..1_000 {
        tail.append(tail.life(), &record(number, 10), None).unwrap();
    }
    tail.close();
    assert!(wait(writer).unwrap().is_none());
    assert_eq!(tail.append(tail.life(), &record(1, 1), None), Err(Refused::Closed));
    assert_eq!((tail.released(), stored(&disk)), (Position(1_000), 1_000));
}

#[test]
fn a_full_disk_is_tried_again_after_a_pause_until_there_is_room() {
    let disk = MemoryDisk::new();
    disk.set_room(Some(200));
    let pauses = Arc::default();
    let tail = Arc::new(Tail::new(Position::START));
    let thread = writer(&tail, &disk, &pauses);
    // The disk has room for the first record, and for others when the writer has paused some times.
    let (mut lost, mut released) = (0, 0);
    while released < 2 {
        let (waiter, fate) = fate();
        match tail.append(tail.life(), &record(1, 150), Some(waiter)) {
            Ok(_) if wait(&fate) == Ok(Fate::Released) => released += 1,
            Ok(_) => lost += 1,
            Err(refused) => assert_eq!(refused, Refused::Rewound),
        }
    }
    tail.close();
    assert!(wait(thread).unwrap().is_none(), "a full disk ends no writer");
    assert_eq!(*pauses.lock().unwrap(), lost, "the writer pauses after each refusal, also if the journal opens");
    assert!(lost > 3, "{lost}");
}

#[test]
fn an_error_of_the_tables_counts_unless_it_passes_or_follows_from_another() {
    let io = || JournalError::Io { call: "read", source: "on purpose".into() };
    let orders = [
        (vec![JournalError::Full], false),
        (vec![locked()], false),
        (vec![JournalError::Broken], false),
        (vec![io()], true),
        // The thread that has met the error itself may be late.
        (vec![JournalError::Broken, io()], true),
        (vec![io(), JournalError::Broken], true),
    ];
    for (errors, counts) in orders {
        let tail = Tail::new(Position::START);
        errors.iter().for_each(|error| tail.reopen(tail.life(), error));
        assert!(matches!(tail.take(), Work::Reopen { why } if why.is_some() == counts), "{errors:?}");
    }
}

/// A journal whose first openings fail.
struct Failing {
    journal: MemoryJournal,
    /// The errors of its openings.
    errors: Vec<JournalError>,
}

impl Journal for Failing {
    fn open(&mut self) -> Result<Opened, JournalError> {
        self.errors.pop().map_or_else(|| self.journal.open(), Err)
    }
}

/// A writer whose first commit fails, and then the openings of its journal. Returns the error with which it has ended,
/// how often it has paused, and the fate of its record.
fn with_failing_openings(errors: Vec<JournalError>, is_closing: bool) -> (Option<JournalError>, u32, Fate) {
    let (tail, disk) = (Tail::new(Position::START), MemoryDisk::new());
    let mut journal = MemoryJournal::new(&disk);
    let opened = journal.open().unwrap();
    disk.fail_at(disk.calls(), Fault::Error);
    let (waiter, of_record) = fate();
    tail.append(tail.life(), &record(1, 1), Some(waiter)).unwrap();
    if is_closing {
        tail.close();
    }
    let mut pauses = 0;
    let reopened = |opened: Opened| {
        let refused = tail.append(tail.life(), &record(2, 1), None).unwrap_err();
        let expected = if is_closing { Refused::Closed } else { Refused::Rewound };
        assert_eq!(refused, expected, "the tail takes nothing until the journal is given out");
        // The writer would wait for records.
        tail.close();
        (opened.log, Ok(()))
    };
    let ended = write(&tail, &mut Failing { journal, errors }, opened.log, reopened, || pauses += 1);
    (ended.err(), pauses, of_record.try_recv().unwrap())
}

fn locked() -> JournalError {
    JournalError::Busy { file: "log.db".into() }
}

#[test]
fn a_file_that_another_program_has_locked_closes_no_store() {
    let (error, pauses, fate) = with_failing_openings((0..10).map(|_| locked()).collect(), false);
    assert!(error.is_none() && fate != Fate::Unknown, "{error:?}");
    assert_eq!(pauses, 11);
}

#[test]
fn an_error_that_lasts_ends_its_writer_at_once() {
    let format = || JournalError::Format { found: 2, expected: 1 };
    for last in [JournalError::Damaged(Damage::Mark), format()] {
        let text = last.to_string();
        // The next opening would succeed.
        let (error, pauses, fate) = with_failing_openings(vec![last], false);
        assert_eq!((error.map(|error| error.to_string()), pauses, fate), (Some(text), 1, Fate::Unknown));
    }
}

#[test]
fn a_tail_that_is_being_closed_waits_for_no_second_opening() {
    let (error, pauses, fate) = with_failing_openings(vec![locked()], true);
    assert!(matches!(error, Some(JournalError::Busy { .. })), "{error:?}");
    assert_eq!((pauses, fate), (1, Fate::Unknown));
    let (error, pauses, _) = with_failing_openings(Vec::new(), true);
    assert!(error.is_none() && pauses == 1, "{error:?}");
}

#[test]
fn the_third_error_in_a_row_closes_the_store_and_says_why() {
    for errors in [2, 3] {
        let disk = MemoryDisk::new();
        let tail = Arc::new(Tail::new(Position::START));
        let thread = writer(&tail, &disk, &Arc::default());
        // The write of the commit, and then the syncs of the openings.
        let first = disk.calls();
        (first..first + errors).for_each(|call| disk.fail_at(call, Fault::Error));
        let (waiter, fate) = fate();
        tail.append(tail.life(), &record(1, 1), Some(waiter)).unwrap();
        if errors == 3 {
            assert_eq!(wait(&fate), Ok(Fate::Unknown));
            let error = wait(thread).unwrap().expect("it says why");
            assert!(matches!(error, JournalError::Io { .. }), "{error}");
            assert_eq!(tail.append(tail.life(), &record(1, 1), None), Err(Refused::Closed));
            assert!(tail.has_room(|| panic!("there is room")), "nobody waits for a store that is closed");
        } else {
            assert_ne!(wait(&fate), Ok(Fate::Unknown));
            tail.close();
            assert!(wait(thread).unwrap().is_none());
        }
    }
}

#[test]
fn errors_that_are_not_in_a_row_close_nothing() {
    let disk = MemoryDisk::new();
    let tail = Arc::new(Tail::new(Position::START));
    let thread = writer(&tail, &disk, &Arc::default());
    for _ in 0..10 {
        disk.fail_at(disk.calls(), Fault::Error);
        let is_released = || {
            let (waiter, fate) = fate();
            tail.append(tail.life(), &record(1, 1), Some(waiter)).is_ok() && wait(&fate) == Ok(Fate::Released)
        };
        crate::wait::until("a record is on disk", is_released);
    }
    tail.close();
    assert!(wait(thread).unwrap().is_none());
}

/// The journal's parts are dropped before it is opened anew.
#[test]
fn the_old_log_is_dropped_before_the_journal_is_opened_anew() {
    #[derive(Debug)]
    struct Failing(Arc<Mutex<bool>>);
    impl Log for Failing {
        fn commit(&mut self, _: &Batch) -> Result<(), JournalError> {
            Err(JournalError::Full)
        }
        fn trim(&mut self, _: Position) -> Result<bool, JournalError> {
            Ok(false)
        }
    }
    impl Drop for Failing {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = true;
        }
    }
    let is_dropped = Arc::new(Mutex::new(false));
    let disk = MemoryDisk::new();
    let tail = Tail::new(Position::START);
    tail.append(tail.life(), &record(1, 1), None).unwrap();
    tail.close();
    let check = |opened: crate::durable::journal::Opened| {
        assert!(*is_dropped.lock().unwrap());
        (opened.log, Ok(()))
    };
    write(&tail, &mut MemoryJournal::new(&disk), Box::new(Failing(is_dropped.clone())), check, || ()).unwrap();
}

#[test]
fn a_writer_that_panics_closes_its_tail() {
    let (tail, disk) = (Arc::new(Tail::new(Position::START)), MemoryDisk::new());
    let mut journal = MemoryJournal::new(&disk);
    let opened = journal.open().unwrap();
    let (waiter, fate) = fate();
    tail.append(tail.life(), &record(1, 1), Some(waiter)).unwrap();
    disk.set_room(Some(0));
    let of_writer = tail.clone();
    let reopened = |_: Opened| -> (Box<dyn Log>, Result<(), JournalError>) { panic!("on purpose") };
    let writer = thread::spawn(move || write(&of_writer, &mut journal, opened.log, reopened, || ()).is_ok());
    assert_eq!(wait(&fate), Ok(Fate::Unknown));
    assert!(writer.join().is_err());
    assert_eq!(tail.append(tail.life(), &record(1, 1), None), Err(Refused::Closed));
}

#[test]
fn a_journal_that_has_lost_acknowledged_records_closes_the_store() {
    let (tail, disk) = (Arc::new(Tail::new(Position::START)), MemoryDisk::new());
    let mut journal = MemoryJournal::new(&disk);
    let opened = journal.open().unwrap();
    let (waiter, fate_of_first) = fate();
    let life = tail.life();
    tail.append(life, &record(1, 1), Some(waiter)).unwrap();
    let (of_writer, other) = (tail.clone(), disk.clone());
    let writer =
        thread::spawn(move || write(&of_writer, &mut journal, opened.log, |opened| (opened.log, Ok(())), || ()).err());
    assert_eq!(wait(&fate_of_first), Ok(Fate::Released));
    // The only batch cannot be read any more, and looks like a torn write.
    assert!((0..8 * disk.size() as u64).any(|bit| disk.is_in_last_batch(bit) && disk.flip(bit)));
    other.set_room(Some(0));
    let (waiter, fate_of_second) = fate();
    tail.append(life, &record(2, 1), Some(waiter)).unwrap();
    assert_eq!(wait(&fate_of_second), Ok(Fate::Unknown));
    let error = wait(writer).unwrap();
    assert!(matches!(error, Some(JournalError::Damaged(Damage::Missing(Position(1))))), "{error:?}");
}
