//! Hands messages over to processes that live elsewhere.

use std::any::{Any, type_name};

#[cfg(feature = "cluster")]
use super::bounded_mailbox::Bounds;
#[cfg(feature = "cluster")]
use super::cell::Missed;
use super::counters::Counters;
#[cfg(feature = "cluster")]
use super::mailbox::AnyMailbox;
#[cfg(feature = "cluster")]
use super::non_local::Waiter;
use super::non_local::{AnyMessage, NeedsRoom, NonLocal, Settled};
use super::outbox::Lane;
#[cfg(feature = "cluster")]
use super::road::OutsideExecutor;
use super::road::Road;
use super::room_queue::{QueuedSend, SendEnd};
use super::trace_marks::{Context, MessageTrace};
use crate::clock::{Clock, Deadline};
use crate::outcome::{Rejected, drop_contained};
#[cfg(feature = "cluster")]
use crate::process::NodeError;
use crate::process::propagation::with_trace;
use crate::process::recipient::Route;
use crate::process::{Answer, DeadLetter, DeadLetterReason, Pid, SendError};
use crate::sched::outbox::{Outbox, Popped};

impl Road {
    /// The seam, if this PID is one of another node and there is a seam.
    #[inline]
    pub(crate) fn elsewhere(&self, pid: Pid) -> Option<&dyn NonLocal> {
        if pid.node() == self.table.node() { None } else { self.find_elsewhere(pid) }
    }

    /// The store, or the other nodes.
    #[cold]
    fn find_elsewhere(&self, pid: Pid) -> Option<&dyn NonLocal> {
        #[cfg(feature = "cluster")]
        if let Some(nodes) = self.nodes.get()
            && nodes.has_node(pid.node())
        {
            return Some(&**nodes);
        }
        let _ = pid;
        self.non_local.get().map(|other| &**other)
    }

    /// The other nodes, if this PID is one of theirs.
    #[cfg(feature = "cluster")]
    #[inline]
    pub(crate) fn node_of(&self, pid: Pid) -> Option<&dyn NonLocal> {
        let nodes = self.nodes.get().filter(|nodes| pid.node() != self.table.node() && nodes.has_node(pid.node()));
        nodes.map(|nodes| &**nodes)
    }

    /// Delivers a message of another node. `dead` is called before it is reported as a dead letter.
    #[cfg(feature = "cluster")]
    pub(crate) fn deliver_from_elsewhere(
        &self,
        lane: &mut dyn Lane,
        (from, to): (Option<Pid>, Pid),
        dead: impl FnMut(&DeadLetter<'_>),
    ) {
        let executor = &mut OutsideExecutor { road: self };
        self.outside.add(&self.outside.accepted, 1);
        if let Some(store) = self.elsewhere(to) {
            return self.hand_over(store, &self.outside, (lane, 1), (from, to), dead);
        }
        let cell = self.table.cell(to).ok_or(Missed::NoSuchProcess);
        let is_measured = self.is_next_measured();
        let fill = |mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>| {
            let more = lane.fill(1, from, mailbox, bounds)?;
            self.mark_wait(mailbox, is_measured && more == 1);
            Some(more)
        };
        let posted = cell.and_then(|cell| cell.post(to, fill));
        let missed = match posted {
            Ok((ready, _)) => {
                ready.into_iter().for_each(|ready| self.inject(ready));
                None
            }
            Err(missed) => Some(missed),
        };
        if missed.is_some() || lane.settle() {
            self.bury_missed(executor, lane, 1, (from, to), missed, dead);
        }
    }

    /// Tells the other nodes that they are to give no more work to this one. Returns the calls that may run code of
    /// users.
    #[cfg(feature = "cluster")]
    pub(crate) fn close_nodes(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.nodes.get()?.closes()
    }

    /// Leaves the other nodes. Until the deadline, waits until they have everything.
    #[cfg(feature = "cluster")]
    pub(crate) fn leave_nodes(&self, clock: &Clock, deadline: Deadline) {
        if let Some(nodes) = self.nodes.get() {
            nodes.settle(clock, deadline);
        }
    }

    /// Waits until everything that the processes have done is stored elsewhere.
    pub(crate) fn settle_elsewhere(&self, clock: &Clock, deadline: Deadline) -> Settled {
        self.non_local.get().map_or_else(Settled::default, |other| other.settle(clock, deadline))
    }

    /// The process elsewhere that has this name.
    pub(crate) fn named_elsewhere(&self, name: &str) -> Option<Pid> {
        self.non_local.get()?.whereis(name)
    }

    /// Hands the first `count` messages of a lane over to their receiver elsewhere. Those that it refuses are dead
    /// letters. `dead` is called with each of them before it is reported.
    #[cold]
    pub(super) fn hand_over(
        &self,
        elsewhere: &dyn NonLocal,
        counters: &Counters,
        (lane, count): (&mut dyn Lane, u32),
        (from, to): (Option<Pid>, Pid),
        mut dead: impl FnMut(&DeadLetter<'_>),
    ) {
        for _ in 0..count {
            let Some(Popped { message, type_name, trace }) = lane.pop() else { break };
            match self.post_elsewhere(elsewhere, (from, to), message, trace.get()) {
                // It was counted as accepted, and is counted where it has gone.
                Ok(()) => counters.take_back(&counters.accepted, 1),
                Err(refused) => self.bury_refused(counters, (from, to), refused, (type_name, trace.get()), &mut dead),
            }
        }
        lane.settle();
    }

    /// Reports a message that was refused when it was handed over.
    fn bury_refused(
        &self,
        counters: &Counters,
        (from, to): (Option<Pid>, Pid),
        (message, why): (AnyMessage, SendError),
        (type_name, trace): (&'static str, Option<&Context>),
        mut dead: impl FnMut(&DeadLetter<'_>),
    ) {
        let why = with_type(why, type_name);
        let (reason, takes) = why_refused(&why);
        let shown = Some(&*message as &dyn Any);
        let dead_letter = DeadLetter { from, ..DeadLetter::new(to, reason) };
        let letter = DeadLetter { type_name, takes, message: shown, refused: Some(&why), ..dead_letter };
        with_trace(trace.map(|trace| &**trace), &letter, |letter| {
            dead(letter);
            self.dead_letter(counters, letter);
        });
        drop_contained(message);
    }

    /// Hands one message over. If there is no room, and a process of this runtime has sent it, it is taken, and the
    /// process is held.
    fn post_elsewhere(
        &self,
        elsewhere: &dyn NonLocal,
        (from, to): (Option<Pid>, Pid),
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        let posted = elsewhere.post(from, to, message, trace);
        #[cfg(feature = "cluster")]
        if let (Err((_, SendError::Node { why: NodeError::Busy, .. })), Some(from)) = (&posted, from) {
            return posted.or_else(|refused| self.hold_sender(elsewhere, (from, to), refused, trace));
        }
        posted
    }

    /// Sends a refused message as one that needs no room, and holds its sender. The sender is held, too, if the message
    /// is refused again. A durable sender is held through the process of the runtime that steps it. If that process has
    /// left memory, nothing is held.
    #[cfg(feature = "cluster")]
    fn hold_sender(
        &self,
        elsewhere: &dyn NonLocal,
        (from, to): (Pid, Pid),
        (message, why): (AnyMessage, SendError),
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        let local = self.in_memory(from);
        if local.is_some() && !self.may_be_held(from) {
            return Err((message, why));
        }
        let posted = elsewhere.post_in_turn(None, Some(from), to, message, trace);
        let sender = match &posted {
            Ok(()) => Some(from),
            Err((_, SendError::Node { why: NodeError::Busy, .. })) => None,
            Err(_) => return posted,
        };
        if let Some(local) = local {
            self.hold(local, |pid| elsewhere.wait_for_room(to, Waiter::Process { pid, sender }));
        }
        posted
    }

    /// Holds the process `from`, whose answer has no room at the node of the PID `there`, if the process may be held.
    #[cfg(feature = "cluster")]
    pub(crate) fn hold_for_answers(&self, from: Pid, there: Pid) {
        if let Some(nodes) = self.nodes.get()
            && let Some(local) = self.in_memory(from)
            && self.may_be_held(from)
        {
            self.hold(local, |pid| nodes.wait_for_room(there, Waiter::Answers { pid }));
        }
    }

    /// Holds a process after its step. `wait` adds it to the processes that wait for room.
    #[cfg(feature = "cluster")]
    fn hold(&self, local: Pid, wait: impl FnOnce(Pid)) {
        if let Some(cell) = self.table.cell(local) {
            // The process is marked before it is among those that wait, so that `Room` finds the mark.
            cell.hold_after_step(local);
            wait(local);
        }
    }

    /// A process is held no longer, because there is room.
    #[cfg(feature = "cluster")]
    pub(crate) fn let_go(&self, pid: Pid) {
        let ready = self.table.cell(pid).and_then(|cell| cell.let_go(pid));
        ready.into_iter().for_each(|ready| self.inject(ready));
    }

    /// A sender outside waits no longer for room at the node of this PID, if it is one of another node.
    #[cfg(feature = "cluster")]
    pub(crate) fn has_given_up(&self, to: Pid) {
        self.node_of(to).into_iter().for_each(|nodes| nodes.has_given_up(to));
    }

    #[cfg(feature = "cluster")]
    fn may_be_held(&self, pid: Pid) -> bool {
        let local = self.in_memory(pid);
        local.is_some_and(|local| self.table.cell(local).is_some_and(|cell| cell.may_be_held(local)))
    }

    #[cfg(not(feature = "cluster"))]
    fn may_be_held(&self, _: Pid) -> bool {
        false
    }

    /// Sends a message of a process that may wait for room to one elsewhere. Returns the answer. If there is no room,
    /// the message is taken and the process is held, so the message never waits. One that must not wait comes back, and
    /// so does one of a process that is never held.
    #[cold]
    pub(crate) fn send_elsewhere(
        &self,
        counters: &Counters,
        elsewhere: &dyn NonLocal,
        (from, to): (Pid, Pid),
        mut send: QueuedSend,
        may_wait: bool,
    ) -> Option<(Pid, u64, Answer)> {
        let trace = send.take_trace();
        let is_held = may_wait && self.may_be_held(from);
        let post = |message| match is_held {
            true => self.post_elsewhere(elsewhere, (Some(from), to), message, trace.get()),
            false => elsewhere.post(Some(from), to, message, trace.get()),
        };
        if let Some((message, type_name)) = send.take_boxed() {
            return match post(message) {
                Ok(()) => send.end(to, SendEnd::Accepted, &mut |_| ()),
                Err((message, why)) => send.come_back(message, with_type(why, type_name)),
            };
        }
        // A message that comes back is not converted.
        let room = if is_held { NeedsRoom::Held } else { NeedsRoom::InTurn };
        let permit = match send.converts_to().map(|kind| elsewhere.permit(to, kind, room)) {
            Some(Err(why)) => return Some((from, send.number(), send.handed_back(why))),
            Some(Ok(permit)) => permit,
            None => None,
        };
        let post = |message| match is_held {
            true => self.post_elsewhere(elsewhere, (Some(from), to), message, trace.get()),
            false => elsewhere.post_converted(permit, (Some(from), to), message, trace.get()),
        };
        let panic = match send.convert().map(|mut converted| converted.take_boxed()) {
            Ok(converted) => {
                if let Some((message, type_name)) = converted
                    && let Err(refused) = post(message)
                {
                    counters.add(&counters.accepted, 1);
                    self.bury_refused(counters, (Some(from), to), refused, (type_name, trace.get()), |_| ());
                }
                None
            }
            Err(panic) => Some(panic),
        };
        send.answer_converted(panic, to)
    }

    /// As `send_converted`, for a process elsewhere. A message that is refused only when it was converted is a dead
    /// letter.
    #[cold]
    pub(super) fn convert_elsewhere<T>(
        &self,
        elsewhere: &dyn NonLocal,
        to: Pid,
        message: T,
        route: &dyn Route<T>,
        dead: impl FnMut(&DeadLetter<'_>),
    ) -> Result<(), Rejected<T, SendError>> {
        let permit = match elsewhere.permit(to, route.kind(), NeedsRoom::Yes) {
            Ok(permit) => permit,
            Err(why) => return Err(Rejected::new(message, why)),
        };
        let mut outbox = Outbox::with_traces(self.propagator.clone());
        let lane = route.push(&mut outbox, message);
        if let Some(Popped { message, type_name, trace }) = outbox.lane(lane).pop()
            && let Err(refused) = elsewhere.post_converted(permit, (None, to), message, trace.get())
        {
            self.bury_converted(to, refused, (type_name, trace.get()), dead);
        }
        Ok(())
    }

    /// Reports a message from outside that was converted and then refused as a dead letter. `message` has the name of
    /// its type, and its context.
    pub(crate) fn bury_converted(
        &self,
        to: Pid,
        refused: (AnyMessage, SendError),
        message: (&'static str, Option<&Context>),
        dead: impl FnMut(&DeadLetter<'_>),
    ) {
        self.outside.add(&self.outside.accepted, 1);
        self.bury_refused(&self.outside, (None, to), refused, message, dead);
    }
}

/// Hands a message over to its receiver elsewhere.
#[cold]
pub(super) fn offer_elsewhere<M: Send + 'static>(
    elsewhere: &dyn NonLocal,
    to: Pid,
    message: M,
    trace: &MessageTrace,
) -> Result<(), Rejected<M, SendError>> {
    let refused = elsewhere.post(None, to, Box::new(message), trace.get());
    refused.or_else(|(message, why)| match message.downcast() {
        Ok(message) => Err(Rejected::new(*message, with_type(why, type_name::<M>()))),
        // It has taken the message, and has handed another one back.
        Err(other) => {
            drop_contained(other);
            Ok(())
        }
    })
}

/// The refusal with the name of the type that was sent, which the other side cannot know.
fn with_type(why: SendError, sent: &'static str) -> SendError {
    match why {
        SendError::WrongType { pid, takes, .. } => SendError::WrongType { pid, takes, sent },
        #[cfg(feature = "cluster")]
        SendError::Node { pid, why: NodeError::NotRemote { .. } } => {
            SendError::Node { pid, why: NodeError::NotRemote { type_name: sent } }
        }
        other => other,
    }
}

fn why_refused(why: &SendError) -> (DeadLetterReason, Option<&'static str>) {
    match why {
        SendError::WrongType { takes, .. } => (DeadLetterReason::WrongType, Some(takes)),
        SendError::Full { .. } => (DeadLetterReason::Full, None),
        SendError::NotStored { .. } => (DeadLetterReason::NotStored, None),
        #[cfg(feature = "cluster")]
        SendError::Node { why: NodeError::NodeDown, .. } => (DeadLetterReason::NodeDown, None),
        #[cfg(feature = "cluster")]
        SendError::Node { why: NodeError::Busy, .. } => (DeadLetterReason::Busy, None),
        #[cfg(feature = "cluster")]
        SendError::Node { .. } => (DeadLetterReason::NotSent, None),
        SendError::NoSuchProcess(_) | SendError::InsideStep { .. } => (DeadLetterReason::NoSuchProcess, None),
    }
}
