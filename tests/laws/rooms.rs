//! The monitor of room in mailboxes: bounds, and letters that wait for room.

use std::collections::{BTreeSet, HashMap};

use procession::Pid;
use procession::observe::DeadLetterReason;

#[derive(Default)]
pub struct Rooms {
    /// The most letters in the mailbox of a process.
    bounds: HashMap<Pid, usize>,
    /// The letters that are sent to a process with a bound, and neither taken nor dead.
    waiting: HashMap<Pid, usize>,
    /// The letters that a process has taken in this turn. Their places are free when its step is settled.
    taken: HashMap<Pid, usize>,
    /// The letters that may wait for room, by sender and receiver. Later ones of the same pair wait behind them.
    outside: HashMap<(Pid, Pid), BTreeSet<u64>>,
    /// Their pairs and numbers, by sender and tag.
    tags: HashMap<(Pid, u64), ((Pid, Pid), u64)>,
}

impl Rooms {
    pub fn set_bound(&mut self, of: Pid, limit: usize) {
        self.bounds.insert(of, limit);
    }

    pub fn has_bound(&self, of: Pid) -> bool {
        self.bounds.contains_key(&of)
    }

    /// A letter is sent to this process.
    pub fn comes(&mut self, to: Pid) {
        if self.bounds.contains_key(&to) {
            *self.waiting.entry(to).or_default() += 1;
        }
    }

    /// A letter is taken, or dead, or handed back.
    pub fn goes(&mut self, to: Pid, number: u64) {
        self.waiting.entry(to).and_modify(|waiting| *waiting -= 1);
        if !self.outside.is_empty() {
            self.outside.retain(|_, numbers| {
                numbers.remove(&number);
                !numbers.is_empty()
            });
        }
    }

    /// A letter may wait for room from now on.
    pub fn waits(&mut self, pair: (Pid, Pid), (tag, number): (u64, u64)) {
        self.tags.insert((pair.0, tag), (pair, number));
        self.outside.entry(pair).or_default().insert(number);
    }

    /// A command is answered. If it is the send of a letter, that waits no longer.
    pub fn answers(&mut self, me: Pid, tag: u64) {
        let Some((pair, number)) = self.tags.remove(&(me, tag)) else { return };
        if let Some(numbers) = self.outside.get_mut(&pair) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.outside.remove(&pair);
            }
        }
    }

    pub fn are_all_inside(&self) -> bool {
        self.outside.is_empty()
    }

    /// Whether letters of this sender may wait for room.
    pub fn is_waiting(&self, from: Pid, to: Pid) -> bool {
        self.outside.contains_key(&(from, to))
    }

    /// A letter is dead. If there was no room for it, as many letters have places as the bound allows: those that wait,
    /// and those that were taken in this turn.
    pub fn check_full(&self, to: Pid, reason: DeadLetterReason) -> Result<(), String> {
        let has_no_room = matches!(
            reason,
            DeadLetterReason::Full | DeadLetterReason::DroppedNewest | DeadLetterReason::DroppedOldest
        );
        let waiting = self.waiting.get(&to).copied().unwrap_or(0) + self.taken.get(&to).copied().unwrap_or(0);
        match self.bounds.get(&to) {
            Some(limit) if has_no_room && waiting < *limit => {
                Err(format!("a letter to {to} is dead ({reason}), and only {waiting} of {limit} wait"))
            }
            _ => Ok(()),
        }
    }

    /// A process takes a letter.
    pub fn takes(&mut self, me: Pid) {
        if self.bounds.contains_key(&me) {
            *self.taken.entry(me).or_default() += 1;
        }
    }

    /// Between two turns. While a step runs, its mailbox takes as many letters as wait there already. Letters that
    /// arrive later are not counted by any mailbox.
    pub fn turn_is_over(&mut self, arrive_at_once: bool) -> Result<(), String> {
        self.taken.clear();
        let are_counted = arrive_at_once && self.outside.is_empty();
        let is_over = |(pid, waiting): &(&Pid, &usize)| self.bounds.get(pid).is_some_and(|limit| **waiting > 2 * limit);
        match self.waiting.iter().filter(|_| are_counted).find(is_over) {
            Some((pid, waiting)) => Err(format!("{waiting} letters wait for {pid}, which has room for less")),
            None => Ok(()),
        }
    }
}
