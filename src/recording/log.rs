//! The recording of one process, while it lives.

use std::collections::HashMap;

use super::codec::{Input, Recordable, put_list};
use super::item::{Before, End, kinds, put_missing};
use super::ring::{Head, Ring, SNAPSHOT, STEP, Total, frames_of};
use super::words::Memory;
use crate::primitives::{Arc, Brief, Mutex, Weak, enter, lock};
use crate::process::Pid;

/// The largest buffer, in bytes, that a process keeps for the encoding of one message.
const KEPT: usize = 4096;

/// The recordings of all living processes of a runtime.
pub(super) struct Live {
    pub(super) total: Arc<Total>,
    logs: Mutex<HashMap<Pid, Weak<Log>>>,
}

impl Live {
    pub(super) fn new(total: usize) -> Live {
        Live { total: Arc::new(Total::new(total)), logs: Mutex::default() }
    }

    pub(super) fn add(&self, log: &Arc<Log>) {
        lock(&self.logs).insert(log.process.pid, Arc::downgrade(log));
    }

    pub(super) fn of(&self, pid: Pid) -> Option<Arc<Log>> {
        lock(&self.logs).get(&pid)?.upgrade()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.logs).len()
    }

    fn remove(&self, log: &Log) {
        let mut logs = lock(&self.logs);
        // A state machine that replaces another one has the PID of its predecessor.
        if logs.get(&log.process.pid).is_some_and(|one| std::ptr::eq(one.as_ptr(), log)) {
            logs.remove(&log.process.pid);
        }
    }
}

/// The description of a recorded process.
#[derive(Clone, Debug)]
pub(super) struct RecordedProcess {
    pub(super) pid: Pid,
    /// The types of the process and of its messages.
    pub(super) process: &'static str,
    pub(super) message: &'static str,
    pub(super) name: Option<Arc<str>>,
    /// The entry with which the process began, encoded. `None` is `"main"` without an input.
    pub(super) entry: Option<Vec<u8>>,
}

/// The recording of one process, as other threads see it.
pub(super) struct Log {
    pub(super) process: RecordedProcess,
    live: Arc<Live>,
    memory: Arc<Memory>,
    notes: Brief<Notes>,
}

/// Facts that are seldom written.
#[derive(Default)]
struct Notes {
    /// The newest step that has something in it that could not be encoded, and what.
    missing: Option<(u64, String)>,
    seed: u64,
}

/// The contents of a recording at one moment.
pub(super) struct Frames {
    pub(super) all: Vec<(u8, Vec<u8>)>,
    /// The step that has not returned, if there is one.
    pub(super) unfinished: Option<Vec<u8>>,
    pub(super) seed: u64,
    pub(super) missing: Option<String>,
}

impl Log {
    pub(super) fn set_seed(&self, seed: u64) {
        enter(&self.notes).seed = seed;
    }

    /// Notes that the entry with which the process began cannot be encoded.
    pub(super) fn entry_is_missing(&self) {
        let what = "the input with which it began has a type without a codec: see `Recorder::answer`";
        enter(&self.notes).missing = Some((0, what.to_owned()));
    }

    pub(super) fn frames(&self) -> Frames {
        let copied = self.memory.copy();
        let frames = frames_of(&copied.frames);
        let all: Vec<_> = frames.filter_map(|(head, words)| Some((head.kind, body_of(Some(head), words)?))).collect();
        let unfinished = copied.open.get(1..).and_then(|words| body_of(None, words));
        let (missing, seed) = {
            let notes = enter(&self.notes);
            (notes.missing.clone(), notes.seed)
        };
        let steps = all.iter().filter(|(kind, _)| *kind == STEP).map(|(_, body)| body).chain(&unfinished);
        let oldest = steps.filter_map(|step| Input::new(step).take::<u64>().ok()).next();
        let missing = missing.filter(|(step, _)| oldest.is_some_and(|oldest| *step >= oldest)).map(|(_, what)| what);
        Frames { all, unfinished, seed, missing }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.live.remove(self);
    }
}

/// Writes the recording of one process. Only the thread that steps the process has it.
///
/// The words of a step are its number, its tags, its draws, and the items that it has read. The bytes of a file are
/// made when the recording is saved.
pub(super) struct Writer {
    log: Arc<Log>,
    ring: Ring,
    /// Holds something while it is encoded.
    bytes: Vec<u8>,
    /// The number of the step in hand, or of the next one.
    next: u64,
    /// The results of the replies that the step in hand has sent itself.
    pub(super) replies: Vec<bool>,
}

/// The number of a bit in the word with the draws. The bit says whether the step was given no messages.
const WAITS: u32 = 63;

/// The last byte of the head of a step whose end has been encoded with the rest. Otherwise it is the number of its end.
const ENCODED: u8 = u8::MAX;

/// The kind of an item that was encoded as it is in a file.
const ITEM: u8 = 0;

impl Writer {
    pub(super) fn new(process: RecordedProcess, live: &Arc<Live>, limit: usize, has_snapshots: bool) -> Writer {
        let ring = Ring::new(limit, live.total.clone(), has_snapshots);
        let (memory, notes) = (ring.memory(), Brief::default());
        let log = Arc::new(Log { process, live: live.clone(), memory, notes });
        live.add(&log);
        Writer { log, ring, bytes: Vec::new(), next: 0, replies: Vec::new() }
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Begins a step.
    #[inline(always)]
    pub(super) fn begin(&mut self, tags: u64, draws: u64, waits: bool) {
        self.replies.clear();
        self.ring.begin([0, self.next, tags, draws | u64::from(waits) << WAITS]);
        self.ring.show();
    }

    /// Adds a message that the step was shown. If it was taken, its sender is known. If `put` returns `false`, the
    /// message cannot be encoded.
    #[inline]
    pub(super) fn message(&mut self, from: Option<Option<Pid>>, put: impl FnOnce(&mut Vec<u8>) -> bool) {
        self.bytes.clear();
        if !put(&mut self.bytes) {
            return self.missing(format!("the codec of {} panicked", self.log.process.message));
        }
        let item = |kind: u8, bytes: &[u8]| u64::from(kind) | (bytes.len() as u64) << 8;
        match from {
            Some(from) => self.ring.put_all([item(kinds::MESSAGE, &self.bytes), from.map_or(0, Pid::to_word)]),
            None => self.ring.put(item(kinds::PASSED, &self.bytes)),
        }
        self.end_item();
    }

    /// Notes that the step has found no further event.
    #[inline]
    pub(super) fn nothing(&mut self) {
        self.ring.put(kinds::NOTHING.into());
    }

    /// Adds an item that the step has read. If `put` returns an error, the item cannot be encoded.
    pub(super) fn item(&mut self, put: impl FnOnce(&mut Vec<u8>) -> Result<(), String>) {
        self.bytes.clear();
        match put(&mut self.bytes) {
            Ok(()) => {
                self.ring.put(u64::from(ITEM) | (self.bytes.len() as u64) << 8);
                self.end_item();
            }
            Err(what) => self.missing(what),
        }
    }

    #[inline(always)]
    fn end_item(&mut self) {
        self.ring.put_bytes(&self.bytes);
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.ring.show();
    }

    /// Notes something that the step has read and that cannot be encoded.
    #[cold]
    fn missing(&mut self, what: String) {
        self.item(|to| {
            put_missing(&what, to);
            Ok(())
        });
        enter(&self.log.notes).missing = Some((self.next, what));
    }

    /// Ends a step of the usual kind: its end has no text, and it has spawned nothing, used no monitors, and sent no
    /// replies itself.
    #[inline]
    pub(super) fn end_plainly(&mut self, kind: u8, yields: u64) -> bool {
        self.ring.put(yields);
        self.complete(kind)
    }

    /// Ends a step. Returns whether the state of the process is wanted now.
    #[cold]
    pub(super) fn end(&mut self, end: &End) -> bool {
        self.item(|to| {
            end.put(to);
            Ok(())
        });
        self.complete(ENCODED)
    }

    #[inline]
    fn complete(&mut self, last: u8) -> bool {
        self.next += 1;
        self.ring.complete(Head { kind: STEP, last });
        self.ring.wants_snapshot()
    }

    /// Adds the state of the process after the last step.
    pub(super) fn snapshot(&mut self, state: &[u8]) {
        self.ring.begin([0, self.next, state.len() as u64]);
        self.ring.put_bytes(state);
        self.ring.complete(Head { kind: SNAPSHOT, last: 0 });
    }
}

/// The words of a frame that are left.
struct Left<'a>(&'a [u64]);

impl Left<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, left) = self.0.split_first()?;
        self.0 = left;
        Some(*word)
    }

    fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let (words, left) = self.0.split_at_checked(count.div_ceil(8))?;
        self.0 = left;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(count);
        Some(bytes)
    }
}

/// The body that a frame with these words has in a file. The open frame has no `head`. `None` if a word is missing.
fn body_of(head: Option<Head>, words: &[u64]) -> Option<Vec<u8>> {
    let (mut words, mut to) = (Left(words), Vec::new());
    let number = words.word()?;
    if head.is_some_and(|head| head.kind == SNAPSHOT) {
        number.encode(&mut to);
        let count = usize::try_from(words.word()?).ok()?;
        to.extend(words.bytes(count)?);
        return Some(to);
    }
    let (tags, draws) = (words.word()?, words.word()?);
    Before { number, tags, draws: draws & !(1 << WAITS), waits: draws >> WAITS != 0 }.put(&mut to);
    let plain = head.map(|head| head.last).filter(|last| *last != ENCODED);
    while words.0.len() > usize::from(plain.is_some()) {
        let item = words.word()?;
        let (kind, count) = (item as u8, usize::try_from(item >> 8).ok()?);
        let from = if kind == kinds::MESSAGE { Some(words.word()?) } else { None };
        let bytes = words.bytes(count)?;
        if kind == ITEM {
            to.extend(bytes);
            continue;
        }
        to.push(kind);
        to.extend(from.into_iter().flat_map(u64::to_le_bytes));
        if kind != kinds::NOTHING {
            put_list(&bytes, &mut to);
        }
    }
    if let Some(kind) = plain {
        End::put_plain(kind, words.word()?, &mut to);
    }
    Some(to)
}
