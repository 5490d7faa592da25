//! Pausing a pool: as a guard, or for as long as a token is not cancelled.

use std::fmt;
use std::time::Duration;

use super::owner::Pool;
use super::seat::call_all;
use super::thread::Shared;
use super::words::PoolStatus;
use crate::cancel::CancelToken;
use crate::clock::Deadline;
use crate::inside::refuse_step_timeout;
use crate::sync::{Arc, lock};

/// A pause of a [`Pool`]. It ends when this is dropped, or when the pool is drained or stopped.
#[must_use = "dropping this ends the pause"]
pub struct Pause {
    shared: Arc<Shared>,
    id: u64,
}

/// Why a pause does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PauseError {
    /// The pool has been stopped, or drains: it takes no jobs that could be kept back.
    #[error("the pool cannot be paused: it is {0:?}")]
    Stopped(PoolStatus),
    /// It was asked to wait for by a job of the same pool, which would wait for itself.
    #[error("a job cannot wait until its own pool is paused")]
    Inside,
    /// The caller is a step, and would have blocked its worker until the pause holds.
    #[error("a step cannot wait until a pool is paused, for it would block its worker")]
    InsideStep,
    /// The limit was over before all the jobs from before the pause had been run.
    #[error("the pause did not take hold within its limit")]
    TimedOut,
}

impl Pool {
    /// Pauses the pool: jobs that were submitted before are still run, those that are submitted from now on are taken and
    /// kept until the pause ends. Returns when it *holds*: when all jobs from before have been run, and another pause that
    /// was asked for earlier has ended. No thread is started for it.
    ///
    /// # Errors
    /// The pool has been stopped or drains, perhaps while this waits; or the caller is a job of this pool, or a step.
    pub fn pause(&self) -> Result<Pause, PauseError> {
        self.pause_timeout(Duration::MAX)
    }

    /// As [`pause`](Self::pause), but waits at most so long until it holds.
    ///
    /// # Errors
    /// As [`pause`](Self::pause); or the limit was over, and there is no pause.
    pub fn pause_timeout(&self, limit: Duration) -> Result<Pause, PauseError> {
        self.check_caller(limit)?;
        let deadline = self.owner.shared.clock.deadline(limit);
        let pause = self.begin_pause()?;
        pause.hold(deadline).map(|()| pause)
    }

    /// Whether the caller may wait here.
    fn check_caller(&self, limit: Duration) -> Result<(), PauseError> {
        refuse_step_timeout(limit).map_err(|_| PauseError::InsideStep)?;
        if self.is_inside() { Err(PauseError::Inside) } else { Ok(()) }
    }

    /// As [`pause`](Self::pause), but without waiting until it holds: [`Pause::wait`] does. A job of the pool and a step may
    /// call this, too.
    ///
    /// # Errors
    /// The pool has been stopped, or drains.
    pub fn begin_pause(&self) -> Result<Pause, PauseError> {
        let id = self.owner.shared.lock().pause().map_err(PauseError::Stopped)?;
        Ok(Pause { shared: self.owner.shared.clone(), id })
    }

    /// Pauses the pool until the token is cancelled, and returns when the pause holds. It outlives the call; draining and
    /// stopping the pool end it, too. If the token is cancelled before the pause holds, or was cancelled already, this
    /// returns at once, and nothing is paused any more.
    ///
    /// For a pause that ends by itself, have a timer cancel the token.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn pause_until(&self, token: &CancelToken) -> Result<(), PauseError> {
        if token.is_cancelled() {
            return Ok(());
        }
        self.check_caller(Duration::MAX)?;
        let shared = &self.owner.shared;
        let pause = self.begin_pause()?;
        let id = pause.id;
        let weak = Arc::downgrade(shared);
        let registration = token.on_cancel(move |_| {
            if let Some(shared) = weak.upgrade() {
                shared.resume(id);
            }
        });
        // From here on the token ends it, and not the guard.
        pause.forget();
        lock(&shared.tokens).insert(id, registration);
        if !shared.lock().pauses.is_there(id) {
            // Ended before the registration had its place.
            let stale = lock(&shared.tokens).remove(&id);
            drop(stale);
        }
        shared.hold(id, Deadline::NEVER).or_else(|why| if token.is_cancelled() { Ok(()) } else { Err(why) })
    }

    /// Whether a pause holds: no job runs, and none will begin until the pause ends.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().is_held(None)
    }
}

impl Pause {
    /// Whether it holds: all jobs from before it have been run, no other pause is before it, and the pool does not end.
    pub fn is_held(&self) -> bool {
        self.shared.lock().is_held(Some(self.id))
    }

    /// Waits until it holds, at most so long. It goes on either way.
    ///
    /// # Errors
    /// The limit was over; or the pool has been stopped or drains, which ends the pause; or the caller is a job of the pool,
    /// or a step.
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), PauseError> {
        refuse_step_timeout(limit).map_err(|_| PauseError::InsideStep)?;
        self.hold(self.shared.deadline(limit))
    }

    fn hold(&self, deadline: Deadline) -> Result<(), PauseError> {
        if self.shared.crew.is_current() {
            return Err(PauseError::Inside);
        }
        self.shared.hold(self.id, deadline)
    }

    /// Ends the pause, as dropping it does.
    pub fn resume(self) {}

    /// Lets go of the guard, and the pause goes on.
    fn forget(mut self) {
        // No pause is called so.
        self.id = 0;
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.shared.resume(self.id);
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pause").field("is_held", &self.is_held()).finish()
    }
}

impl Shared {
    fn resume(self: &Arc<Shared>, id: u64) {
        let (hands, news) = {
            let mut ledger = self.lock();
            (ledger.resume(id), ledger.news_of_pause())
        };
        // First, for if no worker can be started what waits is dropped, which is code of the user's.
        call_all(news);
        self.give(hands);
        let registration = lock(&self.tokens).remove(&id);
        drop(registration);
    }

    /// Waits until this pause holds.
    fn hold(&self, id: u64, deadline: Deadline) -> Result<(), PauseError> {
        self.wait_until(&self.clock, deadline, |ledger| ledger.is_held(Some(id)) || !ledger.pauses.is_there(id));
        let ledger = self.lock();
        match ledger.status {
            _ if ledger.is_held(Some(id)) => Ok(()),
            PoolStatus::Running => Err(PauseError::TimedOut),
            status => Err(PauseError::Stopped(status)),
        }
    }

    /// All pauses have ended: nobody need hear of the tokens any more.
    pub(super) fn forget_tokens(&self) {
        let registrations = std::mem::take(&mut *lock(&self.tokens));
        drop(registrations);
    }
}
