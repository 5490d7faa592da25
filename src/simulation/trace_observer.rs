//! The observer of a run whose turns are recorded: it adds dead letters and ended processes to the trace.

use super::shared::Shared;
use super::trace_formatter::TraceFormatter;
use crate::outcome::Exit;
use crate::primitives::{Arc, Weak};
use crate::process::{DeadLetter, Observer, ProcessIdentity, StuckStep};

/// Passes everything on to the observer of the program.
pub(super) struct TraceObserver {
    shared: Weak<Shared>,
    formatter: Arc<TraceFormatter>,
    program: Option<Arc<dyn Observer>>,
}

impl TraceObserver {
    pub(super) fn new(
        shared: &Arc<Shared>,
        formatter: Arc<TraceFormatter>,
        program: Option<Arc<dyn Observer>>,
    ) -> TraceObserver {
        TraceObserver { shared: Arc::downgrade(shared), formatter, program }
    }
}

impl Observer for TraceObserver {
    fn spawned(&self, process: &ProcessIdentity) {
        self.program.iter().for_each(|program| program.spawned(process));
    }

    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        if let Some(shared) = self.shared.upgrade() {
            let state = &mut *shared.state();
            // The trace shows how a step has ended. This is about the end of another process.
            let in_hand = state.in_hand.last().map(|(pid, ..)| *pid);
            if in_hand != Some(process.pid) {
                state.recorder.note(in_hand, format!("{process} ended: {exit}"));
            }
        }
        self.program.iter().for_each(|program| program.exited(process, exit));
    }

    fn restarted(&self, process: &ProcessIdentity, exit: &Exit) {
        self.program.iter().for_each(|program| program.restarted(process, exit));
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let content = letter.message.map(|message| self.formatter.describe(message, letter.type_name));
        if let Some(shared) = self.shared.upgrade() {
            let state = &mut *shared.state();
            let in_hand = state.in_hand.last().map(|(pid, ..)| *pid);
            state.recorder.dead_letter(in_hand, letter, content);
        }
        self.program.iter().for_each(|program| program.dead_letter(letter));
    }

    fn stuck(&self, step: &StuckStep) {
        self.program.iter().for_each(|program| program.stuck(step));
    }

    fn unstuck(&self, step: &StuckStep) {
        self.program.iter().for_each(|program| program.unstuck(step));
    }
}
