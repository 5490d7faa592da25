//! Workloads of messages on raw tokio.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{BATCH, FRIENDS, PRODUCERS, RECEIVERS, RING, SENDER_BATCH, Walk, last_hop};
use crate::peers::{REPORTS, tokio_runtime};

pub(crate) fn pingpong(setting: &Setting) -> Outcome<Measured> {
    circle(setting, 2)
}

pub(crate) fn ring(setting: &Setting) -> Outcome<Measured> {
    circle(setting, RING)
}

/// The number of hops that are left.
struct Token(u64);

async fn hop(mut inbox: UnboundedReceiver<Token>, next: UnboundedSender<Token>) -> u64 {
    let mut had = 0;
    while let Some(Token(left)) = inbox.recv().await {
        had += 1;
        if left == 0 || next.send(Token(left - 1)).is_err() {
            break;
        }
    }
    had
}

/// A token goes round a circle, and ends at the task that gets it last. That task's end ends the others, because each
/// loses its only sender.
fn circle(setting: &Setting, size: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| unbounded_channel()).unzip();
    let mut hoppers = Vec::new();
    for (inbox, next) in inboxes.into_iter().zip(senders.iter().cycle().skip(1)) {
        hoppers.push(runtime.spawn(hop(inbox, next.clone())));
    }
    let first = senders[0].clone();
    drop(senders);
    let last = hoppers.swap_remove(last_hop(setting.n, size));
    let began = Instant::now();
    first.send(Token(setting.n - 1))?;
    let mut had = runtime.block_on(last)?;
    let measured = Measured::since(began, setting.n);
    drop(first);
    for hopper in hoppers {
        had += runtime.block_on(hopper)?;
    }
    check("hops", had, setting.n)?;
    Ok(measured)
}

pub(crate) fn counting(setting: &Setting) -> Outcome<Measured> {
    stream(setting, 1, BATCH)
}

pub(crate) fn fanin(setting: &Setting) -> Outcome<Measured> {
    stream(setting, PRODUCERS, BATCH)
}

/// As `fanin`, with any number of tasks, which yield after few messages.
pub(crate) fn senders<const SENDERS: u64>(setting: &Setting) -> Outcome<Measured> {
    stream(setting, SENDERS, SENDER_BATCH)
}

enum CounterMessage {
    Add(u64),
    Read(oneshot::Sender<u64>),
}

async fn count(mut inbox: UnboundedReceiver<CounterMessage>) {
    let mut total = 0;
    while let Some(message) = inbox.recv().await {
        match message {
            CounterMessage::Add(n) => total += n,
            // The asker may have ended. Then the answer is not needed.
            CounterMessage::Read(reply) => drop(reply.send(total)),
        }
    }
}

/// Sends without waiting, and yields after each batch.
async fn produce(to: UnboundedSender<CounterMessage>, mut left: u64, batch: u64) -> Result<(), &'static str> {
    while left > 0 {
        let batch = left.min(batch);
        for _ in 0..batch {
            to.send(CounterMessage::Add(1)).map_err(|_| "the counter has gone")?;
        }
        left -= batch;
        yield_now().await;
    }
    Ok(())
}

/// One or several actors send to one. After the last message, that one is asked for the total.
fn stream(setting: &Setting, producers: u64, batch: u64) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (counter, inbox) = unbounded_channel();
    let counting = runtime.spawn(count(inbox));
    let began = Instant::now();
    let mut running = Vec::new();
    for producer in 0..producers {
        running.push(runtime.spawn(produce(counter.clone(), setting.share(producer, producers), batch)));
    }
    for producer in running {
        runtime.block_on(producer)??;
    }
    let (reply, answer) = oneshot::channel();
    counter.send(CounterMessage::Read(reply)).map_err(|_| "the counter has gone")?;
    let total = answer.blocking_recv()?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", total, setting.n)?;
    drop(counter);
    runtime.block_on(counting)?;
    Ok(measured)
}

struct Pulse;

/// Counts its messages.
async fn receive(mut inbox: UnboundedReceiver<Pulse>, of: u64) -> u64 {
    let mut had = 0;
    while had < of && inbox.recv().await.is_some() {
        had += 1;
    }
    REPORTS.strike();
    had
}

/// A task sends to all receivers in turn, without a yield.
pub(crate) fn burst(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    REPORTS.expect(RECEIVERS);
    let (mut receivers, mut to) = (Vec::new(), Vec::new());
    for receiver in 0..RECEIVERS {
        let (sender, inbox) = unbounded_channel();
        receivers.push(runtime.spawn(receive(inbox, setting.share(receiver, RECEIVERS))));
        to.push(sender);
    }
    let messages = setting.n as usize;
    let began = Instant::now();
    runtime.spawn(async move {
        for to in to.iter().cycle().take(messages) {
            // A message that is lost makes the count wrong.
            let _ = to.send(Pulse);
        }
    });
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    let mut had = 0;
    for receiver in receivers {
        had += runtime.block_on(receiver)?;
    }
    check("messages counted", had, setting.n)?;
    Ok(measured)
}

/// The number is the sender's place among the friends. A channel sender in each message would have to be counted.
enum Chat {
    Begin,
    Ping(usize),
    Pong,
    Stop,
}

struct Friend {
    me: usize,
    friends: Arc<[UnboundedSender<Chat>]>,
    referee: UnboundedSender<()>,
    walk: Walk,
    left: u64,
    answered: u64,
}

impl Friend {
    fn next(&mut self) {
        if self.left == 0 {
            // The referee waits for all actors. It is gone only if one of them has failed, which is noticed then.
            let _ = self.referee.send(());
            return;
        }
        self.left -= 1;
        let friend = loop {
            let friend = self.walk.next(self.friends.len());
            if friend != self.me {
                break friend;
            }
        };
        let _ = self.friends[friend].send(Chat::Ping(self.me));
    }

    async fn talk(mut self, mut inbox: UnboundedReceiver<Chat>) -> u64 {
        while let Some(message) = inbox.recv().await {
            match message {
                Chat::Ping(from) => {
                    self.answered += 1;
                    let _ = self.friends[from].send(Chat::Pong);
                }
                Chat::Begin | Chat::Pong => self.next(),
                Chat::Stop => break,
            }
        }
        self.answered
    }
}

pub(crate) fn big(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (referee, mut done) = unbounded_channel();
    // All channels exist before one actor begins, so an actor that is pinged knows the sender.
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..FRIENDS).map(|_| unbounded_channel()).unzip();
    let friends: Arc<[_]> = senders.into();
    let mut talking = Vec::new();
    for (me, inbox) in inboxes.into_iter().enumerate() {
        let (walk, left) = (Walk::new(me as u64), setting.share(me as u64, FRIENDS));
        let (friends, referee) = (friends.clone(), referee.clone());
        talking.push(runtime.spawn(Friend { me, friends, referee, walk, left, answered: 0 }.talk(inbox)));
    }
    let began = Instant::now();
    let all_done = runtime.spawn(async move {
        for _ in 0..FRIENDS {
            done.recv().await;
        }
    });
    for friend in friends.iter() {
        friend.send(Chat::Begin)?;
    }
    runtime.block_on(all_done)?;
    let measured = Measured::since(began, setting.n);
    for friend in friends.iter() {
        friend.send(Chat::Stop)?;
    }
    let mut answered = 0;
    for friend in talking {
        answered += runtime.block_on(friend)?;
    }
    check("pings answered", answered, setting.n)?;
    Ok(measured)
}

/// Answers each request with the next number.
async fn number(mut inbox: UnboundedReceiver<oneshot::Sender<u64>>) {
    let mut last = 0;
    while let Some(reply) = inbox.recv().await {
        last += 1;
        let _ = reply.send(last);
    }
}

pub(crate) fn ask(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (numbers, inbox) = unbounded_channel();
    let numbering = runtime.spawn(number(inbox));
    let began = Instant::now();
    for call in 1..=setting.n {
        let (reply, answer) = oneshot::channel();
        numbers.send(reply)?;
        check("the answer", answer.blocking_recv()?, call)?;
    }
    let measured = Measured::since(began, setting.n);
    drop(numbers);
    runtime.block_on(numbering)?;
    Ok(measured)
}
