//! The failure of a run.

use std::time::Duration;

use super::trace::{Finding, FindingKind};

/// The first failure of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The name of the check that failed.
    pub(super) check: String,
    pub(super) kind: FindingKind,
    /// The finding of the check.
    pub(super) what: String,
    /// The number of the turn after which it failed.
    pub(super) turn: u32,
    /// The virtual time since the beginning.
    pub(super) at: Duration,
}

impl Failure {
    /// Returns the finding of the check.
    pub(super) fn finding(&self) -> Finding {
        Finding { check: self.check.clone(), kind: self.kind, detail: self.what.clone() }
    }
}
