//! The links of processes of this node with those of another, as that node says.
//!
//! The halves of such a link change together with the tables of the connection, under the locks of both halves. See
//! `docs/cluster.md`, "Relations between nodes".

use super::{Cells, Relations, Told, mark, tell_exit};
use crate::outcome::Exit;
use crate::process::{LinkedBy, Pid};

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

    /// The process `far` has ended its link to the process `near` of this node. `accept` says whether the link is
    /// taken out. If there is an exit, it is told. The flag says whether `far` lives, and has only replaced its state
    /// machine.
    pub(crate) fn unlinked_from_elsewhere(
        &self,
        cells: &impl Cells,
        (far, near): (Pid, Pid),
        exit: Option<(&Exit, bool)>,
        accept: impl FnOnce() -> bool,
    ) -> Told {
        let mut both = self.both(far, near);
        if !accept() {
            return Told::Nothing;
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
