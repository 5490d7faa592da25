//! The links of processes of this node with those of another, as that node says.
//!
//! The halves of such a link change together with the tables of the connection, under the locks of both halves. See
//! `docs/cluster.md`, "Relations between nodes".

use super::{Cells, Relations, Told, mark, mark_linked, tell_exit, write_link, write_monitor};
use crate::outcome::Exit;
use crate::process::{LinkedBy, Monitor, Pid, Recovered};
use crate::sched::cell::LinkTold;
use crate::sched::mailbox::Control;

/// The part of a link that ends when another node says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    Nothing,
    /// The link stays. Only the process of this node has made it now.
    OfOtherOnly,
    Whole,
}

impl Relations {
    /// The process `far` has linked itself to the process `near` of this node. `accept` is told whether that one
    /// lives, and says whether the link is written.
    pub(crate) fn linked_from_elsewhere(
        &self,
        cells: &impl Cells,
        (far, near): (Pid, Pid),
        accept: impl FnOnce(bool) -> bool,
    ) {
        let mut both = self.both(far, near);
        if accept(mark(cells, near)) {
            both.first().of(far).link(near, LinkedBy::ME);
            both.second().of(near).link(far, LinkedBy::OTHER);
        }
    }

    /// The process `near` of this node has spawned `far` on another node, with a link or a monitor. Returns whether
    /// they are related. They are not if `near` has ended.
    pub(crate) fn spawned_elsewhere(
        &self,
        cells: &impl Cells,
        (near, far): (Pid, Pid),
        (link, monitor): (bool, Option<Monitor>),
    ) -> bool {
        let mut both = self.both(near, far);
        if !mark(cells, near) {
            return false;
        }
        if let Some(monitor) = monitor {
            if !mark(cells, far) {
                return false;
            }
            write_monitor(&mut both, cells, near, monitor);
        }
        let is_linked = link && mark_linked(cells, near, far);
        if is_linked {
            write_link(&mut both, cells, near, far);
        }
        is_linked || !link
    }

    /// The process `recovered.pid` of another node has recovered, and the process `near` of this node has linked itself
    /// to it.
    pub(crate) fn recovered_elsewhere(&self, cells: &impl Cells, recovered: Recovered, near: Pid) -> Told {
        let mut shard = self.shard(near);
        let half = shard.entries.get_mut(&near).and_then(|entry| entry.links.get_mut(&recovered.pid));
        let (Some(half), Some(cell)) = (half, cells.cell(near)) else { return Told::Nothing };
        *half = LinkedBy::ME;
        match cell.tell_linked(near, Control::Recovered(recovered), None) {
            LinkTold::Trapped(woken) => woken.map_or(Told::Nothing, Told::Woken),
            LinkTold::Refused(event) => Told::Refused(event),
            // Nobody is ended by a recovery.
            LinkTold::Doomed(_) => Told::Nothing,
        }
    }

    /// The process `far` has ended its link to the process `near` of this node. `accept` says whether the link is
    /// taken out. If there is an exit, it is told. The flag says whether `far` lives, and has only replaced its state
    /// machine.
    pub(crate) fn unlinked_from_elsewhere(
        &self,
        cells: &impl Cells,
        (far, near): (Pid, Pid),
        exit: Option<(&Exit, bool)>,
        accept: impl FnOnce() -> LinkEnd,
    ) -> Told {
        let mut both = self.both(far, near);
        match accept() {
            LinkEnd::Nothing => return Told::Nothing,
            LinkEnd::OfOtherOnly => {
                let half = both.second().entries.get_mut(&near).and_then(|entry| entry.links.get_mut(&far));
                half.into_iter().for_each(|half| half.other = false);
                return Told::Nothing;
            }
            LinkEnd::Whole => {}
        }
        both.first().take_of(cells, far, |entry| entry.links.remove(&near));
        let half = both.second().take(near, |entry| entry.links.remove(&far));
        match (half, exit) {
            (Some(by), Some((exit, recovered))) => {
                tell_exit(cells, near, (far, exit), if recovered { by.of_recovery() } else { by })
            }
            _ => Told::Nothing,
        }
    }
}
