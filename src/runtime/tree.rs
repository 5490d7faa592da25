//! The shutdown tree of a runtime. Other nodes can be ordered against it.
//!
//! [`Tree::declare`] sets the order of the parts. The tree shows which parts have ended, and notifies the nodes above
//! the runtime. `shutdown.rs` does the work, and reports each part to the tree when it has ended. A request to the
//! tree shuts the runtime down, on a helper thread. If the runtime is shut down in another way, it closes its tree.
//!
//! The end of one node does not start the next stage, for three reasons. The stages share one limit, and each stage
//! has the rest of it. A stage may give work back to an earlier one: processes that waited for a thread of the pool go
//! to the workers again, to be ended. All stages write to one report.

use super::dispatch::Core;
use super::report::{ShutdownReport, in_words};
use crate::clock::Clock;
use crate::outcome::Failure;
use crate::primitives::{Arc, Weak};
use crate::shutdown::{JobGuard, ShutdownNode, ShutdownNodeBuilder, describe_left};

/// The nodes of the parts of a shutdown.
pub(super) struct Tree {
    state: ShutdownNode,
    pub(super) processes: JobGuard,
    timers: JobGuard,
    pool: JobGuard,
    workers: JobGuard,
}

impl Tree {
    /// Declares the parts. The processes end first, then the timers, then the pool, and the workers last. `inside`
    /// returns whether the calling thread works for the runtime. `workers` returns how many workers have not exited.
    pub(super) fn declare(
        core: &Arc<Core>,
        inside: impl Fn() -> bool + Send + Sync + 'static,
        workers: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Tree {
        let clock = &core.road.clock;
        let (lives, works) = (Arc::downgrade(core), Arc::downgrade(core));
        let (processes, processes_tail) = part("processes", clock).detail(move || describe_processes(&lives)).job();
        let (timers, timers_tail) = part("timers", clock).job();
        let (pool, pool_tail) = part("pool", clock).detail(move || works.upgrade()?.pool.describe_jobs()).job();
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

    /// Reports that this many of the first three parts have ended.
    pub(super) fn parts_over(&self, count: usize) {
        [&self.processes, &self.timers, &self.pool].into_iter().take(count).for_each(|part| part.over(None));
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

/// Describes the processes that have not ended.
fn describe_processes(core: &Weak<Core>) -> Option<String> {
    let left = core.upgrade()?.processes();
    describe_left(&left, "process is left", "processes are left", in_words)
}

/// The error of a runtime's [shutdown node](crate::Runtime::shutdown_node) after an unclean shutdown. The
/// [report](Self::report) says what was forced and what is left.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the runtime did not end in order: {report}")]
pub struct UncleanShutdown {
    report: ShutdownReport,
}

impl UncleanShutdown {
    /// The report of the shutdown. It is not [clean](ShutdownReport::is_clean).
    pub fn report(&self) -> &ShutdownReport {
        &self.report
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use std::time::Duration;

    #[test]
    fn a_node_of_workers_that_have_all_left_names_no_number() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let tree = Tree::declare(runtime.core(), || false, || 0);
        [&tree.processes, &tree.timers, &tree.pool].into_iter().for_each(|part| part.over(None));
        let error = tree.shutdown_node().shutdown_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "runtime: workers: timeout expired");
        tree.workers.over(None);
        tree.shutdown_node().shutdown_timeout(Duration::ZERO).unwrap();
    }
}
