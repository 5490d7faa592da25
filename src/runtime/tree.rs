//! The end of a runtime as a shutdown tree, so that others can be ordered against it.
//!
//! The tree says the order, and shows how far the end has come; `owner.rs` does the work, and says of each part when it is
//! done. Whoever asks the tree to close has the runtime shut down, on a thread of its own, and a runtime that is shut down
//! otherwise closes its tree.

use std::fmt;

use super::dispatch::Core;
use super::report::ShutdownReport;
use crate::clock::Clock;
use crate::state::{JobTail, State};
use crate::sync::{Arc, AtomicBool, Ordering, Weak};

/// What the parts have to say.
pub(super) struct Tree {
    state: State,
    /// Somebody has had the state, and may have others told when it closes, with code of the user's.
    watched: AtomicBool,
    pub(super) processes: JobTail,
    pub(super) timers: JobTail,
    pub(super) pool: JobTail,
    pub(super) workers: JobTail,
}

impl Tree {
    /// Processes first, then the timers, then the pool, the workers last.
    pub(super) fn declare(core: &Arc<Core>) -> Tree {
        let clock = &core.road.clock;
        let weak = Arc::downgrade(core);
        let left = move || who_is_left(&weak);
        let (processes, processes_tail) = State::builder().name("processes").clock(clock.clone()).detail(left).job();
        let (timers, timers_tail) = part("timers", clock);
        let (pool, pool_tail) = part("pool", clock);
        let (workers, workers_tail) = part("workers", clock);
        let timers = timers.depends_on([processes]);
        let pool = pool.depends_on([timers]);
        let state = workers.depends_on([pool]).annotate("runtime");
        let watched = AtomicBool::new(false);
        Tree { state, watched, processes: processes_tail, timers: timers_tail, pool: pool_tail, workers: workers_tail }
    }

    /// The state, for somebody else.
    pub(super) fn state(&self) -> State {
        // Ordering: Relaxed: who has the state later than the shutdown looks finds it as it is then.
        self.watched.store(true, Ordering::Relaxed);
        self.state.clone()
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// The end of the end.
    pub(super) fn over(&self, report: &ShutdownReport) {
        if !report.is_clean() {
            self.processes.fail(UncleanShutdown { report: report.clone() });
        }
        self.workers.done();
    }
}

fn part(name: &str, clock: &Clock) -> (State, JobTail) {
    State::builder().name(name).clock(clock.clone()).job()
}

/// So many are named.
const NAMED: usize = 8;

/// Who keeps a shutdown from ending.
fn who_is_left(core: &Weak<Core>) -> Option<String> {
    let left = core.upgrade()?.processes();
    let mut text = match left.len() {
        0 => return None,
        1 => String::from("1 process is left"),
        many => format!("{many} processes are left"),
    };
    for (number, process) in left.iter().take(NAMED).enumerate() {
        text += if number == 0 { ": " } else { ", " };
        text += &format!("{} {} ({})", process.pid, process.type_name, process.state);
    }
    if left.len() > NAMED {
        text += ", and others";
    }
    Some(text)
}

/// A runtime was shut down through its [state](crate::Runtime::shutdown_state), or otherwise, and something had to be forced
/// or is left. It is the error of that state.
#[derive(Clone, Debug)]
pub struct UncleanShutdown {
    report: ShutdownReport,
}

impl UncleanShutdown {
    /// What was forced, and what is left.
    pub fn report(&self) -> &ShutdownReport {
        &self.report
    }
}

impl fmt::Display for UncleanShutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runtime did not end in order: {}", self.report)
    }
}

impl std::error::Error for UncleanShutdown {}
