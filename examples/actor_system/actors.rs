//! A typed layer of actors on top of processes, in a hundred lines.
//!
//! An actor handles messages of several types, each with its own reply type. A message is sent as a closure that
//! calls the handler, so one process accepts them all.

use std::marker::PhantomData;
use std::time::Duration;

use procession::{BoxError, CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

/// A state that handles messages, one at a time.
pub(crate) trait Actor: Sized + Send + 'static {
    /// Called once, before the first message.
    fn started(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
        Ok(())
    }
}

/// The handler of an actor for messages of one type.
pub(crate) trait Handler<M>: Actor {
    /// The type of the answer.
    type Reply: Send + 'static;

    /// Handles a message. If it returns an error, the actor fails, and the effects that this call has yielded are
    /// dropped.
    fn handle(&mut self, message: M, out: &mut StepOutput) -> Result<Self::Reply, BoxError>;
}

/// A message in transit: the closure to call with the actor when it arrives.
pub(crate) struct Call<A>(Box<Calling<A>>);

type Calling<A> = dyn FnOnce(&mut A, &mut StepOutput) -> Result<(), BoxError> + Send;

impl<A: Actor> Call<A> {
    fn telling<M: Send + 'static>(message: M) -> Call<A>
    where
        A: Handler<M>,
    {
        Call(Box::new(|actor, out| actor.handle(message, out).map(drop)))
    }

    fn asking<M: Send + 'static>(message: M, reply: Reply<A::Reply>) -> Call<A>
    where
        A: Handler<M>,
    {
        Call(Box::new(|actor, out| {
            let answer = actor.handle(message, out)?;
            // The reply is yielded. If the step fails after all, the reply is dropped, and the asker gets an error.
            out.reply(reply, answer);
            Ok(())
        }))
    }
}

/// An actor as a process.
pub(crate) struct Running<A> {
    actor: A,
    started: bool,
}

impl<A: Actor> Running<A> {
    pub(crate) fn new(actor: A) -> Running<A> {
        Running { actor, started: false }
    }
}

impl<A: Actor> Process for Running<A> {
    type Message = Call<A>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Call<A>>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.started, true) {
            self.actor.started(out)?;
        }
        // There is one message in each step, so a failing message fails alone.
        match events.next() {
            Some(Event::Message(Call(call))) => call(&mut self.actor, out)?,
            Some(Event::Cancel(_)) => return Ok(Step::Done(())),
            _ => {}
        }
        Ok(Step::Idle)
    }
}

/// An actor's name, which stays the same when the actor's PID changes.
pub(crate) struct ActorName<A> {
    name: String,
    is: PhantomData<fn(A)>,
}

impl<A: Actor> ActorName<A> {
    pub(crate) fn new(name: impl Into<String>) -> ActorName<A> {
        ActorName { name: name.into(), is: PhantomData }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// Sends a message without a reply.
    pub(crate) fn tell<M: Send + 'static>(&self, runtime: &Runtime, message: M) -> Result<(), BoxError>
    where
        A: Handler<M>,
    {
        Ok(runtime.send(&self.name, Call::<A>::telling(message))?)
    }

    /// Sends a message, and waits for the answer.
    pub(crate) fn ask<M: Send + 'static>(
        &self,
        runtime: &Runtime,
        message: M,
        limit: Duration,
    ) -> Result<A::Reply, CommandError>
    where
        A: Handler<M>,
    {
        runtime.ask(&self.name, |reply| Call::<A>::asking(message, reply), limit).wait()
    }
}
