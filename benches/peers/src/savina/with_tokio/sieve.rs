//! Sieve on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime;
use crate::savina::problems::BATCH;
use crate::savina::problems::sieve::{Filter, Sifted, candidates, check};

enum FilterMessage {
    Number(u64),
    /// No more numbers follow. Holds the number of primes of the filters so far.
    End(u64),
}

/// Starts a filter with its first prime. It ends after the last number.
fn start_filter(first: u64, source: UnboundedSender<u64>) -> UnboundedSender<FilterMessage> {
    let (filter, inbox) = unbounded_channel();
    tokio::spawn(sift(Filter::new(first), inbox, source));
    filter
}

async fn sift(mut filter: Filter, mut inbox: UnboundedReceiver<FilterMessage>, source: UnboundedSender<u64>) {
    let mut next: Option<UnboundedSender<FilterMessage>> = None;
    while let Some(message) = inbox.recv().await {
        match message {
            FilterMessage::Number(number) => match (filter.sift(number), &next) {
                (Sifted::Divided | Sifted::Kept, _) => {}
                (Sifted::Passed, Some(next)) => drop(next.send(FilterMessage::Number(number))),
                (Sifted::Passed, None) => next = Some(start_filter(number, source.clone())),
            },
            FilterMessage::End(before) => {
                let primes = before + filter.primes();
                let _ = match next {
                    Some(next) => next.send(FilterMessage::End(primes)).is_ok(),
                    None => source.send(primes).is_ok(),
                };
                break;
            }
        }
    }
}

/// Sends the numbers, and returns the number of primes that the last filter has reported.
async fn send_numbers(limit: u64) -> Option<u64> {
    let (me, mut inbox) = unbounded_channel();
    let first = start_filter(2, me);
    let mut sent = 0;
    for number in candidates(limit) {
        first.send(FilterMessage::Number(number)).ok()?;
        sent += 1;
        if sent == BATCH {
            yield_now().await;
            sent = 0;
        }
    }
    first.send(FilterMessage::End(0)).ok()?;
    inbox.recv().await
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let primes = runtime.block_on(runtime.spawn(send_numbers(setting.n)))?.ok_or("a filter has gone")?;
    let measured = Measured::since(began, setting.n);
    check(primes, setting.n)?;
    Ok(measured)
}
