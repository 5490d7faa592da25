//! Sends that wait for room in a bounded mailbox: they are offered, withdrawn, converted, and told of their end.
//! `room_queue.rs` has the protocol.

use super::bounded_mailbox::Bounds;
use super::cell::{Filled, Missed};
use super::doorway::{Placed, ToldSends, put, queue_converted};
use super::mailbox::AnyMailbox;
use super::road::{Executor, Road};
use super::room_queue::{QueuedSend, SendEnd};
use crate::pid::Pid;

impl Road {
    /// Offers a message of a process with a limit. If there is no room, it waits if it `may_wait`. Otherwise this
    /// returns it, and the caller tells its sender.
    pub(crate) fn offer_to_wait<H: Executor>(
        &self,
        executor: &mut H,
        (from, to): (Pid, Pid),
        send: QueuedSend,
        may_wait: bool,
    ) -> Option<(QueuedSend, SendEnd)> {
        if send.is_converted() {
            return self.offer_converted(executor, (from, to), send, may_wait);
        }
        let (mut send, mut placed) = (Some(send), None);
        let posted = self.post_send(executor, to, |mailbox, bounds| {
            let (grown, end) = put(send.take()?, from, may_wait, mailbox, bounds);
            placed = end;
            grown
        });
        let Placed { send, end, instead } = match (placed, send) {
            (Some(placed), _) => placed,
            (None, Some(send)) => Placed { send, end: SendEnd::NoReceiver, instead: None },
            (None, None) => return None,
        };
        let end = posted.err().unwrap_or(end);
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

    /// As `offer_to_wait`, for a message that is converted when it has a place.
    #[cold]
    fn offer_converted<H: Executor>(
        &self,
        executor: &mut H,
        (from, to): (Pid, Pid),
        send: QueuedSend,
        may_wait: bool,
    ) -> Option<(QueuedSend, SendEnd)> {
        let number = send.number();
        let (mut send, mut free) = (Some(send), None);
        let posted = self.post_send(executor, to, |mailbox, bounds| {
            let (grown, unqueued) = queue_converted(send.take()?, from, mailbox, bounds);
            free = unqueued;
            grown
        });
        if let Err(end) = posted {
            return free.or(send).map(|send| (send, end));
        }
        let Some(mut send) = free else {
            let (told, woken) = self.table.cell(to)?.let_messages_in(to);
            woken.into_iter().for_each(|ready| executor.woken(ready));
            self.tell_senders(executor, to, told);
            if !may_wait {
                self.withdraw(executor, to, from, number);
            }
            return None;
        };
        // It needs no place.
        executor.let_go();
        let panic = match send.convert() {
            Ok(converted) => {
                let ended = self.offer_to_wait(executor, (from, to), converted, false);
                // One that was accepted is counted already.
                let ended = ended.filter(|(_, end)| !matches!(end, SendEnd::Accepted));
                self.tell_counted(executor, to, ended.into_iter().collect());
                None
            }
            Err(panic) => Some(panic),
        };
        if let Some((from, tag, answer)) = send.answer_converted(panic, to) {
            self.answer(executor, from, tag, answer);
        }
        None
    }

    /// Opens the mailbox of a process, and wakes the process if a message came.
    fn post_send<H: Executor>(
        &self,
        executor: &mut H,
        to: Pid,
        fill: impl FnOnce(&mut dyn AnyMailbox, Option<&mut Bounds>) -> Option<u32>,
    ) -> Result<(), SendEnd> {
        let found = self.table.cell(to).ok_or(Missed::NoSuchProcess);
        let (woken, queued) = found.and_then(|cell| cell.post(to, fill)).map_err(|missed| match missed {
            Missed::NoSuchProcess => SendEnd::NoReceiver,
            Missed::WrongType(takes) => SendEnd::WrongType(takes),
        })?;
        executor.posted(queued);
        woken.into_iter().for_each(|ready| executor.woken(ready));
        Ok(())
    }

    /// Tells the senders of messages that no longer wait, and fills the places that messages were given. No lock is
    /// held.
    #[inline]
    pub(crate) fn tell_senders<H: Executor>(&self, executor: &mut H, to: Pid, told: ToldSends) {
        if !told.is_empty() {
            self.tell_each(executor, to, told);
        }
    }

    #[inline(never)]
    fn tell_each<H: Executor>(&self, executor: &mut H, to: Pid, mut told: ToldSends) {
        // A message that has filled its place may make way for others.
        loop {
            self.tell_counted(executor, to, std::mem::take(&mut told.ended));
            if let Some((from, send)) = told.converting.pop() {
                let more = self.fill_converted(executor, to, from, send);
                told.ended.extend(more.ended);
                told.converting.extend(more.converting);
                told.granted.extend(more.granted);
            } else if !told.granted.is_empty() {
                executor.let_go();
                let Some(cell) = self.table.cell(to) else { return };
                let entered = |mailbox: &mut dyn AnyMailbox| {
                    self.mark_wait(mailbox, self.is_next_measured());
                };
                cell.fill_each(to, std::mem::take(&mut told.granted), entered, |filled| {
                    self.outside.add(&self.outside.accepted, 1);
                    match filled {
                        Filled::Accepted(ready) => ready.into_iter().for_each(|ready| self.inject(ready)),
                        Filled::Dead(letter) => self.dead_letter(&self.outside, letter),
                    }
                });
                let (more, woken) = cell.let_messages_in(to);
                woken.into_iter().for_each(|ready| executor.woken(ready));
                told = more;
            } else if told.ended.is_empty() {
                return;
            }
        }
    }

    fn tell_counted<H: Executor>(&self, executor: &mut H, to: Pid, ended: Vec<(QueuedSend, SendEnd)>) {
        for (send, end) in ended {
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

    /// Converts a message that has a place, and fills the place.
    #[cold]
    fn fill_converted<H: Executor>(&self, executor: &mut H, to: Pid, from: Pid, mut send: QueuedSend) -> ToldSends {
        executor.let_go();
        let (converted, panic) = match send.convert() {
            Ok(converted) => (Some(converted), None),
            Err(panic) => (None, Some(panic)),
        };
        let mut told = ToldSends::default();
        if let Some(cell) = self.table.cell(to) {
            let (changed, woken, left) = cell.fill_converted(to, from, converted);
            woken.into_iter().for_each(|ready| executor.woken(ready));
            told = changed;
            told.ended.extend(left.map(|left| (left, SendEnd::NoReceiver)));
        }
        if let Some((from, tag, answer)) = send.answer_converted(panic, to) {
            self.answer(executor, from, tag, answer);
        }
        told
    }

    /// Takes out a message that waits, because its limit is over or its sender gives up. Returns whether it waited.
    pub(crate) fn withdraw<H: Executor>(&self, executor: &mut H, to: Pid, from: Pid, number: u64) -> bool {
        let Some(cell) = self.table.cell(to) else { return false };
        let (told, woken) = cell.withdraw(to, from, number);
        let has_waited = !told.ended.is_empty();
        woken.into_iter().for_each(|ready| executor.woken(ready));
        self.tell_senders(executor, to, told);
        has_waited
    }

    /// Takes out all messages of a process that wait with a limit. The process has ended or failed.
    pub(crate) fn withdraw_all<H: Executor>(&self, executor: &mut H, to: Pid, from: Pid) {
        if let Some(cell) = self.table.cell(to) {
            let (told, woken) = cell.withdraw_all(to, from);
            woken.into_iter().for_each(|ready| executor.woken(ready));
            self.tell_senders(executor, to, told);
        }
    }
}
