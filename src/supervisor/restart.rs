//! Exits of children, and the restarts that follow.

use std::time::Duration;

use super::child::Goal;
use super::message::{ChildError, ChildState, SupervisorError};
use super::process::{Awaited, Supervisor};
use super::spec::{AutoShutdown, Restart, Strategy};
use crate::exit::{Recovered, RecoveredBy};
use crate::{Exit, Pid, Reply, StepOutput};

impl Supervisor {
    pub(super) fn ended(&mut self, key: u64, exit: Exit, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (state, timer) = (child.state, child.timer.take());
        self.forget_timer(timer, out);
        match state {
            // If the child had started, the answer that says so would have come first.
            ChildState::Starting => self.not_started(key, ChildError::Ended(exit), out),
            ChildState::ToStop | ChildState::Stopping => self.stopped(key, out),
            ChildState::Up | ChildState::Delayed => self.ended_by_itself(key, exit, out),
            ChildState::Down | ChildState::Queued => {}
        }
    }

    /// Handles the end of a child that was up and that the supervisor did not stop.
    pub(super) fn ended_by_itself(&mut self, key: u64, exit: Exit, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let restart = match child.spec.restart {
            Restart::Permanent => true,
            Restart::Transient => !exit.is_done(),
            Restart::Temporary => false,
        };
        if restart {
            return self.failed(key, exit, out);
        }
        let (significant, forget) =
            (child.spec.significant, child.spec.restart == Restart::Temporary || self.config.kind.is_some());
        if forget {
            self.remove(key, out)
        } else {
            self.set(key, ChildState::Down)
        }
        if !significant || self.is_ending() {
            return;
        }
        let others_left =
            || self.children.values().any(|child| child.spec.significant && child.state != ChildState::Down);
        let ends = match self.config.auto {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => true,
            AutoShutdown::AllSignificant => !others_left(),
        };
        if ends {
            self.end(None, out);
        }
    }

    /// Counts a restart. Returns the delay before it, or `None` if there are too many restarts and the supervisor
    /// ends.
    pub(super) fn count(&mut self, key: u64, exit: Exit, what: &'static str, out: &mut StepOutput) -> Option<Duration> {
        if self.ends_with_the_runtime(out) {
            return None;
        }
        let now = out.now();
        let child = self.children.get_mut(&key)?;
        if let Some(restarts) = self.config.intensity.count(now, &child.spec.id, &exit) {
            self.end(Some(SupervisorError::TooManyRestarts { restarts }), out);
            return None;
        }
        child.restarts += 1;
        out.count("restarts", 1);
        child.tell_of_restart(&exit, what);
        let Some(backoff) = &self.config.backoff else { return Some(Duration::ZERO) };
        child.is_up_no_more(now, Some(backoff.stable));
        child.failures = child.failures.saturating_add(1);
        Some(backoff.delay_of(child.failures, key, || out.random()))
    }

    /// Restarts a child, together with the others that the strategy names.
    pub(super) fn failed(&mut self, key: u64, exit: Exit, out: &mut StepOutput) {
        // The child has no process. If the supervisor ends now, it need not stop this child.
        self.set(key, ChildState::Down);
        if self.is_ending() {
            return self.remove(key, out);
        }
        let Some(delay) = self.count(key, exit, "a child has ended and is restarted", out) else { return };
        let batch = match self.config.strategy {
            Strategy::OneForOne => self.number(),
            Strategy::OneForAll => self.gather(0, out),
            Strategy::RestForOne => self.gather(key, out),
        };
        self.delay(batch, delay, out);
        self.change(key, |child| {
            (child.batch, child.goal, child.state) = (batch, Goal::Start, ChildState::Queued);
        });
    }

    /// Moves this child and all later ones into one batch, to be stopped and started again. Returns the batch.
    ///
    /// The largest batch that contains only these children takes in the others. So if many children fail one after
    /// the other, from the last to the first, the cost of a failure does not grow with the number of children that
    /// wait.
    fn gather(&mut self, from: u64, out: &mut StepOutput) -> u64 {
        let whole = self.batches.iter().filter(|(_, batch)| batch.begins_at(from));
        let largest = whole.max_by_key(|(_, batch)| batch.len()).map(|(number, _)| *number);
        let batch = largest.unwrap_or_else(|| self.number());
        let elsewhere = self.batches.iter().filter(|(number, _)| **number != batch);
        // A child that a request has stopped or deleted keeps its goal.
        for other in elsewhere.flat_map(|(_, others)| others.all(from)).collect::<Vec<_>>() {
            self.change(other, |child| child.batch = batch);
        }
        for other in self.running.range(from..).copied().collect::<Vec<_>>() {
            let temporary = self.children.get(&other).is_some_and(|child| child.spec.restart == Restart::Temporary);
            let goal = if temporary { Goal::Forget } else { Goal::Start };
            self.want_stopped(other, batch, goal, out);
        }
        batch
    }

    /// Handles the failure of a child that waits for permission to go on in place.
    pub(super) fn failed_in_place(&mut self, pid: Pid, exit: Exit, reply: Reply<()>, out: &mut StepOutput) {
        // Returning here drops the reply, so the child ends with its failure.
        let Some(&key) = self.by_pid.get(&pid) else { return };
        let Some(child) = self.children.get(&key) else { return };
        if child.state != ChildState::Up || child.spec.restart == Restart::Temporary {
            return;
        }
        let Some(delay) = self.count(key, exit, "a child has failed and is restarted in place", out) else { return };
        if delay.is_zero() {
            return self.goes_on(key, pid, reply, out);
        }
        let timer = out.after(delay);
        self.awaited.insert(timer.id(), Awaited::InPlace(key, pid, reply));
        self.change(key, |child| (child.state, child.timer) = (ChildState::Delayed, Some(timer)));
    }

    /// Counts a restart for a child that has failed and has recovered by itself.
    pub(super) fn recovered(&mut self, recovered: Recovered, out: &mut StepOutput) {
        let Recovered { pid, exit, by } = recovered;
        let Some(&key) = self.by_pid.get(&pid) else { return };
        let Some(child) = self.children.get(&key) else { return };
        // A child that is restarted in place asks whether it may go on. That request is what counts the restart.
        let asks = by == RecoveredBy::SpawnOption && child.spec.in_place;
        if asks || !matches!(child.state, ChildState::Starting | ChildState::Up) {
            return;
        }
        if self.count(key, exit, "a child has failed and has recovered", out).is_some() {
            let now = out.now();
            self.change(key, |child| child.up_since = (child.state == ChildState::Up).then_some(now));
        }
    }

    /// Tells a child that has failed in place that it may go on.
    pub(super) fn goes_on(&mut self, key: u64, pid: Pid, reply: Reply<()>, out: &mut StepOutput) {
        out.reply(reply, ());
        self.up(key, pid, out);
    }
}
