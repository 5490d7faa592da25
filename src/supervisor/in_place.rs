//! Children whose state machine is replaced in place when it fails, if their supervisor agrees.
//!
//! Such a child is spawned with [`recover_with`](crate::SpawnOptions::recover_with). Suppose that one of its steps
//! fails, and the child's own [`recover`](crate::Process::recover) returns nothing. Then the function replaces the
//! failed state machine by [`Failed`]. [`Failed`] asks the supervisor whether the child may go on. It returns `Wait`,
//! so messages queue up until the answer. The supervisor answers when the delay is over. Then the child is upgraded
//! to a new state machine of the user's type. The new state machine is given the exits that were delivered in the
//! meantime. If the supervisor drops the question, or asks the child to stop, the child ends with the failure that it
//! had.
//!
//! With [`ChildSpec::in_place_with`], the next state machine is made of the failed one, so at the moment of the
//! failure. Only the failed state machine itself is lent to code then, in [`recover`](crate::Process::recover). So
//! the child is wrapped in [`Replaceable`], which makes the next state machine there. Then it leaves the recovery to
//! the function of `recover_with`, because the supervisor counts a recovery by the child itself in another way.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::contained::{Contained, made};
use super::message::{ChildError, Request, SupervisorMessage};
use super::spec::{ChildSpec, refuse_stored, spawn_child};
use crate::sync::Latch;
use crate::{
    Address, BoxError, EntryArgs, Event, Events, Exit, ExitError, InitResult, Pid, Process, Reason, SpawnError,
    SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};

/// Makes the next state machine of a failed child. A panic in it is returned as its text.
type Make<P> = Box<dyn FnOnce() -> Result<P, String> + Send>;

/// Replaces the state machine of a failed child until the supervisor has answered.
struct Failed<P: Process> {
    /// Taken when the supervisor agrees.
    make: Option<Contained<Make<P>>>,
    supervisor: Address<SupervisorMessage>,
    exit: Exit,
    asked: Option<Tag<()>>,
    /// Set when the child does not go on. Then it does not recover from the failure that follows.
    gives_up: Latch<()>,
    /// Events to give to the next state machine.
    events: Vec<Event<P::Message>>,
}

impl<P: Process> Failed<P> {
    /// Goes on with a new state machine: the supervisor has agreed.
    fn go_on(&mut self) -> StepResult<P::Output> {
        let Some(make) = self.make.take().and_then(Contained::into_inner) else { return self.give_up() };
        match make() {
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

impl<P: Process> Process for Failed<P> {
    type Message = P::Message;
    type Output = P::Output;

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The process {}, and waits for its restart in place.", self.exit)
    }

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
            let (process, make) = (make.get()(), make.clone());
            let next = move || -> Make<P> {
                let make = make.clone();
                Box::new(move || made(|| make.get()()))
            };
            spawn_in_place(out, process, options, next)
        };
        ChildSpec { in_place: true, ..ChildSpec::starting(id.into(), Box::new(start)) }
    }

    /// Describes a child that is restarted in place, and may keep a part of its state.
    ///
    /// Everything is as with [`in_place`](Self::in_place), but `replace` makes the state machine that replaces a
    /// failed one. It is lent the failed state machine and the failure. The failed step may have left the state
    /// machine in an inconsistent state. So take from it only what every step leaves sound, for example a cache, a
    /// connection or a counter.
    ///
    /// `make` makes the state machine for each start with a new PID, and for a restart in place if another state
    /// machine has failed than one that `make` or `replace` has made. That happens after an upgrade, and after a
    /// recovery by [`Process::recover`].
    ///
    /// `replace` is called when the step has failed, and before the failed state machine is closed. So
    /// [`close`](Process::close) sees what `replace` has left. The new state machine begins when the supervisor has
    /// agreed and the delay is over. If the supervisor does not agree, the new state machine is dropped without
    /// having begun.
    ///
    /// If `replace` panics, the child ends with [`ChildError::FactoryPanicked`] when the supervisor has agreed. Then
    /// it is restarted with a new PID, as after a panic of `make`.
    ///
    /// ```
    /// use procession::supervisor::ChildSpec;
    /// use procession::{Event, Events, Process, Step, StepOutput, StepResult};
    /// use std::collections::HashMap;
    ///
    /// #[derive(Default)]
    /// struct Resolver { cache: HashMap<String, u32>, failures: u32 }
    ///
    /// impl Process for Resolver {
    ///     type Message = String;
    ///     type Output = ();
    ///
    ///     fn step(&mut self, events: &mut Events<String>, _: &mut StepOutput) -> StepResult<()> {
    ///         for event in events {
    ///             if let Event::Message(name) = event {
    ///                 let number = name.parse()?;
    ///                 self.cache.insert(name, number);
    ///             }
    ///         }
    ///         Ok(Step::Idle)
    ///     }
    /// }
    ///
    /// let spec = ChildSpec::in_place_with("resolver", Resolver::default, |failed: &mut Resolver, _| Resolver {
    ///     cache: std::mem::take(&mut failed.cache),
    ///     failures: failed.failures + 1,
    /// });
    /// # let _ = spec;
    /// ```
    pub fn in_place_with<P: Process>(
        id: impl Into<Arc<str>>,
        make: impl Fn() -> P + Send + Sync + 'static,
        replace: impl Fn(&mut P, &Exit) -> P + Send + Sync + 'static,
    ) -> ChildSpec {
        let (make, replace) = (Arc::new(Contained::new(make)), Arc::new(Contained::new(replace)));
        let start = move |out: &mut StepOutput, options: SpawnOptions| {
            refuse_stored::<P>(out)?;
            let (sender, receiver) = channel();
            let (replace, make) = (replace.clone(), make.clone());
            let wrap = move |process| Replaceable { process, replace: replace.clone(), next: sender.clone() };
            let process = wrap(make.get()());
            let next = move || -> Make<Replaceable<P, _>> {
                let (wrap, next, make) = (wrap.clone(), receiver.try_recv().ok(), make.clone());
                Box::new(move || next.unwrap_or_else(|| made(|| make.get()())).map(wrap))
            };
            spawn_in_place(out, process, options, next)
        };
        ChildSpec { in_place: true, ..ChildSpec::starting(id.into(), Box::new(start)) }
    }
}

/// Spawns a child that is restarted in place. After each failure, `next` gives the function that makes the next state
/// machine.
fn spawn_in_place<P: Process>(
    out: &mut StepOutput,
    process: P,
    options: SpawnOptions,
    next: impl Fn() -> Make<P> + Send + 'static,
) -> Result<(Pid, Tag<()>), SpawnError> {
    let (supervisor, gives_up) = (out.pid().typed(), Latch::new());
    let options = options.recover_with(move |exit| {
        let (make, gives_up, exit) = (Some(Contained::new(next())), gives_up.clone(), exit.clone());
        let next = Failed { make, supervisor, exit, asked: None, gives_up, events: Vec::new() };
        (!next.gives_up.is_set()).then(|| Upgrade::to(next))
    });
    spawn_child(out, process, options)
}

/// A child whose next state machine is made of the failed one. It does everything as the process in it.
struct Replaceable<P, F> {
    process: P,
    replace: Arc<Contained<F>>,
    /// Takes the next state machine to the function of `recover_with`, which is called right after `recover`.
    next: Sender<Result<P, String>>,
}

impl<P: Process, F: Fn(&mut P, &Exit) -> P + Send + Sync + 'static> Process for Replaceable<P, F> {
    type Message = P::Message;
    type Output = P::Output;

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        self.process.init(entry)
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.process.start(out)
    }

    fn step(&mut self, events: &mut Events<'_, P::Message>, out: &mut StepOutput) -> StepResult<P::Output> {
        self.process.step(events, out)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<P::Output>> {
        if let Some(own) = self.process.recover(exit) {
            return Some(own);
        }
        let _ = self.next.send(made(|| self.replace.get()(&mut self.process, exit)));
        None
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.describe(f)
    }

    fn type_name() -> &'static str {
        P::type_name()
    }

    fn close(&mut self) {
        self.process.close();
    }
}
