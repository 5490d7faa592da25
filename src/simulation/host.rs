//! The work that a world does for its runtimes in the place of other threads.

use std::any::TypeId;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::decision::{Choose as _, Odds, Place};
use super::entries::Entry;
use super::faults::{CommandFault, What, Whom};
use super::shared::Shared;
use crate::clock::{Deadline, Drive};
use crate::outcome::{BoxError, Failure, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, Weak, lock, thread};
use crate::process::command::Answer;
use crate::process::{CommandError, Duty};
use crate::runtime::simulated::{BlockingFate, Job, SimulationHost};
use crate::sched::residents::{AnyFuture, BoxedFuture};

/// The world, as the runtime with this number sees it.
pub(super) struct WorldHost {
    pub(super) shared: Weak<Shared>,
    pub(super) runtime: usize,
}

impl WorldHost {
    fn with<R>(&self, call: impl FnOnce(&Arc<Shared>) -> R) -> Option<R> {
        self.shared.upgrade().map(|shared| call(&shared))
    }
}

impl SimulationHost for WorldHost {
    fn job(&self, of: Pid, job: Job) {
        self.with(|shared| {
            let late = shared.inject_blocking(of, self.runtime, |what| matches!(what, What::BlockingLate(_)));
            let delay = match late {
                Some(What::BlockingLate(most)) => shared.draw_time(of, most),
                _ => Duration::ZERO,
            };
            shared.push_after(delay, Entry::Job(of, job));
        });
    }

    fn blocking_fate(&self, of: Pid) -> BlockingFate {
        let panics = self.with(|shared| shared.inject_blocking(of, self.runtime, |what| *what == What::BlockingPanics));
        if panics.flatten().is_some() { BlockingFate::Panics } else { BlockingFate::Runs }
    }

    fn blocking_step(&self, of: Pid) {
        self.with(|shared| shared.state().entries.push(Entry::BlockingStep(of, self.runtime)));
    }

    fn helper(&self, work: Job) {
        self.with(|shared| shared.state().helpers.push_back((self.runtime, work)));
    }

    fn was_forced(&self, report: String) {
        self.with(|shared| shared.fail("every shutdown is clean", report));
    }

    fn is_in_job(&self) -> bool {
        self.with(|shared| shared.is_here() && shared.state().in_job > 0).unwrap_or(false)
    }

    fn drain(&self, deadline: Deadline) {
        self.with(|shared| shared.drive(&mut || !shared.state().entries.has_jobs(), deadline));
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        self.with(|shared| shared.drive(&mut || shared.is_idle(), deadline)).unwrap_or(true)
    }

    fn relay_future(
        &self,
        (of, tag): (Pid, u64),
        (kind, name): (TypeId, &'static str),
        future: BoxedFuture,
    ) -> Result<BoxedFuture, CommandError> {
        let Some(shared) = self.shared.upgrade() else { return Ok(future) };
        let fault = shared.inject_command(of, kind);
        if let Some(why) = fault.and_then(refusal) {
            drop_contained(future);
            return Err(why);
        }
        let future = match fault {
            None => future,
            Some(fault) => Box::pin(FaultyFuture { future, fault, answer: None, of, shared: self.shared.clone() }),
        };
        shared.state().open.insert((of, tag), name);
        Ok(Box::pin(OpenFuture { future, command: (of, tag), shared: self.shared.clone() }))
    }

    fn answers(&self, to: Pid, answer: &Answer) {
        self.with(|shared| {
            shared.may_have_panicked("a handler or a blocking closure", to, answer);
            shared.deliver_before_answer(self.runtime, to);
        });
    }

    fn abandon(&self) -> Vec<Job> {
        self.with(|shared| shared.state().entries.take_jobs()).unwrap_or_default()
    }

    fn relay(&self, duty: &Arc<Duty>, (kind, name): (TypeId, &'static str)) -> Result<Arc<Duty>, CommandError> {
        let Some(shared) = self.shared.upgrade() else { return Ok(duty.clone()) };
        let fault = shared.inject_command(duty.pid(), kind);
        if let Some(why) = fault.and_then(refusal) {
            return Err(why);
        }
        // The answer of the handler ends the wait of the process. Until then the duty is kept here.
        let kept = Mutex::new(Some(duty.clone()));
        let (pid, tag, weak) = (duty.pid(), duty.tag(), self.shared.clone());
        shared.state().open.insert((pid, tag), name);
        Ok(duty.relayed(Box::new(move |answer: Answer| {
            let Some(duty) = lock(&kept).take() else { return };
            let Some(shared) = weak.upgrade() else { return duty.answer(answer) };
            if !shared.is_here() {
                let thread = thread::current();
                let thread = thread.name().unwrap_or("without a name").to_owned();
                shared.left_world(format!(
                    "command {name} of {pid}: its handler left the simulation for the thread {thread:?}"
                ));
                return duty.answer(Err(CommandError::Failed(Failure::from(BoxError::from(
                    "answered from outside of the simulation",
                )))));
            }
            shared.may_have_panicked(&format!("the handler of {name}"), pid, &answer);
            {
                let state = &mut *shared.state();
                // A command that is never answered stays open.
                if !matches!(fault, Some(CommandFault::Never)) {
                    state.open.remove(&(pid, tag));
                }
                let is_lost = matches!(fault, Some(CommandFault::Never | CommandFault::LostAfter));
                let error = match &answer {
                    _ if is_lost => Some(String::from("lost")),
                    Ok(_) => None,
                    Err(error) => Some(error.to_string()),
                };
                let in_hand = state.in_hand.last().map(|(pid, ..)| *pid);
                state.recorder.answered(in_hand, name, pid, error);
            }
            match fault {
                Some(CommandFault::LostAfter) => duty.answer(Err(CommandError::Dropped)),
                Some(CommandFault::Never) => shared.state().withheld.push(duty),
                Some(CommandFault::Late(most)) => {
                    let delay = shared.draw_time(pid, most);
                    shared.push_after(delay, Entry::Answer(pid, Box::new(move || duty.answer(answer))));
                }
                _ => duty.answer(answer),
            }
        })))
    }
}

/// The answer to a command whose handler is not called.
fn refusal(fault: CommandFault) -> Option<CommandError> {
    match fault {
        CommandFault::Fail => Some(CommandError::Failed(Failure::from(BoxError::from("injected by the simulation")))),
        CommandFault::LostBefore => Some(CommandError::Dropped),
        CommandFault::Late(_) | CommandFault::LostAfter | CommandFault::Never => None,
    }
}

/// The future of a command. The command is open until the future is dropped.
struct OpenFuture {
    future: BoxedFuture,
    command: (Pid, u64),
    shared: Weak<Shared>,
}

impl AnyFuture for OpenFuture {
    fn poll_any(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.future.as_mut().poll_any(context)
    }
}

impl Drop for OpenFuture {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state().open.remove(&self.command);
        }
    }
}

/// The future of a command whose answer is late or lost.
struct FaultyFuture {
    future: BoxedFuture,
    fault: CommandFault,
    /// An answer that comes later.
    answer: Option<Answer>,
    of: Pid,
    shared: Weak<Shared>,
}

impl AnyFuture for FaultyFuture {
    fn poll_any(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        if let Some(answer) = self.answer.take() {
            return Poll::Ready(answer);
        }
        let answer = ready!(self.future.as_mut().poll_any(context));
        match (self.fault, self.shared.upgrade()) {
            (CommandFault::LostAfter, _) => Poll::Ready(Err(CommandError::Dropped)),
            (CommandFault::Never, _) => {
                // The future is ready, and must not be polled again.
                self.future = Box::pin(Never);
                Poll::Pending
            }
            (CommandFault::Late(most), Some(shared)) => {
                self.answer = Some(answer);
                let (delay, waker) = (shared.draw_time(self.of, most), context.waker().clone());
                shared.push_after(delay, Entry::Answer(self.of, Box::new(move || waker.wake())));
                Poll::Pending
            }
            _ => Poll::Ready(answer),
        }
    }
}

/// A future that is never ready.
struct Never;

impl AnyFuture for Never {
    fn poll_any(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        Poll::Pending
    }
}

impl Shared {
    /// Decides about a fault of a command of a process.
    fn inject_command(&self, of: Pid, kind: TypeId) -> Option<CommandFault> {
        let fault = self.inject(of, |rule| match (&rule.whom, rule.what) {
            (Whom::Command(wanted), What::Command(_)) => *wanted == kind,
            _ => false,
        });
        fault.and_then(|what| if let What::Command(fault) = what { Some(fault) } else { None })
    }

    /// Decides about a fault of the blocking closures of a process.
    fn inject_blocking(&self, of: Pid, runtime: usize, wanted: impl Fn(&What) -> bool) -> Option<What> {
        let process = self.type_in_hand(of, runtime)?;
        self.inject(of, |rule| match rule.whom {
            Whom::Blocking(kind) => kind == process && wanted(&rule.what),
            _ => false,
        })
    }

    /// Draws the time of a fault, up to `most`, in microseconds. When the time is over, the fault ends. The dull answer
    /// is the longest time. So a shrunk fault is one deviation, unless its time matters.
    pub(super) fn draw_time(&self, of: Pid, most: Duration) -> Duration {
        let mut state = self.state();
        let place = Place::Fault { rule: u32::MAX, of, nth: state.next_asked(u32::MAX, of) };
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        let time = Duration::from_micros(most - state.chooser.decide(place, Odds::Below(most + 1)));
        state.has_fault_until(self.moment_in(time));
        time
    }
}
