//! Starting children.

use std::time::Duration;

use super::contained::made;
use super::message::{ChildError, ChildState, SupervisorError, SupervisorMessage};
use super::process::{Awaited, Life, Stage, Supervisor};
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
            (spec.start.get())(out, options)
        });
        child.pid = None;
        match started {
            Ok(Ok((pid, init))) => {
                child.pid = Some(pid);
                self.by_pid.insert(pid, key);
                self.awaited.insert(init.id(), Awaited::Start(key, pid, Stage::Init(init)));
                self.set(key, ChildState::Starting);
            }
            // No process can be spawned any longer. That is no failure of the supervisor.
            Ok(Err(SpawnError::ShuttingDown)) => self.end(None, out),
            Ok(Err(error)) => self.not_started(key, ChildError::Spawn(error), out),
            Err(message) => self.not_started(key, ChildError::FactoryPanicked { message }, out),
        }
    }

    /// Goes on with a start after a stage of it.
    pub(super) fn start_goes_on(&mut self, key: u64, pid: Pid, stage: Stage, done: &Completion, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        // Only if it is still the same start: a new start has a new PID.
        if child.state != ChildState::Starting || child.pid != Some(pid) {
            return;
        }
        match stage {
            Stage::Init(tag) => match done.take(tag) {
                Some(Ok(())) if child.spec.supervises => self.ask_started(key, pid, out),
                Some(Ok(())) => self.up(key, pid, out),
                // It has ended, and its exit event follows.
                _ => {}
            },
            Stage::Children(tag) => match done.take(tag) {
                Some(Ok(())) => self.up(key, pid, out),
                // Its mailbox is bounded and had no room for the question. If it has ended, its exit event follows.
                _ => {
                    let timer = out.after(ASK_AGAIN);
                    child.timer = Some(timer);
                    self.awaited.insert(timer.id(), Awaited::Start(key, pid, Stage::AskAgain(timer)));
                }
            },
            Stage::AskAgain(_) if self.ends_with_the_runtime(out) => {}
            Stage::AskAgain(timer) => match done.take(timer) {
                Some(Ok(_)) => self.ask_started(key, pid, out),
                // There is no timer. Asking again at once would be a busy loop, so this start fails and the child is
                // ended.
                _ => drop(out.terminate(pid)),
            },
        }
    }

    /// Asks a child that is a supervisor to answer when its children are up.
    fn ask_started(&mut self, key: u64, pid: Pid, out: &mut StepOutput) {
        let tag = out.ask(pid.typed(), SupervisorMessage::started, Duration::MAX);
        self.awaited.insert(tag.id(), Awaited::Start(key, pid, Stage::Children(tag)));
    }

    /// Records that a child is up.
    pub(super) fn up(&mut self, key: u64, pid: Pid, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        (child.up_since, child.is_new, child.timer) = (Some(out.now()), false, None);
        child.tell_up(&Ok(pid), out);
        self.set(key, ChildState::Up);
    }

    /// Handles a child that has not started and has no process.
    pub(super) fn not_started(&mut self, key: u64, error: ChildError, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let id = child.spec.id.clone();
        if matches!(self.life, Life::Starting) && self.first.contains(&key) {
            self.set(key, ChildState::Down);
            if !self.ends_with_the_runtime(out) {
                self.end(Some(SupervisorError::NotStarted { id, error }), out);
            }
            return;
        }
        if !child.starters.is_empty() {
            // A request has started it. The answer says why it did not start, and the requester decides.
            let is_new = child.is_new;
            child.tell_up(&Err(error), out);
            return if is_new { self.remove(key, out) } else { self.set(key, ChildState::Down) };
        }
        let exit = match error {
            ChildError::Ended(exit) => exit,
            other => Exit::Failed(Failure::from(BoxError::from(other))),
        };
        self.failed(key, exit, out);
    }
}
