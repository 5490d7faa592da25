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

/// Why the invariants are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A turn has ended.
    AfterTurn,
    /// The time of an eventuality is over, or the run. No turn has ended, so only the eventualities are asked.
    TimeIsOver,
    /// Nothing more will happen.
    AtRest,
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

impl Eventuality {
    /// The beginning of its time.
    fn since(&self, last_fault: Duration) -> Duration {
        self.since.max(last_fault)
    }

    fn has_held(&self, last_fault: Duration) -> bool {
        self.held.is_some_and(|held| held >= self.since(last_fault))
    }

    /// The end of its time.
    fn end(&self, last_fault: Duration) -> Duration {
        self.since(last_fault).saturating_add(self.within)
    }
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

    /// The next end of the time of an eventuality that has not held. The world is asked then, although nothing happens.
    pub(super) fn next_end(&self, now: Duration, last_fault: Duration) -> Option<Duration> {
        let open = self.eventualities.iter().filter(|one| !one.has_held(last_fault));
        open.map(|one| one.end(last_fault)).filter(|end| *end > now).min()
    }

    /// Asks the invariants and the eventualities. The error is the name of the check that failed, and what it has
    /// found.
    pub(super) fn ask(
        &mut self,
        state: &WorldState<'_>,
        last_fault: Instant,
        asked: Asked,
    ) -> Result<(), (String, FindingKind, String)> {
        if asked != Asked::TimeIsOver {
            for (name, invariant) in &mut self.invariants {
                let held = contain(|| invariant(state)).unwrap_or_else(|panic| Err(format!("it {panic}")));
                held.map_err(|what| (name.clone(), FindingKind::DoesNotHold, what))?;
            }
        }
        if self.eventualities.is_empty() {
            return Ok(());
        }
        let (now, last_fault) = (state.now(), state.since_start(last_fault));
        for one in &mut self.eventualities {
            // The condition may hold because of a turn that began within its time and has ended after it. If no turn
            // was in progress at the end of the time, the condition was checked then.
            let holds = contain(|| (one.condition)(state));
            let holds = holds
                .map_err(|panic| (one.what.clone(), FindingKind::DoesNotHold, format!("its condition {panic}")))?;
            if holds {
                one.held = Some(now);
            }
            let is_over = match asked {
                Asked::AfterTurn => now > one.end(last_fault),
                Asked::TimeIsOver => now >= one.end(last_fault),
                // The last fault may end later, as a cut between nodes does.
                Asked::AtRest => !holds,
            };
            if is_over && !one.has_held(last_fault) {
                let kind = FindingKind::DidNotHold { within: one.within, held: one.held };
                let since = one.since(last_fault);
                return Err((one.what.clone(), kind, format!("the time began at {since:?}")));
            }
        }
        Ok(())
    }
}
