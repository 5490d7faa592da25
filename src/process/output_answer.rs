//! The duty to answer a command with the output of a child.

use super::command::CommandError;
use super::host::CountedHost;
use crate::pid::Pid;

/// The duty to answer the command by which a process runs a child. The child has it.
///
/// When the child has ended, the thread that has its body answers. If the body is lost to a panic of the library, the
/// drop answers.
pub(crate) struct OutputAnswer {
    host: CountedHost,
    parent: Pid,
    tag: u64,
    /// Whether the step that has yielded the child has succeeded. Otherwise nothing is to be answered.
    is_due: bool,
}

impl OutputAnswer {
    pub(crate) fn new(host: CountedHost, parent: Pid, tag: u64) -> OutputAnswer {
        OutputAnswer { host, parent, tag, is_due: false }
    }

    /// The child begins.
    pub(crate) fn begin(&mut self) {
        self.is_due = true;
    }

    /// The number of the command.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the process and the number of its command. The caller answers.
    pub(crate) fn take(mut self) -> (Pid, u64) {
        self.is_due = false;
        (self.parent, self.tag)
    }
}

impl Drop for OutputAnswer {
    fn drop(&mut self) {
        if self.is_due {
            self.host.answer(self.parent, self.tag, Err(CommandError::Dropped));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitives::{Arc, lock};
    use crate::process::host::Clerk;

    #[test]
    fn a_lost_child_is_answered_for_and_one_that_never_began_is_not() {
        let clerk = Arc::new(Clerk::default());
        let answer = |tag| OutputAnswer::new(Arc::new(clerk.clone()), Pid::FIRST, tag);
        drop(answer(1));
        let mut taken = answer(2);
        taken.begin();
        assert_eq!(taken.take(), (Pid::FIRST, 2));
        let mut lost = answer(3);
        lost.begin();
        drop(lost);
        let answers = lock(&clerk.answers);
        assert!(matches!(&answers[..], [(3, Err(CommandError::Dropped))]), "{}", answers.len());
    }
}
