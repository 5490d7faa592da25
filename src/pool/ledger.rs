//! The pool's ledger: its running workers, its parked workers and its waiting jobs. It makes plain decisions under
//! the pool's one lock. It uses no thread, no clock and no waiting, so each rule can be tested as a function
//! (`ledger/tests.rs`).
//!
//! **Workers** are in one of four states. A *running* worker runs a job. A *parked* worker is on the stack of parked
//! workers. An *away* worker runs user code that is no job, or exits. Every other worker is *awake*. An awake worker
//! checks the queue before it parks. A worker is *coming* if it was taken off the stack and has not checked the queue
//! since. The invariant:
//!
//! > While there is a job that may begin, a worker is awake; or no worker is parked, and there are as many workers as
//! > allowed.
//!
//! Every transition keeps the invariant. `submit` wakes a parked worker, or has one started, only if more jobs may
//! begin than workers are awake and no worker is coming. A worker that takes a job wakes or starts a worker for the
//! next job, if that job needs one. So workers wake one after the other, while there are jobs for them. (The
//! alternative is to wake all at once. The first worker would run many of the jobs meanwhile. For empty jobs, with 64
//! workers on two processors, that costs ten times as much.) A worker parks or exits only if no job may begin, or if
//! others were woken and started for it (`wanted`). So no job is left behind.
//!
//! **Parked workers** are a stack: the last worker to park is the first to wake. So surplus workers sink to the bottom
//! and age. Only the worker at the bottom has a deadline. **Ageing:** a whole idle period without a new job marks the
//! pool as quiet. Each further quiet period ends one worker, until only the minimum is left.
//!
//! **Pauses** are kept in the order of the requests. Only the first is in force. When it ends, the next is in force. A
//! pause's *mark* is the number that the next job will have. Jobs with smaller numbers still run. The others wait until
//! the pause ends. The pause *holds* when no job below its mark waits and none runs. So a pause needs no workers.
//! Exactly the jobs that were submitted before the pause run before it holds.
//!
//! **Bounds** limit the number of waiting jobs for which no worker is free. Submitters that wait for room get it in the
//! order of their calls.
//!
//! **Waiting threads** are submitters that wait for room, and threads that wait for a pause, for an idle pool or for
//! the end. They are woken when their condition may have changed (`waiters`), and check it again themselves.

#[cfg(all(test, not(loom)))]
mod random_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use super::job_queue::JobQueue;
use super::limits::{Limits, PoolError};
use super::parker::Parker;
use super::stats::{PoolStats, PoolStatus};
use crate::clock::Deadline;

/// The submitter's next action for an accepted job.
pub(super) enum Placed<J> {
    /// The job waits. Wake this worker for it.
    Wake(Parker),
    /// Start a worker with this job, which does not wait. Without it, the job waits, and the worker is for the queue.
    Start(Option<J>),
    /// The job waits. A worker that is awake or busy runs it.
    Queued {
        /// Whether a worker spins and should be notified.
        spin: bool,
    },
}

/// The submitter's claim to room in a bounded pool.
#[derive(Clone, Copy)]
pub(super) enum Claim<'a> {
    /// The submitter has just arrived. It has room only if no other submitter waits for room.
    New,
    /// The submitter has waited for room at this parker. It has room only if it is the first.
    Waited(&'a Parker),
    /// The bound does not apply to the submitter.
    Exempt,
}

/// The worker's last action before it asks for the next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// The worker has run a job, or has done nothing yet. It may spin.
    Job,
    /// The worker has spun.
    Spinning,
    /// The worker has been parked, or must not spin.
    Park,
}

/// The worker's next action.
pub(super) enum Next<J> {
    /// Wake and start workers for the next jobs, then run this one.
    Run(J, Wanted),
    /// Spin for a moment without the lock, then ask again.
    Spin,
    /// Wake the worker that is to have the deadline, if there is one. Park until woken or until the deadline, then
    /// ask again.
    Park(Deadline, Option<Parker>),
    /// Wake and start these workers, exit, and call `left`. Until then the worker is away.
    Exit(Wanted),
}

/// Workers to be woken and to be started for jobs that may begin.
#[derive(Default)]
#[must_use]
pub(super) struct Wanted {
    pub(super) wake: Vec<Parker>,
    pub(super) start: usize,
}

/// How far the end has got of a pool without workers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    NotBegun,
    Begun,
    /// The shutdown node has been told. Its callbacks have returned, unless another thread told it first and still
    /// calls them.
    Reported,
    /// The threads have been joined.
    Joined,
}

/// A requested pause.
pub(super) struct Asked {
    id: u64,
    mark: u64,
}

/// The time since the last job.
pub(super) struct Quiet {
    pub(super) since: Instant,
    // Whether a job has arrived since a worker last checked the time.
    pub(super) broken: bool,
    // Whether a whole idle period has already passed.
    pub(super) marked: bool,
    // Whether the worker at the bottom of the stack has a deadline.
    pub(super) watched: bool,
}

pub(super) struct Ledger<J> {
    pub(super) limits: Limits,
    // The fields that are counted. `stats` fills in the others.
    pub(super) counts: PoolStats,
    queue: JobQueue<J>,
    // The number of the next job.
    next: u64,
    pub(super) pauses: VecDeque<Asked>,
    // The number of the last pause.
    last_pause: u64,
    parked: Vec<Parker>,
    pub(super) away: usize,
    // Workers that were taken off the stack and have not checked the queue since.
    coming: usize,
    // Jobs that have ended, but whose handles are still being completed.
    reporting: usize,
    pub(super) status: PoolStatus,
    quiet: Quiet,
    // Whether a worker spins. One spinning worker is enough.
    spinning: bool,
    // Submitters that wait for room, in the order of their calls.
    pub(super) submitters: VecDeque<Parker>,
    // Threads that wait for a pause to hold, for an idle pool, or for the end. Also tasks that count on other
    // workers.
    pub(super) watchers: Vec<Parker>,
    // Abandoned jobs whose destructors have not yet run.
    pub(super) dropping: usize,
    pub(super) end: End,
    // Threads that the end has joined.
    pub(super) joined: usize,
}

impl<J> Ledger<J> {
    pub(super) fn new(limits: Limits, now: Instant) -> Ledger<J> {
        Ledger {
            limits,
            counts: PoolStats::default(),
            queue: JobQueue::new(),
            next: 0,
            pauses: VecDeque::new(),
            last_pause: 0,
            parked: Vec::new(),
            away: 0,
            coming: 0,
            reporting: 0,
            status: PoolStatus::Running,
            quiet: Quiet { since: now, broken: false, marked: false, watched: false },
            spinning: false,
            submitters: VecDeque::new(),
            watchers: Vec::new(),
            dropping: 0,
            end: End::NotBegun,
            joined: 0,
        }
    }

    /// Accepts a job and gives it a number, or returns it.
    #[inline(always)]
    pub(super) fn submit(&mut self, job: J, claim: Claim<'_>) -> Result<(u64, Placed<J>), (J, PoolError)> {
        if self.status != PoolStatus::Running {
            return Err((job, PoolError::Stopped(self.status)));
        }
        if !self.has_room(claim) {
            return Err((job, PoolError::Full));
        }
        Ok(self.accept(job))
    }

    #[inline(always)]
    fn accept(&mut self, job: J) -> (u64, Placed<J>) {
        self.counts.submitted += 1;
        let number = self.next;
        self.next += 1;
        self.quiet.broken = true;
        let placed = if !self.pauses.is_empty() || self.queue.len() < self.awake() {
            Placed::Queued { spin: self.spinning }
        } else if self.coming > 0 && !self.parked.is_empty() {
            // The coming worker wakes the next one, if there is work for it by then.
            Placed::Queued { spin: false }
        } else if let Some(parker) = self.take_parked() {
            Placed::Wake(parker)
        } else if self.counts.workers < self.limits.max {
            self.counts.workers += 1;
            if self.queue.is_empty() {
                self.counts.running += 1;
                return (number, Placed::Start(Some(job)));
            }
            Placed::Start(None)
        } else {
            Placed::Queued { spin: false }
        };
        self.queue.push(number, job);
        (number, placed)
    }

    /// Whether there is room for the submitter and it is the submitter's turn.
    fn has_room(&self, claim: Claim<'_>) -> bool {
        match claim {
            Claim::New => self.limits.queue.bound().is_none() || self.submitters.is_empty() && self.has_place(),
            Claim::Waited(parker) => self.submitters.front().is_some_and(|first| first.is(parker)) && self.has_place(),
            Claim::Exempt => true,
        }
    }

    pub(super) fn has_place(&self) -> bool {
        let Some(bound) = self.limits.queue.bound() else { return true };
        let free = if self.pauses.is_empty() { self.free() } else { 0 };
        self.queue.len() < bound.saturating_add(free)
    }

    /// The number of workers that can run a job at once. Workers that may yet be started count, too, although a start
    /// can fail.
    fn free(&self) -> usize {
        let free = self.counts.workers - self.counts.running - self.away;
        free.saturating_add(self.limits.max.saturating_sub(self.counts.workers))
    }

    /// The number of workers that will check the queue before they park.
    #[inline]
    pub(super) fn awake(&self) -> usize {
        self.counts.workers - self.counts.running - self.away - self.parked.len()
    }

    /// The number of waiting jobs that may begin. In a pause it counts at most `most`, so the queue is not scanned.
    #[inline]
    fn open(&self, most: usize) -> usize {
        self.pauses.front().map_or(self.queue.len(), |pause| self.queue.count_before(pause.mark, most))
    }

    /// How many of `most` further workers the jobs that may begin need.
    #[inline]
    fn missing(&self, most: usize) -> usize {
        let awake = self.awake();
        self.open(awake.saturating_add(most)).saturating_sub(awake).min(most)
    }

    /// Takes the worker that parked last off the stack. The caller wakes it.
    #[inline]
    fn take_parked(&mut self) -> Option<Parker> {
        let parker = self.parked.pop()?;
        parker.set_parked(false);
        parker.set_coming(true);
        self.coming += 1;
        Some(parker)
    }

    /// The workers to wake and to start for the jobs that may begin.
    pub(super) fn wanted(&mut self) -> Wanted {
        let wake = self.parked_wanted();
        let start = self.missing(self.limits.max.saturating_sub(self.counts.workers));
        self.counts.workers += start;
        let mut wanted = Wanted { wake, start };
        if wanted.wake.is_empty() {
            // The pool may now be able to shrink, while the worker at the bottom has no deadline.
            wanted.wake.extend(self.new_watcher());
        }
        wanted
    }

    /// A worker for the next job, if none is awake or coming for it.
    #[inline]
    fn one_more(&mut self) -> Wanted {
        let mut wanted = Wanted::default();
        if self.coming == 0 && self.missing(1) > 0 {
            wanted.wake.extend(self.take_parked());
            if wanted.wake.is_empty() && self.counts.workers < self.limits.max {
                self.counts.workers += 1;
                wanted.start = 1;
            }
        }
        wanted
    }

    /// The parked workers to wake for the jobs that may begin.
    pub(super) fn parked_wanted(&mut self) -> Vec<Parker> {
        (0..self.missing(self.parked.len())).map_while(|_| self.take_parked()).collect()
    }

    /// Notes that a worker could not be started, perhaps with a job. The job gets its place in the queue. If there is
    /// no other worker and none is being started, or if the pool has been stopped meanwhile, the job is returned, and
    /// counts as never submitted.
    pub(super) fn start_failed(&mut self, job: Option<(u64, J)>) -> Option<J> {
        self.counts.workers -= 1;
        let (number, job) = job?;
        self.counts.running -= 1;
        if self.counts.workers == 0 || self.status == PoolStatus::Stopped {
            self.counts.submitted -= 1;
            return Some(job);
        }
        self.queue.insert(number, job);
        None
    }

    /// Abandons all waiting jobs and returns them.
    pub(super) fn give_up(&mut self) -> VecDeque<J> {
        let left = self.queue.take_all();
        self.counts.abandoned += left.len() as u64;
        self.end_if_finished();
        left
    }

    /// Decides the next action of a worker without a job.
    pub(super) fn next(&mut self, parker: &Parker, before: Before, now: impl FnOnce() -> Instant) -> Next<J> {
        self.spinning &= before != Before::Spinning;
        if parker.is_coming() {
            parker.set_coming(false);
            self.coming -= 1;
        }
        if self.counts.workers - self.away <= self.limits.max
            && self.open(1) > 0
            && let Some(job) = self.queue.pop()
        {
            let was_bottom = self.take_off_stack(parker);
            self.counts.running += 1;
            let mut wanted = self.one_more();
            // The job may take long, and the new bottom of the stack has no deadline yet.
            wanted.wake.extend(was_bottom.then(|| self.new_watcher()).flatten());
            if !self.submitters.is_empty() {
                // During a pause the bound counts only the queue. So there is room now.
                wanted.wake.extend(self.waiters());
            }
            return Next::Run(job, wanted);
        }
        if self.status != PoolStatus::Running || self.counts.workers - self.away > self.limits.max {
            return self.exit(parker);
        }
        if before == Before::Job && !self.spinning && self.pauses.is_empty() {
            self.spinning = true;
            return Next::Spin;
        }
        self.park(parker, now())
    }

    fn park(&mut self, parker: &Parker, now: Instant) -> Next<J> {
        if std::mem::take(&mut self.quiet.broken) {
            // The job may have arrived earlier. So the worker at the bottom may end late, but never early.
            self.quiet = Quiet { since: now, marked: false, ..self.quiet };
        }
        if !parker.is_parked() {
            parker.set_parked(true);
            self.parked.push(parker.clone());
        }
        if !self.parked[0].is(parker) {
            return Next::Park(Deadline::NEVER, self.new_watcher());
        }
        self.quiet.watched = false;
        let Some(period) = self.limits.idle_period.filter(|_| self.may_shrink()) else {
            return Next::Park(Deadline::NEVER, None);
        };
        match self.quiet.since.checked_add(period) {
            Some(end) if end <= now => {
                let was_marked = std::mem::replace(&mut self.quiet.marked, true);
                self.quiet.since = now;
                if was_marked {
                    return self.exit(parker);
                }
                self.quiet.watched = true;
                Next::Park(Deadline(now.checked_add(period)), None)
            }
            end => {
                self.quiet.watched = true;
                Next::Park(Deadline(end), None)
            }
        }
    }

    fn may_shrink(&self) -> bool {
        self.counts.workers - self.away > self.limits.min && self.pauses.is_empty()
    }

    /// Returns the worker at the bottom of the stack, if it lacks a deadline.
    fn new_watcher(&mut self) -> Option<Parker> {
        if self.quiet.watched || self.limits.idle_period.is_none() || !self.may_shrink() {
            return None;
        }
        let bottom = self.parked.first()?;
        self.quiet.watched = true;
        Some(bottom.clone())
    }

    /// Takes a worker off the stack, if it is there. Returns whether it was at the bottom.
    fn take_off_stack(&mut self, parker: &Parker) -> bool {
        let place = self.parked.iter().position(|other| parker.is_parked() && other.is(parker));
        let Some(place) = place else { return false };
        parker.set_parked(false);
        self.parked.remove(place);
        self.quiet.watched &= place != 0;
        place == 0
    }

    fn exit(&mut self, parker: &Parker) -> Next<J> {
        self.take_off_stack(parker);
        self.away += 1;
        Next::Exit(self.wanted())
    }

    /// Notes that a worker has exited. Returns workers for jobs that arrived too late for it.
    pub(super) fn left(&mut self) -> Wanted {
        self.away -= 1;
        self.counts.workers -= 1;
        self.end_if_finished();
        self.wanted()
    }

    /// Notes that a worker runs user code that is no job, and may take long. Returns workers for the waiting jobs.
    pub(super) fn goes_away(&mut self) -> Wanted {
        self.away += 1;
        self.wanted()
    }

    pub(super) fn is_back(&mut self) {
        self.away -= 1;
    }

    #[inline]
    pub(super) fn job_ended(&mut self, panicked: bool, tells: bool) {
        self.counts.running -= 1;
        self.reporting += usize::from(tells);
        self.counts.finished += 1;
        self.counts.panicked += u64::from(panicked);
    }

    /// Notes that the handle of an ended job was completed.
    pub(super) fn reported(&mut self) {
        self.reporting -= 1;
    }

    /// Notes that a new job runs on the worker of a waiting job.
    pub(super) fn nest(&mut self) -> Result<(), PoolError> {
        if self.status != PoolStatus::Running {
            return Err(PoolError::Stopped(self.status));
        }
        self.counts.submitted += 1;
        self.counts.nested += 1;
        Ok(())
    }

    /// Takes a queued job, which then runs on the worker of a waiting job.
    pub(super) fn adopt(&mut self, number: u64) -> Option<J> {
        let job = self.queue.take(number);
        self.counts.nested += usize::from(job.is_some());
        job
    }

    pub(super) fn nested_ended(&mut self, panicked: bool) {
        self.counts.nested -= 1;
        self.counts.finished += 1;
        self.counts.panicked += u64::from(panicked);
    }

    /// Removes a job that has not begun.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<J> {
        let job = self.queue.take(number);
        self.counts.withdrawn += u64::from(job.is_some());
        job
    }

    /// Begins a pause and returns its number.
    pub(super) fn pause(&mut self) -> Result<u64, PoolStatus> {
        if self.status != PoolStatus::Running {
            return Err(self.status);
        }
        self.quiet.watched = false;
        self.last_pause += 1;
        self.pauses.push_back(Asked { id: self.last_pause, mark: self.next });
        Ok(self.last_pause)
    }

    /// Ends a pause, whether or not it is in force. Returns workers for the jobs that may now begin, and all waiting
    /// threads, some of which may have waited for the pause to hold.
    pub(super) fn resume(&mut self, id: u64) -> Wanted {
        if !self.has_pause(id) {
            return Wanted::default();
        }
        self.pauses.retain(|pause| pause.id != id);
        // Workers do not age during a pause.
        self.quiet.broken = true;
        let mut wanted = self.wanted();
        let first = self.submitters.front().filter(|_| self.has_place());
        wanted.wake.extend(self.watchers.iter().chain(first).cloned());
        wanted
    }

    /// Whether the pause has not ended.
    pub(super) fn has_pause(&self, id: u64) -> bool {
        self.pauses.iter().any(|pause| pause.id == id)
    }

    /// Whether the pause in force holds. If `which` is given, that pause must also be the one in force.
    pub(super) fn is_held(&self, which: Option<u64>) -> bool {
        let first = self.pauses.front().is_some_and(|pause| which.is_none_or(|id| id == pause.id));
        first && self.counts.running + self.reporting == 0 && self.open(1) == 0
    }

    /// Changes the numbers of workers. Returns the workers to wake and to start.
    pub(super) fn resize(&mut self, min: usize, max: usize) -> Wanted {
        self.limits.min = min;
        self.limits.max = max;
        let surplus = (self.counts.workers - self.away).saturating_sub(max);
        let mut wanted = self.wanted();
        for _ in 0..surplus {
            wanted.wake.extend(self.take_parked());
        }
        wanted
    }

    /// Accepts no more jobs and ends all pauses. Returns the threads to wake and the workers to start.
    pub(super) fn drain(&mut self) -> Wanted {
        if self.status != PoolStatus::Running {
            return Wanted::default();
        }
        self.status = PoolStatus::Draining;
        self.pauses.clear();
        let mut wanted = self.wanted();
        wanted.wake.extend(self.everybody());
        self.end_if_finished();
        wanted
    }

    /// Accepts no more jobs and ends all pauses. Returns the waiting jobs.
    pub(super) fn stop(&mut self) -> VecDeque<J> {
        self.status = PoolStatus::Stopped;
        self.pauses.clear();
        self.give_up()
    }

    /// Returns all parked workers and all waiting threads.
    pub(super) fn everybody(&mut self) -> Vec<Parker> {
        let mut parkers: Vec<Parker> = self.parked.drain(..).collect();
        parkers.iter().for_each(|parker| parker.set_parked(false));
        self.quiet.watched = false;
        parkers.extend(self.submitters.iter().chain(&self.watchers).cloned());
        parkers
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether no job waits or runs and all handles were completed.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.len() + self.active() == 0
    }

    /// Jobs that have begun, and have not returned or whose handles are not completed.
    pub(super) fn active(&self) -> usize {
        self.counts.running + self.counts.nested + self.reporting
    }

    /// Whether the drain or stop is finished.
    ///
    /// Then there is no worker, and none will be started.
    pub(super) fn is_finished(&self) -> bool {
        self.status != PoolStatus::Running && self.counts.workers == 0 && self.queue.is_empty()
    }

    /// Whether the caller must do the work that remains after the last worker's exit.
    pub(super) fn begins_end(&mut self) -> bool {
        let begins = self.end == End::NotBegun && self.is_finished();
        if begins {
            self.end = End::Begun;
        }
        begins
    }

    fn end_if_finished(&mut self) {
        if self.is_finished() {
            self.status = PoolStatus::Stopped;
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            min: self.limits.min,
            max: self.limits.max,
            idle: self.counts.workers - self.counts.running,
            waiting: self.waiting(),
            pauses: self.pauses.len(),
            ..self.counts
        }
    }

    /// The threads to wake after a change. The first submitter is woken if there is room. The others are woken if
    /// their condition may have changed.
    #[inline]
    pub(super) fn waiters(&self) -> Vec<Parker> {
        let mut parkers = Vec::new();
        if !self.submitters.is_empty() && (self.has_place() || self.status != PoolStatus::Running) {
            parkers.extend(self.submitters.front().cloned());
        }
        if !self.watchers.is_empty() {
            let all = self.counts.running == 0 || self.status == PoolStatus::Stopped && self.dropping == 0;
            if all || self.watchers.iter().any(Parker::has_waker) && self.has_unattended() {
                parkers.extend(self.watchers.iter().filter(|parker| all || parker.has_waker()).cloned());
            }
        }
        parkers
    }

    /// Whether some waiting job has no worker that runs it at once. Either a pause holds the job back, or more jobs
    /// wait than workers are free or may be started. If jobs wait and no worker is awake, none could be started.
    pub(super) fn has_unattended(&self) -> bool {
        let none_awake = self.waiting() > 0 && self.awake() == 0;
        none_awake || !self.pauses.is_empty() || self.waiting() > self.free()
    }

    pub(super) fn unwatch(&mut self, parker: &Parker) {
        self.watchers.retain(|other| !other.is(parker));
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn parked(&self) -> &[Parker] {
        &self.parked
    }
}
