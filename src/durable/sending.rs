//! A message comes to a durable process: it is stored, and goes to the process or into its residence.

use std::fmt::Display;
use std::mem::take;

use super::core::{StoreCore, why_refused};
use super::journal::{EncodedRecord, Position, Record};
use super::residency::{Given, Mail, MessageType, Place, StoredBytes};
use super::rows::{self, StoredMail};
use super::tail::{Life, Refused, Waiter};
use crate::outcome::contain;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::propagation::encode;
use crate::process::{NoSuchProcessError, SendError};
use crate::runtime::Core;
use crate::sched::non_local::AnyMessage;
use crate::sched::trace_marks::MessageTrace;

/// A message that is encoded.
pub(super) struct Outgoing<'a> {
    from: Option<Pid>,
    to: Pid,
    serial: u64,
    kind: &'a MessageType,
    message: AnyMessage,
    life: Life,
    /// `None` for a message with a reply, which is not stored.
    stored: Option<(u64, StoredBytes, EncodedRecord)>,
    trace: MessageTrace,
}

impl Outgoing<'_> {
    pub(super) fn key_name(&self, key: &str) -> String {
        rows::key_name(self.serial, key)
    }

    pub(super) fn into_message(self) -> AnyMessage {
        self.message
    }
}

/// A message that is in the tail, and in its residence.
#[must_use]
pub(super) struct Sent {
    to: Pid,
    name: &'static str,
    given: Given,
    /// Where its record is, if it has one.
    pub(super) record: Option<(Life, Position)>,
}

fn not_stored(to: Pid, why: &dyn Display) -> SendError {
    SendError::NotStored { pid: to, why: why.to_string() }
}

impl StoreCore {
    /// Sends a message. The waiter is told when it is on disk.
    pub(super) fn send(
        &self,
        (from, to): (Option<Pid>, Pid),
        message: AnyMessage,
        trace: MessageTrace,
        waiter: Option<Waiter>,
    ) -> Result<(), (AnyMessage, SendError)> {
        let Some(core) = self.core() else { return Err((message, self.is_over(to))) };
        let outgoing = self.outgoing((from, to), None, message, trace)?;
        if waiter.is_some() && outgoing.stored.is_none() {
            let why = "a message with a reply is not stored, so it has no receipt: send it with `Runtime::ask`";
            return Err((outgoing.into_message(), not_stored(to, &why)));
        }
        let sent = self.append_mail(&core, outgoing, waiter)?;
        self.finish_sent(&core, sent);
        Ok(())
    }

    /// Sends a message from outside. The waiter is told when it is on disk.
    pub(super) fn send_from_outside(
        &self,
        to: Pid,
        message: AnyMessage,
        waiter: Waiter,
    ) -> Result<(), (AnyMessage, SendError)> {
        let trace = MessageTrace::new(self.core().and_then(|core| core.road.current_trace()));
        self.send((None, to), message, trace, Some(waiter))
    }

    /// Why nothing is sent when the runtime has ended.
    pub(super) fn is_over(&self, to: Pid) -> SendError {
        match self.tail.is_closing() {
            true => not_stored(to, &why_refused(Refused::Closed)),
            false => NoSuchProcessError::RuntimeEnded.into(),
        }
    }

    /// Refuses a message from outside to a process that is none of the store.
    pub(super) fn check_receiver(&self, to: Pid) -> Result<(), SendError> {
        match self.number_of(to) {
            Some(_) => Ok(()),
            None => Err(not_stored(to, &"its receiver is no process of the store: send it with `Runtime::send`")),
        }
    }

    /// Encodes a message. Its record has the key, if it is sent with one.
    pub(super) fn outgoing(
        &self,
        (from, to): (Option<Pid>, Pid),
        key: Option<&str>,
        message: AnyMessage,
        trace: MessageTrace,
    ) -> Result<Outgoing<'_>, (AnyMessage, SendError)> {
        let Some(serial) = self.number_of(to) else {
            return Err((message, NoSuchProcessError::RuntimeEnded.into()));
        };
        let Some(kind) = self.messages.get(&(*message).type_id()) else {
            let takes = "the messages of a durable process";
            return Err((message, SendError::WrongType { pid: to, takes, sent: "a message of another type" }));
        };
        let (encoded, has_reply) = self.run.code(|| contain(|| (kind.encode)(kind.format, &*message)));
        let bytes = match encoded {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => return Err((message, not_stored(to, &error))),
            Err(panic) => return Err((message, not_stored(to, &panic))),
        };
        let life = self.tail.life();
        if has_reply {
            return match key {
                None => Ok(Outgoing { from, to, serial, kind, message, life, stored: None, trace }),
                Some(_) => Err((message, not_stored(to, &"a message with a reply is not stored, so it has no key"))),
            };
        }
        let number = match self.number() {
            Ok(number) => number,
            Err(why) => return Err((message, not_stored(to, &why_refused(why)))),
        };
        let from_row = from.map(|from| self.run.note(from));
        let mail = StoredMail {
            from: from_row,
            kinds: kind.kinds.clone(),
            format: kind.format,
            message: bytes.clone(),
            questions: Vec::new(),
            trace: trace.get().and_then(|trace| encode(&**trace)),
        };
        let record = rows::mail(serial, number, &mail).and_then(|change| {
            let mut changes = vec![change];
            changes.extend(
                key.into_iter().flat_map(|key| rows::key(serial, key, number, (self.wall_millis(), self.keep))),
            );
            Ok(EncodedRecord::new(&Record { changes })?)
        });
        match record {
            Ok(record) => {
                let stored = Some((number, StoredBytes { format: kind.format, bytes, questions: Vec::new() }, record));
                Ok(Outgoing { from, to, serial, kind, message, life, stored, trace })
            }
            Err(error) => Err((message, not_stored(to, &error))),
        }
    }

    /// Appends the record of a message, and gives it to the process or its residence. No user code runs.
    pub(super) fn append_mail(
        &self,
        core: &Core,
        outgoing: Outgoing<'_>,
        waiter: Option<Waiter>,
    ) -> Result<Sent, (AnyMessage, SendError)> {
        let Outgoing { from, to, serial, kind, message, life, stored, mut trace } = outgoing;
        self.residency.enter(serial, |residence| {
            match &residence.place {
                _ if residence.has_ended_by(|| self.tail.released()) => {
                    return Err((message, NoSuchProcessError::Pid(to).into()));
                }
                Place::Resident(resident) if resident.message != kind.id => {
                    let takes = (resident.message_name)();
                    return Err((message, SendError::WrongType { pid: to, takes, sent: kind.name }));
                }
                _ if self.is_full(residence) => {
                    return Err((message, SendError::Full { pid: to, limit: self.settings.mailbox_limit }));
                }
                _ => {}
            }
            let mut position = None;
            if let Some((.., record)) = &stored {
                match self.tail.append(life, record, waiter) {
                    Ok(appended) => position = Some(appended),
                    Err(why) => return Err((message, not_stored(to, &why_refused(why)))),
                }
            }
            let rests_on = position.filter(|_| !self.settings.ahead);
            let number = stored.as_ref().map(|(number, ..)| *number);
            let stored = stored.map(|(_, stored, _)| stored);
            let mail = Mail { number, life, rests_on, from, message, stored, trace: take(&mut trace) };
            let given = residence.take(&core.road, kind, mail, |number| self.ticket(number));
            Ok(Sent { to, name: kind.name, given, record: position.map(|position| (life, position)) })
        })
    }

    /// Finishes the delivery of a message. No lock of a residence is held.
    pub(super) fn finish_sent(&self, core: &Arc<Core>, sent: Sent) {
        self.finish(core, sent.to, sent.name, sent.given);
    }
}
