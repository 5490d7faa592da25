//! The body of a process: what whoever steps it must have in hands, and what a step leaves behind.
//!
//! **The body is the permission.** At most one body of a process exists, in a `Box`, and it is in exactly one place:
//! at rest in the process's cell, in a queue, or in the hands of a worker. Who holds it may step the process. That a
//! process is stepped by one thread at a time is therefore not kept by a flag but by ownership.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::mailbox::{AnyMailbox, Bound, Control};
use super::open_asks::{OpenAsks, SpareAsks};
use super::outbox::Outbox;
use crate::cancel::CancelToken;
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::command::{CommandError, INCARNATION_SHIFT};
use crate::process::handler::BoxedCommand;
use crate::process::host::Near;
pub(crate) use crate::process::host::{Host, NoVacancy};
use crate::process::names::Naming;
use crate::process::names::PendingNames;
use crate::process::relation::{Bond, Relate};
use crate::process::reply::{AskLink, PendingReply, ProcessAsk};
use crate::process::target::NoSuchProcessError;
use crate::timer::TimerKey;

/// A process, in the hands of whoever owns this.
pub(crate) struct Body<T: ?Sized = dyn Machine> {
    pub(crate) head: Head,
    pub(crate) machine: T,
}

/// A body that may be stepped.
pub(crate) type Ready = Box<Body>;

/// What is the same for every type of process.
pub(crate) struct Head {
    pub(crate) pid: Pid,
    /// Commands yielded whose answers have not arrived.
    pub(crate) outstanding: u32,
    /// Tags given out.
    pub(crate) tags: u64,
    /// The last step said `Wait`: the next one is given no messages.
    pub(crate) waits: bool,
    /// Turns to let pass before the next step, and a flag of the worker's.
    pub(crate) passes: u8,
    pub(crate) stage: Stage,
    /// The log was told that a step took nothing of what it was offered.
    pub(crate) warned: bool,
    pub(crate) rare: Option<Box<Rare>>,
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// `init` has not been called.
    New,
    /// `init` has been called, and `close` has not.
    Open,
    Closed,
    /// Closed, and done: what its last step has yielded does not end with it.
    Done,
}

/// What most processes do not have.
#[derive(Default)]
pub(crate) struct Rare {
    pub(crate) name: Option<Arc<str>>,
    /// Cancelled when the process has ended: for its blocking closures and handlers.
    pub(crate) cancel: Option<CancelToken>,
    /// Pending timers by tag, and some that have fired. A timer for never has no key.
    pub(crate) timers: HashMap<u64, Option<TimerKey>>,
    /// At how many timers to look for those that have fired.
    timers_full: usize,
    pub(crate) asked: OpenAsks,
    /// The mailbox, if it has a bound, while the body is at rest.
    pub(crate) bounded: Option<Box<dyn AnyMailbox>>,
    pub(crate) bound: Option<Bound>,
    /// Exits of linked processes are events from the beginning.
    pub(crate) traps: bool,
    /// The process has its name: it does not take it once more when its state machine is replaced.
    pub(crate) is_named: bool,
    pub(crate) given: Option<Box<Given>>,
    pub(crate) bond: Option<Bond>,
    /// Whose command is answered when `init` has returned, and which.
    pub(crate) begun: Option<(Pid, u64)>,
}

/// What few spawners give.
#[derive(Default)]
pub(crate) struct Given {
    /// Groups that the process joins when its first `init` has returned.
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) recover: Option<RecoverWith>,
}

/// What replaces a state machine that has failed with this exit, if anything.
type Recover = dyn FnMut(&Exit) -> Option<Box<dyn Successor>> + Send;

/// OpenAsks what replaces a state machine that has failed, when its own `recover` gives nothing.
pub(crate) struct RecoverWith {
    /// Contained.
    pub(crate) recover: Box<Recover>,
    /// The output of what it returns, with the name of the type.
    pub(crate) output: (TypeId, &'static str),
}

impl Head {
    pub(crate) fn new(pid: Pid) -> Head {
        Head { pid, outstanding: 0, tags: 0, waits: false, passes: 0, stage: Stage::New, warned: false, rare: None }
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.name.as_ref()
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        self.rare.as_ref()?.bound
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.bound().is_some()
    }

    /// A timer was set. Now and then those that are due are forgotten, so that one who sets timers for ever does not
    /// remember them for ever; it costs each timer no more than a constant.
    pub(crate) fn timers_set(&mut self, tag: u64, key: Option<TimerKey>, now: impl FnOnce() -> Instant) {
        let rare = self.rare();
        if rare.timers.len() >= rare.timers_full {
            let now = now();
            rare.timers.retain(|_, key| key.is_none_or(|key| key.moment() > now));
            rare.timers_full = (rare.timers.len() * 2).max(16);
        }
        rare.timers.insert(tag, key);
    }

    /// The one command that is outstanding, if there is no other and it is an ask that is open.
    pub(crate) fn only_ask(&self) -> Option<&Arc<ProcessAsk>> {
        if self.outstanding == 1 { self.rare.as_ref()?.asked.newest() } else { None }
    }

    /// The process that alone can answer that ask.
    pub(crate) fn waits_for(&self) -> Option<Pid> {
        self.only_ask()?.waits_for()
    }

    /// The state machine has failed, and the next one begins with nothing outstanding. The incarnation of its commands.
    pub(crate) fn next_incarnation(&mut self) -> u16 {
        self.tags = self.tags.wrapping_add(1 << INCARNATION_SHIFT);
        self.outstanding = 0;
        (self.tags >> INCARNATION_SHIFT) as u16
    }

    /// Answers have arrived.
    pub(crate) fn answered(&mut self, completions: u32) {
        self.outstanding = self.outstanding.saturating_sub(completions);
    }
}

/// What is known of a type of process without one at hand.
pub(crate) struct Kind {
    pub(crate) process: fn() -> &'static str,
    pub(crate) message_name: fn() -> &'static str,
    pub(crate) new_mailbox: fn() -> Box<dyn AnyMailbox>,
    pub(crate) new_bounded: fn(Bound) -> Box<dyn AnyMailbox>,
}

/// Sets the exit that joiners wait for. If there are wakers or callbacks, it asks the given function whether to call
/// them now; else they come back.
pub(crate) type LastWord = Box<dyn FnOnce(&mut dyn FnMut() -> bool) -> Option<Box<dyn FnOnce() + Send>>>;

/// The user's state machine, of a type that is not known here.
pub(crate) trait Machine: Any + Send {
    fn kind(&self) -> &'static Kind;

    /// What the next steps will see.
    fn mailbox(&mut self) -> &mut dyn AnyMailbox;

    /// Calls `init`.
    fn enter(&mut self) -> Result<(), Exit>;

    /// Calls `step` once. `budget`: the most new events that it is given.
    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32) -> Stepped;

    /// Messages that it was given and that no step has taken.
    fn held(&self) -> usize;

    /// Takes out the oldest of these messages, so that no more than `most` are left.
    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>>;

    /// Calls `recover`: what replaces it, if anything.
    fn recover(&mut self, exit: &Exit) -> Option<Box<dyn Successor>>;

    /// Calls `close`.
    fn close(&mut self);

    /// What tells those who wait for the end, if anybody may wait. To be called when the body is gone.
    fn last_word(&mut self, exit: &Exit) -> Option<LastWord>;

    /// What waits, with what steps have passed over, when there will be no step any more.
    fn left(&mut self) -> &mut dyn AnyMailbox;

    /// Takes out what waits.
    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox>;

    /// Lets go of all that is left, each value contained.
    fn clear(&mut self);

    /// Takes out where the end is told, for a successor with the same output.
    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>>;
}

/// What a step came to. Small, so that it travels in registers; what few steps have is left in the output.
#[derive(Clone, Copy)]
pub(crate) struct Stepped {
    pub(crate) verdict: Verdict,
    /// Whether messages are left that it has not been shown.
    pub(crate) unseen: bool,
    /// Whether signals are left.
    pub(crate) signals: bool,
    /// Messages that it took.
    pub(crate) taken: u32,
}

impl Stepped {
    /// There was nobody to be stepped.
    pub(crate) const OF_NOBODY: Stepped = Stepped { verdict: Verdict::Broken, unseen: false, signals: false, taken: 0 };
}

/// The most bodies of ended processes whose memory is kept for the next ones.
pub(crate) const MOST_SPARE: usize = 256;

/// A body larger than so many bytes is not kept.
pub(crate) const LARGEST_SPARE: usize = 512;

/// Bodies of ended processes. Who spawns mostly spawns the same type again and again, and the memory of the last one,
/// still in the cache, costs less than what the allocator would look for.
#[derive(Default)]
pub(crate) struct Spares(Vec<Ready>);

impl Spares {
    /// Lets go of all that the body holds, and keeps it.
    #[inline]
    pub(crate) fn keep(&mut self, mut ended: Ready) {
        if self.0.len() >= MOST_SPARE || size_of_val(&*ended) > LARGEST_SPARE {
            // Where it lies: it may be larger than the stack.
            drop_contained(ended);
            return;
        }
        ended.machine.clear();
        if ended.head.rare.is_some() {
            drop_contained(ended.head.rare.take());
        }
        self.0.push(ended);
    }

    /// The last one. Whoever cannot use it drops it, so that those of a type that is spawned no more do not stay for
    /// ever.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Ready> {
        self.0.pop()
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the process wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Continue,
    Idle,
    /// The same, and it took nothing of what it was offered: not to be offered the same again.
    Declined,
    Wait,
    Blocking,
    Done,
    /// It failed or panicked; how is in [`StepOutput::failure`].
    Broken,
    /// By what is in [`StepOutput::successor`].
    Upgrade,
}

/// The state machine that replaces another.
pub(crate) trait Successor: Send {
    /// A body for the same process, with whatever waited in the old one. Also what waited and is of another type.
    fn succeed(self: Box<Self>, old: Ready) -> (Ready, Option<Box<dyn AnyMailbox>>);

    /// Whether it also replaces one that has failed and was asked to stop.
    fn even_if_stopping(&mut self) -> &mut bool;

    /// Signals that its predecessor has taken, and that it is given again.
    fn given_back(&mut self) -> &mut Vec<Control>;
}

/// What a step writes its yields to: data, performed in order after the step has returned `Ok`, and not at all if it
/// fails.
pub struct StepOutput {
    pub(crate) pid: Pid,
    pub(crate) tags: u64,
    /// The order of the yields. Sends are frequent and small, so they stand here themselves.
    pub(crate) orders: Vec<Order>,
    /// What the other orders are, one after the other.
    pub(crate) yields: Vec<Yield>,
    pub(crate) outbox: Outbox,
    pub(crate) link: Arc<dyn Host>,
    /// For the questions of this output.
    pub(crate) ask_link: Arc<dyn AskLink>,
    /// PIDs at hand, so that a spawn within a step needs nobody else.
    pub(crate) stock: Vec<Pid>,
    /// Memory at hand for the same.
    pub(crate) spares: Spares,
    /// The same for its questions.
    pub(crate) spare_asks: SpareAsks,
    /// Numbers at hand for monitors.
    pub(crate) monitors: Range<u64>,
    /// Only if the step gives or takes names.
    pub(crate) pending_names: Option<Box<PendingNames>>,
    /// How the step failed, if it did.
    pub(crate) failure: Option<Exit>,
    /// What the process is to be replaced by, if it is.
    pub(crate) successor: Option<Box<dyn Successor>>,
}

/// One yield, in its place among the others.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// The next `count` messages of a lane, all of them to one receiver.
    Send { lane: u32, count: u32, to: Pid },
    /// The next of the other yields.
    Next,
}

/// Something that a step wants done, other than a message sent.
pub(crate) enum Yield {
    /// The next message of a lane, which asks.
    Ask {
        lane: u32,
        to: Pid,
        ask: Arc<ProcessAsk>,
        limit: Duration,
    },
    /// The next message of a lane, sent to a name that nobody has.
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
    Naming {
        tag: u64,
        naming: Box<Naming>,
    },
    /// It is done.
    Performed,
}

/// A blocking closure and its result.
pub(crate) type Work = Box<dyn FnOnce(&CancelToken) -> Box<dyn Any + Send> + Send>;

/// Orders are kept in a buffer of at most this many from one busy time to the next.
const KEPT_ORDERS: usize = 4096;

impl StepOutput {
    pub(crate) fn new(link: Arc<dyn Host>) -> StepOutput {
        StepOutput {
            pid: link.nobody(),
            tags: 0,
            orders: Vec::new(),
            yields: Vec::new(),
            outbox: Outbox::default(),
            stock: Vec::new(),
            spares: Spares::default(),
            spare_asks: SpareAsks::default(),
            monitors: 0..0,
            pending_names: None,
            failure: None,
            successor: None,
            ask_link: Arc::new(Near::new(link.clone())),
            link,
        }
    }

    /// Makes ready for a step of this process.
    #[inline]
    pub(crate) fn begin(&mut self, head: &Head) {
        self.pid = head.pid;
        self.tags = head.tags;
    }

    /// The step has returned: what it has yielded is now the process's.
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

    /// The yields have been performed.
    #[inline]
    pub(crate) fn performed(&mut self) {
        self.orders.clear();
        if !self.yields.is_empty() {
            self.yields.clear();
        }
        if self.pending_names.is_some() {
            self.pending_names = None;
        }
        if self.orders.capacity() > KEPT_ORDERS {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.orders = Vec::new();
        self.yields = Vec::new();
        self.outbox.shrink();
    }

    /// For a process that goes on though the step has failed: its questions are decided, so that dropping them tells
    /// nobody.
    pub(crate) fn renounce(&self) {
        for one in &self.yields {
            if let Yield::Ask { ask, .. } = one {
                drop(ask.decide_with(Err(CommandError::Dropped)));
            }
        }
    }

    /// Drops what was yielded by a step that failed.
    pub(crate) fn clear(&mut self) {
        self.orders.clear();
        self.pending_names = None;
        for one in std::mem::take(&mut self.yields) {
            if let Yield::Spawn(body) = &one {
                // The PID was shown to a step, so no other process may have it.
                self.link.give_back_after(body.head.pid);
            }
            drop_contained(one);
        }
        self.outbox.clear();
        if self.orders.capacity() > KEPT_ORDERS {
            self.orders = Vec::new();
        }
    }
}

impl std::fmt::Debug for StepOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepOutput").field("pid", &self.pid).field("yields", &self.orders.len()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
