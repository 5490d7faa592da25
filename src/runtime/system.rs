//! The handle that a program has of a runtime: spawning, sending, stopping, and looking inside.

use std::fmt;
use std::time::Duration;

use super::dispatch::Core;
use super::handle::Handle;
use super::inspect::{ProcessInfo, ProcessState, Stats};
use super::report::{ShutdownError, ShutdownReport};
use super::shutdown::Shutdown;
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, Rejected, drop_contained};
use crate::primitives::Arc;
use crate::process::{
    Accepts, NoSuchProcessError, Process, SendError, SpawnError, SpawnOptions, StuckStep, Target, described_body,
};
use crate::sched::body::{Machine, Ready, Stage};
use crate::sched::cell::{Birth, Marks};
use crate::sched::machine::HasProcess;
use crate::sched::turn::{Engine, told_of_spawn};
use crate::shutdown::ShutdownNode;

/// A running system of processes.
///
/// Clones are handles to the same runtime. When the last handle is dropped, the processes are terminated and closed, and the
/// threads are ended: a [`shutdown`](Self::shutdown) with a limit of zero. The drop waits for this up to 250 ms. In a step, a job
/// or a timer's action it does not wait.
///
/// There are no globals: two runtimes in one program know nothing of each other.
#[derive(Clone)]
pub struct Runtime {
    pub(super) owner: Arc<Owner>,
}

/// The last one that is dropped ends the runtime.
pub(super) struct Owner {
    pub(super) core: Arc<Core>,
    pub(super) shutdown: Arc<Shutdown>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shutdown.abandon();
    }
}

impl Runtime {
    /// Spawns a process. Its `init` is called on this thread, before anything can reach the process.
    ///
    /// # Errors
    /// The process comes back with the reason; if `init` failed, closed, and nothing of it remains in the runtime.
    pub fn spawn<P: Process>(&self, process: P) -> Result<Handle<P>, Rejected<P, SpawnError>> {
        self.spawn_with(process, SpawnOptions::new())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn); also if the options are out of range or the name is taken.
    pub fn spawn_with<P: Process>(
        &self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Handle<P>, Rejected<P, SpawnError>> {
        let (core, road) = (self.core(), &self.core().road);
        if let Err(why) = options.check_outside().and_then(|()| options.check::<P>()) {
            return Err(Rejected::new(process, why));
        }
        let _inside = self.owner.shutdown.enter();
        let Some(_visit) = road.door.enter() else { return Err(Rejected::new(process, SpawnError::ShuttingDown)) };
        let Some(pid) = road.table.vacancy() else {
            return Err(Rejected::new(process, SpawnError::Limit { limit: road.table.limit() }));
        };
        let marks = Marks::default().with(Marks::TRAPS, options.traps);
        let birth = Birth { bound: options.bound, marks, ..Birth::default() };
        let exit = Latch::new();
        let mut body = described_body(process, pid, options, Some(exit.clone()));
        let mut begun = core.begins(&mut body.head).map_err(refused_name);
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
            // Not the PID itself: it may have been seen, under the name.
            road.table.give_back_after(pid);
            drop_contained(body.head.rare.take());
            return Err(Rejected::new(body.machine.into_process(), why));
        }
        body.head.stage = Stage::Open;
        if let Some(given) = body.head.rare.as_mut().and_then(|rare| rare.given.as_mut()) {
            core.joins(std::mem::take(&mut given.groups), pid, &mut core.executor());
        }
        let ready: Ready = body;
        road.outside.add(&road.outside.spawned, 1);
        told_of_spawn(road, &ready);
        road.inject(ready);
        Ok(Handle::new(pid, exit, road.clock.clone()))
    }

    /// Sends a message from outside. It has been accepted when this returns; from one thread to one receiver, what is
    /// sent first is stepped first.
    ///
    /// # Errors
    /// The message comes back: there is no process at the target, its mailbox is full, or it takes messages of another type. For an
    /// [`Address`](crate::Address) and a handle, the compiler has checked the type.
    pub fn send<M: Send + 'static>(&self, to: impl Accepts<M>, message: M) -> Result<(), Rejected<M, SendError>> {
        let core = self.core();
        match to.resolve(&**core) {
            Ok(pid) => core.road.send(pid, message),
            Err(why) => Err(Rejected::new(message, why.into())),
        }
    }

    /// Sends a message, and if the mailbox is full blocks the calling thread until there is room, but not longer than
    /// `limit`.
    ///
    /// # Errors
    /// The message comes back: there was no room in time, or there is no such process. Refused inside a step, which must
    /// not block.
    pub fn send_timeout<M: Send + 'static>(
        &self,
        to: impl Accepts<M>,
        message: M,
        limit: Duration,
    ) -> Result<(), Rejected<M, SendError>> {
        let pid = match to.resolve(&**self.core()) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(message, why.into())),
        };
        let clock = &self.core().road.clock;
        let deadline = clock.deadline(limit);
        let mut message = message;
        loop {
            let refused = match self.core().road.offer(pid, message, true) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let Some(room) = refused.room else { return Err(refused.message) };
            if !limit.is_zero() && is_step() {
                return Err(Rejected::new(refused.message.into_inner(), SendError::InsideStep { pid }));
            }
            if !room.wait_until(clock, deadline) {
                return Err(refused.message);
            }
            message = refused.message.into_inner();
        }
    }

    /// Asks a process to stop, with a reason: it gets a cancel event, and what it does about it is its own affair.
    /// Whether it was there to be told: `false` if it has ended.
    ///
    /// # Errors
    /// There has never been a process with this PID, or nobody has the name or is in the group.
    pub fn cancel(&self, target: impl Target, reason: impl Into<Reason>) -> Result<bool, NoSuchProcessError> {
        self.cancel_request(target, reason.into(), None)
    }

    /// The same, and the process is told that it should have stopped within `limit`; nothing happens when that is over.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub fn cancel_timeout(
        &self,
        target: impl Target,
        reason: impl Into<Reason>,
        limit: Duration,
    ) -> Result<bool, NoSuchProcessError> {
        self.cancel_request(target, reason.into(), Some(limit))
    }

    fn cancel_request(
        &self,
        target: impl Target,
        reason: Reason,
        limit: Option<Duration>,
    ) -> Result<bool, NoSuchProcessError> {
        let core = self.core();
        let pid = target.resolve(&**core)?;
        core.cancel(&mut core.executor(), pid, reason, limit).map_err(|_| NoSuchProcessError::Pid(pid))
    }

    /// Ends a process: after the step that it may be in, it is not stepped again; it is closed, and its exit says
    /// terminated. Whether it was there to be ended: `false` if it had ended, or is being ended already.
    ///
    /// # Errors
    /// There has never been a process with this PID, or nobody has the name or is in the group.
    pub fn terminate(&self, target: impl Target) -> Result<bool, NoSuchProcessError> {
        let core = self.core();
        let pid = target.resolve(&**core)?;
        core.terminate(&mut core.executor(), pid, false).map_err(|_| NoSuchProcessError::Pid(pid))
    }

    /// Whether the process lives, and is not about to be ended.
    pub fn is_alive(&self, target: impl Target) -> bool {
        let core = self.core();
        target.resolve(&**core).is_ok_and(|pid| core.road.is_alive(pid))
    }

    /// The first number of this runtime's PIDs.
    pub fn node(&self) -> u32 {
        self.core().road.table.node()
    }

    /// Ends the runtime, and returns a report.
    ///
    /// The runtime accepts no new process, and asks every process to stop. It waits until all have ended and their blocking work is
    /// done, or `limit` is over. Then it terminates the processes that are left, and ends the threads.
    ///
    /// The request to stop overtakes the messages that wait. If the process ends on it, these messages are dead letters. To drain
    /// the mailbox first, `ask` and wait for the reply.
    ///
    /// The limit runs by the runtime's clock: somebody must move a [`ManualClock`](crate::clock::ManualClock). The end runs on a
    /// thread of its own. This call waits for it until the limit is over, and then for 250 ms more by the system's clock. If user
    /// code hangs there (a `close`, a destructor, a waker), the report [names the stage](ShutdownReport::hangs). What comes after it
    /// in that stage may not be done. Processes that were not reached have the exit
    /// [`Terminated`](crate::Exit::Terminated), and their `join` returns. A step that does not return is in the report, too: its
    /// process ends when the step returns.
    ///
    /// Any number of threads may call this, any number of times. The first call's limit counts, and all calls return the same
    /// report.
    ///
    /// # Errors
    /// Refused in a step of any runtime, because it would block the worker. Refused in an `init`, a blocking closure or a timer's
    /// action of this runtime, because it would wait for itself. Nothing is shut down then.
    pub fn shutdown(&self, limit: Duration) -> Result<Arc<ShutdownReport>, ShutdownError> {
        self.owner.shutdown.run(limit)
    }

    /// The runtime in a [shutdown tree](crate::shutdown), always the same state: its processes end first, then the timers, then the
    /// pool, the workers last. What closes before it and after it is said with [`ShutdownNode::depends_on`].
    ///
    /// Asked to close, it shuts the runtime down as [`shutdown`](Self::shutdown) does, on a thread of its own, with the
    /// limit of [`shutdown_limit`](crate::config::RuntimeBuilder::shutdown_limit). A runtime that is shut down otherwise, or
    /// dropped, closes it. If something had to be forced, or is left, it has an [`UncleanShutdown`](crate::observe::UncleanShutdown)
    /// as its error; as long as processes keep it from ending, the error of the tree's shutdown names them: `runtime:
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

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.owner.core
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

/// How a spawn failed, of how its process could not take its name.
fn refused_name(exit: Exit) -> SpawnError {
    match exit {
        Exit::Failed(failure) => match failure.error().downcast_ref::<SpawnError>() {
            Some(error) => error.clone(),
            None => SpawnError::Init(failure),
        },
        other => failed_init(other),
    }
}

/// The same, of how its `init` ended; whatever error that returned is its own.
fn failed_init(exit: Exit) -> SpawnError {
    match exit {
        Exit::Failed(failure) => SpawnError::Init(failure),
        Exit::Panicked(panic) => SpawnError::InitPanicked(panic),
        Exit::Done(()) | Exit::Terminated(_) => SpawnError::ShuttingDown,
    }
}

impl Runtime {
    /// All processes, each as it was when its turn to be looked at came.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.core().processes()
    }

    /// One process; nothing if it has ended, or never was.
    pub fn process(&self, target: impl Target) -> Option<ProcessInfo> {
        let core = self.core();
        core.process(target.resolve(&**core).ok()?)
    }

    /// What a process is doing: [`ProcessState::Complete`] if it has ended, nothing if there has never been one with this
    /// PID, or nobody has the name or is in the group.
    pub fn process_state(&self, target: impl Target) -> Option<ProcessState> {
        let core = self.core();
        core.state(target.resolve(&**core).ok()?)
    }

    /// Whether everything is at rest: no process is ready or being stepped, and no blocking work is waiting or running. It
    /// stays so until somebody outside sends, a timer fires, or a handler's completion comes.
    pub fn is_idle(&self) -> bool {
        self.core().is_idle()
    }

    /// The steps that are stuck now, and have been reported by the [`Watchdog`](crate::config::Watchdog); none where there is none.
    pub fn stuck_steps(&self) -> Vec<StuckStep> {
        let road = &self.core().road;
        road.stuck_steps.as_ref().map(|stuck_steps| stuck_steps.stuck(road.now_nanos()).0).unwrap_or_default()
    }

    /// Counts since the runtime was started.
    pub fn stats(&self) -> Stats {
        self.core().stats()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::{Events, Overflow, Pid, Step, StepOutput, StepResult, Upgrade};
    use crate::wait::wait;

    /// Held up in its first step until the gate opens; then replaced by another, which is done.
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

    #[test]
    fn an_upgrade_tells_those_who_wait_for_room() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let (begun, gate) = (Latch::new(), Latch::new());
        let held = Held { begun: begun.clone(), gate: Some(gate.clone()) };
        let process = runtime.spawn_with(held, SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
        wait(&begun);
        let road = &runtime.core().road;
        road.send(process.pid(), 1_u32).unwrap();
        let waits = || road.offer(process.pid(), 2_u32, true).err().and_then(|refused| refused.room).unwrap();
        let rooms = [waits(), waits()];
        assert!(rooms.iter().all(|room| !room.is_set()));
        gate.set(()).unwrap();
        assert_eq!(**wait(&process).output().unwrap(), 1);
        assert!(rooms.iter().all(Latch::is_set), "the mailbox that they waited at is no more");
    }
}
