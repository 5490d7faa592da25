//! The handle of a state, and how a user's type carries one.

use std::fmt;

use super::node::Node;
use crate::sync::Arc;

/// A node of the shutdown tree, with all below it. Clones are the same node.
///
/// Dropping a state does not shut it down: a tree that nobody holds any more goes on as long as its jobs want to. Once it was
/// asked to close, it does so to its end, whether somebody holds it or not.
///
/// The module's page ([`state`](crate::shutdown)) has the whole story.
#[derive(Clone)]
pub struct ShutdownNode {
    node: Arc<Node>,
}

impl ShutdownNode {
    pub(super) fn of(node: Arc<Node>) -> ShutdownNode {
        ShutdownNode { node }
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The name (or annotation) of this node itself.
    pub fn name(&self) -> Option<&str> {
        self.node.face.name.as_deref()
    }
}

impl fmt::Debug for ShutdownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = self.node.lock().life;
        f.debug_struct("ShutdownNode")
            .field("kind", &self.node.kind())
            .field("name", &self.name())
            .field("life", &life)
            .finish_non_exhaustive()
    }
}

/// A type that carries a state: a server with its background job, say.
///
/// ```
/// use procession::ShutdownNode;
/// use procession::shutdown::AsState;
///
/// struct Server { state: ShutdownNode }
///
/// impl AsState for Server {
///     fn state(&self) -> &ShutdownNode {
///         &self.state
///     }
/// }
///
/// let (database, server) = (Server { state: ShutdownNode::empty() }, Server { state: ShutdownNode::empty() });
/// let all = server.state().depends_on([database.to_shutdown_node()]);
/// all.shutdown(None).unwrap();
/// ```
pub trait AsState {
    /// The state.
    fn state(&self) -> &ShutdownNode;

    /// The state, to be given away.
    fn to_shutdown_node(&self) -> ShutdownNode {
        self.state().clone()
    }
}

impl AsState for ShutdownNode {
    fn state(&self) -> &ShutdownNode {
        self
    }
}
