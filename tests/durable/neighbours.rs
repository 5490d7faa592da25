//! How the citizens of a random program depend on each other: questions, links, names, and requests to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use procession::command::TimerFired;
use procession::durable::{Durable, Format};
use procession::{
    Address, BoxError, CommandError, Completion, Event, Events, Exit, Pid, Process, Reason, Reply, Step, StepOutput,
    StepResult, Tag,
};
use serde::{Deserialize, Serialize};

use crate::town::{Note, wrong};

/// The limit of a question that is answered too late.
const SHORT: Duration = Duration::from_secs(5);

/// The limit of a question whose asker returns `Wait`: two of them may wait for each other.
const LONG: Duration = Duration::from_secs(30);

/// The names for which the citizens compete.
pub(crate) const NAMES: u32 = 3;

/// The answer to a question of a citizen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Price(u64);

/// How a citizen answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum How {
    Now,
    /// Keeps it until the asker says so.
    Keep,
    Discard,
    /// Keeps it until its limit is over.
    Late,
    /// Has this citizen answer.
    PassOn(u32),
}

/// A deed that concerns other processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Tie {
    Ask(u32, How),
    AskAndWait(u32),
    Link(u32),
    Unlink(u32),
    Register(u32),
    Unregister(u32),
    Stop(u32),
    /// Monitors the hermit, and links itself to it.
    Follow,
    /// Runs two children that are linked, and ends one of them.
    Pair,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    from: u32,
    number: u64,
    /// How often it was passed on.
    hops: u32,
    how: How,
    reply: Reply<Price>,
}

/// The open ties of a citizen, and those that it had.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Ties {
    asked: Vec<(u64, How, bool, Tag<Price>)>,
    /// Questions that are to be answered when these timers fire.
    releases: Vec<(u32, u64, Tag<TimerFired>)>,
    kept: Vec<(u64, Reply<Price>)>,
    registered: Vec<(u32, Tag<()>)>,
    unregistered: Vec<Tag<Option<Pid>>>,
    stops: Vec<(u32, String, Tag<bool>)>,
    /// Questions to a process that has ended, and whether they are asked once more.
    of_gone: Vec<(bool, Tag<Price>)>,
    pairs: Vec<Pair>,
    seen: Seen,
}

/// The facts about the ties of a citizen that must agree with those of the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// The numbers of the questions that it has asked.
    pub(crate) questions: BTreeSet<u64>,
    /// The questions that it was asked: the asker, the number, and how often they were passed on.
    pub(crate) heard: BTreeSet<(u32, u64, u32)>,
    pub(crate) names: BTreeSet<u32>,
    /// The citizens to which it is linked, if it is the one of the two that decides.
    pub(crate) links: BTreeSet<u32>,
    /// How often it was told of the end of a linked process.
    pub(crate) exits: BTreeMap<String, u32>,
    /// The processes of which it must have been told.
    pub(crate) ended: BTreeSet<String>,
    /// Whether it has followed the hermit.
    pub(crate) follows: bool,
    /// The requests to stop that it has made, and that were answered.
    pub(crate) stopped: BTreeSet<(u32, String)>,
    /// How often it was asked to stop, by the reason.
    pub(crate) requests: BTreeMap<String, u32>,
}

/// Two children that are linked.
#[derive(Serialize, Deserialize)]
struct Pair {
    number: u64,
    answers: [Option<Tag<u64>>; 2],
    partners: [Option<Address<PartnerMessage>>; 2],
    end: Option<Tag<bool>>,
}

/// Whether the first one decides about the link of two citizens.
pub(crate) fn decides(one: u32, other: u32) -> bool {
    one != other && (one < other) == (one + other).is_multiple_of(2)
}

impl Tie {
    pub(crate) fn drawn(other: u32, mut draw: impl FnMut(u64) -> u64) -> Tie {
        match draw(16) {
            0..=4 => {
                let how = match draw(6) {
                    0..=1 => How::Now,
                    2 => How::Keep,
                    3 => How::Discard,
                    4 => How::Late,
                    _ => How::PassOn(draw(2) as u32),
                };
                Tie::Ask(other, how)
            }
            5 => Tie::AskAndWait(other),
            6..=7 => Tie::Link(other),
            8 => Tie::Unlink(other),
            9..=10 => Tie::Register(draw(u64::from(NAMES)) as u32),
            11 => Tie::Unregister(draw(u64::from(NAMES)) as u32),
            12..=13 => Tie::Stop(other),
            14 => Tie::Follow,
            _ => Tie::Pair,
        }
    }
}

/// The world of a citizen that does a deed.
pub(crate) struct Surroundings<'a> {
    pub(crate) me: u32,
    pub(crate) peers: &'a [Address<Note>],
    pub(crate) ordinal: u64,
}

impl Ties {
    /// Does a deed. Returns whether the citizen waits for an answer.
    pub(crate) fn act(&mut self, tie: Tie, of: &Surroundings<'_>, out: &mut StepOutput) -> bool {
        match tie {
            Tie::Ask(to, how) => self.ask(to, (how, how == How::Late), of, out),
            Tie::AskAndWait(to) => {
                self.ask(to, (How::Now, true), of, out);
                return true;
            }
            Tie::Link(to) if decides(of.me, to) => {
                self.seen.links.insert(to);
                out.link(of.peers[to as usize]);
            }
            Tie::Unlink(to) if self.seen.links.remove(&to) => out.unlink(of.peers[to as usize]),
            Tie::Link(_) | Tie::Unlink(_) => {}
            Tie::Register(name) => self.register(name, out),
            Tie::Unregister(name) => {
                // A registration that has no answer yet would be given back with it, and the answer would still come.
                let is_asked_for = self.registered.iter().any(|(other, _)| *other == name);
                if !is_asked_for && self.seen.names.remove(&name) {
                    self.unregistered.push(out.unregister(name_of(name)));
                }
            }
            Tie::Stop(to) => {
                let reason = format!("{} wants it, {}", of.me, out.random());
                self.stops.push((to, reason.clone(), out.cancel(of.peers[to as usize], reason)));
            }
            // The citizen has done it.
            Tie::Follow => {}
            Tie::Pair => {
                let number = u64::from(of.me) << 16 | of.ordinal;
                let parent = out.pid().typed();
                let run = |side| out.run(Partner { number: number << 1 | side, parent: Some(parent) });
                self.pairs.push(Pair { number, answers: [0, 1].map(run).map(Some), partners: [None; 2], end: None });
            }
        }
        false
    }

    pub(crate) fn register(&mut self, name: u32, out: &mut StepOutput) {
        self.registered.push((name, out.register(name_of(name), out.pid())));
    }

    pub(crate) fn ask(&mut self, to: u32, (how, has_limit): (How, bool), of: &Surroundings<'_>, out: &mut StepOutput) {
        // A step that is lost asks with another number when it is made again.
        let number = out.random();
        let limit = match how {
            How::Late => SHORT,
            _ if has_limit => LONG,
            _ => Duration::MAX,
        };
        let question = |reply| Note::Question(Question { from: of.me, number, hops: 0, how, reply });
        let tag = out.ask(of.peers[to as usize], question, limit);
        self.asked.push((number, how, has_limit, tag));
        self.seen.questions.insert(number);
        if how == How::Keep || how == How::Late {
            let pause = if how == How::Late { SHORT * 2 } else { SHORT / 5 };
            self.releases.push((to, number, out.after(pause)));
        }
    }

    pub(crate) fn ask_gone(&mut self, gone: Address<Note>, again: bool, out: &mut StepOutput) {
        let number = out.random();
        let question = |reply| Note::Question(Question { from: 0, number, hops: 0, how: How::Now, reply });
        self.of_gone.push((again, out.ask(gone, question, Duration::MAX)));
    }

    /// Takes the answer of a process that has ended. Returns what it answers.
    pub(crate) fn is_gone(
        &mut self,
        done: &Completion,
        gone: Option<Address<Note>>,
        out: &mut StepOutput,
    ) -> Option<String> {
        let place = self.of_gone.iter().position(|(_, tag)| done.is(*tag))?;
        let (again, tag) = self.of_gone.remove(place);
        match done.take(tag)? {
            Err(CommandError::Ended(_) | CommandError::NoSuchProcess(_)) => {}
            other => wrong(format!("a process that has ended answers {other:?}")),
        }
        if let Some(gone) = gone.filter(|_| again) {
            self.ask_gone(gone, false, out);
        }
        Some(format!("end by {}", tag.id()))
    }

    pub(crate) fn follow(&mut self, hermit: Address<PartnerMessage>, out: &mut StepOutput) -> bool {
        if !self.seen.follows {
            out.link(hermit);
        }
        !std::mem::replace(&mut self.seen.follows, true)
    }

    pub(crate) fn question(&mut self, question: Question, peers: &[Address<Note>], out: &mut StepOutput) {
        let Question { from, number, hops, how, reply } = question;
        if !self.seen.heard.insert((from, number, hops)) {
            wrong(format!("question {number} of {from} arrives twice"));
        }
        match how {
            How::Keep | How::Late => self.kept.push((number, reply)),
            How::Discard => drop(reply),
            How::PassOn(to) if !peers.is_empty() => {
                let question = Question { from, number, hops: hops + 1, how: How::Now, reply };
                out.send(peers[to as usize], Note::Question(question));
            }
            How::Now | How::PassOn(_) => out.reply(reply, Price(number)),
        }
    }

    /// Answers a question that was kept.
    pub(crate) fn release(&mut self, number: u64, out: &mut StepOutput) {
        let (released, kept) = self.kept.drain(..).partition(|(kept, _)| *kept == number);
        self.kept = kept;
        let released: Vec<(u64, Reply<Price>)> = released;
        released.into_iter().for_each(|(number, reply)| out.reply(reply, Price(number)));
    }

    pub(crate) fn request(&mut self, reason: &Reason) {
        *self.seen.requests.entry(reason.to_string()).or_default() += 1;
    }

    pub(crate) fn exit(&mut self, pid: Pid) {
        *self.seen.exits.entry(pid.to_string()).or_default() += 1;
    }

    /// A child of a pair has begun.
    pub(crate) fn met(&mut self, number: u64, partner: Address<PartnerMessage>, out: &mut StepOutput) {
        let Some(pair) = self.pairs.iter_mut().find(|pair| pair.number == number >> 1) else { return };
        if pair.partners[(number & 1) as usize].replace(partner).is_some() {
            wrong(format!("partner {number} begins twice"));
        }
        if let [Some(one), Some(other)] = pair.partners {
            out.link(one);
            out.send(one, PartnerMessage::Link(other.pid()));
        }
    }

    /// The children of a pair are linked.
    pub(crate) fn linked(&mut self, number: u64, out: &mut StepOutput) {
        let pair = self.pairs.iter_mut().find(|pair| pair.number == number >> 1);
        if let Some(Pair { partners: [Some(one), _], end, .. }) = pair {
            self.seen.ended.insert(one.pid().to_string());
            *end = Some(out.terminate(*one));
        }
    }

    /// Takes an answer. Returns what it answers.
    pub(crate) fn completed(
        &mut self,
        done: &Completion,
        of: &Surroundings<'_>,
        out: &mut StepOutput,
    ) -> Option<String> {
        let me = of.me;
        if let Some(place) = self.asked.iter().position(|(.., tag)| done.is(*tag)) {
            let (number, how, has_limit, tag) = self.asked.remove(place);
            let answer = done.take(tag)?;
            let is_right = match (&answer, how) {
                (Ok(Price(price)), how) if how != How::Discard => *price == number,
                (Err(CommandError::Dropped), How::Discard) => true,
                (Err(CommandError::TimedOut), _) => has_limit,
                _ => false,
            };
            if !is_right {
                wrong(format!("{me}: question {number} ({how:?}) has {answer:?}"));
            }
            return Some(format!("question {number}"));
        }
        if let Some(place) = self.releases.iter().position(|(.., tag)| done.is(*tag)) {
            let (to, number, _) = self.releases.remove(place);
            out.send(of.peers[to as usize], Note::Release(number));
            return Some(format!("release of {number}"));
        }
        if let Some(place) = self.registered.iter().position(|(_, tag)| done.is(*tag)) {
            let (name, tag) = self.registered.remove(place);
            if done.take(tag)?.is_ok() {
                self.seen.names.insert(name);
            }
            return Some(format!("name by {}", tag.id()));
        }
        if let Some(place) = self.unregistered.iter().position(|tag| done.is(*tag)) {
            let tag = self.unregistered.remove(place);
            let holder = done.take(tag)?;
            if holder.as_ref().ok() != Some(&Some(out.pid())) {
                wrong(format!("{me}: the name that it gives back had {holder:?}"));
            }
            return Some(format!("name by {}", tag.id()));
        }
        if let Some(place) = self.stops.iter().position(|(.., tag)| done.is(*tag)) {
            let (to, reason, tag) = self.stops.remove(place);
            match done.take(tag)? {
                Ok(true) => _ = self.seen.stopped.insert((to, reason)),
                other => wrong(format!("{me}: a request to {to} has {other:?}")),
            }
            return Some(format!("stop by {}", tag.id()));
        }
        self.pair_completed(done, me)
    }

    fn pair_completed(&mut self, done: &Completion, me: u32) -> Option<String> {
        let is_of = |pair: &&mut Pair| {
            pair.end.is_some_and(|tag| done.is(tag)) || pair.answers.iter().flatten().any(|tag| done.is(*tag))
        };
        let pair = self.pairs.iter_mut().find(is_of)?;
        let number = pair.number;
        if let Some(tag) = pair.end.take_if(|tag| done.is(*tag)) {
            if !matches!(done.take(tag)?, Ok(true)) {
                wrong(format!("{me}: a partner of {number} had ended"));
            }
            return Some(format!("end of {number}"));
        }
        let side = pair.answers.iter().position(|tag| tag.is_some_and(|tag| done.is(tag)))?;
        let answer = done.take(pair.answers[side].take()?)?;
        match (&answer, side) {
            (Err(CommandError::ChildExit { exit: Exit::Terminated(Reason::Terminated), .. }), 0) => {}
            (Err(CommandError::ChildExit { exit: Exit::Terminated(Reason::Linked(_)), .. }), 1) => {}
            _ => wrong(format!("{me}: partner {side} of {number} has {answer:?}")),
        }
        Some(format!("partner {side} of {number}"))
    }

    /// Everything that it still waits for.
    pub(crate) fn open(&self) -> Vec<String> {
        let mut open = Vec::new();
        open.extend(self.asked.iter().map(|(number, how, ..)| format!("question {number} ({how:?})")));
        open.extend(self.releases.iter().map(|(_, number, _)| format!("release of {number}")));
        open.extend(self.kept.iter().map(|(number, _)| format!("kept question {number}")));
        open.extend(self.registered.iter().map(|(name, _)| format!("name {name}")));
        open.extend(self.unregistered.iter().map(|tag| format!("a name back, {}", tag.id())));
        open.extend(self.stops.iter().map(|(to, ..)| format!("request to {to}")));
        open.extend(self.of_gone.iter().map(|(_, tag)| format!("question to nobody, {}", tag.id())));
        for pair in &self.pairs {
            let is_told = matches!(pair.partners[0], Some(one) if self.seen.exits.contains_key(&one.pid().to_string()));
            if pair.answers.iter().any(Option::is_some) || pair.end.is_some() || !is_told {
                open.push(format!("pair {}: {:?} {:?} {is_told}", pair.number, pair.answers, pair.partners));
            }
        }
        open
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.clone()
    }
}

pub(crate) fn name_of(name: u32) -> String {
    format!("name {name}")
}

/// Lives until it is ended, by itself or by a link.
#[derive(Serialize, Deserialize)]
pub(crate) struct Partner {
    number: u64,
    parent: Option<Address<Note>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PartnerMessage {
    Link(Pid),
}

impl Partner {
    /// A partner without a parent.
    pub(crate) fn alone() -> Partner {
        Partner { number: 0, parent: None }
    }
}

impl Process for Partner {
    type Message = PartnerMessage;
    type Output = u64;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        let me = out.pid().typed();
        self.parent.into_iter().for_each(|parent| out.send(parent, Note::Met(self.number, me)));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, PartnerMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(PartnerMessage::Link(other)) => {
                    out.link(other);
                    self.parent.into_iter().for_each(|parent| out.send(parent, Note::Linked(self.number)));
                }
                other => wrong(format!("partner {} gets {other:?}", self.number)),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Partner {
    const NAME: &str = "partner";
    const FORMAT: Format = Format::Postcard;
}
