//! A host for tests.

use super::*;
use crate::primitives::{Mutex, lock};

/// A host whose answers are delivered by hand. It records the timers that are taken back.
#[derive(Default)]
pub(crate) struct Clerk {
    pub(crate) answers: Mutex<Vec<(u64, Answer)>>,
    pub(crate) late_replies: Mutex<u32>,
    pub(crate) taken_back: Mutex<Vec<TimerId>>,
    pub(crate) discarded: Mutex<u64>,
    pub(crate) ended_runs: Mutex<Vec<(Pid, Reason)>>,
    clock: Clock,
}

impl Clerk {
    pub(crate) fn counted() -> CountedHost {
        Arc::new(Arc::new(Clerk::default()))
    }
}

impl Host for Clerk {
    fn answer_from(&self, _: Option<Pid>, _: Pid, tag: u64, answer: Answer) {
        lock(&self.answers).push((tag, answer));
    }

    fn is_alive(&self, _: Pid) -> bool {
        true
    }

    fn bury_unsent(&self, _: &DeadLetter<'_>) {}

    fn late_reply(&self) {
        *lock(&self.late_replies) += 1;
    }

    fn discarded_answer(&self) {
        *lock(&self.discarded) += 1;
    }

    fn forget_timer(&self, timer: TimerId) {
        lock(&self.taken_back).push(timer);
    }

    fn end_run(&self, child: Pid, reason: Reason) {
        lock(&self.ended_runs).push((child, reason));
    }

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
        true
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
