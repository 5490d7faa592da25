//! The wait times of the messages that a step takes.
//!
//! If the mailbox has nothing but messages and marks, the marks are not in it while the step runs. So its messages are
//! taken by the same instructions as without marks.

use super::figures::Figures;
use super::road::Road;
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sched::signals::Signals;
use crate::sched::wait_marks::WaitMarks;

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
    #[inline]
    pub(crate) fn begin(&mut self, road: &Road, body: &mut Ready) {
        if self.has_marks {
            self.forget();
        }
        if body.head.rare.is_none() {
            self.take(road, body);
        }
    }

    /// Finds the marks in the mailbox of a process that is about to be stepped.
    #[inline]
    pub(crate) fn take(&mut self, road: &Road, body: &mut Ready) {
        if body.machine.signals().as_ref().is_some_and(|signals| signals.waits.is_some()) {
            self.take_marks(road, body);
        }
    }

    /// Whether the mailbox has marks.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.has_marks
    }

    /// Forgets the marks of a step that did not return. Its body is gone.
    #[cold]
    fn forget(&mut self) {
        *self = StepWaits::default();
    }

    #[inline(never)]
    fn take_marks(&mut self, road: &Road, body: &mut Ready) {
        // More may have come since the step began.
        self.put_back(body);
        self.messages = body.machine.mailbox().messages();
        let signals = body.machine.signals();
        let Some(Signals { waits: Some(waits), popped, .. }) = signals.as_deref_mut() else { return };
        let Some(first) = waits.first_from(*popped) else {
            // All marks were those of messages that a step on the pool has taken.
            signals.iter_mut().for_each(|signals| signals.waits = None);
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
        let Some(mut hidden) = self.hidden.take() else { return };
        match body.machine.signals() {
            Some(signals) => {
                let (from, to) = (hidden.popped, signals.popped);
                let Some(mut waits) = hidden.waits.take() else { return };
                waits.move_messages(|place| place.checked_sub(from).map(|place| place + to));
                waits.absorb(signals.waits.take().map_or_else(WaitMarks::default, |waits| *waits), to);
                signals.waits = Some(waits);
            }
            none => *none = Some(hidden),
        }
    }

    /// Records the waits of the messages that the step has taken. The messages of a step that has failed are dead, so
    /// their waits are not recorded.
    #[inline(never)]
    pub(crate) fn returned(&mut self, figures: &Figures, body: &mut Ready, stepped: Stepped) {
        let kind = body.machine.kind();
        let record = |signals: &mut Option<Box<Signals>>, now: u64| {
            let Some(Signals { waits, popped, .. }) = signals.as_deref_mut() else { return };
            while let Some(accepted) = waits.as_mut().and_then(|waits| waits.take_before(*popped)) {
                if stepped.verdict != Verdict::Broken {
                    figures.waited(kind, now.saturating_sub(accepted));
                }
            }
            waits.take_if(|waits| waits.is_empty());
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
