//! A worker: finds work, gives it a turn, and sleeps when there is none.
//!
//! It looks in this order: the hand-off slot (the first process that the last step woke, at most so many in a row), its
//! own deque (last in, first out), the global queue (first in, first out: one, and a batch into the own deque), half of
//! another worker's deque. So that nothing is left behind for ever, every so many searches begin with the oldest of the
//! global queue, and every so many with the oldest of the own deque.

use crossbeam_deque::Worker as Deque;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

use super::counters::{Count, Counters};
use super::road::{Hands, Road, Seat};
use super::turn::{After, Engine, body_lost, turn};
use crate::outcome::contain;
use crate::process::body::{Ready, StepOutput};
use crate::process::mailbox::Signals;
use crate::process::{Doing, Pid};
use crate::sync::{Arc, Ordering, thread};

/// A woken process is stepped next, before everything else, at most this many times in a row.
const HANDED_OFF_IN_A_ROW: u32 = 16;

/// Every so many searches begin with the oldest of the global queue. A prime, so that it keeps step with nothing.
const GLOBAL_FIRST: u32 = 61;

/// In every so many searches, the one in the middle begins with the oldest of the own deque.
const BOTTOM_FIRST: u32 = 127;

/// A process that sends without end and finds so many messages waiting for its receiver has outrun it.
const OUTRUN: u32 = 1024;

/// It then lets turns pass: one for each `OUTRUN` messages that wait, but not more than this.
const MOST_PASSES: u32 = 255;

/// With more turns to pass than this, the receiver is not only slower: most likely the thread that steps it is waiting
/// for a processor, and gets this one for a moment.
const CALM_PASSES: u8 = 4;

/// Looks without a pause, and looks at all, before a worker sleeps.
const TIGHT: u32 = 4;
const LOOKS: u32 = 16;

/// Unless each step's start is to be exact, the clock is read once in so many steps.
const STEPS_A_LOOK_AT_THE_CLOCK: u32 = 32;

/// One of the threads that step processes. With `WATCHED` it keeps the pulse that a watchdog looks at; without it there is no
/// trace of that in its code.
pub(crate) struct Worker<E, const WATCHED: bool> {
    engine: Arc<E>,
    own: Own<WATCHED>,
    out: StepOutput,
    searches: u32,
    /// At which search to begin with the oldest of the global queue.
    global_at: u32,
    random: Xoshiro256PlusPlus,
}

/// Where a worker puts what becomes ready in its turns.
pub(super) struct Own<const WATCHED: bool> {
    pub(super) road: Arc<Road>,
    pub(super) seat: Arc<Seat>,
    pub(super) index: usize,
    deque: Deque<Ready>,
    pub(super) next: Option<Ready>,
    handed_off_in_a_row: u32,
    /// The process that has a turn; still there after a panic that took its body.
    in_hand: Option<Pid>,
    /// Something was put where others can find it, and they have not been told.
    pub(super) offered: bool,
    /// The most messages that wait for one receiver of this step.
    backlog: u32,
    /// Microseconds since the start of the runtime, as of the last look at the clock.
    now: u64,
    steps: u32,
    /// The pulse, as far as it is known to others.
    pub(super) beat: u64,
    /// For steps of processes that have no signals.
    pub(super) signals: Option<Box<Signals>>,
}

impl<E: Engine, const WATCHED: bool> Worker<E, WATCHED> {
    pub(crate) fn new(
        engine: Arc<E>,
        road: Arc<Road>,
        index: usize,
        deque: Deque<Ready>,
        out: StepOutput,
        seed: u64,
    ) -> Self {
        let own = Own {
            seat: road.seats[index].clone(),
            road,
            index,
            deque,
            next: None,
            handed_off_in_a_row: 0,
            in_hand: None,
            offered: false,
            backlog: 0,
            now: 0,
            steps: 0,
            beat: 0,
            signals: None,
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(index as u64));
        Worker { engine, own, out, searches: 0, global_at: GLOBAL_FIRST, random }
    }

    /// Works until the runtime is stopped; a spare worker only as long as it is needed.
    pub(crate) fn run(&mut self) {
        while let Err(panic) = contain(|| self.work()) {
            // All user code is contained, so this was ours. One process is the price, not the worker.
            if let Some(pid) = self.own.in_hand.take() {
                body_lost(&*self.engine, &mut self.own, &mut self.out, pid, panic);
            }
            self.own.turn_is_over();
        }
    }

    fn work(&mut self) {
        self.own.works();
        while let Some(ready) = self.find() {
            self.own.tell_of_rest();
            self.turn(ready);
        }
        // What a worker keeps for itself goes back, so that the table can be told from a leak.
        for vacancy in self.out.stock.drain(..) {
            self.own.road.table.give_back(vacancy);
        }
    }

    fn turn(&mut self, mut ready: Ready) {
        if ready.head.passes > 0 && !self.is_urgent(&ready) {
            ready.head.passes -= 1;
            if ready.head.passes > CALM_PASSES || self.own.is_alone() {
                thread::yield_now();
            }
            self.own.behind_all(ready);
            return;
        }
        ready.head.passes = 0;
        self.own.in_hand = Some(ready.head.pid);
        let after = turn(&*self.engine, &mut self.own, &mut self.out, ready);
        self.own.in_hand = None;
        match after {
            After::Nothing => {}
            After::Ready(ready) => self.own.behind_all(ready),
        }
        self.own.turn_is_over();
    }

    /// Whether a process that is to let turns pass has got something that must not wait for that.
    fn is_urgent(&self, ready: &Ready) -> bool {
        self.own.road.table.cell(ready.head.pid).is_none_or(super::cell::Cell::is_urgent)
    }

    /// The next process to be stepped; none when the runtime is stopped, or this worker is a spare and not needed any more.
    fn find(&mut self) -> Option<Ready> {
        if WATCHED && self.own.is_surplus() && self.own.leaves() {
            return None;
        }
        if let Some(ready) = self.own.take_next() {
            return Some(ready);
        }
        if let Some(ready) = self.look() {
            return Some(ready);
        }
        let road = self.own.road.clone();
        road.sleep.start_looking();
        let mut looks = 0;
        loop {
            if road.stopped.load(Ordering::Acquire) {
                road.sleep.work_found(|| false);
                return None;
            }
            if WATCHED && self.own.is_surplus() {
                if road.sleep.work_found(|| road.queues.has_work()) {
                    self.own.one(|counters| &counters.woke_others);
                }
                if self.own.leaves() {
                    return None;
                }
                road.sleep.start_looking();
            }
            if let Some(ready) = self.look() {
                if road.sleep.work_found(|| road.queues.has_work()) {
                    self.own.one(|counters| &counters.woke_others);
                }
                self.own.works();
                return Some(ready);
            }
            looks += 1;
            if looks < TIGHT {
                std::hint::spin_loop();
            } else if looks < LOOKS {
                thread::yield_now();
            } else {
                self.own.one(|counters| &counters.parked);
                let told = || road.stopped.load(Ordering::Acquire) || WATCHED && self.own.is_surplus();
                road.sleep.fall_asleep(self.own.index, || told() || road.queues.has_work());
                looks = 0;
            }
        }
    }

    /// One look everywhere but into the hand-off slot.
    fn look(&mut self) -> Option<Ready> {
        self.searches = self.searches.wrapping_add(1);
        let own = &mut self.own;
        let queues = &own.road.queues;
        if self.searches == self.global_at {
            // What is in the own deque now comes first: a process of the global queue that continues and spawns more
            // than a few in each step would otherwise fill the deque faster than it is emptied.
            self.global_at = self.searches.wrapping_add(GLOBAL_FIRST).wrapping_add(own.deque.len() as u32);
            if let Some(ready) = queues.take_one() {
                own.one(|counters| &counters.from_global);
                return Some(ready);
            }
        }
        if self.searches % BOTTOM_FIRST == BOTTOM_FIRST / 2
            && let Some(ready) = queues.take_bottom(own.index)
        {
            own.one(|counters| &counters.from_own);
            return Some(ready);
        }
        if let Some(ready) = own.deque.pop() {
            own.one(|counters| &counters.from_own);
            return Some(ready);
        }
        if let Some(ready) = queues.take_batch(&own.deque) {
            // Between the global queue and the deque, what came along was nowhere to be seen; who fell asleep then is told.
            own.offered = true;
            own.one(|counters| &counters.from_global);
            return Some(ready);
        }
        let stolen = queues.steal(own.index, &own.deque, &mut self.random)?;
        own.offered = true;
        own.one(|counters| &counters.stolen);
        Some(stolen)
    }
}

impl<const WATCHED: bool> Own<WATCHED> {
    #[inline]
    fn one(&self, which: impl FnOnce(&Counters) -> &Count) {
        which(&self.seat.counters).add_alone(1);
    }

    fn take_next(&mut self) -> Option<Ready> {
        match self.next.take() {
            Some(ready) => {
                self.handed_off_in_a_row += 1;
                self.one(|counters| &counters.handed_off);
                Some(ready)
            }
            None => {
                self.handed_off_in_a_row = 0;
                None
            }
        }
    }

    fn behind_all(&mut self, ready: Ready) {
        self.road.queues.push(ready);
        self.offered = true;
    }

    /// Tells those who sleep that there is something for them, if there is, now that this worker has taken its own next
    /// piece. Told only here and not when it was offered, for the only piece there is needs nobody to be woken.
    #[inline]
    fn tell_of_rest(&mut self) {
        if self.offered && !self.nothing_waits() {
            self.tell();
        }
        self.offered = false;
    }

    #[inline]
    pub(super) fn tell(&mut self) {
        if std::mem::replace(&mut self.offered, false) && self.road.sleep.work_added() {
            self.one(|counters| &counters.woke_others);
        }
    }

    fn nothing_waits(&self) -> bool {
        self.deque.is_empty() && self.road.queues.is_global_empty()
    }
}

impl<const WATCHED: bool> Hands for Own<WATCHED> {
    const STEPS_IN_A_ROW: u32 = 16;

    #[inline]
    fn posted(&mut self, queued: u32) {
        self.backlog = self.backlog.max(queued);
    }

    #[inline]
    fn turns_to_pass(&mut self) -> u8 {
        (std::mem::take(&mut self.backlog) / OUTRUN).min(MOST_PASSES) as u8
    }

    #[inline]
    fn counters(&self) -> &Counters {
        &self.seat.counters
    }

    #[inline]
    fn count(&self, which: impl FnOnce(&Counters) -> &Count, by: u64) {
        which(&self.seat.counters).add_alone(by);
    }

    #[inline]
    fn woken(&mut self, ready: Ready) {
        if self.next.is_none() {
            // The bound on hand-offs is for the sake of others that are ready; if there are none it is nobody's gain.
            if self.handed_off_in_a_row < HANDED_OFF_IN_A_ROW || self.nothing_waits() {
                if self.handed_off_in_a_row >= HANDED_OFF_IN_A_ROW {
                    self.handed_off_in_a_row = 0;
                }
                // Nobody was there; forgetting that spares asking what would have to be dropped.
                std::mem::forget(self.next.replace(ready));
                return;
            }
        }
        self.behind_all(ready);
    }

    fn spawned(&mut self, ready: Ready) {
        self.deque.push(ready);
        self.offered = true;
    }

    fn has_next(&self) -> bool {
        self.next.is_some()
    }

    fn is_next(&self, pid: Pid) -> bool {
        self.next.as_ref().is_some_and(|next| next.head.pid == pid)
    }

    fn is_alone(&self) -> bool {
        // A spare that is to leave has to look up from a process that always continues.
        let is_to_leave = WATCHED && self.is_surplus();
        self.next.is_none() && self.nothing_waits() && !self.road.stopped.load(Ordering::Relaxed) && !is_to_leave
    }

    #[inline]
    fn goes_on(&mut self) {
        self.tell_of_rest();
    }

    fn let_go(&mut self) {
        if let Some(ready) = self.next.take() {
            self.behind_all(ready);
        }
        self.tell();
    }

    #[inline]
    fn begins(&mut self, pid: Pid) {
        self.pulse_stops();
        let seat = &self.seat;
        if self.road.exact_times || self.steps.is_multiple_of(STEPS_A_LOOK_AT_THE_CLOCK) {
            let now = self.road.now_nanos();
            self.now = now / 1_000;
            seat.since.store(now, Ordering::Relaxed);
        }
        self.steps = self.steps.wrapping_add(1);
        self.backlog = 0;
        // Ordering: Release, so that who sees this process sees a time that is not older than its step.
        seat.current.store(pid.to_word(), Ordering::Release);
        self.pulse_goes_on();
    }

    #[inline]
    fn enters(&mut self) {
        if WATCHED {
            self.seat.pulse.sight.note(Doing::Init);
        }
    }

    #[inline]
    fn before_step(&mut self, body: &mut Ready) {
        if WATCHED {
            self.show_step(body);
        }
    }

    #[inline]
    fn after_step(&mut self, body: &mut Ready) {
        if WATCHED {
            self.hide_step(body);
        }
    }

    #[inline]
    fn ends(&mut self) {
        if WATCHED {
            self.seat.pulse.sight.note(Doing::AfterStep);
        }
    }

    fn about_now(&self) -> u64 {
        self.now
    }
}
