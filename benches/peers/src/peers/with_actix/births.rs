//! Workloads that spawn actors, on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message, WrapFuture,
};
use tokio::task::yield_now;

use super::stage::Stage;
use crate::ours::measure::{Measured, Outcome, Setting, check, memory};
use crate::ours::shape::{BATCH, CHILDREN, nodes, sum_of_leaves};
use crate::peers::{ENDS, REPORTS, report};

struct Hello;

impl Message for Hello {
    type Result = ();
}

/// An actor that the workloads start in large numbers.
trait Child: Actor<Context = Context<Self>> + Handler<Hello> {
    fn new() -> Self;
}

/// Starts actors, and sends each a message. The children are on its own thread. Starting them on another thread costs
/// more than it saves.
struct Spawner<C: Child> {
    left: u64,
    over: Sender<Vec<Addr<C>>>,
    keep: bool,
}

impl<C: Child> Actor for Spawner<C> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (mut left, keep) = (self.left, self.keep);
        let work = async move {
            let mut children = Vec::with_capacity(if keep { left as usize } else { 0 });
            while left > 0 {
                let batch = left.min(BATCH);
                for _ in 0..batch {
                    let child = C::new().start();
                    child.do_send(Hello);
                    if keep {
                        children.push(child);
                    }
                }
                left -= batch;
                yield_now().await;
            }
            children
        };
        context.spawn(work.into_actor(self).map(|children, spawner, context| {
            let _ = spawner.over.send(children);
            context.stop();
        }));
    }
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

impl Handler<Hello> for Mayfly {
    type Result = ();

    fn handle(&mut self, _: Hello, context: &mut Context<Self>) {
        context.stop();
    }
}

impl Child for Mayfly {
    fn new() -> Mayfly {
        Mayfly
    }
}

pub(crate) fn spawn(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    let began = Instant::now();
    stage.start(Spawner::<Mayfly> { left: setting.n, over, keep: false });
    report(&is_over)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    stage.finish()?;
    Ok(measured)
}

/// Waits for more messages after its first.
struct Waiter;

impl Drop for Waiter {
    fn drop(&mut self) {
        ENDS.strike();
    }
}

impl Actor for Waiter {
    type Context = Context<Self>;
}

impl Handler<Hello> for Waiter {
    type Result = ();

    fn handle(&mut self, _: Hello, _: &mut Context<Self>) {
        REPORTS.strike();
    }
}

impl Child for Waiter {
    fn new() -> Waiter {
        Waiter
    }
}

pub(crate) fn idle(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    ENDS.expect(setting.n);
    let before = memory("VmRSS");
    let began = Instant::now();
    stage.start(Spawner::<Waiter> { left: setting.n, over, keep: true });
    let waiting = report(&is_over)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n).with_actors(before, memory("VmRSS"), setting.n);
    check("actors that wait", waiting.len() as u64, setting.n)?;
    drop(waiting);
    ENDS.wait()?;
    stage.finish()?;
    Ok(measured)
}

/// The receiver of an actor's sum.
enum Parent {
    Node(Addr<Node>),
    Caller(Sender<u64>),
}

/// An actor of the tree. It represents `leaves` numbers, starting with `first`. The children of the root take turns
/// on the threads. Each starts all actors below it on its own thread.
struct Node {
    parent: Parent,
    threads: Vec<ArbiterHandle>,
    first: u64,
    leaves: u64,
    to_come: u64,
    sum: u64,
}

impl Node {
    fn end(&self, context: &mut Context<Self>) {
        match &self.parent {
            Parent::Node(parent) => parent.do_send(Sum(self.sum)),
            Parent::Caller(caller) => drop(caller.send(self.sum)),
        }
        context.stop();
    }
}

impl Actor for Node {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        if self.leaves == 1 {
            self.sum = self.first;
            return self.end(context);
        }
        let (me, leaves) = (context.address(), self.leaves / CHILDREN);
        for one in 0..CHILDREN {
            let (parent, first) = (Parent::Node(me.clone()), self.first + one * leaves);
            let child = Node { parent, threads: Vec::new(), first, leaves, to_come: 0, sum: 0 };
            if self.threads.is_empty() {
                child.start();
            } else {
                Node::start_in_arbiter(&self.threads[one as usize % self.threads.len()], |_| child);
            }
        }
        self.to_come = CHILDREN;
    }
}

/// The sum of the numbers of all leaves below it.
struct Sum(u64);

impl Message for Sum {
    type Result = ();
}

impl Handler<Sum> for Node {
    type Result = ();

    fn handle(&mut self, Sum(sum): Sum, context: &mut Context<Self>) {
        self.sum += sum;
        self.to_come -= 1;
        if self.to_come == 0 {
            self.end(context);
        }
    }
}

pub(crate) fn skynet(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (caller, sum) = channel();
    let began = Instant::now();
    let (parent, threads) = (Parent::Caller(caller), stage.threads());
    stage.start(Node { parent, threads, first: 0, leaves: setting.n, to_come: 0, sum: 0 });
    let sum = report(&sum)?;
    let measured = Measured::since(began, nodes(setting.n));
    check("the sum", sum, sum_of_leaves(setting.n))?;
    stage.finish()?;
    Ok(measured)
}
