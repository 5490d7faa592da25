//! Values in the tree, found by typed keys.

use std::any::Any;
use std::fmt;

use crate::outcome::drop_contained;
use crate::primitives::Arc;

/// A key under which a value is found in the tree.
///
/// The type of the key decides the type of the value. So keys of different packages never collide, and every key can
/// be compared.
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

/// A key with its value.
pub(super) struct Stored(Option<Box<dyn Any + Send + Sync>>);

struct Pair<K: Key> {
    key: K,
    value: Arc<K::Value>,
}

impl Stored {
    pub(super) fn new<K: Key>(key: K, value: K::Value) -> Stored {
        Stored(Some(Box::new(Pair { key, value: Arc::new(value) })))
    }

    /// Returns the value, if it is under this key. Runs the key's `eq`, which is user code.
    pub(super) fn get<K: Key>(&self, key: &K) -> Option<Arc<K::Value>> {
        let pair: &Pair<K> = self.0.as_ref()?.downcast_ref()?;
        (pair.key == *key).then(|| pair.value.clone())
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        drop_contained(self.0.take());
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stored")
    }
}
