//! The queues to the peer: the opening, control items, small messages, and large ones in fragments.

use std::collections::{HashMap, VecDeque};

use crate::random::mix;

use super::frame::{FRAGMENT, ITEM_LIMIT, LONGEST_FRAME, PART_HEAD, Part, put_varint};
use super::unacknowledged::Unacknowledged;

/// How many times the items of held processes may fill the room. Signals without end cause steps without end, and
/// processes may be spawned only to send in their last steps. So these items need a bound, too.
const HELD: usize = 8;

/// How many times large messages may fill the room until there is none for messages whose sizes are not known. So large
/// messages from outside, which are the room and one of 16 MiB, hold up no others. Those of held processes may.
const CONVERTED: usize = 4;

/// The most bytes of large items that are open at once. The longest item, and others beside it.
pub(super) const OPEN_LIMIT: usize = 24 << 20;

/// The most bytes of waiting items that are never refused, with one item beyond it. Without a bound, a peer that takes
/// nothing would cost any amount of memory.
const UNREFUSED: usize = 32 << 20;

/// The memory that a waiting item takes beside its payload, in bytes. It bounds the number of empty items.
const OVERHEAD: usize = 64;

/// The number of classes of senders. With few waiting senders, hardly any two of them are in one class.
const CLASSES: usize = 4096;

/// How an item travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It waits for room, and in order.
    Message,
    /// As `Message`, but it needs no room, because its sender is held. It is refused if [`HELD`] times as much waits as
    /// there is room for.
    Held,
    /// As `Message`, with a bound of its own. So no answer is refused because messages wait.
    Answer,
    /// As `Answer`, but it needs no room, because its sender is held or cannot be held. It is refused if [`HELD`] times
    /// as much waits as there is room for.
    HeldAnswer,
    /// It is never refused, and waits in order.
    Notice,
    /// It is never refused, and passes items of other senders.
    Control,
}

/// The messages that are taken now, of those whose sizes are not known. The values are in order of the room: what is
/// taken at one of them is taken at all later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// No connection is up.
    Down,
    /// None, also of processes that are held.
    None,
    /// Only those of processes that are held.
    Held,
    /// All of them, but no message of which it is known that it is large.
    Small,
    /// All messages.
    All,
}

/// The bound of an item that may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Bound {
    /// The bound of small messages.
    Small,
    /// The bound of large messages, and of messages that wait behind a large item of their sender.
    Large,
    /// The bound of answers.
    Answers,
}

impl Bound {
    pub(crate) const ALL: [Bound; 3] = [Bound::Small, Bound::Large, Bound::Answers];

    /// `None` if the item is never refused.
    fn of(class: Class, is_aside: bool) -> Option<Bound> {
        match class {
            Class::Message | Class::Held if is_aside => Some(Bound::Large),
            Class::Message | Class::Held => Some(Bound::Small),
            Class::Answer | Class::HeldAnswer => Some(Bound::Answers),
            Class::Notice | Class::Control => None,
        }
    }
}

/// Something that is to be sent to the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item<T = u64> {
    /// Items of one sender stay in order. Zero is outside of processes.
    pub(crate) sender: u64,
    /// Given back to the caller if the item was not delivered.
    pub(crate) token: T,
    pub(crate) payload: Vec<u8>,
}

/// Why an item was not taken. It is handed back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOffered<T = u64> {
    /// Too much waits. `Effect::Room` follows when there is room again.
    Busy(Item<T>),
    /// There is no connection that is up.
    NotUp(Item<T>),
    /// The payload is longer than [`ITEM_LIMIT`].
    TooLarge(Item<T>),
    /// Too many items wait that are never refused. The connection is to be closed.
    TooMuch(Item<T>),
}

#[derive(Debug)]
struct Waiting<T> {
    item: Item<T>,
    class: Class,
    /// Whether it counts among the large items: it is one, or it waits behind one of its sender.
    is_aside: bool,
}

impl<T> Waiting<T> {
    fn is_large(&self) -> bool {
        self.item.payload.len() > FRAGMENT
    }

    fn cost(&self) -> usize {
        cost(&self.item)
    }

    fn bound(&self) -> Option<Bound> {
        Bound::of(self.class, self.is_aside)
    }
}

/// A large item that is being sent.
#[derive(Debug)]
struct Large<T> {
    number: u64,
    waiting: Waiting<T>,
    sent: usize,
}

/// The bytes that wait, and whether an item was refused because of them.
#[derive(Debug, Default)]
struct Budget {
    bytes: usize,
    has_refused: bool,
}

impl Budget {
    /// Returns whether an item was refused and there is room again.
    fn take_room(&mut self, limit: usize) -> bool {
        self.bytes <= limit / 2 && std::mem::take(&mut self.has_refused)
    }
}

#[derive(Debug)]
pub(super) struct Lanes<T> {
    limit: usize,
    /// The rest of the types and the directory: what they are, the bytes, and how many were sent.
    opening: VecDeque<(Part, Vec<u8>, usize)>,
    control: VecDeque<Item<T>>,
    /// All other items, in the order of their offer.
    queue: VecDeque<Waiting<T>>,
    /// Large items that take turns.
    open: VecDeque<Large<T>>,
    /// Large items that wait until others are complete.
    unopened: VecDeque<Waiting<T>>,
    /// For each sender with a large item in `open` or `unopened`, or in `released`: what it has sent after that.
    behind: HashMap<u64, VecDeque<Waiting<T>>>,
    /// Senders whose large item is complete. The items behind it go next.
    released: VecDeque<u64>,
    /// How many items of each class of senders wait outside of the control lane.
    classes: Box<[u32]>,
    small: Budget,
    large: Budget,
    answers: Budget,
    /// Of items that are never refused.
    unrefused: Budget,
    open_bytes: usize,
    next_large: u64,
    /// The bytes of fragments that were sent, and that the peer has granted.
    fragment_bytes: u64,
    granted: u64,
    /// Whether the last batch had no room for a fragment.
    owes_fragment: bool,
}

impl<T: Clone> Lanes<T> {
    pub(super) fn new(limit: usize) -> Lanes<T> {
        Lanes {
            limit,
            opening: VecDeque::new(),
            control: VecDeque::new(),
            queue: VecDeque::new(),
            open: VecDeque::new(),
            unopened: VecDeque::new(),
            behind: HashMap::new(),
            released: VecDeque::new(),
            classes: vec![0; CLASSES].into_boxed_slice(),
            small: Budget::default(),
            large: Budget::default(),
            answers: Budget::default(),
            unrefused: Budget::default(),
            open_bytes: 0,
            next_large: 0,
            fragment_bytes: 0,
            granted: 0,
            owes_fragment: false,
        }
    }

    pub(super) fn open_with(&mut self, types: Vec<u8>, directory: Vec<u8>) {
        self.opening.extend([(Part::Types, types, 0), (Part::Directory, directory, 0)]);
    }

    pub(super) fn offer(&mut self, class: Class, item: Item<T>) -> Result<(), NotOffered<T>> {
        if item.payload.len() > ITEM_LIMIT {
            return Err(NotOffered::TooLarge(item));
        }
        let is_small = item.payload.len() <= FRAGMENT;
        let passes = class == Class::Control && is_small;
        let passes = passes && (item.sender == 0 || self.classes[class_of(item.sender)] == 0);
        let is_aside = !is_small || !self.behind.is_empty() && self.behind.contains_key(&item.sender);
        let (bound, room) = (Bound::of(class, is_aside), self.limit);
        let budget = self.budget(bound);
        match class {
            Class::Notice | Class::Control if budget.bytes > UNREFUSED => return Err(NotOffered::TooMuch(item)),
            Class::Message | Class::Answer if budget.bytes >= room => {
                budget.has_refused = true;
                return Err(NotOffered::Busy(item));
            }
            Class::Held | Class::HeldAnswer if budget.bytes >= HELD.saturating_mul(room) => {
                budget.has_refused = true;
                return Err(NotOffered::Busy(item));
            }
            _ => budget.bytes += cost(&item),
        }
        if passes {
            self.control.push_back(item);
            return Ok(());
        }
        self.classes[class_of(item.sender)] += 1;
        self.queue.push_back(Waiting { item, class, is_aside });
        Ok(())
    }

    /// Notes how many bytes of fragments may be sent in all. Returns whether it is more than before.
    pub(super) fn grant(&mut self, granted: u64) -> bool {
        let is_more = granted > self.granted;
        self.granted = self.granted.max(granted);
        is_more
    }

    /// Whether a fragment waits for credit.
    pub(super) fn needs_credit(&self) -> bool {
        self.open.front().is_some_and(|large| !self.has_credit(large))
    }

    /// Whether a batch would have a part.
    pub(super) fn has_part(&self) -> bool {
        let has_small = !(self.queue.is_empty() && self.released.is_empty());
        !self.opening.is_empty() || !self.control.is_empty() || has_small || self.may_send_fragment()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let has_large = !(self.open.is_empty() && self.unopened.is_empty() && self.released.is_empty());
        self.opening.is_empty() && self.control.is_empty() && self.queue.is_empty() && !has_large
    }

    /// Returns which messages have room. If some have none, the caller is told of room as after a refusal.
    pub(super) fn room(&mut self) -> Room {
        for budget in [&mut self.small, &mut self.large] {
            budget.has_refused |= budget.bytes >= self.limit;
        }
        let times = |times: usize| times.saturating_mul(self.limit);
        match (self.small.bytes, self.large.bytes) {
            (small, large) if small.max(large) >= times(HELD) => Room::None,
            (small, large) if small >= self.limit || large >= times(CONVERTED) => Room::Held,
            (_, large) if large >= self.limit => Room::Small,
            _ => Room::All,
        }
    }

    /// Returns whether items of this bound have room. If not, the caller is told of room as after a refusal.
    pub(super) fn has_room_for(&mut self, bound: Bound) -> bool {
        let limit = self.limit;
        let budget = self.budget(Some(bound));
        let has_room = budget.bytes < limit;
        budget.has_refused |= !has_room;
        has_room
    }

    /// Returns the bound of the last waiting message of a sender. This message was offered just now, so it is near the
    /// end of the queue. `None` stands for a sender whose message was refused. Its bound is the fuller one of the two.
    pub(super) fn needed_by(&self, sender: Option<u64>) -> Bound {
        let is_aside = match sender {
            Some(sender) => {
                let is_its = |waiting: &&Waiting<T>| waiting.item.sender == sender;
                let last = || self.queue.iter().rev().find(is_its).is_some_and(|waiting| waiting.is_aside);
                self.behind.contains_key(&sender) || last()
            }
            None => self.large.bytes > self.small.bytes,
        };
        if is_aside { Bound::Large } else { Bound::Small }
    }

    /// Returns whether there is room again for items of this bound since one was refused.
    pub(super) fn take_room(&mut self, bound: Bound) -> bool {
        let limit = self.limit;
        self.budget(Some(bound)).take_room(limit)
    }

    /// Returns the budget of this bound. `None` stands for the items that are never refused.
    fn budget(&mut self, bound: Option<Bound>) -> &mut Budget {
        match bound {
            Some(Bound::Small) => &mut self.small,
            Some(Bound::Large) => &mut self.large,
            Some(Bound::Answers) => &mut self.answers,
            None => &mut self.unrefused,
        }
    }

    /// Gives back the memory of queues that were long.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            self.control.shrink_to(64);
            self.queue.shrink_to(64);
        }
    }

    /// Returns the tokens of all items, those of each sender in the order of their offer.
    pub(super) fn into_tokens(mut self) -> Vec<T> {
        let mut tokens: Vec<T> = self.control.iter().map(|item| item.token.clone()).collect();
        let open = self.open.into_iter().map(|large| large.waiting);
        for waiting in open.chain(self.unopened) {
            tokens.push(waiting.item.token.clone());
            let behind = self.behind.remove(&waiting.item.sender).unwrap_or_default();
            tokens.extend(behind.iter().map(|waiting| waiting.item.token.clone()));
        }
        for sender in self.released {
            let behind = self.behind.remove(&sender).unwrap_or_default();
            tokens.extend(behind.iter().map(|waiting| waiting.item.token.clone()));
        }
        tokens.extend(self.queue.iter().map(|waiting| waiting.item.token.clone()));
        tokens
    }

    /// Appends parts to a batch until it is full. Returns whether there was a part.
    pub(super) fn fill(&mut self, batch: &mut Vec<u8>, sent: &mut Unacknowledged<T>) -> bool {
        let begin = batch.len();
        self.fill_opening(batch, sent);
        while let Some(item) = self.control.front().filter(|item| fits(batch, item.payload.len())) {
            put_item(batch, Part::Control, &item.payload);
            sent.item(item.token.clone(), item.payload.len());
            self.unrefused.bytes -= cost(item);
            self.control.pop_front();
        }
        // Items of other lanes must not pass control items of their senders that had no room.
        if self.opening.is_empty() && self.control.is_empty() {
            let mut has_fragment = self.owes_fragment && self.fill_fragment(batch, sent);
            self.fill_small(batch, sent);
            has_fragment |= self.fill_fragment(batch, sent);
            self.owes_fragment = !has_fragment && self.may_send_fragment();
        }
        batch.len() > begin
    }

    fn fill_opening(&mut self, batch: &mut Vec<u8>, sent: &mut Unacknowledged<T>) {
        while let Some((part, bytes, place)) = self.opening.front_mut() {
            let room = LONGEST_FRAME.saturating_sub(batch.len() + PART_HEAD);
            let rest = &bytes[*place..];
            let piece = &rest[..rest.len().min(room)];
            let is_last = piece.len() == rest.len();
            if piece.is_empty() && !is_last || room == 0 {
                return;
            }
            batch.extend_from_slice(&[part.to_byte(), u8::from(is_last)]);
            put_varint(batch, piece.len() as u64);
            batch.extend_from_slice(piece);
            sent.bytes(piece.len());
            *place += piece.len();
            if is_last {
                self.opening.pop_front();
            }
        }
    }

    fn fill_small(&mut self, batch: &mut Vec<u8>, sent: &mut Unacknowledged<T>) {
        while let Some(waiting) = self.next_small() {
            if !fits(batch, waiting.item.payload.len()) {
                self.put_back(waiting);
                return;
            }
            let part = if waiting.class == Class::Control { Part::Control } else { Part::Message };
            put_item(batch, part, &waiting.item.payload);
            sent.item(waiting.item.token.clone(), waiting.item.payload.len());
            self.forget(&waiting);
        }
    }

    /// Takes the next small item whose sender has no large one before it. Opens large items on the way.
    fn next_small(&mut self) -> Option<Waiting<T>> {
        while let Some(&sender) = self.released.front() {
            match self.behind.get_mut(&sender).and_then(VecDeque::pop_front) {
                None => {
                    self.behind.remove(&sender);
                    self.released.pop_front();
                }
                Some(large) if large.is_large() => {
                    self.released.pop_front();
                    self.open(large);
                }
                small => return small,
            }
        }
        while let Some(mut waiting) = self.queue.pop_front() {
            if !self.behind.is_empty() && self.behind.contains_key(&waiting.item.sender) {
                self.budget(waiting.bound()).bytes -= waiting.cost();
                waiting.is_aside = true;
                self.budget(waiting.bound()).bytes += waiting.cost();
                self.behind.entry(waiting.item.sender).or_default().push_back(waiting);
            } else if waiting.is_large() {
                self.behind.insert(waiting.item.sender, VecDeque::new());
                self.open(waiting);
            } else {
                return Some(waiting);
            }
        }
        None
    }

    fn put_back(&mut self, waiting: Waiting<T>) {
        match self.released.front().and_then(|sender| self.behind.get_mut(sender)) {
            Some(behind) => behind.push_front(waiting),
            None => self.queue.push_front(waiting),
        }
    }

    fn open(&mut self, waiting: Waiting<T>) {
        self.unopened.push_back(waiting);
        self.open_more();
    }

    fn open_more(&mut self) {
        while let Some(next) = self.unopened.front() {
            let length = next.item.payload.len();
            if self.open_bytes + length > OPEN_LIMIT {
                return;
            }
            let Some(waiting) = self.unopened.pop_front() else { return };
            self.open_bytes += length;
            self.next_large += 1;
            self.open.push_back(Large { number: self.next_large, waiting, sent: 0 });
        }
    }

    fn has_credit(&self, large: &Large<T>) -> bool {
        let fragment = FRAGMENT.min(large.waiting.item.payload.len() - large.sent);
        self.fragment_bytes + fragment as u64 <= self.granted
    }

    fn may_send_fragment(&self) -> bool {
        self.open.front().is_some_and(|large| self.has_credit(large))
    }

    /// Appends a fragment of the large item whose turn it is, if it has credit and fits. Returns whether it did.
    fn fill_fragment(&mut self, batch: &mut Vec<u8>, sent: &mut Unacknowledged<T>) -> bool {
        if !self.may_send_fragment() {
            return false;
        }
        let Some(mut large) = self.open.pop_front() else { return false };
        let payload = &large.waiting.item.payload;
        let fragment = &payload[large.sent..payload.len().min(large.sent + FRAGMENT)];
        if !fits(batch, fragment.len()) {
            self.open.push_front(large);
            return false;
        }
        let first = if large.waiting.class == Class::Control { Part::LargeControl } else { Part::LargeMessage };
        batch.push(if large.sent == 0 { first } else { Part::Fragment }.to_byte());
        put_varint(batch, large.number);
        if large.sent == 0 {
            put_varint(batch, payload.len() as u64);
        }
        put_varint(batch, fragment.len() as u64);
        batch.extend_from_slice(fragment);
        sent.bytes(fragment.len());
        self.fragment_bytes += fragment.len() as u64;
        large.sent += fragment.len();
        if large.sent < payload.len() {
            self.open.push_back(large);
            return true;
        }
        sent.item(large.waiting.item.token.clone(), 0);
        self.open_bytes -= payload.len();
        self.forget(&large.waiting);
        self.release(large.waiting.item.sender);
        self.open_more();
        true
    }

    /// Lets the items go that wait behind a large one, which is complete.
    fn release(&mut self, sender: u64) {
        if self.behind.get(&sender).is_some_and(VecDeque::is_empty) {
            self.behind.remove(&sender);
        } else {
            self.released.push_back(sender);
        }
    }

    /// Takes an item that was sent out of the sums.
    fn forget(&mut self, waiting: &Waiting<T>) {
        self.classes[class_of(waiting.item.sender)] -= 1;
        self.budget(waiting.bound()).bytes -= waiting.cost();
    }
}

/// The bytes that a waiting item takes.
fn cost<T>(item: &Item<T>) -> usize {
    item.payload.len() + OVERHEAD
}

fn class_of(sender: u64) -> usize {
    mix(sender) as usize % CLASSES
}

/// Whether a part with so many bytes has room in a batch.
fn fits(batch: &[u8], length: usize) -> bool {
    batch.len() + PART_HEAD + length <= LONGEST_FRAME
}

fn put_item(batch: &mut Vec<u8>, part: Part, payload: &[u8]) {
    batch.push(part.to_byte());
    put_varint(batch, payload.len() as u64);
    batch.extend_from_slice(payload);
}
