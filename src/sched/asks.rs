//! Asks that form a cycle: they are found when they are closed, and one of them is given up.
//!
//! A process is *stuck* if it rests after `Step::Wait` and all that it waits for are answers to questions: open, and not
//! handed on. Any one of these answers would wake it. So it takes a *knot* to keep it from going on for ever: all whom it
//! has asked, and all whom those have asked, and so on, are stuck. Then nobody is left who could answer one of them.
//!
//! Who waits for whom is written down nowhere but in the bodies that rest in their cells. So there is nothing to be kept
//! up to date, and a process that does not ask and wait has no part in this. The protocol:
//!
//! 1. A process comes to rest, in the critical section of its cell. Its questions were put before. Each rest has a number
//!    of its own: the steps that the process has made.
//! 2. Whoever has put it to rest *follows* its questions from cell to cell, one lock at a time: at first always the newest
//!    one, noting nothing, for mostly the first or the second process on the way is not stuck. Then there is no knot. If the
//!    first one is what this worker steps next, no cell is looked at: a process whose body is in one's hands is not at rest.
//! 3. If the way comes back to where it was, all that can be reached is *explored*, and noted: each process with the number
//!    of its rest and its questions. If one of them is not stuck there is no knot.
//! 4. If all are, and each of them leads back to the process that came to rest, then, under the one lock for such
//!    decisions, each is looked at once more: does it still rest in that rest, are its questions still open? If so one
//!    question of the process is decided, with the cycle as its answer; one on a shortest way back. Nobody has to undo
//!    anything: for the process this is an answer like any other.
//!
//! *There was a knot.* Between the exploration and the second look lies a moment at which each of them was at rest, for it
//! was in the same rest before and after; and its questions were open, for an open question was open before. So at that
//! moment all that could be reached was stuck.
//!
//! *One error for one knot.* Two who close a knot at the same time may both explore it. The second to have the lock finds
//! the question of the first decided. And who only leads into a knot is not one of it, and leaves it to those who are.
//!
//! *No knot is missed.* Let a knot be there for good, and take a part of it in which each leads to each and nobody leads
//! out. Suppose none of its processes has found it. Then each, when it had come to rest, saw some other of them not stuck:
//! one that came to rest later. (A question that is decided stays so, and its process is woken by the answer; so "not
//! stuck" can only have meant: not at rest, or in an earlier rest.) "Later" is an order of critical sections: the cell of
//! that other was looked at before the critical section in which it came to rest, and after that in which the first one
//! had. An order that has no circles has a last one, and the last one saw nobody who came to rest after it.
//!
//! A long way is not followed on a worker: after [`FAR`] processes it is left to a thread of the pool, which follows many
//! such ways together; so is a knot with more questions than that. The thread has a list of who came to rest, takes all of it at once, and follows them one after the other; what
//! was seen to lead to a process that is not stuck is not followed again for those who were on the list together, for all of
//! them had come to rest before. So those who join the end of a long line one after the other do not each pay for its length.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use super::cell::{Cell, Question};
use crate::process::{CommandError, Cycle, Decided, Pid, ProcessAsk};
use crate::sync::{Arc, Mutex, lock};

/// So many processes, or questions, are looked at one after the other before others are left to do it.
#[cfg(not(loom))]
pub(crate) const FAR: u32 = 1_000;
#[cfg(loom)]
pub(crate) const FAR: u32 = 10;

/// Where the questions of a process lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Way {
    /// To a process that is not stuck.
    Out,
    /// To where it was before.
    Back,
    /// Who knows.
    Far,
}

/// What those who look share.
#[derive(Default)]
pub(crate) struct Asks {
    /// Held by who decides.
    decisions: Mutex<()>,
    far: Mutex<FarAway>,
}

/// Those whose questions lead far.
#[derive(Default)]
struct FarAway {
    from: Vec<Pid>,
    /// A thread follows them, or is about to.
    followed: bool,
}

/// A process that was seen to be stuck.
struct Stuck {
    pid: Pid,
    rest: u64,
    outstanding: u32,
    /// Its open questions, and the places of those who were asked among the stuck.
    asks: Vec<(Arc<ProcessAsk>, usize)>,
    /// Questions that were looked at.
    looked: usize,
}

impl Stuck {
    fn is_still<'a>(&self, find: &impl Fn(Pid) -> Option<&'a Cell>) -> bool {
        find(self.pid).and_then(|cell| cell.rests(self.pid)) == Some((self.rest, self.outstanding))
            && self.asks.iter().all(|(ask, _)| !ask.is_handed_on() && ask.is_open_now())
    }
}

impl Asks {
    /// Notes one whose way is long. Whether nobody follows such ways yet.
    pub(super) fn is_first_far(&self, pid: Pid) -> bool {
        let mut far = lock(&self.far);
        far.from.push(pid);
        !std::mem::replace(&mut far.followed, true)
    }

    /// Those who have come since the last time. When there are none, nobody follows any more.
    pub(super) fn take_far(&self) -> Vec<Pid> {
        let mut far = lock(&self.far);
        far.followed = !far.from.is_empty();
        std::mem::take(&mut far.from)
    }
}

/// Follows the newest questions. Notes nothing: that the way has come to a circle shows when it meets a mark that is set
/// again after each power of two.
pub(super) fn follow<'a>(find: &impl Fn(Pid) -> Option<&'a Cell>, from: Pid, asked: Pid) -> Way {
    let (mut at, mut mark, mut reach) = (asked, from, 1);
    for steps in 1..=FAR {
        if at == from || at == mark {
            return Way::Back;
        }
        if steps == reach {
            (mark, reach) = (at, reach * 2);
        }
        match find(at).and_then(|cell| cell.asking(at)) {
            Some(next) => at = next,
            None => return Way::Out,
        }
    }
    Way::Far
}

/// The same from one that rests, however far it is: nothing leads far. Those of whom it is seen that they lead out are noted,
/// and those who were noted are not followed again.
pub(super) fn follow_all_the_way<'a>(
    find: &impl Fn(Pid) -> Option<&'a Cell>,
    from: Pid,
    lead_out: &mut HashSet<Pid>,
) -> Way {
    let (mut at, mut way) = (from, HashSet::new());
    while !lead_out.contains(&at) {
        if !way.insert(at) {
            return Way::Back;
        }
        match find(at).and_then(|cell| cell.asking(at)) {
            Some(next) => at = next,
            None => break,
        }
    }
    lead_out.extend(way);
    Way::Out
}

/// What came of looking for a knot.
#[must_use]
pub(super) enum Untied {
    /// The process is not part of one, or not any more.
    Not,
    /// More would have to be looked at.
    Far,
    /// One question of the process is decided. The answer is not delivered yet.
    One(Cycle, Decided),
}

/// Decides one question of a process that is part of a knot, if it is. `most`: so much is looked at.
pub(super) fn untie<'a>(find: &impl Fn(Pid) -> Option<&'a Cell>, asks: &Asks, pid: Pid, most: usize) -> Untied {
    let mut left = most;
    let Some(stuck) = explore(find, pid, &mut left) else {
        return if left == 0 { Untied::Far } else { Untied::Not };
    };
    let Some((ask, cycle)) = shortest_way_back(&stuck) else { return Untied::Not };
    let _alone = lock(&asks.decisions);
    if !stuck.iter().all(|one| one.is_still(find)) {
        return Untied::Not;
    }
    Untied::One(cycle.clone(), ask.decide_with(Err(CommandError::Cycle(cycle))))
}

/// All that can be reached from a process, itself first, if all of them are stuck, and if `left` is enough for looking at all
/// their questions.
fn explore<'a>(find: &impl Fn(Pid) -> Option<&'a Cell>, from: Pid, left: &mut usize) -> Option<Vec<Stuck>> {
    let look = |pid: Pid| {
        let (rest, outstanding) = find(pid)?.rests(pid)?;
        Some(Stuck { pid, rest, outstanding, asks: Vec::new(), looked: 0 })
    };
    let mut all = vec![look(from)?];
    let mut places = HashMap::from([(from, 0)]);
    let mut way = vec![0];
    while let Some(&at) = way.last() {
        *left = left.checked_sub(1)?;
        let one = &mut all[at];
        match find(one.pid)?.question(one.pid, one.rest, one.looked)? {
            Question::Open(ask) => {
                one.looked += 1;
                let asked = ask.waits_for()?;
                let place = match places.entry(asked) {
                    Entry::Occupied(place) => *place.get(),
                    Entry::Vacant(place) => {
                        all.push(look(asked)?);
                        way.push(all.len() - 1);
                        *place.insert(all.len() - 1)
                    }
                };
                all[at].asks.push((ask, place));
            }
            Question::Decided => one.looked += 1,
            Question::NoMore => {
                // Otherwise it waits for something else as well.
                if one.asks.len() != one.outstanding as usize {
                    return None;
                }
                way.pop();
            }
        }
    }
    Some(all)
}

/// A question of the first one that begins a shortest way back to it, and that way; nothing, if one of them does not lead
/// back to it at all.
fn shortest_way_back(stuck: &[Stuck]) -> Option<(&ProcessAsk, Cycle)> {
    let mut askers = vec![Vec::new(); stuck.len()];
    for (asker, one) in stuck.iter().enumerate() {
        one.asks.iter().for_each(|(_, asked)| askers[*asked].push(asker));
    }
    // From the first one backwards: for each the next one on a shortest way to it, and how long that is.
    let mut next = vec![None; stuck.len()];
    let (mut found, mut queue) = (1, VecDeque::from([0]));
    next[0] = Some((0, 0));
    while let Some(at) = queue.pop_front() {
        let (_, length): (usize, usize) = next[at]?;
        for &asker in &askers[at] {
            if next[asker].is_none() {
                next[asker] = Some((at, length + 1));
                found += 1;
                queue.push_back(asker);
            }
        }
    }
    if found < stuck.len() {
        return None;
    }
    let (ask, asked) = stuck[0].asks.iter().min_by_key(|(_, asked)| next[*asked].map(|(_, length)| length))?;
    let (mut cycle, mut at) = (vec![stuck[0].pid], *asked);
    while at != 0 {
        cycle.push(stuck[at].pid);
        at = next[at]?.0;
    }
    Some((&**ask, Cycle::new(cycle)))
}
