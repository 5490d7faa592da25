//! The relations of a process whose state machine has failed and is replaced. Relations that the state machine began
//! end, and those of other processes stay.
//!
//! The owner of the body of the process, R, does this:
//!
//! 1. Marks R's cell. Under R's shard, takes the monitors that R has set. From here on no thread tells R of them. An
//!    event of them that was told before is in R's mailbox, or in the inbox of its cell.
//!    Also takes the halves of the children that R runs, and tells each child the failure as R's exit, if the child's
//!    half is still there. So either this or the child's own end takes that half, as with an end of R.
//! 2. For each link of R, one after the other, under both shards, if R's half is still there. If R alone has made the
//!    link, takes both halves, and tells the other end the failure as R's exit, if its half was there. If the other
//!    end has made the link, notes in its half that R has not, and tells it of the recovery.
//! 3. In `Cell::recover`, begins the next incarnation of R, and takes the inbox of its cell. From both mailboxes it
//!    takes out the events of the relations that R had begun, and the answers to R's commands.
//!
//! **Against the end of the other end, E.** E's end first takes all of E's halves. Then it takes R's half, and tells
//! R by it. In both steps it has the shard of the process whose halves it takes. So either step 2 or E's end takes
//! R's half:
//!
//! - R alone has made the link, and step 2 takes R's half. R is not told: E's end finds no half. E is told, unless
//!   its end has taken its half. E is ending, and drops that event.
//! - R alone has made the link, and E's end takes R's half. R is told, with a mark that R has made the link. Step 3
//!   takes that event out. E is not told: step 2 finds no half.
//! - E has made the link, alone or with R, and E's end takes R's half, before step 2 or after it. R is told, with a
//!   mark that E has made the link. The event stays, for the successor. E may be told of the recovery. E is ending,
//!   and drops that event.
//!
//! **Against a link that E makes.** It is written under both shards. If that comes before step 2, both have made the
//! link, and step 2 leaves E's part. If it comes after step 2, E was told the exit, and makes a new link. In both
//! cases E's link remains at the end. R's body is in hand, so R makes none.
//!
//! **Against an unlink by E, whose body is in hand.** E takes both halves, and then looks at R's cell. If step 2 was
//! first, the exit or the recovery is in E's mailbox, or in the inbox of its cell. E finds the mark, which step 1 has
//! set before, and takes the event out. If E was first, step 2 finds no half. E takes such events out before it does
//! anything else. R may link itself to E anew when it learns of the unlink, and fail again, and that exit is told.

use super::Cells;
use super::RUN;
use super::Relations;
use super::Told;
use super::Watcher;
use super::signal_elsewhere;
use super::tell_exit;
use crate::process::{LinkedBy, Pid, Recovered};
use crate::sched::body::Ready;
use crate::sched::cell::LinkTold;
use crate::sched::mailbox::{Control, Signal};

impl Relations {
    /// Steps 1 and 2. Returns whether the parent of the process was told that it goes on. The successor is in hand.
    #[cold]
    pub(crate) fn recover(
        &self,
        cells: &impl Cells,
        recovered: &Recovered,
        body: &Ready,
        mut then: impl FnMut(Told),
    ) -> bool {
        if let Some(cell) = cells.cell(recovered.pid) {
            cell.fails();
        }
        // The head stays with the process for all its life, and so does the parent.
        let bond = body.head.rare.as_ref().and_then(|rare| rare.bond);
        let parent = bond.filter(|bond| bond.link).map(|bond| bond.parent);
        let pid = recovered.pid;
        let taken = self.shard(pid).take(pid, |entry| {
            let links: Vec<Pid> = entry.links.keys().copied().collect();
            // A process that is run by its parent still ends with it.
            let run_by = entry.watches.split_off(&RUN);
            let watches = std::mem::replace(&mut entry.watches, run_by);
            Some((watches, entry.watched_by.split_off(&RUN), links))
        });
        let (watches, runs, links) = taken.unwrap_or_default();
        for (id, child) in runs {
            if let Watcher::Child(child, policy) = child {
                then(self.end_run(cells, id, (child, policy), (pid, &recovered.exit)));
            }
        }
        for (id, target) in watches {
            let watcher = self.shard(target).take_of(cells, target, |entry| entry.watched_by.remove(&id));
            drop(watcher);
        }
        let mut parent_told = false;
        for partner in links {
            let mut told = false;
            then(self.recover_link(cells, recovered, partner, &mut told));
            parent_told |= told && parent == Some(partner);
        }
        parent_told
    }

    /// Ends the part of the failed state machine in one link.
    fn recover_link(&self, cells: &impl Cells, recovered: &Recovered, partner: Pid, told: &mut bool) -> Told {
        let pid = recovered.pid;
        let mut both = self.both(pid, partner);
        let Some(half) = both.first().entries.get_mut(&pid).and_then(|entry| entry.links.get_mut(&partner)) else {
            return Told::Nothing;
        };
        if !half.other {
            both.first().take(pid, |entry| entry.links.remove(&partner));
            let half = both.second().take_of(cells, partner, |entry| entry.links.remove(&pid));
            let Some(by) = half.map(LinkedBy::of_recovery) else { return Told::Nothing };
            return tell_exit(cells, partner, (pid, &recovered.exit), by);
        }
        let half = both.second().entries.get_mut(&partner).and_then(|entry| entry.links.get_mut(&pid));
        let Some(half) = half else { return Told::Nothing };
        let Some(cell) = cells.cell(partner) else {
            #[cfg(feature = "cluster")]
            if cells.elsewhere(partner).is_some_and(|elsewhere| elsewhere.shows_errors()) {
                (*half, *told) = (LinkedBy::ME, true);
                return Told::Elsewhere(partner, Control::Recovered(recovered.clone()));
            }
            let signal = Signal::Control(Control::Recovered(recovered.clone()));
            if signal_elsewhere(cells, partner, signal).is_ok() {
                (*half, *told) = (LinkedBy::ME, true);
            }
            return Told::Nothing;
        };
        *half = LinkedBy::ME;
        match cell.tell_linked(partner, Control::Recovered(recovered.clone()), None) {
            LinkTold::Trapped(woken) => {
                *told = true;
                woken.map_or(Told::Nothing, Told::Woken)
            }
            LinkTold::Refused(event) => Told::Refused(event),
            // Nobody is ended by a recovery.
            LinkTold::Doomed(_) => Told::Nothing,
        }
    }
}
