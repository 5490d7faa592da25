//! Permits to run: a limited number, and a queue of tickets that wait for one.
//!
//! **State**, behind one lock: the number of free permits, and the queue of the tickets that wait. A ticket in the
//! queue has a number, and the waker of its last poll. A ticket that is not in the queue has a permit. So its removal
//! from the queue *is* the grant, and nothing else says who has a permit.
//!
//! | the ticket | event, under the lock | becomes |
//! |---|---|---|
//! | — | it is taken, and a permit is free | **granted**: there is one free permit less |
//! | — | it is taken, and none is free | **waits**, at the end of the queue |
//! | **waits** | it is polled | **waits**, with the waker of this poll |
//! | **waits** | a permit comes back, and it is the first | **granted**: removed, and woken after the unlock |
//! | **waits** | it is dropped | gone: removed |
//! | **granted** | it is dropped | gone: its permit comes back |
//!
//! A permit that *comes back* goes to the first ticket of the queue. If no ticket waits, there is one free permit more.
//!
//! **Outside the critical sections** this holds: the granted tickets and the free permits are `limit` together, and if
//! a ticket waits, no permit is free. Each row keeps both.
//!
//! **No permit is lost, and none is given twice.** A grant and the drop of the same ticket change the queue under the
//! same lock. If the grant is first, the drop finds no entry, so the permit comes back. If the drop is first, the
//! grant finds another entry, or none.
//!
//! **No wake is lost.** A poll looks whether its ticket is granted, and leaves its waker, in one critical section. A
//! grant that comes later finds the waker. A ticket that is granted before its first poll has no waker. Its first poll
//! finds the grant.
//!
//! **In order.** A ticket is taken when its command is performed. While a ticket waits, no permit is free, so no later
//! ticket is granted before it.
//!
//! Each row takes constant time, amortised, however many tickets wait.

use std::task::{Context, Poll, Waker};

use crate::numbered_list::NumberedList;
use crate::primitives::{Arc, Brief, enter};

/// The permits of one limit.
pub(crate) struct Permits {
    inner: Brief<Inner>,
}

struct Inner {
    free: usize,
    waiting: NumberedList<Option<Waker>>,
}

/// A place in the queue for a permit, or a permit. Dropping it gives either back.
pub(crate) struct Ticket {
    permits: Arc<Permits>,
    /// The number in the queue. `None` if this ticket knows that it has a permit.
    number: Option<u64>,
}

impl Permits {
    pub(crate) fn new(limit: usize) -> Arc<Permits> {
        Arc::new(Permits { inner: Brief::new(Inner { free: limit, waiting: NumberedList::new() }) })
    }

    /// Takes a ticket. It has a permit at once if one is free.
    pub(crate) fn ticket(self: &Arc<Permits>) -> Ticket {
        let number = {
            let mut inner = enter(&self.inner);
            match inner.free.checked_sub(1) {
                Some(free) => {
                    inner.free = free;
                    None
                }
                None => Some(inner.waiting.push(None)),
            }
        };
        Ticket { permits: self.clone(), number }
    }
}

impl Inner {
    /// Passes a returned permit on to the first ticket of the queue. Returns the waker of that ticket.
    fn come_back(&mut self) -> Option<Waker> {
        match self.waiting.pop() {
            Some(waker) => waker,
            None => {
                self.free += 1;
                None
            }
        }
    }
}

impl Ticket {
    /// Whether the ticket has a permit. If not, the grant wakes the waker of this poll.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(number) = self.number else { return Poll::Ready(()) };
        let waker = context.waker();
        // The old waker is dropped after the lock is released.
        let _before = {
            let mut inner = enter(&self.permits.inner);
            match inner.waiting.get_mut(number) {
                Some(Some(before)) if before.will_wake(waker) => return Poll::Pending,
                Some(place) => place.replace(waker.clone()),
                None => {
                    self.number = None;
                    return Poll::Ready(());
                }
            }
        };
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (left, woken) = {
            let mut inner = enter(&self.permits.inner);
            match self.number.and_then(|number| inner.waiting.remove(number)) {
                Some(left) => (left, None),
                None => (None, inner.come_back()),
            }
        };
        drop(left);
        if let Some(next) = woken {
            next.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU64);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_granted(ticket: &mut Ticket) -> bool {
        ticket.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn tickets_are_granted_in_order_and_a_dropped_one_leaves_the_queue() {
        let permits = Permits::new(2);
        let mut tickets: Vec<Ticket> = (0..6).map(|_| permits.ticket()).collect();
        let granted = |tickets: &mut [Ticket]| tickets.iter_mut().map(is_granted).collect::<Vec<_>>();
        assert_eq!(granted(&mut tickets), [true, true, false, false, false, false]);
        drop(tickets.remove(2));
        assert_eq!(granted(&mut tickets), [true, true, false, false, false]);
        drop(tickets.remove(1));
        assert_eq!(granted(&mut tickets), [true, true, false, false]);
        // Granted, and dropped before it has looked.
        drop(tickets.remove(0));
        drop(tickets.remove(1));
        assert_eq!(granted(&mut tickets), [true, true]);
        drop(tickets);
        let inner = enter(&permits.inner);
        assert_eq!((inner.free, inner.waiting.len()), (2, 0));
    }

    #[test]
    fn a_ticket_that_waits_is_woken_once_and_by_its_last_poll() {
        let permits = Permits::new(1);
        let (first, mut second) = (permits.ticket(), permits.ticket());
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        for count in [&counts[0], &counts[1], &counts[1]] {
            assert!(second.poll(&mut Context::from_waker(&count.clone().into())).is_pending());
        }
        assert_eq!(Arc::strong_count(&counts[0]), 1, "the first waker is gone");
        drop(first);
        assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)), [0, 1]);
        assert!(is_granted(&mut second));
        assert_eq!(Arc::strong_count(&counts[1]), 1);
    }

    #[test]
    fn a_hundred_thousand_tickets_leave_in_any_order_and_leave_nothing() {
        const MANY: usize = 100_000;
        let permits = Permits::new(1);
        let first = permits.ticket();
        let mut tickets: Vec<Option<Ticket>> = (0..MANY).map(|_| Some(permits.ticket())).collect();
        // From the end, from the front and from within.
        (0..MANY / 2).for_each(|n| drop(tickets[MANY - 1 - n].take()));
        (0..MANY / 2).step_by(3).for_each(|n| drop(tickets[n].take()));
        drop(first);
        for ticket in tickets.iter_mut().filter(|ticket| ticket.is_some()) {
            assert!(is_granted(ticket.as_mut().unwrap()));
            drop(ticket.take());
        }
        let inner = enter(&permits.inner);
        assert_eq!((inner.free, inner.waiting.len()), (1, 0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::task::Wake;

    use super::*;
    use crate::primitives::{AtomicBool, Ordering, thread};

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn is_granted(ticket: &mut Ticket, flag: &Arc<Flag>) -> bool {
        ticket.poll(&mut Context::from_waker(&flag.clone().into())).is_ready()
    }

    /// Fails if a poll looks in one critical section and leaves its waker in another, or if the grant does not wake.
    #[test]
    fn a_permit_comes_back_while_the_next_ticket_is_polled() {
        loom::model(|| {
            let permits = Permits::new(1);
            let (first, mut second) = (permits.ticket(), permits.ticket());
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let gives = thread::spawn(move || drop(first));
            let granted = is_granted(&mut second, &flag);
            gives.join().unwrap();
            assert!(granted || flag.0.load(Ordering::Relaxed), "neither granted nor woken");
            assert!(is_granted(&mut second, &flag));
            drop(second);
            assert_eq!(enter(&permits.inner).free, 1);
        });
    }

    /// Fails if a granted ticket that is dropped keeps its permit, or if a ticket that waits gives one back.
    #[test]
    fn a_permit_comes_back_while_the_next_ticket_is_dropped() {
        loom::model(|| {
            let permits = Permits::new(1);
            let (first, second, mut third) = (permits.ticket(), permits.ticket(), permits.ticket());
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            assert!(!is_granted(&mut third, &flag));
            let gives = thread::spawn(move || drop(first));
            drop(second);
            gives.join().unwrap();
            assert!(flag.0.load(Ordering::Relaxed) && is_granted(&mut third, &flag), "the permit is lost");
            drop(third);
            let inner = enter(&permits.inner);
            assert_eq!((inner.free, inner.waiting.len()), (1, 0));
        });
    }

    /// Fails if a free permit is taken in another critical section than the one that looks for it.
    #[test]
    fn tickets_are_taken_while_permits_come_back() {
        loom::model(|| {
            let permits = Permits::new(1);
            let other = permits.clone();
            let first = permits.ticket();
            let gives = thread::spawn(move || {
                drop(first);
                drop(other.ticket());
            });
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let mut second = permits.ticket();
            let granted = is_granted(&mut second, &flag);
            gives.join().unwrap();
            assert!(granted || flag.0.load(Ordering::Relaxed), "a ticket waits beside a free permit");
            assert!(is_granted(&mut second, &flag));
            drop(second);
            assert_eq!(enter(&permits.inner).free, 1);
        });
    }
}
