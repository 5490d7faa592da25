//! Events, and the order in which a step takes them.

mod lent;
mod tap;
mod traced;

use std::collections::VecDeque;

use super::command::CancelRequest;
use super::event_box::EventBox;
use super::names::GroupEvent;
use super::propagation::{begin_deferred, correct_sender, defer_span};
use super::relation::{Down, ExitSignal, Recovered};
use super::reply::Completion;
use super::step_activity::{Sight, StepActivity};
use crate::pid::{Address, Pid};
use crate::sched::feeds::Feeds;
use crate::sched::mailbox::{Control, Envelope, Mailbox};
use crate::sched::trace_marks::Context;

pub(crate) use self::lent::LentEvents;
pub(crate) use self::tap::{EventSource, EventTap, Replayed, Tap};

/// An event that a process receives.
///
/// [`CancelRequest`], [`Down`], [`ExitSignal`], [`Recovered`] and [`GroupEvent`] are boxed. Read their fields as
/// through a reference (`down.pid`). `into_inner()` takes the content out of the box.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<M> {
    /// A message. [`Events::sender`] returns its sender.
    Message(M),
    /// The answer to a command that the process yielded.
    Completed(Completion),
    /// A request to stop. The process decides how it responds. If the runtime is shutting down, it terminates the
    /// process when the deadline has passed.
    Cancel(EventBox<CancelRequest>),
    /// A process that this one monitors has ended.
    Down(EventBox<Down>),
    /// A linked process has ended, and this process traps exits.
    Exit(EventBox<ExitSignal>),
    /// A process to which this process has linked itself has failed and recovered. The failed state machine was
    /// replaced in place. The link stays. This process traps exits. A process that does not trap exits gets no such
    /// event.
    Recovered(EventBox<Recovered>),
    /// A group to which this process subscribes has changed.
    Group(EventBox<GroupEvent>),
}

impl<M> From<Box<Control>> for Event<M> {
    fn from(control: Box<Control>) -> Event<M> {
        match *control {
            Control::Cancel(_) => Event::Cancel(EventBox::new(control)),
            Control::Down(_) => Event::Down(EventBox::new(control)),
            Control::Exit(..) => Event::Exit(EventBox::new(control)),
            Control::Recovered(_) => Event::Recovered(EventBox::new(control)),
            Control::Group(_) => Event::Group(EventBox::new(control)),
        }
    }
}

impl<M> Event<M> {
    /// Returns the control signal, if the event is one.
    pub(crate) fn into_control(self) -> Option<Control> {
        match self {
            Event::Message(_) | Event::Completed(_) => None,
            Event::Cancel(event) => Some(event.into_control()),
            Event::Down(event) => Some(event.into_control()),
            Event::Exit(event) => Some(event.into_control()),
            Event::Recovered(event) => Some(event.into_control()),
            Event::Group(event) => Some(event.into_control()),
        }
    }
}

/// The events of one step. Take them as an iterator, or with [`select`](Self::select).
///
/// Control signals come first. These are all events except messages and completions. There is one exception: the end
/// of a process comes after the messages and answers that the process had sent. Messages and completions follow in the
/// order of their arrival. Messages of one sender come in the order in which they were sent.
///
/// A step after [`Step::Wait`](super::Step::Wait) is given no messages, only completions and control signals.
///
/// A step is given a bounded number of new events. The next steps are given the rest. Events that a step does not take
/// stay, in order, in front of later ones. If a step takes some events, leaves others, and returns
/// [`Step::Idle`](super::Step::Idle), the process is stepped again at once. If a step takes none, the process is
/// stepped again when a new event arrives.
pub struct Events<'a, M> {
    mailbox: &'a mut Mailbox<M>,
    // Taken out of the body for the step. Boxed, because most steps have none.
    kept: Option<Box<Kept<M>>>,
    messages: bool,
    budget: u32,
    // The bits of a `Taken`. The field is wider than the budget. Otherwise the compiler would read both with one wide
    // load, right after each was written separately.
    taken: u64,
    sender: Option<Pid>,
    // The process being stepped.
    pid: Pid,
    // The place where a step that is watched shows its activity.
    sight: Option<&'a Sight>,
    // Whether the next event is a message of the mailbox, unless there are signals. It is false if the step is
    // watched.
    plain: bool,
}

/// A summary of the events that a step has taken. The lower half is the number of messages. The upper half has a mark
/// if the step has taken any other event, or has passed over a message.
#[derive(Clone, Copy)]
pub(crate) struct Taken(u64);

const MORE: u64 = 1 << 32;

impl Taken {
    /// The number of messages that were taken.
    #[inline]
    pub(crate) fn messages(self) -> u32 {
        self.0 as u32
    }

    /// Whether no event was taken and no message was passed over.
    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }
}

/// The messages that were passed over, and the feeds. Most processes have neither.
///
/// Both are in one box. So a step without them checks for them once, and drops one field.
pub(crate) struct Kept<M> {
    /// Messages that earlier steps passed over. They are older than everything in the mailbox.
    pub(crate) older: VecDeque<KeptMessage<M>>,
    /// Messages that this step has passed over. Empty between the steps.
    passed: VecDeque<KeptMessage<M>>,
    /// Whether the last step has left messages in `older` that it was not shown. They are behind those that it was.
    leaves_older: bool,
    pub(crate) feeds: Option<Box<Feeds<M>>>,
    /// Present if the process is recorded or replayed.
    pub(crate) tap: Option<Tap<M>>,
}

/// A message that was passed over.
pub(crate) struct KeptMessage<M> {
    pub(crate) envelope: Envelope<M>,
    /// Its place in a trace.
    pub(crate) context: Option<Context>,
}

impl<M> From<Envelope<M>> for KeptMessage<M> {
    fn from(envelope: Envelope<M>) -> KeptMessage<M> {
        KeptMessage { envelope, context: None }
    }
}

impl<M> Default for Kept<M> {
    fn default() -> Kept<M> {
        Kept { older: VecDeque::new(), passed: VecDeque::new(), leaves_older: false, feeds: None, tap: None }
    }
}

impl<M> Kept<M> {
    /// Records that the step is over. The next one is shown what this one has passed over, before the messages that it
    /// has not reached.
    #[inline]
    pub(crate) fn end_step(&mut self) {
        self.leaves_older = !self.older.is_empty();
        self.offer_again();
        self.feeds.iter_mut().for_each(|feeds| feeds.end_step());
    }

    /// As `end_step`, if there is only a tap. Otherwise returns `false` and does nothing.
    #[inline]
    pub(crate) fn ends_with_tap_alone(&mut self) -> bool {
        let is_alone = self.tap.is_some() && self.feeds.is_none() && self.older.is_empty() && self.passed.is_empty();
        self.leaves_older &= !is_alone;
        is_alone
    }

    #[inline]
    fn offer_again(&mut self) {
        if !self.passed.is_empty() {
            self.append_older();
        }
    }

    fn append_older(&mut self) {
        self.passed.append(&mut self.older);
        std::mem::swap(&mut self.passed, &mut self.older);
    }

    /// Whether the last step has left anything here that it was not shown. The oldest may have been pushed out since.
    pub(crate) fn has_unseen(&self) -> bool {
        let has_items = || self.feeds.as_ref().is_some_and(|feeds| feeds.has_unseen());
        self.leaves_older && !self.older.is_empty() || has_items()
    }

    /// Whether there is anything here for the next step.
    pub(crate) fn has_any(&self) -> bool {
        !self.older.is_empty() || self.feeds.as_ref().is_some_and(|feeds| feeds.has_items())
    }

    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.older.is_empty() && self.feeds.is_none() && self.tap.is_none()
    }
}

impl<'a, M> Events<'a, M> {
    #[inline]
    pub(crate) fn new(
        pid: Pid,
        mailbox: &'a mut Mailbox<M>,
        kept: Option<Box<Kept<M>>>,
        messages: bool,
        budget: u32,
        sight: Option<&'a Sight>,
    ) -> Events<'a, M> {
        let plain = messages && kept.is_none() && sight.is_none();
        Events { mailbox, kept, messages, budget, taken: 0, sender: None, pid, sight, plain }
    }

    /// The address of the process being stepped. Give it to other processes, so that they can send messages to this
    /// one.
    pub fn address(&self) -> Address<M> {
        self.pid.typed()
    }

    /// The summary of the events that the step has taken so far.
    #[inline]
    pub(crate) fn taken(&self) -> Taken {
        Taken(self.taken)
    }

    /// The messages that were passed over, and the feeds.
    #[inline]
    pub(crate) fn into_kept(self) -> Option<Box<Kept<M>>> {
        self.kept
    }

    /// The sender of the message that was taken last. `None` if that message was sent from outside.
    pub fn sender(&self) -> Option<Pid> {
        self.sender
    }

    /// Takes the next event. Passes over messages for which `wanted` returns `false`.
    ///
    /// Messages that are passed over stay in the mailbox, in order, in front of later messages. They do not cause a
    /// step. When a new event causes a step, they are offered again. If that step takes events and does not come to
    /// all of them, the next step follows at once.
    pub fn select(&mut self, wanted: impl FnMut(&M) -> bool) -> Option<Event<M>> {
        let next = self.look(wanted);
        self.take_next(next)
    }

    fn pass(&mut self, message: KeptMessage<M>) {
        self.taken |= MORE;
        self.kept.get_or_insert_default().passed.push_back(message);
    }

    #[inline]
    fn take(&mut self, envelope: Envelope<M>) -> Event<M> {
        self.taken += 1;
        self.sender = envelope.from;
        Event::Message(envelope.message)
    }

    fn control(&mut self) -> Option<Control> {
        let Mailbox { messages, signals } = &mut *self.mailbox;
        let signals = signals.as_mut().filter(|signals| signals.has_control())?;
        let control = signals.next_control(messages, self.messages)?;
        if let Some(sight) = self.sight {
            sight.note(control.activity());
            self.tap(|tap| tap.control(&control));
        }
        self.taken |= MORE;
        Some(control)
    }

    fn completion(&mut self) -> Option<Completion> {
        let messages = self.messages;
        let signals = self.mailbox.signals.as_mut()?;
        let completed = signals.next_completion(messages)?;
        self.budget -= 1;
        self.taken |= MORE;
        if let Some(sight) = self.sight {
            sight.note(StepActivity::Completed { tag: completed.tag() });
            self.tap(|tap| tap.completed(&completed));
        }
        Some(completed)
    }

    /// Tells the tap of a process that is recorded. Such a process always has a sight. So others need not look for a
    /// tap.
    #[cold]
    fn tap(&mut self, tell: impl FnOnce(&mut dyn EventTap<M>)) {
        if let Some(Tap::Record(tap)) = self.kept.as_mut().and_then(|kept| kept.tap.as_mut()) {
            tell(&mut **tap);
        }
    }

    /// Shows the activity of the step, if another thread looks at it.
    fn note(&self, activity: StepActivity) {
        if let Some(sight) = self.sight {
            sight.note(activity);
        }
    }

    /// Decides which event is next, and passes over messages that are not `wanted`. The predicate is called before a
    /// message is moved. So if it panics, no message is lost.
    #[inline(never)]
    fn look(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Next {
        if self.kept.is_some() && self.messages {
            return self.look_beside_kept(wanted);
        }
        if self.is_traced() {
            return self.look_traced(&mut wanted);
        }
        let has_signals = self.mailbox.has_signals();
        if has_signals && let Some(control) = self.control() {
            return Next::Control(Box::new(control));
        }
        self.look_into_mailbox(has_signals, wanted)
    }

    /// As `look`, for a process with messages that were passed over, with feeds, or with a tap.
    #[inline(never)]
    fn look_beside_kept(&mut self, wanted: impl FnMut(&M) -> bool) -> Next {
        let kept = self.kept.as_deref().filter(|_| self.mailbox.signals.is_none());
        if kept.is_some_and(|kept| kept.feeds.is_none() && kept.older.is_empty()) {
            // The usual case of a recorded process: its mailbox has only messages.
            return self.look_at_recorded(wanted);
        }
        self.look_into_kept(wanted)
    }

    /// As `look_beside_kept`, if there are signals, feeds, or messages that earlier steps have passed over.
    #[inline(never)]
    fn look_into_kept(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Next {
        if self.is_traced() {
            return self.look_traced(&mut wanted);
        }
        let has_signals = self.mailbox.has_signals();
        if has_signals && let Some(control) = self.control() {
            return Next::Control(Box::new(control));
        }
        let Some(kept) = self.kept.as_deref_mut() else { return Next::Nothing };
        let has_messages = || !kept.older.is_empty() || !self.mailbox.messages.is_empty();
        if kept.feeds.is_some() && kept.tap.is_none() && !has_signals && !has_messages() {
            // The usual case of a process with feeds: there are only items.
            return if self.look_into_feeds(wanted) { Next::Kept } else { Next::Nothing };
        }
        if has_signals || !kept.older.is_empty() || kept.feeds.is_some() {
            return self.look_into_all(has_signals, wanted);
        }
        self.look_at_recorded(wanted)
    }

    /// As `look`, if there are only messages in the mailbox. Most such processes are recorded.
    #[inline(always)]
    fn look_at_recorded(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Next {
        let kept = self.kept.as_deref_mut();
        let Some(Kept { tap: Some(Tap::Record(tap)), passed, .. }) = kept else {
            return self.look_into_all(false, wanted);
        };
        while self.budget > 0
            && let Some(next) = self.mailbox.messages.front_mut()
        {
            if wanted(&next.message) {
                next.from = tap.taken(&next.message, next.from);
                self.sight.iter().for_each(|sight| sight.note(StepActivity::Message { from: next.from }));
                self.mailbox.signals.iter_mut().for_each(|signals| signals.popped += 1);
                return Next::Message;
            }
            tap.passed(&next.message);
            let Some(envelope) = self.mailbox.pop_message() else { break };
            self.budget -= 1;
            self.taken |= MORE;
            passed.push_back(envelope.into());
        }
        tap.nothing();
        Next::Nothing
    }

    #[cold]
    #[inline(never)]
    fn look_into_all(&mut self, has_signals: bool, mut wanted: impl FnMut(&M) -> bool) -> Next {
        match self.kept.as_mut().and_then(|kept| kept.tap.take()) {
            Some(tap) => self.look_tapped(tap, has_signals, &mut wanted),
            None => self.look_untapped(has_signals, &mut wanted),
        }
    }

    /// As `look_into_all`. The tap sees each message that is shown, or says what comes next.
    fn look_tapped(&mut self, mut tap: Tap<M>, has_signals: bool, wanted: &mut dyn FnMut(&M) -> bool) -> Next {
        let next = match &mut tap {
            Tap::Replay(source) => {
                let replayed = source.next(wanted);
                self.play(replayed)
            }
            Tap::Record(tap) => self.look_recorded(&mut **tap, has_signals, wanted),
        };
        self.kept.get_or_insert_default().tap = Some(tap);
        next
    }

    fn look_recorded(
        &mut self,
        tap: &mut dyn EventTap<M>,
        has_signals: bool,
        wanted: &mut dyn FnMut(&M) -> bool,
    ) -> Next {
        if tap.is_over() {
            return Next::Nothing;
        }
        let mut tapped = |message: &M| {
            let is_wanted = wanted(message);
            if !is_wanted {
                tap.passed(message);
            }
            is_wanted
        };
        let is_traced = self.is_traced();
        let next = if is_traced {
            // Until the tap has said who the sender is.
            defer_span(|| self.find_traced(&mut tapped))
        } else {
            self.look_untapped(has_signals, &mut tapped)
        };
        let taken = match &next {
            Next::Message => self.mailbox.messages.front_mut(),
            Next::Kept => self.kept.as_mut().and_then(|kept| Some(&mut kept.older.front_mut()?.envelope)),
            Next::Completed(_) | Next::Control(_) | Next::Nothing => None,
        };
        match (&next, taken) {
            (_, Some(envelope)) => {
                envelope.from = tap.taken(&envelope.message, envelope.from);
                if is_traced {
                    correct_sender(envelope.from);
                }
            }
            (Next::Completed(completion), _) => tap.completed(completion),
            (Next::Control(control), _) => tap.control(control),
            _ => tap.nothing(),
        }
        if is_traced {
            begin_deferred();
        }
        next
    }

    /// Makes a replayed event the next one.
    fn play(&mut self, replayed: Replayed<M>) -> Next {
        match replayed {
            Replayed::Message(envelope) => {
                self.kept.get_or_insert_default().older.push_front(envelope.into());
                Next::Kept
            }
            Replayed::Completed(completion) => {
                self.taken |= MORE;
                Next::Completed(completion)
            }
            Replayed::Control(control) => {
                self.taken |= MORE;
                Next::Control(control)
            }
            Replayed::Nothing => Next::Nothing,
        }
    }

    fn look_untapped(&mut self, has_signals: bool, mut wanted: &mut dyn FnMut(&M) -> bool) -> Next {
        if self.is_traced() {
            return self.find_traced(wanted);
        }
        let Some(feeds_first) = self.feeds().map(|feeds| feeds.is_next) else {
            return self.look_into_messages(has_signals, wanted);
        };
        // The two take turns, if both have something.
        if feeds_first && self.look_into_feeds(&mut wanted) {
            return Next::Kept;
        }
        let next = self.look_into_messages(has_signals, &mut wanted);
        if !matches!(next, Next::Nothing) {
            self.feeds().into_iter().for_each(|feeds| feeds.is_next = true);
            return next;
        }
        if !feeds_first && self.look_into_feeds(&mut wanted) { Next::Kept } else { Next::Nothing }
    }

    fn feeds(&mut self) -> Option<&mut Feeds<M>> {
        self.kept.as_mut()?.feeds.as_deref_mut()
    }

    /// Looks for the next item of a feed, and passes over those that are not `wanted`. Makes the item the oldest kept
    /// message. The caller takes it at once.
    fn look_into_feeds(&mut self, wanted: impl FnMut(&M) -> bool) -> bool {
        let Some(Kept { older, feeds: Some(feeds), .. }) = self.kept.as_deref_mut() else { return false };
        let (is_found, has_passed) = feeds.look(&mut self.budget, wanted);
        self.taken |= if has_passed { MORE } else { 0 };
        let Some(message) = (if is_found { feeds.take() } else { None }) else { return false };
        older.push_front(Envelope { from: None, message }.into());
        self.budget = self.budget.saturating_sub(1);
        self.note(StepActivity::Message { from: None });
        true
    }

    /// Looks among the messages that earlier steps passed over, and then in the mailbox.
    fn look_into_messages(&mut self, has_signals: bool, mut wanted: impl FnMut(&M) -> bool) -> Next {
        while let Some(oldest) = self.kept.as_ref().and_then(|kept| kept.older.front()) {
            let Envelope { from, message } = &oldest.envelope;
            if wanted(message) {
                let from = *from;
                self.note(StepActivity::Message { from });
                return Next::Kept;
            }
            let passed = self.kept.as_mut().and_then(|kept| kept.older.pop_front());
            passed.into_iter().for_each(|message| self.pass(message));
        }
        self.look_into_mailbox(has_signals, wanted)
    }

    #[inline(always)]
    fn look_into_mailbox(&mut self, has_signals: bool, mut wanted: impl FnMut(&M) -> bool) -> Next {
        while self.budget > 0 {
            if has_signals && let Some(completed) = self.completion() {
                return Next::Completed(completed);
            }
            let Some(next) = self.mailbox.messages.front().filter(|_| self.messages) else { break };
            let from = next.from;
            if wanted(&next.message) {
                self.note(StepActivity::Message { from });
                self.mailbox.signals.iter_mut().for_each(|signals| signals.popped += 1);
                return Next::Message;
            }
            let Some(envelope) = self.mailbox.pop_message() else { break };
            self.budget -= 1;
            self.pass(envelope.into());
        }
        Next::Nothing
    }

    #[inline(always)]
    fn take_next(&mut self, next: Next) -> Option<Event<M>> {
        match next {
            Next::Message => {
                if self.budget == 0 {
                    return None;
                }
                let envelope = self.mailbox.messages.pop()?;
                self.budget -= 1;
                Some(self.take(envelope))
            }
            Next::Kept => {
                let KeptMessage { envelope, .. } = self.kept.as_mut()?.older.pop_front()?;
                Some(self.take(envelope))
            }
            Next::Completed(completed) => Some(Event::Completed(completed)),
            Next::Control(control) => Some(control.into()),
            Next::Nothing => None,
        }
    }
}

/// The kind of the next event of a step. It is small, so that the compiler passes it in registers. A message is moved
/// in one place only, where the compiler sees how it is used.
enum Next {
    /// The next message of the mailbox, if there is one.
    Message,
    /// The oldest of the messages that are kept.
    Kept,
    Completed(Completion),
    Control(Box<Control>),
    Nothing,
}

impl<M> Iterator for Events<'_, M> {
    type Item = Event<M>;

    #[inline(always)]
    fn next(&mut self) -> Option<Event<M>> {
        let plain = self.plain && self.mailbox.signals.is_none();
        let next = if plain { Next::Message } else { self.look(|_| true) };
        self.take_next(next)
    }
}

impl<M> std::fmt::Debug for Events<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events")
            .field("messages", &(self.kept.as_ref().map_or(0, |kept| kept.older.len()) + self.mailbox.messages.len()))
            .field("taken", &self.taken().messages())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::outcome::Reason;
    use crate::sched::mailbox::{AnyMailbox, Signal};

    fn filled(messages: impl IntoIterator<Item = u32>) -> Mailbox<u32> {
        let mut mailbox = Mailbox::new();
        messages.into_iter().for_each(|message| mailbox.messages.push(Envelope { from: None, message }));
        mailbox
    }

    fn completed(tag: u64) -> Signal {
        Signal::Completed(Completion::from(None, tag, Ok(Box::new(()))))
    }

    fn cancel() -> Signal {
        Signal::Control(Control::Cancel(CancelRequest { reason: Reason::Cancelled, deadline: None }))
    }

    /// Ends the step. Returns what it has left.
    fn kept_of(events: Events<'_, u32>) -> Option<Box<Kept<u32>>> {
        let mut kept = events.into_kept();
        kept.iter_mut().for_each(|kept| kept.end_step());
        kept
    }

    fn names(events: &mut Events<'_, u32>) -> Vec<String> {
        events
            .map(|event| match event {
                Event::Message(n) => n.to_string(),
                Event::Completed(done) => format!("c{}", done.tag()),
                Event::Cancel(_) => String::from("cancel"),
                Event::Down(down) => format!("down {}", down.pid),
                Event::Exit(exit) => format!("exit {}", exit.pid),
                Event::Recovered(recovered) => format!("recovered {}", recovered.pid),
                Event::Group(event) => format!("group {}", event.subscription.group()),
            })
            .collect()
    }

    #[test]
    fn control_overtakes_and_completions_keep_their_place_among_the_messages() {
        let mut mailbox = filled([1, 2]);
        mailbox.signal(completed(7));
        mailbox.messages.push(Envelope { from: None, message: 3 });
        mailbox.signal(cancel());
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, true, 100, None);
        assert_eq!(names(&mut events), ["cancel", "1", "2", "c7", "3"]);
        assert_eq!(events.taken().messages(), 3);
    }

    #[test]
    fn a_waiting_process_is_given_completions_and_control_but_no_message() {
        let mut mailbox = filled([1]);
        mailbox.signal(completed(7));
        mailbox.signal(cancel());
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, false, 100, None);
        assert_eq!(names(&mut events), ["cancel", "c7"]);
        assert_eq!(mailbox.messages.len(), 1);
    }

    #[test]
    fn what_is_passed_over_stays_in_order_in_front_of_what_comes_later() {
        let mut mailbox = filled(1..=6);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, true, 5, None);
        assert!(matches!(events.select(|n| n % 2 == 0), Some(Event::Message(2))));
        assert!(matches!(events.select(|n| n % 2 == 0), Some(Event::Message(4))));
        assert_eq!(events.taken().messages(), 2);
        let kept = kept_of(events);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, kept, true, 5, None);
        assert_eq!(names(&mut events), ["1", "3", "5", "6"]);
    }

    #[test]
    fn a_step_touches_its_events_only_by_taking_or_passing_over() {
        fn touches(deal: impl Fn(&mut Events<'_, u32>)) -> bool {
            let mut mailbox = filled([1]);
            mailbox.signal(completed(7));
            mailbox.signal(cancel());
            let older = VecDeque::from([Envelope { from: None, message: 0 }.into()]);
            let kept = Some(Box::new(Kept { older, ..Kept::default() }));
            let mut events = Events::new(Pid::FIRST, &mut mailbox, kept, true, 100, None);
            deal(&mut events);
            !events.taken().is_nothing()
        }
        assert!(!touches(|_| ()));
        assert!(!touches(|events| drop(format!("{events:?}"))));
        assert!(touches(|events| drop(events.next())), "a signal");
        // Each kind by itself.
        let mut mailbox = filled([]);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, true, 100, None);
        assert!(events.next().is_none() && events.select(|_| true).is_none() && events.taken().is_nothing());
        mailbox.signal(completed(7));
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, true, 100, None);
        assert!(matches!(events.next(), Some(Event::Completed(_))) && !events.taken().is_nothing());
        assert_eq!(events.taken().messages(), 0, "that is no message");
        let mut mailbox = filled([1, 2]);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, true, 100, None);
        assert!(events.select(|_| false).is_none() && !events.taken().is_nothing());
        assert_eq!(events.taken().messages(), 0, "none was taken");
        let kept = kept_of(events);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, kept, true, 100, None);
        assert!(matches!(events.next(), Some(Event::Message(1))) && !events.taken().is_nothing());
        assert_eq!(events.taken().messages(), 1);
    }

    #[test]
    fn the_bound_counts_what_is_new_so_that_what_was_left_cannot_hide_it() {
        let mut mailbox = filled(0..10);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, None, true, 4, None);
        assert!(events.select(|_| false).is_none());
        let kept = kept_of(events);
        assert_eq!(kept.as_ref().unwrap().older.len(), 4);
        let mut events = Events::new(Pid::FIRST, &mut mailbox, kept, true, 4, None);
        assert_eq!(names(&mut events), ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(mailbox.messages.len(), 2);
    }
}
