//! SleepingBarber on actix. The street and its customers are on one thread, the waiting room and the barber on
//! another. So both sides can work at the same time.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::barber::{Arrival, Entered, Room, Scissors, Street, check};

const STREET: usize = 0;
const SHOP: usize = 1;

enum CustomerMessage {
    Full,
    Wait,
    Start,
    Done,
}

impl Message for CustomerMessage {
    type Result = ();
}

/// Ends after its haircut.
struct Customer {
    door: Addr<Door>,
}

impl Actor for Customer {
    type Context = Context<Self>;
}

impl Handler<CustomerMessage> for Customer {
    type Result = ();

    fn handle(&mut self, message: CustomerMessage, context: &mut Context<Self>) {
        match message {
            CustomerMessage::Full => self.door.do_send(StreetMessage::Returned(context.address())),
            CustomerMessage::Wait | CustomerMessage::Start => {}
            CustomerMessage::Done => {
                self.door.do_send(StreetMessage::Served);
                context.stop();
            }
        }
    }
}

enum RoomMessage {
    Enter(Addr<Customer>),
    /// The barber is free.
    Next,
}

impl Message for RoomMessage {
    type Result = ();
}

struct WaitingRoom {
    room: Room<Addr<Customer>>,
    barber: Addr<Barber>,
}

impl Actor for WaitingRoom {
    type Context = Context<Self>;
}

impl Handler<RoomMessage> for WaitingRoom {
    type Result = ();

    fn handle(&mut self, message: RoomMessage, context: &mut Context<Self>) {
        match message {
            RoomMessage::Enter(customer) => match self.room.enter(customer) {
                Entered::Served(customer) => self.barber.do_send(Serve { customer, room: context.address() }),
                Entered::Waits(customer) => customer.do_send(CustomerMessage::Wait),
                Entered::Full(customer) => customer.do_send(CustomerMessage::Full),
            },
            RoomMessage::Next => {
                if let Some(customer) = self.room.next() {
                    self.barber.do_send(Serve { customer, room: context.address() });
                }
            }
        }
    }
}

struct Serve {
    customer: Addr<Customer>,
    room: Addr<WaitingRoom>,
}

impl Message for Serve {
    type Result = ();
}

struct Barber {
    scissors: Scissors,
}

impl Actor for Barber {
    type Context = Context<Self>;
}

impl Handler<Serve> for Barber {
    type Result = ();

    fn handle(&mut self, Serve { customer, room }: Serve, _: &mut Context<Self>) {
        customer.do_send(CustomerMessage::Start);
        self.scissors.cut();
        customer.do_send(CustomerMessage::Done);
        room.do_send(RoomMessage::Next);
    }
}

/// A count: of customers turned away, or of haircuts.
struct Count;

impl Message for Count {
    type Result = u64;
}

impl Handler<Count> for WaitingRoom {
    type Result = u64;

    fn handle(&mut self, _: Count, _: &mut Context<Self>) -> u64 {
        self.room.turned_away()
    }
}

impl Handler<Count> for Barber {
    type Result = u64;

    fn handle(&mut self, _: Count, _: &mut Context<Self>) -> u64 {
        self.scissors.haircuts()
    }
}

enum StreetMessage {
    /// A customer found no free seat.
    Returned(Addr<Customer>),
    Served,
}

impl Message for StreetMessage {
    type Result = ();
}

/// Lets one customer in at a time. When all have been served, it reports how often customers came back.
struct Door {
    street: Street<Addr<Customer>>,
    room: Addr<WaitingRoom>,
    is_busy: bool,
    over: Sender<u64>,
}

impl Door {
    /// Lets the next customer in when the other actors have had their turn. Repeats this until no customer is
    /// outside.
    fn open(&mut self, context: &mut Context<Self>) {
        self.is_busy = true;
        context.spawn(yield_now().into_actor(self).map(|(), door, context| {
            let customer = match door.street.next() {
                Some(Arrival::New) => Customer { door: context.address() }.start(),
                Some(Arrival::Again(customer)) => customer,
                None => {
                    door.is_busy = false;
                    return;
                }
            };
            door.room.do_send(RoomMessage::Enter(customer));
            door.open(context);
        }));
    }
}

impl Actor for Door {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.open(context);
    }
}

impl Handler<StreetMessage> for Door {
    type Result = ();

    fn handle(&mut self, message: StreetMessage, context: &mut Context<Self>) {
        match message {
            StreetMessage::Returned(customer) => {
                self.street.came_back(customer);
                if !self.is_busy {
                    self.open(context);
                }
            }
            StreetMessage::Served => {
                self.street.was_served();
                if let Some(came_back) = self.street.result() {
                    let _ = self.over.send(came_back);
                }
            }
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, came_back) = channel();
    let began = Instant::now();
    let barber = stage.start_on(SHOP, Barber { scissors: Scissors::new() });
    let room = stage.start_on(SHOP, WaitingRoom { room: Room::new(), barber: barber.clone() });
    stage.start_on(STREET, Door { street: Street::new(setting.n), room: room.clone(), is_busy: false, over });
    let came_back = report(&came_back)?;
    let measured = Measured::since(began, setting.n);
    let turned_away = stage.system.block_on(room.send(Count))?;
    let haircuts = stage.system.block_on(barber.send(Count))?;
    check(haircuts, turned_away, came_back, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
