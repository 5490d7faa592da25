//! What of the library's own stands in a tree: a pool, a scheduler of tasks, a loop. (A runtime is several nodes, and has them
//! from the start: `src/runtime/tree.rs`.)
//!
//! Each has a [`Part`], which is empty until the node is asked for. Then it is a job whose end signal has the owner
//! ended, and which is done when the owner is over, however that came about. There is no thread for it.
//!
//! **Nothing is lost**, although no thread holds two locks. The thread that asks for the node makes it and *then* looks whether the
//! owner is over; who makes the owner over does that under the owner's lock and *then* looks whether there is a node. The one
//! look that comes later sees what the other one has done. Both may, and then it is said twice, which changes nothing. Who
//! waits for the end of the owner says it as well, so that the state is closed when the wait returns.

use std::time::Duration;

use super::cascade;
use super::guards::JobGuard;
use super::node::{Notice, ShutdownNode};
use crate::cancel::CancelCallback;
use crate::clock::Clock;
use crate::outcome::Failure;
use crate::primitives::OnceLock;

/// The place of one of the library's own in a tree.
pub(crate) struct Part {
    limit: Option<Duration>,
    standing: OnceLock<Standing>,
}

struct Standing {
    node: ShutdownNode,
    tail: JobGuard,
    _asked: [Option<CancelCallback>; 2],
}

/// What a part has to say for itself.
pub(crate) struct Role<'a> {
    pub(crate) name: &'a str,
    pub(crate) clock: &'a Clock,
    /// What it waits for, in a few words.
    pub(crate) detail: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Whether the calling thread is one that it waits for.
    pub(crate) inside: Box<dyn Fn() -> bool + Send + Sync>,
    /// Called when it should end. It must not block, and run no code of the user's.
    pub(crate) end: Box<dyn FnOnce() + Send>,
    /// Called when its limit is over, if it has one, for which the same holds; and how long after that it is not waited for
    /// any longer. Without this, it is not from the limit on.
    pub(crate) cancel: Option<(Box<dyn FnOnce() + Send>, Duration)>,
    /// What it stands on, and what closes after it.
    pub(crate) on: Option<ShutdownNode>,
}

impl Part {
    /// The part of an owner that has this limit to end when it is told to.
    pub(crate) fn new(limit: Option<Duration>) -> Part {
        Part { limit, standing: OnceLock::new() }
    }

    /// The state, always the same. Afterwards it is to be said whether the owner is over.
    pub(crate) fn state<'a>(&self, role: impl FnOnce() -> Role<'a>) -> ShutdownNode {
        self.standing.get_or_init(|| Standing::new(role(), self.limit)).node.clone()
    }

    pub(crate) fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether the node has been asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.standing.get().is_some()
    }

    /// The owner is over, with this error. Callbacks of those above it are called by this thread.
    pub(crate) fn over(&self, error: Option<Failure>) {
        if let Some(standing) = self.standing.get() {
            standing.tail.over(error);
        }
    }

    /// The same, but callbacks are not called. Returns them, to be called by another thread, if there are any.
    pub(crate) fn over_apart(&self, error: Option<Failure>) -> Option<impl FnOnce() + Send + 'static> {
        let standing = self.standing.get()?;
        let notices = cascade::keep_back(|| standing.tail.over(error));
        (!notices.is_empty()).then_some(move || notices.iter().for_each(Notice::give))
    }
}

impl Standing {
    fn new(role: Role<'_>, limit: Option<Duration>) -> Standing {
        let Role { name, clock, detail, inside, end, cancel, on } = role;
        let mut builder = ShutdownNode::builder().name(name).clock(clock.clone()).detail(detail).inside(inside);
        // Without a limit it would never be called.
        let cancel = cancel.filter(|_| limit.is_some());
        if let Some(limit) = limit {
            builder = match &cancel {
                Some((_, grace)) => builder.cancel_after(limit).give_up_after(limit.saturating_add(*grace)),
                None => builder.give_up_after(limit),
            };
        }
        let (part, tail) = builder.job();
        let ends = tail.end().on_cancel(move |_| end());
        let cancels = cancel.map(|(cancel, _)| tail.cancel().on_cancel(move |_| cancel()));
        let node = match on {
            Some(on) => on.depends_on([part]),
            None => part,
        };
        Standing { node, tail, _asked: [Some(ends), cancels] }
    }
}
