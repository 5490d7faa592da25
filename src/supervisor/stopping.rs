//! Stopping children, and the end of the supervisor.

use super::child::Goal;
use super::message::{ChildState, SupervisorError};
use super::process::{Awaited, Life, Supervisor};
use super::spec::Shutdown;
use crate::command::TimerFired;
use crate::{Pid, Reason, StepOutput, Tag};

impl Supervisor {
    /// Stops a child in this batch if it is up. `goal` says what follows. A child without a process has already
    /// stopped.
    pub(super) fn want_stopped(&mut self, key: u64, batch: u64, goal: Goal, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (has_process, is_to_stop) = (child.has_process(), child.is_to_stop());
        if !is_to_stop {
            let timer = child.timer.take();
            self.forget_timer(timer, out);
        }
        let (now, stable) = (out.now(), self.config.backoff.as_ref().map(|backoff| backoff.stable));
        self.change(key, |child| {
            (child.batch, child.goal) = (batch, goal);
            child.is_up_no_more(now, stable);
            if has_process && !is_to_stop {
                child.state = ChildState::ToStop;
            }
        });
        if !has_process {
            self.stopped(key, out);
        }
    }

    pub(super) fn stop(&mut self, key: u64, pid: Pid, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        // The monitor reports the child's end even if the child has removed its link.
        let _ = out.monitor(pid);
        match child.spec.shutdown {
            Shutdown::AtOnce => drop(out.terminate(pid)),
            Shutdown::Unlimited => drop(out.cancel(pid, Reason::Shutdown)),
            Shutdown::Within(limit) => {
                // The timer is set first: the limit runs from the request and not from its arrival.
                let timer = out.after(limit);
                out.cancel_timeout(pid, Reason::Shutdown, limit);
                self.awaited.insert(timer.id(), Awaited::Limit(pid));
                child.timer = Some(timer);
            }
        }
        self.set(key, ChildState::Stopping);
    }

    /// Handles a child that was to be stopped and now has no process.
    pub(super) fn stopped(&mut self, key: u64, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        match child.goal {
            Goal::Start => {
                child.tell_stopped(out);
                self.set(key, ChildState::Queued);
            }
            Goal::Stay => {
                child.tell_down(out);
                child.is_new = false;
                self.set(key, ChildState::Down);
            }
            Goal::Forget => self.remove(key, out),
        }
    }

    /// Cancels a timer.
    pub(super) fn forget_timer(&mut self, timer: Option<Tag<TimerFired>>, out: &mut StepOutput) {
        let Some(timer) = timer else { return };
        self.awaited.remove(&timer.id());
        out.cancel_timer(timer);
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.life, Life::Ending(_))
    }

    /// If the runtime shuts down, ends the supervisor, even before it is asked to stop.
    ///
    /// No child can be spawned any longer. Children that have ended, or have not started, are no failure then.
    pub(super) fn ends_with_the_runtime(&mut self, out: &mut StepOutput) -> bool {
        let ends = out.is_shutting_down();
        if ends {
            self.end(None, out);
        }
        ends
    }

    /// Begins the end of the supervisor. The first reason counts.
    pub(super) fn end(&mut self, why: Option<SupervisorError>, out: &mut StepOutput) {
        if self.is_ending() {
            return;
        }
        self.life = Life::Ending(why);
        // Dropping these replies tells the askers that the children will not be up.
        self.starters.clear();
        for delay in self.batches.values_mut().filter_map(|batch| batch.delay.take()).collect::<Vec<_>>() {
            self.forget_timer(Some(delay), out);
        }
        let batch = self.number();
        for key in self.children.keys().copied().collect::<Vec<_>>() {
            self.want_stopped(key, batch, Goal::Forget, out);
        }
    }
}
