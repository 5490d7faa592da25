//! Workloads of messages on kameo.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::mailbox::unbounded;
use kameo::message::{Context, Message};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{BATCH, FRIENDS, PRODUCERS, RING, Walk};
use crate::peers::{report, tokio_runtime};

pub(crate) fn pingpong(setting: &Setting) -> Outcome<Measured> {
    circle(setting, 2)
}

pub(crate) fn ring(setting: &Setting) -> Outcome<Measured> {
    circle(setting, RING)
}

enum Token {
    /// The number of hops that are left.
    Hop(u64),
    Meet(ActorRef<Hopper>),
    Stop,
}

struct Hopper {
    next: Option<ActorRef<Hopper>>,
    had: u64,
    over: Sender<()>,
    end: Sender<u64>,
}

impl Actor for Hopper {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(hopper: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(hopper)
    }
}

impl Message<Token> for Hopper {
    type Reply = ();

    async fn handle(&mut self, token: Token, context: &mut Context<Self, ()>) {
        match token {
            Token::Hop(left) => {
                self.had += 1;
                match &self.next {
                    Some(next) if left > 0 => drop(next.tell(Token::Hop(left - 1)).try_send()),
                    _ => drop(self.over.send(())),
                }
            }
            Token::Meet(next) => self.next = Some(next),
            Token::Stop => {
                let _ = self.end.send(self.had);
                context.stop();
            }
        }
    }
}

/// A token goes round a circle. The last actor that gets it reports.
fn circle(setting: &Setting, size: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let ((over, is_over), (end, ends)) = (channel(), channel());
    let mut hoppers = Vec::new();
    for _ in 0..size {
        let hopper = Hopper { next: None, had: 0, over: over.clone(), end: end.clone() };
        hoppers.push(Hopper::spawn_with_mailbox(hopper, unbounded()));
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        one.tell(Token::Meet(next.clone())).try_send().map_err(drop_message)?;
    }
    let began = Instant::now();
    hoppers[0].tell(Token::Hop(setting.n - 1)).try_send().map_err(drop_message)?;
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut had = 0;
    for hopper in &hoppers {
        hopper.tell(Token::Stop).try_send().map_err(drop_message)?;
        had += report(&ends)?;
    }
    check("hops", had, setting.n)?;
    Ok(measured)
}

/// A refusal as text. The refusal holds the message, which need not be a valid error.
pub(super) fn drop_message<T>(refused: kameo::error::SendError<T>) -> String {
    refused.to_string()
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

impl Actor for Counter {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(counter: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(counter)
    }
}

struct Add(u64);

impl Message<Add> for Counter {
    type Reply = ();

    async fn handle(&mut self, Add(n): Add, _: &mut Context<Self, ()>) {
        self.total += n;
    }
}

struct Read;

impl Message<Read> for Counter {
    type Reply = u64;

    async fn handle(&mut self, _: Read, _: &mut Context<Self, u64>) -> u64 {
        self.total
    }
}

/// Sends without waiting, and yields after each batch.
struct Producer {
    to: ActorRef<Counter>,
    left: u64,
    over: Sender<()>,
}

impl Actor for Producer {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(producer: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(producer)
    }
}

struct Go;

impl Message<Go> for Producer {
    type Reply = ();

    async fn handle(&mut self, _: Go, context: &mut Context<Self, ()>) {
        while self.left > 0 {
            let batch = self.left.min(BATCH);
            for _ in 0..batch {
                let _ = self.to.tell(Add(1)).try_send();
            }
            self.left -= batch;
            yield_now().await;
        }
        let _ = self.over.send(());
        context.stop();
    }
}

/// One or several actors send to one. After the last message, that one is asked for the total.
fn stream(setting: &Setting, producers: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (over, is_over) = channel();
    let counter = Counter::spawn_with_mailbox(Counter { total: 0 }, unbounded());
    let began = Instant::now();
    for producer in 0..producers {
        let (to, left, over) = (counter.clone(), setting.share(producer, producers), over.clone());
        let producer = Producer::spawn_with_mailbox(Producer { to, left, over }, unbounded());
        producer.tell(Go).try_send().map_err(drop_message)?;
    }
    for _ in 0..producers {
        report(&is_over)?;
    }
    let total = runtime.block_on(counter.ask(Read).send()).map_err(drop_message)?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    Ok(measured)
}

/// The number is the sender's place among the friends. A reference in each message would have to be counted.
enum Chat {
    /// All actors, in order. All get this before one begins, because an actor that is pinged must know the sender.
    Meet(Arc<Vec<ActorRef<Friend>>>),
    Begin,
    Ping(usize),
    Pong,
    Stop,
}

struct Friend {
    me: usize,
    friends: Arc<Vec<ActorRef<Friend>>>,
    referee: ActorRef<Referee>,
    walk: Walk,
    left: u64,
    answered: u64,
    end: Sender<u64>,
}

impl Friend {
    fn next(&mut self) {
        if self.left == 0 {
            let _ = self.referee.tell(OneIsDone).try_send();
            return;
        }
        self.left -= 1;
        let friend = loop {
            let friend = self.walk.next(self.friends.len());
            if friend != self.me {
                break friend;
            }
        };
        let _ = self.friends[friend].tell(Chat::Ping(self.me)).try_send();
    }
}

impl Actor for Friend {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(friend: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(friend)
    }
}

impl Message<Chat> for Friend {
    type Reply = ();

    async fn handle(&mut self, message: Chat, context: &mut Context<Self, ()>) {
        match message {
            Chat::Ping(from) => {
                self.answered += 1;
                let _ = self.friends[from].tell(Chat::Pong).try_send();
            }
            Chat::Begin | Chat::Pong => self.next(),
            Chat::Meet(friends) => self.friends = friends,
            Chat::Stop => {
                let _ = self.end.send(self.answered);
                context.stop();
            }
        }
    }
}

struct Referee {
    left: u64,
    over: Sender<()>,
}

impl Actor for Referee {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(referee: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(referee)
    }
}

struct OneIsDone;

impl Message<OneIsDone> for Referee {
    type Reply = ();

    async fn handle(&mut self, _: OneIsDone, _: &mut Context<Self, ()>) {
        self.left -= 1;
        if self.left == 0 {
            let _ = self.over.send(());
        }
    }
}

pub(crate) fn big(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let ((over, is_over), (end, ends)) = (channel(), channel());
    let referee = Referee::spawn_with_mailbox(Referee { left: FRIENDS, over }, unbounded());
    let mut friends = Vec::new();
    for one in 0..FRIENDS {
        let (walk, left) = (Walk::new(one), setting.share(one, FRIENDS));
        let (me, referee, end) = (one as usize, referee.clone(), end.clone());
        let friend = Friend { me, friends: Arc::default(), referee, walk, left, answered: 0, end };
        friends.push(Friend::spawn_with_mailbox(friend, unbounded()));
    }
    let friends = Arc::new(friends);
    for friend in friends.iter() {
        friend.tell(Chat::Meet(friends.clone())).try_send().map_err(drop_message)?;
    }
    let began = Instant::now();
    for friend in friends.iter() {
        friend.tell(Chat::Begin).try_send().map_err(drop_message)?;
    }
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut answered = 0;
    for friend in friends.iter() {
        friend.tell(Chat::Stop).try_send().map_err(drop_message)?;
        answered += report(&ends)?;
    }
    check("pings answered", answered, setting.n)?;
    Ok(measured)
}

/// Answers each request with the next number.
struct Numbers {
    last: u64,
}

impl Actor for Numbers {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(numbers: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(numbers)
    }
}

struct Next;

impl Message<Next> for Numbers {
    type Reply = u64;

    async fn handle(&mut self, _: Next, _: &mut Context<Self, u64>) -> u64 {
        self.last += 1;
        self.last
    }
}

pub(crate) fn ask(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let numbers = Numbers::spawn_with_mailbox(Numbers { last: 0 }, unbounded());
    let began = Instant::now();
    for call in 1..=setting.n {
        check("the answer", numbers.ask(Next).blocking_send().map_err(drop_message)?, call)?;
    }
    let measured = Measured::since(began, setting.n);
    Ok(measured)
}
