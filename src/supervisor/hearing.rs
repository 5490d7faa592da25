//! What a supervisor hears of its children, and what follows from it.

use std::time::Duration;

use super::child::Child;
use super::child::Goal;
use super::child::Phase;
use super::message::ChildError;
use super::message::InPlaceFailed;
use super::message::SupervisorError;
use super::message::SupervisorMessage;
use super::process::Supervisor;
use super::process::Timer;
use super::spec::AutoShutdown;
use super::spec::Restart;
use super::spec::Strategy;
use crate::Completion;
use crate::Exit;
use crate::Pid;
use crate::Recovered;
use crate::RecoveredBy;
use crate::Reply;
use crate::StepOutput;

/// After this time a supervisor that had no room for a question is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// What is heard of children.
impl Supervisor {
    pub(super) fn begun(&mut self, key: u64, done: &Completion, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let supervises = child.spec.supervises;
        let Phase::Starting { pid, begun, asked } = &mut child.phase else { return };
        let pid = *pid;
        match done.take(*begun) {
            None => {}
            Some(Ok(())) if !supervises || *asked => self.up(key, pid, out),
            Some(Ok(())) => self.ask_started(key, out),
            // Its mailbox has a bound, and had no room for the question. If it has ended, that is heard, too.
            Some(Err(_)) if *asked => {
                let timer = out.after(ASK_AGAIN);
                self.timers.insert(timer.id(), Timer::Ask(key, pid, timer));
            }
            // One that has not begun has ended, and that is heard.
            Some(Err(_)) => {}
        }
    }

    /// Asks a child that is a supervisor to say when its children are up.
    fn ask_started(&mut self, key: u64, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let Phase::Starting { pid, begun, asked } = &mut child.phase else { return };
        *asked = true;
        *begun = out.ask(pid.typed(), SupervisorMessage::started, Duration::MAX);
        let tag = begun.id();
        self.begins.insert(tag, key);
    }

    pub(super) fn ended(&mut self, key: u64, exit: Exit, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        match &mut child.phase {
            // That it had begun would have been heard before.
            Phase::Starting { .. } => self.not_started(key, ChildError::Ended(exit), out),
            Phase::ToStop { .. } => self.stopped(key, out),
            Phase::Stopping { limit, .. } => {
                let limit = limit.take();
                self.forget_timer(limit, out);
                self.stopped(key, out);
            }
            Phase::InPlace { timer, .. } => {
                let timer = *timer;
                self.forget_timer(Some(timer), out);
                self.ended_by_itself(key, exit, out);
            }
            Phase::Up { .. } => self.ended_by_itself(key, exit, out),
            Phase::Down | Phase::Queued => {}
        }
    }

    /// A child that was up has ended, and nobody had wanted it.
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
            self.set(key, Phase::Down)
        }
        if !significant || self.is_ending() {
            return;
        }
        let others_left =
            || self.children.values().any(|child| child.spec.significant && !matches!(child.phase, Phase::Down));
        let ends = match self.config.auto {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => true,
            AutoShutdown::AllSignificant => !others_left(),
        };
        if ends {
            self.end(None, out);
        }
    }

    /// Counts a restart. The delay before it, or nothing if there is to be none: then the supervisor ends.
    pub(super) fn count(&mut self, key: u64, exit: Exit, what: &'static str, out: &mut StepOutput) -> Option<Duration> {
        if self.ends_with_the_runtime(out) {
            return None;
        }
        let now = out.now();
        let child = self.children.get_mut(&key)?;
        if self.config.window.exceeded(now, (child.spec.id.clone(), exit.clone())) {
            let restarts = self.config.window.take();
            self.end(Some(SupervisorError::TooManyRestarts { restarts }), out);
            return None;
        }
        child.restarts += 1;
        child.tell_of_restart(&exit, what);
        let Some(backoff) = &self.config.backoff else { return Some(Duration::ZERO) };
        child.is_up_no_more(now, Some(backoff.stable));
        child.failures = child.failures.saturating_add(1);
        Some(backoff.delay(child.failures, key))
    }

    /// A child is to be restarted, with whomever the strategy says.
    pub(super) fn failed(&mut self, key: u64, exit: Exit, out: &mut StepOutput) {
        // It has no process; if the supervisor ends with this, there is nothing to stop.
        self.set(key, Phase::Down);
        if self.is_ending() {
            return self.remove(key, out);
        }
        let Some(delay) = self.count(key, exit, "a child has ended and is restarted", out) else { return };
        let batch = match self.config.strategy {
            Strategy::OneForOne => self.number(),
            Strategy::OneForAll => self.gather(0, out),
            Strategy::RestForOne => self.gather(key, out),
        };
        self.forget_timer(self.gates.get(&batch).copied(), out);
        if !delay.is_zero() {
            let timer = out.after(delay);
            self.timers.insert(timer.id(), Timer::Gate(batch));
            self.gates.insert(batch, timer);
        }
        self.change(key, |child| {
            (child.batch, child.goal, child.phase) = (batch, Goal::Start, Phase::Queued);
        });
    }

    /// Brings all from this one on into one batch, to be stopped and started again; which.
    ///
    /// The largest batch of which all are among them takes in the others. So many who fail one after the other, each before
    /// those who wait already, do not cost each time as much as wait.
    fn gather(&mut self, from: u64, out: &mut StepOutput) -> u64 {
        let whole = self.batches.iter().filter(|(_, batch)| batch.begins_at(from));
        let largest = whole.max_by_key(|(_, batch)| batch.len()).map(|(number, _)| *number);
        let batch = largest.unwrap_or_else(|| self.number());
        let elsewhere = self.batches.iter().filter(|(number, _)| **number != batch);
        // What somebody has wanted to be stopped, or forgotten, still is.
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

    /// A child has failed, and waits to be told that it may go on in place.
    pub(super) fn failed_in_place(&mut self, InPlaceFailed { pid, exit, reply }: InPlaceFailed, out: &mut StepOutput) {
        // Whoever is not told to go on ends with its failure: the reply is dropped.
        let Some(&key) = self.by_pid.get(&pid) else { return };
        let Some(child) = self.children.get(&key) else { return };
        if !matches!(child.phase, Phase::Up { .. }) || child.spec.restart == Restart::Temporary {
            return;
        }
        let Some(delay) = self.count(key, exit, "a child has failed and is restarted in place", out) else { return };
        if delay.is_zero() {
            return self.goes_on(key, pid, reply, out);
        }
        let timer = out.after(delay);
        self.timers.insert(timer.id(), Timer::InPlace(key));
        self.set(key, Phase::InPlace { pid, timer, reply });
    }

    /// A child has failed, and goes on by itself. That counts as a restart.
    pub(super) fn recovered(&mut self, recovered: Recovered, out: &mut StepOutput) {
        let Recovered { pid, exit, by } = recovered;
        let Some(&key) = self.by_pid.get(&pid) else { return };
        let Some(child) = self.children.get(&key) else { return };
        // One that is restarted in place asks whether it may go on, and that is counted.
        let asks = by == RecoveredBy::SpawnOption && child.spec.start.is_in_place();
        if asks || !matches!(child.phase, Phase::Starting { .. } | Phase::Up { .. }) {
            return;
        }
        if self.count(key, exit, "a child has failed and has recovered", out).is_some() {
            let now = out.now();
            self.change(key, |child| child.up_since = child.is_up().then_some(now));
        }
    }

    /// A child that has failed in place is told that it may go on.
    fn goes_on(&mut self, key: u64, pid: Pid, reply: Reply<()>, out: &mut StepOutput) {
        out.reply(reply, ());
        self.up(key, pid, out);
    }

    pub(super) fn elapsed(&mut self, timer: Timer, done: &Completion, out: &mut StepOutput) {
        match timer {
            Timer::Gate(batch) => {
                self.gates.remove(&batch);
                self.changed.insert(batch);
            }
            Timer::Limit(key) => {
                if let Some(Phase::Stopping { pid, limit }) = self.children.get_mut(&key).map(|child| &mut child.phase)
                {
                    *limit = None;
                    out.terminate(*pid);
                }
            }
            // Of the same start: another one has another PID.
            Timer::Ask(key, pid, timer) => {
                let starts = |child: &Child| matches!(child.phase, Phase::Starting { pid: now, .. } if now == pid);
                if !self.children.get(&key).is_some_and(starts) || self.ends_with_the_runtime(out) {
                    return;
                }
                match done.take(timer) {
                    Some(Ok(_)) => self.ask_started(key, out),
                    // There is no timer. AskFuture at once would be a loop, so this start has failed: the child is ended.
                    _ => {
                        out.terminate(pid);
                    }
                }
            }
            Timer::InPlace(key) => {
                let Some(child) = self.children.get_mut(&key) else { return };
                // One that was set for an earlier failure has nothing to say about this one.
                let pid = match child.phase {
                    Phase::InPlace { pid, timer, .. } if timer.id() == done.tag() => pid,
                    _ => return,
                };
                if let Phase::InPlace { reply, .. } = std::mem::replace(&mut child.phase, Phase::Up { pid }) {
                    self.goes_on(key, pid, reply, out);
                }
            }
        }
    }
}
