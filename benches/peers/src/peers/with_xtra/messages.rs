//! Workloads of messages on xtra.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use xtra::{Actor, Address, Context, Handler, Mailbox, spawn_tokio};

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
    Meet(Address<Hopper>),
    Stop,
}

struct Hopper {
    next: Option<Address<Hopper>>,
    had: u64,
    over: Sender<()>,
    end: Sender<u64>,
}

impl Actor for Hopper {
    type Stop = ();

    async fn stopped(self) {}
}

impl Handler<Token> for Hopper {
    type Return = ();

    async fn handle(&mut self, token: Token, context: &mut Context<Self>) {
        match token {
            Token::Hop(left) => {
                self.had += 1;
                match &self.next {
                    Some(next) if left > 0 => drop(next.send(Token::Hop(left - 1)).detach().await),
                    _ => drop(self.over.send(())),
                }
            }
            Token::Meet(next) => self.next = Some(next),
            Token::Stop => {
                let _ = self.end.send(self.had);
                context.stop_self();
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
        hoppers.push(spawn_tokio(hopper, Mailbox::unbounded()));
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        drop(runtime.block_on(one.send(Token::Meet(next.clone())).detach())?);
    }
    let began = Instant::now();
    drop(runtime.block_on(hoppers[0].send(Token::Hop(setting.n - 1)).detach())?);
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut had = 0;
    for hopper in &hoppers {
        drop(runtime.block_on(hopper.send(Token::Stop).detach())?);
        had += report(&ends)?;
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

impl Actor for Counter {
    type Stop = ();

    async fn stopped(self) {}
}

struct Add(u64);

impl Handler<Add> for Counter {
    type Return = ();

    async fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) {
        self.total += n;
    }
}

struct Read;

impl Handler<Read> for Counter {
    type Return = u64;

    async fn handle(&mut self, _: Read, _: &mut Context<Self>) -> u64 {
        self.total
    }
}

/// Sends without waiting, and yields after each batch.
struct Producer {
    to: Address<Counter>,
    left: u64,
    over: Sender<()>,
}

impl Actor for Producer {
    type Stop = ();

    async fn stopped(self) {}
}

struct Go;

impl Handler<Go> for Producer {
    type Return = ();

    async fn handle(&mut self, _: Go, context: &mut Context<Self>) {
        while self.left > 0 {
            let batch = self.left.min(BATCH);
            for _ in 0..batch {
                let _ = self.to.send(Add(1)).detach().await;
            }
            self.left -= batch;
            yield_now().await;
        }
        let _ = self.over.send(());
        context.stop_self();
    }
}

/// One or several actors send to one. After the last message, that one is asked for the total.
fn stream(setting: &Setting, producers: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (over, is_over) = channel();
    let counter = spawn_tokio(Counter { total: 0 }, Mailbox::unbounded());
    let began = Instant::now();
    for producer in 0..producers {
        let (to, left, over) = (counter.clone(), setting.share(producer, producers), over.clone());
        let producer = spawn_tokio(Producer { to, left, over }, Mailbox::unbounded());
        drop(runtime.block_on(producer.send(Go).detach())?);
    }
    for _ in 0..producers {
        report(&is_over)?;
    }
    let total = runtime.block_on(counter.send(Read))?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    Ok(measured)
}

/// The number is the sender's place among the friends. A reference in each message would have to be counted.
enum Chat {
    /// All actors, in order. All get this before one begins, because an actor that is pinged must know the sender.
    Meet(Arc<Vec<Address<Friend>>>),
    Begin,
    Ping(usize),
    Pong,
    Stop,
}

struct Friend {
    me: usize,
    friends: Arc<Vec<Address<Friend>>>,
    referee: Address<Referee>,
    walk: Walk,
    left: u64,
    answered: u64,
    end: Sender<u64>,
}

impl Friend {
    async fn next(&mut self) {
        if self.left == 0 {
            let _ = self.referee.send(OneIsDone).detach().await;
            return;
        }
        self.left -= 1;
        let friend = loop {
            let friend = self.walk.next(self.friends.len());
            if friend != self.me {
                break friend;
            }
        };
        let _ = self.friends[friend].send(Chat::Ping(self.me)).detach().await;
    }
}

impl Actor for Friend {
    type Stop = ();

    async fn stopped(self) {}
}

impl Handler<Chat> for Friend {
    type Return = ();

    async fn handle(&mut self, message: Chat, context: &mut Context<Self>) {
        match message {
            Chat::Ping(from) => {
                self.answered += 1;
                let _ = self.friends[from].send(Chat::Pong).detach().await;
            }
            Chat::Begin | Chat::Pong => self.next().await,
            Chat::Meet(friends) => self.friends = friends,
            Chat::Stop => {
                let _ = self.end.send(self.answered);
                context.stop_self();
            }
        }
    }
}

struct Referee {
    left: u64,
    over: Sender<()>,
}

impl Actor for Referee {
    type Stop = ();

    async fn stopped(self) {}
}

struct OneIsDone;

impl Handler<OneIsDone> for Referee {
    type Return = ();

    async fn handle(&mut self, _: OneIsDone, _: &mut Context<Self>) {
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
    let referee = spawn_tokio(Referee { left: FRIENDS, over }, Mailbox::unbounded());
    let mut friends = Vec::new();
    for one in 0..FRIENDS {
        let (walk, left) = (Walk::new(one), setting.share(one, FRIENDS));
        let (me, referee, end) = (one as usize, referee.clone(), end.clone());
        let friend = Friend { me, friends: Arc::default(), referee, walk, left, answered: 0, end };
        friends.push(spawn_tokio(friend, Mailbox::unbounded()));
    }
    let friends = Arc::new(friends);
    for friend in friends.iter() {
        drop(runtime.block_on(friend.send(Chat::Meet(friends.clone())).detach())?);
    }
    let began = Instant::now();
    for friend in friends.iter() {
        drop(runtime.block_on(friend.send(Chat::Begin).detach())?);
    }
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut answered = 0;
    for friend in friends.iter() {
        drop(runtime.block_on(friend.send(Chat::Stop).detach())?);
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
    type Stop = ();

    async fn stopped(self) {}
}

/// The answer uses tokio's channel, and not xtra's own. A spin lock guards xtra's channel. A thread that waits for an
/// answer spins until its sender runs again. On a busy machine, that can take milliseconds for a call.
struct Next(oneshot::Sender<u64>);

impl Handler<Next> for Numbers {
    type Return = ();

    async fn handle(&mut self, Next(reply): Next, _: &mut Context<Self>) {
        self.last += 1;
        let _ = reply.send(self.last);
    }
}

pub(crate) fn ask(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let numbers = spawn_tokio(Numbers { last: 0 }, Mailbox::unbounded());
    let began = Instant::now();
    for call in 1..=setting.n {
        let (reply, answer) = oneshot::channel();
        drop(runtime.block_on(numbers.send(Next(reply)).detach())?);
        check("the answer", answer.blocking_recv()?, call)?;
    }
    let measured = Measured::since(began, setting.n);
    Ok(measured)
}
