//! The handle of a state, and how a user's type carries one.

use std::fmt;

use super::node::Node;
use crate::sync::Arc;

/// A node of the shutdown tree, with all below it. Clones are the same node.
///
/// Dropping a state does not shut it down: a tree that nobody holds any more goes on as long as its jobs want to. Once it was
/// asked to close, it does so to its end, whether somebody holds it or not.
///
/// The module's page ([`state`](crate::state)) has the whole story.
#[derive(Clone)]
pub struct State {
    node: Arc<Node>,
}

impl State {
    pub(super) fn of(node: Arc<Node>) -> State {
        State { node }
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The name (or annotation) of this node itself.
    pub fn name(&self) -> Option<&str> {
        self.node.face.name.as_deref()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = self.node.lock().life;
        f.debug_struct("State")
            .field("kind", &self.node.kind())
            .field("name", &self.name())
            .field("life", &life)
            .finish_non_exhaustive()
    }
}

/// A type that carries a state: a server with its background job, say.
///
/// ```
/// use procession::State;
/// use procession::state::AsState;
///
/// struct Server { state: State }
///
/// impl AsState for Server {
///     fn state(&self) -> &State {
///         &self.state
///     }
/// }
///
/// let (database, server) = (Server { state: State::empty() }, Server { state: State::empty() });
/// let all = server.state().depends_on([database.to_state()]);
/// all.shutdown(None).unwrap();
/// ```
pub trait AsState {
    /// The state.
    fn state(&self) -> &State;

    /// The state, to be given away.
    fn to_state(&self) -> State {
        self.state().clone()
    }
}

impl AsState for State {
    fn state(&self) -> &State {
        self
    }
}
