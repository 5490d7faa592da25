//! Workloads of futures and feeds on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, StreamHandler, WrapFuture};
use futures_lite::stream;
use tokio::sync::mpsc;

use super::stage::Stage;
use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::FEED;
use crate::peers::report;

/// Spawns a future that is ready into its context, takes its answer, and spawns the next one.
struct Futures {
    left: u64,
    sum: u64,
    over: Sender<u64>,
}

impl Futures {
    fn next(&mut self, context: &mut Context<Self>) {
        if self.left == 0 {
            let _ = self.over.send(self.sum);
            return context.stop();
        }
        self.left -= 1;
        context.spawn(async { 1 }.into_actor(self).map(|one, futures, context| {
            futures.sum += one;
            futures.next(context);
        }));
    }
}

impl Actor for Futures {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.next(context);
    }
}

pub(crate) fn future_ready(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, sum) = channel();
    let began = Instant::now();
    stage.start(Futures { left: setting.n, sum: 0, over });
    let sum = report(&sum)?;
    let measured = Measured::since(began, setting.n);
    check("answers", sum, setting.n)?;
    stage.finish()?;
    Ok(measured)
}

/// Takes the items of a stream, which a task puts into a bounded channel.
struct Fed {
    taken: u64,
    over: Sender<u64>,
}

impl Actor for Fed {
    type Context = Context<Self>;
}

impl StreamHandler<u64> for Fed {
    fn handle(&mut self, _: u64, _: &mut Context<Self>) {
        self.taken += 1;
    }

    fn finished(&mut self, context: &mut Context<Self>) {
        let _ = self.over.send(self.taken);
        context.stop();
    }
}

pub(crate) fn feed(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let ((over, taken), (sender, mut receiver)) = (channel(), mpsc::channel(FEED));
    let items = setting.n;
    let began = Instant::now();
    let threads = stage.threads();
    Fed::start_in_arbiter(&threads[0], move |context| {
        context.add_stream(stream::poll_fn(move |task| receiver.poll_recv(task)));
        Fed { taken: 0, over }
    });
    threads[0].spawn(async move {
        for n in 0..items {
            if sender.send(n).await.is_err() {
                return;
            }
        }
    });
    let taken = report(&taken)?;
    let measured = Measured::since(began, setting.n);
    check("items", taken, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
