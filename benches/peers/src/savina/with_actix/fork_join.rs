//! ForkJoinThroughput and ForkJoinCreate on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::with_actix::stage::Stage;
use crate::peers::{REPORTS, report};
use crate::savina::problems::work::square_of_sine;
use crate::savina::problems::{BATCH, THROUGHPUT_ACTORS};

struct Work;

impl Message for Work {
    type Result = ();
}

/// Ends when it has done its share of the work, and reports how much it was.
struct Worker {
    left: u64,
    done: u64,
    over: Sender<u64>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Handler<Work> for Worker {
    type Result = ();

    fn handle(&mut self, _: Work, context: &mut Context<Self>) {
        square_of_sine();
        self.done += 1;
        self.left -= 1;
        if self.left == 0 {
            let _ = self.over.send(self.done);
            context.stop();
        }
    }
}

/// Repeatedly sends a message to each worker and yields.
struct Rounds {
    workers: Vec<Addr<Worker>>,
    left: u64,
}

impl Actor for Rounds {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (workers, rounds) = (std::mem::take(&mut self.workers), self.left);
        let work = async move {
            for _ in 0..rounds {
                for worker in &workers {
                    worker.do_send(Work);
                }
                yield_now().await;
            }
        };
        context.spawn(work.into_actor(self).map(|(), _, context| context.stop()));
    }
}

pub(crate) fn throughput(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, ends) = channel();
    let began = Instant::now();
    let start = |_| stage.start(Worker { left: setting.n, done: 0, over: over.clone() });
    let workers = (0..THROUGHPUT_ACTORS).map(start).collect();
    stage.start(Rounds { workers, left: setting.n });
    let mut messages = 0;
    for _ in 0..THROUGHPUT_ACTORS {
        messages += report(&ends)?;
    }
    let measured = Measured::since(began, setting.n * THROUGHPUT_ACTORS);
    check("messages worked on", messages, setting.n * THROUGHPUT_ACTORS)?;
    stage.finish()?;
    Ok(measured)
}

/// Ends with its first message. Its drop shows that it has ended.
struct Mayfly;

impl Drop for Mayfly {
    fn drop(&mut self) {
        REPORTS.strike();
    }
}

impl Actor for Mayfly {
    type Context = Context<Self>;
}

impl Handler<Work> for Mayfly {
    type Result = ();

    fn handle(&mut self, _: Work, context: &mut Context<Self>) {
        square_of_sine();
        context.stop();
    }
}

struct Creator {
    left: u64,
}

impl Actor for Creator {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let mut left = self.left;
        let work = async move {
            while left > 0 {
                let batch = left.min(BATCH);
                for _ in 0..batch {
                    Mayfly.start().do_send(Work);
                }
                left -= batch;
                yield_now().await;
            }
        };
        context.spawn(work.into_actor(self).map(|(), _, context| context.stop()));
    }
}

pub(crate) fn create(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    REPORTS.expect(setting.n);
    let began = Instant::now();
    stage.start(Creator { left: setting.n });
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    stage.finish()?;
    Ok(measured)
}
