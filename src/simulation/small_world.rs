//! A world of a few lines for tests: processes that are functions, mailboxes that are queues.

use std::collections::VecDeque;

use super::decision::{Candidate, Choose, Item};
use crate::pid::Pid;

/// The PID of a process of a small world.
pub(super) fn pid(number: u32) -> Pid {
    Pid::new(1, number, 1).unwrap()
}

/// A turn of a process of a small world: its message, and its sends.
pub(super) struct SmallTurn<'a> {
    pub(super) me: u32,
    pub(super) nth: u32,
    /// The message that it takes: its sender and a number. The first turn takes none.
    pub(super) message: Option<(u32, u64)>,
    pub(super) sends: Vec<(u32, u64)>,
    pub(super) choose: &'a mut dyn Choose,
}

pub(super) struct SmallWorld {
    mailboxes: Vec<VecDeque<(u32, u64)>>,
    ready: Vec<Candidate>,
    counts: Vec<u32>,
    history: Vec<Candidate>,
}

impl SmallWorld {
    /// Makes processes that are about to have their first turn.
    pub(super) fn new(processes: u32) -> SmallWorld {
        let ready = (0..processes).map(|me| Candidate { item: Item::Turn(pid(me)), nth: 0 }).collect();
        let counts = vec![0; processes as usize];
        SmallWorld { mailboxes: vec![VecDeque::new(); counts.len()], ready, counts, history: Vec::new() }
    }

    /// Runs until all processes rest, or for so many turns. A step returns whether its process continues.
    pub(super) fn run(
        &mut self,
        choose: &mut dyn Choose,
        turns: u32,
        mut step: impl FnMut(&mut SmallTurn<'_>) -> bool,
    ) {
        for _ in 0..turns {
            if self.ready.is_empty() {
                return;
            }
            let candidate = self.ready.remove(choose.next(&self.ready));
            let Item::Turn(of) = candidate.item else { continue };
            let (me, nth) = (of.slot(), candidate.nth);
            self.history.push(candidate);
            self.counts[me as usize] += 1;
            let message = if nth == 0 { None } else { self.mailboxes[me as usize].pop_front() };
            let mut turn = SmallTurn { me, nth, message, sends: Vec::new(), choose };
            let continues = step(&mut turn);
            for (to, number) in std::mem::take(&mut turn.sends) {
                self.mailboxes[to as usize].push_back((me, number));
                self.wake(to);
            }
            if continues || !self.mailboxes[me as usize].is_empty() {
                self.wake(me);
            }
        }
    }

    fn wake(&mut self, process: u32) {
        let candidate = Candidate { item: Item::Turn(pid(process)), nth: self.counts[process as usize] };
        if !self.ready.contains(&candidate) {
            self.ready.push(candidate);
        }
    }

    /// The turns so far: the process, and which turn of it.
    pub(super) fn turns(&self) -> Vec<(u32, u32)> {
        let turn = |candidate: &Candidate| match candidate.item {
            Item::Turn(of) => Some((of.slot(), candidate.nth)),
            _ => None,
        };
        self.history.iter().filter_map(turn).collect()
    }
}
