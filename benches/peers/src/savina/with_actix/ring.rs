//! ThreadRing on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, Addr, Context, Handler, Message};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::RING;

enum RingMessage {
    /// The next actor of the ring.
    Meet(Addr<Hopper>),
    /// The token, with the number of hops that are left.
    Token(u64),
}

impl Message for RingMessage {
    type Result = ();
}

struct Hopper {
    next: Option<Addr<Hopper>>,
    had: u64,
    over: Sender<()>,
}

impl Actor for Hopper {
    type Context = Context<Self>;
}

impl Handler<RingMessage> for Hopper {
    type Result = ();

    fn handle(&mut self, message: RingMessage, _: &mut Context<Self>) {
        match message {
            RingMessage::Token(left) => {
                self.had += 1;
                match &self.next {
                    Some(next) if left > 0 => next.do_send(RingMessage::Token(left - 1)),
                    _ => drop(self.over.send(())),
                }
            }
            RingMessage::Meet(next) => self.next = Some(next),
        }
    }
}

/// How often an actor had the token.
struct Had;

impl Message for Had {
    type Result = u64;
}

impl Handler<Had> for Hopper {
    type Result = u64;

    fn handle(&mut self, _: Had, _: &mut Context<Self>) -> u64 {
        self.had
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, is_over) = channel();
    let began = Instant::now();
    let mut hoppers = Vec::new();
    for _ in 0..RING {
        hoppers.push(stage.start(Hopper { next: None, had: 0, over: over.clone() }));
    }
    for (one, next) in hoppers.iter().zip(hoppers.iter().cycle().skip(1)) {
        one.do_send(RingMessage::Meet(next.clone()));
    }
    hoppers[0].do_send(RingMessage::Token(setting.n - 1));
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut had = 0;
    for hopper in &hoppers {
        had += stage.system.block_on(hopper.send(Had))?;
    }
    check("hops", had, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
