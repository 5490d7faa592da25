//! The recording of one process, while it lives.

use std::collections::HashMap;

use super::codec::{Recordable, put_list};
use super::item::{Before, End, put_missing};
use super::ring::{Ring, SNAPSHOT, STEP, Total, frames_of};
use crate::primitives::{Arc, Brief, Mutex, Weak, enter, lock};
use crate::process::Pid;

/// The largest buffer, in bytes, that a process keeps from step to step for the step in hand.
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

/// The recording of one process.
pub(super) struct Log {
    pub(super) process: RecordedProcess,
    live: Arc<Live>,
    limit: usize,
    steps: Brief<Steps>,
}

struct Steps {
    ring: Ring,
    /// The step in hand.
    step: Vec<u8>,
    is_open: bool,
    is_too_large: bool,
    next: u64,
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
    pub(super) fn new(process: RecordedProcess, live: &Arc<Live>, limit: usize, has_snapshots: bool) -> Arc<Log> {
        let steps = Steps {
            ring: Ring::new(limit, live.total.clone(), has_snapshots),
            step: Vec::new(),
            is_open: false,
            is_too_large: false,
            next: 0,
            missing: None,
            seed: 0,
        };
        let log = Arc::new(Log { process, live: live.clone(), limit, steps: Brief::new(steps) });
        live.add(&log);
        log
    }

    pub(super) fn set_seed(&self, seed: u64) {
        enter(&self.steps).seed = seed;
    }

    /// Begins a step.
    #[inline]
    pub(super) fn begin(&self, tags: u64, draws: u64, waits: bool) {
        let steps = &mut *enter(&self.steps);
        steps.step.clear();
        (steps.is_open, steps.is_too_large) = (true, false);
        Before { number: steps.next, tags, draws, waits }.put(&mut steps.step);
    }

    /// Adds to the step in hand. Nothing is added between the steps.
    #[inline]
    pub(super) fn add(&self, add: impl FnOnce(&mut Vec<u8>)) {
        let steps = &mut *enter(&self.steps);
        if steps.is_open && !steps.is_too_large {
            add(&mut steps.step);
            if steps.step.len() > self.limit {
                steps.step = Vec::new();
                steps.is_too_large = true;
            }
        }
    }

    /// Adds a message that a step was shown.
    #[inline]
    pub(super) fn add_bytes(&self, kind: u8, head: impl FnOnce(&mut Vec<u8>), bytes: &[u8]) {
        self.add(|to| {
            to.push(kind);
            head(to);
            put_list(bytes, to);
        });
    }

    /// Notes something that the step has read and that cannot be encoded.
    #[cold]
    pub(super) fn add_missing(&self, what: String) {
        self.add(|to| put_missing(&what, to));
        let steps = &mut *enter(&self.steps);
        steps.missing = Some((steps.next, what));
    }

    /// Notes that the entry with which the process began cannot be encoded.
    pub(super) fn entry_is_missing(&self) {
        let what = "the input with which it began has a type without a codec: see `Recorder::answer`";
        enter(&self.steps).missing = Some((0, what.to_owned()));
    }

    /// Ends the step. Returns whether the state of the process is wanted now.
    #[inline]
    pub(super) fn end(&self, end: &End) -> bool {
        let steps = &mut *enter(&self.steps);
        steps.is_open = false;
        steps.next += 1;
        if steps.is_too_large {
            steps.ring.lose();
        } else {
            end.put(&mut steps.step);
            steps.ring.push(STEP, &steps.step);
        }
        if steps.step.capacity() > KEPT {
            steps.step = Vec::new();
        }
        steps.ring.wants_snapshot()
    }

    /// Adds the state of the process behind the last step.
    pub(super) fn snapshot(&self, state: &[u8]) {
        let steps = &mut *enter(&self.steps);
        let mut body = Vec::with_capacity(state.len() + 10);
        steps.next.encode(&mut body);
        body.extend_from_slice(state);
        steps.ring.push(SNAPSHOT, &body);
    }

    pub(super) fn frames(&self) -> Frames {
        // The process must not wait for longer than a copy takes.
        let (bytes, unfinished, missing, next, seed) = {
            let steps = &*enter(&self.steps);
            let unfinished = (steps.is_open && !steps.is_too_large).then(|| steps.step.clone());
            (steps.ring.copy(), unfinished, steps.missing.clone(), steps.next, steps.seed)
        };
        let all = frames_of(&bytes);
        let oldest = next.saturating_sub(all.iter().filter(|(kind, _)| *kind == STEP).count() as u64);
        let missing = missing.filter(|(step, _)| *step >= oldest).map(|(_, what)| what);
        Frames { all, unfinished, seed, missing }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.live.remove(self);
    }
}
