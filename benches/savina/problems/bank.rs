//! BankTransaction: a teller has amounts transferred from one account to another. An account that has sent an amount
//! does nothing else until the other has confirmed it.
//!
//! An amount goes from an account to one with a higher number, so that no two can wait for each other. The source is
//! one of the first eight tenths. Amounts are whole numbers here, not floating point. So the sum is conserved
//! exactly. Each balance can be compared with its expected value, whatever the order was.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Verdict, same, same_each};

pub(crate) const ACCOUNTS: usize = 1_000;
/// The initial balance of each account.
pub(crate) const OPENING: i64 = 1_000_000;

const SEED: u64 = 123_456;
const MOST: i64 = 1_000;

pub(crate) struct Transfer {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) amount: i64,
}

/// An endless sequence of transfers.
pub(crate) struct Transfers {
    random: Xoshiro256PlusPlus,
}

impl Transfers {
    pub(crate) fn new() -> Transfers {
        Transfers { random: Xoshiro256PlusPlus::seed_from_u64(SEED) }
    }

    pub(crate) fn next(&mut self) -> Transfer {
        let from = self.random.random_range(0..ACCOUNTS / 10 * 8);
        let to = self.random.random_range(from + 1..ACCOUNTS);
        Transfer { from, to, amount: self.random.random_range(1..=MOST) }
    }
}

/// Checks the balances after this many transfers.
pub(crate) fn check(balances: &[i64], transfers: u64) -> Verdict {
    same("the sum of all balances", balances.iter().sum(), ACCOUNTS as i64 * OPENING)?;
    let mut expected = vec![OPENING; ACCOUNTS];
    let mut stream = Transfers::new();
    for _ in 0..transfers {
        let Transfer { from, to, amount } = stream.next();
        expected[from] -= amount;
        expected[to] += amount;
    }
    same_each("the balances", balances, &expected)
}
