//! The output of a step, lent to the poll of an async process.

use super::command::INCARNATION_SHIFT;
use super::dead_letter::{DeadLetter, DeadLetterReason};
use super::host::CountedHost;
use crate::outcome::undo_if_panicking;
use crate::pid::Pid;
use crate::sched::body::{StepOutput, Yield};
use crate::sched::orders::Order;

/// This bit marks the tags of yields that are never performed. No command of a process has it.
const TAGS_OUTSIDE: u64 = 1 << 47;

impl StepOutput {
    /// Moves the contents into a box, which a future can share. Another output takes their place until
    /// [`take_back`](Self::take_back). It is kept for the next time.
    ///
    /// No yield has been written yet. So only the PID and the last tag are copied, and stocks are moved that are not
    /// empty.
    pub(crate) fn lend(&mut self) -> Box<StepOutput> {
        let mut lent = self.spare_output.take().unwrap_or_else(|| Box::new(StepOutput::new((*self.link).clone())));
        (lent.pid, lent.tags) = (self.pid, self.tags);
        self.swap_stocks(&mut lent);
        lent
    }

    /// Moves the contents back.
    pub(crate) fn take_back(&mut self, mut lent: Box<StepOutput>) {
        self.tags = lent.tags;
        std::mem::swap(&mut self.orders, &mut lent.orders);
        std::mem::swap(&mut self.yields, &mut lent.yields);
        std::mem::swap(&mut self.outbox, &mut lent.outbox);
        if !lent.counted.is_empty() {
            std::mem::swap(&mut self.counted, &mut lent.counted);
        }
        if lent.pending_names.is_some() {
            self.pending_names = lent.pending_names.take();
        }
        self.swap_stocks(&mut lent);
        self.spare_output = Some(lent);
    }

    /// Swaps the fields that most steps do not use.
    fn swap_stocks(&mut self, other: &mut StepOutput) {
        if !self.stock.is_empty() || !other.stock.is_empty() {
            std::mem::swap(&mut self.stock, &mut other.stock);
        }
        if !self.spares.is_empty() || !other.spares.is_empty() {
            std::mem::swap(&mut self.spares, &mut other.spares);
        }
        if !self.spare_asks.is_empty() || !other.spare_asks.is_empty() {
            std::mem::swap(&mut self.spare_asks, &mut other.spare_asks);
        }
        if !self.monitors.is_empty() || !other.monitors.is_empty() {
            std::mem::swap(&mut self.monitors, &mut other.monitors);
        }
        if self.draws.are_of(self.pid) || other.draws.are_of(self.pid) {
            std::mem::swap(&mut self.draws, &mut other.draws);
        }
    }

    /// Runs `run` with an output whose yields are never performed. Its messages are dead letters.
    #[cold]
    pub(crate) fn outside<R>(link: &CountedHost, pid: Pid, run: impl FnOnce(&mut StepOutput) -> R) -> R {
        let mut out = StepOutput::new((**link).clone());
        // A question may be decided before it is yielded. Its answer is for no incarnation, so the process does not get
        // it.
        (out.pid, out.tags) = (pid, TAGS_OUTSIDE | u64::from(u16::MAX) << INCARNATION_SHIFT);
        let leave = |out: &mut StepOutput| {
            out.renounce();
            out.bury();
            out.clear();
            out.stock.drain(..).for_each(|pid| link.give_back_after(pid));
        };
        undo_if_panicking(
            out,
            |out| {
                let result = run(out);
                leave(out);
                result
            },
            |mut out| leave(&mut out),
        )
    }

    /// Whether the command with this tag is performed, if its step succeeds.
    pub(crate) fn is_performed(tag: u64) -> bool {
        tag & TAGS_OUTSIDE == 0
    }

    /// Makes the messages dead letters.
    fn bury(&mut self) {
        let (link, from) = (self.link.clone(), Some(self.pid));
        let mut others = std::mem::take(&mut self.yields).into_iter();
        for order in self.orders.take_slices().flatten() {
            let (lane, to) = match order {
                Order::Send { lane, count, to } => (lane, vec![to; count as usize]),
                Order::Next => match others.next() {
                    Some(Yield::Broadcast { lane, to }) => (lane, to.to_vec()),
                    Some(Yield::Ask { lane, to, .. }) => (lane, vec![to]),
                    Some(Yield::SendNowhere { lane, .. }) => (lane, vec![link.nobody()]),
                    Some(other) => {
                        self.yields.push(other);
                        continue;
                    }
                    None => continue,
                },
            };
            for to in to {
                let letter = DeadLetter { from, ..DeadLetter::new(to, DeadLetterReason::OutsideStep) };
                self.outbox.lane(lane).bury(1, &letter, &mut |letter| link.bury_unsent(letter));
            }
        }
    }
}
