//! The world of one run, as a scenario uses it.

use std::time::Duration;

use super::decision::{Choose as _, Odds, Place};
use super::failure::Failure;
use super::host::WorldHost;
use super::shared::Shared;
use super::state::WorldState;
use super::trace_observer::TraceObserver;
use crate::clock::{Clock, Deadline, Drive as _};
use crate::outcome::BoxError;
use crate::primitives::Arc;
use crate::runtime::{BuildError, Runtime, RuntimeBuilder};

/// The world of one run of a [`Simulation`](super::Simulation): its runtimes, its time, its invariants.
///
/// A scenario is given a new world for each run. It starts its runtimes in it, with the program's own start-up code.
pub struct World {
    pub(super) shared: Arc<Shared>,
    seed: u64,
    pub(super) runtimes: std::cell::RefCell<Vec<Runtime>>,
    /// The number of runtimes that were started, also of programs that were killed.
    started: std::cell::Cell<u32>,
}

impl World {
    pub(super) fn new(shared: Arc<Shared>, seed: u64) -> World {
        World { shared, seed, runtimes: std::cell::RefCell::default(), started: std::cell::Cell::new(0) }
    }

    /// Starts a runtime in this world. It is a [`Runtime`] like any other, and has no threads.
    ///
    /// The world decides when its processes are stepped, when its timers fire, and when its blocking closures run. Its
    /// clock, its seed and its node are those of the world. If the builder has a node or a seed, that one counts. The
    /// number of workers and a watchdog do not count.
    ///
    /// The world has a handle of its own. So the drop of the program's last handle does not end the runtime. It ends
    /// with the run, or by a call of [`Runtime::shutdown`].
    ///
    /// # Errors
    /// The errors of [`RuntimeBuilder::start`].
    pub fn start(&self, builder: RuntimeBuilder) -> Result<Runtime, BuildError> {
        let number = self.runtimes.borrow().len();
        let host = Arc::new(WorldHost { shared: Arc::downgrade(&self.shared), runtime: number });
        let nth = self.started.get();
        self.started.set(nth + 1);
        let seed = self.seed.wrapping_add(u64::from(nth) << 48);
        let formatter = self.shared.state().recorder.formatter();
        let builder = match formatter {
            Some(formatter) => {
                builder.wrap_observer(|program| Arc::new(TraceObserver::new(&self.shared, formatter, program)))
            }
            None => builder,
        };
        #[cfg(feature = "cluster")]
        let first = self.shared.clock.next_watcher();
        let (runtime, core) = builder.start_simulated(host, self.clock(), (nth + 1, seed))?;
        self.shared.add(core);
        #[cfg(feature = "cluster")]
        self.shared.state().timers.push(first..self.shared.clock.next_watcher());
        self.runtimes.borrow_mut().push(runtime.clone());
        Ok(runtime)
    }

    /// Runs until the world rests: no process is ready, no blocking closure is open, and no timer is set.
    ///
    /// # Errors
    /// The run has failed. The error is for the `?` of the scenario. The simulation reports the failure itself.
    pub fn run(&self) -> Result<(), BoxError> {
        self.shared.drive_to_rest();
        self.result()
    }

    /// As [`run`](Self::run), but for this virtual time at most. Afterwards the clock stands at its end, also if the
    /// world rests before. If no clock can show the end, this is [`run`](Self::run).
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn run_for(&self, time: Duration) -> Result<(), BoxError> {
        let deadline = self.clock().deadline(time);
        if deadline == Deadline::NEVER {
            return self.run();
        }
        self.shared.drive(&mut || false, deadline);
        self.result()
    }

    fn result(&self) -> Result<(), BoxError> {
        let found = self.shared.state().failure.as_ref().map(Failure::finding);
        found.map_or(Ok(()), |found| Err(found.to_string().into()))
    }

    /// Adds an invariant, which is checked after every turn. If it returns an error, the run fails. The report has the
    /// name of the invariant.
    ///
    /// Other processes may have turns during a step: between two of its yields, or while it waits. After such a turn,
    /// no invariant is checked, because the state of the process being stepped cannot be seen.
    ///
    /// An invariant sees the whole state, and changes nothing: a run with invariants is the same run as without.
    pub fn invariant(
        &self,
        name: impl Into<String>,
        invariant: impl FnMut(&WorldState<'_>) -> Result<(), String> + Send + 'static,
    ) {
        self.shared.state().invariants.add_invariant(name.into(), Box::new(invariant));
    }

    /// Fails the run if `condition` does not hold at least once within this virtual time after the last fault. The time
    /// begins with this call if there is no later fault. If a fault takes time, the time begins with the end of the
    /// fault. The crash of a node is a fault, also if the scenario calls it.
    ///
    /// The condition is checked after each turn, when its time is over, and at the end of the run. If the run ends
    /// before the time is over, and the world does not rest, the condition does not fail the run.
    pub fn eventually(
        &self,
        what: impl Into<String>,
        within: Duration,
        condition: impl FnMut(&WorldState<'_>) -> bool + Send + 'static,
    ) {
        let since = self.shared.elapsed();
        self.shared.state().invariants.add_eventuality(what.into(), within, since, Box::new(condition));
    }

    /// Shows the state of the world to `look`.
    pub fn look<R>(&self, look: impl FnOnce(&WorldState<'_>) -> R) -> R {
        self.shared.look(|state, _| look(state))
    }

    /// Draws a number of this range, which is not empty, from the seed. An empty range gives its start.
    pub fn random(&self, range: std::ops::Range<u64>) -> u64 {
        let count = range.end.saturating_sub(range.start);
        if count == 0 {
            return range.start;
        }
        let state = &mut *self.shared.state();
        state.values += 1;
        let place = Place::Value { nth: state.values };
        range.start + state.chooser.decide(place, Odds::Below(count))
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The clock of this world. It moves while the world is driven.
    pub fn clock(&self) -> Clock {
        self.shared.clock.clock()
    }

    /// The virtual time since the beginning of the run.
    pub fn now(&self) -> Duration {
        self.shared.elapsed()
    }

    /// Checks what must hold when the scenario has returned.
    pub(super) fn finish(&self) {
        self.shared.finish();
    }

    pub(super) fn take_runtimes(&self) -> Vec<Runtime> {
        self.runtimes.take()
    }

    /// Ends the runtimes.
    pub(super) fn end(&self) {
        self.shared.state().is_ending = true;
        #[cfg(feature = "cluster")]
        self.shared.end_pauses(None);
        for runtime in self.take_runtimes() {
            let _ = runtime.shutdown(Duration::ZERO);
        }
        self.shared.drive_to_rest();
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Makes an error of a condition that does not hold. `why` is called only then.
///
/// ```
/// use procession::simulation::ensure;
///
/// assert_eq!(ensure(1 + 1 == 2, || "arithmetic".into()), Ok(()));
/// assert_eq!(ensure(1 + 1 == 3, || "arithmetic".into()), Err("arithmetic".to_owned()));
/// ```
///
/// # Errors
/// The condition does not hold. The error is the text of `why`.
pub fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
