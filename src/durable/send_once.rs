//! Messages with keys: the same message is sent once, however often its sender tries.
//!
//! The record of a message has its key as well. So a key is on disk exactly if its message is, or was. A sender looks
//! for the key among those that the tables do not have, and in the tables, and appends its record under one lock.
//! [`retention`](super::retention) removes keys when their time is over.

use super::core::StoreCore;
use super::journal::{JournalError, Position};
use super::rows;
use super::store::{Receipt, Store};
use super::tail::{Fate, Life, Waiter};
use crate::inside::is_step;
use crate::outcome::{Rejected, drop_contained};
use crate::pid::{Address, Pid};
use crate::primitives::Ordering;
use crate::process::SendError;
use crate::sched::non_local::AnyMessage;
use crate::sched::trace_marks::MessageTrace;

/// A key that was used before.
struct Known {
    /// Where its record is. `None` if the tables have it.
    record: Option<(Life, Position)>,
}

impl Store {
    /// Sends a message with an idempotency key: the process gets one message with this key.
    ///
    /// Use it when an earlier attempt may have succeeded. A web service that repeats an event until it is acknowledged
    /// is an example: the key is the number of the event. A later call with the same key to the same process sends
    /// nothing. Its receipt says that the message [was there](Receipt::was_there), and waits until the first message is
    /// on disk. The messages are not compared.
    ///
    /// The store remembers a key for 7 days, unless [`StoreBuilder::keep`](super::StoreBuilder::keep) says otherwise.
    /// It does so in every run, and also when the process has ended. The call may read from the disk.
    ///
    /// # Errors
    ///
    /// The message comes back with the reason, and its key is not used up. [`SendError::NotStored`] for a message with
    /// a [`Reply`](crate::process::Reply), and in a step.
    pub fn send_once<M: Send + 'static>(
        &self,
        to: Address<M>,
        key: &str,
        message: M,
    ) -> Result<Receipt, Rejected<M, SendError>> {
        let core = &self.inner.core;
        if is_step() {
            let why = "a step may not wait for the disk: it sends without a key".into();
            return Err(Rejected::new(message, SendError::NotStored { pid: to.pid(), why }));
        }
        if let Err(why) = core.check_receiver(to.pid()) {
            return Err(Rejected::new(message, why));
        }
        let (mut receipt, waiter) = Receipt::new(&self.inner.clock);
        match core.send_once(to.pid(), key, Box::new(message), waiter) {
            Ok(was_there) => {
                receipt.was_there = was_there;
                Ok(receipt)
            }
            Err((message, why)) => match message.downcast() {
                Ok(message) => Err(Rejected::new(*message, why)),
                // The store hands the message back that it was given.
                Err(_) => unreachable!("a store has handed another message back"),
            },
        }
    }
}

impl StoreCore {
    /// Returns whether a message with this key was sent before.
    fn send_once(
        &self,
        to: Pid,
        key: &str,
        message: AnyMessage,
        waiter: Waiter,
    ) -> Result<bool, (AnyMessage, SendError)> {
        let Some(core) = self.core() else { return Err((message, self.is_over(to))) };
        let trace = MessageTrace::new(core.road.current_trace());
        // The last reference to a context is dropped without the lock of the keys, because its destructor is user code.
        let _kept = MessageTrace::new(trace.get().cloned());
        let outgoing = self.outgoing((None, to), Some(key), message, trace)?;
        let name = outgoing.key_name(key);
        let mut keys = self.keys.enter();
        let known = match keys.get(&name) {
            Some(record) => Ok(Some(Known { record: Some(*record) })),
            None => self.find_key(&name),
        };
        let sent = match known {
            Ok(None) => self.append_mail(&core, outgoing, Some(waiter)),
            Ok(Some(Known { record })) => {
                // The fate is looked up under the lock of the keys, because a rewind takes keys away under it.
                let known = match record {
                    Some((life, position)) => self.tail.settles(life, position, waiter),
                    None => Some((Fate::Released, waiter)),
                };
                drop(keys);
                drop_contained(outgoing.into_message());
                if let Some((fate, waiter)) = known {
                    waiter(fate);
                }
                return Ok(true);
            }
            Err(error) => {
                let why = error.to_string();
                return Err((outgoing.into_message(), SendError::NotStored { pid: to, why }));
            }
        };
        keys.extend(sent.as_ref().ok().and_then(|sent| Some((name, sent.record?))));
        drop(keys);
        self.finish_sent(&core, sent?);
        self.keep_for_now();
        Ok(false)
    }

    /// Whether the tables have a key.
    fn find_key(&self, name: &str) -> Result<Option<Known>, JournalError> {
        let found = self.with_tables(|_, reader| reader.name(rows::KEYS, name))?;
        Ok(found.map(|_| Known { record: None }))
    }

    /// The tables have the keys up to the position that they have.
    pub(super) fn forget_keys(&self) {
        self.keys.forget_applied(Position(self.applied.load(Ordering::Acquire)));
    }
}
