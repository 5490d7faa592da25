//! Events that a step lends to the poll of an async process.
//!
//! [`Events`] borrow the mailbox of their process. A future cannot hold such a loan. So for a poll the contents of the
//! events are moved into a value, and moved back after it.

use super::{Event, Events, Kept, Taken};
use crate::pid::Pid;
use crate::process::propagation::defer_span;
use crate::process::reply::Completion;
use crate::process::step_activity::StepActivity;
use crate::sched::mailbox::Mailbox;

/// The contents of the events of one step.
pub(crate) struct LentEvents<M> {
    mailbox: Mailbox<M>,
    rest: Rest<M>,
}

/// The fields of `Events`, except for the mailbox.
struct Rest<M> {
    kept: Option<Box<Kept<M>>>,
    messages: bool,
    budget: u32,
    taken: u64,
    sender: Option<Pid>,
    pid: Pid,
    plain: bool,
}

impl<M> Events<'_, M> {
    /// Moves the contents out. These events are empty until [`take_back`](Self::take_back).
    pub(crate) fn lend(&mut self) -> LentEvents<M> {
        if self.sight.is_some() && self.messages {
            // The watchdog does not see which event a poll takes. Mostly it is this one.
            let kept = self.kept.as_ref().and_then(|kept| kept.older.front());
            let first = kept.map(|kept| &kept.envelope).or(self.mailbox.messages.front()).map(|envelope| envelope.from);
            first.into_iter().for_each(|from| self.note(StepActivity::Message { from }));
        }
        let plain = self.messages && self.kept.is_none();
        let rest = Rest {
            kept: self.kept.take(),
            messages: self.messages,
            budget: self.budget,
            taken: self.taken,
            sender: self.sender,
            pid: self.pid,
            plain,
        };
        LentEvents { mailbox: std::mem::replace(self.mailbox, Mailbox::new()), rest }
    }

    /// Moves the contents back.
    pub(crate) fn take_back(&mut self, lent: LentEvents<M>) {
        let LentEvents { mailbox, rest } = lent;
        // The mailbox here is empty. Forgetting it saves the check for what to drop.
        std::mem::forget(std::mem::replace(self.mailbox, mailbox));
        self.kept = rest.kept;
        (self.budget, self.taken, self.sender) = (rest.budget, rest.taken, rest.sender);
    }

    /// Takes the next control signal that is due.
    pub(crate) fn next_control(&mut self) -> Option<Event<M>> {
        if !self.mailbox.has_signals() || self.is_sealed() {
            return None;
        }
        self.control().map(|control| Box::new(control).into())
    }

    /// Takes the next answer to a command, whatever messages have arrived before it.
    pub(crate) fn next_answer(&mut self) -> Option<Completion> {
        if self.is_traced() {
            return defer_span(|| self.next_traced_answer(false));
        }
        let completion = self.mailbox.signals.as_mut()?.next_completion(false)?;
        self.taken |= super::MORE;
        Some(completion)
    }

    /// Whether the step may take messages.
    pub(crate) fn gives_messages(&self) -> bool {
        self.messages
    }

    /// Takes no message from now on. Control signals no longer wait behind messages.
    pub(crate) fn leave_messages(&mut self) {
        (self.messages, self.plain) = (false, false);
    }

    /// Whether the step may take an event.
    pub(crate) fn has_any(&self) -> bool {
        let has_kept = || self.kept.as_deref().is_some_and(Kept::has_any);
        self.mailbox.has_signals() || self.messages && (!self.mailbox.messages.is_empty() || has_kept())
    }
}

impl<M> LentEvents<M> {
    /// Takes the next event.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Event<M>> {
        let LentEvents { mailbox, rest } = self;
        if !rest.plain || mailbox.signals.is_some() {
            return self.open(|events| events.next());
        }
        // The usual case.
        if rest.budget == 0 {
            return None;
        }
        let envelope = mailbox.messages.pop()?;
        (rest.budget, rest.taken, rest.sender) = (rest.budget - 1, rest.taken + 1, envelope.from);
        Some(Event::Message(envelope.message))
    }

    /// Takes the next event, and passes over messages that are not `wanted`.
    pub(crate) fn select(&mut self, wanted: impl FnMut(&M) -> bool) -> Option<Event<M>> {
        self.open(|events| events.select(wanted))
    }

    /// Offers the messages and the items of feeds again that this step has passed over.
    #[inline]
    pub(crate) fn offer_again(&mut self) {
        let Some(kept) = &mut self.rest.kept else { return };
        self.rest.plain = false;
        kept.offer_again();
        kept.feeds.iter_mut().for_each(|feeds| feeds.end_step());
    }

    /// The sender of the message that was taken last.
    pub(crate) fn sender(&self) -> Option<Pid> {
        self.rest.sender
    }

    fn open<R>(&mut self, run: impl FnOnce(&mut Events<'_, M>) -> R) -> R {
        let LentEvents { mailbox, rest } = self;
        let events = Events {
            mailbox,
            kept: rest.kept.take(),
            messages: rest.messages,
            budget: rest.budget,
            taken: rest.taken,
            sender: rest.sender,
            pid: rest.pid,
            sight: None,
            plain: rest.plain,
        };
        let mut opened = Opened { events, rest };
        if opened.events.is_traced() {
            return defer_span(|| run(&mut opened.events));
        }
        run(&mut opened.events)
    }
}

/// Moves the fields back when it is dropped, also if user code panics.
struct Opened<'a, M> {
    events: Events<'a, M>,
    rest: &'a mut Rest<M>,
}

impl<M> Drop for Opened<'_, M> {
    fn drop(&mut self) {
        let Opened { events, rest } = self;
        rest.kept = events.kept.take();
        let Taken(taken) = events.taken();
        (rest.budget, rest.taken, rest.sender) = (events.budget, taken, events.sender);
    }
}
