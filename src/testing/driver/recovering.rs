//! A driven process whose step has failed recovers, or ends, as in a runtime.

use super::Driver;
use super::Status;
use crate::cancel::CancelToken;
use crate::outcome::{Exit, Reason};
use crate::process::{CommandError, Naming, Process};
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sync::Ordering;

impl<P: Process> Driver<P> {
    pub(super) fn failed(&mut self, mut body: Ready, stepped: Stepped) -> Status {
        self.out.renounce();
        self.out.clear();
        let exit = self.out.failure.take().unwrap_or(Exit::Terminated(Reason::Terminated));
        let mut successor = body.machine.recover(&exit);
        let is_asked_to_stop = body.machine.mailbox().is_asked_to_stop();
        let successor = successor.take_if(|successor| !is_asked_to_stop || *successor.even_if_stopping());
        let Some(successor) = successor else { return self.end(body, exit) };
        body.machine.close();
        self.abandon();
        let mut body = successor.succeed(body).0;
        self.bench.incarnation.store(usize::from(body.head.next_incarnation()), Ordering::Relaxed);
        drop(self.bench.take_answers());
        drop(body.machine.mailbox().take_of_failed());
        body.machine.mailbox().ask_to_stop_again();
        self.settle(body, Stepped { verdict: Verdict::Upgrade, ..stepped })
    }

    /// What was going on for the state machine that has failed, ends, and so do the relations that it has begun.
    fn abandon(&mut self) {
        for key in self.timers.drain().filter_map(|(_, key)| key) {
            self.bench.timers.cancel(key);
        }
        for (_, ask) in self.asks.drain() {
            drop(ask.decide_with(Err(CommandError::Dropped)));
        }
        self.blocking.clear();
        self.commands.clear();
        std::mem::replace(&mut self.cancel, CancelToken::with_clock(self.clock.clock())).cancel(Reason::Ended);
        for group in std::mem::take(&mut self.related).own_groups {
            drop(self.bench.name(Naming::Leave { group, pid: self.pid }));
        }
    }
}
