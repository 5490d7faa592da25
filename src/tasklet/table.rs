//! The slots of a loop's tasklets, found by their ids, and lists of slots.

use std::borrow::Cow;
use std::time::Instant;

use super::directive::{Directive, TaskletId};
use crate::cancel::CancelToken;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason};
use crate::timer::TimerId;

/// The place of one tasklet, and its pending notes.
pub(super) struct Slot<B> {
    number: u64,
    before: u32,
    behind: u32,
    /// The body, if the tasklet is at rest. It is out while the tasklet is in a step, and when it ends.
    pub(super) body: Option<B>,
    /// The place of a tasklet at rest, or the kind of its step. `Done` if the tasklet ends.
    pub(super) directive: Directive,
    /// Whether a tasklet at rest with the directive `Pool` is held.
    pub(super) is_held: bool,
    pub(super) since: Instant,
    pub(super) name: Cow<'static, str>,
    pub(super) ended: Option<Latch<Exit>>,
    pub(super) cancel: Option<CancelToken>,
    // The fields from here on are notes that were made while the body is out.
    pub(super) doomed: Option<Reason>,
    pub(super) given: Option<Given>,
    // The open suspension: its epoch, its number of unused resumptions, and the timers that limit it.
    pub(super) epoch: u64,
    pub(super) out: u32,
    pub(super) suspended: bool,
    pub(super) deadlines: Vec<TimerId>,
    // Whether its limit ended the last wait. The next step can query this.
    pub(super) timed_out: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) directive: Directive,
    pub(super) timed_out: bool,
    // Whether it was noted before the current step began.
    pub(super) is_old: bool,
}

impl<B> Slot<B> {
    /// Ends the open suspension. Its resumptions then do nothing. Returns its timers, which are to be cancelled.
    pub(super) fn end_suspension(&mut self) -> Vec<TimerId> {
        self.epoch += 1;
        self.out = 0;
        self.suspended = false;
        std::mem::take(&mut self.deadlines)
    }
}

pub(super) struct Table<B> {
    owner: u64,
    last: u64,
    slots: Vec<Option<Slot<B>>>,
    /// The indices of the free slots.
    vacant: Vec<u32>,
}

/// The largest table, in slots, that is kept when the loop is empty.
pub(super) const KEPT: usize = 1_024;

impl<B> Table<B> {
    pub(super) fn new(owner: u64) -> Table<B> {
        Table { owner, last: 0, slots: Vec::new(), vacant: Vec::new() }
    }

    /// The number of tasklets.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Adds a tasklet whose body is out.
    pub(super) fn insert(&mut self, name: Cow<'static, str>, ended: Option<Latch<Exit>>, since: Instant) -> TaskletId {
        self.last += 1;
        let slot = Slot {
            number: self.last,
            before: NO_SLOT,
            behind: NO_SLOT,
            body: None,
            directive: Directive::Home,
            is_held: false,
            since,
            name,
            ended,
            cancel: None,
            doomed: None,
            given: None,
            epoch: 0,
            out: 0,
            suspended: false,
            deadlines: Vec::new(),
            timed_out: false,
        };
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[place as usize] = Some(slot);
        TaskletId { owner: self.owner, number: self.last, slot: place }
    }

    /// Frees a slot. A large table is freed when it is empty.
    pub(super) fn remove(&mut self, id: TaskletId) -> Option<Slot<B>> {
        let gone = self.slots[id.slot as usize].take();
        self.vacant.push(id.slot);
        if self.live() == 0 && self.slots.capacity() > KEPT {
            (self.slots, self.vacant) = (Vec::new(), Vec::new());
        }
        gone
    }

    #[inline]
    pub(super) fn find(&mut self, id: TaskletId) -> Option<&mut Slot<B>> {
        let owner = self.owner;
        self.at(id.slot).filter(|slot| slot.number == id.number && id.owner == owner)
    }

    /// The slot of a tasklet whose body the caller holds, or has found in the slot. Such a tasklet has not ended, so
    /// it has a slot.
    #[inline]
    pub(super) fn slot(&mut self, id: TaskletId) -> &mut Slot<B> {
        self.at(id.slot).expect("a tasklet keeps its slot until it has ended")
    }

    #[inline]
    fn at(&mut self, place: u32) -> Option<&mut Slot<B>> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    /// All tasklets, also those that are about to end.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskletId, &Slot<B>)> {
        (0..).zip(&self.slots).filter_map(|(place, slot)| {
            let slot = slot.as_ref()?;
            Some((TaskletId { owner: self.owner, number: slot.number, slot: place }, slot))
        })
    }
}

/// A list of slots, which are linked through themselves. Any slot is removed in constant time, without allocation.
pub(super) struct List {
    first: u32,
    last: u32,
}

/// An index that no slot has.
const NO_SLOT: u32 = u32::MAX;

impl List {
    pub(super) const EMPTY: List = List { first: NO_SLOT, last: NO_SLOT };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NO_SLOT
    }

    #[inline]
    pub(super) fn first<B>(&self, table: &mut Table<B>) -> Option<TaskletId> {
        let number = table.at(self.first)?.number;
        Some(TaskletId { owner: table.owner, number, slot: self.first })
    }

    pub(super) fn push<B>(&mut self, table: &mut Table<B>, id: TaskletId) {
        let last = std::mem::replace(&mut self.last, id.slot);
        match table.at(last) {
            Some(slot) => slot.behind = id.slot,
            None => self.first = id.slot,
        }
        let slot = table.slot(id);
        (slot.before, slot.behind) = (last, NO_SLOT);
    }

    pub(super) fn remove<B>(&mut self, table: &mut Table<B>, id: TaskletId) {
        let slot = table.slot(id);
        let (before, behind) = (slot.before, slot.behind);
        match table.at(before) {
            Some(slot) => slot.behind = behind,
            None => self.first = behind,
        }
        match table.at(behind) {
            Some(slot) => slot.before = before,
            None => self.last = before,
        }
    }
}
