//! The handle of a runtime: calls that spawn, send, stop and inspect.

use std::fmt;
use std::time::Duration;

use super::dispatch::Core;
use super::handle::Handle;
use super::inspect::{ExitCounts, MessageCounts, ProcessInfo, ProcessState, Stats, of_worker, state};
use super::report::{ShutdownError, ShutdownReport};
use super::shutdown::Shutdown;
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, Rejected, drop_contained};
use crate::pool::PoolStats;
use crate::primitives::Arc;
use crate::process::{
    Accepts, DeadLetterReason, NoSuchProcessError, Process, SendError, SpawnError, SpawnOptions, StuckStep, Target,
    described_body,
};
use crate::sched::body::{CountedHost, Machine, Ready, Stage};
use crate::sched::cell::{Birth, Missing, TRAPS};
use crate::sched::counters::{Count, Counters};
use crate::sched::stuck_steps::{FoundStep, StuckSteps};
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
    /// The core, for questions from outside.
    pub(super) host: CountedHost,
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
        if let Err(why) = options.check_outside().and_then(|()| options.check::<P>()) {
            return Err(Rejected::new(process, why));
        }
        let _inside = self.owner.shutdown.enter();
        let Some(_visit) = road.door.enter() else { return Err(Rejected::new(process, SpawnError::ShuttingDown)) };
        let Some(pid) = road.table.vacancy() else {
            return Err(Rejected::new(process, SpawnError::Limit { limit: road.table.limit() }));
        };
        let marks = if options.traps { TRAPS } else { 0 };
        let birth = Birth { bound: options.bound, marks, ..Birth::default() };
        let exit = Latch::new();
        let mut body = described_body(process, pid, options, Some(exit.clone()));
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

    /// Sends a message from outside. If this returns `Ok`, the message was accepted. Messages from one thread to one
    /// receiver are stepped in the order in which they were sent.
    ///
    /// # Errors
    /// The message comes back if there is no process at the target, if its mailbox refuses the message because it is
    /// full, or if the process takes messages of another type. For an [`Address`](crate::Address) and a handle, the
    /// compiler checks the type.
    pub fn send<M: Send + 'static>(&self, to: impl Accepts<M>, message: M) -> Result<(), Rejected<M, SendError>> {
        let core = self.core();
        match core.resolve(&to) {
            Ok(pid) => core.road.send(pid, message),
            Err(why) => Err(Rejected::new(message, why.into())),
        }
    }

    /// Sends a message. If the mailbox is full, the calling thread blocks until there is room, but not longer than
    /// `limit`.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send). The message also comes back if there was no room in time. In a step the
    /// call does not wait for room: it fails with [`SendError::InsideStep`], because a step must not block.
    pub fn send_timeout<M: Send + 'static>(
        &self,
        to: impl Accepts<M>,
        message: M,
        limit: Duration,
    ) -> Result<(), Rejected<M, SendError>> {
        let pid = match self.core().resolve(&to) {
            Ok(pid) => pid,
            Err(why) => return Err(Rejected::new(message, why.into())),
        };
        let road = &self.core().road;
        let deadline = road.clock.deadline(limit);
        let message = match road.send(pid, message) {
            Err(refused) if matches!(refused.reason(), SendError::Full { .. }) && !limit.is_zero() => {
                refused.into_inner()
            }
            told => return told,
        };
        if is_step() {
            return Err(Rejected::new(message, SendError::InsideStep { pid }));
        }
        let send = road.send_and_wait(pid, message);
        if !send.result.wait_until(&road.clock, deadline) {
            road.give_up_send(&send);
            // Another thread may have taken the message out, and be about to set the result.
            send.result.wait_until(&road.clock, road.clock.deadline(Duration::MAX));
        }
        // The result is set, and only this call takes it.
        send.result.take().unwrap_or(Ok(()))
    }

    /// Asks a process to stop, with a reason. The process gets an [`Event::Cancel`](crate::Event::Cancel), and decides
    /// how it responds. Returns `true` if the process lived, and `false` if it has ended.
    ///
    /// # Errors
    /// There has never been a process with this PID, no process has the name, or the group has no members.
    pub fn cancel(&self, target: impl Target, reason: impl Into<Reason>) -> Result<bool, NoSuchProcessError> {
        self.cancel_request(target, reason.into(), None)
    }

    /// Asks a process to stop within `limit`. The event contains the deadline. If the process does not stop in time,
    /// nothing happens.
    ///
    /// # Errors
    /// The errors of [`cancel`](Self::cancel).
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
        let pid = core.resolve(&target)?;
        core.cancel(&mut core.executor(), pid, reason, limit)
    }

    /// Terminates a process. If it is in a step, the step runs to its end. Then the process is closed, and its exit is
    /// [`Exit::Terminated`]. If that step fails or panics, the exit says so instead. Returns `true` if the process
    /// lived, and `false` if it has ended or is being ended.
    ///
    /// # Errors
    /// There has never been a process with this PID, no process has the name, or the group has no members.
    pub fn terminate(&self, target: impl Target) -> Result<bool, NoSuchProcessError> {
        let core = self.core();
        let pid = core.resolve(&target)?;
        core.terminate(&mut core.executor(), pid, false)
    }

    /// Whether the process lives and was not terminated.
    pub fn is_alive(&self, target: impl Target) -> bool {
        let core = self.core();
        core.resolve(&target).is_ok_and(|pid| core.road.is_alive(pid))
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

    /// Describes one process. `None` if there is no process at the target, or if it has ended.
    pub fn process(&self, target: impl Target) -> Option<ProcessInfo> {
        let core = self.core();
        let pid = core.resolve(&target).ok()?;
        Some(core.info(pid, core.look(pid)?, core.names.of(pid), &core.running()))
    }

    /// The state of a process. It is [`ProcessState::Complete`] if the process has ended. `None` if there has never
    /// been a process with this PID, if no process has the name, or if the group has no members.
    pub fn process_state(&self, target: impl Target) -> Option<ProcessState> {
        let core = self.core();
        let pid = core.resolve(&target).ok()?;
        let cell = core.road.table.cell(pid)?;
        loop {
            if let Some(look) = core.look(pid) {
                return Some(state(look.rest, core.running().contains_key(&pid.to_word())));
            }
            match cell.check(pid) {
                Err(Missing::Never) => return None,
                // The process was spawned between the two looks.
                _ if cell.is_live(pid) => {}
                _ => return Some(ProcessState::Complete),
            }
        }
    }

    /// Whether the runtime is idle. Then no process is ready or being stepped, and no blocking work waits or runs. The
    /// runtime stays idle until a call from outside gives it work, a timer fires, or the answer of a handler arrives.
    pub fn is_idle(&self) -> bool {
        let (road, pool) = (&self.core().road, &self.core().pool);
        let still = |pool: &PoolStats| pool.running == 0 && pool.waiting == 0;
        let before = pool.stats();
        // While all workers sleep no process is stepped. Only a job, a timer or a call from outside could wake one of
        // them.
        let asleep = |all| road.sleep.all_sleep(all, || road.queues.has_work());
        let asleep = match &road.stuck_steps {
            Some(stuck_steps) => stuck_steps.with_all(asleep),
            None => asleep(road.workers),
        };
        let after = pool.stats();
        asleep && still(&before) && still(&after) && before.submitted == after.submitted
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
        let (core, road) = (self.core(), &self.core().road);
        let all: Vec<&Counters> = road.views.iter().map(|view| &view.counters).chain([&road.outside]).collect();
        let sum = |which: fn(&Counters) -> &Count| all.iter().map(|counters| which(counters).get()).sum::<u64>();
        let ended = ExitCounts {
            done: sum(|counters| &counters.done),
            failed: sum(|counters| &counters.failed),
            panicked: sum(|counters| &counters.panicked),
            terminated: sum(|counters| &counters.terminated),
        };
        let spawned = sum(|counters| &counters.spawned);
        let dead = |place: usize| all.iter().map(|counters| counters.dead[place].get()).sum::<u64>();
        let stuck_steps = road.stuck_steps.as_ref();
        let looks = usize::from(stuck_steps.is_some_and(StuckSteps::is_armed));
        Stats {
            processes: spawned.saturating_sub(ended.total()),
            spawned,
            ended,
            messages: MessageCounts {
                accepted: sum(|counters| &counters.accepted),
                stepped: sum(|counters| &counters.stepped),
                dead_by_reason: DeadLetterReason::ALL.into_iter().zip((0..).map(dead)).collect(),
                queued: road.table.cells().filter_map(|(_, cell)| cell.look()).map(|look| u64::from(look.queued)).sum(),
            },
            discarded_answers: sum(|counters| &counters.discarded_answers),
            late_replies: sum(|counters| &counters.late_replies),
            timers: core.timers.pending().saturating_sub(looks),
            workers: road.views.iter().zip(0..).map(|(view, worker)| of_worker(road, worker, view)).collect(),
            spare_workers: stuck_steps.map_or(0, StuckSteps::spares),
            stuck_steps: stuck_steps.map_or(0, |stuck_steps| stuck_steps.stuck(0).1),
            steps_elsewhere: road.outside.steps.get(),
            global_queue: road.queues.global_len(),
            blocking_queue: core.pool.stats().waiting,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::{Events, Overflow, Pid, Step, StepOutput, StepResult, Upgrade};
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

    #[test]
    fn senders_that_wait_at_an_upgraded_process_wait_on() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let (begun, gate) = (Latch::new(), Latch::new());
        let held = Held { begun: begun.clone(), gate: Some(gate.clone()) };
        let process = runtime.spawn_with(held, SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
        wait(&begun);
        let road = &runtime.core().road;
        road.send(process.pid(), 1_u32).unwrap();
        let sends = [(); 2].map(|()| road.send_and_wait(process.pid(), 2_u32).result);
        assert!(sends.iter().all(|result| !result.is_set()));
        gate.set(()).unwrap();
        assert_eq!(**wait(&process).output().unwrap(), 1);
        for result in &sends {
            // Their process is done.
            assert_eq!(
                result.take().unwrap().unwrap_err().into_inner(),
                2,
                "the mailbox that they waited at is no more"
            );
        }
    }
}
