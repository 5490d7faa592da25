//! Parts of the library as nodes of a tree: a pool, a task scheduler, a loop. (A runtime has several nodes:
//! `src/runtime/tree.rs`.)
//!
//! Each owner has a [`Part`]. It is empty until the node is requested. Then it is a job. Its end signal makes the
//! owner end. The job is done when the owner has finished, for any reason. It needs no thread.
//!
//! **Nothing is lost**, although no thread holds two locks. The thread that requests the node makes it, and *then*
//! looks whether the owner has finished. The thread that finishes the owner does so under the owner's lock, and
//! *then* looks whether there is a node. The later look sees the other thread's change. Both threads may see it. Then
//! the node is marked as done twice, which changes nothing. A thread that waits for the end of the owner marks it as
//! well, or waits for the mark (a pool), so the node is closed when the wait returns.

use std::time::Duration;

use super::guards::JobGuard;
use super::node::ShutdownNode;
use crate::cancel::CancelCallback;
use crate::clock::Clock;
use crate::outcome::Failure;
use crate::primitives::OnceLock;

/// The place of a pool, task scheduler or loop in a tree.
pub(crate) struct Part {
    limit: Option<Duration>,
    standing: OnceLock<Standing>,
}

struct Standing {
    node: ShutdownNode,
    tail: JobGuard,
    _asked: [Option<CancelCallback>; 2],
}

/// The number of items that a detail names. It is enough to find the cause, and short enough for a log line.
const NAMED: usize = 8;

/// Describes what is left of a part, for its detail. The text names the first items.
pub(crate) fn describe_left<T>(left: &[T], one: &str, many: &str, describe: impl Fn(&T) -> String) -> Option<String> {
    let named = left.iter().take(NAMED).map(describe).collect::<Vec<_>>().join("; ");
    let others = if left.len() > NAMED { "; and others" } else { "" };
    match left.len() {
        0 => None,
        1 => Some(format!("1 {one}: {named}")),
        count => Some(format!("{count} {many}: {named}{others}")),
    }
}

/// The functions and options of a part.
pub(crate) struct Role<'a> {
    pub(crate) name: &'a str,
    pub(crate) clock: &'a Clock,
    /// Describes in a few words what the part waits for.
    pub(crate) detail: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Whether the part waits for the calling thread.
    pub(crate) inside: Box<dyn Fn() -> bool + Send + Sync>,
    /// Called when the owner should end. It must not block, and must not run user code.
    pub(crate) end: Box<dyn FnOnce() + Send>,
    /// The function to call when the part's limit is over, and a second limit.
    ///
    /// When the second limit is over, too, the part is given up. The function must not block, and must not run user
    /// code. Without it, the part is given up when its own limit is over.
    pub(crate) cancel: Option<(Box<dyn FnOnce() + Send>, Duration)>,
    /// The node that this one depends on, which closes after it.
    pub(crate) on: Option<ShutdownNode>,
}

impl Part {
    /// Makes the part of an owner that must end within this limit.
    pub(crate) fn new(limit: Option<Duration>) -> Part {
        Part { limit, standing: OnceLock::new() }
    }

    /// Returns the node, always the same. Afterwards the caller must report if the owner has finished.
    pub(crate) fn state<'a>(&self, role: impl FnOnce() -> Role<'a>) -> ShutdownNode {
        self.standing.get_or_init(|| Standing::new(role(), self.limit)).node.clone()
    }

    pub(crate) fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether the node has been requested.
    pub(crate) fn is_wanted(&self) -> bool {
        self.standing.get().is_some()
    }

    /// Reports that the owner has finished, with this error. This thread calls the callbacks of the nodes above.
    pub(crate) fn over(&self, error: Option<Failure>) {
        if let Some(standing) = self.standing.get() {
            standing.tail.over(error);
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_text_about_what_is_left_counts_all_and_names_the_first() {
        let text = |left: usize| {
            let left: Vec<usize> = (1..=left).collect();
            describe_left(&left, "job is left", "jobs are left", |job| format!("#{job}"))
        };
        assert_eq!(text(0), None);
        assert_eq!(text(1).unwrap(), "1 job is left: #1");
        assert_eq!(text(2).unwrap(), "2 jobs are left: #1; #2");
        let eight = "#1; #2; #3; #4; #5; #6; #7; #8";
        assert_eq!(text(8).unwrap(), format!("8 jobs are left: {eight}"));
        assert_eq!(text(9).unwrap(), format!("9 jobs are left: {eight}; and others"));
    }
}
