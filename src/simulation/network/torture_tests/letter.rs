//! The messages of the processes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pid::Address;
use crate::process::Reply;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// Another process: its number and its address.
pub(super) type Other = (u64, Address<Letter>);

#[derive(Serialize, Deserialize)]
pub(super) enum Letter {
    /// The number of the sender, that of its message, and some text.
    Note(u64, u64, String),
    /// The number of the node, and that of its broadcast.
    News(u64, u64),
    Ask(Question, Reply<u64>),
    /// The receiver hands the reply on to this process.
    Hand(Question, Address<Letter>, Reply<u64>),
    /// The receiver sends as many notes to this process. Each second one has a text of this length.
    Write(u64, u64, Other),
    /// The receiver asks this process, which may hand the reply on to the second one.
    Inquire(Question, Other, Option<Other>),
    Watch(Other),
    /// The receiver removes a monitor.
    Unwatch,
    Link(Other),
    /// The receiver ends a link that it has made.
    Unlink,
    /// The receiver spawns a child with this number on this node, within so many milliseconds, perhaps with a monitor.
    Spawn(u64, String, u64, bool),
    /// The receiver asks one of its children to end, or ends it.
    Stop(bool),
    /// The receiver looks on this node for the process with this number and this PID, which is registered there.
    Find(String, Other),
    /// The step of the receiver fails.
    Fail,
    /// The replies that are kept are counted, because their askers have given up.
    Count,
}

crate::remote!(Letter, "torture::Letter", 1);

/// The end of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// It is answered at once with the next number.
    Answered(u64),
    /// As before, and the asker waits for a few milliseconds only.
    Hurried(u64),
    /// The reply is kept, and the asker gives up.
    Kept,
    Dropped,
}

impl Question {
    pub(super) fn limit(self) -> Duration {
        match self {
            Question::Answered(_) | Question::Dropped => HOUR,
            Question::Hurried(number) => Duration::from_millis(number % 16),
            Question::Kept => 3 * SECOND,
        }
    }
}

impl Letter {
    /// The sender and the number of a note.
    pub(super) fn note(&self) -> Option<(u64, u64)> {
        if let Letter::Note(from, note, _) = self { Some((*from, *note)) } else { None }
    }
}

impl Clone for Letter {
    /// Broadcasts are copied, and nothing else.
    fn clone(&self) -> Letter {
        if let Letter::News(node, news) = self { Letter::News(*node, *news) } else { unreachable!() }
    }
}
