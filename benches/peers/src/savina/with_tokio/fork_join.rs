//! ForkJoinThroughput and ForkJoinCreate on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::{REPORTS, tokio_runtime};
use crate::savina::problems::work::square_of_sine;
use crate::savina::problems::{BATCH, THROUGHPUT_ACTORS};

struct Work;

/// Ends when it has done its share of the work.
async fn work(mut inbox: UnboundedReceiver<Work>, of: u64) -> u64 {
    let mut done = 0;
    while done < of && inbox.recv().await.is_some() {
        square_of_sine();
        done += 1;
    }
    done
}

/// Repeatedly sends a message to each worker and yields.
async fn send_rounds(workers: Vec<UnboundedSender<Work>>, rounds: u64) {
    for _ in 0..rounds {
        for worker in &workers {
            // If the worker has ended too early, its count shows that.
            let _ = worker.send(Work);
        }
        yield_now().await;
    }
}

pub(crate) fn throughput(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let (mut senders, mut workers) = (Vec::new(), Vec::new());
    for _ in 0..THROUGHPUT_ACTORS {
        let (sender, inbox) = unbounded_channel();
        senders.push(sender);
        workers.push(runtime.spawn(work(inbox, setting.n)));
    }
    runtime.spawn(send_rounds(senders, setting.n));
    let mut messages = 0;
    for worker in workers {
        messages += runtime.block_on(worker)?;
    }
    let measured = Measured::since(began, setting.n * THROUGHPUT_ACTORS);
    check("messages worked on", messages, setting.n * THROUGHPUT_ACTORS)?;
    Ok(measured)
}

/// Ends with its first message. Its drop shows that it has ended.
struct Mayfly;

impl Drop for Mayfly {
    fn drop(&mut self) {
        REPORTS.strike();
    }
}

impl Mayfly {
    async fn live(self, mut inbox: UnboundedReceiver<Work>) {
        if inbox.recv().await.is_some() {
            square_of_sine();
        }
    }
}

async fn create_mayflies(mut left: u64) -> u64 {
    let mut told = 0;
    while left > 0 {
        let batch = left.min(BATCH);
        for _ in 0..batch {
            let (mayfly, inbox) = unbounded_channel();
            tokio::spawn(Mayfly.live(inbox));
            told += u64::from(mayfly.send(Work).is_ok());
        }
        left -= batch;
        yield_now().await;
    }
    told
}

pub(crate) fn create(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    REPORTS.expect(setting.n);
    let began = Instant::now();
    let told = runtime.block_on(runtime.spawn(create_mayflies(setting.n)))?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    check("tasks that got their message", told, setting.n)?;
    Ok(measured)
}
