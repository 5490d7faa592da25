//! An actor as a process.

use std::any::type_name;
use std::fmt;

use super::actions::{Actions, Continuations, go_on};
use super::contract::Actor;
use crate::{BoxError, Event, Events, Exit, Process, Step, StepOutput, StepResult, Upgrade};

/// Makes a process of an actor.
///
/// ```
/// # use procession::actor::{Actions, Actor, actor};
/// # use procession::{BoxError, Runtime};
/// # struct Greeter;
/// # impl Actor for Greeter {
/// #     type Message = &'static str;
/// #     type Output = ();
/// #     fn receive(&mut self, _: &'static str, _: &mut Actions<Self>) -> Result<(), BoxError> { Ok(()) }
/// #     fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> { Ok(()) }
/// # }
/// let runtime = Runtime::builder().workers(1).start()?;
/// let greeter = runtime.spawn(actor(Greeter))?;
/// runtime.send(&greeter, "hello")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn actor<A: Actor>(actor: A) -> ActorProcess<A> {
    ActorProcess { actor, waiting: Continuations::NONE, first: First::Handles }
}

/// An [`Actor`] as a [`Process`], made with [`actor`](actor()).
///
/// Its type in the log and in reports is that of the actor.
pub struct ActorProcess<A: Actor> {
    actor: A,
    waiting: Continuations<A>,
    first: First,
}

/// The task of the first step, after the actor's `start`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// It handles events, as every other step does.
    Handles,
    /// It waits, because a continuation holds messages back. A step that is not after a `Wait` is given messages.
    Waits,
    /// It ends the actor.
    Stops,
}

impl<A: Actor> ActorProcess<A> {
    /// The actor. [`ChildSpec::in_place_with`](crate::supervisor::ChildSpec::in_place_with) lends the process of a
    /// failed actor. With this, the next actor takes a part of its state.
    pub fn actor_mut(&mut self) -> &mut A {
        &mut self.actor
    }
}

impl<A: Actor> Process for ActorProcess<A> {
    type Message = A::Message;
    type Output = A::Output;

    #[inline]
    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        let mut out = Actions::new(out, &mut self.waiting);
        self.actor.start(&mut out)?;
        if out.is_last_of_step() {
            self.first = if out.stops { First::Stops } else { First::Waits };
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, events: &mut Events<'_, A::Message>, out: &mut StepOutput) -> StepResult<A::Output> {
        let mut out = Actions::new(out, &mut self.waiting);
        if self.first != First::Handles {
            out.stops = self.first == First::Stops;
            self.first = First::Handles;
            return after(&mut self.actor, &mut out, Step::Idle);
        }
        for _ in 0..A::MESSAGES_A_STEP.max(1) {
            match events.next() {
                Some(Event::Message(message)) => {
                    out.set_sender(events.sender());
                    self.actor.receive(message, &mut out)?;
                }
                Some(event) => {
                    out.set_sender(None);
                    handle(&mut self.actor, event, &mut out)?;
                }
                None => break,
            }
            if out.is_last_of_step() {
                break;
            }
        }
        after(&mut self.actor, &mut out, Step::Idle)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Upgrade<A::Output>> {
        self.actor.recover(exit).map(|next| Upgrade::to(actor(next)))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.actor.describe(f)
    }

    fn type_name() -> &'static str {
        type_name::<A>()
    }
}

/// Handles an event that is no message.
#[inline(never)]
fn handle<A: Actor>(actor: &mut A, event: Event<A::Message>, out: &mut Actions<'_, A>) -> Result<(), BoxError> {
    match event {
        Event::Cancel(request) => actor.stop(request.into_inner(), out),
        Event::Down(down) => actor.down(down.into_inner(), out),
        Event::Exit(exit) => actor.exit(exit.into_inner(), out),
        Event::Group(event) => actor.group(event.into_inner(), out),
        Event::Completed(completion) => match go_on(actor, &completion, out) {
            Some(result) => result,
            None => actor.other(Event::Completed(completion), out),
        },
        other => actor.other(other, out),
    }
}

/// The result of a step whose callbacks have succeeded.
#[inline]
fn after<A: Actor>(actor: &mut A, out: &mut Actions<'_, A>, next: Step<A::Output>) -> StepResult<A::Output> {
    if out.stops {
        return actor.finish(out).map(Step::Done);
    }
    // A step after `Wait` is given no messages. The command whose answer is awaited is outstanding.
    Ok(if out.holds() { Step::Wait } else { next })
}

impl<A: Actor + fmt::Debug> fmt::Debug for ActorProcess<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActorProcess").field(&self.actor).finish()
    }
}
