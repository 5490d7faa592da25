//! UnbalancedCobwebbedTree: a tree of processes grows as far as the root allows, and is then visited.

use std::time::Instant;

use procession::{Address, BoxError, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::tree::{BEFORE, CHILDREN, Grant, Growth, Part, check};
use super::problems::work;
use super::runtime::{done, finish};

enum TreeMessage {
    /// Asks the root whether this process may have children.
    Ask(Address<TreeMessage>),
    /// Sent by the root.
    Granted(Grant),
    /// Sent by the parent, when the tree is complete.
    Visit,
    /// Sent by a child: all nodes below it have been visited.
    Visited(Part),
}

/// The children of a process that has some.
struct Children {
    order: Grant,
    addresses: Vec<Address<TreeMessage>>,
    to_come: usize,
}

impl Children {
    /// Spawns the children.
    fn spawn(grant: Grant, root: Address<TreeMessage>, out: &mut StepOutput) -> Result<Children, BoxError> {
        let mut addresses = Vec::with_capacity(CHILDREN);
        for _ in 0..CHILDREN {
            let parent = out.pid().typed();
            addresses.push(out.spawn(Node {
                parent,
                root,
                work: grant.work,
                has_asked: false,
                children: None,
                below: Part::default(),
            })?);
        }
        Ok(Children { order: grant, addresses, to_come: CHILDREN })
    }

    fn visit(&self, out: &mut StepOutput) {
        self.order.order().for_each(|child| out.send(self.addresses[child], TreeMessage::Visit));
    }

    /// Notes that a child has been visited. Returns whether it was the last one.
    fn is_last(&mut self) -> bool {
        self.to_come -= 1;
        self.to_come == 0
    }
}

/// Ends when all nodes have been visited. Returns their number and work.
struct Root {
    growth: Growth,
    first: Grant,
    children: Option<Children>,
    all: Part,
}

impl Process for Root {
    type Message = TreeMessage;
    type Output = Part;

    fn step(&mut self, events: &mut Events<TreeMessage>, out: &mut StepOutput) -> StepResult<Part> {
        let children = match &mut self.children {
            Some(children) => children,
            none => none.insert(Children::spawn(self.first, out.pid().typed(), out)?),
        };
        for event in events {
            match event {
                Event::Message(TreeMessage::Ask(from)) => {
                    if let Some(grant) = self.growth.ask() {
                        out.send(from, TreeMessage::Granted(grant));
                    } else if self.growth.is_finished() {
                        children.visit(out);
                    }
                }
                Event::Message(TreeMessage::Visited(part)) => {
                    self.all.add(part);
                    if children.is_last() {
                        return Ok(Step::Done(self.all));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.all)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Ends when all nodes below it have been visited.
struct Node {
    parent: Address<TreeMessage>,
    root: Address<TreeMessage>,
    work: u32,
    has_asked: bool,
    children: Option<Children>,
    below: Part,
}

impl Process for Node {
    type Message = TreeMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<TreeMessage>, out: &mut StepOutput) -> StepResult<()> {
        if !self.has_asked {
            self.has_asked = true;
            work::rounds(BEFORE);
            out.send(self.root, TreeMessage::Ask(out.pid().typed()));
        }
        for event in events {
            let is_finished = match event {
                Event::Message(TreeMessage::Granted(grant)) => {
                    self.children = Some(Children::spawn(grant, self.root, out)?);
                    false
                }
                Event::Message(TreeMessage::Visit) => {
                    work::rounds(self.work);
                    self.below.add(Part::one(self.work));
                    self.children.as_ref().inspect(|children| children.visit(out)).is_none()
                }
                Event::Message(TreeMessage::Visited(part)) => {
                    self.below.add(part);
                    self.children.as_mut().is_some_and(Children::is_last)
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => false,
            };
            if is_finished {
                out.send(self.parent, TreeMessage::Visited(self.below));
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let (growth, first) = Growth::new(setting.n);
    let visited = done(&runtime.spawn(Root { growth, first, children: None, all: Part::one(0) })?)?;
    let measured = Measured::since(began, visited.actors);
    check(visited, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
