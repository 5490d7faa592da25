//! The question of a reply: whether it is open, and the question itself for those that store it or send it elsewhere.

#[cfg(any(feature = "durable", feature = "cluster"))]
use super::reply::Ask;
use super::reply::Reply;
#[cfg(any(feature = "durable", feature = "cluster"))]
use crate::primitives::Arc;

#[cfg(any(feature = "durable", feature = "cluster"))]
impl<T: Send + 'static> Reply<T> {
    /// The question, to store the reply or to send it elsewhere.
    pub(crate) fn ask(&self) -> Option<&Arc<Ask>> {
        self.open.0.as_ref()
    }

    /// The reply to this question, if its answer has this type.
    pub(crate) fn to(ask: Arc<Ask>) -> Option<Reply<T>> {
        ask.place::<T>().is_some().then(|| Reply::new(ask))
    }
}

impl<T> Reply<T> {
    /// Whether the asker still waits for the answer. If it does not, its limit is over, or it has ended, and an answer
    /// would be discarded. Ask this before work that only the answer needs.
    ///
    /// The asker may give up right after this call has returned `true`. For a stored question of a durable process it
    /// is always `true`.
    pub fn is_open(&self) -> bool {
        #[cfg(feature = "durable")]
        if self.open.0.as_ref().is_some_and(|ask| ask.question().is_some()) {
            // Its asker may have left memory. A late answer harms nobody.
            return true;
        }
        self.open.0.as_ref().is_some_and(|ask| !ask.is_decided())
    }
}
