//! The order in which a step takes its events if messages or commands are traced.
//!
//! A traced event has a step of its own. `sched/trace_marks.rs` has the rules.

use super::{Events, KeptMessage, MORE, Next};
use crate::process::propagation::{TracedEvent, begin_span};
use crate::process::reply::Completion;
use crate::process::step_activity::StepActivity;
use crate::sched::mailbox::{Envelope, Signals};
use crate::sched::trace_marks::{Context, TraceMarks};

impl<M> Events<'_, M> {
    /// Whether contexts of messages or commands are with the process.
    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.mailbox.signals.as_ref().is_some_and(|signals| signals.traces.is_some())
    }

    fn traces(&mut self) -> &mut TraceMarks {
        self.mailbox.signals.get_or_insert_default().traces.get_or_insert_default()
    }

    /// Records that the step takes an event. The step of a traced one has a span.
    fn takes(&mut self, context: Option<Context>, event: TracedEvent) {
        self.traces().takes(context.is_some());
        if let Some(context) = context {
            begin_span(context, event);
        }
    }

    /// As `look`.
    #[cold]
    #[inline(never)]
    pub(super) fn look_traced(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Next {
        if self.kept.as_ref().is_some_and(|kept| kept.tap.is_some()) {
            return self.look_into_all(self.mailbox.has_signals(), wanted);
        }
        self.find_traced(wanted)
    }

    /// As `look_traced`. A tap was taken out.
    pub(super) fn find_traced(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Next {
        if self.traces().is_sealed() {
            return Next::Nothing;
        }
        if let Some(control) = self.control() {
            return Next::Control(Box::new(control));
        }
        let feeds_first = self.messages && self.feeds().is_some_and(|feeds| feeds.is_next);
        if feeds_first && self.find_item(wanted) {
            return Next::Kept;
        }
        let next = if self.messages { self.find_kept(wanted) } else { None };
        if let Some(next) = next.or_else(|| self.find_in_mailbox(wanted)) {
            // The next step begins with what this one may not take.
            if !matches!(next, Next::Nothing) {
                self.feeds().into_iter().for_each(|feeds| feeds.is_next = true);
            }
            return next;
        }
        if self.messages && !feeds_first && self.find_item(wanted) { Next::Kept } else { Next::Nothing }
    }

    /// Looks for an item of a feed. Items have no contexts.
    fn find_item(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> bool {
        let is_found = self.look_into_feeds(wanted);
        if is_found {
            self.traces().takes(false);
        }
        is_found
    }

    /// Looks among the messages that earlier steps passed over.
    fn find_kept(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Option<Next> {
        while let Some(oldest) = self.kept.as_mut().and_then(|kept| kept.older.front_mut()) {
            let KeptMessage { envelope: Envelope { from, message }, context } = oldest;
            let (from, is_traced) = (*from, context.is_some());
            if !may_take(&self.mailbox.signals, is_traced) {
                return Some(Next::Nothing);
            }
            if !wanted(message) {
                let passed = self.kept.as_mut().and_then(|kept| kept.older.pop_front());
                passed.into_iter().for_each(|message| self.pass(message));
                continue;
            }
            let context = self.kept.as_mut().and_then(|kept| kept.older.front_mut()?.context.take());
            if is_traced {
                self.traces().gives_kept();
            }
            self.note(StepActivity::Message { from });
            self.takes(context, message_from::<M>(from));
            return Some(Next::Kept);
        }
        None
    }

    /// Looks among the events of the mailbox.
    fn find_in_mailbox(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Option<Next> {
        while self.budget > 0 {
            if let Some(tag) = self.next_tag(self.messages) {
                if !self.may_take_answer(tag) {
                    return Some(Next::Nothing);
                }
                self.budget -= 1;
                return self.next_traced_answer(self.messages).map(Next::Completed);
            }
            if !self.messages {
                return None;
            }
            let is_traced = self.mailbox.signals.as_mut().is_some_and(|signals| signals.is_marked());
            if !may_take(&self.mailbox.signals, is_traced) {
                // Before the predicate, which is asked once for each message that it may get.
                return Some(Next::Nothing);
            }
            let next = self.mailbox.messages.front()?;
            let from = next.from;
            if !wanted(&next.message) {
                let context = self.mailbox.take_mark();
                let envelope = self.mailbox.pop_message()?;
                self.budget -= 1;
                if context.is_some() {
                    self.traces().keeps_one();
                }
                self.pass(KeptMessage { envelope, context });
                continue;
            }
            let context = self.mailbox.take_mark();
            self.note(StepActivity::Message { from });
            self.takes(context, message_from::<M>(from));
            self.mailbox.signals.iter_mut().for_each(|signals| signals.popped += 1);
            return Some(Next::Message);
        }
        None
    }

    fn next_tag(&self, among_messages: bool) -> Option<u64> {
        self.mailbox.signals.as_ref()?.next_tag(among_messages)
    }

    fn may_take_answer(&mut self, tag: u64) -> bool {
        let traces = self.traces();
        traces.may_take(traces.has_command(tag))
    }

    /// Whether the next answer, whatever messages have arrived before it, is traced.
    pub(crate) fn is_next_answer_traced(&self) -> bool {
        let traces =
            || self.mailbox.signals.as_ref()?.traces.as_ref()?.has_command(self.next_tag(false)?).then_some(());
        traces().is_some()
    }

    /// If this step continues with the traced event of the step before, begins its span. The event counts as taken. So
    /// another step follows if events wait, although this one takes none.
    #[inline]
    pub(crate) fn continue_in_trace(&mut self) {
        if self.is_traced()
            && let Some(context) = self.traces().take_continuation()
        {
            self.taken |= MORE;
            self.takes(Some(context), TracedEvent::Continued);
        }
    }

    /// Whether the step has taken a traced event, or continues with one.
    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        let traces = || self.mailbox.signals.as_ref()?.traces.as_ref();
        traces().is_some_and(|traces| traces.is_sealed())
    }

    /// Takes the next answer, if the step may take it.
    pub(super) fn next_traced_answer(&mut self, among_messages: bool) -> Option<Completion> {
        let tag = self.next_tag(among_messages)?;
        if !self.may_take_answer(tag) {
            return None;
        }
        let completion = self.mailbox.signals.as_mut()?.next_completion(among_messages)?;
        self.taken |= MORE;
        if let Some(sight) = self.sight {
            sight.note(StepActivity::Completed { tag });
        }
        let context = self.traces().take_command(tag);
        self.takes(context, TracedEvent::Completed { tag });
        Some(completion)
    }
}

/// Whether the step may take an event that is traced, or is not.
fn may_take(signals: &Option<Box<Signals>>, is_traced: bool) -> bool {
    let traces = signals.as_ref().and_then(|signals| signals.traces.as_ref());
    traces.is_none_or(|traces| traces.may_take(is_traced))
}

fn message_from<M>(from: Option<crate::pid::Pid>) -> TracedEvent {
    TracedEvent::Message { type_name: std::any::type_name::<M>(), from }
}
