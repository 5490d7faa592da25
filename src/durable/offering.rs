//! Offers the events again that a failed step has taken.

use super::contract::Durable;
use super::machine::DurableMachine;
use super::residency::{Kept, StoredBytes, Taken};
use super::rows::{self, FailedEvent, StoredEvent};
use crate::outcome::{contain, drop_contained};
use crate::pid::Pid;
use crate::primitives::lock;
use crate::process::propagation::TracedEvent;
use crate::process::reply::Completion;
use crate::process::{Answer, CommandError, LinkedBy, TimerFired};
use crate::sched::mailbox::{AnyMailbox, Control, Envelope, Signal};
use crate::sched::trace_marks::Context;

impl<P: Durable> DurableMachine<P> {
    /// Offers the events that a failed step has taken again. A traced event is offered in its trace. Returns an event
    /// that cannot be read, and why.
    pub(super) fn offer_again(
        &mut self,
        taken: Taken,
        mut trace: Option<(Context, TracedEvent)>,
    ) -> Option<(FailedEvent, String)> {
        let Taken { mail, answers, cancels, downs, exits, groups, .. } = taken;
        let mut unreadable = None;
        for number in mail {
            let kept = |kept: &Kept| (kept.stored.clone(), kept.trace.clone());
            let stored = lock(&self.resident.mail).get(&number).map(kept);
            let Some((StoredBytes { format, bytes, .. }, mut trace)) = stored else { continue };
            let (decoded, _) = self.store.code(|| contain(|| format.decode::<P::Message>(&bytes)));
            match decoded.unwrap_or_else(|panic| Err(Box::new(panic))) {
                Ok(message) => {
                    let is_later = |from: Pid| self.store.number_of(from).is_some_and(|other| other > number);
                    let envelope = Envelope { from: self.store.ticket(number), message };
                    self.typed.put_back((envelope, trace.take()), is_later);
                }
                Err(error) => {
                    unreadable = Some((FailedEvent::Mail(number), format!("a message cannot be read: {error}")));
                }
            }
        }
        // Answers that are not stored are lost.
        for tag in answers {
            let stored = lock(&self.resident.events).get(&(rows::ANSWERS, tag)).cloned();
            let answer: Answer = match stored {
                Some(StoredEvent::Answer(stored)) => match self.store.answer_of(&stored) {
                    Ok(answer) => answer,
                    Err(error) => {
                        let error = format!("an answer cannot be read: {error}");
                        unreadable = Some((FailedEvent::Answer(tag), error));
                        continue;
                    }
                },
                _ => match self.open.get(&tag) {
                    Some(&rows::TIMERS) => Ok(Box::new(TimerFired)),
                    Some(&rows::COMMANDS) => self.answer_of(tag),
                    _ => Err(CommandError::Interrupted),
                },
            };
            self.typed.waiting().complete(Completion::from(None, tag, answer));
            // Messages have their traces with them.
            if let Some((context, _)) = trace.take_if(|(_, event)| *event == (TracedEvent::Completed { tag })) {
                let signals = self.typed.waiting().signals.get_or_insert_default();
                signals.traces.get_or_insert_default().note_command(tag, Some(context));
            }
        }
        drop_contained(trace);
        for request in cancels {
            self.typed.waiting().signal(Signal::Control(Control::Cancel(request)));
        }
        for exit in exits {
            self.typed.waiting().signal(Signal::Control(Control::Exit(exit, LinkedBy::OTHER)));
        }
        for down in downs {
            self.typed.waiting().signal(Signal::Control(Control::Down(down)));
        }
        if !groups.is_empty() {
            // In front of the later changes of these groups.
            let signals = self.typed.waiting().signals.get_or_insert_default();
            signals.give_back(groups.into_iter().map(Control::Group).collect());
        }
        unreadable
    }
}
