//! The work of a worker for the watchdog: it keeps a pulse, shows what its steps do, and exits if it is a surplus
//! spare.
//!
//! `stuck_steps.rs` has the protocol. Without `WATCHED` these functions do nothing.

use super::road::Executor;
use super::worker::Own;
use crate::primitives::{Ordering, fence};
use crate::process::StepActivity;
use crate::sched::body::Ready;
use crate::sched::mailbox::Signals;

impl<const WATCHED: bool> Own<WATCHED> {
    /// Stops the pulse. Until it goes on, what others see of this worker belongs to no step.
    #[inline]
    pub(super) fn pulse_stops(&mut self) {
        if !WATCHED {
            return;
        }
        let pulse = &self.view.pulse;
        self.beat = (self.beat + 1) & !1;
        pulse.beat.store(self.beat, Ordering::Relaxed);
        // Ordering: pairs with the fence of a look. If the look reads anything that is written from here on, it reads
        // this beat as well, and knows that the step before is over.
        fence(Ordering::Release);
        if pulse.reported.load(Ordering::Relaxed) {
            self.was_reported();
        }
    }

    #[inline]
    pub(super) fn pulse_goes_on(&mut self) {
        if WATCHED {
            self.beat += 1;
            // Ordering: Release, so that a look that sees this beat sees the process of the step.
            self.view.pulse.beat.store(self.beat, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn turn_is_over(&mut self) {
        self.pulse_stops();
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
        if WATCHED && let Some(stuck_steps) = &self.road.stuck_steps {
            stuck_steps.works();
        }
    }

    /// Gives the step signals that show its activity.
    pub(super) fn show_step(&mut self, body: &mut Ready) {
        let sight = &self.view.pulse.sight;
        sight.note(StepActivity::Step);
        match body.machine.mailbox().signals() {
            Some(signals) => signals.look_at(Some(sight.clone())),
            none => *none = Some(self.signals.take().unwrap_or_else(|| Signals::seen_at(sight))),
        }
    }

    pub(super) fn hide_step(&mut self, body: &mut Ready) {
        let signals = body.machine.mailbox().signals();
        if signals.as_ref().is_some_and(|signals| signals.is_needless()) {
            self.signals = signals.take().map(|mut signals| {
                signals.look_at(Some(self.view.pulse.sight.clone()));
                signals
            });
        } else if let Some(signals) = signals {
            signals.look_at(None);
        }
        self.view.pulse.sight.note(StepActivity::AfterStep);
    }

    /// Whether there are surplus spares, and this worker is a spare.
    #[inline]
    pub(super) fn is_surplus(&self) -> bool {
        self.index >= self.road.workers
            && self.road.stuck_steps.as_ref().is_some_and(|stuck_steps| stuck_steps.has_surplus())
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
