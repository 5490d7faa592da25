//! The whole workflow in a simulation: its orders, its handlers and its start-up.

use std::time::Duration;

use procession::simulation::{Fault, Faults, Simulation, ensure};

use crate::gateway::{Charge, Gateway, Refund, Release, Reserve, Ship};
use crate::order::Order;
use crate::report::Report;
use crate::{FAR_TOO_LONG, Options, begin, builder};

/// Runs some orders until all of them are over, and compares them with the books.
fn orders(orders: usize) -> Simulation {
    Simulation::new(move |world| {
        let options = Options { orders, seed: world.seed(), workers: None, store: None };
        let gateway = Gateway::without_carriers(options.seed, orders, world.clock());
        let runtime = world.start(builder(&options, &gateway, world.clock()))?;
        let handles = begin(&runtime, &options)?;

        let books = gateway.clone();
        world.invariant("no order is charged twice", move |_| {
            let twice = books.books().iter().position(|account| account.charges > 1);
            ensure(twice.is_none(), || format!("order {twice:?}"))
        });
        let books = gateway.clone();
        world.invariant("what is shipped was paid for", move |_| {
            let unpaid = books.books().iter().position(|account| account.shipped && account.paid == 0);
            ensure(unpaid.is_none(), || format!("order {unpaid:?}"))
        });

        // Somebody cancels an order at some moment.
        world.run_for(Duration::from_secs(world.random(0..60)))?;
        let cancelled = &handles[world.random(0..orders as u64) as usize];
        runtime.cancel(cancelled.pid(), "no longer wanted")?;
        world.run()?;

        ensure(world.now() < FAR_TOO_LONG, || format!("it has taken {:?}", world.now()))?;
        let exits = handles.iter().map(|order| order.join()).collect::<Result<Vec<_>, _>>()?;
        let report = Report::new(exits.into_iter(), &gateway.books());
        ensure(report.is_right(), || report.to_string())?;
        runtime.shutdown(Duration::from_secs(5))?;
        Ok(())
    })
}

fn faults() -> Faults {
    let seconds = Duration::from_secs;
    Faults::none()
        .stall::<Order>(0.02, seconds(20))
        .command::<Reserve>(Fault::lost_after(0.05))
        .command::<Charge>(Fault::lost_after(0.05))
        .command::<Charge>(Fault::late(0.05, seconds(150)))
        .command::<Ship>(Fault::lost_before(0.05))
        .command::<Refund>(Fault::fail(0.1))
        .command::<Release>(Fault::lost_after(0.1))
}

#[test]
fn orders_and_books_agree_in_every_order_and_with_every_fault() {
    orders(4).faults(faults()).seeds(0..300).check();
}

/// Its deadline is no help to an order that waits for a call: the call may have been carried out.
#[test]
fn an_order_ends_if_a_partner_never_answers() {
    let never = Faults::none()
        .command::<Reserve>(Fault::never(0.05))
        .command::<Charge>(Fault::never(0.05))
        .command::<Ship>(Fault::never(0.05))
        .command::<Refund>(Fault::never(0.1))
        .command::<Release>(Fault::never(0.1));
    orders(4).faults(never).seeds(0..300).check();
}
