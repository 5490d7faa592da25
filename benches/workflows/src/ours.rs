//! The orders as durable processes.
//!
//! An activity is a stored command, whose handler answers at once. The command reaches its handler when the step that
//! has yielded it is on disk. An answer is not on its own on disk: it is in the record of the step that has taken it.

use std::path::Path;
use std::time::Instant;

use procession::command::{Command, Responder};
use procession::config::RuntimeBuilder;
use procession::durable::{Durable, DurableCommand, ErrorText, Query, Store};
use procession::{BoxError, Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::load::{self, Activity, Counts, LIMIT, Measured, Outcome, Receipt, Request, carry_out};

/// A command: its name in the store, and its activity.
macro_rules! command {
    ($command:ident, $name:literal) => {
        #[derive(Serialize, Deserialize)]
        struct $command(u64);

        impl Command for $command {
            type Output = String;
        }

        impl DurableCommand for $command {
            const NAME: &str = $name;
            type Error = ErrorText;
        }

        impl $command {
            fn carry_out(self, done: Responder<String>) -> Result<(), BoxError> {
                done.ok(carry_out(self.0, Activity::$command)?);
                Ok(())
            }
        }
    };
}

command!(Charge, "charge");
command!(Reserve, "reserve");
command!(Ship, "ship");

#[derive(Serialize, Deserialize)]
struct Order {
    request: Request,
    place: Place,
}

/// How far an order is: the receipts so far, and the command that it waits for.
#[derive(Serialize, Deserialize)]
enum Place {
    New,
    Charging(Tag<String>),
    Reserving(String, Tag<String>),
    Shipping(String, String, Tag<String>),
}

impl Process for Order {
    type Message = ();
    type Output = Receipt;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.place = Place::Charging(out.command(Charge(self.request.number)));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Receipt> {
        let number = self.request.number;
        for event in events {
            let Event::Completed(done) = event else { continue };
            self.place = match std::mem::replace(&mut self.place, Place::New) {
                Place::Charging(tag) => match done.take(tag) {
                    Some(charge) => Place::Reserving(charge?, out.command(Reserve(number))),
                    None => Place::Charging(tag),
                },
                Place::Reserving(charge, tag) => match done.take(tag) {
                    Some(reservation) => Place::Shipping(charge, reservation?, out.command(Ship(number))),
                    None => Place::Reserving(charge, tag),
                },
                Place::Shipping(charge, reservation, tag) => match done.take(tag) {
                    Some(parcel) => return Ok(Step::Done(Receipt { charge, reservation, parcel: parcel? })),
                    None => Place::Shipping(charge, reservation, tag),
                },
                Place::New => Place::New,
            };
        }
        Ok(Step::Idle)
    }
}

impl Durable for Order {
    const NAME: &str = "order";
}

fn builder() -> RuntimeBuilder {
    Runtime::builder().workers(2).handler(Charge::carry_out).handler(Reserve::carry_out).handler(Ship::carry_out)
}

fn begin(store: &Store, number: u64) -> Outcome<()> {
    let request = Request::new(number);
    let begun = store.begin(&request.id(), Order { request, place: Place::New })?;
    if begun.was_there() { Err(format!("order {number} was there").into()) } else { Ok(()) }
}

/// Waits for the output of an order, which is on disk then.
fn wait(store: &Store, number: u64) -> Outcome<()> {
    let output = store.result::<Order>(&Request::new(number).id())?.wait(LIMIT)?;
    load::check(number, &output)
}

pub(crate) fn measure(folder: &Path, counts: Counts) -> Outcome<Measured> {
    let store = Store::open(folder).kind::<Order>().command::<Charge>().command::<Reserve>().command::<Ship>();
    let (store, runtime) = store.start(builder())?;
    let (singly, together) = counts.numbers();
    let mut times = Vec::new();
    for number in singly {
        let begun = Instant::now();
        begin(&store, number)?;
        wait(&store, number)?;
        times.push(begun.elapsed());
    }
    let begun = Instant::now();
    together.clone().try_for_each(|number| begin(&store, number))?;
    together.clone().try_for_each(|number| wait(&store, number))?;
    let took = begun.elapsed();
    load::check_all(counts)?;
    let stored = store.count(&Query::all())?;
    if stored != together.end {
        return Err(format!("{stored} orders are stored instead of {}", together.end).into());
    }
    runtime.shutdown(LIMIT)?;
    store.close()?;
    Ok(Measured::new(times, counts.together, took))
}
