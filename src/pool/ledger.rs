//! The pool's book: who works, who rests, what waits. Plain decisions under the pool's one lock; no thread, no clock and
//! no waiting in here, so that each rule can be tested as a function (`pool/rules.rs`).
//!
//! **Workers** are at a job (*running*), on the stack of those who rest (*resting*), *away* (they run code of the user's
//! that is no job, or leave), or none of these: *awake*. Who is awake will look at the line before it rests; it *comes* if
//! it was called from its rest and has not looked yet. So:
//!
//! > While there is a job that may begin, somebody is awake; or nobody rests, and there are as many workers as there may be.
//!
//! And who is awake takes a job, and then sees to it that somebody is awake for the next. Every arrow keeps that. `submit`
//! calls a resting worker, or has one started, only when more jobs may begin than workers are awake and nobody comes. A worker that takes a job sees to it that somebody comes for the next, if that needs one: so
//! workers wake one after the other, as long as there is something to do, and not all at once for jobs that the first of
//! them would have done meanwhile (which costs ten times as much, with 64 workers for empty jobs on two processors). It
//! rests, or leaves, only when no job may begin, or others are there for it (`hands`). So no job is left behind.
//!
//! **Resting workers** lie on a stack: the last to rest is the first to be woken, so that a surplus sinks to the bottom and
//! ages. Only the one at the bottom watches the time. **Ageing:** a whole idle period without a job marks the pool as
//! quiet; each further quiet period ends one worker, until the minimum is left.
//!
//! **Pauses** leave some of what waits closed (`pool/pauses.rs`). **Bounds** count what waits and nobody is free for; those
//! who stand for room have it in the order in which they came.

use std::collections::VecDeque;
use std::time::Instant;

use super::line::Line;
use super::pauses::Pauses;
use super::seat::Seat;
use super::words::{Before, Claim, Hands, Limits, Next, Placed, PoolStatus, Quiet, Refusal};
use crate::clock::Deadline;

pub(super) struct Ledger<J> {
    pub(super) limits: Limits,
    line: Line<J>,
    // The number of the next job.
    next: u64,
    pub(super) pauses: Pauses,
    resting: Vec<Seat>,
    pub(super) workers: usize,
    pub(super) running: usize,
    // Jobs that are run by a job that waits for them.
    pub(super) nested: usize,
    pub(super) away: usize,
    // Workers who were called from their rest and have not come yet.
    coming: usize,
    // Jobs that have ended, and whose handles are just being told.
    telling: usize,
    pub(super) status: PoolStatus,
    quiet: Quiet,
    // Whether a worker looks about for a moment before it rests. One is enough.
    lingering: bool,
    // Submitters, the oldest first.
    pub(super) standing: VecDeque<Seat>,
    // Those who wait for a pause to hold, for nothing to be left, or for the end.
    pub(super) watching: Vec<Seat>,
    pub(super) submitted: u64,
    pub(super) finished: u64,
    pub(super) panicked: u64,
    pub(super) abandoned: u64,
    pub(super) withdrawn: u64,
}

impl<J> Ledger<J> {
    pub(super) fn new(limits: Limits, now: Instant) -> Ledger<J> {
        Ledger {
            limits,
            line: Line::new(),
            next: 0,
            pauses: Pauses::default(),
            resting: Vec::new(),
            workers: 0,
            running: 0,
            nested: 0,
            away: 0,
            coming: 0,
            telling: 0,
            status: PoolStatus::Running,
            quiet: Quiet { since: now, broken: false, marked: false, watched: false },
            lingering: false,
            standing: VecDeque::new(),
            watching: Vec::new(),
            submitted: 0,
            finished: 0,
            panicked: 0,
            abandoned: 0,
            withdrawn: 0,
        }
    }

    /// Takes a job and gives it a number, or hands it back.
    #[inline]
    pub(super) fn submit<F>(
        &mut self,
        job: F,
        into_job: impl FnOnce(F) -> J,
        claim: Claim<'_>,
    ) -> Result<(u64, Placed<F>), (F, Refusal)> {
        if self.status != PoolStatus::Running {
            return Err((job, Refusal::Ended(self.status)));
        }
        if self.limits.bound.is_some() && !self.has_room(claim) {
            return Err((job, Refusal::Full));
        }
        Ok(self.accept(job, into_job))
    }

    #[inline]
    fn accept<F>(&mut self, job: F, into_job: impl FnOnce(F) -> J) -> (u64, Placed<F>) {
        self.submitted += 1;
        let number = self.next;
        self.next += 1;
        self.quiet.broken = true;
        if !self.pauses.is_empty() || self.line.len() < self.awake() {
            self.line.push(number, into_job(job));
            return (number, Placed::Queued { linger: self.lingering });
        }
        if self.coming > 0 && !self.resting.is_empty() {
            // It wakes the next when it has come, if there is still something to do.
            self.line.push(number, into_job(job));
            return (number, Placed::Queued { linger: false });
        }
        if let Some(seat) = self.call_one() {
            self.line.push(number, into_job(job));
            return (number, Placed::Wake(seat));
        }
        if self.workers < self.limits.max {
            self.workers += 1;
            if self.line.is_empty() {
                self.running += 1;
                return (number, Placed::StartWith(job));
            }
            self.line.push(number, into_job(job));
            return (number, Placed::Start);
        }
        self.line.push(number, into_job(job));
        (number, Placed::Queued { linger: false })
    }

    /// Whether there is room, and it is this one's turn to have it.
    fn has_room(&self, claim: Claim<'_>) -> bool {
        match claim {
            Claim::Comes => self.standing.is_empty() && self.has_place(),
            Claim::Stands(seat) => self.standing.front().is_some_and(|first| first.is(seat)) && self.has_place(),
            Claim::Exempt => true,
        }
    }

    pub(super) fn has_place(&self) -> bool {
        let Some(bound) = self.limits.bound else { return true };
        if !self.pauses.is_empty() {
            return self.line.len() < bound;
        }
        let free = self.workers - self.running - self.away;
        // Those who may still come have to be got: it is not certain that they can.
        let to_come = self.limits.max.saturating_sub(self.workers);
        self.line.len() < bound.saturating_add(free).saturating_add(to_come)
    }

    /// Workers who will look at the line before they rest.
    #[inline]
    pub(super) fn awake(&self) -> usize {
        self.workers - self.running - self.away - self.resting.len()
    }

    /// Waiting jobs that may begin.
    #[inline]
    fn open(&self) -> usize {
        self.pauses.open(self.line.len())
    }

    /// Takes the last to rest off the stack, to be called.
    #[inline]
    fn call_one(&mut self) -> Option<Seat> {
        let seat = self.resting.pop()?;
        seat.set_rests(false);
        seat.set_comes(true);
        self.coming += 1;
        Some(seat)
    }

    /// Whom to call, and how many to start, after more became open than workers are awake.
    pub(super) fn hands(&mut self) -> Hands {
        let wake = self.sleepers();
        let missing = self.open().saturating_sub(self.awake());
        let start = missing.min(self.limits.max.saturating_sub(self.workers));
        self.workers += start;
        let mut hands = Hands { wake, start };
        if hands.wake.is_empty() {
            // Ageing may have become possible, and the bottom may not know.
            hands.wake.extend(self.new_watcher());
        }
        hands
    }

    /// Who is to come for the next job, if nobody is there for it and nobody comes who would see to that.
    #[inline]
    fn one_more(&mut self) -> Hands {
        let mut hands = Hands::default();
        if self.coming == 0 && self.open() > self.awake() {
            hands.wake.extend(self.call_one());
            if hands.wake.is_empty() && self.workers < self.limits.max {
                self.workers += 1;
                hands.start = 1;
            }
        }
        hands
    }

    /// Those who rest and are to be called, if more may begin than workers are awake.
    pub(super) fn sleepers(&mut self) -> Vec<Seat> {
        let missing = self.open().saturating_sub(self.awake());
        (0..missing).map_while(|_| self.call_one()).collect()
    }

    /// A worker that was counted could not be started, perhaps with a job. Whether there is no other (which may be one that
    /// is being started).
    pub(super) fn start_failed(&mut self, with_job: bool) -> bool {
        self.workers -= 1;
        if with_job {
            self.running -= 1;
            self.submitted -= 1;
        }
        self.workers == 0
    }

    /// Has a job wait that no worker could be started with, in its old place. It comes back if the pool has been stopped
    /// meanwhile.
    pub(super) fn wait_in_line<F>(&mut self, number: u64, job: F, into_job: impl FnOnce(F) -> J) -> Result<(), F> {
        if self.status == PoolStatus::Stopped {
            return Err(job);
        }
        self.submitted += 1;
        self.line.insert(number, into_job(job));
        self.pauses.job_came_back(number);
        Ok(())
    }

    /// The last worker there was to be could not be started: nobody comes to what waits.
    pub(super) fn give_up(&mut self) -> VecDeque<J> {
        let left = self.line.take_all();
        self.pauses.line_was_emptied();
        self.abandoned += left.len() as u64;
        self.end_if_over();
        left
    }

    /// Asked by a worker that has nothing in hand.
    pub(super) fn next(&mut self, seat: &Seat, before: Before, now: impl FnOnce() -> Instant) -> Next<J> {
        self.lingering &= before != Before::Lingering;
        if seat.comes() {
            seat.set_comes(false);
            self.coming -= 1;
        }
        if self.workers - self.away <= self.limits.max
            && self.open() > 0
            && let Some((number, job)) = self.line.pop()
        {
            self.pauses.job_left(number);
            let was_bottom = self.get_up(seat);
            self.running += 1;
            let mut hands = self.one_more();
            // The job may take long, and the worker above the bottom does not watch the time yet.
            hands.wake.extend(was_bottom.then(|| self.new_watcher()).flatten());
            if !self.standing.is_empty() {
                // In a pause room is counted by the line alone, and there is some now.
                hands.wake.extend(self.news());
            }
            return Next::Run(job, hands);
        }
        if self.status != PoolStatus::Running || self.workers - self.away > self.limits.max {
            return self.leave(seat);
        }
        if before == Before::Job && !self.lingering && self.pauses.is_empty() {
            self.lingering = true;
            return Next::Linger;
        }
        self.rest(seat, now())
    }

    fn rest(&mut self, seat: &Seat, now: Instant) -> Next<J> {
        if std::mem::take(&mut self.quiet.broken) {
            // It may be longer ago. The bottom is ended later for that, and never earlier.
            self.quiet = Quiet { since: now, marked: false, ..self.quiet };
        }
        if !seat.rests() {
            seat.set_rests(true);
            self.resting.push(seat.clone());
        }
        if !self.resting[0].is(seat) {
            return Next::Rest(Deadline::NEVER, self.new_watcher());
        }
        self.quiet.watched = false;
        let Some(period) = self.limits.idle_period.filter(|_| self.may_shrink()) else {
            return Next::Rest(Deadline::NEVER, None);
        };
        match self.quiet.since.checked_add(period) {
            Some(end) if end <= now => {
                let was_marked = std::mem::replace(&mut self.quiet.marked, true);
                self.quiet.since = now;
                if was_marked {
                    return self.leave(seat);
                }
                self.quiet.watched = true;
                Next::Rest(Deadline(now.checked_add(period)), None)
            }
            end => {
                self.quiet.watched = true;
                Next::Rest(Deadline(end), None)
            }
        }
    }

    fn may_shrink(&self) -> bool {
        self.workers - self.away > self.limits.min && self.pauses.is_empty()
    }

    /// The one at the bottom, if it should watch the time and does not know.
    fn new_watcher(&mut self) -> Option<Seat> {
        if self.quiet.watched || self.limits.idle_period.is_none() || !self.may_shrink() {
            return None;
        }
        let bottom = self.resting.first()?;
        self.quiet.watched = true;
        Some(bottom.clone())
    }

    /// Takes a worker off the stack, if it rests. Whether it was the one at the bottom.
    fn get_up(&mut self, seat: &Seat) -> bool {
        let place = self.resting.iter().position(|other| seat.rests() && other.is(seat));
        let Some(place) = place else { return false };
        seat.set_rests(false);
        self.resting.remove(place);
        self.quiet.watched &= place != 0;
        place == 0
    }

    fn leave(&mut self, seat: &Seat) -> Next<J> {
        self.get_up(seat);
        self.away += 1;
        Next::Leave(self.hands())
    }

    /// A worker has left. Whom to call and to start in its place: somebody may have come for whom it was too late.
    pub(super) fn left(&mut self) -> Hands {
        self.away -= 1;
        self.workers -= 1;
        self.end_if_over();
        self.hands()
    }

    /// A worker runs code of the user's that is no job, and may take long: others are there for what waits.
    pub(super) fn goes_away(&mut self) -> Hands {
        self.away += 1;
        self.hands()
    }

    /// A new worker is at its start, and cannot be counted on; but it will come to what it was started for.
    pub(super) fn is_held_up(&mut self) {
        self.away += 1;
    }

    pub(super) fn is_back(&mut self) {
        self.away -= 1;
    }

    #[inline]
    pub(super) fn job_ended(&mut self, panicked: bool, tells: bool) {
        self.running -= 1;
        self.telling += usize::from(tells);
        self.finished += 1;
        self.panicked += u64::from(panicked);
    }

    /// Its handle knows.
    pub(super) fn told(&mut self) {
        self.telling -= 1;
    }

    /// A new job is run by another one that waits for it.
    pub(super) fn nest(&mut self) -> Result<(), PoolStatus> {
        if self.status != PoolStatus::Running {
            return Err(self.status);
        }
        self.submitted += 1;
        self.nested += 1;
        Ok(())
    }

    /// The same with one that waits in line.
    pub(super) fn adopt(&mut self, number: u64) -> Option<J> {
        let job = self.line.take(number)?;
        self.pauses.job_left(number);
        self.nested += 1;
        Some(job)
    }

    pub(super) fn nested_ended(&mut self, panicked: bool) {
        self.nested -= 1;
        self.finished += 1;
        self.panicked += u64::from(panicked);
    }

    /// Takes a job out that has not begun. Who was woken for it finds something else to do, or nothing.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<J> {
        let job = self.line.take(number)?;
        self.pauses.job_left(number);
        self.withdrawn += 1;
        Some(job)
    }

    /// Asks for a pause. What it is called.
    pub(super) fn pause(&mut self) -> Result<u64, PoolStatus> {
        if self.status != PoolStatus::Running {
            return Err(self.status);
        }
        self.quiet.watched = false;
        Ok(self.pauses.ask(self.next, self.line.len()))
    }

    /// Ends a pause. Whom to call and start for what may begin now.
    pub(super) fn resume(&mut self, id: u64) -> Hands {
        if !self.pauses.end(id) {
            return Hands::default();
        }
        // A paused worker does not age.
        self.quiet.broken = true;
        self.hands()
    }

    /// Whether the pause in force (this one, if one is given) holds.
    pub(super) fn is_held(&self, which: Option<u64>) -> bool {
        self.pauses.holds(self.running + self.telling, which)
    }

    /// Has other numbers of workers from now on. Whom to call and to start.
    pub(super) fn resize(&mut self, min: usize, max: usize) -> Hands {
        self.limits.min = min;
        self.limits.max = max;
        let surplus = (self.workers - self.away).saturating_sub(max);
        let mut hands = self.hands();
        for _ in 0..surplus {
            hands.wake.extend(self.call_one());
        }
        hands
    }

    /// Takes no more jobs; what waits is still done, also what a pause has kept. Whom to call and to start.
    pub(super) fn drain(&mut self) -> Hands {
        if self.status != PoolStatus::Running {
            return Hands::default();
        }
        self.status = PoolStatus::Draining;
        self.pauses.end_all();
        let mut hands = self.hands();
        hands.wake.extend(self.call_everybody());
        self.end_if_over();
        hands
    }

    /// Takes no more jobs and gives back those that wait.
    pub(super) fn stop(&mut self) -> VecDeque<J> {
        self.status = PoolStatus::Stopped;
        self.pauses.end_all();
        self.give_up()
    }

    /// Everybody who rests, stands or watches: they will find out for themselves.
    pub(super) fn call_everybody(&mut self) -> Vec<Seat> {
        let mut seats: Vec<Seat> = self.resting.drain(..).collect();
        seats.iter().for_each(|seat| seat.set_rests(false));
        self.quiet.watched = false;
        seats.extend(self.standing.iter().chain(&self.watching).cloned());
        seats
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether no job waits or runs, and all who have handles know.
    pub(super) fn is_idle(&self) -> bool {
        self.line.len() + self.running + self.nested + self.telling == 0
    }

    /// Nobody works, nobody will: the end of a drain or stop.
    pub(super) fn is_finished(&self) -> bool {
        self.status != PoolStatus::Running && self.workers == 0 && self.line.is_empty()
    }

    fn end_if_over(&mut self) {
        if self.is_finished() {
            self.status = PoolStatus::Stopped;
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn resting(&self) -> &[Seat] {
        &self.resting
    }
}
