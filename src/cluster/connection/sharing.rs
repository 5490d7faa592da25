//! Groups and shared names over a connection.

use super::{BadFrame, Connection};
use crate::cluster::frame::Head;
use crate::cluster::groups::table::Share;
use crate::cluster::groups::{Groups, Shares};
use crate::primitives::Arc;

impl Connection {
    /// Sets where the shares of the other node go. `peer` is its incarnation.
    pub(crate) fn share_with(&self, groups: &Arc<Groups<Connection>>, peer: u64) {
        let _ = self.shared.set((Arc::downgrade(groups), peer));
    }

    /// Takes a share of the other node, which owns its processes only.
    pub(super) fn take_share(&self, share: Share) -> Result<(), BadFrame> {
        let Some((groups, peer)) = self.shared.get() else { return Ok(()) };
        // Durable processes have no entries.
        if share.entries().iter().any(|entry| entry.pid.node() != self.there.node) {
            return Err(BadFrame("a node tells of a process of another one".into()));
        }
        let groups = groups.upgrade();
        groups.map_or(Ok(()), |groups| groups.receive(*peer, share).map_err(BadFrame))
    }
}

impl Shares for Connection {
    fn share(&self, share: &Share) {
        // From outside of processes, so all shares keep their order.
        self.send_control(0, &Head::Share(share.clone()));
    }
}
