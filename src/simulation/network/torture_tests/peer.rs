//! The processes of the nodes: writers, answerers, and children that writers spawn on other nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::history::{History, Shelf, place};
use super::letter::{HOUR, Letter, Other, Question};
use crate::cluster::{Cluster, RemoteProcess, Wire};
use crate::outcome::{BoxError, Exit, Reason};
use crate::pid::{Address, Pid};
use crate::primitives::lock;
use crate::process::{
    CommandError, Completion, Down, Event, Events, ExitSignal, Monitor, NodeError, Process, Recovered, Reply,
    SpawnOptions, Spawned, Step, StepOutput, StepResult, Tag, Upgrade,
};

/// A question that is open, and the processes that may answer it.
struct Asked {
    tag: Tag<u64>,
    question: Question,
    of: Vec<u64>,
}

/// A child that is about to start: its number, and that of its node.
type Child = (u64, Option<u64>);

pub(super) struct Peer {
    pub(super) number: u64,
    /// The number of its node.
    pub(super) at: u64,
    pub(super) cluster: Cluster,
    history: Shelf,
    /// The number of the last note to each process.
    sent: BTreeMap<u64, u64>,
    asks: Vec<Asked>,
    kept: Vec<Reply<u64>>,
    monitors: BTreeMap<Monitor, u64>,
    /// The processes that it has linked.
    links: BTreeMap<u64, Address<Letter>>,
    /// The children that are about to start, those that live, and the requests to end.
    starting: Vec<(Tag<Spawned<Letter>>, Child)>,
    children: BTreeMap<u64, Address<Letter>>,
    stopping: Vec<(Tag<bool>, u64)>,
    looking: Vec<(Tag<Result<Pid, CommandError>>, Other)>,
}

impl Peer {
    pub(super) fn new(number: u64, at: u64, cluster: &Cluster, history: &Shelf) -> Peer {
        Peer {
            number,
            at,
            cluster: cluster.clone(),
            history: history.clone(),
            sent: BTreeMap::new(),
            asks: Vec::new(),
            kept: Vec::new(),
            monitors: BTreeMap::new(),
            links: BTreeMap::new(),
            starting: Vec::new(),
            children: BTreeMap::new(),
            stopping: Vec::new(),
            looking: Vec::new(),
        }
    }

    fn note<R>(&self, of: impl FnOnce(&mut History) -> R) -> R {
        of(&mut lock(&self.history))
    }

    /// A question, or another command, is open.
    fn opens(&self) {
        self.note(|history| *history.open.entry(self.number).or_default() += 1);
    }

    fn write(&mut self, out: &mut StepOutput, (count, length): (u64, u64), (other, to): Other) {
        let last = self.sent.entry(other).or_default();
        for at in 0..count {
            *last += 1;
            // A short one is behind a long one.
            let text = "x".repeat(if at % 2 == 0 { length as usize } else { 0 });
            out.send(to, Letter::Note(self.number, *last, text));
        }
        self.note(|history| *history.sent.entry((self.number, other)).or_default() += count);
    }

    fn inquire(&mut self, out: &mut StepOutput, question: Question, (other, to): Other, third: Option<Other>) {
        let of = [other].into_iter().chain(third.map(|(third, _)| third)).collect();
        let tag = match third {
            None => out.ask(to, move |reply| Letter::Ask(question, reply), question.limit()),
            Some((_, third)) => out.ask(to, move |reply| Letter::Hand(question, third, reply), question.limit()),
        };
        self.asks.push(Asked { tag, question, of });
        self.opens();
    }

    fn answer(&mut self, out: &mut StepOutput, question: Question, reply: Reply<u64>) {
        match question {
            Question::Answered(number) | Question::Hurried(number) => out.reply(reply, number + 1),
            Question::Kept => self.kept.push(reply),
            Question::Dropped => drop(reply),
        }
    }

    /// A command was answered. Each is answered once.
    fn completed(&mut self, done: &Completion) {
        self.note(|history| {
            let open = history.open.entry(self.number).or_default();
            *open = open.saturating_sub(1);
        });
        if let Some(at) = self.asks.iter().position(|asked| done.is(asked.tag)) {
            let asked = self.asks.swap_remove(at);
            let answer = done.take(asked.tag);
            self.answered(&asked, answer);
        } else if let Some(at) = self.starting.iter().position(|(tag, _)| done.is(*tag)) {
            let (tag, child) = self.starting.swap_remove(at);
            let answer = done.take(tag);
            self.started(child, answer);
        } else if let Some(at) = self.stopping.iter().position(|(tag, _)| done.is(*tag)) {
            let (tag, child) = self.stopping.swap_remove(at);
            match done.take(tag) {
                Some(Ok(_)) => self.note(|history| _ = history.stopped.insert(child)),
                Some(Err(CommandError::Node { why: NodeError::NodeDown, .. })) => {}
                other => self.wrong("the request to end", &other),
            }
        } else if let Some(at) = self.looking.iter().position(|(tag, _)| done.is(*tag)) {
            let (tag, (other, address)) = self.looking.swap_remove(at);
            match done.take(tag) {
                Some(Ok(Ok(pid))) if place(0, pid) == place(0, address.pid()) => {}
                Some(Ok(Err(CommandError::Node { why: NodeError::NodeDown, .. }))) => {}
                Some(Ok(Err(CommandError::NoSuchProcess(_)))) if self.has_ended(other) => {}
                other => self.wrong("the name", &other),
            }
        } else {
            self.wrong("an answer to nothing", done);
        }
    }

    fn wrong(&self, what: &str, why: &impl std::fmt::Debug) {
        self.note(|history| history.wrong(format!("{}: {what}: {why:?}", self.number)));
    }

    fn has_ended(&self, number: u64) -> bool {
        self.note(|history| history.ended.contains(&number))
    }

    fn answered(&self, asked: &Asked, answer: Option<Result<u64, CommandError>>) {
        let is_right = match (&answer, asked.question) {
            (Some(Ok(answer)), Question::Answered(number) | Question::Hurried(number)) => *answer == number + 1,
            (Some(Err(CommandError::TimedOut)), Question::Kept | Question::Hurried(_)) => true,
            (Some(Err(CommandError::Dropped)), Question::Dropped) => true,
            (Some(Err(CommandError::Node { why: NodeError::NodeDown, .. })), _) => true,
            // It could not be handed on.
            (Some(Err(CommandError::Dropped)), _) if asked.of.len() > 1 => true,
            (Some(Err(CommandError::Dropped | CommandError::Ended(_) | CommandError::NoSuchProcess(_))), _) => {
                let is_gone = |history: &History, of: &u64| history.ended.contains(of) || history.failed.contains(of);
                self.note(|history| asked.of.iter().any(|of| is_gone(history, of)))
            }
            _ => false,
        };
        if !is_right {
            self.wrong(&format!("{:?} to {:?}", asked.question, asked.of), &answer);
        }
    }

    fn spawn(&mut self, out: &mut StepOutput, (child, node, limit): (u64, &str, u64), is_monitored: bool) {
        let options = if is_monitored { SpawnOptions::new().monitor() } else { SpawnOptions::new() };
        let limit = Duration::from_millis(limit);
        let there = self.cluster.nodes().into_iter().find(|there| there.name() == node);
        let there = there.and_then(|there| self.note(|history| history.nodes.get(&there.incarnation()).copied()));
        let tag = out.spawn_on::<Idler>(&self.cluster, node, (), options.link(), limit);
        there.into_iter().for_each(|node| self.note(|history| history.lives_on(node, child)));
        self.starting.push((tag, (child, there)));
        self.opens();
    }

    fn started(&mut self, (child, node): Child, answer: Option<Result<Spawned<Letter>, CommandError>>) {
        match (answer, node) {
            (Some(Ok(Spawned { address, monitor, .. })), Some(node)) => {
                self.monitors.extend(monitor.map(|monitor| (monitor, child)));
                self.children.insert(child, address);
                self.note(|history| {
                    history.children.insert(child, (place(node, address.pid()), self.number));
                    *history.monitors.entry((self.number, child)).or_default() += u64::from(monitor.is_some());
                });
            }
            (Some(Err(CommandError::Node { why: NodeError::NodeDown, .. } | CommandError::TimedOut)), _) => {}
            other => self.wrong("the child", &other),
        }
    }

    fn stop(&mut self, out: &mut StepOutput, is_rude: bool) {
        let Some((child, address)) = self.children.iter().next() else { return };
        self.note(|history| history.asked_to_end.insert(*child));
        let tag = if is_rude { out.terminate(*address) } else { out.cancel(*address, "enough") };
        self.stopping.push((tag, *child));
        self.opens();
    }

    fn link(&mut self, out: &mut StepOutput, (other, to): Other) {
        // One link of a pair at a time, so that each has one end.
        if self.note(|history| history.links(self.number, other)) {
            self.links.insert(other, to);
            out.link(to);
        }
    }

    fn unlink(&mut self, out: &mut StepOutput) {
        if let Some((other, to)) = self.links.pop_first() {
            self.note(|history| history.unlinks(self.number, other));
            out.unlink(to);
        }
    }

    fn watch(&mut self, out: &mut StepOutput, (other, to): Other) {
        self.monitors.insert(out.monitor(to), other);
        self.note(|history| *history.monitors.entry((self.number, other)).or_default() += 1);
    }

    fn unwatch(&mut self, out: &mut StepOutput) {
        if let Some((monitor, other)) = self.monitors.pop_first() {
            out.demonitor(monitor);
            self.note(|history| *history.monitors.entry((self.number, other)).or_default() -= 1);
        }
    }

    fn down(&mut self, down: &Down) {
        match self.monitors.remove(&down.monitor) {
            Some(other) => {
                self.note(|history| *history.monitors.entry((self.number, other)).or_default() -= 1);
                self.check_end(other, &down.exit);
            }
            None => self.wrong("a monitor has told twice", down),
        }
    }

    fn exit(&mut self, exit: &ExitSignal) {
        let child = self.children.iter().find(|(_, address)| address.pid() == exit.pid).map(|(child, _)| *child);
        let other = child.or_else(|| self.note(|history| history.number(self.at, exit.pid)));
        let Some(other) = other else { return self.wrong("the exit of a stranger", exit) };
        self.children.remove(&other);
        self.links.remove(&other);
        let is_linked = self.note(|history| history.exits(self.number, other, is_node_down(&exit.exit)));
        if !is_linked {
            self.wrong("an exit without a link", exit);
        }
        self.check_end(other, &exit.exit);
    }

    /// A process is told of the end of another one only if that has ended.
    fn check_end(&self, other: u64, exit: &Exit) {
        let has_ended = |history: &mut History| history.ended.contains(&other) || history.asked_to_end.contains(&other);
        if !is_node_down(exit) && !self.note(has_ended) {
            self.wrong(&format!("{other} has not ended"), exit);
        }
    }

    fn recovered(&self, recovered: &Recovered) {
        let is_right = self.note(|history| {
            let other = history.number(self.at, recovered.pid)?;
            *history.recoveries.entry((self.number, other)).or_default() += 1;
            history.failed.contains(&other).then_some(())
        });
        if is_right.is_none() {
            self.wrong("it has not failed", recovered);
        }
    }

    fn message(&mut self, out: &mut StepOutput, letter: Letter) -> StepResult<()> {
        let number = self.number;
        match letter {
            Letter::Note(from, note, _) => {
                self.note(|history| history.taken.entry((from, number)).or_default().push(note));
            }
            Letter::News(node, news) => {
                self.note(|history| history.heard.entry((node, number)).or_default().push(news));
            }
            Letter::Ask(question, reply) => self.answer(out, question, reply),
            Letter::Hand(question, to, reply) => out.send(to, Letter::Ask(question, reply)),
            Letter::Write(count, length, to) => self.write(out, (count, length), to),
            Letter::Inquire(question, of, third) => self.inquire(out, question, of, third),
            Letter::Watch(other) => self.watch(out, other),
            Letter::Unwatch => self.unwatch(out),
            Letter::Link(other) => self.link(out, other),
            Letter::Unlink => self.unlink(out),
            Letter::Spawn(child, node, limit, is_monitored) => self.spawn(out, (child, &node, limit), is_monitored),
            Letter::Stop(is_rude) => self.stop(out, is_rude),
            Letter::Find(node, other) => {
                let found = self.cluster.whereis(&node, &other.0.to_string(), HOUR);
                self.looking.push((out.future(found), other));
                self.opens();
            }
            Letter::Fail => {
                self.note(|history| history.failed.insert(number));
                return Err("it is asked to fail".into());
            }
            Letter::Count => {
                let open = self.kept.iter().filter(|reply| reply.is_open()).count();
                self.note(|history| history.open_replies += open);
            }
        }
        Ok(Step::Idle)
    }
}

fn is_node_down(exit: &Exit) -> bool {
    matches!(exit, Exit::Terminated(Reason::NodeDown))
}

impl Process for Peer {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(letter) => _ = self.message(out, letter)?,
                Event::Completed(done) => self.completed(&done),
                Event::Down(down) => self.down(&down),
                // Others link themselves to this one, too.
                Event::Exit(exit) => self.exit(&exit),
                Event::Recovered(recovered) => self.recovered(&recovered),
                // Children survive a spawner that is done.
                Event::Cancel(_) if self.starting.is_empty() && self.children.is_empty() => return Ok(Step::Done(())),
                Event::Cancel(_) => return Err("it has children, which end, too".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Peer::new(self.number, self.at, &self.cluster, &self.history)))
    }
}

/// A child. It ends when it is asked to.
struct Idler;

impl RemoteProcess for Idler {
    const NAME: &'static str = "torture::Idler";
    const VERSION: u32 = 1;
    type Argument = ();

    fn begin((): ()) -> Result<Idler, BoxError> {
        Ok(Idler)
    }
}

impl Process for Idler {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, _: &mut StepOutput) -> StepResult<()> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

/// The types that travel.
pub(super) fn wire() -> Wire {
    Wire::new().message::<Letter>().process::<Idler>()
}
