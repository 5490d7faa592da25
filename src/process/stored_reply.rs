//! Replies that are stored in the state of a durable process, or in a message to one.
//!
//! The state is read again after a step that failed, after an error of the disk, and in later runs. So a stored reply
//! may be in memory several times, and the drop of one tells the asker nothing. Only a step that succeeds can give a
//! reply up. So the drops during a step are noted.

use super::host::CountedHost;
use super::reply::{Ask, Reply, ReplyKey, Special};
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
}

impl<T: Send + 'static> Reply<T> {
    /// A reply that comes too late, because the run of its asker has ended.
    pub(crate) fn late(host: CountedHost) -> Reply<T> {
        let nobody = host.nobody();
        let ask = Ask::from_outside::<T>(host, Latch::new(), nobody);
        ask.decided.store(true, Ordering::Relaxed);
        Reply::new(Arc::new(ask))
    }
}
