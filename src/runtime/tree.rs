//! The end of a runtime as a shutdown tree. So other nodes can be ordered against it.
//!
//! [`Tree::declare`] has the order. The tree shows how far the end has come, and tells the nodes above the runtime.
//! `shutdown.rs` does the work, and reports each part when it is done. A request to the tree shuts the runtime down,
//! on a thread of its own. A runtime that is shut down otherwise closes its tree.
//!
//! The end does not run *through* the nodes, with each stage started by the one before it. The stages share one
//! limit: the next one has the rest of it. A stage may give work back to an earlier one: steps that waited for the
//! pool go to the workers again, to be ended. One report counts what all stages have left.

use super::dispatch::Core;
use super::report::{ShutdownReport, in_words};
use crate::clock::Clock;
use crate::outcome::Failure;
use crate::primitives::{Arc, Weak};
use crate::shutdown::{JobGuard, ShutdownNode, ShutdownNodeBuilder};

/// The parts of the end.
pub(super) struct Tree {
    state: ShutdownNode,
    pub(super) processes: JobGuard,
    pub(super) timers: JobGuard,
    pub(super) pool: JobGuard,
    workers: JobGuard,
}

impl Tree {
    /// Declares the parts: processes first, then the timers, then the pool, the workers last. `inside` says whether
    /// the calling thread works for the runtime. `workers` says how many workers have not exited.
    pub(super) fn declare(
        core: &Arc<Core>,
        inside: impl Fn() -> bool + Send + Sync + 'static,
        workers: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Tree {
        let clock = &core.road.clock;
        let (lives, works) = (Arc::downgrade(core), Arc::downgrade(core));
        let (processes, processes_tail) = part("processes", clock).detail(move || who_is_left(&lives)).job();
        let (timers, timers_tail) = part("timers", clock).job();
        let (pool, pool_tail) = part("pool", clock).detail(move || works.upgrade()?.pool.who_is_left()).job();
        let steps = move || Some(workers()).filter(|left| *left > 0).map(|left| format!("{left} have not left"));
        let (workers, workers_tail) = part("workers", clock).detail(steps).inside(inside).job();

        let timers = timers.depends_on([processes]);
        let pool = pool.depends_on([timers]);
        let state = workers.depends_on([pool]).annotate("runtime");
        Tree { state, processes: processes_tail, timers: timers_tail, pool: pool_tail, workers: workers_tail }
    }

    /// The node above all parts.
    pub(super) fn shutdown_node(&self) -> ShutdownNode {
        self.state.clone()
    }

    /// Reports to the tree that all parts have ended.
    pub(super) fn over(&self, report: &ShutdownReport) {
        let unclean = !report.is_clean();
        self.processes.over(unclean.then(|| Failure::new(UncleanShutdown { report: report.clone() })));
        self.timers.over(None);
        self.pool.over(None);
        self.workers.over(None);
    }
}

fn part(name: &str, clock: &Clock) -> ShutdownNodeBuilder {
    ShutdownNode::builder().name(name).clock(clock.clone())
}

/// The most processes that a detail names. The text says that there are others.
const NAMED: usize = 8;

/// The processes that keep a shutdown from ending.
fn who_is_left(core: &Weak<Core>) -> Option<String> {
    let left = core.upgrade()?.processes();
    let mut text = match left.len() {
        0 => return None,
        1 => String::from("1 process is left"),
        many => format!("{many} processes are left"),
    };
    for (number, process) in left.iter().take(NAMED).enumerate() {
        text += if number == 0 { ": " } else { ", " };
        text += &in_words(process);
    }
    if left.len() > NAMED {
        text += ", and others";
    }
    Some(text)
}

/// The error of a runtime's [shutdown node](crate::Runtime::shutdown_node) if the runtime did not end in order.
/// Something had to be forced, or is left, however the runtime was shut down.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the runtime did not end in order: {report}")]
pub struct UncleanShutdown {
    report: ShutdownReport,
}

impl UncleanShutdown {
    /// The report, which lists everything that was forced or is left.
    pub fn report(&self) -> &ShutdownReport {
        &self.report
    }
}
