//! Who is told when something has changed: submitters who stand for room, and those who watch for a pause to hold, for
//! nothing to be left, or for the end, or count on others to come to what waits (`help.rs`). They look again by themselves.

use super::ledger::Ledger;
use super::seat::Seat;
use super::words::PoolStatus;

impl<J> Ledger<J> {
    /// Whom to call because something has changed: the first who stands if there is room, and those who watch if there is
    /// something to see.
    #[inline]
    pub(super) fn news(&self) -> Vec<Seat> {
        let mut seats = Vec::new();
        if !self.standing.is_empty() && (self.has_place() || self.status != PoolStatus::Running) {
            seats.extend(self.standing.front().cloned());
        }
        if !self.watching.is_empty() {
            let all = self.running == 0 || self.workers == 0;
            if all || self.watching.iter().any(Seat::has_bell) && self.leaves_some() {
                seats.extend(self.watching.iter().filter(|seat| all || seat.has_bell()).cloned());
            }
        }
        seats
    }

    /// The same after a pause has ended: whoever waited for it to hold sees that, too.
    pub(super) fn news_of_pause(&self) -> Vec<Seat> {
        let first = self.standing.front().filter(|_| self.has_place());
        self.watching.iter().chain(first).cloned().collect()
    }

    /// Whether some of what waits has nobody who comes to it at once: a pause keeps it, or there are more jobs than workers
    /// who are free, or could be had. Where jobs wait and nobody is awake, none could be had.
    pub(super) fn leaves_some(&self) -> bool {
        let free = self.workers - self.running - self.away;
        let to_come = self.limits.max.saturating_sub(self.workers);
        let nobody_comes = self.waiting() > 0 && self.awake() == 0;
        nobody_comes || !self.pauses.is_empty() || self.waiting() > free.saturating_add(to_come)
    }

    /// A submitter stands for room, behind all who do already.
    pub(super) fn stand(&mut self, seat: &Seat) {
        if !self.standing.iter().any(|other| other.is(seat)) {
            self.standing.push_back(seat.clone());
        }
    }

    /// It has got it, or has given up.
    pub(super) fn stand_no_more(&mut self, seat: &Seat) {
        self.standing.retain(|other| !other.is(seat));
    }

    pub(super) fn watch(&mut self, seat: &Seat) {
        self.watching.push(seat.clone());
    }

    pub(super) fn watch_no_more(&mut self, seat: &Seat) {
        self.watching.retain(|other| !other.is(seat));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Pool, QueuePolicy};
    use crate::latch::Latch;
    use crate::sync::{Arc, Mutex, lock, thread};
    use crate::wait::{until, wait};

    #[test]
    fn whoever_has_waited_longer_has_the_room_first() {
        let pool = Pool::builder().max(1).queue(QueuePolicy::Block(0)).build().unwrap();
        let (go, order) = (Latch::new(), Arc::new(Mutex::new(Vec::new())));
        let gate = go.clone();
        pool.execute(move || wait(&gate)).unwrap();
        let submitters: Vec<_> = (0..4)
            .map(|n| {
                let (submits, order) = (pool.clone(), order.clone());
                let submitter = thread::spawn(move || submits.execute(move || lock(&order).push(n)).unwrap());
                until("the submitter waits", || pool.owner.shared.lock().standing.len() > n);
                submitter
            })
            .collect();
        go.set(()).unwrap();
        submitters.into_iter().for_each(|submitter| wait(submitter).unwrap());
        pool.drain(None).unwrap();
        assert_eq!(*lock(&order), [0, 1, 2, 3]);
    }

    #[test]
    fn who_waits_until_nothing_is_left_does_not_wait_for_destructors_of_what_was_given_up() {
        struct Blocks(Latch<()>, Latch<()>);
        impl Drop for Blocks {
            fn drop(&mut self) {
                self.0.set(()).unwrap();
                wait(&self.1);
            }
        }
        let pool = Pool::builder().max(2).build().unwrap();
        let (dropping, gate) = (Latch::new(), Latch::new());
        let (pause, blocks) = (pool.pause().unwrap(), Blocks(dropping.clone(), gate.clone()));
        pool.execute(move || drop(blocks)).unwrap();
        let waits = pool.clone();
        let waiter = thread::spawn(move || waits.wait_idle(None).is_ok());
        until("the other one waits", || !pool.owner.shared.lock().watching.is_empty());
        let resumer = thread::spawn(move || {
            crate::threads::refuse(true);
            drop(pause);
        });
        wait(&dropping);
        assert!(wait(waiter).unwrap());
        gate.set(()).unwrap();
        wait(resumer).unwrap();
        assert_eq!((pool.stats().abandoned, pool.stats().unfinished()), (1, 0));
    }
}
