//! Programs that are killed, and started again in the same world.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::failure::Failure;
use super::faults::{What, Whom};
use super::recorder::Injected;
use super::shared::{Shared, State};
use super::world::World;
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::primitives::Ordering;
use crate::runtime::simulated::Job;

impl World {
    /// Runs the start-up code of a program. If the program is killed, all of its runtimes are gone, and the code is
    /// called again in the same world. Its argument is the number of kills so far.
    ///
    /// A program is killed by [`Faults::kill`](super::Faults::kill), or by a call of [`kill`](Self::kill). A kill
    /// unwinds the code from a call that waits, as a panic does. The values that the code has captured outlive it: they
    /// are the world outside, and so is a disk. The time of the world goes on.
    ///
    /// # Errors
    /// The error that the code returns. The run has failed if the program was killed and the run has failed before.
    pub fn program<T>(&self, mut code: impl FnMut(u32) -> Result<T, BoxError>) -> Result<T, BoxError> {
        for kills in 0.. {
            self.shared.can_kill.store(true, Ordering::Relaxed);
            self.shared.state().kills.has_program = true;
            let result = catch_unwind(AssertUnwindSafe(|| code(kills)));
            let (was_killed, failure) = {
                let state = &mut *self.shared.state();
                state.kills.has_program = false;
                (state.kills.is_killed, state.failure.as_ref().map(Failure::finding))
            };
            if !was_killed {
                return result.unwrap_or_else(|panic| resume_unwind(panic));
            }
            // A value that was made before the kill is noticed is gone, too.
            drop(result);
            self.end_killed();
            if let Some(failure) = failure {
                return Err(failure.to_string().into());
            }
        }
        Err("it was killed too often".into())
    }

    /// Kills the program now. Everything that is not on disk is lost.
    ///
    /// # Panics
    /// No [`program`](Self::program) runs.
    pub fn kill(&self) -> ! {
        assert!(self.shared.kill(), "a kill needs a program: see `World::program`");
        resume_unwind(Box::new("the program was killed"))
    }

    /// Ends the runtimes of a program that was killed. Nothing of them reaches a disk any more.
    fn end_killed(&self) {
        {
            let state = &mut *self.shared.state();
            state.kills.is_killed = false;
            state.is_ending = true;
        }
        #[cfg(feature = "cluster")]
        self.shared.end_pauses(None);
        for runtime in self.take_runtimes() {
            let _ = runtime.shutdown(Duration::ZERO);
        }
        self.shared.drive_to_rest();
        self.shared.clear_runtimes();
        self.shared.state().is_ending = false;
    }
}

impl Shared {
    /// Kills the program. Returns whether there is one.
    pub(super) fn kill(&self) -> bool {
        let hooks = {
            let state = &mut *self.state();
            if !state.kills.has_program {
                return false;
            }
            state.kills.is_killed = true;
            std::mem::take(&mut state.kills.hooks)
        };
        hooks.into_iter().for_each(|hook| hook());
        true
    }

    /// Kills the program, perhaps. Nothing of the runtimes is locked.
    pub(super) fn may_be_killed(&self) {
        if !self.can_kill() {
            return;
        }
        let can_be = {
            let state = self.state();
            state.kills.has_program && !state.kills.is_killed
        };
        if can_be && self.inject(Pid::FIRST, |rule| matches!(rule.whom, Whom::Program)) == Some(What::Kill) {
            self.kill();
        }
    }

    /// A record of a store of the program is on disk.
    #[cfg_attr(not(feature = "durable"), allow(dead_code))]
    pub(super) fn committed(&self) {
        let is_last = {
            let state = &mut *self.state();
            state.kills.commits += 1;
            let is_last = state.kills.behind == Some(state.kills.commits) && !state.is_ending;
            if is_last {
                state.injected += 1;
                state.has_fault_until(self.clock.now());
                state.recorder.injected(None, Injected { of: Pid::FIRST, what: What::Kill });
            }
            is_last
        };
        if is_last {
            self.kill();
        }
    }

    /// Whether the world has had a program. Most have none, and need no look at the state.
    #[inline]
    fn can_kill(&self) -> bool {
        // Ordering: Relaxed: the thread of the world writes it and reads it.
        self.can_kill.load(Ordering::Relaxed)
    }

    #[cfg_attr(not(feature = "durable"), allow(dead_code))]
    pub(super) fn on_kill(&self, hook: Job) {
        self.state().kills.hooks.push(hook);
    }

    /// Unwinds the code of a program that was killed, if it waits. Otherwise returns whether the wait is given up.
    pub(super) fn unwinds(&self) -> bool {
        if !self.can_kill() {
            return false;
        }
        let (is_killed, is_inside) = {
            let state = self.state();
            (state.kills.is_killed, state.is_inside_turn())
        };
        if is_killed && !is_inside && !std::thread::panicking() {
            resume_unwind(Box::new("the program was killed"));
        }
        is_killed
    }
}

impl State {
    /// Whether the calling code is a turn, or a job.
    pub(super) fn is_inside_turn(&self) -> bool {
        !self.in_hand.is_empty() || self.in_job > 0
    }
}
