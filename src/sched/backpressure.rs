//! Sends with a limit: they wait for room in a bounded mailbox. `waiting_sends.rs` has the protocol.

use super::bounded_mailbox::Bounds;
use super::cell::Missed;
use super::doorway::{Placed, put};
use super::mailbox::AnyMailbox;
use super::road::{Executor, OutsideExecutor, Road};
use super::waiting_sends::{EndedSends, OutsideResult, SendEnd, Sender, WaitingSend};
use crate::latch::Latch;
use crate::pid::Pid;
use crate::primitives::{Ordering, StaticCounter};

/// Numbers of sends from outside that wait. They are never reused.
static OUTSIDE: StaticCounter = StaticCounter::new(1);

impl Road {
    /// Offers a message with a limit. If there is no room, it waits if it `may_wait`. Otherwise this returns it, and
    /// the caller tells its sender.
    pub(crate) fn offer_to_wait<H: Executor>(
        &self,
        executor: &mut H,
        to: Pid,
        sender: Sender,
        send: WaitingSend,
        may_wait: bool,
    ) -> Option<(WaitingSend, SendEnd)> {
        let (mut send, mut placed) = (Some(send), None);
        let put = |mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>| {
            let (grown, end) = put(send.take()?, sender, may_wait, mailbox, bounds);
            placed = end;
            grown
        };
        let posted = self.table.cell(to).ok_or(Missed::NoSuchProcess).and_then(|cell| cell.post(to, put));
        let refused = match posted {
            Ok((woken, queued)) => {
                executor.posted(queued);
                woken.into_iter().for_each(|ready| executor.woken(ready));
                None
            }
            Err(Missed::NoSuchProcess) => Some(SendEnd::NoReceiver),
            Err(Missed::WrongType(takes)) => Some(SendEnd::WrongType(takes)),
        };
        let Placed { send, end, instead } = match (placed, send) {
            (Some(placed), _) => placed,
            (None, Some(send)) => Placed { send, end: SendEnd::NoReceiver, instead: None },
            (None, None) => return None,
        };
        let end = refused.unwrap_or(end);
        if matches!(end, SendEnd::Accepted) {
            executor.count(|counters| &counters.accepted, 1);
        }
        if let Some((dead, reason)) = instead {
            executor.let_go();
            let counters = executor.counters();
            dead.bury(to, reason, &mut |letter| self.dead_letter(counters, letter));
        }
        Some((send, end))
    }

    /// Tells the senders of messages that no longer wait. No lock is held.
    #[inline]
    pub(crate) fn end_sends<H: Executor>(&self, executor: &mut H, to: Pid, told: EndedSends) {
        if !told.ended.is_empty() {
            self.tell_senders(executor, to, told);
        }
    }

    #[inline(never)]
    fn tell_senders<H: Executor>(&self, executor: &mut H, to: Pid, told: EndedSends) {
        for (send, end) in told.ended {
            if send.tells_user_code(end) {
                executor.let_go();
            }
            let counters = executor.counters();
            if send.counts(end) {
                counters.add(&counters.accepted, 1);
            }
            let answer = send.end(to, end, &mut |letter| self.dead_letter(counters, letter));
            if let Some((from, tag, answer)) = answer {
                self.answer(executor, from, tag, answer);
            }
        }
    }

    /// Takes out a message that waits, because its limit is over or its sender gives up. Returns whether it waited.
    pub(crate) fn withdraw<H: Executor>(&self, executor: &mut H, to: Pid, sender: Sender, number: u64) -> bool {
        let Some(cell) = self.table.cell(to) else { return false };
        let (told, woken) = cell.withdraw(to, sender, number);
        let has_waited = !told.ended.is_empty();
        woken.into_iter().for_each(|ready| executor.woken(ready));
        self.end_sends(executor, to, told);
        has_waited
    }

    /// Takes out all messages of a process that wait with a limit. The process has ended or failed.
    pub(crate) fn withdraw_all<H: Executor>(&self, executor: &mut H, to: Pid, from: Pid) {
        if let Some(cell) = self.table.cell(to) {
            let (told, woken) = cell.withdraw_all(to, from);
            woken.into_iter().for_each(|ready| executor.woken(ready));
            self.end_sends(executor, to, told);
        }
    }

    /// Sends a message from outside. It waits if the mailbox is full.
    pub(crate) fn send_and_wait<M: Send + 'static>(&self, to: Pid, message: M) -> OutsideSend<M> {
        let (number, result) = (OUTSIDE.fetch_add(1, Ordering::Relaxed), Latch::new());
        let send = WaitingSend::from_outside(number, message, result.clone());
        let executor = &mut OutsideExecutor { road: self };
        if let Some((send, end)) = self.offer_to_wait(executor, to, Sender::Outside(number), send, true) {
            send.end(to, end, &mut |_| ());
        }
        OutsideSend { to, number, result }
    }

    /// Gives up a send from outside, if it still waits. Its result is set by this call, or is about to be set.
    pub(crate) fn give_up_send<M>(&self, send: &OutsideSend<M>) {
        self.withdraw(&mut OutsideExecutor { road: self }, send.to, Sender::Outside(send.number), send.number);
    }
}

/// A send from outside, which may wait.
pub(crate) struct OutsideSend<M> {
    to: Pid,
    number: u64,
    pub(crate) result: OutsideResult<M>,
}
