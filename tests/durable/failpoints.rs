//! Programs that end themselves at chosen points: before and after each call of the journal, and around their effects.

use std::io::Read;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use procession::durable::Store;
use procession::durable::journal::{
    Batch, Damage, EntryRow, Journal, JournalError, Log, NameRow, Opened, Position, ProcessRow, Reader, SqliteJournal,
    Status, StoredProcess, Tables,
};

use crate::ledgers::{IN_ONE_WORLD, buy_on, check, go_on};
use crate::places::{Directory, is_ahead};
use crate::script::{counts, draw};
use crate::torture::{last_number, lines};
use crate::wait::wait;

/// The variables of a program that ends itself: the directory of its world, the point, and how often it is passed.
const WORLD: &str = "PROCESSION_FAILPOINT_WORLD";
const POINT: &str = "PROCESSION_FAILPOINT";
const PASSES: &str = "PROCESSION_FAILPOINT_PASSES";

/// The points, each with the most passes before the program ends there.
const POINTS: [(&str, u64); 18] = [
    ("commit", 100),
    ("committed", 100),
    ("trim", 100),
    ("trimmed", 100),
    ("apply", 20),
    ("applied", 20),
    ("load", 20),
    ("loaded", 20),
    ("opened", 1),
    ("acknowledgement", 5),
    ("hand-out", 100),
    ("effect", 100),
    ("answer", 60),
    ("answered", 60),
    ("departure", 20),
    ("return", 20),
    ("timer", 40),
    ("child", 40),
];

/// The point at which this program ends itself.
static CHOSEN: OnceLock<(String, AtomicU64)> = OnceLock::new();

/// Ends the program as a kill does, if this is the point and it was passed often enough.
pub(crate) fn reach(point: &str) {
    if let Some((chosen, passes)) = CHOSEN.get()
        && chosen == point
        && passes.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

/// Whether the processes of this program are to leave memory now and then, because its point is about that.
pub(crate) fn is_about_memory() -> bool {
    let points = ["apply", "applied", "load", "loaded", "departure", "return"];
    CHOSEN.get().is_some_and(|(chosen, _)| points.contains(&chosen.as_str()))
}

/// A journal with points before and after its calls.
struct PointedJournal(SqliteJournal);

#[derive(Debug)]
struct PointedLog(Box<dyn Log>);

#[derive(Debug)]
struct PointedTables(Box<dyn Tables>);

#[derive(Debug)]
struct PointedReader(Box<dyn Reader>);

impl Journal for PointedJournal {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let Opened { recovered, log, tables } = self.0.open()?;
        reach("opened");
        Ok(Opened { recovered, log: Box::new(PointedLog(log)), tables: Box::new(PointedTables(tables)) })
    }
}

impl Log for PointedLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        reach("commit");
        self.0.commit(batch)?;
        reach("committed");
        Ok(())
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        reach("trim");
        let trimmed = self.0.trim(applied)?;
        reach("trimmed");
        Ok(trimmed)
    }
}

impl Tables for PointedTables {
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError> {
        reach("apply");
        let applied = self.0.apply_some(through)?;
        reach("applied");
        Ok(applied)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        Ok(Box::new(PointedReader(self.0.reader()?)))
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        self.0.check()
    }
}

impl Reader for PointedReader {
    fn load(&mut self, serial: u64) -> Result<StoredProcess, JournalError> {
        reach("load");
        let loaded = self.0.load(serial)?;
        reach("loaded");
        Ok(loaded)
    }

    fn process(&mut self, serial: u64) -> Result<Option<ProcessRow>, JournalError> {
        self.0.process(serial)
    }

    fn entries(&mut self, serial: u64) -> Result<Vec<(u8, u64, EntryRow)>, JournalError> {
        self.0.entries(serial)
    }

    fn name(&mut self, class: u8, name: &str) -> Result<Option<NameRow>, JournalError> {
        self.0.name(class, name)
    }

    fn with_status(&mut self, status: Option<Status>, after: u64, limit: usize) -> Result<Vec<u64>, JournalError> {
        self.0.with_status(status, after, limit)
    }

    fn entry(&mut self, serial: u64, class: u8, number: u64) -> Result<Option<EntryRow>, JournalError> {
        self.0.entry(serial, class, number)
    }

    fn of_class(
        &mut self,
        class: u8,
        after: (u64, u64),
        limit: usize,
    ) -> Result<Vec<(u64, u64, EntryRow)>, JournalError> {
        self.0.of_class(class, after, limit)
    }

    fn due(&mut self, from: u64, until: u64, limit: usize) -> Result<Vec<(u64, u64, u8, u64)>, JournalError> {
        self.0.due(from, until, limit)
    }
}

/// The program that ends itself. Without the variables this is no test.
#[test]
fn child_program() {
    let Some(world) = std::env::var_os(WORLD) else { return };
    let passes = std::env::var(PASSES).unwrap().parse().unwrap();
    CHOSEN.set((std::env::var(POINT).unwrap(), AtomicU64::new(passes))).unwrap();
    let world = Path::new(&world);
    // So that processes leave memory and return.
    let store = Store::with_journal(PointedJournal(SqliteJournal::new(world.join("store"))));
    let store = store.ahead(is_ahead()).max_resident(2);
    buy_on(world, store);
}

#[test]
fn each_effect_is_there_once_though_the_program_ends_at_any_point() {
    let kills = counts("kills", 108, 5_000);
    (0..kills).step_by(IN_ONE_WORLD).for_each(|kill| end_at_points(kill..kills.min(kill + IN_ONE_WORLD as u64)));
}

/// Makes a world, and ends its program so often.
fn end_at_points(kills: Range<u64>) {
    let directory = Directory::new();
    let world = directory.path();
    let mut total = 0;
    for kill in kills.clone() {
        let (point, most) = POINTS[kill as usize % POINTS.len()];
        let passes = 1 + draw(13, kill, 1, most);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "failpoints::child_program", "--nocapture", "--quiet"]);
        command.env(WORLD, world).env(POINT, point).env(PASSES, passes.to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = lines(&mut child);
        let what = format!("{point}, pass {passes}");
        let acknowledged = last_number(&mut child, &lines, "acknowledged", &what).unwrap_or(0);
        let status = wait(&mut child);
        // A program that panics has another status.
        assert_eq!(status.signal(), Some(6), "{what}: it ends itself: {status}");
        total = go_on(world, total + acknowledged);
        if kill % 50 == 49 || kill + 1 == kills.end {
            check(world, total, kill + 1 - kills.start);
        }
    }
}

/// Kills the program in front of a call that writes or syncs a file of its store. So it is also killed between the
/// write and the sync of a commit, and between two writes of one.
#[cfg(target_os = "linux")]
#[test]
fn each_effect_is_there_once_though_a_kill_comes_between_write_and_sync() {
    let kills = counts("kills between calls", 24, 3_000);
    let place = Directory::new();
    let library = crate::failing_calls::library(&place);
    let mut directory = Directory::new();
    let (mut total, mut before_a_sync, mut kill, mut first) = (0, 0, 0, 0);
    // The place of a kill is drawn among all calls. So a few kills may miss each sync.
    while kill < kills || before_a_sync == 0 && kill < 20 * kills {
        if kill - first == IN_ONE_WORLD as u64 {
            check(directory.path(), total, kill - first);
            (directory, total, first) = (Directory::new(), 0, kill);
        }
        let world = directory.path();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ledgers::child_program", "--nocapture", "--quiet"]);
        command.env(crate::ledgers::WORLD, world).env("LD_PRELOAD", &library);
        command.env("PROCESSION_FAILING_IN", world.join("store")).env("PROCESSION_FAILING_HOW", "kill");
        command.env("PROCESSION_FAILING_AT", draw(17, kill, 1, 600).to_string()).env("PROCESSION_FAILING_FOR", "1");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines(&mut child);
        let acknowledged = last_number(&mut child, &lines, "acknowledged", &format!("kill {kill}")).unwrap_or(0);
        let (status, mut text) = (wait(&mut child), String::new());
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(status.signal() == Some(9) && text.contains("a call fails"), "it is killed: {status}: {text}");
        before_a_sync += u64::from(text.contains("sync /log.db-wal"));
        total = go_on(world, total + acknowledged);
        kill += 1;
    }
    check(directory.path(), total, kill - first);
    println!("{before_a_sync} of {kill} kills came in front of the sync of a commit");
    assert!(before_a_sync > 0, "one comes between the write and the sync of a commit");
}
