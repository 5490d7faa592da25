//! Random programs of one mailbox with a bound, against a plain queue: which messages are refused, dropped and taken,
//! and in which order.
//!
//! The process waits for a command, so that messages queue up, until the program says that it may step. So there is one
//! interleaving, and the queue says exactly what happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::{
    BoxError, Event, Events, Exit, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Wait,
    Fail,
    Panic,
    Upgrade,
}

#[derive(Clone, Copy, Debug)]
struct Take {
    messages: usize,
    /// Takes odd numbers only, and passes over the others.
    odd: bool,
    /// So many are sent while the step runs.
    meanwhile: u32,
    then: Then,
}

#[derive(Clone, Debug)]
enum Op {
    Send(u32),
    Step(Take),
}

#[derive(Clone, Debug)]
struct Program {
    limit: usize,
    overflow: Overflow,
    ops: Vec<Op>,
}

/// A message, which notes that it is gone.
struct Numbered(u32, Log<u32>);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.1.push(self.0);
    }
}

/// The acts of the next step, which blocks when it has done them.
type Allowed = (Take, Blocked);

/// Answered when the process may step.
struct MayStep;

impl Command for MayStep {
    type Output = Allowed;
}

struct Gated {
    taken: Log<u32>,
    next: Option<Allowed>,
    asked: Option<procession::Tag<Allowed>>,
}

impl Gated {
    fn new(taken: &Log<u32>) -> Gated {
        Gated { taken: taken.clone(), next: None, asked: None }
    }

    fn waits(&mut self, out: &mut StepOutput) -> StepResult<()> {
        self.asked = Some(out.command(MayStep));
        Ok(Step::Wait)
    }
}

impl Process for Gated {
    type Message = Numbered;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Numbered>, out: &mut StepOutput) -> StepResult<()> {
        let Some((take, blocked)) = self.next.take() else {
            let Some(asked) = self.asked.take() else { return self.waits(out) };
            let Some(Event::Completed(done)) = events.next() else { return Err("it had to be a completion".into()) };
            self.next = Some(done.take(asked).ok_or("the wrong tag")??);
            // A step after `Wait` is given no messages: the next one is.
            return Ok(Step::Continue);
        };
        let mut got = Vec::new();
        while got.len() < take.messages {
            let wanted = |message: &Numbered| !take.odd || message.0 % 2 == 1;
            let Some(event) = events.select(wanted) else { break };
            let Event::Message(message) = event else { return Err("nothing but messages was sent".into()) };
            got.push(message);
        }
        blocked.wait();
        match take.then {
            Then::Fail => return Err("by plan".into()),
            Then::Panic => panic!("on purpose"),
            Then::Wait | Then::Upgrade => got.iter().for_each(|message| self.taken.push(message.0)),
        }
        if take.then == Then::Upgrade {
            return Ok(Step::Upgrade(Upgrade::to(Gated::new(&self.taken))));
        }
        self.waits(out)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Gated::new(&self.taken)))
    }
}

/// The mailbox as it has to be.
#[derive(Default)]
struct Model {
    queue: VecDeque<u32>,
    /// So many in front were left by the last step.
    left: usize,
    /// While a step runs: so many of those that it was given were left by the step before, and hold their places.
    held: usize,
    /// In the order in which they go, as far as there is one: those that a step takes go when it is over.
    gone: Vec<u32>,
    taken: Vec<u32>,
    lost: u64,
    oldest: u64,
    newest: u64,
}

impl Model {
    /// A message is sent to the mailbox. Whether it is refused.
    fn send(&mut self, program: &Program, number: u32) -> bool {
        // `DropOldest` takes a message into the place of a held one, which goes when the step is over.
        let held = if program.overflow == Overflow::DropOldest { 0 } else { self.held };
        if held + self.queue.len() < program.limit {
            self.queue.push_back(number);
            return false;
        }
        match program.overflow {
            Overflow::Refuse => {
                self.gone.push(number);
                return true;
            }
            Overflow::DropNewest => {
                self.gone.push(number);
                self.newest += 1;
            }
            _ => {
                self.queue.push_back(number);
                self.drops_oldest(program);
            }
        }
        false
    }

    fn drops_oldest(&mut self, program: &Program) {
        while program.overflow == Overflow::DropOldest && self.queue.len() > program.limit {
            self.gone.extend(self.queue.pop_front());
            self.oldest += 1;
        }
    }

    /// Begins a step with all that is there, and returns the messages that it leaves. The places of the new ones are
    /// free until the step is over.
    fn step(&mut self, take: Take) -> VecDeque<u32> {
        let (mut got, mut left) = (Vec::new(), VecDeque::new());
        self.held = std::mem::take(&mut self.left);
        for number in std::mem::take(&mut self.queue) {
            if got.len() < take.messages && (!take.odd || number % 2 == 1) {
                got.push(number);
            } else {
                left.push_back(number);
            }
        }
        self.gone.extend(&got);
        match take.then {
            Then::Wait | Then::Upgrade => self.taken.extend(got),
            Then::Fail | Then::Panic => self.lost += got.len() as u64,
        }
        left
    }

    /// The step is over.
    fn settles(&mut self, program: &Program, take: Take, left: VecDeque<u32>) {
        (self.held, self.left) = (0, left.len());
        let meanwhile = std::mem::replace(&mut self.queue, left);
        self.queue.extend(meanwhile);
        if take.then != Then::Wait {
            // The first step of a successor is given all, and leaves it.
            self.left = self.queue.len();
        }
        self.drops_oldest(program);
    }
}

type MaySteps = Arc<Mutex<Vec<Responder<Allowed>>>>;

struct Run<'a> {
    program: &'a Program,
    runtime: Runtime,
    may_step: MaySteps,
    gone: Log<u32>,
    model: Model,
    numbers: u32,
}

impl Run<'_> {
    fn send(&mut self, to: procession::Address<Numbered>) -> Result<(), String> {
        self.numbers += 1;
        let number = self.numbers;
        let refused = self.model.send(self.program, number);
        let sent = self.runtime.send(to, Numbered(number, self.gone.clone()));
        let back = sent.err().map(|rejected| rejected.into_parts().0.0);
        if back != refused.then_some(number) {
            return Err(format!("{number} is to be refused: {refused}, and {back:?} came back"));
        }
        Ok(())
    }

    fn rests(&self) {
        until("it waits to be let go on", || self.may_step.lock().unwrap().len() == 1 && self.runtime.is_idle());
    }
}

/// A command that is not answered holds the runtime, which holds the handler, which holds the command.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        let unanswered = std::mem::take(&mut *self.may_step.lock().unwrap());
        drop(unanswered);
    }
}

fn run(program: &Program) -> Result<(), String> {
    let may_step = MaySteps::default();
    let asks = may_step.clone();
    let handler = move |_: MayStep, done: Responder<_>| -> Result<(), BoxError> {
        asks.lock().unwrap().push(done);
        Ok(())
    };
    // A step is given all that there may be.
    let runtime = builder().workers(1).step_events(1_000).handler::<MayStep, _>(handler).start().unwrap();
    let (taken, options) = (Log::new(), SpawnOptions::new().mailbox(program.limit, program.overflow));
    let process = runtime.spawn_with(Gated::new(&taken), options).map_err(|why| why.to_string())?;
    let mut run = Run { program, runtime, may_step, gone: Log::new(), model: Model::default(), numbers: 0 };
    run.rests();
    for op in &program.ops {
        let Op::Step(take) = op else {
            let Op::Send(count) = op else { continue };
            (0..*count).try_for_each(|_| run.send(process.address()))?;
            continue;
        };
        let blocker = Blocker::new();
        let may_step = run.may_step.lock().unwrap().remove(0);
        may_step.ok((*take, blocker.blocked()));
        blocker.wait_begun();
        let left = run.model.step(*take);
        let sent = (0..take.meanwhile).try_for_each(|_| run.send(process.address()));
        blocker.release();
        sent?;
        run.rests();
        run.model.settles(program, *take, left);
        let (mut gone, mut expected) = (run.gone.to_vec(), run.model.gone.clone());
        gone.sort_unstable();
        expected.sort_unstable();
        if (taken.to_vec(), &gone) != (run.model.taken.clone(), &expected) {
            let model = (&run.model.taken, expected);
            return Err(format!("after {take:?}: taken {:?}, gone {gone:?}; the model: {model:?}", taken.to_vec()));
        }
        let mailbox = run.runtime.process(process.pid()).map(|info| info.mailbox);
        if mailbox != Some(run.model.queue.len()) {
            return Err(format!("{mailbox:?} wait instead of {:?}", run.model.queue));
        }
    }
    let waiting = run.model.queue.len() as u64;
    let report = run.runtime.shutdown(Duration::ZERO).map_err(|error| error.to_string())?;
    let dead = run.runtime.stats().messages.dead_by_reason;
    let count = |reason| dead.get(&reason).copied().unwrap_or(0);
    let reasons = [
        DeadLetterReason::StepFailed,
        DeadLetterReason::DroppedNewest,
        DeadLetterReason::DroppedOldest,
        DeadLetterReason::Ended,
    ];
    let [lost, newest, oldest, ended] = reasons.map(count);
    // A held message that has lost its place would have gone with the next step.
    let found = [lost, newest, oldest + ended];
    let expected = [run.model.lost, run.model.newest, run.model.oldest + waiting];
    if found != expected || run.gone.len() != run.numbers as usize {
        return Err(format!("dead: {found:?} instead of {expected:?}; {report}"));
    }
    Ok(())
}

fn program() -> impl Strategy<Value = Program> {
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::DropOldest), Just(Overflow::DropNewest)];
    let then =
        prop_oneof![6 => Just(Then::Wait), 1 => Just(Then::Fail), 1 => Just(Then::Panic), 1 => Just(Then::Upgrade)];
    let take = (0..5_usize, prop::bool::weighted(0.3), 0..6_u32, then)
        .prop_map(|(messages, odd, meanwhile, then)| Take { messages, odd, meanwhile, then });
    let op = prop_oneof![(1..5_u32).prop_map(Op::Send), take.prop_map(Op::Step)];
    (1..5_usize, overflow, prop::collection::vec(op, 1..12)).prop_map(|(limit, overflow, ops)| Program {
        limit,
        overflow,
        ops,
    })
}

#[test]
fn a_mailbox_with_a_bound_does_what_a_plain_queue_would() {
    random_programs(300, Config::default(), program(), run);
}
