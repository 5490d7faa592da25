//! Philosophers on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime;
use crate::savina::problems::philosophers::{PHILOSOPHERS, Table, check};

/// Sent by the philosopher on this seat.
enum WaiterMessage {
    Hungry(usize),
    Eaten(usize),
}

/// Ends when all philosophers have left. Returns how often each has eaten.
async fn wait(
    mut inbox: UnboundedReceiver<WaiterMessage>,
    philosophers: Vec<UnboundedSender<PhilosopherMessage>>,
) -> [u64; PHILOSOPHERS] {
    let mut table = Table::default();
    while let Some(message) = inbox.recv().await {
        match message {
            WaiterMessage::Hungry(seat) => {
                let is_served = table.is_served(seat);
                let _ = philosophers[seat].send(if is_served {
                    PhilosopherMessage::Eat
                } else {
                    PhilosopherMessage::Denied
                });
            }
            WaiterMessage::Eaten(seat) => table.has_eaten(seat),
        }
    }
    table.meals()
}

enum PhilosopherMessage {
    Eat,
    Denied,
}

/// Ends after its meals. The waiter notices this when its last sender is gone.
async fn dine(
    seat: usize,
    waiter: UnboundedSender<WaiterMessage>,
    mut inbox: UnboundedReceiver<PhilosopherMessage>,
    mut left: u64,
) {
    let _ = waiter.send(WaiterMessage::Hungry(seat));
    while let Some(message) = inbox.recv().await {
        if let PhilosopherMessage::Eat = message {
            let _ = waiter.send(WaiterMessage::Eaten(seat));
            left -= 1;
            if left == 0 {
                break;
            }
        }
        let _ = waiter.send(WaiterMessage::Hungry(seat));
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let (waiter, inbox) = unbounded_channel();
    let (philosophers, inboxes): (Vec<_>, Vec<_>) = (0..PHILOSOPHERS).map(|_| unbounded_channel()).unzip();
    let waiting = runtime.spawn(wait(inbox, philosophers));
    for (seat, inbox) in inboxes.into_iter().enumerate() {
        runtime.spawn(dine(seat, waiter.clone(), inbox, setting.n));
    }
    drop(waiter);
    let meals = runtime.block_on(waiting)?;
    let measured = Measured::since(began, setting.n * PHILOSOPHERS as u64);
    check(meals, setting.n)?;
    Ok(measured)
}
