//! The state that an async process shares with its context.
//!
//! See the protocol in `mod.rs`. No user code runs under the lock.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use crate::command::CancelRequest;
use crate::inside::thread_number;
use crate::outcome::drop_contained;
use crate::primitives::{Brief, BriefGuard, enter};
use crate::process::event::LentEvents;
use crate::process::host::CountedHost;
use crate::sched::feeds::wake_all;
use crate::{CommandError, Completion, Event, Events, Pid, StepOutput, Tag};

/// The most answers that are kept for later waits. Then the oldest is dropped. A program that yields commands and never
/// waits for their answers must not grow for ever, and no program is known that has as many to come back to.
const MOST_UNCLAIMED: usize = 1_024;

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
    /// Commands that are waited for, by their tags.
    answers: HashMap<u64, Wait>,
    /// Events for the next `receive`, in order.
    kept: VecDeque<Event<M>>,
    /// The number of answers among them.
    unclaimed: usize,
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
            kept: VecDeque::new(),
            unclaimed: 0,
            last_stop: None,
            is_stop_unseen: false,
            listener: Listening::No,
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

/// A command that is waited for.
enum Wait {
    /// Its wait has not been polled, or is about to be polled.
    New,
    For(Wakes),
    Answered(Completion),
    /// Its answer will be dropped.
    Forgotten,
}

/// The number of requests to stop at the first poll of a wait.
pub(super) type Since = Option<u32>;

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
            rare.kept.into_iter().for_each(drop_contained);
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
            self.take_signals(events, &mut later);
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
        self.take_signals(events, later);
        false
    }

    fn take_signals(&mut self, events: &mut Events<'_, M>, later: &mut Later<M>) {
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
                    self.keep(event, later);
                    self.wake_receivers(later);
                }
            }
            Event::Cancel(request) => self.stop(request.into_inner(), later),
            other => {
                self.keep(other, later);
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

    fn keep(&mut self, event: Event<M>, later: &mut Later<M>) {
        let is_answer = |event: &Event<M>| matches!(event, Event::Completed(_));
        let rare = self.rare();
        rare.unclaimed += usize::from(is_answer(&event));
        rare.kept.push_back(event);
        if rare.unclaimed > MOST_UNCLAIMED
            && let Some(oldest) = rare.kept.iter().position(is_answer)
        {
            rare.unclaimed -= 1;
            later.get().dropped.extend(rare.kept.remove(oldest));
        }
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
        let rare = self.rare.as_mut()?;
        if std::mem::take(&mut rare.is_stop_unseen) || since.is_some_and(|since| since != self.stops) {
            return rare.last_stop.clone();
        }
        *since = Some(self.stops);
        None
    }

    /// Takes the next event for `receive`.
    pub(super) fn take_kept(&mut self) -> Option<Event<M>> {
        let rare = self.rare.as_mut()?;
        let event = rare.kept.pop_front()?;
        rare.unclaimed -= usize::from(matches!(event, Event::Completed(_)));
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

    /// Takes the answer to a command. If there is none yet, its wait is woken when it comes.
    pub(super) fn poll_answer(&mut self, tag: u64, wakes: Wakes, later: &mut Later<M>) -> Option<Completion> {
        let rare = self.rare();
        match rare.answers.get_mut(&tag) {
            Some(wait @ (Wait::New | Wait::For(_))) => {
                if let Wait::For(old) = std::mem::replace(wait, Wait::For(wakes)) {
                    later.drop_waker(old);
                }
                return None;
            }
            Some(Wait::Answered(_)) => {
                later.drop_waker(wakes);
                return match rare.answers.remove(&tag) {
                    Some(Wait::Answered(answer)) => Some(answer),
                    _ => None,
                };
            }
            Some(Wait::Forgotten) | None => {}
        }
        // It may have come before anybody waited for it.
        let is_it = |event: &Event<M>| matches!(event, Event::Completed(answer) if answer.tag() == tag);
        if let Some(place) = rare.kept.iter().position(is_it)
            && let Some(Event::Completed(answer)) = rare.kept.remove(place)
        {
            rare.unclaimed -= 1;
            later.drop_waker(wakes);
            return Some(answer);
        }
        rare.answers.insert(tag, Wait::For(wakes));
        None
    }

    /// Ends the wait for a command. `forgets` says that nobody else can wait for it. Returns whether the command is
    /// outstanding, and its answer will be dropped.
    pub(super) fn give_up(&mut self, tag: u64, forgets: bool, later: &mut Later<M>) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        match rare.answers.remove(&tag) {
            Some(Wait::Answered(answer)) if forgets => later.get().dropped.push(Event::Completed(answer)),
            Some(Wait::Answered(answer)) => self.keep(Event::Completed(answer), later),
            Some(wait) => {
                if let Wait::For(wakes) = wait {
                    later.drop_waker(wakes);
                }
                if forgets {
                    rare.answers.insert(tag, Wait::Forgotten);
                }
                return forgets;
            }
            None => {}
        }
        false
    }
}
