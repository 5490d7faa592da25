//! Starting children.

use std::time::Duration;

use super::child::Phase;
use super::contained::made;
use super::message::{ChildError, SupervisorError, SupervisorMessage};
use super::process::{Awaited, Life, Supervisor};
use crate::exit::Failure;
use crate::{BoxError, Completion, Exit, Pid, SpawnError, StepOutput};

/// The delay before a child is asked again whose mailbox had no room for the question.
const ASK_AGAIN: Duration = Duration::from_millis(10);

impl Supervisor {
    pub(super) fn start(&mut self, key: u64, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let spec = child.spec.clone();
        // The factory and the options are user code.
        let started = made(|| {
            let options = (spec.options)();
            child.name = options.given_name().cloned();
            spec.start.start(out, options)
        });
        child.last = started.as_ref().ok().and_then(|started| started.as_ref().ok()).map(|(pid, _)| *pid);
        match started {
            Ok(Ok((pid, begun))) => {
                self.by_pid.insert(pid, key);
                self.awaited.insert(begun.id(), Awaited::Begun(key));
                self.set(key, Phase::Starting { pid, begun, asked: false });
            }
            // No process can be spawned any longer. That is no failure of the supervisor.
            Ok(Err(SpawnError::ShuttingDown)) => self.end(None, out),
            Ok(Err(error)) => self.not_started(key, ChildError::Spawn(error), out),
            Err(message) => self.not_started(key, ChildError::FactoryPanicked { message }, out),
        }
    }

    pub(super) fn begun(&mut self, key: u64, done: &Completion, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let supervises = child.spec.supervises;
        let Phase::Starting { pid, begun, asked } = &mut child.phase else { return };
        let pid = *pid;
        match done.take(*begun) {
            None => {}
            Some(Ok(())) if !supervises || *asked => self.up(key, pid, out),
            Some(Ok(())) => self.ask_started(key, out),
            // Its mailbox is bounded and had no room for the question. If it has ended, its exit event follows.
            Some(Err(_)) if *asked => {
                let timer = out.after(ASK_AGAIN);
                self.awaited.insert(timer.id(), Awaited::Ask(key, pid, timer));
            }
            // If it did not start, it has ended, and its exit event follows.
            Some(Err(_)) => {}
        }
    }

    /// Asks a child that is a supervisor to answer when its children are up.
    pub(super) fn ask_started(&mut self, key: u64, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let Phase::Starting { pid, begun, asked } = &mut child.phase else { return };
        *asked = true;
        *begun = out.ask(pid.typed(), SupervisorMessage::started, Duration::MAX);
        let tag = begun.id();
        self.awaited.insert(tag, Awaited::Begun(key));
    }

    /// Records that a child is up.
    pub(super) fn up(&mut self, key: u64, pid: Pid, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        (child.up_since, child.is_new) = (Some(out.now()), false);
        child.tell_up(&Ok(pid), out);
        self.set(key, Phase::Up { pid });
    }

    /// Handles a child that has not started and has no process.
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
        if !child.starters.is_empty() {
            // A request has started it. The answer says why it did not start, and the requester decides.
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
}
