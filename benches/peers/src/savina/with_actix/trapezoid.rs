//! Trapezoidal on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::trapezoid::{Share, WORKERS, check};

/// Reports the area. The workers take turns on the threads.
struct Master {
    pieces: u64,
    threads: Vec<ArbiterHandle>,
    to_come: u64,
    area: f64,
    over: Sender<f64>,
}

impl Actor for Master {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        for number in 0..WORKERS {
            let (master, thread) = (context.address(), &self.threads[number as usize % self.threads.len()]);
            let worker = Worker::start_in_arbiter(thread, |_| Worker { master });
            worker.do_send(Work(Share::of(number, self.pieces)));
        }
    }
}

struct Area(f64);

impl Message for Area {
    type Result = ();
}

impl Handler<Area> for Master {
    type Result = ();

    fn handle(&mut self, Area(area): Area, context: &mut Context<Self>) {
        self.area += area;
        self.to_come -= 1;
        if self.to_come == 0 {
            let _ = self.over.send(self.area);
            context.stop();
        }
    }
}

struct Work(Share);

impl Message for Work {
    type Result = ();
}

/// Ends with the area of its share.
struct Worker {
    master: Addr<Master>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Handler<Work> for Worker {
    type Result = ();

    fn handle(&mut self, Work(share): Work, context: &mut Context<Self>) {
        self.master.do_send(Area(share.area()));
        context.stop();
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, area) = channel();
    let began = Instant::now();
    stage.start(Master { pieces: setting.n, threads: stage.threads(), to_come: WORKERS, area: 0.0, over });
    let area = report(&area)?;
    let measured = Measured::since(began, setting.n);
    check(area, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
