//! Workloads that spawn many processes, which do little, and end or wait.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Tally, check, memory};
use super::runtime::{done, finish};
use super::shape::{BATCH, CHILDREN, nodes, sum_of_leaves};

/// Counts the processes that report: each that ends, or each that waits.
static REPORTS: Tally = Tally::new();

struct Hello;

/// Spawns processes, and sends each a message.
struct Spawner<P> {
    child: fn() -> P,
    left: u64,
}

impl<P: Process<Message = Hello>> Process for Spawner<P> {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            let child = out.spawn((self.child)())?;
            out.send(child, Hello);
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

/// Ends with its first message. Its drop shows that it has ended, as it would in any library.
struct Mayfly;

impl Drop for Mayfly {
    fn drop(&mut self) {
        REPORTS.strike();
    }
}

impl Process for Mayfly {
    type Message = Hello;
    type Output = ();

    fn step(&mut self, events: &mut Events<Hello>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    }
}

pub(crate) fn spawn(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    REPORTS.expect(setting.n);
    let began = Instant::now();
    done(&runtime.spawn(Spawner { child: || Mayfly, left: setting.n })?)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    let spawned = runtime.stats().spawned;
    finish(&runtime)?;
    check("processes spawned", spawned, setting.n + 1)?;
    Ok(measured)
}

/// Waits for more messages after its first.
struct Waiter;

impl Process for Waiter {
    type Message = Hello;
    type Output = ();

    fn step(&mut self, events: &mut Events<Hello>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Hello) => REPORTS.strike(),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn idle(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    REPORTS.expect(setting.n);
    let before = memory("VmRSS");
    let began = Instant::now();
    done(&runtime.spawn(Spawner { child: || Waiter, left: setting.n })?)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n).with_actors(before, memory("VmRSS"), setting.n);
    check("processes that end when asked to", finish(&runtime)?, setting.n)?;
    Ok(measured)
}

/// The sum of the numbers of all leaves below it.
struct Sum(u64);

/// A process of the tree. It represents `leaves` numbers, starting with `first`.
struct Node {
    parent: Option<Address<Sum>>,
    first: u64,
    leaves: u64,
    to_come: u64,
    sum: u64,
}

impl Node {
    fn new(parent: Option<Address<Sum>>, first: u64, leaves: u64) -> Node {
        Node { parent, first, leaves, to_come: 0, sum: 0 }
    }

    /// The first step. A leaf has its sum at once. The others must ask their children.
    fn begin(&mut self, out: &mut StepOutput) -> StepResult<u64> {
        if self.leaves == 1 {
            self.sum = self.first;
            return Ok(self.end(out));
        }
        let (me, leaves) = (out.pid().typed(), self.leaves / CHILDREN);
        for child in 0..CHILDREN {
            let child = Node::new(Some(me), self.first + child * leaves, leaves);
            out.spawn(child)?;
        }
        self.to_come = CHILDREN;
        Ok(Step::Idle)
    }

    fn end(&self, out: &mut StepOutput) -> Step<u64> {
        if let Some(parent) = self.parent {
            out.send(parent, Sum(self.sum));
        }
        Step::Done(self.sum)
    }
}

impl Process for Node {
    type Message = Sum;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Sum>, out: &mut StepOutput) -> StepResult<u64> {
        if self.to_come == 0 {
            return self.begin(out);
        }
        for event in events {
            match event {
                Event::Message(Sum(sum)) => {
                    self.sum += sum;
                    self.to_come -= 1;
                    if self.to_come == 0 {
                        return Ok(self.end(out));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.sum)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn skynet(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let processes = nodes(setting.n);
    let began = Instant::now();
    let sum = done(&runtime.spawn(Node::new(None, 0, setting.n))?)?;
    let measured = Measured::since(began, processes);
    check("the sum", sum, sum_of_leaves(setting.n))?;
    let spawned = runtime.stats().spawned;
    finish(&runtime)?;
    check("processes spawned", spawned, processes)?;
    Ok(measured)
}
