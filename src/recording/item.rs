//! One recorded step: all that it has read, and its end.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use super::codec::{DecodeError, Input, Recordable, put_list, put_numbers, put_pid};
use super::errors::{put_control, take_control};
use crate::process::{Pid, SpawnError};
use crate::sched::mailbox::Control;

/// Something that a step has read, in the order in which it has read it.
pub(super) enum Item {
    Message {
        from: Option<Pid>,
        bytes: Vec<u8>,
    },
    /// A message that was shown to the predicate of a `select`, and passed over.
    Passed {
        bytes: Vec<u8>,
    },
    Nothing,
    Completed {
        tag: u64,
        from: Option<Pid>,
        answer: Vec<u8>,
    },
    Control(Control),
    Now(Instant),
    SystemTime(SystemTime),
    ShuttingDown(bool),
    /// The holder of the name with this hash.
    Holder(u32, Option<Pid>),
    Member(u32, Option<Pid>),
    Group(u32, Vec<Pid>),
    Receivers(u32, Option<Vec<Pid>>),
    /// There was no PID for a new process. `None`: the runtime shuts down. Otherwise the limit.
    NoVacancy(Option<u32>),
    MonitorNumbers(Range<u64>),
    /// Something that could not be encoded.
    Missing(String),
}

impl Item {
    /// A few words about the item, for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Item::Message { .. } => "a message",
            Item::Passed { .. } => "a message that it passes over",
            Item::Nothing => "no further event",
            Item::Completed { .. } => "an answer",
            Item::Control(_) => "a control signal",
            Item::Now(_) => "the time",
            Item::SystemTime(_) => "the wall-clock time",
            Item::ShuttingDown(_) => "whether the runtime shuts down",
            Item::Holder(..) => "the holder of a name",
            Item::Member(..) => "a member of a group",
            Item::Group(..) => "the members of a group",
            Item::Receivers(..) => "the receivers of a broadcast",
            Item::NoVacancy(_) => "a refused PID",
            Item::MonitorNumbers(_) => "numbers for monitors",
            Item::Missing(_) => "something that could not be recorded",
        }
    }
}

/// The numbers of the kinds. They are part of the format.
pub(super) mod kinds {
    pub(crate) const MESSAGE: u8 = 1;
    pub(crate) const PASSED: u8 = 2;
    pub(crate) const NOTHING: u8 = 3;
    pub(crate) const COMPLETED: u8 = 4;
    pub(crate) const CONTROL: u8 = 5;
    pub(crate) const NOW: u8 = 6;
    pub(crate) const SYSTEM_TIME: u8 = 7;
    pub(crate) const SHUTTING_DOWN: u8 = 8;
    pub(crate) const HOLDER: u8 = 9;
    pub(crate) const MEMBER: u8 = 10;
    pub(crate) const GROUP: u8 = 11;
    pub(crate) const RECEIVERS: u8 = 12;
    pub(crate) const NO_VACANCY: u8 = 13;
    pub(crate) const MONITOR_NUMBERS: u8 = 14;
    pub(crate) const MISSING: u8 = 15;
    pub(crate) const END: u8 = 16;
}

pub(super) fn put_missing(what: &str, to: &mut Vec<u8>) {
    to.push(kinds::MISSING);
    put_list(what.as_bytes(), to);
}

pub(super) fn put_item_control(control: &Control, to: &mut Vec<u8>) {
    to.push(kinds::CONTROL);
    // After its length, so that a reader that does not know the signal finds its end.
    let mut bytes = Vec::new();
    put_control(control, &mut bytes);
    put_list(&bytes, to);
}

pub(super) fn put_named_pid(kind: u8, name: &str, pid: Option<Pid>, to: &mut Vec<u8>) {
    to.push(kind);
    crc32fast::hash(name.as_bytes()).encode(to);
    put_pid(pid, to);
}

pub(super) fn put_system_time(time: SystemTime, to: &mut Vec<u8>) {
    to.push(kinds::SYSTEM_TIME);
    let after = time.duration_since(SystemTime::UNIX_EPOCH);
    after.is_ok().encode(to);
    after.unwrap_or_else(|before| before.duration()).encode(to);
}

fn take_system_time(from: &mut Input<'_>) -> Result<SystemTime, DecodeError> {
    let (is_after, distance) = from.take::<(bool, Duration)>()?;
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if is_after { epoch.checked_add(distance) } else { epoch.checked_sub(distance) };
    time.ok_or(DecodeError::new("no time is so far away"))
}

pub(super) fn put_no_vacancy(why: &SpawnError, to: &mut Vec<u8>) {
    to.push(kinds::NO_VACANCY);
    let limit = if let SpawnError::Limit { limit } = why { Some(*limit) } else { None };
    limit.encode(to);
}

fn take_item(kind: u8, from: &mut Input<'_>) -> Result<Item, DecodeError> {
    Ok(match kind {
        kinds::MESSAGE => Item::Message { from: from.take_pid()?, bytes: from.take_list()?.to_vec() },
        kinds::PASSED => Item::Passed { bytes: from.take_list()?.to_vec() },
        kinds::NOTHING => Item::Nothing,
        kinds::COMPLETED => {
            Item::Completed { tag: from.take()?, from: from.take_pid()?, answer: from.take_list()?.to_vec() }
        }
        kinds::CONTROL => Item::Control(take_control(&mut Input::new(from.take_list()?))?),
        kinds::NOW => Item::Now(from.take()?),
        kinds::SYSTEM_TIME => Item::SystemTime(take_system_time(from)?),
        kinds::SHUTTING_DOWN => Item::ShuttingDown(from.take()?),
        kinds::HOLDER => Item::Holder(from.take()?, from.take_pid()?),
        kinds::MEMBER => Item::Member(from.take()?, from.take_pid()?),
        kinds::GROUP => Item::Group(from.take()?, from.take()?),
        kinds::RECEIVERS => Item::Receivers(from.take()?, from.take()?),
        kinds::NO_VACANCY => Item::NoVacancy(from.take()?),
        kinds::MONITOR_NUMBERS => Item::MonitorNumbers(from.take()?..from.take()?),
        kinds::MISSING => Item::Missing(from.take()?),
        _ => return Err(DecodeError::new("a step has read something that this version does not know")),
    })
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepEnd {
    /// `init` and `start` have returned.
    Started,
    /// [`Step::Continue`](crate::Step::Continue).
    Continue,
    /// [`Step::Idle`](crate::Step::Idle).
    Idle,
    /// [`Step::Wait`](crate::Step::Wait).
    Wait,
    /// [`Step::Blocking`](crate::Step::Blocking).
    Blocking,
    /// [`Step::Done`](crate::Step::Done).
    Done,
    /// [`Step::Upgrade`](crate::Step::Upgrade).
    Upgrade,
    /// An error, with its text.
    Failed(String),
    /// A panic, with its message.
    Panicked(String),
}

impl fmt::Display for StepEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepEnd::Started => f.write_str("started"),
            StepEnd::Continue => f.write_str("continue"),
            StepEnd::Idle => f.write_str("idle"),
            StepEnd::Wait => f.write_str("wait"),
            StepEnd::Blocking => f.write_str("blocking"),
            StepEnd::Done => f.write_str("done"),
            StepEnd::Upgrade => f.write_str("upgrade"),
            StepEnd::Failed(text) => write!(f, "failed: {text}"),
            StepEnd::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

/// The numbers of the ends. They are part of the format.
pub(super) mod end_kinds {
    pub(crate) const STARTED: u8 = 0;
    pub(crate) const CONTINUE: u8 = 1;
    pub(crate) const IDLE: u8 = 2;
    pub(crate) const WAIT: u8 = 3;
    pub(crate) const BLOCKING: u8 = 4;
    pub(crate) const DONE: u8 = 5;
    pub(crate) const UPGRADE: u8 = 6;
    pub(crate) const FAILED: u8 = 7;
    pub(crate) const PANICKED: u8 = 8;
}

impl StepEnd {
    /// The end without a text that has this number.
    pub(super) fn without_text(kind: u8) -> Option<StepEnd> {
        Some(match kind {
            end_kinds::STARTED => StepEnd::Started,
            end_kinds::CONTINUE => StepEnd::Continue,
            end_kinds::IDLE => StepEnd::Idle,
            end_kinds::WAIT => StepEnd::Wait,
            end_kinds::BLOCKING => StepEnd::Blocking,
            end_kinds::DONE => StepEnd::Done,
            end_kinds::UPGRADE => StepEnd::Upgrade,
            _ => return None,
        })
    }

    fn put(&self, to: &mut Vec<u8>) {
        let (kind, text) = match self {
            StepEnd::Started => (end_kinds::STARTED, ""),
            StepEnd::Continue => (end_kinds::CONTINUE, ""),
            StepEnd::Idle => (end_kinds::IDLE, ""),
            StepEnd::Wait => (end_kinds::WAIT, ""),
            StepEnd::Blocking => (end_kinds::BLOCKING, ""),
            StepEnd::Done => (end_kinds::DONE, ""),
            StepEnd::Upgrade => (end_kinds::UPGRADE, ""),
            StepEnd::Failed(text) => (end_kinds::FAILED, text.as_str()),
            StepEnd::Panicked(text) => (end_kinds::PANICKED, text.as_str()),
        };
        to.push(kind);
        put_list(text.as_bytes(), to);
    }

    fn take(from: &mut Input<'_>) -> Result<StepEnd, DecodeError> {
        let (kind, text) = (from.take::<u8>()?, from.take_str()?);
        Ok(match kind {
            end_kinds::FAILED => StepEnd::Failed(text.to_owned()),
            end_kinds::PANICKED => StepEnd::Panicked(text.to_owned()),
            kind => StepEnd::without_text(kind)
                .ok_or(DecodeError::new("a step has an end that this version does not know"))?,
        })
    }
}

/// The state of the process before a step, as far as the runtime has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) number: u64,
    /// The number of tags that were given out.
    pub(super) tags: u64,
    /// The number of random numbers that were drawn.
    pub(super) draws: u64,
    /// Whether the step was given no messages, because the one before it said `Wait`.
    pub(super) waits: bool,
}

impl Before {
    #[inline]
    pub(super) fn put(self, to: &mut Vec<u8>) {
        put_numbers([self.number, self.tags, self.draws, u64::from(self.waits)], to);
    }
}

/// The facts that are known when the step has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) end: StepEnd,
    /// A digest of the yields.
    pub(super) yields: u64,
    /// The PIDs of the processes that it has spawned.
    pub(super) spawned: Vec<Pid>,
    /// The numbers that were in stock for monitors, if the step has used any.
    pub(super) monitors: Range<u64>,
    /// The results of the replies that it has sent itself.
    pub(super) replies: Vec<bool>,
}

impl End {
    /// The usual end, in one piece: no text, nothing spawned, no monitors, no replies.
    #[inline]
    pub(super) fn put_plain(kind: u8, yields: u64, to: &mut Vec<u8>) {
        let [a, b, c, d, e, f, g, h] = yields.to_le_bytes();
        to.extend_from_slice(&[kinds::END, kind, 0, a, b, c, d, e, f, g, h, 0, 0, 0, 0]);
    }

    pub(super) fn put(&self, to: &mut Vec<u8>) {
        to.push(kinds::END);
        self.end.put(to);
        to.extend_from_slice(&self.yields.to_le_bytes());
        self.spawned.encode(to);
        (self.monitors.start, self.monitors.end).encode(to);
        self.replies.encode(to);
    }

    fn take(from: &mut Input<'_>) -> Result<End, DecodeError> {
        let end = StepEnd::take(from)?;
        let mut yields = [0; 8];
        yields.copy_from_slice(from.take_bytes(8)?);
        let spawned = from.take()?;
        let (start, stop) = from.take()?;
        let replies = from.take()?;
        Ok(End { end, yields: u64::from_le_bytes(yields), spawned, monitors: start..stop, replies })
    }
}

/// A recorded step.
pub(super) struct RecordedStep {
    pub(super) before: Before,
    pub(super) items: Vec<Item>,
    /// Absent if the step has not returned.
    pub(super) end: Option<End>,
}

impl RecordedStep {
    pub(super) fn decode(bytes: &[u8]) -> Result<RecordedStep, DecodeError> {
        let mut from = Input::new(bytes);
        let before = Before { number: from.take()?, tags: from.take()?, draws: from.take()?, waits: from.take()? };
        let mut items = Vec::new();
        while !from.rest().is_empty() {
            match from.take::<u8>()? {
                kinds::END => {
                    let end = Some(End::take(&mut from)?);
                    if !from.rest().is_empty() {
                        return Err(DecodeError::new("bytes are left after a step"));
                    }
                    return Ok(RecordedStep { before, items, end });
                }
                kind => items.push(take_item(kind, &mut from)?),
            }
        }
        Ok(RecordedStep { before, items, end: None })
    }
}
