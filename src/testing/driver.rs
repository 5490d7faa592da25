//! Drives one process, step by step.

use std::any::{Any, type_name};
use std::fmt;
use std::time::{Duration, Instant};

use super::engine::{Notes, ReadyBody, TestEngine};
use crate::clock::ManualClock;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, contain};
use crate::primitives::{Arc, Ordering, lock};
use crate::process::{
    Address, Answer, AnswerTo, CancelRequest, Command, CommandError, Down, ExitSignal, GroupChange, GroupEvent,
    LinkedBy, Monitor, Naming, Pid, Process, Recovered, RecoveredBy, SpawnOptions, Subscription, Tag, described_body,
};
use crate::sched::body::StepOutput;
use crate::sched::cell::Rest;
use crate::sched::machine::ExitLatch;
use crate::sched::mailbox::{Control, Envelope, Mailbox, Signal};
use crate::sched::outbox::{Missed, Opened};
use crate::sched::turn::{After, turn};
use crate::timer::TimerKey;

/// More steps in a row than a process takes before it rests.
const MANY_STEPS: usize = 100_000;

/// Drives one process as a function from events to yields. See [the module](super).
pub struct Driver<P: Process> {
    engine: Arc<TestEngine>,
    out: StepOutput,
    notes: Notes,
    pid: Pid,
    clock: ManualClock,
    exit: ExitLatch<P::Output>,
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

/// Why [`Driver::sent`](Driver::sent) has no message of the type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SentError {
    /// The process has sent nothing, or all of it has been taken.
    #[error("the process has sent no message that was not taken")]
    Nothing,
    /// The oldest message is of another type.
    #[error("the oldest message that the process has sent, to {to}, is of type {found}, and not of type {expected}")]
    OtherType {
        /// The receiver of the message.
        to: Pid,
        /// The type of the message.
        found: &'static str,
        /// The type that was asked for.
        expected: &'static str,
    },
}

impl<P: Process> Driver<P> {
    pub(super) fn with(
        process: P,
        options: SpawnOptions,
        (pid, clock, step_events): (Pid, ManualClock, u32),
    ) -> Driver<P> {
        let engine = TestEngine::new(&clock, pid, step_events);
        let exit = Latch::new();
        engine.begin(described_body(process, pid, options, Some(exit.clone())));
        Driver { out: StepOutput::new(engine.clone()), engine, notes: Notes::default(), pid, clock, exit }
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
        let mut message = Some(message);
        let posted = self.engine.cell().post(self.pid, |opened| {
            let (Opened::Free(mailbox) | Opened::Bounded(mailbox)) = opened;
            let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<P::Message>>()?;
            if let Some(message) = message.take() {
                mailbox.messages.push(Envelope { from, message });
            }
            Some(1)
        });
        match posted {
            Ok((Some(ready), _)) => self.engine.put(ReadyBody::Here(ready)),
            Ok((None, _)) | Err(Missed::NoSuchProcess) => {}
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
        drop(self.engine.signal(Signal::Control(control)));
    }

    /// Moves the clock. Timers and time limits that are over by then are answered.
    pub fn advance(&mut self, by: Duration) -> &mut Driver<P> {
        self.clock.advance(by);
        self
    }

    /// Steps the process once, with what there is for it, whether it waits for that or not; never after its end.
    pub fn step(&mut self) -> Status {
        let Some(body) = self.engine.take_body() else { return Status::Ended };
        std::mem::swap(&mut self.notes, &mut lock(&self.engine.notes));
        let after = turn(&*self.engine, &mut self.engine.executor(), &mut self.out, body);
        std::mem::swap(&mut self.notes, &mut lock(&self.engine.notes));
        if let After::Ready(body) = after {
            self.engine.put(ReadyBody::Here(body));
        }
        let status = self.status();
        if status == Status::Ended {
            self.engine.cancel_token().cancel(Reason::Ended);
        }
        status
    }

    /// Steps the process as long as there is something for it to do.
    ///
    /// # Panics
    /// It has been stepped 100,000 times and does not rest: it always says [`Step::Continue`](crate::Step::Continue),
    /// or always answers itself.
    pub fn run(&mut self) -> Status {
        let before = self.steps();
        while matches!(self.status(), Status::Ready | Status::ReadyOnPool) {
            assert!(self.steps() - before < MANY_STEPS, "{} comes to no rest in {MANY_STEPS} steps", type_name::<P>());
            self.step();
        }
        self.status()
    }

    /// Ends the process, as a runtime does with one that is terminated.
    pub fn terminate(&mut self) {
        if self.engine.terminate() {
            self.step();
        }
    }

    /// Where the process is.
    pub fn status(&self) -> Status {
        match &*lock(&self.engine.ready) {
            ReadyBody::Here(_) => return Status::Ready,
            ReadyBody::OnPool(_) => return Status::ReadyOnPool,
            ReadyBody::Nowhere => {}
        }
        match self.engine.cell().look().map(|look| look.rest) {
            Some(Rest::Idle) => Status::Idle,
            Some(Rest::Waiting) => Status::Blocked,
            Some(Rest::Out) | None => Status::Ended,
        }
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit<Arc<P::Output>>> {
        self.exit.get()
    }

    /// How often it was stepped.
    pub fn steps(&self) -> usize {
        self.engine.steps() as usize
    }

    /// Takes the oldest message that the process has sent or asked with, and its receiver. A reply in it may be used.
    ///
    /// # Errors
    /// The process has sent nothing that was not taken, or the oldest message is of another type. That one stays.
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

    /// How many messages the process has sent that have not been taken.
    pub fn unread(&self) -> usize {
        self.notes.sent.len()
    }

    /// Takes note of the oldest child that the process has spawned: its PID, and the type of the process.
    pub fn spawned(&mut self) -> Option<(Pid, &'static str)> {
        let child = self.notes.spawned.pop_front()?;
        Some((child.head.pid, (child.machine.kind().process)()))
    }

    /// The requests to stop that the process has made. They are answered as if the other processes were there.
    pub fn cancelled(&self) -> &[(Pid, CancelRequest)] {
        &self.notes.cancelled
    }

    /// The processes that the process has terminated.
    pub fn terminated(&self) -> &[Pid] {
        &self.notes.terminated
    }

    /// The commands that have not been answered, in the order of their tags within each kind.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let Notes { blocking, commands, timers, asks, .. } = &self.notes;
        let now = self.clock.now();
        let blocking = blocking.iter().map(|(tag, _)| Outstanding::Blocking { tag: *tag });
        let commands = commands.iter().map(|(tag, name, _)| Outstanding::Command { tag: *tag, name });
        let timers = timers
            .iter()
            .map(|(tag, key)| (*tag, key.map(TimerKey::moment)))
            .filter(|(_, due)| due.is_none_or(|due| due > now))
            .map(|(tag, due)| Outstanding::Timer { tag, due });
        let asks = asks.iter().filter(|ask| !ask.is_decided()).map(|ask| Outstanding::Ask { tag: ask.tag() });
        let mut all: Vec<_> = blocking.chain(commands).chain(timers).chain(asks).collect();
        all.sort();
        all
    }

    /// Runs the oldest blocking closure, here and now, and answers with what comes of it. Whether there was one.
    pub fn run_blocking(&mut self) -> bool {
        let Some((tag, work)) = self.notes.blocking.pop_front() else { return false };
        let answer = contain(|| work(&self.engine.cancel_token())).map_err(CommandError::Panicked);
        self.answer_tag(tag, answer);
        true
    }

    /// Answers the oldest blocking closure without running it. Whether there was one.
    pub fn answer_blocking<T: Send + 'static>(&mut self, answer: Result<T, CommandError>) -> bool {
        let Some((tag, _)) = self.notes.blocking.pop_front() else { return false };
        self.answer_tag(tag, answer.map(|value| Box::new(value) as _));
        true
    }

    /// Takes the oldest outstanding command of this type, to be answered with [`answer`](Self::answer).
    pub fn command<C: Command>(&mut self) -> Option<(Tag<C::Output>, C)> {
        let place = self.notes.commands.iter().position(|(_, _, command)| command.is::<C>())?;
        let (tag, _, command) = self.notes.commands.remove(place)?;
        command.downcast::<C>().ok().map(|command| (Tag::new(tag), *command))
    }

    /// Answers a command that was taken with [`command`](Self::command).
    pub fn answer<T: Send + 'static>(&mut self, tag: Tag<T>, answer: Result<T, CommandError>) -> &mut Driver<P> {
        self.answer_tag(tag.id(), answer.map(|value| Box::new(value) as _));
        self
    }

    fn answer_tag(&mut self, tag: u64, answer: Answer) {
        self.engine.answer(self.pid, tag, answer);
    }

    /// The monitors that the process has, those of its children included, oldest first.
    pub fn monitors(&self) -> &[Monitor] {
        &self.notes.monitors
    }

    /// The processes to which this one has linked itself, oldest first.
    pub fn links(&self) -> &[Pid] {
        &self.notes.links
    }

    /// Whether the process has said that it traps exits.
    pub fn traps_exits(&self) -> bool {
        self.notes.traps
    }

    /// Gives another process a name under which this one finds it.
    pub fn name(&mut self, name: &str, pid: Pid) -> &mut Driver<P> {
        drop(self.engine.name(Naming::Register { name: name.into(), pid }));
        self
    }

    /// Puts another process into a group.
    pub fn join_group(&mut self, group: &str, pid: Pid) -> &mut Driver<P> {
        drop(self.engine.name(Naming::Join { group: group.into(), pid }));
        self
    }

    /// The subscriptions to groups that the process has, oldest first.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.notes.subscriptions
    }

    /// Tells the process of a change to a group, by each of its subscriptions to it.
    pub fn group_changed(&mut self, group: &str, change: &GroupChange) -> &mut Driver<P> {
        let subscribed = |one: &&Subscription| one.group() == group;
        let told: Vec<Subscription> = self.notes.subscriptions.iter().filter(subscribed).cloned().collect();
        for subscription in told {
            let event = GroupEvent { subscription, change: change.clone() };
            self.tell(Control::Group(event));
        }
        self
    }

    /// From here on it is as in a runtime that shuts down: nobody can be spawned. The process is not asked to stop
    /// with this: see [`cancel`](Self::cancel).
    pub fn shuts_down(&mut self) -> &mut Driver<P> {
        self.engine.shuts_down.store(true, Ordering::Relaxed);
        self
    }

    /// Ends another process, as far as this one is concerned: each of its monitors of it is told, and its link if it
    /// traps exits. A link that is not trapped is not carried out: see [`terminate`](Self::terminate).
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

    /// Another process recovers from a failure, as far as this one is concerned: it is told if it is linked to that
    /// one and traps exits.
    pub fn recovered(&mut self, pid: Pid, exit: &Exit, by: RecoveredBy) -> &mut Driver<P> {
        if self.notes.links.contains(&pid) && self.notes.traps {
            self.tell(Control::Recovered(Recovered { pid, exit: exit.clone(), by }));
        }
        self
    }
}

impl<P: Process> Drop for Driver<P> {
    fn drop(&mut self) {
        // The timer of a question holds the question, which holds the engine, which holds the timer.
        drop(self.engine.timers.stop());
        // So do the questions in the body.
        drop(self.engine.take_body());
    }
}

impl<P: Process> fmt::Debug for Driver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("process", &type_name::<P>()).field("status", &self.status()).finish()
    }
}
