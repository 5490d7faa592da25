//! A stored command at work: a future of its process that hands out one attempt after the other.
//!
//! | stage | the future | until |
//! |---|---|---|
//! | **ready** | waits for a permit, if the handler has a limit, and stores the attempt | it is appended |
//! | **storing** | waits for the disk | the record is on disk |
//! | **working** | the handler is at work | the handler answers |
//! | **pausing** | waits; the error and the time of the next attempt are stored | that time, and then **ready** |
//! | **later** | waits for an answer from outside | it comes |
//!
//! In each stage the command may be answered from outside (`answering.rs`), and its limit may be over. The first
//! attempt of a handler without a limit is stored with the step that yields the command. So it needs no record of its
//! own.
//!
//! A process that is loaded begins with the stored stage. An attempt that may have been at work when the program ended
//! is over, and the next one follows at once. It follows also if there may be no further attempt by the plan of the
//! command, because the outcome of the last one is not known.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::command_type::CommandType;
use super::core::StoreCore;
use super::journal::{EncodedRecord, Record};
use super::residency::{Call, Resident};
use super::rows::{self, Phase, StoredAnswer, StoredCommand};
use super::tail::Fate;
use crate::cancel::CancelToken;
use crate::outcome::{BoxError, Reason, contain, drop_contained};
use crate::primitives::{Arc, AtomicBool, Mutex, Ordering, Weak, lock};
use crate::process::duty::Relay;
use crate::process::handler::BoxedCommand;
use crate::process::permits::Ticket;
use crate::process::{Answer, AnsweredLater, AnyHandler, Attempt, CommandError, CommandKey, Duty, Retry};
use crate::random::random_at;
use crate::runtime::{Core, Timed};
use crate::sched::residents::{AnyFuture, BoxedFuture};
use crate::sched::trace_marks::MessageTrace;
use crate::timer::TimerId;

/// A stored command, as a step has yielded it or as it was read.
pub(super) struct OpenCommand {
    pub(super) tag: u64,
    pub(super) kind: CommandType,
    /// Its value. `None` if it is answered.
    pub(super) command: Option<BoxedCommand>,
    pub(super) stored: StoredCommand,
    /// The plan of its attempts. The command is asked for it before a lock is taken.
    pub(super) retry: Retry,
    /// The trace in which the command was yielded. Its handler is called within this trace.
    pub(super) trace: MessageTrace,
    /// Whether its first attempt is stored, and was not handed out.
    pub(super) is_new: bool,
}

/// Asks a command, which is a user's value, for its plan.
pub(super) fn plan(kind: &CommandType, command: Option<&BoxedCommand>) -> Retry {
    let plan = |command: &BoxedCommand| contain(|| (kind.retry)(&*command.command)).ok();
    command.and_then(plan).unwrap_or_else(|| Retry::new().attempts(1))
}

pub(super) struct CommandFuture {
    store: Arc<StoreCore>,
    resident: Arc<Resident>,
    tag: u64,
    kind: CommandType,
    retry: Retry,
    /// The value for the next attempt. `None` if it is to be decoded again.
    command: Option<BoxedCommand>,
    stored: StoredCommand,
    stage: Stage,
    /// When all attempts together must be over.
    total_end: Option<Instant>,
    /// Set at the first poll.
    alarms: Option<Alarms>,
    /// Whether the process may leave memory meanwhile.
    rests: bool,
    is_over: bool,
}

enum Stage {
    Ready(Option<Ticket>),
    Storing(Arc<AtomicBool>, Option<Ticket>),
    Working(Work),
    Pausing(Option<Alarm>),
    Later,
}

/// An attempt at work.
enum Work {
    Future(BoxedFuture),
    /// The handler owns the duty. Its drop is an answer.
    Call(Weak<Duty>, Arc<AttemptAnswer>),
}

/// The answer of a handler, until the future is polled.
#[derive(Default)]
struct AttemptAnswer {
    inner: Mutex<(Option<Answer>, Option<Waker>)>,
}

struct AttemptRelay {
    answer: Arc<AttemptAnswer>,
    attempt: Attempt,
}

impl Relay for AttemptRelay {
    fn pass(&self, answer: Answer) {
        let waker = {
            let mut inner = lock(&self.answer.inner);
            inner.0 = Some(answer);
            inner.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn attempt(&self) -> Option<Attempt> {
        Some(self.attempt)
    }
}

impl AttemptAnswer {
    fn poll(&self, context: &Context<'_>) -> Poll<Answer> {
        let mut inner = lock(&self.inner);
        match inner.0.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                inner.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A timer that wakes the future.
struct Alarm {
    core: Weak<Core>,
    timer: Option<TimerId>,
    has_rung: Arc<AtomicBool>,
}

#[derive(Default)]
struct Alarms {
    limit: Option<Alarm>,
    total: Option<Alarm>,
}

impl Alarm {
    fn set(core: &Arc<Core>, delay: Duration, waker: &Waker) -> Alarm {
        let has_rung = Arc::new(AtomicBool::new(false));
        let (flag, waker) = (has_rung.clone(), waker.clone());
        let ring = move || {
            flag.store(true, Ordering::Release);
            waker.wake();
        };
        // Without timers the runtime is shutting down.
        let timer = core.timers.after(0, delay, Timed::Run(Box::new(ring))).ok().flatten().map(|key| key.id());
        Alarm { core: Arc::downgrade(core), timer, has_rung }
    }

    fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let (Some(core), Some(timer)) = (self.core.upgrade(), self.timer) {
            drop(core.timers.cancel(timer));
        }
    }
}

/// The next action after the answer of an attempt.
enum Next {
    Over(Answer),
    Pause(Duration, StoredAnswer),
    Later,
}

impl CommandFuture {
    /// Makes the future of a command of a process in memory.
    pub(super) fn new(store: Arc<StoreCore>, resident: Arc<Resident>, open: OpenCommand) -> CommandFuture {
        let OpenCommand { tag, kind, command, stored, retry, is_new, .. } = open;
        let answer = match &stored.phase {
            Phase::Answered(answer) => Some(answer.clone()),
            _ => None,
        };
        store.open_commands.open(resident.serial, tag, kind, answer);
        let stage = match stored.phase {
            Phase::Pausing { .. } => Stage::Pausing(None),
            Phase::Later => Stage::Later,
            _ if is_new => Stage::Storing(Arc::new(AtomicBool::new(true)), None),
            _ => Stage::Ready(None),
        };
        let mut future = CommandFuture {
            store,
            resident,
            tag,
            kind,
            retry,
            command,
            stored,
            stage,
            total_end: None,
            alarms: None,
            rests: false,
            is_over: false,
        };
        future.total_end = future.total_left().and_then(|left| future.store.core()?.road.clock.now().checked_add(left));
        future
    }

    pub(super) fn boxed(self) -> BoxedFuture {
        Box::pin(self)
    }

    fn left_until(&self, millis: u64) -> Duration {
        Duration::from_millis(millis.saturating_sub(self.store.wall_millis()))
    }

    /// The time that is left for all attempts together. `None` if there is no such limit.
    fn total_left(&self) -> Option<Duration> {
        let total = self.retry.limit();
        let millis = || u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        (total < Duration::MAX).then(|| self.left_until(self.stored.since.saturating_add(millis())))
    }

    fn set_alarms(&self, core: &Arc<Core>, waker: &Waker) -> Alarms {
        let limit = self.stored.deadline.map(|deadline| self.left_until(deadline));
        Alarms {
            limit: limit.map(|left| Alarm::set(core, left, waker)),
            total: self.total_left().map(|left| Alarm::set(core, left, waker)),
        }
    }

    /// The answer, if a limit is over.
    fn expired(&self) -> Option<Answer> {
        let has_rung = |alarm: Option<&Alarm>| alarm.is_some_and(Alarm::has_rung);
        let alarms = self.alarms.as_ref()?;
        let is_total_over = has_rung(alarms.total.as_ref());
        if has_rung(alarms.limit.as_ref()) {
            return Some(Err(CommandError::TimedOut));
        }
        match (&self.stage, &self.stored.phase) {
            (Stage::Later, _) => None,
            // There is no time for the next attempt.
            (Stage::Pausing(_), Phase::Pausing { error, .. }) if is_total_over => Some(self.decode(error)),
            _ => is_total_over.then_some(Err(CommandError::TimedOut)),
        }
    }

    fn decode(&self, stored: &StoredAnswer) -> Answer {
        let (decoded, _) = self.store.run.code(|| contain(|| self.kind.decode_answer(stored)));
        let decoded = decoded.unwrap_or_else(|panic| Err(Box::new(panic)));
        decoded.unwrap_or_else(|error| Err(CommandError::failed(error)))
    }

    /// Stores the progress of the command, unless it was answered from outside. Returns a flag that is set when that
    /// is on disk.
    fn store_phase(&mut self, phase: Phase, waker: &Waker) -> Option<Arc<AtomicBool>> {
        let (serial, tag) = (self.resident.serial, self.tag);
        self.stored.phase = phase;
        let change = rows::command(serial, tag, &self.stored).ok()?;
        let record = EncodedRecord::new(&Record { changes: vec![change] }).ok()?;
        let (tail, life) = (&self.store.tail, self.resident.life);
        let appended = self.store.open_commands.unless_answered(serial, tag, || tail.append(life, &record, None));
        // If it is refused, the process is about to leave memory.
        let position = appended?.ok()?;
        let is_stored = Arc::new(AtomicBool::new(false));
        let (flag, waker) = (is_stored.clone(), waker.clone());
        tail.when_released(life, position, move |fate| {
            if fate == Fate::Released {
                flag.store(true, Ordering::Release);
                waker.wake();
            }
        });
        Some(is_stored)
    }

    /// Calls the handler. Returns the answer if there is none to call.
    fn hand_out(&mut self, core: &Arc<Core>, ticket: Option<Ticket>) -> Result<Work, CommandError> {
        let command = match self.command.take() {
            Some(command) => command,
            None => {
                let decode = || (self.kind.decode)(&self.stored.command);
                let (decoded, _) = self.store.run.code(|| contain(decode));
                decoded.unwrap_or_else(|panic| Err(Box::new(panic))).map_err(CommandError::failed)?
            }
        };
        let key = CommandKey::new(self.store.id, self.resident.serial, self.tag);
        let attempt = Attempt { key, number: self.stored.attempt };
        let BoxedCommand { mut command, name } = command;
        contain(|| (self.kind.begin_attempt)(&mut *command, &attempt)).map_err(CommandError::Panicked)?;
        match core.handlers.get(&(*command).type_id()) {
            None => Err(CommandError::Unknown { name }),
            Some(AnyHandler::Async(handler)) => Ok(Work::Future(handler.future_with(command, ticket))),
            Some(AnyHandler::Call(handler)) => {
                let answer = Arc::new(AttemptAnswer::default());
                let relay = Box::new(AttemptRelay { answer: answer.clone(), attempt });
                let token = CancelToken::with_clock(core.road.clock.clone());
                let duty = Duty::with_relay(core.clone(), (self.resident.pid, self.tag), token, relay);
                let work = Work::Call(Arc::downgrade(&duty), answer);
                handler(command, duty);
                Ok(work)
            }
        }
    }

    /// Decides the next action after the answer of an attempt.
    fn judge(&self, core: &Core, answer: Answer) -> Next {
        let Err(error) = &answer else { return Next::Over(answer) };
        if let CommandError::Failed(failure) = error
            && failure.error().is::<AnsweredLater>()
        {
            return Next::Later;
        }
        let attempt = self.stored.attempt;
        let random = random_at(core.seed, self.resident.serial, self.tag << 16 ^ u64::from(attempt));
        let pause = contain(|| self.retry.next_pause(attempt, error, random)).ok().flatten();
        let has_time = |pause: &Duration| {
            let next = core.road.clock.now().checked_add(*pause);
            self.total_end.is_none_or(|end| next.is_some_and(|next| next < end))
        };
        match pause.filter(has_time).map(|pause| (pause, self.encode(&answer))) {
            Some((pause, Ok(error))) => Next::Pause(pause, error),
            // An error that cannot be stored is final.
            _ => Next::Over(answer),
        }
    }

    fn encode(&self, answer: &Answer) -> Result<StoredAnswer, BoxError> {
        let (encoded, _) = self.store.run.code(|| contain(|| (self.kind.encode_answer)(answer)));
        encoded.unwrap_or_else(|panic| Err(Box::new(panic)))
    }

    /// The command is answered. An answer from outside that came first is the answer.
    fn finish(&mut self, answer: Answer) -> Poll<Answer> {
        self.is_over = true;
        let stored = self.encode(&answer).ok();
        let first = self.store.open_commands.close(self.resident.serial, self.tag, stored);
        self.stop_work(Reason::Cancelled);
        Poll::Ready(first.map_or(answer, |first| self.decode(&first)))
    }

    /// Tells the handler that its answer is not needed any more.
    fn stop_work(&mut self, reason: Reason) {
        if let Stage::Working(Work::Call(duty, _)) = &self.stage
            && let Some(duty) = duty.upgrade()
            && duty.give_up()
        {
            duty.stop_work(reason);
        }
        self.enter(Stage::Later);
    }

    /// Begins a stage. The work of the last one may be a future of the user.
    fn enter(&mut self, stage: Stage) {
        drop_contained(std::mem::replace(&mut self.stage, stage));
    }

    /// Goes on with the next stage. `Pending` if it is to wait.
    fn advance(&mut self, core: &Arc<Core>, context: &mut Context<'_>) -> Poll<Option<Answer>> {
        let on = Poll::Ready(None);
        match &mut self.stage {
            Stage::Ready(_) | Stage::Storing(..) if self.resident.departs() => Poll::Pending,
            Stage::Ready(ticket) => {
                if ticket.is_none()
                    && let Some(AnyHandler::Async(handler)) = self.handler(core)
                {
                    let taken = handler.ticket();
                    self.stage = Stage::Ready(taken);
                }
                let Stage::Ready(ticket) = &mut self.stage else { return on };
                if ticket.as_mut().is_some_and(|ticket| ticket.poll(context).is_pending()) {
                    return Poll::Pending;
                }
                let ticket = ticket.take();
                self.stored.attempt = self.stored.attempt.saturating_add(1);
                match self.store_phase(Phase::Out, context.waker()) {
                    Some(is_stored) => self.stage = Stage::Storing(is_stored, ticket),
                    // The process leaves, or an answer has come meanwhile.
                    None => self.stage = Stage::Later,
                }
                on
            }
            Stage::Storing(is_stored, _) if !is_stored.load(Ordering::Acquire) => Poll::Pending,
            Stage::Storing(_, ticket) => {
                let ticket = ticket.take();
                match self.hand_out(core, ticket) {
                    Ok(work) => {
                        self.stage = Stage::Working(work);
                        on
                    }
                    Err(error) => Poll::Ready(Some(Err(error))),
                }
            }
            Stage::Working(work) => {
                let polled = match work {
                    Work::Call(_, answer) => answer.poll(context),
                    Work::Future(future) => match contain(|| future.as_mut().poll_any(context)) {
                        Ok(polled) => polled,
                        Err(panic) => Poll::Ready(Err(CommandError::Panicked(panic))),
                    },
                };
                let Poll::Ready(answer) = polled else { return Poll::Pending };
                match self.judge(core, answer) {
                    Next::Over(answer) => return Poll::Ready(Some(answer)),
                    Next::Later => {
                        self.enter(Stage::Later);
                        self.store_phase(Phase::Later, context.waker());
                    }
                    Next::Pause(pause, error) => {
                        // The permit of the attempt comes back.
                        self.enter(Stage::Pausing(Some(Alarm::set(core, pause, context.waker()))));
                        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                        let until = self.store.wall_millis().saturating_add(pause).min(i64::MAX as u64);
                        self.store_phase(Phase::Pausing { until, error }, context.waker());
                    }
                }
                on
            }
            Stage::Pausing(Some(alarm)) if alarm.has_rung() => {
                self.stage = Stage::Ready(None);
                on
            }
            Stage::Pausing(Some(_)) | Stage::Later => Poll::Pending,
            Stage::Pausing(None) => {
                let until = match self.stored.phase {
                    Phase::Pausing { until, .. } => until,
                    _ => 0,
                };
                self.stage = Stage::Pausing(Some(Alarm::set(core, self.left_until(until), context.waker())));
                on
            }
        }
    }

    /// Notes whether the command waits for an answer from outside, or for its next attempt.
    fn note_rest(&mut self) {
        let is_later = matches!((&self.stage, &self.stored.phase), (Stage::Later, Phase::Later));
        let rests = is_later || matches!(self.stage, Stage::Pausing(_));
        if rests != self.rests {
            self.rests = rests;
            self.store.open_commands.note_rest(self.resident.serial, self.tag, rests);
            self.store.note_active(&self.resident);
        }
    }

    fn handler<'a>(&self, core: &'a Core) -> Option<&'a AnyHandler> {
        let (kind, _) = self.store.commands.iter().find(|(_, kind)| kind.name == self.kind.name)?;
        core.handlers.get(kind)
    }
}

impl AnyFuture for CommandFuture {
    fn poll_any(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let future = self.get_mut();
        let Some(core) = future.store.core() else { return Poll::Pending };
        if future.alarms.is_none() {
            future.alarms = Some(future.set_alarms(&core, context.waker()));
        }
        loop {
            // A process that has ended, or that leaves, begins no attempt. The next load would begin another one.
            if future.resident.is_gone() || future.resident.is_called(Call::Leave) {
                return Poll::Pending;
            }
            let (serial, tag) = (future.resident.serial, future.tag);
            if let Some(answer) = future.store.open_commands.look(serial, tag, context.waker()) {
                future.is_over = true;
                future.stop_work(Reason::Cancelled);
                return Poll::Ready(future.decode(&answer));
            }
            if let Some(answer) = future.expired() {
                future.stop_work(Reason::TimedOut);
                return future.finish(answer);
            }
            match future.advance(&core, context) {
                Poll::Pending => {
                    future.note_rest();
                    return Poll::Pending;
                }
                Poll::Ready(None) => {}
                Poll::Ready(Some(answer)) => return future.finish(answer),
            }
        }
    }
}

impl Drop for CommandFuture {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.resident.is_gone() {
            // It is handed out again when the process is loaded again, unless the process has ended.
            return self.stop_work(Reason::Ended);
        }
        let cancelled = Some(StoredAnswer::Cancelled);
        self.store.open_commands.close(self.resident.serial, self.tag, cancelled);
        self.stop_work(Reason::Cancelled);
    }
}
