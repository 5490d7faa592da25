//! The records of a random program of one listener: what the others have told it, and what it has taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::Pid;

use crate::helpers::Mutex;

pub type Shared = Arc<Mutex<Records>>;

/// The listener is to be told these of another process, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// A question is a letter, too.
    Letter(u64),
    Answer(u64),
    Recovery,
    Down,
    Exit,
}

/// The only yield of a step, on its way after the end of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Yielded {
    Letter,
    Question,
    Answer,
}

/// The kinds of yields that other steps have overtaken in any program, and the number of programs.
#[derive(Default)]
pub struct Overtaken {
    yields: Mutex<BTreeSet<Yielded>>,
    programs: AtomicUsize,
}

/// In so many programs, a yield of each kind is overtaken.
const ENOUGH: usize = 50;

impl Overtaken {
    /// A program begins.
    pub fn count(&self) {
        self.programs.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what a program has overtaken.
    pub fn note(&self, records: &Records) {
        self.yields.lock().unwrap().extend(&records.overtaken);
    }

    /// Others may be stepped between the end of a step and its only yield. So each kind of yield is overtaken.
    pub fn check(&self) {
        let yields = self.yields.lock().unwrap();
        let missing =
            [Yielded::Letter, Yielded::Question, Yielded::Answer].into_iter().find(|one| !yields.contains(one));
        let programs = self.programs.load(Ordering::Relaxed);
        assert!(programs < ENOUGH || missing.is_none(), "no step of {programs} programs has overtaken a {missing:?}");
    }
}

impl Item {
    fn is_signal(self) -> bool {
        !matches!(self, Item::Letter(_) | Item::Answer(_))
    }

    /// Whether the order of this item and an earlier one is open. A recovery may wait behind later letters, too.
    fn may_come_before(self, earlier: Item) -> bool {
        match earlier {
            Item::Letter(_) | Item::Answer(_) => false,
            Item::Recovery => !self.is_signal(),
            Item::Down | Item::Exit => self.is_signal(),
        }
    }
}

/// The records of one of the others.
#[derive(Default)]
pub struct Told {
    /// Those that the listener has not taken.
    pub items: VecDeque<Item>,
    /// So many of them have arrived for certain.
    pub arrived: usize,
    /// Questions of which the listener has taken no answer.
    pub questions: usize,
    pub is_linked: bool,
    pub is_monitored: bool,
}

impl Told {
    /// Whether its next item is a signal that need not wait for anything. An end waits behind all answers.
    fn is_due(&self) -> bool {
        let is_end = |item: &Item| matches!(item, Item::Down | Item::Exit);
        let is_answered = self.questions == 0 || !self.items.iter().any(is_end);
        self.arrived > 0 && is_answered && self.items.iter().all(|item| item.is_signal())
    }
}

#[derive(Default)]
pub struct Records {
    pub told: BTreeMap<Pid, Told>,
    number: u64,
    /// Letters and answers that the listener has not taken, by their numbers. Later steps have greater ones.
    on_the_way: BTreeMap<u64, (Pid, Yielded)>,
    /// Those of another process were said later and were taken earlier.
    overtaken: BTreeSet<Yielded>,
    pub takes_all: bool,
    /// Whether the listener has a mailbox with a bound. A letter that dies there may leave an end behind.
    pub is_bounded: bool,
    /// Errors with hostile destructors that were made, and that were dropped.
    pub made: usize,
    pub dropped: usize,
    pub wrong: Option<String>,
}

impl Records {
    pub fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    pub fn says(&mut self, me: Pid, yielded: Yielded) -> u64 {
        self.number += 1;
        let number = self.number;
        self.on_the_way.insert(number, (me, yielded));
        let item = if yielded == Yielded::Answer { Item::Answer(number) } else { Item::Letter(number) };
        self.told.entry(me).or_default().items.push_back(item);
        number
    }

    pub fn end(&mut self, me: Pid) {
        let told = self.told.entry(me).or_default();
        told.items.extend(told.is_monitored.then_some(Item::Down));
        told.items.extend(told.is_linked.then_some(Item::Exit));
    }

    /// Nothing is told of this process any longer.
    pub fn forget(&mut self, of: Pid) {
        let told = self.told.entry(of).or_default();
        (told.is_linked, told.is_monitored) = (false, false);
        told.arrived = told.items.iter().take(told.arrived).filter(|item| !item.is_signal()).count();
        told.items.retain(|item| !item.is_signal());
    }

    /// A letter is dead.
    pub fn lost(&mut self, number: u64) {
        self.on_the_way.remove(&number);
        for told in self.told.values_mut() {
            if let Some(place) = told.items.iter().position(|item| *item == Item::Letter(number)) {
                told.items.remove(place);
                told.arrived -= usize::from(place < told.arrived);
            }
        }
    }

    /// The listener takes an item of this process.
    pub fn takes(&mut self, of: Pid, item: Item) {
        let told = self.told.entry(of).or_default();
        let all = told.items.clone();
        match told.items.iter().position(|one| *one == item) {
            Some(place) if all.iter().take(place).all(|one| item.may_come_before(*one)) => {
                told.items.remove(place);
                told.arrived -= usize::from(place < told.arrived);
            }
            _ => self.wrong(format!("the listener takes {item:?} of {of}, and is to be told {all:?}")),
        }
        if let Item::Letter(number) | Item::Answer(number) = item {
            self.on_the_way.remove(&number);
            // A mailbox without a bound keeps the order in which everything has arrived.
            let before = self.on_the_way.range(..number).filter(|(_, (from, _))| *from != of && !self.is_bounded);
            self.overtaken.extend(before.map(|(_, (_, yielded))| yielded));
        }
        // A signal comes before what it need not wait for.
        let due = self.told.iter().find(|(other, told)| **other != of && told.is_due()).map(|(other, _)| *other);
        if let Some(other) = due.filter(|_| !item.is_signal() && !self.is_bounded) {
            self.wrong(format!("the listener takes {item:?} of {of} before {:?} of {other}", self.told[&other].items));
        }
    }
}
