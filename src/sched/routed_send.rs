//! A message of a process to a recipient, which is converted when it has a place in a mailbox.

use std::any::{Any, TypeId, type_name};

use super::mailbox::{AnyMailbox, Overflow};
use super::room_queue::{AnyMessage, Entry, QueuedSend, SendEnd, reasons, result};
use crate::outcome::{Panic, contain, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::recipient::Route;
use crate::process::{Answer, DeadLetter, SendError};

/// A message before its conversion. A message that comes back was not converted.
struct RoutedMessage<T> {
    /// Present until it is converted.
    message: Option<T>,
    route: Arc<dyn Route<T>>,
    from: Pid,
    tag: u64,
}

impl QueuedSend {
    /// A message that a process sends to a recipient with a limit. `tag` is the tag of its command.
    pub(crate) fn to_recipient<T: Send + 'static>(
        from: Pid,
        tag: u64,
        message: T,
        route: Arc<dyn Route<T>>,
    ) -> QueuedSend {
        QueuedSend::new(tag, RoutedMessage { message: Some(message), route, from, tag })
    }
}

impl<T: Send + 'static> AnyMessage for RoutedMessage<T> {
    fn is_plain(&self) -> bool {
        false
    }

    fn is_converted(&self) -> bool {
        true
    }

    fn converts_to(&self) -> Option<(TypeId, &'static str)> {
        Some(self.route.kind())
    }

    fn is_for(&self, mailbox: &dyn AnyMailbox) -> bool {
        self.route.is_for(mailbox)
    }

    fn convert(&mut self) -> Result<QueuedSend, Panic> {
        let (message, route, from) = (self.message.take(), &self.route, self.from);
        contain(|| message.map(|message| route.plain(from, message)))?
            .ok_or_else(|| Panic::new(Box::new("the message was converted before")))
    }

    fn enter(&mut self, _: &mut dyn AnyMailbox, _: Option<Overflow>) -> Entry {
        // Its converted form enters.
        Entry::WrongType
    }

    fn end(
        self: Box<Self>,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)> {
        let (letter, why) = reasons(to, end, self.route.type_name());
        if matches!(end, SendEnd::NoSender(_)) {
            self.bury(&letter, grave);
            return None;
        }
        Some((self.from, self.tag, result(self.message, why)))
    }

    fn handed_back(self: Box<Self>, why: SendError) -> Answer {
        result(self.message, why)
    }

    fn message(&mut self) -> (&mut dyn Any, &'static str) {
        (&mut self.message, type_name::<T>())
    }

    fn type_name(&mut self) -> &'static str {
        self.route.type_name()
    }

    fn bury(self: Box<Self>, letter: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        let shown = self.message.as_ref().map(|message| message as &dyn Any);
        grave(&DeadLetter { from: Some(self.from), type_name: type_name::<T>(), message: shown, ..*letter });
        drop_contained(self);
    }
}
