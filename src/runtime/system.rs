//! The handle of a runtime: calls that spawn, send, stop and inspect.

use std::fmt;
use std::time::Duration;

use super::access::{Access, WeakAccess};
use super::dispatch::Core;
use super::handle::Handle;
use super::inspect::{ProcessInfo, Stats};
use super::report::{ShutdownError, ShutdownReport};
use super::shutdown::Shutdown;
use crate::latch::Latch;
use crate::outcome::{Exit, Rejected, drop_contained};
use crate::primitives::Arc;
use crate::process::{Process, SpawnError, SpawnOptions, StuckStep, described_body};
use crate::sched::body::{Machine, Ready, Stage};
use crate::sched::cell::{Birth, NEVER_HELD, TRAPS};
use crate::sched::stuck_steps::FoundStep;
use crate::sched::turn::{Engine, told_of_spawn};
use crate::shutdown::ShutdownNode;

/// A handle to a running system of processes.
///
/// Clones are handles to the same runtime. When the last handle is dropped, the runtime shuts down with a limit of
/// zero: the processes are terminated and closed, and the threads end. See [`shutdown`](Self::shutdown). The drop
/// waits for the end of the shutdown. It gives up when the shutdown has made no progress for 250 ms. In a step, a job
/// or a timer's action, the drop does not wait.
///
/// There is no global state. Two runtimes in one program are independent of each other.
#[derive(Clone)]
pub struct Runtime {
    pub(super) owner: Arc<Owner>,
}

/// The part that all handles share. Its drop ends the runtime.
pub(super) struct Owner {
    pub(super) core: Arc<Core>,
    /// The core, for references to processes. They do not keep the runtime alive.
    pub(super) access: Arc<Access>,
    pub(super) shutdown: Arc<Shutdown>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shutdown.abandon();
    }
}

impl Runtime {
    /// Spawns a process. Its `init` is called on the calling thread, before any event can reach the process.
    ///
    /// # Errors
    /// The process comes back with the reason. If `init` failed, the process has been closed, and nothing of it
    /// remains in the runtime.
    pub fn spawn<P: Process>(&self, process: P) -> Result<Handle<P>, Rejected<P, SpawnError>> {
        self.spawn_with(process, SpawnOptions::new())
    }

    /// Spawns a process with options.
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn). The process also comes back if an option is invalid, or if the name is
    /// taken. The options `link`, `monitor` and `report_started` are refused: they need a step that spawns.
    pub fn spawn_with<P: Process>(
        &self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Handle<P>, Rejected<P, SpawnError>> {
        let (core, road) = (self.core(), &self.core().road);
        if let Err(why) = options.check_unrelated().and_then(|()| options.check::<P>()) {
            return Err(Rejected::new(process, why));
        }
        let _inside = self.owner.shutdown.enter();
        let Some(_visit) = road.door.enter() else { return Err(Rejected::new(process, SpawnError::ShuttingDown)) };
        let Some(pid) = road.table.vacancy() else {
            return Err(Rejected::new(process, SpawnError::Limit { limit: road.table.limit() }));
        };
        let marks = if options.traps { TRAPS } else { 0 } | if options.never_held { NEVER_HELD } else { 0 };
        let birth = Birth { bound: options.bound, marks, ..Birth::default() };
        let exit = Latch::new();
        let mut body = described_body(process, pid, options, Some(exit.clone()));
        let entry = road.recorder.as_ref().and_then(|recorder| recorder.entry_of(&*body));
        let mut begun = core.begins(&mut body.head);
        if begun.is_ok() {
            begun = body.machine.enter().map_err(failed_init);
            if begun.is_ok() {
                let installed = road.table.cell(pid).is_some_and(|cell| {
                    let kind = body.machine.kind();
                    cell.install(pid.generation(), kind, birth, road.now_micros(), || road.is_roll_called())
                });
                if !installed {
                    begun = Err(SpawnError::ShuttingDown);
                }
            }
            if begun.is_err() {
                body.machine.close();
                core.ended(&mut body.head);
            }
        }
        if let Err(why) = begun {
            // The PID must not be used again, because a look-up of the name may have returned it.
            road.table.give_back_after(pid);
            drop_contained(body.head.rare.take());
            return Err(Rejected::new(body.machine.into_process(), why));
        }
        body.head.stage = Stage::Initialised;
        if let Some(given) = body.head.rare.as_mut().and_then(|rare| rare.given.as_mut()) {
            core.joins(std::mem::take(&mut given.groups), pid, &mut core.executor());
        }
        let mut ready: Ready = body;
        road.outside.add(&road.outside.spawned, 1);
        if let Some(recorder) = &road.recorder {
            recorder.record(&mut ready, entry);
        }
        told_of_spawn(road, &road.outside, &mut ready);
        road.inject(ready);
        Ok(Handle::new(pid, exit, WeakAccess::of(&self.owner.access), road.clock.clone()))
    }

    /// The node of this runtime: the first number of its PIDs.
    pub fn node(&self) -> u32 {
        self.core().road.table.node()
    }

    /// Ends the runtime, and returns a report.
    ///
    /// The runtime accepts no new process, and asks every process to stop. It waits until all processes have ended and
    /// their blocking work is done, or until `limit` is over. Then it terminates the remaining processes, and ends the
    /// threads.
    ///
    /// The request to stop overtakes the messages in the mailbox. If the process then ends, these messages are dead
    /// letters. To drain the mailbox first, `ask` and wait for the reply.
    ///
    /// The limit is by the runtime's clock. If that is a [`ManualClock`](crate::clock::ManualClock), the program must
    /// move it. The shutdown runs on a helper thread. This call waits for its end. After the limit, the call gives up
    /// when the shutdown has made no progress for 250 ms by the system's clock.
    ///
    /// User code may hang on the helper thread: a `close`, a destructor, or a waker. Then the report [names the
    /// stage](ShutdownReport::hangs). The rest of that stage may not be done. Some processes may not be closed then.
    /// They have the exit [`Terminated`](crate::Exit::Terminated), and their `join` returns.
    ///
    /// If a step does not return, the report lists its process. The process ends when the step returns.
    ///
    /// Any number of threads may call this, any number of times. The limit of the first call counts. All calls return
    /// the same report.
    ///
    /// # Errors
    /// The call is refused in a step of any runtime, because it would block the worker. It is also refused in an
    /// `init`, a blocking closure or a timer's action of this runtime, because it would wait for itself. A refused
    /// call does not shut the runtime down.
    pub fn shutdown(&self, limit: Duration) -> Result<Arc<ShutdownReport>, ShutdownError> {
        self.owner.shutdown.run(limit)
    }

    /// The node of the runtime in a [shutdown tree](crate::shutdown). Each call returns the same node. Within it, the
    /// processes end first, then the timers, then the pool, and the workers last. [`ShutdownNode::depends_on`] sets
    /// the order between this node and other nodes.
    ///
    /// A request to the node shuts the runtime down, like [`shutdown`](Self::shutdown), but on a helper thread. The
    /// limit is [`shutdown_limit`](crate::config::RuntimeBuilder::shutdown_limit). If the runtime is shut down by a
    /// call, or by the drop of its last handle, the node closes, too. If the report of the shutdown is not clean, the
    /// error of the node is an [`UncleanShutdown`](crate::observe::UncleanShutdown).
    ///
    /// If processes keep the node from ending in time, the error of the tree's shutdown names them: `runtime:
    /// processes: timeout expired (1 process is left: <0.12.3> my::Type (running for 2s))`.
    ///
    /// ```
    /// use procession::{Runtime, ShutdownNode};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// // It takes requests and sends them to processes, so it ends before them.
    /// let server = ShutdownNode::thread("server", |job| {
    ///     job.end().wait();
    ///     Ok(())
    /// })?;
    /// let all = runtime.shutdown_node().depends_on([server]);
    /// all.shutdown_timeout(Duration::from_secs(20))?;
    /// assert!(all.err().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_node(&self) -> ShutdownNode {
        self.owner.shutdown.node()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }

    /// An access that does not keep the runtime alive.
    #[cfg(feature = "cluster")]
    pub(crate) fn weak_access(&self) -> WeakAccess {
        WeakAccess::of(&self.owner.access)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("node", &self.node())
            .field("workers", &self.core().road.workers)
            .finish_non_exhaustive()
    }
}

/// Processes whose machines a store makes.
#[cfg(feature = "durable")]
impl Core {
    /// A PID for a new process, if there is room for one, and the runtime is not shutting down.
    pub(crate) fn vacancy(&self) -> Option<crate::pid::Pid> {
        if self.road.door.is_closed() { None } else { self.road.table.vacancy() }
    }

    /// Enters a body with such a PID in the table, with this many messages in its mailbox. Messages reach the process
    /// from now on. [`began_body`](Self::began_body) queues it. It comes back if the runtime shuts down.
    pub(crate) fn install_body(&self, (ready, queued): (Ready, u32)) -> Result<Ready, Ready> {
        let (road, pid) = (&self.road, ready.head.pid);
        let birth = Birth { queued, ..Birth::default() };
        let visit = road.door.enter();
        let installed = visit.is_some()
            && road.table.cell(pid).is_some_and(|cell| {
                let kind = ready.machine.kind();
                cell.install(pid.generation(), kind, birth, road.now_micros(), || road.is_roll_called())
            });
        if !installed {
            road.table.give_back_after(pid);
            return Err(ready);
        }
        road.outside.add(&road.outside.spawned, 1);
        road.outside.add(&road.outside.accepted, u64::from(queued));
        Ok(ready)
    }

    /// Queues a body for its first turn.
    pub(crate) fn began_body(&self, mut ready: Ready) {
        told_of_spawn(&self.road, &self.road.outside, &mut ready);
        self.road.inject(ready);
    }
}

/// The error of a spawn whose `init` failed. It contains the error that `init` returned.
fn failed_init(exit: Exit) -> SpawnError {
    match exit {
        Exit::Failed(failure) => SpawnError::Init(failure),
        Exit::Panicked(panic) => SpawnError::InitPanicked(panic),
        Exit::Done(()) | Exit::Terminated(_) => SpawnError::ShuttingDown,
    }
}

impl Runtime {
    /// Describes all processes. The call looks at one after the other, so the descriptions are of slightly different
    /// moments.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.core().processes()
    }

    /// The steps that are stuck now, as far as the [`Watchdog`](crate::config::Watchdog) has found them. Without a
    /// watchdog the list is empty.
    pub fn stuck_steps(&self) -> Vec<StuckStep> {
        let road = &self.core().road;
        let found = road.stuck_steps.as_ref().map(|stuck_steps| stuck_steps.stuck(road.now_nanos()).0);
        found.unwrap_or_default().into_iter().map(FoundStep::describe).collect()
    }

    /// The counts since the runtime was started.
    pub fn stats(&self) -> Stats {
        let mut stats = self.core().counts();
        stats.messages.queued = self.core().queued();
        stats
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::{Events, Pid, Step, StepOutput, StepResult, Upgrade};
    use crate::wait::wait;

    /// Waits in its first step until the gate opens. Then its successor replaces it, and is done.
    struct Held {
        begun: Latch<()>,
        gate: Option<Latch<()>>,
    }

    impl Process for Held {
        type Message = u32;
        type Output = usize;

        fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<usize> {
            let Some(gate) = self.gate.take() else { return Ok(Step::Done(events.count())) };
            let _ = self.begun.set(());
            wait(&gate);
            Ok(Step::Upgrade(Upgrade::to(Held { begun: self.begun.clone(), gate: None })))
        }
    }

    /// Spawns a child in its first step, and fails.
    struct Parent;

    impl Process for Parent {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            let gate = Some(Latch::new());
            out.spawn(Held { begun: Latch::new(), gate })?;
            Err("with a child".into())
        }
    }

    #[test]
    fn the_limit_is_exact_after_a_failed_step_in_worn_out_slots() {
        let runtime = Runtime::builder().workers(1).max_processes(2).start().unwrap();
        let table = &runtime.core().road.table;
        let slots = [table.vacancy().unwrap(), table.vacancy().unwrap()];
        // Both have been given to all processes but the last.
        slots.iter().for_each(|pid| table.give_back(table.pid(pid.slot(), Pid::MAX_GENERATION).unwrap()));
        let parent = runtime.spawn(Parent).unwrap();
        assert_eq!(parent.pid().generation(), Pid::MAX_GENERATION);
        assert!(matches!(wait(&parent), Exit::Failed(_)));
        let held = || Held { begun: Latch::new(), gate: None };
        let gate = Latch::new();
        let two: Vec<_> = (0..2).map(|_| runtime.spawn(Held { gate: Some(gate.clone()), ..held() })).collect();
        assert!(two.iter().all(Result::is_ok), "there is room for two, in slots of their own: {two:?}");
        assert!(matches!(runtime.spawn(held()).unwrap_err().reason(), SpawnError::Limit { limit: 2 }));
        gate.set(()).unwrap();
    }
}
