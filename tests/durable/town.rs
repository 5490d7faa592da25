//! A random program of durable processes, and the world outside of it, which outlives its kills.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use procession::command::{Command, CommandKey, Responder, Retry, TimerFired};
use procession::config::RuntimeBuilder;
use procession::durable::{Durable, DurableCommand, Format, StoreBuilder};
use procession::{
    Address, BoxError, Event, Events, Monitor, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag,
};
use serde::{Deserialize, Serialize};

use crate::neighbours::{How, Partner, PartnerMessage, Price, Question, Seen, Surroundings, Tie, Ties};
use crate::operators::Orders;
use crate::script::draw;

/// The world outside. A simulated world has one thread.
#[derive(Default)]
pub(crate) struct Outside {
    program: u64,
    /// Faults that somebody has seen.
    pub(crate) wrong: Vec<String>,
    /// How often each step that fails has failed.
    failures: BTreeMap<(u32, usize), u64>,
    /// The key of each payment, and how often it was made.
    pub(crate) payments: BTreeMap<(u32, u64), (CommandKey, u32)>,
    /// Payments that are answered from outside.
    pub(crate) later: BTreeSet<(CommandKey, u64)>,
    /// Messages to citizens, and whether the program was told that they are on disk.
    pub(crate) sent: BTreeMap<(u32, u64), bool>,
    /// Questions to citizens that were answered.
    pub(crate) marked: BTreeSet<(u32, u64)>,
    /// Citizens that are known to be on disk.
    pub(crate) begun: BTreeSet<u32>,
    pub(crate) outputs: BTreeMap<u32, u64>,
    /// Whether the program is to end once, and to be started again.
    pub(crate) is_to_restart: bool,
    /// Whether the citizens may end.
    pub(crate) is_over: bool,
    /// How the ties of the citizens were when they had nothing more to do.
    pub(crate) seen: Vec<Seen>,
    /// The orders of the operator.
    pub(crate) orders: Orders,
}

thread_local! {
    static OUTSIDE: RefCell<Outside> = RefCell::default();
}

pub(crate) fn outside<R>(call: impl FnOnce(&mut Outside) -> R) -> R {
    OUTSIDE.with_borrow_mut(call)
}

pub(crate) fn reset(program: u64) {
    OUTSIDE.set(Outside { program, is_to_restart: program % 2 == 1, ..Outside::default() });
}

pub(crate) fn wrong(what: String) {
    outside(|outside| outside.wrong.push(what));
}

/// A number that the program and the place decide.
fn chance(of: (u32, u64), below: u64) -> u64 {
    draw(outside(|outside| outside.program), u64::from(of.0) << 32 | of.1, 9, below)
}

/// The next thing that a citizen does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Deed {
    /// Greets another citizen.
    Greet(u32),
    Pay,
    /// Pays, and waits for it.
    PayAndWait,
    Timer(u64),
    Child(u32),
    Watch(u32),
    /// Greets, pays, asks, takes a name, and fails so often.
    Fail(u64, u32),
    Tie(Tie),
    /// Asks a process that has ended, twice, and once more when it is told so.
    AskGone,
    Nothing,
}

/// One of the processes that the program begins by an id.
#[derive(Serialize, Deserialize)]
pub(crate) struct Citizen {
    number: u32,
    peers: Vec<Address<Note>>,
    plan: Vec<Deed>,
    done: usize,
    /// The number of the last greeting to each citizen, and of each.
    greeted: BTreeMap<u32, u64>,
    heard: BTreeMap<u32, u64>,
    from_outside: BTreeSet<u64>,
    marks: BTreeSet<u64>,
    payments: Vec<(u64, Tag<u64>)>,
    timers: Vec<(SystemTime, Tag<TimerFired>)>,
    children: Vec<(u64, Tag<u64>)>,
    monitors: Vec<(u32, Monitor)>,
    downs: BTreeMap<u32, u32>,
    ordinal: u64,
    answered: BTreeMap<String, u32>,
    hermit: Option<Address<PartnerMessage>>,
    /// A process that has ended.
    gone: Option<Address<Note>>,
    ties: Ties,
    /// The marks of the operator, who has replaced its state.
    replaced: BTreeSet<u64>,
}

/// In the place of the number of a citizen.
pub(crate) const HERMIT: u32 = u32::MAX;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// The citizens, the hermit, and a process that has ended.
    Peers(Vec<Address<Note>>, Address<PartnerMessage>, Address<Note>),
    /// Does the deed of this number.
    Go(usize),
    Hello {
        from: u32,
        number: u64,
    },
    FromOutside(u64),
    /// Notes a number, and answers.
    Mark(u64, Reply<()>),
    Report(Reply<Report>),
    Question(Question),
    /// Answers a question that was kept.
    Release(u64),
    /// A child of a pair has begun, or is linked.
    Met(u64, Address<PartnerMessage>),
    Linked(u64),
    Over,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Report {
    pub(crate) greeted: BTreeMap<u32, u64>,
    pub(crate) heard: BTreeMap<u32, u64>,
    pub(crate) from_outside: BTreeSet<u64>,
    pub(crate) marks: BTreeSet<u64>,
    /// Everything that it still waits for.
    pub(crate) open: Vec<String>,
    pub(crate) downs: BTreeMap<u32, u32>,
    pub(crate) watched: Vec<u32>,
    /// The answers that it has got.
    pub(crate) answered: BTreeMap<String, u32>,
    pub(crate) seen: Seen,
    pub(crate) replaced: BTreeSet<u64>,
}

impl Citizen {
    pub(crate) fn new(program: u64, number: u32, citizens: u32) -> Citizen {
        let deeds = 4 + draw(program, u64::from(number), 1, 8);
        let deed = |nth: u64| {
            let place = u64::from(number) << 16 | nth;
            let other = draw(program, place, 3, u64::from(citizens)) as u32;
            match draw(program, place, 2, 28) {
                0..=4 => Deed::Greet(other),
                5..=6 => Deed::Pay,
                7 => Deed::PayAndWait,
                8..=9 => Deed::Timer(draw(program, place, 4, 5_000)),
                10..=11 => Deed::Child(draw(program, place, 4, 4) as u32),
                12 => Deed::Watch(other),
                13..=14 => Deed::Fail(1 + draw(program, place, 4, 8), other),
                15 if draw(program, place, 5, 2) == 0 => Deed::AskGone,
                15 => Deed::Nothing,
                _ => {
                    let mut drawn = 10;
                    Deed::Tie(Tie::drawn(other, |below| {
                        drawn += 1;
                        draw(program, place, drawn, below)
                    }))
                }
            }
        };
        Citizen {
            number,
            peers: Vec::new(),
            plan: (0..deeds).map(deed).collect(),
            done: 0,
            greeted: BTreeMap::new(),
            heard: BTreeMap::new(),
            from_outside: BTreeSet::new(),
            marks: BTreeSet::new(),
            payments: Vec::new(),
            timers: Vec::new(),
            children: Vec::new(),
            monitors: Vec::new(),
            downs: BTreeMap::new(),
            ordinal: 0,
            answered: BTreeMap::new(),
            hermit: None,
            gone: None,
            ties: Ties::default(),
            replaced: BTreeSet::new(),
        }
    }

    fn next(&mut self) -> u64 {
        self.ordinal += 1;
        self.ordinal
    }

    fn greet(&mut self, to: u32, out: &mut StepOutput) {
        let number = self.greeted.entry(to).or_default();
        *number += 1;
        out.send(self.peers[to as usize], Note::Hello { from: self.number, number: *number });
    }

    fn pay(&mut self, out: &mut StepOutput) {
        // A step that is lost decides otherwise when it is made again, so its payment must not have been made.
        let order = out.random();
        self.payments.push((order, out.command(Pay { by: self.number, order })));
    }

    /// Does the next deed of the plan. Returns whether it waits.
    fn act(&mut self, out: &mut StepOutput) -> Result<bool, BoxError> {
        let Some(deed) = self.plan.get(self.done).copied() else { return Ok(false) };
        let place = (self.number, self.done);
        self.done += 1;
        let me: Address<Note> = out.pid().typed();
        out.send(me, Note::Go(self.done));
        let ordinal = self.next();
        let of = Surroundings { me: self.number, peers: &self.peers, ordinal };
        match deed {
            Deed::Greet(to) => self.greet(to, out),
            Deed::Pay => self.pay(out),
            Deed::PayAndWait => {
                self.pay(out);
                return Ok(true);
            }
            Deed::Timer(millis) => {
                let time = Duration::from_millis(millis);
                self.timers.push((out.system_time() + time, out.after(time)));
            }
            Deed::Child(steps) => {
                let number = u64::from(self.number) << 16 | ordinal;
                self.children.push((number, out.run(Child { number, steps, timer: None })));
            }
            Deed::Watch(other) => self.monitors.push((other, out.monitor(self.peers[other as usize]))),
            Deed::Tie(Tie::Follow) => {
                if let Some(hermit) = self.hermit.filter(|hermit| self.ties.follow(*hermit, out)) {
                    self.monitors.push((HERMIT, out.monitor(hermit)));
                }
            }
            Deed::Tie(tie) => return Ok(self.ties.act(tie, &of, out)),
            Deed::Fail(times, to) => {
                self.ties.ask(to, (How::Now, false), &of, out);
                self.ties.register(to, out);
                self.greet(to, out);
                self.pay(out);
                let fails = outside(|outside| {
                    let failures = outside.failures.entry(place).or_default();
                    *failures += 1;
                    *failures <= times
                });
                if fails {
                    return Err("on purpose".into());
                }
            }
            Deed::AskGone => {
                if let Some(gone) = self.gone {
                    (0..2).for_each(|_| self.ties.ask_gone(gone, true, out));
                }
            }
            Deed::Nothing => {}
        }
        Ok(false)
    }

    fn answer(&mut self, what: String) {
        let count = self.answered.entry(what.clone()).or_default();
        *count += 1;
        if *count > 1 {
            wrong(format!("{} has {what} {count} times", self.number));
        }
    }

    fn report(&self) -> Report {
        let mut open: Vec<String> = Vec::new();
        open.extend(self.payments.iter().map(|(order, _)| format!("payment {order}")));
        open.extend(self.timers.iter().map(|(due, _)| format!("timer {due:?}")));
        open.extend(self.children.iter().map(|(number, _)| format!("child {number}")));
        open.extend(self.ties.open());
        open.extend((self.done < self.plan.len()).then(|| format!("{:?}", self.plan[self.done])));
        Report {
            greeted: self.greeted.clone(),
            heard: self.heard.clone(),
            from_outside: self.from_outside.clone(),
            marks: self.marks.clone(),
            open,
            downs: self.downs.clone(),
            watched: self.monitors.iter().map(|(other, _)| *other).collect(),
            answered: self.answered.clone(),
            seen: self.ties.seen(),
            replaced: self.replaced.clone(),
        }
    }
}

impl Process for Citizen {
    type Message = Note;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Note>, out: &mut StepOutput) -> StepResult<u64> {
        let mut waits = false;
        for event in events {
            match event {
                Event::Message(Note::Peers(peers, hermit, gone)) => {
                    if self.peers.is_empty() {
                        (self.peers, self.hermit, self.gone) = (peers, Some(hermit), Some(gone));
                        out.trap_exits(true);
                        let me: Address<Note> = out.pid().typed();
                        out.send(me, Note::Go(0));
                    }
                }
                Event::Message(Note::Go(at)) if at != self.done => {
                    wrong(format!("{} is to do {at} after {}", self.number, self.done));
                }
                Event::Message(Note::Go(_)) => waits |= self.act(out)?,
                Event::Message(Note::Question(question)) => self.ties.question(question, &self.peers, out),
                Event::Message(Note::Release(number)) => self.ties.release(number, out),
                Event::Message(Note::Met(number, partner)) => self.ties.met(number, partner, out),
                Event::Message(Note::Linked(number)) => self.ties.linked(number, out),
                Event::Cancel(request) => self.ties.request(&request.reason),
                Event::Exit(exit) => self.ties.exit(exit.pid),
                Event::Message(Note::Hello { from, number }) => {
                    let heard = self.heard.entry(from).or_default();
                    if number != *heard + 1 {
                        wrong(format!("{} hears {number} of {from} after {heard}", self.number));
                    }
                    *heard = number;
                }
                Event::Message(Note::FromOutside(number)) => {
                    // They are sent in the order of their numbers, and each one once.
                    if let Some(last) = self.from_outside.last().filter(|last| **last >= number) {
                        wrong(format!("{} gets {number} from outside after {last}", self.number));
                    }
                    self.from_outside.insert(number);
                }
                Event::Message(Note::Mark(number, reply)) => {
                    self.marks.insert(number);
                    out.reply(reply, ());
                }
                Event::Message(Note::Report(reply)) => out.reply(reply, self.report()),
                Event::Message(Note::Over) => return Ok(Step::Done(u64::from(self.number))),
                Event::Completed(done) => {
                    if let Some(place) = self.payments.iter().position(|(_, tag)| done.is(*tag)) {
                        let (order, tag) = self.payments.remove(place);
                        match done.take(tag) {
                            Some(Ok(paid)) if paid == order => {}
                            Some(Err(why))
                                if why.downcast_ref() == Some(&PayError::NoMoney)
                                    && chance((self.number, order), 4) == 0 => {}
                            other => wrong(format!("{}: payment {order} has {other:?}", self.number)),
                        }
                        self.answer(format!("payment {order}"));
                    } else if let Some(place) = self.timers.iter().position(|(_, tag)| done.is(*tag)) {
                        let (due, _) = self.timers.remove(place);
                        if out.system_time() < due - Duration::from_millis(1) {
                            wrong(format!("{}: a timer fires too early", self.number));
                        }
                    } else if let Some(place) = self.children.iter().position(|(_, tag)| done.is(*tag)) {
                        let (number, tag) = self.children.remove(place);
                        match done.take(tag) {
                            Some(Ok(output)) if output == number => {}
                            other => wrong(format!("{}: child {number} has {other:?}", self.number)),
                        }
                        self.answer(format!("child {number}"));
                    } else {
                        let of = Surroundings { me: self.number, peers: &self.peers, ordinal: 0 };
                        match self.ties.completed(&done, &of, out).or_else(|| self.ties.is_gone(&done, self.gone, out))
                        {
                            Some(what) => self.answer(what),
                            None => wrong(format!("{} has an answer to nothing: {done:?}", self.number)),
                        }
                    }
                }
                Event::Down(down) => match self.monitors.iter().find(|(_, monitor)| down.monitor == *monitor) {
                    Some((other, _)) => *self.downs.entry(*other).or_default() += 1,
                    None => wrong(format!("{} has a down of nobody", self.number)),
                },
                other => wrong(format!("{} gets {other:?}", self.number)),
            }
        }
        Ok(if waits { Step::Wait } else { Step::Idle })
    }
}

impl Durable for Citizen {
    const NAME: &str = "citizen";
    const FORMAT: Format = Format::Postcard;
}

/// Is done after so many timers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Child {
    number: u64,
    steps: u32,
    timer: Option<Tag<TimerFired>>,
}

impl Child {
    pub(crate) fn new(number: u64, steps: u32) -> Child {
        Child { number, steps, timer: None }
    }
}

impl Process for Child {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => self.timer = None,
                other => wrong(format!("child {} gets {other:?}", self.number)),
            }
        }
        if self.timer.is_none() {
            if self.steps == 0 {
                return Ok(Step::Done(self.number));
            }
            self.steps -= 1;
            self.timer = Some(out.after(Duration::from_millis(300)));
        }
        Ok(Step::Idle)
    }
}

impl Durable for Child {
    const NAME: &str = "child";
    const FORMAT: Format = Format::Postcard;
}

/// A payment. Of four, one always fails, one fails at first, and one is answered from outside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Pay {
    by: u32,
    order: u64,
}

impl Command for Pay {
    type Output = u64;
}

impl DurableCommand for Pay {
    const NAME: &str = "pay";
    type Error = PayError;

    fn retry(&self) -> Retry {
        // A kill may use up an attempt.
        let retry = Retry::new().first_pause(Duration::from_secs(1)).attempts(20);
        retry.final_if(|why| why.downcast_ref() == Some(&PayError::NoMoney))
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum PayError {
    #[error("the bank is busy")]
    Busy,
    #[error("there is no money")]
    NoMoney,
}

fn handle(pay: Pay, done: Responder<u64>) -> Result<(), BoxError> {
    let Pay { by, order } = pay;
    let key = done.key().ok_or("it has no key")?;
    let times = outside(|outside| {
        let payment = outside.payments.entry((by, order)).or_insert((key, 0));
        payment.1 += 1;
        if payment.0 != key {
            let what = format!("payment {order} of {by} has the keys {key} and {}", payment.0);
            outside.wrong.push(what);
        }
        payment.1
    });
    match chance((by, order), 4) {
        0 => return Err(PayError::NoMoney.into()),
        1 if times == 1 => return Err(PayError::Busy.into()),
        2 => {
            outside(|outside| outside.later.insert((key, order)));
            done.later();
        }
        _ => done.ok(order),
    }
    Ok(())
}

/// The program of both: the kinds, the commands, and their handler.
pub(crate) fn kinds(store: StoreBuilder) -> StoreBuilder {
    let store = store.kind::<Citizen>().kind::<Child>().kind::<Partner>().command::<Pay>();
    let store = store.answers::<Price>("price").keep(Duration::from_secs(24 * 3_600));
    // Most programs have processes that leave memory and return.
    match outside(|outside| outside.program) % 3 {
        0 => store,
        1 => store.sleep_after(Duration::from_millis(200)),
        _ => store.max_resident(2),
    }
}

pub(crate) fn handlers() -> RuntimeBuilder {
    Runtime::builder().handler(handle)
}
