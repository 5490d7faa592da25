//! The work of a worker for the watchdog: it keeps a pulse, shows what its steps do, and exits if it is a surplus
//! spare.
//!
//! `stuck_steps.rs` has the protocol. Without a watchdog these functions do nothing.

use super::road::Executor;
use super::worker::Own;
use crate::primitives::{Ordering, fence};
use crate::process::{Pid, StepActivity};

impl Own {
    /// As `shows_step_of`, with a new beat of the pulse.
    #[inline(never)]
    pub(super) fn begins_watched(&mut self, pid: Pid) {
        self.pulse_stops();
        self.view.sight.note(StepActivity::Step);
        self.shows_step_of(pid);
        self.beat += 1;
        // Ordering: Release, so that a look that sees this beat sees the process of the step.
        self.view.beat.store(self.beat, Ordering::Release);
    }

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
    pub(super) fn step_is_over(&mut self) {
        if self.is_watched {
            self.pulse_stops();
        }
    }

    #[inline]
    pub(super) fn turn_is_over(&mut self) {
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
        let queues = &self.road.queues;
        // Other workers need not wait for the process that this worker would have stepped next.
        self.view.current.store(0, Ordering::Relaxed);
        let mut gives = false;
        while let Some(ready) = queues.take_bottom(self.index).or_else(|| self.next.take()) {
            queues.push(ready);
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
