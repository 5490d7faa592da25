//! UnbalancedCobwebbedTree on actix. The children of the root take turns on the threads. Each starts all nodes below
//! it on its own thread.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::tree::{BEFORE, CHILDREN, Grant, Growth, Part, check};
use crate::savina::problems::work;

/// Asks the root whether this actor may have children.
struct Ask(Addr<Node>);

impl Message for Ask {
    type Result = ();
}

/// Sent by a child: all nodes below it have been visited.
struct Visited(Part);

impl Message for Visited {
    type Result = ();
}

/// The children of an actor that has some.
struct Children {
    order: Grant,
    addresses: Vec<Addr<Node>>,
    to_come: usize,
}

impl Children {
    fn visit(&self) {
        self.order.order().for_each(|child| self.addresses[child].do_send(NodeMessage::Visit));
    }

    /// Notes that a child has been visited. Returns whether it was the last one.
    fn is_last(&mut self) -> bool {
        self.to_come -= 1;
        self.to_come == 0
    }
}

/// Reports the number and the work of the visited nodes, when all have been visited.
struct Root {
    growth: Growth,
    children: Children,
    threads: Vec<ArbiterHandle>,
    all: Part,
    over: Sender<Part>,
}

impl Actor for Root {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        for child in 0..CHILDREN {
            let node = Node::new(Parent::Root, context.address(), self.children.order.work);
            let thread = &self.threads[child % self.threads.len()];
            self.children.addresses.push(Node::start_in_arbiter(thread, |_| node));
        }
    }
}

impl Handler<Ask> for Root {
    type Result = ();

    fn handle(&mut self, Ask(from): Ask, _: &mut Context<Self>) {
        if let Some(grant) = self.growth.ask() {
            from.do_send(NodeMessage::Granted(grant));
        } else if self.growth.is_finished() {
            self.children.visit();
        }
    }
}

impl Handler<Visited> for Root {
    type Result = ();

    fn handle(&mut self, Visited(part): Visited, context: &mut Context<Self>) {
        self.all.add(part);
        if self.children.is_last() {
            let _ = self.over.send(self.all);
            context.stop();
        }
    }
}

enum Parent {
    Root,
    Node(Addr<Node>),
}

/// Ends when all nodes below it have been visited.
struct Node {
    parent: Parent,
    root: Addr<Root>,
    work: u32,
    children: Option<Children>,
    below: Part,
}

impl Node {
    fn new(parent: Parent, root: Addr<Root>, work: u32) -> Node {
        Node { parent, root, work, children: None, below: Part::default() }
    }

    fn end(&self, context: &mut Context<Self>) {
        let visited = Visited(self.below);
        match &self.parent {
            Parent::Root => self.root.do_send(visited),
            Parent::Node(parent) => parent.do_send(visited),
        }
        context.stop();
    }
}

impl Actor for Node {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        work::rounds(BEFORE);
        self.root.do_send(Ask(context.address()));
    }
}

enum NodeMessage {
    /// Sent by the root.
    Granted(Grant),
    /// Sent by the parent, when the tree is complete.
    Visit,
}

impl Message for NodeMessage {
    type Result = ();
}

impl Handler<NodeMessage> for Node {
    type Result = ();

    fn handle(&mut self, message: NodeMessage, context: &mut Context<Self>) {
        match message {
            NodeMessage::Granted(order) => {
                let start = |_| Node::new(Parent::Node(context.address()), self.root.clone(), order.work).start();
                let addresses = (0..CHILDREN).map(start).collect();
                self.children = Some(Children { order, addresses, to_come: CHILDREN });
            }
            NodeMessage::Visit => {
                work::rounds(self.work);
                self.below.add(Part::one(self.work));
                match &self.children {
                    Some(children) => children.visit(),
                    None => self.end(context),
                }
            }
        }
    }
}

impl Handler<Visited> for Node {
    type Result = ();

    fn handle(&mut self, Visited(part): Visited, context: &mut Context<Self>) {
        self.below.add(part);
        if self.children.as_mut().is_some_and(Children::is_last) {
            self.end(context);
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, visited) = channel();
    let began = Instant::now();
    let (growth, order) = Growth::new(setting.n);
    let children = Children { order, addresses: Vec::with_capacity(CHILDREN), to_come: CHILDREN };
    stage.start(Root { growth, children, threads: stage.threads(), all: Part::one(0), over });
    let visited = report(&visited)?;
    let measured = Measured::since(began, visited.actors);
    check(visited, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
