//! CountingActor on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::tokio_runtime;
use crate::savina::problems::BATCH;

enum CounterMessage {
    Increment,
    Report(oneshot::Sender<u64>),
}

async fn count(mut inbox: UnboundedReceiver<CounterMessage>) {
    let mut count = 0;
    while let Some(message) = inbox.recv().await {
        match message {
            CounterMessage::Increment => count += 1,
            // The asker may have ended. Then the answer is not needed.
            CounterMessage::Report(to) => drop(to.send(count)),
        }
    }
}

/// Returns the count that the counter has reported, if the counter still exists.
async fn produce(counter: UnboundedSender<CounterMessage>, mut left: u64) -> Option<u64> {
    while left > 0 {
        let batch = left.min(BATCH);
        for _ in 0..batch {
            counter.send(CounterMessage::Increment).ok()?;
        }
        left -= batch;
        yield_now().await;
    }
    let (to, count) = oneshot::channel();
    counter.send(CounterMessage::Report(to)).ok()?;
    count.await.ok()
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let (counter, inbox) = unbounded_channel();
    let counting = runtime.spawn(count(inbox));
    let count = runtime.block_on(runtime.spawn(produce(counter, setting.n)))?.ok_or("the counter has gone")?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", count, setting.n)?;
    runtime.block_on(counting)?;
    Ok(measured)
}
