//! The commands of one process that handlers and the pool may be working on.

use crate::cancel::CancelToken;
use crate::pid::Pid;
use crate::primitives::{Arc, Weak};
use crate::process::Duty;

/// As many commands are recorded before any is looked at again.
const FEW: usize = 4;

/// The work that a process has given to others.
#[derive(Default)]
pub(crate) struct OpenWork {
    /// Cancelled when the process has ended, or when its state machine has failed.
    pub(crate) cancel: Option<CancelToken>,
    /// The open commands and blocking closures, and some that are answered. A process gives its tags out in ascending
    /// order, so the list is sorted.
    commands: Vec<(u64, Weak<Duty>)>,
    /// The number of commands at which to remove the answered ones.
    full: usize,
    /// The processes in whose mailboxes messages of this one may wait for room.
    receivers: Vec<Pid>,
    /// The number of receivers at which to remove those where nothing waits.
    full_receivers: usize,
}

impl OpenWork {
    /// Records that a message waits at this receiver. Now and then receivers where nothing waits are removed.
    pub(crate) fn note_receiver(&mut self, to: Pid, still_waits: impl Fn(Pid) -> bool) {
        if self.receivers.contains(&to) {
            return;
        }
        if self.receivers.len() >= self.full_receivers {
            self.receivers.retain(|to| still_waits(*to));
            self.full_receivers = (2 * self.receivers.len()).max(FEW);
            self.receivers.shrink_to(self.full_receivers);
        }
        self.receivers.push(to);
    }

    pub(crate) fn receivers(&self) -> &[Pid] {
        &self.receivers
    }

    /// Records a command. Now and then answered commands are removed. The cost for each command is constant.
    pub(crate) fn note(&mut self, duty: &Arc<Duty>) {
        if self.commands.len() >= self.full {
            self.commands.retain(|(_, duty)| duty.strong_count() > 0);
            self.full = (2 * self.commands.len()).max(FEW);
            self.commands.shrink_to(self.full);
        }
        self.commands.push((duty.tag(), Arc::downgrade(duty)));
    }

    /// Returns the command with this tag, if it may be open.
    pub(crate) fn command(&self, tag: u64) -> Option<Arc<Duty>> {
        let place = self.commands.binary_search_by_key(&tag, |(tag, _)| *tag).ok()?;
        self.commands.get(place)?.1.upgrade()
    }

    /// Takes out the commands that may be open.
    pub(crate) fn take_commands(&mut self) -> impl Iterator<Item = Arc<Duty>> + use<> {
        std::mem::take(&mut self.commands).into_iter().filter_map(|(_, duty)| duty.upgrade())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::Clerk;

    fn duty(clerk: &Arc<Clerk>, tag: u64) -> Arc<Duty> {
        Duty::new(clerk.clone(), Pid::FIRST, tag, CancelToken::new())
    }

    #[test]
    fn answered_commands_are_forgotten_and_open_ones_are_found() {
        let (clerk, mut work) = (Arc::new(Clerk::default()), OpenWork::default());
        let open = duty(&clerk, 1);
        work.note(&open);
        for tag in 2..10_000 {
            work.note(&duty(&clerk, tag));
            assert!(work.commands.len() <= FEW, "{} after {tag}", work.commands.len());
        }
        assert!(Arc::ptr_eq(&work.command(1).unwrap(), &open));
        assert!(work.command(9_999).is_none() && work.command(20_000).is_none());
        let many: Vec<_> = (10_000..11_000).map(|tag| duty(&clerk, tag)).collect();
        many.iter().for_each(|one| work.note(one));
        assert_eq!(work.command(10_500).unwrap().tag(), 10_500);
        drop(many);
        work.note(&duty(&clerk, 11_000));
        (11_001..13_000).for_each(|tag| work.note(&duty(&clerk, tag)));
        assert!(work.commands.capacity() <= 2 * FEW, "{}", work.commands.capacity());
        assert_eq!(work.take_commands().count(), 1);
    }
}
