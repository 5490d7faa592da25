//! A durable process in memory: a machine that stores each step of the user's process.
//!
//! **A step.** The machine calls the user's `step`. If it succeeds, the machine encodes the state, and makes one record
//! of it, of the messages that were taken, and of the messages to processes of the store. It appends the record to the
//! tail, and the messages go on at once. All other yields are *held* until the record that they rest on is on disk.
//! Then the process has a turn that performs them. A step that changes nothing makes no record.
//!
//! **A step that fails** has no effects. The state of the last record is decoded again, and the messages are offered
//! again, one by one, after a pause. After [`ATTEMPTS`] attempts the process is parked.
//!
//! **An older state** is migrated when it is decoded. The store has the old bytes with their version until a step of
//! the process is stored. So a failed step decodes them as the load did, and a process that is parked before its first
//! step can go back to the older program.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::mem::{replace, take};
use std::time::Duration;

use super::contract::{Durable, Encoded, decode_state};
use super::core::{StepError, StoreCore};
use super::held::Held;
use super::journal::Position;
use super::mail_tap::MailTap;
use super::next_kind::NextKind;
use super::outside::OutsideSeen;
use super::residency::{Call, Resident, Taken};
use super::rest::Sleeper;
use super::results::is_shutdown;
use super::rows::{Rest, StoredExit, StoredHead};
use super::ties::Ties;
use crate::outcome::{BoxError, Exit, Failure, contain, drop_contained, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Weak, lock};
use crate::process::event::Tap;
use crate::process::propagation::{StepEnd, end_span, take_failed};
use crate::process::reply::{QuestionKey, ReplyKey, note_dropped};
use crate::process::step_activity::Sight;
use crate::process::{EntryArgs, WaitedForNothing};
use crate::sched::body::{Begun, Head, Kind, LastWord, Machine, StepOutput, Stepped, Successor, TurnNote, Verdict};
use crate::sched::feeds::{AnyFeeds, AnyNewFeed, FeedHost};
use crate::sched::machine::Typed;
use crate::sched::mailbox::{AnyMailbox, Mailbox};

#[cfg(all(test, not(loom)))]
mod tests;

/// The number of attempts of a step before its process is parked.
pub(super) const ATTEMPTS: u32 = 5;

/// The pause after the first failed attempt. It doubles.
const PAUSE: Duration = Duration::from_secs(1);

/// The machine of a durable process.
pub(super) struct DurableMachine<P: Durable> {
    pub(super) typed: Typed<P>,
    pub(super) store: Arc<StoreCore>,
    pub(super) resident: Arc<Resident>,
    /// The state as its last record has it.
    pub(super) state: Vec<u8>,
    /// The version of that state. It is older than the program's until a step of a migrated process is stored.
    pub(super) version: u32,
    /// All else, as its last record has it.
    pub(super) stored: StoredHead,
    /// The classes of the timers and commands that are stored, by their tags.
    pub(super) open: BTreeMap<u64, u8>,
    /// The tags of its commands whose traces are stored.
    pub(super) traces: BTreeSet<u64>,
    pub(super) ties: Ties,
    /// The last record that the process rests on.
    pub(super) rests_on: Position,
    /// The record about which it has asked last, in a rewind, whether it is on disk.
    pub(super) rewound_at: Option<Position>,
    pub(super) held: VecDeque<Held>,
    /// The replies that the state has, as its last record has it.
    pub(super) replies: Vec<ReplyKey>,
    /// The replies to stored questions that the state has, as its last record has it, by the numbers of the questions.
    pub(super) kept: BTreeMap<u64, QuestionKey>,
    pub(super) stage: Stage,
    /// Whether `init` was called, or `resumed`.
    pub(super) is_entered: bool,
    /// Whether `init` was never called.
    pub(super) is_new: bool,
    /// Whether it waits until the tail has room.
    pub(super) waits_for_room: bool,
    /// The last record for which its next step has waited.
    pub(super) waits_for_disk: Position,
    /// Whether the log has been told of its large state.
    pub(super) is_reported: bool,
    /// The kind that it has after a step that upgrades it.
    pub(super) next_kind: Option<NextKind>,
    /// The failed attempts in a row.
    pub(super) attempts: u32,
    /// The serial numbers of the linked processes whose ends are events in its mailbox.
    pub(super) offered: BTreeSet<u64>,
    pub(super) outside: OutsideSeen,
    /// Set when it leaves memory to sleep.
    pub(super) sleeper: Option<Sleeper>,
    /// The last failure, for a trace.
    pub(super) failed: Option<TurnNote>,
    /// Given to steps that no watchdog looks at. A step with a sight tells the tap of its events.
    pub(super) sight: Sight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// A step has failed, and is tried again later.
    Pausing,
    /// It runs nothing until an operator repairs it.
    Parked,
    /// It has ended, and its last yields are held.
    Ended,
    /// It leaves memory when its yields are released.
    Leaving,
    /// It leaves memory now.
    Gone,
}

impl<P: Durable> DurableMachine<P> {
    /// Calls `init` and `start`, or `resumed`. Then the process is stepped as any other.
    fn enter_process(&mut self, head: &mut Head, out: &mut StepOutput) -> Result<(), Failure> {
        let Some(process) = self.typed.process_mut() else { return Ok(()) };
        let entered = if self.is_new {
            out.begin(head);
            let entered = contain(|| {
                process.init(EntryArgs::new(P::type_name, None))?;
                process.start(out)
            });
            out.end(head);
            entered
        } else {
            contain(|| {
                process.resumed();
                Ok(())
            })
        };
        match entered {
            Ok(Ok(())) => {
                self.is_entered = true;
                self.store.note_active(&self.resident);
                Ok(())
            }
            Ok(Err(error)) => Err(Failure::from(error)),
            Err(panic) => Err(Failure::new(panic)),
        }
    }

    /// Undoes a step that has failed. Returns the result of the turn.
    fn fail(
        &mut self,
        head: &mut Head,
        out: &mut StepOutput,
        taken: Taken,
        (tags, failure, questions): (u64, Failure, u32),
    ) -> Stepped {
        self.next_kind = None;
        let trace = if out.outbox.has_traces() {
            // For the runtime, the process goes on. If the step has panicked, the span has ended already.
            end_span(StepEnd::Failed(&Exit::Failed(failure.clone())));
            take_failed()
        } else {
            None
        };
        drop_contained(out.failure.take());
        drop_contained(out.successor.take());
        out.renounce();
        out.clear();
        head.outstanding = head.outstanding.saturating_sub((head.tags - tags) as u32);
        head.tags = tags;
        self.attempts += 1;
        let state = Encoded { format: self.stored.format, bytes: &self.state };
        let (decoded, _) = self.store.code(|| contain(|| decode_state(self.version, state)));
        let decoded: Result<P, BoxError> = decoded.unwrap_or_else(|panic| Err(Box::new(panic)));
        let mut error = format!("{failure}");
        if self.is_entered {
            self.typed.close();
        }
        self.is_entered = false;
        let is_readable = match decoded {
            Ok(process) => {
                drop_contained(self.typed.replace_process(process));
                true
            }
            Err(unreadable) => {
                error = format!("{error}; and its last state cannot be read: {unreadable}");
                false
            }
        };
        let mut event = taken.one();
        let lost = self.offer_again(taken, trace);
        let is_readable = is_readable && lost.is_none();
        let (pid, attempts) = (self.resident.pid, self.attempts);
        // Questions are not offered again.
        let over = Stepped { taken: questions, ..Stepped::without_a_step() };
        if !is_readable || attempts >= ATTEMPTS {
            if let Some((unreadable, why)) = lost {
                (error, event) = (why, Some(unreadable));
            }
            self.park(error, event);
            return over;
        }
        let pause = PAUSE.saturating_mul(1 << (attempts - 1));
        self.note_failure(&error, pause);
        tell_log(|| tracing::warn!(%pid, process = P::NAME, error, attempts, ?pause, "a step failed, and is repeated"));
        self.stage = Stage::Pausing;
        self.store.retry_later(&self.resident, pause);
        over
    }

    /// Handles calls and the shutdown before the user's step. Returns the result of the turn if it has no step.
    fn before_step(&mut self) -> Option<Stepped> {
        if self.resident.is_called(Call::Leave) {
            return Some(self.leave_rewound(0));
        }
        if self.stage != Stage::Ended
            && let Some(signals) = &self.typed.waiting().signals
            && signals.control.iter().any(is_shutdown)
        {
            self.leave_soon();
        }
        if self.resident.take_call(Call::Retry) && self.stage == Stage::Pausing {
            self.stage = Stage::Open;
        }
        if self.resident.take_call(Call::Repair) && !matches!(self.stage, Stage::Ended | Stage::Gone) {
            self.leave_soon();
        }
        if self.resident.take_call(Call::Ends) && matches!(self.stage, Stage::Open | Stage::Pausing | Stage::Parked) {
            self.see_exits();
            self.offer_downs();
        }
        if self.resident.take_call(Call::Outside) && matches!(self.stage, Stage::Open | Stage::Pausing | Stage::Parked)
        {
            self.see_outside();
        }
        if self.resident.is_called(Call::Terminate) && matches!(self.stage, Stage::Pausing | Stage::Parked) {
            self.stage = Stage::Open;
        }
        match self.stage {
            Stage::Open => (!(self.is_on_disk() && self.gets_room())).then(Stepped::without_a_step),
            Stage::Pausing => Some(Stepped::without_a_step()),
            Stage::Parked => {
                let subscriptions: Vec<_> = self.ties.subscriptions().collect();
                self.end_subscriptions(&subscriptions);
                Some(Stepped::without_a_step())
            }
            Stage::Ended | Stage::Leaving | Stage::Gone if self.may_go() => Some(self.leave()),
            Stage::Ended | Stage::Leaving | Stage::Gone => Some(Stepped::without_a_step()),
        }
    }

    /// The process is to leave memory. Meanwhile it begins no attempt of a command, because the next load would begin
    /// another one.
    fn leave_soon(&mut self) {
        self.stage = Stage::Leaving;
        self.resident.set_departs();
    }

    fn step_process(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped {
        let tags = head.tags;
        // Also of a process that cannot begin.
        if self.resident.take_call(Call::Terminate) {
            return self.finish_step(head, out, Taken::default(), tags, Stepped::TERMINATED);
        }
        if !self.is_entered {
            let is_new = self.is_new;
            if let Err(failure) = self.enter_process(head, out) {
                return self.fail(head, out, Taken::default(), (tags, failure, 0));
            }
            self.store.replies.give_up(self.resident.serial, &self.replies);
            if is_new {
                return self.finish_step(head, out, Taken::default(), tags, Stepped::AFTER_START);
            }
            if let Some(stepped) = self.give_up_lost(head, out) {
                return stepped;
            }
            if self.stored.rest == Rest::Blocking {
                self.stored.rest = Rest::Continue;
                return Stepped::BLOCKING;
            }
        }
        // The cell does not know that the process waits, after a turn without a step.
        head.waits = self.stored.rest == Rest::Wait;
        let rests = matches!(self.stored.rest, Rest::Idle | Rest::Wait);
        if rests && !self.typed.offers(head.waits) {
            return Stepped::without_a_step();
        }
        let tap = || MailTap { resident: self.resident.clone(), store: self.store.clone() };
        self.typed.tap(|| Tap::Record(Box::new(tap())));
        let budget = if self.attempts > 0 {
            lock(&self.resident.taken).only_one = true;
            // Messages that were put back cost nothing of the budget.
            u32::from(!self.typed.has_older())
        } else {
            budget
        };
        let step = || self.typed.step(head, out, budget, Some(sight.unwrap_or(&self.sight)));
        let (stepped, dropped) = note_dropped(step);
        let taken = Taken { dropped, ..take(&mut *lock(&self.resident.taken)) };
        self.finish_step(head, out, taken, tags, stepped)
    }

    fn finish_step(
        &mut self,
        head: &mut Head,
        out: &mut StepOutput,
        taken: Taken,
        tags: u64,
        stepped: Stepped,
    ) -> Stepped {
        let rest = match stepped.verdict {
            Verdict::Idle | Verdict::Declined => Ok((Rest::Idle, None)),
            Verdict::Wait if head.outstanding == 0 && !self.typed.waiting().has_signals() => {
                Err(StepError::Failed(Failure::new(WaitedForNothing)))
            }
            Verdict::Wait => Ok((Rest::Wait, None)),
            Verdict::Continue => Ok((Rest::Continue, None)),
            Verdict::Blocking => Ok((Rest::Blocking, None)),
            Verdict::Done if stepped.is_termination() => Ok((Rest::Idle, Some(self.end_of_one_terminated()))),
            Verdict::Done => self.output().map(|output| (Rest::Idle, Some(StoredExit::Done(output)))),
            Verdict::Upgrade => self.next_kind(out).map(|next| {
                self.next_kind = Some(next);
                (Rest::New, None)
            }),
            Verdict::Broken => {
                let exit = out.failure.take();
                if let Some(exit) = exit.as_ref().filter(|_| out.outbox.has_traces()) {
                    end_span(StepEnd::Failed(exit));
                }
                Err(StepError::Failed(match exit {
                    Some(Exit::Failed(failure)) => failure,
                    Some(Exit::Panicked(panic)) => Failure::new(panic),
                    other => Failure::from(BoxError::from(format!("{other:?}"))),
                }))
            }
        };
        let is_over = matches!(rest, Ok((_, Some(_))));
        if rest.is_ok() {
            out.note_draws(head);
        }
        let stored = rest.and_then(|(rest, exit)| self.store_step(head, out, &taken, rest, exit));
        self.after_store(head, out, (taken, tags), (stepped, is_over, stored))
    }

    /// The result of a turn whose step was stored, or not.
    pub(super) fn after_store(
        &mut self,
        head: &mut Head,
        out: &mut StepOutput,
        (taken, tags): (Taken, u64),
        (stepped, is_over, stored): (Stepped, bool, Result<(), StepError>),
    ) -> Stepped {
        let messages = if stepped.is_termination() { 0 } else { stepped.taken };
        match stored {
            Ok(()) => {
                self.attempts = 0;
                self.store.note_active(&self.resident);
                if self.next_kind.is_some() {
                    self.leave_upgraded();
                    return Stepped { taken: stepped.taken, ..Stepped::without_a_step() };
                }
                if !is_over {
                    let signals = stepped.signals || self.typed.waiting().has_signals();
                    return Stepped { signals, ..stepped };
                }
                self.stage = Stage::Ended;
                let taken = if stepped.is_termination() { 0 } else { stepped.taken };
                Stepped { taken, ..Stepped::without_a_step() }
            }
            Err(StepError::Failed(failure)) => {
                let questions = messages.saturating_sub(taken.mail.len() as u32);
                self.fail(head, out, taken, (tags, failure, questions))
            }
            Err(StepError::Rewound) => {
                if out.outbox.has_traces() {
                    let why = "the store has not taken its record, so the step is undone";
                    end_span(StepEnd::Failed(&Exit::Failed(Failure::from(BoxError::from(why)))));
                }
                self.resident.note(Call::Leave);
                out.renounce();
                out.clear();
                // Stored messages are on disk, or lost. They are counted when they are loaded.
                self.store.take_back(taken.mail.len() as u64);
                self.leave_rewound(messages.saturating_sub(taken.mail.len() as u32))
            }
        }
    }
}

impl<P: Durable> Machine for DurableMachine<P> {
    fn kind(&self) -> &'static Kind {
        self.typed.kind()
    }

    fn mailbox(&mut self) -> &mut dyn AnyMailbox {
        self.typed.mailbox()
    }

    /// The process is entered in its first step, which can be repeated.
    fn enter(&mut self) -> Result<(), Exit> {
        Ok(())
    }

    fn begin(&mut self, _: &mut Head, _: &mut StepOutput, _: &AtomicUsize) -> Begun {
        Begun::Plain
    }

    fn start(&mut self, _: &mut Head, _: &mut StepOutput) -> Begun {
        Begun::Plain
    }

    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped {
        if let Some(stepped) = self.before_step().or_else(|| self.sleep(head)) {
            return stepped;
        }
        let local = replace(&mut head.pid, self.resident.pid);
        // They were loaded for the PID of this run.
        out.load_draws(head);
        let stepped = self.step_process(head, out, budget, sight);
        head.pid = local;
        stepped
    }

    fn release(&mut self, out: &mut StepOutput) -> bool {
        if !self.has_released() {
            return false;
        }
        let Some(mut held) = self.held.pop_front() else { return false };
        self.forget_replies(&mut held);
        held.put_into(out);
        true
    }

    fn is_due(&self) -> bool {
        self.resident.has_calls() || matches!(self.stage, Stage::Ended | Stage::Leaving) && self.may_go()
    }

    fn passes_hold(&self) -> bool {
        self.resident.passes_hold()
    }

    fn held(&self) -> usize {
        self.typed.held()
    }

    fn keeps_unseen(&self) -> bool {
        self.typed.keeps_unseen()
    }

    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>> {
        self.typed.push_out(most)
    }

    fn recover(&mut self, _: &Exit) -> Option<Box<Successor>> {
        None
    }

    fn close(&mut self) {
        if self.is_entered {
            self.typed.close();
        }
    }

    fn take_output(&mut self) -> Option<Box<dyn Any + Send>> {
        None
    }

    fn last_word(&mut self, exit: &Exit) -> Option<LastWord> {
        Some(self.depart(exit))
    }

    fn left(&mut self) -> &mut dyn AnyMailbox {
        self.typed.left();
        let mut left = replace(self.typed.waiting(), Mailbox::new());
        self.sift(&mut left);
        *self.typed.waiting() = left;
        self.typed.waiting()
    }

    fn keep_stored(&mut self, inbox: &mut dyn AnyMailbox) {
        if let Some(inbox) = (inbox as &mut dyn Any).downcast_mut::<Mailbox<P::Message>>() {
            self.sift(inbox);
        }
    }

    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox> {
        self.typed.take_mailbox()
    }

    fn clear(&mut self) {
        self.typed.clear();
    }

    fn attach(&mut self, feed: Box<dyn AnyNewFeed>, host: Weak<dyn FeedHost>) {
        self.typed.attach(feed, host);
    }

    fn feeds(&mut self) -> Option<&mut dyn AnyFeeds> {
        self.typed.feeds()
    }

    fn take_feeds(&mut self) -> Option<Box<dyn AnyFeeds>> {
        self.typed.take_feeds()
    }

    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>> {
        None
    }

    fn turn_note(&mut self) -> Option<TurnNote> {
        self.note_of_turn()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.typed.describe(f)
    }

    fn process(&self) -> Option<&dyn Any> {
        Machine::process(&self.typed)
    }

    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        self.typed.show_messages(show);
    }
}
