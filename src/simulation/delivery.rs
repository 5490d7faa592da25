//! When a message reaches another process: at once, or later.
//!
//! # Where a held message waits
//!
//! With [`Delivery::PerPair`], the world may *hold* a message of a step instead of delivering it. It waits in the
//! world, in a queue of its own for each pair of a sender and a receiver. Each such queue is one of the things that can
//! happen next: then its oldest message is delivered. While a pair has a held message, all later ones wait behind it,
//! so they stay in order.
//!
//! # The order that stays
//!
//! A held message of a pair is delivered before anything else goes from the sender to the receiver: a question, an
//! answer, a cancel request, a broadcast, a send with a limit. All messages of a sender are delivered before others are
//! notified of its end, and of its recovery. When the shutdown of a runtime begins, all messages of its processes are
//! delivered, and later ones are not held.
//!
//! # The count of messages
//!
//! A held message is not accepted yet: it is counted when it is delivered. So the count of accepted messages always is
//! that of stepped, dead and queued ones. If its receiver has ended, it becomes a dead letter then.

use std::collections::{BTreeMap, VecDeque};

use crate::pid::Pid;
use crate::sched::outbox::Lane;

/// When the messages of a step are delivered to other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Delivery {
    /// At once, as in a runtime with threads. This is the default.
    #[default]
    Immediate,
    /// Some messages may come later than messages to others. Those from one sender to one receiver stay in order.
    ///
    /// The end of the sender, and its later questions and answers to the receiver, come after its messages. So a
    /// program that needs only what is promised for each pair of processes passes.
    PerPair,
}

/// The runtime, the sender and the receiver of held messages.
pub(super) type Pair = (usize, Pid, Pid);

/// The messages that are held.
#[derive(Default)]
pub(super) struct HeldMessages {
    /// The oldest first. Each lane has one message.
    pub(super) pairs: BTreeMap<Pair, VecDeque<Box<dyn Lane>>>,
    /// How many messages of each pair there were.
    pub(super) sent: BTreeMap<Pair, u32>,
}

impl HeldMessages {
    /// All messages that are held, with the pair.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Pair, &dyn Lane)> {
        self.pairs.iter().flat_map(|(pair, lanes)| lanes.iter().map(move |lane| (pair, &**lane)))
    }

    pub(super) fn pop(&mut self, pair: Pair) -> Option<Box<dyn Lane>> {
        let lanes = self.pairs.get_mut(&pair)?;
        let lane = lanes.pop_front();
        if lanes.is_empty() {
            self.pairs.remove(&pair);
        }
        lane
    }
}
