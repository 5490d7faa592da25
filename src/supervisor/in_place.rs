//! Children whose state machine is replaced in place when it fails, if their supervisor agrees.
//!
//! Such a child is spawned with [`recover_with`](crate::SpawnOptions::recover_with). Suppose that one of its steps
//! fails, and the child's own [`recover`](crate::Process::recover) returns nothing. Then the function replaces the
//! failed state machine by [`Failed`]. [`Failed`] asks the supervisor whether the child may go on. It returns `Wait`,
//! so messages queue up until the answer. The supervisor answers when the delay is over. Then the child is upgraded
//! to a new state machine of the user's type. The new state machine is given the exits that were delivered in the
//! meantime. If the supervisor drops the question, or asks the child to stop, the child ends with the failure that it
//! had.

use std::sync::Arc;
use std::time::Duration;

use super::contained::{Contained, made};
use super::message::{ChildError, Request, SupervisorMessage};
use super::spec::{ChildSpec, spawn_child};
use crate::sync::Latch;
use crate::{
    Address, Event, Events, Exit, ExitError, Process, Reason, SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};

/// Replaces the state machine of a failed child until the supervisor has answered.
struct Failed<P: Process, F> {
    make: Arc<Contained<F>>,
    supervisor: Address<SupervisorMessage>,
    exit: Exit,
    asked: Option<Tag<()>>,
    /// Set when the child does not go on. Then it does not recover from the failure that follows.
    gives_up: Latch<()>,
    /// Events to give to the next state machine.
    events: Vec<Event<P::Message>>,
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> Failed<P, F> {
    /// Goes on with a new state machine: the supervisor has agreed.
    fn go_on(&mut self) -> StepResult<P::Output> {
        match made(|| self.make.get()()) {
            Ok(next) => Ok(Step::Upgrade(Upgrade::to(next).giving_back(std::mem::take(&mut self.events)))),
            Err(message) => {
                let _ = self.gives_up.set(());
                Err(ChildError::FactoryPanicked { message }.into())
            }
        }
    }

    /// Ends the child with the failure that it had.
    fn give_up(&self) -> StepResult<P::Output> {
        let _ = self.gives_up.set(());
        let error = self.exit.clone().into_result().err();
        // A child that has failed must not end as done.
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
            let question = |reply| SupervisorMessage { request: Request::InPlaceFailed(pid, exit, reply) };
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

impl ChildSpec {
    /// Describes a child that is restarted *in place*: under the same PID.
    ///
    /// When the child fails or panics, its state machine is replaced. The page of [`Process::recover`] lists what stays
    /// and what ends. Only the messages that the failing step had taken are lost. They become dead letters.
    ///
    /// Such a restart counts toward the limit of restarts, and has the same delays. It does not trigger the strategy:
    /// no other child is restarted. If the strategy restarts this child because another child has failed, this child
    /// gets a new PID.
    ///
    /// When a step fails, the child's own [`Process::recover`] is called first. The supervisor sets
    /// [`SpawnOptions::recover_with`] itself. So a function that the child's [`options`](Self::options) set there is
    /// not used. If the child was asked to stop and then fails, it is not restarted in place.
    ///
    /// The new state machine begins with the entry method `"main"` and without input. An entry that the child's
    /// [`options`](Self::options) set is only for starts with a new PID.
    ///
    /// If the child is done, is terminated, or the `init` of its new state machine fails, it is restarted like any
    /// other child, with a new PID.
    pub fn in_place<P: Process>(id: impl Into<Arc<str>>, make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec {
        let make = Arc::new(Contained::new(make));
        let start = move |out: &mut StepOutput, options: SpawnOptions| {
            let (make, supervisor, gives_up) = (make.clone(), out.pid().typed(), Latch::new());
            let process = make.get()();
            let options = options.recover_with(move |exit| {
                let (make, gives_up, exit) = (make.clone(), gives_up.clone(), exit.clone());
                let next = Failed { make, supervisor, exit, asked: None, gives_up, events: Vec::new() };
                (!next.gives_up.is_set()).then(|| Upgrade::to(next))
            });
            spawn_child(out, process, options)
        };
        ChildSpec { in_place: true, ..ChildSpec::starting(id.into(), Box::new(start)) }
    }
}
