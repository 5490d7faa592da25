//! Workloads that spawn actors, on ractor.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check, memory};
use crate::ours::shape::{BATCH, CHILDREN, nodes, sum_of_leaves};
use crate::peers::{ENDS, REPORTS, report, tokio_runtime};

type Handled = Result<(), ActorProcessingErr>;

struct Hello;

/// Spawns actors, and sends each a message.
struct Spawner<C> {
    child: fn() -> C,
    over: Sender<Vec<ActorRef<Hello>>>,
    keep: bool,
}

struct Go;

impl<C: Actor<Msg = Hello, Arguments = ()>> Actor for Spawner<C> {
    type Msg = Go;
    type State = u64;
    type Arguments = u64;

    async fn pre_start(&self, me: ActorRef<Go>, left: u64) -> Result<u64, ActorProcessingErr> {
        me.cast(Go)?;
        Ok(left)
    }

    async fn handle(&self, me: ActorRef<Go>, _: Go, left: &mut u64) -> Handled {
        let mut children = Vec::with_capacity(if self.keep { *left as usize } else { 0 });
        while *left > 0 {
            let batch = (*left).min(BATCH);
            for _ in 0..batch {
                let (child, _) = Actor::spawn(None, (self.child)(), ()).await?;
                child.cast(Hello)?;
                if self.keep {
                    children.push(child);
                }
            }
            *left -= batch;
            yield_now().await;
        }
        self.over.send(children)?;
        me.stop(None);
        Ok(())
    }
}

/// Ends with its first message.
struct Mayfly;

/// The state of an actor. Its drop shows that the actor has ended.
struct Life;

impl Drop for Life {
    fn drop(&mut self) {
        REPORTS.strike();
    }
}

impl Actor for Mayfly {
    type Msg = Hello;
    type State = Life;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Hello>, (): ()) -> Result<Life, ActorProcessingErr> {
        Ok(Life)
    }

    async fn handle(&self, me: ActorRef<Hello>, _: Hello, _: &mut Life) -> Handled {
        me.stop(None);
        Ok(())
    }
}

pub(crate) fn spawn(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    let began = Instant::now();
    runtime.block_on(Actor::spawn(None, Spawner { child: || Mayfly, over, keep: false }, setting.n))?;
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
    type Msg = Hello;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Hello>, (): ()) -> Handled {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Hello>, _: Hello, (): &mut ()) -> Handled {
        REPORTS.strike();
        Ok(())
    }
}

pub(crate) fn idle(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (over, is_over) = channel();
    REPORTS.expect(setting.n);
    ENDS.expect(setting.n);
    let before = memory("VmRSS");
    let began = Instant::now();
    runtime.block_on(Actor::spawn(None, Spawner { child: || Waiter, over, keep: true }, setting.n))?;
    let waiting = report(&is_over)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n).with_actors(before, memory("VmRSS"), setting.n);
    check("actors that wait", waiting.len() as u64, setting.n)?;
    waiting.iter().for_each(|waiter| waiter.stop(None));
    ENDS.wait()?;
    Ok(measured)
}

/// The receiver of an actor's sum.
enum Parent {
    Node(ActorRef<Sum>),
    Caller(Sender<u64>),
}

/// The sum of the numbers of all leaves below it.
struct Sum(u64);

/// An actor of the tree. It represents `leaves` numbers, starting with `first`.
struct Node {
    parent: Parent,
    first: u64,
    leaves: u64,
}

#[derive(Default)]
struct Sums {
    to_come: u64,
    sum: u64,
}

impl Node {
    fn end(&self, me: &ActorRef<Sum>, sum: u64) -> Handled {
        match &self.parent {
            Parent::Node(parent) => parent.cast(Sum(sum))?,
            Parent::Caller(caller) => caller.send(sum)?,
        }
        me.stop(None);
        Ok(())
    }
}

impl Actor for Node {
    type Msg = Sum;
    type State = Sums;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Sum>, (): ()) -> Result<Sums, ActorProcessingErr> {
        Ok(Sums::default())
    }

    async fn post_start(&self, me: ActorRef<Sum>, state: &mut Sums) -> Handled {
        if self.leaves == 1 {
            return self.end(&me, self.first);
        }
        let leaves = self.leaves / CHILDREN;
        for child in 0..CHILDREN {
            let (parent, first) = (Parent::Node(me.clone()), self.first + child * leaves);
            Actor::spawn(None, Node { parent, first, leaves }, ()).await?;
        }
        state.to_come = CHILDREN;
        Ok(())
    }

    async fn handle(&self, me: ActorRef<Sum>, Sum(sum): Sum, state: &mut Sums) -> Handled {
        state.sum += sum;
        state.to_come -= 1;
        if state.to_come == 0 { self.end(&me, state.sum) } else { Ok(()) }
    }
}

pub(crate) fn skynet(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (caller, sum) = channel();
    let began = Instant::now();
    let root = Node { parent: Parent::Caller(caller), first: 0, leaves: setting.n };
    runtime.block_on(Actor::spawn(None, root, ()))?;
    let sum = report(&sum)?;
    let measured = Measured::since(began, nodes(setting.n));
    check("the sum", sum, sum_of_leaves(setting.n))?;
    Ok(measured)
}
