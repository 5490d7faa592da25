//! The invariants of a run, and the conditions that must hold eventually.

use std::time::{Duration, Instant};

use super::state::WorldState;
use super::trace::FindingKind;
use crate::outcome::contain;

/// Asks about the state of a world. The error says what is wrong.
pub(super) type Invariant = Box<dyn FnMut(&WorldState<'_>) -> Result<(), String> + Send>;

/// Whether something holds in the state of a world.
pub(super) type Condition = Box<dyn FnMut(&WorldState<'_>) -> bool + Send>;

/// The invariants of a run, and the conditions that must hold eventually.
#[derive(Default)]
pub(super) struct Invariants {
    invariants: Vec<(String, Invariant)>,
    eventualities: Vec<Eventuality>,
}

/// Something that must hold within a time after the last fault.
struct Eventuality {
    what: String,
    within: Duration,
    condition: Condition,
    since: Duration,
    /// When it held last.
    held: Option<Duration>,
}

impl Invariants {
    pub(super) fn is_empty(&self) -> bool {
        self.invariants.is_empty() && self.eventualities.is_empty()
    }

    pub(super) fn add_invariant(&mut self, name: String, invariant: Invariant) {
        self.invariants.push((name, invariant));
    }

    pub(super) fn add_eventuality(&mut self, what: String, within: Duration, since: Duration, condition: Condition) {
        self.eventualities.push(Eventuality { what, within, condition, since, held: None });
    }

    /// Adds those of `other` after those that are here.
    pub(super) fn append(&mut self, mut other: Invariants) {
        self.invariants.append(&mut other.invariants);
        self.eventualities.append(&mut other.eventualities);
    }

    /// Asks all of them. The error is the name of the check that failed, and what it has found.
    pub(super) fn ask(
        &mut self,
        state: &WorldState<'_>,
        last_fault: Instant,
        is_end: bool,
    ) -> Result<(), (String, FindingKind, String)> {
        for (name, invariant) in &mut self.invariants {
            let held = contain(|| invariant(state)).unwrap_or_else(|panic| Err(format!("it {panic}")));
            held.map_err(|what| (name.clone(), FindingKind::DoesNotHold, what))?;
        }
        if self.eventualities.is_empty() {
            return Ok(());
        }
        let (now, last_fault) = (state.now(), state.since_start(last_fault));
        for one in &mut self.eventualities {
            if contain(|| (one.condition)(state)).unwrap_or(false) {
                one.held = Some(now);
            }
            let since = one.since.max(last_fault);
            let has_held = one.held.is_some_and(|held| held >= since);
            if !has_held && (is_end || now > since + one.within) {
                let kind = FindingKind::DidNotHold { within: one.within, held: one.held };
                return Err((one.what.clone(), kind, format!("the time began at {since:?}")));
            }
        }
        Ok(())
    }
}
