//! The state that an async process shares with its context.
//!
//! See the protocol in `mod.rs`. No user code runs under the lock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::task::{Poll, Waker};

use crate::command::CancelRequest;
use crate::inside::thread_number;
use crate::outcome::drop_contained;
use crate::primitives::{Brief, BriefGuard, enter};
use crate::process::event::LentEvents;
use crate::process::host::CountedHost;
use crate::sched::feeds::wake_all;
use crate::{CommandError, Completion, Event, Events, Pid, StepOutput, Tag};

/// The state that an async process shares with its context.
pub(super) struct SharedState<M> {
    pub(super) pid: Pid,
    pub(super) link: CountedHost,
    /// The waker of the polls.
    root: Waker,
    inner: Brief<Inner<M>>,
}

/// The contents of the state, under its lock.
pub(super) struct Inner<M> {
    /// The thread that polls now. Zero if none does.
    poller: usize,
    /// The output of the step, during a poll. A call of the context takes it out while it uses it.
    pub(super) out: Option<Box<StepOutput>>,
    /// The events of the step, during a poll. Taken out in the same way.
    pub(super) events: Option<LentEvents<M>>,
    /// Waits for events, by their numbers.
    receivers: Vec<(u64, Wakes)>,
    last_receiver: u64,
    /// Whether an event here has used the root waker.
    pub(super) is_woken: bool,
    /// The number of requests to stop.
    stops: u32,
    rare: Option<Box<Rare<M>>>,
}

/// Fields that a process which only receives does not need.
struct Rare<M> {
    /// Commands whose answers have not been taken, by their tags.
    answers: HashMap<u64, Wait>,
    /// The first tag that the function was given. If `answers` has no entry for a later one, its answer was taken. An
    /// earlier one is a tag of the state machine before an upgrade.
    first_tag: u64,
    /// Events for the next `receive`, by their numbers, which ascend.
    kept: BTreeMap<u64, Event<M>>,
    last_kept: u64,
    /// The last request to stop.
    last_stop: Option<CancelRequest>,
    /// Whether no wait has been ended by it yet. If it finds none, or those that it finds are dropped before they are
    /// polled, it ends the next one.
    is_stop_unseen: bool,
    listener: Listening,
}

impl<M> Default for Rare<M> {
    fn default() -> Rare<M> {
        Rare {
            answers: HashMap::new(),
            first_tag: u64::MAX,
            kept: BTreeMap::new(),
            last_kept: 0,
            last_stop: None,
            is_stop_unseen: false,
            listener: Listening::No,
        }
    }
}

impl<M> Rare<M> {
    /// Takes the answer to a command, if it has come.
    fn take_answer(&mut self, tag: u64) -> Option<Completion> {
        match self.answers.remove(&tag)? {
            Wait::Answered(answer) => Some(answer),
            Wait::Kept(number) => match self.kept.remove(&number)? {
                Event::Completed(answer) => Some(answer),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The listener of the wake flag, which is a command of the process.
pub(super) enum Listening {
    No,
    Yes(Tag<()>),
    /// It was cancelled, and its answer has not come yet.
    Ending(Tag<()>),
    /// It has ended without being cancelled or woken. No further listener would do better.
    Failed(CommandError),
}

/// The waker of a wait.
pub(super) enum Wakes {
    /// The waker of the poll. It is not cloned, so that the state does not count as an owner of it.
    Root,
    Other(Waker),
}

/// A command whose answer has not been taken.
enum Wait {
    /// The command is outstanding, and no future waits for its answer.
    Open,
    /// Its wait has not been polled, or is about to be polled.
    New,
    For(Wakes),
    Answered(Completion),
    /// The command was answered while no future waited for it. The answer is kept under this number.
    Kept(u64),
    /// Its answer will be dropped.
    Forgotten,
}

/// The number of requests to stop at the first poll of a wait.
pub(super) type Since = Option<u32>;

/// The result of a poll of a wait for an answer.
pub(super) enum Found {
    Answer(Completion),
    /// The answer was taken before.
    Nothing,
    Stop(CancelRequest),
}

/// User code that is to run without the lock.
///
/// Mostly there is none.
#[must_use]
pub(super) struct Later<M>(Option<Box<UserCode<M>>>);

struct UserCode<M> {
    woken: Vec<Waker>,
    dropped: Vec<Event<M>>,
    dropped_wakers: Vec<Waker>,
}

impl<M> Later<M> {
    #[inline]
    pub(super) fn new() -> Later<M> {
        Later(None)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn get(&mut self) -> &mut UserCode<M> {
        let new = || Box::new(UserCode { woken: Vec::new(), dropped: Vec::new(), dropped_wakers: Vec::new() });
        self.0.get_or_insert_with(new)
    }

    fn wake(&mut self, waker: Waker) {
        self.get().woken.push(waker);
    }

    fn drop_waker(&mut self, wakes: Wakes) {
        if let Wakes::Other(waker) = wakes {
            self.get().dropped_wakers.push(waker);
        }
    }

    #[inline]
    pub(super) fn run(self) {
        if let Some(code) = self.0 {
            code.run();
        }
    }
}

impl<M> UserCode<M> {
    #[cold]
    fn run(self) {
        self.dropped.into_iter().for_each(drop_contained);
        self.dropped_wakers.into_iter().for_each(drop_contained);
        wake_all(self.woken);
    }
}

impl<M> SharedState<M> {
    pub(super) fn new(pid: Pid, link: CountedHost, root: Waker) -> SharedState<M> {
        let inner = Inner {
            poller: 0,
            out: None,
            events: None,
            receivers: Vec::new(),
            last_receiver: 0,
            is_woken: false,
            stops: 0,
            rare: None,
        };
        SharedState { pid, link, root, inner: Brief::new(inner) }
    }

    /// Makes a wait that is polled with this waker wake it.
    pub(super) fn wakes(&self, waker: &Waker) -> Wakes {
        if waker.will_wake(&self.root) { Wakes::Root } else { Wakes::Other(waker.clone()) }
    }

    /// Opens the state for the process itself.
    pub(super) fn open(&self) -> BriefGuard<'_, Inner<M>> {
        enter(&self.inner)
    }

    /// Opens the state for a call of the context. `None` outside of a poll.
    pub(super) fn open_in_poll(&self) -> Option<BriefGuard<'_, Inner<M>>> {
        let thread = thread_number();
        let inner = enter(&self.inner);
        if inner.poller == thread { Some(inner) } else { None }
    }

    /// Drops everything at the end of the process. A context may outlive it.
    pub(super) fn close(&self) {
        let mut inner = self.open();
        let (rare, receivers) = (inner.rare.take(), std::mem::take(&mut inner.receivers));
        drop(inner);
        if let Some(rare) = rare {
            rare.kept.into_values().for_each(drop_contained);
            rare.answers.into_values().for_each(drop_contained);
        }
        receivers.into_iter().for_each(drop_contained);
    }
}

/// The transitions of the process.
impl<M> Inner<M> {
    /// Begins a poll.
    pub(super) fn lend(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) {
        (self.events, self.out) = (Some(events.lend()), Some(out.lend()));
        self.is_woken = false;
        self.poller = thread_number();
    }

    /// Whether the runtime propagates traces. Only during a poll.
    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.outbox.has_traces())
    }

    /// Whether it waits for an event, and the number of commands whose answers it waits for.
    pub(super) fn waits(&self) -> (bool, usize) {
        let waits = |wait: &&Wait| matches!(wait, Wait::Open | Wait::New | Wait::For(_));
        let answers = self.rare.as_ref().map_or(0, |rare| rare.answers.values().filter(waits).count());
        (!self.receivers.is_empty(), answers)
    }

    /// Ends a poll. If it has ended, this does nothing.
    pub(super) fn take_back(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) {
        self.poller = 0;
        if let Some(lent) = self.events.take() {
            events.take_back(lent);
        }
        if let Some(lent) = self.out.take() {
            out.take_back(lent);
        }
    }

    fn rare(&mut self) -> &mut Rare<M> {
        self.rare.get_or_insert_default()
    }

    /// The listener of the wake flag. It is `No` here until it is put back.
    pub(super) fn take_listener(&mut self) -> Listening {
        self.rare.as_mut().map_or(Listening::No, |rare| std::mem::replace(&mut rare.listener, Listening::No))
    }

    pub(super) fn put_listener(&mut self, listener: Listening) {
        if self.rare.is_some() || !matches!(listener, Listening::No) {
            self.rare().listener = listener;
        }
    }

    /// Takes the control signals at the beginning of a step, and the answers after a `Wait`. Wakes those who
    /// receive, if there is an event for them.
    pub(super) fn arrive(&mut self, events: &mut Events<'_, M>) -> Later<M> {
        let mut later = Later::new();
        if events.has_any() {
            self.take_signals(events, &mut later, false);
            if events.has_any() {
                self.wake_receivers(&mut later);
            }
        }
        later
    }

    /// Takes the signals that are left at the end of a step, unless somebody receives. Returns whether somebody does.
    pub(super) fn leave(&mut self, events: &mut Events<'_, M>, later: &mut Later<M>) -> bool {
        if !self.receivers.is_empty() {
            return true;
        }
        events.leave_messages();
        self.take_signals(events, later, true);
        false
    }

    fn take_signals(&mut self, events: &mut Events<'_, M>, later: &mut Later<M>, is_leaving: bool) {
        // The end of a process may wait behind its answer.
        loop {
            while let Some(event) = events.next_control() {
                self.sort(event, later);
            }
            // A step that may take messages takes the answers in their places among the messages. If nobody receives,
            // it takes them when it leaves the messages.
            if events.gives_messages() {
                return;
            }
            // A traced answer is for the step that polls with it.
            if is_leaving && events.is_next_answer_traced() {
                return;
            }
            let Some(answer) = events.next_answer() else { return };
            self.sort(Event::Completed(answer), later);
        }
    }

    fn wake_receivers(&mut self, later: &mut Later<M>) {
        while let Some((_, wakes)) = self.receivers.pop() {
            match wakes {
                Wakes::Root => self.is_woken = true,
                Wakes::Other(waker) => later.wake(waker),
            }
        }
    }

    /// Puts an event that is no message where it belongs.
    pub(super) fn sort(&mut self, event: Event<M>, later: &mut Later<M>) {
        match event {
            Event::Completed(answer) => {
                if let Some(event) = self.answered(answer, later) {
                    self.keep(event);
                    self.wake_receivers(later);
                }
            }
            Event::Cancel(request) => self.stop(request.into_inner(), later),
            other => {
                self.keep(other);
                self.wake_receivers(later);
            }
        }
    }

    /// Gives an answer to the wait for it. Returns it as an event if nobody waits for it.
    pub(super) fn answered(&mut self, answer: Completion, later: &mut Later<M>) -> Option<Event<M>> {
        let Some(rare) = &mut self.rare else { return Some(Event::Completed(answer)) };
        if let Listening::Yes(tag) | Listening::Ending(tag) = rare.listener
            && let Some(result) = answer.take(tag)
        {
            let is_ending = matches!(rare.listener, Listening::Ending(_));
            rare.listener = result.map_or_else(Listening::Failed, |()| Listening::No);
            if is_ending {
                rare.listener = Listening::No;
            }
            return None;
        }
        let tag = answer.tag();
        match rare.answers.get_mut(&tag) {
            None => return Some(Event::Completed(answer)),
            Some(Wait::Open | Wait::Kept(_)) => {
                rare.answers.remove(&tag);
                return Some(Event::Completed(answer));
            }
            Some(Wait::Forgotten) => {
                rare.answers.remove(&tag);
                later.get().dropped.push(Event::Completed(answer));
            }
            Some(wait) => match std::mem::replace(wait, Wait::Answered(answer)) {
                Wait::For(Wakes::Root) => self.is_woken = true,
                Wait::For(Wakes::Other(waker)) => later.wake(waker),
                _ => {}
            },
        }
        None
    }

    fn keep(&mut self, event: Event<M>) {
        let rare = self.rare();
        rare.last_kept += 1;
        if let Event::Completed(answer) = &event {
            rare.answers.insert(answer.tag(), Wait::Kept(rare.last_kept));
        }
        rare.kept.insert(rare.last_kept, event);
    }

    /// A request to stop ends all waits that were polled before. If none of them is polled again, it ends the next one.
    fn stop(&mut self, request: CancelRequest, later: &mut Later<M>) {
        self.stops = self.stops.wrapping_add(1);
        let rare = self.rare.get_or_insert_default();
        (rare.last_stop, rare.is_stop_unseen) = (Some(request), true);
        for wait in rare.answers.values_mut().filter(|wait| matches!(wait, Wait::For(_))) {
            match std::mem::replace(wait, Wait::New) {
                Wait::For(Wakes::Other(waker)) => later.wake(waker),
                _ => self.is_woken = true,
            }
        }
        self.wake_receivers(later);
    }
}

/// The transitions of the context.
impl<M> Inner<M> {
    /// Returns the request to stop that ends a wait, if one does.
    #[inline]
    pub(super) fn stopped(&mut self, since: &mut Since) -> Option<CancelRequest> {
        if self.rare.is_some() {
            return self.stopped_otherwise(since);
        }
        *since = Some(self.stops);
        None
    }

    fn stopped_otherwise(&mut self, since: &mut Since) -> Option<CancelRequest> {
        if self.is_stopped(*since)
            && let Some(rare) = &mut self.rare
        {
            rare.is_stop_unseen = false;
            return rare.last_stop.clone();
        }
        *since = Some(self.stops);
        None
    }

    fn is_stopped(&self, since: Since) -> bool {
        let Some(rare) = &self.rare else { return false };
        rare.is_stop_unseen || since.is_some_and(|since| since != self.stops)
    }

    /// Takes the next event for `receive`.
    pub(super) fn take_kept(&mut self) -> Option<Event<M>> {
        let rare = self.rare.as_mut()?;
        let (_, event) = rare.kept.pop_first()?;
        if let Event::Completed(answer) = &event {
            rare.answers.remove(&answer.tag());
        }
        Some(event)
    }

    /// Registers a wait for events, or registers it anew with another waker.
    pub(super) fn register(&mut self, number: &mut Option<u64>, wakes: Wakes, later: &mut Later<M>) {
        if let Some((_, old)) = self.receivers.iter_mut().find(|(other, _)| Some(*other) == *number) {
            later.drop_waker(std::mem::replace(old, wakes));
            return;
        }
        self.last_receiver += 1;
        *number = Some(self.last_receiver);
        if self.receivers.is_empty() {
            // Mostly there is only one.
            self.receivers.reserve_exact(1);
        }
        self.receivers.push((self.last_receiver, wakes));
    }

    /// Ends a wait for events.
    pub(super) fn unregister(&mut self, number: Option<u64>, later: &mut Later<M>) {
        if let Some(place) = self.receivers.iter().position(|(other, _)| Some(*other) == number) {
            later.drop_waker(self.receivers.swap_remove(place).1);
        }
    }

    /// Begins to wait for a command that the context has yielded.
    pub(super) fn expect(&mut self, tag: u64) {
        self.rare().answers.insert(tag, Wait::New);
    }

    /// Records the tags that a call of the context has given out.
    pub(super) fn yielded(&mut self, tags: Range<u64>) {
        let rare = self.rare();
        rare.first_tag = rare.first_tag.min(tags.start);
        rare.answers.extend(tags.map(|tag| (tag, Wait::Open)));
    }

    /// Takes the answer to a command. If there is none yet, the wait is woken when it comes. An answer that is there
    /// goes before a request to stop, which is left to the next wait.
    pub(super) fn poll_answer(
        &mut self,
        tag: u64,
        since: &mut Since,
        wakes: Wakes,
        later: &mut Later<M>,
    ) -> Poll<Found> {
        let is_stopped = self.is_stopped(*since);
        if !is_stopped {
            *since = Some(self.stops);
        }
        let rare = self.rare();
        let found = match rare.answers.get_mut(&tag) {
            Some(Wait::Answered(_) | Wait::Kept(_)) => rare.take_answer(tag).map_or(Found::Nothing, Found::Answer),
            _ if is_stopped => self.stopped(since).map_or(Found::Nothing, Found::Stop),
            Some(wait @ (Wait::Open | Wait::New | Wait::For(_))) => {
                if let Wait::For(old) = std::mem::replace(wait, Wait::For(wakes)) {
                    later.drop_waker(old);
                }
                return Poll::Pending;
            }
            None if tag < rare.first_tag => {
                rare.answers.insert(tag, Wait::For(wakes));
                return Poll::Pending;
            }
            Some(Wait::Forgotten) | None => Found::Nothing,
        };
        later.drop_waker(wakes);
        Poll::Ready(found)
    }

    /// Ends the wait for a command. `forgets` says that nobody else can wait for it. Returns whether the command is
    /// outstanding, and its answer will be dropped.
    pub(super) fn give_up(&mut self, tag: u64, forgets: bool, later: &mut Later<M>) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        match rare.answers.remove(&tag) {
            Some(Wait::Answered(answer)) if forgets => later.get().dropped.push(Event::Completed(answer)),
            Some(Wait::Answered(answer)) => self.keep(Event::Completed(answer)),
            Some(Wait::Kept(number)) => _ = rare.answers.insert(tag, Wait::Kept(number)),
            Some(wait) => {
                if let Wait::For(wakes) = wait {
                    later.drop_waker(wakes);
                }
                rare.answers.insert(tag, if forgets { Wait::Forgotten } else { Wait::Open });
                return forgets;
            }
            None => {}
        }
        false
    }
}
