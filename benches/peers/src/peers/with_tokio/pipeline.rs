//! Items pass through stages with bounded channels, on raw tokio. A stage that finds the next channel full waits.
//! Stages receive and send several items at once, which tokio's documentation has for this.

use std::time::Instant;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{STAGE_BOUND, STAGES};
use crate::peers::tokio_runtime;

/// Makes the items.
async fn make(next: Sender<u64>, of: u64) {
    let mut items = 0..of;
    while !items.is_empty() {
        let many = (items.end - items.start).min(STAGE_BOUND as u64) as usize;
        // If the next stage has gone, the sum is wrong.
        let Ok(permits) = next.reserve_many(many).await else { break };
        permits.zip(items.by_ref()).for_each(|(permit, item)| permit.send(item));
    }
}

/// Adds one to each item, and passes it on.
async fn pass_on(mut inbox: Receiver<u64>, next: Sender<u64>) {
    let mut items = Vec::with_capacity(STAGE_BOUND);
    while inbox.recv_many(&mut items, STAGE_BOUND).await > 0 {
        let Ok(permits) = next.reserve_many(items.len()).await else { break };
        items.drain(..).zip(permits).for_each(|(item, permit)| permit.send(item + 1));
    }
}

/// The last stage.
async fn add_up(mut inbox: Receiver<u64>) -> u64 {
    let mut sum = 0;
    let mut items = Vec::with_capacity(STAGE_BOUND);
    while inbox.recv_many(&mut items, STAGE_BOUND).await > 0 {
        sum += items.drain(..).map(|item| item + 1).sum::<u64>();
    }
    sum
}

pub(crate) fn pipeline(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (first, mut inbox) = channel(STAGE_BOUND);
    for _ in 1..STAGES {
        let (next, after) = channel(STAGE_BOUND);
        runtime.spawn(pass_on(inbox, next));
        inbox = after;
    }
    let last = runtime.spawn(add_up(inbox));
    let began = Instant::now();
    runtime.spawn(make(first, setting.n));
    let sum = runtime.block_on(last)?;
    let measured = Measured::since(began, setting.n);
    check("sum of the items", sum, setting.n * (setting.n - 1) / 2 + setting.n * STAGES)?;
    Ok(measured)
}
