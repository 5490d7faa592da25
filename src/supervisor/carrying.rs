//! Carrying on: children are stopped and started as soon as that has become possible.

use super::child::Phase;
use super::child::Waiter;
use super::contained::made;
use super::message::ChildError;
use super::message::SupervisorError;
use super::process::Life;
use super::process::Supervisor;
use super::process::Timer;
use super::spec::Shutdown;
use crate::BoxError;
use crate::Exit;
use crate::Failure;
use crate::Pid;
use crate::Reason;
use crate::SpawnError;
use crate::StepOutput;

/// What is done when it has become possible.
impl Supervisor {
    pub(super) fn carry_on(&mut self, out: &mut StepOutput) {
        for batch in std::mem::take(&mut self.changed) {
            self.carry_on_with(batch, out);
        }
        if matches!(self.life, Life::Starting) && self.first.is_empty() {
            self.life = Life::Up;
            for reply in std::mem::take(&mut self.starters) {
                out.reply(reply, ());
            }
        }
    }

    fn carry_on_with(&mut self, number: u64, out: &mut StepOutput) {
        let Some(batch) = self.batches.get(&number) else {
            // Nobody waits for its delay any more.
            return self.forget_timer(self.gates.get(&number).copied(), out);
        };
        let (stops, starts) = (batch.stopping.last().copied(), batch.starting.first().copied());
        // Nobody is started before the last has stopped.
        let Some(key) = stops.or(starts.filter(|_| !self.gates.contains_key(&number))) else { return };
        match self.children.get(&key).map(|child| &child.phase) {
            Some(Phase::ToStop { pid }) => self.stop(key, *pid, out),
            Some(Phase::Queued) => self.start(key, out),
            // It is being stopped, or started.
            _ => {}
        }
    }

    pub(super) fn stop(&mut self, key: u64, pid: Pid, out: &mut StepOutput) {
        let Some(child) = self.children.get(&key) else { return };
        // Its end must be heard of, also if it has taken its link away.
        let _ = out.monitor(pid);
        let limit = match child.spec.shutdown {
            Shutdown::AtOnce => {
                out.terminate(pid);
                None
            }
            Shutdown::Unlimited => {
                out.cancel(pid, Reason::Shutdown);
                None
            }
            Shutdown::Within(limit) => {
                // First the timer: who is asked to stop has no more time than that, however soon it hears of it.
                let timer = out.after(limit);
                out.cancel_timeout(pid, Reason::Shutdown, limit);
                self.timers.insert(timer.id(), Timer::Limit(key));
                Some(timer)
            }
        };
        self.set(key, Phase::Stopping { pid, limit });
    }

    pub(super) fn start(&mut self, key: u64, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let spec = child.spec.clone();
        // The factory and the options are the user's.
        let started = made(|| {
            let options = (spec.options)();
            child.name = options.given_name().cloned();
            spec.start.start(out, options)
        });
        child.last = started.as_ref().ok().and_then(|started| started.as_ref().ok()).map(|(pid, _)| *pid);
        match started {
            Ok(Ok((pid, begun))) => {
                self.by_pid.insert(pid, key);
                self.begins.insert(begun.id(), key);
                self.set(key, Phase::Starting { pid, begun, asked: false });
            }
            // There will be no children any more, and nobody is to blame.
            Ok(Err(SpawnError::ShuttingDown)) => self.end(None, out),
            Ok(Err(error)) => self.not_started(key, ChildError::Spawn(error), out),
            Err(message) => self.not_started(key, ChildError::FactoryPanicked { message }, out),
        }
    }

    /// A child has not begun, and has no process.
    pub(super) fn not_started(&mut self, key: u64, error: ChildError, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let id = child.spec.id.clone();
        if matches!(self.life, Life::Starting) && self.first.contains(&key) {
            self.set(key, Phase::Down);
            if !self.ends_with_the_runtime(out) {
                self.end(Some(SupervisorError::NotStarted { id, error }), out);
            }
            return;
        }
        if child.waiting.iter().any(|waiter| matches!(waiter, Waiter::Up(_))) {
            // It was started by hand: whoever did it learns why, and decides.
            let is_new = child.is_new;
            child.tell_up(&Err(error), out);
            return if is_new { self.remove(key, out) } else { self.set(key, Phase::Down) };
        }
        let exit = match error {
            ChildError::Ended(exit) => exit,
            other => Exit::Failed(Failure::from(BoxError::from(other))),
        };
        self.failed(key, exit, out);
    }

    /// A child is up.
    pub(super) fn up(&mut self, key: u64, pid: Pid, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        (child.up_since, child.is_new) = (Some(out.now()), false);
        child.tell_up(&Ok(pid), out);
        self.set(key, Phase::Up { pid });
    }
}
