//! Durable processes that run children, and a process that counts them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use procession::command::TimerFired;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal, Position, Status};
use procession::durable::{Durable, Store};
use procession::spawn::ParentEndPolicy;
use procession::{
    Address, BoxError, Event, Events, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult, Tag,
};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::LIMIT;
use crate::worker::DAY;

/// When a node is done. Its output is its number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Span {
    /// After so many steps.
    Steps(u32),
    /// When it is told, or asked to stop.
    Told,
    /// After a day.
    Day,
}

/// Runs children, and notes how they have answered.
#[derive(Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) span: Span,
    /// How many children it runs at its start, how many each of them, and so on.
    pub(crate) below: Vec<u64>,
    pub(crate) census: Option<Address<CensusMessage>>,
    running: Vec<(u64, Tag<u64>)>,
    answers: Vec<String>,
    timer: Option<Tag<TimerFired>>,
    /// How many children it still runs, one after the other.
    in_a_row: u64,
    /// Whether its steps fail as often as the static counter says.
    is_unsure: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum NodeMessage {
    /// Runs a child, with what it does when its parent ends.
    Run(u64, Span, Policy),
    /// Runs a child whose type the store does not know.
    RunOrdinary,
    /// Runs so many children, one after the other.
    InARow(u64),
    /// Runs a child, and fails as often as the static counter says.
    RunAndFail(u64),
    /// Cancels all that is outstanding.
    Cancel,
    /// Runs a child, and cancels it in the same step.
    RunAndCancel(u64),
    Look(Reply<Vec<String>>),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Policy {
    Terminate,
    Cancel,
    Leave,
}

/// How often a step is to fail that runs a child, or that takes an answer.
pub(crate) static FAILURES: AtomicU32 = AtomicU32::new(0);

/// Whether more than so many failures are left. This takes one of them.
fn fails(least: u32) -> bool {
    let next = |left: u32| left.checked_sub(1).filter(|_| left > least);
    FAILURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
}

impl Node {
    pub(crate) fn new(number: u64, span: Span, census: Option<Address<CensusMessage>>) -> Node {
        let (running, answers) = (Vec::new(), Vec::new());
        Node { number, span, below: Vec::new(), census, running, answers, timer: None, in_a_row: 0, is_unsure: false }
    }

    fn run(&mut self, number: u64, span: Span, policy: Policy, out: &mut StepOutput) {
        let mut child = Node::new(number, span, self.census);
        child.below = self.below.get(1..).unwrap_or_default().to_vec();
        let policy = match policy {
            Policy::Terminate => ParentEndPolicy::Terminate,
            Policy::Cancel => ParentEndPolicy::Cancel,
            Policy::Leave => ParentEndPolicy::Leave,
        };
        self.running.push((number, out.run_with(child, SpawnOptions::new().parent_end(policy))));
    }
}

impl Process for Node {
    type Message = NodeMessage;
    type Output = u64;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        let me = out.pid().typed();
        self.census.into_iter().for_each(|census| out.send(census, CensusMessage::Begun(self.number, me)));
        for child in 1..=self.below.first().copied().unwrap_or_default() {
            self.run(self.number * 1_000 + child, self.span, Policy::Terminate, out);
        }
        if self.span == Span::Day {
            self.timer = Some(out.after(DAY));
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, NodeMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(NodeMessage::Run(number, span, policy)) => self.run(number, span, policy, out),
                Event::Message(NodeMessage::RunOrdinary) => {
                    self.running.push((0, out.run(Ordinary)));
                }
                Event::Message(NodeMessage::InARow(children)) => {
                    self.in_a_row = children;
                    self.run(self.number * 1_000 + children, Span::Steps(2), Policy::Terminate, out);
                }
                Event::Message(NodeMessage::RunAndFail(number)) => {
                    self.is_unsure = true;
                    self.run(number, Span::Steps(1), Policy::Terminate, out);
                    // One is left for the answer.
                    if fails(1) {
                        return Err("on purpose".into());
                    }
                }
                Event::Message(NodeMessage::Cancel) => {
                    self.running.iter().for_each(|(_, tag)| out.cancel_command(*tag));
                }
                Event::Message(NodeMessage::RunAndCancel(number)) => {
                    self.run(number, Span::Told, Policy::Terminate, out);
                    self.running.iter().for_each(|(_, tag)| out.cancel_command(*tag));
                }
                Event::Message(NodeMessage::Look(reply)) => out.reply(reply, self.answers.clone()),
                Event::Message(NodeMessage::Over) | Event::Cancel(_) => return Ok(Step::Done(self.number)),
                Event::Completed(done) if self.timer.is_some_and(|timer| done.is(timer)) => {
                    return Ok(Step::Done(self.number));
                }
                Event::Completed(done) => {
                    let place = self.running.iter().position(|(_, tag)| done.is(*tag));
                    let (number, tag) = self.running.swap_remove(place.ok_or("an answer without a command")?);
                    let answer = done.take(tag).ok_or("an answer without a value")?;
                    let answer = answer.map_or_else(|error| error.to_string(), |output| output.to_string());
                    if self.in_a_row > 0 {
                        // The output of a child is its number.
                        if answer != number.to_string() {
                            self.answers.push(format!("{number}: {answer}"));
                        }
                        self.in_a_row -= 1;
                        match self.in_a_row {
                            0 => self.answers.push("all".into()),
                            left => self.run(self.number * 1_000 + left, Span::Steps(2), Policy::Terminate, out),
                        }
                    } else {
                        // The PIDs differ from run to run.
                        let words: Vec<_> = answer.split(' ').filter(|word| !word.contains('.')).collect();
                        self.answers.push(format!("{number}: {}", words.join(" ")));
                    }
                    if self.is_unsure && fails(0) {
                        return Err("on purpose".into());
                    }
                }
                _ => self.answers.push("something else".into()),
            }
        }
        Ok(match &mut self.span {
            Span::Steps(0) => Step::Done(self.number),
            Span::Steps(left) => {
                *left -= 1;
                Step::Continue
            }
            Span::Told | Span::Day => Step::Idle,
        })
    }
}

impl Durable for Node {
    const NAME: &str = "node";
}

/// Ends when it is asked to stop.
pub(crate) struct Ordinary;

impl Process for Ordinary {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u64> {
        Ok(if events.any(|event| matches!(event, Event::Cancel(_))) { Step::Done(0) } else { Step::Idle })
    }
}

/// Counts nodes that have begun.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Census {
    begun: BTreeMap<u64, Vec<Address<NodeMessage>>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum CensusMessage {
    Begun(u64, Address<NodeMessage>),
    /// The nodes by their numbers.
    Look(Reply<BTreeMap<u64, Vec<Address<NodeMessage>>>>),
}

impl Process for Census {
    type Message = CensusMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, CensusMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(CensusMessage::Begun(number, node)) => {
                    self.begun.entry(number).or_default().push(node);
                }
                Event::Message(CensusMessage::Look(reply)) => out.reply(reply, self.begun.clone()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Census {
    const NAME: &str = "census";
}

pub(crate) fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> (Store, Runtime) {
    store_in(journal).kind::<Node>().kind::<Census>().start(builder.workers(2)).unwrap()
}

pub(crate) fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    start(MemoryJournal::new(disk), Runtime::builder())
}

/// Begins a census, and a node that ends when it is told.
pub(crate) fn begin(store: &Store, below: &[u64]) -> (Address<CensusMessage>, Address<NodeMessage>) {
    let census = store.begin("census", Census::default()).unwrap();
    let root = Node { below: below.to_vec(), ..Node::new(1, Span::Told, Some(census.address())) };
    let root = store.begin("root", root).unwrap();
    root.wait(LIMIT).unwrap();
    (census.address(), root.address())
}

/// The notes of a node. While the store opens its files again, a question may be dropped.
pub(crate) fn answers(runtime: &Runtime, node: Address<NodeMessage>) -> Option<Vec<String>> {
    runtime.ask(node, NodeMessage::Look, LIMIT).wait().ok()
}

pub(crate) fn begun(
    runtime: &Runtime,
    census: Address<CensusMessage>,
) -> Option<BTreeMap<u64, Vec<Address<NodeMessage>>>> {
    runtime.ask(census, CensusMessage::Look, LIMIT).wait().ok()
}

/// The number of processes on the disk that have ended, and that have not.
pub(crate) fn on_disk(disk: &MemoryDisk) -> (usize, usize) {
    let mut opened = MemoryJournal::new(disk).open().unwrap();
    opened.tables.apply(Position(u64::MAX)).unwrap();
    let mut reader = opened.tables.reader().unwrap();
    let mut count = |status| reader.with_status(Some(status), 0, usize::MAX >> 1).unwrap().len();
    (count(Status::Ended), count(Status::Ready) + count(Status::Sleeping) + count(Status::Parked))
}
