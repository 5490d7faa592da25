//! Values in the tree, found by typed keys.

use std::any::Any;

use crate::primitives::Arc;

/// A key under which [`ShutdownNode::get`](super::ShutdownNode::get) finds a value in the tree.
///
/// The type of the key decides the type of the value. Keys of different types are never equal. So the keys of different
/// packages do not collide.
///
/// ```
/// use procession::ShutdownNode;
/// use procession::shutdown::Key;
///
/// #[derive(PartialEq, Eq)]
/// struct Port(&'static str);
///
/// impl Key for Port {
///     type Value = u16;
/// }
///
/// let server = ShutdownNode::value(Port("http"), 8080, []);
/// let all = ShutdownNode::merge([ShutdownNode::empty(), server]);
/// assert_eq!(all.get(&Port("http")).as_deref(), Some(&8080));
/// assert_eq!(all.get(&Port("ssh")), None);
/// ```
pub trait Key: Eq + Send + Sync + 'static {
    /// The type of the values under keys of this type.
    type Value: Send + Sync + 'static;
}

/// A key with its value: a [`Pair`].
pub(super) type Stored = Box<dyn Any + Send + Sync>;

pub(super) struct Pair<K: Key> {
    pub(super) key: K,
    pub(super) value: Arc<K::Value>,
}
