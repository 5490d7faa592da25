//! Replies that the state of a durable process has.
//!
//! The record of each step has the state, and the state has the replies that it keeps. A step that succeeds may keep a
//! reply that it has taken, answer one that it has kept, pass it on, or drop it. All of this happens when the record of
//! the step is on disk. If the record is lost, the state is read again with the replies that it had before.

use std::collections::HashSet;

use super::contract::Durable;
use super::core::{StepError, StoreCore};
use super::held::Held;
use super::machine::DurableMachine;
use super::replies::{GoneReply, Replies, ReplyDesk, SeenReply, at_desk};
use super::rows;
use super::settings::LARGE_STATE;
use crate::outcome::{contain, tell_log};
use crate::primitives::Arc;
use crate::process::host::CountedHost;
use crate::process::reply::{Ask, ReplyKey};

/// The key, if the asker ends with the run. `questions.rs` has the others.
fn live(key: ReplyKey) -> Option<ReplyKey> {
    Some(key).filter(|key| matches!(key, ReplyKey::Live(_)))
}

impl ReplyDesk for StoreCore {
    fn replies(&self) -> &Replies {
        &self.replies
    }

    fn host(&self) -> Option<CountedHost> {
        Some(Arc::new(self.core()?))
    }
}

impl StoreCore {
    /// Runs code that writes or reads values which may have replies. Also returns these.
    pub(super) fn code<R>(&self, code: impl FnOnce() -> R) -> (R, Vec<SeenReply>) {
        let run = || self.run.code(code).0;
        match self.me.upgrade() {
            Some(me) => at_desk(me, run),
            None => (run(), Vec::new()),
        }
    }
}

impl<P: Durable> DurableMachine<P> {
    /// The state as it is to be stored, with the replies that it has.
    pub(super) fn encoded(&mut self) -> Result<(Vec<u8>, Vec<SeenReply>), StepError> {
        let Some(process) = self.typed.process() else { return Ok(Default::default()) };
        let (encoded, replies) = self.store.code(|| contain(|| P::FORMAT.encode(process)));
        let state = rows::checked_state(encoded, self.store.settings.largest_state)?;
        if state.len() >= LARGE_STATE && !self.is_reported {
            self.is_reported = true;
            let (pid, bytes) = (self.resident.pid, state.len());
            tell_log(|| tracing::warn!(%pid, process = P::NAME, bytes, "a state is large, and each step writes it"));
        }
        Ok((state, replies))
    }

    /// Notes the replies of a step that is stored. At the end of a process there are none. It is dropped when its end
    /// is on disk, which tells the askers.
    pub(super) fn keep_replies(&mut self, replies: Vec<SeenReply>, dropped: &[Arc<Ask>], held: &mut Held) {
        if replies.is_empty() && self.replies.is_empty() && dropped.is_empty() {
            return;
        }
        let now: HashSet<ReplyKey> = replies.iter().map(|reply| reply.key).collect();
        // Also of one that another process of the store has passed on.
        let gone = |ask: &Arc<Ask>| Some(GoneReply { key: live(ask.stored_key()?)?, dropped: Some(ask.clone()) });
        held.replies.extend(dropped.iter().filter_map(gone));
        let gone = self.replies.iter().filter(|key| live(**key).is_some() && !now.contains(key));
        held.replies.extend(gone.map(|key| GoneReply { key: *key, dropped: None }));
        self.store.replies.keep(self.resident.serial, replies);
        self.replies = now.into_iter().collect();
    }

    /// The record of these yields is on disk: forgets the replies that the state has no more.
    pub(super) fn forget_replies(&self, held: &mut Held) {
        for GoneReply { key, dropped } in held.replies.drain(..) {
            let ReplyKey::Live(number) = key else { continue };
            let owner = dropped.is_none().then_some(self.resident.serial);
            drop(self.store.replies.forget(number, owner));
            dropped.into_iter().for_each(|ask| {
                ask.store_no_longer(key);
                ask.abandon();
            });
        }
    }
}
