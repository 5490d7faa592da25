//! A process that reads everything that a step can read, and the recorder of such processes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use procession::command::TimerFired;
use procession::names::{GroupChange, Member, NameError};
use procession::recording::{DecodeError, Input, Recordable, Recorder, Recording, Snapshot};
use procession::{
    Completion, EntryArgs, Event, Events, InitResult, Pid, Process, Rejected, Reply, Runtime, SendError, SpawnOptions,
    Step, StepOutput, StepResult, Tag,
};

use crate::wait::Mutex;

/// The next operation of a walker.
pub(crate) enum Op {
    Add(u64),
    Forward(Pid, Box<Op>),
    AskFor(Pid),
    Question(Reply<u64>),
    /// Answers the questions that it holds: within the step, or by itself.
    Answer(bool),
    Spawn,
    Look,
    Timer,
    Blocking(u64),
    Monitor(Pid),
    Link(Pid),
    Trap,
    Name(u64),
    Join,
    Subscribe,
    Broadcast(u64),
    Member(u64),
    Slow(Pid, u64),
    /// Passes over all sums for so many steps.
    Choosy(u64),
    Wait,
    Continue,
    Done,
    Fail,
    Panic,
}

impl Clone for Op {
    fn clone(&self) -> Op {
        match self {
            Op::Add(n) => Op::Add(*n),
            _ => unreachable!("only sums are broadcast"),
        }
    }
}

impl Recordable for Op {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Op::Add(n) => (0_u8, *n).encode(to),
            Op::Forward(pid, op) => {
                (1_u8, *pid).encode(to);
                op.encode(to);
            }
            Op::AskFor(pid) => (2_u8, *pid).encode(to),
            Op::Question(reply) => {
                3_u8.encode(to);
                reply.encode(to);
            }
            Op::Answer(in_step) => (4_u8, *in_step).encode(to),
            Op::Spawn => 5_u8.encode(to),
            Op::Look => 6_u8.encode(to),
            Op::Timer => 7_u8.encode(to),
            Op::Blocking(n) => (8_u8, *n).encode(to),
            Op::Monitor(pid) => (9_u8, *pid).encode(to),
            Op::Link(pid) => (10_u8, *pid).encode(to),
            Op::Trap => 11_u8.encode(to),
            Op::Name(n) => (12_u8, *n).encode(to),
            Op::Join => 13_u8.encode(to),
            Op::Subscribe => 14_u8.encode(to),
            Op::Broadcast(n) => (15_u8, *n).encode(to),
            Op::Member(n) => (16_u8, *n).encode(to),
            Op::Slow(pid, n) => (17_u8, (*pid, *n)).encode(to),
            Op::Choosy(n) => (18_u8, *n).encode(to),
            Op::Wait => 19_u8.encode(to),
            Op::Continue => 20_u8.encode(to),
            Op::Done => 21_u8.encode(to),
            Op::Fail => 22_u8.encode(to),
            Op::Panic => 23_u8.encode(to),
        }
    }

    fn decode(from: &mut Input<'_>) -> Result<Op, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Op::Add(from.take()?),
            1 => Op::Forward(from.take()?, from.take()?),
            2 => Op::AskFor(from.take()?),
            3 => Op::Question(from.take()?),
            4 => Op::Answer(from.take()?),
            5 => Op::Spawn,
            6 => Op::Look,
            7 => Op::Timer,
            8 => Op::Blocking(from.take()?),
            9 => Op::Monitor(from.take()?),
            10 => Op::Link(from.take()?),
            11 => Op::Trap,
            12 => Op::Name(from.take()?),
            13 => Op::Join,
            14 => Op::Subscribe,
            15 => Op::Broadcast(from.take()?),
            16 => Op::Member(from.take()?),
            17 => Op::Slow(from.take()?, from.take()?),
            18 => Op::Choosy(from.take()?),
            19 => Op::Wait,
            20 => Op::Continue,
            21 => Op::Done,
            22 => Op::Fail,
            23 => Op::Panic,
            _ => return Err(DecodeError::new("no such operation")),
        })
    }
}

/// Takes operations. It sends a digest of all that it has read to a sink, after each step.
pub(crate) struct Walker {
    /// Digest of everything that was read.
    pub(crate) memory: u64,
    sink: Option<Pid>,
    begun: Option<Instant>,
    questions: Vec<Reply<u64>>,
    asked: Vec<Tag<u64>>,
    timers: Vec<Tag<TimerFired>>,
    sent: Vec<Tag<Result<(), Rejected<Op, SendError>>>>,
    names: Vec<Tag<()>>,
    choosy: u64,
}

impl Walker {
    pub(crate) fn new() -> Walker {
        Walker {
            memory: 0,
            sink: None,
            begun: None,
            questions: Vec::new(),
            asked: Vec::new(),
            timers: Vec::new(),
            sent: Vec::new(),
            names: Vec::new(),
            choosy: 0,
        }
    }

    fn note(&mut self, word: u64) {
        self.memory = (self.memory.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn note_text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.note(u64::from(byte)));
    }

    fn note_pid(&mut self, pid: Option<Pid>) {
        let number = pid.map_or(0, |pid| u64::from(pid.slot()) << 32 | u64::from(pid.generation()));
        self.note(number);
    }

    fn completed(&mut self, done: &Completion) {
        self.note(done.tag());
        if let Some(answer) = self.asked.iter().find_map(|tag| done.take(*tag)) {
            match answer {
                Ok(n) => self.note(n),
                Err(error) => self.note_text(&error.to_string()),
            }
        } else if let Some(fired) = self.timers.iter().find_map(|tag| done.take(*tag)) {
            self.note(u64::from(fired.is_ok()));
        } else if let Some(sent) = self.sent.iter().find_map(|tag| done.take(*tag)) {
            match sent {
                Ok(Ok(())) => self.note(1),
                Ok(Err(back)) => {
                    self.note_text(&back.reason().to_string());
                    if let Op::Add(n) = back.into_inner() {
                        self.note(n);
                    }
                }
                Err(error) => self.note_text(&error.to_string()),
            }
        } else if let Some(Err(error)) = self.names.iter().find_map(|tag| done.take(*tag)) {
            let taken = error.downcast_ref::<NameError>().cloned();
            self.note_text(&format!("{taken:?}"));
        }
    }

    fn look(&mut self, out: &mut StepOutput) {
        let now = out.now();
        let begun = *self.begun.get_or_insert(now);
        self.note(now.duration_since(begun).as_nanos() as u64);
        let wall = out.system_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.note(wall.as_nanos() as u64);
        let random = out.random();
        self.note(random);
        let in_range = out.random_range(0..10);
        self.note(in_range);
        for name in ["name-0", "name-1", "nobody"] {
            self.note_pid(out.whereis(name));
        }
        for pid in out.group_members("walkers") {
            self.note_pid(Some(pid));
        }
        self.note(u64::from(out.is_shutting_down()));
    }

    /// Does it. Returns how the step ends, if it ends it.
    fn perform(&mut self, op: Op, out: &mut StepOutput) -> Option<StepResult<u64>> {
        match op {
            Op::Add(n) => self.note(n),
            Op::Forward(to, op) => out.send(to, *op),
            Op::AskFor(pid) => {
                let tag = out.ask(pid, Op::Question, Duration::from_millis(1));
                self.asked.push(tag);
            }
            Op::Question(reply) => self.questions.push(reply),
            Op::Answer(in_step) => {
                for reply in std::mem::take(&mut self.questions) {
                    if in_step {
                        out.reply(reply, self.memory);
                    } else {
                        let sent = reply.send(self.memory);
                        self.note(u64::from(sent));
                    }
                }
            }
            Op::Spawn => match self.sink {
                Some(sink) => match out.spawn_with(Walker::new(), SpawnOptions::new().entry("with", sink).monitor()) {
                    Ok(spawned) => self.note_pid(Some(spawned.pid())),
                    Err(refused) => self.note_text(&refused.reason().to_string()),
                },
                None => match out.spawn(Walker::new()) {
                    Ok(address) => self.note_pid(Some(address.pid())),
                    Err(refused) => self.note_text(&refused.reason().to_string()),
                },
            },
            Op::Look => self.look(out),
            Op::Timer => {
                let tag = out.after(Duration::from_micros(50));
                self.timers.push(tag);
            }
            Op::Blocking(n) => {
                let tag = out.blocking(move || n.wrapping_mul(3));
                self.asked.push(tag);
            }
            Op::Monitor(pid) => {
                let monitor = out.monitor(pid);
                self.note(monitor.id());
            }
            Op::Link(pid) => out.link(pid),
            Op::Trap => out.trap_exits(true),
            Op::Name(n) => {
                let tag = out.register(format!("name-{n}"), out.pid());
                self.names.push(tag);
            }
            Op::Join => _ = out.join_group("walkers", out.pid()),
            Op::Subscribe => {
                let subscription = out.subscribe("walkers");
                self.note(subscription.id());
            }
            Op::Broadcast(n) => {
                let count = out.broadcast("walkers", Op::Add(n));
                self.note(count as u64);
            }
            Op::Member(n) => out.send(Member("walkers"), Op::Add(n)),
            Op::Slow(pid, n) => {
                let tag = out.send_timeout(pid, Op::Add(n), Duration::ZERO);
                self.sent.push(tag);
            }
            Op::Choosy(steps) => self.choosy = steps,
            Op::Wait => return Some(Ok(Step::Wait)),
            Op::Continue => return Some(Ok(Step::Continue)),
            Op::Done => return Some(Ok(Step::Done(self.memory))),
            Op::Fail => return Some(Err(format!("failed with {}", self.memory).into())),
            Op::Panic => panic!("on purpose, with {}", self.memory),
        }
        None
    }
}

impl Process for Walker {
    type Message = Op;
    type Output = u64;

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        let sink = &mut self.sink;
        entry
            .method("main", |(): ()| Ok(()))
            .method("with", |pid: Pid| {
                *sink = Some(pid);
                Ok(())
            })
            .finish()
    }

    fn start(&mut self, out: &mut StepOutput) -> InitResult {
        self.note(out.random());
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, Op>, out: &mut StepOutput) -> StepResult<u64> {
        let mut end = Ok(Step::Idle);
        loop {
            let is_choosy = self.choosy > 0;
            let event = if is_choosy { events.select(|op| !matches!(op, Op::Add(_))) } else { events.next() };
            let Some(event) = event else { break };
            self.note_pid(events.sender());
            match event {
                Event::Message(op) => {
                    if let Some(ends) = self.perform(op, out) {
                        end = ends;
                        break;
                    }
                }
                Event::Completed(done) => self.completed(&done),
                Event::Cancel(request) => {
                    self.note_text(&request.reason.to_string());
                    end = Ok(Step::Done(self.memory));
                    break;
                }
                Event::Down(down) => {
                    self.note(down.monitor.id());
                    self.note_text(&down.exit.to_string());
                }
                Event::Exit(signal) => self.note_text(&format!("{} {}", signal.pid, signal.exit)),
                Event::Group(event) => match &event.change {
                    GroupChange::Members(members) => members.iter().for_each(|pid| self.note_pid(Some(*pid))),
                    GroupChange::Joined(pid) | GroupChange::Left(pid) => self.note_pid(Some(*pid)),
                    _ => {}
                },
                _ => self.note(99),
            }
        }
        self.choosy = self.choosy.saturating_sub(1);
        if let Some(sink) = self.sink {
            out.send(sink, Op::Add(self.memory));
        }
        end
    }
}

impl Snapshot for Walker {
    fn snapshot(&self, to: &mut Vec<u8>) {
        (self.memory, (self.sink, self.begun)).encode(to);
        self.questions.encode(to);
        self.asked.encode(to);
        self.timers.encode(to);
        self.sent.encode(to);
        self.names.encode(to);
        self.choosy.encode(to);
    }

    fn restore(from: &mut Input<'_>) -> Result<Walker, DecodeError> {
        let (memory, (sink, begun)) = from.take()?;
        Ok(Walker {
            memory,
            sink,
            begun,
            questions: from.take()?,
            asked: from.take()?,
            timers: from.take()?,
            sent: from.take()?,
            names: from.take()?,
            choosy: from.take()?,
        })
    }
}

/// Takes everything, and does nothing.
pub(crate) struct Sink;

impl Process for Sink {
    type Message = Op;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Op>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Cancel(_) = event {
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    }
}

/// The recordings that were saved.
#[derive(Clone, Default)]
pub(crate) struct Saved(Arc<Mutex<Vec<Vec<u8>>>>);

impl Saved {
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn one(&self) -> Vec<u8> {
        let mut all = self.take();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// A recorder of walkers that saves here.
    pub(crate) fn recorder(&self) -> Recorder {
        let saved = self.0.clone();
        Recorder::to(move |bytes| saved.lock().unwrap().push(bytes)).version("walker 1").process::<Walker>()
    }

    /// As `recorder`, with snapshots.
    pub(crate) fn with_snapshots(&self) -> Recorder {
        self.recorder().snapshots::<Walker>()
    }
}

/// The recorder that replays walkers.
pub(crate) fn replayer() -> Recorder {
    Saved::default().with_snapshots()
}

pub(crate) fn opened(bytes: &[u8]) -> Recording {
    Recording::from_bytes(bytes.to_vec()).unwrap()
}

/// A runtime with this recorder, and a walker that was given these operations and has ended.
pub(crate) fn walk(recorder: Recorder, ops: impl IntoIterator<Item = Op>) {
    let runtime = Runtime::builder().workers(1).recorder(recorder).start().unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    ops.into_iter().for_each(|op| runtime.send(walker.address(), op).unwrap());
    let _ = runtime.send(walker.address(), Op::Done);
    crate::wait::wait(&walker);
}
