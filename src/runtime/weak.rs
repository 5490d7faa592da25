//! A handle that does not keep its runtime alive.

use std::fmt;

use super::system::{Owner, Runtime};
use crate::primitives::{Arc, Weak};

/// A handle that does not keep its runtime alive, made with [`Runtime::downgrade`].
///
/// ```
/// use procession::Runtime;
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let weak = runtime.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(runtime);
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WeakRuntime {
    owner: Weak<Owner>,
}

impl Runtime {
    /// Returns a handle that does not keep this runtime alive.
    ///
    /// To reach one process, use a [`ProcessRef`](crate::ProcessRef) instead: its calls never own the runtime.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime { owner: Arc::downgrade(&self.owner) }
    }
}

impl WeakRuntime {
    /// Returns a handle of the runtime. `None` if the last handle was dropped.
    ///
    /// The returned handle keeps the runtime alive. If it is the last one when it is dropped, its drop shuts the
    /// runtime down.
    pub fn upgrade(&self) -> Option<Runtime> {
        Some(Runtime { owner: self.owner.upgrade()? })
    }
}

impl fmt::Debug for WeakRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakRuntime").field("is_alive", &(self.owner.strong_count() > 0)).finish()
    }
}
