//! The requests of operators, and the answers.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::journal::Status;
use super::rows::WhyDead;
use super::trail::TrailStep;
use crate::outcome::BoxError;
use crate::pid::Pid;

/// Selects processes of a store. All conditions must hold.
///
/// ```
/// use procession::durable::Query;
///
/// let stuck = Query::all().kind("order").parked().error("the bank is closed");
/// # let _ = stuck;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct Query {
    pub(super) kind: Option<String>,
    pub(super) status: Option<Status>,
    pub(super) error: Option<String>,
    pub(super) id: Option<String>,
    pub(super) parent: Option<String>,
    /// In milliseconds since 1970.
    pub(super) begun_before: Option<u64>,
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

impl Query {
    /// Selects all processes, including ended processes that are still kept.
    pub fn all() -> Query {
        Query::default()
    }

    /// Selects processes of the kind with this name.
    pub fn kind(self, name: impl Into<String>) -> Query {
        Query { kind: Some(name.into()), ..self }
    }

    /// Selects processes with this status.
    pub fn status(self, status: Status) -> Query {
        Query { status: Some(status), ..self }
    }

    /// Selects processes that are parked.
    pub fn parked(self) -> Query {
        self.status(Status::Parked)
    }

    /// Selects parked processes whose error contains this text.
    pub fn error(self, text: impl Into<String>) -> Query {
        Query { error: Some(text.into()), ..self }.parked()
    }

    /// Selects processes whose ids begin with this text.
    pub fn id_prefix(self, text: impl Into<String>) -> Query {
        Query { id: Some(text.into()), ..self }
    }

    /// Selects the children of this process that answer it, including ended children that are still kept.
    pub fn parent(self, pid: Pid) -> Query {
        Query { parent: Some(pid.to_string()), ..self }
    }

    /// Selects processes that were begun before this time.
    pub fn begun_before(self, time: SystemTime) -> Query {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Query { begun_before: Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)), ..self }
    }

    /// Selects processes that were begun after this one. A list is in the order in which the processes were begun. So
    /// give the last process of a page here, to get the next page.
    pub fn after(self, pid: Pid) -> Query {
        Query { after: Some(pid.to_string()), ..self }
    }

    /// Selects at most this number of processes. Without it a list has at most 1,000 processes, and all other calls
    /// have no limit.
    pub fn limit(self, processes: usize) -> Query {
        Query { limit: Some(processes), ..self }
    }
}

pub(super) fn as_text<S: Serializer>(pid: &Pid, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(pid)
}

fn as_optional_text<S: Serializer>(pid: &Option<Pid>, to: S) -> Result<S::Ok, S::Error> {
    pid.as_ref().map(Pid::to_string).serialize(to)
}

/// A process in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Listed {
    /// The PID, which is the same in every run.
    #[serde(serialize_with = "as_text")]
    pub pid: Pid,
    /// The id with which it was begun.
    pub id: Option<String>,
    /// The name of its kind.
    pub kind: String,
    /// The version of its state.
    pub version: u32,
    /// The process that has run it as a child, and waits for its output.
    #[serde(serialize_with = "as_optional_text")]
    pub parent: Option<Pid>,
    /// Whether it has something to do.
    pub status: Status,
    /// When it was begun, in milliseconds since 1970.
    pub begun: u64,
    /// Why it is parked, if it is.
    pub error: Option<String>,
    /// The number of attempts of the step that failed. 0 if the process is not parked.
    pub attempts: u32,
}

/// Everything that a store has of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Shown {
    /// The same fields as in a list.
    #[serde(flatten)]
    pub listed: Listed,
    /// The state. If it cannot be shown as JSON, this is a text that says so.
    pub state: Value,
    /// The output, if the process is done.
    pub output: Option<Value>,
    /// The messages that wait.
    pub mail: Vec<ShownMail>,
    /// The timers that are set.
    pub timers: Vec<ShownTimer>,
    /// The stored commands that are not answered.
    pub commands: Vec<ShownCommand>,
    /// The children that it has run and that have not answered yet.
    pub children: Vec<ShownChild>,
    /// The dead letters to this process.
    pub dead: Vec<ShownDead>,
    /// Its last steps, the oldest first.
    pub trail: Vec<TrailStep>,
}

/// Takes processes that have ended before they are removed: see [`StoreBuilder::sink`](super::StoreBuilder::sink).
pub(super) type Sink = Box<dyn Fn(&Shown) -> Result<(), BoxError> + Send + Sync>;

/// A message that waits in a store.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownMail {
    /// Its number. No other message of the store ever has it.
    pub number: u64,
    /// The sender, if it was a process.
    #[serde(serialize_with = "as_optional_text")]
    pub from: Option<Pid>,
    /// The message.
    pub message: Value,
    /// Whether the process is parked because its step fails with this message.
    pub fails: bool,
}

/// A child of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShownChild {
    /// The number of the tag under which the parent waits for it.
    pub tag: u64,
    /// The child.
    #[serde(serialize_with = "as_text")]
    pub pid: Pid,
}

/// A timer of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShownTimer {
    /// The number of its tag.
    pub tag: u64,
    /// When it is due, in milliseconds since 1970.
    pub due: u64,
}

/// A command that is not answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownCommand {
    /// Its key: see [`Store::answer`](super::Store::answer).
    pub key: String,
    /// The number of its tag.
    pub tag: u64,
    /// The name of its type.
    pub name: String,
    /// The command.
    pub command: Value,
    /// The number of the last attempt that may have been handed out.
    pub attempt: u32,
    /// Its progress. `waits`: not handed to its handler yet. `out`: with its handler. `pausing`: between two attempts.
    /// `later`: its handler has said that the answer comes later. `answered`: it was answered from outside, and its
    /// process has not taken the answer yet.
    pub phase: &'static str,
}

/// A dead letter of a store.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownDead {
    /// Its receiver.
    #[serde(serialize_with = "as_text")]
    pub to: Pid,
    /// Its number.
    pub number: u64,
    /// The sender, if it was a process.
    #[serde(serialize_with = "as_optional_text")]
    pub from: Option<Pid>,
    /// The message.
    pub message: Value,
    /// Why no step takes it.
    pub why: WhyDead,
    /// When it became a dead letter, in milliseconds since 1970.
    pub since: u64,
}

/// The processes that carry an order out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// One process, by its PID or its id.
    One(String),
    /// All processes that a query selects.
    All(Query),
}

/// A request of an operator to a store. The program `procession-store` makes these requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// A list of processes. The answer is an array of [`Listed`].
    List(Query),
    /// The number of processes that a query selects.
    Count(Query),
    /// All about one process, by its PID or its id. The answer is a [`Shown`].
    Show(String),
    /// Parked processes try again. The answer is their number.
    Retry(Which),
    /// Parked processes go on without the event that their steps cannot take. The answer is their number.
    Skip(Which),
    /// A parked process gets another state.
    Replace {
        /// The process, by its PID or its id.
        process: String,
        /// The state as JSON.
        state: String,
    },
    /// Processes are asked to stop. The answer is their number.
    Cancel(Which),
    /// Processes end. The answer is their number.
    Terminate(Which),
    /// A stored command is answered.
    Answer {
        /// The key of the command.
        key: String,
        /// The value, or the error, as JSON.
        json: String,
        /// Whether it is an error of the command's type.
        is_error: bool,
    },
    /// A list of dead letters. The answer is an array of [`ShownDead`].
    Dead {
        /// The receiver and the number of the last dead letter of the page before.
        after: Option<(String, u64)>,
        /// The largest number of dead letters in the answer.
        limit: usize,
    },
    /// A dead letter is sent again.
    Resend {
        /// The receiver, by its PID or its id.
        process: String,
        /// The number of the dead letter.
        number: u64,
    },
    /// The counts of messages over the whole life of the store. The answer is a [`MailCounts`](super::MailCounts).
    Mail,
    /// Reads everything that is stored. The answer is an array of texts, one for each damaged place.
    Check,
    /// Copies the store into a new folder.
    Backup(PathBuf),
}
