//! The results of turns in which the step of a durable process is not called.

use crate::outcome::Reason;
use crate::sched::body::{Stepped, Verdict};
use crate::sched::mailbox::Control;

/// A termination is a step that takes no event.
const TERMINATION: u32 = u32::MAX;

impl Stepped {
    /// The result of a turn in which the user's step was not called.
    pub(super) fn without_a_step() -> Stepped {
        Stepped { verdict: Verdict::Declined, unseen: false, signals: false, taken: 0 }
    }

    /// The process leaves memory.
    pub(super) const GONE: Stepped = Stepped { verdict: Verdict::Done, unseen: false, signals: false, taken: 0 };

    /// The next turn is on a thread of the pool.
    pub(super) const BLOCKING: Stepped =
        Stepped { verdict: Verdict::Blocking, unseen: false, signals: false, taken: 0 };

    pub(super) const AFTER_START: Stepped =
        Stepped { verdict: Verdict::Continue, unseen: false, signals: false, taken: 0 };
    pub(super) const TERMINATED: Stepped =
        Stepped { verdict: Verdict::Done, unseen: false, signals: false, taken: TERMINATION };

    pub(super) fn is_termination(self) -> bool {
        self.taken == TERMINATION
    }
}

/// Whether the runtime asks the process to stop, because it shuts down.
pub(super) fn is_shutdown(control: &Control) -> bool {
    matches!(control, Control::Cancel(request) if request.reason == Reason::Shutdown)
}
