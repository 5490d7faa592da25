//! Closures that are run repeatedly.
//!
//! Each round is a task like any other. It is accepted when the round before it has returned, and is handed to the
//! pool after the period. So there is at most one task, and it is visible while it waits. Rounds never overlap,
//! however long one takes.
//!
//! However a round ends, its closure returns or is dropped, and its [`Round`] is dropped with it. That drop submits
//! the next round, which gets the closure, or ends the repetition. So no end of a round is missed.

use std::fmt::{self, Display};
use std::time::Duration;

use super::error::SubmitError;
use super::info::TaskId;
use super::life::Body;
use super::options::TaskOptions;
use super::scheduler::{Owner, TaskScheduler};
use crate::cancel::CancelToken;
use crate::latch::Latch;
use crate::outcome::{Rejected, drop_contained};
use crate::pool::PoolStatus;
use crate::primitives::{Arc, Mutex, Weak, lock};

/// The shortest period. Without it, a period of zero would occupy the timer thread fully.
const SHORTEST: Duration = Duration::from_millis(1);

/// The handle of a repeated closure. Dropping the handle does not end the repetition.
pub struct Repeat {
    rounds: Arc<Rounds>,
}

/// The state that the handle and the rounds share.
struct Rounds {
    owner: Weak<Owner>,
    every: Duration,
    options: TaskOptions,
    state: Mutex<State>,
    over: Latch<()>,
}

#[derive(Default)]
struct State {
    is_cancelled: bool,
    round: Option<TaskId>,
    begun: u64,
}

/// One round. When dropped with its closure, called or not, it submits the next round or ends the repetition.
struct Round<F, E>
where
    F: FnMut(&CancelToken) -> Result<(), E> + Send + 'static,
    E: Display + Send + 'static,
{
    rounds: Arc<Rounds>,
    job: Option<F>,
}

impl TaskScheduler {
    /// Runs a closure repeatedly, with a pause of `every` between rounds.
    ///
    /// The first round runs as the options say. Each later round has the same options, but its delay is `every`, or a
    /// millisecond if `every` is shorter. The delay begins when the closure has returned from the round before. Rounds
    /// never overlap.
    ///
    /// Each round is a task of its own. The repetition goes on after an error, a panic, a timeout, or a cancellation
    /// of one round alone. It ends in these cases:
    ///
    /// - [`Repeat::cancel`] is called.
    /// - The scheduler is stopped, or its shared pool drains or stops.
    /// - The token that the repetition is [under](TaskOptions::under) is cancelled.
    /// - The moment of [`start_by`](TaskOptions::start_by) has passed.
    /// - The [timeout](TaskOptions::timeout) is zero.
    ///
    /// [`start_timeout`](TaskOptions::start_timeout) is measured from the moment at which a round is due.
    ///
    /// # Errors
    /// As [`submit`](Self::submit_with), for the first round.
    pub fn repeat<E, F>(
        &self,
        every: Duration,
        options: TaskOptions,
        job: F,
    ) -> Result<Repeat, Rejected<F, SubmitError>>
    where
        E: Display + Send + 'static,
        F: FnMut(&CancelToken) -> Result<(), E> + Send + 'static,
    {
        let rounds = Arc::new(Rounds {
            owner: Arc::downgrade(&self.owner),
            every: every.max(SHORTEST),
            options,
            state: Mutex::default(),
            over: Latch::new(),
        });
        let round = Round { rounds: rounds.clone(), job: Some(job) };
        if let Err(refused) = round.submit(self, rounds.options.clone()) {
            let (mut round, why) = refused.into_parts();
            if let Some(job) = round.job.take() {
                return Err(Rejected::new(job, why));
            }
        }
        Ok(Repeat { rounds })
    }
}

impl Repeat {
    /// Ends the repetition and cancels the round that waits or runs.
    ///
    /// Returns whether this was the first call.
    pub fn cancel(&self) -> bool {
        let (was_cancelled, round) = {
            let mut state = lock(&self.rounds.state);
            (std::mem::replace(&mut state.is_cancelled, true), state.round)
        };
        if let (Some(owner), Some(round)) = (self.rounds.owner.upgrade(), round) {
            let _ = TaskScheduler { owner }.cancel(round);
        }
        !was_cancelled
    }

    /// Returns the id of the last round that was submitted.
    pub fn round(&self) -> Option<TaskId> {
        lock(&self.rounds.state).round
    }

    /// Returns how often the closure has been called.
    pub fn rounds(&self) -> u64 {
        lock(&self.rounds.state).begun
    }

    /// Returns a latch that is set when no round follows and the closure is dropped.
    pub fn over(&self) -> &Latch<()> {
        &self.rounds.over
    }
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeat").field("round", &self.round()).field("rounds", &self.rounds()).finish()
    }
}

impl Rounds {
    /// The options of the next round. `None` if there is no next round.
    fn next(&self) -> Option<(TaskScheduler, TaskOptions)> {
        let tasks = TaskScheduler { owner: self.owner.upgrade()? };
        let mut options = self.options.clone();
        options.delay = Some(self.every);
        options.start_timeout = options.start_timeout.map(|limit| self.every.saturating_add(limit));
        let is_past = options.start_by.is_some_and(|moment| moment <= tasks.owner.shared.clock.now());
        let is_cancelled =
            lock(&self.state).is_cancelled || options.under.as_ref().is_some_and(CancelToken::is_cancelled);
        // A round with a timeout of zero ends before it begins. All later rounds would, too.
        let has_no_time = options.timeout == Some(Duration::ZERO);
        // A shared pool may have ended on its own. It would refuse all later rounds.
        let pool_ended = tasks.owner.shared.pool.status() != PoolStatus::Running;
        if is_past || is_cancelled || has_no_time || pool_ended { None } else { Some((tasks, options)) }
    }
}

impl<F, E> Round<F, E>
where
    F: FnMut(&CancelToken) -> Result<(), E> + Send + 'static,
    E: Display + Send + 'static,
{
    /// Submits the round. If the scheduler refuses it, it is given back.
    fn submit(self, tasks: &TaskScheduler, options: TaskOptions) -> Result<(), Rejected<Self, SubmitError>> {
        let rounds = self.rounds.clone();
        let task = tasks.submit_body(options, self)?;
        let is_cancelled = {
            let mut state = lock(&rounds.state);
            // The next round may have been submitted meanwhile. Its number is greater.
            state.round = state.round.max(Some(task.id()));
            state.is_cancelled
        };
        if is_cancelled {
            task.cancel();
        }
        Ok(())
    }
}

impl<F, E> Body for Round<F, E>
where
    F: FnMut(&CancelToken) -> Result<(), E> + Send + 'static,
    E: Display + Send + 'static,
{
    type Output = ();
    type Error = E;

    fn call(mut self, cancel: &CancelToken) -> Result<(), E> {
        {
            let mut state = lock(&self.rounds.state);
            // A cancellation may have happened before the number of this round was noted.
            if state.is_cancelled {
                return Ok(());
            }
            state.begun += 1;
        }
        self.job.as_mut().map_or(Ok(()), |job| job(cancel))
    }
}

impl<F, E> Drop for Round<F, E>
where
    F: FnMut(&CancelToken) -> Result<(), E> + Send + 'static,
    E: Display + Send + 'static,
{
    fn drop(&mut self) {
        let Some(job) = self.job.take() else { return };
        let next = Round { rounds: self.rounds.clone(), job: Some(job) };
        let last = match self.rounds.next() {
            Some((tasks, options)) => next.submit(&tasks, options).err().map(Rejected::into_inner),
            None => Some(next),
        };
        if let Some(mut last) = last {
            lock(&self.rounds.state).is_cancelled = true;
            drop_contained(last.job.take());
            let _ = self.rounds.over.set(());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_begins_when_all_was_cancelled_is_not_called() {
        let tasks = TaskScheduler::new();
        let job = |_: &CancelToken| -> Result<(), String> { panic!("it was cancelled before") };
        let rounds = Arc::new(Rounds {
            owner: Arc::downgrade(&tasks.owner),
            every: SHORTEST,
            options: TaskOptions::new(),
            state: Mutex::default(),
            over: Latch::new(),
        });
        // The round was accepted, and its number is not noted yet.
        let round = Round { rounds: rounds.clone(), job: Some(job) };
        let repeat = Repeat { rounds: rounds.clone() };
        assert!(repeat.cancel() && !rounds.over.is_set());
        round.call(&CancelToken::new()).unwrap();
        assert!(rounds.over.is_set());
        assert_eq!((repeat.round(), repeat.rounds()), (None, 0));
    }
}
