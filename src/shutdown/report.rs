//! Reports on the whole tree, and on the nodes that keep a shutdown from ending.

use std::fmt;
use std::ops::ControlFlow::Continue;
use std::time::Duration;

use super::error::{Names, write_names};
use super::node::{Life, Node, Own, Ready};
use super::spec::Kind;
use super::walk::walk;
use crate::inside::WaitError;
use crate::outcome::Failure;
use crate::primitives::Arc;

/// The phase of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The node has not been asked to close.
    Running,
    /// The node has been asked to close, and waits for its children.
    Closing,
    /// The children are done, and the node has been told to end.
    Told,
    /// The node has been told to drop unfinished work, because a limit was over.
    Cancelled,
    /// The node has not ended, but the shutdown has stopped waiting for it.
    GivenUp,
    /// The node and all nodes below it have ended.
    Done,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Running => "running",
            Phase::Closing => "waits for its children",
            Phase::Told => "told to end",
            Phase::Cancelled => "told to cancel",
            Phase::GivenUp => "given up",
            Phase::Done => "done",
        })
    }
}

/// A report on all nodes of a tree. A node comes before the nodes below it.
///
/// Siblings are in order from left to right. A node with several parents is reported once. Each node is shown as it was
/// when it was visited. The tree may change in the meantime. The `Display` form is an indented list.
#[derive(Clone, Debug)]
pub struct Report {
    nodes: Arc<[NodeReport]>,
}

/// One node in a [`Report`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// The name (or annotation) of the node, if it has one.
    pub name: Option<Arc<str>>,
    /// The kind of the node.
    pub kind: Kind,
    /// The index, in the report, of the parent through which this node was visited. `None` for the first node.
    pub above: Option<usize>,
    /// The number of nodes above it on the way through these parents.
    pub depth: usize,
    /// The phase of the node.
    pub phase: Phase,
    /// How long the node has been in that phase.
    pub for_time: Duration,
    /// The time that a job took from its end signal until it was done.
    pub ending_took: Option<Duration>,
    /// The error of the node itself.
    pub error: Option<Failure>,
    /// Whether the node itself is ready. The nodes below it may be unready.
    pub is_ready: bool,
    /// The count of the node itself.
    pub count: usize,
    /// The work for which the node waits, if it has a [description](super::ShutdownNodeBuilder::detail).
    pub detail: Option<String>,
}

impl Report {
    pub(super) fn of(root: &Arc<Node>) -> Report {
        let mut nodes: Vec<NodeReport> = Vec::new();
        walk::<()>(root, |place| {
            let depth = place.above.map_or(0, |above| nodes[above].depth + 1);
            let (mut node, below) = node_report(place.node, place.above, depth);
            if node.was_told() {
                node.detail = place.node.spec.detail();
            }
            nodes.push(node);
            Continue(below)
        });
        Report { nodes: nodes.into() }
    }

    /// Returns the nodes. The first is the node on which the report was made.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.nodes
    }

    /// Returns the first node with this name.
    pub fn find(&self, name: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.name.as_deref() == Some(name))
    }

    /// Returns the number of nodes in this phase.
    pub fn count(&self, phase: Phase) -> usize {
        self.nodes.iter().filter(|node| node.phase == phase).count()
    }
}

/// Reports on one node, and returns the nodes below it.
fn node_report(node: &Arc<Node>, above: Option<usize>, depth: usize) -> (NodeReport, Vec<Arc<Node>>) {
    let now = node.spec.clock.now();
    let inner = node.lock();
    let times = inner.times;
    let (phase, since) = match (inner.own, inner.life) {
        (Own::GivenUp, _) => (Phase::GivenUp, times.done),
        (_, Life::Done) => (Phase::Done, times.done),
        (Own::Cancelled, _) => (Phase::Cancelled, times.told),
        (_, Life::Told) => (Phase::Told, times.told),
        (_, Life::Closing) => (Phase::Closing, times.asked),
        (_, Life::Open) => (Phase::Running, Some(node.made)),
    };
    let report = NodeReport {
        name: node.spec.name.clone(),
        kind: node.spec.kind,
        above,
        depth,
        phase,
        for_time: now.saturating_duration_since(since.unwrap_or(node.made)),
        ending_took: times
            .told
            .filter(|_| node.spec.kind == Kind::Job)
            .zip(times.done)
            .map(|(told, done)| done.saturating_duration_since(told)),
        error: inner.error.clone(),
        is_ready: inner.ready == Ready::Yes,
        count: inner.count,
        detail: None,
    };
    (report, inner.below())
}

impl NodeReport {
    /// Whether it was told to end and has not ended.
    fn was_told(&self) -> bool {
        matches!(self.phase, Phase::Told | Phase::Cancelled | Phase::GivenUp)
    }
}

/// The deepest indentation. A list that is indented further cannot be read.
const DEEPEST: usize = 32;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, node) in self.nodes.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{:indent$}{node}", "", indent = 2 * node.depth.min(DEEPEST))?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "({}): {} for {:?}", self.kind, self.phase, self.for_time)?;
        if let Some(took) = self.ending_took {
            write!(f, ", ended in {took:?}")?;
        }
        if self.count > 0 {
            write!(f, ", count {}", self.count)?;
        }
        if !self.is_ready {
            f.write_str(", not ready")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, ", {detail}")?;
        }
        match &self.error {
            Some(error) => write!(f, ", error: {error}"),
            None => Ok(()),
        }
    }
}

/// The error of a shutdown that has not succeeded.
///
/// Either the limit was over before everything was closed, or a job was given up, or the call did not wait. The
/// shutdown goes on by itself, and a later call may succeed.
///
/// The error reads `server: database: timeout expired`. It names the nodes that hang. The alternate form (`{:#}`)
/// appends the whole tree.
pub struct ShutdownTimeout {
    why: WaitError,
    // The names on the way to the node that waits for the calling thread, if there is one.
    inside: Option<Names>,
    open: Vec<OpenNode>,
    report: Report,
}

/// A node that was told to end and has not ended.
#[derive(Clone)]
pub struct OpenNode {
    // `names` collects the names on the way. In a chain in which all nodes hang, storing them here would take memory
    // in proportion to the square of its length.
    tree: Report,
    place: usize,
}

impl OpenNode {
    fn node(&self) -> &NodeReport {
        &self.tree.nodes[self.place]
    }

    /// Returns the names (annotations) on the way to the node, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let way = std::iter::successors(Some(self.node()), |node| self.tree.nodes.get(node.above?));
        let mut names: Vec<&str> = way.filter_map(|node| node.name.as_deref()).collect();
        names.reverse();
        names.into_iter()
    }

    /// Returns the kind of the node.
    pub fn kind(&self) -> Kind {
        self.node().kind
    }

    /// Returns what the node waits for, if it has a [description](super::ShutdownNodeBuilder::detail).
    pub fn detail(&self) -> Option<&str> {
        self.node().detail.as_deref()
    }

    /// Whether the shutdown has stopped waiting for the node.
    pub fn was_given_up(&self) -> bool {
        self.node().phase == Phase::GivenUp
    }
}

impl fmt::Debug for OpenNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenNode")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("kind", &self.kind())
            .field("was_given_up", &self.was_given_up())
            .field("detail", &self.detail())
            .finish()
    }
}

impl fmt::Display for OpenNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.names().try_for_each(|name| write!(f, "{name}: "))?;
        f.write_str("timeout expired")?;
        match self.detail() {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl ShutdownTimeout {
    pub(super) fn of(root: &Arc<Node>, why: WaitError, inside: Option<Names>) -> ShutdownTimeout {
        let report = Report::of(root);
        // The other nodes that were told wait for these.
        let hanging = report.nodes.iter().enumerate().filter(|(_, node)| node.kind == Kind::Job && node.was_told());
        let open = hanging.map(|(place, _)| OpenNode { tree: report.clone(), place }).collect();
        let why = if inside.is_some() { WaitError::Inside } else { why };
        ShutdownTimeout { why, inside, open, report }
    }

    /// Returns the jobs that were told to end and have not ended. Nodes that only wait for these jobs are left out.
    pub fn open(&self) -> &[OpenNode] {
        &self.open
    }

    /// Returns a report on the tree, made when the call ended.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns why the call has ended without success.
    ///
    /// If a job was given up, it is [`WaitError::TimedOut`], too. With [`WaitError::Inside`] and
    /// [`WaitError::InsideStep`] the call did not wait.
    pub fn why(&self) -> WaitError {
        self.why
    }

    /// Whether everything is closed except jobs that were given up.
    pub fn only_given_up(&self) -> bool {
        self.open().iter().all(OpenNode::was_given_up)
    }
}

/// The most nodes that an error names. It gives the number of the others.
const NAMED: usize = 8;

impl ShutdownTimeout {
    fn write_open(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open();
        for (number, node) in open.iter().take(NAMED).enumerate() {
            f.write_str(if number > 0 { "; " } else { "" })?;
            write!(f, "{node}")?;
        }
        match open.len() {
            0 => f.write_str("timeout expired"),
            all if all > NAMED => write!(f, "; and {} more", all - NAMED),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ShutdownTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inside {
            Some(names) => {
                write_names(f, names)?;
                f.write_str("called from inside, and would wait for its own caller")?;
            }
            None if self.why == WaitError::InsideStep => write!(f, "{}", self.why)?,
            None => self.write_open(f)?,
        }
        if f.alternate() {
            write!(f, "\n{}", self.report())?;
        }
        Ok(())
    }
}

impl fmt::Debug for ShutdownTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open();
        f.debug_struct("ShutdownTimeout")
            .field("open", &open.len())
            .field("first", &&open[..open.len().min(NAMED)])
            .finish_non_exhaustive()
    }
}

impl std::error::Error for ShutdownTimeout {}
