//! The entries that a process leaves when it has ended, or that were made for one that never was.

use super::rows::{ANSWERS, LINKS, StoredMail};

/// Entries of a process that has ended, or never was.
#[derive(Default)]
pub(super) struct Left {
    /// The others that watch it.
    pub(super) watchers: Vec<(u64, u64)>,
    /// Those that are linked to it.
    pub(super) linked: Vec<u64>,
    /// Messages that no step will take.
    pub(super) mail: Vec<(u64, StoredMail)>,
    /// The tags of answers.
    pub(super) answers: Vec<u64>,
}

impl Left {
    /// The entries of a process, without its watchers.
    pub(super) fn of(mail: impl Iterator<Item = (u64, StoredMail)>, keys: impl Iterator<Item = (u8, u64)>) -> Left {
        let mut left = Left { mail: mail.collect(), ..Left::default() };
        for (class, number) in keys {
            match class {
                ANSWERS => left.answers.push(number),
                LINKS => left.linked.push(number),
                _ => {}
            }
        }
        left
    }
}
