//! Prints the figures of a small program as OpenMetrics text, as a handler for `/metrics` would return them.
//!
//! Run it with `cargo run --example figures`. A shop takes orders, and fails at some of them. Its figures say so.

use std::time::Duration;

use procession::observe::MetricsOptions;
use procession::{BoxError, Event, Events, Exit, Process, Runtime, Step, StepOutput, StepResult, Upgrade};

const LIMIT: Duration = Duration::from_secs(60);

/// Takes orders: a number of pieces each.
struct Shop;

impl Process for Shop {
    type Message = u64;
    type Output = ();

    fn type_name() -> &'static str {
        "shop"
    }

    /// A shop that has failed opens again.
    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Shop))
    }

    fn step(&mut self, events: &mut Events<u64>, out: &mut StepOutput) -> StepResult<()> {
        // One order for each step, so that an order that fails takes no other one with it.
        match events.next() {
            Some(Event::Message(0)) => Err("an order of nothing".into()),
            Some(Event::Message(pieces)) => {
                out.count("orders", 1);
                out.count("pieces", pieces);
                Ok(Step::Idle)
            }
            Some(Event::Cancel(_)) => Ok(Step::Done(())),
            _ => Ok(Step::Idle),
        }
    }
}

fn main() -> Result<(), BoxError> {
    let runtime = Runtime::builder().metrics(MetricsOptions::new()).start()?;
    let shops: Vec<_> = (0..10).map(|_| runtime.spawn(Shop)).collect::<Result<_, _>>()?;
    for order in 0..10_000 {
        runtime.send(&shops[order % shops.len()], order as u64 % 100)?;
    }
    runtime.wait_idle_timeout(LIMIT)?;
    let snapshot = runtime.snapshot().with_shutdown(&runtime.shutdown_node().report());
    print!("{}", snapshot.to_openmetrics());
    runtime.shutdown(LIMIT)?;
    Ok(())
}
