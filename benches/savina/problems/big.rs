//! Big: each actor pings a random other, waits for its pong, and pings the next.
//!
//! As in the suite, an actor may draw itself.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Verdict, same_each};

pub(crate) const ACTORS: usize = 120;

/// The actors that an actor pings, one after the other.
pub(crate) struct Targets {
    random: Xoshiro256PlusPlus,
}

impl Targets {
    pub(crate) fn of(actor: usize) -> Targets {
        Targets { random: Xoshiro256PlusPlus::seed_from_u64(actor as u64) }
    }

    pub(crate) fn next(&mut self) -> usize {
        self.random.random_range(0..ACTORS)
    }
}

/// Each actor reports how many pings it has answered, which is how often the others have drawn it.
pub(crate) fn check(answered: &[u64], pings: u64) -> Verdict {
    let mut expected = vec![0; ACTORS];
    for actor in 0..ACTORS {
        let mut targets = Targets::of(actor);
        for _ in 0..pings {
            expected[targets.next()] += 1;
        }
    }
    same_each("pings answered by each", answered, &expected)
}
