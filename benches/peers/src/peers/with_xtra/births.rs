//! Workloads that spawn actors, on xtra.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use tokio::task::yield_now;
use xtra::{Actor, Address, Context, Handler, Mailbox, spawn_tokio};

use crate::ours::measure::{Measured, Outcome, Setting, check, memory};
use crate::ours::shape::{BATCH, CHILDREN, nodes, sum_of_leaves};
use crate::peers::{ENDS, REPORTS, report, tokio_runtime};

struct Hello;

/// Spawns actors, and sends each a message.
struct Spawner<C: Actor> {
    child: fn() -> C,
    left: u64,
    over: Sender<Vec<Address<C>>>,
    keep: bool,
}

impl<C: Actor> Actor for Spawner<C> {
    type Stop = ();

    async fn stopped(self) {}
}

struct Go;

impl<C: Actor<Stop = ()> + Handler<Hello, Return = ()>> Handler<Go> for Spawner<C> {
    type Return = ();

    async fn handle(&mut self, _: Go, context: &mut Context<Self>) {
        let mut children = Vec::with_capacity(if self.keep { self.left as usize } else { 0 });
        while self.left > 0 {
            let batch = self.left.min(BATCH);
            for _ in 0..batch {
                let child = spawn_tokio((self.child)(), Mailbox::unbounded());
                let _ = child.send(Hello).detach().await;
                if self.keep {
                    children.push(child);
                }
            }
            self.left -= batch;
            yield_now().await;
        }
        let _ = self.over.send(children);
        context.stop_self();
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
    type Stop = ();

    async fn stopped(self) {}
}

impl Handler<Hello> for Mayfly {
    type Return = ();

    async fn handle(&mut self, _: Hello, context: &mut Context<Self>) {
        context.stop_self();
    }
}

pub(crate) fn spawn(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    let began = Instant::now();
    let spawner = Spawner { child: || Mayfly, left: setting.n, over, keep: false };
    let spawner = spawn_tokio(spawner, Mailbox::unbounded());
    drop(runtime.block_on(spawner.send(Go).detach())?);
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
    type Stop = ();

    async fn stopped(self) {}
}

impl Handler<Hello> for Waiter {
    type Return = ();

    async fn handle(&mut self, _: Hello, _: &mut Context<Self>) {
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
    let spawner = spawn_tokio(spawner, Mailbox::unbounded());
    drop(runtime.block_on(spawner.send(Go).detach())?);
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
    Node(Address<Node>),
    Caller(Sender<u64>),
}

/// The sum of the numbers of all leaves below it.
struct Sum(u64);

/// An actor of the tree. It represents `leaves` numbers, starting with `first`.
struct Node {
    /// Its own address, until it has started. Before that, the program must keep an address, or the actor would end.
    me: Option<Address<Node>>,
    parent: Parent,
    first: u64,
    leaves: u64,
    to_come: u64,
    sum: u64,
}

impl Node {
    fn spawn(parent: Parent, first: u64, leaves: u64) {
        let (me, mailbox) = Mailbox::unbounded();
        spawn_tokio(Node { me: Some(me.clone()), parent, first, leaves, to_come: 0, sum: 0 }, (me, mailbox));
    }

    async fn end(&self) {
        match &self.parent {
            Parent::Node(parent) => drop(parent.send(Sum(self.sum)).detach().await),
            Parent::Caller(caller) => drop(caller.send(self.sum)),
        }
    }
}

impl Actor for Node {
    type Stop = ();

    async fn started(&mut self, _: &Mailbox<Self>) -> Result<(), ()> {
        let me = self.me.take().ok_or(())?;
        if self.leaves == 1 {
            // From now on the program keeps no address of a leaf, so it ends by itself.
            self.sum = self.first;
            self.end().await;
            return Ok(());
        }
        let leaves = self.leaves / CHILDREN;
        for child in 0..CHILDREN {
            let (parent, first) = (Parent::Node(me.clone()), self.first + child * leaves);
            Node::spawn(parent, first, leaves);
        }
        self.to_come = CHILDREN;
        Ok(())
    }

    async fn stopped(self) {}
}

impl Handler<Sum> for Node {
    type Return = ();

    async fn handle(&mut self, Sum(sum): Sum, _: &mut Context<Self>) {
        self.sum += sum;
        self.to_come -= 1;
        if self.to_come == 0 {
            self.end().await;
        }
    }
}

pub(crate) fn skynet(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let _inside = runtime.enter();
    let (caller, sum) = channel();
    let began = Instant::now();
    Node::spawn(Parent::Caller(caller), 0, setting.n);
    let sum = report(&sum)?;
    let measured = Measured::since(began, nodes(setting.n));
    check("the sum", sum, sum_of_leaves(setting.n))?;
    Ok(measured)
}
