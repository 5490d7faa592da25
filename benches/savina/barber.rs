//! SleepingBarber: customers arrive from the street. The waiting room seats them or turns them away. The barber
//! serves one after the other.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::barber::{Arrival, Entered, Room, Scissors, Street, check};
use super::runtime::{done, finish};

enum CustomerMessage {
    Full,
    Wait,
    Start,
    Done,
}

/// Ends after its haircut.
struct Customer {
    street: Address<StreetMessage>,
}

impl Process for Customer {
    type Message = CustomerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<CustomerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(CustomerMessage::Full) => {
                    out.send(self.street, StreetMessage::Returned(out.pid().typed()));
                }
                Event::Message(CustomerMessage::Wait | CustomerMessage::Start) => {}
                Event::Message(CustomerMessage::Done) => {
                    out.send(self.street, StreetMessage::Served);
                    return Ok(Step::Done(()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

enum RoomMessage {
    Enter(Address<CustomerMessage>),
    /// The barber is free.
    Next,
}

/// Returns the number of customers that it has turned away.
struct WaitingRoom {
    room: Room<Address<CustomerMessage>>,
    barber: Address<BarberMessage>,
}

impl Process for WaitingRoom {
    type Message = RoomMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<RoomMessage>, out: &mut StepOutput) -> StepResult<u64> {
        let room = out.pid().typed();
        for event in events {
            match event {
                Event::Message(RoomMessage::Enter(customer)) => match self.room.enter(customer) {
                    Entered::Served(customer) => out.send(self.barber, BarberMessage { customer, room }),
                    Entered::Waits(customer) => out.send(*customer, CustomerMessage::Wait),
                    Entered::Full(customer) => out.send(customer, CustomerMessage::Full),
                },
                Event::Message(RoomMessage::Next) => {
                    if let Some(customer) = self.room.next() {
                        out.send(self.barber, BarberMessage { customer, room });
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.room.turned_away())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The customer to be served.
struct BarberMessage {
    customer: Address<CustomerMessage>,
    room: Address<RoomMessage>,
}

/// Returns the number of its haircuts.
struct Barber {
    scissors: Scissors,
}

impl Process for Barber {
    type Message = BarberMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<BarberMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(BarberMessage { customer, room }) => {
                    out.send(customer, CustomerMessage::Start);
                    self.scissors.cut();
                    out.send(customer, CustomerMessage::Done);
                    out.send(room, RoomMessage::Next);
                }
                Event::Cancel(_) => return Ok(Step::Done(self.scissors.haircuts())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

enum StreetMessage {
    /// A customer found no free seat.
    Returned(Address<CustomerMessage>),
    Served,
}

/// Lets one customer in at each step. Ends when all have been served, and returns how often customers came back.
struct Door {
    street: Street<Address<CustomerMessage>>,
    room: Address<RoomMessage>,
}

impl Process for Door {
    type Message = StreetMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<StreetMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(StreetMessage::Returned(customer)) => self.street.came_back(customer),
                Event::Message(StreetMessage::Served) => self.street.was_served(),
                Event::Cancel(_) => return Ok(Step::Done(0)),
                _ => {}
            }
        }
        if let Some(came_back) = self.street.result() {
            return Ok(Step::Done(came_back));
        }
        let customer = match self.street.next() {
            Some(Arrival::New) => out.spawn(Customer { street: out.pid().typed() })?,
            Some(Arrival::Again(customer)) => customer,
            None => return Ok(Step::Idle),
        };
        out.send(self.room, RoomMessage::Enter(customer));
        Ok(if self.street.has_more() { Step::Continue } else { Step::Idle })
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let barber = runtime.spawn(Barber { scissors: Scissors::new() })?;
    let room = runtime.spawn(WaitingRoom { room: Room::new(), barber: barber.address() })?;
    let door = runtime.spawn(Door { street: Street::new(setting.n), room: room.address() })?;
    let came_back = done(&door)?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    check(done(&barber)?, done(&room)?, came_back, setting.n)?;
    Ok(measured)
}
