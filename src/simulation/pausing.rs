//! Pauses of runtimes: their threads do not run for a while, as if the program was stopped.
//!
//! The clock goes on. An entry of a paused runtime that is chosen is held up until the end of the pause, and so are its
//! timers. Entries keep the order in which they were chosen. Frames for a paused node wait at it, and all arrive at the
//! end of the pause.

use std::time::{Duration, Instant};

use super::entries::Entry;
use super::recorder::ConnectionWork;
use super::shared::{Shared, State};
use crate::primitives::{Arc, lock};
use crate::runtime::dispatch::Core;

impl State {
    /// The number of the runtime with this core.
    pub(super) fn number_of(&self, core: &Arc<Core>) -> Option<usize> {
        self.cores.iter().position(|other| Arc::ptr_eq(core, other))
    }
}

impl Shared {
    /// Pauses a runtime for this time. If it is paused already, the later end counts.
    pub(super) fn pause_runtime(&self, runtime: usize, time: Duration) {
        let now = self.clock.now();
        let until = self.moment_in(time);
        let state = &mut *self.state();
        let Some(timers) = state.timers.get(runtime).cloned() else { return };
        state.pauses.add(runtime, (now, until));
        state.is_busy_until(until);
        self.clock.hold(timers, until);
    }

    /// Ends all pauses of a runtime, or of all runtimes.
    pub(super) fn end_pauses(&self, runtime: Option<usize>) {
        let state = &mut *self.state();
        for (runtime, until) in state.pauses.take(runtime) {
            state.entries.bring_those_of(until);
            state.timers.get(runtime).into_iter().for_each(|timers| self.clock.release(timers));
        }
    }

    /// The end of the pause that holds this entry up.
    pub(super) fn paused_until(&self, entry: &Entry) -> Option<Instant> {
        if self.state().pauses.is_empty() {
            return None;
        }
        let runtime = match entry {
            Entry::Turn(_, runtime) | Entry::BlockingStep(_, runtime) => Some(*runtime),
            Entry::Store(work) => Some(work.1),
            Entry::Delivery((runtime, ..)) => Some(*runtime),
            Entry::Job(pid, _) | Entry::Answer(pid, _) => {
                self.state().cores.iter().position(|core| core.road.table.node() == pid.node())
            }
            Entry::Connection(work) => match &work.0 {
                ConnectionWork::Sends(node, _) | ConnectionWork::Takes(node, _) | ConnectionWork::Arrives(_, node) => {
                    lock(&self.network).ends.iter().find(|end| end.name == *node).map(|end| end.runtime)
                }
                ConnectionWork::Crash(_) => None,
            },
            // Timers are held up by the clock.
            Entry::Timer => None,
        };
        let until = self.state().pauses.until(runtime?)?;
        (until > self.clock.now()).then_some(until)
    }
}
