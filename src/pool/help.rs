//! Counting on others: what a thread of the pool does that waits for one of several jobs. It runs one itself only if no other
//! thread comes to what waits at once, and otherwise has to hear when that is so no more: the other may be taken away (`resize`,
//! want of threads), or go away (code of the user's that takes long).
//!
//! **Nothing is lost.** It looks, and leaves its bell, in one critical section. Whoever makes the number of those who come
//! smaller asks for the news afterwards (`news.rs`), and the bell is rung if some are left then. It is rung as long as it is
//! there, so whoever hears it takes it back and looks again.

use std::task::Waker;

use super::owner::Pool;
use super::seat::Seat;
use super::thread::Shared;
use crate::sync::{Arc, Weak};

/// A bell that is rung when what waits is left. Dropped, it is taken back.
#[must_use = "dropping this takes the bell back"]
pub(crate) struct CountsOnOthers {
    shared: Weak<Shared>,
    seat: Seat,
}

impl Pool {
    /// Whether other workers come at once to all that waits. If they do, the bell is rung when they do not any more, perhaps
    /// several times.
    pub(crate) fn others_come(&self, bell: Waker) -> Option<CountsOnOthers> {
        let shared = &self.owner.shared;
        let seat = Seat::with_bell(bell);
        let mut ledger = shared.lock();
        if ledger.leaves_some() {
            return None;
        }
        ledger.watch(&seat);
        drop(ledger);
        Some(CountsOnOthers { shared: Arc::downgrade(shared), seat })
    }
}

impl Drop for CountsOnOthers {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().watch_no_more(&self.seat);
        }
    }
}
