//! Workloads of messages on ractor.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, call};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{BATCH, FRIENDS, PRODUCERS, RING, Walk};
use crate::peers::{report, tokio_runtime};

type Handled = Result<(), ActorProcessingErr>;

pub(crate) fn pingpong(setting: &Setting) -> Outcome<Measured> {
    circle(setting, 2)
}

pub(crate) fn ring(setting: &Setting) -> Outcome<Measured> {
    circle(setting, RING)
}

enum Token {
    /// The number of hops that are left.
    Hop(u64),
    Meet(ActorRef<Token>),
    Stop,
}

/// Passes the token on. All its data is in the actor's state.
struct Hopper;

struct Hops {
    next: Option<ActorRef<Token>>,
    had: u64,
    over: Sender<()>,
    end: Sender<u64>,
}

impl Actor for Hopper {
    type Msg = Token;
    type State = Hops;
    type Arguments = Hops;

    async fn pre_start(&self, _: ActorRef<Token>, hops: Hops) -> Result<Hops, ActorProcessingErr> {
        Ok(hops)
    }

    async fn handle(&self, me: ActorRef<Token>, token: Token, hops: &mut Hops) -> Handled {
        match token {
            Token::Hop(left) => {
                hops.had += 1;
                match &hops.next {
                    Some(next) if left > 0 => next.cast(Token::Hop(left - 1))?,
                    _ => hops.over.send(())?,
                }
            }
            Token::Meet(next) => hops.next = Some(next),
            Token::Stop => {
                hops.end.send(hops.had)?;
                me.stop(None);
            }
        }
        Ok(())
    }
}

/// A token goes round a circle. The last actor that gets it reports.
fn circle(setting: &Setting, size: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let ((over, is_over), (end, ends)) = (channel(), channel());
    let mut hoppers = Vec::new();
    for _ in 0..size {
        let hops = Hops { next: None, had: 0, over: over.clone(), end: end.clone() };
        hoppers.push(runtime.block_on(Actor::spawn(None, Hopper, hops))?.0);
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        one.cast(Token::Meet(next.clone()))?;
    }
    let began = Instant::now();
    hoppers[0].cast(Token::Hop(setting.n - 1))?;
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut had = 0;
    for hopper in &hoppers {
        hopper.cast(Token::Stop)?;
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

enum CounterMessage {
    Add(u64),
    Read(RpcReplyPort<u64>),
}

/// Its state is the total.
struct Counter;

impl Actor for Counter {
    type Msg = CounterMessage;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<CounterMessage>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(&self, _: ActorRef<CounterMessage>, message: CounterMessage, total: &mut u64) -> Handled {
        match message {
            CounterMessage::Add(n) => *total += n,
            CounterMessage::Read(reply) => reply.send(*total)?,
        }
        Ok(())
    }
}

/// Sends without waiting, and yields after each batch. Its state is the number of messages that are left.
struct Producer {
    to: ActorRef<CounterMessage>,
    over: Sender<()>,
}

struct Go;

impl Actor for Producer {
    type Msg = Go;
    type State = u64;
    type Arguments = u64;

    async fn pre_start(&self, me: ActorRef<Go>, left: u64) -> Result<u64, ActorProcessingErr> {
        me.cast(Go)?;
        Ok(left)
    }

    async fn handle(&self, me: ActorRef<Go>, _: Go, left: &mut u64) -> Handled {
        while *left > 0 {
            let batch = (*left).min(BATCH);
            for _ in 0..batch {
                self.to.cast(CounterMessage::Add(1))?;
            }
            *left -= batch;
            yield_now().await;
        }
        self.over.send(())?;
        me.stop(None);
        Ok(())
    }
}

/// One or several actors send to one. After the last message, that one is asked for the total.
fn stream(setting: &Setting, producers: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (over, is_over) = channel();
    let (counter, _) = runtime.block_on(Actor::spawn(None, Counter, ()))?;
    let began = Instant::now();
    for producer in 0..producers {
        let actor = Producer { to: counter.clone(), over: over.clone() };
        runtime.block_on(Actor::spawn(None, actor, setting.share(producer, producers)))?;
    }
    for _ in 0..producers {
        report(&is_over)?;
    }
    let total = runtime.block_on(async { call!(counter, CounterMessage::Read) })?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    Ok(measured)
}

/// The number is the sender's place among the friends. A reference in each message would have to be counted.
enum Chat {
    /// All actors, in order. All get this before one begins, because an actor that is pinged must know the sender.
    Meet(Arc<Vec<ActorRef<Chat>>>),
    Begin,
    Ping(usize),
    Pong,
    Stop,
}

/// Pings a random other, waits for the pong, and so on.
struct Friend;

struct Friendship {
    me: usize,
    friends: Arc<Vec<ActorRef<Chat>>>,
    referee: ActorRef<OneIsDone>,
    walk: Walk,
    left: u64,
    answered: u64,
    end: Sender<u64>,
}

impl Friendship {
    fn next(&mut self) -> Handled {
        if self.left == 0 {
            self.referee.cast(OneIsDone)?;
            return Ok(());
        }
        self.left -= 1;
        let friend = loop {
            let friend = self.walk.next(self.friends.len());
            if friend != self.me {
                break friend;
            }
        };
        self.friends[friend].cast(Chat::Ping(self.me))?;
        Ok(())
    }
}

impl Actor for Friend {
    type Msg = Chat;
    type State = Friendship;
    type Arguments = Friendship;

    async fn pre_start(&self, _: ActorRef<Chat>, state: Friendship) -> Result<Friendship, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, me: ActorRef<Chat>, message: Chat, state: &mut Friendship) -> Handled {
        match message {
            Chat::Ping(from) => {
                state.answered += 1;
                state.friends[from].cast(Chat::Pong)?;
            }
            Chat::Begin | Chat::Pong => state.next()?,
            Chat::Meet(friends) => state.friends = friends,
            Chat::Stop => {
                state.end.send(state.answered)?;
                me.stop(None);
            }
        }
        Ok(())
    }
}

struct OneIsDone;

/// Reports when all actors are done. Its state is the number of actors that are not.
struct Referee {
    over: Sender<()>,
}

impl Actor for Referee {
    type Msg = OneIsDone;
    type State = u64;
    type Arguments = u64;

    async fn pre_start(&self, _: ActorRef<OneIsDone>, left: u64) -> Result<u64, ActorProcessingErr> {
        Ok(left)
    }

    async fn handle(&self, _: ActorRef<OneIsDone>, _: OneIsDone, left: &mut u64) -> Handled {
        *left -= 1;
        if *left == 0 {
            self.over.send(())?;
        }
        Ok(())
    }
}

pub(crate) fn big(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let ((over, is_over), (end, ends)) = (channel(), channel());
    let (referee, _) = runtime.block_on(Actor::spawn(None, Referee { over }, FRIENDS))?;
    let mut friends = Vec::new();
    for one in 0..FRIENDS {
        let (walk, left) = (Walk::new(one), setting.share(one, FRIENDS));
        let (me, referee, end) = (one as usize, referee.clone(), end.clone());
        let state = Friendship { me, friends: Arc::default(), referee, walk, left, answered: 0, end };
        friends.push(runtime.block_on(Actor::spawn(None, Friend, state))?.0);
    }
    let friends = Arc::new(friends);
    for friend in friends.iter() {
        friend.cast(Chat::Meet(friends.clone()))?;
    }
    let began = Instant::now();
    for friend in friends.iter() {
        friend.cast(Chat::Begin)?;
    }
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut answered = 0;
    for friend in friends.iter() {
        friend.cast(Chat::Stop)?;
        answered += report(&ends)?;
    }
    check("pings answered", answered, setting.n)?;
    Ok(measured)
}

/// Answers each request with the next number. Its state is the last number.
struct Numbers;

struct Next(RpcReplyPort<u64>);

impl Actor for Numbers {
    type Msg = Next;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Next>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(&self, _: ActorRef<Next>, Next(reply): Next, last: &mut u64) -> Handled {
        *last += 1;
        reply.send(*last)?;
        Ok(())
    }
}

pub(crate) fn ask(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (numbers, _) = runtime.block_on(Actor::spawn(None, Numbers, ()))?;
    let began = Instant::now();
    for call in 1..=setting.n {
        check("the answer", runtime.block_on(async { call!(numbers, Next) })?, call)?;
    }
    let measured = Measured::since(began, setting.n);
    Ok(measured)
}
