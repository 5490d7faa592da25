//! Groups, shared and unique names, and the nodes that are up elsewhere, over a connection.

use super::{BadFrame, Connection, Shared};
use crate::cluster::events::NodeWatch;
use crate::cluster::frame::Head;
use crate::cluster::groups::table::Share;
use crate::cluster::groups::{Groups, Shares};
use crate::cluster::leases::LeaseFrame;
use crate::cluster::unique::{LeaseFrames, UniqueNames};
use crate::primitives::Arc;

/// The first version of the protocol in which nodes ask each other about nodes that are down.
const FIRST_WITH_INQUIRIES: u16 = 3;

impl Connection {
    /// Sets where the shares, the lease frames and the inquiries of the other node go. `peer` is its incarnation.
    pub(crate) fn share_with(
        &self,
        groups: &Arc<Groups<Connection>>,
        unique: &Arc<UniqueNames<Connection>>,
        watch: &Arc<NodeWatch>,
        peer: u64,
    ) {
        let (groups, unique, watch) = (Arc::downgrade(groups), Arc::downgrade(unique), watch.clone());
        let _ = self.shared.set(Shared { groups, unique, watch, peer });
    }

    /// Asks the other node whether the node of this incarnation is up there. A node of an older version is not asked.
    pub(crate) fn inquire(&self, number: u64, incarnation: u64) {
        if self.protocol >= FIRST_WITH_INQUIRIES {
            self.send_control(0, &Head::IsUp { number, incarnation });
        }
    }

    /// Answers whether a node is up here, if it is.
    pub(super) fn take_is_up(&self, number: u64, incarnation: u64) {
        if self.shared.get().is_some_and(|shared| shared.watch.is_up(incarnation)) {
            self.send_control(0, &Head::StillUp { number });
        }
    }

    /// The node of an inquiry is up at the other node.
    pub(super) fn take_still_up(&self, number: u64) {
        self.shared.get().into_iter().for_each(|shared| shared.watch.still_up(shared.peer, number));
    }

    /// Takes a share of the other node, which owns its processes only.
    pub(super) fn take_share(&self, share: Share) -> Result<(), BadFrame> {
        let Some(Shared { groups, peer, .. }) = self.shared.get() else { return Ok(()) };
        // Durable processes have no entries.
        if share.entries().iter().any(|entry| entry.pid.node() != self.there.node) {
            return Err(BadFrame("a node tells of a process of another one".into()));
        }
        let groups = groups.upgrade();
        groups.map_or(Ok(()), |groups| groups.receive(*peer, share).map_err(BadFrame))
    }

    /// Takes a frame about unique names.
    pub(super) fn take_lease_frame(&self, frame: LeaseFrame) -> Result<(), BadFrame> {
        let Some(Shared { unique, peer, .. }) = self.shared.get() else { return Ok(()) };
        let unique = unique.upgrade();
        unique.map_or(Ok(()), |unique| unique.receive(*peer, self, frame).map_err(BadFrame))
    }
}

impl Shares for Connection {
    fn share(&self, share: &Share) {
        // From outside of processes, so all shares keep their order.
        self.send_control(0, &Head::Share(share.clone()));
    }
}

impl LeaseFrames for Connection {
    fn lease_frame(&self, frame: &LeaseFrame) {
        self.send_control(0, &Head::Lease(frame.clone()));
    }
}
