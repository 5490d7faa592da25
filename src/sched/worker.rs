//! A worker: finds work, gives it a turn, and sleeps when there is none.

use crossbeam_deque::Worker as Deque;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

use super::counters::{Count, Counters};
use super::road::{Executor, Road, WorkerView};
use super::search::find;
use super::turn::{After, Engine, body_lost, turn};
use crate::outcome::contain;
use crate::primitives::{Arc, Ordering, thread};
use crate::process::{Pid, StepActivity};
use crate::sched::body::{Ready, StepOutput};
use crate::sched::mailbox::Signals;

/// A woken process is stepped next, before everything else, at most this many times in a row.
const HANDED_OFF_IN_A_ROW: u32 = 16;

/// Every so many searches begin with the oldest of the global queue. A prime, so that it keeps step with nothing.
pub(super) const GLOBAL_FIRST: u32 = 61;

/// A process that sends without end and finds so many messages waiting for its receiver has outrun it.
const OUTRUN: u32 = 1024;

/// It then lets turns pass: one for each `OUTRUN` messages that wait, but not more than this.
const MOST_PASSES: u32 = 127;

/// Set beside the turns that a process lets pass. The process continues, and its last step has woken another one,
/// which the same worker steps next. The process is not stepped before the other one is.
const FOLLOWS: u8 = 1 << 7;

/// With more turns to pass than this, the receiver is not only slower: most likely the thread that steps it is waiting
/// for a processor, and gets this one for a moment.
const CALM_PASSES: u8 = 4;

/// Unless each step's start is to be exact, the clock is read once in so many steps.
const STEPS_A_LOOK_AT_THE_CLOCK: u32 = 32;

/// One of the threads that step processes. With `WATCHED` it keeps the pulse that a watchdog looks at; without it
/// there is no trace of that in its code.
pub(crate) struct Worker<E, const WATCHED: bool> {
    engine: Arc<E>,
    pub(super) own: Own<WATCHED>,
    out: StepOutput,
    pub(super) searches: u32,
    /// At which search to begin with the oldest of the global queue.
    pub(super) global_at: u32,
    pub(super) random: Xoshiro256PlusPlus,
}

/// Where a worker puts what becomes ready in its turns.
pub(super) struct Own<const WATCHED: bool> {
    pub(super) road: Arc<Road>,
    pub(super) view: Arc<WorkerView>,
    pub(super) index: usize,
    pub(super) deque: Deque<Ready>,
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
    pub(super) steps: u32,
    /// At which of its own steps it looked last at another worker.
    pub(super) looked_at: u32,
    /// Which one that was, and how many steps that had had.
    pub(super) victim: usize,
    pub(super) victim_steps: u64,
    /// That one is stuck, and something lies in its deque.
    pub(super) robs: bool,
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
            view: road.views[index].clone(),
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
            looked_at: 0,
            victim: index,
            victim_steps: 0,
            robs: false,
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
        while let Some(ready) = find(self) {
            self.take_up(ready);
        }
        // Vacancies that the worker keeps for itself go back to the table.
        for vacancy in self.out.stock.drain(..) {
            self.own.road.table.give_back(vacancy);
        }
    }

    #[inline]
    fn take_up(&mut self, mut ready: Ready) {
        self.own.tell_of_rest();
        if ready.head.passes > 0 && self.lets_turn_pass(&mut ready) {
            if ready.head.passes & !FOLLOWS > CALM_PASSES || self.own.is_alone() {
                thread::yield_now();
            }
            self.own.behind_all(ready);
            return;
        }
        self.own.in_hand = Some(ready.head.pid);
        let after = turn(&*self.engine, &mut self.own, &mut self.out, ready);
        self.own.in_hand = None;
        match after {
            After::Nothing => self.own.turn_is_over(),
            After::Ready(ready) => {
                let follows = ready.head.passes & FOLLOWS != 0;
                self.own.behind_all(ready);
                if follows {
                    // Until the next turn begins, this worker shows the process that is to follow it.
                    self.own.pulse_stops();
                } else {
                    self.own.turn_is_over();
                }
            }
        }
    }

    /// Whether a process lets this turn pass: the one that its last step has woken has not begun, or it has outrun a
    /// receiver. A process that is told something that must not wait lets no turn pass.
    #[inline(never)]
    fn lets_turn_pass(&self, ready: &mut Ready) -> bool {
        let (pid, passes) = (ready.head.pid, &mut ready.head.passes);
        let road = &self.own.road;
        let is_urgent = || road.table.cell(pid).is_none_or(super::cell::Cell::is_urgent);
        if *passes & FOLLOWS != 0 {
            // Ordering: Acquire, so that the worker that sees another process there sees it in its step.
            if road.views.iter().any(|view| view.current.load(Ordering::Acquire) == pid.to_word()) && !is_urgent() {
                return true;
            }
            *passes &= !FOLLOWS;
        }
        if *passes == 0 {
            return false;
        }
        if is_urgent() {
            *passes = 0;
            return false;
        }
        *passes -= 1;
        true
    }
}

impl<const WATCHED: bool> Own<WATCHED> {
    #[inline]
    pub(super) fn one(&self, which: impl FnOnce(&Counters) -> &Count) {
        which(&self.view.counters).add_alone(1);
    }

    pub(super) fn take_next(&mut self) -> Option<Ready> {
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

    pub(super) fn nothing_waits(&self) -> bool {
        self.deque.is_empty() && self.road.queues.is_global_empty()
    }
}

impl<const WATCHED: bool> Executor for Own<WATCHED> {
    const STEPS_IN_A_ROW: u32 = 16;

    #[inline]
    fn posted(&mut self, queued: u32) {
        self.backlog = self.backlog.max(queued);
    }

    #[inline]
    fn turns_to_pass(&mut self) -> u8 {
        let passes = (std::mem::take(&mut self.backlog) / OUTRUN).min(MOST_PASSES) as u8;
        // With one worker, no other one could step it first.
        if self.next.is_some() && self.road.views.len() > 1 { passes | FOLLOWS } else { passes }
    }

    #[inline]
    fn counters(&self) -> &Counters {
        &self.view.counters
    }

    #[inline]
    fn count(&self, which: impl FnOnce(&Counters) -> &Count, by: u64) {
        which(&self.view.counters).add_alone(by);
    }

    #[inline]
    fn woken(&mut self, ready: Ready) {
        if self.next.is_none() {
            // The bound on hand-offs is for the sake of others that are ready; if there are none it is nobody's gain.
            if self.handed_off_in_a_row < HANDED_OFF_IN_A_ROW || !self.is_to_rob() && self.nothing_waits() {
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

    #[inline]
    fn next(&self) -> Option<Pid> {
        self.next.as_ref().map(|next| next.head.pid)
    }

    fn is_alone(&mut self) -> bool {
        // A spare that is to leave has to look up from a process that always continues.
        let is_to_leave = WATCHED && self.is_surplus();
        self.next.is_none()
            && self.nothing_waits()
            && !self.is_to_rob()
            && !self.road.stopped.load(Ordering::Relaxed)
            && !is_to_leave
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
        let view = &self.view;
        if self.road.exact_times || self.steps.is_multiple_of(STEPS_A_LOOK_AT_THE_CLOCK) {
            let now = self.road.now_nanos();
            self.now = now / 1_000;
            view.since.store(now, Ordering::Relaxed);
        }
        self.steps = self.steps.wrapping_add(1);
        self.backlog = 0;
        // Ordering: Release, so that a look that sees this process sees a time that is not older than its step.
        view.current.store(pid.to_word(), Ordering::Release);
        self.pulse_goes_on();
    }

    #[inline]
    fn shows(&mut self, activity: StepActivity) {
        if WATCHED {
            self.view.pulse.sight.note(activity);
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

    fn about_now(&self) -> u64 {
        self.now
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
