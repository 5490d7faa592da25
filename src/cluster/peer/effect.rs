//! The effects: all that the machine tells its caller.

use std::ops::Range;

use super::hello::Identity;
use super::lanes::{Bound, Class};
use super::refusal::Refusal;

/// Something that the machine tells its caller. Effects are in the order in which they happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect<T = u64> {
    /// The peer has said who it is. The caller answers with `Peer::accept` or `Peer::refuse`.
    Greeted(Box<Identity>),
    /// The connection was refused, here or by the peer.
    Refused(Box<Refusal>),
    /// The connection is up. These are the types and the directory of the peer. The nonce is that of this node, so it
    /// tells this up from all others.
    Up { peer: Box<Identity>, protocol: u16, nonce: u64, types: Vec<u8>, directory: Vec<u8> },
    /// An item of the peer.
    Deliver { class: Class, payload: Payload },
    /// The connection is down. [`Effect::Undelivered`] follows for each item that was not acknowledged.
    Down(DownReason),
    /// The item with this token was not delivered, or it is in doubt.
    Undelivered(T),
    /// There is room again for messages of this size, after some were refused.
    Room(Bound),
}

/// Where the bytes of an item are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// In the frame that was received.
    At(Range<usize>),
    /// The item came in fragments.
    Whole(Vec<u8>),
}

impl Payload {
    /// Returns the bytes. The frame is the one that gave the effect.
    pub(crate) fn bytes<'a>(&'a self, frame: &'a [u8]) -> &'a [u8] {
        match self {
            Payload::At(range) => frame.get(range.clone()).unwrap_or_default(),
            Payload::Whole(bytes) => bytes,
        }
    }
}

/// Why the connection to a node is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DownReason {
    /// The link has closed.
    Closed,
    /// Nothing came for 1.5 s, or nothing was acknowledged for 30 s.
    Silent,
    /// A frame was lost, doubled or torn.
    Gap,
    /// The peer has left the cluster, or this node has.
    Left,
    /// One node has refused the other.
    Refused,
    /// The peer has sent what it must not send.
    Protocol,
    /// The peer has ended the connection for a reason that only a newer version knows.
    Unknown,
}

impl DownReason {
    /// The reasons that travel, each at the place of its number.
    const ALL: [DownReason; 6] = [
        DownReason::Closed,
        DownReason::Silent,
        DownReason::Gap,
        DownReason::Left,
        DownReason::Refused,
        DownReason::Protocol,
    ];

    pub(super) fn to_byte(self) -> u8 {
        self as u8
    }

    /// Reads a reason. One that only a newer version knows is no fault.
    pub(super) fn of_byte(byte: u8) -> DownReason {
        DownReason::ALL.get(usize::from(byte)).copied().unwrap_or(DownReason::Unknown)
    }
}
