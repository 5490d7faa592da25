//! Workloads that spawn actors, on kameo.

use std::convert::Infallible;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::mailbox::unbounded;
use kameo::message::{Context, Message};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check, memory};
use crate::ours::shape::{BATCH, CHILDREN, nodes, sum_of_leaves};
use crate::peers::{ENDS, REPORTS, report, tokio_runtime};

struct Hello;

/// Spawns actors, and sends each a message.
struct Spawner<C: Actor> {
    child: fn() -> C,
    left: u64,
    over: Sender<Vec<ActorRef<C>>>,
    keep: bool,
}

impl<C: Actor> Actor for Spawner<C> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(spawner: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(spawner)
    }
}

struct Go;

impl<C: Actor<Args = C> + Message<Hello>> Message<Go> for Spawner<C> {
    type Reply = ();

    async fn handle(&mut self, _: Go, context: &mut Context<Self, ()>) {
        let mut children = Vec::with_capacity(if self.keep { self.left as usize } else { 0 });
        while self.left > 0 {
            let batch = self.left.min(BATCH);
            for _ in 0..batch {
                let child = C::spawn_with_mailbox((self.child)(), unbounded());
                let _ = child.tell(Hello).try_send();
                if self.keep {
                    children.push(child);
                }
            }
            self.left -= batch;
            yield_now().await;
        }
        let _ = self.over.send(children);
        context.stop();
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
    type Args = Self;
    type Error = Infallible;

    async fn on_start(mayfly: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(mayfly)
    }
}

impl Message<Hello> for Mayfly {
    type Reply = ();

    async fn handle(&mut self, _: Hello, context: &mut Context<Self, ()>) {
        context.stop();
    }
}

pub(crate) fn spawn(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    let began = Instant::now();
    let spawner = Spawner { child: || Mayfly, left: setting.n, over, keep: false };
    let spawner = Spawner::spawn_with_mailbox(spawner, unbounded());
    spawner.tell(Go).try_send().map_err(|refused| refused.to_string())?;
    report(&is_over)?;
    REPORTS.wait()?;
    Ok(Measured::since(began, setting.n))
}

/// Waits for more messages after its first.
struct Waiter;

impl Drop for Waiter {
    fn drop(&mut self) {
        ENDS.strike();
    }
}

impl Actor for Waiter {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(waiter: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(waiter)
    }
}

impl Message<Hello> for Waiter {
    type Reply = ();

    async fn handle(&mut self, _: Hello, _: &mut Context<Self, ()>) {
        REPORTS.strike();
    }
}

pub(crate) fn idle(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    ENDS.expect(setting.n);
    let before = memory("VmRSS");
    let began = Instant::now();
    let spawner = Spawner { child: || Waiter, left: setting.n, over, keep: true };
    let spawner = Spawner::spawn_with_mailbox(spawner, unbounded());
    spawner.tell(Go).try_send().map_err(|refused| refused.to_string())?;
    let waiting = report(&is_over)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n).with_actors(before, memory("VmRSS"), setting.n);
    check("actors that wait", waiting.len() as u64, setting.n)?;
    drop(waiting);
    ENDS.wait()?;
    Ok(measured)
}

/// The receiver of an actor's sum.
enum Parent {
    Node(ActorRef<Node>),
    Caller(Sender<u64>),
}

/// The sum of the numbers of all leaves below it.
struct Sum(u64);

/// An actor of the tree. It represents `leaves` numbers, starting with `first`.
struct Node {
    parent: Parent,
    first: u64,
    leaves: u64,
    to_come: u64,
    sum: u64,
}

impl Node {
    fn end(&self) {
        match &self.parent {
            Parent::Node(parent) => drop(parent.tell(Sum(self.sum)).try_send()),
            Parent::Caller(caller) => drop(caller.send(self.sum)),
        }
    }
}

impl Actor for Node {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(mut node: Self, me: ActorRef<Self>) -> Result<Self, Infallible> {
        if node.leaves == 1 {
            // The program keeps no reference to a leaf, so it ends by itself.
            node.sum = node.first;
            node.end();
            return Ok(node);
        }
        let leaves = node.leaves / CHILDREN;
        for child in 0..CHILDREN {
            let (parent, first) = (Parent::Node(me.clone()), node.first + child * leaves);
            Node::spawn_with_mailbox(Node { parent, first, leaves, to_come: 0, sum: 0 }, unbounded());
        }
        node.to_come = CHILDREN;
        Ok(node)
    }
}

impl Message<Sum> for Node {
    type Reply = ();

    async fn handle(&mut self, Sum(sum): Sum, _: &mut Context<Self, ()>) {
        self.sum += sum;
        self.to_come -= 1;
        if self.to_come == 0 {
            self.end();
        }
    }
}

pub(crate) fn skynet(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (caller, sum) = channel();
    let began = Instant::now();
    let root = Node { parent: Parent::Caller(caller), first: 0, leaves: setting.n, to_come: 0, sum: 0 };
    Node::spawn_with_mailbox(root, unbounded());
    let sum = report(&sum)?;
    let measured = Measured::since(began, nodes(setting.n));
    check("the sum", sum, sum_of_leaves(setting.n))?;
    Ok(measured)
}
