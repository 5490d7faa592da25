//! The values of a runtime's timers: what is done when a timer is due. They need no allocation of their own.

use crate::outcome::{Reason, drop_contained};
use crate::primitives::{Arc, Weak};
use crate::process::{Ask, CommandError, Duty, Pid, TimerFired};
use crate::sched::resident_waker::ResidentWaker;
use crate::sched::road::{OutsideExecutor, Road};
use crate::sched::waiting_send::{LimitedSend, Told};
use crate::timer::Action;

/// The work of a timer of a runtime.
pub(crate) enum Timed {
    /// Ends the wait of a process for an answer.
    Ask(Arc<Ask>),
    /// Ends the wait of an asker outside.
    OutsideAsk(OutsideLimit),
    /// Ends the wait of a sender outside for room in a mailbox.
    OutsideSend(SendLimit),
    /// Answers the timer of a process that has this tag.
    After(Pid, u64),
    /// Ends a command whose limit is over.
    Command(Weak<Duty>),
    /// Ends the wait of a message for room in a mailbox.
    Send(Box<QueuedSendLimit>),
    /// Ends a future of a process.
    Future(Arc<ResidentWaker>),
    Run(Action),
}

impl Timed {
    /// Does it.
    pub(super) fn fire(self, road: &Road) {
        match self {
            Timed::Ask(ask) => ask.give_up(CommandError::TimedOut),
            Timed::OutsideAsk(limit) => limit.time_out(),
            Timed::OutsideSend(limit) => {
                let to = limit.give_up(Told::TimedOut);
                #[cfg(feature = "cluster")]
                to.into_iter().for_each(|to| road.has_given_up(to));
                #[cfg(not(feature = "cluster"))]
                let _ = to;
            }
            Timed::After(pid, tag) => road.answer(&mut OutsideExecutor { road }, pid, tag, Ok(Box::new(TimerFired))),
            Timed::Send(limit) => {
                let QueuedSendLimit { to, from, tag } = *limit;
                road.withdraw(&mut OutsideExecutor { road }, to, from, tag);
            }
            Timed::Command(duty) => {
                if let Some(duty) = duty.upgrade() {
                    duty.time_out();
                }
            }
            Timed::Future(waker) => waker.expire(),
            Timed::Run(action) => action(),
        }
    }
}

/// The message of a process that waits for room, by its receiver, its sender and the tag of its command.
pub(crate) struct QueuedSendLimit {
    pub(super) to: Pid,
    pub(super) from: Pid,
    pub(super) tag: u64,
}

/// Gives a question up when its time is over, or when the runtime ends and drops this together with the timer.
pub(crate) struct OutsideLimit(Weak<Ask>);

impl OutsideLimit {
    pub(super) fn of(ask: &Arc<Ask>) -> OutsideLimit {
        OutsideLimit(Arc::downgrade(ask))
    }

    fn time_out(self) {
        self.give_up(CommandError::TimedOut);
    }

    fn give_up(&self, why: CommandError) {
        if let Some(ask) = self.0.upgrade() {
            ask.give_up(why);
            drop_contained(ask);
        }
    }
}

impl Drop for OutsideLimit {
    fn drop(&mut self) {
        self.give_up(CommandError::Cancelled(Reason::Shutdown));
    }
}

/// Returns a message that waits for room to its sender when its time is over, or when the runtime ends and drops this
/// together with the timer.
pub(crate) struct SendLimit(Weak<dyn LimitedSend>);

impl SendLimit {
    pub(super) fn of(sender: Weak<dyn LimitedSend>) -> SendLimit {
        SendLimit(sender)
    }

    /// Returns the receiver of the message, if its sender has waited until now.
    fn give_up(&self, why: Told) -> Option<Pid> {
        let sender = self.0.upgrade()?;
        sender.give_up(why);
        let to = sender.to();
        // The sender may have dropped its future meanwhile. Then this drops the message.
        drop_contained(sender);
        Some(to)
    }
}

impl Drop for SendLimit {
    fn drop(&mut self) {
        self.give_up(Told::RuntimeEnded);
    }
}
