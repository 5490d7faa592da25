//! One message for several processes of the other node.

use std::any::Any;

use super::{BadFrame, Connection, Letter, LetterMore, NotEncoded, put_head, trace_header};
use crate::cluster::codec::{self, Opened};
use crate::cluster::frame::Head;
use crate::cluster::peer::Class;
use crate::cluster::remote::MAX_BYTES;
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::sched::trace_marks::MessageTrace;

/// The bytes that are counted for each copy of a message, in addition to its encoded bytes.
const COPY: usize = 64;

/// The most receivers of one frame.
const MOST: usize = MAX_BYTES / COPY;

/// The most bytes of a message with so many receivers.
fn limit_for(receivers: usize) -> usize {
    if receivers == 1 { MAX_BYTES } else { (MAX_BYTES / receivers).saturating_sub(COPY) }
}

fn is_ascending(receivers: &[Pid]) -> bool {
    receivers.is_sorted_by(|one, other| one < other)
}

impl Connection {
    /// Sends a message to processes of the other node, from outside of processes. Returns to how many it
    /// was sent.
    ///
    /// It is one frame, unless the copies that the other node makes have more bytes than the largest message. The
    /// receivers are in ascending order, each once: the other node takes no other frame.
    pub(crate) fn broadcast(&self, to: &[Pid], message: &dyn Any) -> usize {
        debug_assert!(is_ascending(to), "{to:?}");
        let Some((first, others)) = to.split_first() else { return 0 };
        let halves = || {
            let (some, rest) = to.split_at(to.len() / 2);
            self.broadcast(some, message) + self.broadcast(rest, message)
        };
        if to.len() > MOST {
            return halves();
        }
        let limit = limit_for(to.len());
        let trace = MessageTrace::new(self.core.upgrade().and_then(|core| core.road.current_trace()));
        let trace = trace.get().and_then(trace_header);
        let encode = || {
            let outgoing = self.wire.outgoing(message, &self.taken)?;
            let ((), encoded) = codec::encode_in_trace(&self.side, (0, MAX_BYTES), trace.as_deref(), |output| {
                put_head(&Head::Broadcast { to: to.into(), from: None, kind: outgoing.index }, output)?;
                output.begin_value(outgoing.limit.min(limit));
                outgoing.encode(message, output)
            })?;
            Ok::<_, NotEncoded>((outgoing.type_name, encoded))
        };
        match encode() {
            // Each copy would answer the same question.
            Ok((_, encoded)) if encoded.has_replies() => {
                encoded.take_back();
                0
            }
            Ok((type_name, encoded)) => {
                let letter = Letter { to: *first, from: None, type_name, more: LetterMore::of(others, trace) };
                let offered = self.offer(encoded, 0, (Some(letter), Class::Message));
                if offered.is_ok() { to.len() } else { 0 }
            }
            Err(NotEncoded::TooLarge(error)) if !others.is_empty() && error.limit == limit => halves(),
            Err(_) => 0,
        }
    }

    /// Takes a message for several processes of this node.
    pub(super) fn take_broadcast(
        &self,
        opened: &Opened<'_>,
        bytes: &[u8],
        (from, to): (Option<Pid>, &[Pid]),
        kind: u32,
    ) -> Result<(), BadFrame> {
        if !opened.asks().is_empty() || to.is_empty() || bytes.len() > limit_for(to.len()) || to.len() > MOST {
            return Err(BadFrame(BoxError::from("a broadcast has replies, or is too large for its receivers")));
        }
        if !is_ascending(to) {
            // Otherwise a small frame could fill one mailbox with copies.
            return Err(BadFrame(BoxError::from("a broadcast has its receivers out of order, or one of them twice")));
        }
        let trace = self.trace_of(opened.trace);
        to.iter().try_for_each(|to| self.take_message((opened, trace.as_ref()), bytes, (from, *to), kind))
    }
}
