//! The events of a run, and the promises that they must keep.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};

use super::letter::Letter;
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{DeadLetter, DeadLetterReason, Observer};

/// The sender and the receiver of notes. The numbers of processes are never used again.
type Pair = (u64, u64);

/// The place of a process: the number of its node, its slot and its generation.
pub(super) type Place = (u64, u32, u32);

pub(super) fn place(node: u64, pid: Pid) -> Place {
    (node, pid.slot(), pid.generation())
}

/// The events of a run.
#[derive(Default)]
pub(super) struct History {
    /// How many notes were sent. Those that have come, in order, and those that were dead letters there.
    pub(super) sent: BTreeMap<Pair, u64>,
    pub(super) taken: BTreeMap<Pair, Vec<u64>>,
    dead: BTreeMap<Pair, Vec<u64>>,
    /// How many notes are in doubt: they are dead letters of the node that has sent them.
    in_doubt: BTreeMap<Pair, u64>,
    /// The broadcasts of each node that have come to each process, in order.
    pub(super) heard: BTreeMap<Pair, Vec<u64>>,
    /// The questions of each process that are open.
    pub(super) open: BTreeMap<u64, u64>,
    /// For each process and each one that it monitors: the monitors that have not told an end.
    pub(super) monitors: BTreeMap<Pair, u64>,
    /// The pairs of processes of which one has linked the other, and which of the two. If both did, the end of the link
    /// by one of them would end that of the other one, too, who is not told.
    pub(super) linked: BTreeMap<[u64; 2], u64>,
    /// The exits and the recoveries of the second process that the first one was told.
    pub(super) exits: BTreeMap<Pair, u64>,
    pub(super) recoveries: BTreeMap<Pair, u64>,
    /// The children that were spawned on other nodes and of which no exit was told: their places and their spawners.
    pub(super) children: BTreeMap<u64, (Place, u64)>,
    /// The children that were asked to end, and those of which it was answered that they have got that.
    pub(super) asked_to_end: BTreeSet<u64>,
    pub(super) stopped: BTreeSet<u64>,
    /// How many replies are open whose askers have given up.
    pub(super) open_replies: usize,
    /// The process with a PID, as the node with this number sees it.
    processes: BTreeMap<(u64, Pid), u64>,
    /// The nodes of the processes.
    homes: BTreeMap<u64, u64>,
    /// The numbers of the nodes, by their incarnations.
    pub(super) nodes: BTreeMap<u64, u64>,
    /// The processes that have ended, or are about to. Those that have failed and recovered.
    pub(super) ended: BTreeSet<u64>,
    pub(super) failed: BTreeSet<u64>,
    /// The nodes that have crashed.
    pub(super) crashed: BTreeSet<u64>,
    wrong: Vec<String>,
}

pub(super) type Shelf = Arc<Mutex<History>>;

impl History {
    /// Notes a fault.
    pub(super) fn wrong(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    /// Notes the node of a process that begins.
    pub(super) fn lives_on(&mut self, node: u64, number: u64) {
        self.homes.insert(number, node);
    }

    /// Notes a process of a node.
    pub(super) fn begins(&mut self, node: u64, pid: Pid, number: u64) {
        self.lives_on(node, number);
        self.processes.insert((node, pid), number);
    }

    /// Notes how a node sees a process of another one.
    pub(super) fn sees(&mut self, node: u64, pid: Pid, number: u64) {
        self.processes.insert((node, pid), number);
    }

    /// Notes that a node ends with its processes.
    pub(super) fn node_ends(&mut self, node: u64) {
        self.ended.extend(self.homes.iter().filter(|(_, of)| **of == node).map(|(number, _)| *number));
    }

    /// The number of the process that a node sees at this PID.
    pub(super) fn number(&self, node: u64, pid: Pid) -> Option<u64> {
        self.processes.get(&(node, pid)).copied()
    }

    fn has_crashed(&self, number: u64) -> bool {
        self.homes.get(&number).is_some_and(|node| self.crashed.contains(node))
    }

    /// Notes the link of a process to another one. Returns whether the two were not linked.
    pub(super) fn links(&mut self, number: u64, other: u64) -> bool {
        let is_new = !self.linked.contains_key(&sorted(number, other));
        if is_new {
            self.linked.insert(sorted(number, other), number);
        }
        is_new
    }

    /// Notes that a process ends its link to another one.
    pub(super) fn unlinks(&mut self, number: u64, other: u64) {
        self.linked.remove(&sorted(number, other));
    }

    /// Notes that a process was told of the end of another one. Returns whether they can have been linked.
    pub(super) fn exits(&mut self, number: u64, other: u64, is_node_down: bool) -> bool {
        *self.exits.entry((number, other)).or_default() += 1;
        let is_child = self.children.remove(&other).is_some();
        let pair = sorted(number, other);
        let by = self.linked.get(&pair).copied();
        // The other one is told, too.
        if by == Some(number) || !is_node_down {
            self.linked.remove(&pair);
        }
        is_child || by.is_some() || is_node_down
    }

    /// The other processes that have a link with this one, and live.
    pub(super) fn linked_with(&self, number: u64) -> BTreeSet<u64> {
        let other = |[one, other]: &[u64; 2]| if *one == number { *other } else { *one };
        let others = self.linked.keys().filter(|pair| pair.contains(&number)).map(other);
        others.filter(|other| !self.ended.contains(other)).collect()
    }

    /// The places of the children that live, on a node.
    pub(super) fn children_on(&self, node: u64) -> BTreeSet<Place> {
        let lives = |(at, spawner): &&(Place, u64)| at.0 == node && !self.ended.contains(spawner);
        self.children.values().filter(lives).map(|(place, _)| *place).collect()
    }

    /// Fails if there was a fault.
    pub(super) fn check(&self) {
        assert_eq!(self.wrong, [""; 0]);
    }

    /// Checks what must be so when the weather is over, and nothing is on its way.
    pub(super) fn check_all(&self) {
        self.check();
        self.check_notes();
        for ((from, to), news) in &self.heard {
            assert!(is_rising(news), "broadcasts of {from} to {to}: {news:?}");
        }
        let is_open = |(number, count): &(&u64, &u64)| **count > 0 && !self.ended.contains(number);
        let open: Vec<_> = self.open.iter().filter(is_open).collect();
        assert!(open.is_empty(), "questions are open: {open:?}");
        assert_eq!(self.open_replies, 0, "replies are open whose askers have given up");
        let has_ended = |number: &u64| self.ended.contains(number) || self.stopped.contains(number);
        let is_left = |number: &u64, other: &u64| !self.ended.contains(number) && has_ended(other);
        for ((number, other), count) in &self.monitors {
            assert!(
                *count == 0 || !is_left(number, other),
                "{number} was not told by its monitor that {other} has ended"
            );
        }
        for (pair, number) in &self.linked {
            let [other, _] = if pair[0] == *number { [pair[1], pair[0]] } else { *pair };
            assert!(!is_left(number, &other), "{number} was not told by its link that {other} has ended");
        }
        for (number, (_, spawner)) in &self.children {
            assert!(!is_left(spawner, number), "{spawner} was not told that its child {number} has ended");
        }
    }

    fn check_notes(&self) {
        for ((from, to), sent) in &self.sent {
            let of = |numbers: &BTreeMap<Pair, Vec<u64>>| numbers.get(&(*from, *to)).cloned().unwrap_or_default();
            let (taken, mut arrived) = (of(&self.taken), of(&self.dead));
            assert!(is_rising(&taken), "{from} to {to}: {taken:?}");
            arrived.extend(&taken);
            arrived.sort_unstable();
            assert!(is_rising(&arrived), "{from} to {to} came twice: {arrived:?}");
            let in_doubt = self.in_doubt.get(&(*from, *to)).copied().unwrap_or_default();
            assert!(in_doubt <= *sent, "{from} to {to}: {in_doubt} of {sent} are in doubt");
            // A node that has crashed has taken messages with it.
            let is_whole = arrived.len() as u64 + in_doubt >= *sent || self.has_crashed(*from) || self.has_crashed(*to);
            assert!(is_whole, "{from} to {to}: of {sent} these have arrived: {arrived:?}, {in_doubt} are in doubt");
        }
    }
}

fn sorted(one: u64, other: u64) -> [u64; 2] {
    [one.min(other), one.max(other)]
}

fn is_rising(numbers: &[u64]) -> bool {
    numbers.is_sorted_by(|one, next| one < next)
}

/// Notes the dead letters of a node, which has a number.
pub(super) struct Graves(pub(super) Shelf, pub(super) u64);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let Graves(shelf, node) = self;
        let history = &mut *lock(shelf);
        if history.crashed.contains(node) {
            return;
        }
        let note = letter.message::<Letter>().and_then(Letter::note);
        match letter.reason {
            // An order for a child names a process that stands for the node.
            DeadLetterReason::NodeDown if letter.type_name != type_name::<Letter>() => {}
            DeadLetterReason::NodeDown => {
                let of = |pid| history.number(*node, pid);
                if let (Some(from), Some(to)) = (letter.from.and_then(of), of(letter.to)) {
                    *history.in_doubt.entry((from, to)).or_default() += 1;
                }
            }
            DeadLetterReason::NoSuchProcess | DeadLetterReason::Ended => {
                let to = history.number(*node, letter.to);
                if to.is_some_and(|to| !history.ended.contains(&to)) {
                    history.wrong(format!("{letter:?}, and the receiver lives"));
                }
                if let (Some((from, note)), Some(to)) = (note, to) {
                    history.dead.entry((from, to)).or_default().push(note);
                }
            }
            // An answerer that recovers.
            DeadLetterReason::StepFailed if note.is_none() => {}
            _ => history.wrong(format!("{letter:?}")),
        }
    }
}
