//! Sends of processes with a limit. `sched/room_queue.rs` has the protocol.

use std::time::Duration;

use super::dispatch::Core;
use super::timed::{QueuedSendLimit, Timed};
use crate::process::Pid;
use crate::sched::body::{Rare, Ready, SendRequest};
use crate::sched::road::Executor;

impl Core {
    /// Sends a message that may wait for room.
    pub(super) fn send_timeout<H: Executor>(&self, body: &mut Ready, request: SendRequest, executor: &mut H) {
        let SendRequest { to, limit, send } = request;
        let (from, tag) = (body.head.pid, send.number());
        let to = match to {
            Ok(to) => to,
            Err(why) => return self.road.answer_in_hand(executor, body, tag, send.handed_back(why.into())),
        };
        let may_wait = !limit.is_zero();
        if let Some(elsewhere) = self.road.elsewhere(to) {
            executor.let_go();
            let senders = (body.head.sender(), to);
            if let Some((_, tag, answer)) =
                self.road.send_elsewhere(executor.counters(), elsewhere, senders, send, may_wait)
            {
                self.road.answer_in_hand(executor, body, tag, answer);
            }
            return;
        }
        match self.road.offer_to_wait(executor, (from, to), send, may_wait) {
            Some((send, end)) => {
                if let Some((_, tag, answer)) = send.end(to, end, &mut |_| ()) {
                    self.road.answer_in_hand(executor, body, tag, answer);
                }
            }
            None => {
                let still_waits = |to| self.road.table.cell(to).is_some_and(|cell| cell.has_waiting(to, from));
                body.head.rare().work.get_or_insert_default().note_receiver(to, still_waits);
                self.limit_send((to, from, tag), limit, executor);
            }
        }
    }

    /// Sets the timer of a message that has begun to wait.
    fn limit_send<H: Executor>(&self, (to, from, tag): (Pid, Pid, u64), limit: Duration, executor: &mut H) {
        if limit == Duration::MAX {
            return;
        }
        let Some((core, cell)) = self.shared().zip(self.road.table.cell(to)) else { return };
        match self.timers.after(executor.number(), limit, Timed::Send(Box::new(QueuedSendLimit { to, from, tag }))) {
            Ok(None) => {}
            Ok(Some(key)) => {
                if !cell.note_send_timer(to, from, tag, core, key.id()) {
                    drop(self.timers.cancel(key.id()));
                }
            }
            // Without a timer, it must not wait.
            Err(_) => _ = self.road.withdraw(executor, to, from, tag),
        }
    }

    /// Takes a message of this process out that waits for room. Returns whether there was one.
    pub(super) fn withdraw_send<H: Executor>(&self, from: Pid, rare: &Rare, tag: u64, executor: &mut H) -> bool {
        let receivers = rare.work.as_ref().map_or(&[][..], |work| work.receivers());
        receivers.iter().any(|to| self.road.withdraw(executor, *to, from, tag))
    }
}
