//! Trapezoidal on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime;
use crate::savina::problems::trapezoid::{Share, WORKERS, check};

/// Ends with the area of its share.
async fn work(mut inbox: UnboundedReceiver<Share>, master: UnboundedSender<f64>) {
    if let Some(share) = inbox.recv().await {
        let _ = master.send(share.area());
    }
}

/// Gives each worker its share, and adds up the areas.
async fn lead(pieces: u64) -> Option<f64> {
    let (me, mut inbox) = unbounded_channel();
    for number in 0..WORKERS {
        let (worker, share) = unbounded_channel();
        tokio::spawn(work(share, me.clone()));
        worker.send(Share::of(number, pieces)).ok()?;
    }
    let mut area = 0.0;
    for _ in 0..WORKERS {
        area += inbox.recv().await?;
    }
    Some(area)
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let area = runtime.block_on(runtime.spawn(lead(setting.n)))?.ok_or("a worker has gone")?;
    let measured = Measured::since(began, setting.n);
    check(area, setting.n)?;
    Ok(measured)
}
