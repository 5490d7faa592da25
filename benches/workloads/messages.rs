//! Workloads of messages between long-lived processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Tally, check};
use super::runtime::{done, finish};
use super::shape::{BATCH, FRIENDS, PRODUCERS, RECEIVERS, RING, SENDER_BATCH, Walk, last_hop};

/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn pingpong(setting: &Setting) -> Outcome<Measured> {
    circle(setting, 2)
}

pub(crate) fn ring(setting: &Setting) -> Outcome<Measured> {
    circle(setting, RING)
}

/// A token, with the number of hops that are left.
enum Token {
    Hop(u64),
    /// The next process of the ring.
    Meet(Address<Token>),
}

/// Passes the token on.
struct Hopper {
    next: Option<Address<Token>>,
    had: u64,
}

impl Process for Hopper {
    type Message = Token;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Token>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Token::Hop(left)) => {
                    self.had += 1;
                    match self.next {
                        Some(next) if left > 0 => out.send(next, Token::Hop(left - 1)),
                        _ => return Ok(Step::Done(self.had)),
                    }
                }
                Event::Message(Token::Meet(next)) => self.next = Some(next),
                Event::Cancel(_) => return Ok(Step::Done(self.had)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A token goes round a circle, and ends at the process that gets it last.
fn circle(setting: &Setting, size: u64) -> Outcome<Measured> {
    circle_in(&setting.runtime()?, setting, size, || ())
}

/// As `circle`, in an existing runtime. `over` is called at the end, before the processes are asked to end.
pub(crate) fn circle_in(runtime: &Runtime, setting: &Setting, size: u64, over: impl FnOnce()) -> Outcome<Measured> {
    let mut hoppers = Vec::new();
    for _ in 0..size {
        hoppers.push(runtime.spawn(Hopper { next: None, had: 0 })?);
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        runtime.send(one.address(), Token::Meet(next.address()))?;
    }
    let began = Instant::now();
    runtime.send(hoppers[0].address(), Token::Hop(setting.n - 1))?;
    done(&hoppers[last_hop(setting.n, size)])?;
    let measured = Measured::since(began, setting.n);
    over();
    finish(runtime)?;
    let mut had = 0;
    for hopper in &hoppers {
        had += done(hopper)?;
    }
    check("hops", had, setting.n)?;
    Ok(measured)
}

pub(crate) fn counting(setting: &Setting) -> Outcome<Measured> {
    stream(setting, 1)
}

pub(crate) fn fanin(setting: &Setting) -> Outcome<Measured> {
    stream(setting, PRODUCERS)
}

struct Counter {
    total: u64,
}

enum CounterMessage {
    Add(u64),
    Read(Reply<u64>),
}

impl Process for Counter {
    type Message = CounterMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<CounterMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(CounterMessage::Add(n)) => self.total += n,
                Event::Message(CounterMessage::Read(reply)) => out.reply(reply, self.total),
                Event::Cancel(_) => return Ok(Step::Done(self.total)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sends without waiting, a batch in each step.
struct Producer {
    to: Address<CounterMessage>,
    left: u64,
    batch: u64,
}

impl Process for Producer {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let batch = self.left.min(self.batch);
        for _ in 0..batch {
            out.send(self.to, CounterMessage::Add(1));
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

/// As `fanin`, with any number of processes, which send few messages in a step.
pub(crate) fn senders<const SENDERS: u64>(setting: &Setting) -> Outcome<Measured> {
    stream_in(setting, SENDERS, SENDER_BATCH)
}

pub(crate) fn stream(setting: &Setting, producers: u64) -> Outcome<Measured> {
    stream_in(setting, producers, BATCH)
}

/// One or several actors send to one. After the last message, that one is asked for the total.
fn stream_in(setting: &Setting, producers: u64, batch: u64) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let counter = runtime.spawn(Counter { total: 0 })?;
    let began = Instant::now();
    let mut running = Vec::new();
    for producer in 0..producers {
        let left = setting.share(producer, producers);
        running.push(runtime.spawn(Producer { to: counter.address(), left, batch })?);
    }
    for producer in &running {
        done(producer)?;
    }
    let total = runtime.ask(counter.address(), CounterMessage::Read, LIMIT).wait()?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}

/// The receivers of a burst that have got everything.
static REPORTS: Tally = Tally::new();

struct Pulse;

/// Counts its messages.
struct Receiver {
    had: u64,
    of: u64,
}

impl Process for Receiver {
    type Message = Pulse;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Pulse>, _: &mut StepOutput) -> StepResult<u64> {
        self.had += events.filter(|event| matches!(event, Event::Message(Pulse))).count() as u64;
        if self.had < self.of {
            return Ok(Step::Idle);
        }
        REPORTS.strike();
        Ok(Step::Done(self.had))
    }
}

/// Sends to all receivers in turn, everything in one step.
struct Burst {
    to: Vec<Address<Pulse>>,
    messages: usize,
}

impl Process for Burst {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        for to in self.to.iter().cycle().take(self.messages) {
            out.send(*to, Pulse);
        }
        Ok(Step::Done(()))
    }
}

pub(crate) fn burst(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    REPORTS.expect(RECEIVERS);
    let mut receivers = Vec::new();
    for receiver in 0..RECEIVERS {
        receivers.push(runtime.spawn(Receiver { had: 0, of: setting.share(receiver, RECEIVERS) })?);
    }
    let to = receivers.iter().map(|receiver| receiver.address()).collect();
    let began = Instant::now();
    runtime.spawn(Burst { to, messages: setting.n as usize })?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    let mut had = 0;
    for receiver in &receivers {
        had += done(receiver)?;
    }
    check("messages counted", had, setting.n)?;
    Ok(measured)
}

enum Chat {
    /// All actors, including the receiver.
    Meet(Arc<Vec<Address<Chat>>>),
    Begin,
    Ping(Address<Chat>),
    Pong,
}

/// Pings a random other, waits for the pong, and repeats this. It answers pings at all times, also after its own
/// pongs.
struct Friend {
    friends: Option<Arc<Vec<Address<Chat>>>>,
    referee: Address<OneIsDone>,
    walk: Walk,
    left: u64,
    answered: u64,
}

impl Friend {
    fn next(&mut self, out: &mut StepOutput) {
        let Some(friends) = &self.friends else { return };
        if self.left == 0 {
            out.send(self.referee, OneIsDone);
            return;
        }
        self.left -= 1;
        let me = out.pid();
        let friend = loop {
            let friend = friends[self.walk.next(friends.len())];
            if friend.pid() != me {
                break friend;
            }
        };
        out.send(friend, Chat::Ping(me.typed()));
    }
}

impl Process for Friend {
    type Message = Chat;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Chat>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Chat::Ping(from)) => {
                    self.answered += 1;
                    out.send(from, Chat::Pong);
                }
                Event::Message(Chat::Begin | Chat::Pong) => self.next(out),
                Event::Message(Chat::Meet(friends)) => self.friends = Some(friends),
                Event::Cancel(_) => return Ok(Step::Done(self.answered)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct OneIsDone;

/// Ends when all are done.
struct Referee {
    left: u64,
}

impl Process for Referee {
    type Message = OneIsDone;
    type Output = ();

    fn step(&mut self, events: &mut Events<OneIsDone>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(OneIsDone) => self.left -= 1,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Idle })
    }
}

pub(crate) fn big(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let referee = runtime.spawn(Referee { left: FRIENDS })?;
    let mut handles = Vec::new();
    for friend in 0..FRIENDS {
        let walk = Walk::new(friend);
        let left = setting.share(friend, FRIENDS);
        let referee = referee.address();
        handles.push(runtime.spawn(Friend { friends: None, referee, walk, left, answered: 0 })?);
    }
    let friends = Arc::new(handles.iter().map(|handle| handle.address()).collect::<Vec<_>>());
    for handle in &handles {
        runtime.send(handle.address(), Chat::Meet(friends.clone()))?;
    }
    let began = Instant::now();
    for handle in &handles {
        runtime.send(handle.address(), Chat::Begin)?;
    }
    done(&referee)?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    let mut answered = 0;
    for handle in &handles {
        answered += done(handle)?;
    }
    check("pings answered", answered, setting.n)?;
    Ok(measured)
}

/// Answers each request with the next number.
struct Numbers {
    last: u64,
}

enum NumbersMessage {
    Next(Reply<u64>),
}

impl Process for Numbers {
    type Message = NumbersMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<NumbersMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(NumbersMessage::Next(reply)) => {
                    self.last += 1;
                    out.reply(reply, self.last);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn ask(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let numbers = runtime.spawn(Numbers { last: 0 })?;
    let began = Instant::now();
    for call in 1..=setting.n {
        check("the answer", runtime.ask(numbers.address(), NumbersMessage::Next, LIMIT).wait()?, call)?;
    }
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    Ok(measured)
}
