//! Watching the end of a process from outside.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::access::WeakAccess;
use super::dispatch::Core;
use crate::clock::Clock;
use crate::inside::WaitError;
use crate::latch::{Latch, LatchFuture};
use crate::primitives::Weak;
use crate::process::{Down, Monitor, Named, Pid, Target};
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
    clock: Clock,
}

impl Core {
    /// Watches the process at a target from outside.
    pub(crate) fn watch(&self, target: &impl Target) -> ExitWatcher {
        let pid = self.resolve(target).unwrap_or_else(|_| self.nobody());
        let numbers = self.monitor_numbers();
        let monitor = Monitor::new(numbers.start, pid);
        let down = Latch::new();
        let told = self.relations.watch(&*self.road, monitor, down.clone());
        self.told(told, &mut self.executor());
        ExitWatcher { monitor, core: self.me.clone(), down: LatchFuture::new(down), clock: self.road.clock.clone() }
    }
}

impl WeakAccess {
    /// Watches the process at a target. If the runtime has ended, so has the process.
    pub(super) fn watch(&self, target: &impl Target) -> ExitWatcher {
        if let Ok(access) = self.get() {
            return access.core.watch(target);
        }
        let pid = match target.named() {
            Named::Process(pid) => pid,
            _ => Pid::nobody(0).unwrap_or(Pid::FIRST),
        };
        let (monitor, down) = (Monitor::new(0, pid), Latch::new());
        let _ = down.set(Down::nobody(monitor));
        ExitWatcher { monitor, core: Weak::new(), down: LatchFuture::new(down), clock: Clock::system() }
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

    /// Is set with the [`Down`].
    #[cfg(feature = "cluster")]
    pub(crate) fn latch(&self) -> &Latch<Down> {
        self.down.latch()
    }

    /// Calls `callback` with the [`Down`]. The watcher lives until then.
    pub(super) fn on_down(self, callback: impl FnOnce(&Down) + Send + 'static) {
        let down = self.down.latch().clone();
        let called = move |down: &Down| {
            callback(down);
            drop(self);
        };
        down.on_set(called).keep();
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
            core.relations.unwatch(&*core.road, self.monitor);
        }
    }
}

impl fmt::Debug for ExitWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExitWatcher").field("pid", &self.pid()).field("over", &self.down.latch().is_set()).finish()
    }
}
