//! The contexts of traced messages and commands of one process.
//!
//! A traced message has a *mark*: its context, and its place among the messages, counted as the places of completions
//! are (`signals.rs`). The mark is put into the mailbox under the same lock as the message. It is no event: it wakes
//! nobody, counts under no bound, and is given to no step. Messages without a context have no mark, and a mailbox
//! without marks has no memory for them. So a runtime without a propagator has none of this.
//!
//! The context of a command stays with the process that has yielded it, under the tag of the command, until a step
//! takes the answer.
//!
//! **A traced event has a step of its own.** `Events` decides this when a step takes an event:
//!
//! | the step has taken | the next event is plain | the next event is traced |
//! |---|---|---|
//! | nothing, or control signals | given: *has taken* | given, and its span begins: *sealed* |
//! | plain events | given | the step is given nothing more |
//! | a traced event (*sealed*) | the step is given nothing more | the same |
//!
//! Events that a step is not given are left, as those beyond its share are. So the process is stepped again at once,
//! and no event is lost or overtaken. A message that a step passes over takes its context along. Control signals come
//! first. They do not count as taken: otherwise, a flood of them would keep a traced message waiting.
//!
//! The span of a step is current on its thread until the step has returned. So the yields of the step, which are
//! written in between, get its context from the propagator. A failed step drops its yields with their contexts.

use std::collections::{HashMap, VecDeque};

use crate::outcome::drop_contained;
use crate::primitives::Arc;
use crate::process::propagation::{Propagator, TraceContext, current};

/// The context of a message or a command.
pub(crate) type Context = Arc<dyn TraceContext>;

/// The context of a message that waits elsewhere. Its destructor is the user's code, so a panic in it is contained.
#[derive(Clone, Default)]
pub(crate) struct MessageTrace(Option<Context>);

impl MessageTrace {
    pub(crate) fn new(context: Option<Context>) -> MessageTrace {
        MessageTrace(context)
    }

    pub(crate) fn take(&mut self) -> Option<Context> {
        self.0.take()
    }

    pub(crate) fn get(&self) -> Option<&Context> {
        self.0.as_ref()
    }
}

impl Drop for MessageTrace {
    fn drop(&mut self) {
        if let Some(context) = self.0.take() {
            drop_contained(context);
        }
    }
}

/// The marks of a mailbox.
#[derive(Default)]
pub(crate) struct TraceMarks {
    /// The contexts of messages, in the order of their places.
    messages: VecDeque<(u64, Context)>,
    /// The contexts of commands, by their tags.
    commands: HashMap<u64, Context>,
    /// The trace in which the next step continues with the event of the last one.
    continues: Option<Context>,
    /// Contexts whose messages are gone. The owner of the body drops them, because a destructor is the user's code.
    gone: Vec<Context>,
    /// Whether the step has taken an event.
    has_taken: bool,
    /// Whether that was a traced one.
    is_sealed: bool,
    /// The number of traced messages among those that were passed over. They have their contexts with them.
    kept: usize,
}

impl TraceMarks {
    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.commands.is_empty()
            && self.gone.is_empty()
            && self.kept == 0
            && self.continues.is_none()
    }

    /// Records that a step begins, or is over.
    pub(crate) fn next_step(&mut self) {
        (self.has_taken, self.is_sealed) = (false, false);
        std::mem::take(&mut self.gone).into_iter().for_each(drop_contained);
    }

    /// The next step continues in this trace.
    pub(crate) fn continue_in(&mut self, context: Context) {
        let before = self.continues.replace(context);
        self.gone.extend(before);
    }

    /// Takes the trace in which a step continues.
    pub(crate) fn take_continuation(&mut self) -> Option<Context> {
        self.continues.take()
    }

    /// Records that a traced message is passed over.
    pub(crate) fn keeps_one(&mut self) {
        self.kept += 1;
    }

    /// Records that a traced message that was passed over is given to a step, or has left.
    pub(crate) fn gives_kept(&mut self) {
        self.kept = self.kept.saturating_sub(1);
    }

    /// Marks the message at this place, which is the last one.
    pub(crate) fn mark(&mut self, place: u64, context: Context) {
        self.messages.push_back((place, context));
    }

    /// Notes the context of a command.
    pub(crate) fn note_command(&mut self, tag: u64, context: Option<Context>) {
        let before = match context {
            Some(context) => self.commands.insert(tag, context),
            None => self.commands.remove(&tag),
        };
        self.gone.extend(before);
    }

    /// Whether the step may take this event now. If not, the step is given nothing more.
    pub(crate) fn may_take(&self, is_traced: bool) -> bool {
        !(self.is_sealed || is_traced && self.has_taken)
    }

    /// Whether the step is given nothing more.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Records that the step has taken an event.
    pub(crate) fn takes(&mut self, is_traced: bool) {
        self.has_taken = true;
        self.is_sealed |= is_traced;
    }

    /// Whether the message at this place is traced. All messages before it have been taken.
    pub(crate) fn is_marked(&mut self, place: u64) -> bool {
        while self.messages.front().is_some_and(|(marked, _)| *marked < place) {
            self.gone.extend(self.messages.pop_front().map(|(_, context)| context));
        }
        self.messages.front().is_some_and(|(marked, _)| *marked == place)
    }

    /// Takes the context of the message at this place.
    pub(crate) fn take(&mut self, place: u64) -> Option<Context> {
        if self.is_marked(place) { self.messages.pop_front().map(|(_, context)| context) } else { None }
    }

    /// Whether a command is traced.
    pub(crate) fn has_command(&self, tag: u64) -> bool {
        self.commands.contains_key(&tag)
    }

    /// The context of a command.
    pub(crate) fn command(&self, tag: u64) -> Option<&Context> {
        self.commands.get(&tag)
    }

    /// Takes the context of a command.
    pub(crate) fn take_command(&mut self, tag: u64) -> Option<Context> {
        self.commands.remove(&tag)
    }

    /// Forgets the commands of a state machine that has failed.
    pub(crate) fn forget_commands(&mut self) {
        self.gone.extend(self.commands.drain().map(|(_, context)| context));
    }

    /// Takes out the marks of the messages from this place on, if there are any. It moves the others, which are the
    /// share of a step: very many may wait.
    pub(crate) fn split_off(&mut self, place: u64) -> Option<Box<TraceMarks>> {
        let first = self.messages.partition_point(|(marked, _)| *marked < place);
        if first == self.messages.len() {
            return None;
        }
        let mut messages = std::mem::take(&mut self.messages);
        self.messages.extend(messages.drain(..first));
        Some(Box::new(TraceMarks { messages, ..TraceMarks::default() }))
    }

    /// Changes the places of the messages. Those for which there is no new place are gone.
    pub(crate) fn move_messages(&mut self, place: impl Fn(u64) -> Option<u64>) {
        for (old, context) in std::mem::take(&mut self.messages) {
            match place(old) {
                Some(new) => self.messages.push_back((new, context)),
                None => self.gone.push(context),
            }
        }
    }

    /// Puts the marks of messages that were passed over in front of all others. They stand at the first places.
    pub(crate) fn put_in_front(&mut self, first: Vec<(u64, Context)>) {
        self.kept = 0;
        first.into_iter().rev().for_each(|mark| self.messages.push_front(mark));
    }

    /// Drops each context by itself, because a destructor is the user's code.
    pub(crate) fn drop_each(self) {
        let TraceMarks { messages, commands, continues, gone, .. } = self;
        drop_contained(continues);
        messages.into_iter().for_each(drop_contained);
        commands.into_iter().for_each(drop_contained);
        gone.into_iter().for_each(drop_contained);
    }

    /// Puts other marks behind these. Their places have been changed.
    pub(crate) fn absorb(&mut self, mut other: TraceMarks) {
        self.messages.append(&mut other.messages);
        self.commands.extend(other.commands.drain());
        self.gone.append(&mut other.gone);
        self.kept += other.kept;
        self.continues = self.continues.take().or(other.continues);
    }
}

/// The contexts of the yields of one step, in a runtime with a propagator.
pub(crate) struct TracedYields {
    propagator: Arc<dyn Propagator>,
    /// The contexts of the commands that the step has yielded, with their tags.
    pub(crate) commands: Vec<(u64, Option<Context>)>,
    /// The trace in which the next step of the process continues with the event of this one.
    pub(crate) continues: Option<Context>,
}

impl TracedYields {
    pub(crate) fn new(propagator: Arc<dyn Propagator>) -> TracedYields {
        TracedYields { propagator, commands: Vec::new(), continues: None }
    }

    /// The context in which the calling thread runs.
    pub(crate) fn current(&self) -> Option<Context> {
        current(&*self.propagator)
    }

    /// Drops the contexts of a step that has failed.
    pub(crate) fn clear(&mut self) {
        self.commands.drain(..).for_each(drop_contained);
        drop_contained(self.continues.take());
    }

    /// Notes the context of a command.
    pub(crate) fn note_command(&mut self, tag: u64) {
        if let Some(context) = self.current() {
            self.commands.push((tag, Some(context)));
        }
    }
}
