//! Processes of two types that do what they are told.

use std::time::Duration;

use procession::config::RuntimeBuilder;
use procession::observe::{MetricsOptions, Snapshot, TypeFigures};
use procession::{BoxError, Event, Events, Exit, Pid, Process, Runtime, Step, StepOutput, StepResult, Upgrade};

use crate::helpers::*;

/// A message that says what the step does.
#[derive(Clone, Debug)]
pub enum Order {
    Nothing,
    Fail,
    Panic,
    Finish,
    /// Becomes a node of the other type.
    Become,
    /// The next step runs on the pool.
    Block,
    Count(u64),
    Spawn,
    Tell(Pid, Box<Order>),
    /// Takes no more messages for an hour.
    Rest,
}

/// Does what it is told. It is of type `node 0` or `node 1`.
pub struct Node<const TYPE: usize> {
    pub recovers: bool,
}

impl<const TYPE: usize> Node<TYPE> {
    fn replacement(&self) -> Upgrade<()> {
        let recovers = self.recovers;
        if TYPE == 0 { Upgrade::to(Node::<1> { recovers }) } else { Upgrade::to(Node::<0> { recovers }) }
    }
}

impl<const TYPE: usize> Process for Node<TYPE> {
    type Message = Order;
    type Output = ();

    fn type_name() -> &'static str {
        ["node 0", "node 1"][TYPE]
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recovers.then(|| self.replacement())
    }

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Order::Nothing) => {}
                Event::Message(Order::Fail) => return Err("told to fail".into()),
                Event::Message(Order::Panic) => panic!("told to panic"),
                Event::Message(Order::Finish) | Event::Cancel(_) => return Ok(Step::Done(())),
                Event::Message(Order::Become) => return Ok(Step::Upgrade(self.replacement())),
                Event::Message(Order::Block) => return Ok(Step::Blocking),
                Event::Message(Order::Count(by)) => out.count("orders", by),
                Event::Message(Order::Spawn) => {
                    let child = out.spawn(Node::<TYPE> { recovers: false })?;
                    out.send(child, Order::Nothing);
                }
                Event::Message(Order::Tell(to, order)) => out.send(to, *order),
                Event::Message(Order::Rest) => {
                    out.after(Duration::from_secs(3_600));
                    return Ok(Step::Wait);
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A runtime that times every step, and measures every wait.
pub fn measured() -> RuntimeBuilder {
    builder().metrics(MetricsOptions::new().time_one_in(1).wait_one_in(1))
}

/// The figures of a type. There must be some.
#[track_caller]
pub fn of_type<'a>(snapshot: &'a Snapshot, name: &str) -> &'a TypeFigures {
    let found = snapshot.types.iter().find(|figures| figures.type_name == name);
    found.unwrap_or_else(|| panic!("there is no type {name:?} in {snapshot:#?}"))
}

/// Waits until nothing runs, and takes a snapshot.
#[track_caller]
pub fn quiet(runtime: &Runtime) -> Snapshot {
    until("the runtime is idle", || runtime.is_idle());
    runtime.snapshot()
}

/// A process of a type without a name of its own, which waits for an hour.
pub fn resting() -> impl Process<Message = u32, Output = ()> {
    let mut set = false;
    script(move |_: &mut Events<'_, u32>, out: &mut StepOutput| {
        if !std::mem::replace(&mut set, true) {
            out.after(Duration::from_secs(3_600));
        }
        Ok::<_, BoxError>(Step::Wait)
    })
}
