//! Workloads of messages on actix.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::task::yield_now;

use super::stage::Stage;
use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{BATCH, FRIENDS, PRODUCERS, RING, Walk};
use crate::peers::report;

pub(crate) fn pingpong(setting: &Setting) -> Outcome<Measured> {
    circle(setting, 2)
}

pub(crate) fn ring(setting: &Setting) -> Outcome<Measured> {
    circle(setting, RING)
}

enum Token {
    /// The number of hops that are left.
    Hop(u64),
    Meet(Addr<Hopper>),
    Stop,
}

impl Message for Token {
    type Result = ();
}

struct Hopper {
    next: Option<Addr<Hopper>>,
    had: u64,
    over: Sender<()>,
    end: Sender<u64>,
}

impl Actor for Hopper {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Context<Self>) {
        let _ = self.end.send(self.had);
    }
}

impl Handler<Token> for Hopper {
    type Result = ();

    fn handle(&mut self, token: Token, context: &mut Context<Self>) {
        match token {
            Token::Hop(left) => {
                self.had += 1;
                match &self.next {
                    Some(next) if left > 0 => next.do_send(Token::Hop(left - 1)),
                    _ => {
                        let _ = self.over.send(());
                    }
                }
            }
            Token::Meet(next) => self.next = Some(next),
            Token::Stop => context.stop(),
        }
    }
}

/// A token goes round a circle. The last actor that gets it reports.
fn circle(setting: &Setting, size: u64) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let ((over, is_over), (end, ends)) = (channel(), channel());
    let mut hoppers = Vec::new();
    for _ in 0..size {
        let (over, end) = (over.clone(), end.clone());
        hoppers.push(stage.start(Hopper { next: None, had: 0, over, end }));
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        one.do_send(Token::Meet(next.clone()));
    }
    let began = Instant::now();
    hoppers[0].do_send(Token::Hop(setting.n - 1));
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    hoppers.iter().for_each(|hopper| hopper.do_send(Token::Stop));
    let mut had = 0;
    for _ in &hoppers {
        had += report(&ends)?;
    }
    check("hops", had, setting.n)?;
    stage.finish()?;
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
    type Context = Context<Self>;
}

struct Add(u64);

impl Message for Add {
    type Result = ();
}

impl Handler<Add> for Counter {
    type Result = ();

    fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) {
        self.total += n;
    }
}

struct Read;

impl Message for Read {
    type Result = u64;
}

impl Handler<Read> for Counter {
    type Result = u64;

    fn handle(&mut self, _: Read, _: &mut Context<Self>) -> u64 {
        self.total
    }
}

/// Sends without waiting, and yields after each batch. It is a future of the actor's. An actor that sends itself a
/// message is called again before all others.
struct Producer {
    to: Addr<Counter>,
    left: u64,
    over: Sender<()>,
}

impl Actor for Producer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (to, mut left) = (self.to.clone(), self.left);
        let work = async move {
            while left > 0 {
                let batch = left.min(BATCH);
                for _ in 0..batch {
                    to.do_send(Add(1));
                }
                left -= batch;
                yield_now().await;
            }
        };
        context.spawn(work.into_actor(self).map(|(), producer, context| {
            let _ = producer.over.send(());
            context.stop();
        }));
    }
}

/// One or several actors send to one. After the last message, that one is asked for the total.
fn stream(setting: &Setting, producers: u64) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, is_over) = channel();
    let counter = stage.start(Counter { total: 0 });
    let began = Instant::now();
    for producer in 0..producers {
        let (to, left, over) = (counter.clone(), setting.share(producer, producers), over.clone());
        stage.start(Producer { to, left, over });
    }
    for _ in 0..producers {
        report(&is_over)?;
    }
    let total = stage.system.block_on(counter.send(Read))?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    stage.finish()?;
    Ok(measured)
}

/// The number is the sender's place among the friends. An address in each message would have to be counted.
enum Chat {
    /// All actors, in order. All get this before one begins, because an actor that is pinged must know the sender.
    Meet(Arc<Vec<Addr<Friend>>>),
    Begin,
    Ping(usize),
    Pong,
    Stop,
}

impl Message for Chat {
    type Result = ();
}

struct Friend {
    me: usize,
    friends: Arc<Vec<Addr<Friend>>>,
    referee: Addr<Referee>,
    walk: Walk,
    left: u64,
    answered: u64,
    end: Sender<u64>,
}

impl Friend {
    fn next(&mut self) {
        if self.left == 0 {
            self.referee.do_send(OneIsDone);
            return;
        }
        self.left -= 1;
        let friend = loop {
            let friend = self.walk.next(self.friends.len());
            if friend != self.me {
                break friend;
            }
        };
        self.friends[friend].do_send(Chat::Ping(self.me));
    }
}

impl Actor for Friend {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Context<Self>) {
        let _ = self.end.send(self.answered);
    }
}

impl Handler<Chat> for Friend {
    type Result = ();

    fn handle(&mut self, message: Chat, context: &mut Context<Self>) {
        match message {
            Chat::Ping(from) => {
                self.answered += 1;
                self.friends[from].do_send(Chat::Pong);
            }
            Chat::Begin | Chat::Pong => self.next(),
            Chat::Meet(friends) => self.friends = friends,
            Chat::Stop => context.stop(),
        }
    }
}

struct OneIsDone;

impl Message for OneIsDone {
    type Result = ();
}

struct Referee {
    left: u64,
    over: Sender<()>,
}

impl Actor for Referee {
    type Context = Context<Self>;
}

impl Handler<OneIsDone> for Referee {
    type Result = ();

    fn handle(&mut self, _: OneIsDone, _: &mut Context<Self>) {
        self.left -= 1;
        if self.left == 0 {
            let _ = self.over.send(());
        }
    }
}

pub(crate) fn big(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let ((over, is_over), (end, ends)) = (channel(), channel());
    let referee = stage.start(Referee { left: FRIENDS, over });
    let mut friends = Vec::new();
    for one in 0..FRIENDS {
        let (walk, left) = (Walk::new(one), setting.share(one, FRIENDS));
        let (me, referee, end) = (one as usize, referee.clone(), end.clone());
        friends.push(stage.start(Friend { me, friends: Arc::default(), referee, walk, left, answered: 0, end }));
    }
    let friends = Arc::new(friends);
    for friend in friends.iter() {
        friend.do_send(Chat::Meet(friends.clone()));
    }
    let began = Instant::now();
    for friend in friends.iter() {
        friend.do_send(Chat::Begin);
    }
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    friends.iter().for_each(|friend| friend.do_send(Chat::Stop));
    let mut answered = 0;
    for _ in friends.iter() {
        answered += report(&ends)?;
    }
    check("pings answered", answered, setting.n)?;
    stage.finish()?;
    Ok(measured)
}

/// Answers each request with the next number.
struct Numbers {
    last: u64,
}

impl Actor for Numbers {
    type Context = Context<Self>;
}

struct Next;

impl Message for Next {
    type Result = u64;
}

impl Handler<Next> for Numbers {
    type Result = u64;

    fn handle(&mut self, _: Next, _: &mut Context<Self>) -> u64 {
        self.last += 1;
        self.last
    }
}

pub(crate) fn ask(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let numbers = stage.start(Numbers { last: 0 });
    let began = Instant::now();
    for call in 1..=setting.n {
        check("the answer", stage.system.block_on(numbers.send(Next))?, call)?;
    }
    let measured = Measured::since(began, setting.n);
    stage.finish()?;
    Ok(measured)
}
