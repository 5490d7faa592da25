//! A message of a step to a process of its store.

use super::replies::SeenReply;
use super::residency::StoredBytes;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::CommandError;
use crate::process::reply::{Ask, QuestionKey, ReplyKey};
use crate::sched::non_local::AnyMessage;
use crate::sched::outbox::Popped;
use crate::sched::trace_marks::MessageTrace;

/// A message of a step to a process of its store.
pub(super) struct Letter {
    /// The question that the message asks, if it ends with the run. It is dropped before the message.
    pub(super) unsent: Option<Unsent>,
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
        Letter { unsent: None, to, message, type_name, stored, trace }
    }

    /// The stored questions whose replies it has.
    pub(super) fn questions(&self) -> &[QuestionKey] {
        self.stored.as_ref().map_or(&[], |(_, stored)| &stored.questions)
    }
}

/// A question whose message is not yet given to its receiver. It is dropped if its step has failed or its record is
/// lost. Then the question is decided, so that no late answer reaches the asker. The asker gets no event: its step is
/// undone.
pub(super) struct Unsent(Option<Arc<Ask>>);

impl Unsent {
    pub(super) fn new(ask: Arc<Ask>) -> Unsent {
        Unsent(Some(ask))
    }

    /// The record of the step was appended.
    pub(super) fn sent(mut self) -> Option<Arc<Ask>> {
        self.0.take()
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|ask| drop(ask.decide(CommandError::Dropped)));
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
