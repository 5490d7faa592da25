//! The yields of a driven process that the test has not taken.

use std::any::Any;
use std::collections::{HashMap, VecDeque};

use crate::primitives::{Arc, Mutex, lock};
use crate::process::handler::BoxedCommand;
use crate::process::{Ask, CancelRequest, CommandError, Duty, Monitor, Pid, Subscription};
use crate::sched::body::{Ready, Work};
use crate::sched::resident_waker::ResidentWaker;
use crate::sched::room_queue::QueuedSend;
use crate::timer::TimerKey;

/// Yields of the process that the test has not taken.
#[derive(Default)]
pub(super) struct Notes {
    /// Each message with its receiver and the name of its type.
    pub(super) sent: VecDeque<(Pid, Box<dyn Any + Send>, &'static str)>,
    pub(super) spawned: VecDeque<Ready>,
    /// The children that the process runs.
    pub(super) runs: Vec<(Arc<Duty>, Pid)>,
    pub(super) blocking: VecDeque<(Arc<Duty>, Work)>,
    pub(super) commands: VecDeque<(Arc<Duty>, BoxedCommand)>,
    /// Commands that the test has taken, and commands that were answered without the test.
    pub(super) taken: Vec<Arc<Duty>>,
    /// Messages that wait for room, and some that no longer do.
    pub(super) sends: VecDeque<Arc<NotedSend>>,
    /// Commands whose attempts helpers make.
    pub(super) retries: Vec<Arc<Duty>>,
    /// Helpers that the driver has not taken over.
    pub(super) helpers: Vec<Ready>,
    /// The wakers of all futures, including those that have ended.
    pub(super) futures: Vec<Arc<ResidentWaker>>,
    /// All timers, including those that have fired. A timer that is never due has no key.
    pub(super) timers: HashMap<u64, Option<TimerKey>>,
    /// All questions, including those that are decided.
    pub(super) asks: Vec<Arc<Ask>>,
    pub(super) counted: HashMap<&'static str, u64>,
    pub(super) cancelled: Vec<(Pid, CancelRequest)>,
    pub(super) terminated: Vec<Pid>,
    pub(super) monitors: Vec<Monitor>,
    pub(super) links: Vec<Pid>,
    pub(super) traps: bool,
    pub(super) subscriptions: Vec<Subscription>,
    /// The groups that the process has joined by itself. A group is listed as often as the process has joined it.
    pub(super) own_groups: Vec<Arc<str>>,
}

/// The commands and questions of a helper that the driver has taken over.
#[derive(Default)]
pub(super) struct Handed {
    duties: Vec<Arc<Duty>>,
    asks: Vec<Arc<Ask>>,
}

impl Handed {
    pub(super) fn add(&mut self, mut other: Handed) {
        self.duties.append(&mut other.duties);
        self.asks.append(&mut other.asks);
    }

    /// Gives everything up, because the helper has ended.
    pub(super) fn give_up(&mut self) {
        self.duties.drain(..).for_each(|duty| _ = duty.give_up());
        self.asks.drain(..).for_each(|ask| drop(ask.decide(CommandError::Dropped)));
    }
}

/// A message that the process sends with a limit.
pub(super) struct NotedSend {
    pub(super) to: Pid,
    pub(super) tag: u64,
    /// Present until it is answered.
    pub(super) send: Mutex<Option<QueuedSend>>,
}

impl NotedSend {
    pub(super) fn is_open(&self) -> bool {
        lock(&self.send).is_some()
    }
}

impl Notes {
    /// Sets commands aside that were answered without the test, for example by their limit.
    pub(super) fn set_closed_aside(&mut self) {
        let mut closed: Vec<_> = self.duties().filter(|duty| !duty.is_open()).cloned().collect();
        self.blocking.retain(|(duty, _)| duty.is_open());
        self.commands.retain(|(duty, _)| duty.is_open());
        self.taken.retain(|duty| duty.is_open());
        self.retries.retain(|duty| duty.is_open());
        self.runs.retain(|(duty, _)| duty.is_open());
        self.taken.append(&mut closed);
    }

    /// Returns the command with this tag.
    pub(super) fn duty(&self, tag: u64) -> Option<Arc<Duty>> {
        self.duties().find(|duty| duty.tag() == tag).cloned()
    }

    /// Returns the oldest message that waits for room, and forgets those that no longer wait.
    pub(super) fn oldest_send(&mut self) -> Option<Arc<NotedSend>> {
        self.sends.retain(|noted| noted.is_open());
        self.sends.front().cloned()
    }

    pub(super) fn duties(&self) -> impl Iterator<Item = &Arc<Duty>> {
        let noted = self.blocking.iter().map(|(duty, _)| duty).chain(self.commands.iter().map(|(duty, _)| duty));
        noted.chain(&self.taken).chain(&self.retries).chain(self.runs.iter().map(|(duty, _)| duty))
    }

    /// Takes the notes of a helper over. Its timers stay there.
    pub(super) fn take_over(&mut self, helper: &mut Notes) -> Handed {
        let handed = Handed { duties: helper.duties().cloned().collect(), asks: helper.asks.clone() };
        self.sent.append(&mut helper.sent);
        self.spawned.append(&mut helper.spawned);
        self.blocking.append(&mut helper.blocking);
        self.commands.append(&mut helper.commands);
        self.sends.append(&mut helper.sends);
        self.asks.append(&mut helper.asks);
        self.cancelled.append(&mut helper.cancelled);
        self.terminated.append(&mut helper.terminated);
        handed
    }
}
