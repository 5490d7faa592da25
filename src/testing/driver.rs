//! Drives one process, step by step.

mod recovering;

use std::any::{Any, type_name};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use super::bench::Bench;
use super::error::SentError;
use super::related::Related;
use crate::cancel::CancelToken;
use crate::clock::ManualClock;
use crate::latch::Latch;
use crate::outcome::{Exit, Failure, Reason, contain};
use crate::process::{
    Address, Answer, AnswerTo, CancelRequest, Command, CommandError, Completion, Naming, Pid, Process, ProcessAsk,
    SpawnOptions, Tag, TimerFired, WaitedForNothing, described_body,
};
use crate::sched::body::{Host, Order, Ready, Stage, StepOutput, Stepped, Verdict, Work, Yield};
use crate::sched::machine::ExitLatch;
use crate::sched::mailbox::{Control, Envelope, Mailbox, Signal};
use crate::sync::Arc;
use crate::timer::TimerKey;

/// More steps in a row than a process takes that is going to rest.
const MANY_STEPS: usize = 100_000;

/// Drives one process as a function from events to yields. See [the module](super).
pub struct Driver<P: Process> {
    body: Option<Ready>,
    pid: Pid,
    clock: ManualClock,
    pub(super) bench: Arc<Bench>,
    out: StepOutput,
    exit: ExitLatch<P::Output>,
    status: Status,
    cancel: CancelToken,
    step_events: u32,
    steps: usize,
    sent: VecDeque<Sent>,
    spawned: VecDeque<Ready>,
    blocking: VecDeque<(u64, Work)>,
    commands: VecDeque<(u64, &'static str, Box<dyn Any + Send>)>,
    timers: HashMap<u64, Option<TimerKey>>,
    asks: HashMap<u64, Arc<ProcessAsk>>,
    cancelled: Vec<(Pid, CancelRequest)>,
    terminated: Vec<Pid>,
    pub(super) related: Related,
}

/// A message that the process has sent: to whom, the message, and its type.
type Sent = (Pid, Box<dyn Any + Send>, &'static str);

/// Where a driven process is, and when.
pub(super) struct Setting {
    pub(super) pid: Pid,
    pub(super) clock: ManualClock,
    /// The most new events for one step.
    pub(super) step_events: u32,
}

/// Where a process is after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It has not been stepped yet, or there is something for it, or it said that it continues.
    Ready,
    /// Its next step would run on the pool.
    ReadyOnPool,
    /// It waits for an event.
    Idle,
    /// It waits for the answer to a command.
    Blocked,
    /// It is over: see [`Driver::exit`].
    Ended,
}

/// A command that has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Outstanding {
    /// A blocking closure.
    Blocking {
        /// The number of its tag.
        tag: u64,
    },
    /// A command of the user's own.
    Command {
        /// The number of its tag.
        tag: u64,
        /// Its type.
        name: &'static str,
    },
    /// A timer.
    Timer {
        /// The number of its tag.
        tag: u64,
        /// When it is due; never, if no `Instant` can express it.
        due: Option<Instant>,
    },
    /// A question to another process.
    Ask {
        /// The number of its tag.
        tag: u64,
    },
}

impl<P: Process> Driver<P> {
    pub(super) fn with(process: P, options: SpawnOptions, setting: Setting) -> Driver<P> {
        let Setting { pid, clock, step_events } = setting;
        let bench = Arc::new(Bench::new(&clock, pid));
        let exit = Latch::new();
        Driver {
            body: Some(described_body(process, pid, options, Some(exit.clone()))),
            pid,
            out: StepOutput::new(bench.clone()),
            bench,
            cancel: CancelToken::with_clock(clock.clock()),
            clock,
            exit,
            status: Status::Ready,
            step_events,
            steps: 0,
            sent: VecDeque::new(),
            spawned: VecDeque::new(),
            blocking: VecDeque::new(),
            commands: VecDeque::new(),
            timers: HashMap::new(),
            asks: HashMap::new(),
            cancelled: Vec::new(),
            terminated: Vec::new(),
            related: Related::default(),
        }
    }

    /// The PID of the process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The address of the process.
    pub fn address(&self) -> Address<P::Message> {
        self.pid.typed()
    }

    /// The clock that the process sees.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Puts a message from outside into the mailbox.
    ///
    /// # Panics
    /// The process was upgraded to one that takes other messages.
    pub fn message(&mut self, message: P::Message) -> &mut Driver<P> {
        self.deliver(None, message)
    }

    /// Puts a message of another process into the mailbox.
    ///
    /// # Panics
    /// As [`message`](Self::message).
    pub fn message_from(&mut self, from: Pid, message: P::Message) -> &mut Driver<P> {
        self.deliver(Some(from), message)
    }

    fn deliver(&mut self, from: Option<Pid>, message: P::Message) -> &mut Driver<P> {
        if let Some(body) = &mut self.body {
            let mailbox = (body.machine.mailbox() as &mut dyn Any).downcast_mut::<Mailbox<P::Message>>();
            let mailbox =
                mailbox.unwrap_or_else(|| panic!("{} no longer takes {}", self.pid, type_name::<P::Message>()));
            mailbox.messages.push(Envelope { from, message });
            if self.status == Status::Idle {
                self.status = Status::Ready;
            }
        }
        self
    }

    /// Asks the process to stop.
    pub fn cancel(&mut self, reason: impl Into<Reason>) -> &mut Driver<P> {
        let request = CancelRequest { reason: reason.into(), deadline: None };
        self.signal(Signal::Control(Control::Cancel(request)));
        self
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        if let Some(body) = &mut self.body {
            body.head.answered(u32::from(matches!(signal, Signal::Completed(_))));
            body.machine.mailbox().signal(signal);
            if matches!(self.status, Status::Idle | Status::Blocked) {
                self.status = Status::Ready;
            }
        }
    }

    /// Moves the clock. Timers and time limits that are over by then are answered.
    pub fn advance(&mut self, by: Duration) -> &mut Driver<P> {
        self.clock.advance(by);
        self.collect_answers();
        self
    }

    /// Steps the process once, with what there is for it, whether it waits for that or not; never after its end.
    pub fn step(&mut self) -> Status {
        self.collect_answers();
        let Some(mut body) = self.body.take() else { return Status::Ended };
        let is_first = body.head.stage == Stage::New;
        if is_first {
            body.head.stage = Stage::Open;
            if let Err(exit) = body.machine.enter() {
                return self.end(body, exit);
            }
        }
        let mut stepped = body.machine.step(&mut body.head, &mut self.out, self.step_events);
        if is_first && stepped.verdict == Verdict::Declined {
            stepped.verdict = Verdict::Idle;
        }
        self.steps += 1;
        if stepped.verdict == Verdict::Broken {
            return self.failed(body, stepped);
        }
        // Closed first, as a runtime does it.
        if matches!(stepped.verdict, Verdict::Done | Verdict::Upgrade) {
            body.head.stage = Stage::Closed;
            body.machine.close();
        }
        self.perform();
        match stepped.verdict {
            Verdict::Done => return self.end(body, Exit::Done(())),
            Verdict::Upgrade => {
                if let Some(successor) = self.out.successor.take() {
                    body = successor.succeed(body).0;
                }
            }
            _ => {}
        }
        self.settle(body, stepped)
    }

    fn settle(&mut self, mut body: Ready, stepped: Stepped) -> Status {
        body.head.waits = stepped.verdict == Verdict::Wait;
        let answers = self.bench.take_answers();
        let has_news = !answers.is_empty();
        for (tag, answer) in answers {
            self.timers.remove(&tag);
            self.asks.remove(&tag);
            body.head.answered(1);
            body.machine.mailbox().signal(Signal::Completed(Completion::new(tag, answer)));
        }
        let signals = body.machine.mailbox().has_signals();
        self.status = match stepped.verdict {
            Verdict::Blocking => Status::ReadyOnPool,
            Verdict::Idle if !signals && !stepped.unseen => Status::Idle,
            Verdict::Declined if !has_news => Status::Idle,
            Verdict::Wait if !signals && body.head.outstanding == 0 => {
                return self.end(body, Exit::Failed(Failure::new(WaitedForNothing)));
            }
            Verdict::Wait if !signals => Status::Blocked,
            _ => Status::Ready,
        };
        self.body = Some(body);
        self.status
    }

    /// Steps the process as long as there is something for it to do.
    ///
    /// # Panics
    /// It has been stepped 100,000 times and has come to no rest: it always says [`Step::Continue`](crate::Step::Continue), or
    /// always answers itself.
    pub fn run(&mut self) -> Status {
        let before = self.steps;
        self.collect_answers();
        while matches!(self.status, Status::Ready | Status::ReadyOnPool) {
            assert!(self.steps - before < MANY_STEPS, "{} comes to no rest in {MANY_STEPS} steps", type_name::<P>());
            self.step();
        }
        self.status
    }

    /// Ends the process, as a runtime does with one that is terminated.
    pub fn terminate(&mut self) {
        if let Some(body) = self.body.take() {
            self.end(body, Exit::Terminated(Reason::Terminated));
        }
    }

    fn end(&mut self, mut body: Ready, exit: Exit) -> Status {
        if body.head.stage == Stage::Open {
            body.machine.close();
        }
        self.cancel.cancel(Reason::Ended);
        let last_word = body.machine.last_word(&exit);
        drop(body);
        if let Some(last_word) = last_word {
            last_word(&mut || ());
        }
        self.status = Status::Ended;
        self.status
    }

    fn perform(&mut self) {
        let yields = std::mem::take(&mut self.out.yields);
        let mut others = yields.into_iter();
        for order in std::mem::take(&mut self.out.orders) {
            match order {
                Order::Send { lane, count, to } => {
                    (0..count).for_each(|_| self.write_down_message(lane, to));
                }
                Order::Next => {
                    if let Some(one) = others.next() {
                        self.write_down(one);
                    }
                }
            }
        }
        self.out.performed();
    }

    fn write_down_message(&mut self, lane: u32, to: Pid) {
        self.sent.extend(self.out.outbox.pop(lane).map(|(message, type_name)| (to, message, type_name)));
    }

    fn write_down(&mut self, one: Yield) {
        match one {
            Yield::Ask { lane, to, ask, limit } => {
                let late = ask.clone();
                let timer = self.bench.timers.after(limit, Box::new(move || late.give_up(CommandError::TimedOut)));
                if let Ok(Some(key)) = timer {
                    ask.set_timer(key);
                }
                self.asks.insert(ask.tag(), ask);
                self.write_down_message(lane, to);
            }
            Yield::SendNowhere { lane, .. } => self.write_down_message(lane, Host::nobody(&*self.bench)),
            Yield::Refused { tag, why } => self.bench.answer(self.pid, tag, Err(*why)),
            Yield::Reply(reply) => {
                reply.send(&*self.bench, |to, tag, answer| self.bench.answer(to, tag, answer));
            }
            Yield::Spawn(child) => {
                if let Some(name) = child.head.name() {
                    drop(self.bench.name(Naming::Register { name: name.clone(), pid: child.head.pid }));
                }
                if let Some(tag) = self.related.bond(&child) {
                    self.bench.answer(self.pid, tag, Ok(Box::new(())));
                }
                self.spawned.push_back(child);
            }
            Yield::Blocking { tag, work } => self.blocking.push_back((tag, work)),
            Yield::Timer { tag, delay } => {
                let (bench, pid) = (self.bench.clone(), self.pid);
                let elapsed = Box::new(move || bench.answer(pid, tag, Ok(Box::new(TimerFired))));
                self.timers.insert(tag, self.bench.timers.after(delay, elapsed).ok().flatten());
            }
            Yield::CancelTimer { tag } => {
                let known = self.timers.remove(&tag);
                if known.is_some_and(|key| key.is_none_or(|key| self.bench.timers.cancel(key).is_some())) {
                    self.bench.answer(self.pid, tag, Err(CommandError::Cancelled(Reason::Cancelled)));
                }
            }
            Yield::Command { tag, command } => self.commands.push_back((tag, command.name, command.command)),
            Yield::Cancel { tag, to, request } => {
                let (reason, limit) = *request;
                let deadline = limit.and_then(|limit| self.clock.now().checked_add(limit));
                self.cancelled.push((to, CancelRequest { reason, deadline }));
                self.bench.answer(self.pid, tag, Ok(Box::new(true)));
            }
            Yield::Terminate { tag, to } => {
                self.terminated.push(to);
                self.bench.answer(self.pid, tag, Ok(Box::new(true)));
            }
            Yield::Naming { tag, naming } => {
                self.related.write_down_naming(&naming, self.pid);
                self.bench.answer(self.pid, tag, self.bench.name(*naming));
            }
            Yield::Relate(relate) => self.related.write_down(relate),
            Yield::Performed => {}
        }
    }

    /// Where the process is.
    pub fn status(&self) -> Status {
        self.status
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit<Arc<P::Output>>> {
        self.exit.get()
    }

    /// How often it was stepped.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Takes the oldest message that the process has sent or asked with, and its receiver. A reply in it may be used.
    ///
    /// # Errors
    /// The process has sent nothing that was not taken, or the oldest message is of another type. That one stays.
    pub fn sent<M: 'static>(&mut self) -> Result<(Pid, M), SentError> {
        let (to, message, found) = self.sent.pop_front().ok_or(SentError::Nothing)?;
        match message.downcast::<M>() {
            Ok(message) => Ok((to, *message)),
            Err(message) => {
                self.sent.push_front((to, message, found));
                Err(SentError::OtherType { to, found, expected: type_name::<M>() })
            }
        }
    }

    /// How many messages the process has sent that have not been taken.
    pub fn unread(&self) -> usize {
        self.sent.len()
    }

    /// Takes note of the oldest child that the process has spawned: its PID, and the type of the process.
    pub fn spawned(&mut self) -> Option<(Pid, &'static str)> {
        let child = self.spawned.pop_front()?;
        Some((child.head.pid, (child.machine.kind().process)()))
    }

    /// The requests to stop that the process has made. They are answered as if the other processes were there.
    pub fn cancelled(&self) -> &[(Pid, CancelRequest)] {
        &self.cancelled
    }

    /// The processes that the process has terminated.
    pub fn terminated(&self) -> &[Pid] {
        &self.terminated
    }

    /// The commands that have not been answered, in the order of their tags within each kind.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let blocking = self.blocking.iter().map(|(tag, _)| Outstanding::Blocking { tag: *tag });
        let commands = self.commands.iter().map(|(tag, name, _)| Outstanding::Command { tag: *tag, name });
        let timer =
            |(tag, key): (&u64, &Option<TimerKey>)| Outstanding::Timer { tag: *tag, due: key.map(TimerKey::moment) };
        let timers = self.timers.iter().map(timer);
        let asks = self.asks.keys().map(|tag| Outstanding::Ask { tag: *tag });
        let mut all: Vec<_> = blocking.chain(commands).chain(timers).chain(asks).collect();
        all.sort();
        all
    }

    /// Runs the oldest blocking closure, here and now, and answers with what comes of it. Whether there was one.
    pub fn run_blocking(&mut self) -> bool {
        let Some((tag, work)) = self.blocking.pop_front() else { return false };
        let answer = contain(|| work(&self.cancel)).map_err(CommandError::Panicked);
        self.answer_tag(tag, answer);
        true
    }

    /// Answers the oldest blocking closure without running it. Whether there was one.
    pub fn answer_blocking<T: Send + 'static>(&mut self, answer: Result<T, CommandError>) -> bool {
        let Some((tag, _)) = self.blocking.pop_front() else { return false };
        self.answer_tag(tag, answer.map(|value| Box::new(value) as _));
        true
    }

    /// Takes the oldest outstanding command of this type, to be answered with [`answer`](Self::answer).
    pub fn command<C: Command>(&mut self) -> Option<(Tag<C::Output>, C)> {
        let place = self.commands.iter().position(|(_, _, command)| command.is::<C>())?;
        let (tag, _, command) = self.commands.remove(place)?;
        command.downcast::<C>().ok().map(|command| (Tag::new(tag), *command))
    }

    /// Answers a command that was taken with [`command`](Self::command).
    pub fn answer<T: Send + 'static>(&mut self, tag: Tag<T>, answer: Result<T, CommandError>) -> &mut Driver<P> {
        self.answer_tag(tag.id(), answer.map(|value| Box::new(value) as _));
        self
    }

    fn answer_tag(&mut self, tag: u64, answer: Answer) {
        self.bench.answer(self.pid, tag, answer);
        self.collect_answers();
    }

    fn collect_answers(&mut self) {
        for (tag, answer) in self.bench.take_answers() {
            self.timers.remove(&tag);
            self.asks.remove(&tag);
            self.signal(Signal::Completed(Completion::new(tag, answer)));
        }
    }
}

impl<P: Process> Drop for Driver<P> {
    fn drop(&mut self) {
        // The timer of a question holds the question, which holds the bench, which holds the timer.
        drop(self.bench.timers.stop());
    }
}

impl<P: Process> fmt::Debug for Driver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("process", &type_name::<P>()).field("status", &self.status).finish()
    }
}
