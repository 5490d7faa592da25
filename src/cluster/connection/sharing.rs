//! Groups, and shared and unique names, over a connection.

use super::{BadFrame, Connection, Shared};
use crate::cluster::frame::Head;
use crate::cluster::groups::table::Share;
use crate::cluster::groups::{Groups, Shares};
use crate::cluster::leases::LeaseFrame;
use crate::cluster::unique::{LeaseFrames, UniqueNames};
use crate::primitives::Arc;

impl Connection {
    /// Sets where the shares and lease frames of the other node go. `peer` is its incarnation.
    pub(crate) fn share_with(
        &self,
        groups: &Arc<Groups<Connection>>,
        unique: &Arc<UniqueNames<Connection>>,
        peer: u64,
    ) {
        let _ = self.shared.set(Shared { groups: Arc::downgrade(groups), unique: Arc::downgrade(unique), peer });
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
