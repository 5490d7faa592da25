//! Links between processes of a store and ordinary ones: their changes, and the part that a process in memory has.

use std::collections::BTreeMap;

use super::coding::Run;
use super::rows::FirstEnd;
use crate::pid::Pid;
use crate::process::{ExitSignal, LinkedBy};
use crate::sched::non_local::LinkChange;

/// A change of a link to an ordinary process.
pub(super) enum Outside {
    Link(LinkChange),
    /// The ordinary process has ended.
    Exit(ExitSignal, LinkedBy),
}

impl Outside {
    /// The cause of the end of a process that traps no exits, with the link, if this ends it.
    pub(super) fn ending(&self, run: Run) -> Option<((u64, u64), FirstEnd)> {
        let Outside::Exit(exit, _) = self else { return None };
        let noted = run.note(exit.pid);
        Some((noted, FirstEnd::of_ordinary(noted, &exit.exit, run)?))
    }
}

/// The links of a process in memory to ordinary ones, besides its ties.
#[derive(Default)]
pub(super) struct OutsideLinks {
    /// How many changes its steps have made that are not performed yet. Until then the last step decides.
    pub(super) held: BTreeMap<Pid, u32>,
    /// The links whose ends are events in its mailbox, in order.
    pub(super) offered: Vec<(u64, u64)>,
    /// The cause of its end, if one of these processes ends it.
    pub(super) end: Option<FirstEnd>,
}
