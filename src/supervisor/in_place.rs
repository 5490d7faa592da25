//! Children whose state machine is replaced in place when it fails, if their supervisor agrees.
//!
//! Such a child is spawned with [`recover_with`](crate::SpawnOptions::recover_with). When a step of it has failed and
//! its own [`recover`](crate::Process::recover) gives nothing, the function replaces the failed state machine by
//! [`Failed`]. That asks the supervisor whether the child may go on, and says `Wait`, so that messages queue up
//! meanwhile. The supervisor answers when the delay is over. Then the child is upgraded to a new state machine of the
//! user's type. That is given the exits that were told before, or meanwhile. If the supervisor drops the question, or
//! asks the child to stop, the child ends with the failure that it had.

use std::sync::Arc;
use std::time::Duration;

use super::contained::{Contained, made};
use super::message::{ChildError, InPlaceFailed, SupervisorMessage};
use super::spec::{ChildSpec, Start, spawn_child};
use crate::sync::Latch;
use crate::{
    Address, Event, Events, Exit, ExitError, Pid, Process, Reason, SpawnError, SpawnOptions, Step, StepOutput,
    StepResult, Tag, Upgrade,
};

/// Stands in for a child that has failed, until its supervisor has answered.
struct Failed<P: Process, F> {
    make: Arc<Contained<F>>,
    supervisor: Address<SupervisorMessage>,
    exit: Exit,
    asked: Option<Tag<()>>,
    /// Set when the child does not go on: it does not recover from the end that follows.
    gives_up: Latch<()>,
    /// Events for the next state machine.
    events: Vec<Event<P::Message>>,
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> Failed<P, F> {
    /// The supervisor agrees.
    fn go_on(&mut self) -> StepResult<P::Output> {
        match made(|| self.make.get()()) {
            Ok(next) => Ok(Step::Upgrade(Upgrade::to(next).giving_back(std::mem::take(&mut self.events)))),
            Err(message) => {
                let _ = self.gives_up.set(());
                Err(ChildError::FactoryPanicked { message }.into())
            }
        }
    }

    /// The child ends with the failure that it had.
    fn give_up(&self) -> StepResult<P::Output> {
        let _ = self.gives_up.set(());
        let error = self.exit.clone().into_result().err();
        // A child that has failed is not done.
        Err(Box::new(error.unwrap_or(ExitError::Terminated(Reason::Terminated))))
    }
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> Process for Failed<P, F> {
    type Message = P::Message;
    type Output = P::Output;

    fn type_name() -> &'static str {
        P::type_name()
    }

    fn step(&mut self, events: &mut Events<'_, P::Message>, out: &mut StepOutput) -> StepResult<P::Output> {
        let Some(asked) = self.asked else {
            let (pid, exit) = (out.pid(), self.exit.clone());
            let question = |reply| SupervisorMessage::in_place_failed(InPlaceFailed { pid, exit, reply });
            self.asked = Some(out.ask(self.supervisor, question, Duration::MAX));
            return Ok(Step::Wait);
        };
        // A step after `Wait` is given no messages.
        for event in events {
            match event {
                Event::Completed(done) => match done.take(asked) {
                    Some(Ok(())) => return self.go_on(),
                    Some(Err(_)) => return self.give_up(),
                    None => {}
                },
                Event::Cancel(_) => return self.give_up(),
                other => self.events.push(other),
            }
        }
        Ok(Step::Wait)
    }
}

struct StartInPlace<F>(Arc<Contained<F>>);

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> Start for StartInPlace<F> {
    fn start(&self, out: &mut StepOutput, options: SpawnOptions) -> Result<(Pid, Tag<()>), SpawnError> {
        let (make, supervisor, gives_up) = (self.0.clone(), out.pid().typed(), Latch::new());
        let process = make.get()();
        let options = options.recover_with(move |exit| {
            let (make, gives_up, exit) = (make.clone(), gives_up.clone(), exit.clone());
            let next = Failed::<P, F> { make, supervisor, exit, asked: None, gives_up, events: Vec::new() };
            (!next.gives_up.is_set()).then(|| Upgrade::to(next))
        });
        spawn_child(out, process, options)
    }

    fn is_in_place(&self) -> bool {
        true
    }
}

impl ChildSpec {
    /// A child that is restarted *in place*: when it fails or panics, its state machine is replaced under the same
    /// PID. The page of [`Process::recover`] says what stays and what goes. Of the messages only those are lost (as
    /// dead letters) that the failing step had taken.
    ///
    /// Such a restart counts like any other, and has the same delays. The failure is the child's alone: it does not
    /// trigger the strategy. If the strategy restarts the child because another one has failed, it gets a new PID.
    ///
    /// When a step fails, the child's own [`Process::recover`] is asked first. The child's function of
    /// [`SpawnOptions::recover_with`] is the supervisor's: one that its [`options`](Self::options) give is not used.
    /// A child that was asked to stop and fails is not restarted in place.
    ///
    /// When the child ends in any other way (it is done, or terminated, or the new state machine's `init` fails), it
    /// is restarted like any other, under a new PID. It is entered at `"main"` without input.
    pub fn in_place<P: Process>(id: impl Into<Arc<str>>, make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec {
        ChildSpec::starting(id.into(), Arc::new(StartInPlace(Arc::new(Contained::new(make)))))
    }
}
