//! Workloads of futures and feeds on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::channel;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::FEED;
use crate::peers::tokio_runtime;

/// A task that is ready is spawned, and its handle is awaited: one after the other.
pub(crate) fn future_ready(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let many = setting.n;
    let began = Instant::now();
    let sum = runtime.block_on(runtime.spawn(async move {
        let mut sum = 0;
        for _ in 0..many {
            sum += tokio::spawn(async { 1 }).await.unwrap_or(0);
        }
        sum
    }))?;
    let measured = Measured::since(began, setting.n);
    check("answers", sum, setting.n)?;
    Ok(measured)
}

/// A bounded channel between two tasks.
pub(crate) fn feed(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (sender, mut receiver) = channel(FEED);
    let items = setting.n;
    let began = Instant::now();
    let taking = runtime.spawn(async move {
        let mut taken: u64 = 0;
        while receiver.recv().await.is_some() {
            taken += 1;
        }
        taken
    });
    runtime.spawn(async move {
        for n in 0..items {
            if sender.send(n).await.is_err() {
                return;
            }
        }
    });
    let taken = runtime.block_on(taking)?;
    let measured = Measured::since(began, setting.n);
    check("items", taken, setting.n)?;
    Ok(measured)
}
