//! Philosophers on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, Addr, Context, Handler, Message};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::philosophers::{PHILOSOPHERS, Table, check};

/// Sent by the philosopher on this seat.
enum WaiterMessage {
    /// All philosophers, in order. It is the first message.
    Meet(Vec<Addr<Philosopher>>),
    Hungry(usize),
    Eaten(usize),
    Leaves,
}

impl Message for WaiterMessage {
    type Result = ();
}

/// Reports how often each has eaten, when all philosophers have left.
struct Waiter {
    table: Table,
    philosophers: Vec<Addr<Philosopher>>,
    left: usize,
    over: Sender<[u64; PHILOSOPHERS]>,
}

impl Actor for Waiter {
    type Context = Context<Self>;
}

impl Handler<WaiterMessage> for Waiter {
    type Result = ();

    fn handle(&mut self, message: WaiterMessage, _: &mut Context<Self>) {
        match message {
            WaiterMessage::Hungry(seat) => {
                let is_served = self.table.is_served(seat);
                self.philosophers[seat].do_send(if is_served {
                    PhilosopherMessage::Eat
                } else {
                    PhilosopherMessage::Denied
                });
            }
            WaiterMessage::Eaten(seat) => self.table.has_eaten(seat),
            WaiterMessage::Leaves => {
                self.left += 1;
                if self.left == PHILOSOPHERS {
                    let _ = self.over.send(self.table.meals());
                }
            }
            WaiterMessage::Meet(philosophers) => self.philosophers = philosophers,
        }
    }
}

enum PhilosopherMessage {
    Begin,
    Eat,
    Denied,
}

impl Message for PhilosopherMessage {
    type Result = ();
}

struct Philosopher {
    seat: usize,
    waiter: Addr<Waiter>,
    left: u64,
}

impl Actor for Philosopher {
    type Context = Context<Self>;
}

impl Handler<PhilosopherMessage> for Philosopher {
    type Result = ();

    fn handle(&mut self, message: PhilosopherMessage, _: &mut Context<Self>) {
        if let PhilosopherMessage::Eat = message {
            self.waiter.do_send(WaiterMessage::Eaten(self.seat));
            self.left -= 1;
            if self.left == 0 {
                self.waiter.do_send(WaiterMessage::Leaves);
                return;
            }
        }
        self.waiter.do_send(WaiterMessage::Hungry(self.seat));
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, meals) = channel();
    let began = Instant::now();
    let waiter = stage.start(Waiter { table: Table::default(), philosophers: Vec::new(), left: 0, over });
    let sit = |seat| stage.start(Philosopher { seat, waiter: waiter.clone(), left: setting.n });
    let philosophers: Vec<_> = (0..PHILOSOPHERS).map(sit).collect();
    waiter.do_send(WaiterMessage::Meet(philosophers.clone()));
    for philosopher in &philosophers {
        philosopher.do_send(PhilosopherMessage::Begin);
    }
    let meals = report(&meals)?;
    let measured = Measured::since(began, setting.n * PHILOSOPHERS as u64);
    check(meals, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
