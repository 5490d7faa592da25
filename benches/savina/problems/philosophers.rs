//! Philosophers: twenty of them at a round table, with a fork between each two. A hungry one asks the waiter for both
//! forks. If one of them is in use, it asks again at once.

use super::{Verdict, same};

pub(crate) const PHILOSOPHERS: usize = 20;

/// The state of the waiter.
#[derive(Default)]
pub(crate) struct Table {
    in_use: [bool; PHILOSOPHERS],
    meals: [u64; PHILOSOPHERS],
}

impl Table {
    /// Whether the philosopher on this seat may eat now. If so, it has both forks.
    pub(crate) fn is_served(&mut self, seat: usize) -> bool {
        let forks = [seat, (seat + 1) % PHILOSOPHERS];
        let are_free = forks.iter().all(|fork| !self.in_use[*fork]);
        if are_free {
            forks.iter().for_each(|fork| self.in_use[*fork] = true);
        }
        are_free
    }

    /// Ends a meal, and frees both forks.
    pub(crate) fn has_eaten(&mut self, seat: usize) {
        for fork in [seat, (seat + 1) % PHILOSOPHERS] {
            self.in_use[fork] = false;
        }
        self.meals[seat] += 1;
    }

    pub(crate) fn meals(&self) -> [u64; PHILOSOPHERS] {
        self.meals
    }
}

pub(crate) fn check(meals: [u64; PHILOSOPHERS], rounds: u64) -> Verdict {
    same("meals of each philosopher", meals, [rounds; PHILOSOPHERS])
}
