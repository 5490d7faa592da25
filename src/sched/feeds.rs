//! Feeds: queues beside the mailbox of a process, each with a limit at which those who put items wait.
//!
//! The shared half of a feed has the items that were put and not yet fetched. The other half is in the body, and has
//! the items that the next steps will see. A turn begins by fetching the new items of all feeds that have some.
//!
//! **A thread that puts an item** holds the lock of the feed meanwhile. If there is room, it
//!
//! 1. appends the item;
//! 2. adds the feed to the list of the process, unless it is *listed*;
//! 3. under the lock of the cell (`Cell::fed`): counts the item as queued. If the body is at rest, and waits for
//!    messages, it takes the body out. If the body is out, it sets `POLLS`. If the process has ended, it takes the item
//!    back.
//!
//! **The owner of the body**, when a turn begins: (a) clears `POLLS`, under the lock of the cell. (b) It takes the
//! list. (c) For each feed, under its lock, it clears *listed* and fetches the items. `resident_waker.rs` has the rest
//! of the protocol, and its argument holds here, too: an item that (c) does not fetch was put after (c). Then the feed
//! is listed again after (b), and `POLLS` is set after (a).
//!
//! **A put that waits** has a ticket, and a place in the queue, in the order of the tickets. A wake takes the put out.
//! The put keeps its ticket until its item is put, or it is dropped. So it has its old place if it finds no room when
//! it is polled. When its item is put, it leaves, whether or not it was woken. If it is dropped after its wake, the
//! next one is woken.
//!
//! An item is counted as queued before any thread can fetch it, because both happen under the lock of the feed. When
//! the process ends, its cell is vacated first, and its feeds are ended then. So an item that was put in between is
//! refused at 3. An item that was accepted is stepped, or it is a dead letter.

use std::any::{Any, type_name};
use std::collections::VecDeque;
use std::task::Waker;

use super::mailbox::{Dead, Envelope, Grave, Mailbox};
use super::resident_waker::PollRequests;
use crate::outcome::{contain, drop_contained, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, Brief, OnceLock, Weak, enter};
use crate::process::dead_letter::SendError;
use crate::process::target::NoSuchProcessError;

/// The most items for which an empty buffer is kept.
const KEPT: usize = 64;

/// The interface of a feed to the scheduler.
pub(crate) trait FeedHost: PollRequests {
    /// Counts an item as queued. Makes the process ready, if it waits for messages. Returns whether this has put it
    /// into a queue: the caller then calls `announce`, without a lock. `None` if the process does not live.
    fn fed(&self, pid: Pid) -> Option<bool>;

    /// Counts an item as accepted. Wakes a worker, if there is new work.
    fn announce(&self, is_woken: bool);
}

/// The feeds of one process that may have new items, by their numbers.
#[derive(Default)]
pub(crate) struct FedList(Brief<Vec<u64>>);

/// The half of a feed that its users and its process share.
pub(crate) struct FeedShared<M> {
    pub(crate) pid: Pid,
    pub(crate) limit: usize,
    link: OnceLock<Link>,
    state: Brief<State<M>>,
}

/// The way to the process, known when the step that has made the feed has succeeded.
struct Link {
    host: Weak<dyn FeedHost>,
    list: Arc<FedList>,
    number: u64,
}

struct State<M> {
    phase: Phase,
    items: VecDeque<M>,
    /// The number of items that no step has taken. Some are in the body.
    untaken: usize,
    is_listed: bool,
    /// Whether the last handle is gone.
    is_closed: bool,
    /// Those that wait for room, oldest first.
    waiters: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

#[derive(Clone, Copy)]
enum Phase {
    /// The step that has made the feed is not over.
    New,
    Open,
    Ended,
    /// The process takes messages of another type. The function returns its name.
    WrongType(fn() -> &'static str),
}

/// Why an item was not taken.
pub(crate) enum NotFed {
    NoRoom,
    Refused(SendError),
}

impl<M> FeedShared<M> {
    pub(crate) fn new(pid: Pid, limit: usize) -> Arc<FeedShared<M>> {
        let state = State {
            phase: Phase::New,
            items: VecDeque::new(),
            untaken: 0,
            is_listed: false,
            is_closed: false,
            waiters: VecDeque::new(),
            next_ticket: 0,
        };
        Arc::new(FeedShared { pid, limit: limit.max(1), link: OnceLock::new(), state: Brief::new(state) })
    }

    fn is_open(&self) -> bool {
        matches!(enter(&self.state).phase, Phase::Open)
    }

    fn no_process(&self) -> NotFed {
        NotFed::Refused(NoSuchProcessError::Pid(self.pid).into())
    }

    /// Whether there is room for an item.
    pub(crate) fn room(&self) -> Result<(), NotFed> {
        let phase = {
            let state = enter(&self.state);
            if matches!(state.phase, Phase::Open) && state.untaken >= self.limit {
                return Err(NotFed::NoRoom);
            }
            state.phase
        };
        match phase {
            Phase::New => Err(NotFed::NoRoom),
            Phase::Open => Ok(()),
            Phase::Ended => Err(self.no_process()),
            Phase::WrongType(takes) => {
                Err(NotFed::Refused(SendError::WrongType { pid: self.pid, takes: takes(), sent: type_name::<M>() }))
            }
        }
    }

    /// Puts an item, if there is room.
    pub(crate) fn offer(&self, item: M) -> Result<(), (M, NotFed)> {
        let Some(link) = self.link.get() else { return Err((item, self.room().err().unwrap_or(NotFed::NoRoom))) };
        // Outside the lock, because this may be the last owner when it is dropped.
        let Some(host) = link.host.upgrade() else { return Err((item, self.no_process())) };
        let is_woken = {
            let mut state = enter(&self.state);
            if !matches!(state.phase, Phase::Open) || state.untaken >= self.limit {
                drop(state);
                return Err((item, self.room().err().unwrap_or(NotFed::NoRoom)));
            }
            state.items.push_back(item);
            state.untaken += 1;
            if !std::mem::replace(&mut state.is_listed, true) {
                enter(&link.list.0).push(link.number);
            }
            match host.fed(self.pid) {
                Some(is_woken) => is_woken,
                None => {
                    state.untaken -= 1;
                    let item = state.items.pop_back();
                    drop(state);
                    return match item {
                        Some(item) => Err((item, self.no_process())),
                        None => Ok(()),
                    };
                }
            }
        };
        host.announce(is_woken);
        Ok(())
    }

    /// Has `waker` called when there is room.
    pub(crate) fn wait_for_room(&self, ticket: &mut Option<u64>, waker: Waker) -> bool {
        self.wait_while(self.limit, ticket, waker)
    }

    /// Has `waker` called when steps have taken items, or when the feed has ended, if so many items are untaken.
    /// Returns whether it will be: if not, the caller looks again. `ticket` is its place among those that wait. It
    /// keeps its place when it waits again, until `leave` or `give_up`.
    pub(crate) fn wait_while(&self, untaken: usize, ticket: &mut Option<u64>, waker: Waker) -> bool {
        let (old, unused) = {
            let mut state = enter(&self.state);
            let state = &mut *state;
            let waits = match state.phase {
                Phase::New => true,
                Phase::Open => state.untaken >= untaken,
                Phase::Ended | Phase::WrongType(_) => false,
            };
            if waits { (state.wait(ticket, waker), None) } else { (state.take_waiter(*ticket), Some(waker)) }
        };
        // Without the lock.
        let waits = unused.is_none();
        drop_contained(old);
        drop_contained(unused);
        waits
    }

    /// Removes the put from the queue, because its item was put.
    #[inline]
    pub(crate) fn leave(&self, ticket: &mut Option<u64>) {
        if let Some(ticket) = ticket.take() {
            let own = enter(&self.state).take_waiter(Some(ticket));
            drop_contained(own);
        }
    }

    /// Gives a place among those that wait up. If it was woken already, the next one is.
    #[inline]
    pub(crate) fn give_up(&self, ticket: &mut Option<u64>) {
        if let Some(ticket) = ticket.take() {
            self.give_up_place(ticket);
        }
    }

    #[cold]
    fn give_up_place(&self, ticket: u64) {
        let (own, next) = {
            let mut state = enter(&self.state);
            let own = state.take_waiter(Some(ticket));
            let next = if own.is_none() { state.next_waiters(self.limit, 1) } else { Vec::new() };
            (own, next)
        };
        drop_contained(own);
        wake_all(next);
    }

    /// The last handle is gone.
    pub(crate) fn close(&self) {
        {
            let mut state = enter(&self.state);
            state.is_closed = true;
            let Some(link) = self.link.get().filter(|_| matches!(state.phase, Phase::Open)) else { return };
            if !std::mem::replace(&mut state.is_listed, true) {
                enter(&link.list.0).push(link.number);
            }
        }
        // The process forgets the feed when it is empty. That needs no step.
        if let Some(host) = self.link.get().and_then(|link| link.host.upgrade()) {
            host.request_poll(self.pid);
        }
    }

    /// Fetches the new items. Returns whether no more will come.
    fn fetch(&self, items: &mut VecDeque<M>) -> bool {
        let mut state = enter(&self.state);
        state.is_listed = false;
        if items.is_empty() {
            std::mem::swap(items, &mut state.items);
        } else {
            items.append(&mut state.items);
        }
        state.is_closed
    }

    /// Makes room for so many items, which steps have taken. Adds those that waited for it.
    fn make_room(&self, taken: usize, woken: &mut Vec<Waker>) {
        let mut state = enter(&self.state);
        state.untaken = state.untaken.saturating_sub(taken);
        let next = state.next_waiters(self.limit, usize::MAX);
        woken.extend(next);
    }

    /// Ends the feed in this phase. Returns the items that were not fetched, and those that wait.
    fn end(&self, phase: Phase) -> (VecDeque<M>, Vec<Waker>) {
        let mut state = enter(&self.state);
        state.phase = phase;
        let waiters = std::mem::take(&mut state.waiters);
        (std::mem::take(&mut state.items), waiters.into_iter().map(|(_, waker)| waker).collect())
    }
}

impl<M> State<M> {
    /// Waits with this waker, in the place of the ticket. Returns the waker that it replaces.
    fn wait(&mut self, ticket: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let next = self.next_ticket + 1;
        let ticket = *ticket.get_or_insert(next);
        self.next_ticket = self.next_ticket.max(ticket);
        match self.place(ticket) {
            Ok(place) => Some(std::mem::replace(&mut self.waiters[place].1, waker)),
            Err(place) => {
                self.waiters.insert(place, (ticket, waker));
                None
            }
        }
    }

    fn take_waiter(&mut self, ticket: Option<u64>) -> Option<Waker> {
        let place = self.place(ticket?).ok()?;
        Some(self.waiters.remove(place)?.1)
    }

    fn place(&self, ticket: u64) -> Result<usize, usize> {
        self.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket)
    }

    /// Takes out as many of those that wait as there is room for.
    fn next_waiters(&mut self, limit: usize, most: usize) -> Vec<Waker> {
        let room = limit.saturating_sub(self.untaken).min(most).min(self.waiters.len());
        self.waiters.drain(..room).map(|(_, waker)| waker).collect()
    }
}

/// Calls wakers, which are user code.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        if let Err(panic) = contain(|| waker.wake()) {
            tell_log(|| tracing::error!(%panic, "a waker panicked"));
        }
    }
}

/// A feed that a step has made, before it is attached to the process. If it is dropped, the feed has ended.
pub(crate) struct NewFeed<M>(pub(crate) Option<Arc<FeedShared<M>>>);

impl<M> Drop for NewFeed<M> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            wake_all(shared.end(Phase::Ended).1);
        }
    }
}

/// A new feed with its type erased.
pub(crate) trait AnyNewFeed: Any + Send {
    /// Ends it, because the process takes messages of another type.
    fn refuse(&mut self, takes: fn() -> &'static str);
}

impl<M: Send + 'static> AnyNewFeed for NewFeed<M> {
    fn refuse(&mut self, takes: fn() -> &'static str) {
        if let Some(shared) = self.0.take() {
            wake_all(shared.end(Phase::WrongType(takes)).1);
        }
    }
}

/// The half of a feed that is in the body.
struct BodyFeed<M> {
    number: u64,
    shared: Arc<FeedShared<M>>,
    /// The oldest first. Those that this step has passed over are in front.
    items: VecDeque<M>,
    passed: usize,
    /// The number of items in front that earlier steps have passed over. They do not count as new.
    old: usize,
    /// The number of items that steps have taken, and that still count as untaken.
    taken: usize,
    is_closed: bool,
}

/// The feeds of one process.
pub(crate) struct Feeds<M> {
    /// By their numbers.
    all: Vec<BodyFeed<M>>,
    list: Arc<FedList>,
    last_number: u64,
    /// The feeds with items that this step has not been shown, by their numbers. The first one is next.
    unseen: VecDeque<u64>,
    /// The feeds whose items this step has passed over.
    seen: Vec<u64>,
    /// The feeds whose users are to be notified of room, or that may be forgotten.
    changed: Vec<u64>,
    /// Whether a feed comes before the mailbox.
    pub(crate) is_next: bool,
    /// Whether the last step has left items that it was not shown.
    has_unseen: bool,
}

impl<M> Feeds<M> {
    pub(crate) fn new() -> Feeds<M> {
        Feeds {
            all: Vec::new(),
            list: Arc::default(),
            last_number: 0,
            unseen: VecDeque::new(),
            seen: Vec::new(),
            changed: Vec::new(),
            is_next: true,
            has_unseen: false,
        }
    }

    pub(crate) fn attach(&mut self, shared: Arc<FeedShared<M>>, host: Weak<dyn FeedHost>) {
        self.last_number += 1;
        let number = self.last_number;
        drop(shared.link.set(Link { host, list: self.list.clone(), number }));
        let (waiters, is_closed) = {
            let mut state = enter(&shared.state);
            state.phase = Phase::Open;
            (state.next_waiters(shared.limit, usize::MAX), state.is_closed)
        };
        if is_closed {
            self.changed.push(number);
        }
        self.all.push(BodyFeed { number, shared, items: VecDeque::new(), passed: 0, old: 0, taken: 0, is_closed });
        wake_all(waiters);
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.all.binary_search_by_key(&number, |feed| feed.number).ok()
    }

    /// Whether there are items for the next step.
    pub(crate) fn has_items(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Whether the last step has left items that it was not shown.
    pub(crate) fn has_unseen(&self) -> bool {
        self.has_unseen
    }

    /// Records that the step is over. The next one is shown what this one has passed over.
    pub(crate) fn end_step(&mut self) {
        self.has_unseen = !self.unseen.is_empty();
        let Feeds { all, seen, unseen, .. } = self;
        unseen.extend(seen.drain(..));
        for number in unseen {
            if let Ok(place) = all.binary_search_by_key(number, |feed| feed.number) {
                let feed = &mut all[place];
                feed.old = feed.old.max(std::mem::take(&mut feed.passed));
            }
        }
    }

    /// Looks for the next item that is wanted, and passes over the others. Each that is passed over for the first time
    /// costs one of the budget. Otherwise items that were left could hide newer ones. Returns whether there is one, and
    /// whether any was passed over.
    pub(crate) fn look(&mut self, budget: &mut u32, mut wanted: impl FnMut(&M) -> bool) -> (bool, bool) {
        let mut has_passed = false;
        while let Some(number) = self.unseen.front().copied() {
            if let Some(place) = self.place(number) {
                let feed = &mut self.all[place];
                while let Some(item) = feed.items.get(feed.passed) {
                    let is_old = feed.passed < feed.old;
                    if *budget == 0 && !is_old {
                        break;
                    }
                    if wanted(item) {
                        return (true, has_passed);
                    }
                    feed.passed += 1;
                    *budget -= u32::from(!is_old);
                    has_passed = true;
                }
                if feed.passed < feed.items.len() {
                    break;
                }
                if feed.passed > 0 {
                    self.seen.push(number);
                }
            }
            self.unseen.pop_front();
        }
        (false, has_passed)
    }

    /// Takes the item that `look` has found.
    pub(crate) fn take(&mut self) -> Option<M> {
        let number = *self.unseen.front()?;
        let place = self.place(number)?;
        let feed = &mut self.all[place];
        let item = if feed.passed == 0 { feed.items.pop_front() } else { feed.items.remove(feed.passed) }?;
        feed.old -= usize::from(feed.passed < feed.old);
        feed.taken += 1;
        if feed.taken == 1 {
            self.changed.push(number);
        }
        if feed.passed == feed.items.len() {
            self.unseen.pop_front();
            if feed.passed > 0 {
                self.seen.push(number);
            }
        } else if self.unseen.len() > 1 {
            self.unseen.rotate_left(1);
        }
        self.is_next = false;
        Some(item)
    }
}

/// Feeds with their type erased.
pub(crate) trait AnyFeeds: Any + Send {
    /// Fetches new items, when a turn begins. Returns whether there are any.
    fn fetch(&mut self) -> bool;

    /// Makes room for the items that steps have taken. Returns the wakers of those that waited for it. Forgets feeds
    /// that are closed and empty. Returns whether any is left.
    fn settle(&mut self) -> (Vec<Waker>, bool);

    /// Shows all items that are left to `grave`, and ends the feeds.
    fn bury(&mut self, grave: &mut Grave<'_>);

    /// Ends the feeds, because the next state machine takes messages of another type. The items go into this mailbox.
    fn refuse(&mut self, takes: fn() -> &'static str, mailbox: &mut dyn Any);
}

impl<M: Send + 'static> AnyFeeds for Feeds<M> {
    fn fetch(&mut self) -> bool {
        let fed = std::mem::take(&mut *enter(&self.list.0));
        let mut is_new = false;
        for number in fed {
            let Some(place) = self.place(number) else { continue };
            let feed = &mut self.all[place];
            let before = feed.items.len();
            feed.is_closed = feed.shared.fetch(&mut feed.items);
            is_new |= feed.items.len() > before;
            if before == 0 && !feed.items.is_empty() {
                self.unseen.push_back(number);
            }
            if feed.is_closed {
                self.changed.push(number);
            }
        }
        is_new
    }

    fn settle(&mut self) -> (Vec<Waker>, bool) {
        let mut woken = Vec::new();
        for number in std::mem::take(&mut self.changed) {
            let Some(place) = self.place(number) else { continue };
            let feed = &mut self.all[place];
            feed.shared.make_room(std::mem::take(&mut feed.taken), &mut woken);
            if feed.items.is_empty() {
                if feed.is_closed {
                    self.all.remove(place);
                } else if feed.items.capacity() > KEPT {
                    feed.items = VecDeque::new();
                }
            }
        }
        (woken, !self.all.is_empty())
    }

    fn bury(&mut self, grave: &mut Grave<'_>) {
        for mut feed in self.all.drain(..) {
            let (items, waiters) = feed.shared.end(Phase::Ended);
            for item in std::mem::take(&mut feed.items).into_iter().chain(items) {
                grave(Dead { from: None, type_name: type_name::<M>(), message: &item, context: None });
                drop_contained(item);
            }
            wake_all(waiters);
        }
    }

    fn refuse(&mut self, takes: fn() -> &'static str, mailbox: &mut dyn Any) {
        for mut feed in self.all.drain(..) {
            let (items, waiters) = feed.shared.end(Phase::WrongType(takes));
            let items = std::mem::take(&mut feed.items).into_iter().chain(items);
            if let Some(mailbox) = mailbox.downcast_mut::<Mailbox<M>>() {
                mailbox.messages.extend(items.map(|message| Envelope { from: None, message }));
            }
            wake_all(waiters);
        }
    }
}

/// Ends a feed whose process did not end it: its body was lost, or it is empty and nobody else has it.
impl<M> Drop for BodyFeed<M> {
    fn drop(&mut self) {
        if self.shared.is_open() {
            let (items, waiters) = self.shared.end(Phase::Ended);
            std::mem::take(&mut self.items).into_iter().chain(items).for_each(drop_contained);
            wake_all(waiters);
        }
    }
}
