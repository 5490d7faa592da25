//! One message that waits outside for room in a bounded mailbox.
//!
//! Several threads may want the message: the one that gives it a place, the timer of its limit, and its sender. The
//! lock of the slot decides, and the decision is told through a latch:
//!
//! | the message is | a place is filled | the limit is over | the sender drops its future |
//! |---|---|---|---|
//! | **waiting** | it goes into the mailbox: *sent* | it stays for the sender: *back* | it is dropped: *gone* |
//! | **sent**, or gone | the place stays free | — | — |
//! | **back** | the place stays free | — | it is dropped |
//!
//! A message to another node waits in the same way, at the connection. It is taken out while it is *offered* to the
//! connection again, without the lock. If there is no room, it waits as before, or goes back if the limit is over. A
//! message that is to be converted is converted when there is room, and then it is sent on the connection that was up
//! before. If that is down by then, it is a dead letter.
//!
//! A sender that is told to try again (its process has ended, or the mailbox was replaced) takes the message out in
//! the same way. So a message is in one place: in the mailbox, or in its sender's hands.

use std::any::Any;
#[cfg(feature = "cluster")]
use std::any::{TypeId, type_name};

use super::bounded_mailbox::{Bounds, WaitingSender};
use super::mailbox::{AnyMailbox, Envelope, Mailbox};
#[cfg(feature = "cluster")]
use super::non_local::{NeedsRoom, NonLocal, Permit, WaitingOutside};
use super::outbox::Outbox;
#[cfg(feature = "cluster")]
use super::outbox::Popped;
use super::trace_marks::{Context, MessageTrace};
use crate::latch::Latch;
use crate::outcome::{Panic, contain, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::dead_letter::{DeadLetter, DeadLetterReason};
use crate::process::propagation::with_trace;
use crate::process::recipient::Route;
#[cfg(feature = "cluster")]
use crate::process::{NodeError, SendError};

/// A message that waits for room, shared by its sender and the mailbox.
pub(crate) struct WaitingSend<T> {
    to: Pid,
    /// Converts the message when it has a place.
    route: Option<Arc<dyn Route<T>>>,
    slot: Mutex<Slot<T>>,
    told: Latch<Told>,
    /// The trace of the message, until it is in the mailbox.
    context: Mutex<MessageTrace>,
}

enum Slot<T> {
    Waiting(T),
    /// The sender has given up, and has not taken the message yet.
    Back(T),
    /// The message is offered to another node at this moment. If the sender has given up meanwhile, this is why.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    Offered(Option<Told>),
    /// The message has a place and was converted, and is on this lane.
    Converted(Outbox, u32),
    /// The conversion panicked.
    Panicked(Panic),
    /// The message is in the mailbox, or the sender has taken it.
    Gone,
}

/// The news for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Sent,
    /// The process has ended, or its mailbox was replaced.
    TryAgain,
    TimedOut,
    /// The node of the receiver is down.
    #[cfg(feature = "cluster")]
    NodeDown,
    /// The conversion of the message panicked.
    Panicked,
    /// No timer can end the wait, because the runtime has ended.
    RuntimeEnded,
}

impl<T: Send + 'static> WaitingSend<T> {
    pub(crate) fn new(to: Pid, message: T, route: Option<Arc<dyn Route<T>>>) -> WaitingSend<T> {
        let slot = Mutex::new(Slot::Waiting(message));
        WaitingSend { to, route, slot, told: Latch::new(), context: Mutex::new(MessageTrace::default()) }
    }

    /// Gives the message a trace.
    pub(crate) fn in_trace(self, context: Option<Context>) -> WaitingSend<T> {
        *lock(&self.context) = MessageTrace::new(context);
        self
    }

    /// Marks the message, which is the last one in the mailbox.
    fn mark(&self, mailbox: &mut dyn AnyMailbox) {
        lock(&self.context).take().into_iter().for_each(|context| mailbox.mark(context));
    }

    /// The conversion of the message, if it has one.
    pub(crate) fn route(&self) -> Option<&Arc<dyn Route<T>>> {
        self.route.as_ref()
    }

    /// The latch that is set when the wait is over.
    pub(crate) fn told(&self) -> &Latch<Told> {
        &self.told
    }

    /// Takes the message back, if it was not sent.
    pub(crate) fn take_back(&self) -> Option<T> {
        match self.take_if(|slot| matches!(slot, Slot::Waiting(_) | Slot::Back(_))) {
            Some(Slot::Waiting(message) | Slot::Back(message)) => Some(message),
            _ => None,
        }
    }

    /// Takes the trace of a message that has come back.
    pub(crate) fn take_trace(&self) -> Option<Context> {
        lock(&self.context).take()
    }

    /// The panic of the conversion.
    pub(crate) fn panic(&self) -> Option<Panic> {
        match self.take_if(|slot| matches!(slot, Slot::Panicked(_))) {
            Some(Slot::Panicked(panic)) => Some(panic),
            _ => None,
        }
    }

    fn take_if(&self, is_wanted: impl FnOnce(&Slot<T>) -> bool) -> Option<Slot<T>> {
        let mut slot = lock(&self.slot);
        is_wanted(&slot).then(|| std::mem::replace(&mut *slot, Slot::Gone))
    }
}

/// The wait of a sender, for the timer that ends it.
pub(crate) trait LimitedSend: Send + Sync {
    /// Ends the wait, unless the message was sent.
    fn give_up(&self, why: Told);

    /// The receiver of the message.
    fn to(&self) -> Pid;
}

impl<T: Send + 'static> LimitedSend for WaitingSend<T> {
    fn give_up(&self, why: Told) {
        {
            let mut slot = lock(&self.slot);
            *slot = match std::mem::replace(&mut *slot, Slot::Gone) {
                Slot::Waiting(message) => Slot::Back(message),
                Slot::Offered(None) => {
                    // The thread that offers it says so, if it is not taken.
                    *slot = Slot::Offered(Some(why));
                    return;
                }
                other => {
                    *slot = other;
                    return;
                }
            };
        }
        let _ = self.told.set(why);
    }

    fn to(&self) -> Pid {
        self.to
    }
}

impl<T: Send + 'static> WaitingSender for WaitingSend<T> {
    fn prepare(&self) {
        let Some(route) = &self.route else { return };
        // Without the lock, because a conversion is user code.
        let Some(Slot::Waiting(message)) = self.take_if(|slot| matches!(slot, Slot::Waiting(_))) else { return };
        let mut outbox = Outbox::default();
        *lock(&self.slot) = match contain(|| route.push(&mut outbox, message)) {
            Ok(lane) => Slot::Converted(outbox, lane),
            Err(panic) => Slot::Panicked(panic),
        };
    }

    fn fill(&self, mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>) -> Option<u32> {
        let mut slot = lock(&self.slot);
        if let Slot::Converted(outbox, lane) = &mut *slot {
            let lane = outbox.lane(*lane);
            let grown = match bounds {
                Some(bounds) => lane.fill_place(mailbox, bounds),
                None => lane.fill(1, None, mailbox, None),
            };
            if grown == Some(1) {
                self.mark(mailbox);
            }
            return grown;
        }
        let Slot::Waiting(_) = &*slot else { return Some(0) };
        let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<T>>()?;
        if let Slot::Waiting(message) = std::mem::replace(&mut *slot, Slot::Gone) {
            match bounds {
                Some(bounds) => bounds.put(mailbox, message),
                None => mailbox.messages.push(Envelope { from: None, message }),
            }
            self.mark(mailbox);
        }
        Some(1)
    }

    fn settle(&self, is_sent: bool, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        let converted = self.take_if(|slot| matches!(slot, Slot::Converted(..)));
        let told = match (is_sent, &*lock(&self.slot)) {
            (true, _) => Told::Sent,
            (false, Slot::Waiting(_)) => Told::TryAgain,
            (false, Slot::Panicked(_)) => Told::Panicked,
            (false, _) if converted.is_some() => Told::Sent,
            // The sender has given up.
            (false, _) => return,
        };
        if let Some(Slot::Converted(mut outbox, lane)) = converted
            && !is_sent
        {
            // It cannot be handed back, so it counts as accepted.
            let context = lock(&self.context).take();
            outbox.lane(lane).bury(1, &DeadLetter::new(self.to, DeadLetterReason::Ended), &mut |letter| {
                with_trace(context.as_deref(), letter, &mut *grave);
            });
            drop_contained(context);
        }
        let _ = self.told.set(told);
    }

    fn try_again(&self) {
        let _ = self.told.set(Told::TryAgain);
    }
}

#[cfg(feature = "cluster")]
impl<T: Send + 'static> WaitingSend<T> {
    /// Converts the message for a process elsewhere, and sends it. It cannot be handed back any more, so a refusal is a
    /// dead letter.
    fn convert_for(&self, to: &dyn NonLocal, route: &dyn Route<T>, (message, permit): (T, Permit)) -> Told {
        let mut outbox = Outbox::default();
        let lane = match contain(|| route.push(&mut outbox, message)) {
            Ok(lane) => lane,
            Err(panic) => {
                *lock(&self.slot) = Slot::Panicked(panic);
                return Told::Panicked;
            }
        };
        *lock(&self.slot) = Slot::Gone;
        let context = lock(&self.context).take();
        if let Some(Popped { message, type_name, .. }) = outbox.lane(lane).pop()
            && let Err(refused) = to.post_converted(permit, (None, self.to), message, context.as_ref())
        {
            to.bury_converted(self.to, refused, (type_name, context.as_ref()));
        }
        drop_contained(context);
        Told::Sent
    }
}

#[cfg(feature = "cluster")]
impl<T: Send + 'static> WaitingOutside for WaitingSend<T> {
    fn offer(&self, to: &dyn NonLocal) -> bool {
        let message = {
            let mut slot = lock(&self.slot);
            match std::mem::replace(&mut *slot, Slot::Offered(None)) {
                Slot::Waiting(message) => message,
                other => {
                    *slot = other;
                    return false;
                }
            }
        };
        let (kind, room) = match &self.route {
            None => ((TypeId::of::<T>(), type_name::<T>()), NeedsRoom::WhenOffered),
            Some(route) => (route.kind(), NeedsRoom::InTurn),
        };
        let permit = to.permit(self.to, kind, room);
        // The node tells this sender of a down before it has the next connection. So if the sender was not told by now,
        // the permit is for the connection on which the message has waited.
        let is_given_up = matches!(&*lock(&self.slot), Slot::Offered(Some(_)));
        // Without the lock, because an encoder and a conversion are user code.
        let offered = match (permit, &self.route) {
            (Err(why), _) => Err((message, why)),
            (Ok(_), _) if is_given_up => Err((message, SendError::Node { pid: self.to, why: NodeError::NodeDown })),
            (Ok(permit), None) => {
                let trace = MessageTrace::new(lock(&self.context).get().cloned());
                match to.post_in_turn(permit, None, self.to, Box::new(message), trace.get()) {
                    Ok(()) => {
                        *lock(&self.slot) = Slot::Gone;
                        drop_contained(self.take_trace());
                        Ok(Told::Sent)
                    }
                    Err((message, why)) => match message.downcast::<T>() {
                        Ok(message) => Err((*message, why)),
                        Err(_) => return false,
                    },
                }
            }
            (Ok(permit), Some(route)) => Ok(self.convert_for(to, &**route, (message, permit))),
        };
        let (told, waits) = match offered {
            Ok(told) => (Some(told), false),
            Err((message, why)) => {
                let refused = match why {
                    SendError::Node { why: NodeError::Busy, .. } => None,
                    // Another try might be on the next connection, behind a later message.
                    SendError::Node { why: NodeError::NodeDown, .. } => Some(Told::NodeDown),
                    _ => Some(Told::TryAgain),
                };
                let slot = &mut *lock(&self.slot);
                let given_up = if let Slot::Offered(given_up) = slot { *given_up } else { None };
                let told = given_up.or(refused);
                *slot = if told.is_some() { Slot::Back(message) } else { Slot::Waiting(message) };
                (told, told.is_none())
            }
        };
        told.into_iter().for_each(|told| _ = self.told.set(told));
        waits
    }

    fn node_down(&self) {
        {
            let slot = &mut *lock(&self.slot);
            match std::mem::replace(slot, Slot::Gone) {
                Slot::Waiting(message) => *slot = Slot::Back(message),
                // The thread that offers it says so, if it is not taken.
                Slot::Offered(given_up) => {
                    *slot = Slot::Offered(given_up.or(Some(Told::NodeDown)));
                    return;
                }
                other => *slot = other,
            }
        }
        let _ = self.told.set(Told::NodeDown);
    }

    fn waits(&self) -> bool {
        matches!(&*lock(&self.slot), Slot::Waiting(_) | Slot::Offered(_))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::{Events, Overflow, Process, SpawnOptions, Step, StepOutput, StepResult, described_body};
    use crate::sched::body::Ready;
    use crate::sched::cell::{Birth, Cell};

    struct Anybody;

    impl Process for Anybody {
        type Message = u32;
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    /// A second message arrives while the first one has been given a place, and is not in it yet.
    #[test]
    fn a_place_that_is_given_and_not_filled_is_not_overtaken() {
        let options = SpawnOptions::new().mailbox(2, Overflow::Refuse);
        let (cell, bound) = (Cell::new(), options.bound);
        let mut body: Ready = described_body(Anybody, Pid::FIRST, options, None);
        assert!(cell.install(1, body.machine.kind(), Birth { bound, ..Birth::default() }, 0, || false));
        let sends = [0_u32, 1, 2, 3, 4].map(|message| Arc::new(WaitingSend::new(Pid::FIRST, message, None)));
        let senders = sends.clone().map(|send| send as Arc<dyn WaitingSender>);
        let register = |sender: usize| cell.register(Pid::FIRST, &senders[sender]).unwrap();
        let fill_places = |mut granted: Vec<Arc<dyn WaitingSender>>| {
            while !granted.is_empty() {
                cell.fill_each(Pid::FIRST, granted, |_| (), |_| ());
                granted = cell.let_messages_in(Pid::FIRST).0.granted;
            }
        };
        for sender in [0, 1] {
            assert_eq!(register(sender), None, "there is room");
            fill_places(vec![senders[sender].clone()]);
        }
        assert!(register(2).is_some(), "it waits");
        let granted = cell.fill(&mut body, 8).told.granted;
        assert_eq!(granted.len(), 1);
        // There is room for one more, but the message before it is on its way.
        assert!(register(3).is_some() && register(4).is_some());
        fill_places(granted);
        assert!(sends[..4].iter().all(|send| send.told().get() == Some(Told::Sent)));
        assert!(!sends[4].told().is_set(), "the mailbox is full again");
        fill_places(cell.fill(&mut body, 8).told.granted);
        drop(cell.fill(&mut body, 8));
        let mailbox = (body.machine.mailbox() as &mut dyn Any).downcast_mut::<Mailbox<u32>>().unwrap();
        let taken: Vec<u32> = std::iter::from_fn(|| mailbox.pop_message()).map(|envelope| envelope.message).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }
}
