//! The `Hello`, in which a node describes itself, and the comparison of two nodes.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::frame::{Ends, Kind, Reader, begin, put_text, put_varint};
use super::refusal::{Difference, Refusal};

/// The most voters of a cluster that a `Hello` may name.
pub(crate) const MOST_VOTERS: usize = 64;

/// How long a peer may be silent before it is down.
pub(crate) const DETECTION_TIME: Duration = Duration::from_millis(1_500);

/// The newest version of the protocol that this node speaks. `tests/protocol/` has the frames of each version.
pub(crate) const PROTOCOL: u16 = 3;

/// The versions that a node speaks whose newest one is this: it speaks the one before, too.
pub(crate) fn spoken(newest: u16) -> RangeInclusive<u16> {
    newest.saturating_sub(1).max(1)..=newest
}

/// A node, as its peers know it. All texts together must fit into a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// Random bits that are drawn at each start of the node.
    pub(crate) incarnation: u64,
    /// The versions of the protocol that the node speaks.
    pub(crate) protocols: RangeInclusive<u16>,
    /// The names of the nodes that decide on unique names, sorted. There are at most 64.
    pub(crate) voters: Vec<String>,
    /// How long a peer may be silent before it is down.
    pub(crate) detection_time: Duration,
}

impl Identity {
    /// Returns the newest version of the protocol that both nodes speak.
    pub(crate) fn common_protocol(&self, peer: &Identity) -> Option<u16> {
        let newest = *self.protocols.end().min(peer.protocols.end());
        let oldest = *self.protocols.start().max(peer.protocols.start());
        (oldest <= newest).then_some(newest)
    }

    /// Compares the two nodes. They connect if this returns nothing.
    pub(super) fn difference_from(&self, peer: &Identity) -> Option<Refusal> {
        let protocols = |node: &Identity| format!("{} to {}", node.protocols.start(), node.protocols.end());
        if self.cluster != peer.cluster {
            Some(Refusal::new(Difference::Cluster, &self.cluster, &peer.cluster))
        } else if self.common_protocol(peer).is_none() {
            Some(Refusal::new(Difference::Protocols, protocols(self), protocols(peer)))
        } else if self.name == peer.name {
            Some(Refusal::new(Difference::Name, &self.name, &peer.name))
        } else if self.voters != peer.voters {
            Some(Refusal::new(Difference::Voters, self.voters.join(","), peer.voters.join(",")))
        } else if self.detection_time != peer.detection_time {
            let [here, there] = [self, peer].map(|node| format!("{:?}", node.detection_time));
            Some(Refusal::new(Difference::DetectionTime, here, there))
        } else {
            None
        }
    }
}

/// A `Hello` that was read.
#[derive(Debug)]
pub(super) struct Hello {
    /// `to` is zero if the sender knows no nonce of the receiver.
    pub(super) ends: Ends,
    pub(super) has_paired: bool,
    pub(super) identity: Identity,
}

/// Writes a `Hello`. Its layout never changes, so that nodes of all versions can refuse each other. A later version
/// may add something at the end.
pub(super) fn put_hello(frame: &mut Vec<u8>, ends: Ends, has_paired: bool, identity: &Identity) {
    begin(frame, Kind::Hello, ends);
    frame.push(u8::from(has_paired));
    frame.extend_from_slice(&identity.incarnation.to_le_bytes());
    put_varint(frame, (*identity.protocols.start()).into());
    put_varint(frame, (*identity.protocols.end()).into());
    put_varint(frame, identity.detection_time.as_micros().try_into().unwrap_or(u64::MAX));
    put_text(frame, &identity.cluster);
    put_text(frame, &identity.name);
    put_varint(frame, identity.voters.len() as u64);
    identity.voters.iter().for_each(|voter| put_text(frame, voter));
}

/// Reads what follows the nonces of a `Hello`. Bytes behind it are those of a newer version. Of a list of voters that
/// is too long, only so many are read that it is seen to differ.
pub(super) fn read_hello(ends: Ends, reader: &mut Reader<'_>) -> Option<Hello> {
    let has_paired = reader.byte()? == 1;
    let incarnation = reader.word()?;
    let mut version = || u16::try_from(reader.varint()?).ok();
    let protocols = version()?..=version()?;
    let detection_time = Duration::from_micros(reader.varint()?);
    let (cluster, name) = (reader.text()?.to_string(), reader.text()?.to_string());
    let count = reader.length()?.min(MOST_VOTERS + 1);
    let voters = (0..count).map(|_| reader.text().map(String::from)).collect::<Option<Vec<_>>>()?;
    let identity = Identity { cluster, name, incarnation, protocols, voters, detection_time };
    Some(Hello { ends, has_paired, identity })
}
