//! The contents of the rows of a store. The journal knows only their keys.

use serde::{Deserialize, Serialize};

use super::coding::{Format, Run};
use super::contract::Durable;
use super::headers;
use super::journal::{Change, EntryRow, MESSAGES, NameRow, ProcessRow, Status};
use super::trail::{Traced, Trail};
use crate::outcome::{BoxError, Exit, Failure, LinkedExit, Panic, Reason, contain};
use crate::process::reply::QuestionKey;

/// Why a state with a reply is not stored.
pub(super) const WITH_REPLY: &str = "a new process cannot have a reply in its state: send the question to it";

/// Why a state of this size is not stored.
pub(super) fn too_large(size: usize, limit: usize) -> String {
    format!("the state has {size} bytes, and the limit is {limit}")
}

/// Writes a state as it is to be stored, with at most so many bytes.
pub(super) fn encode_state<P: Durable>((run, limit): (Run, usize), process: &P) -> Result<Vec<u8>, Failure> {
    let (encoded, has_reply) = run.code(|| contain(|| P::FORMAT.encode(process)));
    if has_reply {
        return Err(Failure::from(BoxError::from(WITH_REPLY)));
    }
    checked_state(encoded, limit)
}

/// A state that was written, if it can be stored.
pub(super) fn checked_state(
    encoded: Result<Result<Vec<u8>, BoxError>, Panic>,
    limit: usize,
) -> Result<Vec<u8>, Failure> {
    let state = encoded.map_err(Failure::new)?.map_err(Failure::from)?;
    if state.len() > limit {
        return Err(Failure::from(BoxError::from(too_large(state.len(), limit))));
    }
    Ok(state)
}

/// Messages that wait, by their numbers.
pub(super) const MAIL: u8 = MESSAGES;

/// Timers that have not fired, by the tags of their commands.
pub(super) const TIMERS: u8 = 2;

/// Commands that are not answered, by their tags.
pub(super) const COMMANDS: u8 = 3;

/// Stored questions of a process, by the tags of their commands.
pub(super) const QUESTIONS: u8 = 4;

/// Whether entries of this class go when their answer is taken. Their numbers are tags.
pub(super) fn is_answered(class: u8) -> bool {
    matches!(class, TIMERS | COMMANDS | QUESTIONS | CHILDREN | ANSWERS)
}

/// Messages that no step will take, by their numbers.
pub(super) const DEAD: u8 = 20;

/// Has a process that has ended removed when it is due.
pub(super) const KEPT: u8 = 21;

/// Has the key of a message removed when it is due. These are entries of no process.
pub(super) const OLD_KEYS: u8 = 22;

/// Children, by the tags of the commands that run them.
pub(super) const CHILDREN: u8 = 10;

/// Answers to commands that the store itself has, by their tags.
pub(super) const ANSWERS: u8 = 11;

/// Orders to children whose parents have ended, or want no answer any more. A child has at most one.
pub(super) const ORDERS: u8 = 12;

/// Names of a process, by the tags of the commands that have given them.
pub(super) const NAMES: u8 = 13;

/// Memberships of a process in groups, by the tags of the commands that have made them.
pub(super) const GROUPS: u8 = 14;

/// Monitors of a process, by their numbers.
pub(super) const WATCHES: u8 = 15;

/// Watchers of a process, by the numbers of their monitors.
pub(super) const WATCHERS: u8 = 16;

/// Ends of watched processes, by the numbers of the monitors.
pub(super) const DOWNS: u8 = 17;

/// Replies to stored questions that the state of a process has, by the numbers of the questions.
pub(super) const KEPT_REPLIES: u8 = 18;

/// Halves of links, by the serial numbers of the other processes. Each end of a link has one.
pub(super) const LINKS: u8 = 19;

/// Ends of linked processes, by their serial numbers.
pub(super) const EXITS: u8 = 23;

/// Whether a process traps exits. It has one entry then, of number 0.
pub(super) const TRAPS: u8 = 24;

/// Links to ordinary processes, by numbers of their own.
pub(super) const OUTSIDE: u8 = 25;

/// Contexts of the traces of commands, by their tags: see `command_traces`.
pub(super) const TRACES: u8 = 26;

/// Subscriptions to groups, by their numbers.
pub(super) const SUBSCRIPTIONS: u8 = 27;

/// Whether the numbers of the entries of this class are tags of commands without an answer.
pub(super) fn is_open(class: u8) -> bool {
    class <= CHILDREN
}

/// The time at which names and memberships are due, so that they are found when the store is opened. No time is later.
pub(super) const NAMED: u64 = i64::MAX as u64;

/// Requests to stop or to end that no step has taken, by their numbers.
pub(super) const REQUESTS: u8 = 30;

/// Two classes of entries that are never written: their removals count messages. See `mail_counts`.
pub(super) const UNSTORED: u8 = 31;
pub(super) const FULL: u8 = 32;

/// Ids of processes.
pub(super) const IDS: u8 = 1;
/// Facts about the whole store.
pub(super) const FACTS: u8 = 2;
/// Keys of messages.
pub(super) const KEYS: u8 = 3;
/// The node of the store, and the number of its last run.
pub(super) const RUNS: &str = "runs";
/// The first number that was not given out.
pub(super) const NUMBERS: &str = "numbers";

/// The identity of a store, and the number of its last run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Runs {
    /// A random number, by which the keys of commands differ from those of another store.
    pub(super) id: u64,
    pub(super) node: u32,
    pub(super) last: u64,
}

/// The events for which a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rest {
    /// `init` and `start` were not called.
    New,
    /// Its last step said `Idle`.
    Idle,
    /// Its last step said `Wait`.
    Wait,
    /// It is to be stepped, whether or not there is an event.
    Continue,
    /// As `Continue`, on a thread of the pool.
    Blocking,
}

/// All that is stored of a process besides its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredHead {
    pub(super) format: Format,
    pub(super) rest: Rest,
    /// The number of tags given out.
    pub(super) tags: u64,
    /// The commands that are not answered, by their tags.
    pub(super) open: Vec<u64>,
    /// Why the process is parked, if it is.
    pub(super) parked: Option<Parked>,
    pub(super) exit: Option<StoredExit>,
    /// Present if the process was begun with an id.
    pub(super) id: Option<String>,
    /// When it was begun, in milliseconds since 1970.
    pub(super) begun: u64,
    pub(super) trail: Trail,
    /// Present if the process answers a command of its parent.
    pub(super) parent: Option<StoredParent>,
}

/// The command that a child answers: the serial number of its parent, and the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredParent {
    pub(super) serial: u64,
    pub(super) tag: u64,
}

/// A child whose output is the answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredChild {
    pub(super) serial: u64,
    /// Its order when its parent ends.
    pub(super) at_end: Order,
}

/// An order to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    Terminate,
    /// It is asked to stop.
    Cancel,
    /// It goes on, and answers nobody.
    Leave,
}

/// The answer to a command that the store itself answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum EventAnswer {
    /// A child has ended.
    Child { serial: u64, kind: String, format: Format, exit: StoredExit },
    /// The command was cancelled.
    Cancelled,
    /// The process has the name, or is in the group.
    Named,
    /// This process had the name.
    Unregistered(u64),
    /// The process was in the group.
    Left,
    /// A question has this answer, as JSON. Its type has this name.
    Reply { name: String, value: Vec<u8> },
    /// A question has no answer.
    NoReply(WhyNoReply),
    /// A request to another process is stored.
    Requested,
}

/// Why a stored question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WhyNoReply {
    /// A step has dropped the reply, or an operator the message.
    Dropped,
    /// The process with this serial number has ended.
    Ended(u64),
    /// This process takes messages of another type.
    WrongType(u64),
    /// The mailbox of this process was full.
    Full(u64),
    /// The limit is over.
    TimedOut,
}

/// An event of a process that is stored when another process has made it, until a step takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredEvent {
    Answer(EventAnswer),
    Order(Order),
    /// Another process watches this one.
    Watched {
        by: u64,
    },
    /// A watched process has ended.
    Down {
        exit: DownExit,
    },
    /// A request to this process. It is stored as one from outside, and not among the events.
    Request(StoredRequest),
    /// This process is linked to another one.
    Linked,
    /// A linked process has ended.
    Exit {
        exit: DownExit,
    },
}

/// How a watched process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DownExit {
    Done,
    Terminated,
    NoSuchProcess,
    /// It was an ordinary process, and its runtime has ended.
    Runtime,
    /// A link has ended it.
    Linked(FirstEnd),
}

/// The first process of a chain of links that have ended others, and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FirstEnd {
    /// A process of the store by zero and its serial number. An ordinary one as `Run::note` notes it.
    of: (u64, u64),
    exit: FirstExit,
}

/// How the first process of a chain has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FirstExit {
    Done,
    Failed(String),
    Panicked(String),
    NoSuchProcess,
    Runtime,
    Terminated(StoredReason),
}

impl FirstEnd {
    /// The cause of the end of a process that ends with this one.
    pub(super) fn of(of: (u64, u64), exit: &DownExit) -> FirstEnd {
        let exit = match exit {
            // Passed on unchanged. So the chain of causes does not grow with the chain of links.
            DownExit::Linked(first) => return first.clone(),
            DownExit::Done => FirstExit::Done,
            DownExit::Terminated => FirstExit::Terminated(StoredReason::Terminated),
            DownExit::NoSuchProcess => FirstExit::NoSuchProcess,
            DownExit::Runtime => FirstExit::Runtime,
        };
        FirstEnd { of, exit }
    }

    /// As `of`, with the exit of an ordinary process. `None` if it was done.
    pub(super) fn of_ordinary(noted: (u64, u64), exit: &Exit, run: Run) -> Option<FirstEnd> {
        let (of, exit) = match exit {
            Exit::Done(()) => return None,
            Exit::Terminated(Reason::Linked(first)) => {
                let of = run.number_of(first.pid()).map_or_else(|| run.note(first.pid()), |serial| (0, serial));
                (of, first.exit())
            }
            exit => (noted, exit),
        };
        let exit = match exit {
            Exit::Done(()) => FirstExit::Done,
            Exit::Failed(failure) => FirstExit::Failed(failure.to_string()),
            Exit::Panicked(panic) => FirstExit::Panicked(panic.message().to_owned()),
            Exit::Terminated(Reason::NoSuchProcess) => FirstExit::NoSuchProcess,
            Exit::Terminated(Reason::Shutdown) => FirstExit::Runtime,
            Exit::Terminated(reason) => FirstExit::Terminated(StoredReason::of(reason)),
        };
        Some(FirstEnd { of, exit })
    }

    fn reason(&self, run: Run) -> Reason {
        let exit = match &self.exit {
            FirstExit::Done => Exit::Done(()),
            FirstExit::Failed(error) => Exit::Failed(Failure::from(BoxError::from(error.as_str()))),
            FirstExit::Panicked(message) => Exit::Panicked(Panic::new(Box::new(message.clone()))),
            FirstExit::NoSuchProcess => Exit::Terminated(Reason::NoSuchProcess),
            FirstExit::Runtime => Exit::Terminated(Reason::Shutdown),
            FirstExit::Terminated(reason) => Exit::Terminated(reason.read()),
        };
        let pid = match self.of {
            (0, serial) => run.ticket(serial),
            ordinary => run.read(ordinary),
        };
        // Each PID that was written can be read.
        pid.map_or(Reason::Terminated, |pid| Reason::Linked(LinkedExit::new(pid, exit)))
    }
}

impl DownExit {
    pub(super) fn of(exit: &StoredExit) -> DownExit {
        match exit {
            StoredExit::Done(_) => DownExit::Done,
            StoredExit::Terminated => DownExit::Terminated,
            StoredExit::Linked(first) => DownExit::Linked(first.clone()),
        }
    }

    /// The exit as others are told of it.
    pub(super) fn exit(&self, run: Run) -> Exit {
        match self {
            DownExit::Done => Exit::Done(()),
            DownExit::Terminated => Exit::Terminated(Reason::Terminated),
            DownExit::NoSuchProcess => Exit::Terminated(Reason::NoSuchProcess),
            DownExit::Runtime => Exit::Terminated(Reason::Shutdown),
            DownExit::Linked(first) => Exit::Terminated(first.reason(run)),
        }
    }
}

/// Why a process is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parked {
    pub(super) error: String,
    pub(super) attempts: u32,
    /// The version of the program's type.
    pub(super) version: u32,
    /// The event that its failing step takes, if it is one that can be left out.
    pub(super) event: Option<FailedEvent>,
}

/// An event that a step cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FailedEvent {
    /// A stored message, by its number.
    Mail(u64),
    /// An answer, by its tag.
    Answer(u64),
}

/// How a process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredExit {
    /// With this output.
    Done(Vec<u8>),
    /// It was terminated.
    Terminated,
    /// A link has ended it.
    Linked(FirstEnd),
}

impl StoredExit {
    /// The exit as others are told of it.
    pub(super) fn exit(&self, run: Run) -> Exit {
        DownExit::of(self).exit(run)
    }
}

/// A message that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredMail {
    /// The sender, as `Run::note` notes it.
    pub(super) from: Option<(u64, u64)>,
    /// The kinds of processes that take messages of its type.
    pub(super) kinds: Vec<String>,
    pub(super) format: Format,
    pub(super) message: Vec<u8>,
    /// The stored questions whose replies it has. A dead letter has none: their askers were told.
    #[serde(skip)]
    pub(super) questions: Vec<QuestionKey>,
    /// The context of its trace, as the propagator has written it. A dead letter has none.
    #[serde(skip)]
    pub(super) trace: Option<Vec<u8>>,
}

/// A message that no step will take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredDead {
    pub(super) mail: StoredMail,
    pub(super) why: WhyDead,
    /// Since when, in milliseconds since 1970.
    pub(super) since: u64,
}

/// Why no step will take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyDead {
    /// Its receiver has ended, or never existed.
    Ended,
    /// Its receiver takes messages of another type.
    WrongType,
    /// An operator has let its receiver go on without it.
    Skipped,
    /// The mailbox of its receiver was full.
    Full,
}

/// A command whose answer no step has taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredCommand {
    pub(super) name: String,
    /// As JSON. Empty if the command is answered.
    pub(super) command: Vec<u8>,
    /// When it was yielded, in milliseconds since 1970.
    pub(super) since: u64,
    /// When its limit is over, if it has one.
    pub(super) deadline: Option<u64>,
    /// The number of the last attempt that may have been handed out.
    pub(super) attempt: u32,
    pub(super) phase: Phase,
}

/// The progress of a stored command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Phase {
    /// No attempt was handed out. The command waits until its handler has room.
    Waits,
    /// An attempt may be at work.
    Out,
    /// The last attempt has failed with this error, and the next one follows at this time.
    Pausing { until: u64, error: StoredAnswer },
    /// The handler has said that the answer comes later.
    Later,
    /// It was answered from outside.
    Answered(StoredAnswer),
}

/// The answer to a command. Values and errors are JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum StoredAnswer {
    Value(Vec<u8>),
    /// An error of the command's own type.
    Failed(Vec<u8>),
    /// The text of any other error.
    Text(String),
    Panicked(String),
    Dropped,
    TimedOut,
    Cancelled,
    Unknown,
}

impl StoredAnswer {
    /// A value, or an error of the command's own type, as JSON.
    pub(super) fn of_json(json: &str, is_error: bool) -> StoredAnswer {
        let bytes = json.as_bytes().to_vec();
        if is_error { StoredAnswer::Failed(bytes) } else { StoredAnswer::Value(bytes) }
    }
}

impl Phase {
    /// Its name, for operators.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Phase::Waits => "waits",
            Phase::Out => "out",
            Phase::Pausing { .. } => "pausing",
            Phase::Later => "later",
            Phase::Answered(_) => "answered",
        }
    }
}

impl StoredCommand {
    /// A command of this name that was answered from outside.
    pub(super) fn answered(name: &str, answer: StoredAnswer) -> StoredCommand {
        let phase = Phase::Answered(answer);
        StoredCommand { name: name.into(), command: Vec::new(), since: 0, deadline: None, attempt: 0, phase }
    }
}

/// A request to a process that no step has taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredRequest {
    /// To stop, with the time by which it should have stopped, in milliseconds since 1970.
    Stop { reason: StoredReason, deadline: Option<u64> },
    /// To end at once.
    End,
}

/// The reason for a request to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredReason {
    Cancelled,
    TimedOut,
    Terminated,
    Ended,
    Other(String),
}

impl StoredReason {
    pub(super) fn of(reason: &Reason) -> StoredReason {
        match reason {
            Reason::Cancelled => StoredReason::Cancelled,
            Reason::TimedOut => StoredReason::TimedOut,
            Reason::Terminated => StoredReason::Terminated,
            Reason::Ended => StoredReason::Ended,
            other => StoredReason::Other(other.to_string()),
        }
    }

    pub(super) fn read(&self) -> Reason {
        match self {
            StoredReason::Cancelled => Reason::Cancelled,
            StoredReason::TimedOut => Reason::TimedOut,
            StoredReason::Terminated => Reason::Terminated,
            StoredReason::Ended => Reason::Ended,
            StoredReason::Other(text) => Reason::from(text.clone()),
        }
    }
}

impl StoredHead {
    pub(super) fn new(format: Format, id: Option<String>, begun: u64) -> StoredHead {
        let mut trail = Trail::default();
        trail.note(begun, Traced::Begun, (0, 0));
        let (open, parked, exit) = (Vec::new(), None, None);
        StoredHead { format, rest: Rest::New, tags: 0, open, parked, exit, id, begun, trail, parent: None }
    }

    /// Whether the process has something to do when its store is opened.
    pub(super) fn status(&self) -> Status {
        match (&self.exit, &self.parked, self.rest) {
            (Some(_), _, _) => Status::Ended,
            (_, Some(_), _) => Status::Parked,
            (_, _, Rest::New | Rest::Continue | Rest::Blocking) => Status::Ready,
            // Its open commands are answered then.
            _ if !self.open.is_empty() => Status::Ready,
            _ => Status::Sleeping,
        }
    }

    /// The row of a process.
    pub(super) fn row(&self, kind: &str, version: u32, state: Vec<u8>) -> Result<ProcessRow, BoxError> {
        Ok(ProcessRow {
            status: self.status(),
            kind: kind.to_owned(),
            version,
            state,
            head: postcard::to_stdvec(self)?,
        })
    }
}

/// A message that begins to wait.
pub(super) fn mail(serial: u64, number: u64, mail: &StoredMail) -> Result<Change, BoxError> {
    // By this time all processes with mail are found when the store is opened.
    let mut body = postcard::to_stdvec(mail)?;
    if !mail.questions.is_empty() || mail.trace.is_some() {
        body.append(&mut postcard::to_stdvec(&mail.questions)?);
    }
    headers::append_trace(&mut body, mail.trace.as_deref())?;
    Ok(Change::Entry { serial, class: MAIL, number, row: Some(EntryRow { due: Some(0), body }) })
}

/// A message that waits, as its row has it. Most have nothing behind it. The others have their questions, and then
/// headers.
pub(super) fn read_mail(body: &[u8]) -> Option<StoredMail> {
    let (mut mail, rest) = postcard::take_from_bytes::<StoredMail>(body).ok()?;
    if !rest.is_empty() {
        let (questions, headers) = postcard::take_from_bytes(rest).ok()?;
        (mail.questions, mail.trace) = (questions, headers::trace_in(headers));
    }
    Some(mail)
}

/// A message that waits no longer.
pub(super) fn taken(serial: u64, number: u64) -> Change {
    Change::Entry { serial, class: MAIL, number, row: None }
}

/// A message that no step will take. It is removed after some time.
pub(super) fn dead(serial: u64, number: u64, dead: &StoredDead, keep: u64) -> Result<Change, BoxError> {
    let row = EntryRow { due: Some(until(dead.since, keep)), body: postcard::to_stdvec(dead)? };
    Ok(Change::Entry { serial, class: DEAD, number, row: Some(row) })
}

/// Counts a dead letter that is not stored.
pub(super) fn unstored(serial: u64, number: u64) -> Change {
    answered(serial, UNSTORED, number)
}

/// Counts a message to a full receiver as accepted.
pub(super) fn full(serial: u64, number: u64) -> Change {
    answered(serial, FULL, number)
}

/// Has a process that has ended removed after some time.
pub(super) fn kept(serial: u64, ended: u64, keep: u64) -> Change {
    let row = EntryRow { due: Some(until(ended, keep)), body: Vec::new() };
    Change::Entry { serial, class: KEPT, number: 0, row: Some(row) }
}

/// The key of a message, which is kept for some time. The number is like no other.
pub(super) fn key(serial: u64, key: &str, number: u64, (now, keep): (u64, u64)) -> [Change; 2] {
    let name = key_name(serial, key);
    let old = EntryRow { due: Some(until(now, keep)), body: name.clone().into_bytes() };
    [
        Change::Name { class: KEYS, name, row: Some(NameRow { serial, body: Vec::new() }) },
        Change::Entry { serial: 0, class: OLD_KEYS, number, row: Some(old) },
    ]
}

/// A key that is kept no longer.
pub(super) fn old_key(number: u64, row: &EntryRow) -> Vec<Change> {
    let name = String::from_utf8_lossy(&row.body).into_owned();
    vec![answered(0, OLD_KEYS, number), Change::Name { class: KEYS, name, row: None }]
}

/// The name under which the tables have the key of a message to this process.
pub(super) fn key_name(serial: u64, key: &str) -> String {
    format!("{serial}/{key}")
}

fn until(since: u64, keep: u64) -> u64 {
    since.saturating_add(keep).min(i64::MAX as u64)
}

/// A timer that is due at this time, in milliseconds since 1970.
pub(super) fn timer(serial: u64, tag: u64, due: u64) -> Change {
    Change::Entry { serial, class: TIMERS, number: tag, row: Some(EntryRow { due: Some(due), body: Vec::new() }) }
}

/// A question that is over at this time, in milliseconds since 1970.
pub(super) fn question(serial: u64, tag: u64, deadline: Option<u64>) -> Change {
    Change::Entry { serial, class: QUESTIONS, number: tag, row: Some(EntryRow { due: deadline, body: Vec::new() }) }
}

/// A reply that the state of a process has.
pub(super) fn kept_reply(serial: u64, key: QuestionKey) -> Result<Change, BoxError> {
    let row = EntryRow { due: None, body: postcard::to_stdvec(&key)? };
    Ok(Change::Entry { serial, class: KEPT_REPLIES, number: key.number, row: Some(row) })
}

/// A command.
pub(super) fn command(serial: u64, tag: u64, command: &StoredCommand) -> Result<Change, BoxError> {
    let due = match command.phase {
        // Found when the store is opened, as mail is.
        Phase::Waits | Phase::Out | Phase::Answered(_) => Some(0),
        Phase::Pausing { until, .. } => Some(until),
        Phase::Later => command.deadline,
    };
    let row = EntryRow { due, body: postcard::to_stdvec(command)? };
    Ok(Change::Entry { serial, class: COMMANDS, number: tag, row: Some(row) })
}

/// A request that is due at this time, in milliseconds since 1970.
pub(super) fn request(serial: u64, number: u64, due: u64, request: &StoredRequest) -> Result<Change, BoxError> {
    let row = EntryRow { due: Some(due), body: postcard::to_stdvec(request)? };
    Ok(Change::Entry { serial, class: REQUESTS, number, row: Some(row) })
}

/// An entry that is there no longer: a timer or a command that was answered, or an event or a request that was taken.
pub(super) fn answered(serial: u64, class: u8, tag: u64) -> Change {
    Change::Entry { serial, class, number: tag, row: None }
}

/// A child that a step runs.
pub(super) fn child(serial: u64, tag: u64, child: &StoredChild) -> Result<Change, BoxError> {
    let row = EntryRow { due: None, body: postcard::to_stdvec(child)? };
    Ok(Change::Entry { serial, class: CHILDREN, number: tag, row: Some(row) })
}

/// A name or a membership that a process gets.
pub(super) fn named(serial: u64, (class, number): (u8, u64), name: &str) -> Change {
    let row = EntryRow { due: Some(NAMED), body: name.as_bytes().to_vec() };
    Change::Entry { serial, class, number, row: Some(row) }
}

/// A link to an ordinary process, which is noted so. Each start finds it, because that process has ended then.
pub(super) fn outside(serial: u64, number: u64, noted: (u64, u64)) -> Result<Change, BoxError> {
    let row = EntryRow { due: Some(0), body: postcard::to_stdvec(&noted)? };
    Ok(Change::Entry { serial, class: OUTSIDE, number, row: Some(row) })
}

/// The mark of a process that traps exits.
pub(super) fn traps(serial: u64, traps: bool) -> Change {
    let row = traps.then(|| EntryRow { due: None, body: Vec::new() });
    Change::Entry { serial, class: TRAPS, number: 0, row }
}

/// A monitor of a process, which is noted so.
pub(super) fn watch(serial: u64, id: u64, noted: (u64, u64)) -> Result<Change, BoxError> {
    let row = EntryRow { due: None, body: postcard::to_stdvec(&noted)? };
    Ok(Change::Entry { serial, class: WATCHES, number: id, row: Some(row) })
}

/// An event that begins to wait.
pub(super) fn event(serial: u64, (class, number): (u8, u64), event: &StoredEvent) -> Result<Change, BoxError> {
    // A process that nothing asks of is not loaded.
    let is_quiet =
        matches!(event, StoredEvent::Order(Order::Leave) | StoredEvent::Watched { .. } | StoredEvent::Linked);
    let due = (!is_quiet).then_some(0);
    let row = EntryRow { due, body: postcard::to_stdvec(event)? };
    Ok(Change::Entry { serial, class, number, row: Some(row) })
}

/// A fact about the whole store.
pub(super) fn fact(name: &str, value: &impl Serialize) -> Result<Change, BoxError> {
    let row = NameRow { serial: 0, body: postcard::to_stdvec(value)? };
    Ok(Change::Name { class: FACTS, name: name.to_owned(), row: Some(row) })
}

#[cfg(all(test, not(loom)))]
mod tests;
