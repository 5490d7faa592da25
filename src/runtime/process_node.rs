//! A process as a node of a shutdown tree.
//!
//! The node is a job. Its end signal is a request to stop, and it is done when the process has ended. It needs no
//! thread. The process keeps the node, and the node keeps neither the process nor the runtime.

use super::access::WeakAccess;
use super::report::in_words;
use crate::cancel::CancelCallback;
use crate::clock::Clock;
use crate::outcome::{Exit, ExitError, Failure, Reason};
use crate::process::Pid;
use crate::shutdown::{JobGuard, ShutdownNode};

/// The process's side of its node. The thread that ends the process closes the node with it.
pub(super) struct ProcessJob {
    guard: JobGuard,
    _asked: CancelCallback,
}

/// Makes the node of a process, and the other side of it.
pub(super) fn node_of(pid: Pid, access: &WeakAccess) -> (ShutdownNode, ProcessJob) {
    let known = access.get().ok();
    let name = known.as_ref().and_then(|access| access.core.info_at(&pid)?.name);
    let clock = known.map_or_else(Clock::system, |access| access.core.road.clock.clone());
    let (describes, cancels) = (access.clone(), access.clone());
    let (node, guard) = ShutdownNode::builder()
        .name(name.map_or_else(|| pid.to_string(), |name| String::from(&*name)))
        .clock(clock)
        .detail(move || describes.get().ok()?.core.info_at(&pid).as_ref().map(in_words))
        .job();
    let asked = guard.end().on_cancel(move |_| {
        if let Ok(access) = cancels.get() {
            // If it has ended, the node is about to close.
            let _ = access.core.cancel_at(&pid, Reason::Shutdown, None);
        }
    });
    (node, ProcessJob { guard, _asked: asked })
}

impl ProcessJob {
    /// Closes the node, because the process has ended. An exit other than [`Exit::Done`] is the error of the node.
    pub(super) fn close<T>(&self, exit: &Exit<T>) {
        self.guard.over(match exit {
            Exit::Done(_) => None,
            Exit::Failed(failure) => Some(failure.clone()),
            Exit::Panicked(panic) => Some(Failure::new(ExitError::Panicked(panic.clone()))),
            Exit::Terminated(reason) => Some(Failure::new(ExitError::Terminated(reason.clone()))),
        });
    }
}
