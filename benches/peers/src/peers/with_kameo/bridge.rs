//! Workloads of futures and feeds on kameo.

use std::convert::Infallible;
use std::future::ready;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::mailbox::{bounded, unbounded};
use kameo::message::{Context, Message};

use super::messages::drop_message;
use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::FEED;
use crate::peers::{report, tokio_runtime};

/// Spawns a future that is ready, is given its answer, and spawns the next one.
struct Futures {
    left: u64,
    sum: u64,
    over: Sender<u64>,
}

impl Futures {
    fn next(&mut self, context: &mut Context<Self, ()>) {
        if self.left == 0 {
            let _ = self.over.send(self.sum);
            return context.stop();
        }
        self.left -= 1;
        context.pipe_with(async { 1 }, |futures, context, one| {
            futures.sum += one;
            futures.next(context);
            Box::pin(ready(()))
        });
    }
}

impl Actor for Futures {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(futures: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(futures)
    }
}

struct Go;

impl Message<Go> for Futures {
    type Reply = ();

    async fn handle(&mut self, _: Go, context: &mut Context<Self, ()>) {
        self.next(context);
    }
}

pub(crate) fn future_ready(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (over, sum) = channel();
    let began = Instant::now();
    let futures = Futures::spawn_with_mailbox(Futures { left: setting.n, sum: 0, over }, unbounded());
    futures.tell(Go).try_send().map_err(drop_message)?;
    let sum = report(&sum)?;
    let measured = Measured::since(began, setting.n);
    check("answers", sum, setting.n)?;
    Ok(measured)
}

/// Takes the items that a task sends. The mailbox has the limit of the feed.
struct Fed {
    taken: u64,
}

impl Actor for Fed {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(fed: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(fed)
    }
}

struct Item(u64);

impl Message<Item> for Fed {
    type Reply = ();

    async fn handle(&mut self, Item(n): Item, _: &mut Context<Self, ()>) {
        debug_assert_eq!(n, self.taken);
        self.taken += 1;
    }
}

struct Taken;

impl Message<Taken> for Fed {
    type Reply = u64;

    async fn handle(&mut self, _: Taken, _: &mut Context<Self, u64>) -> u64 {
        self.taken
    }
}

pub(crate) fn feed(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let items = setting.n;
    let began = Instant::now();
    let taken = runtime.block_on(runtime.spawn(async move {
        let fed = Fed::spawn_with_mailbox(Fed { taken: 0 }, bounded(FEED));
        for n in 0..items {
            fed.tell(Item(n)).send().await.map_err(drop_message)?;
        }
        fed.ask(Taken).send().await.map_err(drop_message)
    }))??;
    let measured = Measured::since(began, setting.n);
    check("items", taken, setting.n)?;
    Ok(measured)
}
