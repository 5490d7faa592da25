//! A plain queue that does what a mailbox with a bound has to do.

use std::collections::VecDeque;

use procession::spawn::Overflow;

use crate::bounded::{Program, Take, Then, panics_late};

/// The mailbox as it has to be.
#[derive(Default)]
pub struct Model {
    pub queue: VecDeque<u32>,
    /// So many in front were left by the last step.
    left: usize,
    /// While a step runs: so many of those that it was given were left by the step before, and hold their places.
    held: usize,
    /// Places that are kept for messages that are converted now.
    kept: usize,
    /// In the order in which they go, as far as there is one: those that a step takes go when it is over.
    pub gone: Vec<u32>,
    pub taken: Vec<u32>,
    pub lost: u64,
    pub oldest: u64,
    pub newest: u64,
    /// Those of another process that are refused.
    pub full: u64,
    /// Those that wait for room.
    pub waiting: VecDeque<u32>,
}

impl Model {
    /// A message is sent to the mailbox. Whether it is refused.
    pub fn send(&mut self, program: &Program, number: u32) -> bool {
        // `DropOldest` takes a message into the place of a held one, which goes when the step is over.
        let is_promised = program.overflow == Overflow::Refuse && !self.waiting.is_empty();
        if self.has_room(program) && !is_promised {
            self.queue.push_back(number);
            return false;
        }
        match program.overflow {
            Overflow::Refuse => {
                self.gone.push(number);
                return true;
            }
            Overflow::DropNewest => {
                self.gone.push(number);
                self.newest += 1;
            }
            _ => {
                self.queue.push_back(number);
                self.drops_oldest(program);
            }
        }
        false
    }

    fn has_room(&self, program: &Program) -> bool {
        let held = if program.overflow == Overflow::DropOldest { 0 } else { self.held };
        held + self.kept + self.queue.len() < program.limit
    }

    /// A message is sent that is converted first. Returns whether it is refused. Otherwise a place is kept for it,
    /// unless the mailbox drops messages.
    pub fn begins_conversion(&mut self, program: &Program, number: u32) -> bool {
        if program.overflow != Overflow::Refuse {
            return false;
        }
        let is_refused = !self.has_room(program) || !self.waiting.is_empty();
        if is_refused {
            self.gone.push(number);
        } else {
            self.kept += 1;
        }
        is_refused
    }

    /// The message is converted, or its conversion has panicked.
    pub fn ends_conversion(&mut self, program: &Program, number: u32, has_panicked: bool) {
        let has_place = std::mem::take(&mut self.kept) > 0;
        if has_panicked {
            self.gone.push(number);
            self.lets_in(program);
        } else if has_place {
            self.queue.push_back(number);
        } else {
            self.send(program, number);
        }
    }

    /// A message is sent that may wait for room.
    pub fn waits(&mut self, program: &Program, number: u32) {
        if program.overflow == Overflow::Refuse {
            self.waiting.push_back(number);
            self.lets_in(program);
        } else if panics_late(number) {
            self.gone.push(number);
        } else {
            self.send(program, number);
        }
    }

    /// The sender of a message has given up. If the message waits for room, it goes.
    pub fn gives_up(&mut self, number: u32) {
        let waited = self.waiting.len();
        self.waiting.retain(|waits| *waits != number);
        self.gone.extend((self.waiting.len() < waited).then_some(number));
    }

    /// Those that wait come in while there is room. One whose conversion panics then takes no place.
    fn lets_in(&mut self, program: &Program) {
        while self.has_room(program)
            && let Some(number) = self.waiting.pop_front()
        {
            match panics_late(number) {
                true => self.gone.push(number),
                false => self.queue.push_back(number),
            }
        }
    }

    fn drops_oldest(&mut self, program: &Program) {
        while program.overflow == Overflow::DropOldest && self.queue.len() > program.limit {
            self.gone.extend(self.queue.pop_front());
            self.oldest += 1;
        }
    }

    /// Begins a step with all that is there, and returns the messages that it leaves. The places of the new ones are
    /// free until the step is over.
    pub fn step(&mut self, program: &Program, take: Take) -> VecDeque<u32> {
        let (mut got, mut left) = (Vec::new(), VecDeque::new());
        self.held = std::mem::take(&mut self.left);
        for number in std::mem::take(&mut self.queue) {
            if got.len() < take.messages && (!take.odd || number % 2 == 1) {
                got.push(number);
            } else {
                left.push_back(number);
            }
        }
        self.lets_in(program);
        self.gone.extend(&got);
        match take.then {
            Then::Wait | Then::Upgrade => self.taken.extend(got),
            Then::Fail | Then::Panic => self.lost += got.len() as u64,
        }
        left
    }

    /// The step is over.
    pub fn settles(&mut self, program: &Program, take: Take, left: VecDeque<u32>) {
        (self.held, self.left) = (0, left.len());
        let meanwhile = std::mem::replace(&mut self.queue, left);
        self.queue.extend(meanwhile);
        if take.then != Then::Wait {
            // The first step of a successor is given all, and leaves it.
            self.left = self.queue.len();
        }
        self.drops_oldest(program);
        self.lets_in(program);
    }
}
