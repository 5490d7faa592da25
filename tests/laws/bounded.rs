//! Random programs of one mailbox with a bound, against a plain queue: which messages are refused, dropped and taken,
//! and in which order. They run on workers, and in simulations.
//!
//! The process waits for a command, so that messages queue up, until the program says that it may step. So there is one
//! interleaving, and the queue says exactly what happens.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::DeadLetterReason;
use procession::simulation::{Simulation, World};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, Event, Events, Exit, Process, Recipient, Runtime, SpawnOptions, Step, StepOutput, StepResult,
    Upgrade,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::bounded_model::Model;
use crate::helpers::*;
use crate::seeded::random_programs;
use crate::simulated::cases;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    Wait,
    Fail,
    Panic,
    Upgrade,
}

#[derive(Clone, Copy, Debug)]
pub struct Take {
    pub messages: usize,
    /// Takes odd numbers only, and passes over the others.
    pub odd: bool,
    /// So many are sent while the step runs.
    pub meanwhile: u32,
    pub then: Then,
}

#[derive(Clone, Debug)]
enum Op {
    /// The code outside sends so many.
    Send(u32),
    /// Another process sends so many in one step.
    SendTogether(u32),
    /// So many are sent that wait for room: by another process, or by the code outside.
    Wait(u32),
    /// The code outside gives one of its sends up that wait for room, or have waited.
    GiveUp(usize),
    /// The code outside sends one that is converted. The conversion sends so many others, and may panic.
    Convert(u32, bool),
    Step(Take),
}

#[derive(Clone, Debug)]
pub struct Program {
    pub limit: usize,
    pub overflow: Overflow,
    ops: Vec<Op>,
    /// Whether the code outside sends those that wait for room.
    waits_outside: bool,
    /// Of a simulation.
    seed: u64,
}

/// A message, which notes that it is gone.
struct Numbered(u32, Log<u32>);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.1.push(self.0);
    }
}

/// A message that is converted on its way to the process.
struct Parcel(Numbered);

/// Whether the message with this number is sent as a parcel. A mailbox treats it as any other.
fn is_parcel(number: u32) -> bool {
    number.is_multiple_of(3)
}

fn recipient(to: Address<Numbered>) -> Recipient<Parcel> {
    to.map(|Parcel(message)| message)
}

/// Whether the conversion of this message panics, if the message may wait for room.
pub fn panics_late(number: u32) -> bool {
    is_parcel(number) && number.is_multiple_of(2)
}

/// As `recipient`, for messages that may wait for room.
fn late_recipient(to: Address<Numbered>) -> Recipient<Parcel> {
    to.map(|Parcel(message)| if panics_late(message.0) { panic!("on purpose") } else { message })
}

/// The acts of the next step, and what happens while it runs.
type Allowed = (Take, Box<dyn FnOnce() + Send>);

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
        let Some((take, meanwhile)) = self.next.take() else {
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
        meanwhile();
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

/// A task of another process.
enum Errand {
    SendTogether(Vec<Numbered>),
    Wait(Vec<Numbered>),
}

/// Sends to the process with the bound. Messages that come back are dropped.
fn sender(to: Address<Numbered>) -> impl Process<Message = Errand, Output = ()> {
    script(move |events: &mut Events<'_, Errand>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Errand::SendTogether(all)) => all.into_iter().for_each(|one| match is_parcel(one.0) {
                    true => out.send(&recipient(to), Parcel(one)),
                    false => out.send(to, one),
                }),
                Event::Message(Errand::Wait(all)) => all.into_iter().for_each(|one| match is_parcel(one.0) {
                    true => _ = out.send_timeout(&late_recipient(to), Parcel(one), Duration::MAX),
                    false => _ = out.send_timeout(to, one, Duration::MAX),
                }),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

type MaySteps = Arc<Mutex<Vec<Responder<Allowed>>>>;

struct Run<'a> {
    program: &'a Program,
    world: Option<&'a World>,
    runtime: Runtime,
    to: Address<Numbered>,
    may_step: MaySteps,
    gone: Log<u32>,
    model: Model,
    numbers: u32,
    /// The futures of sends of the code outside that wait for room, or have waited, with the numbers of the messages.
    sends: Vec<(u32, Box<dyn Any>)>,
}

impl Run<'_> {
    /// The numbers of new messages.
    fn numbers(&mut self, count: u32) -> std::ops::RangeInclusive<u32> {
        self.numbers += count;
        self.numbers - count + 1..=self.numbers
    }

    /// The numbers of messages that are sent now, and whether they are to be refused.
    fn sends(&mut self, count: u32) -> Vec<(u32, bool)> {
        self.numbers(count).map(|number| (number, self.model.send(self.program, number))).collect()
    }

    fn rests(&self) -> Result<(), String> {
        match self.world {
            None => until("it waits to be let go on", || self.waits() && self.runtime.is_idle()),
            Some(world) => world.run().map_err(|error| error.to_string())?,
        }
        if self.waits() { Ok(()) } else { Err("the process does not wait for its next step".into()) }
    }

    /// Whether the process waits to be let go on.
    fn waits(&self) -> bool {
        self.may_step.lock().unwrap().len() == 1
    }

    fn begin_step(&mut self, allowed: Allowed) {
        let may_step = self.may_step.lock().unwrap().remove(0);
        may_step.ok(allowed);
    }

    fn step(&mut self, take: Take) -> Result<(), String> {
        let left = self.model.step(self.program, take);
        let sends = self.sends(take.meanwhile);
        let (gone, to) = (self.gone.clone(), self.to);
        if self.world.is_none() {
            let blocker = Blocker::new();
            let blocked = blocker.blocked();
            self.begin_step((take, Box::new(move || blocked.wait())));
            blocker.wait_begun();
            let sent = send_each(&self.runtime, to, &sends, &gone);
            blocker.release();
            sent?;
            self.rests()?;
        } else {
            let (weak, sent) = (self.runtime.downgrade(), Log::new());
            let told = sent.clone();
            let meanwhile = move || {
                let runtime = weak.upgrade().ok_or("the runtime is gone".to_owned());
                told.push(runtime.and_then(|runtime| send_each(&runtime, to, &sends, &gone)));
            };
            self.begin_step((take, Box::new(meanwhile)));
            self.rests()?;
            sent.to_vec().into_iter().collect::<Result<Vec<()>, _>>()?;
        }
        self.model.settles(self.program, take, left);
        Ok(())
    }

    /// Sends a message that may wait for room. If there is room, its conversion may panic here.
    fn waits_outside(&mut self, number: u32) {
        let message = Numbered(number, self.gone.clone());
        if is_parcel(number) {
            let send = || self.runtime.send_timeout(&late_recipient(self.to), Parcel(message), Duration::MAX);
            let sent = catch_unwind(AssertUnwindSafe(send)).ok();
            self.sends.extend(sent.map(|sent| (number, Box::new(sent) as Box<dyn Any>)));
        } else {
            self.sends.push((number, Box::new(self.runtime.send_timeout(self.to, message, Duration::MAX))));
        }
    }

    /// Drops the future of a send. If the message still waits, it goes.
    fn gives_up(&mut self, which: usize) {
        if let Some(place) = which.checked_rem(self.sends.len()) {
            let (number, sent) = self.sends.swap_remove(place);
            drop(sent);
            self.model.gives_up(number);
        }
    }

    /// Sends a message whose conversion sends others, and may panic. A message that is refused is not converted.
    fn converts(&mut self, others: u32, panics: bool) -> Result<(), String> {
        let number = *self.numbers(1).start();
        let is_refused = self.model.begins_conversion(self.program, number);
        let sends = if is_refused { Vec::new() } else { self.sends(others) };
        let (weak, to, gone, sent) = (self.runtime.downgrade(), self.to, self.gone.clone(), Log::new());
        let told = sent.clone();
        let target = to.map(move |Parcel(message)| {
            let runtime = weak.upgrade().ok_or("the runtime is gone".to_owned());
            told.push(runtime.and_then(|runtime| send_each(&runtime, to, &sends, &gone)));
            if panics { panic!("on purpose") } else { message }
        });
        let parcel = Parcel(Numbered(number, self.gone.clone()));
        let outcome = catch_unwind(AssertUnwindSafe(|| self.runtime.send(&target, parcel).is_err()));
        let expected = if is_refused { Some(true) } else { (!panics).then_some(false) };
        if outcome.as_ref().ok() != expected.as_ref() || sent.len() != usize::from(!is_refused) {
            return Err(format!("{number} is to be refused: {is_refused}, and {outcome:?} came back"));
        }
        if !is_refused {
            self.model.ends_conversion(self.program, number, panics);
        }
        sent.to_vec().into_iter().collect()
    }
}

/// Sends messages with these numbers. Each is handed back if it is to be refused.
fn send_each(runtime: &Runtime, to: Address<Numbered>, sends: &[(u32, bool)], gone: &Log<u32>) -> Result<(), String> {
    for (number, refused) in sends {
        let message = Numbered(*number, gone.clone());
        let back = match is_parcel(*number) {
            true => runtime.send(&recipient(to), Parcel(message)).err().map(|back| back.into_parts().0.0.0),
            false => runtime.send(to, message).err().map(|back| back.into_parts().0.0),
        };
        if back != refused.then_some(*number) {
            return Err(format!("{number} is to be refused: {refused}, and {back:?} came back"));
        }
    }
    Ok(())
}

/// A command that is not answered holds the runtime, which holds the handler, which holds the command.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        let unanswered = std::mem::take(&mut *self.may_step.lock().unwrap());
        drop(unanswered);
    }
}

fn run_simulated(program: &Program) -> Result<(), String> {
    let of_scenario = program.clone();
    let report = Simulation::new(move |world| run(&of_scenario, Some(world)).map_err(BoxError::from))
        .name("random mailboxes")
        .seeds(program.seed..program.seed + 1)
        .threads(1)
        .without("no step panics")
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

fn run(program: &Program, world: Option<&World>) -> Result<(), String> {
    let may_step = MaySteps::default();
    let asks = may_step.clone();
    let handler = move |_: MayStep, done: Responder<_>| -> Result<(), BoxError> {
        asks.lock().unwrap().push(done);
        Ok(())
    };
    // A step is given all that there may be.
    let builder = builder().step_events(1_000).handler::<MayStep, _>(handler);
    let runtime = match world {
        None => builder.workers(1).start(),
        Some(world) => world.start(builder),
    };
    let runtime = runtime.map_err(|error| error.to_string())?;
    let (taken, options) = (Log::new(), SpawnOptions::new().mailbox(program.limit, program.overflow));
    let process = runtime.spawn_with(Gated::new(&taken), options).map_err(|why| why.to_string())?;
    let to = process.address();
    let mut senders = Vec::new();
    for _ in 0..2 {
        senders.push(runtime.spawn(sender(to)).map_err(|why| why.to_string())?);
    }
    let (gone, model) = (Log::new(), Model::default());
    let mut run = Run { program, world, runtime, to, may_step, gone, model, numbers: 0, sends: Vec::new() };
    run.rests()?;
    for op in &program.ops {
        match op {
            Op::Send(count) => {
                let sends = run.sends(*count);
                send_each(&run.runtime, to, &sends, &run.gone)?;
                continue;
            }
            // The model does not cover messages that wait for room while the state machine is replaced.
            Op::Step(take) if take.then != Then::Wait && !run.model.waiting.is_empty() => continue,
            // A simulation may show a step only one message.
            Op::Step(take) if world.is_some() => {
                run.step(Take { messages: take.messages.min(1), odd: false, ..*take })?
            }
            Op::Step(take) => run.step(*take)?,
            Op::SendTogether(count) => {
                let sends = run.sends(*count);
                run.model.full += sends.iter().filter(|(_, refused)| *refused).count() as u64;
                let all = sends.iter().map(|(number, _)| Numbered(*number, run.gone.clone())).collect();
                run.runtime.send(&senders[0], Errand::SendTogether(all)).map_err(|why| why.to_string())?;
                run.rests()?;
                continue;
            }
            Op::GiveUp(which) => {
                run.gives_up(*which);
                continue;
            }
            Op::Convert(others, panics) => {
                run.converts(*others, *panics)?;
                continue;
            }
            Op::Wait(count) => {
                let numbers = run.numbers(*count);
                numbers.clone().for_each(|number| run.model.waits(program, number));
                if program.waits_outside {
                    numbers.for_each(|number| run.waits_outside(number));
                    run.rests()?;
                    continue;
                }
                let all = numbers.map(|number| Numbered(number, run.gone.clone())).collect();
                run.runtime.send(&senders[1], Errand::Wait(all)).map_err(|why| why.to_string())?;
                run.rests()?;
                continue;
            }
        }
        // A message that is pushed out goes with the next step.
        let (mut gone, mut expected) = (run.gone.to_vec(), run.model.gone.clone());
        gone.sort_unstable();
        expected.sort_unstable();
        if (taken.to_vec(), &gone) != (run.model.taken.clone(), &expected) {
            let model = (&run.model.taken, expected);
            return Err(format!("after {op:?}: taken {:?}, gone {gone:?}; the model: {model:?}", taken.to_vec()));
        }
        let mailbox = run.runtime.process(process.pid()).map(|info| info.mailbox);
        if mailbox != Some(run.model.queue.len()) {
            return Err(format!("after {op:?}: {mailbox:?} wait instead of {:?}", run.model.queue));
        }
    }
    let waiting = run.model.queue.len() as u64;
    let report = run.runtime.shutdown(Duration::ZERO).map_err(|error| error.to_string())?;
    run.sends.clear();
    let messages = run.runtime.stats().messages;
    let (accepted, others) = (messages.accepted, messages.stepped + messages.dead() + messages.queued);
    if accepted != others {
        return Err(format!("{accepted} messages were accepted, and {others} were stepped, are dead or wait"));
    }
    let dead = messages.dead_by_reason;
    let count = |reason| dead.get(&reason).copied().unwrap_or(0);
    let reasons = [
        DeadLetterReason::StepFailed,
        DeadLetterReason::DroppedNewest,
        DeadLetterReason::Full,
        DeadLetterReason::DroppedOldest,
        DeadLetterReason::Ended,
    ];
    let [lost, newest, full, oldest, ended] = reasons.map(count);
    // A held message that has lost its place would have gone with the next step.
    let found = [lost, newest, oldest + ended];
    let expected = [run.model.lost, run.model.newest, run.model.oldest + waiting];
    // Those that wait for room at the end go to their senders, which end, too.
    let is_full_right = (run.model.full..=run.model.full + run.model.waiting.len() as u64).contains(&full);
    if found != expected || !is_full_right || run.gone.len() != run.numbers as usize {
        return Err(format!("dead: {found:?} instead of {expected:?}, {full} full; {report}"));
    }
    Ok(())
}

fn program() -> impl Strategy<Value = Program> {
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::DropOldest), Just(Overflow::DropNewest)];
    let then =
        prop_oneof![6 => Just(Then::Wait), 1 => Just(Then::Fail), 1 => Just(Then::Panic), 1 => Just(Then::Upgrade)];
    let take = (0..5_usize, prop::bool::weighted(0.3), 0..6_u32, then)
        .prop_map(|(messages, odd, meanwhile, then)| Take { messages, odd, meanwhile, then });
    let op = prop_oneof![
        2 => (1..5_u32).prop_map(Op::Send),
        1 => (1..5_u32).prop_map(Op::SendTogether),
        1 => (1..5_u32).prop_map(Op::Wait),
        1 => any::<usize>().prop_map(Op::GiveUp),
        1 => (0..4_u32, prop::bool::weighted(0.2)).prop_map(|(others, panics)| Op::Convert(others, panics)),
        4 => take.prop_map(Op::Step),
    ];
    (1..5_usize, overflow, prop::collection::vec(op, 1..12), any::<bool>(), any::<u32>()).prop_map(
        |(limit, overflow, ops, waits_outside, seed)| Program {
            limit,
            overflow,
            ops,
            waits_outside,
            seed: seed.into(),
        },
    )
}

#[test]
fn a_mailbox_with_a_bound_does_what_a_plain_queue_would() {
    random_programs(300, Config::default(), program(), |program| run(program, None));
}

#[test]
fn a_simulated_mailbox_with_a_bound_does_what_a_plain_queue_would() {
    random_programs(cases(25_000), Config::default(), program(), run_simulated);
}
