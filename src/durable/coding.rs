//! How states, messages and outputs are written and read.
//!
//! PIDs, tags and replies can be stored only by a store, because they mean something only within its *runs*: a run is
//! the time from the start of a store to its end. A PID of a durable process means the same process in every run. A PID
//! of an ordinary process names nobody in another run.

use std::cell::Cell;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::replies;
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::process::Reply;
use crate::process::reply::{QuestionKey, ReplyKey};

/// A format of stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Format {
    /// JSON. A new field needs only `#[serde(default)]`, and other programs can read the store.
    Json,
    /// [Postcard](https://docs.rs/postcard). It is smaller and faster than JSON. Each change of a type needs a new
    /// version.
    Postcard,
}

impl Format {
    pub(crate) fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, BoxError> {
        Ok(match self {
            Format::Json => serde_json::to_vec(value)?,
            Format::Postcard => postcard::to_stdvec(value)?,
        })
    }

    pub(crate) fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, BoxError> {
        Ok(match self {
            Format::Json => serde_json::from_slice(bytes)?,
            Format::Postcard => postcard::from_bytes(bytes)?,
        })
    }
}

/// The number of bits of a PID without its node.
const NUMBER_BITS: u32 = 50;

/// The store and the run in which a value is written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The node of the store's PIDs.
    pub(crate) store: u32,
    /// The number of the run. It is not zero.
    pub(crate) number: u64,
}

thread_local! {
    static RUN: Cell<Option<Run>> = const { Cell::new(None) };
    /// Whether a reply was written.
    static HAS_REPLY: Cell<bool> = const { Cell::new(false) };
}

/// Sets the run back when a call ends, also if it panics.
struct Reset(Option<Run>);

impl Drop for Reset {
    fn drop(&mut self) {
        RUN.set(self.0);
    }
}

impl Run {
    /// Runs code that writes or reads values of this run. Also returns whether a reply was written.
    pub(crate) fn code<R>(self, code: impl FnOnce() -> R) -> (R, bool) {
        let _reset = Reset(RUN.replace(Some(self)));
        HAS_REPLY.set(false);
        let result = code();
        (result, HAS_REPLY.take())
    }

    /// The PID of a process of the store by its serial number, or the one by which a mailbox knows a stored message.
    pub(crate) fn ticket(self, number: u64) -> Option<Pid> {
        if number >> NUMBER_BITS != 0 {
            return None;
        }
        Pid::from_word(u64::from(self.store) << NUMBER_BITS | number)
    }

    /// The number of such a PID.
    pub(crate) fn number_of(self, pid: Pid) -> Option<u64> {
        (pid.node() == self.store).then(|| pid.to_word() & ((1 << NUMBER_BITS) - 1))
    }

    /// A PID as it is stored: the number of its run, or zero if it is one of the store, and the PID in one word.
    pub(crate) fn note(self, pid: Pid) -> (u64, u64) {
        (if pid.node() == self.store { 0 } else { self.number }, pid.to_word())
    }

    /// The PID that was stored so. If it is one of an ordinary process of another run, it becomes a PID of nobody.
    pub(crate) fn read(self, (run, word): (u64, u64)) -> Option<Pid> {
        let pid = Pid::from_word(word)?;
        if run == 0 || run == self.number { Some(pid) } else { Pid::nobody(pid.node()) }
    }
}

/// Leaves the run in which this thread writes or reads values, until the guard is dropped.
#[cfg(feature = "cluster")]
pub(crate) fn leave_run() -> impl Drop {
    Reset(RUN.replace(None))
}

/// The run in which this thread writes or reads values.
pub(crate) fn run() -> Option<Run> {
    RUN.get()
}

/// A reply as it is stored.
#[derive(Serialize, Deserialize)]
enum StoredReply {
    /// The asker ends with this run. The reply has this number in it.
    Live { run: u64, number: u64 },
    /// The question is stored.
    Question(QuestionKey),
}

impl Run {
    /// Writes a reply.
    pub(crate) fn write_reply<T: Send + 'static, S: Serializer>(
        self,
        reply: &Reply<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        HAS_REPLY.set(true);
        let run = self.number;
        match reply.ask().and_then(replies::write) {
            Some(ReplyKey::Live(number)) => StoredReply::Live { run, number }.serialize(to),
            Some(ReplyKey::Question(key)) => StoredReply::Question(key).serialize(to),
            // The caller refuses values with replies.
            None => StoredReply::Live { run: 0, number: 0 }.serialize(to),
        }
    }

    /// Reads a reply.
    pub(crate) fn read_reply<'a, T: Send + 'static, D: Deserializer<'a>>(self, from: D) -> Result<Reply<T>, D::Error> {
        let reply = match StoredReply::deserialize(from)? {
            StoredReply::Live { run, number } => replies::read((run == self.number).then_some(number)),
            StoredReply::Question(key) => replies::read_question(key),
        };
        reply.ok_or_else(|| D::Error::custom("a stored reply is read outside of its process"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The nodes of runs come back after 16,383 runs, so an ordinary process may have the PID of an earlier one.
    #[test]
    fn a_pid_names_a_process_of_its_run_though_its_node_comes_back() {
        let first = Run { store: 5, number: 1 };
        let later = Run { number: first.number + u64::from(Pid::MAX_NODE), ..first };
        let [ordinary, durable] = [6, 5].map(|node| Pid::from_word(node << NUMBER_BITS | 77).unwrap());
        assert_eq!(later.note(ordinary).1, first.note(ordinary).1, "it is the same word");
        assert_eq!(first.read(first.note(ordinary)), Some(ordinary));
        assert_eq!(later.read(later.note(ordinary)), Some(ordinary));
        for (writer, reader) in [(first, later), (later, first)] {
            assert_eq!(reader.read(writer.note(ordinary)), Pid::nobody(6));
            assert_eq!(reader.read(writer.note(durable)), Some(durable), "it is one process in all runs");
        }
        assert_ne!(Pid::nobody(6), Some(ordinary));
    }
}
