//! The ways in which the decisions of a run are made.

use super::decision::{Candidate, Choose, Odds, Place};
use super::schedule::Chooser;
use super::tape::{self, Replayed, Tape};

/// Makes the decisions of a run.
#[derive(Debug)]
pub(super) enum Decider {
    Seeded(Chooser),
    /// Notes what it decides on a tape.
    Noted(tape::Recorder<Chooser>),
    Replayed(Replayed),
    /// As `Replayed`, with the deviations that took effect on a tape.
    ReplayNoted(tape::Recorder<Replayed>),
}

impl Choose for Decider {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        match self {
            Decider::Seeded(chooser) => chooser.next(candidates),
            Decider::Noted(recorder) => recorder.next(candidates),
            Decider::Replayed(replayed) => replayed.next(candidates),
            Decider::ReplayNoted(recorder) => recorder.next(candidates),
        }
    }

    fn decide(&mut self, place: Place, odds: Odds) -> u64 {
        match self {
            Decider::Seeded(chooser) => chooser.decide(place, odds),
            Decider::Noted(recorder) => recorder.decide(place, odds),
            Decider::Replayed(replayed) => replayed.decide(place, odds),
            Decider::ReplayNoted(recorder) => recorder.decide(place, odds),
        }
    }
}

impl Decider {
    /// A turn comes that nobody has chosen: the program is being ended.
    pub(super) fn count_turn(&mut self) {
        match self {
            Decider::Noted(recorder) => recorder.count_turn(),
            Decider::ReplayNoted(recorder) => recorder.count_turn(),
            Decider::Seeded(_) | Decider::Replayed(_) => {}
        }
    }

    /// Whether the item that was chosen last is out of order, if the decisions are noted.
    pub(super) fn came_late(&self) -> bool {
        match self {
            Decider::Noted(recorder) => recorder.came_late(),
            Decider::ReplayNoted(recorder) => recorder.came_late(),
            Decider::Seeded(_) | Decider::Replayed(_) => false,
        }
    }

    /// The items that others went before and that have not come since, if the decisions are noted. Each has the number
    /// of the first turn that went before it.
    pub(super) fn never_came(&self) -> Vec<(Candidate, u32)> {
        match self {
            Decider::Noted(recorder) => recorder.never_came().collect(),
            Decider::ReplayNoted(recorder) => recorder.never_came().collect(),
            Decider::Seeded(_) | Decider::Replayed(_) => Vec::new(),
        }
    }

    /// The tape, if the decisions were noted.
    pub(super) fn into_tape(self) -> Tape {
        match self {
            Decider::Noted(recorder) => recorder.into_tape(),
            Decider::ReplayNoted(recorder) => recorder.into_tape(),
            Decider::Seeded(_) | Decider::Replayed(_) => Tape::default(),
        }
    }
}
