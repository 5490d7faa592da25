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
//! A sender that is told to try again (its process has ended, or the mailbox was replaced) takes the message out in
//! the same way. So a message is in one place: in the mailbox, or in its sender's hands.

use std::any::Any;

use super::bounded_mailbox::{Bounds, WaitingSender};
use super::mailbox::{AnyMailbox, Envelope, Mailbox};
use crate::latch::Latch;
use crate::primitives::{Mutex, lock};
use crate::process::DeadLetter;

/// A message that waits for room, shared by its sender and the mailbox.
pub(crate) struct WaitingSend<T> {
    slot: Mutex<Slot<T>>,
    told: Latch<Told>,
}

enum Slot<T> {
    Waiting(T),
    /// The sender has given up, and has not taken the message yet.
    Back(T),
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
    /// No timer can end the wait, because the runtime has ended.
    RuntimeEnded,
}

impl<T: Send + 'static> WaitingSend<T> {
    pub(crate) fn new(message: T) -> WaitingSend<T> {
        WaitingSend { slot: Mutex::new(Slot::Waiting(message)), told: Latch::new() }
    }

    /// The latch that is set when the wait is over.
    pub(crate) fn told(&self) -> &Latch<Told> {
        &self.told
    }

    /// Takes the message back, if it was not sent.
    pub(crate) fn take_back(&self) -> Option<T> {
        match std::mem::replace(&mut *lock(&self.slot), Slot::Gone) {
            Slot::Waiting(message) | Slot::Back(message) => Some(message),
            Slot::Gone => None,
        }
    }
}

/// The wait of a sender, for the timer that ends it.
pub(crate) trait LimitedSend: Send + Sync {
    /// Ends the wait, unless the message was sent.
    fn give_up(&self, why: Told);
}

impl<T: Send + 'static> LimitedSend for WaitingSend<T> {
    fn give_up(&self, why: Told) {
        {
            let mut slot = lock(&self.slot);
            *slot = match std::mem::replace(&mut *slot, Slot::Gone) {
                Slot::Waiting(message) => Slot::Back(message),
                other => {
                    *slot = other;
                    return;
                }
            };
        }
        let _ = self.told.set(why);
    }
}

impl<T: Send + 'static> WaitingSender for WaitingSend<T> {
    fn prepare(&self) {}

    fn fill(&self, mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>) -> Option<u32> {
        let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<T>>()?;
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Gone) {
            Slot::Waiting(message) => {
                match bounds {
                    Some(bounds) => bounds.put(mailbox, message),
                    None => mailbox.messages.push(Envelope { from: None, message }),
                }
                Some(1)
            }
            other => {
                *slot = other;
                Some(0)
            }
        }
    }

    fn settle(&self, is_sent: bool, _: &mut dyn FnMut(&DeadLetter<'_>)) {
        if is_sent {
            let _ = self.told.set(Told::Sent);
        } else if matches!(*lock(&self.slot), Slot::Waiting(_)) {
            self.try_again();
        }
    }

    fn try_again(&self) {
        let _ = self.told.set(Told::TryAgain);
    }
}
