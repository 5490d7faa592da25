//! Big on raw tokio.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::tokio_runtime;
use crate::savina::problems::big::{ACTORS, Targets, check as check_each};

/// The number is the sender's place among the friends. A channel sender in each message would have to be counted.
enum Chat {
    Ping(usize),
    Pong(usize),
    Stop,
}

struct Friend {
    number: usize,
    friends: Arc<[UnboundedSender<Chat>]>,
    sink: UnboundedSender<()>,
    targets: Targets,
    pinged: usize,
    left: u64,
    answered: u64,
}

impl Friend {
    fn next(&mut self) {
        if self.left == 0 {
            // The sink waits for all actors. It is gone only if one of them has failed, which is noticed then.
            let _ = self.sink.send(());
            return;
        }
        self.left -= 1;
        self.pinged = self.targets.next();
        let _ = self.friends[self.pinged].send(Chat::Ping(self.number));
    }

    async fn talk(mut self, mut inbox: UnboundedReceiver<Chat>) -> Result<u64, String> {
        self.next();
        while let Some(message) = inbox.recv().await {
            match message {
                Chat::Ping(from) => {
                    self.answered += 1;
                    let _ = self.friends[from].send(Chat::Pong(self.number));
                }
                Chat::Pong(from) if from == self.pinged => self.next(),
                Chat::Pong(from) => return Err(format!("{from} answers, and {} was asked", self.pinged)),
                Chat::Stop => break,
            }
        }
        Ok(self.answered)
    }
}

/// Ends when all actors are done or gone. Returns how many were done.
async fn wait_for_all(mut done: UnboundedReceiver<()>) -> u64 {
    let mut count = 0;
    while count < ACTORS as u64 && done.recv().await.is_some() {
        count += 1;
    }
    count
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let (sink, done) = unbounded_channel();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..ACTORS).map(|_| unbounded_channel()).unzip();
    let friends: Arc<[_]> = senders.into();
    let mut talking = Vec::new();
    for (number, inbox) in inboxes.into_iter().enumerate() {
        let (friends, sink, targets) = (friends.clone(), sink.clone(), Targets::of(number));
        let friend = Friend { number, friends, sink, targets, pinged: number, left: setting.n, answered: 0 };
        talking.push(runtime.spawn(friend.talk(inbox)));
    }
    drop(sink);
    let done = runtime.block_on(runtime.spawn(wait_for_all(done)))?;
    let measured = Measured::since(began, setting.n * ACTORS as u64);
    check("friends who are done", done, ACTORS as u64)?;
    for friend in friends.iter() {
        friend.send(Chat::Stop)?;
    }
    let mut answered = Vec::new();
    for friend in talking {
        answered.push(runtime.block_on(friend)??);
    }
    check_each(&answered, setting.n)?;
    Ok(measured)
}
