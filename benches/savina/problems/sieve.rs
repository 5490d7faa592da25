//! Sieve: a row of filters, each with the next 1,000 primes. A number that none of them divides is the next prime.
//!
//! As in the suite, only odd numbers are sent. A filter divides by all its primes until one fits, and not only by
//! those up to the square root. This program measures messages with some work in them.

use super::{Verdict, same};

/// The most primes of a filter.
const MOST: usize = 1_000;

/// The state of a filter.
pub(crate) struct Filter {
    primes: Vec<u64>,
}

/// The result of sifting a number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sifted {
    Divided,
    Kept,
    /// The number goes to the next filter. If there is none, it is that filter's first prime.
    Passed,
}

impl Filter {
    pub(crate) fn new(first: u64) -> Filter {
        let mut primes = Vec::with_capacity(MOST);
        primes.push(first);
        Filter { primes }
    }

    /// Sifts a number. The numbers must come in ascending order.
    pub(crate) fn sift(&mut self, number: u64) -> Sifted {
        if self.primes.iter().any(|prime| number.is_multiple_of(*prime)) {
            Sifted::Divided
        } else if self.primes.len() == MOST {
            Sifted::Passed
        } else {
            self.primes.push(number);
            Sifted::Kept
        }
    }

    pub(crate) fn primes(&self) -> u64 {
        self.primes.len() as u64
    }
}

/// The numbers that are sent. The first filter starts with 2.
pub(crate) fn candidates(limit: u64) -> impl Iterator<Item = u64> + Send + 'static {
    (3..=limit).step_by(2)
}

pub(crate) fn check(primes: u64, limit: u64) -> Verdict {
    same("primes", primes, count(limit))
}

/// The number of primes up to `limit`, counted by crossing out multiples.
pub(crate) fn count(limit: u64) -> u64 {
    let mut is_crossed = vec![false; limit as usize + 1];
    let mut count = 0;
    for number in 2..is_crossed.len() {
        if !is_crossed[number] {
            count += 1;
            is_crossed[number..].iter_mut().step_by(number).for_each(|multiple| *multiple = true);
        }
    }
    count
}
