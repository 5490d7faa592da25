//! Watching the end of a process from outside.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::dispatch::Core;
use super::system::Runtime;
use crate::inside::WaitError;
use crate::latch::{Latch, LatchFuture};
use crate::primitives::{Arc, Weak};
use crate::process::{Down, Monitor, Pid, Target};
use crate::sched::body::Host;

/// Waits from outside for the end of a process. The process may have been spawned from outside or by a step. The
/// watcher is also a `Future` of the [`Down`].
///
/// If the watcher is dropped before the process ends, the runtime keeps nothing of it. When the runtime has ended, the
/// process has ended, too.
pub struct ExitWatcher {
    monitor: Monitor,
    core: Weak<Core>,
    down: LatchFuture<Down>,
    clock: crate::clock::Clock,
}

impl Runtime {
    /// Watches a process. The watcher gets the [`Down`] when the process has ended. If there is no such process, the
    /// watcher gets one with [`Reason::NoSuchProcess`](crate::Reason::NoSuchProcess) at once.
    ///
    /// If no process has the name, or the group has no members, the PID of the watcher is one that no process has.
    pub fn watch(&self, target: impl Target) -> ExitWatcher {
        let core = self.core();
        let pid = core.resolve(&target).unwrap_or_else(|_| core.nobody());
        let numbers = core.monitor_numbers();
        let monitor = Monitor::new(numbers.start, pid);
        let down = Latch::new();
        let told = core.relations.watch(&*core.road, monitor, down.clone());
        core.told(told, &mut core.executor());
        ExitWatcher {
            monitor,
            core: Arc::downgrade(core),
            down: LatchFuture::new(down),
            clock: core.road.clock.clone(),
        }
    }
}

impl ExitWatcher {
    /// The process that is watched.
    pub fn pid(&self) -> Pid {
        self.monitor.pid()
    }

    /// The [`Down`] of the process. `None` if the process has not ended.
    pub fn down(&self) -> Option<Down> {
        self.down.latch().get()
    }

    /// Blocks the calling thread until the process has ended.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]).
    pub fn wait(&self) -> Result<Down, WaitError> {
        self.wait_timeout(Duration::MAX)
    }

    /// Like [`wait`](Self::wait), but waits no longer than `limit` by the runtime's clock.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait), or [`WaitError::TimedOut`] if the limit was over first.
    pub fn wait_timeout(&self, limit: Duration) -> Result<Down, WaitError> {
        self.down.latch().join(&self.clock, limit)
    }
}

impl Future for ExitWatcher {
    type Output = Down;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Down> {
        Pin::new(&mut self.down).poll(cx)
    }
}

impl Drop for ExitWatcher {
    fn drop(&mut self) {
        if !self.down.latch().is_set()
            && let Some(core) = self.core.upgrade()
        {
            core.relations.unwatch(self.monitor);
        }
    }
}

impl fmt::Debug for ExitWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExitWatcher").field("pid", &self.pid()).field("over", &self.down.latch().is_set()).finish()
    }
}
