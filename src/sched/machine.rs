//! A process of the user's type as a [`Machine`].

use std::any::{Any, type_name};
use std::fmt;
use std::marker::PhantomData;

use super::body::{
    Begun, Body, Head, Kind, LARGEST_SPARE, LastWord, Machine, Ready, Spares, Stage, StepOutput, Stepped, Successor,
    Verdict,
};
use super::feeds::{AnyFeeds, AnyNewFeed, FeedHost, Feeds, NewFeed};
#[cfg(feature = "durable")]
use super::mailbox::Envelope;
use super::mailbox::{AnyMailbox, Mailbox, Queue, Signals};
use crate::latch::Latch;
use crate::outcome::{Exit, Failure, Panic, Reason, contain, drop_contained, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Ordering, Weak};
use crate::process::contract::{Process, Step, Upgrade};
use crate::process::entry::{EntryArgs, EntryPoint};
use crate::process::event::{Events, Kept, KeptMessage, Tap};
use crate::process::step_activity::Sight;
#[cfg(feature = "durable")]
use crate::sched::trace_marks::Context;

/// The latch that is set with the exit of a process. Joiners wait for it.
pub(crate) type ExitLatch<O> = Latch<Exit<Arc<O>>>;

/// The state machine of a process, with its mailbox.
pub(crate) struct Typed<P: Process> {
    mailbox: Mailbox<P::Message>,
    rare: Option<Box<TypedRare<P>>>,
    // Empty only between the end of this process and the start of the next one that uses the memory.
    process: Option<P>,
}

/// Fields that most processes do not need.
struct TypedRare<P: Process> {
    entry: Option<Box<EntryPoint>>,
    exit: Option<ExitLatch<P::Output>>,
    // Whether somebody wants the output: a joiner, or the parent that runs the process.
    keeps_output: bool,
    output: Option<P::Output>,
    kept: Option<Box<Kept<P::Message>>>,
}

impl<P: Process> Default for TypedRare<P> {
    fn default() -> TypedRare<P> {
        TypedRare { entry: None, exit: None, keeps_output: false, output: None, kept: None }
    }
}

/// Drops each field by itself, because each may be a user's value. Two destructors that panic at once end the
/// program.
impl<P: Process> Drop for TypedRare<P> {
    fn drop(&mut self) {
        drop_contained(self.entry.take());
        drop_contained(self.output.take());
        if let Some(kept) = self.kept.take() {
            let Kept { older, feeds, .. } = *kept;
            drop_contained(older);
            drop_contained(feeds);
        }
        // Set already, unless a body was lost. No waiter may wait for ever.
        if let Some(exit) = self.exit.take().filter(Latch::is_shared) {
            drop_contained(
                exit.set(Exit::Panicked(Panic::new(Box::new("its body was lost to a panic in the runtime")))),
            );
        }
    }
}

/// The name that a type of process shows. User code returns it.
fn name_of<P: Process>() -> &'static str {
    contain(P::type_name).unwrap_or_else(|panic| {
        drop_contained(panic);
        type_name::<P>()
    })
}

/// Makes the body of a new process.
pub(crate) fn new_body<P: Process>(
    process: P,
    pid: Pid,
    entry: Option<Box<EntryPoint>>,
    exit: Option<ExitLatch<P::Output>>,
) -> Box<Body<Typed<P>>> {
    let keeps_output = exit.is_some();
    let rare = (entry.is_some() || keeps_output)
        .then(|| Box::new(TypedRare { entry, exit, keeps_output, output: None, kept: None }));
    Box::new(Body { head: Head::new(pid), machine: Typed { mailbox: Mailbox::new(), rare, process: Some(process) } })
}

/// Makes the body of a process without rare fields. It reuses the memory of an ended process of the same type, if
/// any.
#[inline]
pub(crate) fn body_in<P: Process>(spares: &mut Spares, process: P, pid: Pid) -> Ready {
    if size_of::<Body<Typed<P>>>() <= LARGEST_SPARE
        && let Some(mut spare) = spares.take()
        && let Some(typed) = (&mut spare.machine as &mut dyn Any).downcast_mut::<Typed<P>>()
    {
        typed.process = Some(process);
        spare.head = Head::new(pid);
        return spare;
    }
    new_body(process, pid, None, None)
}

impl<P: Process> Typed<P> {
    const KIND: Kind = Kind {
        process: name_of::<P>,
        message_name: type_name::<P::Message>,
        new_mailbox: || Box::new(Mailbox::<P::Message>::new()),
    };

    /// Moves everything out, and leaves nothing to step.
    pub(crate) fn take_all(&mut self) -> Typed<P> {
        std::mem::replace(self, Typed { mailbox: Mailbox::new(), rare: None, process: None })
    }

    /// Makes a machine around a process that is stepped without a runtime.
    pub(crate) fn alone(process: P, entry: Option<Box<EntryPoint>>) -> Typed<P> {
        let mut alone = Typed { mailbox: Mailbox::new(), rare: None, process: Some(process) };
        if entry.is_some() {
            alone.rare().entry = entry;
        }
        alone
    }

    /// The process, until its end.
    pub(crate) fn process(&self) -> Option<&P> {
        self.process.as_ref()
    }

    /// The entry with which the process begins, until `init` is called.
    pub(crate) fn entry(&self) -> Option<&EntryPoint> {
        self.rare.as_ref()?.entry.as_deref()
    }

    /// Sets the tap at the events of the steps, if there is none.
    #[inline]
    pub(crate) fn tap(&mut self, make: impl FnOnce() -> Tap<P::Message>) {
        let kept = self.rare.as_ref().and_then(|rare| rare.kept.as_ref());
        if kept.is_none_or(|kept| kept.tap.is_none()) {
            self.kept().tap = Some(make());
        }
    }

    /// Whether there are events that a step would be offered.
    pub(crate) fn offers(&self, waits: bool) -> bool {
        let has_kept = || self.rare.as_ref().and_then(|rare| rare.kept.as_ref()).is_some_and(|kept| kept.has_any());
        self.mailbox.has_signals() || !waits && (!self.mailbox.messages.is_empty() || has_kept())
    }

    /// Returns a process that has not begun.
    pub(crate) fn into_process(self) -> P {
        match self.process {
            Some(process) => process,
            None => unreachable!("a process is taken out at its end, and this one has not begun"),
        }
    }

    // Inlined: each process begins once, and some live only for a moment.
    #[inline(always)]
    fn init(&mut self) -> Result<(), Exit> {
        let point = self.rare.as_mut().and_then(|rare| rare.entry.take());
        let Some(process) = &mut self.process else { return Err(Exit::Terminated(Reason::Ended)) };
        match contain(|| process.init(EntryArgs::new(name_of::<P>, point))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Exit::Failed(Failure::from(error))),
            Err(panic) => Err(Exit::Panicked(panic)),
        }
    }

    /// Keeps the output for the parent that runs the process.
    pub(crate) fn keep_output(&mut self) {
        self.rare().keeps_output = true;
    }

    /// Takes the process out.
    pub(crate) fn take_process(&mut self) -> Option<P> {
        self.process.take()
    }

    fn rare(&mut self) -> &mut TypedRare<P> {
        self.rare.get_or_insert_default()
    }

    fn kept(&mut self) -> &mut Kept<P::Message> {
        self.rare().kept.get_or_insert_default()
    }

    /// Puts back what a step has left. Returns whether there is anything that the step was not shown.
    #[cold]
    #[inline(never)]
    fn put_back_kept(&mut self, mut kept: Box<Kept<P::Message>>) -> bool {
        if let Some(rare) = &mut self.rare
            && kept.ends_with_tap_alone()
        {
            rare.kept = Some(kept);
            return false;
        }
        kept.end_step();
        let has_unseen = kept.has_unseen();
        if !kept.is_empty() {
            self.rare().kept = Some(kept);
        }
        has_unseen
    }

    /// The verdict of a step that said `Idle` and changed nothing. A step after `Wait` was not offered the messages.
    #[cold]
    fn idle_untouched(&self, head: &Head) -> Verdict {
        let is_offered = self.offers(false);
        if is_offered && !head.waits { Verdict::Declined } else { Verdict::Idle }
    }
}

/// Calls of a machine around this one.
#[cfg(feature = "durable")]
impl<P: Process> Typed<P> {
    /// The events that wait.
    pub(crate) fn waiting(&mut self) -> &mut Mailbox<P::Message> {
        &mut self.mailbox
    }

    /// The process, until its end.
    pub(crate) fn process_mut(&mut self) -> Option<&mut P> {
        self.process.as_mut()
    }

    /// Puts another state machine into the place of this one, and returns this one.
    pub(crate) fn replace_process(&mut self, process: P) -> Option<P> {
        self.process.replace(process)
    }

    /// Puts a message back that a step has taken, in front of the first that `is_later`.
    pub(crate) fn put_back(
        &mut self,
        (envelope, context): (Envelope<P::Message>, Option<Context>),
        is_later: impl Fn(Pid) -> bool,
    ) {
        if context.is_some() {
            self.mailbox.signals.get_or_insert_default().traces.get_or_insert_default().keeps_one();
        }
        let older = &mut self.kept().older;
        let is_later = |other: &KeptMessage<_>| other.envelope.from.is_some_and(&is_later);
        let place = older.iter().position(is_later).unwrap_or(older.len());
        older.insert(place, KeptMessage { envelope, context });
    }

    /// Whether there are messages that earlier steps have left.
    pub(crate) fn has_older(&self) -> bool {
        self.rare.as_ref().and_then(|rare| rare.kept.as_ref()).is_some_and(|kept| !kept.older.is_empty())
    }
}

impl<P: Process> Machine for Typed<P> {
    fn kind(&self) -> &'static Kind {
        &Self::KIND
    }

    fn mailbox(&mut self) -> &mut dyn AnyMailbox {
        &mut self.mailbox
    }

    fn signals(&mut self) -> &mut Option<Box<Signals>> {
        &mut self.mailbox.signals
    }

    fn enter(&mut self) -> Result<(), Exit> {
        self.init()
    }

    fn begin(&mut self, head: &mut Head, out: &mut StepOutput, dooms: &AtomicUsize) -> Begun {
        if let Err(exit) = self.init() {
            out.failure = Some(exit);
            return Begun::NotEntered;
        }
        // A process that was terminated meanwhile is not started.
        if head.begins_in_stages() || dooms.load(Ordering::Relaxed) > 0 {
            return Begun::Entered;
        }
        self.start(head, out)
    }

    // Most processes have no `start`. For them the compiler sees that nothing is done here.
    #[inline]
    fn start(&mut self, head: &mut Head, out: &mut StepOutput) -> Begun {
        let Some(process) = &mut self.process else { return Begun::Plain };
        out.begin(head);
        let result = contain(|| process.start(out));
        out.end(head);
        match result {
            Ok(Ok(())) if out.orders.is_empty() && out.counted.is_empty() => return Begun::Plain,
            Ok(Ok(())) => {}
            Ok(Err(error)) => out.failure = Some(Exit::Failed(Failure::from(error))),
            Err(panic) => out.failure = Some(Exit::Panicked(panic)),
        }
        Begun::Yields
    }

    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped {
        let kept = self.rare.as_mut().and_then(|rare| rare.kept.take());
        let Some(process) = &mut self.process else { return Stepped::OF_NOBODY };
        let mut events = Events::new(head.pid, &mut self.mailbox, kept, !head.waits, budget, sight);
        out.begin(head);
        let result = contain(|| process.step(&mut events, out));
        out.end(head);
        let taken = events.taken();
        let has_unseen = events.into_kept().is_some_and(|kept| self.put_back_kept(kept));
        let unseen = !self.mailbox.messages.is_empty() || has_unseen;
        let verdict = match result {
            Ok(Ok(Step::Continue)) => Verdict::Continue,
            Ok(Ok(Step::Idle)) if taken.is_nothing() => self.idle_untouched(head),
            Ok(Ok(Step::Idle)) => Verdict::Idle,
            Ok(Ok(Step::Wait)) => Verdict::Wait,
            Ok(Ok(Step::Blocking)) => Verdict::Blocking,
            Ok(Ok(Step::Done(output))) => {
                match &mut self.rare {
                    Some(rare) if rare.keeps_output => rare.output = Some(output),
                    _ => drop_contained(output),
                }
                Verdict::Done
            }
            Ok(Ok(Step::Upgrade(upgrade))) => {
                out.successor = Some(upgrade.successor);
                Verdict::Upgrade
            }
            Ok(Err(error)) => {
                out.failure = Some(Exit::Failed(Failure::from(error)));
                Verdict::Broken
            }
            Err(panic) => {
                out.failure = Some(Exit::Panicked(panic));
                Verdict::Broken
            }
        };
        let signals = self.mailbox.has_signals();
        Stepped { verdict, unseen, signals, taken: taken.messages() }
    }

    // Only the machine of a durable process does something in these four methods.
    fn release(&mut self, _: &mut StepOutput) -> bool {
        false
    }

    fn is_due(&self) -> bool {
        false
    }

    fn passes_hold(&self) -> bool {
        false
    }

    fn keep_stored(&mut self, _: &mut dyn AnyMailbox) {}

    fn held(&self) -> usize {
        let kept = self.rare.as_ref().and_then(|rare| rare.kept.as_ref());
        kept.map_or(0, |kept| kept.older.len()) + self.mailbox.messages.len()
    }

    fn keeps_unseen(&self) -> bool {
        self.rare.as_ref().and_then(|rare| rare.kept.as_ref()).is_some_and(|kept| kept.has_unseen())
    }

    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>> {
        let too_many = self.held().saturating_sub(most);
        if too_many == 0 {
            return None;
        }
        let mut out = Mailbox::new();
        for _ in 0..too_many {
            let kept = self.rare.as_mut().and_then(|rare| rare.kept.as_mut());
            let kept = kept.and_then(|kept| kept.older.pop_front());
            let from_kept = kept.is_some();
            let oldest = match kept {
                Some(oldest) => oldest,
                None => {
                    let context = self.mailbox.take_mark();
                    let Some(envelope) = self.mailbox.pop_message() else { break };
                    KeptMessage { envelope, context }
                }
            };
            if from_kept && oldest.context.is_some() {
                self.mailbox.signals.iter_mut().filter_map(|signals| signals.traces.as_mut()).for_each(|traces| {
                    traces.gives_kept();
                });
            }
            out.messages.push(oldest.envelope);
            oldest.context.into_iter().for_each(|context| out.mark(context));
        }
        Some(Box::new(out))
    }

    fn recover(&mut self, exit: &Exit) -> Option<Box<Successor>> {
        let process = self.process.as_mut()?;
        match contain(|| process.recover(exit)) {
            Ok(upgrade) => upgrade.map(|upgrade| upgrade.successor),
            Err(panic) => {
                tell_log(|| tracing::error!(process = name_of::<P>(), %panic, "`recover` panicked"));
                None
            }
        }
    }

    fn close(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Err(panic) = contain(|| process.close()) {
            tell_log(|| tracing::error!(process = name_of::<P>(), %panic, "`close` panicked"));
        }
    }

    fn take_output(&mut self) -> Option<Box<dyn Any + Send>> {
        let output = self.rare.as_mut()?.output.take()?;
        Some(Box::new(output))
    }

    fn last_word(&mut self, exit: &Exit) -> Option<LastWord> {
        let rare = self.rare.as_mut()?;
        let latch = rare.exit.take()?;
        let exit = match exit {
            // A process that is done has left its output.
            Exit::Done(()) => Exit::Done(Arc::new(rare.output.take()?)),
            Exit::Failed(failure) => Exit::Failed(failure.clone()),
            Exit::Panicked(panic) => Exit::Panicked(panic.clone()),
            Exit::Terminated(reason) => Exit::Terminated(reason.clone()),
        };
        Some(Box::new(move || {
            let decided = latch.decide(exit);
            // If nobody else has the latch, the output is dropped here, which may run user code.
            drop_contained(latch);
            match decided {
                Ok(calls) if !calls.is_empty() => Some(Box::new(move || calls.make()) as Box<_>),
                Ok(_) => None,
                Err(exit) => {
                    drop_contained(exit);
                    None
                }
            }
        }))
    }

    fn left(&mut self) -> &mut dyn AnyMailbox {
        let kept = self.rare.as_mut().and_then(|rare| rare.kept.as_mut());
        if let Some(older) = kept.map(|kept| std::mem::take(&mut kept.older)).filter(|older| !older.is_empty()) {
            // Messages that were passed over are older than all in the mailbox. Completions find their place after
            // them.
            if let Some(signals) = &mut self.mailbox.signals {
                signals.shift(older.len() as u64);
            }
            let first_place = self.mailbox.signals.as_ref().map_or(0, |signals| signals.popped);
            let mut marks = Vec::new();
            let unmark = |(place, older): (u64, KeptMessage<_>)| {
                marks.extend(older.context.map(|context| (first_place + place, context)));
                older.envelope
            };
            let mut all = Queue::Many((0..).zip(older).map(unmark).collect());
            all.append(&mut self.mailbox.messages);
            self.mailbox.messages = all;
            if !marks.is_empty() {
                self.mailbox.signals.get_or_insert_default().put_marks_in_front(marks);
            }
        }
        &mut self.mailbox
    }

    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox> {
        self.left();
        Box::new(std::mem::replace(&mut self.mailbox, Mailbox::new()))
    }

    fn clear(&mut self) {
        // Each by itself, because each may be a user's value.
        drop_contained(self.process.take());
        if self.rare.is_some() {
            drop_contained(self.rare.take());
        }
        self.mailbox.clear();
    }

    fn attach(&mut self, mut feed: Box<dyn AnyNewFeed>, host: Weak<dyn FeedHost>) {
        if let Some(NewFeed(shared)) = (&mut *feed as &mut dyn Any).downcast_mut::<NewFeed<P::Message>>() {
            let feeds = self.kept().feeds.get_or_insert_with(|| Box::new(Feeds::new()));
            shared.take().into_iter().for_each(|shared| feeds.attach(shared, host.clone()));
        } else {
            feed.refuse(type_name::<P::Message>);
        }
    }

    fn feeds(&mut self) -> Option<&mut dyn AnyFeeds> {
        Some(self.rare.as_mut()?.kept.as_mut()?.feeds.as_deref_mut()?)
    }

    fn take_feeds(&mut self) -> Option<Box<dyn AnyFeeds>> {
        Some(self.rare.as_mut()?.kept.as_mut()?.feeds.take()?)
    }

    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>> {
        let exit = self.rare.as_mut()?.exit.take()?;
        Some(Box::new(exit))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.as_ref().map_or(Ok(()), |process| process.describe(f))
    }

    fn process(&self) -> Option<&dyn Any> {
        Some(self.process.as_ref()?)
    }

    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        if let Some(kept) = self.rare.as_ref().and_then(|rare| rare.kept.as_ref()) {
            kept.older.iter().for_each(|older| show(older.envelope.from, &older.envelope.message));
        }
        self.mailbox.show_messages(show);
    }
}

/// Whether these are feeds of a process of this type.
fn is_of<P: Process>(feeds: &dyn AnyFeeds) -> bool {
    (feeds as &dyn Any).is::<Feeds<P::Message>>()
}

/// Makes the body of the process that takes over from another.
fn succeed<P: Process>(
    process: P,
    entry: Option<Box<EntryPoint>>,
    mut old: Ready,
) -> (Ready, Option<Box<dyn AnyMailbox>>) {
    let exit = old.machine.take_exit().and_then(|exit| exit.downcast::<ExitLatch<P::Output>>().ok());
    let mut waiting = old.machine.take_mailbox();
    let feeds = old.machine.take_feeds();
    let pid = old.head.pid;
    let head = std::mem::replace(&mut old.head, Head::new(pid));
    drop_contained(old);
    let mut new = new_body(process, pid, entry, exit.map(|exit| *exit));
    if head.answers_with_output() {
        new.machine.keep_output();
    }
    new.head = Head { waits: false, stage: Stage::New, is_answered: false, ..head };
    match feeds.map(|feeds| if is_of::<P>(&*feeds) { Ok(feeds as Box<dyn Any>) } else { Err(feeds) }) {
        Some(Ok(feeds)) => new.machine.kept().feeds = feeds.downcast().ok(),
        Some(Err(mut feeds)) => {
            feeds.refuse(type_name::<P::Message>, &mut *waiting);
            new.head.rare().has_feeds = false;
        }
        None => {}
    }
    // Completions that waited were counted when they arrived. They only change their place.
    new.machine.mailbox().absorb(&mut *waiting, usize::MAX);
    let refused = (waiting.messages() > 0).then_some(waiting);
    (new, refused)
}

impl<O> Upgrade<O> {
    /// Replaces the process by `process`, which begins at `"main"` without input.
    pub fn to<P: Process<Output = O>>(process: P) -> Upgrade<O> {
        Upgrade::of(process, None)
    }

    /// Replaces the process by `process`, which begins at `method` with `input`.
    pub fn entering<P: Process<Output = O>, I: Send + 'static>(
        process: P,
        method: impl Into<std::borrow::Cow<'static, str>>,
        input: I,
    ) -> Upgrade<O> {
        let entry = Some(Box::new(EntryPoint::new(method, input)));
        Upgrade::of(process, entry)
    }

    fn of<P: Process<Output = O>>(process: P, entry: Option<Box<EntryPoint>>) -> Upgrade<O> {
        let succeed = Box::new(move |old| succeed(process, entry, old));
        let successor = Successor { succeed, even_if_stopping: false, given_back: Vec::new() };
        Upgrade { successor: Box::new(successor), leaves: PhantomData }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::contract::StepResult;
    use crate::process::reply::Completion;
    use crate::sched::body::MOST_SPARE;
    use crate::sched::mailbox::Signal;

    /// Holds a value, and is as large as `SIZE` says.
    struct Holder<const SIZE: usize> {
        _held: Arc<()>,
        _room: [u8; SIZE],
    }

    impl<const SIZE: usize> Process for Holder<SIZE> {
        type Message = Arc<()>;
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, Arc<()>>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    fn body<const SIZE: usize>(spares: &mut Spares, held: &Arc<()>) -> Ready {
        body_in(spares, Holder { _held: held.clone(), _room: [0; SIZE] }, Pid::FIRST)
    }

    fn place(body: &Ready) -> *const () {
        (&raw const **body).cast()
    }

    #[test]
    fn the_memory_of_an_ended_process_is_reused_only_by_its_type() {
        let (mut spares, held) = (Spares::default(), Arc::new(()));
        let ended = body::<8>(&mut spares, &held);
        let memory = place(&ended);
        spares.keep(ended);
        let next = body::<8>(&mut spares, &held);
        assert_eq!(place(&next), memory);
        spares.keep(next);
        let other = body::<80>(&mut spares, &held);
        assert_eq!((other.machine.kind().process)(), type_name::<Holder<80>>());
        assert!(spares.is_empty(), "what does not serve is not kept for ever");
    }

    #[test]
    fn reused_memory_holds_nothing_of_the_ended_process() {
        let (mut spares, held) = (Spares::default(), Arc::new(()));
        let mut ended = body::<8>(&mut spares, &held);
        let mailbox = (ended.machine.mailbox() as &mut dyn Any).downcast_mut::<Mailbox<Arc<()>>>().unwrap();
        (0..3).for_each(|_| mailbox.messages.push_parts(None, held.clone()));
        let given = Completion::from(None, 1, Ok(Box::new(held.clone())));
        mailbox.signal(Signal::Completed(given));
        let name: Arc<str> = Arc::from("somebody");
        ended.head.rare().name = Some(name.clone());
        ended.head.outstanding = 7;
        assert_eq!(Arc::strong_count(&held), 6);
        spares.keep(ended);
        assert_eq!((Arc::strong_count(&held), Arc::strong_count(&name)), (1, 1));
        let mut next = body::<8>(&mut spares, &held);
        assert!(next.head.rare.is_none() && next.head.outstanding == 0 && next.head.stage == Stage::New);
        assert_eq!((next.machine.mailbox().messages(), next.machine.mailbox().has_signals()), (0, false));
    }

    #[test]
    fn few_bodies_are_kept_and_no_large_ones() {
        let (mut spares, held) = (Spares::default(), Arc::new(()));
        let ended: Vec<_> = (0..MOST_SPARE + 10).map(|_| body::<8>(&mut spares, &held)).collect();
        ended.into_iter().for_each(|ended| spares.keep(ended));
        assert_eq!(std::iter::from_fn(|| spares.take()).count(), MOST_SPARE);
        let mut spares = Spares::default();
        let large = body::<LARGEST_SPARE>(&mut spares, &held);
        spares.keep(large);
        assert!(spares.is_empty());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
