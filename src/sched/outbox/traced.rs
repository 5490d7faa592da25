//! Lanes of a runtime with a propagator of traces. Their messages have contexts.
//!
//! Such a runtime has no other lanes. So a runtime without a propagator sends its messages as if there were no traces,
//! and does not look for any.

use super::*;
use crate::process::propagation::with_trace;
use crate::sched::mailbox::Overflow;

/// As `LaneOf`, for messages with contexts.
struct TracedLaneOf<M> {
    plain: LaneOf<M>,
    /// The contexts of the letters of the plain lane.
    contexts: VecDeque<Option<Context>>,
    /// The contexts of its dead messages.
    dead: VecDeque<Option<Context>>,
}

/// Makes an empty lane.
pub(super) fn lane<M: Send + 'static>() -> Box<dyn Lane> {
    let plain = LaneOf::<M>::new(VecDeque::new());
    Box::new(TracedLaneOf { plain, contexts: VecDeque::new(), dead: VecDeque::new() })
}

impl Outbox {
    fn traced_lane<M: Send + 'static>(&mut self) -> Option<&mut TracedLaneOf<M>> {
        let (_, lane) = self.lanes.get_mut(self.last)?;
        (&mut **lane as &mut dyn Any).downcast_mut()
    }

    /// As `push`, for a message on a traced lane, which is the last one. It gets the context of the calling thread.
    #[cold]
    pub(super) fn push_traced<M: Send + 'static>(&mut self, message: M) {
        let context = self.traces.as_ref().and_then(|traces| traces.current());
        if let Some(lane) = self.traced_lane() {
            lane.plain.letters.push_back(message);
            lane.contexts.push_back(context);
        }
    }

    /// As `push_copies`, on a traced lane, which is the last one.
    #[cold]
    pub(super) fn push_traced_copies<M: Clone + Send + 'static>(&mut self, message: M, count: usize) -> u32 {
        let context = self.traces.as_ref().and_then(|traces| traces.current());
        if let Some(lane) = self.traced_lane() {
            lane.plain.push_copies(message, count);
            lane.contexts.extend(repeat_n(context, count));
        }
        self.last as u32
    }

    /// Puts a message of another outbox on a traced lane.
    #[cfg(feature = "durable")]
    fn take_over<M: Send + 'static>(&mut self, message: M, context: Option<Context>) {
        let wanted = TypeId::of::<M>();
        self.last = self.lanes.iter().position(|(of, _)| *of == wanted).unwrap_or_else(|| {
            self.lanes.push((wanted, lane::<M>()));
            self.lanes.len() - 1
        });
        self.uncover(self.last);
        if let Some(lane) = self.traced_lane() {
            lane.plain.letters.push_back(message);
            lane.contexts.push_back(context);
        }
    }
}

impl<M: Send + 'static> Lane for TracedLaneOf<M> {
    fn fill(
        &mut self,
        count: u32,
        from: Option<Pid>,
        mailbox: &mut dyn AnyMailbox,
        mut bounds: Option<&mut Bounds>,
    ) -> Option<u32> {
        // A message that pushes out another one needs the context of that one.
        let pushes_out = bounds.as_ref().is_some_and(|bounds| bounds.bound.overflow == Overflow::DropOldest);
        if !pushes_out && self.contexts.iter().take(count as usize).all(Option::is_none) {
            let dead = self.plain.dead.len();
            let grown = self.plain.fill(count, from, mailbox, bounds)?;
            self.contexts.drain(..count as usize);
            self.dead.extend(repeat_n(None, self.plain.dead.len() - dead));
            return Some(grown);
        }
        let mut grown = 0;
        for _ in 0..count {
            let dead = self.plain.dead.len();
            // It goes with the message, if the message waits.
            self.plain.context = self.contexts.front().cloned().flatten();
            let filled = self.plain.fill(1, from, mailbox, bounds.as_deref_mut());
            let has_waited = self.plain.context.take().is_none();
            grown += filled?;
            let context = self.contexts.pop_front().flatten();
            match self.plain.dead.get(dead) {
                None if has_waited => {}
                None => context.into_iter().for_each(|context| mailbox.mark(context)),
                Some((_, DeadLetterReason::DroppedOldest)) => {
                    self.dead.push_back(mailbox.signals().as_mut().and_then(|signals| signals.take_last_mark()));
                    context.into_iter().for_each(|context| mailbox.mark(context));
                }
                Some(_) => self.dead.push_back(context),
            }
        }
        Some(grown)
    }

    fn settle(&mut self) -> bool {
        if self.contexts.is_empty() && self.contexts.capacity() * size_of::<Option<Context>>() > KEPT {
            self.contexts = VecDeque::new();
        }
        self.plain.settle()
    }

    fn last_dead(&self) -> (usize, Option<DeadLetterReason>) {
        self.plain.last_dead()
    }

    fn set_ask(&mut self, ask: Option<Arc<Ask>>) {
        self.plain.set_ask(ask);
    }

    fn take_waiting(&mut self) -> u32 {
        self.plain.take_waiting()
    }

    fn bury(&mut self, missed: u32, all: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        // The plain lane shows the dead messages first, and then the missed ones.
        let missed_contexts = self.contexts.drain(..missed as usize);
        let mut contexts = std::mem::take(&mut self.dead).into_iter().chain(missed_contexts);
        self.plain.bury(missed, all, &mut |letter| {
            let context = contexts.next().flatten();
            with_trace(context.as_deref(), letter, &mut *grave);
            drop_contained(context);
        });
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.contexts.drain(..).for_each(drop_contained);
        self.settle();
    }

    fn look(&self, place: usize) -> Option<(&dyn Any, &'static str)> {
        self.plain.look(place)
    }

    fn split_off_first(&mut self) -> Box<dyn Lane> {
        let letters = self.plain.letters.pop_front().into_iter().collect();
        let contexts = self.contexts.pop_front().into_iter().collect();
        Box::new(TracedLaneOf { plain: LaneOf::<M>::new(letters), contexts, dead: VecDeque::new() })
    }

    #[cfg(feature = "durable")]
    fn forward(&mut self, count: usize, outbox: &mut Outbox) -> u32 {
        let letters = self.plain.letters.drain(..count).zip(self.contexts.drain(..count));
        letters.for_each(|(message, context)| outbox.take_over(message, context));
        outbox.last as u32
    }

    fn pop(&mut self) -> Option<Popped> {
        let trace = MessageTrace::new(self.contexts.pop_front().flatten());
        Some(Popped { trace, ..self.plain.pop()? })
    }
}
