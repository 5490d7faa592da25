//! SleepingBarber: customers arrive at a pace. One is served at a time, and up to 1,000 wait. A customer that finds
//! no seat leaves and comes back, until all have had their haircut.
//!
//! The suite calls 1,000 the average of a pace. It draws from 0 to 999 and adds 10, and so does this program. The
//! draw is a number of rounds of [`work::rounds`]. In the suite's own programs, the customers without a seat all come
//! back at once, repeatedly and without a pause. Then it depends on chance whether the room ever fills. If it does,
//! the program measures only that crowd. (Runs of the same program differed by a factor of fifty.) The description
//! says only that they come back until they are served. Here the street lets in one customer at a time, at its pace,
//! both new and returning ones. It yields after each customer, because the pace is work enough.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::work;
use super::{Verdict, same};

const SEATS: usize = 1_000;
const RANGE: u32 = 1_000;
const LEAST: u32 = 10;

/// The durations of successive actions.
struct Pace {
    random: Xoshiro256PlusPlus,
}

impl Pace {
    fn new(seed: u64) -> Pace {
        Pace { random: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Works for the duration of the next action.
    fn take(&mut self) {
        work::rounds(self.random.random_range(0..RANGE) + LEAST);
    }
}

/// The source of customers, both new ones and those that wait to come back. The type of a customer depends on the
/// library.
pub(crate) struct Street<C> {
    pace: Pace,
    new: u64,
    outside: VecDeque<C>,
    came_back: u64,
    to_be_served: u64,
}

/// A customer that enters.
pub(crate) enum Arrival<C> {
    New,
    Again(C),
}

impl<C> Street<C> {
    pub(crate) fn new(customers: u64) -> Street<C> {
        let (pace, outside) = (Pace::new(1), VecDeque::new());
        Street { pace, new: customers, outside, came_back: 0, to_be_served: customers }
    }

    /// Lets the next customer in, if there is one. Returning customers come first. The call works for a while.
    pub(crate) fn next(&mut self) -> Option<Arrival<C>> {
        let arrival = match self.outside.pop_front() {
            Some(customer) => Arrival::Again(customer),
            None => {
                self.new = self.new.checked_sub(1)?;
                Arrival::New
            }
        };
        self.pace.take();
        Some(arrival)
    }

    /// Whether a customer is outside.
    pub(crate) fn has_more(&self) -> bool {
        self.new > 0 || !self.outside.is_empty()
    }

    /// Notes that a customer found no seat.
    pub(crate) fn came_back(&mut self, customer: C) {
        self.came_back += 1;
        self.outside.push_back(customer);
    }

    pub(crate) fn was_served(&mut self) {
        self.to_be_served -= 1;
    }

    /// How often customers came back, once all have been served.
    pub(crate) fn result(&self) -> Option<u64> {
        (self.to_be_served == 0).then_some(self.came_back)
    }
}

/// The state of the barber.
pub(crate) struct Scissors {
    pace: Pace,
    haircuts: u64,
}

impl Scissors {
    pub(crate) fn new() -> Scissors {
        Scissors { pace: Pace::new(2), haircuts: 0 }
    }

    /// Cuts one customer's hair. The call works for a while.
    pub(crate) fn cut(&mut self) {
        self.pace.take();
        self.haircuts += 1;
    }

    pub(crate) fn haircuts(&self) -> u64 {
        self.haircuts
    }
}

/// The waiting room.
pub(crate) struct Room<C> {
    waiting: VecDeque<C>,
    is_barber_asleep: bool,
    turned_away: u64,
}

/// The result of entering the room.
pub(crate) enum Entered<'a, C> {
    /// The barber was asleep, and serves the customer.
    Served(C),
    /// The customer has sat down.
    Waits(&'a C),
    /// No seat is free.
    Full(C),
}

impl<C> Room<C> {
    pub(crate) fn new() -> Room<C> {
        Room { waiting: VecDeque::new(), is_barber_asleep: true, turned_away: 0 }
    }

    /// The number of customers that found no seat.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    pub(crate) fn enter(&mut self, customer: C) -> Entered<'_, C> {
        if std::mem::take(&mut self.is_barber_asleep) {
            return Entered::Served(customer);
        }
        if self.waiting.len() == SEATS {
            self.turned_away += 1;
            return Entered::Full(customer);
        }
        Entered::Waits(self.waiting.push_back_mut(customer))
    }

    /// Notes that the barber is free. Returns the next customer. If there is none, the barber sleeps.
    pub(crate) fn next(&mut self) -> Option<C> {
        let next = self.waiting.pop_front();
        self.is_barber_asleep = next.is_none();
        next
    }
}

/// Checks the counts of the barber, the waiting room and the street.
pub(crate) fn check(haircuts: u64, turned_away: u64, came_back: u64, must_be: u64) -> Verdict {
    same("haircuts", haircuts, must_be)?;
    same("customers who came back", came_back, turned_away)
}
