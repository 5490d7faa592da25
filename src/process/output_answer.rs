//! The duty to answer a command with the output of a child.

use super::command::CommandError;
use super::duty::Duty;
use crate::pid::Pid;
use crate::primitives::Arc;

/// The duty to answer the command by which a process runs a child. The child has it.
///
/// When the child has ended, the thread that has its body answers. If the body is lost to a panic of the library, the
/// drop answers. The process may have cancelled the command before, or its limit may be over. `duty.rs` decides.
pub(crate) struct OutputAnswer {
    /// Present until it is taken.
    duty: Option<Arc<Duty>>,
    /// Whether the step that has yielded the child has succeeded. Otherwise nothing is to be answered.
    is_due: bool,
}

impl OutputAnswer {
    pub(crate) fn new(duty: Arc<Duty>) -> OutputAnswer {
        OutputAnswer { duty: Some(duty), is_due: false }
    }

    /// The child begins.
    pub(crate) fn begin(&mut self) {
        self.is_due = true;
    }

    /// Whether the answer is still wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.duty.as_ref().is_some_and(|duty| duty.is_open())
    }

    /// Returns the process and the number of its command. The caller answers. `None` if the command has its answer
    /// already. Then an output that the child `has` is discarded.
    pub(crate) fn take(mut self, has: bool) -> Option<(Pid, u64)> {
        let duty = self.duty.take()?;
        duty.claim(has).then(|| (duty.pid(), duty.tag()))
    }

    /// Hands the duty to a test that answers in place of the child.
    pub(crate) fn hand_over(mut self) -> Option<Arc<Duty>> {
        self.duty.take()
    }
}

impl Drop for OutputAnswer {
    fn drop(&mut self) {
        match self.duty.take() {
            Some(duty) if self.is_due => duty.answer(Err(CommandError::Dropped)),
            // The drop of the last share must not answer.
            Some(duty) => _ = duty.give_up(),
            None => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitives::lock;
    use crate::process::host::Clerk;

    #[test]
    fn a_lost_child_is_answered_for_and_one_that_never_began_is_not() {
        let clerk = Arc::new(Clerk::default());
        let answer = |tag| OutputAnswer::new(Duty::of_run(clerk.clone(), Pid::FIRST, tag, Pid::FIRST));
        drop(answer(1));
        let mut taken = answer(2);
        taken.begin();
        assert_eq!(taken.take(true), Some((Pid::FIRST, 2)));
        let mut lost = answer(3);
        lost.begin();
        drop(lost);
        let mut late = answer(4);
        late.begin();
        late.duty.iter().for_each(|duty| duty.time_out());
        assert!(!late.is_open());
        assert_eq!((late.take(false), *lock(&clerk.discarded)), (None, 0));
        let answers = lock(&clerk.answers);
        assert!(
            matches!(&answers[..], [(3, Err(CommandError::Dropped)), (4, Err(CommandError::TimedOut))]),
            "{}",
            answers.len()
        );
    }
}
