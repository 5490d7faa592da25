//! The wait times of the messages that a step takes.
//!
//! If the mailbox has nothing but messages and marks, the marks are not in it while the step runs. So its messages are
//! taken by the same instructions as without marks.

use super::figures::{Figures, Row};
use super::road::Road;
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sched::signals::Signals;

/// The marks of the messages that a step may take.
#[derive(Default)]
pub(crate) struct StepWaits {
    /// Whether the mailbox has marks.
    has_marks: bool,
    /// The signals of the mailbox, if they are marks alone.
    hidden: Option<Box<Signals>>,
    /// The number of messages that were in the mailbox when its signals were hidden.
    messages: usize,
    /// The moment at which the wait of these messages ends, if the step takes them.
    now: u64,
}

impl StepWaits {
    /// A step begins. A process with rare fields is given its last events when it is prepared.
    pub(crate) fn begin(&mut self, road: &Road, body: &mut Ready) {
        self.forget();
        if body.head.rare.is_none() {
            self.take(road, body);
        }
    }

    /// Finds the marks in the mailbox of a process that is about to be stepped.
    pub(crate) fn take(&mut self, road: &Road, body: &mut Ready) {
        if body.machine.kind_and_marks().1 {
            self.take_marks(road, body);
        }
    }

    /// Whether the mailbox has marks.
    pub(crate) fn has_marks(&self) -> bool {
        self.has_marks
    }

    /// Forgets the marks of a step that did not return. Its body is gone.
    pub(crate) fn forget(&mut self) {
        *self = StepWaits::default();
    }

    /// Takes the marks out of a mailbox that has some.
    pub(crate) fn take_marks(&mut self, road: &Road, body: &mut Ready) {
        // More may have come since the step began.
        self.put_back(body);
        self.messages = body.machine.mailbox().messages();
        let signals = body.machine.signals();
        let Some(Signals { waits, popped, .. }) = signals.as_deref_mut() else { return };
        let Some(first) = waits.first_from(*popped) else {
            // All marks were those of messages that a step on the pool has taken.
            signals.take_if(|signals| signals.is_needless());
            return;
        };
        self.has_marks = true;
        // A step is given no more messages.
        if first - *popped < u64::from(road.budget) {
            self.now = road.now_nanos();
        }
        self.hidden = signals.take_if(|signals| signals.has_only_waits());
    }

    /// Puts the marks back that were taken out. The process is not stepped, or not yet.
    pub(crate) fn put_back(&mut self, body: &mut Ready) {
        self.has_marks = false;
        let Some(hidden) = self.hidden.take() else { return };
        match body.machine.signals() {
            Some(signals) => {
                let Signals { mut waits, popped: from, .. } = *hidden;
                let to = signals.popped;
                waits.move_messages(|place| place.checked_sub(from).map(|place| place + to));
                waits.absorb(std::mem::take(&mut signals.waits), to);
                signals.waits = waits;
            }
            none => *none = Some(hidden),
        }
    }

    /// Records the waits of the messages that the step has taken. The messages of a step that has failed are dead, so
    /// their waits are not recorded.
    #[inline(never)]
    pub(crate) fn returned(&mut self, (figures, row): (&Figures, Option<&Row>), body: &mut Ready, stepped: Stepped) {
        let kind = body.machine.kind();
        let record = |signals: &mut Option<Box<Signals>>, now: u64| {
            let Some(Signals { waits, popped, .. }) = signals.as_deref_mut() else { return };
            while let Some(accepted) = waits.take_before(*popped) {
                if stepped.verdict != Verdict::Broken {
                    figures.waited(row, kind, now.saturating_sub(accepted));
                }
            }
            signals.take_if(|signals| signals.is_needless());
        };
        // There may be new signals meanwhile, of commands that the step has yielded. Their places begin after it.
        if let Some(hidden) = &mut self.hidden {
            hidden.popped += self.messages.saturating_sub(body.machine.mailbox().messages()) as u64;
            record(&mut self.hidden, self.now);
        } else {
            record(body.machine.signals(), self.now);
        }
        self.put_back(body);
    }
}
