//! UnbalancedCobwebbedTree on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime;
use crate::savina::problems::tree::{BEFORE, CHILDREN, Grant, Growth, Part, check};
use crate::savina::problems::work;

type ToNode = UnboundedSender<TreeMessage>;

enum TreeMessage {
    /// Asks the root whether this task may have children.
    Ask(ToNode),
    /// Sent by the root.
    Granted(Grant),
    /// Sent by the parent, when the tree is complete.
    Visit,
    /// Sent by a child: all nodes below it have been visited.
    Visited(Part),
}

/// The children of a task that has some.
struct Children {
    order: Grant,
    senders: Vec<ToNode>,
    to_come: usize,
}

impl Children {
    /// Starts the children.
    fn start(grant: Grant, parent: &ToNode, root: &ToNode) -> Children {
        let senders = (0..CHILDREN).map(|_| {
            let (me, inbox) = unbounded_channel();
            let node = Node {
                me: me.clone(),
                parent: parent.clone(),
                root: root.clone(),
                work: grant.work,
                children: None,
                below: Part::default(),
            };
            tokio::spawn(node.live(inbox));
            me
        });
        Children { order: grant, senders: senders.collect(), to_come: CHILDREN }
    }

    fn visit(&self) {
        self.order.order().for_each(|child| drop(self.senders[child].send(TreeMessage::Visit)));
    }

    /// Notes that a child has been visited. Returns whether it was the last one.
    fn is_last(&mut self) -> bool {
        self.to_come -= 1;
        self.to_come == 0
    }
}

/// Ends when all nodes have been visited. Returns their number and work.
async fn grow(most: u64) -> Option<Part> {
    let (me, mut inbox) = unbounded_channel();
    let (mut growth, first) = Growth::new(most);
    let (mut children, mut all) = (Children::start(first, &me, &me), Part::one(0));
    loop {
        match inbox.recv().await? {
            TreeMessage::Ask(from) => {
                if let Some(grant) = growth.ask() {
                    from.send(TreeMessage::Granted(grant)).ok()?;
                } else if growth.is_finished() {
                    children.visit();
                }
            }
            TreeMessage::Visited(part) => {
                all.add(part);
                if children.is_last() {
                    return Some(all);
                }
            }
            TreeMessage::Granted(_) | TreeMessage::Visit => return None,
        }
    }
}

struct Node {
    me: ToNode,
    parent: ToNode,
    root: ToNode,
    work: u32,
    children: Option<Children>,
    below: Part,
}

impl Node {
    /// Ends when all nodes below it have been visited.
    async fn live(mut self, mut inbox: UnboundedReceiver<TreeMessage>) {
        work::rounds(BEFORE);
        let _ = self.root.send(TreeMessage::Ask(self.me.clone()));
        while let Some(message) = inbox.recv().await {
            let is_over = match message {
                TreeMessage::Granted(grant) => {
                    self.children = Some(Children::start(grant, &self.me, &self.root));
                    false
                }
                TreeMessage::Visit => {
                    work::rounds(self.work);
                    self.below.add(Part::one(self.work));
                    self.children.as_ref().inspect(|children| children.visit()).is_none()
                }
                TreeMessage::Visited(part) => {
                    self.below.add(part);
                    self.children.as_mut().is_some_and(Children::is_last)
                }
                TreeMessage::Ask(_) => false,
            };
            if is_over {
                let _ = self.parent.send(TreeMessage::Visited(self.below));
                break;
            }
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let visited = runtime.block_on(runtime.spawn(grow(setting.n)))?.ok_or("the tree has gone")?;
    let measured = Measured::since(began, visited.actors);
    check(visited, setting.n)?;
    Ok(measured)
}
