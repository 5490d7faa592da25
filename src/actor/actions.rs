//! The output of an actor's step, and the continuations of its commands.
//!
//! A continuation is a closure that handles the answer to a command. It is in the actor's process from the step that
//! makes it until its answer. So it needs no lock. If the step fails, the process is replaced or ends, and its
//! continuations are dropped with it.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::supervisor::contained::Contained;
use crate::{BoxError, CommandError, Completion, Pid, StepOutput, Tag};

/// The output to which a callback of an actor writes its effects.
///
/// It has all methods of [`StepOutput`], and a few for actors alone. A command that returns a [`Tag`] may
/// be followed by [`Tag::then`](crate::Tag::then), which handles its answer.
///
/// The runtime performs the effects in order, when the step has succeeded.
pub struct Actions<'a, A> {
    out: &'a mut StepOutput,
    waiting: &'a mut Continuations<A>,
    sender: Option<Pid>,
    pub(super) stops: bool,
}

impl<'a, A> Actions<'a, A> {
    #[inline]
    pub(super) fn new(out: &'a mut StepOutput, waiting: &'a mut Continuations<A>) -> Actions<'a, A> {
        Actions { out, waiting, sender: None, stops: false }
    }

    /// Sets the sender of the event that is handled next.
    #[inline]
    pub(super) fn set_sender(&mut self, sender: Option<Pid>) {
        self.sender = sender;
    }

    /// The sender of the message that is being handled. `None` if it was sent from outside, or if the event is no
    /// message.
    pub fn sender(&self) -> Option<Pid> {
        self.sender
    }

    /// Ends the actor when this callback has succeeded. [`Actor::finish`](super::Actor::finish) returns its output.
    ///
    /// Messages that wait become dead letters. Continuations that wait are dropped.
    pub fn stop(&mut self) {
        self.stops = true;
    }

    /// Whether the step may handle no further event: the actor ends, or waits for an answer.
    #[inline]
    pub(super) fn is_last_of_step(&self) -> bool {
        self.stops || self.holds()
    }

    /// Whether a continuation holds messages back.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.waiting.0.as_ref().is_some_and(|waiting| waiting.holding > 0)
    }
}

impl<A> Deref for Actions<'_, A> {
    type Target = StepOutput;

    #[inline]
    fn deref(&self) -> &StepOutput {
        self.out
    }
}

impl<A> DerefMut for Actions<'_, A> {
    #[inline]
    fn deref_mut(&mut self) -> &mut StepOutput {
        self.out
    }
}

impl<A> fmt::Debug for Actions<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").field("actor", &type_name::<A>()).field("stops", &self.stops).finish_non_exhaustive()
    }
}

/// The continuations of an actor that wait for their answers. An actor without any needs one word for them.
pub(super) struct Continuations<A>(Option<Box<Waiting<A>>>);

struct Waiting<A> {
    /// By the number of the tag.
    by_tag: BTreeMap<u64, Continuation<A>>,
    /// The number of continuations that hold messages back.
    holding: usize,
}

struct Continuation<A> {
    /// The destructor of a captured value may panic.
    call: Contained<Box<Call<A>>>,
    holds: bool,
}

type Call<A> = dyn FnOnce(&mut A, &Completion, &mut Actions<'_, A>) -> Result<(), BoxError> + Send;

impl<A> Continuations<A> {
    pub(super) const NONE: Continuations<A> = Continuations(None);

    fn insert(&mut self, tag: u64, call: Box<Call<A>>, holds: bool) {
        let new = || Box::new(Waiting { by_tag: BTreeMap::new(), holding: 0 });
        let waiting = self.0.get_or_insert_with(new);
        waiting.holding += usize::from(holds);
        if let Some(old) = waiting.by_tag.insert(tag, Continuation { call: Contained::new(call), holds }) {
            waiting.holding -= usize::from(old.holds);
        }
    }

    fn remove(&mut self, tag: u64) -> Option<Box<Call<A>>> {
        let waiting = self.0.as_mut()?;
        let Continuation { call, holds } = waiting.by_tag.remove(&tag)?;
        waiting.holding -= usize::from(holds);
        if waiting.by_tag.is_empty() {
            self.0 = None;
        }
        call.into_inner()
    }
}

/// Calls the continuation of an answer. Returns `None` if there is none.
pub(super) fn go_on<A>(
    actor: &mut A,
    completion: &Completion,
    out: &mut Actions<'_, A>,
) -> Option<Result<(), BoxError>> {
    let call = out.waiting.remove(completion.tag())?;
    Some(call(actor, completion, out))
}

/// Continuations of actors.
impl<T: Send + 'static> Tag<T> {
    /// Calls `then` with the answer to this command, once. `then` gets the actor, the answer, and the output of the
    /// step that handles the answer. The continuations of an actor are called in the order of their answers.
    ///
    /// Call this in the step that has yielded the command. The continuation waits in the actor. If the step fails, or
    /// if the actor ends or is replaced, the continuation is dropped. A second call for the same tag replaces the
    /// first continuation. If `then` returns an error, the actor fails with it.
    ///
    /// The actor takes messages while the continuation waits. See [`then_holding`](Self::then_holding) for a
    /// continuation that holds them back.
    ///
    /// ```
    /// use procession::actor::{Actions, Actor};
    /// use procession::{Address, BoxError, Reply};
    /// use std::time::Duration;
    ///
    /// enum BankMessage { Balance(Reply<u64>) }
    ///
    /// struct Shop { name: String, bank: Address<BankMessage> }
    ///
    /// struct Buy { price: u64, receipt: Reply<String> }
    ///
    /// impl Actor for Shop {
    ///     type Message = Buy;
    ///     type Output = ();
    ///
    ///     fn receive(&mut self, Buy { price, receipt }: Buy, out: &mut Actions<Self>) -> Result<(), BoxError> {
    ///         out.ask(self.bank, BankMessage::Balance, Duration::from_secs(1)).then(out, move |shop, balance, out| {
    ///             let text = if balance? >= price { "sold by" } else { "too expensive at" };
    ///             out.reply(receipt, format!("{text} {}", shop.name));
    ///             Ok(())
    ///         });
    ///         Ok(())
    ///     }
    ///
    ///     fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
    ///         Ok(())
    ///     }
    /// }
    /// ```
    pub fn then<A, F>(self, out: &mut Actions<'_, A>, then: F)
    where
        A: 'static,
        F: FnOnce(&mut A, Result<T, CommandError>, &mut Actions<'_, A>) -> Result<(), BoxError> + Send + 'static,
    {
        self.follow(out, then, false);
    }

    /// Like [`then`](Self::then), but the actor takes no message before the answer. Messages wait in the mailbox, in
    /// order. Control signals and the answers to other commands are handled in the meantime.
    ///
    /// So the command needs a limit. If the answer never comes, the actor never takes a message again.
    pub fn then_holding<A, F>(self, out: &mut Actions<'_, A>, then: F)
    where
        A: 'static,
        F: FnOnce(&mut A, Result<T, CommandError>, &mut Actions<'_, A>) -> Result<(), BoxError> + Send + 'static,
    {
        self.follow(out, then, true);
    }

    fn follow<A, F>(self, out: &mut Actions<'_, A>, then: F, holds: bool)
    where
        A: 'static,
        F: FnOnce(&mut A, Result<T, CommandError>, &mut Actions<'_, A>) -> Result<(), BoxError> + Send + 'static,
    {
        let call = move |actor: &mut A, completion: &Completion, out: &mut Actions<'_, A>| {
            completion.take(self).map_or(Ok(()), |answer| then(actor, answer, out))
        };
        out.waiting.insert(self.id(), Box::new(call), holds);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_actor_keeps_nothing_of_its_last_continuation() {
        let mut waiting = Continuations::<()>::NONE;
        for tag in [1, 2] {
            waiting.insert(tag, Box::new(|_, _, _| Ok(())), tag == 1);
        }
        assert!(waiting.remove(1).is_some() && waiting.0.is_some());
        assert!(waiting.remove(2).is_some() && waiting.0.is_none());
    }
}
