//! A process whose state machine is replaced in place when it fails, if its supervisor agrees.
//!
//! It is a process around the user's, and has two forms. *Up*, it hands each call on. When a step fails, it
//! [recovers](crate::Process::recover) as *failed*: in this form it asks its supervisor whether it may go on, and says
//! `Wait`, so that messages queue up meanwhile. The answer comes when the delay is over, and it is replaced by a new one of
//! the first form. If the question is dropped (the restarts are exhausted, or the supervisor has ended), it ends with the
//! failure that it had.

use std::sync::Arc;
use std::time::Duration;

use super::contained::Contained;
use super::message::{InPlaceFailed, SupervisorMessage};
use super::spec::{ChildSpec, Start};
use crate::Address;
use crate::Entry;
use crate::Event;
use crate::Events;
use crate::Exit;
use crate::InitResult;
use crate::Pid;
use crate::Process;
use crate::SpawnError;
use crate::SpawnOptions;
use crate::Step;
use crate::StepOutput;
use crate::StepResult;
use crate::Tag;
use crate::Upgrade;

pub(super) struct InPlace<P, F> {
    make: Arc<Contained<F>>,
    supervisor: Address<SupervisorMessage>,
    form: Form<P>,
}

enum Form<P> {
    Up(P),
    Failed { exit: Exit, go_on: Option<Tag<()>> },
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> InPlace<P, F> {
    pub(super) fn new(make: Arc<Contained<F>>, supervisor: Address<SupervisorMessage>) -> InPlace<P, F> {
        let form = Form::Up(make.get()());
        InPlace { make, supervisor, form }
    }
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> Process for InPlace<P, F> {
    type Message = P::Message;
    type Output = P::Output;

    fn init(&mut self, entry: Entry) -> InitResult {
        match &mut self.form {
            Form::Up(process) => process.init(entry),
            Form::Failed { .. } => Ok(()),
        }
    }

    fn step(&mut self, events: &mut Events<'_, P::Message>, out: &mut StepOutput) -> StepResult<P::Output> {
        let (exit, go_on) = match &mut self.form {
            Form::Up(process) => return process.step(events, out),
            Form::Failed { exit, go_on } => (exit, go_on),
        };
        let Some(asked) = *go_on else {
            let (pid, exit) = (out.pid(), exit.clone());
            let question = |reply| SupervisorMessage::in_place_failed(InPlaceFailed { pid, exit, reply });
            *go_on = Some(out.ask(self.supervisor, question, Duration::MAX));
            return Ok(Step::Wait);
        };
        // Messages are not given to a step after `Wait`; whatever else comes is not for a process that has failed.
        for event in events {
            match event {
                Event::Completed(done) if done.is(asked) => {
                    if done.take(asked).is_some_and(|answer| answer.is_ok()) {
                        let next = InPlace::new(self.make.clone(), self.supervisor);
                        return Ok(Step::Upgrade(Upgrade::to(next)));
                    }
                    return Err(Box::new(exit.clone().into_result().err().unwrap_or_else(unlikely)));
                }
                Event::Cancel(_) => return Err(Box::new(exit.clone().into_result().err().unwrap_or_else(unlikely))),
                _ => {}
            }
        }
        Ok(Step::Wait)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<P::Output>> {
        let failed = Form::Failed::<P> { exit: exit.clone(), go_on: None };
        match self.form {
            Form::Up(_) => {
                let next = InPlace { make: self.make.clone(), supervisor: self.supervisor, form: failed };
                Some(Upgrade::to(next))
            }
            // The factory has panicked.
            Form::Failed { .. } => None,
        }
    }

    fn close(&mut self) {
        if let Form::Up(process) = &mut self.form {
            process.close();
        }
    }
}

struct StartInPlace<F>(Arc<Contained<F>>);

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> Start for StartInPlace<F> {
    fn start(&self, out: &mut StepOutput, options: SpawnOptions) -> Result<(Pid, Tag<()>), SpawnError> {
        let supervisor: Address<SupervisorMessage> = out.pid().typed();
        let process = InPlace::new(self.0.clone(), supervisor);
        let (address, begun) = out.spawn_linked_begun(process, options).map_err(|refused| refused.into_parts().1)?;
        Ok((address.pid(), begun))
    }
}

impl ChildSpec {
    /// A child that is restarted *in place*: when it fails or panics, its state machine is replaced under the same PID, with its
    /// mailbox, names, monitors and links. Of the messages only those are lost (as dead letters) that the failing step had
    /// taken. Such a restart counts like any other, has the same delays, and is the child's alone, whatever the strategy. What it
    /// is told of others during a delay (ends, groups, answers) is not told the new one, which has asked for none of it.
    ///
    /// When it ends in any other way (it is done, or terminated, or the new state machine's `init` fails), it is restarted
    /// like any other, under a new PID. It is entered at `"main"` without input.
    pub fn in_place<P: Process>(id: impl Into<Arc<str>>, make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec {
        ChildSpec::starting(id.into(), Arc::new(StartInPlace(Arc::new(Contained::new(make)))))
    }
}

/// One that has failed is not done.
fn unlikely() -> crate::ExitError {
    crate::ExitError::Terminated(crate::Reason::Terminated)
}
