//! Drives one process, step by step.

use std::any::{Any, type_name};
use std::fmt;
use std::time::{Duration, Instant};

use super::engine::TestEngine;
use super::helpers::Helpers;
use super::notes::Notes;
use crate::clock::ManualClock;
use crate::latch::Latch;
use crate::outcome::{Exit, Panic, Reason, contain};
use crate::primitives::{Arc, Ordering, lock};
use crate::process::{
    Address, Answer, CancelRequest, Command, CommandError, Down, ExitSignal, GroupChange, GroupEvent, LinkedBy,
    Monitor, Naming, Pid, Process, Recovered, RecoveredBy, SendError, SpawnOptions, Subscription, Tag, described_body,
};
use crate::sched::body::{Host, Machine as _, StepOutput};
use crate::sched::cell::{Birth, Missed, Rest};
use crate::sched::engine::Engine as _;
use crate::sched::machine::{ExitLatch, Typed};
use crate::sched::mailbox::{Control, Envelope, Mailbox, Signal};
use crate::sched::turn::{After, turn};
use crate::timer::TimerKey;

/// The most steps that a process may take in a row before it is taken for an endless loop.
const MANY_STEPS: usize = 100_000;

/// Drives one process as a function from events to yields. See [the module](super).
pub struct Driver<P: Process> {
    engine: Arc<TestEngine>,
    out: StepOutput,
    notes: Notes,
    helpers: Helpers,
    pid: Pid,
    clock: ManualClock,
    step_events: u32,
    seed: u64,
    exit: ExitLatch<P::Output>,
}

/// The status of a process after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It can be stepped: it is new, it has events, or its last step returned
    /// [`Step::Continue`](crate::Step::Continue).
    Ready,
    /// Its next step would run on the pool.
    ReadyOnPool,
    /// It waits for an event.
    Idle,
    /// It waits for the answer to a command.
    Blocked,
    /// It has ended: see [`Driver::exit`].
    Ended,
}

/// A command that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Outstanding {
    /// A blocking closure.
    Blocking {
        /// The number of its tag.
        tag: u64,
    },
    /// A future.
    Future {
        /// The number of its tag.
        tag: u64,
    },
    /// A command of a user's type.
    Command {
        /// The number of its tag.
        tag: u64,
        /// The name of its type.
        name: &'static str,
    },
    /// A timer.
    Timer {
        /// The number of its tag.
        tag: u64,
        /// The moment when it is due, or `None` if no `Instant` can express it.
        due: Option<Instant>,
    },
    /// A question to another process.
    Ask {
        /// The number of its tag.
        tag: u64,
    },
    /// A child that the process [runs](StepOutput::run).
    Child {
        /// The number of the tag.
        tag: u64,
        /// The child.
        pid: Pid,
    },
    /// A retry: see [`StepOutput::retry`](crate::StepOutput::retry). The commands of its attempt are outstanding, too.
    /// Their tags are not tags of the process.
    Retry {
        /// The number of its tag.
        tag: u64,
    },
    /// A message that waits for room: see [`StepOutput::send_timeout`](crate::StepOutput::send_timeout).
    Send {
        /// The number of its tag.
        tag: u64,
    },
}

/// Why [`Driver::sent`](Driver::sent) returns no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SentError {
    /// The process has sent nothing, or the test has taken everything.
    #[error("the process has sent no message that was not taken")]
    Nothing,
    /// The oldest message has another type.
    #[error("the oldest message that the process has sent, to {to}, is of type {found}, and not of type {expected}")]
    OtherType {
        /// The receiver of the message.
        to: Pid,
        /// The type of the message.
        found: &'static str,
        /// The requested type.
        expected: &'static str,
    },
    /// The conversion of a message to a [`Recipient`](crate::Recipient) has panicked.
    #[error("the conversion of a message to {to} has panicked: {message}")]
    Panicked {
        /// The receiver of the message.
        to: Pid,
        /// The message of the panic.
        message: Arc<str>,
    },
}

impl<P: Process> Driver<P> {
    pub(super) fn with(
        process: P,
        options: SpawnOptions,
        (pid, clock, step_events, seed): (Pid, ManualClock, u32, u64),
    ) -> Driver<P> {
        let engine = TestEngine::new(&clock, pid, step_events, seed);
        let exit = Latch::new();
        let body = described_body(process, pid, options, Some(exit.clone()));
        engine.cell().install(pid.generation(), body.machine.kind(), Birth::default(), 0, || false);
        engine.road.inject(body);
        Driver {
            out: StepOutput::new(engine.clone()),
            engine,
            notes: Notes::default(),
            helpers: Helpers::default(),
            pid,
            clock,
            step_events,
            seed,
            exit,
        }
    }

    /// Returns the PID of the process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the address of the process.
    pub fn address(&self) -> Address<P::Message> {
        self.pid.typed()
    }

    /// Returns the clock of the process.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Puts a message from outside into the mailbox.
    ///
    /// # Panics
    /// Panics if the process was upgraded to one that takes other messages.
    pub fn message(&mut self, message: P::Message) -> &mut Driver<P> {
        self.deliver(None, message)
    }

    /// Puts a message from another process into the mailbox.
    ///
    /// # Panics
    /// As [`message`](Self::message).
    pub fn message_from(&mut self, from: Pid, message: P::Message) -> &mut Driver<P> {
        self.deliver(Some(from), message)
    }

    fn deliver(&mut self, from: Option<Pid>, message: P::Message) -> &mut Driver<P> {
        let mut message = Some(message);
        let posted = self.engine.cell().post(self.pid, |mailbox, _| {
            let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<P::Message>>()?;
            if let Some(message) = message.take() {
                mailbox.messages.push(Envelope { from, message });
            }
            Some(1)
        });
        match posted {
            Ok((woken, _)) => woken.into_iter().for_each(|ready| self.engine.road.inject(ready)),
            Err(Missed::NoSuchProcess) => {}
            Err(Missed::WrongType(_)) => panic!("{} no longer takes {}", self.pid, type_name::<P::Message>()),
        }
        self
    }

    /// Asks the process to stop.
    pub fn cancel(&mut self, reason: impl Into<Reason>) -> &mut Driver<P> {
        self.tell(Control::Cancel(CancelRequest { reason: reason.into(), deadline: None }));
        self
    }

    fn tell(&mut self, control: Control) {
        drop(self.engine.road.signal(&mut self.engine.executor(), self.pid, Signal::Control(control)));
    }

    /// Moves the clock. Commands whose timer or time limit is over then are answered.
    pub fn advance(&mut self, by: Duration) -> &mut Driver<P> {
        self.clock.advance(by);
        self.run_helpers();
        self
    }

    /// Steps the process once, even if it waits for other events. Does nothing after its end.
    ///
    /// The first call also calls `init` and [`start`](Process::start). So does the call after the state machine was
    /// replaced.
    ///
    /// First it polls the futures that were woken, at most 64. If the process was ready only because futures were
    /// woken, and none of them is ready, the process is not stepped.
    pub fn step(&mut self) -> Status {
        self.run_helpers();
        let Some(body) = self.engine.take_body() else { return Status::Ended };
        std::mem::swap(&mut self.notes, &mut lock(&self.engine.notes));
        let after = turn(&*self.engine, &mut self.engine.executor(), &mut self.out, body);
        std::mem::swap(&mut self.notes, &mut lock(&self.engine.notes));
        for (name, by) in self.out.counted.drain(..) {
            let sum = self.notes.counted.entry(name).or_default();
            *sum = sum.wrapping_add(by);
        }
        if let After::Ready(body) = after {
            self.engine.road.inject(body);
        }
        let status = self.status();
        if status == Status::Ended {
            self.engine.cancel_token().cancel(Reason::Ended);
        }
        self.run_helpers();
        self.status()
    }

    /// Steps the process until it has nothing more to do.
    ///
    /// # Panics
    /// Panics after 100,000 steps in a row. Such a process always returns
    /// [`Step::Continue`](crate::Step::Continue), or always sends messages to itself.
    pub fn run(&mut self) -> Status {
        self.run_helpers();
        let before = self.steps();
        while matches!(self.status(), Status::Ready | Status::ReadyOnPool) {
            assert!(self.steps() - before < MANY_STEPS, "{} comes to no rest in {MANY_STEPS} steps", type_name::<P>());
            self.step();
        }
        self.status()
    }

    /// Terminates the process, as a runtime does.
    pub fn terminate(&mut self) {
        if matches!(self.engine.road.terminate(&mut self.engine.executor(), self.pid, 0), Ok(true)) {
            self.step();
        }
    }

    /// Returns the status of the process.
    pub fn status(&self) -> Status {
        if !self.engine.road.queues.is_outside_empty() {
            return Status::Ready;
        }
        if lock(&self.engine.on_pool).is_some() {
            return Status::ReadyOnPool;
        }
        match self.engine.cell().look().map(|look| look.rest) {
            Some(Rest::Idle) => Status::Idle,
            Some(Rest::Waiting) => Status::Blocked,
            Some(Rest::Out) | None => Status::Ended,
        }
    }

    /// Returns how the process ended, if it has.
    pub fn exit(&self) -> Option<Exit<Arc<P::Output>>> {
        self.exit.get()
    }

    /// The number of messages of the process that no step will take.
    #[cfg(all(test, loom))]
    pub(super) fn dead_letters(&self) -> u64 {
        self.engine.road.outside.dead.iter().map(|count| count.get()).sum()
    }

    /// Returns the number of steps that the process has taken.
    pub fn steps(&self) -> usize {
        self.engine.road.outside.steps.get() as usize
    }

    /// Takes the oldest message that the process has sent, and its receiver. An ask sends a message, too.
    ///
    /// The test may answer with a [`Reply`](crate::Reply) in the message.
    ///
    /// # Errors
    /// The process has sent nothing that the test has not taken, or the oldest message has another type. A message of
    /// another type stays.
    pub fn sent<M: 'static>(&mut self) -> Result<(Pid, M), SentError> {
        let (to, message, found) = self.notes.sent.pop_front().ok_or(SentError::Nothing)?;
        match message.downcast::<M>() {
            Ok(message) => Ok((to, *message)),
            Err(message) => {
                self.notes.sent.push_front((to, message, found));
                Err(SentError::OtherType { to, found, expected: type_name::<M>() })
            }
        }
    }

    /// Returns the number of sent messages that the test has not taken.
    pub fn unread(&self) -> usize {
        self.notes.sent.len()
    }

    /// Accepts the oldest message that waits for room, as a mailbox with room does. Returns the message and its
    /// receiver. The order of such messages and those of [`sent`](Self::sent) is not kept.
    ///
    /// A message to a [`Recipient`](crate::Recipient) is converted by this call. So `M` is the type that the receiver
    /// takes, as for [`sent`](Self::sent).
    ///
    /// # Errors
    /// No message waits, or the oldest one has another type. A message of another type stays. If the conversion panics,
    /// the error says so, and the command is answered with [`CommandError::Panicked`].
    pub fn accept_send<M: Send + 'static>(&mut self) -> Result<(Pid, M), SentError> {
        let noted = self.notes.oldest_send().ok_or(SentError::Nothing)?;
        let (to, mut place) = (noted.to, lock(&noted.send));
        let message = place.as_mut().ok_or(SentError::Nothing)?.take_converted();
        let message = message.map_err(|found| SentError::OtherType { to, found, expected: type_name::<M>() })?;
        let send = place.take();
        drop(place);
        let panic = message.as_ref().err().cloned();
        if let Some((_, tag, answer)) = send.and_then(|send| send.answer_converted(panic, to)) {
            self.answer_tag(tag, answer);
        }
        let panicked = |panic: Panic| SentError::Panicked { to, message: panic.message().into() };
        message.map(|message| (to, message)).map_err(panicked)
    }

    /// Hands the oldest message that waits for room back to the process, with this reason. Returns whether there was
    /// one. If the clock reaches the limit of a message, it comes back by itself, with [`SendError::Full`].
    pub fn refuse_send(&mut self, why: SendError) -> bool {
        self.notes.oldest_send().is_some_and(|noted| self.engine.refuse_send(&noted, why))
    }

    /// Takes the oldest child that the process has spawned: its PID, and the name of its type.
    pub fn spawned(&mut self) -> Option<(Pid, &'static str)> {
        let child = self.notes.spawned.pop_front()?;
        Some((child.head.pid, (child.machine.kind().process)()))
    }

    /// Returns the requests to stop that the process has sent to others. They are answered as if these processes lived.
    pub fn cancelled(&self) -> &[(Pid, CancelRequest)] {
        &self.notes.cancelled
    }

    /// Returns the processes that this process has terminated.
    pub fn terminated(&self) -> &[Pid] {
        &self.notes.terminated
    }

    /// Returns the sum of what the process has [counted](crate::StepOutput::count) under this name.
    pub fn counted(&self, name: &str) -> u64 {
        self.notes.counted.get(name).copied().unwrap_or(0)
    }

    /// Returns the commands that have no answer yet. Within each kind they are in the order of their tags.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let Notes { blocking, futures, commands, timers, asks, sends, retries, runs, .. } = &self.notes;
        let now = self.clock.now();
        let blocking = blocking
            .iter()
            .filter(|(duty, _)| duty.is_open())
            .map(|(duty, _)| Outstanding::Blocking { tag: duty.tag() });
        let commands = commands
            .iter()
            .filter(|(duty, _)| duty.is_open())
            .map(|(duty, command)| Outstanding::Command { tag: duty.tag(), name: command.name });
        let futures =
            futures.iter().filter(|waker| !waker.is_over()).map(|waker| Outstanding::Future { tag: waker.tag });
        let timers = timers
            .iter()
            .map(|(tag, key)| (*tag, key.map(TimerKey::moment)))
            .filter(|(_, due)| due.is_none_or(|due| due > now))
            .map(|(tag, due)| Outstanding::Timer { tag, due });
        let asks =
            asks.iter().filter(|ask| !ask.is_decided()).filter_map(|ask| Some(Outstanding::Ask { tag: ask.tag()? }));
        let sends = sends.iter().filter(|noted| noted.is_open()).map(|noted| Outstanding::Send { tag: noted.tag });
        let retries = retries.iter().filter(|duty| duty.is_open()).map(|duty| Outstanding::Retry { tag: duty.tag() });
        let runs = runs
            .iter()
            .filter(|(duty, _)| duty.is_open())
            .map(|(duty, pid)| Outstanding::Child { tag: duty.tag(), pid: *pid });
        let of_process = blocking.chain(futures).chain(commands).chain(timers);
        let mut all: Vec<_> = of_process.chain(asks).chain(runs).chain(retries).chain(sends).collect();
        all.sort();
        all
    }

    /// Runs the oldest blocking closure on this thread, and answers with its result. Returns whether there was one.
    pub fn run_blocking(&mut self) -> bool {
        self.notes.set_closed_aside();
        let Some((duty, work)) = self.notes.blocking.pop_front() else { return false };
        duty.answer(contain(|| work(duty.cancel())).map_err(CommandError::Panicked));
        self.run_helpers();
        true
    }

    /// Answers the oldest blocking closure without running it. Returns whether there was one.
    pub fn answer_blocking<T: Send + 'static>(&mut self, answer: Result<T, CommandError>) -> bool {
        self.notes.set_closed_aside();
        let Some((duty, _)) = self.notes.blocking.pop_front() else { return false };
        duty.answer(answer.map(|value| Box::new(value) as _));
        self.run_helpers();
        true
    }

    /// Answers a future in its place. `tag` is the number of its tag, as [`outstanding`](Self::outstanding) lists it.
    /// The future is dropped, and is not polled again. Returns whether there was such a future.
    pub fn answer_future<T: Send + 'static>(&mut self, tag: u64, answer: Result<T, CommandError>) -> bool {
        let is_on_pool = self.status() == Status::ReadyOnPool;
        if !self.notes.futures.iter().any(|waker| waker.tag == tag && !waker.is_over()) {
            return false;
        }
        let Some(mut body) = self.engine.take_body() else { return false };
        drop(body.head.residents().and_then(|residents| residents.remove(tag)));
        self.answer_tag(tag, answer.map(|value| Box::new(value) as _));
        // The answer makes the process ready, if it was at rest.
        if is_on_pool {
            self.engine.to_pool(body)
        } else {
            self.engine.road.inject(body)
        }
        true
    }

    /// Takes the oldest outstanding command of this type. Answer it with [`answer`](Self::answer).
    pub fn command<C: Command>(&mut self) -> Option<(Tag<C::Output>, C)> {
        self.notes.set_closed_aside();
        let place = self.notes.commands.iter().position(|(_, command)| command.command.is::<C>())?;
        let (duty, command) = self.notes.commands.remove(place)?;
        let tag = Tag::new(duty.tag());
        self.notes.taken.push(duty);
        command.command.downcast::<C>().ok().map(|command| (tag, *command))
    }

    /// Takes the oldest child of this type that the process [runs](StepOutput::run). Answer the command with
    /// [`answer`](Self::answer). The test may drive the child with a driver of its own. A child whose command was
    /// cancelled, or whose limit is over, is not listed.
    pub fn child<C: Process>(&mut self) -> Option<(Tag<C::Output>, C)> {
        self.notes.set_closed_aside();
        let Notes { runs, spawned, taken, .. } = &mut self.notes;
        let mut children = spawned.iter_mut().enumerate();
        let (place, run, child) = children.find_map(|(place, child)| {
            let run = runs.iter().position(|(_, pid)| *pid == child.head.pid)?;
            let typed = (&mut child.machine as &mut dyn Any).downcast_mut::<Typed<C>>()?;
            Some((place, run, typed.take_process()?))
        })?;
        spawned.remove(place);
        let (duty, _) = runs.remove(run);
        let tag = Tag::new(duty.tag());
        taken.push(duty);
        Some((tag, child))
    }

    /// Drops the oldest child that the process [runs](StepOutput::run), and answers its command. Returns whether there
    /// was one.
    ///
    /// The type of the child is not named. So use this for an async process of a closure, which [`child`](Self::child)
    /// cannot take.
    pub fn answer_child<T: Send + 'static>(&mut self, answer: Result<T, CommandError>) -> bool {
        self.notes.set_closed_aside();
        if self.notes.runs.is_empty() {
            return false;
        }
        let (duty, pid) = self.notes.runs.remove(0);
        self.notes.spawned.retain(|child| child.head.pid != pid);
        duty.answer(answer.map(|value| Box::new(value) as _));
        self.run_helpers();
        true
    }

    /// Answers a command that was taken with [`command`](Self::command), or a child that was taken with
    /// [`child`](Self::child). If the command has an answer already, because its limit is over or the process has
    /// cancelled it, this answer is late. Then this has no effect.
    pub fn answer<T: Send + 'static>(&mut self, tag: Tag<T>, answer: Result<T, CommandError>) -> &mut Driver<P> {
        self.answer_tag(tag.id(), answer.map(|value| Box::new(value) as _));
        self
    }

    /// Steps the processes that make the attempts of retries.
    fn run_helpers(&mut self) {
        self.helpers.run(&mut self.notes, &self.clock, (self.step_events, self.seed));
    }

    fn answer_tag(&mut self, tag: u64, answer: Answer) {
        match self.notes.duty(tag) {
            Some(duty) => {
                duty.answer(answer);
                self.run_helpers();
            }
            None => self.engine.answer(self.pid, tag, answer),
        }
    }

    /// Returns the monitors of the process, oldest first. They include monitors of its children.
    pub fn monitors(&self) -> &[Monitor] {
        &self.notes.monitors
    }

    /// Returns the processes to which this process has linked itself, oldest first.
    pub fn links(&self) -> &[Pid] {
        &self.notes.links
    }

    /// Whether the process traps exits.
    pub fn traps_exits(&self) -> bool {
        self.notes.traps
    }

    /// Registers a name for another process. The driven process finds it under this name.
    pub fn name(&mut self, name: &str, pid: Pid) -> &mut Driver<P> {
        drop(self.engine.name(Naming::Register { name: name.into(), pid }));
        self
    }

    /// Puts another process into a group.
    pub fn join_group(&mut self, group: &str, pid: Pid) -> &mut Driver<P> {
        drop(self.engine.name(Naming::Join { group: group.into(), pid }));
        self
    }

    /// Returns the process's subscriptions to groups, oldest first.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.notes.subscriptions
    }

    /// Notifies the process of a change to a group, once for each of its subscriptions.
    pub fn group_changed(&mut self, group: &str, change: &GroupChange) -> &mut Driver<P> {
        let subscribed = |one: &&Subscription| one.group() == group;
        let told: Vec<Subscription> = self.notes.subscriptions.iter().filter(subscribed).cloned().collect();
        for subscription in told {
            let event = GroupEvent { subscription, change: change.clone() };
            self.tell(Control::Group(event));
        }
        self
    }

    /// From now on the driver behaves like a runtime that shuts down: the process cannot spawn another process.
    ///
    /// This does not ask the process to stop: see [`cancel`](Self::cancel).
    pub fn shuts_down(&mut self) -> &mut Driver<P> {
        self.engine.shuts_down.store(true, Ordering::Relaxed);
        self
    }

    /// Notifies the process that another process has ended.
    ///
    /// It gets a [`Down`](crate::Event::Down) event for each monitor of that process. If it is linked to that process
    /// and traps exits, it gets the exit as an event, too. If it does not trap exits, the link does not end it: the
    /// test calls [`terminate`](Self::terminate).
    pub fn ended(&mut self, pid: Pid, exit: &Exit) -> &mut Driver<P> {
        let of_it = |monitor: &Monitor| monitor.pid() == pid;
        let told: Vec<Monitor> = self.notes.monitors.iter().copied().filter(of_it).collect();
        self.notes.monitors.retain(|monitor| !of_it(monitor));
        for monitor in told {
            self.tell(Control::Down(Down { monitor, pid, exit: exit.clone() }));
        }
        let linked = self.notes.links.contains(&pid);
        self.notes.links.retain(|one| *one != pid);
        if linked && self.notes.traps {
            self.tell(Control::Exit(ExitSignal { pid, exit: exit.clone() }, LinkedBy::ME));
        }
        self
    }

    /// Notifies the process that another process has recovered from a failure.
    ///
    /// It gets the event only if it is linked to the other process and traps exits.
    pub fn recovered(&mut self, pid: Pid, exit: &Exit, by: RecoveredBy) -> &mut Driver<P> {
        if self.notes.links.contains(&pid) && self.notes.traps {
            self.tell(Control::Recovered(Recovered { pid, exit: exit.clone(), by }));
        }
        self
    }
}

impl<P: Process> Drop for Driver<P> {
    fn drop(&mut self) {
        // Breaks a cycle: the timer of a question holds the question, which holds the engine, which holds the timer.
        drop(self.engine.timers.stop());
        // Breaks the same cycle through the questions in the body.
        drop(self.engine.take_body());
    }
}

impl<P: Process> fmt::Debug for Driver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("process", &type_name::<P>()).field("status", &self.status()).finish()
    }
}
