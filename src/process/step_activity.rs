//! The activity of a step, for another thread to read. Only the watchdog reads it.
//!
//! A watched worker gives its [`Sight`] to the [`Events`](super::Events) of each step. Events with a sight, and events
//! of a mailbox with signals, take a slower path, on which the event is recorded. Without a watchdog there is no
//! sight, and the path of a message does not test for one.

use std::fmt;

use crate::pid::Pid;
use crate::primitives::{AtomicU64, AtomicUsize, Brief, Ordering, enter, fence};

/// The activity of a step: the event that the step has taken last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepActivity {
    /// `init`, before the first step.
    Init,
    /// `start`, before the first step.
    Start,
    /// A step that has taken no event yet.
    Step,
    /// A step that has taken a message.
    Message {
        /// The sender. `None` if the message was sent from outside.
        from: Option<Pid>,
    },
    /// A step that has taken the answer to a command.
    Completed {
        /// The tag of the command.
        tag: u64,
    },
    /// A step that has taken a request to stop.
    Cancel,
    /// A step that has taken the end of a process that it monitors.
    Down {
        /// The process that has ended.
        pid: Pid,
    },
    /// A step that has taken the end of a process to which it is linked.
    Exit {
        /// The process that has ended.
        pid: Pid,
    },
    /// A step that has taken the recovery of a linked process. Its own process had made the link.
    Recovered {
        /// The process that has recovered.
        pid: Pid,
    },
    /// A step that has taken a change of a group.
    Group,
    /// A poll of a future, between two steps.
    Poll {
        /// The tag of the future.
        tag: u64,
    },
    /// `describe`, between two steps.
    Describe,
    /// Code after the step: a handler of a command, `recover`, `close`, an observer, a destructor.
    AfterStep,
}

impl fmt::Display for StepActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepActivity::Init => f.write_str("in `init`"),
            StepActivity::Start => f.write_str("in `start`"),
            StepActivity::Step => f.write_str("in a step, before the first event"),
            StepActivity::Message { from: Some(from) } => write!(f, "at a message of {from}"),
            StepActivity::Message { from: None } => f.write_str("at a message from outside"),
            StepActivity::Completed { tag } => write!(f, "at the answer to command {tag}"),
            StepActivity::Cancel => f.write_str("at a cancel event"),
            StepActivity::Down { pid } => write!(f, "at the end of {pid}, which it monitors"),
            StepActivity::Exit { pid } => write!(f, "at the end of {pid}, to which it is linked"),
            StepActivity::Recovered { pid } => write!(f, "at the recovery of {pid}, to which it is linked"),
            StepActivity::Group => f.write_str("at an event of a group"),
            StepActivity::Poll { tag } => write!(f, "in a poll of the future of command {tag}"),
            StepActivity::Describe => f.write_str("in `describe`"),
            StepActivity::AfterStep => f.write_str("in what follows a step"),
        }
    }
}

/// The place where one worker records the activity of its step.
pub(crate) struct Sight {
    /// The kind in the lower bits, and a number in the upper bits. The number changes with each record, and is odd
    /// while the word is being written.
    kind: AtomicU64,
    word: AtomicU64,
    reader: Reader,
}

// Each recorded or durable process has a sight, so a sight is small.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Sight>() <= 4 * size_of::<u64>());

/// The reader of a sight.
enum Reader {
    Watchdog,
    /// No reader. The sight only says that a tap is to be notified of the events of a step.
    Nobody,
    /// A simulation, which reads every activity.
    Simulation(Box<Log>),
}

/// The activities of a step in a simulation. The thread that adds them takes them, too. So most of them need no lock.
#[derive(Default)]
struct Log {
    /// The first activities: kinds and words.
    first: [(AtomicU64, AtomicU64); MOST_UNLOCKED],
    count: AtomicUsize,
    /// The others.
    more: Brief<Vec<StepActivity>>,
}

/// The number of activities of a step that need no lock.
const MOST_UNLOCKED: usize = 4;

const KIND_BITS: u32 = 4;
const KIND: u64 = (1 << KIND_BITS) - 1;
const WRITING: u64 = 1 << KIND_BITS;

impl Default for Sight {
    fn default() -> Sight {
        Sight { kind: AtomicU64::new(1), word: AtomicU64::new(0), reader: Reader::Watchdog }
    }
}

impl Sight {
    /// A sight that keeps every activity.
    pub(crate) fn with_log() -> Sight {
        Sight { reader: Reader::Simulation(Box::default()), ..Sight::default() }
    }

    /// A sight without a reader. It only makes a step notify the tap of its events.
    pub(crate) fn of_nobody() -> Sight {
        Sight { reader: Reader::Nobody, ..Sight::default() }
    }

    /// Moves the activities that were recorded since the last call to the end of `to`.
    #[inline]
    pub(crate) fn take_log(&self, to: &mut Vec<StepActivity>) {
        if let Reader::Simulation(log) = &self.reader {
            log.take(to);
        }
    }

    #[inline]
    pub(crate) fn note(&self, doing: StepActivity) {
        match &self.reader {
            Reader::Watchdog => self.show(doing),
            Reader::Nobody => {}
            Reader::Simulation(log) => log.push(doing),
        }
    }

    #[inline]
    fn show(&self, doing: StepActivity) {
        let (kind, word) = doing.to_words();
        let number = (self.kind.load(Ordering::Relaxed) & !KIND).wrapping_add(WRITING);
        self.kind.store(number, Ordering::Relaxed);
        // Ordering: pairs with the fence of `read`. A thread that has read the new word sees that the number has
        // changed.
        fence(Ordering::Release);
        self.word.store(word, Ordering::Relaxed);
        // Ordering: Release, so that a thread that sees this number sees its word, or a later one.
        self.kind.store(number.wrapping_add(WRITING) | kind, Ordering::Release);
    }

    /// Returns the activity. `None` if it changes at this moment.
    pub(crate) fn read(&self) -> Option<StepActivity> {
        let before = self.kind.load(Ordering::Acquire);
        let word = self.word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if before & WRITING != 0 || self.kind.load(Ordering::Relaxed) != before {
            return None;
        }
        Some(StepActivity::of_words(before & KIND, word))
    }
}

impl Log {
    #[inline]
    fn push(&self, doing: StepActivity) {
        // Ordering: Relaxed, here and in `take`: one thread does both.
        let count = self.count.load(Ordering::Relaxed);
        let Some((kind, word)) = self.first.get(count) else { return enter(&self.more).push(doing) };
        let words = doing.to_words();
        kind.store(words.0, Ordering::Relaxed);
        word.store(words.1, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
    }

    #[inline]
    fn take(&self, to: &mut Vec<StepActivity>) {
        let count = self.count.load(Ordering::Relaxed);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        to.extend(self.first.iter().take(count).map(|(kind, word)| StepActivity::of_words(load(kind), load(word))));
        if count == MOST_UNLOCKED {
            to.append(&mut enter(&self.more));
        }
        self.count.store(0, Ordering::Relaxed);
    }
}

impl StepActivity {
    /// The activity as two words. The first one is less than `WRITING`.
    #[inline]
    fn to_words(self) -> (u64, u64) {
        let word = |pid: Option<Pid>| pid.map_or(0, Pid::to_word);
        match self {
            StepActivity::Init => (0, 0),
            StepActivity::Step => (1, 0),
            StepActivity::Message { from } => (2, word(from)),
            StepActivity::Completed { tag } => (3, tag),
            StepActivity::Cancel => (4, 0),
            StepActivity::Down { pid } => (5, word(Some(pid))),
            StepActivity::Exit { pid } => (6, word(Some(pid))),
            StepActivity::Group => (7, 0),
            StepActivity::AfterStep => (8, 0),
            StepActivity::Recovered { pid } => (9, word(Some(pid))),
            StepActivity::Poll { tag } => (10, tag),
            StepActivity::Start => (11, 0),
            StepActivity::Describe => (12, 0),
        }
    }

    /// The activity with these words.
    #[inline]
    fn of_words(kind: u64, word: u64) -> StepActivity {
        match (kind, Pid::from_word(word)) {
            (0, _) => StepActivity::Init,
            (2, from) => StepActivity::Message { from },
            (3, _) => StepActivity::Completed { tag: word },
            (4, _) => StepActivity::Cancel,
            (5, Some(pid)) => StepActivity::Down { pid },
            (6, Some(pid)) => StepActivity::Exit { pid },
            (7, _) => StepActivity::Group,
            (8, _) => StepActivity::AfterStep,
            (9, Some(pid)) => StepActivity::Recovered { pid },
            (10, _) => StepActivity::Poll { tag: word },
            (11, _) => StepActivity::Start,
            (12, _) => StepActivity::Describe,
            _ => StepActivity::Step,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read() {
        let sight = Sight::default();
        assert_eq!(sight.read(), Some(StepActivity::Step));
        let pid = Pid::new(3, 7, 9).unwrap();
        let all = [
            StepActivity::Init,
            StepActivity::Start,
            StepActivity::Message { from: None },
            StepActivity::Message { from: Some(pid) },
            StepActivity::Completed { tag: 77 },
            StepActivity::Completed { tag: 0 },
            StepActivity::Cancel,
            StepActivity::Down { pid },
            StepActivity::Exit { pid },
            StepActivity::Recovered { pid },
            StepActivity::Group,
            StepActivity::Poll { tag: 5 },
            StepActivity::Describe,
            StepActivity::AfterStep,
            StepActivity::Step,
        ];
        for doing in all {
            sight.note(doing);
            assert_eq!(sight.read(), Some(doing));
        }
        // Also the activities that need the lock.
        let sight = Sight::with_log();
        for count in [0, 1, MOST_UNLOCKED, MOST_UNLOCKED + 1, all.len(), 2] {
            all[..count].iter().for_each(|doing| sight.note(*doing));
            let mut log = vec![StepActivity::Init];
            sight.take_log(&mut log);
            assert_eq!((log[0], &log[1..]), (StepActivity::Init, &all[..count]));
        }
    }
}

/// The race between a worker that records and the watchdog that reads.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitives::Arc;

    /// Fails if the number is not odd while the word is written, and without the fences.
    #[test]
    fn what_is_read_was_recorded_as_a_whole() {
        loom::model(|| {
            let (sight, pid) = (Arc::new(Sight::default()), Pid::new(3, 7, 9).unwrap());
            sight.note(StepActivity::Completed { tag: 7 });
            let notes = sight.clone();
            let worker = loom::thread::spawn(move || {
                notes.note(StepActivity::Down { pid });
                notes.note(StepActivity::Completed { tag: 8 });
            });
            let whole =
                [StepActivity::Completed { tag: 7 }, StepActivity::Down { pid }, StepActivity::Completed { tag: 8 }];
            let read = sight.read();
            assert!(read.is_none_or(|activity| whole.contains(&activity)), "{read:?}");
            worker.join().unwrap();
            assert_eq!(sight.read(), Some(whole[2]));
        });
    }
}
