//! The body of a process: all that a worker needs to step it, and the yields of a step.
//!
//! **The body is the permission.** At most one body of a process exists, in a `Box`, and it is in exactly one place:
//! at rest in the process's cell, in a queue, or in the hands of a worker. The owner of the body may step the
//! process. So ownership, and not a flag, guarantees that only one thread at a time steps the process.

use std::any::{Any, TypeId};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::bounded_mailbox::BoundedMailbox;
use super::feeds::{AnyFeeds, AnyNewFeed, FeedHost};
#[cfg(feature = "cluster")]
use super::lease::Lease;
use super::mailbox::{AnyMailbox, Bound, Control};
use super::open_asks::{OpenAsks, SpareAsks};
use super::open_work::OpenWork;
use super::orders::{Order, Orders};
use super::outbox::Outbox;
use super::residents::{BoxedFuture, Residents};
use super::room_queue::QueuedSend;
use super::signals::Signals;
use super::timer_records::TimerRecords;
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Weak};
use crate::process::command::{CommandError, INCARNATION_SHIFT};
use crate::process::duty::{CommandCancel, Duty, Entrust};
use crate::process::handler::BoxedCommand;
pub(crate) use crate::process::host::{CountedHost, Host};
use crate::process::names::{Naming, PendingNames};
use crate::process::no_such_process::NoSuchProcessError;
use crate::process::output_answer::OutputAnswer;
use crate::process::relation::{Bond, Monitor, Relate};
use crate::process::reply::{Ask, Completion, PendingReply};
use crate::process::step_activity::Sight;
use crate::random::Draws;

/// A process. Its owner may step it.
pub(crate) struct Body<T: ?Sized = dyn Machine> {
    pub(crate) head: Head,
    pub(crate) machine: T,
}

/// A body that may be stepped.
pub(crate) type Ready = Box<Body>;

/// The part of a body that is the same for every type of process.
pub(crate) struct Head {
    pub(crate) pid: Pid,
    /// The number of commands whose answers have not arrived.
    pub(crate) outstanding: u32,
    /// The number of tags given out.
    pub(crate) tags: u64,
    /// Whether the last step said `Wait`. Then the next one is given no messages.
    pub(crate) waits: bool,
    /// Turns to let pass before the next step, and a flag of the worker.
    pub(crate) passes: u8,
    pub(crate) stage: Stage,
    /// Whether a yield of the last step has been answered, and the answer is in the mailbox of the body.
    pub(crate) is_answered: bool,
    pub(crate) rare: Option<Box<Rare>>,
}

/// The stage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// `init` has not been called.
    New,
    /// `init` has been called when the process was spawned from outside. It has had no turn since.
    Initialised,
    /// `init` has been called, and `close` has not.
    Open,
    Closed,
    /// Closed and done. The yields of its last step remain in effect.
    Done,
}

/// A million processes that wait have a million heads.
const _: () = assert!(size_of::<Head>() <= 32);

/// The fields that most processes do not need.
// Those that a question needs come first, for the reason that `Signals` has.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Rare {
    pub(crate) asked: OpenAsks,
    /// Whether the process has, or has had, futures, feeds, a bound, a limit of events, or random numbers. Only then is
    /// there anything to do before and after its steps. Set with the first of them, and never reset.
    pub(crate) is_prepared: bool,
    /// Whether the process has feeds. They are with its state machine, because they have the type of its messages.
    pub(crate) has_feeds: bool,
    /// Whether the next turn begins with a look at woken futures and new items of feeds.
    pub(crate) poll_requested: bool,
    /// Whether that turn steps the process only if a future is ready, or a feed has a new item.
    pub(crate) only_polls: bool,
    /// The most new events that one step is given, if the process has a limit of its own. Otherwise zero.
    pub(crate) step_events: u32,
    /// Its commands that handlers and the pool work on.
    pub(crate) work: Option<Box<OpenWork>>,
    pub(crate) residents: Option<Box<Residents>>,
    /// The bounded mailbox, if there is one, while the body is at rest.
    pub(crate) bounded: Option<Box<BoundedMailbox>>,
    pub(crate) name: Option<Arc<str>>,
    /// The PID by which others know the process, if it is another than that of its cell.
    pub(crate) known_as: Option<Pid>,
    pub(crate) timers: TimerRecords,
    pub(crate) bound: Option<Bound>,
    /// The step after which the process was held, until that is settled.
    pub(crate) held_after: Option<Stepped>,
    /// Whether the process is never held.
    pub(crate) never_held: bool,
    /// Whether a warning was logged about a step that took none of the events it was given.
    pub(crate) warned: bool,
    /// Whether exits of linked processes are events from the beginning.
    pub(crate) traps: bool,
    /// Whether the process makes the attempts of a retry.
    pub(crate) is_helper: bool,
    /// Whether the process has its name. It does not take the name again when its state machine is replaced.
    pub(crate) is_named: bool,
    pub(crate) given: Option<Box<Given>>,
    pub(crate) bond: Option<Bond>,
    /// The command to answer when `init` has returned.
    pub(crate) begun: Option<StartReport>,
    /// The leases of the unique names that the process holds.
    #[cfg(feature = "cluster")]
    pub(crate) leases: Vec<Arc<Lease>>,
    /// The number of random numbers that the process has drawn.
    pub(crate) draws: u64,
}

/// A command that is answered when `init` of a new process has returned.
#[derive(Clone, Copy)]
pub(crate) struct StartReport {
    /// The process that waits for the answer. It may live on another node.
    pub(crate) to: Pid,
    pub(crate) tag: u64,
    /// Makes the answer of the new process, and of the monitor that its spawner has of it.
    pub(crate) answer: fn(Pid, Option<Monitor>) -> Box<dyn Any + Send>,
}

/// Options that few spawners set.
#[derive(Default)]
pub(crate) struct Given {
    /// Groups that the process joins when its first `init` has returned.
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) recover: Option<RecoverWith>,
    /// The duty to answer the parent with the output, if the parent runs the process.
    pub(crate) answer: Option<OutputAnswer>,
}

/// Returns the replacement for a state machine that has failed with this exit, if there is one.
type Recover = dyn FnMut(&Exit) -> Option<Box<Successor>> + Send;

/// The function that replaces a state machine that has failed and whose own `recover` returns nothing.
pub(crate) struct RecoverWith {
    /// Its panics are contained.
    pub(crate) recover: Box<Recover>,
    /// The output type of the replacement, and the name of the type.
    pub(crate) output: (TypeId, &'static str),
}

impl Head {
    pub(crate) fn new(pid: Pid) -> Head {
        Head {
            pid,
            outstanding: 0,
            tags: 0,
            waits: false,
            passes: 0,
            stage: Stage::New,
            is_answered: false,
            rare: None,
        }
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// The PID by which the receivers of its messages know the process.
    pub(crate) fn sender(&self) -> Pid {
        self.rare.as_ref().and_then(|rare| rare.known_as).unwrap_or(self.pid)
    }

    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.name.as_ref()
    }

    /// Whether something is to be done between `init` and `start`: it joins groups, its parent is notified, or its
    /// random numbers are loaded.
    #[inline]
    pub(crate) fn begins_in_stages(&self) -> bool {
        let Some(rare) = &self.rare else { return false };
        rare.begun.is_some() || rare.is_prepared || rare.given.is_some()
    }

    /// Whether the output is the answer to a command of the parent.
    pub(crate) fn answers_with_output(&self) -> bool {
        self.rare.as_ref().and_then(|rare| rare.given.as_ref()).is_some_and(|given| given.answer.is_some())
    }

    /// Whether the process is run by another, which still waits for the answer.
    pub(crate) fn is_answer_wanted(&self) -> bool {
        let answer = self.rare.as_ref().and_then(|rare| rare.given.as_ref()?.answer.as_ref());
        answer.is_some_and(OutputAnswer::is_open)
    }

    /// Takes the duty to answer the parent.
    pub(crate) fn take_answer(&mut self) -> Option<OutputAnswer> {
        self.rare.as_mut()?.given.as_mut()?.answer.take()
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        self.rare.as_ref()?.bound
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.bound().is_some()
    }

    /// As `rare`, for fields that matter before or after each step.
    pub(crate) fn prepared(&mut self) -> &mut Rare {
        let rare = self.rare();
        rare.is_prepared = true;
        rare
    }

    /// Whether there may be something to do before and after each step.
    #[inline]
    pub(crate) fn is_prepared(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_prepared)
    }

    /// Returns the futures of the process, if it has had any.
    pub(crate) fn residents(&mut self) -> Option<&mut Residents> {
        self.rare.as_mut()?.residents.as_deref_mut()
    }

    /// Marks the body: the next turn begins with polls. `only` says that no step is due.
    pub(crate) fn request_poll(&mut self, only: bool) {
        let rare = self.rare();
        (rare.poll_requested, rare.only_polls) = (true, only);
    }

    /// Whether the next turn begins with polls.
    pub(crate) fn is_poll_requested(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.poll_requested)
    }

    /// Returns the outstanding command, if there is exactly one and it is an open ask.
    pub(crate) fn only_ask(&self) -> Option<&Arc<Ask>> {
        if self.outstanding == 1 { self.rare.as_ref()?.asked.newest() } else { None }
    }

    /// Returns the process that alone can answer that ask.
    pub(crate) fn waits_for(&self) -> Option<Pid> {
        self.only_ask()?.waits_for()
    }

    /// Whether messages of this process may wait for room in a mailbox.
    pub(crate) fn has_queued_sends(&self) -> bool {
        let work = self.rare.as_ref().and_then(|rare| rare.work.as_ref());
        work.is_some_and(|work| !work.receivers().is_empty())
    }

    /// The number of outstanding commands, without questions and without timers that are not due yet.
    pub(crate) fn commands_at_work(&self, now: Instant) -> usize {
        let known = self.rare.as_ref().map_or(0, |rare| rare.timers.pending(now) + rare.asked.open());
        (self.outstanding as usize).saturating_sub(known)
    }

    /// Begins the next incarnation of a failed process, with nothing outstanding. Returns its number, for its
    /// commands.
    pub(crate) fn next_incarnation(&mut self) -> u16 {
        self.tags = self.tags.wrapping_add(1 << INCARNATION_SHIFT);
        self.outstanding = 0;
        (self.tags >> INCARNATION_SHIFT) as u16
    }

    /// Records that answers have arrived.
    pub(crate) fn answered(&mut self, completions: u32) {
        self.outstanding = self.outstanding.saturating_sub(completions);
    }
}

/// Facts about a type of process, without a value of it.
pub(crate) struct Kind {
    pub(crate) process: fn() -> &'static str,
    pub(crate) message_name: fn() -> &'static str,
    pub(crate) new_mailbox: fn() -> Box<dyn AnyMailbox>,
}

/// Sets the exit latch that joiners wait for. Returns the calls of wakers and callbacks, if there are any.
pub(crate) type LastWord = Box<dyn FnOnce() -> Option<Box<dyn FnOnce() + Send>>>;

/// An event of a trace that no verdict shows.
pub(crate) struct TurnNote {
    pub(crate) what: &'static str,
    pub(crate) text: String,
    /// Whether the process leaves memory, so that no event follows.
    pub(crate) is_last: bool,
}

/// The user's state machine, with its type erased.
pub(crate) trait Machine: Any + Send {
    fn kind(&self) -> &'static Kind;

    /// The events that the next steps will be given.
    fn mailbox(&mut self) -> &mut dyn AnyMailbox;

    /// The signals of the mailbox.
    #[inline]
    fn signals(&mut self) -> &mut Option<Box<Signals>> {
        self.mailbox().signals()
    }

    /// The type, and whether the mailbox has messages whose waits are measured. Called before each step for figures.
    fn kind_and_marks(&mut self) -> (&'static Kind, bool) {
        (self.kind(), self.signals().as_ref().is_some_and(|signals| !signals.waits.is_empty()))
    }

    /// Calls `init`.
    fn enter(&mut self) -> Result<(), Exit>;

    /// Calls `init` and then `start`. If something is to be done between the two, `start` is not called.
    fn begin(&mut self, head: &mut Head, out: &mut StepOutput, dooms: &AtomicUsize) -> Begun;

    /// Calls `start`.
    fn start(&mut self, head: &mut Head, out: &mut StepOutput) -> Begun;

    /// Calls `step` once, with at most `budget` new events. If there is a `sight`, the step shows its activity there.
    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped;

    /// Puts yields that earlier steps have left with the machine into `out`, if they are to be performed now. Returns
    /// whether there are any. Called when a turn begins and a poll was requested.
    fn release(&mut self, out: &mut StepOutput) -> bool;

    /// Whether a step is due although nothing has come. Asked when a turn begins and a poll was requested.
    fn is_due(&self) -> bool;

    /// Whether a call has come for which the process is not held. Asked under the lock of the cell.
    fn passes_hold(&self) -> bool;

    /// The number of messages that it was given and that no step has taken.
    fn held(&self) -> usize;

    /// Whether the last step has left messages that earlier steps had passed over, or items of feeds, and was not shown
    /// them.
    fn keeps_unseen(&self) -> bool;

    /// Removes the oldest of these messages until no more than `most` are left.
    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>>;

    /// Calls `recover`. Returns the replacement, if there is one.
    fn recover(&mut self, exit: &Exit) -> Option<Box<Successor>>;

    /// Calls `close`.
    fn close(&mut self);

    /// Takes the output of a process that is done, if it was kept.
    fn take_output(&mut self) -> Option<Box<dyn Any + Send>>;

    /// Returns the function that notifies those who wait for the end, if there may be any. Call it when the body is
    /// gone.
    fn last_word(&mut self, exit: &Exit) -> Option<LastWord>;

    /// The waiting events, together with those that steps have passed over. No step follows.
    fn left(&mut self) -> &mut dyn AnyMailbox;

    /// For a process that leaves memory: takes the messages out of its inbox that stay elsewhere, and are no dead
    /// letters.
    fn keep_stored(&mut self, inbox: &mut dyn AnyMailbox);

    /// Takes the waiting events out.
    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox>;

    /// Drops everything that is left. A panic of one value does not affect the others.
    fn clear(&mut self);

    /// Attaches a feed that a step has made.
    fn attach(&mut self, feed: Box<dyn AnyNewFeed>, host: Weak<dyn FeedHost>);

    /// Returns the feeds, if there are any.
    fn feeds(&mut self) -> Option<&mut dyn AnyFeeds>;

    /// Takes the feeds, for a successor.
    fn take_feeds(&mut self) -> Option<Box<dyn AnyFeeds>>;

    /// Takes the exit latch, for a successor with the same output.
    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>>;

    /// The event of the last turn, if its verdict does not show it. Only a trace asks.
    fn turn_note(&mut self) -> Option<TurnNote> {
        None
    }

    /// Calls `describe`.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The user's process. `None` if it has ended.
    fn process(&self) -> Option<&dyn Any>;

    /// Shows each message that it was given and that no step has taken, with its sender.
    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any));
}

/// Records the steps of some processes.
pub(crate) trait BodyRecorder: Any + Send + Sync {
    /// Replaces the machine of the body by one that records, if processes of its type are recorded. `entry` is that of
    /// a process whose `init` has been called.
    fn record(&self, body: &mut Ready, entry: Option<Vec<u8>>);

    /// Encodes the entry of a process that has not begun, if its type is recorded. It is empty if that is impossible.
    fn entry_of(&self, body: &Body) -> Option<Vec<u8>>;

    /// Saves the recording of a process whose step is stuck.
    fn stuck(&self, pid: Pid);
}

/// How far a process has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// `init` has failed. [`StepOutput::failure`] has the exit.
    NotEntered,
    /// `init` has returned, and `start` was not called.
    Entered,
    /// As `Entered`, but `init` was called before, when the process was spawned from outside.
    Initialised,
    /// `start` has returned, and nothing is left to be done for it.
    Plain,
    /// `start` has yielded, or it has failed. Then [`StepOutput::failure`] has the exit.
    Yields,
}

/// The result of a step. It is small, so that it travels in registers. Rare results stay in the output.
#[derive(Clone, Copy)]
pub(crate) struct Stepped {
    pub(crate) verdict: Verdict,
    /// Whether messages are left that the step has not been shown.
    pub(crate) unseen: bool,
    /// Whether signals are left.
    pub(crate) signals: bool,
    /// The number of messages that it took.
    pub(crate) taken: u32,
}

impl Stepped {
    /// The result if there was no process to step.
    pub(crate) const OF_NOBODY: Stepped = Stepped { verdict: Verdict::Broken, unseen: false, signals: false, taken: 0 };

    /// The number of messages that count as stepped. Those that a failed step has taken are dead.
    #[inline]
    pub(crate) fn messages(&self) -> u32 {
        if self.verdict == Verdict::Broken { 0 } else { self.taken }
    }
}

/// The most bodies of ended processes whose memory is kept for the next ones.
pub(crate) const MOST_SPARE: usize = 256;

/// The largest body, in bytes, whose memory is kept.
pub(crate) const LARGEST_SPARE: usize = 512;

/// Bodies of ended processes, kept for their memory.
///
/// A process that spawns mostly spawns the same type again. The memory of the last body is still in the cache, so it
/// costs less than a new allocation.
#[derive(Default)]
pub(crate) struct Spares(Vec<Ready>);

impl Spares {
    /// Drops the contents of the body, and keeps its memory.
    #[inline]
    pub(crate) fn keep(&mut self, mut ended: Ready) {
        if self.0.len() >= MOST_SPARE || size_of_val(&*ended) > LARGEST_SPARE {
            // Dropped in place: it may be larger than the stack.
            drop_contained(ended);
            return;
        }
        ended.machine.clear();
        if ended.head.rare.is_some() {
            drop_contained(ended.head.rare.take());
        }
        self.0.push(ended);
    }

    /// Takes the last one. A caller that cannot use it drops it. So bodies of a type that is no longer spawned do not
    /// stay for ever.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Ready> {
        self.0.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The request of a process after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Continue,
    Idle,
    /// As `Idle`, but the step took none of the events it was offered. They must not be offered alone again.
    Declined,
    Wait,
    Blocking,
    Done,
    /// It failed or panicked. [`StepOutput::failure`] has the exit.
    Broken,
    /// It is upgraded to [`StepOutput::successor`].
    Upgrade,
}

/// A state machine that replaces another.
pub(crate) struct Successor {
    /// Makes a body for the same process, with the events that waited in the old one. Also returns those of another
    /// type.
    pub(crate) succeed: Box<Succeed>,
    /// Whether it also replaces a state machine that has failed and was asked to stop.
    pub(crate) even_if_stopping: bool,
    /// Signals that its predecessor has taken, and that it is given again.
    pub(crate) given_back: Vec<Control>,
}

type Succeed = dyn FnOnce(Ready) -> (Ready, Option<Box<dyn AnyMailbox>>) + Send;

/// The output to which a step writes its yields.
///
/// Yields are data. They are performed in order after the step has returned `Ok`. If the step fails, they are
/// dropped.
pub struct StepOutput {
    pub(crate) pid: Pid,
    pub(crate) tags: u64,
    /// The order of the yields. Sends are frequent and small, so they are stored here themselves.
    pub(crate) orders: Orders,
    /// The yields of the other orders, one after the other.
    pub(crate) yields: Vec<Yield>,
    pub(crate) outbox: Outbox,
    /// The runtime. The questions of this output share it.
    pub(crate) link: CountedHost,
    /// Answers the questions of the step. That is the runtime, or the recorder between the two.
    pub(crate) reads: Arc<dyn Host>,
    /// PIDs in stock, so that a spawn within a step needs no shared state.
    pub(crate) stock: Vec<Pid>,
    /// Memory in stock for spawned processes.
    pub(crate) spares: Spares,
    /// Memory in stock for questions.
    pub(crate) spare_asks: SpareAsks,
    /// Numbers in stock for monitors.
    pub(crate) monitors: Range<u64>,
    /// Present only if the step changes names.
    pub(crate) pending_names: Option<Box<PendingNames>>,
    /// The random numbers that the process has drawn.
    pub(crate) draws: Draws,
    /// The output of a process that is being ended, and the process that gets it.
    pub(crate) output: Option<Box<(Pid, Completion)>>,
    /// Whether somebody looks at the counts.
    pub(crate) counts: bool,
    /// The counts of the step. They are no yields, because nobody can see in which order they are performed.
    pub(crate) counted: Vec<(&'static str, u64)>,
    /// The exit with which the step failed, if it did.
    pub(crate) failure: Option<Exit>,
    /// The replacement of the process, if there is one.
    pub(crate) successor: Option<Box<Successor>>,
    /// Takes the place of this output while it is lent.
    pub(crate) spare_output: Option<Box<StepOutput>>,
}

/// A yield other than a sent message.
pub(crate) enum Yield {
    /// The next message of a lane, which asks.
    Ask {
        lane: u32,
        to: Pid,
        ask: Arc<Ask>,
        limit: Duration,
    },
    /// The next messages of a lane, one to each of these receivers.
    Broadcast {
        lane: u32,
        to: Arc<[Pid]>,
    },
    /// The next message of a lane, sent to a name that no process has.
    SendNowhere {
        lane: u32,
        why: NoSuchProcessError,
    },
    /// A command that fails at once.
    Refused {
        tag: u64,
        why: Box<CommandError>,
    },
    Reply(PendingReply),
    Spawn(Ready),
    Blocking {
        tag: u64,
        work: Work,
    },
    Timer {
        tag: u64,
        delay: Duration,
    },
    CancelTimer {
        tag: u64,
    },
    Command {
        tag: u64,
        command: BoxedCommand,
    },
    CommandTimeout(Box<LimitedCommand>),
    CancelCommand {
        tag: u64,
    },
    SendTimeout(Box<SendRequest>),
    /// A command that is answered with the output of the process that is spawned next. Its limit begins.
    BeginRun {
        duty: Arc<Duty>,
        limit: Duration,
    },
    /// A command whose duty is given to the next process that is spawned.
    Entrust {
        tag: u64,
        entrust: Entrust,
    },
    /// A future, with the limit of its time.
    Future {
        tag: u64,
        future: BoxedFuture,
        limit: Duration,
    },
    CancelFuture {
        tag: u64,
    },
    Feed(Box<dyn AnyNewFeed>),
    Cancel {
        tag: u64,
        to: Pid,
        request: Box<(Reason, Option<Duration>)>,
    },
    Terminate {
        tag: u64,
        to: Pid,
    },
    Relate(Relate),
    /// The step has drawn random numbers. [`StepOutput::draws`] has the count.
    Drawn,
    Naming {
        tag: u64,
        naming: Box<Naming>,
    },
    /// It has been performed.
    Performed,
}

/// A command with a limit.
pub(crate) struct LimitedCommand {
    pub(crate) tag: u64,
    pub(crate) command: BoxedCommand,
    pub(crate) limit: Duration,
}

/// A message that is sent with a limit.
pub(crate) struct SendRequest {
    pub(crate) to: Result<Pid, NoSuchProcessError>,
    pub(crate) limit: Duration,
    pub(crate) send: QueuedSend,
}

/// A blocking closure and its result.
pub(crate) type Work = Box<dyn FnOnce(&CommandCancel) -> Box<dyn Any + Send> + Send>;

impl StepOutput {
    pub(crate) fn new(link: Arc<dyn Host>) -> StepOutput {
        StepOutput {
            pid: link.nobody(),
            draws: Draws::of(link.nobody(), 0),
            tags: 0,
            orders: Orders::default(),
            yields: Vec::new(),
            outbox: Outbox::with_traces(link.propagator()).with_sampler(link.wait_sampler()),
            stock: Vec::new(),
            spares: Spares::default(),
            spare_asks: SpareAsks::default(),
            monitors: 0..0,
            pending_names: None,
            output: None,
            counts: link.counts(),
            counted: Vec::new(),
            failure: None,
            successor: None,
            spare_output: None,
            reads: link.clone(),
            link: Arc::new(link),
        }
    }

    /// Prepares a step of this process.
    #[inline]
    pub(crate) fn begin(&mut self, head: &Head) {
        self.pid = head.pid;
        self.tags = head.tags;
    }

    /// Hands the tags and commands of a returned step to its process.
    #[inline]
    pub(crate) fn end(&self, head: &mut Head) {
        head.outstanding += (self.tags - head.tags) as u32;
        head.tags = self.tags;
    }

    #[inline]
    pub(crate) fn push(&mut self, one: Yield) {
        self.orders.push(Order::Next);
        self.yields.push(one);
    }

    /// Cleans up after the yields have been performed.
    #[inline]
    pub(crate) fn performed(&mut self) {
        self.orders.clear();
        if !self.yields.is_empty() {
            self.yields.clear();
        }
        if self.pending_names.is_some() {
            self.pending_names = None;
        }
        if self.orders.has_grown() {
            self.shrink();
        }
    }

    /// Frees large empty buffers.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        self.orders = Orders::default();
        self.yields = Vec::new();
        self.outbox.shrink();
    }

    /// Decides the questions of a process that goes on although its step has failed. So dropping them notifies
    /// nobody.
    pub(crate) fn renounce(&self) {
        for one in &self.yields {
            if let Yield::Ask { ask, .. } = one {
                drop(ask.decide(CommandError::Dropped));
            }
        }
    }

    /// Drops the yields of a step that failed.
    pub(crate) fn clear(&mut self) {
        self.orders.clear();
        self.counted.clear();
        self.draws.take_new();
        self.pending_names = None;
        for one in std::mem::take(&mut self.yields) {
            if let Yield::Spawn(body) = &one {
                // The PID was shown to a step, so no other process may get it.
                self.link.give_back_after(body.head.pid);
            }
            drop_contained(one);
        }
        self.outbox.clear();
        if self.orders.has_grown() {
            self.shrink();
        }
    }
}
