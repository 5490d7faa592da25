//! What follows when a process has come to rest and waits for answers: `asks.rs` has the protocol, this does what it says.

use std::collections::HashSet;

use super::asks::{FAR, Untied, Way, follow, follow_all_the_way, untie};
use super::road::{Hands, Road};
use crate::outcome::tell_log;
use crate::process::{Decided, Pid};

impl Road {
    /// A process has come to rest, and waits for answers only, the newest question being one to `asked`. Whether somebody has
    /// to be found who follows the ways that are long.
    #[inline(never)]
    pub(super) fn came_to_rest<H: Hands>(&self, hands: &mut H, pid: Pid, asked: Pid) -> bool {
        match follow(&|pid| self.table.cell(pid), pid, asked) {
            Way::Out => false,
            Way::Far => self.asks.is_first_far(pid),
            Way::Back => self.untie(hands, pid, FAR as usize) && self.asks.is_first_far(pid),
        }
    }

    /// Follows all ways that are long, on a thread that has time.
    pub(crate) fn follow_far<H: Hands>(&self, hands: &mut H) {
        loop {
            let from = self.asks.take_far();
            if from.is_empty() {
                return;
            }
            let mut lead_out = HashSet::new();
            for pid in from {
                if follow_all_the_way(&|pid| self.table.cell(pid), pid, &mut lead_out) == Way::Back {
                    self.untie(hands, pid, usize::MAX);
                }
            }
        }
    }

    /// Gives a question of the process up if it is part of a knot. Whether there was too much to be looked at.
    #[cold]
    fn untie<H: Hands>(&self, hands: &mut H, pid: Pid, most: usize) -> bool {
        // What there is to explore may be large, and who listens to the log may take long.
        hands.let_go();
        match untie(&|pid| self.table.cell(pid), &self.asks, pid, most) {
            Untied::Far => return true,
            Untied::One(cycle, Decided::Deliver { to, tag, answer, .. }) => {
                tell_log(|| tracing::warn!(%pid, %cycle, "asks form a cycle, and one of them is given up"));
                self.answer(hands, to, tag, answer);
            }
            // Another one was faster.
            Untied::One(..) | Untied::Not => {}
        }
        false
    }
}
