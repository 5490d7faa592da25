//! The waits of a world. Its thread is the only one, so they are inside each other.

use super::shared::{Shared, State};

/// The most waits inside each other. Each needs about 10 kB of the stack in a build without optimisation, and a test
/// has 2 MB.
const MOST_WAITS: u32 = 100;

/// A wait that is in progress.
pub(super) struct Wait<'a>(&'a Shared);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.state().waits -= 1;
    }
}

impl Shared {
    /// Begins a wait, which is inside of all that are in progress. If there are too many, the run fails.
    pub(super) fn begin_wait(&self) -> Option<Wait<'_>> {
        let waits = {
            let state = &mut *self.state();
            state.waits += 1;
            state.waits
        };
        let wait = Wait(self);
        if waits <= MOST_WAITS {
            return Some(wait);
        }
        let what = format!("more than {MOST_WAITS} calls wait in steps at once, the most in a simulation");
        self.fail("every wait ends", what);
        None
    }

    /// Says that other waits must end after the one that does not end.
    pub(super) fn describe_waits(&self) -> String {
        match self.state().waits {
            0 | 1 => String::new(),
            waits => format!("; {} of the calls that wait began earlier, and can only return after it", waits - 1),
        }
    }
}

impl State {
    /// Whether no further job may begin, because it may wait, too.
    pub(super) fn has_most_waits(&self) -> bool {
        self.waits >= MOST_WAITS
    }
}
