//! The host of replies that answer nobody.

use std::ops::Range;

use crate::clock::Clock;
use crate::latch::Latch;
use crate::outcome::Reason;
use crate::primitives::{Arc, OnceLock};
use crate::process::host::{CountedHost, Host};
use crate::process::{Answer, Ask, DeadLetter, Pid, Reply, SpawnError};
use crate::timer::TimerId;

/// A runtime without processes.
#[derive(Default)]
pub(super) struct SilentHost {
    clock: Clock,
}

/// Makes a reply that answers nobody, for the question with this tag of this process, or for one from outside.
pub(super) fn silent_reply<T: Send + 'static>(asker: Option<Pid>, tag: u64) -> Reply<T> {
    static HOST: OnceLock<CountedHost> = OnceLock::new();
    let host = HOST.get_or_init(|| Arc::new(Arc::new(SilentHost::default()))).clone();
    Reply::new(Arc::new(match asker {
        Some(asker) => Ask::of_process::<T>(host, asker, tag, asker),
        None => Ask::from_outside::<T>(host, Latch::new(), Pid::FIRST),
    }))
}

impl Host for SilentHost {
    fn answer_from(&self, _: Option<Pid>, _: Pid, _: u64, _: Answer) {}

    fn is_alive(&self, _: Pid) -> bool {
        false
    }

    fn late_reply(&self) {}

    fn bury_unsent(&self, _: &DeadLetter<'_>) {}

    fn discarded_answer(&self) {}

    fn forget_timer(&self, _: TimerId) {}

    fn end_run(&self, _: Pid, _: Reason) {}

    fn nobody(&self) -> Pid {
        Pid::FIRST
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn seed(&self) -> u64 {
        0
    }

    fn vacancies(&self, _: &mut Vec<Pid>) -> Result<(), SpawnError> {
        Err(SpawnError::ShuttingDown)
    }

    fn give_back_after(&self, _: Pid) {}

    fn is_shutting_down(&self) -> bool {
        false
    }

    fn holder(&self, _: &str) -> Option<Pid> {
        None
    }

    fn next_member(&self, _: &str) -> Option<Pid> {
        None
    }

    fn group(&self, _: &str) -> Vec<Pid> {
        Vec::new()
    }

    fn receivers(&self, _: &str) -> Option<Arc<[Pid]>> {
        None
    }

    fn monitor_numbers(&self) -> Range<u64> {
        0..0
    }
}
