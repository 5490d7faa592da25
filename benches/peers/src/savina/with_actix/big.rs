//! Big on actix.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, Addr, Context, Handler, Message};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::big::{ACTORS, Targets, check as check_each};

/// The number is the sender's place among the friends. An address in each message would have to be counted.
enum Chat {
    /// All actors, in order.
    Meet(Arc<[Addr<Friend>]>),
    Begin,
    Ping(usize),
    Pong(usize),
}

impl Message for Chat {
    type Result = ();
}

struct Friend {
    number: usize,
    friends: Arc<[Addr<Friend>]>,
    sink: Addr<Sink>,
    targets: Targets,
    pinged: usize,
    left: u64,
    answered: u64,
    /// The number of pongs from actors that were not pinged.
    astray: u64,
}

impl Friend {
    fn next(&mut self) {
        if self.left == 0 {
            self.sink.do_send(OneIsDone);
            return;
        }
        self.left -= 1;
        self.pinged = self.targets.next();
        self.friends[self.pinged].do_send(Chat::Ping(self.number));
    }
}

impl Actor for Friend {
    type Context = Context<Self>;
}

impl Handler<Chat> for Friend {
    type Result = ();

    fn handle(&mut self, message: Chat, _: &mut Context<Self>) {
        match message {
            Chat::Ping(from) => {
                self.answered += 1;
                self.friends[from].do_send(Chat::Pong(self.number));
            }
            Chat::Pong(from) => {
                self.astray += u64::from(from != self.pinged);
                self.next();
            }
            Chat::Meet(friends) => self.friends = friends,
            Chat::Begin => self.next(),
        }
    }
}

/// The number of pings that an actor has answered. `None` if a wrong actor answered.
struct Answered;

impl Message for Answered {
    type Result = Option<u64>;
}

impl Handler<Answered> for Friend {
    type Result = Option<u64>;

    fn handle(&mut self, _: Answered, _: &mut Context<Self>) -> Option<u64> {
        (self.astray == 0).then_some(self.answered)
    }
}

struct OneIsDone;

impl Message for OneIsDone {
    type Result = ();
}

struct Sink {
    left: usize,
    over: Sender<()>,
}

impl Actor for Sink {
    type Context = Context<Self>;
}

impl Handler<OneIsDone> for Sink {
    type Result = ();

    fn handle(&mut self, _: OneIsDone, _: &mut Context<Self>) {
        self.left -= 1;
        if self.left == 0 {
            let _ = self.over.send(());
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, is_over) = channel();
    let began = Instant::now();
    let sink = stage.start(Sink { left: ACTORS, over });
    let start = |number| {
        let (friends, sink, targets) = (Arc::new([]) as Arc<[_]>, sink.clone(), Targets::of(number));
        let friend = Friend { number, friends, sink, targets, pinged: number, left: setting.n, answered: 0, astray: 0 };
        stage.start(friend)
    };
    let friends: Arc<[_]> = (0..ACTORS).map(start).collect();
    for friend in friends.iter() {
        friend.do_send(Chat::Meet(friends.clone()));
    }
    // This must come last, because an actor that is pinged must know all others.
    for friend in friends.iter() {
        friend.do_send(Chat::Begin);
    }
    report(&is_over)?;
    let measured = Measured::since(began, setting.n * ACTORS as u64);
    let mut answered = Vec::new();
    for friend in friends.iter() {
        answered.extend(stage.system.block_on(friend.send(Answered))?);
    }
    check("friends who had their pongs from whom they pinged", answered.len() as u64, ACTORS as u64)?;
    check_each(&answered, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
