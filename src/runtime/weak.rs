//! A handle that does not keep its runtime alive.

use std::fmt;

use super::handle::Handle;
use super::system::{Owner, Runtime};
use crate::primitives::{Arc, Weak};

use crate::{Process, Rejected, SpawnError, SpawnOptions};

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

    /// Spawns a process, if the runtime is alive. See [`Runtime::spawn`].
    ///
    /// A task that spawns a process for each connection should hold a `WeakRuntime`. A `Runtime` that the task holds
    /// while it waits would keep the runtime alive.
    ///
    /// # Errors
    /// The errors of [`Runtime::spawn`]. If the runtime has ended, the error is [`SpawnError::ShuttingDown`].
    pub fn spawn<P: Process>(&self, process: P) -> Result<Handle<P>, Rejected<P, SpawnError>> {
        self.spawn_with(process, SpawnOptions::new())
    }

    /// Spawns a process with options, if the runtime is alive. See [`Runtime::spawn_with`].
    ///
    /// # Errors
    /// The errors of [`Runtime::spawn_with`]. If the runtime has ended, the error is [`SpawnError::ShuttingDown`].
    pub fn spawn_with<P: Process>(
        &self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Handle<P>, Rejected<P, SpawnError>> {
        match self.upgrade() {
            Some(runtime) => runtime.spawn_with(process, options),
            None => Err(Rejected::new(process, SpawnError::ShuttingDown)),
        }
    }
}

impl fmt::Debug for WeakRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakRuntime").field("is_alive", &(self.owner.strong_count() > 0)).finish()
    }
}
