//! One task publishes messages, and many get each of them, on raw tokio.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, yield_now};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::SUBSCRIBERS;
use crate::peers::{REPORTS, tokio_runtime};

struct Bulletin {
    number: u64,
}

/// Gets bulletins, which must be in order.
struct Subscriber {
    had: u64,
    of: u64,
}

impl Subscriber {
    /// Takes a bulletin. Returns whether more are to come. If one is missing, the subscriber does not report.
    fn take(&mut self, bulletin: &Bulletin) -> bool {
        if bulletin.number != self.had {
            return false;
        }
        self.had += 1;
        if self.had == self.of {
            REPORTS.strike();
        }
        self.had < self.of
    }

    async fn read(mut self, mut inbox: UnboundedReceiver<Arc<Bulletin>>) -> u64 {
        while let Some(bulletin) = inbox.recv().await
            && self.take(&bulletin)
        {}
        self.had
    }

    async fn listen(mut self, mut inbox: broadcast::Receiver<Arc<Bulletin>>) -> u64 {
        // A receiver that lags gets an error, and does not report.
        while let Ok(bulletin) = inbox.recv().await
            && self.take(&bulletin)
        {}
        self.had
    }
}

/// Sends to each subscriber, and yields after each bulletin.
async fn publish(to: Vec<UnboundedSender<Arc<Bulletin>>>, of: u64) {
    for number in 0..of {
        let bulletin = Arc::new(Bulletin { number });
        for subscriber in &to {
            // A subscriber that has failed is noticed, because it does not report.
            let _ = subscriber.send(bulletin.clone());
        }
        yield_now().await;
    }
}

/// As `publish`, to a channel whose capacity is large enough for all bulletins. So no receiver lags, and
/// no yield is needed.
async fn broadcast(to: broadcast::Sender<Arc<Bulletin>>, of: u64) {
    for number in 0..of {
        let _ = to.send(Arc::new(Bulletin { number }));
    }
}

/// The number of bulletins.
fn bulletins(setting: &Setting) -> u64 {
    (setting.n / SUBSCRIBERS).max(1)
}

pub(crate) fn pubsub(setting: &Setting) -> Outcome<Measured> {
    let (runtime, of) = (tokio_runtime(setting)?, bulletins(setting));
    let (mut subscribers, mut to) = (Vec::new(), Vec::new());
    for _ in 0..SUBSCRIBERS {
        let (sender, inbox) = unbounded_channel();
        subscribers.push(runtime.spawn(Subscriber { had: 0, of }.read(inbox)));
        to.push(sender);
    }
    run(&runtime, subscribers, publish(to, of), of)
}

pub(crate) fn pubsub_group(setting: &Setting) -> Outcome<Measured> {
    let (runtime, of) = (tokio_runtime(setting)?, bulletins(setting));
    let (to, _) = broadcast::channel(of as usize);
    let mut subscribers = Vec::new();
    for _ in 0..SUBSCRIBERS {
        subscribers.push(runtime.spawn(Subscriber { had: 0, of }.listen(to.subscribe())));
    }
    run(&runtime, subscribers, broadcast(to, of), of)
}

fn run(
    runtime: &Runtime,
    subscribers: Vec<JoinHandle<u64>>,
    publisher: impl Future<Output = ()> + Send + 'static,
    of: u64,
) -> Outcome<Measured> {
    REPORTS.expect(SUBSCRIBERS);
    let began = Instant::now();
    runtime.block_on(runtime.spawn(publisher))?;
    REPORTS.wait()?;
    let measured = Measured::since(began, of * SUBSCRIBERS);
    for subscriber in subscribers {
        check("bulletins", runtime.block_on(subscriber)?, of)?;
    }
    Ok(measured)
}
