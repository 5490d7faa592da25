//! The relations of a process whose state machine has failed and is replaced: what the state machine took goes, and what
//! others hold stays.
//!
//! The owner of the body of the process, R, does this:
//!
//! 1. Marks R's cell. Under R's shard: takes the monitors that R has set. From here on nobody tells R of them. An event of them that was told
//!    before is in R's mailbox, or in the inbox of its cell.
//! 2. For each link of R, one after the other, under both shards, if R's half is still there. If R alone has made the link,
//!    takes both halves, and tells the other end the failure as R's exit, if its half was there. If the other end has made the
//!    link, notes in its half that R has not, and tells it of the recovery.
//! 3. Begins the next incarnation of R, and takes the inbox of its cell. From both mailboxes it takes out what was told of the
//!    relations that R had begun, and the answers to R's commands.
//!
//! **Against the end of the other end, E.** E's end first takes all of E's halves. Then it takes R's half, and tells R by it.
//! In both steps it has the shard of the one whose halves it takes. So of 2 and E's end one takes R's half:
//!
//! | the link was made by | R's half is taken by | R | E |
//! |---|---|---|---|
//! | R alone | 2 | is not told: E's end finds no half | is told, unless its end has taken its half. It is ending, and drops that |
//! | R alone | E's end | is told, with a mark that R has made the link. 3 takes that out | is not told: 2 finds no half |
//! | E, or both | E's end, before 2 or after it | is told, with a mark that E has made the link. It stays, for the successor | may be told of the recovery. It is ending, and drops that |
//!
//! **Against a link that E makes.** It is written under both shards. If that comes before 2, both have made the link, and 2
//! leaves E's name. If it comes after 2, E was told the exit, and makes a new link. In both cases E's link stands at the end.
//! R's body is in hand, so R makes none.
//!
//! **Against an unlink by E, whose body is in hand.** E takes both halves, and then looks at R's cell. If 2 was first, the exit
//! or the recovery is in E's mailbox, or in the inbox of its cell. E finds the mark, which 1 has set before, and takes the event
//! out. If E was first, 2 finds no half. E takes such events out before it does anything else: R may link itself to E anew
//! when it learns of the unlink, and fail again, and that exit is told.

use super::Cells;
use super::Relations;
use super::Told;
use super::tell_exit;
use crate::process::{LinkedBy, Pid, Recovered};
use crate::sched::body::Ready;
use crate::sched::cell::{LeftBehind, LinkTold, Next};
use crate::sched::mailbox::Control;

impl Relations {
    /// The state machine of a process has failed, and the one in hand replaces it.
    #[cold]
    pub(crate) fn recover(
        &self,
        cells: &impl Cells,
        recovered: &Recovered,
        next: Next,
        body: &mut Ready,
        then: impl FnMut(Told),
    ) -> LeftBehind {
        if let Some(cell) = cells.cell(recovered.pid) {
            cell.fails();
        }
        // The head stays with the process for all its life, and so does the parent.
        let bond = body.head.rare.as_ref().and_then(|rare| rare.bond);
        let parent = bond.filter(|bond| bond.link).map(|bond| bond.parent);
        let told = self.give_up(cells, recovered, parent, then);
        let incarnation = body.head.next_incarnation();
        let traps = body.head.rare.as_ref().is_some_and(|rare| rare.traps);
        let mut inbox = cells.cell(recovered.pid).and_then(|cell| cell.recover(next, incarnation, traps));
        let mut signals = body.machine.mailbox().take_of_failed();
        inbox.iter_mut().for_each(|inbox| signals.extend(inbox.take_of_failed()));
        LeftBehind { told, inbox, signals }
    }

    /// Ends the relations that the failed state machine had begun. Whether its parent was told that the process goes on.
    fn give_up(
        &self,
        cells: &impl Cells,
        recovered: &Recovered,
        parent: Option<Pid>,
        mut then: impl FnMut(Told),
    ) -> bool {
        let pid = recovered.pid;
        let taken = self.shard(pid).take(pid, |entry| {
            let links: Vec<Pid> = entry.links.keys().copied().collect();
            Some((std::mem::take(&mut entry.watches), links))
        });
        let (watches, links) = taken.unwrap_or_default();
        for (id, target) in watches {
            let watcher = self.shard(target).take(target, |entry| entry.watched_by.remove(&id));
            drop(watcher);
        }
        let mut parent_told = false;
        for partner in links {
            let mut told = false;
            then(self.give_up_link(cells, recovered, partner, &mut told));
            parent_told |= told && parent == Some(partner);
        }
        parent_told
    }

    /// The same for one link.
    fn give_up_link(&self, cells: &impl Cells, recovered: &Recovered, partner: Pid, told: &mut bool) -> Told {
        let pid = recovered.pid;
        let mut both = self.both(pid, partner);
        let Some(half) = both.first().entries.get_mut(&pid).and_then(|entry| entry.links.get_mut(&partner)) else {
            return Told::Nothing;
        };
        if !half.other {
            both.first().take(pid, |entry| entry.links.remove(&partner));
            let half = both.second().take(partner, |entry| entry.links.remove(&pid));
            let Some(by) = half.map(LinkedBy::of_recovery) else { return Told::Nothing };
            return tell_exit(cells, partner, (pid, &recovered.exit), by);
        }
        let half = both.second().entries.get_mut(&partner).and_then(|entry| entry.links.get_mut(&pid));
        let (Some(half), Some(cell)) = (half, cells.cell(partner)) else { return Told::Nothing };
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
