//! CountingActor on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::BATCH;

struct Counter {
    count: u64,
}

impl Actor for Counter {
    type Context = Context<Self>;
}

struct Increment;

impl Message for Increment {
    type Result = ();
}

impl Handler<Increment> for Counter {
    type Result = ();

    fn handle(&mut self, _: Increment, _: &mut Context<Self>) {
        self.count += 1;
    }
}

struct Report;

impl Message for Report {
    type Result = u64;
}

impl Handler<Report> for Counter {
    type Result = u64;

    fn handle(&mut self, _: Report, _: &mut Context<Self>) -> u64 {
        self.count
    }
}

/// Reports the count of the counter.
struct Producer {
    counter: Addr<Counter>,
    left: u64,
    over: Sender<u64>,
}

impl Actor for Producer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (counter, mut left) = (self.counter.clone(), self.left);
        let work = async move {
            while left > 0 {
                let batch = left.min(BATCH);
                for _ in 0..batch {
                    counter.do_send(Increment);
                }
                left -= batch;
                yield_now().await;
            }
            counter.send(Report).await
        };
        context.spawn(work.into_actor(self).map(|count, producer, context| {
            let _ = producer.over.send(count.unwrap_or_default());
            context.stop();
        }));
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, count) = channel();
    let began = Instant::now();
    let counter = stage.start(Counter { count: 0 });
    stage.start(Producer { counter, left: setting.n, over });
    let count = report(&count)?;
    let measured = Measured::since(began, setting.n);
    check("messages counted", count, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
