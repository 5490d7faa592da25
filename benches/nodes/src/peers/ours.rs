//! Procession, over TCP: two processes on one node, and those that send and ask on the other one.
//!
//! A sender sends a batch in one step. All that it sends in a step leaves when the step is over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use procession::cluster::{Cluster, Security, Wire};
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag, remote};
use serde::{Deserialize, Serialize};

use crate::idle::rest;
use crate::load::{
    Arrived, BATCH, Counts, ECHO, IN_FLIGHT, LARGE, LARGE_MESSAGES, LIMIT, Measured, OPEN, Outcome, RECEIVER,
    check_answer, large_text, nanos, text,
};
use crate::peers::until_the_end;

/// How often the frames of the other node are counted.
const POLL: Duration = Duration::from_millis(1);

/// A message to the node that is asked.
#[derive(Serialize, Deserialize)]
enum Message {
    Item(u64, String),
    Count(Reply<Arrived>),
    Echo(u64, Reply<u64>),
    /// Answered with the length of the text.
    Large(String, Reply<u64>),
}

remote!(Message, "nodes::Message", 1);

/// Counts messages, and answers questions.
#[derive(Default)]
struct Receiver(Arrived);

impl Process for Receiver {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Message::Item(number, text)) => self.0.message(number, &text),
                Event::Message(Message::Count(reply)) => out.reply(reply, self.0),
                Event::Message(Message::Echo(number, reply)) => out.reply(reply, number + 1),
                Event::Message(Message::Large(text, reply)) => out.reply(reply, text.len() as u64),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sends messages one way.
struct Sender {
    to: Address<Message>,
    messages: u64,
    sent: u64,
    open: VecDeque<Tag<Arrived>>,
    arrived: Arrived,
}

impl Process for Sender {
    type Message = ();
    type Output = Arrived;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Arrived> {
        for event in events {
            match event {
                Event::Completed(done) => {
                    let Some(at) = self.open.iter().position(|tag| done.is(*tag)) else { continue };
                    let tag = self.open.remove(at);
                    if let Some(answer) = done.take(tag) {
                        self.arrived = answer?;
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.arrived)),
                _ => {}
            }
        }
        if self.sent < self.messages && self.open.len() < OPEN {
            for number in self.sent..self.messages.min(self.sent + BATCH) {
                out.send(self.to, Message::Item(number, text()));
            }
            self.sent = self.messages.min(self.sent + BATCH);
            self.open.push_back(out.ask(self.to, Message::Count, LIMIT));
            return Ok(Step::Continue);
        }
        Ok(if self.open.is_empty() { Step::Done(self.arrived) } else { Step::Wait })
    }
}

/// Asks questions, so many at once: a number of them, or until the end of something else.
struct Asker {
    to: Address<Message>,
    in_flight: usize,
    until: Until,
    asked: u64,
    open: VecDeque<(u64, Instant, Tag<u64>)>,
    times: Vec<Duration>,
}

enum Until {
    Asked(u64),
    Set(Arc<AtomicBool>),
}

impl Asker {
    fn new(to: Address<Message>, in_flight: usize, until: Until) -> Asker {
        Asker { to, in_flight, until, asked: 0, open: VecDeque::new(), times: Vec::new() }
    }

    /// Whether no more questions are asked.
    fn is_over(&self) -> bool {
        match &self.until {
            Until::Asked(questions) => self.asked == *questions,
            Until::Set(flag) => flag.load(Ordering::Relaxed),
        }
    }
}

impl Process for Asker {
    type Message = ();
    type Output = Vec<Duration>;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Vec<Duration>> {
        for event in events {
            match event {
                Event::Completed(done) => {
                    let Some(at) = self.open.iter().position(|(_, _, tag)| done.is(*tag)) else { continue };
                    let Some((number, begun, tag)) = self.open.remove(at) else { continue };
                    self.times.push(begun.elapsed());
                    let Some(answer) = done.take(tag) else { continue };
                    check_answer(number, answer?)?;
                }
                Event::Cancel(_) => return Ok(Step::Done(Vec::new())),
                _ => {}
            }
        }
        while self.open.len() < self.in_flight && !self.is_over() {
            let number = self.asked;
            let tag = out.ask(self.to, |reply| Message::Echo(number, reply), LIMIT);
            self.open.push_back((number, Instant::now(), tag));
            self.asked += 1;
        }
        Ok(if self.open.is_empty() { Step::Done(std::mem::take(&mut self.times)) } else { Step::Wait })
    }
}

/// Sends large messages, each when the one before it has arrived.
struct LargeSender {
    to: Address<Message>,
    left: u64,
    open: Option<Tag<u64>>,
}

impl Process for LargeSender {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) => {
                    if let Some(answer) = done.take(self.open) {
                        check_answer(LARGE as u64, answer? + 1)?;
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.left == 0 {
            return Ok(Step::Done(()));
        }
        self.left -= 1;
        self.open = Some(out.ask(self.to, |reply| Message::Large(large_text(), reply), LIMIT));
        Ok(Step::Wait)
    }
}

fn node(name: &str, listen: String) -> procession::cluster::ClusterBuilder {
    Cluster::named(name, Wire::new().message::<Message>()).listen(listen).security(Security::TrustedNetwork)
}

/// The node that is asked.
pub(crate) fn serve(port: u16) -> Outcome<()> {
    let runtime = Runtime::builder().workers(2).start()?;
    for name in [RECEIVER, ECHO] {
        let receiver = runtime.spawn(Receiver::default())?;
        runtime.register(name, &receiver)?;
    }
    let endpoint = format!("tcp/127.0.0.1:{port}");
    let _cluster = node("b", endpoint.clone()).start(&runtime)?;
    until_the_end(&endpoint)?;
    runtime.shutdown(LIMIT)?;
    Ok(())
}

/// The node that sends and asks.
pub(crate) fn measure(endpoint: &str, counts: Counts) -> Outcome<Measured> {
    let runtime = Runtime::builder().workers(2).start()?;
    let cluster = node("a", String::from("tcp/127.0.0.1:0")).join(endpoint).start(&runtime)?;
    cluster.wait_for("b", LIMIT)?;
    let find = |name: &str| -> Outcome<Address<Message>> {
        let pid: Pid = cluster.whereis("b", name, LIMIT).wait()?;
        Ok(pid.typed())
    };
    let (receiver, echo) = (find(RECEIVER)?, find(ECHO)?);
    let mut measured = Measured::default();

    // The first questions are slower.
    run(&runtime, Asker::new(echo, 1, Until::Asked(counts.asks / 10)))?;
    let asked = run(&runtime, Asker::new(echo, 1, Until::Asked(counts.asks)))?;
    measured.asked(asked);

    let begun = Instant::now();
    run(&runtime, Asker::new(echo, IN_FLIGHT, Until::Asked(counts.pipelined)))?;
    measured.in_flight(counts.pipelined, begun.elapsed());

    let begun = Instant::now();
    let sender =
        Sender { to: receiver, messages: counts.messages, sent: 0, open: VecDeque::new(), arrived: Arrived::default() };
    let arrived = run(&runtime, sender)?;
    measured.one_way(counts.messages, arrived, begun.elapsed());

    if counts.large > 0 {
        let is_over = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let asker = runtime.spawn(Asker::new(echo, 1, Until::Set(is_over.clone())))?;
        let watched = is_over.clone();
        let watcher = thread::spawn(move || longest_silence(&cluster, &watched));
        let sent = run(&runtime, LargeSender { to: receiver, left: counts.large * LARGE_MESSAGES, open: None });
        let time = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        sent?;
        measured.beside_silence = watcher.join().ok().map(nanos);
        let times = asker.join()?.into_result()?.as_ref().clone();
        measured.beside(times, time, counts.large);
    }
    runtime.shutdown(LIMIT)?;
    Ok(measured)
}

/// Returns the longest time in which no frame of the other node has come, until the flag is set.
fn longest_silence(cluster: &Cluster, is_over: &AtomicBool) -> Duration {
    let frames = || cluster.stats().peers.iter().map(|peer| peer.frames_received).sum::<u64>();
    let (mut longest, mut last, mut heard_at) = (Duration::ZERO, frames(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        rest(POLL);
        longest = longest.max(heard_at.elapsed());
        let now = frames();
        if now != last {
            (last, heard_at) = (now, Instant::now());
        }
    }
    longest
}

/// Runs a process to its end, and returns its output.
fn run<P>(runtime: &Runtime, process: P) -> Outcome<P::Output>
where
    P: Process,
    P::Output: Clone,
{
    let process = runtime.spawn(process)?;
    Ok(process.join()?.into_result()?.as_ref().clone())
}
