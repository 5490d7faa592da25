//! Events that are told to all subscribers, each with a queue of its own.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
#[cfg(feature = "stream")]
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, refuse_step_timeout};
use crate::latch::Latch;
#[cfg(feature = "stream")]
use crate::latch::LatchFuture;
use crate::primitives::{Arc, Mutex, Weak, lock};

/// The subscribers to events. Its owner has a lock, which gives the events one order.
#[derive(Debug)]
pub(super) struct Publisher<E> {
    subscribers: Vec<Weak<Mutex<Queue<E>>>>,
}

#[derive(Debug)]
struct Queue<E> {
    events: VecDeque<E>,
    is_closed: bool,
    /// Set when something was added, and then replaced.
    added: Latch<()>,
}

/// Subscribers that are to be woken when no lock is held.
#[must_use = "the subscribers are not woken otherwise"]
#[derive(Default)]
pub(super) struct Woken(Vec<Latch<()>>);

impl Woken {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(|latch| _ = latch.set(()));
    }
}

impl<E> Default for Publisher<E> {
    fn default() -> Publisher<E> {
        Publisher { subscribers: Vec::new() }
    }
}

impl<E: Clone> Publisher<E> {
    /// Adds a subscriber, whose queue begins with these events. If it is closed, no others come.
    pub(super) fn subscribe(&mut self, clock: &Clock, events: VecDeque<E>, is_closed: bool) -> EventQueue<E> {
        let queue = Arc::new(Mutex::new(Queue { events, is_closed, added: Latch::new() }));
        self.tidy();
        self.subscribers.push(Arc::downgrade(&queue));
        EventQueue {
            queue,
            clock: clock.clone(),
            #[cfg(feature = "stream")]
            waiting: None,
        }
    }

    /// Forgets the subscribers that were dropped. Returns whether there are others.
    pub(super) fn tidy(&mut self) -> bool {
        self.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        !self.subscribers.is_empty()
    }

    /// Tells all subscribers of an event.
    pub(super) fn tell(&self, event: &E, woken: &mut Woken) {
        let tell = |queue: &mut Queue<E>| {
            // Behind the end nothing comes.
            if !queue.is_closed {
                queue.events.push_back(event.clone());
            }
        };
        self.change(tell, woken);
    }

    /// There are no more events.
    pub(super) fn close(&self, woken: &mut Woken) {
        self.change(|queue| queue.is_closed = true, woken);
    }

    fn change(&self, change: impl Fn(&mut Queue<E>), woken: &mut Woken) {
        for queue in self.subscribers.iter().filter_map(Weak::upgrade) {
            let mut queue = lock(&queue);
            change(&mut queue);
            woken.0.push(std::mem::take(&mut queue.added));
        }
    }
}

/// The queue of one subscriber.
pub(super) struct EventQueue<E> {
    queue: Arc<Mutex<Queue<E>>>,
    clock: Clock,
    /// The latch of the poll that found nothing.
    #[cfg(feature = "stream")]
    waiting: Option<LatchFuture<()>>,
}

impl<E: fmt::Debug> EventQueue<E> {
    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("waiting", &lock(&self.queue).events).finish_non_exhaustive()
    }
}

impl<E> EventQueue<E> {
    /// Takes the next event, or waits for it for at most `limit`. Returns `None` when there are no more events.
    pub(super) fn recv_timeout(&mut self, limit: Duration) -> Result<Option<E>, WaitError> {
        let deadline = self.clock.deadline(limit);
        loop {
            let added = match self.take() {
                Ok(event) => return Ok(event),
                Err(added) => added,
            };
            refuse_step_timeout(limit)?;
            if !added.wait_until(&self.clock, deadline) {
                return Err(WaitError::TimedOut);
            }
        }
    }

    /// Takes the next event. Otherwise returns the latch that is set when there is one.
    fn take(&self) -> Result<Option<E>, Latch<()>> {
        let mut queue = lock(&self.queue);
        match queue.events.pop_front() {
            None if !queue.is_closed => Err(queue.added.clone()),
            event => Ok(event),
        }
    }

    /// Waits for an event that matches.
    pub(super) fn wait_for(mut self, matches: impl Fn(&E) -> bool, limit: Duration) -> Result<(), WaitError> {
        let deadline = self.clock.deadline(limit);
        loop {
            let rest = match deadline {
                Deadline(Some(at)) => at.saturating_duration_since(self.clock.now()),
                Deadline::NEVER => Duration::MAX,
            };
            match self.recv_timeout(rest)? {
                Some(event) if matches(&event) => return Ok(()),
                Some(_) => {}
                None => return Err(WaitError::TimedOut),
            }
        }
    }

    #[cfg(feature = "stream")]
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<E>> {
        loop {
            match self.take() {
                Ok(event) => return Poll::Ready(event),
                Err(added) => {
                    let waiting = self.waiting.get_or_insert_with(|| LatchFuture::new(added));
                    ready!(Pin::new(waiting).poll(context));
                    self.waiting = None;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn behind_the_end_nothing_comes() {
        let mut publisher = Publisher::default();
        let mut queue = publisher.subscribe(&Clock::system(), VecDeque::from([1]), false);
        let mut woken = Woken::default();
        publisher.tell(&2, &mut woken);
        publisher.close(&mut woken);
        publisher.tell(&3, &mut woken);
        woken.wake();
        let all = [(); 4].map(|()| queue.recv_timeout(Duration::ZERO));
        assert_eq!(all, [Ok(Some(1)), Ok(Some(2)), Ok(None), Ok(None)]);
    }
}
