//! A message of a step to a process of its store.

use super::replies::SeenReply;
use super::residency::StoredBytes;
use crate::pid::Pid;
use crate::process::reply::{QuestionKey, ReplyKey};
use crate::sched::non_local::AnyMessage;
use crate::sched::outbox::Popped;
use crate::sched::trace_marks::MessageTrace;

/// A message of a step to a process of its store.
pub(super) struct Letter {
    pub(super) to: Pid,
    pub(super) message: AnyMessage,
    /// The name of its type.
    pub(super) type_name: &'static str,
    /// Its number, and its stored form. `None` for a message with a reply that ends with the run. The number is given
    /// when all messages of the step are there.
    pub(super) stored: Option<(u64, StoredBytes)>,
    /// The context in which it was sent.
    pub(super) trace: MessageTrace,
}

impl Letter {
    pub(super) fn new(to: Pid, popped: Popped, stored: Option<(u64, StoredBytes)>) -> Letter {
        let Popped { message, type_name, trace } = popped;
        Letter { to, message, type_name, stored, trace }
    }

    /// The stored questions whose replies it has.
    pub(super) fn questions(&self) -> &[QuestionKey] {
        self.stored.as_ref().map_or(&[], |(_, stored)| &stored.questions)
    }
}

/// The stored questions to which these are the replies. `None` if one of them ends with the run.
pub(super) fn questions_of(replies: &[SeenReply]) -> Option<Vec<QuestionKey>> {
    let question = |reply: &SeenReply| match reply.key {
        ReplyKey::Question(key) => Some(key),
        ReplyKey::Live(_) => None,
    };
    replies.iter().map(question).collect()
}
