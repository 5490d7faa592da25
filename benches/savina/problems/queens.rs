//! NQueens: all ways to place queens so that none attacks another, up to a limit.
//!
//! A master hands boards to workers in turn. A worker sends back every board with one queen more, until four rows are
//! filled. From there on it searches alone, and reports each solution. The suite gives boards ten priorities. None of
//! the libraries has mailboxes with priorities, so they are left out here. The suite's own programs for such
//! libraries leave them out, too. Twelve queens have fewer solutions than the limit, so all of them are found. The
//! program still stops at the limit. A board is made of sets of bits, and not of an array that is copied for each
//! queen. So a larger part of the measured time is that of the messages.

use super::{Verdict, same};

pub(crate) const WORKERS: usize = 20;
/// The number of rows that are filled with the master's help.
pub(crate) const THRESHOLD: u32 = 4;
/// The number of solutions at which the search stops.
pub(crate) const LIMIT: u64 = 1_500_000;

/// The number of solutions for 1 queen upwards; <https://oeis.org/A000170>.
const SOLUTIONS: [u64; 16] =
    [1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2_680, 14_200, 73_712, 365_596, 2_279_184, 14_772_512];

/// A board with some rows filled.
#[derive(Clone, Copy)]
pub(crate) struct Board {
    size: u32,
    filled: u32,
    /// The columns that are attacked in the next row: straight, from the right, and from the left.
    attacked: [u32; 3],
}

impl Board {
    pub(crate) fn empty(size: u64) -> Result<Board, String> {
        match u32::try_from(size) {
            Ok(size) if (1..=SOLUTIONS.len()).contains(&(size as usize)) => {
                Ok(Board { size, filled: 0, attacked: [0; 3] })
            }
            _ => Err(format!("{size} queens; allowed are 1 to {}", SOLUTIONS.len())),
        }
    }

    pub(crate) fn is_full(self) -> bool {
        self.filled == self.size
    }

    /// Whether the worker does the rest alone.
    pub(crate) fn is_deep(self) -> bool {
        self.filled >= THRESHOLD
    }

    /// Every board with one more queen.
    pub(crate) fn next(self) -> impl Iterator<Item = Board> {
        let [straight, right, left] = self.attacked;
        let mut free = !(straight | right | left) & ((1 << self.size) - 1);
        std::iter::from_fn(move || {
            let queen = free & free.wrapping_neg();
            free ^= queen;
            let attacked = [straight | queen, (right | queen) << 1, (left | queen) >> 1];
            (queen != 0).then_some(Board { filled: self.filled + 1, attacked, ..self })
        })
    }

    /// Searches all solutions that continue this board.
    pub(crate) fn solve(self, found: &mut impl FnMut()) {
        if self.is_full() {
            return found();
        }
        for board in self.next() {
            board.solve(found);
        }
    }
}

/// The results that the master has received.
#[derive(Default)]
pub(crate) struct Search {
    sent: u64,
    done: u64,
    solutions: u64,
}

impl Search {
    /// Notes that a board is sent out. Returns the worker that gets it.
    pub(crate) fn send(&mut self) -> usize {
        self.sent += 1;
        (self.sent - 1) as usize % WORKERS
    }

    pub(crate) fn is_solved(&mut self) {
        self.solutions += 1;
    }

    pub(crate) fn is_done(&mut self) {
        self.done += 1;
    }

    /// The number of solutions, if the limit is reached or no board is left.
    pub(crate) fn result(&self) -> Option<u64> {
        (self.solutions >= LIMIT || self.done == self.sent).then_some(self.solutions.min(LIMIT))
    }
}

/// The number of solutions. `None` if it is unknown.
pub(crate) fn solutions(size: u64) -> Option<u64> {
    Some(LIMIT.min(*SOLUTIONS.get((size as usize).checked_sub(1)?)?))
}

pub(crate) fn check(found: u64, size: u64) -> Verdict {
    same("solutions", Some(found), solutions(size))
}
