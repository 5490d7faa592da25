//! SleepingBarber on raw tokio. The sender to a customer is passed on together with the customer.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime;
use crate::savina::problems::barber::{Arrival, Entered, Room, Scissors, Street, check};

type ToCustomer = UnboundedSender<CustomerMessage>;

enum CustomerMessage {
    /// Returns the sender to the customer.
    Full(ToCustomer),
    Wait,
    Start,
    Done,
}

/// Ends after its haircut.
async fn visit(mut inbox: UnboundedReceiver<CustomerMessage>, street: UnboundedSender<StreetMessage>) {
    while let Some(message) = inbox.recv().await {
        match message {
            CustomerMessage::Full(me) => drop(street.send(StreetMessage::Returned(me))),
            CustomerMessage::Wait | CustomerMessage::Start => {}
            CustomerMessage::Done => {
                let _ = street.send(StreetMessage::Served);
                break;
            }
        }
    }
}

enum RoomMessage {
    Enter(ToCustomer),
    /// The barber is free.
    Next,
    Close,
}

/// Returns the number of customers that it has turned away.
async fn keep_room(mut inbox: UnboundedReceiver<RoomMessage>, barber: UnboundedSender<ToCustomer>) -> u64 {
    let mut room = Room::new();
    while let Some(message) = inbox.recv().await {
        match message {
            RoomMessage::Enter(customer) => match room.enter(customer) {
                Entered::Served(customer) => drop(barber.send(customer)),
                Entered::Waits(customer) => drop(customer.send(CustomerMessage::Wait)),
                Entered::Full(customer) => {
                    let me = customer.clone();
                    let _ = customer.send(CustomerMessage::Full(me));
                }
            },
            RoomMessage::Next => {
                if let Some(customer) = room.next() {
                    let _ = barber.send(customer);
                }
            }
            RoomMessage::Close => break,
        }
    }
    room.turned_away()
}

/// Returns the number of haircuts.
async fn cut(mut inbox: UnboundedReceiver<ToCustomer>, room: UnboundedSender<RoomMessage>) -> u64 {
    let mut scissors = Scissors::new();
    while let Some(customer) = inbox.recv().await {
        let _ = customer.send(CustomerMessage::Start);
        scissors.cut();
        let _ = customer.send(CustomerMessage::Done);
        let _ = room.send(RoomMessage::Next);
    }
    scissors.haircuts()
}

enum StreetMessage {
    /// A customer found no free seat.
    Returned(ToCustomer),
    Served,
}

fn hear(street: &mut Street<ToCustomer>, message: StreetMessage) {
    match message {
        StreetMessage::Returned(customer) => street.came_back(customer),
        StreetMessage::Served => street.was_served(),
    }
}

/// Lets customers in, one at a time, until all have been served. Returns how often customers came back.
async fn let_in(mut street: Street<ToCustomer>, room: UnboundedSender<RoomMessage>) -> Option<u64> {
    let (me, mut inbox) = unbounded_channel();
    loop {
        while let Ok(message) = inbox.try_recv() {
            hear(&mut street, message);
        }
        if let Some(came_back) = street.result() {
            return Some(came_back);
        }
        let customer = match street.next() {
            Some(Arrival::New) => {
                let (customer, visitor) = unbounded_channel();
                tokio::spawn(visit(visitor, me.clone()));
                customer
            }
            Some(Arrival::Again(customer)) => customer,
            None => {
                hear(&mut street, inbox.recv().await?);
                continue;
            }
        };
        room.send(RoomMessage::Enter(customer)).ok()?;
        yield_now().await;
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let ((room, to_room), (barber, to_barber)) = (unbounded_channel(), unbounded_channel());
    let cutting = runtime.spawn(cut(to_barber, room.clone()));
    let keeping = runtime.spawn(keep_room(to_room, barber));
    let letting_in = runtime.spawn(let_in(Street::new(setting.n), room.clone()));
    let came_back = runtime.block_on(letting_in)?.ok_or("the waiting room has gone")?;
    let measured = Measured::since(began, setting.n);
    let _ = room.send(RoomMessage::Close);
    let turned_away = runtime.block_on(keeping)?;
    check(runtime.block_on(cutting)?, turned_away, came_back, setting.n)?;
    Ok(measured)
}
