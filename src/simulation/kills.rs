//! The kills of a world.

use crate::runtime::simulated::Job;

/// The kills of a world, and the program that can be killed.
#[derive(Default)]
pub(super) struct Kills {
    /// Whether a program runs that can be started again.
    pub(super) has_program: bool,
    /// Whether it was killed, and its code has not been unwound yet.
    pub(super) is_killed: bool,
    /// The number of records that stores of the world have committed.
    pub(super) commits: u64,
    /// The number of the commit after which the program is killed.
    pub(super) behind: Option<u64>,
    /// Called when the program is killed.
    pub(super) hooks: Vec<Job>,
}
