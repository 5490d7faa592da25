//! The work of a worker for the watchdog: it keeps a pulse, shows what its steps do, and leaves if it is a spare that
//! is not needed any more. `stuck_steps.rs` has the protocol. Without `WATCHED` each of these is nothing.

use super::road::Executor;
use super::worker::Own;
use crate::primitives::{Ordering, fence};
use crate::process::StepActivity;
use crate::sched::body::Ready;
use crate::sched::mailbox::Signals;

impl<const WATCHED: bool> Own<WATCHED> {
    /// From here until it goes on, what the others can see of this worker belongs to no step.
    #[inline]
    pub(super) fn pulse_stops(&mut self) {
        if !WATCHED {
            return;
        }
        let pulse = &self.view.pulse;
        self.beat = (self.beat + 1) & !1;
        pulse.beat.store(self.beat, Ordering::Relaxed);
        // Ordering: pairs with the fence of a look: if that reads anything that is written from here on, it reads
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
            // Ordering: Release, so that a look that sees this beat sees whose it is.
            self.view.pulse.beat.store(self.beat, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn turn_is_over(&mut self) {
        self.pulse_stops();
        self.view.current.store(0, Ordering::Relaxed);
    }

    /// The step that has just come to its end, or one before it, was stuck.
    #[cold]
    fn was_reported(&mut self) {
        // If there is no thread for the reports, they are told on this one, which may take its time.
        self.let_go();
        self.view.current.store(0, Ordering::Relaxed);
        let Some(stuck_steps) = &self.road.stuck_steps else { return };
        stuck_steps.returned(self.index, &self.view, self.road.now_nanos());
        self.road.dismiss_surplus();
        if let Some(step_watcher) = stuck_steps.step_watcher() {
            step_watcher.tell();
        }
    }

    /// This worker has begun, or has looked for work and found it: somebody is to look whether it goes on.
    #[inline]
    pub(super) fn works(&self) {
        if WATCHED && let Some(stuck_steps) = &self.road.stuck_steps {
            stuck_steps.works();
        }
    }

    /// Gives the step signals in which it can be seen.
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

    /// Spares are too many, and this worker is one.
    #[inline]
    pub(super) fn is_surplus(&self) -> bool {
        self.index >= self.road.workers
            && self.road.stuck_steps.as_ref().is_some_and(|stuck_steps| stuck_steps.has_surplus())
    }

    /// A spare, which neither looks nor sleeps, gives back what it has, and leaves if it is too many.
    #[cold]
    pub(super) fn leaves(&mut self) -> bool {
        let queues = &self.road.queues;
        // Nobody has to wait for what this worker would have stepped next.
        self.view.current.store(0, Ordering::Relaxed);
        let mut gives = false;
        while let Some(ready) = queues.take_bottom(self.index).or_else(|| self.next.take()) {
            queues.push(ready);
            gives = true;
        }
        self.offered |= gives;
        self.tell();
        // Ordering: pairs with the fence of `end_workers`, as that of `Road::inject` does: either what was given is
        // found by who ends the queues, or this spare sees that nobody else may come, and takes it itself.
        fence(Ordering::SeqCst);
        if self.road.stopped.load(Ordering::SeqCst) {
            return false;
        }
        self.road.stuck_steps.as_ref().is_some_and(|stuck_steps| stuck_steps.leaves())
    }
}
