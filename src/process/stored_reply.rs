//! Replies that are stored in the state of a durable process, or in a message to one.
//!
//! The state is read again after a step that failed, after an error of the disk, and in later runs. So a stored reply
//! may be in memory several times, and the drop of one tells the asker nothing. Only a step that succeeds can give a
//! reply up. So the drops during a step are noted.

use std::any::{Any, TypeId};

use super::host::CountedHost;
use super::reply::{Ask, PendingReply, QuestionKey, Reply, ReplyKey, Special};
use crate::latch::Latch;
use crate::primitives::{Arc, Ordering, lock};

impl Ask {
    /// The name of its reply, if that is stored.
    pub(crate) fn stored_key(&self) -> Option<ReplyKey> {
        match &*lock(&self.special) {
            Some(Special::Stored(key)) => Some(*key),
            _ => None,
        }
    }

    /// Its reply is stored from now on.
    pub(crate) fn store_as(&self, key: ReplyKey) {
        *lock(&self.special) = Some(Special::Stored(key));
    }

    /// Its reply is not stored any more under this name. A drop tells the asker from now on.
    pub(crate) fn store_no_longer(&self, key: ReplyKey) {
        let mut special = lock(&self.special);
        if matches!(&*special, Some(Special::Stored(of)) if *of == key) {
            *special = None;
        }
    }

    /// The question is stored. From now on nobody decides it in memory: an answer is a record.
    pub(crate) fn store(&self) {
        // Ordering: Relaxed: the message with the reply has not left the step that asks.
        self.decided.store(true, Ordering::Relaxed);
    }

    /// The question, if it is stored.
    pub(crate) fn question(&self) -> Option<QuestionKey> {
        match self.stored_key() {
            Some(ReplyKey::Question(key)) => Some(key),
            _ => None,
        }
    }

    /// The type of its answer.
    pub(crate) fn answer_type(&self) -> TypeId {
        self.place.answer_type()
    }

    /// Takes the answer out of its place, if it is there.
    pub(crate) fn take_any_answer(&self) -> Option<Box<dyn Any + Send>> {
        self.place.take()
    }
}

impl PendingReply {
    /// Takes the question, if it is stored. Otherwise the reply comes back.
    pub(crate) fn stored(mut self) -> Result<Arc<Ask>, PendingReply> {
        match self.0.0.take_if(|ask| ask.question().is_some()) {
            Some(ask) => Ok(ask),
            None => Err(self),
        }
    }
}

impl<T: Send + 'static> Reply<T> {
    /// The reply to a stored question.
    pub(crate) fn to_stored(host: CountedHost, key: QuestionKey) -> Reply<T> {
        let reply = Reply::late(host);
        reply.ask().into_iter().for_each(|ask| ask.store_as(ReplyKey::Question(key)));
        reply
    }

    /// A reply that comes too late, because the run of its asker has ended.
    pub(crate) fn late(host: CountedHost) -> Reply<T> {
        let nobody = host.nobody();
        let ask = Ask::from_outside::<T>(host, Latch::new(), nobody);
        ask.decided.store(true, Ordering::Relaxed);
        Reply::new(Arc::new(ask))
    }
}
