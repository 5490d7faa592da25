//! Pausing a pool: with a guard, or until a token is cancelled.

use std::fmt;
use std::time::Duration;

use super::handle::Pool;
use super::stats::PoolStatus;
use super::worker::Shared;
use crate::cancel::CancelToken;
use crate::clock::Deadline;
use crate::inside::refuse_step_timeout;
use crate::primitives::{Arc, lock};

/// A guard that pauses a [`Pool`].
///
/// The pause ends when the guard is dropped, or when the pool drains or is stopped.
#[must_use = "dropping this ends the pause"]
pub struct Pause {
    shared: Arc<Shared>,
    id: u64,
}

/// The reason why a pause does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PauseError {
    /// The pool drains or has been stopped.
    #[error("the pool cannot be paused: it is {0:?}")]
    Stopped(PoolStatus),
    /// The caller is a job of the pool and would wait for itself.
    #[error("a job cannot wait until its own pool is paused")]
    Inside,
    /// The caller is a step of a process. The call would have blocked the worker that runs the step.
    #[error("a step cannot wait until a pool is paused, for it would block its worker")]
    InsideStep,
    /// The limit passed before the pause held.
    #[error("the pause did not take hold within its limit")]
    TimedOut,
}

impl Pool {
    /// Pauses the pool and returns when the pause holds.
    ///
    /// Jobs that were submitted before the pause still run. The pool accepts later jobs, and they wait until the pause
    /// ends. The pause *holds* when all earlier jobs have run and all earlier pauses have ended. A pause occupies no
    /// thread of the pool.
    ///
    /// # Errors
    /// The pool drains or has been stopped, perhaps during the wait. Or the caller is a job of this pool, or a step.
    pub fn pause(&self) -> Result<Pause, PauseError> {
        self.pause_timeout(Duration::MAX)
    }

    /// As [`pause`](Self::pause), but waits at most `limit` until the pause holds.
    ///
    /// # Errors
    /// As [`pause`](Self::pause). Or the limit has passed, and there is no pause.
    pub fn pause_timeout(&self, limit: Duration) -> Result<Pause, PauseError> {
        self.owner.shared.may_wait(limit)?;
        let pause = self.begin_pause()?;
        pause.wait_timeout(limit).map(|()| pause)
    }

    /// As [`pause`](Self::pause), but does not wait until the pause holds.
    ///
    /// To wait for that, call [`Pause::wait`].
    ///
    /// A job of the pool and a step may also make this call.
    ///
    /// # Errors
    /// The pool drains or has been stopped.
    pub fn begin_pause(&self) -> Result<Pause, PauseError> {
        let id = self.owner.shared.lock().pause().map_err(PauseError::Stopped)?;
        Ok(Pause { shared: self.owner.shared.clone(), id })
    }

    /// Pauses the pool until the token is cancelled. Returns when the pause holds.
    ///
    /// A drain or a stop of the pool also ends the pause. If the token is cancelled before the pause holds, the call
    /// returns at once, and the pool is not paused. To pause for a fixed time, let a timer cancel the token.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn pause_until(&self, token: &CancelToken) -> Result<(), PauseError> {
        if token.is_cancelled() {
            return Ok(());
        }
        let shared = &self.owner.shared;
        shared.may_wait(Duration::MAX)?;
        let id = shared.lock().pause().map_err(PauseError::Stopped)?;
        let weak = Arc::downgrade(shared);
        let callback = token.on_cancel(move |_| {
            if let Some(shared) = weak.upgrade() {
                shared.resume(id);
            }
        });
        lock(&shared.pause_tokens).insert(id, callback);
        if !shared.lock().has_pause(id) {
            // The pause ended before its callback was in the table.
            let stale = lock(&shared.pause_tokens).remove(&id);
            drop(stale);
        }
        shared.hold(id, Deadline::NEVER).or_else(|why| if token.is_cancelled() { Ok(()) } else { Err(why) })
    }

    /// Whether a pause holds: no job runs, and none begins until the pause ends.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().is_held(None)
    }
}

impl Pause {
    /// Whether the pause holds.
    ///
    /// Then all earlier jobs have run, all earlier pauses have ended, and the pool is not ending.
    pub fn is_held(&self) -> bool {
        self.shared.lock().is_held(Some(self.id))
    }

    /// Waits until the pause holds.
    ///
    /// # Errors
    /// The pool drains or has been stopped, which ended the pause. Or the caller is a job of the pool, or a step.
    pub fn wait(&self) -> Result<(), PauseError> {
        self.wait_timeout(Duration::MAX)
    }

    /// As [`wait`](Self::wait), but waits at most `limit`. If the limit passes, the pause goes on.
    ///
    /// # Errors
    /// As [`wait`](Self::wait). Or the limit has passed.
    pub fn wait_timeout(&self, limit: Duration) -> Result<(), PauseError> {
        self.shared.may_wait(limit)?;
        self.shared.hold(self.id, self.shared.clock.deadline(limit))
    }

    /// Ends the pause, as dropping the guard does.
    pub fn resume(self) {}
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
    /// Refuses a caller that must not wait until a pause holds.
    fn may_wait(&self, limit: Duration) -> Result<(), PauseError> {
        refuse_step_timeout(limit).map_err(|_| PauseError::InsideStep)?;
        if self.threads.is_current() { Err(PauseError::Inside) } else { Ok(()) }
    }

    fn resume(self: &Arc<Shared>, id: u64) {
        let wanted = self.lock().resume(id);
        self.summon(wanted);
        let callback = lock(&self.pause_tokens).remove(&id);
        drop(callback);
    }

    /// Waits until the pause with this number holds.
    fn hold(&self, id: u64, deadline: Deadline) -> Result<(), PauseError> {
        self.wait_until(&self.clock, deadline, |ledger| ledger.is_held(Some(id)) || !ledger.has_pause(id));
        let ledger = self.lock();
        match ledger.status {
            _ if ledger.is_held(Some(id)) => Ok(()),
            PoolStatus::Running => Err(PauseError::TimedOut),
            status => Err(PauseError::Stopped(status)),
        }
    }
}
