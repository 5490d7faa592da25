//! A process that does what it is told, and notes the events that it gets.

use procession::{
    Address, Event, Events, Exit, Handle, Monitor, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput,
    StepResult,
};

use crate::helpers::*;

/// The orders to a node.
pub enum Do {
    Monitor(Pid),
    /// The monitor with this number, counted from the first.
    Demonitor(usize),
    Link(Pid),
    Unlink(Pid),
    /// Terminates a process and monitors it, in one step.
    EndAndMonitor(Pid),
    Trap(bool),
    /// To be answered when all before it is done.
    Answer(Reply<()>),
    End(Way),
}

/// How a node is to end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Done,
    Fail,
    Panic,
}

/// An event that a node was told of.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// The number of the monitor, counted from the first; the process; how it ended.
    Down(usize, Pid, String),
    Exit(Pid, String),
    Recovered(Pid, String),
}

pub struct Node {
    monitors: Vec<Monitor>,
    heard: Log<Heard>,
}

impl Process for Node {
    type Message = Do;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Do>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Do::Monitor(pid)) => self.monitors.push(out.monitor(pid)),
                Event::Message(Do::Demonitor(number)) => out.demonitor(self.monitors[number]),
                Event::Message(Do::Link(pid)) => out.link(pid),
                Event::Message(Do::Unlink(pid)) => out.unlink(pid),
                Event::Message(Do::EndAndMonitor(pid)) => {
                    out.terminate(pid);
                    self.monitors.push(out.monitor(pid));
                }
                Event::Message(Do::Trap(trap)) => out.trap_exits(trap),
                Event::Message(Do::Answer(reply)) => out.reply(reply, ()),
                Event::Message(Do::End(Way::Done)) | Event::Cancel(_) => return Ok(Step::Done(())),
                Event::Message(Do::End(Way::Fail)) => return Err("it failed".into()),
                Event::Message(Do::End(Way::Panic)) => panic!("it panicked"),
                Event::Down(down) => {
                    assert_eq!(down.monitor.pid(), down.pid);
                    let number = self.monitors.iter().position(|monitor| *monitor == down.monitor).unwrap();
                    self.heard.push(Heard::Down(number, down.pid, down.exit.to_string()));
                }
                Event::Exit(exit) => self.heard.push(Heard::Exit(exit.pid, exit.exit.to_string())),
                Event::Recovered(one) => self.heard.push(Heard::Recovered(one.pid, one.exit.to_string())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A node, and what it has heard.
pub struct Known {
    pub handle: Handle<Node>,
    pub heard: Log<Heard>,
}

pub fn node(runtime: &Runtime) -> Known {
    node_with(runtime, SpawnOptions::new())
}

pub fn node_with(runtime: &Runtime, options: SpawnOptions) -> Known {
    let heard = Log::new();
    let node = Node { monitors: Vec::new(), heard: heard.clone() };
    Known { handle: runtime.spawn_with(node, options).unwrap(), heard }
}

impl Known {
    pub fn pid(&self) -> Pid {
        self.handle.pid()
    }

    pub fn address(&self) -> Address<Do> {
        self.handle.address()
    }

    /// Tells the node to do these, and waits until it has.
    pub fn does(&self, runtime: &Runtime, orders: impl IntoIterator<Item = Do>) {
        for order in orders {
            runtime.send(self.address(), order).unwrap();
        }
        self.settles(runtime);
    }

    /// Waits until the node has stepped what was sent before, and its yields are performed.
    pub fn settles(&self, runtime: &Runtime) {
        // The second answer comes from a later step than the first.
        for _ in 0..2 {
            runtime.ask(self.address(), Do::Answer, LIMIT).wait().unwrap();
        }
    }

    pub fn ends(&self, runtime: &Runtime, way: Way) -> Exit {
        runtime.send(self.address(), Do::End(way)).unwrap();
        join(&self.handle).without_output()
    }

    /// Waits until so much has been heard, and says what; there must not be more.
    pub fn hears(&self, count: usize) -> Vec<Heard> {
        until("it hears of it", || self.heard.len() >= count);
        assert_eq!(self.heard.len(), count, "{:?}", self.heard.to_vec());
        self.heard.to_vec()
    }
}
