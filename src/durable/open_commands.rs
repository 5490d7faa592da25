//! The stored commands of processes in memory that wait for an answer, and the answers from outside.
//!
//! A command is answered by its handler, by its limit, by its process, which cancels it, or from outside, by its key.
//! The lock decides which is first. All records of a command but the first and the last are appended under this lock.
//! So no record of its progress stands after the one of an answer from outside.
//!
//! | the slot | event, under the lock | becomes |
//! |---|---|---|
//! | — | a process that is loaded, or a step, has the command | **open** |
//! | — | an answer from outside, while the process is not in memory | **answered**; a load finds it |
//! | **open** | an answer from outside is appended | **answered**, and its future is woken |
//! | **open** | its future has another answer, or is dropped | **closed** |
//! | **open** | a step cancels it, and stores that | **closed**; **open** again if the step fails |
//! | **answered** | its future is polled, or has another answer, which is dropped | **closed** |
//! | any | the record of the step that takes the answer was appended, or the process has ended | — |
//! | **open**, **closed** | the process has left memory | —, or **answered** if the answer is stored |

use std::collections::HashMap;
use std::task::Waker;

use super::command_type::CommandType;
use super::rows::StoredAnswer;
use crate::primitives::{Mutex, lock};

/// The open commands, by the serial numbers of their processes and their tags.
#[derive(Default)]
pub(super) struct OpenCommands {
    slots: Mutex<HashMap<u64, HashMap<u64, Slot>>>,
}

#[derive(Default)]
struct Slot {
    /// `None` if the process is not in memory.
    kind: Option<CommandType>,
    waker: Option<Waker>,
    /// The answer, until the record of the step that takes it was appended.
    answer: Option<StoredAnswer>,
    /// Whether the answer has a record.
    is_stored: bool,
    is_closed: bool,
    /// Whether it waits for an answer from outside, or for its next attempt.
    rests: bool,
}

/// Why an answer from outside is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal<E> {
    Unknown,
    /// The command has this name.
    OtherType(&'static str),
    Answered,
    /// The record was refused.
    Append(E),
}

impl OpenCommands {
    /// A process in memory has this command. If it was answered, this is the answer.
    pub(super) fn open(&self, serial: u64, tag: u64, kind: CommandType, answer: Option<StoredAnswer>) {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(serial).or_default().entry(tag).or_default();
        slot.kind = Some(kind);
        if let (None, Some(answer)) = (&slot.answer, answer) {
            (slot.answer, slot.is_stored) = (Some(answer), true);
        }
    }

    /// Takes the answer from outside, if there is one. Otherwise the waker is woken when it comes.
    pub(super) fn look(&self, serial: u64, tag: u64, waker: &Waker) -> Option<StoredAnswer> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut(&serial)?.get_mut(&tag)?;
        if let (Some(answer), false) = (&slot.answer, slot.is_closed) {
            slot.is_closed = true;
            return Some(answer.clone());
        }
        match &mut slot.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }

    /// Runs `append` unless there is an answer from outside.
    pub(super) fn unless_answered<R>(&self, serial: u64, tag: u64, append: impl FnOnce() -> R) -> Option<R> {
        let slots = lock(&self.slots);
        let slot = slots.get(&serial)?.get(&tag)?;
        (slot.answer.is_none() && !slot.is_closed).then(append)
    }

    /// The command has this answer. If one from outside was first, that one is returned.
    pub(super) fn close(&self, serial: u64, tag: u64, answer: Option<StoredAnswer>) -> Option<StoredAnswer> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut(&serial)?.get_mut(&tag)?;
        let is_first = !slot.is_closed;
        slot.is_closed = true;
        match &slot.answer {
            Some(first) if is_first => Some(first.clone()),
            Some(_) => None,
            None => {
                slot.answer = answer;
                None
            }
        }
    }

    /// A step cancels the command. Returns the name of its type, unless it has an answer. From now on it has none but
    /// this one.
    pub(super) fn cancel(&self, serial: u64, tag: u64) -> Option<&'static str> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut(&serial)?.get_mut(&tag)?;
        let name = slot.kind?.name;
        if slot.is_closed || slot.answer.is_some() {
            return None;
        }
        (slot.answer, slot.is_closed) = (Some(StoredAnswer::Cancelled), true);
        Some(name)
    }

    /// The step that has cancelled the command has failed.
    pub(super) fn reopen(&self, serial: u64, tag: u64) {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get_mut(&serial).and_then(|of| of.get_mut(&tag)) {
            (slot.answer, slot.is_closed) = (None, false);
        }
    }

    /// The answer of a command that no step has taken for good, and its type.
    pub(super) fn answer_of(&self, serial: u64, tag: u64) -> Option<(CommandType, StoredAnswer)> {
        let slots = lock(&self.slots);
        let slot = slots.get(&serial)?.get(&tag)?;
        Some((slot.kind?, slot.answer.clone()?))
    }

    /// Notes an answer from outside, if `append` has appended its record. `name` is the type of the command. If the
    /// process is in memory, it has the command only if there is a slot.
    pub(super) fn answer<R, E>(
        &self,
        (serial, tag): (u64, u64),
        (name, answer): (&'static str, StoredAnswer),
        is_in_memory: bool,
        append: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, Refusal<E>> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut(&serial).and_then(|of| of.get_mut(&tag));
        match slot {
            None if is_in_memory => return Err(Refusal::Unknown),
            None => {}
            Some(slot) => {
                if let Some(kind) = slot.kind.filter(|kind| kind.name != name) {
                    return Err(Refusal::OtherType(kind.name));
                }
                if slot.is_closed || slot.answer.is_some() {
                    return Err(Refusal::Answered);
                }
            }
        }
        let appended = append().map_err(Refusal::Append)?;
        let slot = slots.entry(serial).or_default().entry(tag).or_default();
        (slot.answer, slot.is_stored) = (Some(answer), true);
        let waker = slot.waker.take();
        drop(slots);
        waker.into_iter().for_each(Waker::wake);
        Ok(appended)
    }

    /// Their answers are taken, and the records of that are appended.
    pub(super) fn forget(&self, serial: u64, tags: impl Iterator<Item = u64>) {
        let mut slots = lock(&self.slots);
        let Some(of) = slots.get_mut(&serial) else { return };
        tags.for_each(|tag| drop(of.remove(&tag)));
        if of.is_empty() {
            slots.remove(&serial);
        }
    }

    /// Notes whether the command waits for an answer from outside, or for its next attempt, so that nobody works on it.
    pub(super) fn note_rest(&self, serial: u64, tag: u64, rests: bool) {
        if let Some(slot) = lock(&self.slots).get_mut(&serial).and_then(|of| of.get_mut(&tag)) {
            slot.rests = rests;
        }
    }

    pub(super) fn rests(&self, serial: u64, tag: u64) -> bool {
        lock(&self.slots).get(&serial).and_then(|of| of.get(&tag)).is_some_and(|slot| slot.rests && !slot.is_closed)
    }

    /// A process has left memory. Answers that are stored are found by its next load.
    pub(super) fn leave(&self, serial: u64) {
        let mut slots = lock(&self.slots);
        let Some(of) = slots.get_mut(&serial) else { return };
        of.retain(|_, slot| slot.is_stored);
        of.values_mut().for_each(|slot| {
            (slot.kind, slot.waker, slot.is_closed, slot.rests) = (None, None, false, false);
        });
        if of.is_empty() {
            slots.remove(&serial);
        }
    }

    /// A process has ended.
    pub(super) fn forget_all(&self, serial: u64) {
        lock(&self.slots).remove(&serial);
    }

    /// Records may be lost. Processes in memory are loaded again.
    pub(super) fn clear(&self) {
        lock(&self.slots).clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::convert::Infallible;

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::durable::{DurableCommand, ErrorText};
    use crate::process::Command;

    #[derive(Serialize, Deserialize)]
    struct Ask;

    impl Command for Ask {
        type Output = u32;
    }

    impl DurableCommand for Ask {
        const NAME: &str = "ask";
        type Error = ErrorText;
    }

    fn given(commands: &OpenCommands, is_in_memory: bool) -> Result<(), Refusal<Infallible>> {
        commands.answer((1, 2), ("ask", StoredAnswer::Dropped), is_in_memory, || Ok(()))
    }

    fn opened() -> OpenCommands {
        let commands = OpenCommands::default();
        commands.open(1, 2, CommandType::of::<Ask>(), None);
        commands
    }

    #[test]
    fn after_the_first_answer_there_is_no_other_and_no_record_of_progress() {
        // From outside.
        let commands = opened();
        assert!(commands.unless_answered(1, 2, || ()).is_some());
        assert_eq!(given(&commands, true), Ok(()));
        assert_eq!(given(&commands, true), Err(Refusal::Answered));
        assert!(commands.unless_answered(1, 2, || ()).is_none());
        assert!(commands.cancel(1, 2).is_none());
        assert!(commands.close(1, 2, Some(StoredAnswer::TimedOut)).is_some(), "the one of the handler is dropped");
        assert!(commands.look(1, 2, Waker::noop()).is_none() && commands.answer_of(1, 2).is_some());
        // Of the handler.
        let commands = opened();
        assert!(commands.close(1, 2, Some(StoredAnswer::TimedOut)).is_none());
        assert_eq!(given(&commands, true), Err(Refusal::Answered));
        // A step cancels it, and fails.
        let commands = opened();
        assert_eq!(commands.cancel(1, 2), Some("ask"));
        assert_eq!(given(&commands, true), Err(Refusal::Answered));
        assert!(commands.unless_answered(1, 2, || ()).is_none());
        commands.reopen(1, 2);
        assert_eq!(given(&commands, true), Ok(()));
    }

    #[test]
    fn an_answer_that_has_a_record_is_kept_until_a_step_has_taken_it() {
        let commands = OpenCommands::default();
        assert_eq!(given(&commands, true), Err(Refusal::Unknown));
        assert_eq!(given(&commands, false), Ok(()));
        // The load that was going on has read the older row.
        commands.open(1, 2, CommandType::of::<Ask>(), None);
        assert!(commands.look(1, 2, Waker::noop()).is_some(), "taken by its future");
        commands.leave(1);
        assert_eq!(given(&commands, false), Err(Refusal::Answered));
        commands.open(1, 2, CommandType::of::<Ask>(), None);
        assert!(commands.look(1, 2, Waker::noop()).is_some(), "taken again, because no step has");
        commands.forget(1, std::iter::once(2));
        assert_eq!(given(&commands, true), Err(Refusal::Unknown));
        // One of a handler has no record.
        let commands = opened();
        assert!(commands.close(1, 2, Some(StoredAnswer::TimedOut)).is_none());
        commands.leave(1);
        assert_eq!(given(&commands, false), Ok(()));
        assert!(lock(&commands.slots).len() == 1);
        commands.forget_all(1);
        assert!(lock(&commands.slots).is_empty());
    }
}
