//! A worker: finds work, gives it a turn, and sleeps if there is none.

mod observed;

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

use self::observed::Observed;
use super::counters::{Count, Counters};
use super::queue::WorkerQueues;
use super::road::{Executor, Road, WorkerView};
use super::search::find;
use super::turn::{After, Engine, body_lost, turn};
use crate::outcome::contain;
use crate::primitives::{Arc, Ordering, fence, thread};
use crate::process::step_activity::Sight;
use crate::process::{Pid, StepActivity};
use crate::sched::body::{Ready, StepOutput, Stepped};

/// The most times in a row that a woken process is stepped before all other work.
const HANDED_OFF_IN_A_ROW: u32 = 16;

/// Of this many searches one begins with the oldest of the global queue. It is a prime, to avoid resonance with other
/// intervals.
pub(super) const GLOBAL_FIRST: u32 = 61;

/// A process has outrun its receiver if it sends without end and this many messages wait there.
const OUTRUN: u32 = 1024;

/// The most turns that such a process passes. It passes one for each `OUTRUN` messages that wait.
const MOST_PASSES: u32 = 127;

/// Set beside the turns that a process lets pass. The process continues, and its last step has woken another one,
/// which the same worker steps next. The process is not stepped before the other one is.
const FOLLOWS: u8 = 1 << 7;

/// With more turns to pass than this, the worker yields its processor for a moment. Then the receiver is not only
/// slower: most likely the thread that steps it waits for a processor.
const CALM_PASSES: u8 = 4;

/// A worker yields its processor at one of this many such turns, because thousands of processes may let turns pass.
const PASSES_A_YIELD: u32 = 16;

/// A step that wakes others calls a sleeping worker for the second of them, and then again at intervals of this many.
/// The worker takes the first one itself.
const WOKEN_A_CALL: u32 = 16;

/// A thread that steps processes.
pub(crate) struct Worker<E> {
    engine: Arc<E>,
    pub(super) own: Own,
    out: StepOutput,
    pub(super) searches: u32,
    /// The number of the search that begins with the oldest of the global queue.
    pub(super) global_at: u32,
    pub(super) random: Xoshiro256PlusPlus,
}

/// The places where a worker puts processes that become ready in its turns.
pub(super) struct Own {
    pub(super) road: Arc<Road>,
    pub(super) view: Arc<WorkerView>,
    pub(super) index: usize,
    pub(super) queues: WorkerQueues,
    pub(super) next: Option<Ready>,
    handed_off_in_a_row: u32,
    /// The process that has a turn. It is still there after a panic that took its body.
    in_hand: Option<Pid>,
    /// Whether work was put where other workers find it, and they have not been notified.
    pub(super) offered: bool,
    /// The most messages that wait for one receiver of this step.
    backlog: u32,
    /// The number of turns that processes with many turns to pass have let pass.
    passed: u32,
    /// The number of processes that this step has woken and that others may step.
    woken: u32,
    /// Woken processes that no worker steps before a slice of the step's yields is performed.
    held: Option<Vec<Ready>>,
    /// Microseconds since the start of the runtime, when the clock was read last.
    now: u64,
    /// The number of steps that have begun, which is the number of the current step.
    pub(super) steps: u32,
    /// The next step that begins with a look: see `observed`.
    look_at: u32,
    /// The step of its own at which it last looked at another worker.
    pub(super) looked_at: u32,
    /// The number of that worker, and its progress then.
    pub(super) victim: usize,
    pub(super) seen: Progress,
    /// Where the next search begins, if it begins at that worker.
    pub(super) robs: Robs,
    /// The pulse, as others see it.
    pub(super) beat: u64,
    /// Whether a watchdog looks at this worker.
    pub(super) is_watched: bool,
    /// Whether the runtime has figures by type.
    has_figures: bool,
    /// Whether there is more to do than usual when a step has returned: for figures, for a watchdog, or for traces.
    is_observed: bool,
    observed: Observed,
    /// Whether this is a spare, which exits when it is no longer needed.
    pub(super) is_spare: bool,
}

/// The queues of another worker with which a search begins, before the worker's own ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Robs {
    Nothing,
    Shard,
    /// The deque, if there is nothing in the shard.
    ShardOrDeque,
}

/// The progress of a worker, as another one sees it.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) steps: u64,
    pub(super) from_global: u64,
}

impl<E: Engine> Worker<E> {
    pub(crate) fn new(
        engine: Arc<E>,
        road: Arc<Road>,
        index: usize,
        queues: WorkerQueues,
        out: StepOutput,
        seed: u64,
    ) -> Self {
        let (is_watched, has_figures) = (road.stuck_steps.is_some(), road.directory.is_some());
        let own = Own {
            view: road.views[index].clone(),
            is_watched,
            has_figures,
            is_observed: is_watched || has_figures || road.propagator.is_some(),
            observed: Observed::new(&road, index),
            is_spare: index >= road.workers,
            road,
            index,
            queues,
            next: None,
            handed_off_in_a_row: 0,
            in_hand: None,
            offered: false,
            backlog: 0,
            passed: 0,
            woken: 0,
            held: None,
            now: 0,
            steps: 0,
            look_at: 1,
            looked_at: 0,
            victim: index,
            seen: Progress::default(),
            robs: Robs::Nothing,
            beat: 0,
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(index as u64));
        Worker { engine, own, out, searches: 0, global_at: GLOBAL_FIRST, random }
    }

    /// Works until the runtime is stopped. A spare worker exits earlier if it is no longer needed.
    pub(crate) fn run(&mut self) {
        self.own.wakes();
        while let Err(panic) = contain(|| self.work()) {
            // All user code is contained, so this panic is a fault of the library. It costs one process, and not the
            // worker.
            if let Some(pid) = self.own.in_hand.take() {
                body_lost(&*self.engine, &mut self.own, &mut self.out, pid, panic);
            }
            self.own.turn_is_over();
        }
        self.own.falls_asleep();
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
            let is_alone = self.own.is_alone();
            if is_alone || ready.head.passes & !FOLLOWS > CALM_PASSES && self.own.is_to_yield() {
                thread::yield_now();
            }
            self.own.behind_all(ready);
            if is_alone {
                self.own.robs_meanwhile();
            }
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
                    // Until the next turn begins, this worker shows the process that follows.
                    self.own.step_is_over();
                } else {
                    self.own.turn_is_over();
                }
            }
        }
    }

    /// Whether a process passes this turn: the process that its last step has woken has not begun, or it has outrun a
    /// receiver. A process with an urgent event passes no turn.
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

impl Own {
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

    /// Whether a process is handed off beyond the limit. The limit protects other ready processes. If there are none,
    /// it is useless.
    #[inline(never)]
    fn hands_off_again(&mut self) -> bool {
        let may = !self.is_to_rob() && self.nothing_waits() && self.held.is_none();
        if may {
            self.handed_off_in_a_row = 0;
        }
        may
    }

    /// Takes a woken process that is not handed off. Sleeping workers are told during the turn, because a step may wake
    /// very many.
    #[inline(never)]
    fn leave_to_all(&mut self, ready: Ready) {
        if let Some(held) = &mut self.held {
            held.push(ready);
            return;
        }
        self.behind_all(ready);
        // Without a process in the slot, this worker takes the first one from its shard. If another one takes it, and
        // the next is handed off, others are told when the turn is over.
        if self.woken % WOKEN_A_CALL == u32::from(self.next.is_none()) {
            self.tell();
        }
        self.woken = self.woken.wrapping_add(1);
    }

    /// Puts processes that were held back where other workers find them.
    #[cold]
    fn let_held_go(&mut self) {
        for ready in self.held.take().into_iter().flatten() {
            self.behind_all(ready);
        }
    }

    fn behind_all(&mut self, ready: Ready) {
        self.queues.push(ready);
        self.offered = true;
    }

    /// Notifies sleeping workers of work, if there is some, now that this worker has taken its own next piece.
    /// Earlier would be too early: if it is the only piece, no worker need be woken.
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

    /// Shows other threads the process whose step begins.
    #[inline]
    fn shows_step_of(&mut self, pid: Pid) {
        self.backlog = 0;
        self.woken = 0;
        // Ordering: Release, so that a look that sees this process sees a time that is not older than its step.
        self.view.current.store(pid.to_word(), Ordering::Release);
    }

    /// Records that the worker sleeps from now on, or has no thread.
    pub(super) fn falls_asleep(&self) {
        if let Some(figures) = &self.view.counters.figures {
            figures.falls_asleep(self.road.now_nanos());
        }
    }

    /// Records that the worker no longer sleeps.
    pub(super) fn wakes(&self) {
        if let Some(figures) = &self.view.counters.figures {
            figures.wakes(self.road.now_nanos());
        }
    }

    /// Whether the worker yields its processor at this turn, which is let pass.
    fn is_to_yield(&mut self) -> bool {
        self.passed = self.passed.wrapping_add(1);
        self.passed.is_multiple_of(PASSES_A_YIELD)
    }

    /// Whether nothing else is ready for this worker.
    fn is_alone(&mut self) -> bool {
        self.next.is_none()
            && self.nothing_waits()
            && !self.is_to_rob()
            && !self.road.stopped.load(Ordering::Relaxed)
            // A spare that is to exit must also do so if a process always continues.
            && !self.is_surplus()
    }

    pub(super) fn nothing_waits(&self) -> bool {
        self.queues.is_empty() && self.road.queues.is_outside_empty()
    }
}

/// The work for the watchdog, and the end of a spare. `stuck_steps.rs` has the protocol.
impl Own {
    /// Stops the pulse. Until it goes on, what others see of this worker belongs to no step.
    #[inline(never)]
    fn pulse_stops(&mut self) {
        let view = &self.view;
        self.beat = (self.beat + 1) & !1;
        view.beat.store(self.beat, Ordering::Relaxed);
        // Ordering: pairs with the fence of a look. If the look reads anything that is written from here on, it reads
        // this beat as well, and knows that the step before is over.
        fence(Ordering::Release);
        if view.reported.load(Ordering::Relaxed) {
            self.was_reported();
        }
    }

    /// Handles the end of a turn, or of its last step if another worker may wait for the next one.
    #[inline]
    fn step_is_over(&mut self) {
        if self.is_watched {
            self.pulse_stops();
        }
    }

    #[inline]
    fn turn_is_over(&mut self) {
        self.step_is_over();
        self.view.current.store(0, Ordering::Relaxed);
    }

    /// Handles the end of a step if it, or one before it, was reported as stuck.
    #[cold]
    fn was_reported(&mut self) {
        // If there is no thread for the reports, they are delivered on this one, which may take long.
        self.let_go();
        self.view.current.store(0, Ordering::Relaxed);
        let Some(stuck_steps) = &self.road.stuck_steps else { return };
        stuck_steps.returned(self.index, &self.view, self.road.now_nanos());
        self.road.dismiss_surplus();
        if let Some(step_watcher) = stuck_steps.step_watcher() {
            step_watcher.tell();
        }
    }

    /// Called when this worker has begun, or has looked for work and found it. Makes sure that there will be a look.
    #[inline]
    pub(super) fn works(&self) {
        if let Some(stuck_steps) = &self.road.stuck_steps {
            stuck_steps.works();
        }
    }

    /// Whether there are surplus spares, and this worker is a spare.
    #[inline]
    pub(super) fn is_surplus(&self) -> bool {
        self.is_spare && self.road.stuck_steps.as_ref().is_some_and(|stuck_steps| stuck_steps.has_surplus())
    }

    /// Lets a spare exit if it is surplus. It neither looks nor sleeps, and first gives back its work.
    #[cold]
    pub(super) fn leaves(&mut self) -> bool {
        // Other workers need not wait for the process that this worker would have stepped next.
        self.view.current.store(0, Ordering::Relaxed);
        let mut gives = false;
        while let Some(ready) = self.queues.take_any().or_else(|| self.next.take()) {
            self.road.queues.push(ready);
            gives = true;
        }
        self.offered |= gives;
        self.tell();
        // Ordering: pairs with the fence of `end_workers`, as that of `Road::inject` does. Either the thread that
        // ends the queues finds this work, or this spare sees that no other thread may come, and takes it itself.
        fence(Ordering::SeqCst);
        if self.road.stopped.load(Ordering::SeqCst) {
            return false;
        }
        self.road.stuck_steps.as_ref().is_some_and(|stuck_steps| stuck_steps.leaves())
    }
}

impl Executor for Own {
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
    fn number(&self) -> usize {
        self.index
    }

    #[inline]
    fn count(&self, which: impl FnOnce(&Counters) -> &Count, by: u64) {
        which(&self.view.counters).add_alone(by);
    }

    #[inline(always)]
    fn woken(&mut self, ready: Ready) {
        if self.next.is_none() && (self.handed_off_in_a_row < HANDED_OFF_IN_A_ROW || self.hands_off_again()) {
            // The slot was empty. Forgetting the old value saves the check for what to drop.
            std::mem::forget(self.next.replace(ready));
        } else {
            self.leave_to_all(ready);
        }
    }

    #[inline]
    fn given(&mut self, body: &mut Ready) {
        if self.has_figures && body.machine.kind_and_marks().1 {
            self.takes_marks(body);
        }
    }

    fn not_stepped(&mut self, body: &mut Ready) {
        self.puts_marks_back(body);
    }

    fn spawned(&mut self, ready: Ready) {
        self.queues.deque.push(ready);
        self.offered = true;
    }

    #[cold]
    fn hold_back(&mut self) {
        self.release();
        self.held = Some(Vec::new());
    }

    #[cold]
    fn release(&mut self) {
        self.let_held_go();
        self.tell();
    }

    #[inline]
    fn next(&self) -> Option<Pid> {
        self.next.as_ref().map(|next| next.head.pid)
    }

    #[inline]
    fn goes_on(&mut self, may: bool) -> bool {
        let goes_on = may && self.next.is_none() || self.is_alone();
        if goes_on {
            self.tell_of_rest();
        }
        goes_on
    }

    fn let_go(&mut self) {
        self.shows(StepActivity::AfterStep);
        if self.held.is_some() {
            self.let_held_go();
        }
        if let Some(ready) = self.next.take() {
            self.behind_all(ready);
        }
        self.tell();
    }

    #[inline]
    fn begins(&mut self, pid: Pid, body: &mut Ready) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps == self.look_at {
            self.begins_with_a_look(pid, body)
        } else {
            self.shows_step_of(pid)
        }
        if self.has_figures {
            let (kind, has_marks) = body.machine.kind_and_marks();
            self.observed.kind = Some(kind);
            // Others are given their last events when they are prepared.
            if has_marks && body.head.rare.is_none() {
                self.takes_marks(body);
            }
        }
    }

    #[inline(always)]
    fn counts_step(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) {
        if self.is_observed {
            self.returned_observed(body, out, stepped);
        }
        self.count(|counters| &counters.steps, 1);
        self.count(|counters| &counters.stepped, u64::from(stepped.messages()));
    }

    #[inline]
    fn sight(&self) -> Option<&Sight> {
        if self.is_watched { Some(&self.view.sight) } else { None }
    }

    #[inline]
    fn shows(&self, activity: StepActivity) {
        if self.is_watched {
            self.view.sight.note(activity);
        }
    }

    fn about_now(&self) -> u64 {
        self.now
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
