//! The numbers of lives, which are the first parts of PIDs.
//!
//! A *life* is the time in which PIDs with one number are given: that of a node from its start to its end, or that of a
//! store over all its runs. Nodes give the lives of others numbers of their own, because a PID is one word. A life
//! keeps its own number elsewhere if that is free, so a PID is mostly printed alike on all nodes.
//!
//! A number is given when a PID of the life is first shown, and never again. So two PIDs of one node are equal exactly
//! if they name the same process.

use std::collections::{BTreeMap, HashMap};

use crate::pid::Pid;
use crate::primitives::{Mutex, lock};

/// Names a life everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// A node from its start to its end. The number was drawn at its start.
    Node(u64),
    /// A store.
    Store(u64),
}

/// A PID cannot be shown here, because all numbers of lives are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "PIDs of {life:?} cannot be shown here: this node has seen {} others since its start, which is its limit",
    Pid::MAX_NODE
)]
pub(crate) struct NoNumberError {
    life: Life,
}

/// The numbers that one node has given.
pub(crate) struct Lives {
    given: Mutex<Given>,
}

struct Given {
    numbers: HashMap<Life, u32>,
    lives: HashMap<u32, Life>,
    /// The free numbers, as the first and the last one of each row of them.
    free: BTreeMap<u32, u32>,
}

impl Lives {
    /// The numbers of a node whose PIDs begin with this one.
    pub(crate) fn new(life: Life, number: u32) -> Lives {
        let free = BTreeMap::from([(0, Pid::MAX_NODE)]);
        let mut given = Given { numbers: HashMap::new(), lives: HashMap::new(), free };
        given.give(life, number);
        Lives { given: Mutex::new(given) }
    }

    /// The number of a life that has one.
    pub(crate) fn known(&self, life: Life) -> Option<u32> {
        lock(&self.given).numbers.get(&life).copied()
    }

    /// The number of a life. If it has none yet, it gets the one that it wishes, or another one.
    pub(crate) fn number(&self, life: Life, wish: u32) -> Result<u32, NoNumberError> {
        let mut given = lock(&self.given);
        if let Some(number) = given.numbers.get(&life) {
            return Ok(*number);
        }
        let number = given.vacant(wish).ok_or(NoNumberError { life })?;
        given.give(life, number);
        Ok(number)
    }

    /// The life that has this number.
    pub(crate) fn life(&self, number: u32) -> Option<Life> {
        lock(&self.given).lives.get(&number).copied()
    }
}

impl Given {
    /// Gives a life a free number.
    fn give(&mut self, life: Life, number: u32) {
        self.numbers.insert(life, number);
        self.lives.insert(number, life);
        let row = self.free.range(..=number).next_back().map(|(first, last)| (*first, *last));
        if let Some((first, last)) = row {
            self.free.remove(&first);
            if first < number {
                self.free.insert(first, number - 1);
            }
            if number < last {
                self.free.insert(number + 1, last);
            }
        }
    }

    /// The first free number from the wished one on. After the last number comes the first.
    fn vacant(&self, wish: u32) -> Option<u32> {
        let is_free = self.free.range(..=wish).next_back().is_some_and(|(_, last)| wish <= *last);
        if is_free {
            return Some(wish);
        }
        let next = self.free.range(wish..).next().or_else(|| self.free.first_key_value());
        next.map(|(first, _)| *first)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_its_own_number_if_that_is_free_and_keeps_what_it_has() {
        let lives = Lives::new(Life::Node(1), 7);
        assert_eq!(lives.number(Life::Node(2), 9), Ok(9));
        // A restarted node has the same wish.
        assert_eq!(lives.number(Life::Node(3), 9), Ok(10));
        assert_eq!(lives.number(Life::Store(1), 7), Ok(8));
        assert_eq!(lives.number(Life::Node(2), 500), Ok(9));
        assert_eq!(lives.number(Life::Node(1), 500), Ok(7));
        assert_eq!(lives.life(8), Some(Life::Store(1)));
        assert_eq!(lives.life(11), None);
        // A wish may come from anywhere.
        assert_eq!(lives.number(Life::Node(4), Pid::MAX_NODE), Ok(Pid::MAX_NODE));
        assert_eq!(lives.number(Life::Node(5), Pid::MAX_NODE), Ok(0));
        assert_eq!(lives.number(Life::Node(6), u32::MAX), Ok(1));
    }

    #[test]
    fn when_all_numbers_are_given_new_lives_have_none_and_others_keep_theirs() {
        let lives = Lives::new(Life::Node(0), 7);
        let others = u64::from(Pid::MAX_NODE);
        let mut numbers: Vec<u32> = (1..=others).map(|life| lives.number(Life::Node(life), 7).unwrap()).collect();
        let last = numbers[numbers.len() - 1];
        let error = lives.number(Life::Store(3), 7).unwrap_err();
        assert!(
            error.to_string().starts_with("PIDs of Store(3) cannot be shown here: this node has seen 16383 others")
        );
        assert_eq!((lives.number(Life::Node(others), 0), lives.life(7)), (Ok(last), Some(Life::Node(0))));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len() as u64, numbers.contains(&7)), (others, false));
    }
}
